/* SPDX-License-Identifier: MIT */
/* Measures what FreeLunch's workflow gains over the unoptimised one (its Table II), with allocations as expensive as a
 * GPU's.
 *
 * The same net trains on the same batches under liveness, under freelunch (sliding workspace and persistent buffers),
 * and under freelunch without the one, the other or both. The unoptimised forms allocate, copy and free for each
 * tensor. In each round each variant trains one iteration, so that a slow phase of the machine affects all of them. A
 * ratio is the median over rounds of the ratio within a round.
 *
 *      hidden = 1 - (step - liveness's step) / time the codecs were busy,  from medians, and from the fastest steps */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/device/contract/clock.h"
#include "nets/io/reader.h"
#include "nets/zoo/zoo.h"
#include "tools/args/args.h"
#include "tools/args/json_file.h"
#include "tools/bench/samples.h"
#include "tools/bench/trainer.h"

enum { LIVENESS, OPTIMISED, VARIANTS = 5 };

static const nets_optimizer sgd = {.momentum = 0.9f, .weight_decay = 1e-4f};

static const struct {
    const char *label, *options; /* options NULL: liveness */
} variants[VARIANTS] = {
    [LIVENESS] = {"liveness", NULL},
    [OPTIMISED] = {"sliding + persistent", ""},
    {"workspace=naive", ",workspace=naive"},
    {"buffers=naive", ",buffers=naive"},
    {"both naive", ",workspace=naive,buffers=naive"},
};

typedef struct run {
    char policy[96];
    trainer trainer;
    double step_ns, codec_ns; /* of the last round */
    samples step, ratio;      /* ratio: step / the optimised workflow's step in the same round */
    samples codec, longer;    /* longer: step - liveness's step in the same round */
    mm_stats stats;
} run;

typedef struct bench {
    const char *net_name, *data, *codec, *json, *issue;
    int64_t batch, rounds, alloc_cost_us, seed;
    bool help;
    nets_net *net;
    nets_reader *reader;
    run runs[VARIANTS];
} bench;

/* ---------------------------------------------------------------- measuring */

static mm_status run_iteration(run *r, const nets_batch *batch) {
    nets_result result;
    const int64_t busy = r->stats.codec_busy_ns, start = mm_now_ns();
    MM_TRY(nets_exec_iteration(r->trainer.exec, batch->images, batch->labels, batch->n, 0.05f, &result));
    r->step_ns = (double)(mm_now_ns() - start);
    mm_stats_get(r->trainer.manager, &r->stats);
    r->codec_ns = (double)(r->stats.codec_busy_ns - busy);
    return MM_OK;
}

static mm_status keep_round(bench *b) {
    for (int v = 0; v < VARIANTS; v++) {
        run *r = &b->runs[v];
        MM_TRY(samples_add(&r->step, r->step_ns));
        MM_TRY(samples_add(&r->ratio, r->step_ns / b->runs[OPTIMISED].step_ns));
        if (v == LIVENESS) continue;
        MM_TRY(samples_add(&r->codec, r->codec_ns));
        MM_TRY(samples_add(&r->longer, r->step_ns - b->runs[LIVENESS].step_ns));
    }
    return MM_OK;
}

static mm_status measure(bench *b) {
    for (int64_t round = -1; round < b->rounds; round++) { /* round -1 warms up */
        nets_batch batch;
        MM_TRY(nets_reader_next(b->reader, &batch));
        for (int v = 0; v < VARIANTS; v++) {
            mm_status status = run_iteration(&b->runs[v], &batch);
            if (status != MM_OK) return mm_fail_in(status, "%s", b->runs[v].policy);
        }
        if (round >= 0) MM_TRY(keep_round(b));
        fprintf(stderr, "\rround %lld of %lld", (long long)round + 1, (long long)b->rounds);
    }
    fprintf(stderr, "\n");
    return MM_OK;
}

/* ---------------------------------------------------------------- report */

/* hidden: from medians. hidden_at_best: from the fastest steps, which other programs disturbed least. */
static double hidden(run *r) {
    return r->codec.n ? 1 - samples_summarize(&r->longer).median / samples_summarize(&r->codec).median : 0;
}

static double hidden_at_best(run *r, run *liveness) {
    const double longer = samples_summarize(&r->step).min - samples_summarize(&liveness->step).min;
    return r->codec.n ? 1 - longer / samples_summarize(&r->codec).min : 0;
}

static json_t *row_of(const bench *b, run *r, const char *label) {
    const samples_summary step = samples_summarize(&r->step);
    return json_pack("{ss sI ss ss ss sI sI sf sf sf sf sf sI sI}", "net", b->net_name, "batch", (json_int_t)b->batch,
                     "policy", r->policy, "workflow", label, "issue", b->issue, "alloc_cost_us",
                     (json_int_t)b->alloc_cost_us, "n", (json_int_t)step.n, "step_seconds_min", step.min * 1e-9,
                     "step_seconds_median", step.median * 1e-9, "step_seconds_p95", step.p95 * 1e-9,
                     "ratio_to_optimised", samples_summarize(&r->ratio).median, "codec_hidden_share", hidden(r),
                     "budget_bytes", (json_int_t)r->trainer.budget_bytes, "unplanned_allocs",
                     (json_int_t)r->stats.unplanned_allocs);
}

