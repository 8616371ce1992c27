#!/bin/bash
# plan_pinned_test.sh MM MACHINE: mm plan keeps to a limit of pinned memory.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")

a_spill_that_pinned_memory_has_no_room_for_is_refused_or_lies_on_the_device_() {
    local spill needed
    local -a zvc=(plan --net resnet8 --batch 8 --policy "rules:*=compress(zvc),when=always")
    expect 0 "${zvc[@]}" --json row.json
    says out "spill, pinned"
    spill=$(value row.json spill_bytes) needed=$(value row.json minimum_bytes)
    expect 0 "${zvc[@]}" --pinned "$spill"
    expect 1 "${zvc[@]}" --pinned $((spill - 1)) --budget "$needed"
    says err "needs $spill bytes ("
    says err "with reserve=100 in the spec of its codec, no spill is needed"
    expect 0 "${zvc[@]}" --pinned $((spill - 1)) --json row.json # without a budget the device has room for the rest
    (($(value row.json spill_bytes) < spill && $(value row.json predicted_peak_bytes) > needed)) || fail "$(<row.json)"
    expect 1 "${zvc[@]}" --pinned 0 --budget $((needed + 4096))
    says err "needs $spill bytes ("
    expect 0 "${zvc[@]}" --pinned 0 --budget $((needed + spill)) --json row.json
    (($(value row.json spill_bytes) == 0 && $(value row.json predicted_peak_bytes) > needed)) || fail "$(<row.json)"
    expect 0 "${zvc[@]}" --pinned $((spill / 2)) --budget $((needed + spill)) --json row.json
    (($(value row.json spill_bytes) <= spill / 2 && $(value row.json spill_bytes) > spill / 4)) || fail "$(<row.json)"
    expect 0 plan --net resnet8 --batch 8 --policy "rules:*=compress(zvc:reserve=100),when=always" --pinned 0
    [[ $(<out) != *spill* ]] || fail "something is spilled"
    expect 0 plan --net resnet8 --batch 8 --policy "rules:*=compress(zvc)" --pinned 0
}

# Where no policy fits that keeps weights and states on the device, one that moves them is advised, and fits.
a_budget_below_the_weights_names_a_policy_that_moves_them_() {
    local minimum pinned
    local -a net=(plan --net "gpt,layers=2,width=128,heads=4" --batch 2 --optimizer adamw --update by-layer)
    expect 0 "${net[@]}" --policy auto:resident=all --json row.json
    minimum=$(value row.json minimum_bytes)
    expect 1 "${net[@]}" --policy auto:resident=all --budget $((minimum / 2))
    says err "; policy auto would fit, with about "
    expect 0 "${net[@]}" --policy auto --budget $((minimum / 2)) --json row.json
    pinned=$(value row.json pinned_bytes)
    expect 0 "${net[@]}" --policy auto --budget $((minimum / 2)) --pinned "$pinned"
    expect 1 "${net[@]}" --policy auto --budget $((minimum / 2)) --pinned $((pinned / 8))
    says err "with $((pinned / 8)) bytes "
    expect 1 "${net[@]}" --policy auto --budget $((minimum / 2)) --ranks 2 --divide states
    [[ $(<err) != *"would fit"* ]] || fail "$(<err)"
    expect 2 "${net[@]}" --policy auto:resident=none --ranks 2 --divide states
    says err "policy auto:resident=none: what ranks divide stays on the device"
}

# The update of this net's tied embedding alone would need 883 MiB at once.
states_of_a_large_parameter_are_updated_in_strips_() {
    expect 0 plan --net gpt,layers=24,width=1024,heads=16,context=1024,vocabulary=50304 --batch 8 --precision bf16 \
        --optimizer adamw --update in-backward --policy auto:resident=needed --facts "$machine" --json row.json
    (($(value row.json minimum_bytes) <= 768 << 20)) || fail "$(<row.json)"
}

pinned_memory_can_be_limited_() {
    local least liveness pinned
    local -a swap=(plan --net resnet8 --batch 8 --policy swap)
    expect 0 "${swap[@]}" --json row.json
    least=$(value row.json minimum_bytes) pinned=$(value row.json pinned_bytes)
    expect 0 plan --net resnet8 --batch 8 --policy liveness --json row.json
    liveness=$(value row.json minimum_bytes)
    expect 0 "${swap[@]}" --pinned "$pinned" --json row.json
    [[ $(value row.json minimum_bytes) == "$least" ]] || fail "$(<row.json)"
    expect 0 "${swap[@]}" --pinned $((pinned / 2)) --json row.json
    (($(value row.json minimum_bytes) > least && $(value row.json pinned_bytes) <= pinned / 2)) || fail "$(<row.json)"
    expect 0 "${swap[@]}" --pinned 1B --json row.json
    [[ $(value row.json minimum_bytes) == "$liveness" ]] || fail "$(<row.json)"
    expect 0 "${swap[@]}" --pinned 0 --json row.json
    [[ $(value row.json minimum_bytes) == "$liveness" ]] || fail "$(<row.json)"
    expect 1 plan --net resnet8 --batch 8 --policy swap:when=always --pinned 0
    says out "of pinned host memory, more than 0B, --pinned)"
    says err "of pinned host memory, but only 0 bytes are given (--pinned)"
    expect 0 plan --net resnet8 --batch 8 --policy auto --pinned 0 --json row.json
    [[ $(value row.json pinned_bytes) == 0 ]] || fail "auto pins $(value row.json pinned_bytes) bytes of none"
    grep -v '"mask"' "$machine" >no_masks.json
    expect 0 plan --net resnet8 --batch 8 --policy auto --budget 3200000 --facts no_masks.json
    expect 1 plan --net resnet8 --batch 8 --policy auto --budget 1MiB
    says err "; no policy needs less than "
    expect 1 plan --net resnet8 --batch 8 --policy auto --budget 1MiB --pinned 64KiB
    [[ $(<err) =~ "; no policy needs less than "[0-9]+" bytes".*" with 65536 bytes (64KiB) of pinned memory" ]] ||
        fail "$(<err)"
    expect 0 plan --net resnet8 --policy swap --budget 20MiB --max-batch --json more.json
    expect 0 plan --net resnet8 --policy swap --budget 20MiB --max-batch --pinned 1MiB --json less.json
    (($(value less.json batch) < $(value more.json batch) && $(value less.json pinned_bytes) <= 1 << 20)) ||
        fail "$(<less.json)"
    # The plan with the lowest peak would need 184 MiB of pinned memory. The plan for this budget needs 8 MiB.
    expect 0 plan --net resnet20 --batch 128 --policy modnn:subbatch=off --budget 200MB --minimum --pinned 50MB --json row.json
    (($(value row.json minimum_bytes) <= 200000000 && $(value row.json pinned_bytes) <= 50000000)) ||
        fail "$(<row.json)"
    # Weights take most of this net's memory. Sub-batches need a sum of gradients, so they would need more memory than
    # the whole batch.
    expect 0 plan --net alexnet@64x64,thin=4 --batch 4 --policy modnn --json row.json
    least=$(value row.json minimum_bytes)
    expect 0 plan --net alexnet@64x64,thin=4 --batch 4 --policy modnn --budget "$least"
    expect 1 plan --net alexnet@64x64,thin=4 --batch 4 --policy modnn --budget $((least - 1))
}

