/* SPDX-License-Identifier: MIT */
/* A copy of a plan in which some tensors wait for their next use on the disk:
 *
 *              ... offload -> P |                        | Q -> prefetch ...
 *   store                       | P -> disk              |
 *   load                        |             disk -> Q  |
 *
 * P and Q are segments in pinned memory. Those are all placed anew; those on the disk, too. A home on the disk waits
 * there from the last offload of an iteration to the first prefetch of the next. */
#include "policies/schedule/onto_disk.h"

#include <stdlib.h>
#include <string.h>

#include "buffers/layout/layout.h"
#include "mm/core/plan/plan_rewrite.h"
#include "mm/core/plan/plan_touch.h"
#include "mm/core/status.h"
#include "mm/core/time/simulate.h"
#include "policies/schedule/draft_time.h"
#include "policies/schedule/nominal.h"
#include "policies/schedule/schedule.h"

/* A segment in pinned memory that can wait on the disk between two of its uses. Or a home, which the plan has in pinned
 * memory, and the copy on the disk: it is stored after each node that writes it, and loaded before each that reads it;
 * each is a stay of its own. */
typedef struct stay {
    int32_t segment;
    int32_t from, to;   /* the nodes that use it before and after; of a home's: the first step, and the end of the plan,
                           if none does */
    int64_t gap_ns;     /* time between them */
    bool at_home;       /* it is a home's */
    bool stores, loads; /* one of both, of a home's; else both */
    bool chosen;        /* it goes to the disk; a home's always does */
    int32_t load_at;    /* the node right before which it is loaded */
    int32_t free_after; /* a node at which its bytes are still kept, because the store may not have ended; -1: none */
    /* In the copy: its segment on the disk, and the one it is loaded to; the nodes that do both; -1: none does. */
    int32_t disk, back, store_node, load_node;
} stay;

/* How early loads begin, and how long segments are kept for stores. */
typedef enum pace {
    PACE_LATE, /* a load comes right before its reader, bytes are free after the store: the least pinned memory */
    PACE_TIMED /* as the simulation of the plan has the times of the nodes */
} pace;

typedef struct mover {
    const mm_plan *plan;
    const mm_graph_facts *facts; /* with times */
    const mm_limits *limits;
    mm_sim_node *at; /* per node of the plan: its simulated times */
    stay *stays;     /* those of maps, the farthest next use first; then those of homes, in the order of nodes */
    int n, n_maps;
    int32_t *by_use;  /* numbers of stays, in the order of `to` */
    int32_t *moved;   /* per node of the plan: its number in the copy */
    int32_t *stay_of; /* per segment of the copy: its number among the stays that are chosen, and store it; -1: none */
    int32_t *visit;   /* per node of the plan: the stay of the home that it reads or writes; -1: none */
    int32_t *last;    /* per home: the last node of the copy that loads it, or stores it; -1: none yet */
} mover;

/* ---------------------------------------------------------------- who can go */

static bool may_wait(const mm_plan *plan, const mm_segment *s) {
    const bool whole = s->content == MM_CONTENT_RAW || (s->content == MM_CONTENT_CODED && s->pool < 0);
    return s->memory == MM_MEM_PINNED && whole && s->category != MM_CAT_PERSISTENT &&
           mm_graph_tensor(plan->graph, s->tensor)->shared == MM_ALLREDUCE_NOT;
}

