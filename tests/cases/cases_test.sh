#!/bin/bash
# Inputs on which mm once gave a wrong result or none, with the right one.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"

machine=$(realpath "$2") small=file:$(realpath "$3") add_twice=file:$(realpath "$4") kernel=file:$(realpath "$5")

# bf16: the layer read a gradient before it was written, and training ended in NaN under some policies.
a_layer_that_reads_one_map_twice_trains_in_bf16_() {
    local policy
    for policy in naive liveness swap:when=always; do
        expect 0 train --net "$add_twice" --batch 8 --threads 1 --iterations 3 --lr 0.01 --precision bf16 \
            --policy $policy --quiet --save state.$policy
        equal_tensors state.naive state.$policy
    done
}

# Planning this took minutes: a library was asked to describe a convolution with a kernel of 16 million columns.
a_huge_kernel_is_planned_or_refused_in_seconds_() {
    local status=0
    (ulimit -t 20 && "$mm" plan --net "$kernel" --batch 1 --policy liveness >out 2>err </dev/null) || status=$?
    ((status <= 2)) || fail "status $status"
}

# Opened as text, a FIFO waited for a writer for ever.
a_fifo_as_text_is_refused_() {
    mkfifo fifo
    local status=0
    timeout -s KILL 20 "$mm" train --net gpt,layers=1,width=16,heads=2,context=8 --data text:fifo >out 2>err </dev/null ||
        status=$?
    ((status == 1 || status == 2)) || fail "status $status"
    says err "fifo"
}

# The table had the first policy's name alone after the run had switched back to it, without (lossy).
a_run_that_was_lossy_in_part_says_so_() {
    expect 0 train --net "$small" --batch 8 --iterations 6 --switch 2:freelunch:when=always --switch 4:liveness \
        --budget 8MiB --quiet --json row
    says out "auto -> freelunch:when=always (lossy) -> liveness"
    [[ $(value row lossy) == true ]] || fail "the row is not lossy"
    expect 0 train --net "$small" --batch 8 --iterations 2 --switch 2:freelunch:when=always --budget 8MiB --quiet --json row
    [[ $(value row lossy) == false ]] || fail "no lossy policy ran"
}

# The picture of a simulation did not say that nothing ran, nor for which machine; pictures did not mark lossy policies.
pictures_say_simulated_and_lossy_() {
    expect 0 bench --simulate "$machine" --net resnet20 --batch 32 --budgets sweep:3 --policies liveness,freelunch \
        --svg bench.svg --quiet
    says bench.svg "simulated for titanx"
    says bench.svg "freelunch (lossy)"
    expect 0 plan --net resnet20 --batch 32 --policy liveness,freelunch --svg plan.svg
    says plan.svg "predicted for host"
    says plan.svg "freelunch (lossy)"
    ! grep -q "liveness (lossy)" bench.svg plan.svg || fail "liveness is not lossy"
    balanced bench.svg
    balanced plan.svg
}

# mm plan said that a plan fits which needs more pinned memory than the machine has.
a_plan_says_how_much_host_memory_there_is_() {
    local status=0
    "$mm" plan --net resnet152 --batch 4096 --policy swap-async --budget 100GiB >out 2>err </dev/null || status=$?
    ((status <= 1)) || fail "status $status"
    grep -qiE 'this (host|machine)|has [0-9.]+GiB' out err || fail "no word on what this machine has"
}

# freelunch compresses what convolutions write. In a GPT it did nothing, did not say so, and was called lossy.
a_policy_that_acts_on_nothing_says_so_() {
    local note="freelunch:when=always,eligible=all would act on"
    expect 0 plan --net gpt --batch 8 --policy freelunch:when=always --json planned
    says out "freelunch:when=always acts on no map of "
    says out "$note"
    ! grep -q "(lossy)" out || fail "it is called lossy"
    [[ $(value planned lossy) == false && $(value planned would) == freelunch:when=always,eligible=all ]] ||
        fail "the plan's row: $(<planned)"
    expect 0 train --net gpt,layers=1,width=16,heads=2,context=8 --batch 2 --iterations 1 --policy freelunch:when=always \
        --quiet --json row
    says err "$note"
    [[ $(value row lossy) == false && $(value row would) == freelunch:when=always,eligible=all ]] || fail "$(<row)"
    expect 0 bench --net gpt,layers=1,width=16,heads=2,context=8 --batch 2 --iterations 1 --quiet \
        --policies liveness,freelunch:when=always,vdnn-conv,hybrid:when=always --json rows
    says out "$note"
    says out "vdnn-conv acts on no map of"
    ! grep -q "(lossy)" out || fail "something is called lossy"
    [[ $(values rows lossy) == $'false\nfalse\nfalse\nfalse' ]] || fail "a row is lossy"
    expect 0 plan --net resnet20 --batch 8 --policy freelunch,vdnn-conv,gist,comet,hybrid,swap
    ! grep -q "acts on no map" out || fail "they act on a network of convolutions"
}

# A cosine schedule of a run that goes on for longer was stretched without a word, and the log had no learning rate.
a_schedule_that_is_lengthened_is_told_() {
    expect 0 train --net "$small" --batch 8 --iterations 10 --lr-schedule cosine --save state --quiet --log log
    [[ $(head -1 log) == iteration,loss,accuracy,seconds,lr,images,planned_bytes ]] || fail "header $(head -1 log)"
    is_less "$(tail -1 log | cut -d, -f5)" "$(sed -n 2p log | cut -d, -f5)" || fail "the learning rate does not fall"
    expect 0 train --net "$small" --load state --iterations 20 --quiet
    says err "the schedule --lr-schedule cosine ends at iteration 20; in the run of state it would end at 10"
    expect 0 train --net "$small" --load state --iterations 10 --quiet
    ! grep -q schedule err || fail "told though nothing differs"
}

# mpirun refused with 16 lines of its own, and mm with none.
ranks_as_root_are_refused_by_mm_() {
    if [[ $(id -u) != 0 ]] || [[ $(mpirun --version 2>/dev/null) != *"Open MPI"* ]]; then
        skip "not root, or no Open MPI"
    fi
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
    refused 1 "OMPI_ALLOW_RUN_AS_ROOT" train --net "$small" --batch 32 --ranks 2 --iterations 1 --quiet
}

# A full disk read "Input/output error" where the output was longer than a buffer.
a_full_disk_is_called_by_its_name_() {
    local status command
    [[ -e /dev/full ]] || skip "no /dev/full"
    for command in "nets --ops" "nets" "plan --net tiny" "policies" "plan --net tiny --json -" "nets --ops --json"; do
        status=0
        # shellcheck disable=SC2086
        "$mm" $command >/dev/full 2>err </dev/null || status=$?
        ((status == 1)) || fail "$command: status $status"
        says err "No space left on device"
        (($(count err "mm") == 1)) || fail "$command: more than one line"
    done
    expect 1 train --net tiny --batch 2 --iterations 200 --quiet --log /dev/full
    says err "No space left on device"
}

run_cases
