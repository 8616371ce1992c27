/* SPDX-License-Identifier: MIT */
/* Merges facts from a file, or of an equal graph, into the facts of a graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/facts/facts_match.h"
#include "mm/core/graph/graph.h"
#include "mm/core/status.h"

static int64_t sum_bytes(const mm_graph *graph, bool only_maps) {
    uint64_t sum = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(graph, t);
        const bool is_map = info->kind == MM_FEATURE_MAP || info->kind == MM_SAVED || info->kind == MM_GRADIENT_MAP;
        if (is_map || !only_maps) sum += (uint64_t)info->bytes;
    }
    return (int64_t)(sum & INT64_MAX);
}

int64_t mm_facts_tensor_bytes(const mm_graph *graph) { return sum_bytes(graph, true); }

/* Which steps and tensors of `from` correspond to those of the graph. */
typedef struct matching {
    const mm_graph_facts *from;
    const mm_facts *file; /* has the names of `from`; NULL: `from` is of an equal graph */
    const mm_graph *graph;
    const char *origin;   /* name of `from` in messages */
    int *step_from;       /* per step of the graph: the step of `from`; -1: none */
    int *step_to;         /* per step of `from`: the step of the graph */
    mm_tensor *tensor_to; /* per tensor of `from`: the tensor of the graph */
} matching;

static mm_status check_graph(const matching *m) {
    int steps = m->file ? m->file->steps_of_all : m->from->n_steps;
    int tensors = m->file ? m->file->tensors_of_all : m->from->n_tensors;
    int64_t bytes = mm_facts_tensor_bytes(m->graph), bytes_there = m->file ? m->file->tensor_bytes : bytes;
    /* Older files have, as tensor_bytes, the bytes of all tensors of the graph. */
    const bool same_bytes = bytes == bytes_there || sum_bytes(m->graph, false) == bytes_there;
    if (steps == mm_graph_steps(m->graph) && tensors == mm_graph_tensors(m->graph) && same_bytes) return MM_OK;
    return mm_fail(MM_ERR_FORMAT,
                   "%s is for another graph: %d steps, %d tensors, %lld bytes of maps; %s has %d, %d, %lld", m->origin,
                   steps, tensors, (long long)bytes_there, mm_graph_name(m->graph), mm_graph_steps(m->graph),
                   mm_graph_tensors(m->graph), (long long)bytes);
}

