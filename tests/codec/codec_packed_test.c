/* SPDX-License-Identifier: MIT */
/* Packed codecs: dpr and mx against the formats' definitions, computed in doubles and by search, for the values around
 * every border between two codes; and every kernel of theirs that this machine runs against the others. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/device/host/device_host.h"
#include "pipeline/codec/block/float_bits.h"
#include "pipeline/codec/packed/packed_host.h"
#include "tests/codec/codec_data.h"

typedef struct fixture {
    mm_device *device;
    mm_stream *stream;
    mm_codec_counters counters;
} fixture;

static int setup(void **state) {
    static fixture f;
    f = (fixture){.counters = {0}};
    assert_int_equal(mm_device_host_create(NULL, &f.device), MM_OK);
    assert_int_equal(mm_stream_create(f.device, "packed", 0, &f.stream), MM_OK);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    mm_stream_destroy(f->stream);
    mm_device_destroy(f->device);
    return 0;
}

static int64_t bound(const char *spec, int64_t elems) {
    mm_codec *codec;
    int64_t bytes;
    assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
    assert_int_equal(mm_codec_bound(codec, &(mm_shape){MM_F32, 1, {elems, 1, 1, 1}}, &bytes), MM_OK);
    mm_codec_destroy(codec);
    return bytes;
}

/* Encodes `src` to `code`, unless `src` is NULL; then decodes `code` to `back`, unless that is NULL. */
static void run(fixture *f, const char *spec, const float *src, int64_t elems, uint8_t *code, float *back) {
    mm_codec *codec;
    const mm_shape shape = {MM_F32, 1, {elems, 1, 1, 1}};
    assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
    if (src) assert_int_equal(mm_codec_encode(codec, f->stream, &shape, src, code, NULL, NULL, &f->counters), MM_OK);
    if (back) assert_int_equal(mm_codec_decode(codec, f->stream, &shape, code, back, NULL, NULL, NULL), MM_OK);
    assert_int_equal(mm_stream_sync(f->stream), MM_OK);
    mm_codec_destroy(codec);
}

static void *allocate(int64_t bytes) {
    void *data = malloc((size_t)bytes);
    assert_non_null(data);
    return data;
}

/* Bits `from` on, `count` of them, of bytes in which bit 0 is the first byte's lowest. */
static uint32_t bits_at(const uint8_t *bytes, int64_t from, int count) {
    uint32_t bits = 0;
    for (int i = 0; i < count; i++) bits |= (uint32_t)(bytes[(from + i) / 8] >> (from + i) % 8 & 1) << i;
    return bits;
}

static bool is_negative(double value) { return signbit(value) != 0; }

static void expect_float(const char *spec, float src, float have, double want) {
    const bool good = isnan(want) ? isnan(have) : (double)have == want && is_negative(have) == is_negative(want);
    if (!good) fail_msg("%s of %a (%08x) is %a, not %a", spec, (double)src, mm_float_bits(src), (double)have, want);
}

/* ---------------------------------------------------------------- dpr */

typedef struct dpr_format {
    const char *spec;
    int exponent, mantissa, per_word;
    double largest, least; /* normal */
} dpr_format;

static const dpr_format dpr[] = {
    {"dpr:fp16", 5, 10, 2, 65504, 0x1p-14},
    {"dpr:fp10", 5, 4, 3, 63488, 0x1p-14},
    {"dpr:fp8", 4, 3, 4, 240, 0x1p-6},
};
enum { DPR = sizeof dpr / sizeof dpr[0] };

static double dpr_rounded(const dpr_format *f, float value) {
    int e;
    if (isnan(value) || isinf(value) || value == 0) return (double)value;
    frexp(fabs((double)value), &e);
    double size = ldexp(nearbyint(ldexp(fabs((double)value), f->mantissa + 1 - e)), e - f->mantissa - 1);
    if (size > f->largest) size = f->largest;
    if (size < f->least) size = 0;
    return copysign(size, (double)value);
}