# Without --pinned, a plan for this host has the limit that training has. A machine file is another machine's.
pinned_memory_is_told_with_what_limits_it_() {
    local least pinned half
    local -a swap=(plan --net resnet8 --batch 8 --policy swap)
    expect 0 "${swap[@]}" --json row.json
    least=$(value row.json minimum_bytes) pinned=$(value row.json pinned_bytes)
    half=$(value row.json pinned_limit_bytes)
    ((half > 0 && $(value row.json minimum_pinned_bytes) == pinned)) || fail "$(<row.json)"
    [[ $(<out) =~ ^"resnet8, batch 8, swap: needs "[0-9.]+"MiB; takes "[0-9.]+"MiB of pinned host memory"$'\n' ]] ||
        fail "the first line does not tell"
    says out ", half of what this host has free"
    # A batch for which 300 TB would be pinned: no host has them.
    expect 1 plan --net resnet8 --batch 1000000 --policy swap:when=always --budget 100TiB
    says out "of pinned host memory, more than "
    says out ", half of what this host has free)"
    says err "half of what this host has free; --pinned sets it"
    expect 0 plan --net resnet8 --batch 1000000 --policy swap:when=always --budget 100TiB --facts "$machine" \
        --json row.json
    says out "that machine must have it; --pinned sets a limit"
    [[ $(value row.json pinned_limit_bytes) == null ]] || fail "$(value row.json pinned_limit_bytes)"
    expect 0 "${swap[@]}" --budget "$least" --pinned 1GiB --json row.json
    [[ $(value row.json pinned_limit_bytes) == 1073741824 ]] || fail "$(value row.json pinned_limit_bytes)"
    [[ $(<out) == *": fits "*"iB (takes "*" of pinned host memory)"$'\n'* ]] || fail "not the verdict"
    # Where less pinned memory needs more on the device, mm plan and mm train say so in the same words.
    expect 1 "${swap[@]}" --budget "$least" --pinned $((pinned / 2))
    says out ": does not fit "
    local told="infeasible: with $((pinned / 2)) bytes \([^;]*; with $pinned bytes \([^;]*"
    told+=" \(--pinned\) it needs $least bytes"
    [[ $(<err) =~ "mm plan: "$told ]] || fail "$(<err)"
    told=${BASH_REMATCH[0]#mm plan: }
    expect 1 train --net resnet8 --batch 8 --policy swap --budget "$least" --pinned $((pinned / 2)) --quiet
    says err "mm train: $told"
    # A budget that no amount of pinned memory would make enough: the minimum is that with unlimited pinned memory.
    expect 1 "${swap[@]}" --budget $((least - 256)) --pinned $((pinned / 2))
    told="infeasible: needs at least $least bytes "
    says err "mm plan: $told"
    expect 1 train --net resnet8 --batch 8 --policy swap --budget $((least - 256)) --pinned $((pinned / 2)) --quiet
    says err "mm train: $told"
    # Advice says what the policy would pin.
    expect 1 plan --net resnet8 --batch 8 --policy naive --budget "$least"
    says err " of pinned host memory"
}

homes_are_listed_with_their_visits_() {
    local -a net=(plan --net 'gpt,layers=2,width=64,heads=2,context=8,vocabulary=64' --batch 2 --update in-backward
        --policy liveness:resident=none --explain)
    expect 0 "${net[@]}" --optimizer adamw --json row
    says out "42 tensors of 1.19MiB have their homes in pinned memory"
    says out "comes for adamw.h.0.mlp.c_fc update, goes home"
    (($(count row '"sent_home": true') > 0 && $(count row '"on_host": true') == 0)) || fail "no states come and go"
    expect 0 "${net[@]}" --optimizer adamw,on=host --json row
    says out "made by h.0.mlp.c_fc backward, goes home; updated there"
    (($(count row '"on_host": true') > 0)) || fail "the host updates nothing"
    expect 0 "${net[@]:0:7}" --policy liveness --explain --json row
    (($(count row '"sent_home"') == 0)) || fail "homes on the device visit it"
}

run_cases
