#!/bin/bash
# How the command answers bad input: with one or two lines that say what is wrong and where, and a status other than 0.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

train=(train --net tiny --batch 4 --iterations 2 --quiet)

# ---------------------------------------------------------------- the command line

every_command_has_its_arguments_in_these_tests_() {
    lists_every_command "needs, in cli.sh" "${!needs[@]}"
}

unknown_commands_and_options_point_to_help_() {
    expect 2
    says err "usage: mm COMMAND"
    refused 2 "unknown command 'nope'; 'mm --help' lists them" nope
    refused 2 "unknown command ''" ""
    for command in $(mm_commands); do
        refused 2 "unknown option '--nope'; --help lists them" "$command" --nope
        refused 2 "unknown option '--nope=1'" "$command" --nope=1
        [[ $command =~ ^(report|verify|gpus|completion|man)$ ]] || refused 2 "unexpected argument 'stray'" "$command" stray
    done
    refused 2 "unexpected argument 'resnet20': options begin with --, as in --net resnet20" plan resnet20
}

help_is_there_in_every_way_that_it_is_asked_for_() {
    local command
    for command in $(mm_commands); do
        expect 0 "$command" --help
        cp out asked
        says asked "usage: mm $command"
        expect 0 help "$command"
        equal out asked
        expect 0 "$command" --batch -h
        equal out asked
    done
    expect 0 help
    says out "usage: mm COMMAND"
    refused 2 "unknown command 'nope'" help nope
}

options_without_a_value_are_refused_() {
    refused 2 "--batch needs a value: --batch N" train --net tiny --batch
    refused 2 "--json needs a value: --json FILE" train --json --quiet
    [[ ! -e --quiet ]] || fail "an option was taken for a file"
    refused 2 "--quiet takes no value" train --quiet=1
    for option in --net --data --batch --device --budget --policy --save --load --json --switch; do
        refused 2 "$option needs a value" train $option ""
        refused 2 "$option needs a value" train $option=
    done
}

options_given_twice_are_refused_() {
    refused 2 "mm train: --batch is given twice: give it once" train --batch 4 --net tiny --batch=4
    refused 2 "--quiet is given twice" train --quiet --quiet
    refused 2 "--batch is given twice: give it once" bench --batch 4 --batches 8
    refused 2 "--net is given twice" nets --net tiny --net resnet20
    expect 0 train --net tiny --batch 4 --iterations 1 --quiet --lr-step 1 --lr-step 2 --switch 1:naive --switch 5:naive
    for command in $(mm_commands); do
        COLUMNS=100 expect 0 "$command" --help
        (($(count out "may be repeated") == $([[ $command == train ]] && echo 2 || echo 0))) || fail "repeated: $command"
    done
}

numbers_out_of_range_are_refused_() {
    for value in 0 -1 1.5 1e3 x 100000000 99999999999999999999; do
        refused 2 "--batch $value: must be a whole number from 1 to" train --batch $value
        refused 2 "--batch $value: must be a whole number from 1 to" plan --batch $value
        refused 2 "--batch $value: must be whole numbers from 1 to" bench --batch 4,$value
    done
    for value in 0 -3 99999999999 x; do
        refused 2 "--iterations $value: must be" train --iterations $value
        refused 2 "--epochs $value: must be" train --epochs $value
    done
    refused 2 "--seed -1: must be" train --seed -1
    for value in nan inf -inf 0 -1 x 1e9; do refused 2 "--lr $value: must be" train --lr $value; done
    refused 2 "--momentum 2: must be" train --momentum 2
    refused 2 "--lr-step x: must be" "${train[@]}" --lr-step x
    refused 2 "--iterations and --epochs: give one of them" train --iterations 5 --epochs 1
    refused 2 "--issue x: must be auto, thread or inline" "${train[@]}" --issue x
    refused 2 "--fuse x: must be auto, on or off" "${train[@]}" --fuse x
}

