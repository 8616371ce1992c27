/* SPDX-License-Identifier: MIT */
/* Reads the values that an iteration to be aborted holds: mm_dispatch_pause, and what may be called after it. */
#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"
#include "pipeline/variable_codes.h"

mm_status mm_dispatch_pause(mm_dispatch *d) {
    mm_failure first = {.status = MM_OK};
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (s != MM_STREAM_COMPUTE && !d->worker[s]) continue;
        if (d->worker[s]) mm_worker_drain(d->worker[s]);
        mm_stream *stream = s == MM_STREAM_COMPUTE ? d->compute : mm_worker_stream(d->worker[s]);
        mm_status status = mm_stream_sync(stream);
        if (first.status == MM_OK) mm_failure_save(&first, status);
    }
    return mm_failure_restore(&first);
}

bool mm_dispatch_has_issued(mm_dispatch *d, int node) {
    const mm_execution *p = d->execution;
    pthread_mutex_lock(&d->lock);
    const bool issued = d->issued[p->plan->nodes[node].stream] >= p->program->last[node];
    pthread_mutex_unlock(&d->lock);
    return issued;
}

int64_t mm_dispatch_decode_scratch(const mm_dispatch *d, int segment) {
    const mm_execution *p = d->execution;
    const mm_segment *s = &p->plan->segments[segment];
    const mm_shape shape = mm_codec_shape(mm_graph_tensor(p->plan->graph, s->tensor));
    return mm_codec_scratch(p->codecs[s->codec], &shape);
}

mm_status mm_dispatch_decode_paused(mm_dispatch *d, int segment, const void *code, void *map, void *scratch) {
    const mm_execution *p = d->execution;
    const mm_segment *s = &p->plan->segments[segment];
    const mm_shape shape = mm_codec_shape(mm_graph_tensor(p->plan->graph, s->tensor));
    mm_code_body body;
    mm_code_inputs inputs = mm_code_block_inputs(p->block, s->tensor, 0);
    inputs.body = mm_body_of(d, segment, &body);
    MM_TRY(mm_codec_decode(p->codecs[s->codec], d->compute, &shape, code, map, scratch, &inputs, d->counters));
    return mm_stream_sync(d->compute);
}
