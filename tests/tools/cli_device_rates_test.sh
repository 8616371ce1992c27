#!/bin/bash
# mm device --facts measures this host, and mm train plans by what it measured. Takes some ten seconds of two CPUs.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

this_host_is_measured_once_and_runs_plan_by_it_() {
    local file=$XDG_CACHE_HOME/mm/host-2.json key
    expect 0 device --facts --threads 2 --json rates
    says out "rates of this host, 2 threads: $file"
    [[ $(values rates conv_flops_per_s) == "$(values "$file" conv_flops_per_s)" ]] || fail "the file has other rates"
    for key in conv_flops_per_s attention_flops_per_s memory_bytes_per_s host_bytes_per_s encode_bytes_per_s; do
        is_less 0 "$(values rates $key | head -1)" || fail "$key is $(values rates $key | head -1)"
    done
    expect 0 train --net resnet8 --batch 8 --budget 4MiB --threads 2 --iterations 5 --quiet
    says err "auto plans by this host's rates ($file, measured"
    expect 0 train --net resnet8 --batch 8 --budget 4MiB --threads 1 --iterations 5 --quiet
    says err "auto plans by nominal times"
    # Rates are those of any network.
    expect 0 plan --net unet --batch 1 --policy liveness --facts "$file"
}

run_cases
