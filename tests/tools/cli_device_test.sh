#!/bin/bash
# mm device: the devices of the build, and a network's facts.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

positive() { # FILE KEY: every value of the key is above 0
    local value count=0
    while read -r value; do
        awk -v value="$value" 'BEGIN { exit !(value + 0 > 0) }' || fail "$2 is $value"
        count=$((count + 1))
    done < <(values "$1" "$2")
    ((count > 0)) || fail "$1 has no $2"
}

# Devices are measured only once, since that takes long when emulated.
mkdir "$work/seen" && (cd "$work/seen" && expect 0 device --json seen) || exit 1
seen=$work/seen/seen

every_device_of_the_build_is_told_or_why_it_cannot_be_used_() {
    cp "$work/seen/out" "$seen" .
    says out "host: "
    says out "  memory "
    says out "  zfp:rate="
    local device key
    while read -r device; do says out "$device: "; done < <(values seen device)
    for key in free_bytes total_bytes processors out_bytes_per_s in_bytes_per_s both_bytes_per_s copy_bytes_per_s \
        encode_bytes_per_s; do
        positive seen $key
    done
}

one_device_can_be_named_() {
    expect 0 device --device host --json seen
    [[ $(values seen device) == host ]] || fail "not the host alone"
    refused 2 "--device: no device 'nope' in this build" device --device nope
    refused 2 "unknown option" device --nope
}

