/* SPDX-License-Identifier: MIT */
/* An executor as one of several ranks: its part of the batch, and a word to the others. */
#include "nets/exec/exec_internal.h"
#include "nets/rng.h"

void nets_exec_set_word(nets_exec *exec, int32_t word) { exec->word = word; }

mm_status nets_exec_enqueue_word(const nets_exec *exec, const nets_slot *slot, mm_stream *stream) {
    void *place = nets_exec_place(exec, exec->lowered->word);
    return place ? mm_copy_async(stream, place, slot->word, sizeof *slot->word, MM_COPY_IN) : MM_OK;
}

mm_status nets_exec_enqueue_result_word(const nets_exec *exec, const nets_slot *slot, mm_stream *stream) {
    const void *place = nets_exec_place(exec, exec->lowered->word);
    int32_t *to = &slot->result->words;
    return place ? mm_copy_async(stream, to, place, sizeof *to, MM_COPY_OUT) : MM_OK;
}

/* If the other ranks cannot be asked any more, the vote is to halt: nothing is updated. */
static mm_status vote(void *arg) {
    nets_exec *exec = arg;
    const mm_status status = exec->lowered->allreduce.agree(exec->lowered->allreduce.ctx, exec->ring.vote);
    if (status != MM_OK) *exec->ring.vote = 1;
    return status;
}

mm_status nets_exec_enqueue_vote(nets_exec *exec, mm_stream *stream) {
    uint32_t *halted = (uint32_t *)nets_exec_place(exec, exec->lowered->rng) + NETS_RNG_HALTED;
    if (!exec->lowered->allreduce.agree) return MM_OK;
    exec->vote = (mm_call){vote, exec};
    MM_TRY(mm_copy_async(stream, exec->ring.vote, halted, sizeof *halted, MM_COPY_OUT));
    MM_TRY(mm_call_blocking(stream, &exec->vote, NULL));
    return mm_copy_async(stream, halted, exec->ring.vote, sizeof *halted, MM_COPY_IN);
}

mm_status nets_exec_begin_part(const nets_exec *exec, mm_stream *stream) {
    const int rank = exec->lowered->allreduce.rank;
    if (rank == 0) return MM_OK;
    return exec->backend->ops->pass_on(exec->backend, nets_exec_place(exec, exec->lowered->rng), rank * exec->batch,
                                       stream);
}

int64_t nets_exec_sums_begun(const nets_exec *exec) {
    const nets_allreduce *allreduce = &exec->lowered->allreduce;
    return allreduce->n > 1 && allreduce->begun ? allreduce->begun(allreduce->ctx) : 0;
}