/* The value of a code, by its fields. */
static double dpr_value(const dpr_format *f, uint32_t code) {
    const int fields = 1 << f->mantissa, bias = (1 << (f->exponent - 1)) - 1;
    const int mantissa = (int)code % fields, exponent = (int)code / fields % (1 << f->exponent);
    double size = ldexp(1 + (double)mantissa / fields, exponent - bias);
    if (exponent == 0) size = 0;
    if (exponent == (1 << f->exponent) - 1) size = mantissa ? NAN : INFINITY;
    return code >> (f->exponent + f->mantissa) ? -size : size;
}

/* Writes floats of every sign, exponent and leading bits of the mantissa, with the bits behind them near each border of
 * rounding. Returns their number. */
static int64_t fill_borders(int leading, float *values) {
    static const uint32_t rests[] = {0, 1, ~0u, ~0u >> 1, ~0u << 1};
    const uint32_t below = (1u << (23 - leading)) - 1;
    int64_t n = 0;
    for (uint32_t head = 0; head < 1u << (9 + leading); head++)
        for (int r = 0; r < 5; r++) values[n++] = mm_float_of(head << (23 - leading) | (rests[r] & below));
    return n;
}

static void dpr_gives_the_nearest_value_and_its_code_that_value(void **state) {
    fixture *f = *state;
    const int64_t most = (int64_t)5 << (9 + 12);
    float *src = allocate(most * 4), *back = allocate(most * 4);
    uint8_t *code = allocate(most * 2 + 8);
    for (int i = 0; i < DPR; i++) {
        const int width = 1 + dpr[i].exponent + dpr[i].mantissa;
        const int64_t n = fill_borders(dpr[i].mantissa + 2, src);
        run(f, dpr[i].spec, src, n, code, back);
        for (int64_t e = 0; e < n; e++) {
            const int64_t at = e / dpr[i].per_word * 32 + e % dpr[i].per_word * width;
            const uint32_t have = bits_at(code, at, width);
            expect_float(dpr[i].spec, src[e], back[e], dpr_rounded(&dpr[i], src[e]));
            expect_float(dpr[i].spec, src[e], back[e], dpr_value(&dpr[i], have));
            if (back[e] == 0) assert_int_equal(have % (1u << (width - 1)), 0); /* no denormal */
            if (isnan(src[e])) assert_int_equal(is_negative(back[e]), is_negative(src[e]));
        }
    }
    assert_int_equal(f->counters.nonfinite_blocks, 0); /* no finite value was lost */
    free(src);
    free(back);
    free(code);
}

static void dpr_pads_with_zeros(void **state) {
    fixture *f = *state;
    const float src[13] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    for (int i = 0; i < DPR; i++)
        for (int elems = 1; elems <= 13; elems++) {
            uint8_t code[64];
            const int width = 1 + dpr[i].exponent + dpr[i].mantissa, words = (int)bound(dpr[i].spec, elems) / 4;
            assert_int_equal(words, (elems + 2 * dpr[i].per_word - 1) / (2 * dpr[i].per_word) * 2);
            run(f, dpr[i].spec, src, elems, code, NULL);
            for (int bit = 0; bit < 32 * words; bit++) {
                const int slot = bit % 32 / width, e = bit / 32 * dpr[i].per_word + slot;
                if (slot >= dpr[i].per_word || e >= elems) assert_int_equal(bits_at(code, bit, 1), 0);
            }
        }
}

/* Any code can be decoded, even if no encoder makes it: denormals, and ones in the padding. */
static void dpr_reads_any_code(void **state) {
    fixture *f = *state;
    for (int i = 0; i < DPR; i++) {
        const int width = 1 + dpr[i].exponent + dpr[i].mantissa;
        for (uint32_t code = 0; code < 1u << width; code++) {
            const uint32_t word = code | (width == 10 ? 3u << 30 : 0), words[2] = {word, word};
            float back[8];
            run(f, dpr[i].spec, NULL, 2 * dpr[i].per_word, (uint8_t *)(uintptr_t)words, back);
            expect_float(dpr[i].spec, 0, back[0], dpr_value(&dpr[i], code));
            expect_float(dpr[i].spec, 0, back[dpr[i].per_word], dpr_value(&dpr[i], code));
            expect_float(dpr[i].spec, 0, back[1], 0);
        }
    }
}

