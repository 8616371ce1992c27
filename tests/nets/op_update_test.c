/* SPDX-License-Identifier: MIT */
/* The update step against its formula; learning-rate schedules; initial values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/contract/op.h"
#include "nets/init.h"
#include "nets/lr_schedule.h"
#include "nets/zoo/zoo.h"
#include "tests/nets/op_rig.h"

/* A tensor to update, and w and v: the expected weights and momenta. */
typedef struct tensor {
    nets_update_param param;
    float *gradient;
    double *w, *v;
} tensor;

static void start_tensor(op_rig *rig, tensor *t, int64_t n) {
    float *w = op_rig_alloc(rig, 4 * n), *v = op_rig_alloc(rig, 4 * n);
    t->gradient = op_rig_alloc(rig, 4 * n);
    t->param = (nets_update_param){.weight = w,
                                   .state = {v},
                                   .gradient = t->gradient,
                                   .elems = n,
                                   .decayed = true,
                                   .copy = n % 2 ? op_rig_alloc(rig, 2 * n) : NULL};
    t->w = calloc((size_t)n, sizeof *t->w);
    t->v = calloc((size_t)n, sizeof *t->v);
    assert_true(t->w && t->v);
    for (int64_t i = 0; i < n; i++) t->w[i] = w[i] = 0.1f * (float)(i % 37 - 18);
}

static void step_as_it_should_be(tensor *t, int step, double lr) {
    for (int64_t i = 0; i < t->param.elems; i++) {
        t->gradient[i] = sinf((float)(i + step));
        t->v[i] = 0.9 * t->v[i] + t->gradient[i] + 0.01 * t->w[i];
        t->w[i] -= lr * t->v[i];
    }
}

static void check_tensor(const tensor *t) {
    for (int64_t i = 0; i < t->param.elems; i++)
        assert_true(fabs(t->param.weight[i] - t->w[i]) < 1e-6 && fabs(t->param.state[0][i] - t->v[i]) < 1e-6);
    for (int64_t i = 0; t->param.copy && i < t->param.elems; i++) { /* error at most half of bf16's last bit */
        const uint32_t bits = (uint32_t)t->param.copy[i] << 16;
        const double weight = (double)t->param.weight[i];
        float copy;
        memcpy(&copy, &bits, sizeof copy);
        assert_true(fabs((double)copy - weight) <= (weight == 0 ? 0 : ldexp(1, ilogb(weight) - 8)));
    }
}

/* Sizes are no multiple of a vector, nor of what a GPU's thread block takes. */
static void update_follows_torch_for_three_steps(void **state) {
    (void)state;
    enum { TENSORS = 4 };
    static const int64_t ELEMS[TENSORS] = {37, 1, 8197, 4096};
    op_rig rig;
    tensor tensors[TENSORS];
    nets_update_param params[TENSORS];
    op_rig_open(&rig, NULL);
    for (int t = 0; t < TENSORS; t++) {
        start_tensor(&rig, &tensors[t], ELEMS[t]);
        params[t] = tensors[t].param;
    }
    uint32_t *rng = op_rig_alloc(&rig, 16);
    float *lr = op_rig_alloc(&rig, 4);
    memcpy(rng, ((const uint32_t[4]){1, 2, UINT32_MAX - 1, 4}), 16);
    for (int step = 0; step < 3; step++) {
        *lr = 0.1f / (float)(1 + step);
        for (int t = 0; t < TENSORS; t++) step_as_it_should_be(&tensors[t], step, *lr);
        const nets_update_args args = {.params = params,
                                       .n_params = TENSORS,
                                       .lr = lr,
                                       .optimizer = {.momentum = 0.9f, .weight_decay = 0.01f},
                                       .rng = rng};
        assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        for (int t = 0; t < TENSORS; t++) check_tensor(&tensors[t]);
        const uint32_t counted[3][4] = {{1, 2, UINT32_MAX, 4}, {1, 2, 0, 5}, {1, 2, 1, 5}};
        assert_memory_equal(rng, counted[step], 16);
    }
    for (int t = 0; t < TENSORS; t++) {
        free(tensors[t].w);
        free(tensors[t].v);
    }
    op_rig_fini(&rig);
}

