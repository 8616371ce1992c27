/* SPDX-License-Identifier: MIT */
/* Relieves the nodes at which a draft needs most, and keeps maps again that fit. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/auto/auto_state.h"

static int peak_of(const mm_auto *a) {
    int at = 0;
    for (int i = 1; i < a->draft.plan->n_nodes; i++)
        if (a->live[i] > a->live[at]) at = i;
    return at;
}

static void add_live(mm_auto *a, int first, int last, int64_t bytes) {
    if (first < 0) first = 0;
    if (last >= a->draft.plan->n_nodes) last = a->draft.plan->n_nodes - 1;
    for (int i = first; i <= last; i++) a->live[i] += bytes;
}

static bool is_moved(const mm_auto *a, int rule) {
    return rule >= 0 &&
           (a->menu->rules[rule].action == MM_ACTION_SWAP || a->menu->rules[rule].action == MM_ACTION_CODE_SWAP);
}

/* A change that frees bytes from node `first` to `last`. */
typedef struct change {
    int map, rule, eager, brief, first, last; /* map: or n_maps plus the index of a gradient map */
    int64_t bytes;
    double price; /* ns per byte */
} change;

static void offer(change *best, change c, int64_t wanted, double ns) {
    if (c.bytes <= 0) return;
    c.price = ns / (double)(c.bytes < wanted ? c.bytes : wanted);
    if (best->map < 0 || c.price < best->price) *best = c;
}

/* Whether a map is used both before and after node p of the backward pass. */
static bool spans(const mm_auto *a, int map, int p) {
    const int first = a->touch_first[map], end = a->touch_first[map + 1];
    return first < end && a->touches[first].node < p && p < a->touches[end - 1].node;
}

/* Offers a change that takes a map away where it waits, at node p, for its next use in the backward pass. */
static void offer_while_waiting(const mm_auto *a, change c, int p, int64_t wanted, double ns, change *best) {
    for (int k = a->touch_first[c.map] + 1; k < a->touch_first[c.map + 1]; k++) {
        const mm_auto_touch *last = &a->touches[k - 1], *next = &a->touches[k];
        if (last->segment != next->segment || last->node >= p || p >= next->node) continue;
        c.first = last->node + 1;
        c.last = next->node - 1;
        offer(best, c, wanted, ns);
    }
}

/* Offers to drop a map that is made again after each use. */
static void offer_anew(const mm_auto *a, int map, int p, int64_t wanted, change *best) {
    const mm_auto_map *m = &a->maps[map];
    if (!spans(a, map, p) || a->anew < 0 || !(m->serves >> a->anew & 1) || (m->barred >> a->anew & 1)) return;
    const change c = {.map = map, .rule = a->anew, .bytes = m->bytes};
    offer_while_waiting(a, c, p, wanted, (double)m->again_ns, best);
}

/* Offers that a lean-swapped map leaves after each use. It stays in pinned memory, so it is copied back only. */
static void offer_brief(const mm_auto *a, int map, int p, int64_t wanted, change *best) {
    const mm_auto_map *m = &a->maps[map];
    if (!spans(a, map, p) || a->now.brief[m->tensor]) return;
    const change c = {.map = map, .rule = a->lean, .eager = a->now.eager[m->tensor], .brief = true, .bytes = m->bytes};
    offer_while_waiting(a, c, p, wanted, mm_auto_both_ways_ns(a, m->bytes) / 2, best);
}

static void offer_gradient(const mm_auto *a, int gradient, int p, int64_t wanted, change *best) {
    const mm_tensor t = a->gradients[gradient];
    if (!spans(a, a->n_maps + gradient, p)) return;
    const bool lean = a->now.rule[t] == a->lean;
    if (lean && a->now.brief[t]) return;
    const change c = {.map = a->n_maps + gradient,
                      .rule = a->lean,
                      .brief = lean,
                      .bytes = mm_align(mm_graph_tensor(a->graph, t)->bytes)};
    offer_while_waiting(a, c, p, wanted, mm_auto_both_ways_ns(a, c.bytes), best);
}

