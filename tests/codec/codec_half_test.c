/* SPDX-License-Identifier: MIT */
/* Codecs on maps of f16 and bf16: against definitions computed in doubles, against libzfp and plain loops, and against
 * the same codec on the widened map. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/device/host/device_host.h"
#include "pipeline/codec/chunk/chunk_code.h"
#include "pipeline/codec/packed/half_host.h"
#include "pipeline/codec/zfp/zfp_layout.h"
#include "tests/codec/codec_data.h"
#include "tests/codec/zfp_reference.h"

enum { MOST = 1 << 14, MOST_BYTES = 8 * MOST };

typedef struct type {
    mm_dtype dtype;
    mm_dtype elem;
    int mantissa, least; /* bits of the mantissa; the exponent of the least normal number */
    uint16_t infinity;
} type;

static const type types[] = {{MM_F16, MM_F16, 10, -14, 0x7c00}, {MM_BF16, MM_BF16, 7, -126, 0x7f80}};
enum { TYPES = 2 };

/* ---------------------------------------------------------------- the types, by definition */

static double value_of(const type *t, uint16_t half) {
    const int exponent = (half & 0x7fff) >> t->mantissa, fields = 1 << t->mantissa;
    const double fraction = (double)(half & (fields - 1)) / fields;
    double size = exponent == 0 ? ldexp(fraction, t->least) : ldexp(1 + fraction, t->least + exponent - 1);
    if ((half & 0x7fff) >= t->infinity) size = (half & 0x7fff) > t->infinity ? NAN : INFINITY;
    return half >> 15 ? -size : size;
}

/* The nearest finite number of the type, by search; of two equally near, the even one. */
static uint16_t nearest(const type *t, float value) {
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const double size = fabs((double)value);
    if (isnan(value)) return (uint16_t)(sign | t->infinity | (t->infinity >> 1 & ~t->infinity) | 1);
    if (isinf(value)) return sign | t->infinity;
    uint16_t low = 0, high = (uint16_t)(t->infinity - 1);
    if (size >= value_of(t, high)) return sign | high;
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        *(value_of(t, middle) <= size ? &low : &high) = middle;
    }
    const double below = size - value_of(t, low), above = value_of(t, high) - size;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

static bool is_nan(const type *t, uint16_t half) { return (half & 0x7fff) > t->infinity; }

static bool same(const type *t, uint16_t have, uint16_t want) {
    return have == want || (is_nan(t, have) && is_nan(t, want) && have >> 15 == want >> 15);
}

static void expect_half(const type *t, const char *what, int64_t i, uint16_t have, uint16_t want) {
    if (!same(t, have, want))
        fail_msg("%s, %s: element %lld is %04x, not %04x", what, mm_dtype_name(t->dtype), (long long)i, have, want);
}

static void every_element_widens_to_its_value_and_narrows_to_itself(void **state) {
    (void)state;
    static uint16_t all[1 << 16], back[1 << 16];
    static float wide[1 << 16];
    for (int i = 0; i < 1 << 16; i++) all[i] = (uint16_t)i;
    for (const type *t = types; t < types + TYPES; t++) {
        mm_halves_widen(t->elem, all, 1 << 16, wide);
        mm_halves_narrow(t->elem, wide, 1 << 16, back);
        for (int i = 0; i < 1 << 16; i++) {
            const double want = value_of(t, all[i]);
            assert_true(isnan(want) ? isnan(wide[i]) : (double)wide[i] == want && !signbit(wide[i]) == !(i >> 15));
            assert_int_equal(mm_float_bits(wide[i]), mm_half_widen(all[i], t->elem));
            expect_half(t, "there and back", i, back[i], all[i]);
        }
    }
}

/* Checks floats around each element, and around each middle between two. */
static void floats_narrow_to_the_nearest_element(void **state) {
    (void)state;
    for (const type *t = types; t < types + TYPES; t++)
        for (uint32_t half = 0; half < t->infinity; half++) {
            const float at = (float)value_of(t, (uint16_t)half), next = mm_float_of(mm_half_widen(half + 1, t->elem));
            const float middle = half + 1 < t->infinity ? at + (next - at) / 2 : 2 * at;
            const float near[] = {at, nextafterf(at, INFINITY), nextafterf(middle, 0), middle,
                                  nextafterf(middle, INFINITY)};
            for (int i = 0; i < 10; i++) {
                const float value = i < 5 ? near[i] : -near[i - 5];
                expect_half(t, "nearest", half, (uint16_t)mm_half_narrow(mm_float_bits(value), t->elem),
                            nearest(t, value));
            }
        }
    /* a finite float beyond the largest becomes the largest; an infinity stays one */
    assert_int_equal(mm_half_narrow(0x7f7fffff, MM_F16), 0x7bff);
    assert_int_equal(mm_half_narrow(0xff7fffff, MM_BF16), 0xff7f);
    assert_int_equal(mm_half_narrow(0xff800000, MM_F16), 0xfc00);
    assert_int_equal(mm_half_narrow(0x7f800000, MM_BF16), 0x7f80);
}

