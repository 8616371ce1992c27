/* What an iteration that is recorded or replayed shares with one that runs. */
#ifndef MM_ITERATION_H
#define MM_ITERATION_H

#include "mm/manager.h"

/* How an iteration goes: its steps run, or are recorded. */
struct mm_way {
    mm_status (*begin)(mm_dispatch *dispatch, mm_execution *execution);
    /* It is over, and nothing came of it. */
    void (*lost)(mm_manager *manager, mm_ready *ready, const mm_failure *why);
    const char *told; /* what the graph is, for messages */
};

/* Begins an iteration of the graph; `call` is who asks, for messages. */
MM_CHECKED mm_status mm_iteration_start(mm_manager *manager, const mm_graph *graph, const mm_way *way,
                                        const char *call);
/* Ends it, if its steps are through and it goes that way. */
MM_CHECKED mm_status mm_iteration_finish(mm_manager *manager, const mm_way *way, const char *call,
                                         mm_status (*dispatch_end)(mm_dispatch *dispatch));
/* Statistics and events of an iteration that runs. */
void mm_iteration_note_begin(mm_manager *manager, const mm_ready *ready);
void mm_iteration_note_end(mm_manager *manager, mm_ready *ready);
void mm_iteration_note_abort(mm_manager *manager, const mm_ready *ready);

#endif
