#!/bin/bash
# The command while memory runs out: mm_nomem.c makes one allocation fail in each run, and says what must hold then.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"
nomem=$(realpath "$2")
titanx=$(realpath "$3")

few=(--batch 2 --threads 1 --quiet)

# Makes every STRIDE-th allocation fail; with MM_TEST_DEEP each. FILE: is written as a whole, or not at all.
runs_out() { # STRIDE FILE ARGUMENT...
    local stride=$1
    [[ -z ${MM_TEST_DEEP-} ]] || stride=1
    "$nomem" "$stride" "${@:2}" >out 2>err </dev/null || fail "mm ${*:3}"
    echo "  ${*:3}: $(<out)"
}

plan_() {
    runs_out 11 - --same-output plan --net tiny --batch 2 --policy liveness,swap --pinned 1MiB --explain
    runs_out 67 plan.json plan --net tiny --batch 2 --policy freelunch,recompute --pinned 1MiB --explain \
        --json plan.json --svg p.svg --facts "$titanx"
    runs_out 401 - plan --net tiny --batch 2 --policy auto --budget 3MiB --facts "$titanx"
}

train_saves_() {
    runs_out 11 state train --net tiny "${few[@]}" --iterations 2 --policy liveness --save state
}

train_goes_on_with_a_state_() {
    expect 0 train --net tiny "${few[@]}" --iterations 1 --save first
    cp first state
    runs_out 47 state train --net tiny "${few[@]}" --iterations 3 --load first --save state --trace t.json \
        --budget 400KiB --policy swap-async:when=always --switch 2:recompute-swap:mode=nested,when=always
    runs_out 61 state train --net tiny "${few[@]}" --iterations 2 --load first --save state --sub-batch 1 \
        --policy freelunch:codec=zvc,eligible=all,when=always
}

train_of_tokens_() {
    printf 'all work and no play %.0s' {1..40} >words
    runs_out 43 state train --net gpt,layers=1,width=16,heads=2,context=8 --data text:words "${few[@]}" --iterations 2 \
        --optimizer adamw --policy recompute:when=always --save state --eval
}

# With few images, a convolution's pieces are rows: whole images would give other bits.
train_with_threads_() {
    runs_out 29 state train --net tiny --batch 1 --threads 2 --quiet --iterations 1 --policy liveness --save state
}

report_() {
    expect 0 train --net tiny "${few[@]}" --iterations 2 --json rows.json --trace t.json
    expect 0 plan --net tiny --batch 2 --explain --json plan.json
    runs_out 61 page.html report rows.json plan.json t.json --html page.html
}

nets_() {
    runs_out 7 - --same-output nets --net tiny --json
    runs_out 67 - --same-output nets --ops --json
}

bench_() {
    runs_out 97 - bench --net tiny --batch 2 --threads 1 --policies naive,freelunch --iterations 1 --json rows.json
}

run_cases
