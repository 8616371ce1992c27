/* The manager's state, which the files of the session share, and what all of them say by. */
#ifndef MM_MANAGER_H
#define MM_MANAGER_H

#include <pthread.h>

#include "buffers/pool.h"
#include "mm/coverage.h"
#include "mm/plan_set.h"
#include "pipeline/dispatch.h"

/* A prepared graph that is ready to run. */
typedef struct mm_ready {
    mm_prepared *prepared; /* the plan set's */
    mm_execution *execution;
    void **external; /* per tensor: the user's memory of an external one; NULL for others */
    mm_recompute_fn recompute;
    void *recompute_ctx;
    bool covered;      /* its plan is in the coverage */
    bool has_run;      /* under this plan */
    bool told_untimed; /* the log has it that the measured times are of another graph */
    bool unrecordable; /* under this plan: that was tried, in vain */
} mm_ready;

/* Where a session is: states.h has the calls that lead from one to another. */
typedef enum mm_state {
    MM_STATE_NONE,    /* no state: where a call may not lead */
    MM_STATE_IDLE,    /* between iterations */
    MM_STATE_BETWEEN, /* within an iteration, between its steps */
    MM_STATE_STEP,    /* within a step */
    MM_STATE_AGAIN,   /* within a step that is run again for the one that is due */
    MM_STATE_STUCK,   /* a step could not be run again: what it was to be made for cannot begin */
    MM_STATES
} mm_state;

typedef struct mm_way mm_way; /* iteration.h */

/* An iteration under way. */
typedef struct mm_iteration {
    mm_ready *ready;    /* whose */
    const mm_way *way;  /* its steps run, or are recorded */
    int step;           /* the next, or the one begun */
    int node;           /* of the plan: the step under way, or the one that is run again */
    mm_failure ran_out; /* of memory, in a step */
    int64_t began_ns;
} mm_iteration;

struct mm_manager {
    mm_options options;
    mm_device *device;
    mm_pool *pool;    /* the arena */
    mm_pool *staging; /* pinned memory */
    mm_dispatch *dispatch;
    mm_plan_set plans;
    mm_ready *ready; /* of every prepared graph */
    int n_ready;
    mm_directory directory;
    mm_coverage coverage;    /* of every plan that has run: where bytes may be touched */
    int64_t there_bytes;     /* of the arena: what lies above was given back to the system */
    mm_touched given_back;   /* what was touched of that, when it went */
    int64_t most_touched;    /* in all, before memory was last taken back */
    mm_state state;          /* of the session (states.h) */
    mm_iteration now;        /* the iteration under way */
    const mm_graph *largest; /* by its plan, of the iterations that may still be running; NULL: all are waited for */
    int64_t ceiling_bytes;   /* above it memory ran out while an iteration ran; INT64_MAX: it never did */
    pthread_mutex_t lock;    /* of the figures below, which any thread may ask for */
    int64_t budget_bytes;    /* what was reserved, or less */
    int64_t iterations, replays, predicted_peak_bytes, persistent_bytes, stash_bytes, ladder_steps;
};

/* NULL if the graph is not prepared. */
mm_ready *mm_manager_find(const mm_manager *manager, const mm_graph *graph);
/* What plans may take of the arena. */
int64_t mm_manager_limit_bytes(const mm_manager *manager);
/* What plans are made within. */
mm_limits mm_manager_limits(const mm_manager *manager);

void mm_manager_notify(mm_manager *manager, mm_event_kind kind, const char *name, int64_t bytes, int64_t ns);
/* Says that memory is short: the message, and what is done about it, "MESSAGE: DOES". */
void mm_manager_step_down(mm_manager *manager, const char *name, int64_t bytes, const char *message);

#endif
