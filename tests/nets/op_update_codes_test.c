/* SPDX-License-Identifier: MIT */
/* Optimizer states in codes (nets/state_codes.h): the maps against a derivation of their own, the nearest code against
 * a search of all, and updates on each device against plain C, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/adamw.h"
#include "nets/state_encode.h"
#include "tests/nets/op_rig.h"

/* ---------------------------------------------------------------- the published map */

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The paper's dynamic tree map as bitsandbytes lists it: per exponent the means of neighbouring boundaries that divide
 * 0.1 .. 1 evenly, with both signs or, without signs, of twice as many; then 0 and 1; all sorted. */
static void list_published(bool with_sign, double map[NETS_STATE_CODES]) {
    int n = 0;
    for (int exponent = 0; exponent < 7; exponent++) {
        const int items = (1 << exponent) * (with_sign ? 1 : 2);
        for (int i = 0; i < items; i++) {
            const double low = 0.1 + 0.9 * i / items, high = 0.1 + 0.9 * (i + 1) / items;
            const double value = pow(10, exponent - 6) * (low + high) / 2;
            map[n++] = value;
            if (with_sign) map[n++] = -value;
        }
    }
    map[n++] = 0;
    map[n++] = 1;
    assert_int_equal(n, NETS_STATE_CODES);
    qsort(map, NETS_STATE_CODES, sizeof *map, compare);
}

static void maps_are_the_published_ones(void **state) {
    (void)state;
    nets_state_maps maps;
    nets_state_maps_make(&maps);
    for (int squares = 0; squares < 2; squares++) {
        double published[NETS_STATE_CODES];
        list_published(!squares, published);
        for (int c = 0; c < NETS_STATE_CODES; c++) assert_true(maps.of[squares].value[c] == (float)published[c]);
    }
    assert_true(maps.of[0].value[NETS_STATE_ZERO_SIGNED] == 0 && maps.of[1].value[NETS_STATE_ZERO_UNSIGNED] == 0);
}

/* ---------------------------------------------------------------- the nearest code */

/* Of all codes the nearest, of two the one nearer to zero. */
static int search(const float *value, float x) {
    int best = 0;
    for (int c = 1; c < NETS_STATE_CODES; c++) {
        const double off = fabs((double)value[c] - (double)x), least = fabs((double)value[best] - (double)x);
        if (off < least || (off == least && fabsf(value[c]) < fabsf(value[best]))) best = c;
    }
    return best;
}

static void expect_nearest(const nets_state_map *map, int squares, float x) {
    if (!(fabsf(x) <= 1) || (squares && x < 0)) return;
    const int code = nets_state_encode(map->above, squares, x, 1), nearest = search(map->value, x);
    if (code != nearest) fail_msg("map %d: %a has code %d, not %d", squares, (double)x, code, nearest);
}

/* At and beside the numbers, the middles between them, and all powers of two, and between these. */
static void the_nearest_code_is_taken(void **state) {
    (void)state;
    nets_state_maps maps;
    nets_state_maps_make(&maps);
    for (int squares = 0; squares < 2; squares++) {
        const nets_state_map *map = &maps.of[squares];
        for (int c = 0; c < NETS_STATE_CODES; c++) {
            const float next = c + 1 < NETS_STATE_CODES ? map->value[c + 1] : 1, middle = (map->value[c] + next) / 2;
            for (int i = -1; i <= 1; i++) {
                expect_nearest(map, squares, i ? nextafterf(map->value[c], (float)i) : map->value[c]);
                expect_nearest(map, squares, i ? nextafterf(middle, (float)(2 * i)) : middle);
            }
        }
        for (uint32_t bits = 0; bits < 0x3f800000; bits += 104729) {
            float x;
            memcpy(&x, &bits, sizeof x);
            expect_nearest(map, squares, x);
            expect_nearest(map, squares, -x);
        }
    }
}

static void codes_of_what_codes_stand_for_are_the_same(void **state) {
    (void)state;
    static const float ABSMAX[] = {1, 3.1415927f, 1e-30f, 1e30f};
    nets_state_maps maps;
    nets_state_maps_make(&maps);
    for (int i = 0; i < 4; i++)
        for (int squares = 0; squares < 2; squares++)
            for (int c = 0; c < NETS_STATE_CODES; c++) {
                const nets_state_map *map = &maps.of[squares];
                assert_int_equal(nets_state_encode(map->above, squares, map->value[c] * ABSMAX[i], ABSMAX[i]), c);
            }
}

