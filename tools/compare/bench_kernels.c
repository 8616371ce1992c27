/* SPDX-License-Identifier: MIT */
/* mm bench --kernels: the kernels of one iteration of a run, as CUPTI records them. */
#include <stdlib.h>
#include <string.h>

#include "tools/args/json_file.h"
#include "tools/compare/bench.h"
#include "tools/measure/kernels.h"

/* A nets_mark_fn. */
static void mark(void *ctx, int step) { kernels_step(ctx, step); }

/* Trains one more iteration. */
static mm_status iterate(session *s) {
    row ignored = {.batch = s->config.batch};
    session_run run = {.iterations = s->iteration + 1, .schedule = {.rate = BENCH_RATE, .factor = 1}, .quiet = true};
    return session_train(s, &run, &ignored);
}

/* Records the kernels of one iteration. marked: the iteration is issued step by step, so that each kernel's step is
 * known; else it runs as iterations usually do: replayed, if possible. */
static mm_status see(session *s, bool marked, kernels *k) {
    MM_TRY(kernels_begin(k));
    if (marked) nets_exec_mark(s->train, mark, k);
    mm_failure failure;
    mm_failure_save(&failure, iterate(s));
    nets_exec_mark(s->train, NULL, NULL);
    mm_status ended = kernels_end(k);
    return failure.status != MM_OK ? mm_failure_restore(&failure) : ended;
}

/* Bytes that a step reads and writes according to the graph: each tensor once for each use. */
static int64_t step_bytes(const mm_graph *graph, int step) {
    const mm_step_info *info = mm_graph_step(graph, step);
    int64_t bytes = 0;
    for (int u = 0; u < info->n_uses; u++) bytes += mm_graph_tensor(graph, info->uses[u].tensor)->bytes;
    return bytes;
}

/* The stream that ran the most kernels, which is the compute stream: codecs and copies run on others. */
static uint32_t compute_stream(const kernels *k) {
    uint32_t best = 0;
    int most = 0;
    for (int i = 0; i < k->n; i++) {
        int n = 0;
        for (int j = 0; j < k->n; j++) n += k->of[j].stream == k->of[i].stream;
        if (n > most) most = n, best = k->of[i].stream;
    }
    return best;
}

/* The JSON row of a kernel. A step's bytes are divided among its kernels by their times, so all have the step's
 * rate. */
static json_t *describe(const mm_graph *graph, const kernels *k, const kernel *one, uint32_t compute) {
    const bool known = one->step >= 0 && one->step < mm_graph_steps(graph);
    const mm_step_info *info = known ? mm_graph_step(graph, one->step) : NULL;
    int64_t step_ns = 0, ns = one->end_ns - one->begin_ns;
    for (int i = 0; i < k->n; i++)
        if (k->of[i].step == one->step && k->of[i].stream == compute) step_ns += k->of[i].end_ns - k->of[i].begin_ns;
    json_t *row = json_pack("{s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:n, s:n}", "name", one->name, "layer",
                            known ? json_string(mm_graph_layer(graph, info->layer)->name) : json_null(), "phase",
                            known ? json_string(mm_phase_name(info->phase)) : json_null(), "stream",
                            (json_int_t)one->stream, "begin_ns", (json_int_t)(one->begin_ns - k->of[0].begin_ns), "ns",
                            (json_int_t)ns, "gap_ns", (json_int_t)one->gap_ns, "bytes", "gb_per_s");
    if (!row || !known || one->stream != compute || step_ns <= 0) return row;
    const double rate = (double)step_bytes(graph, one->step) / (double)step_ns;
    json_object_set_new(row, "bytes", json_integer((json_int_t)(rate * (double)ns)));
    json_object_set_new(row, "gb_per_s", json_real(rate));
    return row;
}

static json_t *list(const mm_graph *graph, const kernels *k) {
    json_t *rows = json_array();
    const uint32_t compute = compute_stream(k);
    for (int i = 0; i < k->n; i++)
        if (json_array_append_new(rows, describe(graph, k, &k->of[i], compute)) != 0) {
            json_decref(rows);
            return NULL;
        }
    return rows;
}

static json_t *sum(const kernels *k) {
    int64_t busy, span, ns = 0;
    kernels_span(k, &busy, &span);
    for (int i = 0; i < k->n; i++) ns += k->of[i].end_ns - k->of[i].begin_ns;
    return json_pack("{s:i, s:I, s:I, s:I, s:I}", "kernels", k->n, "kernels_ns", (json_int_t)ns, "busy_ns",
                     (json_int_t)busy, "span_ns", (json_int_t)span, "idle_ns", (json_int_t)(span - busy));
}

mm_status bench_kernels(bench *b, session *s, const row *r) {
    const mm_graph *graph = nets_exec_lowered(s->train)->graph;
    kernels steps, whole = {0};
    mm_status status = see(s, true, &steps);
    if (status == MM_OK) status = see(s, false, &whole);
    if (status == MM_OK) {
        json_t *of = json_pack("{s:s, s:I, s:s, s:I, s:o, s:o}", "net", r->net, "batch", (json_int_t)r->batch, "policy",
                               r->policy, "budget_bytes", (json_int_t)r->budget_bytes, "kernels", list(graph, &steps),
                               "replayed", sum(&whole));
        if (!b->kernel_rows) b->kernel_rows = json_array();
        if (!of || json_array_append_new(b->kernel_rows, of) != 0)
            status = mm_fail(MM_ERR_NOMEM, "out of memory for the table of kernels");
    }
    kernels_fini(&steps);
    kernels_fini(&whole);
    return status;
}
