#!/bin/bash
# mm train as several processes that divide optimizer states and gradients: weights and saved states are those of ranks
# that divide nothing. Argument 3, "deep": with more optimizers, policies and ranks.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"

short=$(realpath "$2") deep=${3:-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# No leak check: MPI's plugins leak, and are unloaded before the check, so that their leaks cannot be told from ours.
export ASAN_OPTIONS=detect_leaks=0
any=(train --threads 1 --quiet)
# Batch norms; tensors of fewer elements than ranks; two layers that share a weight.
images=("${any[@]}" --net 'resnet20@16x16,classes=10,thin=2' --batch 12 --iterations 3)
tokens=("${any[@]}" --net 'gpt,layers=2,width=32,heads=2,context=16,vocabulary=300' --batch 12 --iterations 3)

needs_mpi() {
    command -v mpirun >/dev/null || skip "there is no mpirun"
    "$mm" train --net tiny --batch 2 --iterations 1 --quiet --no-measure --ranks 2 >out 2>err ||
        skip "the build or the machine has no MPI"
}

# comes_to_the_same RANKS OPTIONS...: with what ranks can divide. Leaves state.WHAT and row.WHAT.
comes_to_the_same() {
    local ranks=$1 what
    shift
    for what in none states gradients; do
        expect 0 "$@" --ranks "$ranks" --divide $what --save state.$what --json row.$what
        equal_tensors state.none state.$what
    done
}

dividing_changes_no_bit_and_needs_less_() {
    needs_mpi
    comes_to_the_same 3 "${images[@]}" --optimizer adamw --policy swap-async:when=always
    comes_to_the_same 4 "${tokens[@]}" --policy recompute:when=always --sum-at root
    is_less "$(value row.states peak_bytes)" "$(value row.none peak_bytes)" || fail "states are not divided"
    is_less "$(value row.gradients peak_bytes)" "$(value row.states peak_bytes)" || fail "nor gradients"
    is_less "$(value row.states pinned_bytes)" "$(value row.none pinned_bytes)" || fail "gradients go out whole"
    comes_to_the_same 2 "${tokens[@]}" --optimizer adamw --precision bf16 --issue inline --self-check
}

dividing_changes_no_bit_under_any_policy_() {
    needs_mpi
    [[ $deep == deep ]] || skip "takes long"
    local net ranks optimizer options
    for ranks in 2 3 4; do
        for optimizer in sgd sgd,momentum=0 adamw; do
            for options in "--policy liveness" "--policy swap-async:when=always --issue inline" \
                "--policy recompute-swap:when=always" "--policy gist:lossless --sum-at root" \
                "--policy freelunch:codec=zvc,eligible=all,when=always" "--policy auto --budget 4MiB" \
                "--policy naive --keep-going" "--precision bf16"; do
                for net in images tokens; do
                    local -n of=$net
                    # shellcheck disable=SC2086
                    comes_to_the_same $ranks "${of[@]}" --optimizer $optimizer $options
                done
            done
        done
    done
}

clipping_by_the_norm_of_all_works_with_divided_states_() {
    needs_mpi
    local what
    for what in none states; do
        expect 0 "${tokens[@]}" --ranks 3 --clip-norm 0.05 --divide $what --save state.$what
    done
    equal_tensors state.none state.states
    expect 0 "${tokens[@]}" --ranks 3 --save other
    differ state.none other
}

sub_batches_work_with_divided_states_() {
    needs_mpi
    local what
    for what in none states; do
        expect 0 "${images[@]}" --ranks 2 --sub-batch 2 --divide $what --save state.$what
    done
    equal_tensors state.none state.states
}

# Tensors of several pieces, more than there are slots.
gradients_that_go_in_pieces_come_to_the_same_() {
    needs_mpi
    local large=("${any[@]}" --net 'gpt,layers=1,width=256,context=8,vocabulary=40000' --batch 2 --iterations 2)
    comes_to_the_same 2 "${large[@]}"
}

# The embedding, tied to the loss, and the blocks' larger weights. Whole, the embedding's gradient would take 5 MB.
gradients_in_parts_come_to_the_same_and_are_never_whole_() {
    needs_mpi
    local net='gpt,layers=1,width=256,heads=2,context=8,vocabulary=5000'
    comes_to_the_same 3 train --threads 2 --quiet --net "$net" --batch 6 --iterations 3 --optimizer adamw \
        --policy swap-async:when=always
    is_less "$(value row.gradients peak_bytes)" "$(($(value row.states peak_bytes) - 3000000))" ||
        fail "a gradient is whole"
    # A loss with a weight of its own; more tokens than channels, so that the loss's gradient stays whole.
    comes_to_the_same 2 "${any[@]}" --net 'llama-15m,layers=1,context=16' --batch 2 --iterations 2 --self-check
    comes_to_the_same 2 "${any[@]}" --net 'gpt,layers=1,width=256,heads=2,context=300,vocabulary=1100' --batch 2 \
        --iterations 2
}

a_state_loads_into_any_number_of_ranks_() {
    needs_mpi
    local how
    expect 0 "${tokens[@]}" --optimizer adamw --ranks 4 --divide gradients --save half
    expect 0 train --load half --quiet --iterations 6 --ranks 3 --save whole
    for how in "--divide states" "--divide gradients --save-every 2"; do
        # shellcheck disable=SC2086
        expect 0 train --load half --quiet --iterations 6 --ranks 3 $how --save again
        equal_tensors whole again
    done
    expect 0 train --load half --quiet --iterations 6 --save one
    expect 0 train --load one --quiet --iterations 7 --ranks 2 --divide states --save two
}

what_ranks_cannot_divide_is_refused_() {
    refused 2 "--divide halves: must be none, states or gradients" "${images[@]}" --ranks 2 --divide halves
    refused 2 "--divide states: needs --ranks" "${images[@]}" --divide states
    refused 2 "--divide: needs --ranks" plan --net tiny --divide states
    refused 2 "--sum end: gradients that are divided" "${images[@]}" --ranks 2 --divide gradients --sum end
    needs_mpi
    expect 0 "${images[@]}" --ranks 1 --divide states
    says err "--divide states: does nothing, because there is one rank"
    local options
    for options in "--clip-norm 1" "--sub-batch 2" "--policy comet"; do
        # shellcheck disable=SC2086
        expect 2 "${images[@]}" --ranks 2 --divide gradients $options
    done
    says err "policy comet samples whole momenta and gradients"
}

# Ranks that shall save must all know it.
ranks_that_divide_otherwise_are_refused_() {
    needs_mpi
    local status=0
    timeout -s KILL 60 mpirun --bind-to none -n 1 "$mm" "${images[@]}" --comm mpi --divide states --save state : \
        -n 1 "$mm" "${images[@]}" --comm mpi --divide states >out 2>err </dev/null || status=$?
    ((status == 2)) || fail "status $status"
    says err "mm train: rank 1 has --save (not given), rank 0 has --save FILE"
}

# Weights, gradients and states of GPT-2 take 475 MiB each; what ranks divide takes a quarter of that.
a_plan_says_what_a_rank_of_gpt2_holds_() {
    local optimizer what most bytes
    while read -r optimizer what most; do
        expect 0 plan --net gpt2 --batch 4 --ranks 4 --optimizer "$optimizer" --divide "$what" --policy liveness
        bytes=$(awk '$1 == "persistent" { print $2 }' out)
        is_less "$bytes" "$(awk -v gib="$most" 'BEGIN { printf "%d", gib * 2^30 }')" ||
            fail "$optimizer, --divide $what: $bytes bytes, at most $most GiB expected"
    done <<'END'
sgd none 1.40
sgd states 1.05
sgd gradients 0.70
adamw none 1.86
adamw states 1.17
adamw gradients 0.82
END
}

# With maps swapped out, all that a rank holds at any time.
a_plan_of_gpt2_needs_no_whole_gradient_() {
    local optimizer most bytes
    while read -r optimizer most; do
        expect 0 plan --net gpt2,context=16 --batch 4 --ranks 4 --optimizer "$optimizer" --divide gradients \
            --policy swap-async
        bytes=$(awk '/minimum budget/ { print $3 }' out)
        is_less "$bytes" "$(awk -v gib="$most" 'BEGIN { printf "%d", gib * 2^30 }')" ||
            fail "$optimizer: $bytes bytes, at most $most GiB expected"
    done <<'END'
sgd 0.70
adamw 0.82
END
}

# Weights are gathered behind the update, and divided gradients are added up beside nothing.
the_time_of_exchanges_is_predicted_() {
    local at what last ms
    for at in nccl ranks; do
        last=0
        for what in none states gradients; do
            expect 0 plan --net gpt2 --batch 16 --ranks 4 --gpu h100 --sum-at $at --divide $what --policy liveness
            ms=$(awk '$1 == "predicted" { print $3 }' out)
            is_less "$last" "$ms" || fail "$at, --divide $what: $ms ms"
            last=$ms
        done
    done
}

# starts WHAT: two ranks that train on, and divide WHAT.
starts() {
    start "${any[@]}" --net 'gpt,layers=2,width=32,heads=2,context=16,vocabulary=300' --batch 4 --iterations 1000000 \
        --ranks 2 --log log --save state --divide "$1"
    wait_for log $'\n3,'
}

a_rank_that_is_killed_ends_all_() {
    needs_mpi
    local what status starter ranks
    for what in states gradients; do
        rm -f log
        starts $what
        starter=$! # saved, because reading from a process changes $!
        mapfile -t ranks < <(pgrep -P "$(pgrep -P "$starter")")
        ((${#ranks[@]} == 2)) || fail "${#ranks[@]} ranks"
        kill -KILL "${ranks[1]}"
        status=0
        wait "$starter" || status=$?
        trap - EXIT
        ((status == 137)) || fail "status $status"
        says err "mm train: rank 1 was killed by signal 9"
        [[ ! -e state ]] || fail "something was saved"
    done
}

an_interrupt_saves_the_shares_of_all_() {
    needs_mpi
    local what
    for what in states gradients; do
        rm -f log
        starts $what
        interrupt
        [[ -s state ]] || fail "nothing was saved"
        expect 0 train --load state --quiet --iterations $(($(wc -l <log) + 1)) --ranks 2
        rm state
    done
}

# Memory runs out on rank 1 when rank 0 waits for it.
a_rank_whose_memory_runs_out_ends_all_() {
    needs_mpi
    local options status long=("${tokens[@]:0:${#tokens[@]}-1}" 100000)
    for options in "--divide states" "--divide gradients --issue inline --policy swap-async:when=always"; do
        status=0
        # shellcheck disable=SC2086
        timeout -s KILL 60 mpirun --bind-to none -n 1 "$short" "${long[@]}" $options --comm mpi : \
            -n 1 env MM_SHORT_AFTER=100 "$short" "${long[@]}" $options --comm mpi \
            >out 2>err </dev/null || status=$?
        ((status == 1)) || fail "$options: status $status"
        says err "a fault on purpose"
    done
}

run_cases
