/* SPDX-License-Identifier: MIT */
/* Codes of whole tensors: which blocks, in which order, where their bits are, and how blocks that are not finite are
 * coded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/codec/zfp/zfp_code.h"
#include "tests/codec/codec_data.h"
#include "tests/codec/zfp_reference.h"
#include "tests/core/test_case.h"

enum { GUARD = 64 };

static mm_shape nhwc(int64_t n, int64_t h, int64_t w, int64_t c) {
    return (mm_shape){.dtype = MM_F32, .rank = 4, .dims = {n, h, w, c}};
}

static mm_zfp_layout layout_in(mm_shape shape, int dims, bool channels_first, int maxbits) {
    mm_zfp_layout layout;
    assert_int_equal(mm_zfp_layout_make(&shape, dims, channels_first, maxbits, &layout), MM_OK);
    return layout;
}

static mm_zfp_layout layout_dims(mm_shape shape, int dims, int maxbits) {
    return layout_in(shape, dims, false, maxbits);
}

static mm_zfp_layout layout_of(mm_shape shape, int maxbits) { return layout_dims(shape, 2, maxbits); }

static int64_t elems_of(const mm_shape *shape) {
    int64_t elems = 1;
    for (int d = 0; d < shape->rank; d++) elems *= shape->dims[d];
    return elems;
}

/* Memory with a guard of `fill` bytes at either end, of which the middle is given; exact_free checks them. */
static uint8_t *guarded(int64_t bytes, int fill) {
    uint8_t *memory = malloc((size_t)bytes + 2 * GUARD);
    assert_non_null(memory);
    memset(memory, fill, (size_t)bytes + 2 * GUARD);
    return memory + GUARD;
}

static void guarded_free(uint8_t *middle, int64_t bytes, int fill) {
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(middle[i - GUARD], fill);
        assert_int_equal(middle[bytes + i], fill);
    }
    free(middle - GUARD);
}

static void check_against_libzfp(const mm_zfp_kernel *kernel, mm_shape shape, int dims, bool channels_first,
                                 int maxbits, codec_family family) {
    const mm_zfp_layout layout = layout_in(shape, dims, channels_first, maxbits);
    const int64_t elems = elems_of(&shape), bytes = 4 * elems;
    float *src = malloc((size_t)bytes), *want = malloc((size_t)bytes);
    assert_true(src && want);
    codec_data_fill(src, elems, family, (uint64_t)maxbits);

    zfp_reference *reference = zfp_reference_create(maxbits, layout.code_bytes);
    uint8_t *code = guarded(layout.code_bytes, 0xa5), *dst = guarded(bytes, 0xa5);
    zfp_reference_encode(reference, &layout, src);
    zfp_reference_decode(reference, &layout, want);

    assert_int_equal(mm_zfp_code_encode(kernel, &layout, src, code), 0);
    if (memcmp(code, zfp_reference_code(reference), (size_t)layout.code_bytes) != 0)
        fail_msg("%s: code of %lld x %lld x %lld x %lld, %s, dims %d, at %d bits, family %d, is not libzfp's",
                 kernel->name, (long long)shape.dims[0], (long long)shape.dims[1], (long long)shape.dims[2],
                 (long long)shape.dims[3], channels_first ? "NCHW" : "NHWC", dims, maxbits, family);
    mm_zfp_code_decode(kernel, &layout, code, (float *)(void *)dst);
    assert_memory_equal(dst, want, bytes);

    guarded_free(code, layout.code_bytes, 0xa5);
    guarded_free(dst, bytes, 0xa5);
    zfp_reference_destroy(reference);
    free(src);
    free(want);
}

static void each_kernel(mm_shape shape, bool channels_first, int maxbits, codec_family family) {
    for (size_t k = 0; mm_zfp_kernel_usable(k); k++)
        check_against_libzfp(mm_zfp_kernel_usable(k), shape, 2, channels_first, maxbits, family);
}

/* Checks the portable kernel, the only one for blocks of one and three dimensions. */
static void other_dims(mm_shape shape, bool channels_first, int maxbits, codec_family family) {
    for (int dims = 1; dims <= 3; dims += 2) {
        const int most = MM_ZFP_BITS_PER_VALUE * mm_zfp_values(dims), bits = maxbits < most ? maxbits : most;
        check_against_libzfp(&mm_zfp_kernel_portable, shape, dims, channels_first, bits, family);
    }
}

