/* SPDX-License-Identifier: MIT */
/* What actions on maps cost, by the facts' times, and when copies begin and end. */
#include <stdlib.h>

#include "mm/core/status.h"
#include "policies/auto/auto_state.h"

static const mm_variant *variant_of(const mm_auto *a, int step) {
    return &a->facts->variants[a->facts->variant_first[step]];
}

static int64_t copy_ns(const mm_auto *a, int64_t rate, int64_t bytes) {
    return a->facts->issue_ns + (rate > 0 ? (int64_t)((double)bytes / (double)rate * 1e9) : 0);
}

/* Time of the steps that make a tensor again before step `when`, each counted once. Tensors that step `when` or a later
 * one uses are still there. met: per step, the number of the last search that reached it. */
static int64_t again_ns(const mm_auto *a, mm_tensor tensor, int when, int *met, int search) {
    const int producer = mm_schedule_producer(a->graph, tensor);
    if (producer < 0 || met[producer] == search) return 0;
    met[producer] = search;
    const mm_step_info *step = mm_graph_step(a->graph, producer);
    int64_t ns = variant_of(a, producer)->ns;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor_info *used = mm_graph_tensor(a->graph, step->uses[u].tensor);
        if (used->ownership != MM_MANAGED || step->uses[u].access != MM_READ || used->last_use >= when) continue;
        ns += again_ns(a, step->uses[u].tensor, when, met, search);
    }
    return ns;
}

/* The same for each backward step that reads the tensor. */
static int64_t each_ns(const mm_auto *a, mm_tensor tensor, int *met, int *search) {
    const mm_tensor_info *info = mm_graph_tensor(a->graph, tensor);
    int64_t ns = 0;
    for (int i = info->first_backward; i <= info->last_use; i++) {
        const mm_step_info *step = mm_graph_step(a->graph, i);
        for (int u = 0; u < step->n_uses; u++)
            if (step->uses[u].tensor == tensor) {
                ns += again_ns(a, tensor, i, met, ++*search);
                break;
            }
    }
    return ns;
}

bool mm_auto_makes_again(const mm_auto *a, int rule) {
    return rule >= 0 && a->menu->rules[rule].action == MM_ACTION_RECOMPUTE;
}

bool mm_auto_may(const mm_auto *a, const mm_auto_weights *w, const mm_auto_map *m, int rule) {
    if (!(m->serves >> rule & 1)) return false;
    return !mm_auto_makes_again(a, rule) || a->now.nesting < 0 || w->deep ||
           mm_nesting_levels(&a->survey->nesting, a->now.nesting)[m->tensor] > 0;
}

/* Price of a ns of a codec: what steps that run beside the codec lose, averaged over both kinds of work, plus a
 * twentieth. Chosen. */
static double codec_price(const mm_graph_facts *f, mm_work codec) {
    const double permille =
        (mm_facts_contention(f, MM_WORK_EXPENSIVE, codec) + mm_facts_contention(f, MM_WORK_CHEAP, codec)) / 2.0;
    return permille / (1000 + permille) + 0.05;
}

static mm_auto_price_of price_of(const mm_auto *a, const mm_auto_map *m, int rule) {
    const mm_rule *r = &a->menu->rules[rule];
    const mm_graph_facts *f = a->facts;
    mm_auto_price_of price = {0};
    int64_t moved = m->bytes;
    if (r->action == MM_ACTION_RECOMPUTE) {
        price.ns = (double)(r->lean ? m->each_ns : m->again_ns);
        return price;
    }
    if (*r->codec) {
        const mm_code_facts *code = mm_facts_code(f, mm_facts_codec(f, r->codec), m->tensor);
        price.ns = (double)code->encode_ns * codec_price(f, MM_WORK_ENCODE) +
                   (r->mask ? 0 : (double)code->decode_ns * codec_price(f, MM_WORK_DECODE));
        price.leave_ns = (double)code->encode_ns;
        if (r->action == MM_ACTION_CODE) price.left_bytes = mm_align(code->code_bytes) + code->body_reserve_bytes;
        moved = code->code_bytes + code->body_typical_bytes;
    }
    if (r->action == MM_ACTION_CODE) return price;
    price.leave_ns += (double)copy_ns(a, f->out_bytes_per_s, m->bytes);
    price.link_ns = (double)(copy_ns(a, f->out_bytes_per_s, moved) + copy_ns(a, f->in_bytes_per_s, moved));
    if (price.link_ns > (double)m->gap_ns) price.exposed_ns = price.link_ns - (double)m->gap_ns;
    return price;
}

