/* SPDX-License-Identifier: MIT */
/* The error bounds that comet chooses: its formula against convolutions whose inputs are given random errors, the
 * guard, values that are no bounds; and which tensors of a graph it watches. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policies/comet.h"
#include "policies/policy.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"

static const mm_comet_config by_sum = {.every = 1000, .rule = MM_BOUND_SUM, .guard = 1, .sigma = 0.01, .a = 0.32};
static const mm_comet_config by_eq9 = {.every = 1000, .rule = MM_BOUND_EQ9, .guard = 1, .sigma = 0.01, .a = 0.32};

/* ---------------------------------------------------------------- against convolutions */

/* A convolution of 3 x 3, NHWC, without padding: its input is 2 higher and wider than its output. */
typedef struct conv {
    int images, side, in, out, groups;
    double zeros; /* share of the input's elements */
    bool padded;  /* the outermost elements of its input are padding */
} conv;

enum { TAPS = 3 };

static double uniform(uint64_t *random) { return (double)(random_next(random) >> 11) * 0x1p-53; }

/* Writes to error_out the weight gradient of an input that is nothing but the errors: the gradient is linear in it. */
static void weight_gradient(const conv *c, const double *errors, const double *g, double *error_out) {
    const int wide = c->side + TAPS - 1, per_group = c->in / c->groups, outs = c->out / c->groups;
    double *to = error_out;
    for (int o = 0; o < c->out; o++)
        for (int k = 0; k < TAPS * TAPS; k++)
            for (int i = 0; i < per_group; i++, to++) {
                const int channel = o / outs * per_group + i;
                *to = 0;
                for (int n = 0; n < c->images; n++)
                    for (int y = 0; y < c->side; y++)
                        for (int x = 0; x < c->side; x++)
                            *to += g[((n * c->side + y) * c->side + x) * c->out + o] *
                                   errors[((n * wide + y + k / TAPS) * wide + x + k % TAPS) * c->in + channel];
            }
}

/* The standard deviation of the weight gradient's error, measured over `trials` inputs with random errors within eb. */
static double measured_sigma(const conv *c, double eb, const double *g, int trials, uint64_t *random) {
    const int wide = c->side + TAPS - 1, inputs = c->images * wide * wide * c->in;
    const int weights = c->out * TAPS * TAPS * c->in / c->groups;
    double *errors = malloc((size_t)inputs * sizeof *errors), *found = malloc((size_t)weights * sizeof *found),
           sum2 = 0;
    for (int t = 0; t < trials; t++) {
        for (int i = 0; i < inputs; i++) {
            const int x = i / c->in % wide, y = i / c->in / wide % wide;
            const bool padding = c->padded && (x == 0 || y == 0 || x == wide - 1 || y == wide - 1);
            errors[i] = padding || uniform(random) < c->zeros ? 0 : (2 * uniform(random) - 1) * eb;
        }
        weight_gradient(c, errors, g, found);
        for (int i = 0; i < weights; i++) sum2 += found[i] * found[i];
    }
    free(errors);
    free(found);
    return sqrt(sum2 / ((double)trials * weights));
}

/* Gradients of which some channels are larger than others, and most elements near zero. */
static double *random_gradient(const conv *c, uint64_t *random, mm_layer_sample *sample) {
    const int n = c->images * c->side * c->side * c->out;
    double *g = malloc((size_t)n * sizeof *g), sum = 0, sum2 = 0;
    for (int i = 0; i < n; i++) {
        g[i] = pow(2 * uniform(random) - 1, 5) * (1 + i % c->out) * 1e-3;
        sum += fabs(g[i]);
        sum2 += g[i] * g[i];
    }
    *sample = (mm_layer_sample){.nonzero_share = 1 - c->zeros,
                                .gradient_mean = sum / n,
                                .gradient_sum2 = sum2,
                                .momentum_mean = 0.02,
                                .coverage = c->padded ? pow(1 - 2.0 / (TAPS * c->side), 2) : 1,
                                .batch = c->images,
                                .channels = c->out,
                                .measured_sigma = -1};
    return g;
}

/* The formula, in which C_out is the number of channels that the sum of squares is shared by, must be within the
 * measurement's own error: 1 / sqrt(2 * 10 trials * at least 216 weights) is 1.5 %, so 6 % is four times that. */
