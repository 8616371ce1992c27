#!/bin/bash
# mm train as two processes, each on a GPU of its own.
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# MPI's plugins leave memory behind, and are unloaded before leaks are looked for: none can be told from ours.
export ASAN_OPTIONS=detect_leaks=0
net=(train --net tiny --batch 8 --device cuda --deterministic --quiet --no-measure --iterations 3)

two_gpus_come_to_the_same_weights_whatever_the_plan_() {
    command -v mpirun >/dev/null || skip "there is no mpirun"
    "$mm" device --device cuda:1 >told 2>&1 || skip "there are no two GPUs"
    local options n=0
    for options in "--policy liveness" "--policy swap-async:when=always" "--policy recompute:when=always --sum end --issue thread"; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        timeout -s KILL 100 mpirun --bind-to none -n 2 "$mm" "${net[@]}" $options --engine mpi --save state$n --json row$n \
            >out 2>err </dev/null || fail "status $? with $options"
        equal_tensors state1 state$n
    done
    [[ $(value row1 device) == cuda:0 && $(value row1 replays) == 0 ]] || fail "not on the first, or recorded"
    ((n == 3)) || fail "$n runs"
}

run_cases
