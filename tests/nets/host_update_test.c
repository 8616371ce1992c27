/* SPDX-License-Identifier: MIT */
/* Updates on the CPU (simd_update.h, nets_backend_ops.update_now): every instruction set and number of threads gives
 * the bits of the formula in plain C, element by element. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/philox.h"
#include "nets/bf16.h"
#include "nets/contract/op.h"
#include "nets/host/simd_update.h"
#include "nets/rng.h"
#include "nets/role.h"
#include "tests/core/test_case.h"

enum { MOST = 20011, ARRAYS = 4 }; /* the last: above two blocks of an update, and no multiple of anything */

typedef struct values {
    float weight[MOST], state[NETS_OPTIMIZER_STATES][MOST], gradient[MOST];
    uint16_t copy[MOST];
} values;

static const char *const SPECS[] = {"sgd,momentum=0.9,weight-decay=0.01", "sgd,momentum=0,weight-decay=0.01",
                                    "adamw,weight-decay=0.1,eps=1e-6"};
enum { N_SPECS = sizeof SPECS / sizeof *SPECS, STEPS = 3 };
static const float CLIP = 0.7f, LR = 0.03f;

static void fill(values *v) {
    static const float ODD[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MIN / 8, 0.0f, -0.0f, 1e-38f};
    float *const arrays[ARRAYS] = {v->weight, v->state[0], v->state[1], v->gradient};
    memset(v, 0, sizeof *v);
    for (int a = 0; a < ARRAYS; a++)
        for (uint32_t i = 0; i < MOST; i++) {
            const uint32_t key[2] = {(uint32_t)a, 7}, counter[4] = {i, 0, 0, 0};
            uint32_t words[4];
            mm_philox(key, counter, words);
            const float x = (float)((double)words[0] / 2147483648.0 - 1.0) * (words[1] % 5 ? 1.0f : 1e-9f);
            arrays[a][i] = arrays[a] == v->state[1] ? fabsf(x) : x; /* an average of squares */
        }
    for (int i = 0; i < (int)(sizeof ODD / sizeof *ODD); i++) v->gradient[100 + 37 * i] = ODD[i];
}

/* The formulas, written down for one element after the other. */
static void move_plainly(values *v, const nets_optimizer *o, int64_t n, float clip, uint32_t t) {
    const nets_adamw_factors f = nets_adamw_factors_at(o, t, LR);
    const float decay = (float)o->weight_decay, keep = (float)o->momentum;
    for (int64_t i = 0; i < n; i++) {
        const float g = clip * v->gradient[i], w = v->weight[i];
        if (o->id == NETS_ADAMW) {
            v->weight[i] = nets_adamw_move(f, w, g, &v->state[0][i], &v->state[1][i]);
        } else if (o->id == NETS_SGD) {
            v->state[0][i] = keep * v->state[0][i] + (g + decay * w);
            v->weight[i] = w - LR * v->state[0][i];
        } else
            v->weight[i] = w - LR * (g + decay * w);
        uint32_t bits;
        memcpy(&bits, &v->weight[i], sizeof bits);
        v->copy[i] = nets_bf16_of(bits);
    }
}

static void move(const nets_simd_update *simd, values *v, const nets_optimizer *o, int64_t n, uint32_t t) {
    const nets_simd_move by = {.clip = CLIP,
                               .lr = LR,
                               .keep = (float)o->momentum,
                               .decay = (float)o->weight_decay,
                               .adamw = nets_adamw_factors_at(o, t, LR)};
    simd->move[o->id](&by, v->weight, (float *const[]){v->state[0], v->state[1]}, v->gradient, n);
    simd->copy(v->weight, n, v->copy);
}

static void check_loops(const nets_simd_update *simd, int spec, int64_t n) {
    values *made = malloc(sizeof *made), *expected = malloc(sizeof *expected);
    nets_optimizer o;
    assert_true(made && expected);
    assert_int_equal(nets_optimizer_parse(SPECS[spec], &o), MM_OK);
    fill(made);
    fill(expected);
    for (uint32_t t = 1; t <= STEPS; t++) {
        move(simd, made, &o, n, t);
        move_plainly(expected, &o, n, CLIP, t);
        assert_memory_equal(made, expected, sizeof *made); /* and nothing beyond n has changed */
    }
    free(made);
    free(expected);
}

TEST_CASE(loops_of_each_instruction_set_give_plain_bits_at_odd_sizes) {
    static const int64_t SIZES[] = {0, 1, 7, 8, 9, 31, 33, 1000, MOST};
    for (int s = 0; s < N_SPECS; s++)
        for (int n = 0; n < (int)(sizeof SIZES / sizeof *SIZES); n++) {
            check_loops(&nets_simd_update_portable, s, SIZES[n]);
            check_loops(nets_simd_update_best(), s, SIZES[n]);
        }
}

TEST_CASE(an_overflow_is_seen_at_each_place) {
    float g[19] = {0};
    for (int i = 0; i < 19; i++) {
        g[i] = i % 2 ? NAN : -2e30f;
        for (int n = 0; n <= 19; n++) {
            assert_int_equal(nets_simd_update_portable.overflows(g, n, 1e30f), n > i);
            assert_int_equal(nets_simd_update_best()->overflows(g, n, 1e30f), n > i);
        }
        g[i] = 1e30f;
    }
}

static void check_threads(int threads, int spec) {
    const nets_backend_config config = {.threads = threads};
    nets_backend *backend;
    values *made = malloc(sizeof *made), *expected = malloc(sizeof *expected);
    uint32_t rng[NETS_RNG_WORDS] = {0}, step = 0;
    const float lr = LR;
    assert_true(made && expected);
    assert_int_equal(nets_backend_open("host", &config, &backend), MM_OK);
    fill(made);
    fill(expected);
    /* Two parameters: a small one, and the rest; threads get parts of both. */
    enum { FIRST = 13 };
    const nets_update_param params[2] = {{.weight = made->weight,
                                          .state = {made->state[0], made->state[1]},
                                          .gradient = made->gradient,
                                          .elems = FIRST,
                                          .decayed = true,
                                          .copy = made->copy},
                                         {.weight = made->weight + FIRST,
                                          .state = {made->state[0] + FIRST, made->state[1] + FIRST},
                                          .gradient = made->gradient + FIRST,
                                          .elems = MOST - FIRST,
                                          .decayed = true,
                                          .copy = made->copy + FIRST}};
    nets_update_args args = {.params = params, .n_params = 2, .lr = &lr, .rng = rng, .step = &step};
    assert_int_equal(nets_optimizer_parse(SPECS[spec], &args.optimizer), MM_OK);
    for (uint32_t t = 1; t <= STEPS; t++) {
        assert_int_equal(backend->ops->update_now(backend, &args), MM_OK);
        move_plainly(expected, &args.optimizer, MOST, 1, t);
        assert_memory_equal(made, expected, sizeof *made);
        assert_int_equal(step, t);
        assert_int_equal(rng[2], t);
    }
    nets_backend_close(backend);
    free(made);
    free(expected);
}

TEST_CASE(any_number_of_threads_gives_plain_bits) {
    for (int threads = 1; threads <= 4; threads++)
        for (int s = 0; s < N_SPECS; s++) check_threads(threads, s);
}
