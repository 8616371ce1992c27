/* SPDX-License-Identifier: MIT */
/* For the proof in time_bound.h: persistent tensors whose homes may be in pinned memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/time/time_bound_prices.h"

/* Most ns by which the simulator's roundings shorten an operation with all its pieces. */
enum { ROUNDING = 16 };

static double copy_ns(const mm_graph_facts *facts, int64_t rate, int64_t bytes) {
    const double ns = rate > 0 ? (double)bytes / (double)rate * 1e9 + (double)facts->issue_ns - ROUNDING : 0;
    return ns > 0 ? ns : 0;
}

/* Who gets a code of the tensor on the device may keep that in place of the elements, if it gives them: a mask does
 * not. */
static double least_bytes(const mm_bound_model *m, mm_tensor t) {
    double least = (double)mm_graph_tensor(m->graph, t)->bytes;
    for (int c = 0; c < m->facts->n_codecs; c++) {
        const mm_code_facts *code = mm_facts_code(m->facts, c, t);
        const int64_t bytes = code->body_bound_bytes > 0 ? code->body_typical_bytes : code->code_bytes;
        if (mm_facts_gives_value(m->facts, m->graph, c, t) && (double)bytes < least) least = (double)bytes;
    }
    return least;
}

/* Sets per tensor whether a step reads its signs. */
static void find_signs(const mm_graph *graph, bool *signs) {
    memset(signs, 0, (size_t)mm_graph_tensors(graph) * sizeof *signs);
    for (int s = 0; s < mm_graph_steps(graph); s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        for (int u = 0; u < step->n_uses; u++) signs[step->uses[u].tensor] |= step->uses[u].form == MM_FORM_SIGN;
    }
}

static mm_bound_visitor visitor_like(const mm_bound_model *m, mm_tensor t) {
    const int64_t bytes = mm_graph_tensor(m->graph, t)->bytes;
    return (mm_bound_visitor){.bytes = least_bytes(m, t),
                              .pinned_bytes = (double)bytes,
                              .copy_ns = {copy_ns(m->facts, m->facts->out_bytes_per_s, bytes),
                                          copy_ns(m->facts, m->facts->in_bytes_per_s, bytes)}};
}

mm_status mm_bound_visitors_init(mm_bound_model *m) {
    const int n = mm_graph_tensors(m->graph);
    m->visitors = calloc((size_t)n + 1, sizeof *m->visitors);
    m->visitor_of = malloc(((size_t)n + 1) * sizeof *m->visitor_of);
    if (!m->visitors || !m->visitor_of)
        return mm_fail(MM_ERR_NOMEM, "out of memory for a bound of %s", mm_graph_name(m->graph));
    find_signs(m->graph, m->gone);
    for (mm_tensor t = 0; t < n; t++) {
        const mm_tensor_info *info = mm_graph_tensor(m->graph, t);
        const bool visits = info->persistent >= 0 && info->shared == MM_ALLREDUCE_NOT && !m->gone[t];
        m->visitor_of[t] = visits ? m->n_visitors : -1;
        if (visits) m->visitors[m->n_visitors++] = visitor_like(m, t);
        if (!visits && info->persistent >= 0) m->staying_bytes += (double)info->bytes;
    }
    return MM_OK;
}

/* What a tensor's copies take if its home is in pinned memory, and it is not on the device while c starts. */
static void price(mm_bound_visitor *v) {
    const bool carried = v->reads_first[v->used[0] ? 0 : 1]; /* an iteration reads what the one before left in it */
    const bool needed = v->used[1] ? v->reads_first[1] : carried; /* what was written before c */
    memset(v->ns, 0, sizeof v->ns);
    if (v->used[0] && carried) v->ns[MM_BOUND_IN_BEFORE] = v->copy_ns[1];
    if (v->reads_first[1]) v->ns[MM_BOUND_IN] = v->copy_ns[1];
    if (v->written[0] && needed) v->ns[MM_BOUND_OUT] = v->copy_ns[0];
    if (v->written[1] && carried) v->ns[MM_BOUND_OUT_AFTER] = v->copy_ns[0];
}

static void note(const mm_bound_model *m, int s, const mm_use *use) {
    const int at = m->visitor_of[use->tensor], side = s >= m->cut;
    if (at < 0) return;
    mm_bound_visitor *v = &m->visitors[at];
    if (!v->used[side]) v->reads_first[side] = use->access != MM_WRITE;
    v->used[side] = true;
    v->written[side] |= use->access != MM_READ;
    v->now |= s == m->cut && use->access != MM_WRITE;
}

double mm_bound_visitors_cut(mm_bound_model *m) {
    double bytes = 0;
    for (int i = 0; i < m->n_visitors; i++) {
        mm_bound_visitor *v = &m->visitors[i];
        *v = (mm_bound_visitor){
            .bytes = v->bytes, .pinned_bytes = v->pinned_bytes, .copy_ns = {v->copy_ns[0], v->copy_ns[1]}};
    }
    for (int s = 0; m->n_visitors > 0 && s < mm_graph_steps(m->graph); s++) {
        const mm_step_info *step = mm_graph_step(m->graph, s);
        for (int u = 0; u < step->n_uses; u++) note(m, s, &step->uses[u]);
    }
    for (int i = 0; i < m->n_visitors; i++) {
        price(&m->visitors[i]);
        if (m->visitors[i].now) bytes += m->visitors[i].bytes;
    }
    return bytes;
}

void mm_bound_visitors_add(const mm_bound_model *m, const mm_bound_amounts *prices, mm_bound_amounts *sum) {
    for (int i = 0; i < m->n_visitors; i++) {
        const mm_bound_visitor *v = &m->visitors[i];
        double away = v->pinned_bytes * prices->of[MM_BOUND_PINNED];
        if (v->now) continue;
        for (int r = 0; r < MM_BOUND_RESOURCES; r++) away += v->ns[r] * prices->of[r];
        if (!m->pinned || v->bytes * prices->of[MM_BOUND_DEVICE] <= away) {
            sum->of[MM_BOUND_DEVICE] += v->bytes;
            continue;
        }
        for (int r = 0; r < MM_BOUND_RESOURCES; r++) sum->of[r] += v->ns[r];
        sum->of[MM_BOUND_PINNED] += v->pinned_bytes;
    }
}
