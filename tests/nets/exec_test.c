/* SPDX-License-Identifier: MIT */
/* The executor under a manager: under every policy the bits of the reference executor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "nets/bf16.h"
#include "nets/exec/exec.h"
#include "nets/exec/exec_undo.h"
#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"
#include "tests/nets/ref_exec.h"

enum { BATCH = 8, ITERATIONS = 3 };
static const nets_optimizer SGD = {.momentum = 0.9f, .weight_decay = 1e-4f};
static const float RATE = 0.05f;

typedef struct fixture {
    nets_net *net;
    mm_manager *manager;
    nets_exec *train;
    float *images;
    int32_t *labels;
} fixture;

static mm_status make_manager(const char *policy, int64_t bytes, mm_manager **manager_out) {
    const mm_options options = {
        .device = "host", .device_bytes = bytes, .pinned_bytes = 64 << 20, .policy = policy, .self_check = true};
    return mm_manager_create(&options, manager_out);
}

/* Opens the net in f->manager, which the caller created. */
static void start_in(fixture *f, const char *net) {
    assert_int_equal(nets_zoo_build(net, &f->net), MM_OK);
    if (nets_exec_create(f->net, BATCH, NETS_TRAIN, f->manager, "host", &SGD, &f->train) != MM_OK)
        fail_msg("%s", mm_last_error());
    assert_int_equal(nets_exec_init(f->train, 11), MM_OK);
    ref_batch(f->net, BATCH, 4, &f->images, &f->labels);
}

static void start(fixture *f, const char *net, const char *policy) {
    if (make_manager(policy, 256 << 20, &f->manager) != MM_OK) fail_msg("%s", mm_last_error());
    start_in(f, net);
}

static void finish(fixture *f) {
    nets_exec_destroy(f->train);
    mm_manager_destroy(f->manager);
    nets_net_destroy(f->net);
    free(f->images);
    free(f->labels);
}

static nets_result iterate(fixture *f, nets_exec *exec, int64_t n) {
    nets_result result;
    if (nets_exec_iteration(exec, f->images, f->labels, n, RATE, &result) != MM_OK) fail_msg("%s", mm_last_error());
    return result;
}

static void expect_same_as_reference(const fixture *f, const ref_exec *ref) {
    for (int p = 0; p < nets_net_params(f->net); p++) {
        const nets_param *param = nets_net_param(f->net, p);
        assert_memory_equal(nets_exec_param(f->train, p, NETS_VALUE), ref_tensor(ref, param->name),
                            (size_t)param->elems * 4);
        if (!param->learned) continue;
        char name[160] = "grad.";
        strcat(name, param->name);
        assert_memory_equal(nets_exec_param(f->train, p, NETS_GRADIENT), ref_tensor(ref, name),
                            (size_t)param->elems * 4);
    }
}

static void train_as_reference(const char *net, const char *policy) {
    fixture f;
    ref_exec ref;
    start(&f, net, policy);
    ref_init(&ref, f.net, BATCH, NETS_TRAIN, (ref_options){0}, 11, NULL);
    ref.optimizer = SGD;
    for (int i = 0; i < ITERATIONS; i++) {
        float expected = ref_iteration(&ref, f.images, f.labels, RATE);
        assert_true(iterate(&f, f.train, BATCH).loss == expected);
    }
    expect_same_as_reference(&f, &ref);
    ref_fini(&ref);
    finish(&f);
}

TEST_CASE(resnet20_trains_as_the_reference_under_naive) { train_as_reference("resnet20", "naive"); }

TEST_CASE(resnet20_trains_as_the_reference_under_liveness) { train_as_reference("resnet20", "liveness"); }

TEST_CASE(tiny_trains_as_the_reference_under_either) {
    train_as_reference("tiny", "naive");
    train_as_reference("tiny", "liveness");
}

