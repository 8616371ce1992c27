#!/bin/bash
# mm train as several processes: they end with the same weights as one process that adds up sub-batches; and how they
# begin, end and fail.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"

sums=$(realpath "$2") short=$(realpath "$3")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# No leak check: MPI's plugins leak, and are unloaded before the check, so that their leaks cannot be told from ours.
export ASAN_OPTIONS=detect_leaks=0
any=(train --net 'vgg11@32x32,classes=10,thin=16' --threads 1 --quiet --no-measure)
net=("${any[@]}" --batch 16 --iterations 6)
many=("${any[@]}" --batch 16 --iterations 1000000)
normed=(train --net tiny --batch 8 --threads 1 --quiet --no-measure --iterations 5)
seconds=${MM_RANKS_SECONDS:-10} # within which all ranks must have ended after a failure

needs_mpi() {
    command -v mpirun >/dev/null || skip "there is no mpirun"
    "$sums" >/dev/null 2>&1
    [[ $? != 77 ]] || skip "the build or the machine has no MPI"
}

# together STATUS RANKS ARGUMENT...: runs so many ranks of mm under mpirun, with a time limit. Their output goes to out
# and err.
together() {
    local status=0 expected=$1 ranks=$2
    shift 2
    timeout -s KILL 60 mpirun --bind-to none -n "$ranks" "$mm" "$@" --comm mpi >out 2>err </dev/null || status=$?
    ((status == expected)) || fail "$ranks ranks of mm $*: status $status, expected $expected"
}

# Waits until no process of mm that runs in this case's folder is left.
none_left() {
    local process began=$SECONDS
    for process in $(pgrep -x 'mm|mm_short|other'); do
        while [[ /proc/$process/cwd -ef . ]] && ! is_gone "$process"; do
            ((SECONDS - began <= seconds)) || fail "$process is left"
            sleep 0.05
        done
    done
}