/* ---------------------------------------------------------------- mx */

typedef struct mx_format {
    const char *spec;
    int bits, exponent, mantissa, most; /* exponent: its bits, 0 of int8; most: the largest number's exponent */
} mx_format;

static const mx_format mx[] = {
    {"mx:fp8", 8, 4, 3, 8}, {"mx:fp6", 6, 2, 3, 2}, {"mx:fp4", 4, 2, 1, 2}, {"mx:int8", 8, 0, 6, 0}};
enum { MX = sizeof mx / sizeof mx[0], BLOCK = 32, GROUP = 256 };

/* What an element's bits stand for, by the standard's tables. */
static double mx_element(const mx_format *f, uint32_t code) {
    if (f->exponent == 0) return (double)(int8_t)code / 64;
    const int fields = 1 << f->mantissa, bias = (1 << (f->exponent - 1)) - 1;
    const int mantissa = (int)code % fields, exponent = (int)code / fields % (1 << f->exponent);
    double size = exponent > 0 ? ldexp(1 + (double)mantissa / fields, exponent - bias)
                               : ldexp((double)mantissa / fields, 1 - bias);
    if (f->bits == 8 && code % 128 == 127) size = NAN;
    return code >> (f->bits - 1) ? -size : size;
}

/* The code of the element nearest to the value, by search of all codes; of two equally near, the one whose last bit is
 * 0. */
static uint32_t mx_nearest(const mx_format *f, double value) {
    uint32_t best = 0;
    double best_off = INFINITY;
    for (uint32_t code = 0; code < 1u << f->bits; code++) {
        const double element = mx_element(f, code), off = fabs(element - value);
        const bool minus_two = f->exponent == 0 && code == 128; /* the encoder does not use -2 */
        if (isnan(element) || minus_two) continue;
        if (f->exponent > 0 && is_negative(element) != is_negative(value)) continue; /* zeros keep their sign */
        if (off > best_off || (off == best_off && code % 2 != 0)) continue;
        best = code;
        best_off = off;
    }
    return best;
}

/* Converts a block as the standard says. Returns its scale. */
static int mx_block(const mx_format *f, const float *values, int n, uint32_t *codes_out) {
    double largest = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            memset(codes_out, 0, (size_t)n * sizeof *codes_out);
            return 255;
        }
        largest = fmax(largest, fabs((double)values[i]));
    }
    const int exponent = largest > 0 ? (int)floor(log2(largest)) : -1000, shared = exponent - f->most;
    const int scale = shared < -127 ? -127 : shared;
    for (int i = 0; i < n; i++) codes_out[i] = mx_nearest(f, (double)values[i] / ldexp(1, scale));
    return scale + 127;
}

static int64_t element_bit(const mx_format *f, int64_t e) {
    return e / GROUP * (64 + GROUP * f->bits) + 64 + e % GROUP * f->bits;
}

static int scale_of(const mx_format *f, const uint8_t *code, int64_t e) {
    return code[e / GROUP * (8 + GROUP * f->bits / 8) + e % GROUP / BLOCK];
}