int mm_facts_find_step(const mm_facts *file, const char *layer, mm_phase phase) {
    int low = 0, high = file->by_name.n_steps;
    while (low < high) {
        int middle = low + (high - low) / 2, order = strcmp(file->layers[middle], layer);
        if (order == 0) order = (int)file->phases[middle] - (int)phase;
        if (order == 0) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static mm_status match_steps(matching *m) {
    for (int s = 0; s < m->from->n_steps; s++) m->step_to[s] = m->file ? -1 : s;
    for (int s = 0; s < mm_graph_steps(m->graph); s++) {
        const mm_step_info *step = mm_graph_step(m->graph, s);
        const char *layer = mm_graph_layer(m->graph, step->layer)->name;
        int from = m->step_from[s] = m->file ? mm_facts_find_step(m->file, layer, step->phase) : s;
        if (!m->file || from < 0) continue;
        if (m->step_to[from] >= 0)
            return mm_fail(MM_ERR_FORMAT, "graph %s has two layers named %s: facts cannot tell them apart",
                           mm_graph_name(m->graph), layer);
        m->step_to[from] = s;
    }
    for (int s = 0; s < m->from->n_steps; s++)
        if (m->step_to[s] < 0)
            return mm_fail(MM_ERR_FORMAT, "%s is for another graph: %s has no step %s %s", m->origin,
                           mm_graph_name(m->graph), m->file->layers[s], mm_phase_name(m->file->phases[s]));
    return MM_OK;
}

static mm_status match_tensors(matching *m) {
    for (int t = 0; t < m->from->n_tensors; t++) {
        m->tensor_to[t] = t;
        if (m->file && mm_graph_find_tensor(m->graph, m->file->tensors[t], &m->tensor_to[t]) != MM_OK)
            return mm_fail(MM_ERR_FORMAT, "%s is for another graph: %s has no tensor %s", m->origin,
                           mm_graph_name(m->graph), m->file->tensors[t]);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- sizes */

static mm_status check_steps(const matching *m, const mm_graph_facts *facts) {
    for (int s = 0; s < facts->n_steps; s++) {
        int from = m->step_from[s], n = facts->variant_first[s + 1] - facts->variant_first[s];
        if (from < 0) continue;
        const mm_variant *here = &facts->variants[facts->variant_first[s]];
        const mm_variant *there = &m->from->variants[m->from->variant_first[from]];
        bool same = n == m->from->variant_first[from + 1] - m->from->variant_first[from];
        for (int v = 0; same && v < n; v++)
            same = here[v].id == there[v].id && here[v].workspace_bytes == there[v].workspace_bytes;
        char name[256];
        if (!same)
            return mm_fail(MM_ERR_FORMAT,
                           "%s: %s has other workspaces there than here: measured on another device, or with another "
                           "number of threads",
                           m->origin, mm_graph_step_name(m->graph, s, name, sizeof name));
    }
    return MM_OK;
}

static mm_status check_codes(const matching *m, const mm_graph_facts *facts) {
    for (int c = 0; c < m->from->n_codecs; c++) {
        int to = mm_facts_codec(facts, m->from->codecs[c].spec);
        for (int t = 0; to >= 0 && t < m->from->n_tensors; t++) {
            const mm_code_facts *there = mm_facts_code(m->from, c, t);
            const mm_code_facts *here = mm_facts_code(facts, to, m->tensor_to[t]);
            if (there->code_bytes < 0 ||
                (there->code_bytes == here->code_bytes && there->scratch_bytes == here->scratch_bytes &&
                 there->body_bound_bytes == here->body_bound_bytes))
                continue;
            return mm_fail(MM_ERR_FORMAT,
                           "%s: the %s code of %s takes %lld bytes and %lld of scratch there, %lld and %lld here; "
                           "its body takes at most %lld there, %lld here: measured on another device, or with another "
                           "version",
                           m->origin, m->from->codecs[c].spec, mm_graph_tensor(m->graph, m->tensor_to[t])->name,
                           (long long)there->code_bytes, (long long)there->scratch_bytes, (long long)here->code_bytes,
                           (long long)here->scratch_bytes, (long long)there->body_bound_bytes,
                           (long long)here->body_bound_bytes);
        }
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- merging */

/* Sets each step's variants: those of `from` if it has any, else those of `old`. */
static mm_status merge_variants(const matching *m, const mm_graph_facts *old, mm_graph_facts *merged) {
    int n = 0;
    for (int s = 0; s <= old->n_steps; s++) {
        merged->variant_first[s] = n;
        if (s == old->n_steps) break;
        const mm_graph_facts *source = m->step_from[s] >= 0 ? m->from : old;
        int step = m->step_from[s] >= 0 ? m->step_from[s] : s;
        n += source->variant_first[step + 1] - source->variant_first[step];
    }
    mm_variant *variants = realloc(merged->variants, ((size_t)n + 1) * sizeof *variants);
    if (!variants) return mm_fail(MM_ERR_NOMEM, "out of memory for facts");
    merged->variants = variants;
    for (int s = 0; s < old->n_steps; s++) {
        const mm_graph_facts *source = m->step_from[s] >= 0 ? m->from : old;
        int step = m->step_from[s] >= 0 ? m->step_from[s] : s;
        int first = merged->variant_first[s], count = merged->variant_first[s + 1] - first;
        memcpy(&variants[first], &source->variants[source->variant_first[step]], (size_t)count * sizeof *variants);
    }
    return MM_OK;
}

/* Merges a codec into the slot with its spec. If no slot has its spec: with MM_FACTS_ALL into an empty slot, otherwise
 * not at all. */
static void merge_codec(const matching *m, mm_facts_part part, int codec, mm_graph_facts *merged) {
    int to = mm_facts_codec(merged, m->from->codecs[codec].spec);
    if (to < 0 && part == MM_FACTS_ALL) to = mm_facts_codec(merged, "");
    if (to < 0) return;
    if (part == MM_FACTS_ALL) {
        const bool drops_zeros = merged->codecs[to].drops_zeros; /* older files do not say it */
        merged->codecs[to] = m->from->codecs[codec];
        merged->codecs[to].drops_zeros |= drops_zeros;
    }
    for (int t = 0; t < m->from->n_tensors; t++) {
        const mm_code_facts *from = mm_facts_code(m->from, codec, t);
        mm_code_facts *code = &merged->codes[(size_t)to * (size_t)merged->n_tensors + (size_t)m->tensor_to[t]];
        if (from->code_bytes < 0) continue;
        const mm_code_facts own = *code; /* splits and strips are in no file */
        *code = *from;
        code->split_rows = own.split_rows;
        code->split_bytes = own.split_bytes;
        code->strip_elems = own.strip_elems;
    }
}

/* Number of codecs of `from` for which `old` has no slot. */
static int missing_slots(const mm_graph_facts *from, const mm_graph_facts *old) {
    int unknown = 0, empty = 0;
    for (int c = 0; c < from->n_codecs; c++) unknown += mm_facts_codec(old, from->codecs[c].spec) < 0;
    for (int c = 0; c < old->n_codecs; c++) empty += old->codecs[c].spec[0] == '\0';
    return unknown > empty ? unknown - empty : 0;
}

void mm_facts_take_rates(const mm_graph_facts *from, mm_graph_facts *merged) {
    mm_graph_facts rates = *from;
    rates.n_steps = merged->n_steps;
    rates.variant_first = merged->variant_first;
    rates.variants = merged->variants;
    rates.n_tensors = merged->n_tensors;
    rates.n_codecs = merged->n_codecs;
    rates.codecs = merged->codecs;
    rates.codes = merged->codes;
    rates.piece_bytes = merged->piece_bytes;
    if (from->memory_bytes_per_s == 0) rates.memory_bytes_per_s = merged->memory_bytes_per_s;
    if (from->store_bytes_per_s == 0 && from->load_bytes_per_s == 0) { /* few files have these */
        rates.store_bytes_per_s = merged->store_bytes_per_s;
        rates.load_bytes_per_s = merged->load_bytes_per_s;
        rates.disk_ns = merged->disk_ns;
    }
    *merged = rates;
}

static mm_status merge(const matching *m, mm_facts_part part, mm_graph_facts *facts) {
    mm_graph_facts *merged;
    int more = part == MM_FACTS_ALL ? missing_slots(m->from, facts) : 0;
    MM_TRY(mm_graph_facts_create(m->graph, facts->n_codecs + more, &merged));
    memcpy(merged->codecs, facts->codecs, (size_t)facts->n_codecs * sizeof *facts->codecs);
    memcpy(merged->codes, facts->codes, (size_t)facts->n_codecs * (size_t)facts->n_tensors * sizeof *facts->codes);
    merged->piece_bytes = facts->piece_bytes;
    merged->memory_bytes_per_s = facts->memory_bytes_per_s;
    merged->store_bytes_per_s = facts->store_bytes_per_s;
    merged->load_bytes_per_s = facts->load_bytes_per_s;
    merged->disk_ns = facts->disk_ns;
    mm_status status = merge_variants(m, facts, merged);
    if (status == MM_OK) {
        for (int c = 0; c < m->from->n_codecs; c++) merge_codec(m, part, c, merged);
        mm_facts_take_rates(m->from, merged);
        mm_graph_facts before = *facts;
        *facts = *merged;
        *merged = before;
    }
    mm_graph_facts_destroy(merged);
    return status;
}

static mm_status apply(matching m, mm_facts_part part, mm_graph_facts *facts) {
    MM_TRY(check_graph(&m));
    m.step_from = malloc(((size_t)mm_graph_steps(m.graph) + 1) * sizeof *m.step_from);
    m.step_to = malloc(((size_t)m.from->n_steps + 1) * sizeof *m.step_to);
    m.tensor_to = malloc(((size_t)m.from->n_tensors + 1) * sizeof *m.tensor_to);
    mm_status status = m.step_from && m.step_to && m.tensor_to
                           ? match_steps(&m)
                           : mm_fail(MM_ERR_NOMEM, "out of memory for facts of %s", mm_graph_name(m.graph));
    if (status == MM_OK) status = match_tensors(&m);
    if (status == MM_OK && part == MM_FACTS_TIMES) status = check_steps(&m, facts);
    if (status == MM_OK && part == MM_FACTS_TIMES) status = check_codes(&m, facts);
    if (status == MM_OK) status = merge(&m, part, facts);
    free(m.step_from);
    free(m.step_to);
    free(m.tensor_to);
    return status;
}

/* ---------------------------------------------------------------- rates of codecs */

/* The rate for a codec: that of its whole spec, else that of its name; NULL: there is none. */
static const mm_codec_rate *rate_of(const mm_codec_rate *rates, int n, const char *spec) {
    const mm_codec_rate *found = NULL;
    const size_t name = strcspn(spec, ":");
    for (int i = 0; i < n; i++) {
        if (strcmp(rates[i].spec, spec) == 0) return &rates[i];
        if (strlen(rates[i].spec) == name && strncmp(rates[i].spec, spec, name) == 0) found = &rates[i];
    }
    return found;
}

static int64_t time_at(int64_t bytes, int64_t bytes_per_s, int64_t launch_ns) {
    const double ns = (double)launch_ns + (double)bytes / (double)bytes_per_s * 1e9 + 1;
    return ns < (double)MM_NS_MOST ? (int64_t)ns : MM_NS_MOST;
}

void mm_facts_rate_codes(const mm_codec_rate *rates, int n, const mm_graph *graph, mm_graph_facts *facts) {
    for (int c = 0; c < facts->n_codecs; c++) {
        const mm_codec_rate *rate = rate_of(rates, n, facts->codecs[c].spec);
        for (int t = 0; rate && t < facts->n_tensors; t++) {
            mm_code_facts *code = &facts->codes[(size_t)c * (size_t)facts->n_tensors + (size_t)t];
            const int64_t bytes = mm_graph_tensor(graph, t)->bytes;
            if (code->code_bytes < 0 || code->encode_ns > 0 || code->decode_ns > 0) continue;
            code->encode_ns = time_at(bytes, rate->encode_bytes_per_s, rate->launch_ns);
            code->decode_ns = time_at(bytes, rate->decode_bytes_per_s, rate->launch_ns);
        }
    }
}

mm_status mm_facts_apply(const mm_facts *from, const mm_graph *graph, mm_facts_part part, mm_graph_facts *facts) {
    if (from->fill) return from->fill(from->fill_ctx, graph, facts);
    char origin[512];
    snprintf(origin, sizeof origin, "facts file %.480s", from->path);
    MM_TRY(apply((matching){.from = &from->by_name, .file = from, .graph = graph, .origin = origin}, part, facts));
    mm_facts_rate_codes(from->rates, from->n_rates, graph, facts);
    return MM_OK;
}

mm_status mm_graph_facts_merge(const mm_graph_facts *from, const mm_graph *graph, mm_facts_part part,
                               mm_graph_facts *facts) {
    return apply((matching){.from = from, .graph = graph, .origin = "facts"}, part, facts);
}
