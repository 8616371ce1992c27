/* SPDX-License-Identifier: MIT */
/* Every kernel against libzfp, block by block, at every number of bits. */
#include <string.h>

#include "pipeline/codec/zfp/zfp_group.h"
#include "tests/codec/codec_data.h"
#include "tests/codec/zfp_reference.h"
#include "tests/core/test_case.h"

enum { CODE_BYTES = MM_ZFP_MAX_BITS / 8 };

typedef struct group {
    mm_zfp_group_values values, decoded;
    mm_zfp_group_code code;
    uint8_t reference_code[MM_ZFP_GROUP][CODE_BYTES];
} group;

static uint32_t reference_word(const group *g, int lane, int j) {
    const uint8_t *bytes = g->reference_code[lane] + 4 * j;
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void get_block(const mm_zfp_group_values *values, int lane, float block[MM_ZFP_VALUES]) {
    for (int i = 0; i < MM_ZFP_VALUES; i++) block[i] = values->at[i][lane];
}

static void set_block(mm_zfp_group_values *values, int lane, const float block[MM_ZFP_VALUES]) {
    for (int i = 0; i < MM_ZFP_VALUES; i++) values->at[i][lane] = block[i];
}

static void put_reference_codes(group *g) {
    for (int l = 0; l < MM_ZFP_GROUP; l++)
        for (int j = 0; j < MM_ZFP_MAX_WORDS; j++) g->code.word[j][l] = reference_word(g, l, j);
}

static void assert_same_floats(const char *what, int maxbits, int lane, const float *have, const float *want) {
    if (memcmp(have, want, MM_ZFP_VALUES * sizeof *have) == 0) return;
    for (int i = 0; i < MM_ZFP_VALUES; i++)
        if (memcmp(&have[i], &want[i], sizeof *have) != 0)
            fail_msg("%s: %d bits, lane %d, value %d is %a, libzfp has %a", what, maxbits, lane, i, have[i], want[i]);
}

static void check_encode(const mm_zfp_kernel *kernel, int maxbits, group *g) {
    memset(&g->code, 0x5a, sizeof g->code);
    assert_int_equal(kernel->encode(&g->values, maxbits, &g->code), 0);
    for (int l = 0; l < MM_ZFP_GROUP; l++)
        for (int j = 0; j < mm_zfp_words(maxbits); j++)
            if (g->code.word[j][l] != reference_word(g, l, j))
                fail_msg("%s: %d bits, lane %d, word %d is %08x, libzfp has %08x", kernel->name, maxbits, l, j,
                         g->code.word[j][l], reference_word(g, l, j));
}

static void check_decode(const mm_zfp_kernel *kernel, int maxbits, zfp_reference *reference, group *g) {
    kernel->decode(&g->code, maxbits, &g->decoded);
    for (int l = 0; l < MM_ZFP_GROUP; l++) {
        float have[MM_ZFP_VALUES], want[MM_ZFP_VALUES];
        memcpy(zfp_reference_code(reference), g->reference_code[l], CODE_BYTES);
        zfp_reference_decode_block(reference, 2, want);
        get_block(&g->decoded, l, have);
        assert_same_floats(kernel->name, maxbits, l, have, want);
    }
}

static void make_blocks(zfp_reference *reference, int first_family, uint64_t seed, group *g) {
    for (int l = 0; l < MM_ZFP_GROUP; l++) {
        float block[MM_ZFP_VALUES];
        codec_data_fill(block, MM_ZFP_VALUES, (codec_family)((first_family + l) % FAMILIES), seed + (uint64_t)l);
        set_block(&g->values, l, block);
        zfp_reference_encode_block(reference, 2, block);
        memcpy(g->reference_code[l], zfp_reference_code(reference), CODE_BYTES);
    }
}

TEST_CASE(every_kernel_makes_and_reads_the_bits_of_libzfp_for_every_family) {
    for (int maxbits = MM_ZFP_MIN_BITS; maxbits <= MM_ZFP_MAX_BITS; maxbits++) {
        zfp_reference *reference = zfp_reference_create(maxbits, CODE_BYTES);
        for (int round = 0; round < FAMILIES; round++) {
            group g;
            make_blocks(reference, round, (uint64_t)(1000 * maxbits + 20 * round), &g);
            for (size_t k = 0; mm_zfp_kernel_usable(k); k++) {
                const mm_zfp_kernel *kernel = mm_zfp_kernel_usable(k);
                check_encode(kernel, maxbits, &g);
                put_reference_codes(&g);
                check_decode(kernel, maxbits, reference, &g);
            }
        }
        zfp_reference_destroy(reference);
    }
}

/* All lanes have blocks of one family, so that some lanes stop early, or all stop at once. */
TEST_CASE(every_kernel_makes_the_bits_of_libzfp_for_groups_of_one_family) {
    static const int bits[] = {9, 10, 16, 31, 32, 33, 48, 63, 64, 65, 96, 102, 127, 128, 129, 256, 511, 512};
    for (size_t b = 0; b < sizeof bits / sizeof bits[0]; b++) {
        zfp_reference *reference = zfp_reference_create(bits[b], CODE_BYTES);
        for (int family = 0; family < FAMILIES; family++) {
            group g;
            for (int l = 0; l < MM_ZFP_GROUP; l++) {
                float block[MM_ZFP_VALUES];
                codec_data_fill(block, MM_ZFP_VALUES, (codec_family)family, (uint64_t)(100 * l + 7));
                set_block(&g.values, l, block);
                zfp_reference_encode_block(reference, 2, block);
                memcpy(g.reference_code[l], zfp_reference_code(reference), CODE_BYTES);
            }
            for (size_t k = 0; mm_zfp_kernel_usable(k); k++) check_encode(mm_zfp_kernel_usable(k), bits[b], &g);
        }
        zfp_reference_destroy(reference);
    }
}

/* Codes that no encoder makes are read as libzfp reads them, cut off anywhere. */
TEST_CASE(every_kernel_reads_random_bits_as_libzfp_does) {
    uint64_t random = codec_seed(5);
    for (int maxbits = MM_ZFP_MIN_BITS; maxbits <= MM_ZFP_MAX_BITS; maxbits++) {
        zfp_reference *reference = zfp_reference_create(maxbits, CODE_BYTES);
        for (int density = 0; density < 4; density++) {
            group g = {0};
            for (int l = 0; l < MM_ZFP_GROUP; l++) {
                for (int bit = 1; bit < maxbits; bit++) {
                    const bool one = random_next(&random) % 8 < (uint64_t)(1 + 2 * density);
                    g.reference_code[l][bit / 8] |= (uint8_t)(one << bit % 8);
                }
                g.reference_code[l][0] |= 1;
            }
            put_reference_codes(&g);
            for (size_t k = 0; mm_zfp_kernel_usable(k); k++)
                check_decode(mm_zfp_kernel_usable(k), maxbits, reference, &g);
        }
        zfp_reference_destroy(reference);
    }
}

/* Every plane, with every n: its code must decode to it, with each kernel. */
TEST_CASE(a_plane_is_decoded_to_what_was_encoded) {
    for (int first = 0; first <= MM_ZFP_VALUES; first++)
        for (uint32_t plane = 0; plane < 1u << MM_ZFP_VALUES; plane++) {
            uint32_t seen = mm_zfp_ones(first);
            int length = 0, n_read = first, length_read = 0;
            uint32_t code = mm_zfp_plane_encode(plane, MM_ZFP_VALUES, &seen, &length);
            assert_true(length >= 1 && length <= 31);
            code &= mm_zfp_ones(length);
            assert_int_equal(mm_zfp_plane_decode(code, 32, MM_ZFP_VALUES, &n_read, &length_read), plane);
            assert_int_equal(n_read, MM_LENGTH32(seen));
            assert_int_equal(length_read, length);
            const uint32_t followed = code | UINT32_MAX << length;
            n_read = first;
            assert_int_equal(mm_zfp_plane_decode(followed, 32, MM_ZFP_VALUES, &n_read, &length_read), plane);
            assert_int_equal(length_read, length);
        }
}

TEST_CASE(a_transpose_twice_is_the_identity_and_moves_bit_j_of_word_i_to_bit_i_of_word_j) {
    uint64_t random = codec_seed(6);
    uint32_t words[8], moved[8];
    for (int i = 0; i < 8; i++) words[i] = (uint32_t)random_next(&random);
    memcpy(moved, words, sizeof moved);
    mm_zfp_transpose(moved);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            for (int byte = 0; byte < 32; byte += 8)
                assert_int_equal(words[i] >> (byte + j) & 1, moved[j] >> (byte + i) & 1);
    mm_zfp_transpose(moved);
    assert_memory_equal(moved, words, sizeof words);
}

TEST_CASE(planes_are_the_bits_of_negabinary_coefficients) {
    uint64_t random = codec_seed(7);
    uint32_t coefficients[MM_ZFP_VALUES], planes[8];
    for (int i = 0; i < MM_ZFP_VALUES; i++) coefficients[i] = (uint32_t)random_next(&random);
    for (int half = 0; half < 2; half++) {
        mm_zfp_halves(coefficients, 2, half, planes);
        mm_zfp_planes(2, planes);
        for (int j = 0; j < 16; j++)
            for (int i = 0; i < MM_ZFP_VALUES; i++) {
                const uint32_t negabinary = coefficients[i] ^ MM_ZFP_NEGABINARY;
                assert_int_equal(mm_zfp_plane(planes, j) >> i & 1, negabinary >> (16 * half + j) & 1);
            }
    }
}

TEST_CASE(every_kernel_names_exactly_the_blocks_that_are_not_finite) {
    static const uint32_t specials[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001};
    for (size_t s = 0; s < sizeof specials / sizeof specials[0]; s++)
        for (int lane = 0; lane < MM_ZFP_GROUP; lane++) {
            group g;
            codec_data_fill(&g.values.at[0][0], MM_ZFP_VALUES * MM_ZFP_GROUP, FAMILY_HUGE, s);
            g.values.at[(lane + 5) % MM_ZFP_VALUES][lane] = mm_float_of(specials[s]);
            g.values.at[0][(lane + 9) % MM_ZFP_GROUP] = mm_float_of(specials[s]);
            const uint32_t want = 1u << lane | 1u << (lane + 9) % MM_ZFP_GROUP;
            for (size_t k = 0; mm_zfp_kernel_usable(k); k++)
                assert_int_equal(mm_zfp_kernel_usable(k)->encode(&g.values, 64, &g.code), want);
        }
}

TEST_CASE(the_portable_kernel_is_usable_everywhere_and_the_last) {
    size_t n = 0;
    while (mm_zfp_kernel_usable(n)) n++;
    assert_true(n >= 1);
    assert_ptr_equal(mm_zfp_kernel_usable(n - 1), &mm_zfp_kernel_portable);
    for (size_t k = 0; k < n; k++) print_message("usable: %s\n", mm_zfp_kernel_usable(k)->name);
}