/* A net whose samples have any number of dimensions. */
static nets_net *build_of_samples(const nets_shape *shape) {
    nets_net *net;
    assert_int_equal(nets_net_create("samples", &net), MM_OK);
    int data = nets_add_samples(net, shape, 4);
    int normed = nets_add1(net, "bn", NETS_BATCH_NORM, NULL, data);
    int relu = nets_add1(net, "relu", NETS_RELU, NULL, normed);
    int lrn = nets_add1(net, "lrn", NETS_LRN, &(nets_attrs){.size = 3}, relu);
    int sum = nets_add(net, "sum", NETS_ADD, NULL, (const int[]){lrn, data}, 2);
    int cat = nets_add(net, "cat", NETS_CONCAT, NULL, (const int[]){sum, relu}, 2);
    int dropped = nets_add1(net, "drop", NETS_DROPOUT, &(nets_attrs){.p = 0.25f}, cat);
    int scores = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 4, .bias = true}, dropped);
    nets_add1(net, "loss", NETS_LOSS, NULL, scores);
    if (nets_net_finish(net) != MM_OK) fail_msg("%s", mm_last_error());
    return net;
}

TEST_CASE(samples_of_any_rank_train_to_the_same_bits) {
    static const nets_shape SHAPES[] = {
        {3, {5, 1, 6}}, {2, {5, 6}}, {7, {1, 5, 1, 1, 1, 1, 6}}}; /* with the same elements */
    float losses[3], *weights[3];
    for (int i = 0; i < 3; i++) {
        fixture f = {.net = build_of_samples(&SHAPES[i])};
        assert_int_equal(make_manager("liveness", 16 << 20, &f.manager), MM_OK);
        if (nets_exec_create(f.net, BATCH, NETS_TRAIN, f.manager, "host", &SGD, &f.train) != MM_OK)
            fail_msg("%s", mm_last_error());
        assert_int_equal(nets_exec_init(f.train, 11), MM_OK);
        ref_batch(f.net, BATCH, 4, &f.images, &f.labels);
        const mm_graph *graph = nets_exec_lowered(f.train)->graph;
        mm_tensor out;
        assert_int_equal(mm_graph_find_tensor(graph, "sum.out", &out), MM_OK);
        assert_int_equal(mm_graph_tensor(graph, out)->rank, SHAPES[i].rank + 1);
        for (int k = 0; k < ITERATIONS; k++) losses[i] = iterate(&f, f.train, BATCH).loss;
        int param = nets_net_find_param(f.net, "fc.weight");
        size_t bytes = (size_t)nets_net_param(f.net, param)->elems * sizeof(float);
        weights[i] = malloc(bytes);
        assert_non_null(weights[i]);
        memcpy(weights[i], nets_exec_param(f.train, param, NETS_VALUE), bytes);
        assert_true(losses[i] == losses[0]);
        assert_memory_equal(weights[i], weights[0], bytes);
        finish(&f);
    }
    for (int i = 0; i < 3; i++) free(weights[i]);
}

TEST_CASE(operations_of_images_refuse_other_shapes_by_name) {
    nets_net *net;
    assert_int_equal(nets_net_create("samples", &net), MM_OK);
    int data = nets_add_samples(net, &(nets_shape){2, {5, 6}}, 4);
    assert_int_equal(nets_add1(net, "c", NETS_CONV, &(nets_attrs){.out_channels = 2, .kernel = {1, 1}}, data), -1);
    assert_string_equal(mm_last_error(), "layer c: conv takes inputs of 3 dimensions, not 5x6");
    nets_net_destroy(net);
    assert_int_equal(nets_net_create("samples", &net), MM_OK);
    assert_int_equal(nets_add_samples(net, &(nets_shape){MM_RANK_MAX, {1, 1, 1, 1, 1, 1, 1, 1}}, 4), -1);
    assert_string_equal(mm_last_error(), "net samples: samples of 8 dimensions: must be from 1 to 7");
    nets_net_destroy(net);
}

