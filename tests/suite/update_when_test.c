/* SPDX-License-Identifier: MIT */
/* When weights are updated: at the end, by layer, or in the backward pass. All give the same bits under all lossless
 * policies; in the backward pass gradients take less memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/graph/graph.h"
#include "mm/core/splitmix.h"
#include "tests/core/deep.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 3, ITERATIONS = 2 };

/* Biases that a ReLU adds; an embedding that is tied to the loss; a loss with a weight of its own. */
static const char VGG[] = "vgg11@32x32,classes=10,thin=16";
static const char GPT[] = "gpt,layers=2,width=32,heads=2,context=16,vocabulary=64,dropout=0.1";
/* Its weights have up to eight strips, the tied embedding four. */
static const char CUT[] = "gpt,layers=1,width=64,heads=2,context=8,vocabulary=100";
static const char LLAMA[] = "llama-15m,layers=2,width=32,heads=2,kv_heads=1,hidden=64,context=16,vocabulary=64";

/* The first few show each way to act on a map; a deep test runs all. */
static const char *const POLICIES[] = {"liveness",
                                       "recompute-swap:when=always",
                                       "swap-async:when=always",
                                       "recompute:mode=sqrt",
                                       "naive",
                                       "swap:when=always",
                                       "vdnn-all:when=always",
                                       "recompute:when=always",
                                       "freelunch:codec=raw,eligible=all,when=always",
                                       "gist:lossless",
                                       "modnn",
                                       "rotor",
                                       "knapsack",
                                       "auto"};

static bool is_host(const suite_net *s) { return strcmp(s->device, "host") == 0; }

/* Whether to try this case, too. Emulated kernels are slow. */
static bool tries_more(const suite_net *s) { return is_host(s) || test_depth(0, 1); }

static void expect_same_bits(suite_net *s) {
    float loss, other;
    size_t n;
    s->update = NETS_UPDATE_AT_END;
    float *expected = suite_train(s, "liveness", ITERATIONS, &loss, &n);
    const int policies = test_depth(is_host(s) ? 4 : 2, sizeof POLICIES / sizeof *POLICIES);
    for (int u = NETS_UPDATE_BY_LAYER; u <= NETS_UPDATE_IN_BACKWARD; u++)
        for (int p = is_host(s) ? 0 : u - 1; p < policies; p++) {
            s->update = (nets_update_when)u;
            float *weights = suite_train(s, POLICIES[p], ITERATIONS, &other, &n);
            if (other != loss || !suite_same_learned(s, weights, expected))
                fail_msg("%s, %s, update %d: other weights", nets_net_name(s->net), POLICIES[p], u);
            free(weights);
        }
    free(expected);
}

static void with_batch_norm_and_dropout(void **state) {
    suite_net s;
    suite_net_init_dropped(&s, *state, BATCH);
    if (tries_more(&s)) expect_same_bits(&s);
    s.optimizer = &SUITE_ADAMW;
    s.precision = NETS_BF16;
    expect_same_bits(&s);
    suite_net_fini(&s);
}

static void with_biases_that_a_relu_adds(void **state) {
    suite_net s;
    suite_net_init(&s, *state, VGG, BATCH);
    if (tries_more(&s)) expect_same_bits(&s);
    suite_net_fini(&s);
}

static void with_a_tied_embedding(void **state) {
    suite_net s;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    if (tries_more(&s)) expect_same_bits(&s);
    s.precision = NETS_BF16;
    expect_same_bits(&s);
    suite_net_fini(&s);
}

static void with_a_loss_that_has_a_weight(void **state) {
    suite_net s;
    suite_net_init(&s, *state, LLAMA, BATCH);
    s.optimizer = &SUITE_ADAMW;
    s.precision = NETS_BF16;
    expect_same_bits(&s);
    suite_net_fini(&s);
}

/* By layer, gradients of sub-batches are added up as with an update at the end. */
static void by_layer_in_sub_batches(void **state) {
    suite_net s;
    float loss, other;
    size_t n;
    suite_net_init(&s, *state, VGG, BATCH);
    s.sub_batch = 1;
    float *expected = suite_train(&s, "liveness", ITERATIONS, &loss, &n);
    s.update = NETS_UPDATE_BY_LAYER;
    float *weights = suite_train(&s, "liveness", ITERATIONS, &other, &n);
    assert_true(other == loss && memcmp(weights, expected, n * sizeof *weights) == 0);
    free(weights);
    free(expected);
    suite_net_fini(&s);
}

