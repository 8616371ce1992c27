/* SPDX-License-Identifier: MIT */
/* Creates the events that an iteration of a program needs. */
#include "pipeline/execution_events.h"

#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"

static mm_status need_event(mm_execution *p, mm_event **events, mm_stream_id stream, int32_t seq) {
    mm_event **event = &events[p->program->at[stream][seq]];
    return *event ? MM_OK : mm_event_create(p->dispatch->config.device, event);
}

/* Creates the events whose times mm_program_codec_wait needs: at the ends of operations, and at the end of each step
 * that is followed by a step which waits for an operation. */
static mm_status need_times(mm_execution *p, mm_event **events, const mm_piece *piece) {
    if (piece->stream != MM_STREAM_COMPUTE) return need_event(p, events, piece->stream, piece->seq);
    return mm_piece_waits(piece) && piece->seq > 0 ? need_event(p, events, piece->stream, piece->seq - 1) : MM_OK;
}

bool mm_dispatch_is_timed(const mm_dispatch *d) {
    return d->config.device->ops->always_timed || d->config.measure_times || d->config.timed;
}

/* Creates events for the pieces that other pieces wait for, and those that need_times adds. All pieces have one if
 * times are measured, or if segments are placed at run time, because frees wait for them, too. */
mm_status mm_execution_events(mm_execution *p, mm_event **events) {
    const mm_dispatch *d = p->dispatch;
    const bool all = p->has_unplanned || d->config.measure_times;
    for (int i = 0; i < p->program->n; i++) {
        const mm_piece *piece = &p->program->pieces[i];
        if (all) MM_TRY(need_event(p, events, piece->stream, piece->seq));
        if (mm_dispatch_is_timed(d)) MM_TRY(need_times(p, events, piece));
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            if (piece->wait[s] >= 0) MM_TRY(need_event(p, events, (mm_stream_id)s, piece->wait[s]));
    }
    return MM_OK;
}
