/* SPDX-License-Identifier: MIT */
#include "nets/comm/comm_allreduce.h"

#include "mm/core/graph/graph.h"
#include "mm/device/host/device_host.h"

static comm_op kind_of(const mm_allreduce_part *shared) {
    if (mm_graph_tensor(shared->graph, shared->tensor)->dtype == MM_I32) return COMM_COUNT;
    return shared->as == MM_REDUCE_SUM ? COMM_SUM : COMM_MEAN;
}

static void sent(void *ctx, const mm_allreduce_part *shared) {
    comm_allreduce_begin(ctx, kind_of(shared), shared->data, shared->bytes / (int64_t)sizeof(float));
}

static mm_status await(void *ctx, const mm_allreduce_part *shared) {
    int64_t done_ns;
    (void)shared;
    MM_TRY(comm_allreduce_wait(ctx, &done_ns));
    mm_host_waited_until(done_ns);
    return MM_OK;
}

enum { AT_ONCE = 256 }; /* most tensors of a call. Chosen */

/* NCCL gets the tensors of one comm_allreduce_enqueue as one group, so all ranks must divide the tensors alike among
 * calls. */
static mm_status enqueue(void *ctx, const mm_allreduce_part *shared, int n, mm_stream *stream) {
    comm_tensor tensors[AT_ONCE];
    for (int from = 0; from < n; from += AT_ONCE) {
        const int some = n - from < AT_ONCE ? n - from : AT_ONCE;
        for (int i = 0; i < some; i++) {
            const mm_allreduce_part *s = &shared[from + i];
            const int64_t elems = s->bytes / (int64_t)sizeof(float);
            tensors[i] =
                (comm_tensor){kind_of(s), s->data, elems, nets_share_each(elems, comm_size(ctx), NETS_SHARE_UNIT)};
        }
        MM_TRY(comm_allreduce_enqueue(ctx, tensors, some, mm_stream_handle(stream)));
    }
    return MM_OK;
}

const mm_allreduce_fns comm_allreduce_fns = {sent, await, enqueue};

static void begin_exchange(void *ctx, bool gathers, void *data, int64_t elems) {
    comm_allreduce_begin(ctx, gathers ? COMM_BYTES : COMM_OWN, data, elems);
}

static mm_status wait_exchange(void *ctx) { return await(ctx, NULL); }

static mm_status enqueue_exchange(void *ctx, const nets_exchanged *parts, int n, mm_stream *stream) {
    static const comm_op kinds[] = {
        [NETS_SCATTERED] = COMM_OWN, [NETS_GATHERED] = COMM_BYTES, [NETS_COUNTED] = COMM_COUNT};
    for (int from = 0; from < n; from += AT_ONCE) {
        comm_tensor tensors[AT_ONCE];
        const int some = n - from < AT_ONCE ? n - from : AT_ONCE;
        for (int i = 0; i < some; i++) {
            const nets_exchanged *p = &parts[from + i];
            tensors[i] = (comm_tensor){kinds[p->as], p->data, p->elems,
                                       nets_share_each(p->elems, comm_size(ctx), NETS_SHARE_UNIT)};
        }
        MM_TRY(comm_allreduce_enqueue(ctx, tensors, some, mm_stream_handle(stream)));
    }
    return MM_OK;
}

static mm_status collect(void *ctx, const void *mine, int64_t bytes, void *all_out) {
    return comm_gather(ctx, mine, bytes, all_out);
}

_Static_assert((int)NETS_PIECE_MOST <= (int)COMM_OWN_MOST, "a communicator takes pieces of parts");
const nets_exchange comm_exchange = {COMM_OWN_MOST, begin_exchange, wait_exchange, enqueue_exchange, collect};

mm_status comm_allreduce_agree(void *ctx, int32_t *word) { return comm_agree(ctx, word); }

int64_t comm_allreduce_begun(void *ctx) {
    comm_stats stats;
    comm_stats_get(ctx, &stats);
    return stats.begun;
}
