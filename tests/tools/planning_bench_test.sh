#!/bin/bash
# planning_bench_test.sh MM MACHINE PLANNING STASH: the benches of planning.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
planning=$(realpath "$3")
stash=$(realpath "$4")

# bench_says STATUS ARGUMENT...: like expect, for the bench `planning`, or for $bench.
bench_says() {
    local status=0 expected=$1
    shift
    "${bench:-$planning}" "$@" >out 2>err </dev/null || status=$?
    ((status == expected)) || fail "${bench:-$planning} $*: status $status, expected $expected"
}

planning_is_timed_in_shares_of_budgets_() {
    bench_says 0 --help
    says out "--budget-shares"
    bench_says 0 --net tiny --batch 8 --rounds 2 --policies liveness,swap --budget-shares 0.6,1 --facts "$machine"
    for text in "tiny, batch 8, 2" "(share 0.6): refused, needs 874KiB" "liveness in 874KiB (share 1): " \
        "segments, a simulated step of " "swap in "; do
        says out "$text"
    done
    (($(count out "advice ") == 1 && $(count out "plan + check ") == 4)) || fail "not each policy in each budget"
    bench_says 0 --net tiny --batch 8 --rounds 1 --policies liveness
    [[ $(<out) != *share* && $(<out) != *simulated* && $(<out) != *refused* ]] || fail "a budget without being asked"
}

bad_input_of_the_bench_of_planning_is_one_line_() {
    local share
    for share in -0.1 1.5 x nan ','; do
        bench_says 2 --net tiny --budget-shares "$share"
        says err "planning: --budget-shares $share: "
        (($(wc -l <err) == 1)) || fail "$(wc -l <err) lines"
    done
    bench_says 2 --net tiny --policies nothing
    bench_says 1 --net tiny --facts none.json
    says err "none.json"
    bench_says 2 --net nothing
    bench_says 2 --net tiny --budget-share
}

orders_of_a_stash_are_timed_or_refused_in_one_line_() {
    local bench=$stash
    bench_says 0 --entries 50 --policies swap-async,liveness --share 1.5
    for text in "50 entries" "swap-async " "liveness "; do says out "$text"; done
    (($(count out "1 of 2 iterations by the plan") == 2)) || fail "not every order was planned"
    bench_says 0 --entries 50 --share 0.5 --policies swap-async
    bench_says 1 --entries 50 --share 0.5 --policies liveness
    says err "stash: liveness on stash needs at least "
    bench_says 2 --policies nothing
    (($(wc -l <err) == 1)) || fail "$(wc -l <err) lines"
}

run_cases