/* Strips of any size, of each optimizer and precision. */
static void in_strips(void **state) {
    static const nets_optimizer *const OPTIMIZERS[] = {&SUITE_ADAMW, &SUITE_SGD};
    uint64_t random = 40;
    for (int c = 0; c < 4; c++) {
        suite_net s;
        float loss, other;
        size_t n;
        suite_net_init(&s, *state, CUT, BATCH);
        s.optimizer = OPTIMIZERS[c & 1];
        s.precision = c < 2 ? NETS_BF16 : NETS_FP32;
        float *expected = c % 3 == 0 || tries_more(&s) ? suite_train(&s, "liveness", ITERATIONS, &loss, &n) : NULL;
        for (int u = NETS_UPDATE_BY_LAYER; expected && u <= NETS_UPDATE_IN_BACKWARD; u++) {
            s.update = (nets_update_when)u;
            s.strip_elems = 1 + (int64_t)(mm_random_next(&random) % 8000);
            float *weights = suite_train(&s, POLICIES[mm_random_next(&random) % 4], ITERATIONS, &other, &n);
            if (other != loss || !suite_same_learned(&s, weights, expected))
                fail_msg("case %d, update %d, strips of %lld: other weights", c, u, (long long)s.strip_elems);
            free(weights);
        }
        free(expected);
        suite_net_fini(&s);
    }
}

/* Copies a tensor from one executor to another in pieces of any size. */
static void copy_tensor(const suite_run *from, const suite_run *to, const char *name, int64_t elems, uint64_t *random) {
    enum { MOST = 3000 };
    uint32_t piece[MOST];
    for (int64_t at = 0, n; at < elems; at += n) {
        n = 1 + (int64_t)(mm_random_next(random) % MOST);
        if (n > elems - at) n = elems - at;
        assert_int_equal(nets_exec_values_get(from->exec, name, 4 * at, piece, 4 * n), MM_OK);
        assert_int_equal(nets_exec_values_set(to->exec, name, 4 * at, piece, 4 * n), MM_OK);
    }
}

static void copy_state(const suite_run *from, const suite_run *to, uint64_t *random) {
    const nets_net *net = from->s->net;
    for (int p = 0; p < nets_net_params(net); p++) {
        const nets_param *param = nets_net_param(net, p);
        char name[256];
        copy_tensor(from, to, param->name, param->elems, random);
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s.%s", nets_optimizer_traits_of(NETS_ADAMW)->states[k], param->name);
            copy_tensor(from, to, name, param->elems, random);
        }
    }
    copy_tensor(from, to, "rng", 4, random);
    copy_tensor(from, to, NETS_STEP_NAME, 1, random);
}

/* Starts a run in the backward pass, with memory to spare. */
static void start_cut(suite_run *r, suite_net *s, int64_t strip_elems) {
    s->optimizer = &SUITE_ADAMW;
    s->update = NETS_UPDATE_IN_BACKWARD;
    s->strip_elems = strip_elems;
    suite_run_init(r, s, &(mm_options){.device_bytes = 64 << 20, .policy = "liveness"});
}

static void states_in_strips_load_whole_and_the_other_way_round(void **state) {
    uint64_t random = 41;
    suite_net whole, cut;
    size_t n;
    suite_net_init(&whole, *state, CUT, BATCH);
    suite_net_init(&cut, *state, CUT, BATCH);
    whole.optimizer = &SUITE_ADAMW;
    float *expected = suite_expected(&whole, "liveness", 2 * ITERATIONS, &n);
    for (int first = 0; first < 2; first++) {
        suite_run from, to;
        start_cut(&from, first ? &cut : &whole, first ? 2500 : 0);
        start_cut(&to, first ? &whole : &cut, first ? 0 : 2500);
        for (int i = 0; i < ITERATIONS; i++) suite_iterate(&from);
        copy_state(&from, &to, &random);
        for (int i = 0; i < ITERATIONS; i++) suite_iterate(&to);
        float *weights = suite_weights(&to, &n);
        assert_true(suite_same_learned(&whole, weights, expected));
        free(weights);
        suite_run_fini(&from);
        suite_run_fini(&to);
    }
    free(expected);
    suite_net_fini(&whole);
    suite_net_fini(&cut);
}

/* Two forms of one state would go apart. */
static void a_manager_has_states_whole_or_in_strips(void **state) {
    suite_net s;
    for (int first = 0; first < 2; first++) {
        suite_run r;
        nets_exec *other;
        suite_net_init(&s, *state, CUT, BATCH);
        start_cut(&r, &s, first ? 2048 : 0);
        const nets_exec_options how = {.update = s.update, .strip_elems = first ? 0 : 2048};
        assert_int_equal(nets_exec_create_with(s.net, 1, NETS_TRAIN, r.manager, r.backend, s.optimizer, &how, &other),
                         MM_ERR_INVALID);
        if (!strstr(mm_last_error(), first ? "in strips of another" : "whole of another"))
            fail_msg("%s", mm_last_error());
        suite_run_fini(&r);
        suite_net_fini(&s);
    }
}

