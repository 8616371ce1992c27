/* SPDX-License-Identifier: MIT */
/* A worker owns one stream, one bounded queue of jobs, and one thread, which takes the jobs in order and issues them on
 * the stream. One thread at a time calls its functions, but for mm_worker_stream. */
#ifndef PIPELINE_WORKER_H
#define PIPELINE_WORKER_H

#include "mm/device/contract/device.h"

typedef struct mm_worker mm_worker;

/* Issues one job; called on the worker's thread. The function must record its failure itself. */
typedef void (*mm_worker_fn)(void *ctx, int32_t job);

/* name: the stream's (mm_stream_create). threaded false (MM_ISSUE_INLINE): there is no thread, and mm_worker_push runs
 * the job itself. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_worker_create(mm_device *device, const char *name, bool threaded, mm_worker_fn fn, void *ctx,
                                      mm_worker **worker_out);
/* Runs what is queued, joins the thread, destroys the stream. NULL is legal. */
void mm_worker_destroy(mm_worker *worker);

mm_stream *mm_worker_stream(const mm_worker *worker);

/* Makes room for `jobs` in the queue, which must be empty. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_worker_reserve(mm_worker *worker, int jobs);

/* Queues a job without blocking. The queue must have room. */
void mm_worker_push(mm_worker *worker, int32_t job);

/* Blocks until all queued jobs have been issued. */
void mm_worker_drain(mm_worker *worker);

/* Drops queued jobs, and blocks until the current one has been issued. */
void mm_worker_cancel(mm_worker *worker);

#endif