/* ---------------------------------------------------------------- updates */

/* A parameter, with states in codes or in f32, and what it is to become. */
typedef struct coded {
    nets_update_param param, expected;
    float *gradient;
} coded;

static void *twin(const void *of, size_t bytes) {
    void *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, of, bytes);
}

static void start(op_rig *rig, coded *c, int64_t n, bool in_codes) {
    const size_t size = (size_t)n, blocks = (size_t)nets_state_blocks(n);
    float *weight = op_rig_alloc(rig, 4 * n);
    c->gradient = op_rig_alloc(rig, 4 * n);
    for (int64_t i = 0; i < n; i++) weight[i] = cosf((float)i);
    c->param = c->expected = (nets_update_param){.weight = weight,
                                                 .gradient = c->gradient,
                                                 .elems = n,
                                                 .decayed = n % 2 == 0,
                                                 .copy = n % 2 ? op_rig_alloc(rig, 2 * n) : NULL};
    c->expected.weight = twin(weight, size * 4);
    for (int k = 0; k < 2; k++) {
        if (!in_codes) {
            c->param.state[k] = op_rig_alloc(rig, 4 * n);
            c->expected.state[k] = twin(c->param.state[k], size * 4);
            continue;
        }
        c->param.codes[k] = op_rig_alloc(rig, n);
        c->param.absmax[k] = op_rig_alloc(rig, 4 * (int64_t)blocks);
        memset(c->param.codes[k], k ? NETS_STATE_ZERO_UNSIGNED : NETS_STATE_ZERO_SIGNED, size);
        c->expected.codes[k] = twin(c->param.codes[k], size);
        c->expected.absmax[k] = twin(c->param.absmax[k], blocks * 4);
    }
}

static void end(coded *c) {
    free(c->expected.weight);
    for (int k = 0; k < 2; k++) {
        free(c->expected.state[k]);
        free(c->expected.codes[k]);
        free(c->expected.absmax[k]);
    }
}

/* The update, element by element: states are decoded, moved, and encoded by a search of all codes. */
static void update_as_it_should_be(nets_update_param *p, const nets_state_maps *maps, nets_adamw_factors f,
                                   float clip) {
    float *both[2];
    for (int k = 0; k < 2; k++) both[k] = calloc((size_t)p->elems, sizeof *both[k]);
    assert_true(both[0] && both[1]);
    if (!p->decayed) f.decay = 0;
    for (int64_t i = 0; i < p->elems; i++) {
        float moments[2];
        for (int k = 0; k < 2; k++)
            moments[k] =
                p->codes[k] ? maps->of[k].value[p->codes[k][i]] * p->absmax[k][i / NETS_STATE_BLOCK] : p->state[k][i];
        p->weight[i] = nets_adamw_move(f, p->weight[i], clip * p->gradient[i], &moments[0], &moments[1]);
        for (int k = 0; k < 2; k++) both[k][i] = moments[k];
    }
    for (int k = 0; k < 2; k++) {
        for (int64_t b = 0; p->codes[k] && b < nets_state_blocks(p->elems); b++) {
            const int64_t from = b * NETS_STATE_BLOCK, to = from + NETS_STATE_BLOCK;
            float most = 0;
            for (int64_t i = from; i < to && i < p->elems; i++) most = fmaxf(most, fabsf(both[k][i]));
            p->absmax[k][b] = most;
            for (int64_t i = from; i < to && i < p->elems; i++)
                p->codes[k][i] = (uint8_t)search(maps->of[k].value, most > 0 ? both[k][i] / most : 0);
        }
        if (!p->codes[k]) memcpy(p->state[k], both[k], (size_t)p->elems * sizeof *both[k]);
        free(both[k]);
    }
}

