/* SPDX-License-Identifier: MIT */
/* The codec group: against its definition, computed in doubles; the mean of many iterations against the map; and
 * what its random numbers depend on. (codec_packed_test.c and codec_cuda_test.c check that all kernels give the same
 * bits.) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/device/host/device_host.h"
#include "pipeline/codec/codec.h"
#include "pipeline/codec/packed/group_code.h"
#include "tests/codec/codec_data.h"

enum { MOST = 3 * MM_GROUP_PACK, CODE_MOST = 3 * (MM_GROUP_HEADS + 2 * MM_GROUP_BYTES(8)) };

static const int widths[] = {2, 4, 8};
enum { WIDTHS = sizeof widths / sizeof *widths };

typedef struct fixture {
    mm_device *device;
    mm_stream *stream;
    mm_codec *codec[WIDTHS], *seeded;
    mm_codec_counters counters;
} fixture;

static int setup(void **state) {
    static fixture f;
    f = (fixture){.counters = {0}};
    assert_int_equal(mm_device_host_create(NULL, &f.device), MM_OK);
    assert_int_equal(mm_stream_create(f.device, "group", 0, &f.stream), MM_OK);
    for (int w = 0; w < WIDTHS; w++) {
        char spec[32];
        snprintf(spec, sizeof spec, "group:bits=%d", widths[w]);
        assert_int_equal(mm_codec_create(spec, "host", &f.codec[w]), MM_OK);
    }
    assert_int_equal(mm_codec_create("group:bits=4,seed=7", "host", &f.seeded), MM_OK);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    for (int w = 0; w < WIDTHS; w++) mm_codec_destroy(f->codec[w]);
    mm_codec_destroy(f->seeded);
    mm_stream_destroy(f->stream);
    mm_device_destroy(f->device);
    return 0;
}

static mm_shape flat(int64_t elems) { return (mm_shape){MM_F32, 1, {elems, 1, 1, 1}}; }

static void run(fixture *f, const mm_codec *codec, const float *src, int64_t elems, const mm_code_inputs *inputs,
                uint8_t *code, float *back) {
    const mm_shape shape = flat(elems);
    if (src) assert_int_equal(mm_codec_encode(codec, f->stream, &shape, src, code, NULL, inputs, &f->counters), MM_OK);
    if (back) assert_int_equal(mm_codec_decode(codec, f->stream, &shape, code, back, NULL, NULL, NULL), MM_OK);
    assert_int_equal(mm_stream_sync(f->stream), MM_OK);
}

static double half_value(uint32_t half) {
    const int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
    const double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return half >> 15 ? -size : size;
}

/* The next half above or below this one, which is neither zero nor the largest. */
static double half_beside(uint32_t half, bool above) {
    return half_value(above == (half >> 15 == 0) ? half + 1 : half - 1);
}

static double within(double value) { return fmax(-65504, fmin(65504, value)); }

static uint32_t half_at(const uint8_t *code, int bits, int group, int which) {
    const uint8_t *pack = code + group / 2 * (MM_GROUP_HEADS + 2 * MM_GROUP_BYTES(bits));
    uint16_t half;
    memcpy(&half, pack + group % 2 * 4 + which * 2, sizeof half);
    return half;
}

static uint32_t level_at(const uint8_t *code, int bits, int e) {
    const int lane = e % 32, k = e % MM_GROUP / 32, width = bits == 2 ? 16 : 32;
    const int bit = k * bits / width * width * 32 + lane * width + k * bits % width;
    const uint8_t *pack = code + e / MM_GROUP_PACK * (MM_GROUP_HEADS + 2 * MM_GROUP_BYTES(bits));
    const uint8_t *codes = pack + MM_GROUP_HEADS + e / MM_GROUP % 2 * MM_GROUP_BYTES(bits);
    return (uint32_t)codes[bit / 8] >> bit % 8 & ((1u << bits) - 1);
}