/* ---------------------------------------------------------------- codecs */

typedef struct rig {
    mm_device *device;
    mm_stream *stream;
    mm_body_record records[2];
    float bound;
    uint8_t *pool, *code;
    uint16_t *src, *back;
    float *wide, *wide_back;
    mm_codec_counters counters;
} rig;

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    assert_non_null(memory);
    return memory;
}

static int setup(void **state) {
    rig *r = allocate(sizeof *r);
    assert_int_equal(mm_device_host_create(NULL, &r->device), MM_OK);
    assert_int_equal(mm_stream_create(r->device, "halves", 0, &r->stream), MM_OK);
    r->pool = allocate(MOST_BYTES), r->code = allocate(MOST_BYTES);
    r->src = allocate(2 * MOST), r->back = allocate(2 * MOST);
    r->wide = allocate(4 * MOST), r->wide_back = allocate(4 * MOST);
    r->bound = 0.01f;
    *state = r;
    return 0;
}

static int teardown(void **state) {
    rig *r = *state;
    mm_stream_destroy(r->stream);
    mm_device_destroy(r->device);
    free(r->pool), free(r->code), free(r->src), free(r->back), free(r->wide), free(r->wide_back);
    free(r);
    return 0;
}

/* Encodes `src` to r->code and r->pool, and decodes them to `back`. Returns the code's bytes without its body. */
static int64_t code_and_back(rig *r, const char *spec, const mm_shape *shape, const void *src, void *back) {
    mm_codec *codec;
    int64_t bytes;
    const mm_code_body body = {.pool = r->pool, .pool_bytes = MOST_BYTES, .record = &r->records[1]};
    const mm_code_inputs inputs = {.body = &body, .bound = &r->bound, .tensor = 3};
    r->records[1] = (mm_body_record){0};
    r->counters = (mm_codec_counters){0};
    assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
    assert_int_equal(mm_codec_bound(codec, shape, &bytes), MM_OK);
    assert_true(bytes <= MOST_BYTES);
    assert_int_equal(mm_codec_encode(codec, r->stream, shape, src, r->code, NULL, &inputs, &r->counters), MM_OK);
    assert_int_equal(mm_codec_decode(codec, r->stream, shape, r->code, back, NULL, &inputs, &r->counters), MM_OK);
    if (mm_stream_sync(r->stream) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    mm_codec_destroy(codec);
    return bytes;
}

static int64_t elems_of(const mm_shape *shape) {
    int64_t elems = 1;
    for (int d = 0; d < shape->rank; d++) elems *= shape->dims[d];
    return elems;
}

static mm_shape as(const mm_shape *shape, mm_dtype dtype) {
    mm_shape of = *shape;
    of.dtype = dtype;
    return of;
}

/* Kinds of test elements: the families of floats, narrowed, and random bits. */
enum { ANY_BITS = FAMILIES, KINDS };
static void fill(rig *r, const type *t, int64_t n, int kind, uint64_t seed) {
    uint64_t random = codec_seed(seed);
    if (kind < FAMILIES) codec_data_fill(r->wide, n, (codec_family)kind, seed);
    for (int64_t i = 0; i < n; i++)
        r->src[i] = kind < FAMILIES ? nearest(t, r->wide[i]) : (uint16_t)(random_next(&random) >> 20);
    mm_halves_widen(t->elem, r->src, n, r->wide);
}

static const mm_shape shapes[] = {{MM_F32, 4, {2, 8, 8, 16}},  {MM_F32, 4, {1, 14, 14, 5}},
                                  {MM_F32, 1, {1, 1, 1, 1}},   {MM_F32, 1, {1003, 1, 1, 1}},
                                  {MM_F32, 2, {5, 515, 1, 1}}, {MM_F32, 4, {3, 7, 6, 33}}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Calls fn with each spec in the table of a host codec that is lossless, and of fixed size, or not. */
static void each(rig *r, bool lossless, bool fixed, void (*fn)(rig *r, const char *spec)) {
    const mm_codec_ops *ops;
    const char *format;
    int found = 0;
    for (size_t i = 0; (ops = mm_codec_table(i)); i++)
        for (size_t f = 0; strcmp(ops->device, "host") == 0 && (format = mm_codec_format(ops, f)); f++) {
            char spec[64];
            mm_codec *codec;
            snprintf(spec, sizeof spec, "%s%s%s", ops->name, *format ? ":" : "", format);
            assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
            const mm_codec_flags flags = codec->flags;
            mm_codec_destroy(codec);
            if (!flags.gives_value || flags.lossless != lossless || flags.fixed_size != fixed || flags.exact_signs)
                continue;
            fn(r, spec);
            found++;
        }
    assert_true(found > 0);
}

static void the_same_as_widened(rig *r, const char *spec) {
    static uint8_t code[MOST_BYTES];
    for (const type *t = types; t < types + TYPES; t++)
        for (int i = 0; i < SHAPES * KINDS; i += 5) {
            const mm_shape *shape = &shapes[i % SHAPES], halves = as(shape, t->dtype);
            const int64_t n = elems_of(shape);
            fill(r, t, n, i / SHAPES, (uint64_t)i);
            const int64_t bytes = code_and_back(r, spec, shape, r->wide, r->wide_back);
            const int64_t nonfinite = r->counters.nonfinite_blocks;
            memcpy(code, r->code, (size_t)bytes);
            assert_int_equal(code_and_back(r, spec, &halves, r->src, r->back), bytes);
            assert_memory_equal(r->code, code, bytes);
            assert_int_equal(r->counters.nonfinite_blocks, nonfinite);
            for (int64_t e = 0; e < n; e++) expect_half(t, spec, e, r->back[e], nearest(t, r->wide_back[e]));
        }
}

static void lossy_codes_of_fixed_size_are_those_of_the_widened_map(void **state) {
    rig *r = *state;
    static const char *const more[] = {"zfp:rate=4", "zfp:rate=8,dims=1", "zfp:rate=4,dims=3",
                                       "zfp:rate=6,layout=nchw"};
    each(r, false, true, the_same_as_widened);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) the_same_as_widened(r, more[i]);
}

static void zfp_codes_are_libzfps_of_the_widened_map(void **state) {
    rig *r = *state;
    for (const type *t = types; t < types + TYPES; t++)
        for (int i = 0; i < SHAPES * FAMILIES; i += 7) {
            const mm_shape *shape = &shapes[i % SHAPES], halves = as(shape, t->dtype);
            mm_zfp_layout layout;
            fill(r, t, elems_of(shape), i / SHAPES, (uint64_t)i);
            assert_int_equal(mm_zfp_layout_make(shape, 2, false, 64, &layout), MM_OK);
            zfp_reference *reference = zfp_reference_create(layout.maxbits, layout.code_bytes);
            zfp_reference_encode(reference, &layout, r->wide);
            assert_int_equal(code_and_back(r, "zfp:rate=4", &halves, r->src, r->back), layout.code_bytes);
            assert_memory_equal(r->code, zfp_reference_code(reference), layout.code_bytes);
            zfp_reference_destroy(reference);
        }
}

static void same_bits_back(rig *r, const char *spec) {
    for (const type *t = types; t < types + TYPES; t++)
        for (int i = 0; i < SHAPES * KINDS; i += 5) {
            const mm_shape halves = as(&shapes[i % SHAPES], t->dtype);
            const int64_t n = elems_of(&halves);
            fill(r, t, n, i / SHAPES, (uint64_t)i);
            code_and_back(r, spec, &halves, r->src, r->back);
            assert_memory_equal(r->back, r->src, 2 * n);
            assert_true(r->records[1].bytes <= (n + 1) / 2 * 4);
        }
}

static void lossless_codes_give_every_bit_back(void **state) {
    each(*state, true, true, same_bits_back);
    each(*state, true, false, same_bits_back);
}

/* Words of a chunk's code, by counting. */
static int64_t words_of(const char *spec, const uint16_t *src, int n) {
    int kept = 0, runs = 0;
    for (int i = 0; i < n; i++) kept += src[i] != 0, runs += src[i] != 0 && (i == 0 || src[i - 1] == 0);
    const int head = strcmp(spec, "zvc") == 0   ? (n + 31) / 32
                     : strcmp(spec, "rle") == 0 ? 1 + runs
                                                : 2 + (kept + 3) / 4;
    const int words = head + (kept + 1) / 2;
    return words < (n + 1) / 2 ? words : (n + 1) / 2;
}

static void sparse_codes_take_two_bytes_for_a_value(void **state) {
    rig *r = *state;
    static const char *const specs[] = {"zvc", "rle", "csr"};
    for (size_t s = 0; s < 3; s++)
        for (const type *t = types; t < types + TYPES; t++)
            for (int i = 0; i < SHAPES * KINDS; i += 5) {
                const mm_shape halves = as(&shapes[i % SHAPES], t->dtype);
                const int64_t n = elems_of(&halves);
                int64_t words = 0;
                fill(r, t, n, i / SHAPES, (uint64_t)i);
                code_and_back(r, specs[s], &halves, r->src, r->back);
                for (int64_t at = 0; at < n; at += 1024)
                    words += words_of(specs[s], r->src + at, n - at < 1024 ? (int)(n - at) : 1024);
                assert_int_equal(r->records[1].bytes, 4 * words);
            }
}

/* zvc: masks of 32 elements, then the non-zeros, two in a word. */
static void zvc_lays_values_out_in_pairs(void **state) {
    rig *r = *state;
    const mm_shape shape = {MM_BF16, 1, {1000, 1, 1, 1}};
    memset(r->src, 0, 2000);
    for (int i = 7; i < 1000; i += 31) r->src[i] = (uint16_t)(0x8000 + i); /* 33 of them */
    code_and_back(r, "zvc", &shape, r->src, r->back);
    assert_int_equal(r->records[1].bytes, 4 * (32 + 17));
    uint32_t words[32 + 17];
    memcpy(words, r->pool, sizeof words);
    for (int i = 0; i < 1000; i++) assert_int_equal(words[i / 32] >> i % 32 & 1, i % 31 == 7);
    for (int k = 0; k < 34; k++)
        assert_int_equal(words[32 + k / 2] >> k % 2 * 16 & 0xffff, k < 33 ? 0x8000 + 7 + 31 * k : 0);
}

/* A decoded chunk is that of the widened map's code, narrowed; or, if it was kept as it is, the original. */
static void as_widened_or_raw(rig *r, const char *spec) {
    for (const type *t = types; t < types + TYPES; t++)
        for (int i = 0; i < SHAPES * KINDS; i += 5) {
            const mm_shape *shape = &shapes[i % SHAPES], halves = as(shape, t->dtype);
            const int64_t n = elems_of(shape);
            fill(r, t, n, i / SHAPES, (uint64_t)i);
            code_and_back(r, spec, shape, r->wide, r->wide_back);
            const int64_t nonfinite = r->counters.nonfinite_blocks;
            code_and_back(r, spec, &halves, r->src, r->back);
            assert_int_equal(r->counters.nonfinite_blocks, nonfinite);
            for (int64_t at = 0; at < n; at += 1024) {
                const int64_t end = at + 1024 < n ? at + 1024 : n;
                if (memcmp(r->back + at, r->src + at, (size_t)(2 * (end - at))) == 0) continue;
                for (int64_t e = at; e < end; e++) expect_half(t, spec, e, r->back[e], nearest(t, r->wide_back[e]));
            }
        }
}

static void lossy_codes_of_variable_size_are_of_the_widened_chunks(void **state) {
    each(*state, false, false, as_widened_or_raw);
}

static void eb_stays_within_its_bound_and_half_an_ulp(void **state) {
    rig *r = *state;
    for (const type *t = types; t < types + TYPES; t++) {
        const mm_shape shape = {t->dtype, 1, {5000, 1, 1, 1}};
        fill(r, t, 5000, FAMILY_RELU, 1);
        code_and_back(r, "eb:abs=0.004", &shape, r->src, r->back);
        assert_true(r->records[1].bytes < 5000); /* smaller than half the map */
        for (int i = 0; i < 5000; i++) {
            const double x = value_of(t, r->src[i]), y = value_of(t, r->back[i]), bound = (double)0.004f;
            const double ulp = value_of(t, (uint16_t)((r->back[i] & 0x7fff) + 1)) - fabs(y);
            assert_true(fabs(x - y) <= bound + fmin(bound, ulp / 2));
            if (x == 0) assert_int_equal(r->back[i], 0);
        }
    }
}

/* A map with an odd number of elements, whose last word is half unused, has the same code after different maps: what an
 * earlier map left there does not get into it. */
static void the_same_after_another_map(rig *r, const char *spec) {
    enum { ODD = 1003 };
    static uint8_t codes[2][2 * MOST_BYTES];
    const mm_shape shape = {MM_BF16, 1, {ODD, 1, 1, 1}}, whole = {MM_BF16, 1, {ODD + 1, 1, 1, 1}};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i <= ODD; i++) r->src[i] = (uint16_t)(k ? 0x3f80 + i : 0xc000 - i);
        code_and_back(r, spec, &whole, r->src, r->back);
        memset(r->code, 0, MOST_BYTES);
        memset(r->pool, 0, MOST_BYTES);
        for (int i = 0; i < ODD; i++) r->src[i] = (uint16_t)(i % 2 ? 0 : 0x3f80 + i);
        code_and_back(r, spec, &shape, r->src, r->back);
        assert_memory_equal(r->back, r->src, ODD * sizeof *r->src);
        memcpy(codes[k], r->code, MOST_BYTES);
        memcpy(codes[k] + MOST_BYTES, r->pool, MOST_BYTES);
    }
    if (memcmp(codes[0], codes[1], sizeof codes[0]) != 0) fail_msg("%s: another code after another map", spec);
}