static void expect_equal(const coded *c) {
    const size_t n = (size_t)c->param.elems, blocks = (size_t)nets_state_blocks(c->param.elems);
    assert_memory_equal(c->param.weight, c->expected.weight, 4 * n);
    for (int k = 0; k < 2; k++) {
        if (c->param.state[k]) assert_memory_equal(c->param.state[k], c->expected.state[k], 4 * n);
        if (!c->param.codes[k]) continue;
        assert_memory_equal(c->param.absmax[k], c->expected.absmax[k], 4 * blocks);
        assert_memory_equal(c->param.codes[k], c->expected.codes[k], n);
    }
    for (size_t i = 0; c->param.copy && i < n; i++) { /* rounded: at most half of bf16's last bit is lost */
        const uint32_t bits = (uint32_t)c->param.copy[i] << 16;
        float copy;
        memcpy(&copy, &bits, sizeof copy);
        assert_true(fabsf(copy - c->param.weight[i]) <= fabsf(c->param.weight[i]) / 256);
    }
}

/* Sizes are of several chunks of a GPU's blocks, no multiples of a vector, and of less than one block of codes. Of the
 * first a block of gradients stays 0, and averages of the last, short block shrink. Clipped and not; the third step is
 * halted. */
static void updates_have_the_bits_of_plain_c(void **state) {
    (void)state;
    enum { TENSORS = 4, STEPS = 4, LAST = 9 * NETS_STATE_BLOCK };
    static const int64_t ELEMS[TENSORS] = {LAST + 7, 4096, 1030, 501};
    op_rig rig;
    coded all[TENSORS];
    nets_update_param params[TENSORS];
    nets_optimizer optimizer;
    nets_state_maps maps;
    nets_state_maps_make(&maps);
    op_rig_open(&rig, NULL);
    assert_int_equal(nets_optimizer_parse("adamw,states=8bit,weight-decay=0.1", &optimizer), MM_OK);
    optimizer.only_finite = true;
    for (int t = 0; t < TENSORS; t++) {
        start(&rig, &all[t], ELEMS[t], t != 2);
        params[t] = all[t].param;
    }
    float *lr = op_rig_alloc(&rig, 4), *loss = op_rig_alloc(&rig, 4);
    uint32_t *rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof *rng), *count = op_rig_alloc(&rig, 4);
    *lr = 1e-2f;
    for (int step = 0; step < STEPS; step++) {
        double squares = 0;
        for (int t = 0; t < TENSORS; t++)
            for (int64_t i = 0; i < ELEMS[t]; i++) {
                const bool zero = i % 7 == 0 || (t == 0 && i / NETS_STATE_BLOCK == 3);
                all[t].gradient[i] = zero ? 0 : sinf((float)(i * (step + 1))) * powf(10, -(float)(i % 5));
                if (t == 0 && i >= LAST) all[t].gradient[i] = step % 2 ? -1 : 1;
                squares += (double)all[t].gradient[i] * (double)all[t].gradient[i];
            }
        const bool halts = step == 2;
        optimizer.clip_norm = step == 1 ? sqrt(squares) / 3 : 0;
        const float clip = step == 1 ? (float)(optimizer.clip_norm / (sqrt(squares) + 1e-6)) : 1;
        *loss = halts ? NAN : 1;
        const nets_update_args args = {.params = params,
                                       .n_params = TENSORS,
                                       .checks = true,
                                       .n_checked = TENSORS,
                                       .most = NETS_GRADIENT_MOST,
                                       .lr = lr,
                                       .loss = loss,
                                       .optimizer = optimizer,
                                       .rng = rng,
                                       .step = count};
        const nets_adamw_factors f = nets_adamw_factors_at(&optimizer, *count + 1, *lr);
        assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        for (int t = 0; t < TENSORS; t++) {
            if (!halts) update_as_it_should_be(&all[t].expected, &maps, f, clip);
            expect_equal(&all[t]);
        }
        assert_int_equal(rng[NETS_RNG_HALTED] != 0, halts);
        rng[NETS_RNG_HALTED] = 0;
    }
    assert_int_equal(*count, STEPS - 1);
    assert_true(all[0].param.absmax[0][3] == 0 && all[0].param.absmax[0][2] > 0);
    for (int t = 0; t < TENSORS; t++) end(&all[t]);
    op_rig_fini(&rig);
}

