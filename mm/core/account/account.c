/* SPDX-License-Identifier: MIT */
#include "mm/core/account/account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_fits.h"
#include "mm/core/status.h"

const char *mm_account_kind_name(mm_account_kind kind) {
    static const char *const names[MM_ACCOUNT_KINDS] = {
        [MM_ACCOUNT_WEIGHT] = "weights",
        [MM_ACCOUNT_WEIGHT_GRADIENT] = "weight gradients",
        [MM_ACCOUNT_OPTIMIZER] = "optimizer state",
        [MM_ACCOUNT_STATE] = "other state",
        [MM_ACCOUNT_REST] = "alignment and others",
        [MM_ACCOUNT_STASH] = "stashed feature maps",
        [MM_ACCOUNT_CODE] = "codes",
        [MM_ACCOUNT_BUFFER] = "tensor buffers",
        [MM_ACCOUNT_FEATURE_MAP] = "other feature maps",
        [MM_ACCOUNT_GRADIENT_MAP] = "gradient maps",
        [MM_ACCOUNT_WORKSPACE] = "workspace",
    };
    return (unsigned)kind < MM_ACCOUNT_KINDS ? names[kind] : "unknown";
}

static mm_account_kind kind_of_tensor(const mm_tensor_info *tensor) {
    switch (tensor->kind) {
    case MM_WEIGHT:
        return MM_ACCOUNT_WEIGHT;
    case MM_WEIGHT_GRADIENT:
        return MM_ACCOUNT_WEIGHT_GRADIENT;
    case MM_OPTIMIZER:
        return MM_ACCOUNT_OPTIMIZER;
    case MM_STATE:
        return MM_ACCOUNT_STATE;
    case MM_GRADIENT_MAP:
        return MM_ACCOUNT_GRADIENT_MAP;
    default:
        return tensor->last_forward >= 0 && tensor->first_backward > tensor->last_forward ? MM_ACCOUNT_STASH
                                                                                          : MM_ACCOUNT_FEATURE_MAP;
    }
}

/* ---------------------------------------------------------------- in time */

typedef int64_t by_kind[MM_ACCOUNT_KINDS];

/* Whether a segment waits for the backward pass: a node of the forward pass uses it, and then a node of the backward
 * pass. live_last would not tell: plans that free nothing have it at their end. */
static bool waits(const mm_account *account, const mm_segment *s) {
    return account->first_backward >= 0 && s->first_node <= account->last_forward &&
           s->last_node >= account->first_backward;
}

mm_account_kind mm_account_segment_kind(const mm_account *account, int segment) {
    const mm_segment *s = &account->plan->segments[segment];
    switch (s->category) {
    case MM_CAT_PERSISTENT:
    case MM_CAT_VISIT:
        return kind_of_tensor(mm_graph_tensor(account->plan->graph, s->tensor));
    case MM_CAT_GRADIENT_MAP:
        return mm_graph_tensor(account->plan->graph, s->tensor)->kind == MM_WEIGHT_GRADIENT ? MM_ACCOUNT_WEIGHT_GRADIENT
                                                                                            : MM_ACCOUNT_GRADIENT_MAP;
    case MM_CAT_WORKSPACE:
        return MM_ACCOUNT_WORKSPACE;
    case MM_CAT_CODE:
        return MM_ACCOUNT_CODE;
    case MM_CAT_BUFFER:
        return MM_ACCOUNT_BUFFER;
    default:
        return waits(account, s) ? MM_ACCOUNT_STASH : MM_ACCOUNT_FEATURE_MAP;
    }
}

static bool alive_at(const mm_segment *s, int node) {
    return mm_segment_has_life(s) && s->first_node <= node && node <= s->live_last;
}

/* Finds the bytes that are on the device throughout the iteration. */
static void lasting(const mm_plan *plan, by_kind bytes_out) {
    memset(bytes_out, 0, sizeof(by_kind));
    bytes_out[MM_ACCOUNT_REST] = plan->base_bytes;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
        if (tensor->ownership == MM_MANAGED || mm_plan_visits(plan, t)) continue;
        bytes_out[kind_of_tensor(tensor)] += tensor->bytes;
        if (tensor->ownership == MM_PERSISTENT) bytes_out[MM_ACCOUNT_REST] -= tensor->bytes;
    }
}

static void record(mm_account *account, int node, int64_t live, const by_kind bytes) {
    const mm_node *n = &account->plan->nodes[node];
    bool begins = n->kind == MM_NODE_STEP || account->n_steps == 0;
    if (begins) account->steps[account->n_steps++] = (mm_account_step){.live_bytes = -1};
    mm_account_step *step = &account->steps[account->n_steps - 1];
    if (n->kind == MM_NODE_STEP) step->step = n->step;
    if (live <= step->live_bytes) return;
    step->node = node;
    step->live_bytes = live;
    memcpy(step->bytes, bytes, sizeof(by_kind));
}

static mm_status account_time(mm_account *account) {
    const mm_plan *plan = account->plan;
    by_kind *change = calloc((size_t)plan->n_nodes + 1, sizeof *change);
    account->steps = malloc(((size_t)plan->n_nodes + 1) * sizeof *account->steps);
    if (!change || !account->steps) {
        free(change);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the accounts of %d nodes", plan->n_nodes);
    }
    mm_plan_turning_point(plan, &account->last_forward, &account->first_backward);
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!mm_segment_has_life(s)) continue;
        const mm_account_kind kind = mm_account_segment_kind(account, i);
        change[s->first_node][kind] += s->bytes;
        change[s->live_last + 1][kind] -= s->bytes;
    }
    by_kind now;
    lasting(plan, account->lasting);
    memcpy(now, account->lasting, sizeof now);
    memcpy(account->at_peak, now, sizeof now);
    int64_t peak = plan->base_bytes + plan->external_bytes;
    for (int i = 0; i < plan->n_nodes; i++) {
        int64_t live = 0;
        for (int k = 0; k < MM_ACCOUNT_KINDS; k++) live += now[k] += change[i][k];
        record(account, i, live, now);
        if (live <= peak) continue;
        peak = live;
        account->peak_node = i;
        memcpy(account->at_peak, now, sizeof now);
    }
    account->idle_bytes = plan->peak_bytes - peak;
    free(change);
    return MM_OK;
}