static mm_status report(bench *b) {
    FILE *const file = json_file_beside(b->json);
    json_t *rows = json_array();
    fprintf(file, "%s, batch %lld, %s, codec %s, allocation %lld us, issue %s\n", b->net_name, (long long)b->batch,
            b->data, b->codec, (long long)b->alloc_cost_us, b->issue);
    samples_print_head(file, "step");
    for (int v = 0; v < VARIANTS; v++) {
        run *r = &b->runs[v];
        samples_print(file, &r->step, variants[v].label, 1e-6, "ms", samples_summarize(&r->ratio).median,
                      variants[OPTIMISED].label);
        json_t *row = row_of(b, r, variants[v].label);
        if (!rows || !row || json_array_append_new(rows, row) != 0) {
            json_decref(rows);
            return mm_fail(MM_ERR_NOMEM, "out of memory for the rows");
        }
    }
    samples_print_head(file, "codecs busy in a step");
    for (int v = OPTIMISED; v < VARIANTS; v++)
        samples_print(file, &b->runs[v].codec, variants[v].label, 1e-6, "ms", 0, NULL);
    samples_print_head(file, "step longer than liveness's");
    for (int v = OPTIMISED; v < VARIANTS; v++) {
        run *r = &b->runs[v];
        samples_print(file, &r->longer, variants[v].label, 1e-6, "ms", 0, NULL);
        fprintf(file, "    hidden %.0f %%, of the fastest steps %.0f %%\n", 100 * hidden(r),
                100 * hidden_at_best(r, &b->runs[LIVENESS]));
    }
    for (int v = 0; v < VARIANTS; v++) {
        const run *r = &b->runs[v];
        char size[32];
        fprintf(file, "  %-22s budget %9s, %lld unplanned allocations an iteration\n", variants[v].label,
                mm_size_format(r->trainer.budget_bytes, size, sizeof size),
                (long long)(r->stats.unplanned_allocs / r->stats.iterations));
    }
    if (b->json) return json_file_save(b->json, rows);
    json_decref(rows);
    return MM_OK;
}

/* ---------------------------------------------------------------- set-up */

static mm_status prepare(bench *b) {
    if (strcmp(b->issue, "thread") != 0 && strcmp(b->issue, "inline") != 0)
        return mm_fail(MM_ERR_INVALID, "--issue %s: must be thread or inline", b->issue);
    MM_TRY(nets_zoo_build(b->net_name, &b->net));
    const nets_reader_options options = {.batch = b->batch, .seed = (uint64_t)b->seed, .drop_last = true};
    MM_TRY(nets_reader_create(b->data, &options, &b->reader));
    for (int v = 0; v < VARIANTS; v++) {
        run *r = &b->runs[v];
        if (variants[v].options)
            snprintf(r->policy, sizeof r->policy, "freelunch:codec=%s%s,when=always", b->codec, variants[v].options);
        else
            snprintf(r->policy, sizeof r->policy, "liveness");
        const mm_options manager = {.policy = r->policy,
                                    .alloc_cost_ns = b->alloc_cost_us * 1000,
                                    .issue = strcmp(b->issue, "inline") == 0 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD};
        MM_TRY(trainer_init(&r->trainer, b->net, b->batch, &sgd, &manager));
        MM_TRY(nets_exec_init(r->trainer.exec, (uint64_t)b->seed));
    }
    return MM_OK;
}

static void fini(bench *b) {
    for (int v = 0; v < VARIANTS; v++) {
        run *r = &b->runs[v];
        trainer_fini(&r->trainer);
        samples_fini(&r->step);
        samples_fini(&r->codec);
        samples_fini(&r->longer);
        samples_fini(&r->ratio);
    }
    nets_reader_destroy(b->reader);
    nets_net_destroy(b->net);
}

int main(int argc, char **argv) {
    bench b = {.net_name = "resnet32",
               .data = "synthetic",
               .codec = "zfp:rate=4",
               .issue = "thread",
               .batch = 128,
               .rounds = 20,
               .alloc_cost_us = 200,
               .seed = 1};
    const arg table[] = {
        {"--net", "NAME", "network (resnet32)", ARG_TEXT, &b.net_name, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &b.batch, 1, 1 << 20},
        {"--data", "SPEC", "cifar10:DIR, synthetic (synthetic)", ARG_TEXT, &b.data, 0, 0},
        {"--codec", "SPEC", "codec of the feature maps (zfp:rate=4)", ARG_TEXT, &b.codec, 0, 0},
        {"--rounds", "N", "iterations of each workflow (20)", ARG_COUNT, &b.rounds, 1, 1e6},
        {"--alloc-cost", "US", "what an allocation or a free costs, in microseconds (200: an H200's)", ARG_COUNT,
         &b.alloc_cost_us, 0, 1e6},
        {"--issue", "HOW", "thread or inline (thread)", ARG_TEXT, &b.issue, 0, 0},
        {"--seed", "N", "of weights and data (1)", ARG_COUNT, &b.seed, 0, 9e15},
        {"--json", "FILE", "the figures, as an array; -: to standard output", ARG_TEXT, &b.json, 0, 0},
        {0},
    };
    mm_status status =
        args_parse(argc, argv, table, "workflow [OPTIONS]",
                   "Measures step times of FreeLunch's workflow and of the unoptimised one, in turns.", &b.help);
    if (status == MM_OK && b.help) return 0;
    if (status == MM_OK) status = prepare(&b);
    if (status == MM_OK) status = measure(&b);
    if (status == MM_OK) status = report(&b);
    fini(&b);
    if (status != MM_OK) fprintf(stderr, "workflow: %s\n", mm_last_error());
    return status == MM_OK ? 0 : 1;
}
