/* SPDX-License-Identifier: MIT */
/* eb: the bound holds in float arithmetic for every bound and value, and chunks are bit for bit what eb_chunk.h says,
 * by a reference that computes in doubles and writes bit by bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/eb/eb_chunk.h"
#include "tests/codec/codec_data.h"
#include "tests/core/test_case.h"

enum { CHUNK = 1024, DAMAGED = 8000 };

/* The product of two floats, rounded once: a double has it exactly. */
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

/* Bounds of all exponents, and for each the values around every border between two of the quantiser's numbers, where
 * errors are largest. */
TEST_CASE(every_value_is_within_the_bound) {
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

TEST_CASE(what_is_no_bound_loses_nothing) {
    const float bounds[] = {0, -0.0f, -1, NAN, INFINITY, 1e-31f, 1e31f, 1e-45f};
    const float src[8] = {1, 0, 0, 0, 0, 0, -0.0f, 1e-30f};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const mm_eb_quantiser z = mm_eb_quantiser_of(bounds[i]);
        uint32_t bits[8], words[8];
        memcpy(bits, src, sizeof bits);
        assert_true(z.bound == 0);
        assert_int_equal(mm_eb_encode(z, bits, 8, words), 8);
        for (int j = 0; j < 8; j++) assert_int_equal(mm_eb_raw(z, bits[j]), bits[j]);
        const uint32_t code[] = {0, 1 << 14, 0};
        assert_false(mm_eb_decode(z, code, 3, 8, words));
    }
}

/* ---------------------------------------------------------------- chunks */

static uint32_t *words_of(int n) {
    uint32_t *words = malloc((size_t)(n > 0 ? n : 1) * sizeof *words);
    assert_non_null(words);
    return words;
}

/* The number q of steps of a value that is not below the bound. */
static float steps_of(float bound, float x) {
    const float step = product(bound, 1.96875f), inverse = (float)(1.0 / (double)step);
    return floorf(product(fabsf(x), inverse) + 0.5f);
}

/* The value that a value is decoded to. */
static float decoded(float bound, float x) {
    return fabsf(x) < bound ? 0 : copysignf(product(steps_of(bound, x), product(bound, 1.96875f)), x);
}

typedef struct bits {
    uint32_t words[2 * CHUNK];
    int count;
} bits;

static void append(bits *b, uint32_t bit) {
    if (bit) b->words[b->count / 32] |= 1u << b->count % 32;
    b->count++;
}

/* The bits that planes and layers take with `low` planes. */
static int64_t rice_bits(const uint32_t *u, int kept, int low) {
    int64_t sum = 0;
    for (int k = 0; k < kept; k++) sum += low + 1 + (int64_t)(u[k] >> low);
    return sum;
}

/* Whether element i differs, in being kept, from the one 32 << (before - 1) elements before. ones: elements before the
 * first count as kept. */
static bool changes(const bool *kept, int i, int before, bool ones) {
    const int there = i - (32 << (before - 1));
    return kept[i] != (there >= 0 ? kept[there] : ones);
}

/* Appends the code of the masks as eb_mask.h describes it. */
static void append_masks(bits *b, const bool *kept, int n, int before, bool ones) {
    static const char *const codes[8] = {"0",   "100",   "110",   "11100",
                                         "101", "11110", "11101", "11111"}; /* [cba]: a code's bits, any first */
    uint32_t places[11][32] = {{0}};
    for (int i = 0; i < n; i++)
        if (before) places[i / 96][i % 32] |= (uint32_t)changes(kept, i, before, ones) << i / 32 % 3;
    for (int i = 0; !before && i < (n + 31) / 32 * 32; i++) append(b, i < n && kept[i]);
    for (int t = 0; before && t < 11; t++) {
        bool any = false;
        for (int j = 0; j < 32; j++) any |= places[t][j] != 0;
        append(b, any);
        places[t][0] |= any ? 8 : 0; /* a flag: this three has changes */
    }
    for (int bit = 0; before && bit < 5; bit += bit ? 2 : 1) /* any; which; rest */
        for (int t = 0; t < 11; t++)
            for (int second = 0; second < 1 + (bit > 0); second++)
                for (int j = 0; (places[t][0] & 8) && j < 32; j++) {
                    const char *code = codes[places[t][j] & 7];
                    if (bit + second < (int)strlen(code)) append(b, code[bit + second] == '1');
                }
}

