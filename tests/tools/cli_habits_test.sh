#!/bin/bash
# What users expect of any command: terminals, pipes, names that are nearly right, completion, man pages.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

commands=(train bench plan report device gpus nets policies codecs "codecs --study" completion man)
plan=(plan --net tiny --batch 4 --policy liveness --pinned 1MiB) # without a limit rows tell what is free, which varies

# ---------------------------------------------------------------- terminals

# on_terminal VARIABLE=VALUE...: trains on a terminal; what it shows goes to the file shown.
on_terminal() {
    script -qec "env -u TERM $* '$mm' train --net tiny --batch 4 --iterations 3" /dev/null </dev/null >shown 2>&1 ||
        skip "no terminal: $(<shown)"
}

a_dumb_terminal_gets_plain_lines_() {
    local terminal
    for terminal in TERM=dumb TERM= -i; do
        on_terminal $terminal
        says shown "liveness 3/3 loss "
        [[ $(<shown) != *$'\e'* ]] || fail "$terminal: escapes"
    done
    on_terminal TERM=xterm
    says shown $'\r\e[K'
    on_terminal TERM=xterm NO_COLOR=1
    [[ ! $(<shown) =~ $'\e['[0-9\;]*m ]] || fail "colours"
}

columns_are_heeded_and_else_eighty_() {
    local columns widest line
    for columns in "" 70 80 132; do
        widest=0
        COLUMNS=$columns expect 0 bench --net tiny --batch 4 --iterations 1 --quiet --policies "liveness,swap-async"
        while IFS= read -r line; do ((${#line} <= widest)) || widest=${#line}; done <out
        ((widest <= ${columns:-80})) || fail "COLUMNS=$columns: $widest columns"
    done
    ((widest > 80)) || fail "only $widest of 132 columns are used"
    COLUMNS=60 expect 0 plan --help
    says out $'  --budget SIZE              plan for this budget, and check\n                             that it fits'
    says out "  mm plan --net resnet32 --budget 12GiB --max-batch --svg memory.svg" # examples stay whole
    script -qec "stty cols 132; COLUMNS= '$mm' plan --help" /dev/null </dev/null >wide 2>&1 || skip "no terminal"
    says wide "plan for this budget, and check that it fits"
}

# ---------------------------------------------------------------- arguments

two_dashes_end_the_options_() {
    expect 0 "${plan[@]}" --
    refused 2 "unexpected argument '--json'" "${plan[@]}" -- --json
    refused 2 "unexpected argument '--help'" "${plan[@]}" -- --help
    refused 2 "--json needs a value" "${plan[@]}" --json -- file
    "$mm" "${plan[@]}" --json=-p >/dev/null || fail "-p is not written"
    expect 0 report --html page.html -- -p
    refused 1 "--rows: cannot be read" report --html page.html -- --rows
}

names_that_are_nearly_right_are_suggested_() {
    refused 2 "unknown command 'plann' (did you mean plan?); 'mm --help' lists them" plann
    refused 2 "unknown command 'vresion' (did you mean version?)" vresion
    refused 2 "unknown command 'trian' (did you mean train?)" help trian
    refused 2 "unknown command 'trian' (did you mean train?)" man trian
    refused 2 "unknown option '--nett' (did you mean --net?); --help lists them" plan --nett tiny
    refused 2 "unknown option '--pol' (did you mean --policy?)" plan --pol naive
    refused 2 "unknown option '--batch-size' (did you mean --batch?)" train --batch-size 4
    refused 2 "unknown option '-net' (did you mean --net?)" train -net tiny
    refused 2 "no net resnet51 (did you mean resnet50?); 'mm nets' lists them" plan --net resnet51
    refused 2 "no net ResNet50 (did you mean resnet50?)" plan --net ResNet50@64
    refused 2 "no net vgg-16 (did you mean vgg16?)" bench --net vgg-16
    refused 2 "unknown policy 'livenes' (did you mean liveness?): there are naive" plan --policy livenes
    refused 2 "unknown policy 'swpa-async' (did you mean swap-async?)" bench --policies swpa-async
    refused 2 "unknown policy 'freelunch,rate=4': options follow a colon: freelunch:rate=4" train --policy freelunch,rate=4
    refused 2 "has no option 'rte' (did you mean rate?): it takes" plan --policy freelunch:rte=4
    refused 2 "no codec 'zpf' for device 'host' (did you mean zfp?)" plan --policy freelunch:codec=zpf
    refused 2 "no optimizer 'adam' (did you mean adamw?)" train --optimizer adam
    refused 2 "unknown data 'cifr10:x' (did you mean cifar10?)" train --net tiny --data cifr10:x
    refused 2 "no operation 'cnov' (did you mean conv?)" nets --ops cnov
    refused 2 "there is no such kind: is it conv?" plan --net tiny --policy "rules:cnov=swap"
}

files_that_are_nearly_right_are_suggested_() {
    expect 0 nets --net tiny --json small_cnn.json
    sed 's/"op": "linear"/"op": "lineal"/' small_cnn.json >lineal.json
    refused 1 'unknown op "lineal" (did you mean linear?)' plan --net file:lineal.json
    refused 1 "smal_cnn.json: No such file or directory (did you mean small_cnn.json?)" plan --net file:smal_cnn.json
    refused 1 "(did you mean small_cnn.json?)" report small_cn.json --html page.html
    refused 1 "(did you mean lineal.json?)" plan --net tiny --facts ./lineal.jsn
    refused 1 "(did you mean small_cnn.json?)" train --net tiny --load small_cnn.jsom
    refused 1 "none/at/all: No such file or directory" train --net tiny --load none/at/all
    [[ $(<err) != *"did you mean"* ]] || fail "a file in no folder: $(<err)"
}

lists_and_single_values_have_the_same_options_() {
    expect 0 plan --net tiny --batches 4 --policies naive,liveness --budgets 4MiB --pinned 1MiB --json one
    expect 0 plan --nets tiny --batch 4 --policy naive,liveness --budget 4MiB --pinned 1MiB --json two
    equal one two
    expect 0 bench --nets tiny --batch 4 --policy naive --budget own --iterations 1 --quiet
    expect 0 train --net tiny --batches 4 --policies naive --budgets 4MiB --iterations 1 --quiet --save state
    expect 0 train --load state --batches 4 --save state --iterations 2 --quiet
    refused 2 "--policy is given twice: give it once" plan --policy naive --policies naive
}

the_version_is_told_however_it_is_asked_for_() {
    expect 0 --version
    cp out version
    for option in -v -V version; do
        expect 0 "$option"
        equal out version
    done
    for option in -v -V; do
        expect 0 plan "$option"
        equal out version
    done
}

a_size_without_a_unit_is_asked_back_() {
    refused 2 "--budget 12: 12 bytes? 12 GiB is written 12GiB; 12 bytes, 12B" plan --net tiny --budget 12
    refused 2 "--budgets 12: 12 bytes?" bench --net tiny --budgets 1MiB,12
    refused 2 "--pinned 4: 4 bytes?" train --net tiny --pinned 4
    expect 1 plan --net tiny --batch 4 --budget 12B --policy naive
    expect 0 plan --net tiny --batch 4 --pinned 0 --policy naive
    expect 1 plan --net tiny --batch 4 --budget 4096 --policy naive
}

a_batch_cannot_be_given_and_searched_() {
    refused 2 "--max-batch finds the batch, and --batch 64 gives it: give one of them" \
        plan --net tiny --max-batch --budget 4MiB --batch 64
    expect 0 plan --net tiny --max-batch --budget 4MiB --policy liveness
}

# ---------------------------------------------------------------- outputs that are no files

rows_go_to_standard_output_by_its_names_() {
    local name
    expect 0 "${plan[@]}" --json -
    cp out expected
    for name in /dev/stdout /dev/fd/1 /proc/self/fd/1; do
        "$mm" "${plan[@]}" --json $name 2>err | cat >piped
        equal piped expected
        says err "liveness" # the table
        expect 0 "${plan[@]}" --json $name # a file
        equal out expected
    done
}

pipes_and_devices_are_written_in_place_() {
    expect 0 "${plan[@]}" --json file --svg file.svg
    "$mm" "${plan[@]}" --json >(cat >piped) >out || fail "a pipe of the shell"
    wait_for piped $'\n]'
    equal piped file
    says out "liveness"
    mkfifo fifo
    timeout 20 cat fifo >from_fifo &
    expect 0 "${plan[@]}" --json fifo
    wait $!
    equal from_fifo file
    [[ -p fifo ]] || fail "the pipe was replaced"
    expect 0 "${plan[@]}" --json /dev/null --svg /dev/null
    [[ -c /dev/null ]] || fail "/dev/null was replaced"
    refused 1 "/dev/full: writing failed: No space left on device" report file --html /dev/full
    expect 0 report file --html page.html
    "$mm" report file --html /dev/stdout | cat >piped || fail "a page"
    equal piped page.html
    echo before >log
    "$mm" "${plan[@]}" --json /dev/fd/5 5>>log >/dev/null || fail "a descriptor"
    [[ $(<log) == before$'\n'"$(<file)" ]] || fail "the descriptor's file was replaced"
    refused 1 "/dev/fd/77: cannot be written: Bad file descriptor" "${plan[@]}" --json /dev/fd/77
}

a_report_reads_standard_input_() {
    expect 0 "${plan[@]}" --json file
    "$mm" report --html page.html - <file >out 2>err || fail "rows from a pipe"
    expect 0 report --html of_file.html file
    [[ $(sed 's/"name":"-"/"name":"file"/' page.html) == "$(<of_file.html)" ]] || fail "another page"
}

a_table_goes_to_a_pipe_once_() {
    mkfifo fifo
    timeout 20 cat fifo >rows &
    expect 0 bench --net tiny --batch 4 --policies naive,liveness --iterations 1 --quiet --json fifo
    wait $!
    (($(count rows '"policy": ') == 2)) || fail "$(count rows '"policy": ') rows"
}

# ---------------------------------------------------------------- lists, completion, man pages

lists_are_there_as_json_() {
    local list
    for list in nets:net policies:policy codecs:codec; do
        expect 0 ${list%:*} --json
        cp out printed
        [[ $(<out) == "["*"\"${list#*:}\": "*"\"summary\": "*"]" ]] || fail "$(<out)"
        expect 0 ${list%:*} --json file.json
        [[ $(<file.json) == "$(<printed)" ]] || fail "the file differs"
        expect 0 ${list%:*} --json -
        equal out printed
        [[ ! -s err ]] || fail "something on stderr"
    done
    says printed '"bits_per_value": '
}

# The words after which the last is completed: complete WORD...; prints what is proposed.
complete_bash() {
    (
        # shellcheck source=/dev/null
        . ./completion
        # shellcheck disable=SC2317 # _mm calls it
        compopt() { :; }
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _mm
        echo "${COMPREPLY[*]}"
    )
}

bash_completes_commands_options_and_values_() {
    # shellcheck disable=SC2054 # commas are part of values
    local -A wanted=(
        [mm pl]=plan [mm plan --max-b]=--max-batch [mm plan --net resnet15]=resnet152 [mm plan --net = resnet15]=resnet152
        [mm bench --policies liveness,freel]=liveness,freelunch [mm plan --fuse o]="on off" [mm plan --device c]=cuda
        [mm codecs --study --dr]=--draw [mm codecs --dr]="" [mm help tr]=train [mm man tr]=train [mm completion z]=zsh
        [mm train --load stat]=state [mm report stat]=state [mm report --ht]=--html [mm plan --sub-batch a]=auto)
    local words
    touch state
    expect 0 completion bash
    cp out completion
    for words in "${!wanted[@]}"; do
        # shellcheck disable=SC2086 # words
        [[ $(complete_bash $words) == "${wanted[$words]}" ]] || fail "$words: $(complete_bash $words)"
    done
}

# Whether each option of --help is in the file, where it is written with the prefix, a text in front of it.
has_all_options() { # FILE PREFIX
    local option options
    mapfile -t options < <(sed -n 's/^  \(--[a-z-]*\).*/\1/p' help)
    ((${#options[@]} > 0)) || fail "no options in the help"
    for option in "${options[@]}"; do says "$1" "$2$option"; done
}

every_option_is_in_the_completions_and_in_the_pages_() {
    local command
    expect 0 completion bash
    cp out bash.out
    expect 0 completion zsh
    cp out zsh.out
    for command in "${commands[@]}"; do
        # shellcheck disable=SC2086 # words
        "$mm" $command --help >help
        sed -n "/^    '$command') options=/p" bash.out >command.bash
        [[ -s command.bash ]] || fail "$command is not in bash's completion"
        has_all_options command.bash ""
        sed -n "/^    '$command')$/,/;;/p" zsh.out >command.zsh
        has_all_options command.zsh ""
        expect 0 man "${command%% *}"
        sed 's/\\-/-/g' out >page
        sed -i '/^  --version/d; /^  --help/d' help # a page need not have these two
        if grep -q '^  --' help; then has_all_options page $'\n.B '; fi
    done
    refused 2 "give one shell, bash or zsh" completion fish
    if command -v zsh >/dev/null; then zsh -n zsh.out || fail "zsh refuses its completion"; fi
}

man_formats_the_pages_without_complaint_() {
    local command
    echo '.TH x 1' | man -l - >/dev/null 2>&1 || skip "no man"
    for command in "" "${commands[@]%% *}"; do
        # shellcheck disable=SC2086 # none, or one
        "$mm" man $command >page
        MANWIDTH=80 MAN_KEEP_STDERR=1 man --warnings=w -l page >formatted 2>complaints || fail "man fails: $command"
        [[ ! -s complaints ]] || fail "$command: $(<complaints)"
        says formatted "EXIT STATUS"
    done
}

# ---------------------------------------------------------------- long tables

a_large_table_says_beforehand_how_many_runs_it_has_() {
    expect 0 bench --net tiny --batch 4 --policies naive,liveness,swap --budgets sweep:4 --iterations 1
    says err "mm bench: up to 12 runs of 1 iteration; Ctrl-C ends the table with those that are done"
    expect 0 bench --net tiny --batch 4 --policies naive,liveness --budgets own --iterations 1
    [[ $(<err) != *"up to"* ]] || fail "a small table"
}

run_cases
