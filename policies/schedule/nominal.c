/* SPDX-License-Identifier: MIT */
/* Nominal times are those of a GPU like that of tools/facts/titanx.json: about 6 TFLOP/s, 250 GB/s of memory, a link of
 * 12 GB/s, codecs of 25 GB/s, 8 us for a launch. tools/facts/README.md says where these come from. */
#include "policies/schedule/nominal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"

/* In bytes per ns (GB/s). Expensive layers (convolutions, products) take as long as if their tensors moved at
 * ARITHMETIC_RATE: chosen, about a quarter of the memory's rate, because their arithmetic takes longer than their
 * traffic. Masks are encoded and decoded at the memory's rate. CONTENTION_PERMILLE is chosen; titanx.json has 110 and
 * 50 for codecs and copies. */
enum { MEMORY_RATE = 250, ARITHMETIC_RATE = 60, CODEC_RATE = 25 };
enum { LAUNCH_NS = 8000, CONTENTION_PERMILLE = 50 };
#define LINK_BYTES_PER_S INT64_C(12000000000)

bool mm_nominal_is_due(const mm_graph_facts *facts) {
    for (int v = 0; v < facts->variant_first[facts->n_steps]; v++)
        if (facts->variants[v].ns > 0) return false;
    return true;
}

/* ns + bytes / rate, at most MM_NS_MOST, the longest time that facts may have. */
static int64_t add_bytes(int64_t ns, int64_t bytes, double rate) {
    double more = (double)bytes / rate;
    return more < (double)(MM_NS_MOST - ns) ? ns + (int64_t)more : MM_NS_MOST;
}

/* Speed of the device relative to the nominal GPU. */
static double scale_of(const mm_graph_facts *facts) {
    return facts->memory_bytes_per_s > 0 ? (double)facts->memory_bytes_per_s / (MEMORY_RATE * 1e9) : 1;
}

static int64_t step_ns(const mm_graph *graph, const mm_step_info *step, double scale) {
    const bool expensive = mm_graph_layer(graph, step->layer)->properties.cost == MM_LAYER_EXPENSIVE;
    int rate = expensive ? ARITHMETIC_RATE : MEMORY_RATE;
    int64_t ns = LAUNCH_NS;
    if (step->on_host) return 0;
    for (int u = 0; u < step->n_uses; u++)
        ns = add_bytes(ns, mm_graph_tensor(graph, step->uses[u].tensor)->bytes, scale * rate);
    return ns;
}

/* While both directions of the link are busy, each has five sixths of the rate that it has alone, as in the facts file
 * titanx.json: 10 of 12 GB/s. The ratio was measured on an H200. */
static void time_link(int64_t *alone, int64_t *both) {
    if (*alone <= 0) *alone = LINK_BYTES_PER_S;
    if (*both <= 0) *both = *alone - *alone / 6;
}

void mm_nominal_times(const mm_graph *graph, mm_graph_facts *facts) {
    const double scale = scale_of(facts);
    for (int s = 0; s < facts->n_steps; s++) {
        int64_t ns = step_ns(graph, mm_graph_step(graph, s), scale);
        for (int v = facts->variant_first[s]; v < facts->variant_first[s + 1]; v++) facts->variants[v].ns = ns;
    }
    for (int c = 0; c < facts->n_codecs; c++)
        for (int t = 0; t < facts->n_tensors; t++) {
            mm_code_facts *code = &facts->codes[(size_t)c * (size_t)facts->n_tensors + (size_t)t];
            int rate = facts->codecs[c].gives_value ? CODEC_RATE : MEMORY_RATE;
            code->encode_ns = code->decode_ns = add_bytes(LAUNCH_NS, mm_graph_tensor(graph, t)->bytes, scale * rate);
        }
    time_link(&facts->out_bytes_per_s, &facts->out_both_bytes_per_s);
    time_link(&facts->in_bytes_per_s, &facts->in_both_bytes_per_s);
    facts->issue_ns = LAUNCH_NS;
    facts->contention_permille = CONTENTION_PERMILLE;
}

mm_status mm_nominal_init(const mm_graph *graph, const mm_graph_facts *facts, mm_graph_facts *nominal) {
    size_t variants = (size_t)facts->variant_first[facts->n_steps] * sizeof *facts->variants;
    size_t codes = (size_t)facts->n_codecs * (size_t)facts->n_tensors * sizeof *facts->codes;
    *nominal = *facts;
    nominal->variants = malloc(variants + 1);
    nominal->codes = malloc(codes + 1);
    if (!nominal->variants || !nominal->codes)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    memcpy(nominal->variants, facts->variants, variants);
    memcpy(nominal->codes, facts->codes, codes);
    mm_nominal_times(graph, nominal);
    return MM_OK;
}

void mm_nominal_fini(mm_graph_facts *nominal) {
    free(nominal->variants);
    free(nominal->codes);
    *nominal = (mm_graph_facts){0};
}

mm_status mm_nominal_lacks(const char *what) {
    return mm_fail(MM_ERR_INVALID,
                   "the facts have no %s, which this policy needs: 'mm bench --facts' with this policy measures it; "
                   "facts without any times would do, too: then nominal times are used",
                   what);
}

mm_status mm_nominal_check_times(const mm_graph *graph, const mm_graph_facts *facts) {
    char step[256], what[288];
    for (int s = 0; s < facts->n_steps; s++) {
        const mm_layer_info *layer = mm_graph_layer(graph, mm_graph_step(graph, s)->layer);
        if (facts->variants[facts->variant_first[s]].ns > 0 || layer->kind == MM_LAYER_DATA) continue;
        if (mm_graph_step(graph, s)->on_host) continue;
        snprintf(what, sizeof what, "time of %s", mm_graph_step_name(graph, s, step, sizeof step));
        return mm_nominal_lacks(what);
    }
    if (facts->out_bytes_per_s <= 0) return mm_nominal_lacks("rate of copies to host memory");
    return facts->in_bytes_per_s > 0 ? MM_OK : mm_nominal_lacks("rate of copies to the device");
}