/* Checks a group's code by group_code.h: the ranges of its scale and minimum, and its elements' levels. */
static void check_group(const float *src, int n, const float *back, const uint8_t *code, int bits, int group) {
    const uint32_t scale_half = half_at(code, bits, group, 0), minimum_half = half_at(code, bits, group, 1);
    const double scale = half_value(scale_half), minimum = half_value(minimum_half), levels = (1 << bits) - 1;
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < n; i++) {
        least = fmin(least, within((double)src[i]));
        most = fmax(most, within((double)src[i]));
    }
    const double spread = most - minimum, slack = 1 - 0x1p-22; /* sums and products are floats */
    assert_true(minimum <= least);
    if (minimum_half % 0x8000) assert_true(half_beside(minimum_half, true) > least);
    assert_true(scale * levels >= spread * slack);
    if (scale_half > 1) assert_true(half_beside(scale_half, false) * levels * slack <= spread);
    assert_true(spread > 0 || scale == 0);
    for (int i = 0; i < n; i++) {
        const double place = scale > 0 ? (within((double)src[i]) - minimum) / scale : 0;
        const double level = level_at(code, bits, group * MM_GROUP + i), off = fmax(place, levels) * 0x1p-16;
        if (level < floor(place - off) || level > ceil(place + off))
            fail_msg("%d bits: %a of place %g has the level %g", bits, (double)src[i], place, level);
        assert_true((double)back[i] == (double)(float)(minimum + level * scale));
    }
}

static void check_map(fixture *f, int w, const float *src, int elems) {
    uint8_t code[CODE_MOST];
    float back[MOST];
    run(f, f->codec[w], src, elems, NULL, code, back);
    for (int g = 0; g * MM_GROUP < elems; g++) {
        const int from = g * MM_GROUP, n = elems - from < MM_GROUP ? elems - from : MM_GROUP;
        check_group(src + from, n, back + from, code, widths[w], g);
    }
}

static void each_element_becomes_one_of_the_two_nearest_levels(void **state) {
    fixture *f = *state;
    static const int lengths[] = {1, 31, 32, 255, 256, 257, 511, 512, 513, 1003, MOST};
    const float scales[] = {1, 1e-3f, 1e-9f, 1e-30f, 3e4f, 1e9f, 1e38f};
    float src[MOST];
    for (int w = 0; w < WIDTHS; w++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (int family = 0; family < FAMILIES; family++)
                for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
                    codec_data_fill(src, MOST, (codec_family)family, (uint64_t)family + l);
                    for (int i = 0; i < MOST; i++) {
                        src[i] *= scales[s];
                        if (!isfinite(src[i])) src[i] = i % 2 ? 3e38f : -1;
                    }
                    check_map(f, w, src, lengths[l]);
                }
    assert_int_equal(f->counters.nonfinite_blocks, 0);
}

static void what_is_a_level_stays_what_it_is(void **state) {
    fixture *f = *state;
    for (int w = 0; w < WIDTHS; w++) {
        const int levels = (1 << widths[w]) - 1;
        uint8_t code[CODE_MOST];
        float src[MOST], back[MOST];
        for (int i = 0; i < MOST; i++) src[i] = i < 256 ? 0.25f * (float)(i % (levels + 1)) : i < 512 ? -7.5f : 0;
        for (int64_t iteration = 0; iteration < 20; iteration++) {
            run(f, f->codec[w], src, MOST, &(mm_code_inputs){.iteration = &iteration}, code, back);
            assert_memory_equal(src, back, sizeof src);
        }
        codec_data_fill(src, MOST, FAMILY_RELU, 3);
        run(f, f->codec[w], src, MOST, NULL, code, back);
        for (int i = 0; i < MOST; i++)
            if (src[i] == 0) assert_true(back[i] == 0);
    }
}

/* Checks that the mean of what is decoded is the element, within a few standard errors: for each element alone, and for
 * all together. The latter shows errors of a small part of a level, as of a minimum or a scale that cuts off ends. */
