/* SPDX-License-Identifier: MIT */
/* A copy of a plan in which some tensors wait for their next use on the disk:
 *
 *              ... offload -> P |                        | Q -> prefetch ...
 *   store                       | P -> disk              |
 *   load                        |             disk -> Q  |
 *
 * P and Q are segments in pinned memory. Those are all placed anew; those on the disk, too. A home on the disk waits
 * there from the last offload of an iteration to the first prefetch of the next. A step on the host finds it in Q, and
 * leaves it there for the store. */
#include "policies/schedule/onto_disk.h"

#include <stdlib.h>
#include <string.h>

#include "buffers/layout/layout.h"
#include "mm/core/plan/plan_rewrite.h"
#include "mm/core/status.h"
#include "policies/schedule/disk_stays.h"
#include "policies/schedule/draft_time.h"
#include "policies/schedule/nominal.h"
#include "policies/schedule/schedule.h"

typedef struct mover {
    const mm_plan *plan;
    const mm_graph_facts *facts; /* with times */
    const mm_limits *limits;
    mm_stays of;
    int32_t *moved;   /* per node of the plan: its number in the copy */
    int32_t *stay_of; /* per segment of the copy: its number among the stays that are chosen, and store it; -1: none */
    int32_t *last;    /* per home: the last node of the copy that loads it, or stores it; -1: none yet */
} mover;

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
static void add_load(mover *m, mm_plan_rewrite *r, mm_stay *s) {
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
static void add_store(mover *m, mm_plan_rewrite *r, mm_stay *s) {
    const mm_plan *plan = m->plan;
    mm_plan *copy = r->copy;
    s->disk = add_segment(copy, s->segment, MM_MEM_DISK);
    s->back = add_segment(copy, s->segment, MM_MEM_PINNED);
    s->store_node = mm_plan_rewrite_add(r, MM_NODE_STORE, plan->segments[s->segment].tensor, s->segment, s->disk);
    mm_plan_wait(copy, s->store_node, m->moved[plan->segments[s->segment].first_node]);
}

/* Makes a node of the copy read the segment to which its source was loaded, once it is there. */
static void read_back(mm_plan *copy, int node, const mm_stay *s) {
    if (copy->nodes[node].src != s->segment) return;
    copy->nodes[node].src = s->back;
    mm_plan_wait(copy, node, s->load_node);
}

/* Makes a step of the copy use a segment in pinned memory in place of a home. */
static void bind_step(mm_plan *copy, const mm_node *node, mm_tensor tensor, int32_t segment) {
    const mm_step_info *step = mm_graph_step(copy->graph, node->step);
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor) copy->bindings[node->first_binding + u] = segment;
}

/* Makes a node of the copy write to pinned memory, and adds the store from there to the home. there: the segment to
 * which it was loaded for the node; -1: none. */
static void store_home(mover *m, mm_plan_rewrite *r, mm_stay *s, int32_t there) {
    mm_plan *copy = r->copy;
    const mm_tensor tensor = m->plan->segments[s->segment].tensor;
    const int32_t from = m->moved[s->from], through = there >= 0 ? there : add_visit(copy, s->segment);
    mm_node *node = &copy->nodes[from];
    if (mm_node_runs_step(node))
        bind_step(copy, node, tensor, through);
    else
        node->dst = through;
    m->stay_of[through] = (int32_t)(s - m->of.stays);
    s->store_node = mm_plan_rewrite_add(r, MM_NODE_STORE, tensor, through, s->segment);
    mm_plan_wait(copy, s->store_node, from);
    if (m->last[s->segment] >= 0) mm_plan_wait(copy, s->store_node, m->last[s->segment]);
    m->last[s->segment] = s->store_node;
}

/* Makes a node of the copy use what is loaded of homes on the disk, and adds the stores of what it writes. */
static void use_homes(mover *m, mm_plan_rewrite *r, int node) {
    const mm_stay *loaded = NULL;
    mm_stay *s;
    for (int next = m->of.visit[node]; (s = mm_stays_next(&m->of, node, &next));) {
        if (s->stores) {
            store_home(m, r, s, loaded && loaded->segment == s->segment ? loaded->back : -1);
            continue;
        }
        loaded = s;
        const mm_node *copied = &r->copy->nodes[m->moved[node]];
        if (mm_node_runs_step(copied)) {
            bind_step(r->copy, copied, m->plan->segments[s->segment].tensor, s->back);
            mm_plan_wait(r->copy, m->moved[node], s->load_node);
        } else
            read_back(r->copy, m->moved[node], s);
    }
}

