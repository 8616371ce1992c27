#!/bin/bash
# Nets that people train, inside budgets, eager and compiled (accepted.py). Skipped where no python3 has torch 2.6,
# torchvision, transformers, timm and peft. $1: libmm.so.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MM_LIBRARY=${mm:?} MODULES="torchvision transformers timm peft"

# accepted ARGUMENT...
accepted() {
    local status=0
    "$here/with_torch" accepted.py "$@" >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "status $status"
    cat out
}

nets_are_bit_equal_within_budgets_() { accepted; }

compiled_nets_are_bit_equal_within_budgets_() { accepted --compiled; }

run_cases
