/* SPDX-License-Identifier: MIT */
/* Traces: a timeline of iterations, from mm_trace_start to mm_trace_stop. */
#include "mm/manager/tracing_calls.h"

#include "mm/manager/install.h"
#include "mm/manager/states.h"

mm_status mm_trace_start(mm_manager *m, const char *name) {
    mm_timeline *timeline;
    MM_TRY(mm_manager_drain(m, "mm_trace_start"));
    MM_TRY(mm_check_given(name, "mm_trace_start", "name"));
    if (m->timeline) return mm_fail(MM_ERR_ORDER, "mm_trace_start: a trace is under way; end it with mm_trace_stop");
    MM_TRY(mm_timeline_create(name, m->options.trace_bytes, &timeline));
    mm_status status = mm_timeline_set_source(timeline, m->device->name, false);
    if (status == MM_OK) {
        status = mm_dispatch_trace(m->dispatch, timeline);
        if (status != MM_OK) status = mm_fail_in(status, "mm_trace_start: give mm_options.trace_bytes");
    }
    if (status != MM_OK) {
        mm_timeline_destroy(timeline);
        return status;
    }
    m->timeline = timeline;
    return MM_OK;
}

/* Call it once all iterations have ended. */
static mm_status take(mm_manager *m, const char *call, mm_timeline **timeline_out) {
    if (!m->timeline) return mm_fail(MM_ERR_ORDER, "%s: no trace is under way (mm_trace_start)", call);
    MM_TRY(mm_dispatch_trace(m->dispatch, NULL));
    *timeline_out = m->timeline;
    m->timeline = NULL;
    return MM_OK;
}

mm_status mm_trace_take(mm_manager *m, mm_timeline **timeline_out) {
    MM_TRY(mm_manager_check_idle(m, "mm_trace_take"));
    mm_status drained = mm_manager_drain(m, "mm_trace_take");
    (void)drained; /* the trace is of use even if an iteration has failed */
    return take(m, "mm_trace_take", timeline_out);
}

mm_status mm_trace_stop(mm_manager *m, const char *path, int64_t *dropped_out) {
    mm_timeline *timeline;
    mm_failure failure;
    MM_TRY(mm_manager_check_idle(m, "mm_trace_stop"));
    MM_TRY(mm_check_given(path, "mm_trace_stop", "path"));
    mm_failure_save(&failure, mm_manager_drain(m, "mm_trace_stop"));
    MM_TRY(take(m, "mm_trace_stop", &timeline));
    mm_status status = mm_timelines_write(&timeline, 1, path);
    if (status == MM_OK && dropped_out) *dropped_out = mm_timeline_dropped(timeline);
    mm_timeline_destroy(timeline);
    if (failure.status != MM_OK) return mm_failure_restore(&failure);
    return status;
}
