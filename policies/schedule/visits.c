/* SPDX-License-Identifier: MIT */
#include "policies/schedule/visits.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/time/node_time.h"
#include "policies/schedule/leaving.h"

/* A use of a visiting tensor by a step. */
typedef struct visit_use {
    mm_tensor tensor;
    int32_t step;
    int32_t last; /* the last step before that uses the tensor; -1: none does */
    int32_t next; /* the next use of the tensor; -1: none */
    bool fetches; /* a visit begins, and the step needs what is at home */
    bool leaves;  /* the visit ends after the step */
    bool writes;
    bool on_host; /* the step runs on the host, and uses the home: no visit has it */
    int32_t due;  /* the step before which a visit that begins is fetched, at the latest its own */
} visit_use;

struct mm_visits {
    visit_use *uses; /* in the order of steps; of one step and tensor, one */
    int n;
    int32_t *first_of; /* per step, and one more: its first use */
    int next_fetch;    /* the use from which on visits are yet to begin */
    bool *changed;     /* per tensor: written since its visit began */
    int32_t *sent;     /* per tensor: node that copied it home last; -1: none */
    int32_t *fetched;  /* per tensor: node that copied it from home last; -1: none */
    int32_t *hosted;   /* per tensor: the last step on the host that used it; -1: none */
    int32_t *needed;   /* per tensor that was fetched early: the step that needs it */
    int64_t ahead_bytes, ahead_most;
    int64_t *begins; /* when each step begins, if nothing waits; NULL: times are not known */
    mm_leaving leaving;
    int first_node; /* the node of the first step; -1: it is yet to come */
};

/* ---------------------------------------------------------------- which visits there are */

/* Steps that are at most this far from each other share a visit, if times are not known. Chosen. */
enum { NEAR_STEPS = 4 };
/* A visit goes on to the next step if the tensor could hardly be away in between: for less than AWAY times the time of
 * its copy back to the device. And copies begin early by SLACK / 4 of their own time, since maps use the link, too.
 * Chosen. */
enum { AWAY = 2, SLACK = 6 };

static const visit_use *use_of(const mm_visits *v, int step, mm_tensor tensor) {
    for (int i = v->first_of[step]; i < v->first_of[step + 1]; i++)
        if (v->uses[i].tensor == tensor) return &v->uses[i];
    return NULL;
}

/* Lists the uses of visiting tensors, one for each step and tensor. */
static void list_uses(const mm_schedule *s, mm_visits *v) {
    for (int step = 0; step < mm_graph_steps(s->graph); step++) {
        const mm_step_info *info = mm_graph_step(s->graph, step);
        v->first_of[step] = v->n;
        v->first_of[step + 1] = v->n;
        for (int u = 0; u < info->n_uses; u++) {
            const mm_use *use = &info->uses[u];
            if (!mm_plan_visits(s->plan, use->tensor)) continue;
            visit_use *own = (visit_use *)use_of(v, step, use->tensor);
            if (!own) {
                own = &v->uses[v->n++];
                *own = (visit_use){
                    .tensor = use->tensor, .step = step, .last = -1, .next = -1, .on_host = info->on_host, .due = step};
                v->first_of[step + 1] = v->n;
            }
            own->fetches |= use->access != MM_WRITE && !info->on_host; /* for now: it needs a value */
            own->writes |= use->access != MM_READ;
        }
    }
}

static int count_uses(const mm_schedule *s) {
    int n = 0;
    for (int step = 0; step < mm_graph_steps(s->graph); step++) {
        const mm_step_info *info = mm_graph_step(s->graph, step);
        for (int u = 0; u < info->n_uses; u++) n += mm_plan_visits(s->plan, info->uses[u].tensor);
    }
    return n;
}

/* Whether a tensor stays on the device from a step to a later one that uses it. begins: when each step begins; NULL:
 * not known. */
static bool stays(const mm_schedule *s, mm_tensor tensor, int step, int next, const int64_t *begins) {
    if (!begins) return next - step <= NEAR_STEPS;
    const int64_t ns = mm_rate_ns(s->facts->in_bytes_per_s, mm_graph_tensor(s->graph, tensor)->bytes);
    return begins[next] - begins[step + 1] < AWAY * ns;
}

/* Divides the uses of each tensor into visits. last: per tensor, its last use so far; all -1. */
static void divide(const mm_schedule *s, mm_visits *v, const int64_t *begins, int32_t *last) {
    for (int i = 0; i < v->n; i++) {
        visit_use *use = &v->uses[i];
        visit_use *before = last[use->tensor] >= 0 ? &v->uses[last[use->tensor]] : NULL;
        last[use->tensor] = i;
        use->leaves = true;
        if (!before) continue;
        before->next = i;
        use->last = before->step;
        before->leaves = before->on_host || use->on_host || !stays(s, use->tensor, before->step, use->step, begins);
        use->fetches &= before->leaves;
    }
}

