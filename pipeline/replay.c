/* SPDX-License-Identifier: MIT */
/* Recordings: an iteration is captured by the device while it is issued, and then replayed as a whole. */
#include "pipeline/allreduce.h"
#include "pipeline/capture.h"
#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"
#include "pipeline/running.h"

static const char *unrecordable(const mm_dispatch *d, const mm_execution *p) {
    if (d->config.issue != MM_ISSUE_INLINE) return "operations are issued by threads, not inline";
    if (p->has_unplanned) return "its plan places tensors at run time";
    if (d->config.self_check) return "it is checked at run time (self_check)";
    if (p->total_ns) return "its times are measured (measure_times)";
    if (d->timeline) return "it is traced";
    if (p->program->count[MM_STREAM_HOST] > 0) return "a step of it runs on the host";
    if (p->disk_moves) return "it uses the disk";
    if (mm_allreduce_is_called(p)) return "other processes' gradients are added to its own";
    return NULL;
}

mm_status mm_dispatch_record_begin(mm_dispatch *d, mm_execution *p) {
    const char *why = unrecordable(d, p);
    if (why) return mm_fail(MM_ERR_UNSUPPORTED, "%s cannot be recorded: %s", mm_graph_name(p->plan->graph), why);
    MM_TRY(mm_dispatch_begin(d, p));
    d->before = d->stats;
    mm_status status = mm_capture_begin(d->compute);
    d->recording = status == MM_OK;
    if (status != MM_OK) d->execution = NULL;
    return status;
}

static void add_stats(mm_dispatch *d, const mm_dispatch_stats *did) {
    pthread_mutex_lock(&d->lock);
    d->stats.encodes += did->encodes;
    d->stats.decodes += did->decodes;
    d->stats.encoded_bytes += did->encoded_bytes;
    d->stats.coded_bytes += did->coded_bytes;
    d->stats.out_bytes += did->out_bytes;
    d->stats.in_bytes += did->in_bytes;
    pthread_mutex_unlock(&d->lock);
}

mm_status mm_dispatch_record_end(mm_dispatch *d) {
    mm_execution *p = d->execution;
    mm_status status = mm_dispatch_failure(d);
    if (status != MM_OK) {
        mm_dispatch_abort(d);
        return status;
    }
    status = mm_issue_log_end(d->log, p, true);
    d->recording = false;
    d->execution = NULL;
    p->recorded_did = mm_record_take_stats(d);
    mm_failure first;
    mm_failure_save(&first, status);
    status = mm_capture_end(d->compute, &p->recorded);
    if (first.status == MM_OK) return status;
    mm_execution_unrecord(p);
    return mm_failure_restore(&first);
}

mm_status mm_dispatch_replay(mm_dispatch *d, mm_execution *p) {
    d->ahead = true;
    MM_TRY(mm_replay_launch(p->recorded, d->compute));
    MM_TRY(mm_issue_log_replay(d->log, p));
    add_stats(d, &p->recorded_did);
    return MM_OK;
}
