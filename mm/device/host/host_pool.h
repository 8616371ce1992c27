/* SPDX-License-Identifier: MIT */
/* A pool of threads on this machine's CPUs. The host device's ops and codecs compute on such pools.
 *
 * A run is a number of tasks. Free threads take the next task in order, so a core that is busy with something else
 * takes fewer. What a task computes must not depend on the thread that runs it; then results do not depend on
 * timing. */
#ifndef MM_DEVICE_HOST_HOST_POOL_H
#define MM_DEVICE_HOST_HOST_POOL_H

#include "mm/core/status.h"

typedef struct mm_host_pool mm_host_pool;

enum { MM_HOST_THREADS_MOST = 256 };

/* thread: 0 for the caller of mm_host_pool_run, 1 to threads - 1 for the others. No two concurrent tasks of a run have
 * the same number, so it may index scratch memory. */
typedef mm_status (*mm_host_pool_fn)(void *ctx, int64_t task, int thread);

/* A pool of `threads` (1 to MM_HOST_THREADS_MOST) threads, of which the caller of mm_host_pool_run is one. The others
 * start at the first run that needs them. name: copied, 15 bytes. MM_ERR_INVALID, MM_ERR_NOMEM. The caller destroys
 * it. */
MM_CHECKED mm_status mm_host_pool_create(int threads, const char *name, mm_host_pool **pool_out);
/* Joins the threads. No run may be under way. NULL is legal. */
void mm_host_pool_destroy(mm_host_pool *pool);

/* Number of threads, the caller's included; 1 for NULL. */
int mm_host_pool_threads(const mm_host_pool *pool);

/* Runs fn(ctx, 0, thread) to fn(ctx, tasks - 1, thread), and returns when all have returned. All run, even if one
 * fails; the result is the status and the message of the failed task with the lowest number. May be called from any
 * thread. The caller runs all tasks itself, as thread 0, if pool is NULL, if the threads could not be started, or if
 * another caller's run has the pool: so concurrent callers need separate scratch. Allocates nothing once the threads
 * run. */
MM_CHECKED mm_status mm_host_pool_run(mm_host_pool *pool, int64_t tasks, mm_host_pool_fn fn, void *ctx);

/* Number of CPUs that this process may use, at least 1: those that it may be scheduled on, limited by the CPU quota of
 * its control groups, rounded up (version 2: cpu.max; version 1: cpu.cfs_quota_us). */
int mm_host_cpus(void);

/* The same for tests: `root` replaces "/", and `scheduled` the number of CPUs that the process may be scheduled on. */
int mm_host_cpus_in(const char *root, int scheduled);

#endif