workspaces_are_a_size_and_not_the_hosts_() {
    local command run
    for command in $(commands_with --workspace); do
        read -ra run <<<"$command ${needs[$command]}"
        for size in x -1 5QiB; do
            refused 2 "--workspace: size '$size' is not understood" "${run[@]}" --workspace $size
        done
        refused 2 "--workspace 0: must be more than 0 bytes" "${run[@]}" --workspace 0
        refused 2 "--workspace: device host has no limit to set; use it with --device cuda" "${run[@]}" --workspace 1MiB
    done
    [[ ! -e facts ]] || fail "facts were written"
}

unknown_names_are_answered_with_the_known_() {
    refused 2 "no net nope; there are " train --net nope
    says err ", resnet32, "
    refused 2 "no net resnet33" plan --net resnet33
    refused 2 "net gpt: ':layers=2' after its name; expected ,layers=N" plan --net gpt:layers=2
    refused 2 "no net nope; there are " plan --net nope:layers=2
    refused 2 "no net nope" bench --net tiny,nope
    refused 2 "unknown policy 'nope': there are naive, liveness, freelunch" train --policy nope
    refused 2 "policy freelunch:codec=nope: no codec 'nope' for device 'host'" bench --policies liveness,freelunch:codec=nope
    refused 2 "policy freelunch:codec=eb: codec 'eb' has no error bound" bench --policies liveness,freelunch:codec=eb
    refused 2 "unknown policy 'nope'" bench --policies liveness,nope
    refused 2 "unknown policy 'nope'" plan --policy nope
    refused 2 "policy auto:codecs=nope: no codec 'nope' for device 'host'" plan --policy auto:codecs=nope
    refused 2 "policy auto: codecs=: a codec's name is missing" plan --policy auto:codecs=zfp++dpr
    refused 2 "policy auto: codecs=: zfp is given twice" plan --policy auto:codecs=zfp+zfp
    refused 2 "policy auto: codecs=: mask is always among them" plan --policy auto:codecs=mask
    for command in $(commands_with --plan-effort); do
        refused 2 "--plan-effort -1: must be a whole number from 0 to 1000000" "$command" --plan-effort -1
    done
    refused 2 "none of the policies has an effort to set, as auto has" plan --policy liveness --plan-effort 2
    refused 2 "aaa...': there are naive, liveness" train --policy "$(printf 'a%.0s' {1..300})"
    refused 2 "there are raw, mask, zfp, dpr, mx" train --policy freelunch:codec=nope
    refused 2 "unknown data 'nope': there are cifar10:DIR, fashion-mnist[:DIR], synthetic" "${train[@]}" --data nope
    refused 2 "has no option 'nope': it takes codec, rate" train --policy freelunch:nope=1
    refused 2 "has no option 'rate': it takes none" train --policy naive:rate=4
    refused 2 "option rate is given twice" train --policy freelunch:rate=4,rate=5
    refused 2 "codec zfp: 'rate=4:rate=20': rate is given twice" train --policy freelunch:codec=zfp:rate=4:rate=20
    refused 2 "codec dpr: unknown format 'fp9'; there are fp16, fp10, fp8" train --policy freelunch:codec=dpr:fp9
    refused 2 "codec mx: unknown format 'fp5'; there are fp8, fp6, fp4, int8" \
        plan --net tiny --policy 'rules:conv=compress(mx:fp5);*=keep'
    refused 2 "codec group: unknown format 'bits=3'; there are bits=8, bits=4, bits=2" \
        plan --net tiny --policy 'rules:*=compress(group:bits=3)'
}

policy_options_out_of_range_are_refused_() {
    for rate in 0 0.5 33 -4 nan x; do
        refused 2 "the rate is a decimal from 0.53125 to 32" train --policy freelunch:rate=$rate
        refused 2 "the rate is a decimal from 0.53125 to 32" train --policy freelunch:codec=zfp:rate=$rate
    done
    refused 2 "policy freelunch: rate= has no value" train --policy freelunch:rate=
    refused 2 "policy hybrid: rate= has no value" train --policy liveness --switch 1:hybrid:rate=
    refused 2 "eligible=x: must be one of conv|all" train --policy freelunch:eligible=x
    refused 2 "depth=-1: must be" train --policy freelunch:depth=-1
    refused 2 "must be a whole number" train --policy freelunch:k=99999999999999999999
    refused 2 "mm train: policy freelunch:codec=mask: codec 'mask' does not give the elements back: choose one that does" \
        train --policy freelunch:codec=mask
    refused 1 "policy freelunch:k=1,when=always: k=1: only 1 buffer, but 2 maps are alive together; give k=2 or more" \
        "${train[@]}" --policy freelunch:k=1,when=always
}

