/* Iterations that are recorded once and replayed. A recording belongs to the graph's program, and goes with it. */
#include "mm/manager.h"

mm_replay_state_id mm_replay_state(const mm_manager *m, const mm_graph *graph) {
    const mm_record *r = m ? mm_manager_find(m, graph) : NULL;
    if (!r) return MM_REPLAY_NO;
    if (mm_execution_recorded(r->execution)) return MM_REPLAY_READY;
    /* Libraries load and choose in a first run what must not be loaded or chosen while recording. */
    bool may = m->device->ops->capture_begin && r->has_run && !r->refused;
    return may ? MM_REPLAY_MAY : MM_REPLAY_NO;
}

void mm_replay_refuse(mm_manager *m, mm_record *r, mm_status status, const char *reason) {
    r->refused = true;
    mm_log_send(&m->options.log, status == MM_ERR_UNSUPPORTED ? MM_LOG_INFO : MM_LOG_WARNING,
                "%s runs without a recording: %s", mm_graph_name(r->graph), reason);
}

mm_status mm_record_begin(mm_manager *m, const mm_graph *graph) {
    mm_status status = mm_iteration_start(m, graph, "mm_record_begin", mm_dispatch_record_begin);
    mm_record *r = m ? mm_manager_find(m, graph) : NULL;
    if (status == MM_OK)
        m->recording = true;
    else if (r && !m->running)
        mm_replay_refuse(m, r, status, mm_last_error());
    return status;
}

mm_status mm_record_end(mm_manager *m) {
    mm_record *r = m ? m->running : NULL;
    mm_status status = mm_iteration_finish(m, "mm_record_end", true, mm_dispatch_record_end);
    if (status != MM_OK && r && !m->running) mm_replay_refuse(m, r, status, mm_last_error());
    return status;
}

mm_status mm_iteration_replay(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_iteration_replay"));
    mm_record *r = mm_manager_find(m, graph);
    if (!r || !mm_execution_recorded(r->execution))
        return mm_fail(MM_ERR_ORDER, "mm_iteration_replay: there is no recording (mm_record_begin)");
    mm_iteration_note_begin(m, r);
    mm_status status = mm_dispatch_replay(m->dispatch, r->execution);
    if (status != MM_OK) {
        mm_iteration_note_abort(m, graph);
        return status;
    }
    mm_iteration_note_end(m, r);
    pthread_mutex_lock(&m->lock);
    m->replays++;
    pthread_mutex_unlock(&m->lock);
    return MM_OK;
}
