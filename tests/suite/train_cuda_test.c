/* SPDX-License-Identifier: MIT */
/* Small networks on CUDA, a GPU or emulated: the same bits under every policy and way to issue, and the host's numbers
 * but for rounding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 2, ITERATIONS = 4, BUDGET = 48 << 20, PINNED = 16 << 20 };

/* How iterations run. */
typedef enum way {
    BLOCKING, /* nets_exec_iteration, issued by threads: step by step */
    AHEAD,    /* submitted, issued by threads */
    RECORDED, /* submitted, issued inline: recorded and replayed if possible */
    STAGED,   /* as RECORDED, with staging: the next batch is copied while the device computes */
    WAYS
} way;

static const char *const WAY_NAMES[] = {"blocking", "ahead", "recorded", "staged"};

static const char *const LOSSLESS[] = {
    "naive",
    "liveness",
    "recompute:when=always",
    "recompute:mode=memory,when=always",
    "swap-async:when=always",
    "vdnn-all:when=always",
    "cdma:when=always",
    "freelunch:codec=raw,eligible=all,when=always",
    "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive,when=always",
    "rules:bn=recompute;relu=recompute;*=lean-swap,when=always",
    "rules:*=compress(zvc),when=always",
    "rules:*=compress(zvc:reserve=1),when=always",
    "cdma:codec=zvc,when=always",
    "gist:lossless,when=always",
    "cdma:codec=rle,signs=whole,when=always",
    "rules:*=compress-swap(exponent),when=always",
};
enum { LOSSLESS_N = sizeof LOSSLESS / sizeof *LOSSLESS };

/* ---------------------------------------------------------------- training */

typedef struct training {
    const suite_net *s;
    mm_manager *manager;
    nets_backend *backend;
    nets_exec *exec;
    way way;
} training;

static void start_in(training *t, const suite_net *s, const char *device, const char *policy, way w, int64_t bytes) {
    const mm_options options = {.device = device,
                                .device_bytes = bytes,
                                .pinned_bytes = PINNED,
                                .policy = policy,
                                .issue = w >= RECORDED ? MM_ISSUE_INLINE : MM_ISSUE_THREAD};
    *t = (training){.s = s, .way = w, .backend = suite_backend_on(s, device)};
    expect_ok(mm_manager_create(&options, &t->manager));
    expect_ok(nets_exec_create_on(s->net, s->batch, NETS_TRAIN, t->manager, t->backend, &SUITE_SGD, &t->exec));
    if (w == STAGED) expect_ok(nets_exec_stage(t->exec));
    expect_ok(nets_exec_init(t->exec, SUITE_SEED));
}

static void start(training *t, const suite_net *s, const char *device, const char *policy, way w) {
    start_in(t, s, device, policy, w, BUDGET);
}

static void finish(training *t) {
    nets_exec_destroy(t->exec);
    mm_manager_destroy(t->manager);
    nets_backend_close(t->backend);
}

static void iterate(training *t, int n, float *losses) {
    const suite_net *s = t->s;
    nets_result result;
    int collected = 0;
    for (int i = 0; i < n; i++) {
        float rate = SUITE_RATE / (float)(1 + i);
        if (t->way == BLOCKING) {
            expect_ok(nets_exec_iteration(t->exec, s->images, s->labels, s->batch, rate, &result));
            losses[collected++] = result.loss;
            continue;
        }
        expect_ok(nets_exec_submit(t->exec, s->images, s->labels, s->batch, rate));
        if (nets_exec_outstanding(t->exec) < NETS_AHEAD) continue;
        expect_ok(nets_exec_collect(t->exec, &result));
        losses[collected++] = result.loss;
    }
    while (nets_exec_outstanding(t->exec) > 0) {
        expect_ok(nets_exec_collect(t->exec, &result));
        losses[collected++] = result.loss;
    }
    assert_int_equal(collected, n);
}

