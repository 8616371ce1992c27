/* SPDX-License-Identifier: MIT */
#include "mm/core/account/account_bound.h"

#include <stdlib.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"

/* Bytes of the exact sign mask: one bit an element, whole 32-bit words. */
static int64_t sign_bytes(const mm_tensor_info *tensor) {
    int64_t elems = tensor->bytes / (int64_t)mm_dtype_bytes(tensor->dtype);
    return (elems + 31) / 32 * 4;
}

static int64_t least_workspace(const mm_graph *graph, const mm_graph_facts *facts, int step) {
    if (!facts) return mm_graph_step(graph, step)->workspace_bytes;
    int64_t least = INT64_MAX;
    for (int v = facts->variant_first[step]; v < facts->variant_first[step + 1]; v++)
        if (facts->variants[v].workspace_bytes < least) least = facts->variants[v].workspace_bytes;
    return least;
}

static bool may_share(const mm_step_info *step, mm_tensor output) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].output == output) return true;
    return false;
}

/* The least bytes in which the step finds what it reads by use u: elements, or a code that it can read. */
static int64_t value_bytes(const mm_graph_facts *facts, const mm_step_info *step, int u, const mm_tensor_info *tensor) {
    int64_t least = tensor->bytes;
    for (int c = 0; step->n_codes > 0 && facts && c < facts->n_codecs; c++) {
        if (!mm_step_code_of(facts, step, u, MM_READ, c, step->uses[u].tensor)) continue;
        const int64_t code = mm_facts_code(facts, c, step->uses[u].tensor)->code_bytes;
        if (code < least) least = code;
    }
    return least;
}

/* The least bytes that a step needs: *managed_out of managed tensors and workspace, *other_out of all other tensors. */
static void needs(const mm_graph *graph, const mm_graph_facts *facts, int index, int64_t *managed_out,
                  int64_t *other_out) {
    const mm_step_info *step = mm_graph_step(graph, index);
    *managed_out = least_workspace(graph, facts, index);
    *other_out = 0;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, step->uses[u].tensor);
        if (tensor->ownership != MM_MANAGED)
            *other_out += tensor->bytes;
        else if (step->uses[u].form == MM_FORM_SIGN)
            *managed_out += sign_bytes(tensor);
        else if (!may_share(step, step->uses[u].tensor))
            *managed_out += value_bytes(facts, step, u, tensor);
    }
}

static int64_t resident_bytes(const mm_graph *graph) {
    int64_t bytes = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership != MM_MANAGED) bytes += mm_graph_tensor(graph, t)->bytes;
    return bytes;
}

mm_lower_bound mm_lower_bound_of(const mm_graph *graph, const mm_graph_facts *facts) {
    mm_lower_bound bound = {.step = -1, .offloaded_step = -1};
    int64_t largest = 0;
    bound.persistent_bytes = resident_bytes(graph);
    for (int s = 0; s < mm_graph_steps(graph); s++) {
        int64_t managed, other;
        needs(graph, facts, s, &managed, &other);
        if (managed > largest) {
            largest = managed;
            bound.step = s;
        }
        if (mm_graph_step(graph, s)->phase != MM_UPDATE && managed + other > bound.offloaded_bytes) {
            bound.offloaded_bytes = managed + other;
            bound.offloaded_step = s;
        }
    }
    bound.bytes = bound.persistent_bytes + largest;
    return bound;
}

/* ---------------------------------------------------------------- windows of steps */

/* Adds a step to the window (by = 1), or removes it (by = -1). users: per tensor, the number of its uses in the window.
 * Returns by how much the bytes of the tensors that the window uses change. */
static int64_t count_uses(const mm_graph *graph, int step, int by, int32_t *users) {
    const mm_step_info *info = mm_graph_step(graph, step);
    int64_t change = 0;
    for (int u = 0; u < info->n_uses; u++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, info->uses[u].tensor);
        if (tensor->ownership != MM_MANAGED) continue;
        int32_t *n = &users[info->uses[u].tensor];
        if (*n == (by > 0 ? 0 : 1)) change += by * tensor->bytes;
        *n += by;
    }
    return change;
}

/* The workspace of the fastest variant, which is the first. */
static int64_t fast_workspace(const mm_graph *graph, const mm_graph_facts *facts, int step) {
    return facts ? facts->variants[facts->variant_first[step]].workspace_bytes
                 : mm_graph_step(graph, step)->workspace_bytes;
}

static int64_t largest_workspace(const mm_graph *graph, const mm_graph_facts *facts, int from, int to) {
    int64_t most = 0;
    for (int s = from; s < to; s++) {
        const int64_t bytes = fast_workspace(graph, facts, s);
        if (bytes > most) most = bytes;
    }
    return most;
}

mm_status mm_window_bytes(const mm_graph *graph, const mm_graph_facts *facts, int permille, int64_t *bytes_out) {
    const int n = mm_graph_steps(graph), length = (int)(((int64_t)n * permille + 999) / 1000);
    int32_t *users = calloc((size_t)mm_graph_tensors(graph) + 1, sizeof *users);
    if (!users) return mm_fail(MM_ERR_NOMEM, "out of memory for the tensors of %s", mm_graph_name(graph));
    int64_t bytes = 0, most = 0;
    for (int s = 0; s < n; s++) {
        bytes += count_uses(graph, s, 1, users);
        if (s >= length) bytes += count_uses(graph, s - length, -1, users);
        const int64_t workspace = largest_workspace(graph, facts, s < length ? 0 : s - length + 1, s + 1);
        if (bytes + workspace > most) most = bytes + workspace;
    }
    free(users);
    *bytes_out = resident_bytes(graph) + most;
    return MM_OK;
}
