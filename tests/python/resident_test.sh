#!/bin/bash
# Resident memory of processes that train with mm.fit. Skipped where no python3 has torch. $1: libmm.so.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MM_LIBRARY=$mm

resident_memory_falls_() {
    local status=0
    "$here/with_torch" resident.py >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "resident.py: status $status: $(<out)"
}

run_cases
