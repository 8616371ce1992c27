/* SPDX-License-Identifier: MIT */
#include "policies/schedule/disk_stays.h"

#include <stdlib.h>

#include "mm/core/plan/plan_touch.h"

/* ---------------------------------------------------------------- who can go */

static bool may_wait(const mm_plan *plan, const mm_segment *s) {
    const bool whole = s->content == MM_CONTENT_RAW || (s->content == MM_CONTENT_CODED && s->pool < 0);
    return s->memory == MM_MEM_PINNED && whole && s->category != MM_CAT_PERSISTENT &&
           mm_graph_tensor(plan->graph, s->tensor)->shared == MM_ALLREDUCE_NOT;
}

/* Finds for each segment the longest time between two uses that follow each other. */
static mm_status find_stays(mm_stays *m) {
    const mm_plan *plan = m->plan;
    int32_t *last = malloc(((size_t)plan->n_segments + 1) * sizeof *last);
    mm_stay *of = calloc((size_t)plan->n_segments + 1, sizeof *of);
    if (!last || !of) {
        free(last);
        free(of);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    }
    for (int i = 0; i < plan->n_segments; i++) {
        last[i] = -1;
        of[i].segment = i;
    }
    for (int i = 0; i < plan->n_nodes; i++) {
        mm_touch touch;
        for (int t = 0; mm_node_next_touch(plan, &plan->nodes[i], &t, &touch);) {
            const int s = touch.segment;
            const int64_t gap = last[s] < 0 ? -1 : m->at[i].start_ns - m->at[last[s]].end_ns;
            if (last[s] >= 0 && last[s] < i && (of[s].to == 0 || gap > of[s].gap_ns))
                of[s] = (mm_stay){.segment = s, .from = last[s], .to = i, .gap_ns = gap, .stores = true, .loads = true};
            last[s] = i;
        }
    }
    for (int i = 0; i < plan->n_segments; i++)
        if (of[i].to > 0 && may_wait(plan, &plan->segments[i])) of[m->n++] = of[i];
    free(last);
    m->stays = of;
    m->n_maps = m->n;
    return MM_OK;
}

/* Whether a home is on the disk in the copy. */
static bool is_on_disk(const mm_stays *m, int home) {
    const bool is_home = home >= 0 && home < mm_graph_persistents(m->plan->graph) && m->places;
    return is_home && m->places[home].memory == MM_MEM_DISK;
}

/* Finds stays of homes, and those before them of the same home. */
typedef struct finder {
    mm_stays *stays;
    int32_t first; /* the node of the first step */
    int32_t *last; /* per home: its last stay so far; -1: none yet */
} finder;

static void add_load(finder *f, int home, int node) {
    mm_stays *m = f->stays;
    const mm_stay *last = f->last[home] >= 0 ? &m->stays[f->last[home]] : NULL;
    const int32_t before = !last ? f->first : last->loads ? last->to : last->from;
    m->stays[m->n] = (mm_stay){.segment = home, .at_home = true, .loads = true, .from = before, .to = node};
    if (last && last->stores) m->stays[f->last[home]].to = node;
    f->last[home] = m->n++;
}

static void add_store(finder *f, int home, int node) {
    mm_stays *m = f->stays;
    m->stays[m->n] = (mm_stay){.segment = home, .at_home = true, .stores = true, .from = node, .to = m->plan->n_nodes};
    f->last[home] = m->n++;
}

/* How a node uses a home on the disk, at a step's use or an operation's end `at`: *home_out. False: there is no such
 * use or end. A step's home is -1 for a use of no home, and for one that was seen before. */
static bool next_use(const mm_stays *m, const mm_node *node, int at, int *home_out, bool *reads_out, bool *writes_out) {
    *home_out = -1;
    if (!mm_node_runs_step(node)) {
        const int end = node->kind == MM_NODE_OUT ? node->dst : node->kind == MM_NODE_IN ? node->src : -1;
        if (at > 0) return false;
        *home_out = is_on_disk(m, end) ? end : -1;
        *reads_out = node->kind == MM_NODE_IN;
        *writes_out = node->kind == MM_NODE_OUT;
        return true;
    }
    const mm_step_info *step = mm_graph_step(m->plan->graph, node->step);
    if (!mm_node_on_host(node) || at >= step->n_uses) return false;
    const int home = mm_graph_tensor(m->plan->graph, step->uses[at].tensor)->persistent;
    if (!is_on_disk(m, home)) return true;
    for (int u = 0; u < at; u++)
        if (step->uses[u].tensor == step->uses[at].tensor) return true;
    *home_out = home;
    *reads_out = *writes_out = false;
    for (int u = at; u < step->n_uses; u++)
        if (step->uses[u].tensor == step->uses[at].tensor) {
            *reads_out |= step->uses[u].access != MM_WRITE;
            *writes_out |= step->uses[u].access != MM_READ;
        }
    return true;
}

static int count_home_stays(const mm_stays *m) {
    int n = 0, home;
    bool reads, writes;
    for (int i = 0; i < m->plan->n_nodes; i++)
        for (int at = 0; next_use(m, &m->plan->nodes[i], at, &home, &reads, &writes); at++)
            if (home >= 0) n += reads + writes;
    return n;
}