/* torch.optim.AdamW's equations (Loshchilov and Hutter's algorithm 2), in double precision throughout. */
static double adamw_as_it_should_be(tensor *t, const nets_optimizer *o, int step, double lr, double *m) {
    double moved = 0;
    for (int64_t i = 0; i < t->param.elems; i++) {
        double g = t->gradient[i], before = t->w[i];
        t->w[i] *= 1 - lr * o->weight_decay;
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g;
        t->v[i] = o->beta2 * t->v[i] + (1 - o->beta2) * g * g;
        t->w[i] -= lr * (m[i] / (1 - pow(o->beta1, step))) / (sqrt(t->v[i] / (1 - pow(o->beta2, step))) + o->eps);
        moved += (t->w[i] - before) * (t->w[i] - before);
    }
    return moved;
}

/* Parameters excluded from weight decay get the same bits as without it. */
static void undecayed_parameters_are_updated_as_without_decay(void **state) {
    (void)state;
    enum { TENSORS = 70, ELEMS = 5 };
    static const char *const SPECS[][2] = {{"sgd,weight-decay=0.5", "sgd,weight-decay=0"},
                                           {"sgd,momentum=0,weight-decay=0.5", "sgd,momentum=0,weight-decay=0"},
                                           {"adamw,weight-decay=0.5", "adamw,weight-decay=0"}};
    for (int o = 0; o < 3; o++) {
        op_rig rig;
        float *weights[2];
        op_rig_open(&rig, NULL);
        for (int run = 0; run < 2; run++) {
            nets_optimizer optimizer;
            nets_update_param params[TENSORS];
            float *gradient = op_rig_alloc(&rig, 4 * ELEMS), *states = op_rig_alloc(&rig, 32 * TENSORS * 2);
            float *lr = op_rig_alloc(&rig, 4);
            uint32_t *rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof *rng), *count = op_rig_alloc(&rig, 4);
            assert_int_equal(nets_optimizer_parse(SPECS[o][run], &optimizer), MM_OK);
            weights[run] = op_rig_alloc(&rig, 32 * TENSORS);
            *lr = 0.1f;
            for (int i = 0; i < ELEMS; i++) gradient[i] = sinf((float)i);
            for (int t = 0; t < TENSORS; t++) {
                float *weight = weights[run] + 8 * t, *both = states + 16 * t;
                for (int i = 0; i < ELEMS; i++) weight[i] = (float)(i + 1);
                params[t] = (nets_update_param){.weight = weight,
                                                .state = {both, both + 8},
                                                .gradient = gradient,
                                                .elems = ELEMS,
                                                .decayed = t % 3 == 0};
            }
            const nets_update_args args = {
                .params = params, .n_params = TENSORS, .lr = lr, .optimizer = optimizer, .rng = rng, .step = count};
            assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
            assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        }
        for (int t = 0; t < TENSORS; t++)
            assert_int_equal(memcmp(weights[0] + 8 * t, weights[1] + 8 * t, 4 * ELEMS) != 0, t % 3 == 0);
        op_rig_fini(&rig);
    }
}

static void plain_gradient_descent_needs_no_state(void **state) {
    (void)state;
    enum { ELEMS = 4103 };
    op_rig rig;
    nets_optimizer optimizer;
    float *weights[2];
    assert_int_equal(nets_optimizer_parse("sgd,momentum=0,weight-decay=0.01", &optimizer), MM_OK);
    assert_int_equal(optimizer.id, NETS_PLAIN_SGD);
    assert_null(nets_optimizer_traits_of(optimizer.id)->states[0]);
    op_rig_open(&rig, NULL);
    for (int kept = 0; kept < 2; kept++) {
        float *gradient = op_rig_alloc(&rig, 4 * ELEMS), *lr = op_rig_alloc(&rig, 4);
        float *momentum = kept ? op_rig_alloc(&rig, 4 * ELEMS) : NULL;
        weights[kept] = op_rig_alloc(&rig, 4 * ELEMS);
        *lr = 0.1f;
        for (int i = 0; i < ELEMS; i++) {
            gradient[i] = sinf((float)i);
            weights[kept][i] = cosf((float)i);
        }
        const nets_update_param param = {
            .weight = weights[kept], .state = {momentum}, .gradient = gradient, .elems = ELEMS, .decayed = true};
        nets_update_args args = {.params = &param,
                                 .n_params = 1,
                                 .lr = lr,
                                 .optimizer = optimizer,
                                 .rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof(uint32_t))};
        if (kept) args.optimizer.id = NETS_SGD;
        for (int step = 0; step < 2; step++)
            assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    }
    assert_memory_equal(weights[0], weights[1], 4 * ELEMS);
    op_rig_fini(&rig);
}