TEST_CASE(smaller_batch_and_evaluation_share_the_parameters) {
    fixture f;
    nets_exec *last, *eval;
    start(&f, "tiny", "liveness");
    assert_int_equal(nets_exec_create(f.net, 3, NETS_TRAIN, f.manager, "host", &SGD, &last), MM_OK);
    assert_int_equal(nets_exec_create(f.net, BATCH, NETS_EVAL, f.manager, "host", NULL, &eval), MM_OK);
    assert_ptr_equal(nets_exec_param(last, 0, NETS_VALUE), nets_exec_param(f.train, 0, NETS_VALUE));
    assert_ptr_equal(nets_exec_param(eval, 0, NETS_VALUE), nets_exec_param(f.train, 0, NETS_VALUE));
    assert_null(nets_exec_param(eval, 0, NETS_GRADIENT));
    nets_result before = iterate(&f, eval, BATCH), after = {0};
    for (int i = 0; i < 40; i++) {
        iterate(&f, f.train, BATCH);
        iterate(&f, last, 3);
        after = iterate(&f, eval, BATCH);
    }
    assert_true(after.loss < 0.7f * before.loss);
    assert_true(after.correct > BATCH / 2 && after.correct <= BATCH);
    nets_exec_destroy(eval);
    nets_exec_destroy(last);
    finish(&f);
}

TEST_CASE(initial_values_are_set_again_by_init) {
    fixture f;
    start(&f, "tiny", "liveness");
    float first = iterate(&f, f.train, BATCH).loss;
    assert_true(iterate(&f, f.train, BATCH).loss != first);
    assert_int_equal(nets_exec_init(f.train, 11), MM_OK);
    assert_true(iterate(&f, f.train, BATCH).loss == first);
    finish(&f);
}

/* Checks each weight's copy; returns the number of copies. */
static int expect_copies(const fixture *f) {
    int copies = 0;
    for (int p = 0; p < nets_net_params(f->net); p++) {
        const nets_param *param = nets_net_param(f->net, p);
        const uint32_t *values = (const uint32_t *)nets_exec_param(f->train, p, NETS_VALUE);
        char name[NETS_PARAM_NAME_CAPACITY + 8];
        snprintf(name, sizeof name, "bf16.%s", param->name);
        const uint16_t *copy = mm_persistent_data(f->manager, name, NULL);
        for (int64_t i = 0; copy && i < param->elems; i++) assert_int_equal(copy[i], nets_bf16_of(values[i]));
        copies += copy != NULL;
    }
    return copies;
}

TEST_CASE(copies_in_bf16_follow_weights_whatever_sets_them) {
    const float some[] = {0.123456f, -7.654321f, 3e38f};
    fixture f;
    nets_backend *backend;
    float values[8 * 3 * 25];
    assert_int_equal(nets_zoo_build("tiny", &f.net), MM_OK);
    assert_int_equal(make_manager("liveness", 64 << 20, &f.manager), MM_OK);
    assert_int_equal(nets_backend_open("host", &(nets_backend_config){.precision = NETS_BF16}, &backend), MM_OK);
    assert_int_equal(nets_exec_create_on(f.net, BATCH, NETS_TRAIN, f.manager, backend, &SGD, &f.train), MM_OK);
    ref_batch(f.net, BATCH, 4, &f.images, &f.labels);
    assert_int_equal(nets_exec_init(f.train, 11), MM_OK);
    assert_int_equal(expect_copies(&f), 3);
    iterate(&f, f.train, BATCH);
    expect_copies(&f);
    assert_int_equal(nets_exec_param_get(f.train, 0, NETS_VALUE, values), MM_OK);
    values[17] = 1.003f;
    assert_int_equal(nets_exec_param_set(f.train, 0, NETS_VALUE, values), MM_OK);
    expect_copies(&f);
    assert_int_equal(nets_exec_values_set(f.train, "fc.weight", 28, some, sizeof some), MM_OK);
    expect_copies(&f);
    finish(&f);
    nets_backend_close(backend);
}

TEST_CASE(wrong_batch_or_label_is_refused_and_the_executor_stays_usable) {
    fixture f;
    nets_result result;
    start(&f, "tiny", "liveness");
    assert_int_equal(nets_exec_iteration(f.train, f.images, f.labels, BATCH - 1, RATE, &result), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "7 images for a batch of 8"));
    int32_t label = f.labels[2];
    f.labels[2] = 10;
    assert_int_equal(nets_exec_iteration(f.train, f.images, f.labels, BATCH, RATE, &result), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "label 10 of image 2"));
    f.labels[2] = label;
    iterate(&f, f.train, BATCH);
    finish(&f);
}

