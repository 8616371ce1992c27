/* SPDX-License-Identifier: MIT */
/* Dropout, and the generator that replays it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/philox.h"
#include "tests/nets/op_rig.h"

static const int64_t X[4] = {4, 25, 25, 10};
static const float RATE = 0.3f;

static void start(op_rig *rig) {
    op_rig_init(rig, NETS_DROPOUT, &(nets_attrs){.p = RATE}, X, true, true);
    memcpy(rig->args.at[NETS_RNG], (const uint32_t[4]){12345, 678, 9, 0}, 16);
    rig->args.layer = 4;
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_X); i++)
        op_rig_floats(rig, NETS_X)[i] = op_rig_floats(rig, NETS_DY)[i] = 1.0f;
}

/* The published test vectors of Philox4x32-10 (Random123, kat_vectors). */
static void philox_gives_the_published_words(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        mm_philox(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void forward_drops_at_the_rate_and_scales_the_rest(void **state) {
    (void)state;
    op_rig rig;
    start(&rig);
    op_rig_run(&rig, MM_FORWARD);
    int64_t n = op_rig_elems(&rig, NETS_Y), zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        float y = op_rig_floats(&rig, NETS_Y)[i];
        zeros += y == 0;
        assert_true(y == 0 || fabsf(y - 1 / (1 - RATE)) < 1e-6f);
    }
    /* Four standard deviations of a binomial count; the numbers are fixed by the seed. */
    assert_true(fabs((double)zeros - (double)n * RATE) < 4 * sqrt((double)n * RATE * (1 - RATE)));
    op_rig_fini(&rig);
}

static void backward_replays_the_forwards_choices(void **state) {
    (void)state;
    op_rig rig;
    start(&rig);
    op_rig_run(&rig, MM_FORWARD);
    op_rig_run(&rig, MM_BACKWARD);
    assert_memory_equal(rig.storage[NETS_Y], rig.storage[NETS_DX], (size_t)rig.bytes[NETS_Y]);
    op_rig_fini(&rig);
}

static int64_t differences(const op_rig *a, const op_rig *b) {
    int64_t count = 0;
    for (int64_t i = 0; i < op_rig_elems(a, NETS_Y); i++)
        count += op_rig_floats(a, NETS_Y)[i] != op_rig_floats(b, NETS_Y)[i];
    return count;
}

static void seed_iteration_and_layer_each_change_the_choices(void **state) {
    (void)state;
    op_rig first, other;
    start(&first);
    op_rig_run(&first, MM_FORWARD);
    for (int what = 0; what < 3; what++) {
        start(&other);
        if (what == 0) ((uint32_t *)other.args.at[NETS_RNG])[1]++;
        if (what == 1) ((uint32_t *)other.args.at[NETS_RNG])[2]++;
        if (what == 2) other.args.layer++;
        op_rig_run(&other, MM_FORWARD);
        assert_true(differences(&first, &other) > op_rig_elems(&first, NETS_Y) / 4);
        op_rig_fini(&other);
    }
    op_rig_fini(&first);
}

/* Image i of the batch is dropped by word i, also where the batch is a later part of a whole one. */
static void samples_are_dropped_as_wholes_at_the_rate(void **state) {
    static const int64_t IMAGES[4] = {400, 1, 3, 3};
    bool dropped[400];
    (void)state;
    for (uint32_t first = 0; first <= 3; first += 3) {
        op_rig rig;
        int64_t zeros = 0;
        op_rig_init(&rig, NETS_DROPOUT, &(nets_attrs){.p = RATE, .by_sample = true}, IMAGES, true, true);
        memcpy(rig.args.at[NETS_RNG], (const uint32_t[4]){12345, 678, 9, 0}, 16);
        ((uint32_t *)rig.args.at[NETS_RNG])[NETS_RNG_IMAGE] = first;
        for (int64_t i = 0; i < op_rig_elems(&rig, NETS_X); i++) op_rig_floats(&rig, NETS_X)[i] = 1;
        op_rig_run(&rig, MM_FORWARD);
        for (int64_t i = 0; i < 400; i++) {
            const float *y = op_rig_floats(&rig, NETS_Y) + 9 * i;
            zeros += y[0] == 0;
            for (int k = 0; k < 9; k++) assert_true(y[k] == (y[0] == 0 ? 0 : 1 / (1 - RATE)));
            if (first == 0) dropped[i] = y[0] == 0;
            if (first > 0 && i + first < 400) assert_int_equal(dropped[i + first], y[0] == 0);
        }
        assert_true(fabs((double)zeros - 400 * (double)RATE) < 4 * sqrt(400 * (double)(RATE * (1 - RATE))));
        op_rig_fini(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(forward_drops_at_the_rate_and_scales_the_rest),
        cmocka_unit_test(backward_replays_the_forwards_choices),
        cmocka_unit_test(samples_are_dropped_as_wholes_at_the_rate),
        cmocka_unit_test(seed_iteration_and_layer_each_change_the_choices),
    };
    OP_RIG_RUN(tests);
}
