/* SPDX-License-Identifier: MIT */
/* Shared by iterations that run, that are recorded, and that are replayed. */
#ifndef MM_MANAGER_ITERATION_H
#define MM_MANAGER_ITERATION_H

#include "mm/manager/manager.h"

/* The kind of an iteration: its steps run, are recorded, or are rehearsed. */
struct mm_way {
    mm_status (*begin)(mm_dispatch *dispatch, mm_execution *execution);
    /* Called when the iteration has failed or was aborted. */
    void (*lost)(mm_manager *manager, mm_ready *ready, const mm_failure *why);
    bool runs; /* it runs the steps, so the iteration's values must be sent (values.h) */
    bool may_sample;
    const char *told; /* for messages: "GRAPH is TOLD" */
};

/* Begins an iteration of the graph. call: the function that the user called, for messages. */
MM_CHECKED mm_status mm_iteration_start(mm_manager *manager, const mm_graph *graph, const mm_way *way,
                                        const char *call);
/* Ends the iteration with dispatch_end. MM_ERR_ORDER: not all steps have run, or the iteration under way has another
 * mm_way. */
MM_CHECKED mm_status mm_iteration_finish(mm_manager *manager, const mm_way *way, const char *call,
                                         mm_status (*dispatch_end)(mm_dispatch *dispatch));
/* mm_tensor_data of the step under way, for its use number `use`, of a tensor that is not external. */
void *mm_iteration_address(mm_manager *manager, int use);
/* Updates statistics and emits events. */
void mm_iteration_note_begin(mm_manager *manager, const mm_ready *ready);
void mm_iteration_note_end(mm_manager *manager, mm_ready *ready);
void mm_iteration_note_abort(mm_manager *manager, const mm_ready *ready);

#endif