/* Makes the code of a chunk as eb_chunk.h describes it. Returns the number of its words; n: it is not smaller. */
static int reference(float bound, const float *src, int n, uint32_t *words) {
    static bits out;
    static uint32_t u[CHUNK];
    bool kept[CHUNK] = {false}, negatives = false, ones = false;
    int k = 0, before = 0, low = 0, least = (11 * n + 31) / 32;
    uint32_t most = 0;
    for (int i = 0; i < n; i++) {
        kept[i] = !(fabsf(src[i]) < bound);
        if (!kept[i]) continue;
        if (!isfinite(src[i]) || steps_of(bound, src[i]) > 16384) return n;
        negatives |= src[i] < 0;
    }
    for (int i = 0; i < n; i++) {
        if (!kept[i]) continue;
        u[k] = (uint32_t)steps_of(bound, src[i]) - 1;
        if (negatives) u[k] = 2 * u[k] + (src[i] < 0);
        most = u[k] > most ? u[k] : most;
        k++;
    }
    if (k == 0) return 0;
    /* the first `low` that has few enough layers, and whose successor takes no fewer bits */
    while (most >> low > 31 || rice_bits(u, k, low + 1) < rice_bits(u, k, low)) low++;
    for (int with = 2; with < 14; with++) { /* all `before` and `ones` */
        int sum = 0;
        for (int i = 0; i < n; i++) sum += changes(kept, i, with / 2, with % 2);
        if (sum >= least) continue;
        least = sum;
        before = with / 2;
        ones = with % 2;
    }
    memset(&out, 0, sizeof out);
    append(&out, negatives);
    for (int b = 0; b < 4; b++) append(&out, (uint32_t)low >> b & 1);
    for (int b = 0; b < 5; b++) append(&out, most >> low >> b & 1);
    for (int b = 0; b < 3; b++) append(&out, (uint32_t)before >> b & 1);
    append(&out, ones);
    append_masks(&out, kept, n, before, ones);
    for (int b = 0; b < low; b++)
        for (int i = 0; i < k; i++) append(&out, u[i] >> b & 1);
    for (uint32_t layer = 1; layer <= most >> low; layer++)
        for (int i = 0; i < k; i++)
            if (u[i] >> low >= layer - 1) append(&out, u[i] >> low >= layer);
    const int used = (out.count + 31) / 32;
    if (used >= n) return n;
    memcpy(words, out.words, (size_t)used * sizeof *words);
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
            assert_int_equal(back[i], mm_float_bits(decoded(bound, src[i])));
            assert_true(fabs((double)src[i] - (double)mm_float_of(back[i])) <= (double)bound);
        }
        free(code);
        free(back);
    }
    free(want);
    free(bits);
    free(have);
}

