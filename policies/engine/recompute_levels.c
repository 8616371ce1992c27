/* SPDX-License-Identifier: MIT */
#include "policies/engine/recompute_levels.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine/engine_maps.h"
#include "policies/engine/recompute_chain.h"

/* Memory is counted in slots. A table covers SLOTS of them; coarser tables, of slots FACTOR times as large, serve more
 * memory. Chosen: an amount is at least SLOTS / FACTOR slots of its table, so rounding it to whole slots errs by at
 * most 2 %. */
enum { SLOTS = 160, FACTOR = 3, TABLES = 8 };

static const int64_t NEVER = INT64_C(1) << 60;

/* What to do with stages s to t, given the input of stage s and the gradient of stage t's output. */
typedef enum choice {
    NOTHING, /* there is too little memory */
    FULL,    /* keep all maps of stage s, then go on with s + 1 to t */
    THIN,    /* as FULL, but without the maps that cheap layers can make again from maps of the same stage
              * (mm_chain_leaves_out) */
    INNER,   /* s = t: do what the solution of the stage's own (fine) chain says */
    CUT,     /* CUT + k: run stages s to s + k, keep the maps that later stages read, go on with s + k + 1 to t, then
              * redo s to s + k */
} choice;

/* Least time of stages s to t within m slots, and the choice that gives it. The time counts all forward steps from the
 * first run of stage s on. */
typedef struct table {
    int n;
    uint8_t *choice;   /* [s][t][m] */
    int64_t ns[SLOTS]; /* [m]: least time of all stages; NEVER: there is too little memory */
} table;

static size_t row(const table *t, int first, int last) { return ((size_t)first * (size_t)t->n + (size_t)last) * SLOTS; }

/* ---------------------------------------------------------------- the dynamic programme */

typedef struct solver {
    const mm_chain *chain;
    int64_t slot_bytes;
    table *table;
    int64_t *ns;        /* [s][t][m], as in the table */
    const table *inner; /* per stage: table of its own chain; NULL: there are none */
} solver;

/* Bytes in slots, rounded to the nearest, so that errors tend to cancel. */
static int slots(const solver *v, int64_t bytes) {
    int64_t n = (bytes + v->slot_bytes / 2) / v->slot_bytes;
    return n < SLOTS ? (int)n : SLOTS;
}

static const int64_t zeros[SLOTS];

/* Offers choice `what` for stages s to t, if there are at least `least` slots. The choice takes `own` ns, then the time
 * in rest[] with `taken` slots less, then the time in left[] with all slots. */
static void offer(const solver *v, int s, int t, int what, int least, int taken, int64_t own, const int64_t *rest,
                  const int64_t *left) {
    int64_t *ns = v->ns + row(v->table, s, t);
    uint8_t *chosen = v->table->choice + row(v->table, s, t);
    for (int m = least > taken ? least : taken; m < SLOTS; m++) {
        int64_t sum = own + rest[m - taken] + left[m];
        if (sum >= ns[m]) continue;
        ns[m] = sum;
        chosen[m] = (uint8_t)what;
    }
}

static void solve_stage(const solver *v, int s) {
    const mm_stage *stage = &v->chain->stages[s];
    offer(v, s, s, FULL, slots(v, stage->backward_bytes), 0, stage->ns, zeros, zeros);
    if (v->inner) offer(v, s, s, INNER, 0, 0, 0, v->inner[s].ns, zeros);
}

static void solve(const solver *v, int s, int t) {
    const mm_stage *stages = v->chain->stages, *first = &stages[s];
    const int64_t *rest = v->ns + row(v->table, s + 1, t);
    const int least = slots(v, first->backward_bytes);
    offer(v, s, t, FULL, least, slots(v, first->bytes), first->ns, rest, zeros);
    offer(v, s, t, THIN, least, slots(v, first->thin_bytes), first->ns + first->cheap_ns, rest, zeros);
    int64_t ns = 0, most = 0;
    for (int k = s + 1; k <= t; k++) {
        ns += stages[k - 1].ns;
        if (stages[k - 1].forward_bytes > most) most = stages[k - 1].forward_bytes;
        offer(v, s, t, CUT + k - 1 - s, slots(v, most + stages[t].entry_bytes),
              slots(v, mm_chain_across(v->chain, s, k)), ns, v->ns + row(v->table, k, t),
              v->ns + row(v->table, s, k - 1));
    }
}

