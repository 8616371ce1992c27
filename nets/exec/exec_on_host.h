/* SPDX-License-Identifier: MIT */
/* Updates on the host (nets_optimizer.on_host): tasks of the manager's host stream, which the CPU backend computes. */
#ifndef NETS_EXEC_EXEC_ON_HOST_H
#define NETS_EXEC_EXEC_ON_HOST_H

#include "nets/exec/exec_ring.h"
#include "nets/exec/exec_undo.h"
#include "nets/lower/lower.h"

typedef struct nets_on_host_call nets_on_host_call;

/* All zero: nothing is updated on the host. */
typedef struct nets_on_host {
    nets_backend *backend;    /* the CPU's, with threads of its own */
    nets_on_host_call *calls; /* NETS_AHEAD times one for each part: several iterations may be under way */
    int n_parts;
} nets_on_host;

/* Does nothing unless the graph updates on the host. threads: of the CPU; 0: all that the process may use. Errors of
 * nets_backend_open. */
MM_CHECKED mm_status nets_on_host_init(nets_on_host *host, const nets_lowered *lowered, int threads);
/* No update may be under way. */
void nets_on_host_fini(nets_on_host *host);

/* Enqueues part `part` of iteration slot `slot`; args: as of nets_backend_ops.update_now, its arrays valid until the
 * work is done. `undo` gets to know when the host begins and has ended. */
MM_CHECKED mm_status nets_on_host_enqueue(nets_on_host *host, int slot, int part, const nets_update_args *args,
                                          nets_undo *undo, mm_stream *stream);

#endif
