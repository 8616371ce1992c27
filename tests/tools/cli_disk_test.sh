#!/bin/bash
# cli_disk_test.sh MM VERIFY.PY: --disk, as users have it.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

verify=$(realpath "$2")
swap=(--net resnet8 --batch 8 --policy swap-async:when=always)
train=(train "${swap[@]}" --data synthetic --iterations 2 --no-ladder --quiet)

# What a limit of pinned memory refuses, a disk allows, with the same weights.
a_limit_of_pinned_memory_is_kept_with_a_disk_() {
    mkdir -p disk
    expect 0 "${train[@]}" --save free
    expect 1 "${train[@]}" --save none --pinned 2MiB
    says err "pinned"
    [[ ! -e none ]] || fail "a refused run wrote its state"
    expect 0 "${train[@]}" --save kept --pinned 2MiB --disk disk:64MiB --json row.json
    equal_tensors free kept
    (($(value row.json store_bytes) > 0)) || fail "$(<row.json)"
    (($(value row.json load_bytes) == $(value row.json store_bytes))) || fail "$(<row.json)"
    (($(value row.json pinned_bytes) <= 2 << 20)) || fail "$(<row.json)"
    [[ -z $(ls -A disk) ]] || fail "a file is left on the disk"
}

plans_say_what_goes_to_the_disk_() {
    expect 0 plan "${swap[@]}" --pinned 2MiB --disk /nowhere:64MiB --json row.json --save-plan plan.jsonl
    says out "stores and"
    (($(value row.json pinned_bytes) <= 2 << 20 && $(value row.json disk_bytes) > 0)) || fail "$(<row.json)"
    (($(value row.json stores) == $(value row.json loads) && $(value row.json stores) > 0)) || fail "$(<row.json)"
    expect 0 verify plan.jsonl
    says out "of a disk"
    python3 "$verify" plan.jsonl >seen || fail "the second checker refuses it: $(<seen)"
    sed 's/"disk_bytes": [0-9]*, "pinned_base/"disk_bytes": 4096, "pinned_base/; s/\("is": "limits".*"disk_bytes": \)[0-9]*/\14096/' \
        plan.jsonl >less.jsonl
    expect 1 verify less.jsonl
    says out "rule 9.5"
    expect 1 plan "${swap[@]}" --pinned 2MiB --disk /nowhere:64KiB
    expect 0 plan "${swap[@]}" --pinned 64MiB --json whole.json # without a disk nothing changes
    expect 0 plan "${swap[@]}" --pinned 64MiB --json with.json --disk /nowhere:64MiB
    cmp -s whole.json with.json || fail "a disk changes a plan that needs none"
}

gpt=(--net 'gpt,layers=2' --batch 2 --optimizer adamw --update in-backward --threads 1)

# Weights and states of which neither the device nor pinned memory has room for all: their homes are on the disk.
homes_of_weights_and_states_go_to_the_disk_() {
    local -a housed=(--policy 'swap-async:when=always,resident=none' --pinned 1500KiB --disk disk:64MiB)
    mkdir -p disk
    expect 0 plan "${gpt[@]}" "${housed[@]}" --explain --json row.json --save-plan plan.jsonl
    says out "have their homes on the disk"
    says out ", on the disk"
    expect 0 plan "${gpt[@]}" "${housed[@]:0:2}" --pinned 4MiB --disk disk:64MiB --explain # as few as that needs
    says out "have their homes on the disk"
    says out "have their homes in pinned memory"
    expect 0 plan "${gpt[@]}" "${housed[@]}" --explain --json row.json --save-plan plan.jsonl
    (($(count row.json '"place": "disk"') > 0)) || fail "no home is on the disk"
    expect 0 verify plan.jsonl
    python3 "$verify" plan.jsonl >seen || fail "the second checker refuses it: $(<seen)"
    (($(grep -c '"is": "home".*"place": "disk"' plan.jsonl) > 0)) || fail "the plan has no home on the disk"
    expect 0 train "${gpt[@]}" --on-overflow stop --iterations 3 --policy liveness --quiet --save free
    expect 1 train "${gpt[@]}" --on-overflow stop --iterations 3 "${housed[@]:0:4}" --quiet
    says err "pinned"
    expect 0 train "${gpt[@]}" --on-overflow stop --iterations 3 "${housed[@]}" --quiet --save kept --json run.json \
        --verify-issued --save-plan ran.jsonl
    equal_tensors free kept
    (($(value run.json pinned_bytes) <= 1500 << 10)) || fail "$(<run.json)"
    (($(value run.json store_bytes) > 0 && $(value run.json load_bytes) > 0)) || fail "$(<run.json)"
    expect 0 train "${gpt[@]}" --on-overflow stop --iterations 3 --plan ran.jsonl --pinned 1500KiB --disk disk:64MiB \
        --quiet --save again
    equal_tensors free again
    expect 0 train "${gpt[@]}" --on-overflow stop --iterations 2 --load kept "${housed[@]}" --quiet --save on
    expect 0 train "${gpt[@]}" --on-overflow stop --iterations 2 --load free --policy liveness --quiet --save on_free
    equal_tensors on on_free
}