/* scratch: room for all cells of the chain. */
static mm_status solve_chain(const mm_chain *chain, int64_t slot_bytes, const table *inner, int64_t *scratch,
                             table *t) {
    const size_t n = (size_t)chain->n, cells = n * n * SLOTS;
    const solver v = {.chain = chain, .slot_bytes = slot_bytes, .table = t, .ns = scratch, .inner = inner};
    *t = (table){.n = chain->n, .choice = calloc(cells, sizeof *t->choice)};
    if (!t->choice) return mm_fail(MM_ERR_NOMEM, "out of memory for nested recomputation");
    for (size_t i = 0; i < cells; i++) scratch[i] = NEVER;
    for (int last = 0; last < chain->n; last++) {
        solve_stage(&v, last);
        for (int first = last - 1; first >= 0; first--) solve(&v, first, last);
    }
    memcpy(t->ns, scratch + row(t, 0, chain->n - 1), sizeof t->ns);
    return MM_OK;
}

/* Tables for one size of slots. */
typedef struct tables {
    int64_t slot_bytes;
    table coarse, *fine;
} tables;

static void tables_fini(tables *all, int n) {
    free(all->coarse.choice);
    for (int k = 0; all->fine && k < n; k++) free(all->fine[k].choice);
    free(all->fine);
}

static mm_status tables_init(tables *all, const mm_chains *chains, int64_t slot_bytes, int64_t *scratch) {
    const int n = chains->coarse.n;
    *all = (tables){.slot_bytes = slot_bytes, .fine = calloc((size_t)n, sizeof *all->fine)};
    mm_status status = all->fine ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for nested recomputation");
    for (int k = 0; k < n && status == MM_OK; k++)
        status = solve_chain(&chains->fine[k], slot_bytes, NULL, scratch, &all->fine[k]);
    if (status == MM_OK) status = solve_chain(&chains->coarse, slot_bytes, all->fine, scratch, &all->coarse);
    if (status != MM_OK) tables_fini(all, n);
    return status;
}

/* ---------------------------------------------------------------- levels of the maps */

typedef struct marker {
    const mm_chains *chains;
    const tables *tables;
    uint8_t *level, *cut; /* of the choice that is being marked */
} marker;

/* Gives maps that the steps make this level, unless they have a smaller one. Skips maps that no forward step after
 * `across` reads, and, if thin >= 0, those that a stage ending with step `thin` leaves out. */
static void mark(const marker *k, int first, int last, int across, int thin, uint8_t level) {
    const mm_schedule *s = k->chains->schedule;
    for (int m = k->chains->first_map[first]; m < k->chains->first_map[last + 1]; m++) {
        mm_tensor t = k->chains->maps[m];
        if (mm_graph_tensor(s->graph, t)->last_forward <= across) continue;
        if (thin >= 0 && mm_chain_leaves_out(s, t, thin)) continue;
        if (level < k->level[t]) k->level[t] = level;
    }
}

/* Marks the maps and cuts of stages s to t, for m slots. coarse: index of the stage whose fine chain it is; -1: it is
 * the coarse chain itself. */
static void mark_stages(const marker *k, int coarse, int s, int t, int m, uint8_t level) {
    const mm_chain *chain = coarse < 0 ? &k->chains->coarse : &k->chains->fine[coarse];
    const table *from = coarse < 0 ? &k->tables->coarse : &k->tables->fine[coarse];
    const solver v = {.slot_bytes = k->tables->slot_bytes};
    const uint8_t deeper = level < MM_LEVEL_STAGE - 1 ? level + 1 : level;
    while (s <= t) {
        const mm_stage *stage = &chain->stages[s];
        const int what = from->choice[row(from, s, t) + (size_t)m];
        if (what == INNER) {
            mark_stages(k, s, 0, k->chains->fine[s].n - 1, m, level);
            return;
        }
        const int end = what < CUT ? s : s + what - CUT;
        if (what == THIN || what == FULL) {
            mark(k, stage->first, stage->last, -1, what == THIN ? stage->last : -1, level);
            m -= slots(&v, what == THIN ? stage->thin_bytes : stage->bytes);
        } else {
            mark(k, stage->first, chain->stages[end].last, chain->stages[end].last, -1, level);
            mark_stages(k, coarse, s, end, m, deeper);
            m -= slots(&v, mm_chain_across(chain, s, end + 1));
        }
        if (end < t) k->cut[chain->stages[end].last] = level;
        s = end + 1;
    }
}

/* ---------------------------------------------------------------- the choices */

static int64_t total_bytes(const mm_chain *chain) {
    int64_t bytes = 0, most = 0;
    for (int k = 0; k < chain->n; k++) {
        bytes += chain->stages[k].bytes;
        if (chain->stages[k].backward_bytes > most) most = chain->stages[k].backward_bytes;
    }
    return bytes + most;
}

static bool serves(const tables *t, int m) { return m < SLOTS && t->coarse.ns[m] < NEVER; }