what_only_a_gpu_has_is_not_the_hosts_() {
    local command run
    for command in $(commands_with --precision); do
        read -ra run <<<"$command ${needs[$command]}"
        refused 2 "--precision tf32: device host has no such units; use it with --device cuda" "${run[@]}" \
            --precision tf32
        refused 2 "--precision fp16: must be fp32, tf32 or bf16" "${run[@]}" --precision fp16
    done
    for command in $(commands_with --algorithms); do
        read -ra run <<<"$command ${needs[$command]}"
        refused 2 "--algorithms: device host has none to choose from; use it with --device cuda" "${run[@]}" \
            --algorithms file
    done
    for command in $(commands_with --link); do
        refused 2 "--link 12B: must be at least 100000 bytes" "$command" --link 12B
    done
}

options_that_do_nothing_together_are_refused_() {
    refused 2 "--net: needs --facts FILE" device --net tiny
    refused 2 "--iterations: needs --facts FILE" device --iterations 5
    refused 2 "--facts a network: give one of them" device --facts facts --json seen
    refused 2 "--svg chart.svg: throughput is drawn over several --budgets" bench --net tiny --svg chart.svg
    [[ ! -e chart.svg && ! -e facts ]] || fail "a file was written"
}

devices_that_are_not_there_are_named_() {
    local commands
    mapfile -t commands < <(commands_with --device)
    for command in "${commands[@]}"; do refused 2 "--device: no device 'nope' in this build" "$command" --device nope; done
    if grep -q cuda err; then skip "this build has cuda"; fi
    for command in "${commands[@]}"; do refused 2 "--device: no device 'cuda' in this build" "$command" --device cuda; done
}

switches_that_make_no_sense_are_refused_() {
    for switch in x 5 -1:liveness :liveness 1x:liveness 99999999999999999999:liveness; do
        refused 2 "--switch $switch: must be ITERATION:POLICY" "${train[@]}" --switch $switch
    done
    refused 2 "unknown policy 'nope'" "${train[@]}" --switch 1:nope
    refused 2 "unknown policy ''" "${train[@]}" --switch 1:
    refused 2 "'rate=99': with dims=2 the rate is" "${train[@]}" --switch 1:freelunch:rate=99
    local many=()
    for i in {1..63}; do many+=(--switch "$i:liveness"); done
    expect 0 "${train[@]}" "${many[@]}"
    refused 2 "--switch is given more than 63 times" "${train[@]}" "${many[@]}" --switch 64:liveness
}

bench_reads_all_lists_before_the_first_run_() {
    refused 2 "--budgets 0: must be more than nothing" bench --net tiny --batch 4 --budgets own,0
    refused 2 "size 'x' is not understood" bench --net tiny --batch 4 --budgets plans,x
    refused 2 "--net ,: the list is empty" bench --net ,
    refused 2 "--policies ,,: the list is empty" bench --policies ,,
    refused 2 "one of each" bench --net tiny,resnet20 --facts facts
}

# ---------------------------------------------------------------- memory

budgets_that_cannot_be_read_are_refused_() {
    for budget in x -5 5QiB 1.5.5MiB " 5"; do
        refused 2 "--budget: size '$budget' is not understood: use 12GiB" train --budget "$budget"
        refused 2 "--budget: size '$budget' is not understood: use 12GiB" plan --budget "$budget"
    done
    refused 2 "is too large" train --budget 1000000000000GiB
    refused 2 "is too large" train --budget 9223372036854775808
    refused 2 "--budget 0: must be more than 0 bytes" train --budget 0
}

images_larger_than_can_be_counted_are_refused_() {
    refused 1 "oneDNN cannot count 1 images of 65536x65536x3" plan --threads 1 --net resnet50@65536x65536 --batch 1
    refused 1 "take a smaller batch or image" plan --threads 1 --net resnet50@65536x64 --batch 1048576
}

