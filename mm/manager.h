/* What manager.c, budget.c, prepare.c, descend.c, iteration.c, recording.c, transfer.c and figures.c share: the manager's
 * state. */
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
    mm_execution *execution;
    void **fixed; /* per tensor: where a persistent or external one lies; NULL for managed ones */
    mm_recompute_fn recompute;
    void *recompute_ctx;
    bool covered;      /* its plan is in the coverage */
    bool has_run;      /* under this plan */
    bool refused;      /* it could not be recorded */
    bool told_untimed; /* the log has it that mm_options.facts are not of this graph */
} mm_record;

struct mm_manager {
    mm_options options;
    mm_device *device;
    mm_rates rates;   /* that it tells */
    mm_pool *pool;    /* the arena */
    mm_pool *staging; /* pinned memory */
    mm_dispatch *dispatch;
    mm_policy policy;      /* as it was set */
    mm_policy policy_now;  /* as it is run: the same, or a substitute (policies/fallback.h) */
    bool least_workspaces; /* it takes the variants with the least */
    mm_directory directory;
    mm_record *records;
    int n_records;
    mm_coverage coverage;  /* of every plan that has run: where bytes may be touched */
    int64_t there_bytes;   /* of the arena: what lies above was given back to the system */
    mm_touched given_back; /* what was touched of that, when it went */
    int64_t most_touched;  /* in all, before memory was last taken back */
    mm_record *running;    /* of the iteration under way, or NULL */
    int step;              /* next step, or the one begun */
    int node;              /* of the plan: the step under way, or what is recomputed for it */
    bool in_step;
    bool recording;          /* the iteration under way is recorded, and does not run */
    bool failed;             /* a step could not be recomputed: what it was to be made for cannot begin */
    bool ran_out;            /* of memory, in the iteration under way */
    const mm_graph *largest; /* by its plan, of the iterations that may still be running; NULL: all are waited for */
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

/* ---- budget.c */

/* What plans may take of the arena. */
int64_t mm_manager_limit_bytes(const mm_manager *manager);
/* What lies above it, and above the persistent tensors, is given back to the system. */
void mm_manager_trim(mm_manager *manager);

/* ---- figures.c */

/* Bytes of the arena's [begin, end) that were touched since it was filled with the pattern; not which are
 * persistent. */
MM_CHECKED mm_status mm_touched_count(const mm_manager *manager, int64_t begin, int64_t end, mm_touched *touched_out);
/* Of all of it, what was given back included. Between iterations. */
MM_CHECKED mm_status mm_touched_now(mm_manager *manager, mm_touched *touched_out);

/* ---- prepare.c */

/* A policy to be tried on the graphs. */
typedef struct mm_attempt {
    mm_policy policy; /* borrowed, or ended by whoever parsed it */
    bool least_workspaces;
    bool stands_in; /* for the policy that was set */
    /* filled in */
    int64_t need_bytes;       /* what the largest of its plans takes; 0: none could be made */
    const mm_record *refused; /* whose plan does not fit */
} mm_attempt;

/* What plans are made within. */
mm_limits mm_manager_limits(const mm_manager *manager);
/* New records of every prepared graph, and of `added` unless NULL, in place of the old ones: all or none. */
MM_CHECKED mm_status mm_manager_try(mm_manager *manager, mm_attempt *attempt, const mm_record *added);
void mm_record_fini(mm_record *record);
/* A step that the record's plan runs again and nobody said how; -1 if there is none. */
int mm_record_unable(const mm_record *record);
/* NULL if the graph was not prepared. */
mm_record *mm_manager_find(const mm_manager *manager, const mm_graph *graph);

/* ---- descend.c */

/* Whether there is less than was asked for. */
bool mm_manager_is_short(const mm_manager *manager);
/* Says what would fit in place of an attempt that does not. descended: nor does anything on its ladder. */
MM_CHECKED mm_status mm_manager_advise(const mm_manager *manager, const mm_attempt *attempt, bool descended);
/* Plans every prepared graph anew under a policy, or what its ladder has if memory is short, and `added` unless NULL;
 * takes the new plans up: all or none. `why`: of a step down the ladder, for the log. */
MM_CHECKED mm_status mm_manager_replan(mm_manager *manager, const mm_policy *policy, const mm_record *added,
                                       const char *why);
/* One of the iterations that were running failed because memory ran out: the largest of their plans, and all that need
 * as much, are given up for smaller ones, if there are any. The caller's last error stays. */
void mm_manager_run_out(mm_manager *manager);

/* ---- iteration.c, for recording.c */

/* Begins an iteration of the graph, `dispatch_begin`'s way; `call` is who asks, for messages. */
MM_CHECKED mm_status mm_iteration_start(mm_manager *manager, const mm_graph *graph, const char *call,
                                        mm_status (*dispatch_begin)(mm_dispatch *dispatch, mm_execution *execution));
/* Ends it, if its steps are through and it is being recorded, or not, as said. */
MM_CHECKED mm_status mm_iteration_finish(mm_manager *manager, const char *call, bool recording,
                                         mm_status (*dispatch_end)(mm_dispatch *dispatch));
/* What an iteration is counted and told by. */
void mm_iteration_note_begin(mm_manager *manager, const mm_record *record);
void mm_iteration_note_end(mm_manager *manager, mm_record *record);
void mm_iteration_note_abort(mm_manager *manager, const mm_graph *graph);

/* ---- recording.c: under this plan the graph is not recorded, for a reason that goes to the log: as a warning, unless it
 * is MM_ERR_UNSUPPORTED, which nothing is wrong with. */
void mm_replay_refuse(mm_manager *manager, mm_record *record, mm_status status, const char *reason);

#endif
