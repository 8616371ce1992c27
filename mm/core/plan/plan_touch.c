/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan_touch.h"

#include <stddef.h>

#include "mm/core/plan/plan_codes.h"

/* The code that a node encodes or decodes; -1: none. */
static int32_t code_of(const mm_node *n) {
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    return cost == MM_COST_ENCODE ? n->dst : cost == MM_COST_DECODE ? n->src : -1;
}

/* The next of a step's uses that lie in segments, and then of the codes that it writes itself. */
static bool next_use(const mm_plan *plan, const mm_node *n, const mm_step_info *step, int *i, mm_touch *touch_out) {
    const int uses = step->n_uses;
    for (; *i < uses; ++*i) {
        const int use = *i, segment = plan->bindings[n->first_binding + use];
        if (segment < 0) continue;
        *touch_out = (mm_touch){.segment = segment, .use = use, .access = mm_node_access(n, &step->uses[use], use)};
        ++*i;
        return true;
    }
    if (n->first_code < 0 && *i < 2 * uses) *i = 2 * uses;
    for (; *i < 2 * uses; ++*i) {
        const int segment = mm_node_code(plan, n, *i - uses);
        if (segment < 0) continue;
        *touch_out = (mm_touch){.segment = segment, .use = -1, .access = MM_WRITE};
        ++*i;
        return true;
    }
    return false;
}

enum { SRC, DST, WORK, STAGE, POOL, SPILL, OWN };
_Static_assert((int)OWN == (int)MM_TOUCH_OWN, "a row has room for what is not a step's");

/* The segments that a node names itself, beside those of its step's uses. */
static void list_own(const mm_plan *plan, const mm_node *n, int32_t own[OWN]) {
    const int32_t code = code_of(n);
    own[SRC] = n->src;
    own[DST] = n->dst;
    own[WORK] = n->work;
    own[STAGE] = n->stage;
    own[POOL] = code < 0 ? -1 : plan->segments[code].pool;
    own[SPILL] = own[POOL] < 0 ? -1 : plan->segments[own[POOL]].spill;
}

void mm_node_touch_rows(const mm_plan *plan, const mm_node *n, mm_touch_rows *rows_out) {
    const int uses = mm_node_runs_step(n) ? mm_graph_step(plan->graph, n->step)->n_uses : 0;
    const int codes = n->first_code >= 0 ? uses : 0;
    list_own(plan, n, rows_out->own);
    rows_out->row[0] = (mm_touch_row){uses > 0 ? plan->bindings + n->first_binding : NULL, uses};
    rows_out->row[1] = (mm_touch_row){codes > 0 ? plan->bindings + n->first_code : NULL, codes};
    rows_out->row[2] = (mm_touch_row){rows_out->own, OWN};
}

bool mm_node_next_touch(const mm_plan *plan, const mm_node *n, int *i, mm_touch *touch_out) {
    const mm_step_info *step = mm_node_runs_step(n) ? mm_graph_step(plan->graph, n->step) : NULL;
    const int uses = step ? step->n_uses : 0;
    int32_t own_segments[OWN];
    if (step && *i < 2 * uses && next_use(plan, n, step, i, touch_out)) return true;
    list_own(plan, n, own_segments);
    const bool encodes = mm_node_table[n->kind].cost == MM_COST_ENCODE;
    for (; *i < 2 * uses + OWN; ++*i) {
        const int own = *i - 2 * uses;
        if (own_segments[own] < 0) continue;
        const bool reads = own == SRC || (own >= POOL && !encodes);
        *touch_out = (mm_touch){.segment = own_segments[own],
                                .use = -1,
                                .access = reads ? MM_READ : MM_WRITE,
                                .work = own == WORK || own == STAGE};
        ++*i;
        return true;
    }
    return false;
}
