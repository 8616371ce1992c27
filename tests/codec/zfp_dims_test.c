/* SPDX-License-Identifier: MIT */
/* The portable functions against libzfp: blocks of every number of dimensions, at every number of bits. */
#include <string.h>

#include "pipeline/codec/block/zfp_block.h"
#include "tests/codec/codec_data.h"
#include "tests/codec/zfp_reference.h"
#include "tests/core/test_case.h"

enum { CODE_BYTES = 4 * MM_ZFP_MOST_WORDS, FILL = 0x5a };

typedef struct block {
    float values[MM_ZFP_MOST_VALUES];
    uint32_t words[MM_ZFP_MOST_WORDS + MM_ZFP_PAD_WORDS];
} block;

static void encode(int dims, int maxbits, block *b) {
    memset(b->words, FILL, sizeof b->words);
    const int e = mm_zfp_exponent(b->values, dims);
    assert_true(e != MM_ZFP_NONFINITE);
    if (dims == 1)
        mm_zfp_block_encode(b->values, 1, e, maxbits, b->words);
    else if (dims == 2)
        mm_zfp_block_encode(b->values, 2, e, maxbits, b->words);
    else
        mm_zfp_block_encode(b->values, 3, e, maxbits, b->words);
}

static void decode(int dims, int maxbits, block *b) {
    memset(b->words + mm_zfp_words(maxbits), 0xff, MM_ZFP_PAD_WORDS * 4);
    if (dims == 1)
        mm_zfp_block_decode(b->words, 0, 1, maxbits, b->values);
    else if (dims == 2)
        mm_zfp_block_decode(b->words, 0, 2, maxbits, b->values);
    else
        mm_zfp_block_decode(b->words, 0, 3, maxbits, b->values);
}

