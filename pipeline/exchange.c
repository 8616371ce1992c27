/* Tensors that several processes share: the caller's functions, as tasks of the streams that copy them out and back in. */
#include <stdlib.h>

#include "pipeline/internal.h"

/* Of a node that copies a shared tensor. */
struct mm_exchange_call {
    mm_call call;
    mm_execution *execution;
    int node;
};

static bool is_shared(const mm_plan *plan, int node) {
    const mm_node *n = &plan->nodes[node];
    return (n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN) &&
           mm_graph_tensor(plan->graph, n->tensor)->shared != MM_SHARE_NOT;
}

/* Keeps the failure for devices on which it does not fail the stream. */
static mm_status run(void *arg) {
    const mm_exchange_call *c = arg;
    const mm_execution *p = c->execution;
    const mm_node *n = &p->plan->nodes[c->node];
    const mm_segment *pinned = &p->plan->segments[n->kind == MM_NODE_OUT ? n->dst : n->src];
    const mm_shared shared = {.graph = p->plan->graph,
                              .tensor = n->tensor,
                              .data = p->dispatch->pinned + pinned->offset,
                              .bytes = pinned->bytes};
    if (n->kind == MM_NODE_OUT) {
        p->exchange.fns.sent(p->exchange.ctx, &shared);
        return MM_OK;
    }
    mm_status status = p->exchange.fns.await(p->exchange.ctx, &shared);
    if (status == MM_OK) return MM_OK;
    mm_fail_prefix("%s", mm_graph_tensor(p->plan->graph, n->tensor)->name);
    mm_dispatch *d = p->dispatch;
    pthread_mutex_lock(&d->lock);
    if (d->unshared.status == MM_OK) mm_failure_keep(&d->unshared, status);
    pthread_mutex_unlock(&d->lock);
    return status;
}

mm_status mm_exchange_init(mm_execution *p) {
    bool any = false;
    for (int i = 0; i < p->plan->n_nodes; i++) any |= is_shared(p->plan, i);
    if (!any) return MM_OK;
    p->exchange.calls = calloc((size_t)p->plan->n_nodes, sizeof *p->exchange.calls);
    if (!p->exchange.calls) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's shared tensors");
    for (int i = 0; i < p->plan->n_nodes; i++)
        if (is_shared(p->plan, i)) p->exchange.calls[i] = (mm_exchange_call){{run, &p->exchange.calls[i]}, p, i};
    return MM_OK;
}

void mm_exchange_fini(mm_execution *p) { free(p->exchange.calls); }

void mm_execution_set_gradients(mm_execution *p, const mm_gradient_fns *fns, void *ctx) {
    p->exchange.fns = fns ? *fns : (mm_gradient_fns){0};
    p->exchange.ctx = ctx;
}

bool mm_exchange_is_on(const mm_execution *p) { return p->exchange.calls && p->exchange.fns.sent; }

mm_status mm_exchange_call_async(mm_dispatch *d, int node, mm_stream *stream) {
    const mm_execution *p = d->execution;
    if (d->rehearsed || !mm_exchange_is_on(p) || !p->exchange.calls[node].call.fn) return MM_OK;
    return mm_call_async(stream, &p->exchange.calls[node].call);
}
