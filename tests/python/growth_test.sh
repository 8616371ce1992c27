#!/bin/bash
# Memory over 2000 iterations of each of six loops inside budgets (growth.py). Skipped where no python3 has torch. $1:
# libmm.so.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MM_LIBRARY=${mm:?}

# grows_not LOOP
grows_not() {
    local status=0
    "$here/with_torch" growth.py --iterations 2000 "$1" >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "growth.py $1: status $status: $(<out)"
    cat out
}

cnn_() { grows_not cnn; }

transformer_() { grows_not transformer; }

lstm_() { grows_not lstm; }

gan_() { grows_not gan; }

accumulation_() { grows_not accumulation; }

evaluation_between_() { grows_not evaluation; }

run_cases
