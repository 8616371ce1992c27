/* Where a batch comes in beside the computation: a persistent buffer, filled over a stream of its own while the
 * iteration before is under way, and copied from there, on the device, to where that iteration's plan wants it.
 *
 *   staging stream   wait taken   batch i+1: host ──▶ buffer   record arrived
 *   compute stream   ... iteration i ...   wait arrived   buffer ──▶ its tensors   record taken   ... iteration i+1 ...
 */
#ifndef NETS_EXEC_STAGING_H
#define NETS_EXEC_STAGING_H

#include "mm/device/device.h"
#include "mm/mm.h"

enum { NETS_STAGED = 3 }; /* images, labels, learning rate */

/* A part of a batch: from the host to its tensor. `to` NULL: there is none. */
typedef struct nets_staged {
    const void *from;
    void *to;
    int64_t bytes;
} nets_staged;

typedef struct nets_staging {
    mm_manager *manager;
    char name[256];    /* of the buffer */
    mm_stream *stream; /* NULL: there is no buffer */
    mm_event *arrived, *taken;
    uint8_t *buffer;
} nets_staging;

/* Of so many bytes, as a persistent tensor of that name. MM_ERR_INFEASIBLE: it does not fit the budget. On failure
 * nothing is left. */
MM_CHECKED mm_status nets_staging_init(nets_staging *staging, mm_manager *manager, const char *name, int64_t bytes);
/* Waits for what is on its way, and gives the buffer back, unless other persistent tensors lie behind it. Legal on a
 * zeroed one. */
void nets_staging_fini(nets_staging *staging);

/* Enqueues a batch's way; the parts take the buffer in order, each aligned. */
MM_CHECKED mm_status nets_staging_pass(nets_staging *staging, mm_stream *compute, const nets_staged parts[NETS_STAGED]);

/* After a failure, the compute stream drained: waits for what is on its way, and forgets what failed. */
MM_CHECKED mm_status nets_staging_settle(nets_staging *staging, mm_stream *compute);

#endif