cuda_is_a_gpu_or_a_line_that_says_what_to_do_() {
    local status=0
    "$mm" device --device cuda >out 2>err </dev/null || status=$?
    if ((status == 0)); then
        says out "multiprocessors"
        return
    fi
    ((status == 2)) || fail "status $status"
    [[ ! -s out && $(<err) == *"build with --config=cuda"* || $(<err) == *"no GPU answers"* ]] || fail "not told"
    local lines
    mapfile -t lines <err
    ((${#lines[@]} == 1)) || fail "${#lines[@]} lines"
}

# Returns 0 if a GPU (or the emulation) answers. If the build has CUDA and none answers, skips the case.
on_a_gpu() {
    if [[ $(values "$seen" usable) == *true*true* ]]; then return; fi
    if [[ $(values "$seen" device) == *cuda* ]]; then skip "no GPU answers"; fi
    return 1
}

# Runs on device cuda if a GPU answers, else on the host.
facts_of_a_network_serve_a_plan_() {
    local device=host
    if [[ $(values "$seen" usable) == *true*true* ]]; then device=cuda; fi
    expect 0 device --device $device --facts facts --net tiny --batch 4 --iterations 3
    says out "facts of tiny, batch 4, on $device"
    local value timed=0
    while read -r value; do ((value == 0)) || timed=$((timed + 1)); done < <(values facts encode_ns)
    ((timed > 0)) || fail "no encode was timed"
    positive facts out_bytes_per_s
    positive facts out_both_bytes_per_s
    expect 0 plan --net tiny --batch 4 --policy freelunch --facts facts
    refused 1 "/nowhere/facts" device --facts /nowhere/facts --net tiny --batch 4
    refused 2 "--batch" device --facts facts --net tiny --batch 0
}

# Ctrl-C while algorithms are timed, which takes half a minute for a network: what is timed already is kept.
an_interrupt_ends_the_timing_of_algorithms_() {
    on_a_gpu || return 0
    start plan --device cuda --net resnet18 --batch 2 --policy liveness --algorithms kept
    until [[ -s kept ]]; do kill -0 $! || fail "it ended before"; done
    interrupt
    says err ": interrupted while algorithms were timed"
    local lines
    lines=$(wc -l <kept)
    expect 0 plan --device cuda --net resnet18 --batch 2 --policy liveness --algorithms kept
    ((lines >= 1 && $(wc -l <kept) > lines)) || fail "$lines lines were kept, then $(wc -l <kept)"
}

table_of() { sed -n '/^ "contention": {/,/^ }/p' "$1"; }

# Facts say how much any two kinds of work slow each other, and plans' times take account of it.
facts_of_cuda_have_contention_of_each_pair_() {
    on_a_gpu || return 0
    local options=(--net tiny --batch 4 --policy freelunch:when=always)
    expect 0 device --device cuda --facts facts --net tiny --batch 4 --iterations 3 \
        --policies liveness,freelunch:when=always
    local permille count=0
    while read -r permille; do
        ((permille >= 0 && permille <= 9000)) || fail "contention of $permille permille"
        count=$((count + 1))
    done < <(table_of facts | grep -Eo '": [0-9]+' | grep -Eo '[0-9]+')
    ((count == 18)) || fail "contention of $count pairs: $(table_of facts)"
    expect 0 plan "${options[@]}" --facts facts --json plan
    sed '/^ "contention": {/,/^ }/ s/": [0-9]\+/": 0/g' facts >free
    sed '/^ "contention": {/,/^ }/ s/": [0-9]\+/": 9000/g' facts >crowded
    expect 0 plan "${options[@]}" --facts free --json free.plan
    expect 0 plan "${options[@]}" --facts crowded --json crowded.plan
    local key=iteration_seconds_predicted
    awk -v free="$(value free.plan $key)" -v crowded="$(value crowded.plan $key)" \
        'BEGIN { exit !(free > 0 && crowded > free) }' || fail "contention of 9000 permille takes no time"
    expect 0 device --device cuda --facts none --net tiny --batch 4 --iterations 2 --policies liveness
    # Without a codec, nothing measures how encodes slow steps or are slowed.
    table_of none | sed -n '/"encode": {/,/}/p' | grep '": [1-9]' && fail "contention of encodes, measured without a codec"
    table_of none | grep -E '"(en|de)code": [1-9]' && fail "contention beside encodes or decodes, measured without a codec: $(table_of none)"
    expect 0 device --device host --facts host --net tiny --batch 4 --iterations 2 --policies liveness
    [[ -z $(table_of host) ]] || fail "pairs were measured on the host"
}

runs_on_cuda_are_replayed_and_have_a_link_of_their_own_() {
    on_a_gpu || return 0
    local run=(bench --device cuda --net tiny --batch 4 --policies liveness --iterations 6 --quiet)
    expect 0 "${run[@]}" --json rows
    positive rows replays
    positive rows host_seconds
    positive rows host_seconds_per_layer
    expect 0 "${run[@]}" --json rows --issue thread
    [[ $(value rows replays) == 0 ]] || fail "replayed with --issue thread"
    refused 2 "--link: only device host has a link whose speed can be set, not cuda" "${run[@]}" --link codec/10
}

# Streams, events and copies are those of the plans; replayed iterations were verified when they were captured.
what_is_issued_on_cuda_is_what_the_plans_say_() {
    on_a_gpu || return 0
    local policy issue
    for policy in liveness swap-async:when=always freelunch:rate=4,when=always; do
        for issue in thread inline; do
            expect 0 train --device cuda --net tiny --batch 4 --iterations 4 --policy "$policy" --issue $issue \
                --verify-issued --quiet --json rows
            says err "mm train: what was issued is what the plans say: "
            [[ $issue == thread || $(value rows replays) != 0 ]] || fail "$policy: nothing was replayed"
        done
    done
}

# A transformer whose operations are all native on the device, with clipped gradients. States are f32, so a run in f32
# goes on from one in bf16.
a_gpt_on_cuda_has_the_same_weights_under_every_policy_() {
    on_a_gpu || return 0
    local run=(train --device cuda --net 'gpt,layers=2,width=16,heads=2,context=16,vocabulary=256' --data text:text
        --batch 2 --optimizer adamw --clip-norm 1 --deterministic --quiet) precision policy
    for policy in {1..10}; do echo "number $policy of the quick brown foxes jumps over the lazy dogs, and on it goes"; done >text
    for precision in fp32 bf16; do
        expect 0 "${run[@]}" --iterations 3 --precision $precision --save kept
        for policy in auto swap-async:when=always recompute:mode=sqrt,when=always 'rules:*=compress-swap(zvc),when=always'; do
            expect 0 "${run[@]}" --iterations 3 --precision $precision --policy "$policy" --save same
            cmp kept same || fail "$precision, $policy: other weights"
        done
    done
    expect 0 "${run[@]}" --iterations 4 --precision fp32 --load kept
    says err "--precision fp32: kept was trained with bf16"
}

# With staging, the next batch is copied while the device computes. The budget contains that batch's memory if it has
# room for it.
plans_for_cuda_are_those_that_run_there_() {
    on_a_gpu || return 0
    local options=(--device cuda --net tiny --batch 8) budget least staged key rooms
    expect 0 plan "${options[@]}" --policy swap-async --json plan
    least=$(value plan minimum_bytes) staged=$(value plan staged_bytes)
    ((staged > 0)) || fail "nothing is staged"
    for budget in own $((least + staged - 1)) $((least + staged + 300000)); do
        if [[ $budget != own ]]; then expect 0 plan "${options[@]}" --policy swap-async --budget $budget --minimum --json plan; fi
        expect 0 bench "${options[@]}" --policies swap-async --budgets $budget --iterations 1 --quiet --json rows
        for key in minimum_bytes predicted_peak_bytes staged_bytes stash_bytes; do
            [[ $(value plan $key) == $(value rows $key) ]] ||
                fail "$budget: $key is $(value rows $key), planned was $(value plan $key)"
        done
        [[ $budget != own || $(value rows budget_bytes) == $((least + staged)) ]] || fail "$(value rows budget_bytes)"
    done
    expect 0 bench --device cuda --net tiny --batch 64 --policies swap-async,liveness --budgets plans --iterations 1 \
        --quiet --json rows
    mapfile -t rooms < <(values rows staged_bytes) # in swap-async's budget liveness has no room for staging
    ((rooms[0] > 0 && rooms[1] == rooms[0] && rooms[2] == rooms[0] && rooms[3] == 0)) ||
        fail "no room for batches in what the plans need: ${rooms[*]}"
    refused 2 "--link: only device host has a link whose speed can be set, not cuda" plan "${options[@]}" --link 1GB
}

# Algorithms are stored with the limit under which they were chosen.
a_workspace_limit_is_what_convolutions_are_timed_under_() {
    on_a_gpu || return 0
    local run options=(--device cuda --net tiny --batch 4 --algorithms algorithms --workspace 3000001)
    for run in "plan --policy liveness" "bench --policies liveness --iterations 2 --quiet --json rows" \
        "train --iterations 2 --quiet --json row" "device --iterations 2 --facts facts"; do
        rm -f algorithms
        # shellcheck disable=SC2086 # words
        expect 0 $run "${options[@]}"
        says algorithms " 3000001 "
    done
    [[ $(value rows workspace_limit_bytes) == 3000001 ]] || fail "the row of bench says another"
    [[ $(value row workspace_limit_bytes) == 3000001 ]] || fail "the row of train says another"
    expect 0 bench "${options[@]:0:6}" --policies liveness --iterations 2 --quiet --json rows
    [[ $(value rows workspace_limit_bytes) == 0 ]] || fail "a limit that was not given"
}

# Facts have a step's time with each workspace it can run with. Policies that choose among workspaces can use such
# facts.
every_algorithm_of_a_step_is_timed_() {
    on_a_gpu || return 0
    local options=(--device cuda --net tiny --batch 4 --algorithms algorithms) run i others=0 ids times
    for run in "bench --policies liveness --iterations 3 --quiet" "device --policies liveness --iterations 3"; do
        rm -f facts
        # shellcheck disable=SC2086 # words
        expect 0 $run "${options[@]}" --facts facts
        mapfile -t ids < <(values facts id)
        mapfile -t times < <(values facts ns)
        for ((i = 0; i < ${#ids[@]}; i++)); do
            ((ids[i] > 0)) || continue
            others=$((others + 1))
            ((times[i] > 0)) || fail "$run: variant ${ids[i]} has no time"
        done
    done
    ((others > 0)) || fail "each step has one algorithm"
    for run in least fastest; do
        expect 0 plan "${options[@]}" --facts facts --policy "vdnn-all:algorithms=$run,when=always" --json $run
        positive $run iteration_seconds_predicted
    done
    (($(value least minimum_bytes) <= $(value fastest minimum_bytes))) || fail "the least workspaces take more"
    expect 0 train "${options[@]}" --facts facts --policy vdnn-all:algorithms=least,when=always --iterations 2
    [[ $(<err) != *facts* ]] || fail "$(<err)"
    expect 0 bench "${options[@]}" --deterministic --policies liveness --iterations 2 --quiet --facts facts
    for i in $(values facts id); do ((i == 0)) || fail "deterministic steps have several algorithms"; done
}

# The algorithms file is read and written, so no other option may name it.
algorithms_are_kept_in_a_file_of_their_own_() {
    on_a_gpu || return 0
    local option run kept=(--device cuda --algorithms kept)
    expect 0 nets --net tiny --json
    cp out net.json && cp out old
    for option in --json --svg; do
        refused 2 "$option and --algorithms name the same file, kept" plan --net tiny "${kept[@]}" $option kept
    done
    for option in --json --facts; do
        refused 2 "$option and --algorithms name the same file, kept" bench --net tiny "${kept[@]}" $option kept
    done
    for option in --json --save --log; do
        refused 2 "$option and --algorithms name the same file, kept" train --net tiny "${kept[@]}" $option kept
    done
    refused 2 "--facts and --algorithms name the same file, kept" device --net tiny "${kept[@]}" --facts kept
    [[ ! -e kept ]] || fail "a file was written"
    for run in plan "bench --iterations 2" "train --iterations 2" "device --iterations 2 --facts facts"; do
        # shellcheck disable=SC2086 # words
        expect 2 $run --net file:net.json --device cuda --algorithms net.json
        says err " name the same file, net.json"
        equal net.json old
    done
}

# Of the batches that do not fit, only the two smallest are timed.
the_largest_batch_is_found_with_few_batches_timed_() {
    on_a_gpu || return 0
    local plan=(plan --device cuda --net tiny --algorithms algorithms --budget 3MiB) policy largest line words
    for policy in liveness swap; do
        expect 0 "${plan[@]}" --policy $policy --max-batch --json largest
        largest=$(value largest batch)
        expect 0 "${plan[@]}" --policy $policy --batch "$largest"
        expect 1 "${plan[@]}" --policy $policy --batch $((largest + 1))
        local -A batches=()
        while IFS= read -r line; do
            read -ra words <<<"$line"
            ((${#words[@]} < 8)) || batches[${words[6]}]=1
        done <algorithms
        ((${#batches[@]} <= 8)) || fail "$policy, batch $largest: ${#batches[@]} were timed"
        [[ ${batches[$((largest + 1))]-} && ${batches[$((largest + 2))]-} ]] ||
            fail "$policy, batch $largest: the next two were not tried with their workspaces"
    done
}

run_cases
