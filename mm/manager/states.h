/* SPDX-License-Identifier: MIT */
/* The states of a manager, and the calls that lead from one to another.
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
 * A call for which the present state has no arrow is refused with MM_ERR_ORDER, and changes nothing. */
#ifndef MM_MANAGER_STATES_H
#define MM_MANAGER_STATES_H

#include "mm/manager/manager.h"

typedef enum mm_move {
    MM_MOVE_CHANGE, /* calls that are legal only between iterations: changes of policy, budget, graphs, ... */
    MM_MOVE_BEGIN,
    MM_MOVE_STEP_BEGIN,
    MM_MOVE_STEP_END,
    MM_MOVE_AGAIN_BEGIN,
    MM_MOVE_AGAIN_END,
    MM_MOVE_AGAIN_FAIL,
    MM_MOVE_END, /* legal once all steps have run */
    MM_MOVE_ABORT,
    MM_MOVES
} mm_move;

/* Whether the move is legal in the present state. */
bool mm_state_may(const mm_manager *manager, mm_move move);
/* Makes a legal move. */
void mm_state_go(mm_manager *manager, mm_move move);
/* Whether a step is under way, or a recomputation; false for NULL. */
bool mm_state_in_step(const mm_manager *manager);

/* Returns MM_ERR_ORDER; the message says which call is due in place of `call`. */
MM_CHECKED mm_status mm_state_refuse(const mm_manager *manager, mm_move move, const char *call);
/* MM_OK if the move is legal, else as mm_state_refuse. NULL: MM_ERR_INVALID for a move that begins in IDLE; for others
 * MM_ERR_ORDER, as between iterations. */
MM_CHECKED mm_status mm_state_check(const mm_manager *manager, mm_move move, const char *call);
/* mm_state_check for MM_MOVE_CHANGE. */
MM_CHECKED mm_status mm_manager_check_idle(const mm_manager *manager, const char *call);

#endif