static uint32_t reference_word(zfp_reference *reference, int j) {
    const uint8_t *bytes = zfp_reference_code(reference) + 4 * j;
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void check_decode(int dims, int maxbits, zfp_reference *reference, block *b) {
    float want[MM_ZFP_MOST_VALUES];
    zfp_reference_decode_block(reference, dims, want);
    for (int j = 0; j < mm_zfp_words(maxbits); j++) b->words[j] = reference_word(reference, j);
    decode(dims, maxbits, b);
    for (int i = 0; i < mm_zfp_values(dims); i++)
        if (memcmp(&b->values[i], &want[i], sizeof want[i]) != 0)
            fail_msg("dims %d, %d bits: value %d is %a, libzfp has %a", dims, maxbits, i, b->values[i], want[i]);
}

static void check_family(int dims, int maxbits, zfp_reference *reference, int family) {
    block b;
    codec_data_fill(b.values, mm_zfp_values(dims), (codec_family)family, (uint64_t)(64 * maxbits + family));
    zfp_reference_encode_block(reference, dims, b.values);
    encode(dims, maxbits, &b);
    for (int j = 0; j < mm_zfp_words(maxbits); j++)
        if (b.words[j] != reference_word(reference, j))
            fail_msg("dims %d, %d bits, family %d: word %d is %08x, libzfp has %08x", dims, maxbits, family, j,
                     b.words[j], reference_word(reference, j));
    assert_int_equal(b.words[mm_zfp_words(maxbits)], UINT32_C(0x01010101) * FILL);
    check_decode(dims, maxbits, reference, &b);
}

static void check_random_bits(int dims, int maxbits, zfp_reference *reference, uint64_t *random) {
    for (int density = 0; density < 4; density++) {
        uint8_t *code = zfp_reference_code(reference);
        block b;
        memset(code, 0, CODE_BYTES);
        for (int bit = 1; bit < maxbits; bit++)
            code[bit / 8] |= (uint8_t)((random_next(random) % 8 < (uint64_t)(1 + 2 * density)) << bit % 8);
        code[0] |= 1;
        check_decode(dims, maxbits, reference, &b);
    }
}

static void every_number_of_bits(int dims) {
    uint64_t random = codec_seed((uint64_t)dims);
    for (int maxbits = MM_ZFP_MIN_BITS; maxbits <= MM_ZFP_BITS_PER_VALUE * mm_zfp_values(dims); maxbits++) {
        zfp_reference *reference = zfp_reference_create(maxbits, CODE_BYTES);
        for (int family = 0; family < FAMILIES; family++) check_family(dims, maxbits, reference, family);
        check_random_bits(dims, maxbits, reference, &random);
        zfp_reference_destroy(reference);
    }
}

TEST_CASE(blocks_of_4_are_libzfps) { every_number_of_bits(1); }

TEST_CASE(blocks_of_16_are_libzfps) { every_number_of_bits(2); }

TEST_CASE(blocks_of_64_are_libzfps) { every_number_of_bits(3); }

TEST_CASE(planes_of_4_are_decoded_to_what_was_encoded) {
    for (int first = 0; first <= 4; first++)
        for (uint32_t plane = 0; plane < 16; plane++) {
            uint32_t seen = mm_zfp_ones(first);
            int length = 0, n_read = first, length_read = 0;
            uint32_t code = mm_zfp_plane_encode(plane, 4, &seen, &length);
            assert_true(length >= 1 && length <= 7);
            code &= mm_zfp_ones(length);
            assert_int_equal(mm_zfp_plane_decode(code, 32, 4, &n_read, &length_read), plane);
            assert_int_equal(n_read, MM_LENGTH32(seen));
            assert_int_equal(length_read, length);
        }
}

/* Random planes with few and with many ones. */
TEST_CASE(planes_of_64_are_decoded_to_what_was_encoded) {
    uint64_t random = codec_seed(64);
    for (int first = 0; first <= 64; first++)
        for (int round = 0; round < 64; round++) {
            uint64_t plane = random_next(&random);
            for (int i = 0; i < round % 8; i++) plane &= random_next(&random);
            if (round < 8) plane |= (uint64_t)1 << (63 - round);
            uint32_t words[4 + MM_ZFP_PAD_WORDS] = {0};
            mm_zfp_writer out = mm_zfp_writer_make(words, 128);
            int n = first, n_read = first, position = 0;
            mm_zfp_plane_put(&out, plane, &n);
            const int length = out.position + out.fill;
            assert_true(length >= 1 && length <= 127);
            mm_zfp_finish(&out);
            assert_true(mm_zfp_plane_get(words, 128, &position, &n_read) == plane);
            assert_int_equal(n_read, n);
            assert_int_equal(position, length);
        }
}

TEST_CASE(classes_survive_where_they_fit_and_libzfp_reads_zeros) {
    const uint32_t specials[4] = {0x3f800000, 0x7f800000, 0xff800000, 0x7fc00000};
    for (int dims = 1; dims <= 3; dims++)
        for (int maxbits = MM_ZFP_MIN_BITS; maxbits <= MM_ZFP_BITS_PER_VALUE * mm_zfp_values(dims); maxbits += 5) {
            const int values = mm_zfp_values(dims), count = mm_zfp_words(maxbits);
            float value[MM_ZFP_MOST_VALUES], have[MM_ZFP_MOST_VALUES];
            uint32_t words[MM_ZFP_MOST_WORDS + MM_ZFP_PAD_WORDS] = {0};
            for (int i = 0; i < values; i++) value[i] = mm_float_of(specials[(i + maxbits) * 7 % 5 % 4]);
            value[values - 1] = mm_float_of(specials[3]);
            for (int j = 0; j < count; j++) words[j] = mm_zfp_nonfinite_word(value, dims, maxbits, j);
            if (maxbits % 32) assert_int_equal(words[count - 1] >> maxbits % 32, 0);
            assert_true(mm_zfp_is_nonfinite(words, dims));
            mm_zfp_nonfinite_decode(words, dims, maxbits, have);
            for (int i = 0; i < values; i++) {
                const uint32_t bits = mm_float_bits(value[i]);
                const uint32_t want = maxbits < 1 + 2 * values ? 0x7fc00000 : bits == specials[0] ? 0 : bits;
                assert_int_equal(mm_float_bits(have[i]), want);
            }
            zfp_reference *reference = zfp_reference_create(maxbits, CODE_BYTES);
            for (int i = 0; i < 4 * count; i++) zfp_reference_code(reference)[i] = (uint8_t)(words[i / 4] >> i % 4 * 8);
            zfp_reference_decode_block(reference, dims, have);
            for (int i = 0; i < values; i++) assert_true(have[i] == 0);
            zfp_reference_destroy(reference);
        }
}