/* Values, gradients and states of all parameters. */
static float *weights_of(const training *t, size_t *n_out) {
    size_t n = 0, at = 0;
    for (int p = 0; p < nets_net_params(t->s->net); p++) n += (size_t)nets_net_param(t->s->net, p)->elems;
    float *weights = calloc(NETS_PARTS * n, sizeof *weights);
    assert_non_null(weights);
    for (nets_part part = NETS_VALUE; part < NETS_PARTS; part++)
        for (int p = 0; p < nets_net_params(t->s->net); p++) {
            mm_status status = nets_exec_param_get(t->exec, p, part, weights + at);
            if (status != MM_ERR_NOT_FOUND) expect_ok(status);
            at += (size_t)nets_net_param(t->s->net, p)->elems;
        }
    *n_out = at;
    return weights;
}

typedef struct outcome {
    float losses[16];
    float *weights;
    size_t n;
    mm_stats stats;
} outcome;

static void train_in(const suite_net *s, const char *device, const char *policy, way w, int64_t bytes, int iterations,
                     outcome *o) {
    training t;
    start_in(&t, s, device, policy, w, bytes);
    iterate(&t, iterations, o->losses);
    o->weights = weights_of(&t, &o->n);
    mm_stats_get(t.manager, &o->stats);
    finish(&t);
}

static void train(const suite_net *s, const char *device, const char *policy, way w, int iterations, outcome *o) {
    train_in(s, device, policy, w, BUDGET, iterations, o);
}

static void expect_same(const outcome *a, const outcome *b, int iterations, const char *policy, way w) {
    for (int i = 0; i < iterations; i++)
        if (a->losses[i] != b->losses[i])
            fail_msg("%s, %s: loss %.9g in iteration %d, not %.9g", policy, WAY_NAMES[w], (double)a->losses[i], i,
                     (double)b->losses[i]);
    assert_int_equal(a->n, b->n);
    if (memcmp(a->weights, b->weights, a->n * sizeof *a->weights) != 0)
        fail_msg("%s, %s: other weights", policy, WAY_NAMES[w]);
}

/* ---------------------------------------------------------------- cases */

/* first_way and next_way step through a policy's ways: all of them; under a sanitizer every other, and `number` says
 * which. */
static way next_way(way w) { return w + (test_is_sanitized() ? 2 : 1); }
static way first_way(way first, int number) { return first + (test_is_sanitized() ? number % 2 : 0); }

static void lossless_on(const suite_net *s, const char *const *policies, int n, way first) {
    outcome expected;
    train(s, "cuda", "liveness", BLOCKING, ITERATIONS, &expected);
    for (int p = 0; p < n; p++) {
        mm_stats stats = {0};
        for (way w = first_way(first, p); w < WAYS; w = next_way(w)) {
            outcome o;
            train(s, "cuda", policies[p], w, ITERATIONS, &o);
            expect_same(&o, &expected, ITERATIONS, policies[p], w);
            assert_int_equal(o.stats.iterations, ITERATIONS);
            if (w == first_way(first, p)) stats = o.stats;
            assert_int_equal(o.stats.coded_bytes, stats.coded_bytes); /* replays count too */
            assert_int_equal(o.stats.spilled_bytes, stats.spilled_bytes);
            free(o.weights);
        }
    }
    free(expected.weights);
}

TEST_CASE(lossless_policies_give_liveness_bits_in_every_way) {
    suite_net s;
    suite_net_init_dropped(&s, "cuda", BATCH);
    lossless_on(&s, LOSSLESS, LOSSLESS_N, BLOCKING);
    suite_net_fini(&s);
}

/* The same for residual blocks, where gradients are summed, and maps are read twice. */
TEST_CASE(residual_networks_do_too) {
    static const char *const policies[] = {"recompute:when=always", "swap-async:when=always",
                                           "rules:*=compress(zvc:reserve=20),when=always"};
    suite_net s;
    suite_net_init(&s, "cuda", "resnet18@32,classes=5,thin=32", 2);
    lossless_on(&s, policies, sizeof policies / sizeof *policies, RECORDED);
    suite_net_fini(&s);
}

/* Runs auto at five budgets, from its least to what liveness needs. Each budget runs in another way; none is STAGED,
 * whose plans have less room. */
