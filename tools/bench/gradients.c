/* SPDX-License-Identifier: MIT */
/* Measures how far weight gradients under lossy codecs are from exact ones, as training goes on.
 *
 * A net trains without loss (liveness). Before each listed iteration, the policy under test computes gradients from the
 * same weights and batch. Printed for each learned parameter: the cosine of the angle between its gradient and the
 * exact one, and |tested - exact| / |exact|. For comparison it prints the same error with the exact gradient of another
 * batch as the tested one: training bears an error of that size anyway. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/io/reader.h"
#include "nets/zoo/zoo.h"
#include "tools/args/args.h"
#include "tools/args/json_file.h"
#include "tools/bench/gradient_compare.h"
#include "tools/bench/samples.h"

static const char exact_policy[] = "liveness";
static const nets_optimizer sgd = {.momentum = 0.9f, .weight_decay = 1e-4f};

typedef struct bench {
    const char *net_name, *data, *policy_list, *iteration_list, *json;
    int64_t batch, seed;
    double rate;
    bool help, quiet;
    arg_texts policies;
    int64_t iterations[ARG_TEXTS_MAX]; /* ascending, from 1 */
    int n_iterations;
    nets_net *net;
    trainer exact;
    nets_reader *reader, *others; /* the same data in another order */
    float *exact_gradients, *gradients;
    gradient_figure *figures, *noise;
    json_t *rows;
} bench;

/* ---------------------------------------------------------------- one comparison */

static mm_status print_summary(FILE *file, const bench *b, int n, bool conv_only) {
    samples cosines = {0}, errors = {0}, noises = {0};
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < n; i++) {
        if (conv_only && !b->figures[i].conv) continue;
        status = samples_add(&cosines, b->figures[i].cosine);
        if (status == MM_OK) status = samples_add(&errors, b->figures[i].relative_error);
        if (status == MM_OK) status = samples_add(&noises, b->noise[i].relative_error);
    }
    if (status == MM_OK) {
        const double noise = samples_summarize(&noises).median;
        const double error = samples_summarize(&errors).median;
        samples_print_head(file, conv_only ? "convolutions" : "all layers");
        samples_print(file, &cosines, "cosine", 1, "", 0, NULL);
        samples_print(file, &errors, "relative error", 1, "", error / noise, "another batch's");
        fprintf(file, "  minimum cosine %.6f, at %s\n", gradient_worst(b->figures, n, conv_only)->cosine,
                nets_net_param(b->net, gradient_worst(b->figures, n, conv_only)->param)->name);
    }
    samples_fini(&cosines);
    samples_fini(&errors);
    samples_fini(&noises);
    return status;
}

static mm_status report(const bench *b, int64_t iteration, const char *policy, int n) {
    FILE *const file = json_file_beside(b->json);
    fprintf(file, "\niteration %lld, %s, %s, batch %lld\n", (long long)iteration, policy, b->net_name,
            (long long)b->batch);
    fprintf(file, "  %-34s %8s %11s %10s %11s %14s\n", "gradient of", "elements", "norm", "cosine", "rel. error",
            "another batch");
    for (int i = 0; i < n; i++) {
        const gradient_figure *f = &b->figures[i];
        const nets_param *param = nets_net_param(b->net, f->param);
        fprintf(file, "  %-34s %8lld %11.4g %10.6f %11.4g %14.4g\n", param->name, (long long)param->elems, f->norm,
                f->cosine, f->relative_error, b->noise[i].relative_error);
        json_t *row =
            json_pack("{ss sI ss sI ss ss sI sf sf sf sf sf sf}", "net", b->net_name, "batch", (json_int_t)b->batch,
                      "policy", policy, "iteration", (json_int_t)iteration, "parameter", param->name, "kind",
                      nets_op_name(nets_net_layer(b->net, param->layer)->op), "elements", (json_int_t)param->elems,
                      "norm", f->norm, "cosine", f->cosine, "relative_error", f->relative_error, "sigma", f->sigma,
                      "within_sigma", f->within_sigma, "other_batch_relative_error", b->noise[i].relative_error);
        if (!row || json_array_append_new(b->rows, row) != 0)
            return mm_fail(MM_ERR_NOMEM, "out of memory for the rows, or a figure is not finite");
    }
    MM_TRY(print_summary(file, b, n, false));
    return print_summary(file, b, n, true);
}

static mm_status compare_at(const bench *b, int64_t iteration, const gradient_batch *batch) {
    nets_batch other;
    MM_TRY(nets_reader_next(b->others, &other));
    const gradient_batch other_batch = {other.images, other.labels, other.n};
    MM_TRY(gradient_probe(&b->exact, exact_policy, batch, b->exact_gradients));
    MM_TRY(gradient_probe(&b->exact, exact_policy, &other_batch, b->gradients));
    gradient_compare(b->net, b->exact_gradients, b->gradients, b->noise);
    for (int i = 0; i < b->policies.n; i++) {
        MM_TRY(gradient_probe(&b->exact, b->policies.text[i], batch, b->gradients));
        const int n = gradient_compare(b->net, b->exact_gradients, b->gradients, b->figures);
        MM_TRY(report(b, iteration, b->policies.text[i], n));
    }
    fflush(json_file_beside(b->json));
    return MM_OK;
}

