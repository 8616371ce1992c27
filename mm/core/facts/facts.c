/* SPDX-License-Identifier: MIT */
#include "mm/core/facts/facts.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/status.h"

mm_status mm_graph_facts_create(const mm_graph *graph, int n_codecs, mm_graph_facts **facts_out) {
    mm_graph_facts *facts = calloc(1, sizeof *facts);
    if (!facts) return mm_fail(MM_ERR_NOMEM, "out of memory for facts");
    facts->n_steps = mm_graph_steps(graph);
    facts->n_tensors = mm_graph_tensors(graph);
    facts->n_codecs = n_codecs;
    size_t codes = (size_t)n_codecs * (size_t)facts->n_tensors;
    facts->variant_first = malloc(((size_t)facts->n_steps + 1) * sizeof *facts->variant_first);
    size_t variants = 0;
    for (int s = 0; s < facts->n_steps; s++) variants += 1 + (size_t)mm_graph_step(graph, s)->n_less;
    facts->variants = calloc(variants, sizeof *facts->variants);
    facts->codecs = calloc((size_t)n_codecs + 1, sizeof *facts->codecs);
    facts->codes = calloc(codes + 1, sizeof *facts->codes);
    if (!facts->variant_first || !facts->variants || !facts->codecs || !facts->codes) {
        mm_graph_facts_destroy(facts);
        return mm_fail(MM_ERR_NOMEM, "out of memory for facts of %d steps", mm_graph_steps(graph));
    }
    facts->variant_first[0] = 0;
    for (int s = 0; s < facts->n_steps; s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        int first = facts->variant_first[s];
        for (int v = 0; v <= step->n_less; v++)
            facts->variants[first + v] =
                (mm_variant){.id = v,
                             .deterministic = true,
                             .workspace_bytes = v == 0 ? step->workspace_bytes : step->less_bytes[v - 1]};
        facts->variant_first[s + 1] = first + 1 + step->n_less;
    }
    for (size_t i = 0; i < codes; i++) facts->codes[i].code_bytes = -1;
    facts->piece_bytes = MM_PIECE_BYTES;
    *facts_out = facts;
    return MM_OK;
}

static void *copy_of(const void *from, size_t n, size_t bytes) {
    void *copy = malloc((n + 1) * bytes);
    if (copy) memcpy(copy, from, n * bytes);
    return copy;
}

mm_status mm_graph_facts_copy(const mm_graph_facts *from, mm_graph_facts **copy_out) {
    mm_graph_facts *facts = malloc(sizeof *facts);
    if (!facts) return mm_fail(MM_ERR_NOMEM, "out of memory for facts");
    const size_t steps = (size_t)from->n_steps, codecs = (size_t)from->n_codecs;
    *facts = *from;
    facts->variant_first = copy_of(from->variant_first, steps + 1, sizeof *from->variant_first);
    facts->variants = copy_of(from->variants, (size_t)from->variant_first[steps], sizeof *from->variants);
    facts->codecs = copy_of(from->codecs, codecs, sizeof *from->codecs);
    facts->codes = copy_of(from->codes, codecs * (size_t)from->n_tensors, sizeof *from->codes);
    if (!facts->variant_first || !facts->variants || !facts->codecs || !facts->codes) {
        mm_graph_facts_destroy(facts);
        return mm_fail(MM_ERR_NOMEM, "out of memory for facts of %d steps", from->n_steps);
    }
    *copy_out = facts;
    return MM_OK;
}

/* Frees what facts point to. */
static void fini(mm_graph_facts *facts) {
    free(facts->variant_first);
    free(facts->variants);
    free(facts->codecs);
    free(facts->codes);
}

void mm_graph_facts_destroy(mm_graph_facts *facts) {
    if (!facts) return;
    fini(facts);
    free(facts);
}

mm_status mm_facts_of(mm_facts_fill fill, const void *ctx, mm_facts **facts_out) {
    mm_facts *facts = calloc(1, sizeof *facts);
    if (!facts) return mm_fail(MM_ERR_NOMEM, "out of memory for facts");
    facts->fill = fill;
    facts->fill_ctx = ctx;
    *facts_out = facts;
    return MM_OK;
}

void mm_facts_destroy(mm_facts *facts) {
    if (!facts) return;
    for (int s = 0; facts->layers && s < facts->by_name.n_steps; s++) free(facts->layers[s]);
    for (int t = 0; facts->tensors && t < facts->by_name.n_tensors; t++) free(facts->tensors[t]);
    free(facts->layers);
    free(facts->phases);
    free(facts->tensors);
    free(facts->path);
    free(facts->graph);
    free(facts->rates);
    fini(&facts->by_name);
    free(facts);
}

