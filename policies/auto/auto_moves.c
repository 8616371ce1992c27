/* SPDX-License-Identifier: MIT */
/* Relieves the nodes at which a draft needs most, and keeps maps again that fit. */
#include <stdio.h>
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
    int map, rule, eager, first, last;
    int64_t bytes;
    double price; /* ns per byte */
} change;

static void offer(change *best, change c, int64_t wanted, double ns) {
    if (c.bytes <= 0) return;
    c.price = ns / (double)(c.bytes < wanted ? c.bytes : wanted);
    if (best->map < 0 || c.price < best->price) *best = c;
}

/* Offers to drop a map that is made again wherever it waits, at node p, for its next use. */
static void offer_anew(const mm_auto *a, int map, int p, int64_t wanted, change *best) {
    const mm_auto_map *m = &a->maps[map];
    if (a->anew < 0 || !(m->serves >> a->anew & 1) || (m->barred >> a->anew & 1)) return;
    for (int k = a->touch_first[map] + 1; k < a->touch_first[map + 1]; k++) {
        const mm_auto_touch *last = &a->touches[k - 1], *next = &a->touches[k];
        if (last->segment == next->segment && last->node < p && p < next->node)
            offer(best, (change){map, a->anew, 0, last->node + 1, next->node - 1, m->bytes, 0}, wanted,
                  (double)m->again_ns);
    }
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
            for (int r = 0; r < a->menu->n_rules && r < MM_AUTO_RULES; r++) {
                if (!mm_auto_may(a, w, m, r) || (m->barred >> r & 1)) continue;
                offer(&best, (change){i, r, 0, m->from + 1, m->to - 1, m->bytes - mm_auto_left(a, m, r), 0}, wanted,
                      mm_auto_cost(a, w, m, r));
            }
        }
        if (rule == a->recompute && rule >= 0) offer_anew(a, i, p, wanted, &best);
        if (rule < 0 || mm_auto_makes_again(a, rule) || a->now.lead == 0) continue;
        if (!(eager & MM_AUTO_EAGER_OUT) && m->last + 1 < p && p <= m->from)
            offer(&best, (change){i, rule, eager | MM_AUTO_EAGER_OUT, m->last + 2, m->from, m->bytes, 0}, wanted,
                  mm_auto_leave_ns(a, m, rule));
        if (is_moved(a, rule) && !(eager & MM_AUTO_EAGER_IN) && m->to <= p && p < m->need - 1)
            offer(&best, (change){i, rule, eager | MM_AUTO_EAGER_IN, m->to, m->need - 2, m->bytes, 0}, wanted,
                  mm_auto_leave_ns(a, m, rule));
    }
    return best;
}

/* Changes actions until the bytes alive are within the target, as far as the draft shows; returns how many. */
static int relieve_draft(mm_auto *a, const mm_auto_weights *w) {
    int changes = 0;
    for (;;) {
        const int p = peak_of(a);
        if (a->live[p] <= a->target) return changes;
        const change c = find_change(a, w, p);
        if (c.map < 0) {
            a->live[p] = INT64_MIN / 2; /* nothing helps here, so it skips the node; changes may still be added to it */
            continue;
        }
        mm_auto_map *m = &a->maps[c.map];
        a->now.rule[m->tensor] = (int8_t)c.rule;
        a->now.eager[m->tensor] = (uint8_t)c.eager;
        add_live(a, c.first, c.last, -c.bytes);
        /* The map's bytes are now free while it is copied. */
        if (c.eager & MM_AUTO_EAGER_OUT) m->from = m->last + 1;
        if (c.eager & MM_AUTO_EAGER_IN) m->to = m->need - 1;
        changes++;
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
        if (getenv("DBG")) fprintf(stderr, "  round %d lead %d peak %.1f target %.1f ns %ld refused %d at node %d of %d kind %d step %d\n", round, a->now.lead, a->draft.bounds.peak_bytes/1048576.0, a->target/1048576.0, a->draft_ns, refused, peak_of(a), a->draft.plan->n_nodes, a->draft.plan->nodes[peak_of(a)].kind, a->draft.plan->nodes[peak_of(a)].step);
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

/* Whether a map fits wherever it is away: from its last forward use on, and between backward uses. */
static bool fits_when_away(const mm_auto *a, int map, int64_t bytes) {
    const mm_auto_map *m = &a->maps[map];
    bool fits = has_room(a, m->from + 1, m->to, bytes);
    for (int k = a->touch_first[map] + 1; fits && k < a->touch_first[map + 1]; k++)
        if (a->touches[k - 1].segment != a->touches[k].segment)
            fits = has_room(a, a->touches[k - 1].node + 1, a->touches[k].node, m->bytes);
    return fits;
}

static void add_when_away(mm_auto *a, int map, int64_t bytes) {
    const mm_auto_map *m = &a->maps[map];
    add_live(a, m->from + 1, m->to - 1, bytes);
    for (int k = a->touch_first[map] + 1; k < a->touch_first[map + 1]; k++)
        if (a->touches[k - 1].segment != a->touches[k].segment)
            add_live(a, a->touches[k - 1].node + 1, a->touches[k].node - 1, m->bytes);
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
        const int64_t bytes = m->bytes - mm_auto_left(a, m, m->taken);
        if (!fits_when_away(a, payers[k].map, bytes)) continue;
        a->now.rule[m->tensor] = MM_AUTO_KEEP;
        a->now.eager[m->tensor] = 0;
        add_when_away(a, payers[k].map, bytes);
    }
    free(payers);
    return MM_OK;
}