double mm_auto_cost(const mm_auto *a, const mm_auto_weights *w, const mm_auto_map *m, int rule) {
    const mm_auto_price_of *price = mm_auto_price_at(a, m, rule);
    return price->ns + price->link_ns * w->link + price->exposed_ns;
}

/* Finds the maps that rule `r` serves, if all tensors are given it (`rule`); adds maps that are new. */
static mm_status probe(mm_auto *a, const int8_t *rule, int r) {
    const mm_assignment assigned = {.rule = rule};
    const mm_selection selection = {.assigned = &assigned};
    mm_schedule s;
    mm_maps maps;
    MM_TRY(mm_schedule_init(&s, a->graph, a->facts, a->limits, &a->menu->sharing));
    mm_status status = mm_maps_init(&maps, a->survey, &s, a->menu, &selection);
    for (int t = 0; status == MM_OK && t < mm_graph_tensors(a->graph); t++) {
        if (maps.map_of[t] < 0 || maps.maps[maps.map_of[t]].along) continue;
        const mm_map *m = &maps.maps[maps.map_of[t]];
        if (a->map_of[t] < 0) {
            a->map_of[t] = a->n_maps++;
            a->maps[a->map_of[t]] = (mm_auto_map){.tensor = t,
                                                  .bytes = mm_align(mm_graph_tensor(a->graph, t)->bytes),
                                                  .last_forward = m->last_forward,
                                                  .first_backward = m->first_backward};
        }
        a->maps[a->map_of[t]].serves |= UINT64_C(1) << r;
    }
    if (status == MM_OK) mm_maps_fini(&maps);
    mm_schedule_fini(&s);
    return status;
}

static mm_status probe_all(mm_auto *a) {
    const int n = mm_graph_tensors(a->graph);
    int8_t *rule = malloc((size_t)n + 1);
    if (!rule) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    mm_status status = MM_OK;
    for (int r = 0; r < a->n_rules && status == MM_OK; r++) {
        for (int t = 0; t < n; t++) rule[t] = (int8_t)r;
        status = probe(a, rule, r);
    }
    free(rule);
    return status;
}

/* Sorts the maps' indices by their last forward (`last`) or first backward step. Counting sort, since steps are few. */
static mm_status order(const mm_auto *a, bool last, int *out) {
    const int steps = mm_graph_steps(a->graph);
    int *at = calloc((size_t)steps + 2, sizeof *at);
    if (!at) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    for (int i = 0; i < a->n_maps; i++) at[(last ? a->maps[i].last_forward : a->maps[i].first_backward) + 1]++;
    for (int i = 0; i < steps; i++) at[i + 1] += at[i];
    for (int i = 0; i < a->n_maps; i++) out[at[last ? a->maps[i].last_forward : a->maps[i].first_backward]++] = i;
    free(at);
    return MM_OK;
}

double mm_auto_both_ways_ns(const mm_auto *a, int64_t bytes) {
    return (double)(copy_ns(a, a->facts->out_bytes_per_s, bytes) + copy_ns(a, a->facts->in_bytes_per_s, bytes));
}