static mm_status train(const bench *b) {
    int next = 0;
    for (int64_t i = 1; next < b->n_iterations; i++) {
        nets_batch batch;
        MM_TRY(nets_reader_next(b->reader, &batch));
        const gradient_batch same = {batch.images, batch.labels, batch.n};
        if (i == b->iterations[next]) {
            MM_TRY(compare_at(b, i, &same));
            next++;
        }
        nets_result result;
        MM_TRY(nets_exec_iteration(b->exact.exec, batch.images, batch.labels, batch.n, (float)b->rate, &result));
        if (!b->quiet && i % 20 == 0) fprintf(stderr, "iteration %lld, loss %.4f\n", (long long)i, result.loss);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- set-up */

static mm_status open_reader(const bench *b, uint64_t seed, nets_reader **reader_out) {
    const nets_layer *data = nets_net_layer(b->net, 0);
    const nets_reader_options options = {.batch = b->batch,
                                         .seed = seed,
                                         .drop_last = true,
                                         .wanted = {.height = data->shape.dims[0],
                                                    .width = data->shape.dims[1],
                                                    .channels = data->shape.dims[2],
                                                    .classes = nets_net_classes(b->net)}};
    return nets_reader_create(b->data, &options, reader_out);
}

static mm_status prepare(bench *b) {
    MM_TRY(args_split("--policies", b->policy_list, &b->policies));
    MM_TRY(args_rising("--iterations", b->iteration_list, b->iterations, &b->n_iterations));
    MM_TRY(nets_zoo_build(b->net_name, &b->net));
    MM_TRY(open_reader(b, (uint64_t)b->seed, &b->reader));
    MM_TRY(open_reader(b, (uint64_t)b->seed + 1, &b->others));
    const size_t gradients = (size_t)nets_net_learned_elems(b->net), params = (size_t)nets_net_params(b->net);
    b->exact_gradients = malloc(gradients * sizeof(float));
    b->gradients = malloc(gradients * sizeof(float));
    b->figures = malloc(params * sizeof *b->figures);
    b->noise = malloc(params * sizeof *b->noise);
    b->rows = json_array();
    if (!b->exact_gradients || !b->gradients || !b->figures || !b->noise || !b->rows)
        return mm_fail(MM_ERR_NOMEM, "out of memory for %zu gradients", gradients);
    MM_TRY(trainer_init(&b->exact, b->net, b->batch, &sgd, &(mm_options){.policy = exact_policy}));
    return nets_exec_init(b->exact.exec, (uint64_t)b->seed);
}

static void fini(bench *b) {
    trainer_fini(&b->exact);
    args_texts_fini(&b->policies);
    nets_reader_destroy(b->others);
    nets_reader_destroy(b->reader);
    nets_net_destroy(b->net);
    json_decref(b->rows);
    free(b->exact_gradients);
    free(b->gradients);
    free(b->figures);
    free(b->noise);
}

int main(int argc, char **argv) {
    bench b = {.net_name = "resnet32",
               .data = "synthetic",
               .policy_list = "freelunch:rate=4,when=always",
               .iteration_list = "1,100,1000",
               .batch = 128,
               .seed = 1,
               .rate = 0.1};
    const arg table[] = {
        {"--net", "NAME", "network (resnet32)", ARG_TEXT, &b.net_name, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &b.batch, 1, 1 << 20},
        {"--data", "SPEC", "cifar10:DIR, synthetic (synthetic)", ARG_TEXT, &b.data, 0, 0},
        {"--policies", "P,Q", "policies to test, with options (freelunch:rate=4,when=always)", ARG_TEXT, &b.policy_list,
         0, 0},
        {"--iterations", "I,J", "iterations at which to compare, from 1 (1,100,1000)", ARG_TEXT, &b.iteration_list, 0,
         0},
        {"--rate", "LR", "learning rate (0.1)", ARG_NUMBER, &b.rate, 0, 100},
        {"--seed", "N", "of weights and data (1)", ARG_COUNT, &b.seed, 0, 9e15},
        {"--json", "FILE", "the figures, as an array; -: to standard output", ARG_TEXT, &b.json, 0, 0},
        {"--quiet", NULL, "no progress", ARG_FLAG, &b.quiet, 0, 0},
        {0},
    };
    mm_status status =
        args_parse(argc, argv, table, "gradients [OPTIONS]",
                   "Compares weight gradients under policies with exact ones, as training goes on.", &b.help);
    if (status == MM_OK && b.help) return 0;
    if (status == MM_OK) status = prepare(&b);
    if (status == MM_OK) status = train(&b);
    if (status == MM_OK && b.json) status = json_file_save(b.json, json_incref(b.rows));
    fini(&b);
    if (status != MM_OK) fprintf(stderr, "gradients: %s\n", mm_last_error());
    return status == MM_OK ? 0 : 1;
}
