/* What manager.c, prepare.c, iteration.c, replay.c, transfer.c and figures.c share: the manager's state. */
#ifndef MM_MANAGER_H
#define MM_MANAGER_H

#include <pthread.h>

#include "buffers/pool.h"
#include "mm/coverage.h"
#include "mm/persistent.h"
#include "mm/planning.h"
#include "pipeline/dispatch.h"

/* A prepared graph. */
typedef struct mm_record {
    const mm_graph *graph;
    mm_planned planned;
    mm_program *program;
    void **fixed; /* per tensor: where a persistent or external one lies; NULL for managed ones */
    mm_recompute_fn recompute;
    void *recompute_ctx;
    bool covered; /* its plan is in the coverage */
    bool has_run; /* under this plan */
    bool refused; /* it could not be recorded */
} mm_record;

struct mm_manager {
    mm_options options;
    mm_device *device;
    mm_pool *pool;    /* the arena */
    mm_pool *staging; /* pinned memory */
    mm_dispatch *dispatch;
    mm_policy policy;                /* as it was set */
    char policy_now[MM_POLICY_SPEC]; /* as it is run: of the policy's ladder */
    bool least_workspaces;           /* it takes the variants with the least */
    mm_directory directory;
    mm_record *records;
    int n_records;
    mm_coverage coverage; /* of every plan that has run: where bytes may be touched */
    mm_record *running;   /* of the iteration under way, or NULL */
    int step;             /* next step, or the one begun */
    int node;             /* of the plan: the step under way, or what is recomputed for it */
    bool in_step;
    bool recording;         /* the iteration under way is recorded, and does not run */
    bool failed;            /* a step could not be recomputed: what it was to be made for cannot begin */
    bool ran_out;           /* of memory, in the iteration under way */
    const mm_graph *latest; /* of the iteration that was begun last, and may still be running */
    int64_t began_ns;
    int64_t ceiling_bytes; /* above it memory ran out while an iteration ran; INT64_MAX: it never did */
    pthread_mutex_t lock;  /* of the figures below, which any thread may ask for */
    int64_t budget_bytes;  /* what was reserved, or less */
    int64_t iterations, replays, predicted_peak_bytes, persistent_bytes, stash_bytes, ladder_steps;
};

/* MM_ERR_ORDER if an iteration is under way. */
MM_CHECKED mm_status mm_manager_check_idle(const mm_manager *manager, const char *what);
/* The same, and waits for iterations that were ended without waiting: a failure of theirs is returned and cleared. */
MM_CHECKED mm_status mm_manager_settle(mm_manager *manager, const char *what);
void mm_manager_notify(mm_manager *manager, mm_event_kind kind, const char *name, int64_t bytes, int64_t ns);
/* Says that memory is short: the message, and what is done about it, "MESSAGE: DOES". */
void mm_manager_step_down(mm_manager *manager, const char *name, int64_t bytes, const char *message);

/* ---- prepare.c */

/* Plans every prepared graph anew under a policy, or what its ladder has if memory is short, and takes the new plans
 * up: all or none. `why`: of a step down the ladder, for the log. */
MM_CHECKED mm_status mm_manager_replan(mm_manager *manager, const mm_policy *policy, const char *why);
/* An iteration of this graph failed because memory ran out: its plan, and all that need as much, are given up for
 * smaller ones, if there are any. The caller's last error stays. */
void mm_manager_run_out(mm_manager *manager, const mm_graph *graph);
/* What lies above all plans may have is given back to the system. */
void mm_manager_trim(mm_manager *manager);
void mm_record_fini(mm_record *record);
/* NULL if the graph was not prepared. */
mm_record *mm_manager_find(const mm_manager *manager, const mm_graph *graph);

/* ---- iteration.c, for replay.c */

/* Begins an iteration of the graph, `dispatch_begin`'s way; `call` is who asks, for messages. */
MM_CHECKED mm_status mm_iteration_start(mm_manager *manager, const mm_graph *graph, const char *call,
                                        mm_status (*dispatch_begin)(mm_dispatch *dispatch, mm_program *program));
/* Ends it, if its steps are through and it is being recorded, or not, as said. */
MM_CHECKED mm_status mm_iteration_finish(mm_manager *manager, const char *call, bool recording,
                                         mm_status (*dispatch_end)(mm_dispatch *dispatch));
/* What an iteration is counted and told by. */
void mm_iteration_note_begin(mm_manager *manager, const mm_record *record);
void mm_iteration_note_end(mm_manager *manager, mm_record *record);

/* ---- replay.c: under this plan the graph is not recorded, for a reason that goes to the log: as a warning, unless it is
 * MM_ERR_UNSUPPORTED, which nothing is wrong with. */
void mm_replay_refuse(mm_manager *manager, mm_record *record, mm_status status, const char *reason);

#endif
