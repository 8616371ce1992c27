/* SPDX-License-Identifier: MIT */
/* mm bench --predict: predicts the step times of policies from facts that were measured under other policies. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/hash.h"
#include "tools/compare/bench.h"

enum { ROUNDS = BENCH_PREDICT_ROUNDS, PASSES = ROUNDS - 1, CODEC_POLICY = MM_SPEC_CAPACITY + 64 };

typedef struct prediction {
    arg_texts policies;            /* facts are measured under these; liveness is first: others are compared with it */
    uint64_t plans[ARG_TEXTS_MAX]; /* hash of each one's plan */
    char codec_policies[MM_MAX_CODECS][CODEC_POLICY]; /* texts of the policies with a codec */
    collector rounds[ROUNDS];
    int n_rounds; /* measured so far */
    int first;    /* index of the first predicted row */
    int n_rows;
    row *passes; /* PASSES measurements of each row */
} prediction;

/* ---------------------------------------------------------------- plans */

static uint64_t add_hash(uint64_t hash, int64_t value) { return mm_hash_bytes(hash, &value, sizeof value); }

/* Hash of a plan's nodes in order, equal for plans that do the same. */
static uint64_t hash_nodes(const mm_plan *plan, const mm_graph_facts *facts) {
    uint64_t hash = MM_HASH_BEGIN;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        hash = add_hash(add_hash(add_hash(hash, n->kind), n->step), n->tensor);
        hash = add_hash(add_hash(hash, n->throttle), n->stage >= 0);
        for (int s = 0; s < MM_STREAM_COUNT; s++) hash = add_hash(hash, n->wait[s]);
        if (n->dst < 0) continue;
        const mm_segment *to = &plan->segments[n->dst];
        hash = add_hash(add_hash(add_hash(hash, to->bytes), to->memory), to->dynamic);
        for (const char *c = to->codec >= 0 ? facts->codecs[to->codec].spec : ""; *c; c++) hash = add_hash(hash, *c);
    }
    return hash;
}

/* Plans as a manager does: without times, in whole batches. */
static mm_status plan(const bench *b, const char *policy, int64_t budget_bytes, int64_t pinned_bytes, need *n,
                      uint64_t *hash_out) {
    const need_case c = bench_need(b, policy, b->batch, pinned_bytes);
    MM_TRY(need_open(n, &c));
    mm_status status = need_within(n, 0, budget_bytes, c.pinned.bytes, 0);
    if (status == MM_OK)
        *hash_out = hash_nodes(need_most(n)->planned.plan, need_most(n)->planned.facts);
    else
        need_fini(n);
    return status;
}

/* ---------------------------------------------------------------- calibrating */

/* The assertion below shows that the list has room. */
static void add_policy(arg_texts *texts, const char *policy) { texts->text[texts->n++] = policy; }

_Static_assert(MM_MAX_CODECS + 3 <= ARG_TEXTS_MAX, "the policies that facts are measured under are one list");

/* Chooses the policies that facts are measured under: liveness (times of steps); recompute (steps whose inputs are in
 * the cache); vdnn-all (the link); and for each codec of elements that a listed policy has, freelunch with that codec
 * on every map that can be compressed. */
static mm_status choose_policies(bench *b, const nets_net *net, int64_t batch, prediction *p) {
    collector c;
    MM_TRY(collector_init(&c, net, batch, &b->target, &b->policies));
    add_policy(&p->policies, "liveness");
    add_policy(&p->policies, "recompute:mode=sqrt,when=always");
    add_policy(&p->policies, "vdnn-all:when=always");
    for (int i = 0; i < MM_MAX_CODECS && c.codecs[i]; i++) {
        char *policy = p->codec_policies[i];
        snprintf(policy, CODEC_POLICY, "freelunch:codec=%s,eligible=all,when=always", c.codecs[i]->spec);
        if (c.codecs[i]->flags.gives_value) add_policy(&p->policies, policy);
    }
    collector_fini(&c);
    for (int i = 0; i < p->policies.n; i++) {
        need n;
        MM_TRY(plan(b, p->policies.text[i], 0, b->pinned_bytes, &n, &p->plans[i]));
        need_fini(&n);
    }
    return MM_OK;
}

static mm_status calibrate(bench *b, const nets_net *net, int64_t batch, prediction *p) {
    collector *c = &p->rounds[p->n_rounds];
    MM_TRY(collector_init(c, net, batch, &b->target, &b->policies));
    p->n_rounds++;
    for (int i = 0; i < p->policies.n && !*b->interrupted; i++)
        MM_TRY(bench_calibrate(b, net, batch, p->policies.text[i], c));
    MM_TRY(bench_calibrate_variants(b, net, batch, c));
    return *b->interrupted ? MM_OK : collector_measure_device(c, &b->target);
}

