/* eb: the bound holds in float arithmetic for every bound and value, and chunks are bit for bit what eb_chunk.h says, by
 * a reference that computes in doubles and writes bit by bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/codec/eb_chunk.h"
#include "tests/codec/codec_data.h"

enum { CHUNK = 1024, DAMAGED = 8000 };

/* A product of floats, which a double has exactly, rounded once. */
static float product(float a, float b) { return (float)((double)a * (double)b); }

/* ---------------------------------------------------------------- values */

static void check_value(mm_eb_quantiser z, float x) {
    const uint32_t bits = mm_float_bits(x);
    if (mm_eb_is_below(z, bits)) {
        assert_true(fabsf(x) < z.bound);
        return;
    }
    assert_true(fabsf(x) >= z.bound);
    const uint32_t q = mm_eb_quantise(z, bits);
    if (q > MM_EB_Q_MOST) {
        assert_true(fabs((double)x) > (double)z.step * MM_EB_Q_MOST);
        return;
    }
    assert_true(q >= 1);
    assert_int_equal(q, (uint32_t)floor((double)(float)((double)product(fabsf(x), z.inverse) + 0.5)));
    const float back = mm_float_of(mm_eb_value(z, 2 * (q - 1) + (bits >> 31), true));
    if (!(fabs((double)x - (double)back) <= (double)z.bound))
        fail_msg("bound %a: %a comes back as %a", (double)z.bound, (double)x, (double)back);
    if (x > 0) assert_true(mm_float_of(mm_eb_value(z, q - 1, false)) == back);
}

/* Bounds of all exponents, and for each the values around every border between two of the quantiser's numbers, where errors are
 * largest. */
static void every_value_is_within_the_bound(void **state) {
    (void)state;
    uint64_t random = codec_seed(1);
    for (int exponent = -100; exponent <= 100; exponent++) {
        const bool all = exponent % 50 == 0;
        const float bound = exponent == -100  ? MM_EB_LEAST
                            : exponent == 100 ? MM_EB_MOST
                                              : ldexpf(1 + (float)(random_next(&random) >> 40) * 0x1p-24f, exponent);
        if (bound < MM_EB_LEAST || bound > MM_EB_MOST) continue;
        const mm_eb_quantiser z = mm_eb_quantiser_of(bound);
        assert_true(z.bound == bound && z.step == product(bound, 1.96875f) && isnormal(z.inverse));
        for (int q = 0; q < MM_EB_Q_MOST + 3; q += all ? 1 : 1 + (int)(random_next(&random) % 256)) {
            const float border = (float)(((double)q + 0.5) * (double)z.step);
            for (int ulp = -3; ulp <= 3; ulp++) {
                check_value(z, mm_float_of(mm_float_bits(border) + (uint32_t)ulp));
                check_value(z, mm_float_of((mm_float_bits(border) + (uint32_t)ulp) ^ 0x80000000));
            }
        }
        for (int other = 0; other < 255; other++)
            check_value(z, mm_float_of((uint32_t)other << 23 | (uint32_t)(random_next(&random) & 0x807fffff)));
        for (int ulp = -2; ulp <= 2; ulp++) check_value(z, mm_float_of(mm_float_bits(bound) + (uint32_t)ulp));
    }
}

static void what_is_no_bound_loses_nothing(void **state) {
    (void)state;
    const float bounds[] = {0, -0.0f, -1, NAN, INFINITY, 1e-31f, 1e31f, 1e-45f};
    const float src[8] = {1, 0, 0, 0, 0, 0, -0.0f, 1e-30f};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const mm_eb_quantiser z = mm_eb_quantiser_of(bounds[i]);
        uint32_t bits[8], words[8];
        memcpy(bits, src, sizeof bits);
        assert_true(z.bound == 0);
        assert_int_equal(mm_eb_encode(z, bits, 8, words), 8);
        for (int j = 0; j < 8; j++) assert_int_equal(mm_eb_raw(z, bits[j]), bits[j]);
        const uint32_t code[] = {1, 1, 0};
        assert_false(mm_eb_decode(z, code, 3, 8, words));
    }
}

/* ---------------------------------------------------------------- chunks */

static uint32_t *words_of(int n) {
    uint32_t *words = malloc((size_t)(n > 0 ? n : 1) * sizeof *words);
    assert_non_null(words);
    return words;
}

/* The code by its description; its words, or n. */
static int reference(float bound, const float *src, int n, uint32_t *words) {
    const float step = product(bound, 1.96875f), inverse = (float)(1.0 / (double)step);
    static uint32_t out[64 + 16 * 1024];
    int kept = 0, at[CHUNK], masks = 0, used;
    bool negatives = false;
    for (int i = 0; i < n; i++) {
        if (fabsf(src[i]) < bound) continue;
        if (!isfinite(src[i]) || floorf(product(fabsf(src[i]), inverse) + 0.5f) > 16384) return n;
        negatives |= src[i] < 0;
        at[kept++] = i;
    }
    if (kept == 0) return 0;
    memset(out, 0, sizeof out);
    for (int k = 0; k < kept; k++) {
        masks += !(out[0] >> at[k] / 32 & 1);
        out[0] |= 1u << at[k] / 32;
        out[masks] |= 1u << at[k] % 32;
    }
    const int groups = (kept + 31) / 32, nibbles = 1 + masks;
    out[nibbles] = negatives;
    used = nibbles + (1 + groups + 7) / 8;
    for (int g = 0, w; g < groups; g++, used += w) {
        w = 0;
        for (int k = 32 * g; k < kept && k < 32 * g + 32; k++) {
            const float x = src[at[k]];
            uint32_t u = (uint32_t)floorf(product(fabsf(x), inverse) + 0.5f) - 1;
            if (negatives) u = 2 * u + (x < 0);
            for (int b = 0; b < 15; b++)
                if (u >> b & 1) out[used + b] |= 1u << k % 32, w = b + 1 > w ? b + 1 : w;
        }
        out[nibbles + (1 + g) / 8] |= (uint32_t)w << (1 + g) % 8 * 4;
    }
    if (used >= n) return n;
    memcpy(words, out, (size_t)used * sizeof *words);
    return used;
}