TEST_CASE(codes_are_those_of_libzfp_for_all_widths_heights_and_channel_counts) {
    static const int64_t sides[] = {1, 2, 3, 4, 5, 7, 8, 14, 28, 32}, channels[] = {1, 3, 16, 24, 33};
    static const int bits[] = {64, 9, 102, 33, 257};
    int round = 0;
    for (size_t w = 0; w < sizeof sides / sizeof sides[0]; w++)
        for (size_t h = 0; h < sizeof sides / sizeof sides[0]; h++)
            for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++, round++) {
                const mm_shape shape = nhwc(2, sides[h], sides[w], channels[c]);
                for (int channels_first = 0; channels_first < 2; channels_first++) {
                    each_kernel(shape, channels_first, bits[round % 5], (codec_family)(round % FAMILIES));
                    other_dims(shape, channels_first, bits[round % 5], (codec_family)(round % FAMILIES));
                }
            }
}

/* Blocks begin at every bit of a word, and codes end at every bit. */
TEST_CASE(codes_are_those_of_libzfp_at_every_number_of_bits) {
    for (int maxbits = MM_ZFP_MIN_BITS; maxbits <= MM_ZFP_MAX_BITS; maxbits++) {
        const bool channels_first = maxbits % 2;
        each_kernel(nhwc(1, 7, 6, 19), channels_first, maxbits, (codec_family)(maxbits % FAMILIES));
        each_kernel(nhwc(3, 4, 4, 1), channels_first, maxbits, FAMILY_SMOOTH);
        other_dims(nhwc(1, 7, 6, 9), channels_first, maxbits, (codec_family)(maxbits % FAMILIES));
    }
}

TEST_CASE(tensors_of_lower_rank_are_one_field) {
    const mm_shape shapes[] = {
        {.dtype = MM_F32, .rank = 1, .dims = {1, 1, 1, 1}},
        {.dtype = MM_F32, .rank = 1, .dims = {1003, 1, 1, 1}},
        {.dtype = MM_F32, .rank = 2, .dims = {33, 10, 1, 1}},
        {.dtype = MM_F32, .rank = 3, .dims = {5, 6, 7, 1}},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const mm_zfp_layout layout = layout_of(shapes[s], 64);
        assert_int_equal(layout.channels, 1);
        assert_int_equal(layout.columns * layout.rows, elems_of(&shapes[s]));
        for (int channels_first = 0; channels_first < 2; channels_first++) {
            each_kernel(shapes[s], channels_first, 64, FAMILY_UNIFORM);
            other_dims(shapes[s], channels_first, 64, FAMILY_UNIFORM);
        }
    }
    const mm_zfp_layout line = layout_dims(shapes[3], 1, 64), image = layout_dims(shapes[3], 3, 64);
    assert_true(line.columns == 210 && line.rows == 1 && line.channels == 1 && line.blocks == 53);
    const mm_zfp_layout planes = layout_in(shapes[3], 3, true, 64), one = layout_in(shapes[3], 2, true, 64);
    assert_true(planes.columns == 7 && planes.rows == 6 && planes.channels == 5 && planes.blocks == 8);
    assert_true(one.columns == 7 && one.rows == 30 && one.channels == 1);
    assert_true(image.columns == 6 && image.rows == 5 && image.channels == 7 && image.blocks == 8);
}

TEST_CASE(blocks_of_1_and_3_dims_are_counted) {
    const mm_zfp_layout line = layout_dims(nhwc(3, 7, 6, 5), 1, 10), cube = layout_dims(nhwc(3, 8, 6, 9), 3, 100);
    assert_true(line.blocks_x == 11 && line.blocks_y == 1 && line.blocks_c == 5 && line.blocks == 3 * 55);
    assert_int_equal(line.code_bytes, (3 * 55 * 10 + 63) / 64 * 8);
    assert_true(cube.blocks_x == 3 && cube.blocks_y == 1 && cube.blocks_c == 3 && cube.blocks == 27);
    assert_int_equal(cube.code_bytes, (2700 + 63) / 64 * 8);
}

