/* The states of a session, and the calls that lead from one to another.
 *
 *            begin                step_begin
 *   IDLE ──────────────▶ BETWEEN ────────────▶ STEP
 *    ▲ ▲                 │ ▲ │ ▲                │
 *    │ └────── end ──────┘ │ │ └── step_end ────┘
 *    │                     │ │
 *    │           again_end │ │ again_begin
 *    │                     │ ▼
 *    └── abort, from all   AGAIN ──── again_fail ────▶ STUCK
 *
 * A call that a state does not have is refused with MM_ERR_ORDER, and changes nothing. */
#ifndef MM_STATES_H
#define MM_STATES_H

#include "mm/manager.h"

typedef enum mm_move {
    MM_MOVE_CHANGE, /* what belongs between iterations: a change of policy, budget, graphs, ... */
    MM_MOVE_BEGIN,
    MM_MOVE_STEP_BEGIN,
    MM_MOVE_STEP_END,
    MM_MOVE_AGAIN_BEGIN,
    MM_MOVE_AGAIN_END,
    MM_MOVE_AGAIN_FAIL,
    MM_MOVE_END, /* its steps are through */
    MM_MOVE_ABORT,
    MM_MOVES
} mm_move;

bool mm_state_may(const mm_manager *manager, mm_move move);
/* It may. */
void mm_state_go(mm_manager *manager, mm_move move);
/* Whether it is within a step, which may be one that is run again. NULL: no. */
bool mm_state_in_step(const mm_manager *manager);

/* MM_ERR_ORDER, and what is due in place of `call`. */
MM_CHECKED mm_status mm_state_refuse(const mm_manager *manager, mm_move move, const char *call);
/* MM_OK if it may. Without a manager: MM_ERR_INVALID, or, of calls within an iteration, as without one. */
MM_CHECKED mm_status mm_state_check(const mm_manager *manager, mm_move move, const char *call);
/* The same of what belongs between iterations. */
MM_CHECKED mm_status mm_manager_check_idle(const mm_manager *manager, const char *call);

#endif