static double relative_norm(const float *values, const double *expected, int64_t n) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        off += (values[i] - expected[i]) * (values[i] - expected[i]);
        all += expected[i] * expected[i];
    }
    return sqrt(off / all);
}

/* Gradients have sizes as in training, some are zero. Midway a loss is not finite: that changes nothing, not even the
 * update count. */
static void adamw_follows_its_paper_for_ten_steps(void **state) {
    (void)state;
    enum { ELEMS = 8197, STEPS = 10 };
    static const char *const SPECS[] = {"adamw", "adamw,beta1=0,beta2=0.9,eps=1e-3,weight-decay=0.5"};
    for (int run = 0; run < 2; run++) {
        op_rig rig;
        tensor t;
        nets_optimizer optimizer;
        op_rig_open(&rig, NULL);
        assert_int_equal(nets_optimizer_parse(SPECS[run], &optimizer), MM_OK);
        start_tensor(&rig, &t, ELEMS);
        float *square = t.param.state[1] = op_rig_alloc(&rig, 4 * ELEMS), *lr = op_rig_alloc(&rig, 4);
        float *loss = op_rig_alloc(&rig, 4);
        uint32_t *rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof *rng), *count = op_rig_alloc(&rig, 4);
        double *average = calloc(ELEMS, sizeof *average), moved = 0;
        assert_non_null(average);
        optimizer.only_finite = true;
        for (int step = 1; step <= STEPS; step++) {
            const nets_update_args args = {.params = &t.param,
                                           .n_params = 1,
                                           .checks = true,
                                           .n_checked = 1,
                                           .most = NETS_GRADIENT_MOST,
                                           .lr = lr,
                                           .optimizer = optimizer,
                                           .loss = loss,
                                           .rng = rng,
                                           .step = count};
            *lr = 1e-3f * (float)(1 + step % 3);
            for (int64_t i = 0; i < ELEMS; i++)
                t.gradient[i] = i % 7 == 0 ? 0 : sinf((float)(i * step)) * powf(10, -(float)(i % 5));
            if (step == 4) {
                *loss = NAN;
                assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
                assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
                assert_true(rng[NETS_RNG_HALTED] && *count == 3);
                *loss = 1, rng[NETS_RNG_HALTED] = 0;
            }
            moved += adamw_as_it_should_be(&t, &optimizer, step, *lr, average);
            assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
            assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
            assert_true(*count == (uint32_t)step && rng[2] == (uint32_t)step);
        }
        assert_true(moved > 0.01);
        assert_true(relative_norm(t.param.weight, t.w, ELEMS) <= 1e-6);
        assert_true(relative_norm(t.param.state[0], average, ELEMS) <= 1e-6);
        assert_true(relative_norm(square, t.v, ELEMS) <= 1e-6);
        free(average);
        free(t.w);
        free(t.v);
        op_rig_fini(&rig);
    }
}