/* Finds when the copies begin, from the last one to the first. */
static void find_due(const mm_schedule *s, mm_visits *v, const int64_t *begins) {
    int64_t free_until = INT64_MAX;    /* from then on the link copies what was found so far */
    int at = mm_graph_steps(s->graph); /* the last step that has begun by then, or step 0 */
    for (int i = v->n - 1; i >= 0; i--) {
        visit_use *use = &v->uses[i];
        if (!use->fetches) continue;
        const int64_t ns = mm_rate_ns(s->facts->in_bytes_per_s, mm_graph_tensor(s->graph, use->tensor)->bytes);
        if (begins[use->step] < free_until) free_until = begins[use->step];
        free_until -= ns / 4 * SLACK;
        while (at > 0 && begins[at] > free_until) at--;
        const int first = use->last + 1 > 1 ? use->last + 1 : 1;
        if (use->due > first) use->due = at > first ? at : first;
    }
}

/* When each step begins, if nothing waits. NULL and no failure: times are not known. */
static mm_status step_begins(const mm_schedule *s, int64_t **begins_out) {
    const mm_graph_facts *facts = s->facts;
    int64_t *begins = malloc(((size_t)facts->n_steps + 2) * sizeof *begins);
    if (!begins) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    begins[0] = 0;
    for (int i = 0; i < facts->n_steps; i++) begins[i + 1] = begins[i] + facts->variants[facts->variant_first[i]].ns;
    if (facts->in_bytes_per_s <= 0 || begins[facts->n_steps] == 0) {
        free(begins);
        begins = NULL;
    }
    *begins_out = begins;
    return MM_OK;
}

mm_status mm_visits_init(mm_schedule *s) {
    const size_t steps = (size_t)mm_graph_steps(s->graph) + 2, tensors = (size_t)mm_graph_tensors(s->graph) + 1;
    const int n = count_uses(s);
    int64_t *begins;
    if (n == 0) return MM_OK;
    mm_visits *v = s->visits = calloc(1, sizeof *v);
    if (v) {
        *v = (mm_visits){.uses = malloc((size_t)n * sizeof *v->uses),
                         .first_of = calloc(steps, sizeof *v->first_of),
                         .changed = calloc(tensors, sizeof *v->changed),
                         .sent = malloc(tensors * sizeof *v->sent),
                         .fetched = malloc(tensors * sizeof *v->fetched),
                         .hosted = malloc(tensors * sizeof *v->hosted),
                         .needed = malloc(tensors * sizeof *v->needed),
                         .ahead_most = s->ahead_bytes,
                         .first_node = -1};
    }
    if (!v || !v->uses || !v->first_of || !v->changed || !v->sent || !v->fetched || !v->hosted || !v->needed)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    for (size_t t = 0; t < tensors; t++) v->sent[t] = v->fetched[t] = v->hosted[t] = v->needed[t] = -1;
    MM_TRY(mm_leaving_init(&v->leaving, n, s->ahead_bytes));
    MM_TRY(step_begins(s, &begins));
    v->begins = begins;
    list_uses(s, v);
    divide(s, v, begins, v->needed);
    for (size_t t = 0; t < tensors; t++) v->needed[t] = -1;
    if (begins) find_due(s, v, begins);
    return MM_OK;
}

void mm_visits_fini(mm_visits *v) {
    if (!v) return;
    free(v->uses);
    free(v->first_of);
    free(v->changed);
    free(v->sent);
    free(v->fetched);
    free(v->hosted);
    free(v->needed);
    free(v->begins);
    mm_leaving_fini(&v->leaving);
    free(v);
}

/* ---------------------------------------------------------------- visits begin and end */

/* Copies the tensor from its home. */
static bool fetch(mm_schedule *s, mm_tensor tensor) {
    mm_visits *v = s->visits;
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    int segment;
    const int node =
        mm_schedule_op(s, MM_NODE_IN, tensor, info->persistent, -1, MM_REGION_GENERAL, info->bytes, &segment);
    if (node < 0) return false;
    s->plan->segments[segment].category = MM_CAT_VISIT;
    if (v->first_node >= 0) mm_plan_wait(s->plan, node, v->first_node);
    if (v->sent[tensor] >= 0) mm_plan_wait(s->plan, node, v->sent[tensor]);
    if (v->hosted[tensor] >= 0) mm_plan_wait(s->plan, node, v->hosted[tensor]);
    v->fetched[tensor] = node;
    s->tensors[tensor].value = segment;
    s->tensors[tensor].value_node = node;
    v->changed[tensor] = false;
    return true;
}

static bool fetch_ahead(mm_schedule *s, const visit_use *use) {
    mm_visits *v = s->visits;
    v->needed[use->tensor] = use->step;
    v->ahead_bytes += mm_graph_tensor(s->graph, use->tensor)->bytes;
    return fetch(s, use->tensor);
}