void mm_facts_keep_least_workspaces(mm_graph_facts *facts) {
    for (int s = 0; s < facts->n_steps; s++) {
        int least = facts->variant_first[s];
        for (int v = least + 1; v < facts->variant_first[s + 1]; v++)
            if (facts->variants[v].workspace_bytes < facts->variants[least].workspace_bytes) least = v;
        facts->variants[s] = facts->variants[least];
        facts->variant_first[s] = s;
    }
    facts->variant_first[facts->n_steps] = facts->n_steps;
}

void mm_facts_keep_variants(mm_graph_facts *facts, const int32_t *ids) {
    int n = 0;
    for (int s = 0; s < facts->n_steps; s++) {
        const int first = facts->variant_first[s], end = facts->variant_first[s + 1];
        int kept = first;
        while (kept < end && facts->variants[kept].id != ids[s]) kept++;
        const int from = kept < end ? kept : first, to = kept < end ? kept + 1 : end;
        facts->variant_first[s] = n;
        for (int v = from; v < to; v++) facts->variants[n++] = facts->variants[v];
    }
    facts->variant_first[facts->n_steps] = n;
}

static bool is_possible(int64_t alone, int64_t shared) { return shared <= 0 || shared >= alone / MM_LINK_SHARED_LEAST; }

bool mm_facts_link_is_possible(const mm_graph_facts *facts) {
    return is_possible(facts->out_bytes_per_s, facts->out_both_bytes_per_s) &&
           is_possible(facts->in_bytes_per_s, facts->in_both_bytes_per_s);
}

void mm_facts_drop_impossible(mm_graph_facts *facts) {
    if (!mm_facts_link_is_possible(facts)) facts->out_both_bytes_per_s = facts->in_both_bytes_per_s = 0;
}

/* Checks all entries, even those that are never used. */
static mm_status check_contention(const mm_graph_facts *f, const char *graph) {
    const int *all[] = {&f->contention_permille, &f->link_contention_permille, &f->contention.permille[0][0]};
    const int n[] = {1, 1, f->contention.known ? MM_WORK_KINDS * MM_WORK_KINDS : 0};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < n[i]; k++)
            if (all[i][k] < 0 || all[i][k] > MM_CONTENTION_MOST)
                return mm_fail(MM_ERR_INVALID, "facts for %s: a contention of %d permille is out of range, 0 to %d",
                               graph, all[i][k], MM_CONTENTION_MOST);
    return MM_OK;
}

mm_status mm_facts_check(const mm_graph_facts *f, const char *graph) {
    MM_TRY(check_contention(f, graph));
    if (f->host_bytes_per_s < 0)
        return mm_fail(MM_ERR_INVALID, "facts for %s: host_bytes_per_s %lld is out of range", graph,
                       (long long)f->host_bytes_per_s);
    if (f->host_sum_bytes_per_s < 0 || f->link_sharers < 0 || f->ranks < 0)
        return mm_fail(MM_ERR_INVALID,
                       "facts for %s: out of range: ranks %d, link_sharers %d or host_sum_bytes_per_s %lld", graph,
                       f->ranks, f->link_sharers, (long long)f->host_sum_bytes_per_s);
    if (f->store_bytes_per_s < 0 || f->load_bytes_per_s < 0 || f->disk_ns < 0 || f->disk_ns > MM_ALLOC_NS_MOST)
        return mm_fail(MM_ERR_INVALID,
                       "facts for %s: out of range: store_bytes_per_s %lld, load_bytes_per_s %lld or disk_ns %lld",
                       graph, (long long)f->store_bytes_per_s, (long long)f->load_bytes_per_s, (long long)f->disk_ns);
    if (f->issue_ns < 0 || f->issue_ns > MM_ALLOC_NS_MOST || f->alloc_ns < 0 || f->alloc_ns > MM_ALLOC_NS_MOST)
        return mm_fail(MM_ERR_INVALID, "facts for %s: out of range: issue_ns %lld or alloc_ns %lld", graph,
                       (long long)f->issue_ns, (long long)f->alloc_ns);
    if (f->cache_bytes < 0 || f->far_ps_per_byte < 0 || f->far_ps_per_byte > MM_FAR_PS_MOST)
        return mm_fail(MM_ERR_INVALID, "facts for %s: out of range: cache_bytes %lld or far_ps_per_byte %lld", graph,
                       (long long)f->cache_bytes, (long long)f->far_ps_per_byte);
    if (mm_facts_link_is_possible(f)) return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "facts for %s: the link's rate with both ways busy is less than a tenth of that of one way alone",
                   graph);
}

const char *mm_work_name(mm_work work) {
    static const char *const names[MM_WORK_KINDS] = {[MM_WORK_EXPENSIVE] = "dear",
                                                     [MM_WORK_CHEAP] = "cheap",
                                                     [MM_WORK_ENCODE] = "encode",
                                                     [MM_WORK_DECODE] = "decode",
                                                     [MM_WORK_LINK] = "link"};
    return (unsigned)work < MM_WORK_KINDS ? names[work] : "unknown";
}