static void optimizers_are_read_as_they_are_told(void **state) {
    (void)state;
    static const struct {
        const char *text, *told;
    } good[] = {
        {"sgd", "sgd,momentum=0.9,weight-decay=0.0001,clip-norm=0"},
        {"sgd,momentum=0.1", "sgd,momentum=0.1,weight-decay=0.0001,clip-norm=0"},
        {"sgd,momentum=0,momentum=0.1", "sgd,momentum=0.1,weight-decay=0.0001,clip-norm=0"},
        {"sgd,momentum=0", "sgd,momentum=0,weight-decay=0.0001,clip-norm=0"},
        {"adamw", "adamw,weight-decay=0.01,beta1=0.9,beta2=0.999,eps=1e-08,clip-norm=0"},
        {"adamw,beta2=0.99,weight-decay=0,eps=0.3333333333333333",
         "adamw,weight-decay=0,beta1=0.9,beta2=0.99,eps=0.3333333333333333,clip-norm=0"},
        {"adamw,states=32bit", "adamw,weight-decay=0.01,beta1=0.9,beta2=0.999,eps=1e-08,clip-norm=0"},
        {"adamw,states=8bit,beta1=0.5",
         "adamw,weight-decay=0.01,beta1=0.5,beta2=0.999,eps=1e-08,clip-norm=0,states=8bit"},
    };
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"adam", "no optimizer 'adam' (did you mean adamw?): there are sgd and adamw"},
        {"", "no optimizer ''"},
        {"adamw,momentum=0.9", "has no option 'momentum'; it has weight-decay, beta1, beta2, eps, clip-norm"},
        {"sgd,beta1=0.9", "optimizer sgd has no option 'beta1'; it has momentum, weight-decay, clip-norm"},
        {"adamw,beta1=1", "beta1 is 1: must be from 0 to below 1"},
        {"adamw,beta2=-0.1", "beta2 is -0.1: must be"},
        {"adamw,eps=0", "eps is 0: must be"},
        {"adamw,eps=nan", "eps is nan: must be"},
        {"adamw,states=16bit", "states is 16bit: must be 8bit or 32bit"},
        {"adamw,states=8bits", "'states=8bits': must be OPTION=NUMBERbit"},
        {"adamw,states=bit", "'states=bit': must be OPTION=NUMBERbit"},
        {"sgd,states=8bit", "optimizer sgd has no option 'states'"},
        {"sgd,momentum=1.1", "momentum is 1.1: must be from 0 to 1"},
        {"adamw,beta1", "'beta1': must be OPTION=NUMBER"},
        {"adamw,beta1=0.9x", "'beta1=0.9x': must be OPTION=NUMBER"},
        {"adamw,", "must be OPTION=NUMBER"},
        {"sgd,clip-norm=-1", "clip-norm is -1: must be from 0 to"},
    };
    nets_optimizer optimizer;
    char told[NETS_OPTIMIZER_TEXT_CAPACITY];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(nets_optimizer_parse(good[i].text, &optimizer), MM_OK);
        nets_optimizer_text(&optimizer, told);
        assert_string_equal(told, good[i].told);
        assert_int_equal(nets_optimizer_parse(told, &optimizer), MM_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(nets_optimizer_parse(bad[i].text, &optimizer), MM_ERR_INVALID);
        if (!strstr(mm_last_error(), bad[i].message)) fail_msg("%s: %s", bad[i].text, mm_last_error());
    }
}

static void a_loss_that_is_not_finite_halts_updates_if_asked(void **state) {
    (void)state;
    enum { ELEMS = 5000 };
    static const float LOSSES[] = {2, NAN, 2}, FINITE[] = {2, 1, 2}, WRONG[] = {NAN, INFINITY, -1e31f, NAN};
    /* What is not finite: 0 the loss, without only_finite; 1 the loss; 2 to 4 the gradients; 5 a statistic. 6 to 10: as
     * 1 to 5, found by a separate check before the update. */
    for (int at = 0; at < 11; at++) {
        const int run = at < 6 ? at : at - 5;
        const bool only_finite = run > 0, apart = at >= 6;
        const float *losses = run < 2 ? LOSSES : FINITE;
        op_rig rig;
        op_rig_open(&rig, NULL);
        float *weight = op_rig_alloc(&rig, 4 * ELEMS), *momentum = op_rig_alloc(&rig, 4 * ELEMS);
        float *gradient = op_rig_alloc(&rig, 4 * ELEMS), *lr = op_rig_alloc(&rig, 4), *loss = op_rig_alloc(&rig, 4);
        uint32_t *rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof *rng);
        float *statistic = op_rig_alloc(&rig, 16);
        uint16_t *copy = op_rig_alloc(&rig, 2 * ELEMS);
        const nets_update_param param[] = {{.weight = weight,
                                            .state = {momentum},
                                            .gradient = gradient,
                                            .elems = ELEMS,
                                            .decayed = true,
                                            .copy = copy},
                                           {.gradient = statistic, .elems = 3}};
        const nets_update_args args = {.params = param,
                                       .n_params = 1,
                                       .checks = !apart,
                                       .n_checked = 2,
                                       .most = NETS_GRADIENT_MOST,
                                       .lr = lr,
                                       .optimizer = {.only_finite = only_finite},
                                       .loss = loss,
                                       .rng = rng};
        for (int i = 0; i < ELEMS; i++) gradient[i] = 1;
        *lr = 1;
        for (int step = 0; step < 3; step++) {
            float updates = (float)(only_finite ? 1 : step + 1);
            *loss = losses[step];
            if (run > 1) *(run < 5 ? &gradient[4998] : &statistic[2]) = step == 1 ? WRONG[run - 2] : 1;
            if (apart) assert_int_equal(rig.backend->ops->check(rig.backend, &args, rig.stream), MM_OK);
            assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
            assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
            for (int i = 0; i < ELEMS; i++) {
                static const uint16_t halves[] = {0, 0xbf80, 0xc000, 0xc040};
                assert_true(weight[i] == -updates && momentum[i] == (updates > 0));
                assert_int_equal(copy[i], halves[(int)updates]);
            }
            assert_int_equal(rng[2], (int)updates);
            assert_int_equal(rng[NETS_RNG_HALTED] != 0, only_finite && step > 0);
        }
        op_rig_fini(&rig);
    }
}

