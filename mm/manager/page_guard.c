/* SPDX-License-Identifier: MIT */
#include "mm/manager/page_guard.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/log.h"
#include "mm/core/plan/plan_touch.h"
#include "mm/manager/iteration.h"
#include "mm/manager/states.h"

enum { NAN_BYTE = 0xff }; /* each element is a NaN in f32, f16 and bf16 */

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for the self-check"); }

static bool can_protect(const mm_manager *m) { return m->device->ops->protect != NULL; }

static uint8_t *base_of(const mm_manager *m) { return mm_pool_base(m->pool); }

/* Closes the whole pages of a part of the arena, and notes that they are not open. */
static mm_status shut(mm_manager *m, int64_t begin, int64_t end, mm_permit permit) {
    mm_page_guard *g = &m->guard;
    begin = (begin + MM_PAGE_BYTES - 1) / MM_PAGE_BYTES * MM_PAGE_BYTES;
    end = end / MM_PAGE_BYTES * MM_PAGE_BYTES;
    if (begin >= end) return MM_OK;
    MM_TRY(mm_device_protect(m->device, base_of(m) + begin, end - begin, permit));
    if (g->begin == g->end) {
        g->begin = begin;
        g->end = end;
    }
    if (begin < g->begin) g->begin = begin;
    if (end > g->end) g->end = end;
    return MM_OK;
}

void mm_page_guard_open(mm_manager *m) {
    mm_page_guard *g = &m->guard;
    if (g->begin == g->end) return;
    if (mm_device_protect(m->device, base_of(m) + g->begin, g->end - g->begin, MM_PERMIT_ALL) != MM_OK)
        mm_log_send(&m->options.log, MM_LOG_ERROR, "self-check: %s", mm_last_error());
    g->begin = g->end = 0;
}

/* ---------------------------------------------------------------- iterations */

/* The end of what lies below managed tensors: persistent tensors, and what codecs read. */
static int64_t managed_from(const mm_manager *m) { return m->now.planned->plan->base_bytes; }

static bool has_dynamic(const mm_plan *plan) {
    for (int i = 0; i < plan->n_segments; i++)
        if (plan->segments[i].dynamic) return true;
    return false;
}

/* Bytes that a node names: for each use a segment and a code, and the operation's own. */
static size_t most_touches(const mm_program *program) {
    const mm_plan *plan = program->plan;
    size_t n = (size_t)plan->n_bindings * 2 + 1;
    for (int i = 0; i < plan->n_nodes; i++) n += 6;
    return n;
}

mm_status mm_page_guard_begin(mm_manager *m) {
    mm_page_guard *g = &m->guard;
    if (!m->options.self_check) return MM_OK;
    mm_page_guard_open(m);
    const mm_program *program = m->now.planned->program;
    free(g->clocks);
    free(g->used);
    g->program = program;
    g->node = -1;
    g->clocks = malloc(((size_t)program->n + 1) * sizeof *g->clocks);
    g->used = malloc((most_touches(program) + 2 * (size_t)mm_graph_tensors(program->plan->graph)) * sizeof *g->used);
    if (!g->clocks || !g->used) return no_memory();
    mm_program_clocks(program, g->clocks);
    g->guards_steps = can_protect(m) && !has_dynamic(program->plan);
    return MM_OK;
}

/* Poisons what managed tensors have left, on a device that cannot close it. Touched bytes could not be counted then. */
static mm_status poison(mm_manager *m) {
    const int64_t from = managed_from(m), end = m->now.planned->plan->extent_bytes;
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    if (m->options.measure_touched || end <= from) return MM_OK;
    MM_TRY(mm_fill_async(stream, base_of(m) + from, NAN_BYTE, end - from));
    const mm_status status = mm_stream_sync(stream);
    if (status != MM_OK) mm_stream_reset(stream);
    return status;
}

mm_status mm_page_guard_end(mm_manager *m, bool intact) {
    if (!m->options.self_check || !m->guard.program) return MM_OK;
    mm_page_guard_open(m);
    m->guard.node = -1;
    if (can_protect(m)) return shut(m, managed_from(m), m->there_bytes, MM_PERMIT_NONE);
    return intact ? poison(m) : MM_OK;
}

void mm_page_guard_fini(mm_manager *m) {
    mm_fault_watch_stop(m->guard.watch);
    mm_page_guard_open(m);
    free(m->guard.clocks);
    free(m->guard.used);
}

/* ---------------------------------------------------------------- steps */

/* Adds the bytes that a node uses; of a step, not those of persistent tensors that it only reads. */
static size_t add_used(const mm_plan *plan, const mm_node *node, mm_range *used, size_t n) {
    mm_touch touch;
    for (int i = 0; mm_node_next_touch(plan, node, &i, &touch);) {
        const mm_segment *s = &plan->segments[touch.segment];
        const bool reads = mm_node_runs_step(node) && touch.access == MM_READ;
        if (s->memory != MM_MEM_DEVICE || (reads && s->category == MM_CAT_PERSISTENT)) continue;
        used[n++] = (mm_range){s->offset, s->offset + s->bytes};
    }
    return n;
}

/* Whether an operation may run while a step does: it has been queued, and is not known to have ended. */
static bool in_flight(const mm_page_guard *g, int operation, int step_piece) {
    const mm_node *n = &g->program->plan->nodes[operation];
    if (mm_node_runs_step(n)) return false;
    return g->program->last[operation] > g->clocks[step_piece][n->stream];
}