typedef struct watched {
    const nets_lowered *lowered;
    int steps, relus, failing;
} watched;

static mm_status watch(void *ctx, mm_manager *manager, const nets_step *step) {
    watched *w = ctx;
    if (w->failing == w->steps) return mm_fail(MM_ERR_UNSUPPORTED, "step %d was not wanted", w->steps);
    w->steps++;
    if (step->layer < 0 || nets_net_layer(w->lowered->net, step->layer)->op != NETS_RELU) return MM_OK;
    const float *y = mm_tensor_data(manager, step->tensors[NETS_Y]);
    const int64_t elems = mm_graph_tensor(w->lowered->graph, step->tensors[NETS_Y])->bytes / 4;
    int64_t zeros = 0;
    for (int64_t i = 0; i < elems; i++) {
        assert_true(y[i] >= 0);
        zeros += y[i] == 0;
    }
    assert_in_range(zeros, 1, elems - 1);
    w->relus++;
    return MM_OK;
}

TEST_CASE(a_watcher_sees_each_forward_step_when_it_is_done) {
    fixture f;
    start(&f, "resnet20", "liveness");
    const nets_result before = iterate(&f, f.train, BATCH);
    assert_int_equal(nets_exec_init(f.train, 11), MM_OK);
    watched w = {.lowered = nets_exec_lowered(f.train), .failing = -1};
    int forward = 0;
    for (int i = 0; i < w.lowered->n_steps; i++) forward += w.lowered->steps[i].phase == MM_FORWARD;
    nets_exec_watch(f.train, watch, &w);
    const nets_result same = iterate(&f, f.train, BATCH);
    assert_memory_equal(&same.loss, &before.loss, sizeof same.loss);
    assert_int_equal(w.steps, forward);
    assert_int_equal(w.relus, 19);
    w.failing = w.steps + 3;
    nets_result none;
    assert_int_equal(nets_exec_iteration(f.train, f.images, f.labels, BATCH, RATE, &none), MM_ERR_UNSUPPORTED);
    nets_exec_watch(f.train, NULL, NULL);
    iterate(&f, f.train, BATCH);
    assert_int_equal(w.steps, forward + 3);
    finish(&f);
}

TEST_CASE(batch_above_the_budget_is_infeasible) {
    nets_net *net;
    mm_manager *manager;
    nets_exec *exec;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    assert_int_equal(make_manager("naive", 32 << 20, &manager), MM_OK);
    assert_int_equal(nets_exec_create(net, 128, NETS_TRAIN, manager, "host", &SGD, &exec), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "needs at least"));
    mm_manager_destroy(manager);
    nets_net_destroy(net);
}

/* The update count must arrive last: it tells whether a failed iteration can be undone. */
TEST_CASE(the_count_of_updates_is_the_last_that_is_kept) {
    for (int below = 0; below < 2; below++) { /* below: someone placed the count before all statistics */
        fixture f;
        uint32_t counts[NETS_RNG_WORDS] = {11, 12, 13, 14};
        nets_undo kept = {0};
        assert_int_equal(make_manager("liveness", 256 << 20, &f.manager), MM_OK);
        if (below) assert_int_equal(mm_persistent_add(f.manager, "rng", sizeof counts), MM_OK);
        start_in(&f, "tiny");
        const nets_lowered *lowered = nets_exec_lowered(f.train);
        const char *rng = mm_graph_tensor(lowered->graph, lowered->rng)->name;
        assert_int_equal(mm_persistent_set(f.manager, rng, 0, counts, sizeof counts), MM_OK);
        assert_int_equal(nets_undo_init(&kept, f.manager, lowered), MM_OK);
        assert_true(kept.rng_offset >= 0 && kept.rng_offset + (int64_t)sizeof counts <= kept.bytes);
        assert_int_equal(nets_undo_save(&kept, 0, mm_compute_stream(f.manager)), MM_OK);
        assert_int_equal(mm_stream_sync(mm_compute_stream(f.manager)), MM_OK);
        assert_memory_equal(kept.memory + kept.rng_offset, counts, sizeof counts);
        /* From the count to its end the copy matches one piece of the arena. */
        assert_memory_equal(kept.memory + kept.rng_offset, mm_persistent_data(f.manager, rng, NULL),
                            (size_t)(kept.bytes - kept.rng_offset));
        nets_undo_fini(&kept);
        finish(&f);
    }
}

