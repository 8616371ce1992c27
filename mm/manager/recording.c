/* SPDX-License-Identifier: MIT */
/* Recordings: an iteration is recorded once and then replayed. The graph's execution owns the recording. */
#include "mm/core/log.h"
#include "mm/manager/home_moves.h"
#include "mm/manager/iteration.h"
#include "mm/manager/observe.h"
#include "mm/manager/sampling.h"
#include "mm/manager/states.h"
#include "mm/manager/values.h"

mm_replay_state_id mm_replay_state(const mm_manager *m, const mm_graph *graph) {
    const mm_ready *r = m ? mm_manager_find(m, graph) : NULL;
    if (!r || m->timeline || mm_sampling_is_due(r) || mm_observe_measures(m, r)) return MM_REPLAY_NO;
    if (mm_execution_recorded(r->execution)) return MM_REPLAY_READY;
    /* Not before an iteration has run: in the first one, libraries load modules and choose algorithms, which fails
     * while recording. */
    bool may = m->device->ops->capture_begin && r->has_run && !r->unrecordable;
    return may ? MM_REPLAY_MAY : MM_REPLAY_NO;
}

/* Notes that the graph is not recorded under this plan, and logs why: as a warning, unless the device or the plan
 * simply does not allow recording. */
static void give_up(mm_manager *m, mm_ready *r, const mm_failure *why) {
    r->unrecordable = true;
    mm_log_send(&m->options.log, why->status == MM_ERR_UNSUPPORTED ? MM_LOG_INFO : MM_LOG_WARNING,
                "%s runs without a recording: %s", mm_graph_name(r->prepared->graph), why->message);
}

static const mm_way recorded = {
    .begin = mm_dispatch_record_begin, .lost = give_up, .told = "being recorded (mm_record_end)"};

mm_status mm_record_begin(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_record_begin"));
    MM_TRY(mm_stream_check(mm_compute_stream(m))); /* beforehand: the graph can be recorded once that has ended */
    mm_failure failure;
    mm_failure_save(&failure, mm_iteration_start(m, graph, &recorded, "mm_record_begin"));
    mm_ready *r = mm_manager_find(m, graph);
    if (failure.status != MM_OK && r) give_up(m, r, &failure);
    return mm_failure_restore(&failure);
}

mm_status mm_record_end(mm_manager *m) {
    return mm_iteration_finish(m, &recorded, "mm_record_end", mm_dispatch_record_end);
}

mm_status mm_iteration_replay(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_iteration_replay"));
    MM_TRY(mm_stream_check(mm_compute_stream(m)));
    mm_ready *r = mm_manager_find(m, graph);
    if (!r || !mm_execution_recorded(r->execution))
        return mm_fail(MM_ERR_ORDER, "mm_iteration_replay: there is no recording (mm_record_begin)");
    MM_TRY(mm_homes_check_whole(m, graph));
    mm_sampling_judge(r);
    MM_TRY(mm_manager_send_values(m, r, false, "mm_iteration_replay"));
    m->now.samples = false;
    mm_iteration_note_begin(m, r);
    mm_status status = mm_dispatch_replay(m->dispatch, r->execution);
    if (status != MM_OK) {
        mm_homes_judge_written(m, status);
        mm_iteration_note_abort(m, r);
        return status;
    }
    mm_iteration_note_end(m, r);
    pthread_mutex_lock(&m->lock);
    m->replays++;
    pthread_mutex_unlock(&m->lock);
    return MM_OK;
}
