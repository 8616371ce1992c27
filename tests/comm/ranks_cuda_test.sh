#!/bin/bash
# mm train as two processes, each on a GPU of its own. Emulated GPUs have an emulated NCCL; others have the real one.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# No leak check: MPI's plugins leak, and are unloaded before the check, so that their leaks cannot be told from ours.
export ASAN_OPTIONS=detect_leaks=0
emulated=$(dirname "$mm")/../tests/cuda_emulation
[[ ! -e $emulated/libnccl.so.2 ]] || export LD_LIBRARY_PATH=$emulated
net=(train --net tiny --batch 8 --device cuda --deterministic --quiet --no-measure)
seconds=${MM_RANKS_SECONDS:-10} # within which all ranks must have ended after a failure

# Skips the case unless there are two GPUs. 'mm device' would tell too, but measures the GPUs for seconds.
needs_two_gpus() {
    "$mm" train --net tiny --batch 4 --device cuda:1 --iterations 1 --quiet --no-measure >told 2>&1 ||
        skip "there are no two GPUs"
}

two_gpus_come_to_the_same_weights_whatever_the_plan_and_the_communicator_() {
    command -v mpirun >/dev/null || skip "there is no mpirun"
    needs_two_gpus
    local options n=0
    for options in "--policy liveness" "--policy swap-async:when=always" \
        "--policy recompute:when=always --sum end --issue thread"; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        timeout -s KILL 100 mpirun --bind-to none -n 2 "$mm" "${net[@]}" --iterations 3 $options --comm mpi --save state$n \
            --json row$n >out 2>err </dev/null || fail "status $? with $options"
        equal_tensors state1 state$n
        # NCCL may add up in another order, but two terms have the same sum in either order.
        # shellcheck disable=SC2086
        expect 0 "${net[@]}" --iterations 3 $options --ranks 2 --save nccl$n --json row$n.nccl
        equal_tensors state1 nccl$n
    done
    [[ $(value row1 device) == cuda:0 && $(value row1 replays) == 0 ]] || fail "not on the first, or recorded"
    (($(value row1.nccl replays) > 0 && $(value row3.nccl replays) == 0)) || fail "NCCL's sums are not recorded"
    (($(value row1 pinned_bytes) > $(value row1.nccl pinned_bytes))) || fail "NCCL's sums go to the host"
    ((n == 3)) || fail "$n runs"
    expect 0 "${net[@]}" --iterations 3 --ranks 2 --save traced --trace trace
    equal_tensors state1 traced
    (($(count trace '"cat":"sum"') >= 6)) || fail "NCCL's sums are not in the trace"
    says trace '"dropped":0'
    # NCCL, with ranks that mpirun has started.
    timeout -s KILL 100 mpirun --bind-to none -n 2 "$mm" "${net[@]}" --iterations 3 --comm nccl --save state \
        >out 2>err </dev/null || fail "status $? under mpirun"
    equal_tensors state1 state
}

two_gpus_that_divide_states_and_gradients_come_to_the_same_weights_() {
    command -v mpirun >/dev/null || skip "there is no mpirun"
    needs_two_gpus
    local comm what
    for comm in nccl mpi; do
        for what in none states gradients; do
            expect 0 "${net[@]}" --iterations 3 --ranks 2 --comm $comm --optimizer adamw --divide $what \
                --save $comm.$what --json row.$what
            equal_tensors nccl.none $comm.$what
            [[ $comm != nccl ]] || (($(value row.$what replays) > 0)) || fail "$what: nothing is recorded"
        done
        expect 0 "${net[@]}" --iterations 3 --ranks 2 --comm $comm --precision bf16 --save bf16
        expect 0 "${net[@]}" --iterations 3 --ranks 2 --comm $comm --precision bf16 --divide gradients --save divided
        equal_tensors bf16 divided
        expect 0 train --load $comm.gradients --iterations 4 --quiet --device cuda --ranks 2 --comm $comm
    done
}

# With more than two terms, NCCL's order counts: it is that of a reduce-scatter whatever is divided.
four_gpus_add_up_in_the_same_order_whatever_they_divide_() {
    export MM_EMULATED_CUDA_DEVICES=4
    "$mm" train --net tiny --batch 4 --device cuda:3 --iterations 1 --quiet --no-measure >told 2>&1 ||
        skip "there are fewer than four GPUs"
    local what parts=(train --net 'gpt,layers=1,width=64,heads=2,context=8,vocabulary=300' --batch 4 --device cuda
        --deterministic --quiet --no-measure --iterations 3 --ranks 4 --comm nccl)
    for what in none states gradients; do
        expect 0 "${parts[@]}" --optimizer adamw --divide $what --save state.$what
        equal_tensors state.none state.$what
    done
}