/* All gradients after one iteration of a fresh run, in one array. The caller frees it. */
static float *gradients_on(int threads, size_t *n_out) {
    const nets_backend_config config = {.threads = threads};
    fixture f;
    nets_backend *backend;
    nets_exec *exec;
    size_t n = 0;
    start(&f, "tiny", "liveness");
    assert_int_equal(nets_backend_open("host", &config, &backend), MM_OK);
    nets_exec_destroy(f.train);
    f.train = NULL;
    if (nets_exec_create_on(f.net, BATCH, NETS_TRAIN, f.manager, backend, &SGD, &exec) != MM_OK)
        fail_msg("%s", mm_last_error());
    assert_int_equal(backend->threads, threads);
    assert_int_equal(nets_exec_init(exec, 11), MM_OK);
    iterate(&f, exec, BATCH);
    for (int p = 0; p < nets_net_params(f.net); p++) n += (size_t)nets_net_param(f.net, p)->elems;
    float *all = calloc(n, sizeof *all), *to = all;
    assert_non_null(all);
    for (int p = 0; p < nets_net_params(f.net); p++) {
        const nets_param *param = nets_net_param(f.net, p);
        if (param->learned) memcpy(to, nets_exec_param(exec, p, NETS_GRADIENT), (size_t)param->elems * sizeof *to);
        to += param->elems;
    }
    nets_exec_destroy(exec);
    nets_backend_close(backend);
    finish(&f);
    *n_out = n;
    return all;
}

TEST_CASE(so_many_threads_give_the_same_bits_each_time_and_others_the_same_but_for_rounding) {
    size_t n;
    float *one = gradients_on(1, &n);
    static const int THREADS[] = {2, 3, 8, 20}; /* some more than there are images */
    for (size_t t = 0; t < sizeof THREADS / sizeof THREADS[0]; t++) {
        float *first = gradients_on(THREADS[t], &n), *second = gradients_on(THREADS[t], &n);
        double squares = 0, off = 0;
        assert_memory_equal(first, second, n * sizeof *first);
        for (size_t i = 0; i < n; i++) {
            double d = (double)first[i] - (double)one[i];
            squares += (double)one[i] * one[i];
            off += d * d;
        }
        assert_true(squares > 0 && off < 1e-10 * squares);
        free(first);
        free(second);
    }
    free(one);
}

TEST_CASE(a_number_of_threads_that_no_machine_has_is_refused) {
    nets_backend *backend;
    const nets_backend_config config = {.threads = 100000};
    assert_int_equal(nets_backend_open("host", &config, &backend), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "100000 threads"));
}

TEST_CASE(a_backend_for_planning_alone_refuses_to_compute) {
    fixture f;
    nets_backend *backend;
    nets_result result;
    assert_int_equal(nets_zoo_build("tiny", &f.net), MM_OK);
    assert_int_equal(make_manager("liveness", 64 << 20, &f.manager), MM_OK);
    assert_int_equal(nets_backend_open("host", &(nets_backend_config){.threads = 3, .plans_only = true}, &backend),
                     MM_OK);
    assert_int_equal(nets_exec_create_on(f.net, BATCH, NETS_TRAIN, f.manager, backend, &SGD, &f.train), MM_OK);
    ref_batch(f.net, BATCH, 4, &f.images, &f.labels);
    assert_int_equal(nets_exec_init(f.train, 11), MM_OK);
    assert_int_equal(nets_exec_iteration(f.train, f.images, f.labels, BATCH, RATE, &result), MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "made for planning alone"));
    finish(&f);
    nets_backend_close(backend);
}
