#!/bin/bash
# Two ranks, each on an emulated GPU, whose gradients and counts of labels NCCL adds up, as a program of a ptx_test.
# SPDX-License-Identifier: MIT
set -- tools/mm
# shellcheck source=tests/tools/cli.sh
. tests/tools/cli.sh

# Absolute: each case has a folder of its own.
LD_LIBRARY_PATH=$(dirname "$mm")/../tests/cuda_emulation
export LD_LIBRARY_PATH

ranks_have_the_same_weights_under_every_plan_() {
    local policy net=(train --net tiny --batch 8 --device cuda --deterministic --quiet --no-measure --iterations 3)
    for policy in liveness swap-async:when=always recompute:when=always; do
        expect 0 "${net[@]}" --ranks 2 --comm nccl --policy $policy --save "state.$policy"
        equal_tensors state.liveness "state.$policy"
    done
}

run_cases
