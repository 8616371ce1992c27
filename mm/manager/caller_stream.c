/* SPDX-License-Identifier: MIT */
#include "mm/manager/caller_stream.h"

#include "mm/manager/iteration.h"

mm_status mm_caller_stream_use(mm_manager *m, void *handle, mm_stream **stream_out) {
    mm_caller_stream *c = &m->caller_stream;
    mm_stream *compute = mm_dispatch_compute(m->dispatch);
    c->in_use = false;
    if (!m->now.way->runs)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "mm_layer_begin_on: %s is being recorded for replay, which takes mm's own stream only "
                       "(mm_layer_begin with mm_compute_stream)",
                       mm_graph_name(m->now.ready->prepared->graph));
    MM_TRY(mm_foreign_check(m->device, handle));
    const bool is_inline = mm_device_is_inline(m->device);
    *stream_out = is_inline ? NULL : compute;
    if (!is_inline && !c->mine) c->mine = mm_stream_handle(compute);
    if (is_inline || handle == c->mine) return MM_OK;
    if (!c->passed) MM_TRY(mm_event_create(m->device, &c->passed));
    c->handle = handle;
    c->in_use = true;
    return MM_OK;
}

mm_status mm_caller_stream_hand_over(mm_manager *m) {
    const mm_caller_stream *c = &m->caller_stream;
    if (!c->in_use) return MM_OK;
    MM_TRY(mm_event_record(c->passed, mm_dispatch_compute(m->dispatch)));
    return mm_foreign_wait(m->device, c->handle, c->passed);
}

mm_status mm_caller_stream_take_back(mm_manager *m) {
    const mm_caller_stream *c = &m->caller_stream;
    if (!c->in_use) return MM_OK;
    MM_TRY(mm_foreign_record(c->passed, c->handle));
    return mm_stream_wait(mm_dispatch_compute(m->dispatch), c->passed);
}

void mm_caller_stream_drain(mm_manager *m) {
    mm_caller_stream *c = &m->caller_stream;
    if (!c->in_use) return;
    mm_status status = mm_foreign_record(c->passed, c->handle);
    if (status == MM_OK) status = mm_event_sync(c->passed);
    (void)status; /* the iteration is given up in any case */
    c->in_use = false;
}

void mm_caller_stream_fini(mm_manager *m) { mm_event_destroy(m->caller_stream.passed); }
