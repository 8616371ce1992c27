/* SPDX-License-Identifier: MIT */
/* Weight gradients under every way to keep feature maps, against exact ones from the same weights and batch.
 *
 * Lossless ways: equal bits. Lossy codecs: the smallest cosine over the layers stays above a threshold, which wrong
 * masks and wrong mappings miss by far.
 *
 *      resnet20, batch 16, synthetic data, after 4 iterations; smallest cosine over
 *                                     convolutions          all parameters
 *                                     measured  threshold   measured  threshold
 *      zfp:rate=8                      0.99998   0.999       0.9990    0.995
 *      zfp:rate=4                      0.992     0.98        0.869     0.75
 *      zfp:rate=8, eligible=all        0.9998    0.999       0.9990    0.995
 *      zfp:rate=4, eligible=all        0.950     0.90        0.869     0.75
 *      dpr:fp8, eligible=all           0.9990    0.99        0.997     0.98
 *      mx:fp4, eligible=all            0.982     0.95        0.933     0.85
 *      group:bits=8, eligible=all      0.9999    0.999       0.9997    0.995
 *      group:bits=4, eligible=all      0.985     0.95        0.850     0.70
 *      a wrong mask, eligible=all     <0.06
 *      a wrong mapping                <0.82
 *
 * Measured is the least over six seeds (dpr, mx, group: three) and 1, 4 and 8 iterations; the least of all parameters
 * are batch norm's 16 scales, whose gradients are small. Of wrong masks and
 * mappings: the greatest cosine of any fault below. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/io/reader.h"
#include "nets/zoo/zoo.h"
#include "tests/accuracy/codec_fault.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tools/bench/gradient_compare.h"

enum { BATCH = 16, WARM_UP = 4, SEED = 1 };

typedef struct threshold {
    const char *policy;
    double conv, all; /* smallest cosines */
} threshold;

static const threshold lossy[] = {
    {"freelunch:rate=8,when=always", 0.999, 0.995},
    {"freelunch:rate=4,when=always", 0.98, 0.75},
    {"freelunch:rate=8,eligible=all,when=always", 0.999, 0.995},
    {"freelunch:rate=4,eligible=all,when=always", 0.90, 0.75},
    {"freelunch:codec=dpr:fp8,eligible=all,when=always", 0.99, 0.98},
    {"freelunch:codec=mx:fp4,eligible=all,when=always", 0.95, 0.85},
    {"freelunch:codec=group:bits=8,eligible=all,when=always", 0.999, 0.995},
    {"freelunch:codec=group:bits=4,eligible=all,when=always", 0.95, 0.70},
};

enum { LOSSY = sizeof lossy / sizeof lossy[0], ZFP = 4 /* the first rows, under which faults are planted */ };

/* A net after some training, a batch, and its exact gradients. */
typedef struct fixture {
    nets_net *net;
    nets_reader *reader;
    trainer exact;
    gradient_batch batch;
    float *exact_gradients, *gradients;
    gradient_figure *figures;
    int n;
} fixture;

static void *allocate(size_t bytes) {
    void *data = malloc(bytes);
    assert_non_null(data);
    return data;
}

static void probe(fixture *f, const char *policy, codec_fault fault, float *gradients) {
    codec_fault_set(fault);
    expect_ok(gradient_probe(&f->exact, policy, &f->batch, gradients));
}

