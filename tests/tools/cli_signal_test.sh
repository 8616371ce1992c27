#!/bin/bash
# Signals, and what the command does while its threads work. Of the command's tests only this one runs under the thread
# sanitizer, where the suites test the library's threads.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
net=(train --net resnet8 --batch 8 --quiet)
tiny=(train --net tiny --batch 4 --quiet)

codec_threads_change_no_bit_() {
    expect 0 "${net[@]}" --policy freelunch:rate=4,eligible=all,when=always --iterations 3 --save one
    expect 0 "${net[@]}" --policy freelunch:rate=4,eligible=all,when=always --iterations 3 --save three --codec-threads 3
    equal one three
}

the_log_has_a_line_for_each_iteration_() {
    expect 0 "${tiny[@]}" --iterations 3 --log log
    mapfile -t lines <log
    ((${#lines[@]} == 4)) || fail "${#lines[@]} lines"
    [[ ${lines[0]} == iteration,loss,accuracy,seconds,lr,images,planned_bytes ]] || fail "header ${lines[0]}"
    [[ ${lines[3]} =~ ^3,[0-9.e+-]+,[01]\.[0-9]+,[0-9.]+,[0-9.e+-]+,[0-9]+,[0-9]+$ ]] || fail "line ${lines[3]}"
}

sigint_finishes_the_iteration_and_saves_() {
    start train --net resnet8 --batch 8 --iterations 1000000 --save state --json row --log log --policy freelunch:rate=4
    wait_for log $'\n3,'
    interrupt
    mapfile -t lines <log
    local done=$((${#lines[@]} - 1))
    [[ $(values row status) == interrupted && $(values row iterations) == "$done" ]] || fail "not $done iterations"
    says err "mm train: interrupted after iteration $done of 1000000; saved in state; go on with: mm train --load state --save state"
    expect 0 "${net[@]}" --iterations $done --policy freelunch:rate=4 --save at_once
    equal_tensors at_once state
}

# Waits until the process catches SIGINT, the second bit of the mask.
wait_for_handler() {
    local key mask=0
    until ((0x$mask & 2)); do
        while read -r key mask; do [[ $key != SigCgt: ]] || break; done <"/proc/$!/status"
    done
}

sigterm_does_the_same_() {
    start train --net resnet8 --batch 8 --iterations 1000000 --save state --log log
    wait_for log $'\n2,'
    kill -TERM $!
    ended_by_signal
    [[ -s state ]] || fail "nothing was saved"
}

sigint_at_any_time_ends_with_a_whole_row_() {
    for pause in 0 0.01 0.03 0.1 0.3; do
        start train --net resnet8 --batch 8 --iterations 1000000 --json row --save state
        wait_for_handler
        sleep $pause
        interrupt
        [[ $(values row status) == interrupted && $(values row net) == resnet8 ]] || fail "the row is not whole"
        if (($(values row iterations) == 0)); then says err "interrupted before the first iteration"; fi
        (($(values row iterations) == 0)) || says err "; saved in state; go on with: mm train --load state --json row --save"
        rm row
    done
}

a_second_sigint_ends_it_at_once_() {
    start train --net resnet32 --batch 128 --policy swap-async --iterations 1000000 --json row --log log
    wait_for log $'\n1,' # the first SIGINT may end what precedes iterations
    while kill -INT $! 2>/dev/null; do sleep 0.01; done
    ended_by_signal
    [[ ! -e row ]] || fail "it went on to the end"
}

# Sends SIGINT to the process, and waits until it has taken it or has ended.
send_and_wait() {
    local key value pending=2
    kill -INT $! 2>/dev/null || return 0
    while ((0x$pending & 2)); do
        pending=0
        while read -r key value; do
            [[ $key != State: || $value != Z* ]] || return 0
            [[ $key != ShdPnd: ]] || pending=$value
        done 2>/dev/null <"/proc/$!/status" || return 0
    done
}

# timeout sends a signal both to the process and to its group, and the two must count as one. If the process of a busy
# machine takes them more than a tenth of a second apart, they count as two, and the try shows nothing.
a_sigint_that_comes_twice_is_one_() {
    local shown=0 tries=0 began took status
    while ((shown < 6)); do
        ((tries++ < 50)) || fail "the machine is too busy"
        start train --net resnet8 --batch 8 --iterations 1000000 --json row
        wait_for_handler
        began=${EPOCHREALTIME//[.,]/}
        send_and_wait
        send_and_wait
        took=$((${EPOCHREALTIME//[.,]/} - began)) status=0
        wait $! || status=$?
        trap - EXIT
        if ((took < 100000)); then
            shown=$((shown + 1))
            ((status == 130)) || fail "status $status, expected 130"
            [[ $(values row status) == interrupted ]] || fail "the row is not whole"
        fi
        rm -f row
    done
}

sigint_ends_an_evaluation_() {
    black_cifar10 data
    start train --net resnet8 --batch 4 --iterations 1 --eval --data cifar10:data --save state --json row
    wait_for err "evaluation 1/2500"
    interrupt
    [[ $(values row test_accuracy) == null && $(values row status) == interrupted ]] || fail "half an evaluation counts"
    expect 0 train --net resnet8 --batch 4 --quiet --iterations 1 --data cifar10:data --save at_once
    equal at_once state
}

a_bench_that_is_interrupted_prints_its_rows_() {
    start bench --net resnet20 --batch 8 --policies naive,liveness --iterations 1000000 --json rows
    wait_for err "naive 1/1000000"
    interrupt
    [[ $(values rows policy) == naive && $(values rows status) == interrupted ]] || fail "not the row of what ran"
    says out "  interrupted"
    [[ $(<out) != *$'\n    interrupted'* ]] || fail "the status has a line of its own"
}

a_search_that_is_interrupted_ends_with_the_best_plan_() {
    start plan --net resnet56 --batch 64 --policy auto --plan-effort 1000000 --budget 100MiB
    wait_for_handler
    interrupt
    says out "interrupted: this is the best plan that was found so far"
    says out ": fits 100MiB (takes "
}

# After an interrupt, mm does not look for a policy that would fit: that would take more planning.
a_plan_that_is_interrupted_and_does_not_fit_is_not_told_to_have_failed_() {
    start plan --net resnet1202 --batch 64 --policy auto --budget 1MiB --json row
    wait_for_handler
    interrupt
    says err "mm plan: interrupted: a plan that fits may not have been found yet"
    [[ $(<err) != *" would fit"* && $(values row status) == infeasible ]] || fail "$(<err)"
}

long_search=(--net resnet56 --batch 64 --policy auto --plan-effort 1000000 --budget 100MiB)

a_search_that_is_interrupted_trains_nothing_() {
    start train "${long_search[@]}" --json row --save state --log log
    wait_for_handler
    sleep 0.3
    interrupt
    says err "mm train: interrupted before the first iteration; there is nothing to save"
    [[ $(values row status) == interrupted && $(values row iterations) == 0 ]] || fail "the row is not whole"
    [[ ! -e state && ! -e log ]] || fail "a state or a log of nothing"
}

a_simulated_row_whose_search_is_interrupted_has_the_best_plan_() {
    start bench --simulate "$machine" --net resnet56 --batch 64 --policies auto,liveness --plan-effort 1000000 \
        --budgets 100MiB --json rows
    wait_for_handler
    sleep 1
    interrupt
    says err "interrupted: this is the best plan that was found so far"
    [[ $(values rows policy) == auto:* && $(values rows status) == interrupted ]] || fail "not the row of what ran"
    is_less "$(values rows predicted_peak_bytes)" $(((100 << 20) + 1)) || fail "the plan does not fit"
}

run_cases
