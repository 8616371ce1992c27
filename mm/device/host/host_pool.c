/* SPDX-License-Identifier: MIT */
/* The pool: tasks are taken from a counter, and the lock is taken once for each run, not for each task.
 *
 *   caller                                     helper
 *   opens a run: tasks, round + 1, wakes       sees a new round, joins if the run is open: active + 1
 *   takes tasks                                takes tasks
 *   closes the run, waits for active == 0      active - 1
 *
 * A helper that wakes late finds the run closed and never touches it. A thread that waits spins for SPIN_NS first,
 * because the next operation of a layer follows within microseconds, and waking a sleeping thread takes about 50 us on
 * a virtual machine. It does not spin longer, so that codecs and copies get the core. SPIN_NS is chosen below those 50
 * us; LOOKS, the number of times that a spinning thread checks for work between two readings of the clock, is chosen,
 * too. */
#include "mm/device/host/host_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/contract/clock.h"

enum { SPIN_NS = 30000, LOOKS = 64 };

typedef struct pool_helper {
    mm_host_pool *pool;
    pthread_t thread;
    int index; /* 1 to threads - 1 */
} pool_helper;

struct mm_host_pool {
    int threads, started; /* started: helpers that run; -1: none could be started, and it is not tried again */
    char name[16];
    pool_helper *helpers;
    atomic_bool busy;        /* a caller runs tasks on the pool */
    _Atomic uint64_t round;  /* number of runs; changes under the lock */
    _Atomic int64_t next;    /* the next task to take */
    _Atomic int active;      /* helpers in this run; changes under the lock */
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t work;     /* helpers wait here */
    pthread_cond_t finished; /* the caller waits here */
    bool open, stopping;
    int sleeping;
    int64_t tasks;
    mm_host_pool_fn fn;
    void *ctx;
    int64_t failed;     /* lowest number of a failed task; `tasks` if none has failed */
    mm_failure failure; /* failure of the task number `failed` */
};

/* ---------------------------------------------------------------- tasks */

static void note_failure(mm_host_pool *pool, int64_t task, mm_status status) {
    pthread_mutex_lock(&pool->lock);
    if (task < pool->failed) {
        pool->failed = task;
        mm_failure_save(&pool->failure, status);
    }
    pthread_mutex_unlock(&pool->lock);
}

static void take_tasks(mm_host_pool *pool, int thread) {
    for (;;) {
        int64_t task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (task >= pool->tasks) return;
        mm_status status = pool->fn(pool->ctx, task, thread);
        if (status != MM_OK) note_failure(pool, task, status);
    }
}

static mm_status run_alone(int64_t tasks, mm_host_pool_fn fn, void *ctx) {
    mm_failure first = {.status = MM_OK};
    for (int64_t task = 0; task < tasks; task++) {
        mm_status status = fn(ctx, task, 0);
        if (first.status == MM_OK) mm_failure_save(&first, status);
    }
    return mm_failure_restore(&first);
}

static void pause_a_moment(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* ---------------------------------------------------------------- helpers */

static void look_for_round(mm_host_pool *pool, uint64_t seen) {
    for (int64_t until = mm_now_ns() + SPIN_NS; mm_now_ns() < until;)
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&pool->round, memory_order_relaxed) != seen) return;
            pause_a_moment();
        }
}

static void *helper_main(void *arg) {
    pool_helper *helper = arg;
    mm_host_pool *pool = helper->pool;
    uint64_t seen = 0;
    pthread_setname_np(pthread_self(), pool->name);
    for (;;) {
        look_for_round(pool, seen);
        pthread_mutex_lock(&pool->lock);
        pool->sleeping++;
        while (pool->round == seen && !pool->stopping) pthread_cond_wait(&pool->work, &pool->lock);
        pool->sleeping--;
        bool stopping = pool->stopping, joins = pool->open;
        seen = pool->round;
        if (joins) pool->active++;
        pthread_mutex_unlock(&pool->lock);
        if (stopping) return NULL;
        if (!joins) continue;
        take_tasks(pool, helper->index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->active == 0) pthread_cond_signal(&pool->finished);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* Helpers block all signals, so that the application's threads get them. */
static void start_helpers(mm_host_pool *pool) {
    sigset_t all, before;
    pool->helpers = calloc((size_t)pool->threads, sizeof *pool->helpers);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->helpers && pool->started < pool->threads - 1) {
        pool_helper *helper = &pool->helpers[pool->started];
        *helper = (pool_helper){.pool = pool, .index = pool->started + 1};
        if (pthread_create(&helper->thread, NULL, helper_main, helper) != 0) break;
        pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->started == 0) pool->started = -1;
}

/* ---------------------------------------------------------------- runs */

static void open_run(mm_host_pool *pool, int64_t tasks, mm_host_pool_fn fn, void *ctx) {
    pthread_mutex_lock(&pool->lock);
    pool->tasks = pool->failed = tasks;
    pool->fn = fn;
    pool->ctx = ctx;
    pool->open = true;
    atomic_store(&pool->next, 0);
    atomic_fetch_add(&pool->round, 1);
    int wanted = tasks - 1 < pool->started ? (int)tasks - 1 : pool->started;
    bool wake = pool->sleeping > pool->started - wanted;
    pthread_mutex_unlock(&pool->lock);
    if (wake) pthread_cond_broadcast(&pool->work);
}

static mm_status close_run(mm_host_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->open = false;
    pthread_mutex_unlock(&pool->lock);
    for (int64_t until = mm_now_ns() + SPIN_NS; atomic_load(&pool->active) > 0 && mm_now_ns() < until;)
        for (int i = 0; i < LOOKS && atomic_load_explicit(&pool->active, memory_order_relaxed) > 0; i++)
            pause_a_moment();
    pthread_mutex_lock(&pool->lock);
    while (pool->active > 0) pthread_cond_wait(&pool->finished, &pool->lock);
    bool failed = pool->failed < pool->tasks;
    pthread_mutex_unlock(&pool->lock);
    return failed ? mm_failure_restore(&pool->failure) : MM_OK;
}

mm_status mm_host_pool_run(mm_host_pool *pool, int64_t tasks, mm_host_pool_fn fn, void *ctx) {
    if (!pool || pool->threads == 1 || tasks <= 1 || atomic_exchange(&pool->busy, true))
        return run_alone(tasks, fn, ctx);
    if (pool->started == 0) start_helpers(pool);
    mm_status status;
    if (pool->started > 0) {
        open_run(pool, tasks, fn, ctx);
        take_tasks(pool, 0);
        status = close_run(pool);
    } else {
        status = run_alone(tasks, fn, ctx);
    }
    atomic_store(&pool->busy, false);
    return status;
}

/* ---------------------------------------------------------------- life */

mm_status mm_host_pool_create(int threads, const char *name, mm_host_pool **pool_out) {
    if (threads < 1 || threads > MM_HOST_THREADS_MOST)
        return mm_fail(MM_ERR_INVALID, "%d threads: must be 1 to %d", threads, MM_HOST_THREADS_MOST);
    mm_host_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return mm_fail(MM_ERR_NOMEM, "no memory for a pool of %d threads", threads);
    pool->threads = threads;
    snprintf(pool->name, sizeof pool->name, "%s", name);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, NULL);
    *pool_out = pool;
    return MM_OK;
}

void mm_host_pool_destroy(mm_host_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    atomic_fetch_add(&pool->round, 1); /* ends the spinning of helpers */
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_broadcast(&pool->work);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->helpers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool->helpers);
    free(pool);
}

int mm_host_pool_threads(const mm_host_pool *pool) { return pool ? pool->threads : 1; }