static void codes_of_an_odd_number_of_elements_are_of_these_alone(void **state) {
    each(*state, true, false, the_same_after_another_map);
}

static void other_types_are_unsupported_but_for_raw(void **state) {
    (void)state;
    static const mm_dtype others[] = {MM_I32, MM_U8};
    const mm_codec_ops *ops;
    for (size_t i = 0; (ops = mm_codec_table(i)); i++)
        for (size_t d = 0; d < 2 && strcmp(ops->device, "host") == 0; d++) {
            mm_codec *codec;
            int64_t bytes = -1;
            assert_int_equal(mm_codec_create(ops->name, "host", &codec), MM_OK);
            const bool raw = strcmp(ops->name, "raw") == 0;
            assert_int_equal(mm_codec_bound(codec, &(mm_shape){others[d], 1, {77, 1, 1, 1}}, &bytes),
                             raw ? MM_OK : MM_ERR_UNSUPPORTED);
            if (!raw) assert_non_null(strstr(mm_last_error(), "takes floats only (f32, f16, bf16), not"));
            mm_codec_destroy(codec);
        }
}

static void what_plans_reserve_is_less_by_what_values_take_less(void **state) {
    (void)state;
    static const struct {
        const char *spec;
        int64_t typical, reserve; /* of 1000 elements */
    } want[] = {{"zvc", 780, 1140}, {"zvc:reserve=30", 780, 600}, {"deflate", 780, 1140}, {"eb:abs=0.1", 376, 748}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        mm_codec *codec;
        mm_body_nominal body;
        int64_t most;
        const mm_shape shape = {MM_BF16, 2, {10, 100, 1, 1}};
        assert_int_equal(mm_codec_create(want[i].spec, "host", &codec), MM_OK);
        assert_int_equal(mm_codec_body_nominal(codec, &shape, &body), MM_OK);
        assert_int_equal(body.typical_bytes, want[i].typical);
        assert_int_equal(body.reserve_bytes, want[i].reserve);
        assert_int_equal(mm_codec_body_bound(codec, &shape, &most), MM_OK);
        assert_int_equal(most, 2000);
        mm_codec_destroy(codec);
    }
}