static void check_chunk(float bound, const float *src, int n) {
    const mm_eb_quantiser z = mm_eb_quantiser_of(bound);
    uint32_t *want = words_of(n), *bits = words_of(n), *have = words_of(n);
    const int count = reference(bound, src, n, want);
    memcpy(bits, src, (size_t)n * sizeof *bits);
    assert_int_equal(mm_eb_encode(z, bits, n, have), count);
    if (count < n) {
        uint32_t *code = words_of(count), *back = words_of(n);
        if (count > 0) assert_memory_equal(have, want, (size_t)count * sizeof *want);
        memcpy(code, have, (size_t)count * sizeof *code);
        assert_true(mm_eb_decode(z, code, count, n, back));
        for (int i = 0; i < n; i++) {
            if (mm_eb_is_below(z, bits[i])) assert_int_equal(back[i], 0);
            assert_true(fabs((double)src[i] - (double)mm_float_of(back[i])) <= (double)bound);
        }
        free(code);
        free(back);
    }
    free(want);
    free(bits);
    free(have);
}

static void chunks_are_what_the_header_says(void **state) {
    (void)state;
    static const int lengths[] = {1, 2, 3, 31, 32, 33, 63, 64, 257, 1000, 1023, CHUNK};
    static const float bounds[] = {1e-30f, 1e-4f, 0.01f, 0.3f, 4, 1e30f};
    static float src[CHUNK];
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int family = 0; family < FAMILIES; family++)
            for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++)
                for (int sparse = 0; sparse < 3; sparse++) {
                    const int n = lengths[l];
                    codec_data_fill(src, n, (codec_family)family, (uint64_t)(n + sparse));
                    for (int i = 0; i < n; i++)
                        if (sparse && (src[i] < 0 || i % 64 < 32 * (sparse - 1))) src[i] = 0;
                    check_chunk(bounds[b], src, n);
                }
}

static void one_chunk_by_hand(void **state) {
    (void)state;
    /* step 63/32: 1 to 1.47 is number 0 of 1, 7.9 is q = 4; zeros of either sign and what is below are dropped */
    uint32_t bits[70], words[70], back[70];
    float src[70] = {0};
    src[3] = 1, src[5] = 7.9f, src[6] = 0.999f, src[7] = -0.0f, src[66] = 1.25f;
    memcpy(bits, src, sizeof bits);
    const mm_eb_quantiser z = mm_eb_quantiser_of(1);
    const uint32_t code[] = {1 << 0 | 1 << 2, 1 << 3 | 1 << 5, 1 << 2, 0 | 2 << 4, 1 << 1, 1 << 1};
    assert_int_equal(mm_eb_encode(z, bits, 70, words), 6);
    assert_memory_equal(words, code, sizeof code);
    assert_true(mm_eb_decode(z, code, 6, 70, back));
    memset(src, 0, sizeof src);
    src[3] = 1.96875f, src[5] = 4 * 1.96875f, src[66] = 1.96875f;
    assert_memory_equal(back, src, sizeof src);
}

/* A damaged code is refused, or is another code: nothing outside its words and elements is touched. */
static void damage_is_refused_or_harmless(void **state) {
    (void)state;
    uint64_t random = codec_seed(7);
    static float src[CHUNK];
    const mm_eb_quantiser z = mm_eb_quantiser_of(0.05f);
    int refused = 0;
    for (int round = 0; round < DAMAGED; round++) {
        const int n = 16 + (int)(random_next(&random) % (CHUNK - 15));
        uint32_t *bits = words_of(n), *words = words_of(n);
        codec_data_fill(src, n, (codec_family)(round % FAMILIES), (uint64_t)round);
        for (int i = 0; i < n; i++) bits[i] = random_next(&random) % 3 ? 0 : mm_float_bits(src[i]);
        int count = mm_eb_encode(z, bits, n, words);
        if (count > 0 && count < n) {
            if (round % 3 == 0) count = 1 + (int)(random_next(&random) % (uint64_t)count);
            uint32_t *code = words_of(count);
            memcpy(code, words, (size_t)count * sizeof *code);
            for (int i = 0; round % 3 && i < 1 + round % 4; i++)
                code[random_next(&random) % (uint64_t)(round % 2 && count > 8 ? 8 : count)] ^=
                    1u << random_next(&random) % 32;
            refused += !mm_eb_decode(z, code, count, n, bits);
            free(code);
        }
        free(words);
        free(bits);
    }
    assert_true(refused > DAMAGED / 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_within_the_bound), cmocka_unit_test(what_is_no_bound_loses_nothing),
        cmocka_unit_test(chunks_are_what_the_header_says), cmocka_unit_test(one_chunk_by_hand),
        cmocka_unit_test(damage_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