bool mm_visits_before(mm_schedule *s, int step) {
    mm_visits *v = s->visits;
    if (v && v->begins) mm_leaving_look(&v->leaving, s, v->begins[step]);
    for (; v && v->next_fetch < v->n; v->next_fetch++) {
        const visit_use *use = &v->uses[v->next_fetch];
        if (!use->fetches || s->tensors[use->tensor].value >= 0) {
            if (use->step > step && use->fetches)
                break; /* an earlier visit is not over, or a step that ran again
                                                            has fetched it */
            continue;
        }
        const int64_t bytes = mm_graph_tensor(s->graph, use->tensor)->bytes;
        if (use->step > step && (use->due > step || v->ahead_bytes + bytes > v->ahead_most)) break;
        if (!(use->step > step ? fetch_ahead(s, use) : fetch(s, use->tensor))) return false;
    }
    return true;
}

void mm_visits_use_homes(mm_schedule *s, int step, int node) {
    const mm_visits *v = s->visits;
    for (int i = v ? v->first_of[step] : 0; v && i < v->first_of[step + 1]; i++) {
        const visit_use *use = &v->uses[i];
        if (v->first_node >= 0) mm_plan_wait(s->plan, node, v->first_node);
        if (v->sent[use->tensor] >= 0) mm_plan_wait(s->plan, node, v->sent[use->tensor]);
        if (use->writes && v->fetched[use->tensor] >= 0) mm_plan_wait(s->plan, node, v->fetched[use->tensor]);
    }
}

/* Ends the tensor's visit after the step at `node`. */
static bool leave(mm_schedule *s, mm_tensor tensor, int node) {
    mm_visits *v = s->visits;
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    const int home = info->persistent;
    if (v->changed[tensor]) {
        if (v->begins)
            mm_leaving_add(&v->leaving, s, s->tensors[tensor].value, v->begins[s->plan->nodes[node].step + 1],
                           mm_rate_ns(s->facts->out_bytes_per_s, info->bytes) / 4 * SLACK);
        const int sent = mm_plan_op(s->plan, MM_NODE_OUT, tensor, s->tensors[tensor].value, home);
        if (sent < 0) return false;
        mm_plan_wait(s->plan, sent, node);
        if (v->hosted[tensor] >= 0) mm_plan_wait(s->plan, sent, v->hosted[tensor]);
        v->sent[tensor] = sent;
    }
    v->changed[tensor] = false;
    s->tensors[tensor].value = s->tensors[tensor].value_node = -1;
    return true;
}

bool mm_visits_after(mm_schedule *s, int step, int node) {
    mm_visits *v = s->visits;
    if (!v) return true;
    if (v->first_node < 0) v->first_node = node;
    for (int i = v->first_of[step]; i < v->first_of[step + 1]; i++) {
        const visit_use *use = &v->uses[i];
        if (use->on_host) {
            v->hosted[use->tensor] = node;
            continue;
        }
        if (v->needed[use->tensor] == step) {
            v->ahead_bytes -= mm_graph_tensor(s->graph, use->tensor)->bytes;
            v->needed[use->tensor] = -1;
        }
        v->changed[use->tensor] |= use->writes;
        if (use->leaves && !leave(s, use->tensor, node)) return false;
    }
    return true;
}

bool mm_visits_before_again(mm_schedule *s, int step) {
    mm_visits *v = s->visits;
    for (int i = v ? v->first_of[step] : 0; v && i < v->first_of[step + 1]; i++)
        if (s->tensors[v->uses[i].tensor].value < 0 && !fetch(s, v->uses[i].tensor)) return false;
    return true;
}

bool mm_visits_expect_again(mm_schedule *s, int step) {
    mm_visits *v = s->visits;
    int64_t bytes = 0;
    for (int i = v ? v->first_of[step] : 0; v && i < v->first_of[step + 1]; i++)
        if (s->tensors[v->uses[i].tensor].value < 0) bytes += mm_graph_tensor(s->graph, v->uses[i].tensor)->bytes;
    return bytes == 0 || bytes > v->ahead_most || mm_visits_before_again(s, step);
}

/* A tensor stays if a visit is under way, or if a step near `when` needs it. */
void mm_visits_after_again(mm_schedule *s, int step, int when) {
    mm_visits *v = s->visits;
    for (int i = v ? v->first_of[step] : 0; v && i < v->first_of[step + 1]; i++) {
        const mm_tensor tensor = v->uses[i].tensor;
        const visit_use *next = &v->uses[i];
        bool there = v->changed[tensor] || v->needed[tensor] >= 0;
        while (next && !next->on_host && next->step < when) {
            there |= !next->leaves && next->next >= 0 && v->uses[next->next].step >= when;
            next = next->next >= 0 ? &v->uses[next->next] : NULL;
        }
        if (there || (next && !next->on_host && next->step <= when + NEAR_STEPS)) continue;
        s->tensors[tensor].value = s->tensors[tensor].value_node = -1;
    }
}