TEST_CASE(chunks_are_what_the_header_says) {
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

/* Each element is kept or not as the element `distance` blocks before it; but a few are not as that one. */
TEST_CASE(masks_repeat_at_each_distance) {
    static const int lengths[] = {33, 352, 353, 700, 992, 993, CHUNK};
    static float src[CHUNK];
    static uint32_t code[CHUNK], bits[CHUNK];
    uint64_t random = codec_seed(5);
    int seen[7] = {0}, seen_ones = 0;
    for (int round = 0; round < 1500; round++) {
        const int n = lengths[round % 7], distance = 32 << round % 6, changes = 2 + round % 11, shown = 1 + round % 9;
        for (int i = 0; i < n; i++) {
            const bool as_before = i >= distance ? src[i - distance] != 0 : random_next(&random) % 10 < (uint64_t)shown;
            const bool change = random_next(&random) % 16 < (uint64_t)changes / 2;
            src[i] = as_before != change ? 1 + (float)(random_next(&random) % 64) : 0;
        }
        check_chunk(1, src, n);
        memcpy(bits, src, (size_t)n * sizeof *bits);
        if (mm_eb_encode(mm_eb_quantiser_of(1), bits, n, code) >= n) continue;
        seen[code[0] >> 10 & 7]++;
        seen_ones += code[0] >> 13 & 1;
    }
    for (int i = 0; i < 7; i++) assert_true(seen[i] > 10);
    assert_true(seen_ones > 100);
}

/* Encodes a chunk with these values at these places, and zeros elsewhere; expects this code; and decodes it. */
static void check_by_hand(const float (*at)[2], int values, const uint32_t *code, int count) {
    enum { N = 70 };
    const mm_eb_quantiser z = mm_eb_quantiser_of(1);
    float src[N] = {0}, expected[N] = {0};
    uint32_t bits[N], words[N], back[N];
    for (int i = 0; i < values; i++) {
        src[(int)at[i][0]] = at[i][1];
        expected[(int)at[i][0]] = decoded(1, at[i][1]);
    }
    src[1] = -0.0f, src[2] = 0.999f, src[69] = -0.5f; /* below the bound: they come back as zeros */
    memcpy(bits, src, sizeof bits);
    assert_int_equal(mm_eb_encode(z, bits, N, words), count);
    assert_memory_equal(words, code, (size_t)count * sizeof *words);
    assert_true(mm_eb_decode(z, code, count, N, back));
    assert_memory_equal(back, expected, sizeof expected);
}

TEST_CASE(chunks_by_hand) {
    /* steps of 63/32; u = 5 0 9 2 12, the example in eb_chunk.h; of the first three blocks (a, b, c in eb_mask.h), a
     * and c have changes */
    const float example[][2] = {{3, 11.8f}, {4, 1.25f}, {31, 19.7f}, {64, 5.9f}, {66, 25.6f}};
    check_by_hand(
        example, 5,
        (const uint32_t[]){2 << 1 | 3 << 5 | 3 << 10 | 1 << 14 | 0x1d << 25, 1 << 24 | 3u << 30,
                           (1 << 3 | 1 << 5) | 1 << 11 | (1 << 13 | 1 << 15 | 1 << 17) | (1 << 19 | 1 << 20) | 1 << 22},
        3);
    /* u = 1 0 7; with low = 1, u >> low = 0 0 3 */
    const float signs[][2] = {{33, -1.2f}, {34, 1.25f}, {40, -8}};
    check_by_hand(signs, 3,
                  (const uint32_t[]){1 | 1 << 1 | 3 << 5 | 2 << 10 | 1 << 14 | 6 << 25, 1 << 1 | 7 << 25 | 1u << 31,
                                     1 << 1 | 1 << 4 | 1 << 5 | 1 << 6},
                  3);
    /* q = 1 for both: no plane, no layer */
    const float least[][2] = {{68, 1}, {67, 2.9f}};
    check_by_hand(least, 2, (const uint32_t[]){1 << 10 | 1 << 14 | 0x18 << 25, 3 << 27}, 2);
    /* only u = 16383: with low = 13, u >> low = 1; all planes are ones, and there is one layer */
    const float largest[][2] = {{5, 16384 * 1.96875f}};
    check_by_hand(largest, 1, (const uint32_t[]){13 << 1 | 1 << 5 | 3 << 10 | 1 << 14 | 1 << 30, 0x1fu << 27, 0x1ff},
                  3);
}

/* A value far above the others makes 31 layers at most, even if fewer planes and more layers would take fewer bits. */
TEST_CASE(an_outlier_makes_few_layers) {
    static float src[CHUNK];
    static uint32_t bits[CHUNK], words[CHUNK];
    for (int i = 0; i < CHUNK; i++) src[i] = 1;
    for (int at = 0; at < CHUNK; at += 341) {
        src[at] = 16384 * 1.96875f;
        memcpy(bits, src, sizeof bits);
        /* 25 bits; then 9 planes, a layer of all elements, and 30 layers of the outlier alone */
        assert_int_equal(mm_eb_encode(mm_eb_quantiser_of(1), bits, CHUNK, words), (25 + 10 * CHUNK + 30 + 31) / 32);
        assert_int_equal(words[0] & 0x1ffffff, 9 << 1 | 31 << 5 | 1 << 10 | 1 << 13);
        check_chunk(1, src, CHUNK);
        src[at] = 1;
    }
}

/* Codes that no encoder makes. any, which, rest: eb_mask.h. */
TEST_CASE(impossible_codes_are_refused) {
    enum { ONE = 1 << 10 | 1 << 14 }; /* before = 1; the first three has changes */
    static const struct {
        int count;
        uint32_t words[4];
    } cases[] = {
        {1, {0}},                                    /* the code ends before the masks */
        {4, {0, 0, 1 << 20, 0}},                     /* a plain mask with an element past the last */
        {1, {1 << 10}},                              /* no element is kept */
        {1, {ONE}},                                  /* the code ends before any */
        {2, {ONE | 0x7f << 25, 0x1ffffff}},          /* the code ends before which */
        {2, {ONE | 7 << 25, 0x3f << 25}},            /* the code ends before rest */
        {2, {ONE | 1u << 31, 1 << 26}},              /* an element past the last */
        {2, {1 << 10 | 1 << 15 | 1 << 25, 0}},       /* changes of a block past the last */
        {2, {1 << 10 | 1 << 24 | 1 << 25, 1 << 26}}, /* changes of a 33rd block */
        {3, {ONE | 1 << 25, 0, 0}},                  /* a word too many */
        {2, {ONE | 1 << 25 | 15 << 1, 0}},           /* the code ends before a plane */
        {2, {ONE | 1 << 25 | 2 << 5, 0x1fu << 27}},  /* the code ends before a layer */
    };
    const mm_eb_quantiser z = mm_eb_quantiser_of(1);
    uint32_t back[70];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t *code = words_of(cases[i].count);
        memcpy(code, cases[i].words, (size_t)cases[i].count * sizeof *code);
        if (mm_eb_decode(z, code, cases[i].count, 70, back)) fail_msg("case %zu is taken", i);
        free(code);
    }
    assert_true(mm_eb_decode(z, (const uint32_t[]){ONE | 1 << 25 | 1 << 5, 1 << 27}, 2, 70, back));
    assert_int_equal(back[0], mm_float_bits(2 * 1.96875f));
    assert_int_equal(back[32], mm_float_bits(1.96875f));
}

/* A damaged code is refused, or decodes to other elements, the same ones with each instruction set; nothing outside of
 * its words and elements is touched. */
TEST_CASE(damage_is_refused_or_harmless) {
    uint64_t random = codec_seed(7);
    static float src[CHUNK];
    const mm_chunk_params params = {.bound = 0.05f};
    const mm_eb_quantiser z = mm_eb_quantiser_of(params.bound);
    int refused = 0;
    mm_codec *codec;
    assert_int_equal(mm_codec_create("eb", "host", &codec), MM_OK);
    const mm_chunk_host *host = codec->ops->own;
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
            const bool taken = mm_eb_decode(z, code, count, n, bits);
            refused += !taken;
            for (int isa = 0; isa < MM_PACKED_ISAS; isa++) {
                if (!mm_packed_isa_usable(isa)) continue;
                assert_int_equal(host->decode[isa](&params, code, count, n, (float *)words), taken);
                if (taken) assert_memory_equal(words, bits, (size_t)n * sizeof *bits);
            }
            free(code);
        }
        free(words);
        free(bits);
    }
    mm_codec_destroy(codec);
    assert_true(refused > DAMAGED / 8);
}