/* ---------------------------------------------------------------- at the peak */

static int larger_first(const void *a, const void *b, void *segments) {
    int x = *(const int *)a, y = *(const int *)b;
    int64_t left = ((const mm_segment *)segments)[x].bytes, right = ((const mm_segment *)segments)[y].bytes;
    return left != right ? (left < right) - (left > right) : (x > y) - (x < y);
}

static mm_status account_peak(mm_account *account) {
    const mm_plan *plan = account->plan;
    account->segments = malloc(((size_t)plan->n_segments + 1) * sizeof *account->segments);
    if (!account->segments) return mm_fail(MM_ERR_NOMEM, "out of memory for the accounts of a plan");
    for (int i = 0; i < plan->n_segments; i++)
        if (alive_at(&plan->segments[i], account->peak_node)) account->segments[account->n_segments++] = i;
    qsort_r(account->segments, (size_t)account->n_segments, sizeof *account->segments, larger_first, plan->segments);
    return MM_OK;
}

static void account_declared(mm_account *account) {
    const mm_plan *plan = account->plan;
    int64_t *declared = account->declared;
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
        declared[kind_of_tensor(tensor)] += tensor->bytes;
    }
    declared[MM_ACCOUNT_REST] = account->lasting[MM_ACCOUNT_REST];
    declared[MM_ACCOUNT_BUFFER] = plan->buffer_region_bytes;
    for (int i = 0; i < plan->n_segments; i++)
        if (plan->segments[i].category == MM_CAT_CODE) declared[MM_ACCOUNT_CODE] += plan->segments[i].bytes;
    for (int i = 0; i < account->n_steps; i++)
        if (account->steps[i].bytes[MM_ACCOUNT_WORKSPACE] > declared[MM_ACCOUNT_WORKSPACE])
            declared[MM_ACCOUNT_WORKSPACE] = account->steps[i].bytes[MM_ACCOUNT_WORKSPACE];
}

mm_status mm_account_init(const mm_plan *plan, mm_account *account_out) {
    mm_account account = {.plan = plan};
    mm_status status = account_time(&account);
    if (status == MM_OK) status = account_peak(&account);
    if (status != MM_OK) {
        mm_account_fini(&account);
        return status;
    }
    account_declared(&account);
    *account_out = account;
    return MM_OK;
}

void mm_account_fini(mm_account *account) {
    free(account->segments);
    free(account->steps);
    memset(account, 0, sizeof *account);
}

mm_pool_sums mm_account_pools(const mm_plan *plan) {
    mm_pool_sums sums = {.spill_bytes = mm_plan_spill_bytes(plan)};
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (s->content != MM_CONTENT_POOL) continue;
        sums.bound_bytes +=
            s->spill < 0 ? s->bytes : s->bytes - MM_CHUNK_BYTES; /* a spill is itself a pool, whose turn in this loop
                                                                    adds its bytes */
        *(s->memory == MM_MEM_PINNED ? &sums.pinned_bytes : &sums.reserve_bytes) += s->bytes;
    }
    sums.pinned_bytes -= sums.spill_bytes;
    return sums;
}

mm_moves mm_account_moves(const mm_plan *plan) {
    mm_moves moves = {0};
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node_cost cost = mm_node_table[plan->nodes[i].kind].cost;
        const bool over_link = cost == MM_COST_LINK_OUT || cost == MM_COST_LINK_IN;
        if (!over_link && cost != MM_COST_DISK_OUT && cost != MM_COST_DISK_IN) continue;
        moves.offloads += cost == MM_COST_LINK_OUT;
        moves.prefetches += cost == MM_COST_LINK_IN;
        moves.stores += cost == MM_COST_DISK_OUT;
        moves.loads += cost == MM_COST_DISK_IN;
        *(over_link ? &moves.bytes : &moves.disk_bytes) += plan->segments[plan->nodes[i].dst].bytes;
    }
    return moves;
}

int mm_account_steps_again(const mm_plan *plan) {
    int again = 0;
    for (int i = 0; i < plan->n_nodes; i++) again += plan->nodes[i].kind == MM_NODE_RECOMPUTE;
    return again;
}

const char *mm_account_segment_name(const mm_plan *plan, int segment, char *buffer, size_t capacity) {
    const mm_segment *s = &plan->segments[segment];
    const mm_node *user = s->first_node >= 0 ? &plan->nodes[s->first_node] : NULL;
    char step[256];
    if (s->tensor >= 0)
        snprintf(buffer, capacity, "%s", mm_graph_tensor(plan->graph, s->tensor)->name);
    else if (s->content == MM_CONTENT_POOL)
        snprintf(buffer, capacity, "%s",
                 s->memory == MM_MEM_PINNED ? "pool of codes in pinned memory" : "pool of codes");
    else if (user && mm_node_runs_step(user))
        snprintf(buffer, capacity, "workspace of %s", mm_graph_step_name(plan->graph, user->step, step, sizeof step));
    else if (user)
        snprintf(buffer, capacity, "workspace of a codec for %s", mm_graph_tensor(plan->graph, user->tensor)->name);
    else
        snprintf(buffer, capacity, "workspace of nothing");
    return buffer;
}