/* Makes tables, from the coarsest to the finest that serves any amount of memory. */
static mm_status make_tables(const mm_chains *chains, int64_t *scratch, tables *all, int *n) {
    int64_t slot_bytes = total_bytes(&chains->coarse) / (SLOTS - 2) + 1;
    for (*n = 0; *n < TABLES;) {
        MM_TRY(tables_init(&all[*n], chains, slot_bytes, scratch));
        ++*n;
        if (!serves(&all[*n - 1], SLOTS / FACTOR - 1) || slot_bytes < FACTOR) break;
        slot_bytes /= FACTOR;
    }
    return MM_OK;
}

static void choose(mm_nesting *nesting, const mm_chains *chains, const tables *tables, int m) {
    marker k = {.chains = chains,
                .tables = tables,
                .level = nesting->level + (size_t)nesting->n * (size_t)nesting->n_tensors,
                .cut = nesting->cut + (size_t)nesting->n * (size_t)nesting->n_steps};
    memset(k.level, MM_LEVEL_STAGE, (size_t)nesting->n_tensors);
    memset(k.cut, MM_LEVEL_STAGE, (size_t)nesting->n_steps);
    mark_stages(&k, -1, 0, chains->coarse.n - 1, m, 0);
    if (nesting->n == 0 || memcmp(k.level, k.level - nesting->n_tensors, (size_t)nesting->n_tensors) != 0 ||
        memcmp(k.cut, k.cut - nesting->n_steps, (size_t)nesting->n_steps) != 0)
        nesting->n++;
}

/* Chooses for a row of amounts of memory, each larger than the last by 1 / share of it. Returns their number; if
 * nesting is NULL, it only counts them. */
static int choose_all(mm_nesting *nesting, const mm_chains *chains, const tables *all, int n, int64_t share) {
    int m = 0, count = 0;
    while (!serves(&all[n - 1], m) && m < SLOTS) m++;
    const int64_t end = all[0].slot_bytes * SLOTS;
    for (int64_t bytes = m * all[n - 1].slot_bytes; bytes < end; count++) {
        int at = n - 1;
        while (at > 0 && bytes / all[at].slot_bytes >= SLOTS) at--;
        m = (int)(bytes / all[at].slot_bytes);
        if (nesting && serves(&all[at], m)) choose(nesting, chains, &all[at], m);
        bytes += bytes / share + 1 > all[at].slot_bytes ? bytes / share + 1 : all[at].slot_bytes;
    }
    return count;
}

static mm_status fill(mm_nesting *nesting, const mm_chains *chains, const tables *all, int n, int most) {
    const int64_t shares[] = {24, 16, 12, 8, 6, 4, 3, 2, 1};
    size_t i = 0;
    while (i + 1 < sizeof shares / sizeof *shares && choose_all(NULL, chains, all, n, shares[i]) > most) i++;
    const size_t room = (size_t)choose_all(NULL, chains, all, n, shares[i]) + 1;
    nesting->level = malloc(room * (size_t)nesting->n_tensors + 1);
    nesting->cut = malloc(room * (size_t)nesting->n_steps + 1);
    if (!nesting->level || !nesting->cut) return mm_fail(MM_ERR_NOMEM, "out of memory for nested recomputation");
    choose_all(nesting, chains, all, n, shares[i]);
    return MM_OK;
}

static mm_status search(mm_nesting *nesting, const mm_chains *chains, int most) {
    tables all[TABLES];
    const size_t stages = chains->coarse.n > MM_CHAIN_FINE ? (size_t)chains->coarse.n : MM_CHAIN_FINE;
    int64_t *scratch = malloc(stages * stages * SLOTS * sizeof *scratch);
    int n = 0;
    if (!scratch) return mm_fail(MM_ERR_NOMEM, "out of memory for nested recomputation");
    mm_status status = make_tables(chains, scratch, all, &n);
    if (status == MM_OK) status = fill(nesting, chains, all, n, most);
    for (int i = 0; i < n; i++) tables_fini(&all[i], chains->coarse.n);
    free(scratch);
    return status;
}

mm_status mm_nesting_init(mm_nesting *nesting, const mm_schedule *s, int most) {
    mm_chains chains;
    *nesting = (mm_nesting){.n_tensors = mm_graph_tensors(s->graph), .n_steps = mm_graph_steps(s->graph)};
    MM_TRY(mm_chains_init(&chains, s));
    mm_status status = chains.coarse.n > 0 ? search(nesting, &chains, most) : MM_OK;
    mm_chains_fini(&chains);
    if (status != MM_OK) mm_nesting_fini(nesting);
    return status;
}

void mm_nesting_fini(mm_nesting *nesting) {
    free(nesting->level);
    free(nesting->cut);
    memset(nesting, 0, sizeof *nesting);
}