static void auto_at_five_budgets(const char *device) {
    enum { BUDGETS = 5 };
    suite_net s;
    outcome expected, o;
    suite_net_init(&s, device, "cifar-resnet8,thin=4", BATCH);
    train(&s, device, "liveness", BLOCKING, ITERATIONS, &expected);
    const int64_t most = suite_needs(&s, "liveness", 0).device_bytes;
    const int64_t least = suite_needs_within(&s, "auto", 0, PINNED).device_bytes;
    assert_true(least < most);
    for (int b = 0; b < BUDGETS; b += test_is_sanitized() ? 2 : 1) {
        const int64_t bytes = least + (most - least) * b / (BUDGETS - 1);
        const way w = (way)(b % STAGED);
        train_in(&s, device, "auto", w, bytes, ITERATIONS, &o);
        expect_same(&o, &expected, ITERATIONS, "auto", w);
        const suite_need need = suite_needs_within(&s, "auto", bytes, PINNED);
        assert_true(need.device_bytes <= bytes);
        assert_int_equal(need.operations + need.recomputed > 0, b < BUDGETS - 1);
        assert_int_equal(o.stats.predicted_peak_bytes, need.device_bytes);
        /* spills of codes cannot be predicted */
        assert_int_equal(o.stats.out_bytes - o.stats.spilled_bytes, ITERATIONS * need.out_bytes);
        free(o.weights);
    }
    free(expected.weights);
    suite_net_fini(&s);
}

TEST_CASE(auto_gives_liveness_bits_at_five_budgets) {
    /* Not under a sanitizer, where auto's search takes long; suite_policies_test runs auto on the host. */
    if (!test_is_sanitized()) auto_at_five_budgets("host");
    auto_at_five_budgets("cuda");
}

TEST_CASE(lossy_policies_give_the_same_bits_recorded_and_not) {
    static const char *const policies[] = {"freelunch:rate=8,when=always", "hybrid:rate=8,when=always",
                                           "rules:*=compress(group:bits=2),when=always", "comet:every=2,when=always"};
    suite_net s;
    suite_net_init_dropped(&s, "cuda", BATCH);
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        outcome expected;
        train(&s, "cuda", policies[p], BLOCKING, ITERATIONS, &expected);
        assert_true(expected.stats.encodes > 0);
        for (way w = first_way(AHEAD, (int)p); w < WAYS; w = next_way(w)) {
            outcome o;
            train(&s, "cuda", policies[p], w, ITERATIONS, &o);
            expect_same(&o, &expected, ITERATIONS, policies[p], w);
            assert_int_equal(o.stats.encodes, expected.stats.encodes);
            assert_int_equal(o.stats.out_bytes, expected.stats.out_bytes);
            free(o.weights);
        }
        free(expected.weights);
    }
    suite_net_fini(&s);
}

/* Checks that steps that read and write codes themselves give the losses and parameters of codecs that run beside the
 * steps. */
static void in_step_on(const char *name, const char *codec, way first) {
    char spec[128];
    suite_net s;
    outcome beside, in_step;
    int64_t bytes[2];
    suite_net_init(&s, "cuda", name, BATCH);
    snprintf(spec, sizeof spec, "freelunch:codec=%s,eligible=all,when=always", codec);
    bytes[0] = suite_needs(&s, spec, INT64_MAX).device_bytes; /* without lending idle bytes */
    train(&s, "cuda", spec, BLOCKING, ITERATIONS, &beside);
    strcat(spec, ",codes=in-step");
    bytes[1] = suite_needs(&s, spec, INT64_MAX).device_bytes;
    for (way w = first; w < WAYS; w++) {
        train(&s, "cuda", spec, w, ITERATIONS, &in_step);
        expect_same(&in_step, &beside, ITERATIONS, spec, w);
        assert_true(in_step.stats.decodes > 0);
        assert_int_equal(in_step.stats.nonfinite_blocks, beside.stats.nonfinite_blocks);
        free(in_step.weights);
    }
    assert_true(bytes[1] <= bytes[0]);
    free(beside.weights);
    suite_net_fini(&s);
}

TEST_CASE(codes_in_steps_give_the_bits_of_codes_beside) {
    in_step_on("cifar-resnet8,thin=4", "zfp:rate=4", BLOCKING);
    in_step_on("cifar-resnet8,thin=4", "dpr:fp8", STAGED);
    in_step_on("resnet18@32,classes=5,thin=16", "zfp:rate=8", STAGED);
    in_step_on("resnet18@32,classes=5,thin=8", "zfp:rate=6.4", STAGED); /* its maps have 32 and 64 channels */
}