/* The caller gives the largest gradient that is still right (most). Without a loss and tensors, nothing is wrong. */
static void a_check_looks_at_what_it_is_given(void **state) {
    (void)state;
    op_rig rig;
    op_rig_open(&rig, NULL);
    float *gradient = op_rig_alloc(&rig, 16), *loss = op_rig_alloc(&rig, 4);
    uint32_t *rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof *rng);
    const nets_update_param param = {.gradient = gradient, .elems = 3};
    const struct {
        int n;
        float value, most, *loss;
        bool halts;
    } cases[] = {{1, 4, 4, NULL, false}, {1, 5, 4, NULL, true}, {0, NAN, 4, NULL, false}, {0, 1, 4, loss, true}};
    *loss = INFINITY;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const nets_update_args args = {
            .params = &param, .n_checked = cases[i].n, .most = cases[i].most, .loss = cases[i].loss, .rng = rng};
        gradient[2] = cases[i].value;
        rng[NETS_RNG_HALTED] = 0;
        assert_int_equal(rig.backend->ops->check(rig.backend, &args, rig.stream), MM_OK);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        assert_int_equal(rng[NETS_RNG_HALTED] != 0, cases[i].halts);
    }
    op_rig_fini(&rig);
}

/* An update in parts gives the bits of the whole, and counts once. */
static void an_update_in_parts_is_one_update(void **state) {
    (void)state;
    enum { TENSORS = 3, ELEMS = 5 };
    for (int run = 0; run < 2; run++) {
        op_rig rig;
        nets_optimizer optimizer;
        op_rig_open(&rig, NULL);
        assert_int_equal(nets_optimizer_parse(run ? "adamw" : "sgd,momentum=0.9", &optimizer), MM_OK);
        float *all = op_rig_alloc(&rig, 2 * TENSORS * 4 * 32), *lr = op_rig_alloc(&rig, 4);
        uint32_t *rng = op_rig_alloc(&rig, 2 * 4 * NETS_RNG_WORDS), *count = op_rig_alloc(&rig, 8);
        nets_update_param params[2][TENSORS];
        for (int i = 0; i < 2 * TENSORS * 32; i++) all[i] = cosf((float)(i % (TENSORS * 32)));
        *lr = 0.1f;
        for (int in_parts = 0; in_parts < 2; in_parts++) {
            for (int t = 0; t < TENSORS; t++) {
                float *at = all + (in_parts * TENSORS + t) * 32;
                for (int i = 16; i < 32; i++) at[i] = 0;
                params[in_parts][t] = (nets_update_param){
                    .weight = at, .state = {at + 16, at + 24}, .gradient = at + 8, .elems = ELEMS, .decayed = true};
            }
            nets_update_args args = {.params = params[in_parts],
                                     .n_params = TENSORS,
                                     .lr = lr,
                                     .optimizer = optimizer,
                                     .rng = rng + in_parts * NETS_RNG_WORDS,
                                     .step = count + in_parts};
            for (int step = 0; step < 2; step++)
                for (int t = in_parts ? TENSORS - 1 : 0; t >= 0; t--) {
                    if (in_parts) args.params = &params[1][t], args.n_params = 1, args.goes_on = t > 0;
                    assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
                    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
                    if (in_parts) assert_int_equal(count[1], step + (t == 0));
                }
        }
        assert_memory_equal(all, all + TENSORS * 32, TENSORS * 4 * 32);
        assert_memory_equal(rng, rng + NETS_RNG_WORDS, 4 * NETS_RNG_WORDS);
        assert_int_equal(rng[2], 2);
        assert_int_equal(count[0], 2);
        op_rig_fini(&rig);
    }
}