/* Of all gradients of a deep net, but the tied embedding's, one layer's at a time take memory. */
static void in_the_backward_pass_gradients_take_less_memory(void **state) {
    suite_net s;
    suite_net_init(&s, *state, "gpt,layers=8,width=64,heads=2,context=8,vocabulary=16", 1);
    int64_t gradients = 0, most = 0;
    for (int p = 0; p < nets_net_params(s.net); p++) {
        const int64_t bytes = nets_net_param(s.net, p)->elems * (int64_t)sizeof(float);
        gradients += bytes;
        if (bytes > most) most = bytes;
    }
    const int64_t at_end = suite_needs(&s, "liveness", 0).device_bytes;
    s.update = NETS_UPDATE_BY_LAYER;
    assert_int_equal(suite_needs(&s, "liveness", 0).device_bytes, at_end);
    s.update = NETS_UPDATE_IN_BACKWARD;
    const int64_t less = at_end - suite_needs(&s, "liveness", 0).device_bytes;
    if (less < gradients - 4 * most)
        fail_msg("%lld bytes less; gradients have %lld, the largest %lld", (long long)less, (long long)gradients,
                 (long long)most);
    suite_net_fini(&s);
}

/* Starts a run whose gradients are checked, in which iterations may follow each other. */
static void start_checked(suite_run *r, suite_net *s, nets_optimizer *optimizer) {
    *optimizer = SUITE_SGD;
    optimizer->only_finite = true;
    s->optimizer = optimizer;
    s->update = NETS_UPDATE_IN_BACKWARD;
    const suite_need need = suite_needs(s, "liveness", 0);
    suite_run_init(r, s, &(mm_options){.device_bytes = need.device_bytes, .policy = "liveness"});
}

/* Submits two iterations, of which the first is halted, and collects it. */
static void halt(suite_run *r) {
    const suite_net *s = r->s;
    nets_result result;
    for (int i = 0; i < 2; i++)
        assert_int_equal(nets_exec_submit(r->exec, s->images, s->labels, s->batch, SUITE_RATE), MM_OK);
    assert_int_equal(nets_exec_collect(r->exec, &result), MM_OK);
    assert_true(result.halted != 0);
    assert_int_equal(nets_exec_outstanding(r->exec), 0);
}

static void a_loss_that_is_not_finite_changes_nothing(void **state) {
    suite_net s;
    suite_run r;
    nets_optimizer optimizer;
    int64_t updates;
    size_t n;
    suite_net_init(&s, *state, VGG, BATCH);
    start_checked(&r, &s, &optimizer);
    suite_iterate(&r);
    float *before = suite_weights(&r, &n);
    s.images[5] = NAN;
    halt(&r);
    assert_int_equal(nets_exec_updates(r.exec, &updates), MM_OK);
    assert_int_equal(updates, 1);
    float *after = suite_weights(&r, &n);
    assert_true(suite_same_learned(&s, before, after));
    free(before);
    free(after);
    suite_run_fini(&r);
    suite_net_fini(&s);
}

/* Scales the images up and the first layer's weight down, so that only this weight's gradient overflows. It is the last
 * to be updated. */
static void a_gradient_that_overflows_between_updates_is_told(void **state) {
    suite_net s;
    suite_run r;
    nets_optimizer optimizer;
    int64_t updates;
    suite_net_init(&s, *state, VGG, BATCH);
    start_checked(&r, &s, &optimizer);
    const int64_t elems = nets_net_param(s.net, 0)->elems;
    float *weight = malloc((size_t)elems * sizeof *weight);
    assert_non_null(weight);
    assert_int_equal(nets_exec_param_get(r.exec, 0, NETS_VALUE, weight), MM_OK);
    for (int64_t i = 0; i < elems; i++) weight[i] *= 1e-35f;
    assert_int_equal(nets_exec_param_set(r.exec, 0, NETS_VALUE, weight), MM_OK);
    for (int i = 0; i < BATCH * 32 * 32 * 3; i++) s.images[i] *= 1e35f;
    halt(&r);
    assert_int_equal(nets_exec_updates(r.exec, &updates), MM_ERR_DEVICE);
    if (!strstr(mm_last_error(), "iteration 1 ended after")) fail_msg("%s", mm_last_error());
    /* From new weights it trains on. */
    assert_int_equal(nets_exec_init(r.exec, SUITE_SEED), MM_OK);
    for (int i = 0; i < BATCH * 32 * 32 * 3; i++) s.images[i] *= 1e-35f;
    suite_iterate(&r);
    assert_int_equal(nets_exec_updates(r.exec, &updates), MM_OK);
    assert_int_equal(updates, 1);
    free(weight);
    suite_run_fini(&r);
    suite_net_fini(&s);
}

