/* SPDX-License-Identifier: MIT */
#include "nets/multi/multi_shared.h"

#include "mm/core/graph/graph.h"
#include "mm/device/host/device_host.h"

static multi_kind kind_of(const mm_shared *shared) {
    if (mm_graph_tensor(shared->graph, shared->tensor)->dtype == MM_I32) return MULTI_COUNT;
    return shared->as == MM_SHARED_SUM ? MULTI_SUM : MULTI_MEAN;
}

static void sent(void *ctx, const mm_shared *shared) {
    multi_begin(ctx, kind_of(shared), shared->data, shared->bytes / (int64_t)sizeof(float));
}

static mm_status await(void *ctx, const mm_shared *shared) {
    int64_t done_ns;
    (void)shared;
    MM_TRY(multi_await(ctx, &done_ns));
    mm_host_waited_until(done_ns);
    return MM_OK;
}

/* NCCL's calls are joined in groups, which must be the same on all ranks. */
static mm_status enqueue(void *ctx, const mm_shared *shared, int n, mm_stream *stream) {
    enum { MOST = 256 };
    multi_tensor tensors[MOST];
    for (int from = 0; from < n; from += MOST) {
        const int some = n - from < MOST ? n - from : MOST;
        for (int i = 0; i < some; i++) {
            const mm_shared *s = &shared[from + i];
            tensors[i] = (multi_tensor){kind_of(s), s->data, s->bytes / (int64_t)sizeof(float)};
        }
        MM_TRY(multi_enqueue(ctx, tensors, some, mm_stream_handle(stream)));
    }
    return MM_OK;
}

const mm_gradient_fns multi_gradient_fns = {sent, await, enqueue};

mm_status multi_shared_agree(void *ctx, int32_t *word) { return multi_agree(ctx, word); }

int64_t multi_shared_begun(void *ctx) {
    multi_stats stats;
    multi_stats_get(ctx, &stats);
    return stats.begun;
}