static void expect_near(const outcome *a, const outcome *b, int iterations, const char *what) {
    static const double tolerance = 2e-3; /* allows for float32 sums in another order, after ten updates */
    for (int i = 0; i < iterations; i++)
        if (!(fabs((double)a->losses[i] - (double)b->losses[i]) <= tolerance * fabs((double)b->losses[i])))
            fail_msg("%s: loss %.7g in step %d, not %.7g", what, (double)a->losses[i], i, (double)b->losses[i]);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < b->n / NETS_PARTS; i++) {
        double d = (double)a->weights[i] - (double)b->weights[i];
        difference += d * d;
        norm += (double)b->weights[i] * (double)b->weights[i];
    }
    if (!(sqrt(difference / norm) <= tolerance))
        fail_msg("%s: relative difference of the weights %.3g", what, sqrt(difference / norm));
}

TEST_CASE(ten_steps_agree_with_the_host) {
    enum { STEPS = 10 };
    suite_net s;
    suite_net_init_dropped(&s, "cuda", BATCH);
    outcome host, cuda;
    train(&s, "host", "liveness", BLOCKING, STEPS, &host);
    train(&s, "cuda", "liveness", RECORDED, STEPS, &cuda);
    expect_near(&cuda, &host, STEPS, "beside the host");
    free(host.weights);
    free(cuda.weights);
    suite_net_fini(&s);
}

/* Runs the fastest algorithms, those with the least workspace, and some between. Recomputed maps use their first
 * algorithm. */
TEST_CASE(all_algorithms_of_a_step_train_alike) {
    static const char *const policies[] = {"liveness:algorithms=1", "liveness:algorithms=least",
                                           "vdnn-all:algorithms=least,when=always", "recompute:mode=sqrt,when=always"};
    suite_net s;
    outcome expected;
    suite_net_init_dropped(&s, "cuda", BATCH);
    s.several = true;
    train(&s, "cuda", "liveness", BLOCKING, ITERATIONS, &expected);
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (way w = BLOCKING; w <= RECORDED; w += RECORDED - BLOCKING) {
            outcome o;
            train(&s, "cuda", policies[p], w, ITERATIONS, &o);
            expect_near(&o, &expected, ITERATIONS, policies[p]);
            assert_true(strstr(policies[p], "least") == NULL ||
                        o.stats.predicted_peak_bytes <= expected.stats.predicted_peak_bytes);
            free(o.weights);
        }
    free(expected.weights);
    suite_net_fini(&s);
}

TEST_CASE(policies_change_between_replays) {
    enum { EACH = 3 };
    static const char *const policies[] = {"swap-async:when=always", "liveness", "recompute:when=always"};
    suite_net s;
    outcome expected;
    training t;
    float losses[3 * EACH];
    suite_net_init_dropped(&s, "cuda", BATCH);
    start(&t, &s, "cuda", "liveness", BLOCKING);
    for (int p = 0; p < 3; p++) iterate(&t, EACH, expected.losses + p * EACH);
    expected.weights = weights_of(&t, &expected.n);
    finish(&t);
    start(&t, &s, "cuda", "liveness", RECORDED);
    for (int p = 0; p < 3; p++) {
        expect_ok(mm_policy_set(t.manager, policies[p]));
        iterate(&t, EACH, losses + p * EACH);
        assert_int_equal(mm_replay_state(t.manager, nets_exec_lowered(t.exec)->graph), MM_REPLAY_READY);
    }
    size_t n;
    float *weights = weights_of(&t, &n);
    assert_memory_equal(losses, expected.losses, sizeof losses);
    assert_memory_equal(weights, expected.weights, n * sizeof *weights);
    free(weights);
    free(expected.weights);
    finish(&t);
    suite_net_fini(&s);
}