static void mx_check(fixture *f, const mx_format *format, const float *src, int64_t elems) {
    const int64_t bytes = bound(format->spec, elems), before = f->counters.nonfinite_blocks;
    uint8_t *code = allocate(bytes);
    float *back = allocate(elems * 4);
    int64_t nonfinite = 0;
    run(f, format->spec, src, elems, code, back);
    for (int64_t b = 0; b < elems; b += BLOCK) {
        uint32_t want[BLOCK];
        const int n = elems - b < BLOCK ? (int)(elems - b) : BLOCK, scale = mx_block(format, src + b, n, want);
        nonfinite += scale == 255;
        if (scale_of(format, code, b) != scale)
            fail_msg("%s: the scale of block %d is %d, not %d", format->spec, (int)(b / BLOCK),
                     scale_of(format, code, b), scale);
        for (int i = 0; i < n; i++) {
            const uint32_t have = bits_at(code, element_bit(format, b + i), format->bits);
            if (have != want[i])
                fail_msg("%s: %a in a block of scale %d is %x, not %x", format->spec, (double)src[b + i], scale, have,
                         want[i]);
            expect_float(format->spec, src[b + i], back[b + i],
                         scale == 255 ? NAN : mx_element(format, have) * ldexp(1, scale - 127));
        }
    }
    for (int64_t e = elems; e < (elems + GROUP - 1) / GROUP * GROUP; e++)
        assert_int_equal(bits_at(code, element_bit(format, e), format->bits), 0);
    assert_int_equal(f->counters.nonfinite_blocks - before, nonfinite);
    free(code);
    free(back);
}

/* In blocks of each scale, all elements, the places half way between two, and their neighbours among floats. */
static void mx_gives_the_standards_block_at_every_border(void **state) {
    fixture *f = *state;
    static const int scales[] = {0, 1, 2, 10, 22, 23, 24, 100, 127, 128, 200, 244, 245, 246, 252, 254};
    for (int i = 0; i < MX; i++) {
        float *src = allocate(sizeof scales / sizeof *scales * 256 * 2 * BLOCK * 4);
        int64_t n = 0;
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
            const double power = ldexp(1, scales[s] - 127);
            for (uint32_t code = 0; scales[s] + mx[i].most <= 254 && code < 1u << (mx[i].bits - 1); code++) {
                const double low = mx_element(&mx[i], code), high = mx_element(&mx[i], code + 1);
                const bool last = code + 1 == 1u << (mx[i].bits - 1) || isnan(high) || high < 0;
                if (isnan(low)) continue;
                const float places[] = {(float)(low * power), (float)((last ? low * 1.03 : (low + high) / 2) * power)};
                for (int p = 0; p < 2; p++)
                    for (int sign = -1; sign <= 1; sign += 2) {
                        src[n++] = (float)(ldexp(1, mx[i].most) * power); /* the block's largest: makes the scale */
                        src[n++] = (float)sign * places[p];
                        src[n++] = (float)sign * nextafterf(places[p], INFINITY);
                        src[n++] = (float)sign * nextafterf(places[p], 0);
                        while (n % BLOCK != 0) src[n++] = 0;
                    }
            }
        }
        assert_true(n > 1000);
        mx_check(f, &mx[i], src, n);
        free(src);
    }
}

static void mx_gives_the_standards_blocks_of_all_families_and_lengths(void **state) {
    fixture *f = *state;
    static const int lengths[] = {1, 7, 8, 31, 32, 33, 255, 256, 257, 600, 1003};
    for (int i = 0; i < MX; i++)
        for (int family = 0; family < FAMILIES; family++) {
            float src[1003];
            const int n = lengths[(family + i) % (int)(sizeof lengths / sizeof *lengths)];
            codec_data_fill(src, n, (codec_family)family, (uint64_t)(family + i));
            mx_check(f, &mx[i], src, n);
        }
}