/* ---------------------------------------------------------------- signs */

static bool is_positive(const type *t, const void *map, int64_t i) {
    return t ? value_of(t, ((const uint16_t *)map)[i]) > 0 : ((const float *)map)[i] > 0;
}

/* Checks that a codec with signs decodes what the plain one does, with the map's signs. t: NULL for f32. */
static void expect_signs(const type *t, const char *spec, const void *map, const void *plain, const void *have,
                         int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const uint16_t *halves = have, *others = plain;
        const uint32_t got = t ? halves[i] : mm_float_bits(((const float *)have)[i]);
        const uint32_t was = t ? others[i] : mm_float_bits(((const float *)plain)[i]);
        const double value = t ? value_of(t, (uint16_t)was) : (double)((const float *)plain)[i];
        const uint32_t infinity = t ? t->infinity : 0x7f800000;
        uint32_t want = isnan(value) ? was : 0;
        if (is_positive(t, map, i)) want = isnan(value) ? infinity : value > 0 ? was : 1;
        if (got != want) fail_msg("%s: element %lld is %x, not %x", spec, (long long)i, got, want);
        assert_int_equal(is_positive(t, have, i), is_positive(t, map, i));
    }
}

static void signs_gives_the_other_codecs_values_with_the_maps_signs(void **state) {
    rig *r = *state;
    static const char *const specs[] = {"zfp:rate=4",   "zfp:rate=1", "dpr:fp8", "mx:fp4",
                                        "group:bits=2", "eb:abs=0.5", "eb",      "csr:values=fp8"};
    static float plain[MOST];
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int i = 0; i < SHAPES * KINDS; i += 5) {
            const type *t = i % 3 < TYPES ? &types[i % 3] : NULL;
            const mm_shape shape = as(&shapes[i % SHAPES], t ? t->dtype : MM_F32);
            const int64_t n = elems_of(&shape);
            char spec[64];
            fill(r, t ? t : types, n, i / SHAPES, (uint64_t)i);
            void *src = t ? (void *)r->src : r->wide, *back = t ? (void *)r->back : r->wide_back;
            const int64_t of = code_and_back(r, specs[s], &shape, src, plain), nonfinite = r->counters.nonfinite_blocks;
            snprintf(spec, sizeof spec, "signs:%s", specs[s]);
            assert_int_equal(code_and_back(r, spec, &shape, src, back), (of + 255) / 256 * 256 + (n + 31) / 32 * 4);
            assert_int_equal(r->counters.nonfinite_blocks, nonfinite);
            expect_signs(t, spec, src, plain, back, n);
        }
}

