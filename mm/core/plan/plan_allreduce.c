/* SPDX-License-Identifier: MIT */
/* Adds the copies of all-reduced tensors (mm_graph_allreduce) to a finished plan.
 *
 *   compute  ... | backward of c | backward of b | backward of a |              update |
 *   out                          | grad c        | grad b        | grad a |
 *   (host)                                | sum c         | sum b         | sum a |
 *   in                                            | grad c        | grad b        | grad a |
 *
 * The copies out are in the order of the steps that write the tensors last; so are the copies in. This order is the
 * same in all processes, whatever their policies. A copy in waits on its stream for the sum, and holds up what follows
 * on that stream. So the copies in come after all fetches that the plan itself has before the update.
 *
 * Tensors all-reduced in place need no copies: mm_plan_allreduce_groups says after which steps their sums begin. */
#include "mm/core/plan/plan_allreduce.h"

#include <stdint.h>
#include <stdlib.h>

#include "mm/core/plan/plan_rewrite.h"
#include "mm/core/plan/plan_touch.h"
#include "mm/core/status.h"

typedef struct shared {
    mm_tensor tensor;
    int32_t written;           /* the last node that writes it */
    int32_t first_update;      /* the first update step after `written` */
    int32_t used_before;       /* the last node before first_update that uses the tensor */
    int32_t update;            /* the first update after `written` that uses it; if none does, first_update */
    int32_t used;              /* the last node before `update` that uses it */
    int32_t after;             /* the step that the copy out waits for */
    int32_t out_at, in_at;     /* nodes that the copies follow; neither decreases along the list */
    int32_t pinned;            /* its segment in pinned memory, in the copy of the plan */
    int32_t out_node, in_node; /* nodes of its copies, in the copy of the plan; -1: not added yet */
} shared;

static int by_writer(const void *a, const void *b) {
    const shared *x = a, *y = b;
    return x->written != y->written ? (x->written < y->written ? -1 : 1) : x->tensor - y->tensor;
}

/* Lists the tensors that are all-reduced through copies, else (copies: false) in place. Returns their number. */
static int list_shared(const mm_graph *graph, bool copies, shared *list) {
    int n = 0;
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->shared != MM_ALLREDUCE_NOT &&
            mm_allreduce_copies(mm_graph_tensor(graph, t)->shared) == copies)
            list[n++] =
                (shared){.tensor = t, .written = -1, .first_update = -1, .update = -1, .out_node = -1, .in_node = -1};
    return n;
}

static bool is_update(const mm_plan *plan, int node) {
    return plan->nodes[node].kind == MM_NODE_STEP &&
           mm_graph_step(plan->graph, plan->nodes[node].step)->phase == MM_UPDATE;
}

/* Finds each tensor's writers, users and updates. by_segment: per persistent segment, its entry; NULL: not listed. */
static void find_users(const mm_plan *plan, shared *const *by_segment, shared *list, int n) {
    const int persistents = mm_graph_persistents(plan->graph);
    for (int i = 0; i < plan->n_nodes; i++) {
        const bool updates = is_update(plan, i);
        mm_touch touch;
        for (int t = 0; mm_node_next_touch(plan, &plan->nodes[i], &t, &touch);) {
            shared *s = touch.segment < persistents ? by_segment[touch.segment] : NULL;
            if (!s) continue;
            if (touch.access != MM_READ) {
                s->written = i;
                s->update = s->first_update = -1;
            } else if (updates && s->written >= 0 && s->update < 0)
                s->update = i;
            if (s->update < 0) s->used = i;
        }
        for (int k = 0; updates && k < n; k++)
            if (list[k].written >= 0 && list[k].written < i && list[k].first_update < 0) {
                list[k].first_update = i;
                list[k].used_before = list[k].used;
            }
    }
    for (shared *s = list; s < list + n; s++) {
        if (s->update >= 0) continue;
        s->update = s->first_update;
        s->used = s->used_before;
    }
}

/* The last node before the next step. Copies are inserted after that node, so that the operations after a step stay
 * together. */
static int32_t behind(const mm_plan *plan, int32_t node) {
    while (node + 1 < plan->n_nodes && !mm_node_runs_step(&plan->nodes[node + 1])) node++;
    return node;
}

static int32_t later(int32_t a, int32_t b) { return a > b ? a : b; }

/* The node after which a tensor's sum may begin, as far as its writers are concerned. */
static int32_t complete(const mm_plan *plan, const shared *s) {
    int32_t node = s->written;
    if (!mm_allreduce_at_end(mm_graph_tensor(plan->graph, s->tensor)->shared)) return node;
    for (node = s->update - 1; node > s->written && !mm_node_runs_step(&plan->nodes[node]);) node--;
    return node;
}