/* Finds for each segment the longest time between two uses that follow each other. */
static mm_status find_stays(mover *m) {
    const mm_plan *plan = m->plan;
    int32_t *last = malloc(((size_t)plan->n_segments + 1) * sizeof *last);
    stay *of = calloc((size_t)plan->n_segments + 1, sizeof *of);
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
                of[s] = (stay){.segment = s, .from = last[s], .to = i, .gap_ns = gap, .stores = true, .loads = true};
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

/* The home on the disk that the node copies to or from; -1: none. */
static int home_of(const mover *m, const mm_node *node) {
    const int end = node->kind == MM_NODE_OUT ? node->dst : node->kind == MM_NODE_IN ? node->src : -1;
    const bool is_home = end >= 0 && end < mm_graph_persistents(m->plan->graph) && m->limits->places;
    return is_home && m->limits->places[end].memory == MM_MEM_DISK ? end : -1;
}

/* Adds a stay for each copy from and to a home on the disk. */
static mm_status find_home_stays(mover *m) {
    const mm_plan *plan = m->plan;
    int first = 0, n = 0;
    while (first < plan->n_nodes && !mm_node_computes(&plan->nodes[first])) first++;
    for (int i = 0; i < plan->n_nodes; i++) n += home_of(m, &plan->nodes[i]) >= 0;
    stay *more = realloc(m->stays, ((size_t)m->n + (size_t)n + 1) * sizeof *more);
    m->visit = malloc(((size_t)plan->n_nodes + 1) * sizeof *m->visit);
    m->last = malloc(((size_t)mm_graph_persistents(plan->graph) + 1) * sizeof *m->last);
    if (more) m->stays = more;
    if (!more || !m->visit || !m->last) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    for (int h = 0; h < mm_graph_persistents(plan->graph); h++) m->last[h] = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        const int home = home_of(m, &plan->nodes[i]);
        m->visit[i] = home >= 0 ? m->n : -1;
        if (home < 0) continue;
        const bool loads = plan->nodes[i].kind == MM_NODE_IN;
        const stay *last = m->last[home] >= 0 ? &m->stays[m->last[home]] : NULL;
        const int32_t before = !last ? first : last->loads ? last->to : last->from;
        stay *s = &m->stays[m->n];
        *s = (stay){.segment = home, .at_home = true, .stores = !loads, .loads = loads, .to = plan->n_nodes, .from = i};
        if (m->last[home] >= 0 && m->stays[m->last[home]].stores) m->stays[m->last[home]].to = i;
        m->last[home] = m->n++;
        if (!loads) continue;
        s->to = i;
        s->from = before;
    }
    return MM_OK;
}

static int by_gap(const void *a, const void *b) {
    const stay *x = a, *y = b;
    if (x->gap_ns != y->gap_ns) return (x->gap_ns < y->gap_ns) - (x->gap_ns > y->gap_ns);
    return (x->segment > y->segment) - (x->segment < y->segment);
}