more_memory_than_the_machine_has_is_refused_() {
    refused 1 "the budget is 1125899906842624 bytes (1024TiB), device host has" "${train[@]}" --budget 1024TiB
    refused 1 "the budget is 9223372036854775807 bytes" "${train[@]}" --budget 9223372036854775807
    refused 1 "this needs " train --net resnet1202 --batch 1048576 --data synthetic:samples=1048576
    expect 1 bench --net resnet1202 --batch 1048576 --policies liveness
    says out "this needs "
}

# ---------------------------------------------------------------- files that are read

missing_and_truncated_data_is_named_with_what_to_do_() {
    refused 1 "none/data_batch_1.bin: No such file or directory" "${train[@]}" --data cifar10:none
    says err "tools/fetch-cifar10 none, or use --data synthetic"
    black_cifar10 data
    expect 0 "${train[@]}" --data cifar10:data --eval
    truncate -s 3073000 data/data_batch_3.bin
    refused 1 "data/data_batch_3.bin: expected 30730000 bytes, found 3073000" "${train[@]}" --data cifar10:data
    truncate -s 30730000 data/data_batch_3.bin
    rm data/test_batch.bin
    expect 0 "${train[@]}" --data cifar10:data
    refused 1 "data/test_batch.bin: No such file" "${train[@]}" --data cifar10:data --eval
    refused 2 "cifar10 needs its folder" "${train[@]}" --data cifar10:
    expect 1 bench --net tiny --batch 4 --iterations 1 --policies liveness --data cifar10:none --quiet
    says err "mm bench: tiny, batch 4, liveness: none/data_batch_1.bin: No such file"
}

labels_that_are_none_are_named_() {
    black_cifar10 data
    head -c 30730000 /dev/zero | tr '\0' '\377' >data/data_batch_2.bin
    refused 1 "has label 255, expected 0 to 9" train --net tiny --batch 64 --iterations 2 --quiet --data cifar10:data
}

synthetic_data_of_no_size_is_refused_() {
    for samples in 0 -1 x 99999999999999999999; do
        refused 2 "expected synthetic:samples=N" "${train[@]}" --data synthetic:samples=$samples
    done
    refused 2 "there are only 3 samples" "${train[@]}" --data synthetic:samples=3
}

# A reader that waits for somebody to write there would wait for ever.
a_fifo_is_no_data_() {
    local data status
    mkdir cifar
    mkfifo fifo cifar/data_batch_1.bin
    for data in text:fifo tokens:fifo cifar10:cifar files:fifo,fifo; do
        status=0
        timeout 60 "$mm" train --net "$([[ $data == t* ]] && echo gpt || echo tiny)" --data $data >out 2>err || status=$?
        ((status == 1)) || fail "$data: status $status"
        says err " regular file"
    done
}

states_that_are_none_are_refused_() {
    expect 0 "${train[@]}" --save state
    refused 1 "none: No such file" "${train[@]}" --load none
    mkdir folder
    refused 1 "folder: not a regular file" "${train[@]}" --load folder
    touch empty
    refused 1 "empty: empty, not a safetensors file" "${train[@]}" --load empty
    echo "something else entirely" >foreign
    refused 1 "foreign: " "${train[@]}" --load foreign
    head -c 10000 state >shortened
    refused 1 "shortened: " "${train[@]}" --load shortened
    head -c 300 state >header_cut
    refused 1 "header_cut: " "${train[@]}" --load header_cut
    (printf '\377\377\377\377\377\377\377\177' && tail -c +9 state) >long_header
    refused 1 "long_header: " "${train[@]}" --load long_header
    expect 0 train --net resnet20 --batch 2 --iterations 1 --quiet --save other
    refused 1 "not a state of tiny: other: of another network: its tensor conv1.weight is" "${train[@]}" --load other
    # said before anything is planned
    refused 1 "not a state of tiny: other: of another network" "${train[@]}" --load other --budget 1KiB
    for iteration in x - ' '; do
        sed "s/\"iteration\":\"2\"/\"iteration\":\"$iteration\"/" state >uncounted
        refused 1 "metadata iteration is '$iteration', not a count" "${train[@]}" --load uncounted
    done
    expect 0 "${train[@]}" --load state
}

# ---------------------------------------------------------------- files that are written