int mm_facts_contention(const mm_graph_facts *facts, mm_work of, mm_work beside) {
    if (!mm_work_can_run_beside(of, beside)) return 0;
    if (facts->contention.known) return facts->contention.permille[of][beside];
    if (of > MM_WORK_CHEAP) return 0;
    return beside == MM_WORK_LINK ? facts->link_contention_permille : facts->contention_permille;
}

int mm_facts_step_contention(const mm_graph_facts *facts, mm_work beside) {
    const int expensive = mm_facts_contention(facts, MM_WORK_EXPENSIVE, beside);
    const int cheap = mm_facts_contention(facts, MM_WORK_CHEAP, beside);
    return expensive < cheap ? expensive : cheap;
}

void mm_facts_set_ranks(mm_graph_facts *facts, int ranks, mm_sum_at sum_at) {
    int64_t *const rates[] = {&facts->out_bytes_per_s, &facts->in_bytes_per_s, &facts->out_both_bytes_per_s,
                              &facts->in_both_bytes_per_s};
    const int sharers = ranks < facts->link_sharers ? ranks : facts->link_sharers;
    facts->ranks = ranks;
    facts->sum_at = sum_at;
    for (int i = 0; i < 4 && sharers > 1; i++)
        if (*rates[i] > 0) *rates[i] = *rates[i] / sharers > 0 ? *rates[i] / sharers : 1;
}

static double seconds_of(double bytes, int64_t rate) { return rate > 0 ? bytes / (double)rate : 0; }

/* Seconds of MM_SUM_AT_DEVICE. While the sums are computed, only the first device copies, so it has the link's full
 * rates, which mm_facts_set_ranks has divided by `sharers`. */
static double at_device(const mm_graph_facts *f, double bytes) {
    const int sharers = f->link_sharers > f->ranks ? f->ranks : f->link_sharers;
    const double link = seconds_of((f->ranks - 1) * bytes, f->in_bytes_per_s) + seconds_of(bytes, f->out_bytes_per_s);
    return link / (sharers > 1 ? sharers : 1) + seconds_of((f->ranks + 1) * bytes, f->memory_bytes_per_s) +
           1e-9 * f->ranks * (double)f->issue_ns;
}

/* Seconds of MM_SUM_IN_PLACE. The tensor has a part for each of N devices. In a ring, each device sends 2 (N - 1)
 * parts, and receives as many at the same time (NCCL; Patarasuk and Yuan, 2009). */
static double in_place(const mm_graph_facts *f, double bytes) {
    const int64_t out = f->out_both_bytes_per_s > 0 ? f->out_both_bytes_per_s : f->out_bytes_per_s;
    const int64_t in = f->in_both_bytes_per_s > 0 ? f->in_both_bytes_per_s : f->in_bytes_per_s;
    return seconds_of(2 * bytes * (f->ranks - 1) / f->ranks, in > 0 && in < out ? in : out) +
           1e-9 * (double)f->issue_ns;
}

int64_t mm_facts_sum_ns(const mm_graph_facts *f, int64_t bytes) {
    double seconds = 0;
    switch (f->sum_at) {
    case MM_SUM_AT_RANKS:
        seconds = seconds_of((double)bytes, f->host_sum_bytes_per_s);
        break;
    case MM_SUM_AT_ROOT:
        seconds = seconds_of((double)bytes * f->ranks, f->host_sum_bytes_per_s);
        break;
    case MM_SUM_AT_DEVICE:
        seconds = at_device(f, (double)bytes);
        break;
    case MM_SUM_IN_PLACE:
        seconds = in_place(f, (double)bytes);
        break;
    case MM_SUM_PLACES:
        break;
    }
    return seconds * 1e9 < (double)MM_NS_MOST ? (int64_t)(seconds * 1e9) : MM_NS_MOST;
}

int mm_facts_codec(const mm_graph_facts *facts, const char *spec) {
    for (int c = 0; c < facts->n_codecs; c++)
        if (strcmp(facts->codecs[c].spec, spec) == 0) return c;
    return -1;
}

const mm_code_facts *mm_facts_code(const mm_graph_facts *facts, int codec, mm_tensor tensor) {
    return &facts->codes[(size_t)codec * (size_t)facts->n_tensors + (size_t)tensor];
}

bool mm_facts_gives_value(const mm_graph_facts *facts, const mm_graph *graph, int codec, mm_tensor tensor) {
    if (codec < 0 || !facts->codecs[codec].gives_value) return false;
    if (mm_facts_code(facts, codec, tensor)->code_bytes < 0) return false;
    return facts->codecs[codec].lossless || mm_tensor_takes_loss(mm_graph_tensor(graph, tensor));
}