/* Finds where the copies go. The list is sorted by writer. If a tensor's update is later than the update of a tensor
 * that follows in the list, the earlier update is used for both, so that copies in keep the list's order. */
static void place(const mm_plan *plan, shared *list, int n) {
    int last_fetch = -1, last_out = -1, last_in = -1;
    for (int k = n - 2; k >= 0; k--)
        if (list[k].update > list[k + 1].update) list[k].update = list[k + 1].update;
    for (int k = 0, i = 0; k < n; k++) {
        shared *s = &list[k];
        for (; i < s->update; i++)
            if (plan->nodes[i].stream == MM_STREAM_IN) last_fetch = i;
        s->after = complete(plan, s);
        s->out_at = last_out = later(behind(plan, s->after), last_out);
        s->in_at = last_in = behind(plan, later(later(s->out_at, s->used), later(last_fetch, last_in)));
    }
}

static void add_pinned(mm_plan *copy, int64_t bytes, shared *s) {
    s->pinned = copy->n_segments++;
    copy->segments[s->pinned] = (mm_segment){.content = MM_CONTENT_RAW,
                                             .category = MM_CAT_GRADIENT_MAP,
                                             .tensor = s->tensor,
                                             .codec = -1,
                                             .pool = -1,
                                             .spill = -1,
                                             .memory = MM_MEM_PINNED,
                                             .offset = mm_align(copy->pinned_bytes),
                                             .bytes = bytes};
    copy->pinned_bytes = copy->segments[s->pinned].offset + bytes;
}

static void add_out(mm_plan_rewrite *r, const int32_t *kept, shared *s) {
    const int32_t segment = mm_graph_tensor(r->copy->graph, s->tensor)->persistent;
    s->out_node = mm_plan_rewrite_add(r, MM_NODE_OUT, s->tensor, segment, s->pinned);
    mm_plan_wait(r->copy, s->out_node, kept[s->after]);
}

static void add_in(mm_plan_rewrite *r, const int32_t *kept, shared *s) {
    const int32_t segment = mm_graph_tensor(r->copy->graph, s->tensor)->persistent;
    s->in_node = mm_plan_rewrite_add(r, MM_NODE_IN, s->tensor, s->pinned, segment);
    mm_plan_wait(r->copy, s->in_node, s->out_node);
    mm_plan_wait(r->copy, s->in_node, kept[s->used]);
}

/* kept: per node of the plan, its index in the copy. Copies out, copies in and updates come in the order of the
 * list. */
static mm_status rewrite(const mm_plan *plan, shared *list, int n, int32_t *kept, mm_plan **plan_out) {
    mm_plan_rewrite r;
    int out = 0, in = 0, update = 0;
    MM_TRY(mm_plan_rewrite_begin(plan, 2 * n, n, &r));
    for (int k = 0; k < n; k++) add_pinned(r.copy, mm_graph_tensor(plan->graph, list[k].tensor)->bytes, &list[k]);
    for (int i = 0; i < plan->n_nodes; i++) {
        kept[i] = r.copy->n_nodes;
        mm_plan_rewrite_keep(&r, &plan->nodes[i]);
        for (; update < n && list[update].update == i; update++) mm_plan_wait(r.copy, kept[i], list[update].in_node);
        for (int before = -1; before != out + in;) { /* a copy in can follow here only once the copy out of the same
                                                        tensor is there */
            before = out + in;
            if (out < n && list[out].out_at == i) add_out(&r, kept, &list[out++]);
            if (in < out && list[in].in_at == i) add_in(&r, kept, &list[in++]);
        }
    }
    return mm_plan_rewrite_end(&r, plan_out);
}

int64_t mm_plan_allreduce_bytes(const mm_graph *graph) {
    int64_t bytes = 0;
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_allreduce_copies(mm_graph_tensor(graph, t)->shared))
            bytes = mm_align(bytes) + mm_graph_tensor(graph, t)->bytes;
    return bytes;
}

/* A list of all-reduced tensors, with an index by segment. */
typedef struct finder {
    shared *list, **by_segment;
    int n;
} finder;

static void finder_fini(finder *f) {
    free(f->list);
    free(f->by_segment);
}

/* Call finder_fini also after a failure. */
static mm_status find(const mm_plan *plan, bool copies, finder *f) {
    const mm_graph *graph = plan->graph;
    *f = (finder){.list = malloc(((size_t)mm_graph_tensors(graph) + 1) * sizeof *f->list),
                  .by_segment = calloc((size_t)mm_graph_persistents(graph) + 1, sizeof *f->by_segment)};
    if (!f->list || !f->by_segment) return mm_fail(MM_ERR_NOMEM, "out of memory for all-reduced tensors");
    f->n = list_shared(graph, copies, f->list);
    for (int k = 0; k < f->n; k++) f->by_segment[mm_graph_tensor(graph, f->list[k].tensor)->persistent] = &f->list[k];
    find_users(plan, f->by_segment, f->list, f->n);
    return MM_OK;
}