/* Adds a stay for each copy from and to a home on the disk, and for each use of one by a step on the host. */
static mm_status find_home_stays(mm_stays *m) {
    const mm_plan *plan = m->plan;
    const int homes = mm_graph_persistents(plan->graph);
    finder f = {.stays = m, .last = malloc(((size_t)homes + 1) * sizeof *f.last)};
    mm_stay *more = realloc(m->stays, ((size_t)m->n + (size_t)count_home_stays(m) + 1) * sizeof *more);
    m->visit = malloc(((size_t)plan->n_nodes + 1) * sizeof *m->visit);
    if (more) m->stays = more;
    if (!more || !m->visit || !f.last) {
        free(f.last);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    }
    while (f.first < plan->n_nodes && !mm_node_computes(&plan->nodes[f.first])) f.first++;
    for (int h = 0; h < homes; h++) f.last[h] = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        const int before = m->n;
        int home;
        bool reads, writes;
        for (int at = 0; next_use(m, &plan->nodes[i], at, &home, &reads, &writes); at++) {
            if (home >= 0 && reads) add_load(&f, home, i);
            if (home >= 0 && writes) add_store(&f, home, i);
        }
        m->visit[i] = m->n > before ? before : -1;
    }
    free(f.last);
    return MM_OK;
}

mm_stay *mm_stays_next(const mm_stays *m, int node, int *next) {
    if (*next < 0 || *next >= m->n) return NULL;
    mm_stay *s = &m->stays[*next];
    if ((s->loads ? s->to : s->from) != node) return NULL;
    ++*next;
    return s;
}

static int by_gap(const void *a, const void *b) {
    const mm_stay *x = a, *y = b;
    if (x->gap_ns != y->gap_ns) return (x->gap_ns < y->gap_ns) - (x->gap_ns > y->gap_ns);
    return (x->segment > y->segment) - (x->segment < y->segment);
}

static int by_key(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sets m->by_use. Numbers of stays by `to`, then by their own number. */
static mm_status order_by_use(mm_stays *m) {
    int64_t *keys = malloc(((size_t)m->n + 1) * sizeof *keys);
    m->by_use = malloc(((size_t)m->n + 1) * sizeof *m->by_use);
    if (!keys || !m->by_use) {
        free(keys);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    }
    for (int i = 0; i < m->n; i++) keys[i] = ((int64_t)m->stays[i].to << 32) | i;
    qsort(keys, (size_t)m->n, sizeof *keys, by_key);
    for (int i = 0; i < m->n; i++) m->by_use[i] = (int32_t)(keys[i] & INT32_MAX);
    free(keys);
    return MM_OK;
}

mm_status mm_stays_find(mm_stays *m) {
    MM_TRY(find_stays(m));
    qsort(m->stays, (size_t)m->n, sizeof *m->stays, by_gap);
    MM_TRY(find_home_stays(m));
    return order_by_use(m);
}

void mm_stays_fini(mm_stays *m) {
    free(m->stays);
    free(m->by_use);
    free(m->visit);
}

/* ---------------------------------------------------------------- when */

static int64_t load_ns(const mm_stays *m, const mm_stay *s) {
    return mm_disk_ns(m->facts, m->facts->load_bytes_per_s, m->plan->segments[s->segment].bytes);
}

static int64_t store_ns(const mm_stays *m, const mm_stay *s) {
    return mm_disk_ns(m->facts, m->facts->store_bytes_per_s, m->plan->segments[s->segment].bytes);
}

/* The node of the last step on the device that begins by `ns`, from `least` to `most`; `least` if there is none. */
static int32_t step_by(const mm_stays *m, int64_t ns, int32_t least, int32_t most) {
    int32_t at = most;
    while (at > least && (!mm_node_computes(&m->plan->nodes[at]) || m->at[at].start_ns > ns)) at--;
    return at > least ? at : least;
}

void mm_stays_time_loads(mm_stays *m, mm_pace pace) {
    int64_t due = INT64_MAX;
    int32_t before = m->plan->n_nodes;
    for (int i = m->n - 1; i >= 0; i--) {
        mm_stay *s = &m->stays[m->by_use[i]];
        if (!s->chosen || !s->loads) continue;
        s->load_at = s->to;
        if (pace == MM_PACE_LATE) continue;
        if (m->at[s->to].start_ns < due) due = m->at[s->to].start_ns;
        due -= load_ns(m, s);
        s->load_at = step_by(m, due, s->from + 1, s->to < before ? s->to : before);
        before = s->load_at;
    }
}

mm_status mm_stays_time_stores(mm_stays *m, mm_pace pace) {
    int64_t ended = 0, *order = malloc(((size_t)m->n + 1) * sizeof *order);
    int n = 0;
    if (!order) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    for (int i = 0; i < m->n; i++)
        if (m->stays[i].chosen && m->stays[i].stores) order[n++] = ((int64_t)m->stays[i].from << 32) | i;
    qsort(order, (size_t)n, sizeof *order, by_key);
    for (int i = 0; i < n; i++) {
        mm_stay *s = &m->stays[order[i] & INT32_MAX];
        s->free_after = -1;
        if (pace == MM_PACE_LATE) continue;
        if (m->at[s->from].end_ns > ended) ended = m->at[s->from].end_ns;
        ended += store_ns(m, s);
        s->free_after = s->from;
        for (int32_t next = s->from + 1; next < s->to; next++) {
            if (!mm_node_computes(&m->plan->nodes[next])) continue;
            if (m->at[next].start_ns >= ended) break;
            s->free_after = next;
        }
    }
    free(order);
    return MM_OK;
}