static void signs_takes_lossy_codecs_alone(void **state) {
    (void)state;
    static const struct {
        const char *spec, *says;
    } bad[] = {
        {"signs:zvc", "'zvc' has exact signs already: name a lossy codec, as signs:zfp:rate=8"},
        {"signs:raw", "'raw' has exact signs already"},
        {"signs:mask", "'mask' has exact signs already"},
        {"signs:signs:zfp", "has exact signs already"},
        {"signs:csr", "'csr' has exact signs already"},
        {"signs:zip", "there is no codec 'zip' on device host"},
        {"signs:zfp:rate=99", "rate"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mm_codec *codec = NULL;
        if (mm_codec_create(bad[i].spec, "host", &codec) != MM_ERR_INVALID) fail_msg("%s is taken", bad[i].spec);
        assert_null(codec);
        if (!strstr(mm_last_error(), bad[i].says)) fail_msg("%s: %s", bad[i].spec, mm_last_error());
    }
    mm_codec *codec;
    assert_int_equal(mm_codec_create("signs:group:bits=4", "host", &codec), MM_OK);
    assert_true(codec->flags.exact_signs && codec->flags.reads_iteration && !codec->flags.lossless);
    mm_codec_destroy(codec);
    assert_int_equal(mm_codec_create("signs", "host", &codec), MM_OK);
    assert_string_equal(codec->spec, "signs:zfp:rate=6.4");
    mm_codec_destroy(codec);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_widens_to_its_value_and_narrows_to_itself),
        cmocka_unit_test(floats_narrow_to_the_nearest_element),
        cmocka_unit_test(lossy_codes_of_fixed_size_are_those_of_the_widened_map),
        cmocka_unit_test(zfp_codes_are_libzfps_of_the_widened_map),
        cmocka_unit_test(lossless_codes_give_every_bit_back),
        cmocka_unit_test(sparse_codes_take_two_bytes_for_a_value),
        cmocka_unit_test(zvc_lays_values_out_in_pairs),
        cmocka_unit_test(lossy_codes_of_variable_size_are_of_the_widened_chunks),
        cmocka_unit_test(eb_stays_within_its_bound_and_half_an_ulp),
        cmocka_unit_test(codes_of_an_odd_number_of_elements_are_of_these_alone),
        cmocka_unit_test(other_types_are_unsupported_but_for_raw),
        cmocka_unit_test(what_plans_reserve_is_less_by_what_values_take_less),
        cmocka_unit_test(signs_gives_the_other_codecs_values_with_the_maps_signs),
        cmocka_unit_test(signs_takes_lossy_codecs_alone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