outputs_that_cannot_be_written_are_refused_before_the_first_step_() {
    mkdir folder
    for option in --json --save --log; do
        refused 1 "folder: cannot be written: not a regular file" "${train[@]}" $option folder
        refused 1 "none/x: cannot be written: No such file" "${train[@]}" $option none/x
    done
    refused 1 "folder: cannot be written" plan --net tiny --json folder
    refused 1 "folder: cannot be written" bench --net tiny --json folder
    refused 1 "none/x: cannot be written" bench --net tiny --facts none/x
    for option in --save --log; do
        refused 2 "$option -: only --json can go to standard output; a file of that name is ./-" "${train[@]}" $option -
    done
    refused 2 "--facts -: only --json" bench --net tiny --facts -
    [[ $(ls) == $'err\nfolder\nout' ]] || fail "left behind: $(ls)"
}

files_have_the_mode_that_the_umask_leaves_() {
    local file
    umask 022
    expect 0 "${train[@]}" --save public --log public_log
    umask 077
    expect 0 "${train[@]}" --save state --log log --json rows --trace trace
    expect 0 plan --net tiny --json plan --svg picture.svg
    expect 0 bench --net tiny --batch 4 --iterations 2 --policies liveness --facts facts
    expect 0 report rows --html page.html
    for file in state log rows trace plan picture.svg facts page.html; do
        [[ $(stat -c %a $file) == 600 ]] || fail "$file has the mode $(stat -c %a $file)"
    done
    for file in public public_log; do [[ $(stat -c %a $file) == 644 ]] || fail "$file: $(stat -c %a $file)"; done
}

a_file_named_twice_is_refused_before_it_is_lost_() {
    expect 0 "${train[@]}" --save state
    cp state old
    ln -s state link
    refused 2 "--save and --json name the same file, state" "${train[@]}" --save ./state --json state
    refused 2 "--save and --log name the same file, link" "${train[@]}" --save state --log link
    refused 2 "--log and --load name the same file, ./state" "${train[@]}" --log state --load ./state
    refused 2 "--json and --log name the same file, new" "${train[@]}" --json ./new --log new
    refused 2 "--json and --svg name the same file, $PWD/new" plan --net tiny --json new --svg "$PWD/new"
    refused 2 "--json and --facts name the same file, new" bench --net tiny --json new --facts new
    equal state old
    [[ ! -e new ]] || fail "a file was written"
    expect 0 train --net tiny --batch 4 --quiet --load link --save state --iterations 3
}

a_network_is_no_file_to_write_() {
    local net=(--net file:./net.json)
    expect 0 nets --net tiny --json
    cp out net.json && cp out old
    for option in --save --json --log; do
        refused 2 "$option and --net name the same file, ./net.json" train "${net[@]}" --batch 4 --iterations 2 --quiet \
            $option net.json
    done
    for option in --json --svg; do
        refused 2 "$option and --net name the same file" plan "${net[@]}" $option net.json
    done
    for option in --json --facts; do
        refused 2 "$option and --net name the same file" bench --batch 4 --iterations 2 "${net[@]}" $option net.json
    done
    refused 2 "--json and --net name the same file" bench --batch 4 --net tiny,file:net.json --json net.json
    refused 2 "--facts and --net name the same file" device "${net[@]}" --facts net.json
    equal net.json old
    expect 0 plan "${net[@]}" --json new
}

# If links were not followed, the second file would overwrite the first.
a_link_to_a_file_that_is_not_there_yet_is_that_file_() {
    mkdir folder
    ln -s target first
    ln -s ../first folder/second
    ln -s "$PWD/folder/second" third
    ln -s circle circle
    local path plan=(plan --net tiny --policy liveness)
    for path in first folder/second third; do
        refused 2 "--json and --svg name the same file, target" "${plan[@]}" --json $path --svg target
        refused 2 "--json and --svg name the same file, $path" "${plan[@]}" --json folder/../target --svg $path
    done
    refused 2 "--json and --svg name the same file, folder/second" "${plan[@]}" --json third --svg folder/second
    refused 1 "circle: cannot be written: Too many levels of symbolic links" "${plan[@]}" --json circle --svg target
    [[ ! -e target ]] || fail "a file was written"
    expect 0 "${plan[@]}" --json first --svg other
}

