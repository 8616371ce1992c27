/* What manager.c, iteration.c, transfer.c and figures.c share: the manager's state. */
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
} mm_record;

struct mm_manager {
    mm_options options;
    mm_device *device;
    mm_pool *pool;    /* the arena */
    mm_pool *staging; /* pinned memory */
    mm_dispatch *dispatch;
    mm_policy policy;
    mm_directory directory;
    mm_record *records;
    int n_records;
    mm_coverage coverage; /* of every plan that has run: where bytes may be touched */
    mm_record *running;   /* of the iteration under way, or NULL */
    int step;             /* next step, or the one begun */
    int node;             /* of the plan: the step under way, or what is recomputed for it */
    bool in_step;
    bool failed; /* a step could not be recomputed: what it was to be made for cannot begin */
    int64_t began_ns;
    pthread_mutex_t lock; /* of the figures below, which any thread may ask for */
    int64_t budget_bytes; /* options.device_bytes, or less */
    int64_t iterations, predicted_peak_bytes, persistent_bytes, stash_bytes;
};

/* MM_ERR_ORDER if an iteration is under way. */
MM_CHECKED mm_status mm_manager_check_idle(const mm_manager *manager, const char *what);
/* The same, and waits for iterations that were ended without waiting: a failure of theirs is returned and cleared. */
MM_CHECKED mm_status mm_manager_settle(mm_manager *manager, const char *what);
void mm_manager_notify(mm_manager *manager, mm_event_kind kind, const char *name, int64_t bytes, int64_t ns);
/* NULL if the graph was not prepared. */
mm_record *mm_manager_find(const mm_manager *manager, const mm_graph *graph);

#endif