/* So many parameters that a GPU needs two launches; every tenth has no codes. A half is decayed. */
static void updates_of_very_many_parameters(void **state) {
    (void)state;
    enum { TENSORS = 500, ELEMS = 5 };
    op_rig rig;
    coded all[TENSORS];
    nets_update_param params[TENSORS];
    nets_optimizer optimizer;
    nets_state_maps maps;
    nets_state_maps_make(&maps);
    op_rig_open(&rig, NULL);
    assert_int_equal(nets_optimizer_parse("adamw,states=8bit", &optimizer), MM_OK);
    float *memory = op_rig_alloc(&rig, (int64_t)TENSORS * 512), *lr = op_rig_alloc(&rig, 4);
    uint32_t *rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof *rng), *count = op_rig_alloc(&rig, 4);
    *lr = 1e-2f;
    for (int t = 0; t < TENSORS; t++) {
        float *at = memory + 128 * t; /* weight, gradient, states or codes, absmax: 16 floats each */
        for (int i = 0; i < ELEMS; i++) at[i] = 1, at[16 + i] = sinf((float)(t + i));
        params[t] = (nets_update_param){.weight = at, .gradient = at + 16, .elems = ELEMS, .decayed = t % 2 == 0};
        for (int k = 0; k < 2; k++) {
            if (t % 10 == 0) {
                params[t].state[k] = at + 32 + 16 * k;
                continue;
            }
            params[t].codes[k] = (uint8_t *)(at + 32 + 16 * k);
            params[t].absmax[k] = at + 64 + 16 * k;
            memset(params[t].codes[k], k ? 0 : NETS_STATE_ZERO_SIGNED, ELEMS);
        }
        all[t].param = all[t].expected = params[t];
        all[t].expected.weight = twin(at, 4 * ELEMS);
        for (int k = 0; k < 2; k++) {
            if (params[t].state[k]) all[t].expected.state[k] = twin(params[t].state[k], 4 * ELEMS);
            if (params[t].codes[k]) all[t].expected.codes[k] = twin(params[t].codes[k], ELEMS);
            if (params[t].codes[k]) all[t].expected.absmax[k] = twin(params[t].absmax[k], 4);
        }
    }
    const nets_update_args args = {
        .params = params, .n_params = TENSORS, .lr = lr, .optimizer = optimizer, .rng = rng, .step = count};
    const nets_adamw_factors f = nets_adamw_factors_at(&optimizer, 1, *lr);
    assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
    assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    for (int t = 0; t < TENSORS; t++) {
        update_as_it_should_be(&all[t].expected, &maps, f, 1);
        expect_equal(&all[t]);
        end(&all[t]);
    }
    assert_int_equal(*count, 1);
    op_rig_fini(&rig);
}

/* A NaN makes its block NaN, so that it shows, and no other. */
static void a_nan_shows_in_its_block(void **state) {
    (void)state;
    enum { ELEMS = 2 * NETS_STATE_BLOCK };
    op_rig rig;
    coded c;
    nets_optimizer optimizer;
    op_rig_open(&rig, NULL);
    assert_int_equal(nets_optimizer_parse("adamw,states=8bit", &optimizer), MM_OK);
    start(&rig, &c, ELEMS, true);
    float *lr = op_rig_alloc(&rig, 4);
    uint32_t *rng = op_rig_alloc(&rig, NETS_RNG_WORDS * sizeof *rng), *count = op_rig_alloc(&rig, 4);
    *lr = 1e-2f;
    for (int i = 0; i < ELEMS; i++) c.gradient[i] = 1;
    c.gradient[5] = NAN;
    const nets_update_args args = {
        .params = &c.param, .n_params = 1, .lr = lr, .optimizer = optimizer, .rng = rng, .step = count};
    for (int step = 0; step < 2; step++) {
        assert_int_equal(rig.backend->ops->update(rig.backend, &args, rig.stream), MM_OK);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
        c.gradient[5] = 1;
    }
    for (int i = 0; i < ELEMS; i++) assert_int_equal(isnan(c.param.weight[i]), i < NETS_STATE_BLOCK);
    end(&c);
    op_rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_the_published_ones),
        cmocka_unit_test(the_nearest_code_is_taken),
        cmocka_unit_test(codes_of_what_codes_stand_for_are_the_same),
        cmocka_unit_test(updates_have_the_bits_of_plain_c),
        cmocka_unit_test(updates_of_very_many_parameters),
        cmocka_unit_test(a_nan_shows_in_its_block),
    };
    OP_RIG_RUN(tests);
}