/* The cheapest change that frees bytes at node p. */
static change find_change(const mm_auto *a, const mm_auto_weights *w, int p) {
    const int64_t wanted = w->capped ? a->live[p] - a->target : INT64_MAX; /* freeing more is of no use at this node */
    change best = {.map = -1};
    for (int i = 0; i < a->n_maps; i++) {
        const mm_auto_map *m = &a->maps[i];
        const int rule = (int)a->now.rule[m->tensor], eager = a->now.eager[m->tensor];
        if (m->locked) continue;
        if (rule < 0 && m->from < p && p < m->to) {
            for (int r = 0; r < a->n_rules; r++) {
                if (!mm_auto_may(a, w, m, r) || (m->barred >> r & 1)) continue;
                const change c = {.map = i,
                                  .rule = r,
                                  .first = m->from + 1,
                                  .last = m->to - 1,
                                  .bytes = m->bytes - mm_auto_price_at(a, m, r)->left_bytes};
                offer(&best, c, wanted, mm_auto_cost(a, w, m, r));
            }
        }
        if (rule == a->recompute && rule >= 0) offer_anew(a, i, p, wanted, &best);
        if (rule == a->lean && rule >= 0) offer_brief(a, i, p, wanted, &best);
        if (rule < 0 || mm_auto_makes_again(a, rule) || a->now.lead == 0) continue;
        const int brief = a->now.brief[m->tensor];
        if (!(eager & MM_AUTO_EAGER_OUT) && m->last + 1 < p && p <= m->from)
            offer(&best, (change){i, rule, eager | MM_AUTO_EAGER_OUT, brief, m->last + 2, m->from, m->bytes, 0}, wanted,
                  mm_auto_price_at(a, m, rule)->leave_ns);
        if (is_moved(a, rule) && !(eager & MM_AUTO_EAGER_IN) && m->to <= p && p < m->need - 1)
            offer(&best, (change){i, rule, eager | MM_AUTO_EAGER_IN, brief, m->to, m->need - 2, m->bytes, 0}, wanted,
                  mm_auto_price_at(a, m, rule)->leave_ns);
    }
    for (int g = 0; g < a->n_gradients; g++) offer_gradient(a, g, p, wanted, &best);
    return best;
}

/* Changes actions until the bytes alive are within the target, as far as the draft shows; returns how many. */
static int relieve_draft(mm_auto *a, const mm_auto_weights *w) {
    enum { STUCK = 32 }; /* chosen: where nothing helps at so many nodes, the draft will not come down to the target */
    int changes = 0, stuck = 0;
    for (;;) {
        const int p = peak_of(a);
        if (a->live[p] <= a->target) return changes;
        const change c = find_change(a, w, p);
        if (c.map < 0) {
            if (++stuck == STUCK) return changes;
            a->live[p] = INT64_MIN / 2; /* nothing helps here, so it skips the node; changes may still be added to it */
            continue;
        }
        mm_auto_map *m = c.map < a->n_maps ? &a->maps[c.map] : NULL;
        const mm_tensor t = m ? m->tensor : a->gradients[c.map - a->n_maps];
        a->now.rule[t] = (int8_t)c.rule;
        a->now.eager[t] = (uint8_t)c.eager;
        a->now.brief[t] = (uint8_t)c.brief;
        add_live(a, c.first, c.last, -c.bytes);
        changes++;
        if (!m) continue;
        /* The map's bytes are now free while it is copied. */
        if (c.eager & MM_AUTO_EAGER_OUT) m->from = m->last + 1;
        if (c.eager & MM_AUTO_EAGER_IN) m->to = m->need - 1;
    }
}

/* Bars actions that the engine could not take in the draft, and keeps their maps; returns their number. */
static int bar_refused(mm_auto *a) {
    int refused = 0;
    for (int i = 0; i < a->n_maps; i++) {
        mm_auto_map *m = &a->maps[i];
        const int rule = (int)a->now.rule[m->tensor];
        if (rule < 0 || m->taken == rule) continue;
        m->barred |= UINT64_C(1) << rule;
        a->now.rule[m->tensor] = MM_AUTO_KEEP;
        refused++;
    }
    return refused;
}