/* Both GPUs train at the same time, under a lossy policy, which uses many kinds of kernels. Skipped on one GPU. */
TEST_CASE(a_second_gpu_gives_the_first_ones_bits) {
    static const char *const devices[] = {"cuda:0", "cuda:1"}, policy[] = "hybrid:rate=8,when=always";
    suite_net s;
    outcome o[2];
    suite_net_init_dropped(&s, "cuda:1", BATCH);
    for (way w = BLOCKING; w < WAYS; w++) {
        training t[2];
        for (int d = 0; d < 2; d++) start(&t[d], &s, devices[d], policy, w);
        for (int half = 0; half < 2; half++)
            for (int d = 0; d < 2; d++) iterate(&t[d], ITERATIONS / 2, o[d].losses + half * ITERATIONS / 2);
        for (int d = 0; d < 2; d++) {
            o[d].weights = weights_of(&t[d], &o[d].n);
            finish(&t[d]);
        }
        expect_same(&o[1], &o[0], ITERATIONS, policy, w);
        for (int d = 0; d < 2; d++) free(o[d].weights);
    }
    suite_net_fini(&s);
}

TEST_CASE(operations_of_another_gpu_than_the_managers_are_refused) {
    suite_net s;
    suite_net_init_dropped(&s, "cuda:1", BATCH);
    training t = {.s = &s, .backend = suite_backend_on(&s, "cuda:0")};
    const mm_options options = {.device = "cuda:1", .device_bytes = BUDGET};
    expect_ok(mm_manager_create(&options, &t.manager));
    assert_int_equal(nets_exec_create_on(s.net, s.batch, NETS_TRAIN, t.manager, t.backend, &SUITE_SGD, &t.exec),
                     MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "cuda:0"));
    assert_non_null(strstr(mm_last_error(), "cuda:1"));
    finish(&t);
    suite_net_fini(&s);
}

/* Submitted and blocking iterations take turns in one executor. Each turn begins from initial values, and must give the
 * same losses. */
TEST_CASE(staged_batches_come_in_whatever_runs_them) {
    suite_net s;
    training t;
    outcome expected;
    float losses[ITERATIONS];
    suite_net_init_dropped(&s, "cuda", BATCH);
    train(&s, "cuda", "liveness", BLOCKING, ITERATIONS, &expected);
    start(&t, &s, "cuda", "swap-async:when=always", STAGED);
    for (int i = 0; i < 2; i++) {
        t.way = STAGED;
        expect_ok(nets_exec_init(t.exec, SUITE_SEED));
        iterate(&t, ITERATIONS, losses);
        assert_memory_equal(losses, expected.losses, sizeof losses);
        t.way = BLOCKING;
        expect_ok(nets_exec_init(t.exec, SUITE_SEED));
        iterate(&t, ITERATIONS, losses);
        assert_memory_equal(losses, expected.losses, sizeof losses);
    }
    free(expected.weights);
    finish(&t);
    suite_net_fini(&s);
}

TEST_CASE(a_label_that_is_no_class_is_told_when_collected) {
    suite_net s;
    training t;
    nets_result result;
    suite_net_init_dropped(&s, "cuda", BATCH);
    for (way w = BLOCKING; w < WAYS; w++) {
        float losses[2];
        start(&t, &s, "cuda", "swap-async:when=always", w);
        iterate(&t, 2, losses);
        int32_t good = s.labels[1];
        s.labels[1] = 77;
        mm_status status = MM_OK;
        if (w == BLOCKING) {
            status = nets_exec_iteration(t.exec, s.images, s.labels, BATCH, SUITE_RATE, &result);
        } else {
            expect_ok(nets_exec_submit(t.exec, s.images, s.labels, BATCH, SUITE_RATE));
            status = nets_exec_collect(t.exec, &result);
        }
        assert_int_equal(status, MM_ERR_INVALID);
        assert_non_null(strstr(mm_last_error(), "label of image 1"));
        s.labels[1] = good;
        expect_ok(nets_exec_init(t.exec, SUITE_SEED));
        iterate(&t, 2, losses);
        finish(&t);
    }
    suite_net_fini(&s);
}