mm_status mm_plan_add_allreduce(const mm_plan *plan, mm_plan **plan_out) {
    finder f;
    mm_status status = find(plan, true, &f);
    int32_t *kept = malloc(((size_t)plan->n_nodes + 1) * sizeof *kept);
    if (status == MM_OK && !kept) status = mm_fail(MM_ERR_NOMEM, "out of memory for all-reduced tensors");
    if (status == MM_OK) {
        qsort(f.list, (size_t)f.n, sizeof *f.list, by_writer);
        place(plan, f.list, f.n);
        status = rewrite(plan, f.list, f.n, kept, plan_out);
    }
    finder_fini(&f);
    free(kept);
    return status;
}

/* ---------------------------------------------------------------- in place */

/* The group of a tensor. Groups are ordered by update. Before an update, gradients come first, a group for each step
 * that writes gradients last; then one group of all other tensors, and of those that are all-reduced at the end. The
 * order is the same under every policy. */
static mm_allreduce_group group_of(const mm_plan *plan, const shared *s) {
    const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, s->tensor);
    const bool gradient = tensor->kind == MM_WEIGHT_GRADIENT, at_end = mm_allreduce_at_end(tensor->shared);
    return (mm_allreduce_group){.n = 1,
                                .after = later(complete(plan, s), s->used),
                                .update = s->update,
                                .writer =
                                    at_end || !gradient || s->written < 0 ? INT32_MAX : plan->nodes[s->written].step};
}

static int by_group(const void *a, const void *b) {
    const mm_allreduce_group *x = a, *y = b;
    if (x->update != y->update) return x->update < y->update ? -1 : 1;
    if (x->writer != y->writer) return x->writer < y->writer ? -1 : 1;
    return x->first - y->first;
}

/* Joins the entries of a group. At first there is an entry for each tensor, with the tensor's number in `first`. */
static void join_groups(mm_allreduce_groups *all) {
    const int n = all->n;
    mm_allreduce_group *last = NULL;
    all->n = 0;
    qsort(all->groups, (size_t)n, sizeof *all->groups, by_group);
    for (int k = 0; k < n; k++) {
        const mm_allreduce_group one = all->groups[k];
        all->tensors[k] = one.first;
        if (!last || last->update != one.update || last->writer != one.writer) {
            const int32_t earliest = last ? last->after : -1;
            last = &all->groups[all->n++];
            *last = one;
            last->first = k;
            last->after = later(one.after, earliest);
        } else {
            last->n++;
            last->after = later(last->after, one.after);
        }
    }
}

static bool has_any(const mm_graph *graph) {
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_allreduce_when shared = mm_graph_tensor(graph, t)->shared;
        if (shared != MM_ALLREDUCE_NOT && !mm_allreduce_copies(shared)) return true;
    }
    return false;
}

mm_status mm_plan_allreduce_groups(const mm_plan *plan, mm_allreduce_groups *groups_out) {
    finder f;
    mm_allreduce_groups all = {0};
    *groups_out = all;
    if (!has_any(plan->graph)) return MM_OK;
    mm_status status = find(plan, false, &f);
    if (status == MM_OK && f.n > 0) {
        all = (mm_allreduce_groups){.n = f.n,
                                    .groups = malloc((size_t)f.n * sizeof *all.groups),
                                    .tensors = malloc((size_t)f.n * sizeof *all.tensors)};
        if (!all.groups || !all.tensors) status = mm_fail(MM_ERR_NOMEM, "out of memory for all-reduced tensors");
    }
    for (int k = 0; status == MM_OK && k < f.n; k++) {
        all.groups[k] = group_of(plan, &f.list[k]);
        all.groups[k].first = f.list[k].tensor;
    }
    if (status == MM_OK && f.n > 0) join_groups(&all);
    finder_fini(&f);
    if (status == MM_OK)
        *groups_out = all;
    else
        mm_allreduce_groups_fini(&all);
    return status;
}

int64_t mm_allreduce_group_bytes(const mm_plan *plan, const mm_allreduce_groups *all, int group) {
    int64_t bytes = 0;
    for (int i = 0; i < all->groups[group].n; i++)
        bytes += mm_graph_tensor(plan->graph, all->tensors[all->groups[group].first + i])->bytes;
    return bytes;
}

void mm_allreduce_groups_fini(mm_allreduce_groups *all) {
    free(all->groups);
    free(all->tensors);
    *all = (mm_allreduce_groups){0};
}
