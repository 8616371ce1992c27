/* SPDX-License-Identifier: MIT */
#include "nets/exec/exec_on_host.h"

#include <stdlib.h>

struct nets_on_host_call {
    mm_call call;
    nets_backend *backend;
    nets_update_args args;
    nets_undo *undo;
    int slot, part;
};

static mm_status run(void *arg) {
    const nets_on_host_call *c = arg;
    if (c->part == 0) nets_undo_host_begins(c->undo, c->slot);
    MM_TRY(c->backend->ops->update_now(c->backend, &c->args));
    if (!c->args.goes_on) nets_undo_host_ended(c->undo, c->slot);
    return MM_OK;
}

mm_status nets_on_host_init(nets_on_host *host, const nets_lowered *lowered, int threads) {
    const nets_backend_config config = {.threads = threads};
    if (!lowered->on_host) return MM_OK;
    host->n_parts = lowered->n_updates;
    host->calls = calloc(NETS_AHEAD * (size_t)host->n_parts, sizeof *host->calls);
    if (!host->calls) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to update it", nets_net_name(lowered->net));
    return nets_backend_open("host", &config, &host->backend);
}

void nets_on_host_fini(nets_on_host *host) {
    nets_backend_close(host->backend);
    free(host->calls);
    *host = (nets_on_host){0};
}

mm_status nets_on_host_enqueue(nets_on_host *host, int slot, int part, const nets_update_args *args, nets_undo *undo,
                               mm_stream *stream) {
    nets_on_host_call *c = &host->calls[slot * host->n_parts + part];
    *c = (nets_on_host_call){{run, c}, host->backend, *args, undo, slot, part};
    return mm_call_async(stream, &c->call);
}