static void set(const suite_run *r, const char *name, float (*value)(float, int64_t)) {
    const nets_param *param = nets_net_param(r->s->net, nets_net_find_param(r->s->net, name));
    float *values = malloc((size_t)param->elems * sizeof *values);
    assert_non_null(values);
    assert_int_equal(nets_exec_values_get(r->exec, name, 0, values, 4 * param->elems), MM_OK);
    for (int64_t i = 0; i < param->elems; i++) values[i] = value(values[i], i);
    assert_int_equal(nets_exec_values_set(r->exec, name, 0, values, 4 * param->elems), MM_OK);
    free(values);
}

static float huge(float value, int64_t index) {
    (void)index;
    return value * 1e35f;
}

static float zero(float value, int64_t index) {
    (void)value;
    (void)index;
    return 0;
}

static float unlikely_but_the_last(float value, int64_t index) {
    (void)value;
    return index < 9 ? -60 : 0;
}

/* The last layer, which is updated first, reads huge maps and ignores them. The classes of its first strip are so
 * unlikely that their gradients are small; those of the last one overflow. All are checked before the first strip. */
static void a_gradient_that_overflows_in_a_later_strip_changes_nothing(void **state) {
    suite_net s;
    suite_run r;
    nets_optimizer optimizer;
    int64_t updates;
    size_t n;
    suite_net_init(&s, *state, VGG, BATCH);
    s.strip_elems = 1;
    start_checked(&r, &s, &optimizer);
    suite_iterate(&r);
    const mm_graph *graph = nets_exec_lowered(r.exec)->graph;
    mm_tensor second;
    assert_int_equal(mm_graph_find_tensor(graph, "momentum.classifier.6.weight[1]", &second), MM_OK);
    assert_true(mm_graph_tensor(graph, second)->dims[0] <= 512); /* of 256 for each class */
    set(&r, "classifier.3.weight", huge);
    set(&r, "classifier.6.weight", zero);
    set(&r, "classifier.6.bias", unlikely_but_the_last);
    for (int i = 0; i < BATCH; i++) s.labels[i] = i % 2 ? 9 : 8;
    float *before = suite_weights(&r, &n);
    halt(&r);
    assert_int_equal(nets_exec_updates(r.exec, &updates), MM_OK);
    assert_int_equal(updates, 1);
    float *after = suite_weights(&r, &n);
    assert_true(suite_same_learned(&s, before, after));
    free(before);
    free(after);
    suite_run_fini(&r);
    suite_net_fini(&s);
}

static void what_needs_all_gradients_is_refused(void **state) {
    static const suite_refused CASES[] = {
        {.update = NETS_UPDATE_IN_BACKWARD, .clip_norm = 1, .why = "in the backward pass: clipping"},
        {.update = NETS_UPDATE_BY_LAYER, .clip_norm = 1, .why = "by layer: clipping"},
        {.update = NETS_UPDATE_IN_BACKWARD, .sub_batch = 1, .why = "sub-batches"},
        {.update = NETS_UPDATE_IN_BACKWARD, .allreduce = {.n = 2}, .why = "several ranks"},
    };
    suite_net s;
    suite_net_init(&s, *state, VGG, BATCH);
    suite_expect_refused(&s, &SUITE_SGD, CASES, sizeof CASES / sizeof *CASES);
    suite_net_fini(&s);
}

static int run(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(with_batch_norm_and_dropout, device),
        SUITE_TEST(with_biases_that_a_relu_adds, device),
        SUITE_TEST(with_a_tied_embedding, device),
        SUITE_TEST(with_a_loss_that_has_a_weight, device),
        SUITE_TEST(by_layer_in_sub_batches, device),
        SUITE_TEST(in_strips, device),
        SUITE_TEST(states_in_strips_load_whole_and_the_other_way_round, device),
        SUITE_TEST(a_manager_has_states_whole_or_in_strips, device),
        SUITE_TEST(in_the_backward_pass_gradients_take_less_memory, device),
        SUITE_TEST(a_loss_that_is_not_finite_changes_nothing, device),
        SUITE_TEST(a_gradient_that_overflows_between_updates_is_told, device),
        SUITE_TEST(a_gradient_that_overflows_in_a_later_strip_changes_nothing, device),
        SUITE_TEST(what_needs_all_gradients_is_refused, device),
    };
    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run); }