static void start(fixture *f, const char *net) {
    const nets_optimizer sgd = {.momentum = 0.9f, .weight_decay = 1e-4f};
    const nets_reader_options options = {.batch = BATCH, .seed = SEED, .drop_last = true};
    *f = (fixture){0};
    codec_fault_set(FAULT_NONE);
    expect_ok(nets_zoo_build(net, &f->net));
    expect_ok(nets_reader_create("synthetic", &options, &f->reader));
    expect_ok(trainer_init(&f->exact, f->net, BATCH, &sgd, &(mm_options){.policy = "liveness"}));
    expect_ok(nets_exec_init(f->exact.exec, SEED));
    nets_batch batch;
    for (int i = 0; i < WARM_UP; i++) {
        nets_result result;
        expect_ok(nets_reader_next(f->reader, &batch));
        expect_ok(nets_exec_iteration(f->exact.exec, batch.images, batch.labels, batch.n, 0.05f, &result));
    }
    expect_ok(nets_reader_next(f->reader, &batch));
    f->batch = (gradient_batch){batch.images, batch.labels, batch.n};
    f->exact_gradients = allocate((size_t)nets_net_learned_elems(f->net) * sizeof(float));
    f->gradients = allocate((size_t)nets_net_learned_elems(f->net) * sizeof(float));
    f->figures = allocate((size_t)nets_net_params(f->net) * sizeof *f->figures);
    probe(f, "liveness", FAULT_NONE, f->exact_gradients);
}

static void finish(fixture *f) {
    codec_fault_set(FAULT_NONE);
    trainer_fini(&f->exact);
    nets_reader_destroy(f->reader);
    nets_net_destroy(f->net);
    free(f->exact_gradients);
    free(f->gradients);
    free(f->figures);
}

/* The parameter whose gradient is farthest off when this fault is planted under this policy. */
static const gradient_figure *worst(fixture *f, const char *policy, codec_fault fault, bool conv_only) {
    probe(f, policy, fault, f->gradients);
    f->n = gradient_compare(f->net, f->exact_gradients, f->gradients, f->figures);
    const gradient_figure *figure = gradient_worst(f->figures, f->n, conv_only);
    assert_non_null(figure);
    return figure;
}

static void expect_above(const fixture *f, const char *policy, const gradient_figure *figure, double least) {
    if (!(figure->cosine >= least))
        fail_msg("%s: cosine %.6f of %s, at least %g wanted", policy, figure->cosine,
                 nets_net_param(f->net, figure->param)->name, least);
}

static void expect_equal_bits(fixture *f, const char *policy) {
    probe(f, policy, FAULT_NONE, f->gradients);
    const float *exact = f->exact_gradients, *tested = f->gradients;
    for (int p = 0; p < nets_net_params(f->net); p++) {
        const nets_param *param = nets_net_param(f->net, p);
        if (!param->learned) continue;
        if (memcmp(exact, tested, (size_t)param->elems * sizeof *exact) != 0)
            fail_msg("%s: the gradient of %s differs", policy, param->name);
        exact += param->elems;
        tested += param->elems;
    }
}

/* ---------------------------------------------------------------- right */

TEST_CASE(gradients_under_lossy_codecs_stay_above_the_thresholds) {
    fixture f;
    start(&f, "resnet20");
    for (int i = 0; i < LOSSY; i++) {
        expect_above(&f, lossy[i].policy, worst(&f, lossy[i].policy, FAULT_NONE, true), lossy[i].conv);
        expect_above(&f, lossy[i].policy, gradient_worst(f.figures, f.n, false), lossy[i].all);
        assert_true(codec_fault_decodes() > 0);
        /* Something must differ: if not, the lossy codes were not used. */
        assert_true(gradient_worst(f.figures, f.n, true)->relative_error > 0);
    }
    finish(&f);
}

TEST_CASE(gradients_without_loss_are_equal_bit_for_bit) {
    fixture f;
    start(&f, "resnet20");
    expect_equal_bits(&f, "naive");
    expect_equal_bits(&f, "freelunch:codec=raw,when=always");
    assert_true(codec_fault_decodes() > 0);
    expect_equal_bits(&f, "freelunch:codec=raw,eligible=all,when=always");
    assert_true(codec_fault_decodes() > 0);
    expect_equal_bits(&f, "freelunch:codec=raw,eligible=all,depth=1,workspace=naive,when=always");
    expect_equal_bits(&f, "freelunch:codec=raw,eligible=all,depth=4,buffers=naive,when=always");
    expect_equal_bits(&f, "freelunch:codec=raw,eligible=all,depth=1,workspace=naive,buffers=naive,when=always");
    finish(&f);
}