static void check_mean(fixture *f, int w, const float *src, int64_t iterations) {
    enum { ELEMS = 2 * MM_GROUP_PACK };
    static double sum[ELEMS];
    uint8_t code[CODE_MOST];
    float back[ELEMS];
    memset(sum, 0, sizeof sum);
    for (int64_t iteration = 0; iteration < iterations; iteration++) {
        const mm_code_inputs inputs = {.iteration = &iteration, .tensor = 5};
        run(f, f->codec[w], src, ELEMS, &inputs, code, back);
        for (int i = 0; i < ELEMS; i++) sum[i] += (double)back[i] - (double)src[i];
    }
    double bias = 0, variance = 0, most = 0;
    for (int i = 0; i < ELEMS; i++) {
        const double scale = half_value(half_at(code, widths[w], i / MM_GROUP, 0));
        const double place = ((double)src[i] - half_value(half_at(code, widths[w], i / MM_GROUP, 1))) / scale;
        const double above = place - floor(place), error = sum[i] / (double)iterations / scale; /* in levels */
        const double own = above * (1 - above) / (double)iterations;
        if (fabs(error) > 5 * sqrt(own) + 1e-4)
            fail_msg("%d bits: the mean of %a is off by %g levels, standard error %g", widths[w], (double)src[i], error,
                     sqrt(own));
        bias += error;
        variance += own;
        most = fmax(most, own);
    }
    assert_true(most > 0.2 / (double)iterations); /* something was rounded */
    if (fabs(bias) > 4 * sqrt(variance))
        fail_msg("%d bits: together off by %g levels, standard error %g", widths[w], bias, sqrt(variance));
}

static void the_mean_over_iterations_is_the_element(void **state) {
    fixture *f = *state;
    for (int w = 0; w < WIDTHS; w++)
        for (int offset = 0; offset < 3; offset++) {
            static const float add[] = {0, 0.7f, -1000.3f}; /* give minimums that no binary16 is equal to */
            float src[2 * MM_GROUP_PACK];
            codec_data_fill(src, 2 * MM_GROUP_PACK, offset ? FAMILY_UNIFORM : FAMILY_SMOOTH, (uint64_t)w);
            for (int i = 0; i < 2 * MM_GROUP_PACK; i++) src[i] = src[i] * 3.1f + add[offset];
            check_mean(f, w, src, 1500);
        }
}

static int differing(const uint8_t *a, const uint8_t *b, int elems) {
    int n = 0;
    for (int e = 0; e < elems; e++) n += level_at(a, 4, e) != level_at(b, 4, e);
    return n;
}

static void random_numbers_hang_on_seed_iteration_tensor_and_element_alone(void **state) {
    fixture *f = *state;
    const int64_t zero = 0, one = 1, far = INT64_C(1) << 32;
    const struct {
        const mm_codec *codec;
        mm_code_inputs inputs;
    } others[] = {{f->codec[1], {.iteration = &one}},
                  {f->codec[1], {.iteration = &far}},
                  {f->codec[1], {.tensor = 1}},
                  {f->codec[1], {.first = MM_GROUP_PACK}},
                  {f->codec[1], {.first = (int64_t)MM_GROUP_PACK << 32}},
                  {f->seeded, {.tensor = 0}}};
    float src[MOST];
    uint8_t code[CODE_MOST], other[CODE_MOST];
    for (int i = 0; i < MOST; i++) src[i] = i % 256 == 0 ? 0 : i % 256 == 1 ? 15 : 6.5f;
    run(f, f->codec[1], src, MOST, NULL, code, NULL);
    run(f, f->codec[1], src, MOST, &(mm_code_inputs){.iteration = &zero}, other, NULL);
    assert_int_equal(differing(code, other, MOST), 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        run(f, others[i].codec, src, MOST, &others[i].inputs, other, NULL);
        assert_in_range(differing(code, other, MOST), 600, 900); /* half of the elements, 762 */
    }
    for (int g = 1; g < MOST / MM_GROUP; g++) { /* different groups have different random numbers */
        int same = 0;
        for (int e = 0; e < MM_GROUP; e++) same += level_at(code, 4, e) == level_at(code, 4, g * MM_GROUP + e);
        assert_in_range(same, 90, 170);
    }
}

