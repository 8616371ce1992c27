#!/bin/bash
# mm_torch with emulated CUDA: the order of streams (gpu_streams.py). Skipped where no python3 has torch. $1:
# libmm_streams.so.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MM_LIBRARY=$mm TORCH=2.6
# The emulation needs more thread-local memory than is left for a library that is opened at run time.
export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=32768

streams_order_all_work_() {
    local status=0
    "$here/with_torch" gpu_streams.py >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "gpu_streams.py: status $status"
}

run_cases