TEST_CASE(planes_are_refolded_where_that_leaves_no_block_partial_in_width) {
    static const struct {
        int64_t height, width, columns, rows, blocks;
    } cases[] = {
        {32, 32, 32, 32, 64}, {14, 14, 28, 7, 14}, {7, 7, 7, 7, 4},   {28, 7, 28, 7, 14},
        {8, 1, 4, 2, 1},      {2, 2, 4, 1, 1},     {6, 10, 20, 3, 5}, {5, 6, 6, 5, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mm_zfp_layout layout = layout_of(nhwc(3, cases[i].height, cases[i].width, 5), 64);
        assert_int_equal(layout.columns, cases[i].columns);
        assert_int_equal(layout.rows, cases[i].rows);
        assert_int_equal(layout.blocks, 3 * 5 * cases[i].blocks);
        assert_int_equal(layout.code_bytes, 8 * layout.blocks);
    }
}

/* Block `number` of a code. */
static void block_bits(const uint8_t *code, int64_t number, int maxbits, uint8_t *bits_out) {
    for (int i = 0; i < maxbits; i++) {
        const int64_t at = number * maxbits + i;
        bits_out[i] = code[at / 8] >> at % 8 & 1;
    }
}

/* One map, stored in both orders, has the same code block for block, in the order that each layout defines, and is
 * decoded to the same values. */
TEST_CASE(channels_first_make_the_blocks_of_channels_last_in_another_order) {
    static const int64_t sides[][4] = {{2, 9, 8, 6}, {3, 14, 14, 5}, {1, 7, 7, 3}, {2, 4, 12, 9}, {1, 3, 2, 1}};
    static const int bits[] = {0, 19, 102, 300};
    for (size_t s = 0; s < sizeof sides / sizeof sides[0]; s++)
        for (int dims = 1; dims <= 3; dims++) {
            const int64_t n = sides[s][0], hw = sides[s][1] * sides[s][2], c = sides[s][3], elems = n * hw * c;
            const mm_shape last = nhwc(n, sides[s][1], sides[s][2], c);
            const mm_shape first = nhwc(n, c, sides[s][1], sides[s][2]);
            const mm_zfp_layout by_last = layout_in(last, dims, false, bits[dims]);
            const mm_zfp_layout by_first = layout_in(first, dims, true, bits[dims]);
            assert_int_equal(by_last.blocks, by_first.blocks);
            assert_int_equal(by_last.code_bytes, by_first.code_bytes);

            float *values = malloc((size_t)elems * 4), *moved = malloc((size_t)elems * 4);
            uint8_t *code = malloc((size_t)by_last.code_bytes), *moved_code = malloc((size_t)by_last.code_bytes);
            assert_true(values && moved && code && moved_code);
            codec_data_fill(values, elems, FAMILY_SMOOTH, s);
            for (int64_t i = 0; i < elems; i++) moved[(i / c / hw * c + i % c) * hw + i / c % hw] = values[i];
            mm_zfp_code_encode(mm_zfp_kernel_usable(0), &by_last, values, code);
            mm_zfp_code_encode(mm_zfp_kernel_usable(0), &by_first, moved, moved_code);

            const int64_t across = by_last.blocks_x * by_last.blocks_y, deep = by_last.blocks_c;
            for (int64_t b = 0; b < by_last.blocks; b++) {
                const int64_t there = (b / deep / across * deep + b % deep) * across + b / deep % across;
                uint8_t want[300], have[300];
                block_bits(code, b, bits[dims], want);
                block_bits(moved_code, there, bits[dims], have);
                assert_memory_equal(have, want, bits[dims]);
            }
            mm_zfp_code_decode(mm_zfp_kernel_usable(0), &by_last, code, values);
            mm_zfp_code_decode(mm_zfp_kernel_usable(0), &by_first, moved_code, moved);
            for (int64_t i = 0; i < elems; i++)
                assert_memory_equal(&moved[(i / c / hw * c + i % c) * hw + i / c % hw], &values[i], 4);
            free(values);
            free(moved);
            free(code);
            free(moved_code);
        }
}

/* The code of a block that is not finite has the classes of its values. libzfp decodes it to zeros, and the other
 * blocks as always. */
TEST_CASE(classes_survive_where_they_fit_and_libzfp_reads_zeros) {
    const mm_shape shape = nhwc(1, 8, 4, 19);
    for (int maxbits = MM_ZFP_CLASS_BITS; maxbits <= MM_ZFP_MAX_BITS; maxbits += 7) {
        const mm_zfp_layout layout = layout_of(shape, maxbits);
        const int64_t elems = elems_of(&shape);
        float *src = malloc((size_t)elems * 4), *have = malloc((size_t)elems * 4), *want = malloc((size_t)elems * 4);
        assert_true(src && have && want);
        codec_data_fill(src, elems, FAMILY_UNIFORM, 1);
        /* in the upper block of channel 3 */
        src[3] = INFINITY;
        src[5 * 19 + 3] = -INFINITY;
        src[15 * 19 + 3] = NAN;
        zfp_reference *reference = zfp_reference_create(maxbits, layout.code_bytes);
        for (size_t k = 0; mm_zfp_kernel_usable(k); k++) {
            const mm_zfp_kernel *kernel = mm_zfp_kernel_usable(k);
            assert_int_equal(mm_zfp_code_encode(kernel, &layout, src, zfp_reference_code(reference)), 1);
            mm_zfp_code_decode(kernel, &layout, zfp_reference_code(reference), have);
            zfp_reference_decode(reference, &layout, want);
            for (int i = 0; i < 16; i++) {
                const int64_t at = i * 19 + 3;
                assert_true(want[at] == 0);
                if (i == 15)
                    assert_true(isnan(have[at]));
                else
                    assert_true(have[at] == (i == 0 ? INFINITY : i == 5 ? -INFINITY : 0));
                want[at] = have[at];
            }
            assert_memory_equal(have, want, elems * 4);
        }
        zfp_reference_destroy(reference);
        free(src);
        free(have);
        free(want);
    }
}

TEST_CASE(a_block_too_short_for_classes_is_all_nan) {
    const mm_shape shape = nhwc(2, 4, 4, 9);
    const int64_t elems = elems_of(&shape);
    float src[2 * 16 * 9], have[2 * 16 * 9];
    for (int maxbits = MM_ZFP_MIN_BITS; maxbits < MM_ZFP_CLASS_BITS; maxbits++) {
        const mm_zfp_layout layout = layout_of(shape, maxbits);
        uint8_t *code = guarded(layout.code_bytes, 0x5a);
        codec_data_fill(src, elems, FAMILY_ZEROS, 2);
        src[7 * 9 + 8] = -INFINITY; /* in the ninth block; all others are zeros, and stay zeros */
        for (size_t k = 0; mm_zfp_kernel_usable(k); k++) {
            assert_int_equal(mm_zfp_code_encode(mm_zfp_kernel_usable(k), &layout, src, code), 1);
            mm_zfp_code_decode(mm_zfp_kernel_usable(k), &layout, code, have);
            for (int64_t i = 0; i < elems; i++) assert_true(i < 16 * 9 && i % 9 == 8 ? isnan(have[i]) : have[i] == 0);
        }
        guarded_free(code, layout.code_bytes, 0x5a);
    }
}

/* A partial block is filled up with its own values, so no value outside of it can make it not finite. */
TEST_CASE(partial_blocks_that_are_not_finite_restore_what_is_inside) {
    const mm_shape shape = nhwc(1, 5, 5, 2);
    const mm_zfp_layout layout = layout_of(shape, 64);
    assert_int_equal(layout.blocks, 8);
    float src[50], have[50];
    codec_data_fill(src, 50, FAMILY_UNIFORM, 3);
    src[24 * 2 + 1] = NAN;     /* the lower right corner, alone in its block */
    src[4 * 2 + 0] = INFINITY; /* the upper right corner, in a block of one column */
    uint8_t *code = guarded(layout.code_bytes, 0);
    for (size_t k = 0; mm_zfp_kernel_usable(k); k++) {
        assert_int_equal(mm_zfp_code_encode(mm_zfp_kernel_usable(k), &layout, src, code), 2);
        mm_zfp_code_decode(mm_zfp_kernel_usable(k), &layout, code, have);
        assert_true(isnan(have[24 * 2 + 1]) && have[4 * 2] == INFINITY);
        for (int y = 1; y < 4; y++) assert_true(have[(5 * y + 4) * 2] == 0);
        for (int i = 0; i < 50; i++) assert_true(isfinite(have[i]) || i == 24 * 2 + 1 || i == 4 * 2);
    }
    guarded_free(code, layout.code_bytes, 0);
}

/* As documented, and as in libzfp: of values below 2^-98 only the magnitude survives. */
TEST_CASE(blocks_below_the_scale_decode_to_something_as_small) {
    const mm_shape shape = nhwc(1, 4, 4, 16);
    const mm_zfp_layout layout = layout_of(shape, 128);
    float src[256], have[256];
    uint8_t *code = guarded(layout.code_bytes, 0);
    codec_data_fill(src, 256, FAMILY_TINY, 4);
    for (int i = 0; i < 256; i++) src[i] *= 0.1f;
    mm_zfp_code_encode(mm_zfp_kernel_usable(0), &layout, src, code);
    mm_zfp_code_decode(mm_zfp_kernel_usable(0), &layout, code, have);
    for (int i = 0; i < 256; i++) assert_true(fabsf(have[i]) <= 0x1p-95f);
    guarded_free(code, layout.code_bytes, 0);
}
