/* SPDX-License-Identifier: MIT */
#include "mm/core/check/counterexample.h"

#include <stdlib.h>

#include "mm/core/status.h"

/* Whether the rule speaks of an order that waits must give. */
static bool is_race(const mm_violation *v) {
    return v->node >= 0 && v->other >= 0 && v->other != v->node &&
           (v->rule == MM_RULE_READ_WAITS || v->rule == MM_RULE_WRITE_WAITS || v->rule == MM_RULE_HANDOVER ||
            v->rule == MM_RULE_FREED);
}

/* Whether the program is well-formed, so that it can be executed: the rules of parts 1 to 5 hold. */
static bool can_be_executed(const mm_violation *v) { return v->rule >= MM_RULE_WRITTEN; }

/* Finds the first piece of `node` and the last of `other` that touch the same bytes and of which the second need not
 * have ended when the first starts. Nodes of which one is whole touch the same bytes throughout. */
static void find_pieces(const mm_program *p, const int32_t (*clocks)[MM_STREAM_COUNT], const mm_violation *v,
                        mm_counterexample *out) {
    const int n = mm_program_pieces(p, v->node), m = mm_program_pieces(p, v->other);
    const bool by_parts = n > 1 && m > 1 && v->rule != MM_RULE_HANDOVER && v->rule != MM_RULE_FREED;
    out->at = mm_program_piece(p, v->node, v->rule == MM_RULE_FREED ? n - 1 : 0);
    out->late = mm_program_piece(p, v->other, m - 1);
    for (int i = 0; by_parts && i < n; i++)
        for (int j = m - 1; j >= 0; j--) {
            const int at = mm_program_piece(p, v->node, i), late = mm_program_piece(p, v->other, j);
            if (!mm_pieces_overlap(&p->pieces[at], &p->pieces[late])) continue;
            if (p->pieces[late].seq <= clocks[at][p->pieces[late].stream]) continue;
            out->at = at;
            out->late = late;
            return;
        }
}

/* Each piece starts as soon as it may. */
static void run_eagerly(const mm_program *p, mm_counterexample *out) {
    for (int i = 0; i < p->n; i++) {
        const mm_piece *piece = &p->pieces[i];
        int64_t start = 0;
        for (int s = 0; s < MM_STREAM_COUNT; s++) {
            const int32_t seq = s == (int)piece->stream ? piece->seq - 1 : piece->wait[s];
            if (seq >= 0 && out->periods[p->at[s][seq]].end_ns > start) start = out->periods[p->at[s][seq]].end_ns;
        }
        out->periods[i] = (mm_period){start, start + (i == out->late ? p->n + 1 : 1)};
    }
}

static void run_in_issue_order(const mm_program *p, mm_counterexample *out) {
    for (int i = 0; i < p->n; i++) out->periods[i] = (mm_period){i, i + 1};
}

mm_status mm_counterexample_make(const mm_program *p, const mm_violation *v, mm_counterexample *out) {
    *out = (mm_counterexample){.at = -1, .late = -1};
    if (!can_be_executed(v)) return MM_OK;
    out->periods = malloc(((size_t)p->n + 1) * sizeof *out->periods);
    int32_t(*clocks)[MM_STREAM_COUNT] = malloc(((size_t)p->n + 1) * sizeof *clocks);
    if (!out->periods || !clocks) {
        free(clocks);
        mm_counterexample_fini(out);
        return mm_fail(MM_ERR_NOMEM, "out of memory for an execution of %d pieces", p->n);
    }
    mm_program_clocks(p, clocks);
    if (v->node >= 0) out->at = mm_program_piece(p, v->node, 0);
    if (is_race(v)) {
        find_pieces(p, (const int32_t(*)[MM_STREAM_COUNT])clocks, v, out);
        run_eagerly(p, out);
    } else
        run_in_issue_order(p, out);
    free(clocks);
    return MM_OK;
}

void mm_counterexample_fini(mm_counterexample *example) {
    free(example->periods);
    *example = (mm_counterexample){.at = -1, .late = -1};
}