mm_status mm_auto_relieve(mm_auto *a, const mm_auto_weights *w) {
    /* Both are chosen. A draft is given up if it is slower than the best plan by more than 1 / HOPELESS of the best
     * plan's time. */
    enum { ROUNDS = 40, HOPELESS = 16 };
    for (int i = 0; i < a->n_maps; i++) a->maps[i].barred = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MM_TRY(mm_auto_draft(a, &a->now));
        const int refused = bar_refused(a);
        if (a->draft.bounds.peak_bytes <= a->target) return MM_OK;
        if (a->fits && a->draft_ns > a->plan_ns + a->plan_ns / HOPELESS) return MM_OK;
        if (relieve_draft(a, w) + refused == 0 || a->left <= 0) return MM_OK;
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- keep again */

typedef struct payer {
    int map;
    double price;
} payer;

static int by_price(const void *x, const void *y) {
    const payer *a = x, *b = y;
    if (a->price != b->price) return (a->price < b->price) - (a->price > b->price);
    return (a->map > b->map) - (a->map < b->map);
}

static bool has_room(const mm_auto *a, int first, int end, int64_t bytes) {
    if (end > a->draft.plan->n_nodes) end = a->draft.plan->n_nodes;
    for (int i = first; i < end; i++)
        if (a->live[i] + bytes > a->target) return false;
    return true;
}

/* Whether a map, or gradient map, has room between backward uses between which it is away. *away_out: whether there are
 * any. */
static bool fits_between(const mm_auto *a, int index, int64_t bytes, bool *away_out) {
    bool fits = true;
    *away_out = false;
    for (int k = a->touch_first[index] + 1; fits && k < a->touch_first[index + 1]; k++)
        if (a->touches[k - 1].segment != a->touches[k].segment) {
            fits = has_room(a, a->touches[k - 1].node + 1, a->touches[k].node, bytes);
            *away_out = true;
        }
    return fits;
}

static void add_between(mm_auto *a, int index, int64_t bytes) {
    for (int k = a->touch_first[index] + 1; k < a->touch_first[index + 1]; k++)
        if (a->touches[k - 1].segment != a->touches[k].segment)
            add_live(a, a->touches[k - 1].node + 1, a->touches[k].node - 1, bytes);
}

/* Whether a map fits wherever it is away: from its last forward use on, and between backward uses. */
static bool fits_when_away(const mm_auto *a, int map, int64_t bytes) {
    const mm_auto_map *m = &a->maps[map];
    bool away;
    return has_room(a, m->from + 1, m->to, bytes) && fits_between(a, map, m->bytes, &away);
}

static void add_when_away(mm_auto *a, int map, int64_t bytes) {
    const mm_auto_map *m = &a->maps[map];
    add_live(a, m->from + 1, m->to - 1, bytes);
    add_between(a, map, m->bytes);
}

/* Lets maps and gradient maps wait on the device between backward uses, where they fit. */
static void restore_waiting(mm_auto *a) {
    bool away;
    for (int i = 0; i < a->n_maps + a->n_gradients; i++) {
        const mm_tensor t = i < a->n_maps ? a->maps[i].tensor : a->gradients[i - a->n_maps];
        const int64_t bytes = mm_align(mm_graph_tensor(a->graph, t)->bytes);
        const bool again = i < a->n_maps && a->anew >= 0 && a->now.rule[t] == a->anew;
        const bool leaves = a->now.brief[t] || (i >= a->n_maps && a->now.rule[t] == a->lean);
        if ((!again && !leaves) || (i < a->n_maps && a->maps[i].locked)) continue;
        if (again && !(a->maps[i].serves >> a->recompute & 1)) continue;
        if (!fits_between(a, i, bytes, &away) || !away) continue;
        add_between(a, i, bytes);
        a->now.brief[t] = 0;
        if (again) a->now.rule[t] = (int8_t)a->recompute;
        if (i >= a->n_maps) a->now.rule[t] = MM_AUTO_KEEP;
    }
}

mm_status mm_auto_restore(mm_auto *a, const mm_auto_weights *w) {
    payer *payers = malloc(((size_t)a->n_maps + 1) * sizeof *payers);
    int n = 0;
    if (!payers) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    for (int i = 0; i < a->n_maps; i++) {
        const mm_auto_map *m = &a->maps[i];
        if (m->taken < 0 || m->locked) continue;
        payers[n++] = (payer){i, mm_auto_cost(a, w, m, m->taken) / (double)m->bytes};
    }
    qsort(payers, (size_t)n, sizeof *payers, by_price);
    for (int k = 0; k < n; k++) {
        const mm_auto_map *m = &a->maps[payers[k].map];
        const int64_t bytes = m->bytes - mm_auto_price_at(a, m, m->taken)->left_bytes;
        if (!fits_when_away(a, payers[k].map, bytes)) continue;
        a->now.rule[m->tensor] = MM_AUTO_KEEP;
        a->now.eager[m->tensor] = a->now.brief[m->tensor] = 0;
        add_when_away(a, payers[k].map, bytes);
    }
    restore_waiting(a);
    free(payers);
    return MM_OK;
}
