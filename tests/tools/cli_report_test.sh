#!/bin/bash
# What the command prints: help, lists, plans, the table and its JSON, progress.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

stable_keys=(net batch device policy codec budget_bytes peak_bytes predicted_peak_bytes minimum_bytes outside_bytes
    stash_bytes images_per_second iteration_seconds_median iteration_seconds_p95 iteration_seconds_predicted
    simulator_error simulated codec_hidden_share codec_busy_seconds loss_first loss_last test_accuracy fuse
    workspace_limit_bytes iterations pinned_bytes host_peak_bytes host_planned_bytes host_other_bytes encoded_bytes
    coded_bytes spilled_bytes status)

narrow() { # FILE COLUMNS
    local line
    while IFS= read -r line; do ((${#line} <= $2)) || fail "${#line} columns: $line"; done <"$1"
}

# ---------------------------------------------------------------- help and lists

every_command_has_help_() {
    for option in --help -h help; do
        expect 0 "$option"
        says out "usage: mm COMMAND"
    done
    for command in $(mm_commands); do
        says out "  $command "
        for option in --help -h; do
            "$mm" "$command" $option >"help.$command" 2>err || fail "mm $command $option: status $?"
            [[ ! -s err ]] || fail "mm $command $option: something on stderr"
        done
        says "help.$command" "usage: mm $command"
        narrow "help.$command" 120
    done
    for option in net data batch iterations epochs device budget policy switch seed save save-every load eval keep-going \
        self-check no-ladder deterministic workspace json; do
        says help.train "  --$option "
    done
    for option in net batch policies budgets iterations simulate predict json svg; do says help.bench "  --$option "; done
    for key in "${stable_keys[@]}"; do says help.bench "$key"; done
    expect 0 train --batch 0 --help
    says out "usage: mm train"
}

every_command_has_the_headers_version_() {
    expect 0 --version
    cp out version
    [[ $(<version) =~ ^mm\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "$(<version)"
    for command in $(mm_commands); do
        expect 0 "$command" --version
        equal out version
    done
}

a_diverged_row_ends_no_table_() {
    local line
    doubling_net >doubling.json
    expect 0 bench --net file:doubling.json,tiny --batch 4 --policies naive,liveness --iterations 3 --json rows --quiet
    mapfile -t lines < <(values rows status)
    [[ ${lines[*]} == "diverged diverged ok ok" ]] || fail "${lines[*]}"
    mapfile -t lines < <(values rows loss_last)
    [[ ${lines[*]:0:2} == "null null" && ${lines[2]} == [0-9]* ]] || fail "${lines[*]}"
    mapfile -t lines < <(values rows iterations)
    [[ ${lines[*]} == "3 3 3 3" ]] || fail "${lines[*]}"
    [[ $(count err "diverged: the loss of iteration 1 is ") == 2 ]] || fail "not a line for each"
    for line in naive liveness; do says out "$line"; done
}

every_net_listed_can_be_planned_() {
    expect 0 nets
    local name rest count=0
    while read -r name rest; do
        name=${name/<6n+2>/14} name=${name/<9n+2>/11} name=${name/<a,b,c,d>/1,1,1,1} name=${name/<a,b,c>/1,1,1}
        expect 0 plan --net "$name" --batch 1 --policy liveness --json row
        [[ $(values row net) == "$name" && $rest ]] || fail "mm plan --net $name is of another net"
        count=$((count + 1))
    done < <("$mm" nets)
    ((count >= 7)) || fail "only $count nets"
}

every_policy_and_codec_listed_can_be_used_() {
    expect 0 policies
    local name rest
    while IFS= read -r line; do
        [[ $line != ' '* ]] || continue
        read -r name rest <<<"$line"
        [[ $name != plan ]] || continue # it needs a file: plan_saved_test
        expect 0 plan --net tiny --batch 2 --policy "$name" --json row
        [[ $(values row policy) == "$name"* && $rest ]] || fail "mm plan --policy $name is of another policy"
    done < <("$mm" policies)
    expect 0 policies --help
    says out "bn-relu, lrn"
    says out "bn-relu"
    for name in naive liveness freelunch; do [[ $("$mm" policies) == *"$name "* ]] || fail "no $name"; done
    expect 0 codecs
    local entry
    for entry in "raw lossless fixed 32 " "mask lossless fixed 1 " "zfp lossy fixed 6.375 " "dpr:fp16 lossy fixed 16 " \
        "dpr:fp10 lossy fixed 10.67" "dpr:fp8 lossy fixed 8" "mx:fp8 lossy fixed 8.25 " "mx:fp6 lossy fixed 6.25" \
        "mx:fp4 lossy fixed 4.25" "mx:int8 lossy fixed 8.25" "group:bits=8 lossy fixed 8.125" \
        "group:bits=4 lossy fixed 4.125" "group:bits=2 lossy fixed 2.125" "zvc lossless variable" \
        "eb lossy variable" "eb:abs=0.01 lossy variable"; do
        grep -qF -- "$entry" <(tr -s ' ' <out) || fail "no codec: $entry"
    done
}

# ratio LAYER CODEC LAYOUT: prints the codec's ratio in the first sampled iteration; LAYER null: over all layers.
ratio() {
    awk -v layer="\"layer\": $1," -v codec="\"$2\": {" -v layout="\"$3\": " '
        index($0, layer) { found = 1 } found && index($0, codec) { inside = 1 }
        inside && index($0, layout) { sub(/,$/, ""); print $2; exit }' study
}

a_study_measures_the_maps_of_a_network_in_training_() {
    expect 0 codecs --study --net tiny --batch 8 --iterations 1,3 --quiet --json study
    says out "tiny, batch 8, synthetic: iteration 3, loss "
    narrow out 100
    [[ $(values study iteration | sort | uniq -c | wc -l) == 2 ]] || fail "not two iterations"
    local density zvc dense
    density=$(values study density | head -1)
    zvc=$(ratio '"relu1"' zvc nchw)
    is_less 0.3 "$density" || fail "relu1 has $density"
    awk -v d="$density" -v r="$zvc" 'BEGIN { e = r * (d + 1 / 32); exit !(e > 0.999 && e < 1.001) }' ||
        fail "zvc makes $zvc of $density"
    [[ $(ratio '"relu1"' zvc chwn) == "$zvc" ]] || fail "zvc depends on the layout"
    dense=$(ratio '"conv2"' zvc nchw) # input of the next batch norm: 33/32 as published, not stored raw
    [[ $dense == 0.9696969* ]] || fail "a dense map: $dense"
    expect 0 codecs --study --net tiny --batch 8 --iterations 1,3 --quiet --json again # the same on every run
    equal again study
}

a_study_draws_maps_with_a_share_of_zeros_() {
    expect 0 codecs --study --net alexnet-2012 --batch 1 --draw 0.494 --windows 40 --quiet --json study
    says out "alexnet-2012, batch 1, drawn maps"
    local codec
    awk -v d="$(values study density | tail -1)" 'BEGIN { exit !(d > 0.49 && d < 0.52) }' || fail "another density"
    is_less "$(ratio '"relu5"' rle nhwc)" "$(ratio '"relu5"' rle nchw)" || fail "zeros do not lie together in a plane"
    is_less "$(ratio '"relu5"' rle nchw)" "$(ratio '"relu5"' zvc nchw)" || fail "runs beat masks"
    for codec in zvc rle deflate csr; do is_less 1 "$(ratio null $codec nchw)" || fail "$codec"; done
}

what_a_study_cannot_do_is_one_line_() {
    refused 2 "--iterations 3,2: must be rising whole numbers, from 1 to 1e9" codecs --study --iterations 3,2
    # The error comes before training begins.
    refused 1 "/nowhere/x: cannot be written" codecs --study --net tiny --iterations 1 --json /nowhere/x
    refused 2 "no net nope" codecs --study --net nope
    refused 2 "--draw 2: must be" codecs --study --draw 2
    refused 2 "only 0.00 to 0.48" codecs --study --net resnet20 --batch 1 --draw 0.99
    refused 1 "/nowhere" codecs --study --data cifar10:/nowhere --iterations 1
    refused 2 "--net" codecs --net tiny
}

what_is_printed_fits_100_columns_() {
    local commands=(policies codecs "codecs --study --help" nets "nets --ops" "nets --net googlenet"
        "plan --net resnet20 --batch 4 --explain --policy liveness,freelunch,recompute,swap-async")
    for command in "${commands[@]}"; do
        # shellcheck disable=SC2086 # words
        expect 0 $command
        narrow out 100
    done
}

# ---------------------------------------------------------------- plans

a_plan_names_what_holds_the_memory_() {
    expect 0 plan --net resnet20 --batch 8 --json rows
    for text in "minimum budget" "held by" "feature maps" "gradient maps" persistent workspace codes; do says out "$text"; done
    narrow out 100
    mapfile -t least < <(values rows minimum_bytes)
    ((${#least[@]} == 3 && least[0] > least[1] && least[1] > least[2])) || fail "minima ${least[*]}"
    [[ $(values rows held_by) =~ (forward|backward) ]] || fail "no step is named"
    expect 0 bench --net resnet20 --batch 8 --iterations 1 --quiet --json run
    [[ $(values run minimum_bytes) == $(values rows minimum_bytes) ]] || fail "what runs has other minima"
}

a_plan_that_does_not_fit_exits_with_1_() {
    local least
    least=$(minimum resnet20 8 liveness)
    expect 0 plan --net resnet20 --batch 8 --policy liveness --budget "$least"
    expect 1 plan --net resnet20 --batch 8 --policy liveness --budget $((least - 1)) --json rows
    [[ $(values rows status) == infeasible* ]] || fail "the row does not say so"
    expect 1 plan --net resnet20 --batch 8 --policy liveness,freelunch:rate=4 --budget $((least - 1)) --json rows
    [[ $(values rows status) == infeasible*$'\n'ok ]] || fail "not one that fits and one that does not"
}

measured_facts_give_a_step_time_() {
    expect 0 bench --net resnet20 --batch 8 --iterations 3 --policies liveness,freelunch:rate=4 --facts facts --quiet
    expect 0 plan --net resnet20 --batch 8 --policy liveness,freelunch:rate=4 --facts facts --json rows
    mapfile -t seconds < <(values rows iteration_seconds_predicted)
    [[ ${#seconds[@]} == 2 && ${seconds[0]} =~ ^0?\.?[0-9] && ${seconds[0]} != null ]] || fail "times ${seconds[*]}"
    expect 0 plan --net resnet20 --batch 8 --policy freelunch:rate=8,swap-async --facts facts --json rows
    [[ $(values rows iteration_seconds_predicted) == null$'\n'null ]] || fail "a time of what was not measured"
    says out "no times of zfp:rate=8"
    says out "no times of the link"
    expect 0 plan --net resnet20 --batch 8 --policy liveness --json rows
    [[ $(values rows iteration_seconds_predicted) == null ]] || fail "a time without facts"
    expect 2 plan --net resnet20 --batch 4 --policy liveness --facts facts
    echo "{" >broken
    expect 1 plan --net resnet20 --batch 8 --facts broken
    says err "broken"
}

# ---------------------------------------------------------------- the table

a_bench_of_plans_ends_with_what_fits_only_freelunch_() {
    expect 0 bench --net resnet20 --batch 16 --policies naive,liveness,freelunch:rate=4 --budgets plans --iterations 2 \
        --json rows --quiet
    mapfile -t lines <out
    says out "resnet20, batch 16: images/s by budget"
    says out "(columns left out: "
    printf '%s\n' "${lines[@]:9}" >table
    [[ ${lines[9]} == "net "* ]] || fail "${lines[9]}"
    narrow table 80
    mapfile -t verdict < <(values rows status)
    for i in 0 1 2 4 5 8; do [[ ${verdict[i]} == ok ]] || fail "row $i: ${verdict[i]}"; done
    for i in 3 6 7; do
        [[ ${verdict[i]} =~ ^"infeasible: needs at least "[0-9]+" bytes ("[0-9.]+"MiB), held by "[a-z0-9.]+\ (forward|backward)$ ]] || fail "row $i: ${verdict[i]}"
    done
    [[ ! -s err ]] || fail "something on stderr"
}

rows_have_the_stable_keys_() {
    expect 0 bench --net tiny,resnet20 --batch 4,6 --policies liveness,freelunch --iterations 2 --json rows --quiet
    for key in "${stable_keys[@]}"; do
        (($(values rows "$key" | wc -l) == 8)) || fail "key $key is not in every row"
    done
    [[ $(values rows net | sort | uniq -c) =~ 4\ resnet20.*4\ tiny ]] || fail "not four rows of each net"
    [[ $(values rows codec) == *zfp:rate=* ]] || fail "no codec is named"
    says out stash
    [[ $(<out) != *pinned* ]] || fail "pinned memory of policies that take none"
    for key in peak_bytes predicted_peak_bytes minimum_bytes stash_bytes; do
        for value in $(values rows $key); do ((value > 0)) || fail "$key $value"; done
    done
    expect 0 train --net tiny --batch 4 --iterations 2 --json row --quiet
    for key in "${stable_keys[@]}"; do (($(values row "$key" | wc -l) == 1)) || fail "key $key is not in the row"; done
    (($(values row peak_bytes) > 0)) || fail "the peak was not measured"
}

json_replaces_what_a_link_points_to_() {
    echo old >target
    ln -s target link
    expect 0 plan --net tiny --json link
    [[ -L link && $(<target) == '['*']' ]] || fail "the link was replaced"
}

json_can_go_to_standard_output_and_tables_beside_it_() {
    local command run
    local -A short=([train]="--net tiny --batch 4 --iterations 2" [bench]="--net tiny --batch 4 --iterations 2"
        [plan]="--net tiny --policy liveness,swap" [device]="--device host")
    for command in $(commands_with "--json FILE"); do
        [[ -v short[$command] ]] || fail "mm $command has --json: say here how it ends soon"
        read -ra run <<<"$command ${short[$command]}"
        expect 0 "${run[@]}" --json -
        [[ $(head -1 out) == "[" && $(tail -1 out) == "]" ]] || fail "$command: not an array alone"
        [[ -s err && ! -e - ]] || fail "$command: its tables are nowhere, or a file is named -"
        command -v python3 >/dev/null || continue
        python3 -c 'import json, sys; json.load(sys.stdin)' <out || fail "$command: not JSON"
    done
}

# ---------------------------------------------------------------- progress

# The loss and the accuracy are what a training is about.
a_trainings_table_of_80_columns_has_its_loss_and_accuracy_() {
    COLUMNS=80 expect 0 train --net tiny --batch 8 --iterations 2 --policy freelunch:rate=4,when=always --budget 4MiB \
        --eval --data synthetic:samples=40 --quiet
    mapfile -t lines <out
    [[ ${lines[1]} =~ \ loss\ +accuracy\ +status$ && ${lines[3]} =~ \ [0-9.]+\ -\>\ [0-9.]+\ +[0-9.]+%\ +ok$ ]] || fail "left out"
    says out "(columns left out: "
}

progress_of_a_bench_names_the_budget_() {
    expect 0 bench --net tiny --batch 8 --iterations 2 --policies liveness --budgets 2MiB,3MiB
    says err "liveness, budget 2MiB 2/2 loss "
    says err "liveness, budget 3MiB 2/2 loss "
}

sizes_and_labels_are_explained_() {
    expect 0 train --help
    [[ $(tr -s '\n ' ' ' <out) == *"labels as uint8, int32 or int64 [images]"*"Sizes: 1GB is 10^9 bytes, 1GiB is 2^30."* ]] || fail "not in the help"
}

progress_is_plain_lines_where_there_is_no_terminal_() {
    expect 0 train --net tiny --batch 4 --iterations 3
    mapfile -t lines <err
    [[ ${lines[-1]} == "liveness 3/3 loss "*" img/s" ]] || fail "last line: ${lines[-1]}"
    [[ $(<err) != *[$'\r\e']* ]] || fail "not plain"
    expect 0 train --net tiny --batch 4 --iterations 3 --quiet
    [[ ! -s err ]] || fail "--quiet is not"
}

progress_is_a_bar_within_the_terminal_() {
    local command="stty cols 60; TERM=xterm '$mm' train --net tiny --batch 4 --iterations 3 --policy freelunch:rate=4"
    script -qec "$command" /dev/null </dev/null >typescript 2>&1 || skip "no terminal: $(<typescript)"
    local shown rest
    rest=$(<typescript)
    [[ $rest == *$'\r\e[K'*"3/3 loss"* ]] || fail "no bar: $rest"
    while [[ $rest == *$'\r\e[K'* ]]; do
        rest=${rest#*$'\r\e[K'}
        shown=${rest%%$'\r'*}
        [[ $shown == "net "* ]] || ((${#shown} < 60)) || fail "${#shown} columns: $shown"
    done
}

full_progress_shows_memory_and_streams_below_the_bar_() {
    local command="stty cols 70; TERM=xterm '$mm' train --net tiny --batch 4 --iterations 9 --policy freelunch:when=always" text line
    script -qec "$command --progress full" /dev/null </dev/null >typescript 2>&1 || skip "no terminal: $(<typescript)"
    for text in "policy   freelunch:when=always, batch 4 on host" "memory   budget " ", planned " "weights and state " "streams  compute " \
        "%, codecs " "hidden " $'\e[3A' $'\r\e[J'; do
        says typescript "$text"
    done
    while IFS= read -r line; do
        line=${line%%$'\e[3A'*} line=${line#$'\e[K'}
        [[ $line != " memory"* ]] || ((${#line} <= 71)) || fail "${#line} columns: $line"
    done <typescript
    expect 0 train --net tiny --batch 4 --iterations 3 --progress full
    [[ $(<err) == "liveness "*"3/3 loss "*" img/s" && $(<err) != *[$'\r\e']* ]] || fail "not plain"
    refused 2 "--progress fancy: must be bar or full" train --net tiny --progress fancy
}

run_cases
