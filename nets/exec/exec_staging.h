/* SPDX-License-Identifier: MIT */
/* Staging: the next batch is copied while the device computes. A stream of its own fills a persistent buffer while the
 * previous iteration runs. The compute stream then copies the buffer, on the device, to where the iteration's plan has
 * the batch.
 *
 *   staging stream   wait taken   batch i+1: CPU ──▶ buffer   record arrived
 *   compute stream   ... iteration i ...   wait arrived   buffer ──▶ tensors   record taken   ... iteration i+1 ...
 */
#ifndef NETS_EXEC_EXEC_STAGING_H
#define NETS_EXEC_EXEC_STAGING_H

#include "mm/device/contract/device.h"
#include "mm/mm.h"
#include "nets/contract/op.h"

enum { NETS_STAGED = 3 }; /* images, labels, learning rate */

/* A part of a batch: its pinned memory and its tensor's address. `to` NULL: the graph has no such tensor. */
typedef struct nets_staged {
    const void *from;
    void *to;
    int64_t bytes;        /* size of `from` */
    nets_backend *padder; /* pads three channels to four on the way to the tensor; NULL: no padding */
} nets_staged;

/* Copies a part to its tensor; `from` is device or pinned memory. */
MM_CHECKED mm_status nets_staged_copy(const nets_staged *part, const void *from, mm_copy_kind kind, mm_stream *stream);

typedef struct nets_staging {
    mm_manager *manager;
    char name[256];    /* the buffer's */
    mm_stream *stream; /* NULL: batches are not staged */
    mm_event *arrived, *taken;
    uint8_t *buffer;
} nets_staging;

/* Adds the buffer to the manager, as a persistent tensor. MM_ERR_INFEASIBLE: it does not fit the budget. On failure
 * nothing is left. */
MM_CHECKED mm_status nets_staging_init(nets_staging *staging, mm_manager *manager, const char *name, int64_t bytes);
/* Waits for copies under way, and gives the buffer back to the manager unless later persistent tensors lie behind it.
 * Legal on a zeroed one. */
void nets_staging_fini(nets_staging *staging);

/* Enqueues the copies of a batch through the buffer. The parts lie in it in order, each aligned. */
MM_CHECKED mm_status nets_staging_pass(nets_staging *staging, mm_stream *compute, const nets_staged parts[NETS_STAGED]);

/* After a failure, with the compute stream drained: waits for copies under way and clears the stream's failure. */
MM_CHECKED mm_status nets_staging_wait(nets_staging *staging, mm_stream *compute);

#endif
