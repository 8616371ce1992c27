/* SPDX-License-Identifier: MIT */
#include "mm/manager/states.h"

/* The state that a move leads to; MM_STATE_NONE: the move is refused. */
static const mm_state leads_to[MM_MOVES][MM_STATES] = {
    [MM_MOVE_CHANGE] = {[MM_STATE_IDLE] = MM_STATE_IDLE},
    [MM_MOVE_BEGIN] = {[MM_STATE_IDLE] = MM_STATE_BETWEEN},
    [MM_MOVE_STEP_BEGIN] = {[MM_STATE_BETWEEN] = MM_STATE_STEP},
    [MM_MOVE_STEP_END] = {[MM_STATE_STEP] = MM_STATE_BETWEEN},
    [MM_MOVE_AGAIN_BEGIN] = {[MM_STATE_BETWEEN] = MM_STATE_AGAIN},
    [MM_MOVE_AGAIN_END] = {[MM_STATE_AGAIN] = MM_STATE_BETWEEN},
    [MM_MOVE_AGAIN_FAIL] = {[MM_STATE_BETWEEN] = MM_STATE_STUCK, [MM_STATE_AGAIN] = MM_STATE_STUCK},
    [MM_MOVE_END] = {[MM_STATE_BETWEEN] = MM_STATE_IDLE},
    [MM_MOVE_ABORT] = {[MM_STATE_BETWEEN] = MM_STATE_IDLE,
                       [MM_STATE_STEP] = MM_STATE_IDLE,
                       [MM_STATE_AGAIN] = MM_STATE_IDLE,
                       [MM_STATE_STUCK] = MM_STATE_IDLE},
};

static bool has_steps_left(const mm_manager *m) { return m->now.step < mm_graph_steps(m->now.ready->prepared->graph); }

bool mm_state_may(const mm_manager *m, mm_move move) {
    if (leads_to[move][m->state] == MM_STATE_NONE) return false;
    return move != MM_MOVE_END || !has_steps_left(m);
}

void mm_state_go(mm_manager *m, mm_move move) { m->state = leads_to[move][m->state]; }

bool mm_state_in_step(const mm_manager *m) { return m && (m->state == MM_STATE_STEP || m->state == MM_STATE_AGAIN); }

mm_status mm_state_refuse(const mm_manager *m, mm_move move, const char *call) {
    if (!m || m->state == MM_STATE_IDLE) return mm_fail(MM_ERR_ORDER, "%s: no iteration is under way", call);
    const mm_graph *graph = m->now.ready->prepared->graph;
    const char *name = mm_graph_name(graph);
    if (leads_to[move][MM_STATE_IDLE] != MM_STATE_NONE)
        return mm_fail(MM_ERR_ORDER, "%s: an iteration of %s is under way; end or abort it first", call, name);
    if (m->state == MM_STATE_STUCK)
        return mm_fail(MM_ERR_ORDER, "%s: a recomputation of %s has failed; abort the iteration", call, name);
    char due[256] = "mm_iteration_end";
    if (has_steps_left(m)) mm_graph_step_name(graph, m->now.step, due, sizeof due);
    bool begun = mm_state_in_step(m);
    if (move == MM_MOVE_END)
        return mm_fail(MM_ERR_ORDER, "%s: %s of %s has not %s", call, due, name, begun ? "ended" : "been run");
    return mm_fail(MM_ERR_ORDER, "%s is out of order: %s of %s is %s", call, due, name, begun ? "under way" : "next");
}

mm_status mm_state_check(const mm_manager *m, mm_move move, const char *call) {
    if (!m && leads_to[move][MM_STATE_IDLE] != MM_STATE_NONE)
        return mm_fail(MM_ERR_INVALID, "%s: no manager given", call);
    return m && mm_state_may(m, move) ? MM_OK : mm_state_refuse(m, move, call);
}

mm_status mm_manager_check_idle(const mm_manager *m, const char *call) {
    return mm_state_check(m, MM_MOVE_CHANGE, call);
}