static size_t find_used(const mm_page_guard *g, int node) {
    const mm_plan *plan = g->program->plan;
    const int piece = mm_program_piece(g->program, node, 0);
    size_t n = add_used(plan, &plan->nodes[node], g->used, 0);
    for (int i = 0; i < node; i++)
        if (in_flight(g, i, piece)) n = add_used(plan, &plan->nodes[i], g->used, n);
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) { /* reduced in place beside the steps */
        const mm_tensor_info *info = mm_graph_tensor(plan->graph, t);
        if (info->shared == MM_ALLREDUCE_NOT || info->persistent < 0) continue;
        const mm_segment *s = &plan->segments[info->persistent];
        g->used[n++] = (mm_range){s->offset, s->offset + s->bytes};
    }
    return n;
}

/* Closes what lies in [begin, end) between the ranges. */
static mm_status shut_between(mm_manager *m, const mm_coverage *used, int64_t begin, int64_t end, mm_permit permit) {
    for (size_t i = 0; i < used->n && begin < end; i++) {
        const mm_range *r = &used->ranges[i];
        MM_TRY(shut(m, begin, r->begin < end ? r->begin : end, permit));
        if (r->end > begin) begin = r->end;
    }
    return shut(m, begin, end, permit);
}

mm_status mm_page_guard_step_begin(mm_manager *m, int node) {
    mm_page_guard *g = &m->guard;
    mm_coverage used = {0};
    if (!m->options.self_check || !m->now.way->runs || !g->guards_steps) return MM_OK;
    g->node = node;
    mm_status status = mm_coverage_add(&used, g->used, find_used(g, node));
    if (status == MM_OK) status = shut_between(m, &used, 0, m->persistents.bytes, MM_PERMIT_READ);
    if (status == MM_OK) status = shut_between(m, &used, managed_from(m), m->there_bytes, MM_PERMIT_NONE);
    mm_coverage_fini(&used);
    if (status != MM_OK) mm_page_guard_open(m);
    return status;
}

void mm_page_guard_step_end(mm_manager *m) {
    mm_page_guard_open(m);
    m->guard.node = -1;
}

/* ---------------------------------------------------------------- the name of a fault */

/* snprintf may not be called in a signal handler. */
static void append(char *text, size_t capacity, const char *more) {
    size_t length = strlen(text);
    while (*more && length + 1 < capacity) text[length++] = *more++;
    text[length] = '\0';
}

/* The tensor that lay at the place last before the node, or, if there was none, that will. */
static const mm_segment *holder_of(const mm_plan *plan, int64_t at, int node) {
    const mm_segment *found = NULL;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (s->memory != MM_MEM_DEVICE || s->dynamic || s->first_node < 0 || at < s->offset ||
            at >= s->offset + s->bytes)
            continue;
        const bool was = s->first_node <= node, found_was = found && found->first_node <= node;
        if (!found || (was && (!found_was || s->first_node > found->first_node)) ||
            (!was && !found_was && s->first_node < found->first_node))
            found = s;
    }
    return found;
}

static void append_tensor(const mm_manager *m, int64_t at, int node, char *text, size_t capacity) {
    const mm_plan *plan = m->guard.program->plan;
    const mm_persistent *entry = NULL;
    for (int i = 0; i < m->persistents.n; i++)
        if (m->persistents.entries[i].place.memory == MM_MEM_DEVICE && at >= m->persistents.entries[i].place.offset)
            entry = &m->persistents.entries[i];
    const mm_segment *s = at < m->persistents.bytes ? NULL : holder_of(plan, at, node);
    if (at < m->persistents.bytes && entry) {
        append(text, capacity, "persistent tensor ");
        append(text, capacity, entry->name);
    } else if (s && s->tensor >= 0) {
        append(text, capacity, "tensor ");
        append(text, capacity, mm_graph_tensor(plan->graph, s->tensor)->name);
    } else
        append(text, capacity, s ? "a workspace" : "memory of no tensor");
}

bool mm_page_guard_explain(const mm_manager *m, const void *address, char *text, size_t capacity) {
    const mm_page_guard *g = &m->guard;
    const int64_t at = (const uint8_t *)address - base_of(m);
    if (!g->program || at < g->begin || at >= g->end) return false;
    const mm_plan *plan = g->program->plan;
    const bool steps = g->node >= 0, writes = at < m->persistents.bytes;
    const bool again = steps && plan->nodes[g->node].kind == MM_NODE_RECOMPUTE;
    text[0] = '\0';
    append(text, capacity, "mm: self-check: ");
    if (steps) {
        const mm_step_info *step = mm_graph_step(plan->graph, plan->nodes[g->node].step);
        append(text, capacity, mm_graph_layer(plan->graph, step->layer)->name);
        append(text, capacity, " ");
        append(text, capacity, mm_phase_name(step->phase));
        if (again) append(text, capacity, ", computed again,");
    } else {
        append(text, capacity, "between iterations, after one of ");
        append(text, capacity, mm_graph_name(plan->graph));
        append(text, capacity, ", the program");
    }
    append(text, capacity, writes ? " writes " : " reads or writes ");
    append_tensor(m, at, steps ? g->node : plan->n_nodes, text, capacity);
    append(text, capacity,
           !steps ? ", which ended with the iteration; declare it MM_PERSISTENT (mm_loop: MM_TOUCH_RESULT)"
           : writes && again
               ? ", which it may not (mm_recompute_fn); leave it as it is when computed again, or declare "
                 "the layer not repeatable (mm_graph_set_properties; mm_loop: no `run`)"
           : writes ? ", which it does not declare to write; declare MM_MODIFY or MM_WRITE"
                    : ", or what lies beside one of its own; declare the use, and get the address in this step");
    return true;
}
