/* SPDX-License-Identifier: MIT */
/* Which persistent tensors may leave the device, in which order; and their homes in a trial. */
#include <stdlib.h>
#include <string.h>

#include "mm/planning/homes.h"

/* Tensors with less than this part of all persistent bytes stay. Chosen. */
enum { LEAST_PART = 4096 };

typedef struct candidate {
    mm_tensor tensor;
    int forward; /* 1: a forward step reads it, so it is fetched more often */
    int step;    /* the last that uses it */
    uint32_t turn;
} candidate;

/* Whether a forward step writes or modifies the tensor. */
static bool *find_written(const mm_graph *graph) {
    bool *written = calloc((size_t)mm_graph_tensors(graph) + 1, sizeof *written);
    for (int s = 0; written && s < mm_graph_steps(graph); s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        for (int u = 0; step->phase == MM_FORWARD && u < step->n_uses; u++)
            written[step->uses[u].tensor] |= step->uses[u].access != MM_READ;
    }
    return written;
}

static bool may_leave(const mm_tensor_info *info, unsigned away, int64_t least) {
    if (away && !(away >> info->kind & 1)) return false;
    const bool kind = info->kind == MM_WEIGHT || info->kind == MM_OPTIMIZER || info->kind == MM_WEIGHT_GRADIENT;
    return info->persistent >= 0 && kind && info->shared == MM_ALLREDUCE_NOT && info->first_use > 0 &&
           info->bytes >= least;
}

static int by_step(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->forward != y->forward) return x->forward - y->forward;
    return x->step != y->step ? (x->step > y->step) - (x->step < y->step) : x->tensor - y->tensor;
}

static int by_turn(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->forward != y->forward) return x->forward - y->forward;
    return x->turn != y->turn ? (x->turn > y->turn) - (x->turn < y->turn) : x->tensor - y->tensor;
}

/* The bits of a number in reverse: 0, 1, 2, 3 ... become points that divide a range ever more finely. */
static uint32_t reversed(uint32_t number) {
    uint32_t turned = 0;
    for (int bit = 0; bit < 32; bit++) turned |= (number >> bit & 1u) << (31 - bit);
    return turned;
}

/* Gives turns to the candidates of one kind, which are sorted by their steps: those at one step get one turn. */
static void give_turns(candidate *list, int n) {
    uint32_t place = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (list[i].forward != list[i - 1].forward)) place = 0;
        if (i > 0 && list[i].forward == list[i - 1].forward && list[i].step != list[i - 1].step) place++;
        list[i].turn = reversed(place);
    }
}

/* Lists those that may leave the device; or of those that are hosted, the states. */
static int list_candidates(const mm_graph *graph, unsigned away, const bool *written, bool hosted, candidate *list) {
    int64_t bytes = 0;
    int n = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->persistent >= 0) bytes += mm_graph_tensor(graph, t)->bytes;
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(graph, t);
        if (written[t] || info->on_host != hosted || !may_leave(info, away, bytes / LEAST_PART)) continue;
        if (hosted && info->kind != MM_OPTIMIZER) continue;
        list[n++] = (candidate){.tensor = t, .forward = info->last_forward >= 0, .step = info->last_use};
    }
    return n;
}

/* Whether the graph changes weights. A pass that goes on does not, and has no optimizer states. */
static bool updates(const mm_graph *graph) {
    bool any = false;
    for (int s = 0; s < mm_graph_steps(graph); s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        for (int u = 0; u < step->n_uses; u++)
            any |= step->uses[u].access != MM_READ && mm_graph_tensor(graph, step->uses[u].tensor)->kind == MM_WEIGHT;
    }
    return any;
}

/* Refuses a kind that was named, of which nothing leaves. */
static mm_status check_named(const mm_home_order *order, unsigned away) {
    unsigned leaves = 0;
    for (int i = 0; i < order->n; i++) leaves |= 1u << mm_graph_tensor(order->graph, order->tensors[i])->kind;
    for (int t = 0; t < mm_graph_tensors(order->graph); t++) /* what the host updates is in its memory anyway */
        leaves |= (unsigned)mm_graph_tensor(order->graph, t)->on_host << mm_graph_tensor(order->graph, t)->kind;
    for (int kind = 0; updates(order->graph) && kind < MM_TENSOR_KINDS; kind++)
        if (away >> kind & 1 && !(leaves >> kind & 1))
            return mm_fail(MM_ERR_INVALID,
                           "%s has nothing of kind %s that could have its home in host memory: there is none, it lives "
                           "only until its layer's update, or ranks add it up",
                           mm_graph_name(order->graph), mm_tensor_kind_name((mm_tensor_kind)kind));
    return MM_OK;
}

/* Puts candidates in order. */
static void sort(candidate *list, int n, mm_tensor *tensors) {
    qsort(list, (size_t)n, sizeof *list, by_step);
    give_turns(list, n);
    qsort(list, (size_t)n, sizeof *list, by_turn);
    for (int i = 0; i < n; i++) tensors[i] = list[i].tensor;
}

mm_status mm_home_order_init(const mm_graph *graph, unsigned away, mm_home_order *order_out) {
    const size_t n = (size_t)mm_graph_persistents(graph) + 1;
    candidate *list = malloc(n * sizeof *list);
    bool *written = find_written(graph);
    mm_home_order order = {
        .graph = graph, .tensors = malloc(n * sizeof *order.tensors), .hosted = malloc(n * sizeof *order.hosted)};
    mm_status status = MM_OK;
    if (!list || !written || !order.tensors || !order.hosted)
        status = mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %s", mm_graph_name(graph));
    else {
        order.n = list_candidates(graph, away, written, false, list);
        sort(list, order.n, order.tensors);
        order.n_hosted = list_candidates(graph, 0, written, true, list);
        sort(list, order.n_hosted, order.hosted);
        status = check_named(&order, away);
        if (status == MM_OK) *order_out = order;
    }
    free(list);
    free(written);
    if (status != MM_OK) mm_home_order_fini(&order);
    return status;
}

void mm_home_order_fini(mm_home_order *order) {
    free(order->tensors);
    free(order->hosted);
    *order = (mm_home_order){0};
}

/* ---------------------------------------------------------------- homes of a trial */

void mm_home_trial_mark(const mm_home_trial *trial, const mm_home_order *order, const mm_persistent_table *table,
                        uint8_t *memory) {
    memset(memory, MM_MEM_DEVICE, (size_t)table->n);
    for (int i = 0; i < trial->n; i++)
        memory[mm_names_find(&table->names, mm_graph_tensor(order->graph, order->tensors[i])->name)] =
            i < trial->on_disk ? MM_MEM_DISK : MM_MEM_PINNED;
    for (int i = 0; i < trial->hosted_on_disk; i++)
        memory[mm_names_find(&table->names, mm_graph_tensor(order->graph, order->hosted[i])->name)] = MM_MEM_DISK;
}

/* ---------------------------------------------------------------- homes that a policy gives */

mm_status mm_homes_mark_given(const mm_policy *policy, const mm_graph *graph, const mm_persistent_table *table,
                              uint8_t *memory) {
    mm_place *places = calloc((size_t)mm_graph_persistents(graph) + 1, sizeof *places);
    if (!places) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of persistent tensors");
    const mm_status status = policy->ops->places(graph, &policy->config, places);
    for (int t = 0; status == MM_OK && t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
        const mm_memory where = tensor->persistent >= 0 ? places[tensor->persistent].memory : MM_MEM_DEVICE;
        if (where != MM_MEM_DEVICE) memory[mm_names_find(&table->names, tensor->name)] = (uint8_t)where;
    }
    free(places);
    return status;
}