TEST_CASE(the_predicted_error_is_that_of_random_errors) {
    static const conv cases[] = {{.images = 4, .side = 5, .in = 3, .out = 8, .groups = 1},
                                 {.images = 4, .side = 5, .in = 3, .out = 8, .groups = 1, .zeros = 0.6},
                                 {.images = 1, .side = 7, .in = 8, .out = 4, .groups = 1, .zeros = 0.3},
                                 {.images = 8, .side = 3, .in = 8, .out = 4, .groups = 1, .padded = true},
                                 {.images = 6, .side = 4, .in = 8, .out = 32, .groups = 8}};
    uint64_t random = 7;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_layer_sample sample;
        double *g = random_gradient(&cases[i], &random, &sample);
        const double predicted = mm_comet_sigma(&by_sum, &sample, 0.05);
        const double measured = measured_sigma(&cases[i], 0.05, g, 10, &random);
        if (!(fabs(predicted / measured - 1) < 0.06))
            fail_msg("case %zu: predicted %g, measured %g", i, predicted, measured);
        free(g);
    }
}

TEST_CASE(a_bound_gives_the_share_of_the_momentum) {
    const conv c = {.images = 4, .side = 5, .in = 3, .out = 8, .groups = 1, .zeros = 0.5};
    uint64_t random = 11;
    mm_layer_sample sample;
    double *g = random_gradient(&c, &random, &sample);
    const mm_layer_verdict v = mm_comet_observe(&by_sum, &sample, 0);
    assert_float_equal(v.target_sigma, 0.01 * 0.02, 1e-12);
    const double measured = measured_sigma(&c, v.bound, g, 10, &random);
    if (!(fabs(measured / v.target_sigma - 1) < 0.06)) fail_msg("measured %g", measured);
    free(g);
}

/* ---------------------------------------------------------------- the rules, the guard */

/* R 0.5, largest 0.25, sum of squares 24, N 2, C_out 4: sigma of 1 is sqrt(0.5 * 24 / 12) = 1 by the sum, 0.32 * 0.25 *
 * 1 by equation 9. */
static const mm_layer_sample plain = {.nonzero_share = 0.5,
                                      .gradient_mean = 0.1,
                                      .gradient_max = 0.25,
                                      .gradient_sum2 = 24,
                                      .momentum_mean = 3,
                                      .coverage = 1,
                                      .batch = 2,
                                      .channels = 4,
                                      .measured_sigma = -1};

TEST_CASE(rules_are_as_written) {
    assert_float_equal(mm_comet_sigma(&by_sum, &plain, 2), 2, 1e-12);
    assert_float_equal(mm_comet_sigma(&by_eq9, &plain, 2), 2 * 0.08, 1e-12);
    assert_float_equal(mm_comet_observe(&by_sum, &plain, 0).bound, 0.03, 1e-7);
    assert_float_equal(mm_comet_observe(&by_eq9, &plain, 0).bound, 0.375, 1e-6);
    assert_float_equal(mm_comet_observe(&by_sum, &plain, 0.5F).predicted_sigma, 0.5, 1e-7);
    assert_true(mm_comet_sigma(&by_sum, &plain, 0) == 0);
}

TEST_CASE(the_guard_tightens_what_exceeds_its_target_and_no_other) {
    mm_layer_sample s = plain;
    mm_comet_config off = by_sum;
    off.guard = 0;
    s.measured_sigma = 0.12; /* measured with a bound of 0.02; so a bound of 0.005 gives the target, 0.03 */
    mm_layer_verdict v = mm_comet_observe(&by_sum, &s, 0.02F);
    assert_true(v.tightened);
    assert_float_equal(v.bound, 0.005, 1e-8);
    assert_float_equal(v.rule_bound, 0.03, 1e-8);
    v = mm_comet_observe(&off, &s, 0.02F);
    assert_false(v.tightened);
    assert_float_equal(v.bound, 0.03, 1e-8);
    s.measured_sigma = 0.019; /* better than predicted: the rule's bound stays */
    v = mm_comet_observe(&by_sum, &s, 0.02F);
    assert_false(v.tightened);
    assert_float_equal(v.bound, 0.03, 1e-8);
    s.measured_sigma = NAN; /* gradients were not finite: the bound becomes 0 */
    v = mm_comet_observe(&by_sum, &s, 0.02F);
    assert_true(v.tightened && v.bound == 0);
    s.measured_sigma = 0; /* the code lost nothing, so this tells nothing */
    assert_false(mm_comet_observe(&by_sum, &s, 0.02F).tightened);
}

