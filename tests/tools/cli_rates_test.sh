#!/bin/bash
# By which rates mm train and mm bench plan if they are given none: this host's, from the cache or from the run.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
run=(train --net resnet8 --batch 8 --budget 5.5MiB --threads 1 --quiet)

# cached: writes the rates of $machine to the cache as this host's, who says himself what he is.
cached() {
    local file=$XDG_CACHE_HOME/mm/host-1.json key there
    mkdir -p "$XDG_CACHE_HOME/mm"
    sed 's/^{/{"host": {"cpu": "?", "threads": "?", "library": "?", "mm": "?", "measured": "2026-02-03"},/' "$machine" >"$file"
    for key in cpu threads library mm; do
        expect 0 "${run[@]}" --iterations 1
        says err "$file: has the rates of another host"
        there=$(sed -n 's/.* ?, here \(.*\)): measure them anew with .mm device --facts.$/\1/p' err)
        [[ $there ]] || fail "it does not say what differs ($key)"
        sed -i "s/\"$key\": \"?\"/\"$key\": \"$there\"/" "$file"
    done
}

a_run_measures_itself_and_plans_again_with_the_same_bits_() {
    expect 0 "${run[@]}" --iterations 6 --rates nominal --save nominal
    says err "auto plans by nominal times (--rates nominal)"
    expect 0 "${run[@]}" --iterations 6 --save measured --json row
    says err "once again after iteration 3 by measured ones"
    says err "by the times of iterations 2 to 3"
    equal_tensors nominal measured
    kept=$(value row peak_bytes)
    ((2 * kept <= 11 << 20)) || fail "touched $kept bytes"
    # What continues a run measures itself, too; nobody plans again after as few iterations as are measured.
    expect 0 "${run[@]}" --iterations 12 --load measured --save goes_on
    says err "by the times of iterations 2 to 3"
    expect 0 "${run[@]}" --iterations 12 --rates nominal --save whole
    equal_tensors whole goes_on
    expect 0 "${run[@]}" --iterations 3
    [[ $(<err) != *again* ]] || fail "there is nothing left to run"
}

sub_batches_are_planned_again_with_the_same_bits_() {
    expect 0 "${run[@]}" --iterations 5 --sub-batch 3 --rates nominal --save nominal
    expect 0 "${run[@]}" --iterations 5 --sub-batch 3 --save measured
    says err "by the times of iterations 2 to 3"
    equal_tensors nominal measured
}

the_rates_of_the_cache_are_used_and_give_the_same_bits_() {
    cached
    expect 0 "${run[@]}" --iterations 5 --save of_cache --json row
    says err "auto plans by this host's rates ($XDG_CACHE_HOME/mm/host-1.json, measured 2026-02-03)"
    [[ $(<err) != *again* ]] || fail "plans again"
    expect 0 "${run[@]}" --iterations 5 --rates nominal --save nominal
    equal_tensors nominal of_cache
    # The plan is that of the same rates as a machine file.
    expect 0 plan --net resnet8 --batch 8 --budget 5.5MiB --policy auto --threads 1 --facts "$XDG_CACHE_HOME/mm/host-1.json" --json plan
    [[ $(value plan predicted_peak_bytes) == "$(value row predicted_peak_bytes)" ]] || fail "another plan"
    expect 0 bench --net resnet8 --batch 8 --budgets 5.5MiB --threads 1 --policies auto,vdnn-all --iterations 1 --quiet --json rows
    says err "mm bench: auto plans by this host's rates"
    [[ $(values rows predicted_peak_bytes | head -1) == "$(value row predicted_peak_bytes)" ]] || fail "bench has another plan"
    # An epoch's last batch has rates, too.
    expect 0 train --net resnet8 --data synthetic:samples=20 --batch 8 --epochs 1 --budget 5.5MiB --threads 1 --quiet
    [[ $(<err) != *"without measured times"* ]] || fail "the last batch has none"
    # A simulated link counts more than the measured one.
    expect 0 "${run[@]}" --iterations 1 --link 20MB --json slow
    expect 0 plan --net resnet8 --batch 8 --budget 5.5MiB --policy auto --threads 1 --link 20MB --facts "$XDG_CACHE_HOME/mm/host-1.json" --json plan
    [[ $(value plan predicted_peak_bytes) == "$(value slow predicted_peak_bytes)" ]] || fail "another plan over a slow link"
}

what_may_not_depend_on_this_host_does_not_() {
    cached
    expect 0 "${run[@]}" --iterations 5 --policy auto:codecs=zfp:rate=8
    says err "plans by nominal times (it may lose bits"
    expect 0 "${run[@]}" --iterations 5 --switch 2:freelunch:rate=8
    says err "auto plans by nominal times (it may lose bits"
    expect 0 train --net resnet8 --batch 8 --policy liveness --budget 40MiB --iterations 5 --quiet
    [[ $(<err) != *rates* && $(<err) != *"nominal"* ]] || fail "liveness does not plan by times"
    refused 2 "--rates fast: must be host or nominal" "${run[@]}" --iterations 2 --rates fast
    refused 2 "--net: needs --facts FILE" device --facts --net resnet20
}

run_cases
