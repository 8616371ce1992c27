/* SPDX-License-Identifier: MIT */
/* All-reduce of shared tensors by the caller's functions. They are called on the streams that copy a tensor to pinned
 * memory and back. Tensors that are all-reduced in place have a stream of their own (d->sums). */
#include "pipeline/allreduce.h"

#include <stdlib.h>

#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"
#include "pipeline/tracing.h"

/* The call for one piece of a node that copies a shared tensor. */
struct mm_allreduce_call {
    mm_call call;
    const mm_execution *execution;
    const mm_piece *piece;
};

static mm_status run(void *arg) {
    const mm_allreduce_call *c = arg;
    const mm_execution *p = c->execution;
    const mm_node *n = &p->plan->nodes[c->piece->node];
    const mm_segment *pinned = &p->plan->segments[n->kind == MM_NODE_OUT ? n->dst : n->src];
    const mm_allreduce_part shared = {.graph = p->plan->graph,
                                      .tensor = n->tensor,
                                      .data = p->dispatch->pinned + pinned->offset + c->piece->stored_offset,
                                      .bytes = c->piece->stored_bytes,
                                      .offset = c->piece->stored_offset,
                                      .as = mm_graph_tensor(p->plan->graph, n->tensor)->shared_as};
    if (n->kind == MM_NODE_OUT) {
        p->allreduce.fns.sent(p->allreduce.ctx, &shared);
        return MM_OK;
    }
    const mm_status status = p->allreduce.fns.await(p->allreduce.ctx, &shared);
    if (status != MM_OK) mm_fail_prefix("%s", mm_graph_tensor(p->plan->graph, n->tensor)->name);
    return status;
}

static mm_status create_stream(mm_dispatch *d) {
    if (d->sums) return MM_OK;
    if (!d->ready) MM_TRY(mm_event_create(d->config.device, &d->ready));
    if (!d->summed) MM_TRY(mm_event_create(d->config.device, &d->summed));
    return mm_stream_create(d->config.device, "mm-sums", 0, &d->sums);
}

static mm_status init_groups(mm_execution *p) {
    int most = 0;
    MM_TRY(mm_plan_allreduce_groups(p->plan, &p->allreduce.groups));
    for (int g = 0; g < p->allreduce.groups.n; g++)
        if (p->allreduce.groups.groups[g].n > most) most = p->allreduce.groups.groups[g].n;
    if (most == 0) return MM_OK;
    p->allreduce.tensors = calloc((size_t)most, sizeof *p->allreduce.tensors);
    return p->allreduce.tensors ? create_stream(p->dispatch)
                                : mm_fail(MM_ERR_NOMEM, "out of memory for a plan's shared tensors");
}

mm_status mm_allreduce_init(mm_execution *p) {
    const mm_program *program = p->program;
    bool any = false;
    MM_TRY(init_groups(p));
    for (int i = 0; i < p->plan->n_nodes; i++) any |= mm_node_allreduces(p->plan, &p->plan->nodes[i]);
    if (!any) return MM_OK;
    p->allreduce.calls = calloc((size_t)program->n, sizeof *p->allreduce.calls);
    if (!p->allreduce.calls) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's shared tensors");
    for (int i = 0; i < program->n; i++)
        if (mm_node_allreduces(p->plan, &p->plan->nodes[program->pieces[i].node]))
            p->allreduce.calls[i] = (mm_allreduce_call){{run, &p->allreduce.calls[i]}, p, &program->pieces[i]};
    return MM_OK;
}

void mm_allreduce_fini(mm_execution *p) {
    free(p->allreduce.calls);
    free(p->allreduce.tensors);
    mm_allreduce_groups_fini(&p->allreduce.groups);
}

void mm_execution_set_allreduce(mm_execution *p, const mm_allreduce_fns *fns, void *ctx) {
    p->allreduce.fns = fns ? *fns : (mm_allreduce_fns){0};
    p->allreduce.ctx = ctx;
}

bool mm_allreduce_is_called(const mm_execution *p) { return p->allreduce.calls && p->allreduce.fns.sent; }

mm_status mm_allreduce_call_async(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    const mm_execution *p = d->execution;
    if (d->rehearsed || !mm_allreduce_is_called(p)) return MM_OK;
    mm_allreduce_call *call = &p->allreduce.calls[piece - p->program->pieces];
    if (!call->call.fn) return MM_OK;
    if (p->plan->nodes[piece->node].kind == MM_NODE_OUT) return mm_call_async(stream, &call->call);
    /* Waits for the copy out and fns.sent. If either fails, fns.await is not called, because the all-reduce may never
     * have begun. */
    return mm_call_blocking(stream, &call->call, p->events[p->program->at[MM_STREAM_OUT][piece->wait[MM_STREAM_OUT]]]);
}

/* ---------------------------------------------------------------- in place */

static bool is_summed(const mm_dispatch *d) {
    return !d->rehearsed && d->execution->allreduce.groups.n > 0 && d->execution->allreduce.fns.enqueue;
}

mm_status mm_allreduce_step_begin(mm_dispatch *d, int node, mm_stream *stream) {
    const mm_allreduce_groups *all = &d->execution->allreduce.groups;
    bool updates = false;
    if (!is_summed(d)) return MM_OK;
    for (int g = 0; g < all->n; g++) updates |= all->groups[g].update == node;
    if (!updates) return MM_OK;
    MM_TRY(mm_event_record(d->summed, d->sums));
    return stream ? mm_stream_wait(stream, d->summed) : mm_event_sync(d->summed);
}

static mm_status enqueue_group(mm_dispatch *d, const mm_allreduce_group *group) {
    const mm_allreduce *x = &d->execution->allreduce;
    const mm_graph *graph = d->execution->plan->graph;
    for (int i = 0; i < group->n; i++) {
        const mm_tensor tensor = x->groups.tensors[group->first + i];
        const mm_tensor_info *info = mm_graph_tensor(graph, tensor);
        x->tensors[i] = (mm_allreduce_part){graph,       tensor, mm_dispatch_address(d, info->persistent),
                                            info->bytes, 0,      info->shared_as};
    }
    return x->fns.enqueue(x->ctx, x->tensors, group->n, d->sums);
}

mm_status mm_allreduce_step_end(mm_dispatch *d, int node) {
    const mm_allreduce_groups *all = &d->execution->allreduce.groups;
    bool waits = d->inline_compute;
    if (!is_summed(d)) return MM_OK;
    for (int g = 0; g < all->n; g++) {
        if (all->groups[g].after != node) continue;
        if (!waits) {
            MM_TRY(mm_event_record(d->ready, d->compute));
            MM_TRY(mm_stream_wait(d->sums, d->ready));
            waits = true;
        }
        MM_TRY(enqueue_group(d, &all->groups[g]));
        MM_TRY(mm_traced_sum(d->execution, d->sums));
    }
    return MM_OK;
}
