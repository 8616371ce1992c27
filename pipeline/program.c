/* A plan made ready to run: events for the nodes that somebody waits for, and where to find nodes by step and seq. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/internal.h"

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for a program"); }

static mm_status index_nodes(mm_program *p) {
    const mm_plan *plan = p->plan;
    p->node_of_step = malloc((size_t)mm_graph_steps(plan->graph) * sizeof *p->node_of_step);
    if (!p->node_of_step) return no_memory();
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        p->node_of_seq[s] = malloc(((size_t)plan->stream_nodes[s] + 1) * sizeof **p->node_of_seq);
        if (!p->node_of_seq[s]) return no_memory();
    }
    for (int i = 0; i < plan->n_nodes; i++) {
        p->node_of_seq[plan->nodes[i].stream][plan->nodes[i].seq] = i;
        if (plan->nodes[i].kind == MM_NODE_STEP) p->node_of_step[plan->nodes[i].step] = i;
    }
    return MM_OK;
}

static void note_dynamic(void *ctx, int segment) {
    mm_program *p = ctx;
    p->has_unplanned |= p->plan->segments[segment].dynamic;
}

static mm_status need_event(mm_program *p, int node) {
    if (p->events[node]) return MM_OK;
    return mm_event_create(p->dispatch->config.device, &p->events[node]);
}

/* Events for what is waited for; for every node where segments are placed at run time, because frees wait too, or where
 * times are measured. */
static mm_status create_events(mm_program *p) {
    const mm_plan *plan = p->plan;
    p->events = calloc((size_t)plan->n_nodes, sizeof(mm_event *));
    if (!p->events) return no_memory();
    for (int i = 0; i < plan->n_nodes; i++) mm_node_segments(plan, i, note_dynamic, p);
    for (int i = 0; i < plan->n_nodes; i++) {
        if (p->has_unplanned || p->dispatch->config.measure_times) MM_TRY(need_event(p, i));
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            if (plan->nodes[i].wait[s] >= 0) MM_TRY(need_event(p, p->node_of_seq[s][plan->nodes[i].wait[s]]));
    }
    return MM_OK;
}

mm_status mm_program_create(mm_dispatch *dispatch, const mm_plan *plan, const mm_facts *facts, mm_codec *const *codecs,
                            mm_program **program_out) {
    mm_program *p = calloc(1, sizeof *p);
    if (!p) return no_memory();
    p->dispatch = dispatch;
    p->plan = plan;
    p->facts = facts;
    p->codecs = codecs;
    mm_status status = index_nodes(p);
    if (status == MM_OK) status = create_events(p);
    if (status == MM_OK && dispatch->config.measure_times) {
        p->total_ns = calloc((size_t)plan->n_nodes + 1, sizeof *p->total_ns);
        if (!p->total_ns) status = no_memory();
    }
    if (status == MM_OK) status = mm_unplanned_init(p);
    if (status == MM_OK) status = mm_self_check_init(p);
    if (status != MM_OK) {
        mm_program_destroy(p);
        return status;
    }
    *program_out = p;
    return MM_OK;
}

void mm_program_destroy(mm_program *p) {
    if (!p) return;
    mm_program_unrecord(p);
    mm_self_check_fini(p);
    mm_unplanned_fini(p);
    for (int i = 0; p->events && i < p->plan->n_nodes; i++) mm_event_destroy(p->events[i]);
    free(p->events);
    free(p->total_ns);
    for (int s = 0; s < MM_STREAM_COUNT; s++) free(p->node_of_seq[s]);
    free(p->node_of_step);
    free(p);
}

int mm_program_node(const mm_program *p, int step) { return p->node_of_step[step]; }

/* A node starts when its stream is free and what it waits for has ended. */
static int64_t started_ns(const mm_program *p, const mm_node *node) {
    int64_t start = 0;
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int32_t awaited = s == (int)node->stream ? node->seq - 1 : node->wait[s];
        if (awaited < 0) continue;
        int64_t end = mm_event_ns(p->events[p->node_of_seq[s][awaited]]);
        if (end > start) start = end;
    }
    return start;
}

/* The first iteration warms caches up, and its first step has no beginning. */
void mm_program_measure(mm_program *p) {
    if (!p->total_ns || p->timed++ == 0) return;
    for (int i = 0; i < p->plan->n_nodes; i++) {
        int64_t start = started_ns(p, &p->plan->nodes[i]), end = mm_event_ns(p->events[i]);
        if (start > 0 && end > start) p->total_ns[i] += end - start;
    }
}

int64_t mm_program_ns(const mm_program *p, int node) {
    return p->total_ns && p->timed > 1 ? p->total_ns[node] / (p->timed - 1) : 0;
}
