/* SPDX-License-Identifier: MIT */
/* Limits, sums, and anything anywhere. */

#include "tests/core/plan_mutate_parts.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/random_graph.h"

static bool shrink_device(mutant *m) {
    m->limits.device_bytes = m->plan->peak_bytes - 1 - mutant_below(m, 1000);
    return true;
}

static bool shrink_disk(mutant *m) {
    m->limits.disk_bytes = m->plan->disk_bytes - 1;
    return m->plan->disk_bytes > 0;
}

static bool shrink_pinned(mutant *m) {
    m->limits.pinned_bytes = m->plan->pinned_bytes - 1;
    return true;
}

static bool raise_base(mutant *m) {
    m->limits.base_bytes += MM_ALIGN;
    return true;
}

/* The budget and a wait: the plan's fault must win. */
static bool shrink_and_drop(mutant *m) {
    int32_t *wait = mutant_find_wait(m);
    if (wait) *wait = -1;
    return shrink_device(m) && wait != NULL;
}

static bool wrong_sum(mutant *m) {
    int64_t *sums[] = {&m->plan->extent_bytes, &m->plan->peak_bytes, &m->plan->pinned_bytes, &m->plan->external_bytes,
                       &m->plan->disk_bytes};
    *sums[mutant_below(m, 4)] += mutant_below(m, 2) ? 1 : -1;
    m->keep_sums = true;
    return true;
}

static bool wrong_life(mutant *m) {
    mm_segment *s = mutant_segment(m);
    if (!s) return false;
    int32_t *ends[] = {&s->first_node, &s->last_node, &s->live_last};
    *ends[mutant_below(m, 3)] += mutant_below(m, 5) - 2;
    m->keep_sums = true;
    return true;
}

/* With live ranges that go on to the end, and some that do not. */
static bool keep_all(mutant *m) {
    m->plan->keeps_all = true;
    if (!plan_walkable(m->plan) || mm_plan_finish(m->plan) != MM_OK) return false;
    return mutant_below(m, 2) ? wrong_life(m) : true;
}

/* Any 32 bits anywhere: nothing may be trusted. */
static bool garbage(mutant *m) {
    int32_t value = (int32_t)random_next(&m->random);
    if (mutant_below(m, 2)) value = mutant_below(m, 40) - 5;
    mm_node *n = mutant_node(m);
    mm_segment *s = mutant_segment(m);
    if (!s) return false;
    int32_t *fields[] = {&n->seq,           &n->wait[mutant_below(m, MM_STREAM_COUNT)],
                         &n->step,          &n->variant,
                         &n->first_binding, &n->tensor,
                         &n->src,           &n->dst,
                         &n->work,          &n->stage,
                         &n->throttle,      &s->tensor,
                         &s->codec,         &s->pool,
                         &s->spill,         &m->plan->alias[mutant_below(m, mm_graph_tensors(m->plan->graph))]};
    int which = mutant_below(m, (int)(sizeof fields / sizeof *fields) + 3);
    int64_t wide = (int64_t)random_next(&m->random);
    if (which < (int)(sizeof fields / sizeof *fields))
        *fields[which] = value;
    else if (which % 3 == 0)
        s->offset = wide / MM_ALIGN * MM_ALIGN;
    else if (which % 3 == 1)
        s->bytes = wide;
    else
        *(mutant_below(m, 2) ? &m->plan->heap_bytes : &m->plan->heap_code_bytes) = wide;
    return true;
}

const mutation mutations_of_limits[] = {
    {"shrink_device", shrink_device},
    {"shrink_pinned", shrink_pinned},
    {"shrink_disk", shrink_disk},
    {"raise_base", raise_base},
    {"shrink_and_drop", shrink_and_drop},
    {"wrong_sum", wrong_sum},
    {"wrong_life", wrong_life},
    {"keep_all", keep_all},
    {"garbage", garbage},
    {NULL, NULL},
};