static void pieces_are_parts_of_the_whole(void **state) {
    fixture *f = *state;
    for (int w = 0; w < WIDTHS; w++) {
        const int pack = MM_GROUP_HEADS + 2 * MM_GROUP_BYTES(widths[w]);
        uint8_t code[CODE_MOST], part[CODE_MOST];
        float src[MOST];
        codec_data_fill(src, MOST, FAMILY_UNIFORM, 9);
        run(f, f->codec[w], src, MOST, NULL, code, NULL);
        for (int from = 0; from < 3; from++) {
            const mm_code_inputs inputs = {.first = from * MM_GROUP_PACK};
            run(f, f->codec[w], src + from * MM_GROUP_PACK, MOST - from * MM_GROUP_PACK, &inputs, part, NULL);
            assert_memory_equal(part, code + from * pack, (3 - from) * pack);
        }
    }
}

static void a_group_that_is_not_finite_reads_as_nan_and_is_counted(void **state) {
    fixture *f = *state;
    static const float specials[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (int w = 0; w < WIDTHS; w++)
        for (int place = 0; place < MM_GROUP; place += 15) {
            const int64_t before = f->counters.nonfinite_blocks;
            uint8_t code[CODE_MOST];
            float src[MOST], back[MOST];
            codec_data_fill(src, MOST, FAMILY_UNIFORM, (uint64_t)place);
            src[MM_GROUP + place] = specials[place % 4];
            src[4 * MM_GROUP + place] = specials[place / 4 % 4];
            run(f, f->codec[w], src, MOST, NULL, code, back);
            for (int i = 0; i < MOST; i++) {
                const bool lost = i / MM_GROUP == 1 || i / MM_GROUP == 4;
                if (!lost) assert_true(isfinite(back[i]));
                if (!lost) continue;
                assert_int_equal(mm_float_bits(back[i]), 0x7fc00000);
                assert_int_equal(level_at(code, widths[w], i), 0);
            }
            assert_int_equal(f->counters.nonfinite_blocks - before, 2);
        }
}

/* Any code can be decoded, even if no encoder makes it: scales and minimums that are not finite. */
static void any_code_is_read(void **state) {
    fixture *f = *state;
    for (int w = 0; w < WIDTHS; w++)
        for (uint32_t half = 0; half < 0x10000; half += 7) {
            uint8_t code[CODE_MOST];
            float back[MM_GROUP];
            memset(code, 0xff, sizeof code);
            const uint16_t halves[] = {(uint16_t)half, 0x3c00};
            memcpy(code, halves, sizeof halves);
            run(f, f->codec[w], NULL, MM_GROUP, NULL, code, back);
            const double want = half % 0x8000 < 0x7c00 ? 1 + ((1 << widths[w]) - 1) * fabs(half_value(half)) : NAN;
            for (int i = 0; i < MM_GROUP; i++)
                assert_true(isnan(want) ? isnan(back[i]) : (double)back[i] == (double)(float)want);
        }
}

/* An incomplete group is filled up with copies of the last element: zeros could widen the group's range. */
static void an_incomplete_group_is_filled_up_with_the_last_element(void **state) {
    fixture *f = *state;
    uint8_t code[CODE_MOST];
    float src[MM_GROUP_PACK], back[MM_GROUP_PACK];
    for (int n = 1; n < MM_GROUP_PACK; n += 37) {
        for (int i = 0; i < n; i++) src[i] = 100 + (float)(i % 4);
        run(f, f->codec[0], src, n, NULL, code, back);
        assert_memory_equal(src, back, n * sizeof *src);
        assert_true(half_value(half_at(code, 2, 0, 1)) == 100);
        assert_true(half_value(half_at(code, 2, 1, 1)) == (n <= MM_GROUP ? (double)src[n - 1] : 100));
    }
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(each_element_becomes_one_of_the_two_nearest_levels),
        CASE(what_is_a_level_stays_what_it_is),
        CASE(the_mean_over_iterations_is_the_element),
        CASE(random_numbers_hang_on_seed_iteration_tensor_and_element_alone),
        CASE(pieces_are_parts_of_the_whole),
        CASE(a_group_that_is_not_finite_reads_as_nan_and_is_counted),
        CASE(any_code_is_read),
        CASE(an_incomplete_group_is_filled_up_with_the_last_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
