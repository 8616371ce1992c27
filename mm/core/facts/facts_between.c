/* SPDX-License-Identifier: MIT */
/* Times for any batch of a network that was measured with some. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/facts/facts_match.h"
#include "mm/core/graph/graph.h"
#include "mm/core/status.h"

/* Two measured batches, on whose line the graph's is: the next smaller and the next larger, or, beyond all, the two
 * nearest. Batches are compared by the bytes of all maps. */
typedef struct neighbours {
    const mm_facts *low, *high; /* the same if a single batch was measured, or the graph's own */
    double share; /* where the graph's batch is: 0 at low's, 1 at high's, below 0 or above 1 beyond both */
    double scale; /* beyond both: the graph's batch over the nearest; else 1 */
} neighbours;

/* Of the files whose maps have more than `above` bytes and fewer than `below`, the one with the most bytes, or, if
 * `least`, with the fewest; NULL: there is none. */
static const mm_facts *next(const mm_facts *const *files, int n, int64_t above, int64_t below, bool least) {
    const mm_facts *found = NULL;
    for (int i = 0; i < n; i++) {
        const int64_t bytes = files[i]->tensor_bytes;
        if (bytes <= above || bytes >= below) continue;
        if (!found || (least ? bytes < found->tensor_bytes : bytes > found->tensor_bytes)) found = files[i];
    }
    return found;
}

static neighbours find_neighbours(const mm_facts *const *files, int n, int64_t bytes) {
    neighbours near = {
        .low = next(files, n, -1, bytes + 1, false), .high = next(files, n, bytes - 1, INT64_MAX, true), .scale = 1};
    const mm_facts *nearest = near.low ? near.low : near.high;
    const bool beyond = !near.low || !near.high;
    if (!near.high) near.high = nearest, near.low = next(files, n, -1, nearest->tensor_bytes, false);
    if (!near.low) near.low = nearest, near.high = next(files, n, nearest->tensor_bytes, INT64_MAX, true);
    if (!near.high) near.high = nearest;
    const double low = (double)near.low->tensor_bytes, high = (double)near.high->tensor_bytes;
    if (high > low) near.share = ((double)bytes - low) / (high - low);
    if (beyond && nearest->tensor_bytes > 0) near.scale = (double)bytes / (double)nearest->tensor_bytes;
    return near;
}

/* The time on the line; beyond the neighbours, no farther from the nearest one's than in proportion to bytes. grows:
 * whether it may depend on the batch there. 0, not known, if a neighbour does not know it. */
static int64_t between(const neighbours *near, int64_t low_ns, int64_t high_ns, bool grows) {
    if (low_ns == 0 || high_ns == 0) return 0;
    double ns = (double)low_ns + near->share * (double)(high_ns - low_ns);
    const double nearest = (double)(near->share > 0.5 ? high_ns : low_ns), scaled = nearest * (grows ? near->scale : 1);
    if (near->low == near->high) ns = scaled;
    if (near->scale != 1) ns = fmin(fmax(ns, fmin(nearest, scaled)), fmax(nearest, scaled));
    ns += 0.5;
    return ns < 1 ? 1 : ns < (double)MM_NS_MOST ? (int64_t)ns : MM_NS_MOST;
}

/* ---------------------------------------------------------------- steps */

/* A graph whose forward and backward steps are others was lowered in another way, and may take other times throughout.
 * Passes that go on have no update. */
static mm_status check_steps(const mm_facts *file, const mm_graph *graph, const bool *found) {
    for (int s = 0; s < file->by_name.n_steps; s++)
        if (!found[s] && file->phases[s] != MM_UPDATE)
            return mm_fail(MM_ERR_FORMAT, "facts file %s is for another graph: %s has no step %s %s", file->path,
                           mm_graph_name(graph), file->layers[s], mm_phase_name(file->phases[s]));
    return MM_OK;
}

/* The time of that variant of a measured step, or of its first one if it has no such variant. */
static int64_t variant_ns(const mm_graph_facts *facts, int step, int32_t id) {
    const mm_variant *first = &facts->variants[facts->variant_first[step]];
    const int n = facts->variant_first[step + 1] - facts->variant_first[step];
    for (int v = 0; v < n; v++)
        if (first[v].id == id) return first[v].ns;
    return n > 0 ? first->ns : 0;
}

static double used_bytes(const mm_graph *graph, int s) {
    const mm_step_info *step = mm_graph_step(graph, s);
    double bytes = 0;
    for (int u = 0; u < step->n_uses; u++) bytes += (double)mm_graph_tensor(graph, step->uses[u].tensor)->bytes;
    return bytes;
}

/* Steps that no file has, such as the end of a pass that goes on, take the others' mean time for each byte. */
static void add_other_steps(const mm_graph *graph, double ns_per_byte, const bool *known, mm_graph_facts *facts) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        for (int v = facts->variant_first[s]; !known[s] && v < facts->variant_first[s + 1]; v++)
            facts->variants[v].ns = 1 + (int64_t)fmin(used_bytes(graph, s) * ns_per_byte, (double)MM_NS_MOST - 1);
}