/* So many tensors that a GPU needs several launches. */
static void update_of_very_many_tensors(void **state) {
    (void)state;
    enum { TENSORS = 1601, ELEMS = 3 };
    op_rig rig;
    op_rig_open(&rig, NULL);
    float *weights = op_rig_alloc(&rig, 16 * TENSORS), *momenta = op_rig_alloc(&rig, 16 * TENSORS);
    float *gradient = op_rig_alloc(&rig, 16), *lr = op_rig_alloc(&rig, 4);
    uint32_t *rng = op_rig_alloc(&rig, 16);
    nets_update_param *params = calloc(TENSORS, sizeof *params);
    assert_non_null(params);
    for (int t = 0; t < TENSORS; t++)
        params[t] = (nets_update_param){.weight = weights + 4 * t,
                                        .state = {momenta + 4 * t},
                                        .gradient = gradient,
                                        .elems = ELEMS,
                                        .decayed = true};
    for (int i = 0; i < ELEMS; i++) gradient[i] = (float)(i + 1);
    *lr = 0.5f;
    const nets_update_args args = {.params = params, .n_params = TENSORS, .lr = lr, .rng = rng};
    assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < 4; i++) assert_true(weights[4 * t + i] == (i < ELEMS ? -0.5f * (float)(i + 1) : 0));
    assert_int_equal(rng[2], 1);
    free(params);
    op_rig_fini(&rig);
}

/* A GPU needs several launches for so many tensors; one tensor has several chunks and a rest. Weights start at 0 with a
 * learning rate of -1, so the new weights are the clipped gradients. */
static void gradients_are_clipped_by_the_norm_of_all_of_them(void **state) {
    (void)state;
    enum { TENSORS = 650, LARGE = 9003, ELEMS = 5, FAR = 640 };
    static const float NORMS[] = {0, 1e-3f, 2, 1e6f};
    for (int run = 0; run < 4; run++) {
        op_rig rig;
        double squares = 0;
        op_rig_open(&rig, NULL);
        float *large = op_rig_alloc(&rig, 4 * LARGE), *small = op_rig_alloc(&rig, 32 * TENSORS);
        float *weights = op_rig_alloc(&rig, 4 * LARGE), *others = op_rig_alloc(&rig, 32 * TENSORS);
        float *state_of = op_rig_alloc(&rig, 4 * LARGE), *states = op_rig_alloc(&rig, 32 * TENSORS);
        float *lr = op_rig_alloc(&rig, 4);
        uint32_t *rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof *rng);
        nets_update_param params[TENSORS];
        for (int i = 0; i < LARGE; i++) large[i] = sinf((float)i);
        for (int i = 0; i < 8 * TENSORS; i++) small[i] = i % 8 < ELEMS ? (i < 8 * FAR ? 0.5f : 3.0f) : 1e20f;
        for (int t = 0; t < TENSORS; t++)
            params[t] = (nets_update_param){
                .weight = others + 8 * t, .state = {states + 8 * t}, .gradient = small + 8 * t, .elems = ELEMS};
        params[TENSORS / 2] =
            (nets_update_param){.weight = weights, .state = {state_of}, .gradient = large, .elems = LARGE};
        for (int t = 0; t < TENSORS; t++)
            for (int64_t i = 0; i < params[t].elems; i++)
                squares += (double)params[t].gradient[i] * (double)params[t].gradient[i];
        *lr = -1;
        const double norm = (double)NORMS[run], by = norm / (sqrt(squares) + 1e-6);
        const nets_update_args args = {
            .params = params, .n_params = TENSORS, .lr = lr, .optimizer = {.clip_norm = norm}, .rng = rng};
        assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        for (int t = 0; t < TENSORS; t++)
            for (int64_t i = 0; i < params[t].elems; i++) {
                const float used = (norm > 0 && by < 1 ? (float)by : 1) * params[t].gradient[i];
                assert_true(fabsf(params[t].weight[i] - used) <= 3e-7f * fabsf(used));
            }
        op_rig_fini(&rig);
    }
}