/* Both ReLUs of this net feed layers whose backward does not read them: only their masks are kept. */
TEST_CASE(gradients_through_masks_alone_are_equal_bit_for_bit) {
    fixture f;
    start(&f, "tiny");
    expect_equal_bits(&f, "freelunch:codec=raw,eligible=all,when=always");
    assert_int_equal(codec_fault_masks(), 2);
    const gradient_figure *figure = worst(&f, "freelunch:codec=raw,eligible=all,when=always", FAULT_MASK_SHIFTED, true);
    assert_true(figure->relative_error > 0); /* so the masks were used */
    finish(&f);
}

/* ---------------------------------------------------------------- wrong */

static void expect_below(fixture *f, const threshold *t, codec_fault fault) {
    const gradient_figure *figure = worst(f, t->policy, fault, true);
    if (!(figure->cosine < t->conv))
        fail_msg("%s: fault %d passes, with a smallest cosine of %.6f", t->policy, (int)fault, figure->cosine);
}

TEST_CASE(a_wrong_mask_misses_the_threshold) {
    fixture f;
    start(&f, "resnet20");
    for (int i = 0; i < ZFP; i++) {
        if (!strstr(lossy[i].policy, "eligible=all")) continue; /* only convolutions' outputs are coded: no masks */
        for (codec_fault fault = FAULT_MASK_SHIFTED; fault <= FAULT_MASK_TRANSPOSED; fault++)
            expect_below(&f, &lossy[i], fault);
        assert_true(codec_fault_masks() > 0);
    }
    finish(&f);
}

/* A mask made of a map after ZFP is wrong: ZFP gives few of a ReLU's zeros back as zeros. */
TEST_CASE(the_mask_of_a_lossy_map_misses_the_threshold) {
    fixture f;
    start(&f, "resnet20");
    for (int i = 0; i < ZFP; i++)
        if (strstr(lossy[i].policy, "eligible=all")) expect_below(&f, &lossy[i], FAULT_MASK_OF_DECODED);
    finish(&f);
}

TEST_CASE(a_wrong_mapping_misses_the_threshold) {
    fixture f;
    start(&f, "resnet20");
    for (int i = 0; i < ZFP; i++)
        for (codec_fault fault = FAULT_MAP_TRANSPOSED; fault <= FAULT_MAP_SHIFTED; fault++)
            expect_below(&f, &lossy[i], fault);
    finish(&f);
}

/* ---------------------------------------------------------------- the comparison itself */

TEST_CASE(figures_tell_equal_opposite_zero_and_nonfinite_gradients) {
    nets_net *net;
    expect_ok(nets_zoo_build("tiny", &net));
    const size_t elems = (size_t)nets_net_learned_elems(net);
    float *exact = allocate(elems * sizeof *exact), *tested = allocate(elems * sizeof *tested);
    gradient_figure *figures = allocate((size_t)nets_net_params(net) * sizeof *figures);
    const struct {
        float exact, tested;
        double cosine, relative_error;
    } cases[] = {{2, 2, 1, 0}, {2, -2, -1, 2},      {2, 3, 1, 0.5},        {2, 0, 0, 1},
                 {0, 0, 1, 0}, {0, 2, 0, INFINITY}, {2, NAN, 0, INFINITY}, {2, INFINITY, 0, INFINITY}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (size_t i = 0; i < elems; i++) {
            exact[i] = cases[c].exact;
            tested[i] = cases[c].tested;
        }
        const int n = gradient_compare(net, exact, tested, figures);
        assert_int_equal(n, 7); /* conv1 and fc have a bias, conv2 none; batch norm has two */
        for (int i = 0; i < n; i++) {
            assert_float_equal(figures[i].cosine, cases[c].cosine, 1e-9);
            if (isinf(cases[c].relative_error))
                assert_true(isinf(figures[i].relative_error));
            else
                assert_float_equal(figures[i].relative_error, cases[c].relative_error, 1e-9);
        }
    }
    free(exact);
    free(tested);
    free(figures);
    nets_net_destroy(net);
}