# One rank still copies gradients to the host when the other has begun to vote, or waits for sums. CUDA may run host
# functions one after the other, so a host function on one stream must not wait for one on another stream.
ranks_of_which_one_copies_slowly_do_not_wait_for_each_other_() {
    command -v mpirun >/dev/null || skip "there is no mpirun"
    needs_two_gpus
    local issue parts=(train --net 'vgg11@32x32,classes=10,thin=8' --batch 4 --device cuda --deterministic --quiet
        --no-measure --iterations 3 --comm mpi)
    for issue in inline thread; do
        timeout -s KILL 60 mpirun --bind-to none -n 1 env MM_EMULATED_CUDA_OUT_MS=10 "$mm" "${parts[@]}" --issue $issue : \
            -n 1 "$mm" "${parts[@]}" --issue $issue >out 2>err </dev/null || fail "status $? with --issue $issue"
    done
}

ranks_without_a_gpu_each_are_refused_() {
    refused 2 "--comm nccl: works on GPUs only, and --device host is none" train --net tiny --ranks 2 --comm nccl
    refused 2 "--sum-at root: NCCL cannot add up on one rank" "${net[@]}" --ranks 2 --sum-at root
    needs_two_gpus
    refused 2 "8 ranks, 2 GPUs answer" "${net[@]}" --ranks 8
    refused 2 "2 ranks, and one GPU is named, cuda:1" train --net tiny --batch 8 --device cuda:1 --ranks 2
    # In case NCCL is installed: a file in its place that cannot be opened as a library.
    mkdir none
    : >none/libnccl.so.2
    LD_LIBRARY_PATH=none refused 1 "the communicator nccl: none/libnccl.so.2" "${net[@]}" --ranks 2
}

# Starts ranks in the background. Sets starter, and ranks to their process ids once they train.
start_ranks() {
    start "${net[@]}" --iterations 1000000 --ranks 2 --save state --log log
    starter=$! # saved, because reading from a process changes $!
    trap 'kill -KILL $starter 2>/dev/null' EXIT
    wait_for log $'\n3,'
    mapfile -t ranks < <(pgrep -P "$starter")
    ((${#ranks[@]} == 2)) || fail "${#ranks[@]} processes"
}

a_rank_on_a_gpu_that_is_killed_ends_all_() {
    needs_two_gpus
    start_ranks
    local began=$SECONDS status=0
    kill -KILL "${ranks[1]}"
    wait "$starter" || status=$?
    ((SECONDS - began <= seconds)) || fail "they took $((SECONDS - began)) s to end"
    ((status == 137)) || fail "status $status"
    mapfile -t lines < <(grep '^mm' err)
    [[ ${#lines[@]} == 1 && ${lines[0]} == "mm train: rank "*" was killed by signal 9" ]] || fail "not one line"
    ! kill -0 "${ranks[0]}" 2>/dev/null || fail "the other is left"
    [[ ! -e state ]] || fail "something was saved"
}

a_rank_that_is_gone_when_ranks_connect_ends_all_() {
    needs_two_gpus
    [[ -e $emulated/libnccl.so.2 ]] || skip "not with NCCL itself"
    MM_EMULATED_NCCL_DIES=1 expect 137 "${net[@]}" --iterations 3 --ranks 2
    says err "mm train: rank 1 was killed by signal 9"
    says err "the emulated NCCL: aborted while it connects"
}

ranks_end_when_the_mm_that_started_them_is_killed_() {
    needs_two_gpus
    start_ranks
    local began=$SECONDS rank
    kill -KILL "$starter"
    for rank in "${ranks[@]}"; do
        while kill -0 "$rank" 2>/dev/null; do
            ((SECONDS - began <= seconds)) || fail "$rank is left"
            sleep 0.05
        done
    done
}

a_rank_on_a_gpu_that_cannot_begin_ends_all_() {
    needs_two_gpus
    expect 1 "${net[@]}" --iterations 3 --ranks 2 --budget 10KiB --policy liveness
    (($(count err "mm train: rank ") == 1)) || fail "not one line"
}

sigint_to_ranks_on_gpus_ends_all_with_the_same_iteration_() {
    needs_two_gpus
    start_ranks
    local status=0
    kill -INT "$starter"
    wait "$starter" || status=$?
    ((status == 130)) || fail "status $status"
    mapfile -t lines <log
    expect 0 "${net[@]}" --iterations $((${#lines[@]} - 1)) --ranks 2 --save again
    equal_tensors state again
}

run_cases