TEST_CASE(evaluation_shares_the_weights) {
    suite_net s;
    training t;
    nets_exec *eval;
    nets_result before, after, again;
    float losses[8];
    suite_net_init_dropped(&s, "cuda", BATCH);
    start(&t, &s, "cuda", "liveness", RECORDED);
    expect_ok(nets_exec_create_on(s.net, BATCH, NETS_EVAL, t.manager, t.backend, NULL, &eval));
    expect_ok(nets_exec_iteration(eval, s.images, s.labels, BATCH, 0, &before));
    iterate(&t, 8, losses);
    expect_ok(nets_exec_iteration(eval, s.images, s.labels, BATCH, 0, &after));
    expect_ok(nets_exec_iteration(eval, s.images, s.labels, BATCH, 0, &again)); /* recorded by now */
    assert_true(after.loss < before.loss);
    assert_true(again.loss == after.loss && again.correct == after.correct);
    nets_exec_destroy(eval);
    finish(&t);
    suite_net_fini(&s);
}

/* The first convolution's weights, gradient and momentum have a fourth channel of zeros beside the images' three. */
static void check_fourth_channel(const training *t) {
    const nets_param_tensors *first = &nets_exec_lowered(t->exec)->params[0];
    const mm_tensor parts[] = {first->value, first->gradient, first->state[0]};
    const mm_graph *graph = nets_exec_lowered(t->exec)->graph;
    const int64_t n = nets_order_elems(&first->order);
    float *values = calloc((size_t)n, sizeof *values);
    assert_non_null(values);
    assert_int_equal(first->order.inner, 3);
    assert_int_equal(first->order.there, 4);
    assert_int_equal(mm_graph_tensor(graph, nets_exec_lowered(t->exec)->images)->dims[3], 4);
    for (int p = 0; p < 3; p++) {
        int zeros = 0;
        expect_ok(mm_persistent_get(t->manager, mm_graph_tensor(graph, parts[p])->name, 0, values, 4 * n));
        for (int64_t i = 0; i < n; i++) zeros += values[i] == 0;
        for (int64_t i = 3; i < n; i += 4) assert_true(values[i] == 0);
        assert_true(zeros < n / 2);
    }
    free(values);
}

/* Parameters copied in pieces of odd sizes, which end within rows, are the same as in one copy; in memory their
 * elements lie as nets_order says. */
TEST_CASE(parameters_are_copied_in_torchvisions_order_from_any_place) {
    suite_net s;
    training t;
    suite_net_init_dropped(&s, "cuda", BATCH);
    start(&t, &s, "cuda", "liveness", BLOCKING);
    int reordered = 0;
    float losses[2];
    iterate(&t, 2, losses);
    check_fourth_channel(&t);
    for (int p = 0; p < nets_net_params(s.net); p++) {
        const nets_param *param = nets_net_param(s.net, p);
        const nets_order order = nets_exec_lowered(t.exec)->params[p].order;
        const int64_t n = param->elems, n_there = nets_order_elems(&order);
        float *whole = calloc((size_t)(3 * n + n_there), sizeof *whole), *given = whole + n, *there = given + 2 * n;
        assert_non_null(whole);
        reordered += !nets_order_is_plain(&order);
        for (int64_t i = 0; i < n; i++) given[i] = (float)i;
        for (int64_t at = 0; at < n; at += 7) {
            const int64_t bytes = 4 * (n - at < 7 ? n - at : 7);
            expect_ok(nets_exec_values_set(t.exec, param->name, 4 * at, given + at, bytes));
        }
        expect_ok(nets_exec_param_get(t.exec, p, NETS_VALUE, whole));
        assert_memory_equal(whole, given, 4 * (size_t)n);
        expect_ok(mm_persistent_get(t.manager, param->name, 0, there, 4 * n_there));
        for (int64_t i = 0; i < n; i++) assert_true(there[nets_order_place(&order, i)] == given[i]);
        for (int64_t at = 0; at < n; at += 5) {
            const int64_t bytes = 4 * (n - at < 5 ? n - at : 5);
            expect_ok(nets_exec_values_get(t.exec, param->name, 4 * at, given + n + at, bytes));
        }
        assert_memory_equal(given + n, given, 4 * (size_t)n);
        free(whole);
    }
    assert_true(reordered > 0);
    finish(&t);
    suite_net_fini(&s);
}