# In a control group whose memory has room for a part of them alone.
a_control_group_is_enough_with_a_disk_() {
    local group limit_file status
    local -a run=(train --net 'gpt,layers=4,width=512,vocabulary=2000' "${gpt[@]:2}" --on-overflow stop --iterations 1 --quiet
        --policy liveness:resident=none)
    mkdir -p disk
    make_group
    in_group 110000000 "${run[@]}"
    ((status != 99)) || skip "no process can be moved into a control group"
    ((status != 0)) || fail "it fits without a disk"
    in_group 110000000 "${run[@]}" --disk disk:1GiB
    ((status == 0)) || fail "status $status: $(<err)"
}

rules_name_what_leaves_the_device_() {
    local -a plan=(plan "${gpt[@]}" --explain --json row.json --policy)
    expect 0 "${plan[@]}" 'rules:states=host;*=swap'
    (($(count row.json '"kind": "optimizer state"') > 0 && $(count row.json '"place"') > 0)) || fail "no states leave"
    says out "of kind optimizer"
    ! grep -q "of kind weight" out || fail "weights leave"
    expect 0 "${plan[@]}" 'rules:weights=host;states=host'
    says out "of kind weight"
    expect 0 plan --net 'gpt,layers=2' --batch 4 --sub-batch 2 --optimizer adamw --threads 1 --policy 'rules:states=host;*=swap'
    expect 2 "${plan[@]}" 'rules:weights=host;weights=host'
    says err "is given twice"
    expect 2 "${plan[@]}" 'rules:weights=disk'
    says err "rule 'weights=disk': must be weights=host"
    expect 2 "${plan[@]}" 'rules:states=swap;*=swap'
    says err "rule 'states=swap': must be states=host"
    expect 2 "${plan[@]}" 'rules:conv=host'
    says err "only weights, states and gradients have homes"
    expect 2 "${plan[@]}" 'rules:states=host,resident=needed'
    says err "leave resident=needed out"
    expect 2 "${plan[@]}" 'rules:gradients=host'
    says err "nothing of kind weight gradient that could have its home in host memory"
}

# Reuse of bytes does not imply that a load waits for its store: here it does not.
loads_wait_for_their_stores_() {
    expect 0 plan --net gpt,layers=4,width=128,heads=4 --threads 2 --batch 8 --sub-batch 3 --optimizer adamw --policy \
        auto:resident=needed --pinned 7MiB --disk disk:1GiB
}

# Plans stay within the disk, also where no budget is given.
a_disk_is_a_limit_() {
    local size
    for size in 3MiB 9MiB 18MiB 64MiB; do
        "$mm" plan "${gpt[@]}" --policy 'rules:states=host;*=swap' --pinned 1500KiB --disk "disk:$size" --json row.json \
            --no-advice >out 2>err || { says err "infeasible" && continue; }
        (($(value row.json disk_bytes) <= ${size%MiB} << 20)) || fail "$size: $(value row.json disk_bytes)"
    done
    expect 0 plan "${gpt[@]}" --policy 'rules:states=host;*=swap' --pinned 1500KiB --disk disk:64MiB --json row.json
}

