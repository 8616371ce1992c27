/* A pool of threads on this machine's CPUs: what device host computes and encodes with, where one thread does not do.
 *
 * Work is cut into tasks, which whoever is free takes, in order: a core that others use takes fewer. What a task computes
 * must not depend on who runs it; then results do not depend on timing. */
#ifndef MM_DEVICE_HOST_POOL_H
#define MM_DEVICE_HOST_POOL_H

#include "mm/core/status.h"

typedef struct mm_host_pool mm_host_pool;

enum { MM_HOST_THREADS_MOST = 256 };

/* `thread`: 0 for the caller of mm_host_pool_run, below the pool's threads for the others; no two tasks that run at a
 * time have the same, so it may choose scratch. */
typedef mm_status (*mm_host_pool_fn)(void *ctx, int64_t task, int thread);

/* Of `threads` (1 to MM_HOST_THREADS_MOST), the caller's among them; the others start when they are first needed and are
 * named `name` (15 bytes). MM_ERR_INVALID, MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_host_pool_create(int threads, const char *name, mm_host_pool **pool_out);
/* Nothing may run. Joins the threads. NULL is legal. */
void mm_host_pool_destroy(mm_host_pool *pool);

/* NULL has one: the caller's. */
int mm_host_pool_threads(const mm_host_pool *pool);

/* Runs fn(ctx, 0) to fn(ctx, tasks - 1) and returns when all are over: the status and the message of the first, by
 * number, that failed. Allocates nothing once the threads have started. If they do not start, or if the pool is busy
 * with another caller's tasks, this thread runs all of its own by itself, as thread 0 (so callers at a time need scratch
 * apart). pool NULL: the same. */
MM_CHECKED mm_status mm_host_pool_run(mm_host_pool *pool, int64_t tasks, mm_host_pool_fn fn, void *ctx);

/* How many CPUs this process may use: those that it may be scheduled on, at most as many as the CPU time of its control
 * groups makes, rounded up (version 2: cpu.max; version 1: cpu.cfs_quota_us). At least 1. */
int mm_host_cpus(void);

/* The same by other files, for tests: `root` stands for "/", and `scheduled` for the CPUs it may be scheduled on. */
int mm_host_cpus_in(const char *root, int scheduled);

#endif