static void mx_makes_nan_of_a_block_with_what_is_not_finite_and_counts_it(void **state) {
    fixture *f = *state;
    static const float specials[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (int i = 0; i < MX; i++)
        for (int place = 0; place < 5 * BLOCK; place += 7) {
            float src[5 * BLOCK];
            codec_data_fill(src, 5 * BLOCK, FAMILY_UNIFORM, (uint64_t)place);
            src[place] = specials[place % 4];
            src[place / BLOCK * BLOCK] = specials[place % 3];
            mx_check(f, &mx[i], src, 5 * BLOCK);
        }
    assert_true(f->counters.nonfinite_blocks > 0);
}

/* Any code can be decoded, even if no encoder makes it: NaNs of E4M3, -2 of int8, products beyond the floats. */
static void mx_reads_any_code(void **state) {
    fixture *f = *state;
    for (int i = 0; i < MX; i++)
        for (int scale = 0; scale < 256; scale++) {
            uint8_t code[8 + GROUP];
            float back[GROUP];
            memset(code, scale, 8);
            for (int b = 0; b < GROUP * mx[i].bits; b++) { /* element e has code e */
                const int byte = 8 + b / 8, e = b / mx[i].bits;
                if (b % 8 == 0) code[byte] = 0;
                code[byte] = (uint8_t)(code[byte] | (e >> b % mx[i].bits & 1) << b % 8);
            }
            run(f, mx[i].spec, NULL, GROUP, code, back);
            for (int e = 0; e < GROUP; e++) {
                const double element = mx_element(&mx[i], (uint32_t)e % (1u << mx[i].bits));
                double want = scale == 255 ? NAN : element * ldexp(1, scale - 127);
                if (fabs(want) >= 0x1p128) want = copysign(INFINITY, want);
                expect_float(mx[i].spec, (float)e, back[e], want);
                if (isnan(want)) assert_int_equal(mm_float_bits(back[e]), 0x7fc00000);
            }
        }
}

/* ---------------------------------------------------------------- both */

static void all_kernels_of_a_format_give_the_same_bits(void **state) {
    (void)state;
    enum { GROUPS = 37 };
    const mm_codec_ops *ops;
    const int64_t iteration = INT64_C(1) << 40 | 3;
    const mm_packed_draw draw = {.seed = 1, .tensor = 2, .iteration = &iteration, .first = INT64_C(5) << 40};
    int compared = 0;
    for (size_t c = 0; (ops = mm_codec_table(c)); c++) {
        if (ops->encode != mm_packed_host_encode) continue;
        const mm_packed_host *own = ops->own;
        for (int f = 0; own->formats.at[f].name; f++) {
            const mm_packed_format *format = &own->formats.at[f];
            const int64_t elems = GROUPS * format->group_elems, bytes = GROUPS * format->group_bytes;
            float *src = allocate(elems * 4), *back[2] = {allocate(elems * 4), allocate(elems * 4)};
            uint8_t *code[2] = {allocate(bytes), allocate(bytes)};
            const int portable = MM_PACKED_ISAS - 1;
            for (int i = 0; i < FAMILIES + 2; i++) {
                codec_data_fill(src, elems, (codec_family)(i % FAMILIES), (uint64_t)i);
                for (int64_t e = 0; i >= FAMILIES && e < elems; e += 40) src[e] = e % 3 ? INFINITY : NAN;
                const int64_t nonfinite = own->kernels[f].encode[portable](src, GROUPS, code[0], &draw);
                own->kernels[f].decode[portable](code[0], GROUPS, back[0]);
                for (int isa = 0; isa < portable; isa++) {
                    if (!mm_packed_isa_usable(isa)) continue;
                    assert_int_equal(own->kernels[f].encode[isa](src, GROUPS, code[1], &draw), nonfinite);
                    assert_memory_equal(code[0], code[1], bytes);
                    own->kernels[f].decode[isa](code[1], GROUPS, back[1]);
                    assert_memory_equal(back[0], back[1], elems * 4);
                }
                compared++;
            }
            free(src);
            for (int i = 0; i < 2; i++) {
                free(back[i]);
                free(code[i]);
            }
        }
    }
    assert_int_equal(compared, (DPR + MX + 3) * (FAMILIES + 2)); /* 3: specs of group */
}

static void specs_name_a_format_or_get_the_default(void **state) {
    (void)state;
    static const struct {
        const char *spec, *canonical; /* NULL: refused */
        const char *message;
    } cases[] = {
        {"dpr", "dpr:fp16", NULL},
        {"dpr:fp8", "dpr:fp8", NULL},
        {"mx", "mx:fp8", NULL},
        {"mx:int8", "mx:int8", NULL},
        {"mx:int8:sms=20", "mx:int8,sms=20", NULL},
        {"dpr:sms=65536,fp8", "dpr:fp8,sms=65536", NULL},
        {"dpr:sms=1", "dpr:fp16,sms=1", NULL},
        {"dpr:fp9", NULL, "codec dpr: unknown format 'fp9'; there are fp16, fp10, fp8, and sms="},
        {"dpr:fp1", NULL, "codec dpr: unknown format 'fp1'; there are fp16, fp10, fp8, and sms="},
        {"dpr:fp8:", NULL, "codec dpr: 'fp8:': the format is given twice: give it once"},
        {"dpr:fp16,fp8", NULL, "codec dpr: 'fp16,fp8': the format is given twice: give it once"},
        {"mx:fp16", NULL, "codec mx: unknown format 'fp16'; there are fp8, fp6, fp4, int8, and sms="},
        {"mx:sms=2:sms=2", NULL, "codec mx: 'sms=2:sms=2': sms is given twice: give it once"},
        {"mx:sms=0", NULL, "codec mx: 'sms=0': sms is a number of multiprocessors, from 1 to 65536"},
        {"mx:sms=65537", NULL, "codec mx: 'sms=65537': sms is a number of multiprocessors, from 1 to 65536"},
        {"mx:sms=000001", NULL, "codec mx: 'sms=000001': sms is a number of multiprocessors, from 1 to 65536"},
        {"mx:sms=-1", NULL, "codec mx: 'sms=-1': sms is a number of multiprocessors, from 1 to 65536"},
        {"group", "group:bits=8", NULL},
        {"group:bits=2,seed=0", "group:bits=2", NULL},
        {"group:seed=2147483647:bits=4:sms=3", "group:bits=4,sms=3,seed=2147483647", NULL},
        {"group:bits=3", NULL,
         "codec group: unknown format 'bits=3'; there are bits=8, bits=4, bits=2, sms= and seed="},
        {"group:seed=2147483648", NULL, "codec group: 'seed=2147483648': seed is a number, from 0 to 2147483647"},
        {"group:seed=1,seed=2", NULL, "codec group: 'seed=1,seed=2': seed is given twice: give it once"},
        {"mx:seed=1", NULL, "codec mx: unknown format 'seed=1'; there are fp8, fp6, fp4, int8, and sms="},
        {"mx:sms=", NULL, "codec mx: 'sms=': sms is a number of multiprocessors, from 1 to 65536"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        mm_codec *codec = NULL;
        const mm_status status = mm_codec_create(cases[c].spec, "host", &codec);
        assert_int_equal(status, cases[c].canonical ? MM_OK : MM_ERR_INVALID);
        if (cases[c].canonical)
            assert_string_equal(codec->spec, cases[c].canonical);
        else
            assert_string_equal(mm_last_error(), cases[c].message);
        mm_codec_destroy(codec);
    }
}

static void maps_of_other_types_are_refused_by_name(void **state) {
    (void)state;
    mm_codec *codec;
    int64_t bytes;
    assert_int_equal(mm_codec_create("mx:fp4", "host", &codec), MM_OK);
    assert_int_equal(mm_codec_bound(codec, &(mm_shape){MM_I32, 1, {64, 1, 1, 1}}, &bytes), MM_ERR_UNSUPPORTED);
    assert_string_equal(mm_last_error(), "codec mx:fp4 takes floats only (f32, f16, bf16), not i32");
    mm_codec_destroy(codec);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(dpr_gives_the_nearest_value_and_its_code_that_value),
        CASE(dpr_pads_with_zeros),
        CASE(dpr_reads_any_code),
        CASE(mx_gives_the_standards_block_at_every_border),
        CASE(mx_gives_the_standards_blocks_of_all_families_and_lengths),
        CASE(mx_makes_nan_of_a_block_with_what_is_not_finite_and_counts_it),
        CASE(mx_reads_any_code),
        CASE(all_kernels_of_a_format_give_the_same_bits),
        CASE(specs_name_a_format_or_get_the_default),
        CASE(maps_of_other_types_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