/* Puts the homes of the copy where the limits have them. */
static void place_homes(const mover *m, mm_plan *copy) {
    const mm_place *places = m->limits->places;
    copy->pinned_base_bytes = m->limits->pinned_base_bytes;
    copy->disk_base_bytes = m->limits->disk_base_bytes;
    for (int i = 0; i < mm_graph_persistents(copy->graph); i++) m->last[i] = -1;
    for (int i = 0; places && i < mm_graph_persistents(copy->graph); i++) {
        copy->segments[i].memory = places[i].memory;
        copy->segments[i].offset = places[i].offset;
    }
}

/* The chosen stay that stores a segment of the copy; NULL: there is none. */
static mm_stay *stay_of(const mover *m, int32_t segment) {
    return m->stay_of[segment] >= 0 ? &m->of.stays[m->stay_of[segment]] : NULL;
}

static mm_status rewrite(mover *m, mm_plan **plan_out) {
    const mm_plan *plan = m->plan;
    mm_plan_rewrite r;
    int chosen = 0;
    for (int i = 0; i < m->of.n; i++) chosen += m->of.stays[i].chosen;
    MM_TRY(mm_plan_rewrite_begin(plan, 2 * chosen, 2 * chosen, &r));
    place_homes(m, r.copy);
    for (int i = 0, next = 0; i < plan->n_nodes; i++) {
        for (; next < m->of.n; next++) { /* loads are in the order of their readers, on a stream that is in order */
            mm_stay *s = &m->of.stays[m->of.by_use[next]];
            const bool loads = s->chosen && s->loads;
            if (loads && s->load_at > i) break;
            if (loads) add_load(m, &r, s);
        }
        const mm_node *node = &plan->nodes[i];
        m->moved[i] = r.copy->n_nodes;
        mm_plan_rewrite_keep(&r, node);
        const int32_t used[] = {node->src, node->dst};
        for (int u = 0; u < 2; u++) {
            mm_stay *s = !mm_node_runs_step(node) && used[u] >= 0 ? stay_of(m, used[u]) : NULL;
            if (s && i >= s->to) read_back(r.copy, m->moved[i], s);
            if (s && i == s->from) add_store(m, &r, s);
        }
        use_homes(m, &r, i);
    }
    return mm_plan_rewrite_end(&r, plan_out);
}

/* ---------------------------------------------------------------- places */

static int32_t kept_until(const mover *m, int32_t segment) {
    const mm_stay *s = stay_of(m, segment);
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
static mm_status attempt(mover *m, int n, mm_pace pace, mm_plan **plan_out, bool *fits_out) {
    mm_plan *copy = NULL;
    for (int i = 0; i < m->plan->n_segments + 2 * m->of.n; i++) m->stay_of[i] = -1;
    for (int i = 0; i < m->of.n; i++) {
        mm_stay *s = &m->of.stays[i];
        s->chosen = i < n || s->at_home;
        s->disk = s->at_home ? s->segment : -1;
        s->back = s->store_node = s->load_node = -1;
        if (i < n) m->stay_of[s->segment] = i;
    }
    mm_stays_time_loads(&m->of, pace);
    MM_TRY(mm_stays_time_stores(&m->of, pace));
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
static mm_status improve(mover *m, int n, mm_pace pace, bool any, mm_plan **plan, bool *fits_out) {
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
    const bool homes = m->of.n > m->of.n_maps;
    int misfit = homes ? -1 : 0, fits = m->of.n_maps;
    MM_TRY(improve(m, m->of.n_maps, MM_PACE_LATE, homes, plan_out, fits_out));
    while (*fits_out && fits - misfit > 1) {
        const int n = misfit < 0 ? 0 : misfit + (fits - misfit) / 2; /* often none has to go */
        bool less;
        MM_TRY(improve(m, n, MM_PACE_LATE, false, plan_out, &less));
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
        MM_TRY(improve(m, n < m->of.n_maps ? n : m->of.n_maps, MM_PACE_TIMED, false, plan_out, &good));
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
    m.of = (mm_stays){.plan = plan, .facts = m.facts, .places = limits->places, .at = simulation.nodes};
    if (status == MM_OK) status = mm_stays_find(&m.of);
    m.moved = malloc(((size_t)plan->n_nodes + 1) * sizeof *m.moved);
    m.stay_of = malloc(((size_t)plan->n_segments + 2 * (size_t)m.of.n + 1) * sizeof *m.stay_of);
    m.last = malloc(((size_t)mm_graph_persistents(plan->graph) + 1) * sizeof *m.last);
    if (status == MM_OK && (!m.moved || !m.stay_of || !m.last))
        status = mm_fail(MM_ERR_NOMEM, "out of memory for a plan with a disk");
    if (status == MM_OK) status = find(&m, plan_out);
    mm_stays_fini(&m.of);
    free(m.moved);
    free(m.stay_of);
    free(m.last);
    mm_simulation_fini(&simulation);
    if (is_nominal) mm_nominal_fini(&nominal);
    return status;
}