static int by_key(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sets m->by_use. Numbers of stays by `to`, then by their own number. */
static mm_status order_by_use(mover *m) {
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

/* ---------------------------------------------------------------- when */

static int64_t load_ns(const mover *m, const stay *s) {
    return mm_disk_ns(m->facts, m->facts->load_bytes_per_s, m->plan->segments[s->segment].bytes);
}

static int64_t store_ns(const mover *m, const stay *s) {
    return mm_disk_ns(m->facts, m->facts->store_bytes_per_s, m->plan->segments[s->segment].bytes);
}

/* The node of the last step on the device that begins by `ns`, from `least` to `most`; `least` if there is none. */
static int32_t step_by(const mover *m, int64_t ns, int32_t least, int32_t most) {
    int32_t at = most;
    while (at > least && (!mm_node_computes(&m->plan->nodes[at]) || m->at[at].start_ns > ns)) at--;
    return at > least ? at : least;
}

/* Sets where the loads of the chosen stays come: so early that they are done in time, one after the other. */
static void time_loads(mover *m, pace pace) {
    int64_t due = INT64_MAX;
    int32_t before = m->plan->n_nodes;
    for (int i = m->n - 1; i >= 0; i--) {
        stay *s = &m->stays[m->by_use[i]];
        if (!s->chosen || !s->loads) continue;
        s->load_at = s->to;
        if (pace == PACE_LATE) continue;
        if (m->at[s->to].start_ns < due) due = m->at[s->to].start_ns;
        due -= load_ns(m, s);
        s->load_at = step_by(m, due, s->from + 1, s->to < before ? s->to : before);
        before = s->load_at;
    }
}

/* Sets until when the segments of the chosen stays are kept, for stores one after the other. */
static mm_status time_stores(mover *m, pace pace) {
    int64_t ended = 0, *order = malloc(((size_t)m->n + 1) * sizeof *order);
    int n = 0;
    if (!order) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    for (int i = 0; i < m->n; i++)
        if (m->stays[i].chosen && m->stays[i].stores) order[n++] = ((int64_t)m->stays[i].from << 32) | i;
    qsort(order, (size_t)n, sizeof *order, by_key);
    for (int i = 0; i < n; i++) {
        stay *s = &m->stays[order[i] & INT32_MAX];
        s->free_after = -1;
        if (pace == PACE_LATE) continue;
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

/* ---------------------------------------------------------------- the copy */

/* A segment of the copy like one of the plan, in another memory or at another place. */
static int32_t add_segment(mm_plan *copy, int32_t like, mm_memory memory) {
    copy->segments[copy->n_segments] = copy->segments[like];
    copy->segments[copy->n_segments].memory = memory;
    return copy->n_segments++;
}

/* A segment in pinned memory for what comes from a home, or goes there. */
static int32_t add_visit(mm_plan *copy, int32_t home) {
    const int32_t segment = add_segment(copy, home, MM_MEM_PINNED);
    copy->segments[segment].category = MM_CAT_VISIT;
    return segment;
}

/* Adds the load of a stay. Of a home: after it was stored last, or else after the first step, before which the
 * iteration before may still use it. */
static void add_load(mover *m, mm_plan_rewrite *r, stay *s) {
    if (s->at_home) s->back = add_visit(r->copy, s->segment);
    s->load_node = mm_plan_rewrite_add(r, MM_NODE_LOAD, m->plan->segments[s->segment].tensor, s->disk, s->back);
    if (!s->at_home) {
        mm_plan_wait(r->copy, s->load_node, s->store_node);
        return;
    }
    mm_plan_wait(r->copy, s->load_node, m->last[s->segment] >= 0 ? m->last[s->segment] : m->moved[s->from]);
    m->last[s->segment] = s->load_node;
}

/* Adds the store of a stay after the node `from`, and after the node that wrote the segment. */
static void add_store(mover *m, mm_plan_rewrite *r, stay *s) {
    const mm_plan *plan = m->plan;
    mm_plan *copy = r->copy;
    s->disk = add_segment(copy, s->segment, MM_MEM_DISK);
    s->back = add_segment(copy, s->segment, MM_MEM_PINNED);
    s->store_node = mm_plan_rewrite_add(r, MM_NODE_STORE, plan->segments[s->segment].tensor, s->segment, s->disk);
    mm_plan_wait(copy, s->store_node, m->moved[plan->segments[s->segment].first_node]);
}

/* Makes a node of the copy read the segment to which its source was loaded, once it is there. */
static void read_back(mm_plan *copy, int node, const stay *s) {
    if (copy->nodes[node].src != s->segment) return;
    copy->nodes[node].src = s->back;
    mm_plan_wait(copy, node, s->load_node);
}

/* Makes a node of the copy write to pinned memory, and adds the store from there to the home. */
static void store_home(mover *m, mm_plan_rewrite *r, int number) {
    stay *s = &m->stays[number];
    mm_plan *copy = r->copy;
    const int32_t from = m->moved[s->from], through = add_visit(copy, s->segment);
    copy->nodes[from].dst = through;
    m->stay_of[through] = number;
    s->store_node = mm_plan_rewrite_add(r, MM_NODE_STORE, m->plan->segments[s->segment].tensor, through, s->segment);
    mm_plan_wait(copy, s->store_node, from);
    if (m->last[s->segment] >= 0) mm_plan_wait(copy, s->store_node, m->last[s->segment]);
    m->last[s->segment] = s->store_node;
}

/* Puts the homes of the copy where the limits have them. */
static void place_homes(const mover *m, mm_plan *copy) {
    const mm_place *places = m->limits->places;
    copy->pinned_base_bytes = m->limits->pinned_base_bytes;
    copy->disk_base_bytes = m->limits->disk_base_bytes;
    for (int i = 0; places && i < mm_graph_persistents(copy->graph); i++) {
        copy->segments[i].memory = places[i].memory;
        copy->segments[i].offset = places[i].offset;
        m->last[i] = -1;
    }
}

/* The chosen stay that stores a segment of the copy; NULL: there is none. */
static stay *stay_of(const mover *m, int32_t segment) {
    return m->stay_of[segment] >= 0 ? &m->stays[m->stay_of[segment]] : NULL;
}

static mm_status rewrite(mover *m, mm_plan **plan_out) {
    const mm_plan *plan = m->plan;
    mm_plan_rewrite r;
    int chosen = 0;
    for (int i = 0; i < m->n; i++) chosen += m->stays[i].chosen;
    MM_TRY(mm_plan_rewrite_begin(plan, 2 * chosen, 2 * chosen, &r));
    place_homes(m, r.copy);
    for (int i = 0, next = 0; i < plan->n_nodes; i++) {
        for (; next < m->n; next++) { /* loads are in the order of their readers, on a stream that is in order */
            stay *s = &m->stays[m->by_use[next]];
            const bool loads = s->chosen && s->loads;
            if (loads && s->load_at > i) break;
            if (loads) add_load(m, &r, s);
        }
        const mm_node *node = &plan->nodes[i];
        m->moved[i] = r.copy->n_nodes;
        mm_plan_rewrite_keep(&r, node);
        const int32_t used[] = {node->src, node->dst};
        for (int u = 0; u < 2; u++) {
            stay *s = !mm_node_runs_step(node) && used[u] >= 0 ? stay_of(m, used[u]) : NULL;
            if (s && i >= s->to) read_back(r.copy, m->moved[i], s);
            if (s && i == s->from) add_store(m, &r, s);
        }
        if (m->visit[i] < 0) continue;
        if (m->stays[m->visit[i]].loads)
            read_back(r.copy, m->moved[i], &m->stays[m->visit[i]]);
        else
            store_home(m, &r, m->visit[i]);
    }
    return mm_plan_rewrite_end(&r, plan_out);
}

/* ---------------------------------------------------------------- places */

static int32_t kept_until(const mover *m, int32_t segment) {
    const stay *s = stay_of(m, segment);
    return s && s->free_after >= 0 ? m->moved[s->free_after] : -1;
}

/* Places the segments of one memory that are no homes. */
static mm_status place(const mover *m, mm_plan *copy, mm_memory memory) {
    mm_interval *items = malloc(((size_t)copy->n_segments + 1) * sizeof *items);
    int32_t *which = malloc(((size_t)copy->n_segments + 1) * sizeof *which);
    const int64_t base = mm_limits_base(m->limits, memory), align = mm_memory_align(memory);
    const int64_t most = memory == MM_MEM_DISK ? m->limits->disk_bytes : m->limits->pinned_bytes;
    size_t n = 0;
    mm_status status = MM_OK;
    int64_t height = 0;
    if (!items || !which) status = mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    for (int i = mm_graph_persistents(copy->graph); status == MM_OK && i < copy->n_segments; i++) {
        const mm_segment *s = &copy->segments[i];
        if (s->memory != memory) continue;
        const int32_t kept = kept_until(m, i);
        items[n] =
            (mm_interval){.bytes = s->bytes, .first = s->first_node, .last = kept > s->last_node ? kept : s->last_node};
        which[n++] = i;
    }
    if (status == MM_OK)
        status = mm_layout_place(items, n, MM_LAYOUT_SOON, align, most > base ? most - base : 0, &height);
    for (size_t i = 0; status == MM_OK && i < n; i++) copy->segments[which[i]].offset = base + items[i].offset;
    free(items);
    free(which);
    return status;
}

/* Makes the copy in which the first n stays of maps go to the disk. *fits_out: whether it fits the limits of both. */
static mm_status attempt(mover *m, int n, pace pace, mm_plan **plan_out, bool *fits_out) {
    mm_plan *copy = NULL;
    for (int i = 0; i < m->plan->n_segments + 2 * m->n; i++) m->stay_of[i] = -1;
    for (int i = 0; i < m->n; i++) {
        stay *s = &m->stays[i];
        s->chosen = i < n || s->at_home;
        s->disk = s->at_home ? s->segment : -1;
        s->back = s->store_node = s->load_node = -1;
        if (i < n) m->stay_of[s->segment] = i;
    }
    time_loads(m, pace);
    MM_TRY(time_stores(m, pace));
    MM_TRY(rewrite(m, &copy));
    mm_status status = place(m, copy, MM_MEM_PINNED);
    if (status == MM_OK) status = place(m, copy, MM_MEM_DISK);
    if (status == MM_OK) status = mm_plan_finish(copy);
    if (status == MM_OK) status = mm_schedule_reuse_waits(copy);
    if (status != MM_OK) {
        mm_plan_destroy(copy);
        return status;
    }
    *fits_out = copy->pinned_bytes <= m->limits->pinned_bytes && copy->disk_bytes <= m->limits->disk_bytes;
    *plan_out = copy;
    return MM_OK;
}

/* Attempts a number of stays; a copy that fits, or that there is no other one of, replaces *plan if it may. *fits_out:
 * whether it fits. */
static mm_status improve(mover *m, int n, pace pace, bool any, mm_plan **plan, bool *fits_out) {
    mm_plan *copy;
    MM_TRY(attempt(m, n, pace, &copy, fits_out));
    const bool takes = *fits_out || (any && !*plan);
    mm_plan_destroy(takes ? *plan : copy);
    if (takes) *plan = copy;
    return MM_OK;
}

/* Finds the least number of stays of maps with which a copy fits, with loads that come late. *plan_out NULL: none fits;
 * if there are homes on the disk, it is one that does not fit, then. */
static mm_status find_least(mover *m, mm_plan **plan_out, int *least_out, bool *fits_out) {
    const bool homes = m->n > m->n_maps;
    int misfit = homes ? -1 : 0, fits = m->n_maps;
    MM_TRY(improve(m, m->n_maps, PACE_LATE, homes, plan_out, fits_out));
    while (*fits_out && fits - misfit > 1) {
        const int n = misfit < 0 ? 0 : misfit + (fits - misfit) / 2; /* often none has to go */
        bool less;
        MM_TRY(improve(m, n, PACE_LATE, false, plan_out, &less));
        *(less ? &fits : &misfit) = n;
    }
    *least_out = fits;
    return MM_OK;
}

/* Finds a copy with loads that come in time. It needs more pinned memory, so more may have to go. */
static mm_status find_timed(mover *m, int least, mm_plan **plan_out) {
    static const int quarters[] = {4, 5, 6, 8};
    bool good = false;
    for (size_t i = 0; !good && i < sizeof quarters / sizeof *quarters; i++) {
        const int n = least * quarters[i] / 4;
        MM_TRY(improve(m, n < m->n_maps ? n : m->n_maps, PACE_TIMED, false, plan_out, &good));
    }
    return MM_OK;
}

/* Of the plans at each pace, the faster one. */
static mm_status find(mover *m, mm_plan **plan_out) {
    mm_plan *late = NULL, *timed = NULL;
    int64_t late_ns = 0, timed_ns = 0;
    int least = 0;
    bool fits = false;
    mm_status status = find_least(m, &late, &least, &fits);
    if (status == MM_OK && fits) status = find_timed(m, least, &timed);
    if (status == MM_OK && timed) status = mm_simulated_time(late, m->facts, &late_ns);
    if (status == MM_OK && timed) status = mm_simulated_time(timed, m->facts, &timed_ns);
    const bool use_timed = timed && timed_ns <= late_ns;
    if (status == MM_OK && !late)
        status = mm_fail(MM_ERR_INFEASIBLE, "%s on %s does not fit the pinned memory even with a disk", m->plan->policy,
                         mm_graph_name(m->plan->graph));
    if (status == MM_OK) *plan_out = use_timed ? timed : late;
    if (status != MM_OK || use_timed) mm_plan_destroy(late);
    if (status != MM_OK || !use_timed) mm_plan_destroy(timed);
    return status;
}

mm_status mm_schedule_onto_disk(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits,
                                mm_plan **plan_out) {
    mover m = {.plan = plan, .facts = facts, .limits = limits};
    mm_graph_facts nominal = {0};
    mm_simulation simulation = {0};
    mm_status status = MM_OK;
    const bool is_nominal = mm_nominal_is_due(facts);
    if (is_nominal) {
        status = mm_nominal_init(plan->graph, facts, &nominal);
        m.facts = &nominal;
    }
    if (status == MM_OK) status = mm_simulate(plan, m.facts, &simulation);
    m.at = simulation.nodes;
    m.moved = malloc(((size_t)plan->n_nodes + 1) * sizeof *m.moved);
    if (status == MM_OK) status = find_stays(&m);
    if (status == MM_OK) qsort(m.stays, (size_t)m.n, sizeof *m.stays, by_gap);
    if (status == MM_OK) status = find_home_stays(&m);
    m.stay_of = malloc(((size_t)plan->n_segments + 2 * (size_t)m.n + 1) * sizeof *m.stay_of);
    if (status == MM_OK && (!m.moved || !m.stay_of))
        status = mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    if (status == MM_OK) status = order_by_use(&m);
    if (status == MM_OK) status = find(&m, plan_out);
    free(m.stays);
    free(m.by_use);
    free(m.moved);
    free(m.stay_of);
    free(m.visit);
    free(m.last);
    mm_simulation_fini(&simulation);
    if (is_nominal) mm_nominal_fini(&nominal);
    return status;
}
