/* SPDX-License-Identifier: MIT */
/* The manager's state, which its files share; its limits, events and warnings. */
#ifndef MM_MANAGER_MANAGER_H
#define MM_MANAGER_MANAGER_H

#include <pthread.h>

#include "buffers/pool.h"
#include "mm/manager/caller_stream.h"
#include "mm/manager/coverage.h"
#include "mm/manager/page_guard.h"
#include "mm/manager/policy_thread.h"
#include "mm/planning/plan_set.h"
#include "pipeline/dispatch.h"
#include "pipeline/upload.h"

typedef struct mm_sampling mm_sampling; /* sampling.h */
typedef struct mm_claims mm_claims;     /* claims.h */

/* A prepared graph that is ready to run. */
typedef struct mm_ready {
    mm_prepared *prepared; /* owned by the plan set */
    mm_execution *execution;
    mm_sampling *sampling; /* NULL: nothing is sampled */
    int64_t sampled_age;   /* iterations since the last one that sampled, counting that one; -1: none has sampled */
    void **external;       /* per tensor: the user's memory of an external tensor; NULL for others */
    mm_recompute_fn recompute;
    void *recompute_ctx;
    mm_allreduce_fns allreduce_fns; /* mm_allreduce_set; all NULL: none */
    void *gradient_ctx;
    float *bounds;       /* per tensor: mm_bound_set */
    mm_upload *block;    /* uploads the numbers that the graph's codecs read on the device; NULL: they read none */
    bool covered;        /* the bytes of its plan are in mm_manager.coverage */
    bool has_run;        /* an iteration has run under this plan */
    bool told_untimed;   /* it was logged that the measured times are of another graph */
    bool unrecordable;   /* recording has failed under this plan */
    int64_t compared_at; /* value of mm_manager.iterations when a window was last compared with this plan; -1: none
                            was */
} mm_ready;

/* A plan that mm_observe replaced because iterations differed from it. */
typedef struct mm_left_plan {
    const mm_graph *graph;
    uint64_t digest; /* mm_plan_digest */
} mm_left_plan;

/* Settings of mm_observe, and their results so far (observe.h). */
typedef struct mm_observed {
    int permille;       /* deviation from the plan that is tolerated; 0: nothing is observed */
    int window;         /* iterations */
    int64_t planned_at; /* value of mm_manager.iterations when the policy last planned again; 0: it has not planned
                           again */
    mm_left_plan *left;
    int n_left;
} mm_observed;

/* States of a manager; states.h has the calls that lead from one to another. */
typedef enum mm_state {
    MM_STATE_NONE,    /* no state: the call is refused (states.c) */
    MM_STATE_IDLE,    /* between iterations */
    MM_STATE_BETWEEN, /* within an iteration, between its steps */
    MM_STATE_STEP,    /* within a step */
    MM_STATE_AGAIN,   /* within a step that is recomputed, before the step that needs it begins */
    MM_STATE_STUCK,   /* a recomputation has failed, so the step that needs it cannot begin */
    MM_STATES
} mm_state;

typedef struct mm_way mm_way; /* iteration.h */

/* The iteration under way, or the last one. */
typedef struct mm_iteration {
    mm_ready *ready;           /* its graph */
    const mm_way *way;         /* its steps run, are recorded, or are rehearsed */
    const mm_planned *planned; /* its plan: the graph's, or the one that samples */
    mm_execution *execution;   /* of `planned` */
    bool samples;
    int step;             /* the step that is under way, or else the next */
    int node;             /* the plan's node of the step that is under way, or of the recomputation */
    bool computes_inline; /* the caller computes that step on its own thread */
    mm_failure ran_out;   /* the failure of a call in which memory ran out */
    int64_t began_ns;
} mm_iteration;

struct mm_manager {
    mm_options options;
    mm_device *device;
    mm_pool *pool;   /* the arena */
    mm_pool *pinned; /* pinned host memory */
    mm_disk *disk;   /* mm_options.disk; NULL: none */
    mm_dispatch *dispatch;
    mm_caller_stream caller_stream;
    mm_page_guard guard;
    mm_claims *claims; /* NULL: no iteration has begun under self_check */
    mm_plan_set plans;
    mm_ready *ready; /* one for each prepared graph */
    int n_ready;
    mm_persistent_table persistents;
    int64_t home_piece_bytes; /* most bytes of a piece of a home that moves: MM_ROUTE_PIECE_BYTES; tests set less */
    int persistents_there;    /* the first so many of these have their values; the others are being added */
    mm_upload *values;        /* uploads the tensor MM_VALUES; NULL until it is needed */
    mm_coverage coverage;     /* bytes that plans which have run may touch */
    int64_t there_bytes;      /* bytes of the arena that have memory; the memory above was given back to the system */
    mm_touched given_back;    /* touched bytes above there_bytes, counted before that memory was given back */
    int64_t most_touched;     /* touched bytes in all, counted before memory was last taken back */
    mm_state state;           /* see states.h */
    mm_iteration now;         /* the iteration under way */
    int loops;      /* number of loops created for it (mm_loop_create), so that each has a number of its own */
    int64_t number; /* number of the next iteration (mm_iteration_number_set) */
    mm_observed observed;
    mm_policy_thread policy_thread; /* plans a policy that was set at run time */
    bool budget_follows;            /* the budget is what the graphs need (budget.h) */
    bool was_refused;
    mm_refusal refusal;      /* mm_refusal_get */
    mm_timeline *timeline;   /* of the trace under way (mm_trace_start); NULL: none */
    const mm_graph *largest; /* the graph with the largest plan of the iterations that may still run; NULL: none runs */
    int64_t ceiling_bytes;   /* limit of plans, lowered when memory runs out in an iteration; INT64_MAX: none */
    pthread_mutex_t lock;    /* guards the figures below, which any thread may ask for */
    int64_t budget_bytes;    /* the reserved bytes, or less (mm_budget_set) */
    int64_t iterations, replays, predicted_peak_bytes, persistent_bytes, stash_bytes, ladder_steps, replans;
};

/* The graph's entry; NULL if it is not prepared. */
mm_ready *mm_manager_find(const mm_manager *manager, const mm_graph *graph);
/* The device bytes that plans may take: the budget, or the ceiling if that is lower. */
int64_t mm_manager_limit_bytes(const mm_manager *manager);
/* The limits that plans are made within. */
mm_limits mm_manager_limits(const mm_manager *manager);

/* Calls mm_options.event_fn, if there is one. */
void mm_manager_notify(mm_manager *manager, mm_event_kind kind, const char *name, int64_t bytes, int64_t ns);
/* Counts, logs and reports that less memory or a substitute is used. name: the policy that runs now; bytes: what is
 * available; message: why, and what is done about it. */
void mm_manager_step_down(mm_manager *manager, const char *name, int64_t bytes, const char *message);

#endif