/* found: per step of near->low. known: per step of the graph. Both false at first. */
static mm_status fill_steps(const neighbours *near, const mm_graph *graph, bool *found, bool *known,
                            mm_graph_facts *facts) {
    double bytes = 0, ns = 0;
    for (int s = 0; s < mm_graph_steps(graph); s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        const char *layer = mm_graph_layer(graph, step->layer)->name;
        const int low = mm_facts_find_step(near->low, layer, step->phase),
                  high = mm_facts_find_step(near->high, layer, step->phase);
        if (low >= 0) found[low] = true;
        known[s] = low >= 0 && high >= 0;
        for (int v = facts->variant_first[s]; known[s] && v < facts->variant_first[s + 1]; v++) {
            mm_variant *variant = &facts->variants[v];
            variant->ns = between(near, variant_ns(&near->low->by_name, low, variant->id),
                                  variant_ns(&near->high->by_name, high, variant->id), step->phase != MM_UPDATE);
        }
        if (!known[s]) continue;
        bytes += used_bytes(graph, s);
        ns += (double)facts->variants[facts->variant_first[s]].ns;
    }
    add_other_steps(graph, bytes > 0 ? ns / bytes : 0, known, facts);
    return check_steps(near->low, graph, found);
}

static mm_status add_steps(const neighbours *near, const mm_graph *graph, mm_graph_facts *facts) {
    bool *found = calloc((size_t)near->low->by_name.n_steps + 1, sizeof *found);
    bool *known = calloc((size_t)mm_graph_steps(graph) + 1, sizeof *known);
    const mm_status status = found && known
                                 ? fill_steps(near, graph, found, known, facts)
                                 : mm_fail(MM_ERR_NOMEM, "out of memory for facts of %s", mm_graph_name(graph));
    free(found);
    free(known);
    return status;
}

/* ---------------------------------------------------------------- codes */

/* Files of one network have their tensors in the same order; else the name is looked for. -1: there is none. */
static int tensor_in(const mm_facts *file, const char *name, int likely) {
    if (likely < file->by_name.n_tensors && strcmp(file->tensors[likely], name) == 0) return likely;
    for (int t = 0; t < file->by_name.n_tensors; t++)
        if (strcmp(file->tensors[t], name) == 0) return t;
    return -1;
}

static void add_code(const neighbours *near, const mm_code_facts *low, const mm_code_facts *high, mm_code_facts *code) {
    if (code->code_bytes < 0 || low->code_bytes < 0 || high->code_bytes < 0) return;
    code->encode_ns = between(near, low->encode_ns, high->encode_ns, true);
    code->decode_ns = between(near, low->decode_ns, high->decode_ns, true);
    if (code->body_bound_bytes == 0 || low->body_bound_bytes == 0) return;
    const double part = (double)low->body_typical_bytes / (double)low->body_bound_bytes;
    code->body_typical_bytes = (int64_t)(part * (double)code->body_bound_bytes);
    code->body_is_measured = low->body_is_measured;
}

static void add_codes(const neighbours *near, const mm_graph *graph, mm_graph_facts *facts) {
    for (int c = 0; c < facts->n_codecs; c++) {
        const int low = mm_facts_codec(&near->low->by_name, facts->codecs[c].spec),
                  high = mm_facts_codec(&near->high->by_name, facts->codecs[c].spec);
        for (int there = 0; low >= 0 && high >= 0 && there < near->low->by_name.n_tensors; there++) {
            const int other = tensor_in(near->high, near->low->tensors[there], there);
            mm_tensor here;
            if (other < 0 || mm_graph_find_tensor(graph, near->low->tensors[there], &here) != MM_OK) continue;
            add_code(near, mm_facts_code(&near->low->by_name, low, there),
                     mm_facts_code(&near->high->by_name, high, other),
                     &facts->codes[(size_t)c * (size_t)facts->n_tensors + (size_t)here]);
        }
    }
}

mm_status mm_facts_apply_between(const mm_facts *const *files, int n, const mm_graph *graph, mm_graph_facts *facts) {
    const neighbours near = find_neighbours(files, n, mm_facts_tensor_bytes(graph));
    mm_graph_facts *copy;
    MM_TRY(mm_graph_facts_copy(facts, &copy));
    const mm_status status = add_steps(&near, graph, copy);
    if (status == MM_OK) {
        add_codes(&near, graph, copy);
        mm_facts_take_rates(near.share < 0.5 ? &near.low->by_name : &near.high->by_name, copy);
        mm_facts_rate_codes(near.low->rates, near.low->n_rates, graph, copy);
        const mm_graph_facts before = *facts;
        *facts = *copy;
        *copy = before;
    }
    mm_graph_facts_destroy(copy);
    return status;
}
