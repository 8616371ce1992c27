#!/bin/bash
# Plans without running against real steps of nets of real size, and of a Llama of 7 B (joint_plans.py --deep). Skipped
# where no python3 has torch 2.6, torchvision and transformers. $1: libmm.so.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MM_LIBRARY=${mm:?} MODULES="torchvision transformers"

nets_of_real_size_are_planned_as_they_run_() {
    local status=0
    "$here/with_torch" joint_plans.py --deep >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "status $status"
    cat out
}

run_cases
