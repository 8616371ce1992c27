/* A worker owns one thread, one stream and one bounded queue of jobs. The thread takes jobs in order and issues them on
 * the stream. */
#ifndef PIPELINE_WORKER_H
#define PIPELINE_WORKER_H

#include "mm/device/device.h"

typedef struct mm_worker mm_worker;

/* Issues one job; called on the worker's thread. */
typedef void (*mm_worker_fn)(void *ctx, int32_t job);

/* threaded false: a stream and no thread (mm_issue inline): pushing runs the job on the caller's thread. */
MM_CHECKED mm_status mm_worker_create(mm_device *device, const char *name, bool threaded, mm_worker_fn fn, void *ctx,
                                      mm_worker **worker_out);
/* Runs what is queued, joins the thread, destroys the stream. NULL is legal. */
void mm_worker_destroy(mm_worker *worker);

mm_stream *mm_worker_stream(const mm_worker *worker);

/* Room for `jobs` queued at once. Only while nothing is queued. */
MM_CHECKED mm_status mm_worker_reserve(mm_worker *worker, int jobs);

/* Queues a job; never blocks. There must be room. */
void mm_worker_push(mm_worker *worker, int32_t job);

/* Blocks until nothing is queued and nothing is being issued. */
void mm_worker_drain(mm_worker *worker);

/* Drops what is queued, then drains. */
void mm_worker_cancel(mm_worker *worker);

#endif