/* ---------------------------------------------------------------- measuring */

static mm_status list_rows(bench *b, const nets_net *net, int64_t batch, prediction *p) {
    int64_t budgets[BENCH_VALUES_MAX];
    int n;
    MM_TRY(bench_budgets(b, budgets, &n));
    p->first = b->n_rows;
    p->n_rows = n * b->policies.n;
    p->passes = calloc((size_t)p->n_rows * PASSES, sizeof *p->passes);
    if (!p->passes) return mm_fail(MM_ERR_NOMEM, "out of memory for %d runs", p->n_rows * PASSES);
    for (int i = 0; i < p->n_rows; i++)
        if (!bench_row(b, net, batch, b->policies.text[i % b->policies.n], budgets[i / b->policies.n]))
            return mm_fail(MM_ERR_NOMEM, "out of memory for the table");
    return MM_OK;
}

/* Measures each row once more. A row that failed is not tried again. */
static void measure(bench *b, const nets_net *net, prediction *p, int pass) {
    for (int i = 0; i < p->n_rows && !*b->interrupted; i++) {
        row *r = &b->rows[p->first + i];
        if (pass > 0 && strcmp(r->status, "ok") != 0) continue;
        row again = *r;
        bench_end_row(b, &again, bench_measure(b, net, &again));
        if (pass == 0 || again.iteration_seconds_median > 0) *r = again;
        p->passes[i * PASSES + pass] = again;
    }
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const row *)a)->iteration_seconds_median, y = ((const row *)b)->iteration_seconds_median;
    return (x > y) - (x < y);
}

/* ---------------------------------------------------------------- predicting */

static int by_value(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Simulates a row with the facts of a round. */
static mm_status forecast_round(const bench *b, const row *r, const collector *round, forecast *f, uint64_t *hash_out) {
    const int64_t budget_bytes = r->budget_bytes - r->staged_bytes;
    need n;
    MM_TRY(plan(b, r->policy, budget_bytes, r->pinned_bytes, &n, hash_out));
    mm_status status = collector_fill(round, n.pass[0].lowered->graph, n.pass[0].planned.facts);
    if (status == MM_OK) status = forecast_of(&n, budget_bytes, r->pinned_bytes, FORECAST_FACTS, f, NULL);
    need_fini(&n);
    return status;
}

/* Sets the row's prediction: the median of the simulations with each round's facts. */
static mm_status predict(const bench *b, const prediction *p, row *r) {
    int64_t ns[ROUNDS];
    uint64_t hash = 0;
    for (int i = 0; i < ROUNDS; i++) {
        forecast by;
        MM_TRY(forecast_round(b, r, &p->rounds[i], &by, &hash));
        if (by.untimed[0]) return MM_OK;
        ns[i] = by.iteration_ns;
    }
    qsort(ns, ROUNDS, sizeof *ns, by_value);
    r->iteration_seconds_predicted = (double)(ns[(ROUNDS - 1) / 2] + ns[ROUNDS / 2]) / 2 * 1e-9;
    for (int i = 0; i < p->policies.n; i++) r->calibrated |= hash == p->plans[i];
    return MM_OK;
}

static mm_status predict_rows(bench *b, prediction *p) {
    for (int i = 0; i < p->n_rows; i++) {
        row *r = &b->rows[p->first + i], *passes = &p->passes[i * PASSES];
        if (strcmp(r->status, "ok") == 0) {
            qsort(passes, PASSES, sizeof *passes, by_seconds);
            *r = passes[PASSES / 2];
            MM_TRY(predict(b, p, r));
        }
        bench_show_row(b, r);
    }
    return MM_OK;
}

static mm_status run(bench *b, const nets_net *net, int64_t batch, prediction *p) {
    MM_TRY(choose_policies(b, net, batch, p));
    MM_TRY(list_rows(b, net, batch, p));
    MM_TRY(calibrate(b, net, batch, p));
    for (int pass = 0; pass < PASSES && !*b->interrupted; pass++) {
        measure(b, net, p, pass);
        if (!*b->interrupted) MM_TRY(calibrate(b, net, batch, p));
    }
    if (*b->interrupted) return MM_OK;
    MM_TRY(predict_rows(b, p));
    return b->facts ? collector_save(&p->rounds[ROUNDS - 1], b->facts) : MM_OK;
}

mm_status bench_predict(bench *b, const nets_net *net, int64_t batch) {
    prediction *p = calloc(1, sizeof *p);
    if (!p) return mm_fail(MM_ERR_NOMEM, "out of memory for the facts");
    mm_status status = run(b, net, batch, p);
    for (int i = 0; i < p->n_rounds; i++) collector_fini(&p->rounds[i]);
    free(p->passes);
    free(p);
    return status;
}
