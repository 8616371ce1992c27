#!/bin/bash
# Tests of tools/verify/import: logs of events become plans that 'mm verify' and the second checker judge alike.
# Arguments: mm, log_to_plan.py, verify.py, import_logs.py, torch_2_13.fx.
# SPDX-License-Identifier: MIT
import=$(dirname "$(realpath "$2")") second=$(realpath "$3") logs=$(realpath "$4") graphs=$(realpath "$5")
with_torch=$PWD/tests/python/with_torch own=$PWD/tests/verify
# shellcheck source=tests/tools/cli.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"

logs_are_judged_by_their_races_() {
    PYTHONDONTWRITEBYTECODE=1 python3 "$logs" "$import" "$mm" "$second" || fail "import_logs.py fails"
}

recorded_offloaders_are_proved_or_refused_() {
    local status=0
    "$with_torch" ../verify/import_torch.py "$import" "$mm" "$second" >out 2>&1 || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "import_torch.py: status $status"
    cat out
}

graphs_of_torch_are_proved_and_need_each_wait_() {
    PYTHONDONTWRITEBYTECODE=1 python3 "$own/fx_graphs.py" "$import" "$mm" "$second" "$graphs" || fail "fx_graphs.py fails"
}

torchs_own_passes_make_graphs_that_are_proved_() {
    local status=0
    "$with_torch" ../verify/import_fx.py "$import" "$mm" "$second" "$graphs" >out 2>&1 || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || { cat out && fail "import_fx.py: status $status"; }
    cat out
}

run_cases