a_refused_run_leaves_old_files_alone_() {
    for file in state log rows; do echo "old $file" >$file; done
    refused 1 "infeasible: needs at least" "${train[@]}" --budget 1KiB --save state --log log --json rows
    refused 1 "No such file" "${train[@]}" --data cifar10:none --save state --log log --json rows
    for file in state log rows; do [[ $(<$file) == "old $file" ]] || fail "$file was changed"; done
}

# ulimit -f limits the size of files. SIGXFSZ is ignored, so a write beyond the limit fails as on a full disk.
a_disk_that_is_full_leaves_the_old_state_() {
    expect 0 "${train[@]}" --save state
    cp state old
    trap '' XFSZ
    (ulimit -f 8 && "$mm" "${train[@]}" >out 2>&1) || skip "this build writes files of its own"
    (ulimit -f 8 && expect 1 "${train[@]}" --seed 2 --save state) || exit
    says err "state: writing failed: File too large"
    says out " liveness " # the row is there although the state is not
    equal state old
    (ulimit -f 1 && expect 1 train --net tiny --batch 4 --quiet --iterations 400 --log log) || exit
    says err "cannot write log: File too large"
    says out " liveness "
}

what_does_not_reach_stdout_is_a_failure_() {
    [[ -w /dev/full ]] || skip "there is no /dev/full"
    for arguments in "plan --net tiny" "--help" "nets" "${train[*]}"; do
        # shellcheck disable=SC2086 # words
        if "$mm" $arguments >/dev/full 2>err; then fail "mm $arguments: status 0"; fi
        says err "mm: cannot write to standard output: No space left on device"
    done
}

# oneDNN itself crashes where it has no room for the code that it generates.
a_limit_of_addresses_is_an_error_and_no_crash_() {
    (ulimit -v 4000000 && exec "$mm" nets) >out 2>err || skip "this build needs more addresses than any limit leaves"
    local base=40000 limit status told=0
    # Finds in `base` the address space that this build's libraries need by themselves.
    until (ulimit -v $base && exec "$mm" nets >/dev/null 2>&1); do base=$((base + 4000)); done
    for ((limit = base; limit < base + 40000; limit += 4000)); do
        status=0
        (ulimit -c 0 && ulimit -v $limit && exec "$mm" plan --net resnet50 --batch 2) >out 2>err </dev/null || status=$?
        ((status <= 1)) || fail "status $status with $limit kB"
        [[ $(<err) != *"ulimit -v"* ]] || told=1
    done
    ((told)) || fail "nothing said what the limit is"
}

codes_of_variable_size_are_refused_where_they_cannot_be_() {
    refused 2 "'reserve=0': must be a whole number from 1 to 100" "${train[@]}" \
        --policy "rules:*=compress(zvc:reserve=0)"
    refused 2 "codec 'zvc' has codes of variable size, which workspace=naive cannot allocate" "${train[@]}" \
        --policy freelunch:codec=zvc,workspace=naive
    refused 2 "policy freelunch:codec=zvc,workspace=naive: codec 'zvc' has codes of variable size" bench --net tiny \
        --policies liveness,freelunch:codec=zvc,workspace=naive
    refused 2 "policy rules:*=compress(mask): codec 'mask' does not give the elements back" bench --net tiny \
        --policies "liveness,rules:*=compress(mask)"
    refused 1 "with reserve=100 in the spec of its codec" "${train[@]}" \
        --policy "rules:*=compress(zvc),when=always" --pinned 1KiB --budget 480000
}

an_update_by_layer_is_named_where_only_that_fits_() {
    local net=(train --net "gpt,layers=4,width=64" --data synthetic --batch 4 --optimizer adamw --iterations 1 --quiet
        --budget 2MiB)
    refused 1 "; with --update by-layer policy auto would fit, with equal bits" "${net[@]}"
    expect 0 "${net[@]}" --update by-layer
    refused 1 "infeasible" "${net[@]/adamw/adamw,clip-norm=1}"
    [[ $(<err) != *by-layer* ]] || fail "norms of all gradients need the update at the end"
}

run_cases
