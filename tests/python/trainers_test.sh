#!/bin/bash
# mm_torch in the trainers that people use (trainers_equal.py). Each case is skipped where its package is not installed.
# $1: libmm.so.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MM_LIBRARY=$mm

# trains_with PACKAGE CASE...
trains_with() {
    local status=0
    MODULES=$1 "$here/with_torch" trainers_equal.py "${@:2}" >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "$*: status $status"
}

transformers_trainer_is_bit_equal_() { trains_with "transformers accelerate" transformers transformers_faults; }

lightnings_trainer_is_bit_equal_() { trains_with lightning lightning; }

loops_with_accelerate_are_bit_equal_() { trains_with accelerate accelerate; }

run_cases