TEST_CASE(what_is_no_bound_loses_nothing) {
    mm_layer_sample s = plain;
    s.gradient_sum2 = 0; /* no gradient: the bound stays as it was */
    assert_true(mm_comet_observe(&by_sum, &s, 0.25F).bound == 0.25F);
    s = plain;
    s.nonzero_share = 0; /* a map of zeros: the bound stays as it was */
    assert_true(mm_comet_observe(&by_sum, &s, 0.25F).bound == 0.25F);
    s = plain;
    s.momentum_mean = 0;
    assert_true(mm_comet_observe(&by_sum, &s, 0.25F).bound == 0);
    const double wrong[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s = plain;
        s.gradient_sum2 = wrong[i];
        assert_true(mm_comet_observe(&by_sum, &s, 0.25F).bound == 0);
        s = plain;
        s.momentum_mean = wrong[i];
        assert_true(mm_comet_observe(&by_sum, &s, 0.25F).bound == 0);
    }
    s = plain;
    s.momentum_mean = 1e300; /* more than a float holds */
    assert_true(mm_comet_observe(&by_sum, &s, 0.25F).bound == 0);
}

TEST_CASE(no_bound_leaves_nothing_of_the_map_that_was_sampled) {
    mm_layer_sample s = plain;
    s.map_max = 0.01;
    mm_layer_verdict v = mm_comet_observe(&by_sum, &s, 0);
    assert_float_equal(v.rule_bound, 0.03, 1e-8);
    assert_float_equal(v.bound, 0.01, 1e-8);
    assert_false(v.tightened);
    s.gradient_sum2 = 0; /* the bound stays as it was, but not above map_max */
    assert_float_equal(mm_comet_observe(&by_sum, &s, 0.25F).bound, 0.01, 1e-8);
    s = plain;
    s.map_max = 0.05;
    assert_float_equal(mm_comet_observe(&by_sum, &s, 0).bound, 0.03, 1e-8);
}

/* ---------------------------------------------------------------- what is watched */

typedef struct net {
    mm_graph *graph;
    mm_tensor in, mid, out, d_in, d_earlier, d_mid, d_out, weight[2], bias, gradient[2], d_bias, momentum[2], count;
} net;

static mm_tensor add(mm_graph *graph, const char *name, mm_tensor_kind kind, int64_t first) {
    const bool map = kind <= MM_GRADIENT_MAP; /* else of 8 by 8 channels */
    const mm_tensor_desc desc = {name,   kind, map ? MM_MANAGED : MM_PERSISTENT,
                                 MM_F32, 4,    {first, map ? 4 : 1, map ? 4 : 8, 8}};
    mm_tensor tensor;
    assert_int_equal(mm_graph_add_tensor(graph, &desc, &tensor), MM_OK);
    return tensor;
}

static void add_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use *uses, size_t n) {
    assert_int_equal(mm_graph_add_step(graph, layer, phase, uses, n, 0), MM_OK);
}

/* in -> conv1 -> mid -> conv2 -> out. conv1 adds to an earlier gradient of its input, and keeps a momentum; conv2 has a
 * bias, and the optimizer keeps nothing of its size for it. */
