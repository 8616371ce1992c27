/* SPDX-License-Identifier: MIT */
/* What became of the entries of the iteration that ended last, and where its plan has them; and what was refused. */
#include "mm/stash/stash_report.h"

#include <stdio.h>

#include "mm/stash/stash.h"

void mm_stash_note_refusal(mm_stash *s, const mm_stash_desc *kind, int number, int64_t needed_bytes) {
    s->refused = (mm_stash_refused){.needed_bytes = needed_bytes,
                                    .device_bytes = s->options.device_bytes,
                                    .tensor_bytes = kind->bytes,
                                    .tensor = s->recorded.lost ? -1 : number};
    snprintf(s->refused.producer, sizeof s->refused.producer, "%s", kind->producer);
}

/* The order of the iteration that ended last; NULL: it is not known. */
static const mm_learned_order *order_of(const mm_stash *s) { return s->learner.last_known ? s->learner.last : NULL; }

static const mm_plan *plan_of(const mm_stash *s) {
    const mm_learned_order *o = order_of(s);
    return o && s->was_planned ? o->plan.planned.plan : NULL;
}

static int count_gets(const mm_order *o, int entry) {
    int gets = 0;
    for (int i = 0; i < o->n_events; i++) gets += o->events[i].kind == MM_ORDER_GET && o->events[i].entry == entry;
    return gets;
}

/* What the plan does with the entry's tensor. */
static void report_moves(const mm_learned_order *o, int entry, mm_stash_line *line) {
    const mm_plan *plan = o->plan.planned.plan;
    bool encoded = false, offloaded = false, stored = false;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->tensor != o->plan.graph.tensor[entry]) continue;
        offloaded |= n->kind == MM_NODE_OUT;
        stored |= n->kind == MM_NODE_STORE;
        if (n->kind != MM_NODE_ENCODE) continue;
        mm_code_size size;
        mm_execution_code(o->execution, i, &size);
        encoded = true;
        line->codec = size.codec;
        line->code_bytes = size.bytes;
        line->lossy |= !o->plan.planned.facts->codecs[plan->segments[n->dst].codec].lossless;
    }
    line->fate = stored                 ? MM_STASH_FATE_STORED
                 : encoded && offloaded ? MM_STASH_FATE_BOTH
                 : encoded              ? MM_STASH_FATE_ENCODED
                 : offloaded            ? MM_STASH_FATE_OFFLOADED
                                        : MM_STASH_FATE_STAYED;
}

bool mm_stash_report_entry(mm_stash *s, int i, mm_stash_line *line_out) {
    const mm_learned_order *o = order_of(s);
    if (!o || i < 0 || i >= o->order.n_entries) return false;
    const mm_stash_desc *kind = &o->order.entries[i];
    mm_stash_line line = {.producer = kind->producer,
                          .dtype = kind->dtype,
                          .flags = kind->flags,
                          .bytes = kind->bytes,
                          .fate = MM_STASH_FATE_UNPLANNED,
                          .codec = "",
                          .gets = count_gets(&o->order, i)};
    if (s->learner.terms.keep_always || (s->was_planned && o->plan.kept[i]))
        line.fate = MM_STASH_FATE_KEPT;
    else if (plan_of(s))
        report_moves(o, i, &line);
    *line_out = line;
    return true;
}

/* The event of the order to which a node of the plan belongs: the event that begins its step, or, for an operation, the
 * last step before the node. */
static int event_of(const mm_learned_order *o, int node) {
    const mm_plan *plan = o->plan.planned.plan;
    while (node > 0 && plan->nodes[node].kind != MM_NODE_STEP) node--;
    int event = 0;
    while (event < o->order.n_events - 1 && o->plan.graph.begins[event] != plan->nodes[node].step) event++;
    return event;
}

bool mm_stash_report_segment(mm_stash *s, int i, mm_stash_segment *segment_out) {
    const mm_plan *plan = plan_of(s);
    int at = 0; /* those on the disk do not count */
    for (; plan && i >= 0 && at < plan->n_segments; at++) i -= plan->segments[at].memory != MM_MEM_DISK;
    if (!plan || i >= 0) return false;
    const mm_segment *segment = &plan->segments[at - 1];
    const mm_learned_order *o = order_of(s);
    mm_stash_segment told = {.entry = -1,
                             .pinned = segment->memory == MM_MEM_PINNED,
                             .code = segment->content == MM_CONTENT_CODED || segment->content == MM_CONTENT_POOL,
                             .offset = segment->offset,
                             .bytes = segment->bytes,
                             .first = event_of(o, segment->first_node),
                             .last = event_of(o, segment->last_node)};
    for (int e = 0; segment->tensor >= 0 && e < o->order.n_entries; e++)
        if (o->plan.graph.tensor[e] == segment->tensor) told.entry = e;
    *segment_out = told;
    return true;
}