# apart STATUS TEXT OPTIONS...: rank 0 has the options in `first`, rank 1 has OPTIONS. Both must end in time, with
# STATUS, and mm prints one line, which says TEXT of rank 1.
first=("${net[@]}")
apart() {
    local status=0 expected=$1 text=$2 began=$SECONDS
    shift 2
    timeout -s KILL 60 mpirun --bind-to none -n 1 "$mm" "${first[@]}" --comm mpi --save state : \
        -n 1 "$mm" "$@" --comm mpi --save state >out 2>err </dev/null || status=$?
    ((status == expected)) || fail "status $status, expected $expected"
    ((SECONDS - began <= seconds)) || fail "they took $((SECONDS - began)) s to end"
    mapfile -t lines < <(grep '^mm' err)
    ((${#lines[@]} == 1)) || fail "${#lines[@]} lines"
    [[ ${lines[0]} == "mm train: rank 1"*"$text"* ]] || fail "does not say of rank 1: $text"
    [[ ! -s out && ! -e state ]] || fail "something was printed or saved"
    none_left
}

# Starts ranks in the background; their output goes to out and err. Sets ranks to their process ids once they train.
start_together() {
    mpirun --bind-to none -n 2 "$mm" "${many[@]}" --comm mpi --save state --log log >out 2>err </dev/null &
    starter=$!
    trap 'kill -KILL $starter 2>/dev/null' EXIT
    wait_for log $'\n3,'
    mapfile -t ranks < <(pgrep -P "$starter")
    ((${#ranks[@]} == 2)) || fail "${#ranks[@]} processes"
}

# Whether the process has ended, even if its parent has not waited for it.
is_gone() { # PROCESS
    local key state
    while read -r key state _; do
        [[ $key != State: ]] || break
    done 2>/dev/null <"/proc/$1/status" || return 0
    [[ $state == Z ]]
}

# await_end: waits until all ranks have ended, and sets status.
await_end() {
    local began=$SECONDS
    status=0
    wait "$starter" || status=$?
    trap - EXIT
    ((SECONDS - began <= seconds)) || fail "they took $((SECONDS - began)) s to end"
    none_left
}

sums_of_mpi_are_those_in_the_order_of_ranks_() {
    needs_mpi
    local n how
    for how in "1 ranks" "2 root" "3 ranks" "4 ranks"; do
        read -r n how <<<"$how"
        timeout -s KILL 60 mpirun --bind-to none -n "$n" "$sums" "$how" >out 2>err || fail "$n ranks, $how"
    done
}

an_error_of_mpi_is_told_to_who_waits_() {
    needs_mpi
    local status=0
    timeout -s KILL 60 mpirun --bind-to none -n 2 "$sums" apart >out 2>err || status=$?
    ((status == 3)) || fail "status $status"
}

two_ranks_come_to_the_weights_of_one_process_under_every_policy_() {
    needs_mpi
    expect 0 "${net[@]}" --sub-batch 8 --save one
    local options
    for options in "" "--policy swap-async:when=always" "--policy swap-async:when=always --budget 20MiB --issue inline" \
        "--policy recompute:when=always --sum end" "--policy recompute:when=always --budget 20MiB --sum-at root" \
        "--policy gist:lossless" "--policy gist:lossless --budget 20MiB --issue inline --self-check" \
        "--policy auto --budget 20MiB" "--policy freelunch:codec=zvc,eligible=all,when=always" \
        "--policy hybrid:codec=zvc,when=always --issue inline" "--policy vdnn-all:when=always --sum end" \
        "--policy recompute:when=always --issue inline" "--policy modnn:subbatch=off --budget 20MiB"; do
        # shellcheck disable=SC2086
        together 0 2 "${net[@]}" --save two $options
        equal_tensors one two
        rm two
    done
    expect 0 "${net[@]}" --ranks 2 --save two
    equal_tensors one two
}

gradients_that_go_in_parts_come_to_the_same_weights_() {
    needs_mpi
    local big=(train --net 'alexnet,thin=4' --threads 1 --quiet --no-measure --batch 4 --iterations 2) options
    expect 0 "${big[@]}" --sub-batch 2 --save one
    for options in "" "--sum end --issue inline" "--sum-at root --policy swap-async:when=always" \
        "--update by-layer --self-check"; do
        # shellcheck disable=SC2086
        together 0 2 "${big[@]}" --save two $options
        equal_tensors one two
    done
}

ranks_that_diverge_end_with_what_was_before_() {
    needs_mpi
    expect 1 "${any[@]}" --batch 16 --iterations 40 --sub-batch 8 --lr 900 --save one
    says err "diverged: the loss of iteration "
    together 1 2 "${any[@]}" --batch 16 --iterations 40 --lr 900 --save two
    says err "diverged: the loss of iteration "
    equal_tensors one two
}

four_ranks_come_to_the_weights_of_four_sub_batches_() {
    needs_mpi
    expect 0 "${net[@]}" --sub-batch 4 --save one
    together 0 4 "${net[@]}" --save four
    equal_tensors one four
}

a_state_of_two_ranks_loads_into_one_and_into_two_() {
    needs_mpi
    expect 0 "${net[@]}" --sub-batch 8 --save one
    together 0 2 "${any[@]}" --batch 16 --iterations 3 --save half
    together 0 2 train --load half --iterations 6 --quiet --no-measure --save two
    equal_tensors one two
    expect 0 train --load half --iterations 6 --sub-batch 8 --quiet --no-measure --save back
    equal_tensors one back
}

ranks_with_batch_norms_come_to_the_same_every_time_and_report_once_() {
    needs_mpi
    together 0 2 "${normed[@]}" --save first --eval --json row
    together 0 2 "${normed[@]}" --save second --sum end --policy swap-async:when=always --issue inline
    equal_tensors first second
    [[ $(value row batch) == 8 && $(value row sub_batch) == 4 ]] || fail "the row is not of the whole batch"
    (($(value row pinned_bytes) > 0)) || fail "no pinned memory is counted"
}

# Options with which each process would train alone by mistake, or that ranks cannot share.
what_cannot_be_meant_is_refused_() {
    refused 2 "--ranks 0" "${net[@]}" --ranks 0
    refused 2 "--sum never: must be overlap or end" "${net[@]}" --sum never
    refused 2 "--sum-at 3: must be ranks or root" "${net[@]}" --sum-at 3
    refused 2 "unknown communicator 'pigeons'" "${net[@]}" --comm pigeons
    refused 2 "unknown communicator 'pigeons'" "${net[@]}" --comm pigeons --ranks 2
    OMPI_COMM_WORLD_SIZE=2 refused 2 "each would train alone: give --comm mpi" "${net[@]}"
    OMPI_COMM_WORLD_SIZE=2 refused 2 "give --comm mpi" "${net[@]}" --ranks 2
    needs_mpi
    # An error that is found before the ranks have connected is reported by each rank that has it.
    timeout -s KILL 60 mpirun --bind-to none -n 2 "$mm" "${net[@]}" --bogus 1 >out 2>err </dev/null &&
        fail "an unknown option is taken"
    mapfile -t lines < <(grep '^mm' err)
    ((${#lines[@]} > 0)) || fail "nothing is said"
    [[ $(printf '%s\n' "${lines[@]}" | grep -cv '^mm train: rank [01]: .*--bogus') == 0 ]] || fail "not of a rank"
    together 2 3 "${net[@]}"
    says err "--batch 16: 3 ranks cannot share it evenly; the nearest batches are 15 and 18"
    (($(count err "mm train: rank 0: ") == 1)) || fail "not one line"
}

ranks_that_were_started_otherwise_are_refused_() {
    needs_mpi
    apart 2 "--seed 2, rank 0 has --seed 1" "${net[@]}" --seed 2
    apart 2 "--net tiny, rank 0 has --net vgg11" train --net tiny --threads 1 --quiet --no-measure --batch 16 --iterations 6
    apart 2 "--batch 32, rank 0 has --batch 16" "${any[@]}" --batch 32 --iterations 6
    apart 2 "--fuse off, rank 0 has --fuse on" "${net[@]}" --fuse off # such ranks would add up different tensors
}

ranks_that_start_from_another_state_are_refused_() {
    needs_mpi
    expect 0 "${any[@]}" --batch 16 --iterations 3 --save half
    apart 2 "3 iterations done, rank 0 has 0 iterations done" "${net[@]}" --load half
    expect 0 "${any[@]}" --batch 16 --iterations 3 --lr 0.05 --save other
    first=("${net[@]}" --lr 0.1 --load half)
    apart 2 "weights and optimizer states of digest " "${net[@]}" --lr 0.1 --load other
    apart 2 "weights and optimizer states of digest " "${net[@]}" --lr 0.1 --load half --reset-optimizer
}

a_rank_of_another_build_is_refused_() {
    needs_mpi
    local status=0
    cp "$mm" other && printf x >>other
    timeout -s KILL 60 mpirun --bind-to none -n 1 "$mm" "${net[@]}" --engine mpi : \
        -n 1 ./other "${net[@]}" --comm mpi >out 2>err </dev/null || status=$?
    ((status == 2)) || fail "status $status"
    (($(count err "mm train: ") == 1)) || fail "not one line"
    says err "mm train: rank 1 runs another build of mm than rank 0"
}

a_rank_that_cannot_begin_ends_all_() {
    needs_mpi
    apart 1 "infeasible: needs at least" "${net[@]}" --policy liveness --budget 1MiB
    apart 2 "unknown policy" "${net[@]}" --policy nonsense
    apart 1 "device host has" "${net[@]}" --budget 1000TiB
    apart 1 "of pinned host memory, but only 0 bytes are given" "${net[@]}" --pinned 0
}

a_rank_that_is_killed_ends_all_() {
    needs_mpi
    start_together
    kill -KILL "${ranks[1]}"
    await_end
    ((status == 137)) || fail "status $status"
    says err "exited on signal 9"
    [[ ! -e state ]] || fail "something was saved"
}

# mpirun kills the ranks after a second or two. If a rank has saved a state by then, the state is whole.
a_signal_to_mpirun_itself_ends_all_() {
    needs_mpi
    local signal
    for signal in INT KILL; do
        rm -f log state
        start_together
        kill -$signal "$starter"
        await_end
        ((status > 0)) || fail "$signal: status 0"
        [[ ! -e state ]] || expect 0 train --load state --iterations 1 --quiet --no-measure
    done
}

a_rank_that_fails_on_the_way_ends_all_() {
    needs_mpi
    local status=0 began=$SECONDS
    mkdir folder
    timeout -s KILL 60 mpirun --bind-to none -n 2 "$mm" "${net[@]}" --comm mpi --save folder/there/state \
        >out 2>err </dev/null || status=$?
    ((status == 1)) || fail "status $status"
    ((SECONDS - began <= seconds)) || fail "they took $((SECONDS - began)) s to end"
    (($(count err "mm train: ") == 1)) || fail "not one line"
    says err "mm train: rank 0: "
    none_left
}

# Memory runs out on rank 1 when rank 0 has already given its part of the sums, or waits for rank 1's.
a_rank_whose_memory_runs_out_on_the_way_ends_all_() {
    needs_mpi
    local options status began
    for options in "--issue thread" "--issue inline --policy swap-async:when=always" "--sum end --no-ladder"; do
        status=0 began=$SECONDS
        # shellcheck disable=SC2086
        timeout -s KILL 60 mpirun --bind-to none -n 1 "$short" "${many[@]}" $options --comm mpi --save state : \
            -n 1 env MM_SHORT_AFTER=100 "$short" "${many[@]}" $options --comm mpi --save state \
            >out 2>err </dev/null || status=$?
        ((status == 1)) || fail "$options: status $status"
        ((SECONDS - began <= seconds)) || fail "$options: they took $((SECONDS - began)) s to end"
        mapfile -t lines < <(grep '^mm train' err) # the manager may also say that it has another plan
        ((${#lines[@]} == 1)) || fail "$options: ${#lines[@]} lines"
        [[ ${lines[0]} == "mm train: rank 1: "*"a fault on purpose" ]] || fail "$options: does not say of rank 1 why"
        [[ ! -s out && ! -e state ]] || fail "$options: something was printed or saved"
        none_left
    done
}

a_signal_to_a_rank_ends_all_with_the_same_iteration_() {
    needs_mpi
    local signal
    for signal in INT TERM; do
        rm -f log
        start_together
        kill -$signal "${ranks[1]}"
        await_end
        ((status == 130)) || fail "$signal: status $status"
        mapfile -t lines <log
        together 0 2 "${any[@]}" --batch 16 --iterations $((${#lines[@]} - 1)) --save again
        equal_tensors state again
        rm state
    done
}

# Here SIGINT comes before mpirun or the ranks are ready for it.
sigint_to_the_mm_that_starts_them_ends_all_at_any_time_() {
    needs_mpi
    local later
    for later in 0.05 0.3; do
        start "${many[@]}" --ranks 2 --save state
        sleep "$later"
        interrupt
    done
}

the_status_of_ranks_is_known_where_children_are_ignored_() {
    needs_mpi
    local status=0
    env --ignore-signal=CHLD "$mm" "${net[@]}" --ranks 2 --policy nonsense >out 2>err </dev/null || status=$?
    ((status == 2)) || fail "status $status"
}

sigint_to_the_mm_that_started_them_ends_all_() {
    needs_mpi
    start "${many[@]}" --ranks 2 --save state --log log
    wait_for log $'\n3,'
    interrupt
    [[ -s state ]] || fail "nothing was saved"
}

# Sets starter to the process id of the `mm train --ranks` that was started, and ranks to those of the ranks.
find_ranks() {
    starter=$!
    mapfile -t ranks < <(pgrep -P "$(pgrep -P "$starter")")
    ((${#ranks[@]} == 2)) || fail "${#ranks[@]} ranks"
}

mm_names_a_rank_that_a_signal_killed_() {
    needs_mpi
    start "${many[@]}" --ranks 2 --log log
    wait_for log $'\n3,'
    find_ranks
    kill -KILL "${ranks[1]}"
    local status=0
    wait "$starter" || status=$?
    trap - EXIT
    ((status == 137)) || fail "status $status"
    says err "mm train: rank 1 was killed by signal 9"
    none_left
}

# The other ranks wait for it at most ten seconds (nets/comm/comm.h), and the last whole iteration is saved.
sigint_ends_all_although_a_rank_hangs_() {
    needs_mpi
    local began
    start "${many[@]}" --ranks 2 --save state --log log
    wait_for log $'\n3,'
    find_ranks
    kill -STOP "${ranks[1]}"
    began=$SECONDS
    kill -INT "$starter"
    local status=0
    wait "$starter" || status=$?
    trap - EXIT
    ((status != 0)) || fail "status 0"
    ((SECONDS - began <= 10 + seconds)) || fail "they took $((SECONDS - began)) s to end"
    says err "interrupted, and for 10 s nothing came from other ranks: one of them hangs"
    kill -KILL "${ranks[1]}" 2>/dev/null
    none_left
}

# As nets/README.md says of embeddings. All other tensors have the same bits.
ranks_of_a_gpt_differ_from_sub_batches_in_the_embedding_s_rounding_alone_() {
    needs_mpi
    printf 'the quick brown fox jumps over the lazy dog %.0s' {1..40} >words
    local text=(train --net "gpt,layers=1,width=16,heads=2,context=8" --data text:words --batch 8 --threads 1 --iterations 1 --quiet --no-measure)
    expect 0 "${text[@]}" --sub-batch 4 --save parts
    expect 0 "${text[@]}" --ranks 2 --save ranks
    python3 - <<'END' || fail "other tensors differ, or by more than rounding"
import array, json, struct
def load(path):
    data = open(path, 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: array.array('f', data[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]])
            for k, v in head.items() if k != '__metadata__' and v['dtype'] == 'F32'}
a, b = load('parts'), load('ranks')
assert a.keys() == b.keys()
for name in a:
    worst = max(abs(x - y) for x, y in zip(a[name], b[name]))
    assert worst == 0 or ('wte' in name and worst < 1e-6), (name, worst)
END
}

run_cases