static void build(net *t) {
    mm_layer data, conv[2], update;
    assert_int_equal(mm_graph_create("two convolutions", &t->graph), MM_OK);
    mm_graph *g = t->graph;
    t->in = add(g, "in", MM_FEATURE_MAP, 2);
    t->mid = add(g, "mid", MM_FEATURE_MAP, 2);
    t->out = add(g, "out", MM_FEATURE_MAP, 2);
    t->d_earlier = add(g, "d earlier", MM_GRADIENT_MAP, 2);
    t->d_in = add(g, "d in", MM_GRADIENT_MAP, 2);
    t->d_mid = add(g, "d mid", MM_GRADIENT_MAP, 2);
    t->d_out = add(g, "d out", MM_GRADIENT_MAP, 2);
    t->bias = add(g, "bias", MM_WEIGHT, 1);
    t->d_bias = add(g, "d bias", MM_WEIGHT_GRADIENT, 1);
    assert_int_equal(mm_graph_set_weight(g, t->d_bias, t->bias), MM_OK);
    for (int i = 0; i < 2; i++) {
        t->weight[i] = add(g, i ? "w2" : "w1", MM_WEIGHT, 9);
        t->gradient[i] = add(g, i ? "d w2" : "d w1", MM_WEIGHT_GRADIENT, 9);
        assert_int_equal(mm_graph_set_weight(g, t->gradient[i], t->weight[i]), MM_OK);
    }
    t->momentum[0] = add(g, "m1", MM_OPTIMIZER, 9);
    t->count = add(g, "count", MM_OPTIMIZER, 1);
    assert_int_equal(mm_graph_set_weight(g, t->momentum[0], t->weight[0]), MM_OK);
    assert_int_equal(mm_graph_set_weight(g, t->count, t->weight[1]), MM_OK);
    assert_int_equal(mm_graph_add_layer(g, "data", MM_LAYER_DATA, &data), MM_OK);
    assert_int_equal(mm_graph_add_layer(g, "conv1", MM_LAYER_CONV, &conv[0]), MM_OK);
    assert_int_equal(mm_graph_add_layer(g, "conv2", MM_LAYER_CONV, &conv[1]), MM_OK);
    assert_int_equal(mm_graph_add_layer(g, "update", MM_LAYER_UPDATE, &update), MM_OK);
    add_step(g, data, MM_FORWARD, (mm_use[]){{t->in, MM_WRITE, 0}}, 1);
    add_step(g, conv[0], MM_FORWARD, (mm_use[]){{t->in, MM_READ, 0}, {t->weight[0], MM_READ, 0}, {t->mid, MM_WRITE, 0}},
             3);
    add_step(g, conv[1], MM_FORWARD,
             (mm_use[]){{t->mid, MM_READ, 0}, {t->bias, MM_READ, 0}, {t->weight[1], MM_READ, 0}, {t->out, MM_WRITE, 0}},
             4);
    add_step(g, data, MM_BACKWARD,
             (mm_use[]){{t->out, MM_READ, 0}, {t->d_out, MM_WRITE, 0}, {t->d_earlier, MM_WRITE, 0}}, 3);
    add_step(g, conv[1], MM_BACKWARD,
             (mm_use[]){{t->mid, MM_READ, 0},
                        {t->weight[1], MM_READ, 0},
                        {t->d_out, MM_READ, 0},
                        {t->d_mid, MM_WRITE, 0},
                        {t->gradient[1], MM_WRITE, 0},
                        {t->d_bias, MM_WRITE, 0}},
             6);
    add_step(g, conv[0], MM_BACKWARD,
             (mm_use[]){{t->in, MM_READ, 0},
                        {t->weight[0], MM_READ, 0},
                        {t->d_earlier, MM_READ, 0},
                        {t->d_mid, MM_READ, 0},
                        {t->d_in, MM_WRITE, 0},
                        {t->gradient[0], MM_WRITE, 0}},
             6);
    assert_int_equal(mm_graph_allow_inplace(g, t->d_earlier, t->d_in), MM_OK);
    add_step(g, update, MM_UPDATE,
             (mm_use[]){{t->d_in, MM_READ, 0}, {t->momentum[0], MM_MODIFY, 0}, {t->count, MM_MODIFY, 0}}, 3);
    assert_int_equal(mm_graph_freeze(g), MM_OK);
}

TEST_CASE(convolutions_with_learned_weights_are_watched) {
    net t;
    mm_watched watched[8];
    build(&t);
    assert_int_equal(mm_comet_watch(t.graph, watched), 2);
    const mm_watched expected[2] = {{1, t.in, t.d_mid, t.weight[0], t.momentum[0], 0},
                                    {2, t.mid, t.d_out, t.weight[1], t.gradient[1], 0}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(watched[i].layer, expected[i].layer);
        assert_int_equal(watched[i].map, expected[i].map);
        assert_int_equal(watched[i].gradient, expected[i].gradient);
        assert_int_equal(watched[i].weight, expected[i].weight);
        assert_int_equal(watched[i].momentum, expected[i].momentum);
        assert_float_equal(watched[i].coverage, 25.0 / 36, 1e-12); /* along each axis, 10 of 4 places x 3 taps */
    }
    mm_graph_destroy(t.graph);
}

TEST_CASE(a_spec_has_its_options) {
    mm_policy p;
    assert_int_equal(mm_policy_parse("comet:bound=eq9,sigma=2e-2,guard=off,a=0.5,every=50", &p), MM_OK);
    assert_true(p.config.comet.sigma == 0.02 && p.config.comet.a == 0.5 && p.config.comet.rule == MM_BOUND_EQ9);
    assert_int_equal(p.config.comet.every, 50);
    assert_false(p.config.comet.guard);
    assert_int_equal(mm_policy_print(&p), MM_OK);
    assert_string_equal(p.spec, "comet:every=50,sigma=0.02,bound=eq9,a=0.5,guard=off");
    mm_policy other;
    assert_int_equal(mm_policy_parse("comet:bound=eq9,sigma=0.03,guard=off,a=0.5,every=50", &other), MM_OK);
    assert_false(mm_policy_equal(&p, &other));
    mm_policy_fini(&other);
    mm_policy_fini(&p);
    static const char *const wrong[] = {"comet:sigma=0",   "comet:sigma=-1", "comet:sigma=nan",  "comet:sigma=1.5",
                                        "comet:sigma=1x",  "comet:sigma=",   "comet:every=0",    "comet:every=1.5",
                                        "comet:bound=eq8", "comet:guard=1",  "comet:a=infinity", "comet:b=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (mm_policy_check(wrong[i]) != MM_ERR_INVALID) fail_msg("%s is taken", wrong[i]);
}