# States that the host updates lie on the disk where pinned memory has no room for them.
hosted_states_go_to_the_disk_() {
    local -a hosted=(--net 'gpt,layers=2' --batch 2 --optimizer 'adamw,on=host' --threads 1 --policy liveness --no-ladder)
    mkdir -p disk
    expect 0 train "${hosted[@]}" --on-overflow stop --iterations 3 --quiet --save free --json row.json
    local pinned=$(($(value row.json pinned_bytes) * 3 / 4))
    expect 1 train "${hosted[@]}" --on-overflow stop --iterations 3 --quiet --pinned $pinned
    says err "pinned"
    says err "--disk"
    expect 0 train "${hosted[@]}" --on-overflow stop --iterations 3 --quiet --pinned $pinned --disk disk:64MiB --save kept \
        --json row.json --verify-issued --save-plan ran.jsonl
    equal_tensors free kept
    (($(value row.json store_bytes) > 0 && $(value row.json pinned_bytes) <= pinned)) || fail "$(<row.json)"
    expect 0 verify ran.jsonl
    python3 "$verify" ran.jsonl >seen || fail "the second checker refuses it: $(<seen)"
}

# Hosted states: no plan takes more of the disk than there is, and what must leave and has room there is enough.
a_disk_is_a_limit_of_hosted_states_() {
    local -a wide=(--net 'gpt,layers=4,width=64' --batch 4 --threads 1 --optimizer 'adamw,on=host' --policy liveness)
    local -a deep=(--net 'gpt,layers=12,width=64,vocabulary=64,context=16' "${wide[@]:2}" --on-overflow stop --budget 64MiB
        --iterations 1 --quiet --no-ladder)
    local size
    mkdir -p disk
    expect 1 plan "${wide[@]}" --pinned 2MiB --disk disk:64KiB
    says err "2MiB) are given (--pinned), beside"
    for size in 1MiB 2MiB 4MiB; do # of what one needs, more is enough
        "$mm" plan "${wide[@]}" --pinned 2MiB --disk "disk:$size" --json row.json >out 2>err || { says err "infeasible" && continue; }
        (($(value row.json disk_bytes) <= ${size%MiB} << 20)) || fail "$size: $(value row.json disk_bytes)"
    done
    expect 0 plan "${wide[@]}" --pinned 2MiB --disk disk:4MiB
    expect 0 plan "${wide[@]}" --pinned 8MiB --disk disk:4MiB --json row.json # nothing has to go there
    ! grep -q '^  disk ' out || fail "states go to the disk: $(<out)"
    expect 0 train "${deep[@]}" --pinned 8000KiB --disk disk:1660KiB --save kept --json row.json
    (($(value row.json store_bytes) > 0)) || fail "$(<row.json)"
    expect 0 train "${deep[@]}" --pinned 64MiB --save free
    equal_tensors free kept
    expect 1 train "${deep[@]}" --pinned 8000KiB --disk disk:1000KiB
    says err "no policy would fit with" # none is named that needs more of the disk
}

wrong_disks_are_refused_() {
    local disk
    for disk in disk disk: :64MiB disk:none disk:0; do
        expect 2 "${train[@]}" --disk "$disk"
        says err "--disk"
    done
    expect 2 "${train[@]}" --pinned 2MiB --disk /nowhere/at/all:64MiB
    says err "disk /nowhere/at/all: cannot create a file in this directory"
}

# The file may not grow beyond what the plan stores there: full from the start. The message names the disk.
a_full_disk_is_named_() {
    mkdir -p disk
    (
        trap '' XFSZ
        ulimit -f 1
        expect 1 "${train[@]}" --pinned 2MiB --disk disk:64MiB
        says err "disk disk: cannot reserve "
    ) || fail "a full disk"
}

the_rates_of_a_disk_are_measured_() {
    mkdir -p disk
    expect 0 device --facts facts.json --net resnet8 --batch 4 --iterations 2 --policies liveness --disk disk:8MiB
    says out "disk disk: store "
    (($(value facts.json store_bytes_per_s) > 0)) || fail "$(<facts.json)"
    expect 0 plan --net resnet8 --batch 4 --policy swap-async:when=always --pinned 1MiB --disk disk:64MiB \
        --facts facts.json
    expect 2 device --disk disk:8MiB
    says err "--disk: needs --facts FILE"
}

run_cases