static void list_gradients(mm_auto *a) {
    for (int t = 0; t < mm_graph_tensors(a->graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(a->graph, t);
        const bool leaves = a->lean >= 0 && info->kind == MM_GRADIENT_MAP && info->ownership == MM_MANAGED;
        a->touch_of[t] = leaves ? a->n_maps + a->n_gradients : a->map_of[t];
        if (leaves) a->gradients[a->n_gradients++] = t;
    }
}

mm_status mm_auto_price(mm_auto *a) {
    const int steps = mm_graph_steps(a->graph);
    int search = 0;
    for (int i = 0; i < steps; i++) a->start_ns[i + 1] = a->start_ns[i] + variant_of(a, i)->ns;
    MM_TRY(probe_all(a));
    list_gradients(a);
    for (int i = 0; i < a->n_maps; i++) {
        mm_auto_map *m = &a->maps[i];
        m->again_ns = again_ns(a, m->tensor, m->first_backward, a->node_of, ++search);
        m->each_ns = each_ns(a, m->tensor, a->node_of, &search);
        m->gap_ns = a->start_ns[m->first_backward] - a->start_ns[m->last_forward + 1];
    }
    a->prices = calloc((size_t)a->n_maps * (size_t)a->n_rules + 1, sizeof *a->prices);
    if (!a->prices) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    for (int i = 0; i < a->n_maps; i++)
        for (int r = 0; r < a->n_rules; r++)
            if (a->maps[i].serves >> r & 1) a->prices[i * a->n_rules + r] = price_of(a, &a->maps[i], r);
    MM_TRY(order(a, true, a->by_last));
    return order(a, false, a->by_need);
}

/* ---------------------------------------------------------------- when copies begin and end */

static bool moves(const mm_auto *a, int rule) {
    return rule >= 0 &&
           (a->menu->rules[rule].action == MM_ACTION_SWAP || a->menu->rules[rule].action == MM_ACTION_CODE_SWAP);
}

/* The last step that begins at `ns` or before. */
static int step_at(const int64_t *start_ns, int steps, int64_t ns) {
    int low = 0, high = steps - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (start_ns[middle] <= ns)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void mm_auto_time(const mm_auto *a, mm_auto_choice *c) {
    const int steps = mm_graph_steps(a->graph);
    int64_t *start = a->choice_ns, more = 0;
    for (int i = 0; i <= steps; i++) start[i] = 0;
    for (int i = 0; i < a->n_maps; i++)
        if (mm_auto_makes_again(a, c->rule[a->maps[i].tensor]))
            start[a->maps[i].first_backward] +=
                c->rule[a->maps[i].tensor] == a->anew ? a->maps[i].each_ns : a->maps[i].again_ns;
    for (int i = 0; i <= steps; i++) {
        more += start[i];
        start[i] = a->start_ns[i] + more;
    }
    int64_t end = 0, encoded = 0;
    for (int i = 0; i < a->n_maps; i++) {
        const mm_auto_map *m = &a->maps[a->by_last[i]];
        const int rule = (int)c->rule[m->tensor];
        int64_t ns = start[m->last_forward + 1];
        c->gone[m->tensor] = 0;
        if (rule < 0 || mm_auto_makes_again(a, rule)) continue;
        if (*a->menu->rules[rule].codec) {
            const int codec = mm_facts_codec(a->facts, a->menu->rules[rule].codec);
            ns = encoded = (encoded > ns ? encoded : ns) + mm_facts_code(a->facts, codec, m->tensor)->encode_ns;
        }
        if (moves(a, rule))
            ns = end = (end > ns ? end : ns) + copy_ns(a, a->facts->out_bytes_per_s, m->bytes) * c->lead / 1000;
        const int step = step_at(start, steps, ns) + 1;
        if (!(c->eager[m->tensor] & MM_AUTO_EAGER_OUT))
            c->gone[m->tensor] = step < m->first_backward ? step : m->first_backward - 1;
    }
    int64_t begin = INT64_MAX;
    int first = 0; /* the first backward step */
    while (first < steps && mm_graph_step(a->graph, first)->phase != MM_BACKWARD) first++;
    for (int i = a->n_maps - 1; i >= 0; i--) {
        const mm_auto_map *m = &a->maps[a->by_need[i]];
        c->fetch[m->tensor] = m->first_backward;
        if (!moves(a, c->rule[m->tensor])) continue;
        if (begin > start[m->first_backward]) begin = start[m->first_backward];
        begin -= copy_ns(a, a->facts->in_bytes_per_s, m->bytes) * c->lead / 1000;
        int step = step_at(start, steps, begin);
        if (step < first) step = first;
        if (!(c->eager[m->tensor] & MM_AUTO_EAGER_IN) && step < m->first_backward) c->fetch[m->tensor] = step;
    }
}