static void schedule_steps_at_its_iterations(void **state) {
    (void)state;
    const nets_schedule schedule = {.rate = 0.1f, .factor = 0.1f, .n = 2, .at = {100, 150}};
    assert_int_equal(nets_schedule_check(&schedule), MM_OK);
    assert_true(nets_schedule_rate(&schedule, 0) == 0.1f);
    assert_true(nets_schedule_rate(&schedule, 99) == 0.1f);
    assert_true(fabsf(nets_schedule_rate(&schedule, 100) - 0.01f) < 1e-8f);
    assert_true(fabsf(nets_schedule_rate(&schedule, 1000) - 0.001f) < 1e-9f);
}

static void schedule_of_a_cosine_rises_and_falls(void **state) {
    (void)state;
    nets_schedule schedule = {.rate = 0.8f, .iterations = 24};
    assert_int_equal(nets_schedule_parse("cosine,warmup=4", &schedule), MM_OK);
    assert_int_equal(nets_schedule_check(&schedule), MM_OK);
    static const struct {
        int64_t iteration;
        double rate;
    } expected[] = {{0, 0.2},
                    {1, 0.4},
                    {3, 0.8},
                    {4, 0.8},
                    {9, 0.4 * (1 + 0.70710678118654752)},
                    {14, 0.4},
                    {23, 0.4 * (1 - 0.98768834059513777)},
                    {24, 0},
                    {30, 0}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_true(fabs(nets_schedule_rate(&schedule, expected[i].iteration) - expected[i].rate) < 1e-7);
    for (int i = 4; i < 23; i++) assert_true(nets_schedule_rate(&schedule, i + 1) < nets_schedule_rate(&schedule, i));
    schedule = (nets_schedule){.rate = 0.5f, .iterations = 2};
    assert_int_equal(nets_schedule_parse("cosine", &schedule), MM_OK);
    assert_true(nets_schedule_rate(&schedule, 0) == 0.5f && nets_schedule_rate(&schedule, 1) == 0.25f);
    schedule = (nets_schedule){.rate = 0.5f, .iterations = 2};
    assert_int_equal(nets_schedule_parse("constant", &schedule), MM_OK);
    assert_true(nets_schedule_rate(&schedule, 0) == 0.5f && nets_schedule_rate(&schedule, 5) == 0.5f);
    static const char *const bad[] = {"",
                                      "cos",
                                      "cosines",
                                      "cosine,warmup=",
                                      "cosine,warmup=-1",
                                      "cosine,warmup=2x",
                                      "cosine,cold=1",
                                      "constant,warmup=1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (nets_schedule_parse(bad[i], &schedule) != MM_ERR_INVALID) fail_msg("%s is read", bad[i]);
}

static void schedule_out_of_order_or_not_positive_is_refused(void **state) {
    (void)state;
    const nets_schedule bad[] = {
        {.rate = 0},
        {.rate = NAN},
        {.rate = 0.1f, .n = 1, .factor = -1},
        {.rate = 0.1f, .n = 2, .factor = 0.1f, .at = {5, 5}},
        {.rate = 0.1f, .n = NETS_SCHEDULE_STEPS + 1, .factor = 0.1f},
        {.id = NETS_SCHEDULE_COSINE, .rate = 0.1f, .warmup = 5, .iterations = 5},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(nets_schedule_check(&bad[i]), MM_ERR_INVALID);
}

static float *init_of(const nets_net *net, const char *name, uint64_t seed, int64_t *n_out) {
    int param = nets_net_find_param(net, name);
    assert_true(param >= 0);
    *n_out = nets_net_param(net, param)->elems;
    float *values = malloc((size_t)*n_out * sizeof *values);
    assert_non_null(values);
    nets_init_param(net, param, seed, 0, *n_out, values);
    return values;
}

static void moments(const float *values, int64_t n, double *mean_out, double *deviation_out) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += values[i];
    for (int64_t i = 0; i < n; i++) squares += (values[i] - sum / (double)n) * (values[i] - sum / (double)n);
    *mean_out = sum / (double)n;
    *deviation_out = sqrt(squares / (double)n);
}

static void initial_convolutions_are_kaiming_normal_by_fan_out(void **state) {
    (void)state;
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    int64_t n;
    double mean, deviation, expected = sqrt(2.0 / (64 * 9));
    float *values = init_of(net, "layer3.1.conv1.weight", 3, &n);
    assert_int_equal(n, 64 * 64 * 9);
    moments(values, n, &mean, &deviation);
    assert_true(fabs(mean) < 0.02 * expected && fabs(deviation - expected) < 0.02 * expected);
    free(values);
    values = init_of(net, "fc.weight", 3, &n);
    for (int64_t i = 0; i < n; i++) assert_true(fabsf(values[i]) <= 1.0f / 8);
    moments(values, n, &mean, &deviation);
    assert_true(fabs(deviation - 1 / (8 * sqrt(3.0))) < 0.1 / 8);
    free(values);
    values = init_of(net, "layer1.0.bn1.running_var", 3, &n);
    for (int64_t i = 0; i < n; i++) assert_true(values[i] == 1);
    free(values);
    values = init_of(net, "layer1.0.bn1.bias", 3, &n);
    for (int64_t i = 0; i < n; i++) assert_true(values[i] == 0);
    free(values);
    nets_net_destroy(net);
}

static void initial_values_in_parts_are_those_of_the_whole(void **state) {
    (void)state;
    static const char *const NAMES[] = {"layer3.1.conv1.weight", "fc.weight", "bn1.weight"};
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    for (int i = 0; i < 3; i++) {
        int64_t n;
        float *whole = init_of(net, NAMES[i], 3, &n), part[100];
        int param = nets_net_find_param(net, NAMES[i]);
        for (int64_t first = 0; first < n; first += 100) {
            int64_t some = n - first < 100 ? n - first : 100;
            nets_init_param(net, param, 3, first, some, part);
            assert_memory_equal(part, whole + first, (size_t)some * sizeof *part);
        }
        free(whole);
    }
    nets_net_destroy(net);
}

static void initial_values_depend_on_seed_and_name_alone(void **state) {
    (void)state;
    nets_net *small, *large;
    assert_int_equal(nets_zoo_build("resnet20", &small), MM_OK);
    assert_int_equal(nets_zoo_build("resnet32", &large), MM_OK);
    int64_t n;
    float *a = init_of(small, "layer2.1.conv2.weight", 1, &n), *same = init_of(large, "layer2.1.conv2.weight", 1, &n);
    float *seed = init_of(small, "layer2.1.conv2.weight", 2, &n),
          *name = init_of(small, "layer2.2.conv2.weight", 1, &n);
    size_t bytes = (size_t)n * sizeof *a;
    assert_memory_equal(a, same, bytes);
    assert_memory_not_equal(a, seed, bytes);
    assert_memory_not_equal(a, name, bytes);
    free(a);
    free(same);
    free(seed);
    free(name);
    nets_net_destroy(small);
    nets_net_destroy(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_follows_torch_for_three_steps),
        cmocka_unit_test(adamw_follows_its_paper_for_ten_steps),
        cmocka_unit_test(undecayed_parameters_are_updated_as_without_decay),
        cmocka_unit_test(plain_gradient_descent_needs_no_state),
        cmocka_unit_test(optimizers_are_read_as_they_are_told),
        cmocka_unit_test(a_loss_that_is_not_finite_halts_updates_if_asked),
        cmocka_unit_test(a_check_looks_at_what_it_is_given),
        cmocka_unit_test(an_update_in_parts_is_one_update),
        cmocka_unit_test(update_of_very_many_tensors),
        cmocka_unit_test(gradients_are_clipped_by_the_norm_of_all_of_them),
        cmocka_unit_test(schedule_steps_at_its_iterations),
        cmocka_unit_test(schedule_of_a_cosine_rises_and_falls),
        cmocka_unit_test(schedule_out_of_order_or_not_positive_is_refused),
        cmocka_unit_test(initial_convolutions_are_kaiming_normal_by_fan_out),
        cmocka_unit_test(initial_values_in_parts_are_those_of_the_whole),
        cmocka_unit_test(initial_values_depend_on_seed_and_name_alone),
    };
    OP_RIG_RUN(tests);
}
