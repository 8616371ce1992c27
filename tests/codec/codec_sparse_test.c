/* SPDX-License-Identifier: MIT */
/* The chunks of rle, csr and zvc: codes word by word as their headers have them, every float, and damage. Each buffer
 * has exactly the words that its function may touch, so that the address sanitizer sees one more. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/chunk/csr_chunk.h"
#include "pipeline/codec/chunk/deflate_chunk.h"
#include "pipeline/codec/chunk/rle_chunk.h"
#include "pipeline/codec/chunk/zvc_chunk.h"
#include "tests/codec/codec_data.h"
#include "tests/core/test_case.h"

enum { CHUNK = 1024, DAMAGED = 4000 };

typedef struct format {
    const char *name;
    int (*encode)(const uint32_t *src, int n, uint32_t *words);
    bool (*decode)(const uint32_t *words, int count, int n, uint32_t *dst);
    uint32_t (*kept)(uint32_t bits); /* what an element comes back as */
} format;

static uint32_t *words_of(int n) {
    uint32_t *words = malloc((size_t)(n > 0 ? n : 1) * sizeof *words);
    assert_non_null(words);
    return words;
}

static uint32_t as_it_is(uint32_t bits) { return bits; }

static int rle_encode(const uint32_t *src, int n, uint32_t *words) { return mm_rle_encode(src, n, words); }
static bool rle_decode(const uint32_t *words, int count, int n, uint32_t *dst) {
    return mm_rle_decode(words, count, n, dst);
}

static const mm_csr_values plain_values = {0, 0, 0};
static int csr_encode(const uint32_t *src, int n, uint32_t *words) {
    return mm_csr_encode(plain_values, src, n, words);
}
static bool csr_decode(const uint32_t *words, int count, int n, uint32_t *dst) {
    return mm_csr_decode(plain_values, words, count, n, dst);
}

static int zvc_encode(const uint32_t *src, int n, uint32_t *words) {
    uint32_t *room = words_of(mm_zvc_masks(n) + n);
    const int count = mm_zvc_encode(src, n, room);
    memcpy(words, room, (size_t)count * sizeof *words);
    free(room);
    return count;
}
static bool zvc_decode(const uint32_t *words, int count, int n, uint32_t *dst) {
    return mm_zvc_decode(words, count, n, dst);
}

#define CSR_OF(format, e, m, p)                                                                                        \
    static int csr_##format##_encode(const uint32_t *src, int n, uint32_t *words) {                                    \
        return mm_csr_encode((mm_csr_values){e, m, p}, src, n, words);                                                 \
    }                                                                                                                  \
    static bool csr_##format##_decode(const uint32_t *words, int count, int n, uint32_t *dst) {                        \
        return mm_csr_decode((mm_csr_values){e, m, p}, words, count, n, dst);                                          \
    }                                                                                                                  \
    static uint32_t format##_kept(uint32_t bits) {                                                                     \
        return bits == 0 ? 0 : mm_dpr_decode(mm_dpr_encode(bits, e, m), e, m);                                         \
    }
MM_DPR_FORMATS(CSR_OF)

static int deflate_encode(const uint32_t *src, int n, uint32_t *words) {
    const int bytes = mm_deflate_encode(MM_DEFLATE_LEVEL, src, 4 * n, words, 4 * (n - 1));
    if (bytes < 0) return n;
    memset((uint8_t *)words + bytes, 0, (size_t)(-bytes & 3));
    return (bytes + 3) / 4;
}
static bool deflate_decode(const uint32_t *words, int count, int n, uint32_t *dst) {
    return mm_deflate_decode(words, 4 * count, dst, 4 * n);
}

#define CSR_FORMAT(format, e, m, p)                                                                                    \
    {"csr:values=" #format, csr_##format##_encode, csr_##format##_decode, format##_kept},
static const format formats[] = {{"rle", rle_encode, rle_decode, as_it_is},
                                 {"csr", csr_encode, csr_decode, as_it_is},
                                 MM_DPR_FORMATS(CSR_FORMAT){"zvc", zvc_encode, zvc_decode, as_it_is},
                                 {"deflate", deflate_encode, deflate_decode, as_it_is}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Encodes and decodes n elements. Returns the words of the code, or n if it would not be smaller. */
static int round_trip(const format *f, const uint32_t *src, int n) {
    uint32_t *words = words_of(n);
    const int count = f->encode(src, n, words);
    assert_in_range(count, 1, n);
    if (count < n) {
        uint32_t *code = words_of(count), *back = words_of(n);
        memcpy(code, words, (size_t)count * sizeof *code);
        memset(back, 0xa5, (size_t)n * sizeof *back);
        assert_true(f->decode(code, count, n, back));
        for (int i = 0; i < n; i++)
            if (back[i] != f->kept(src[i])) fail_msg("%s: %d of %d: %08x is %08x", f->name, i, n, src[i], back[i]);
        free(back);
        free(code);
    }
    free(words);
    return count;
}

TEST_CASE(rle_has_the_runs_and_then_what_is_not_zero) {
    const uint32_t minus_zero = 0x80000000;
    const uint32_t src[12] = {0, 7, 8, 0, 0, 0, minus_zero, 0, 0, 0, 0, 9};
    const uint32_t code[] = {3, 1 | 3 << 16, 6 | 7 << 16, 11 | 12 << 16, 7, 8, minus_zero, 9};
    uint32_t words[12];
    assert_int_equal(mm_rle_encode(src, 12, words), 8);
    assert_memory_equal(words, code, sizeof code);
    assert_int_equal(round_trip(&formats[0], src, 12), 8);
}

TEST_CASE(zvc_has_the_masks_and_then_what_is_not_zero) {
    const uint32_t minus_zero = 0x80000000;
    uint32_t src[70] = {0}, words[3 + 70];
    src[0] = 7, src[31] = minus_zero, src[33] = 1, src[69] = 0x7f800001;
    const uint32_t code[] = {1 | 1u << 31, 2, 1 << 5, 7, minus_zero, 1, 0x7f800001};
    assert_int_equal(mm_zvc_encode(src, 70, words), 7);
    assert_memory_equal(words, code, sizeof code);
}

TEST_CASE(csr_has_the_rows_ends_and_a_byte_a_column) {
    uint32_t src[600] = {0};
    src[3] = 0x3f800000; /* row 0. In fp10: 1 is 0x0f0, 2 is 0x100; 1e-6, below its least normal 2^-14, is 0 */
    src[255] = 0x40000000;
    src[512] = 0xb58637bd; /* row 2: -1e-6 */
    src[599] = 0x3f800000;
    const uint32_t plain[] = {2 | 2 << 16, 4 | 4u << 16, 3 | 255u << 8 | 0u << 16 | 87u << 24, 0x3f800000, 0x40000000,
                              0xb58637bd,  0x3f800000};
    const uint32_t small[] = {plain[0], plain[1], plain[2], 0x0f0 | 0x100 << 10 | 0x200u << 20, 0x0f0};
    uint32_t words[600];
    assert_int_equal(mm_csr_encode(plain_values, src, 600, words), 7);
    assert_memory_equal(words, plain, sizeof plain);
    assert_int_equal(mm_csr_encode((mm_csr_values){5, 4, 3}, src, 600, words), 5);
    assert_memory_equal(words, small, sizeof small);
}

TEST_CASE(zeros_take_a_word_or_two_and_dense_chunks_are_no_smaller) {
    uint32_t *src = words_of(CHUNK);
    memset(src, 0, CHUNK * sizeof *src);
    for (int f = 0; f < FORMATS; f++)
        assert_int_equal(round_trip(&formats[f], src, CHUNK), f == 0 ? 1 : f == 5 ? 32 : f == 6 ? 7 : 2);
    for (int i = 0; i < CHUNK; i++) src[i] = 0x3f800000 + (uint32_t)i;
    assert_int_equal(round_trip(&formats[0], src, CHUNK), CHUNK);
    assert_int_equal(round_trip(&formats[1], src, CHUNK), CHUNK);
    assert_int_equal(round_trip(&formats[2], src, CHUNK), 2 + CHUNK / 4 + CHUNK / 2);
    assert_int_equal(round_trip(&formats[3], src, CHUNK), 2 + CHUNK / 4 + (CHUNK + 2) / 3);
    assert_int_equal(round_trip(&formats[4], src, CHUNK), 2 + CHUNK / 4 + CHUNK / 4);
    assert_int_equal(round_trip(&formats[5], src, CHUNK), CHUNK);
    for (int i = 0; i < CHUNK; i += 2) src[i] = 0; /* as many runs as there can be */
    assert_int_equal(round_trip(&formats[0], src, CHUNK), CHUNK);
    assert_int_equal(round_trip(&formats[5], src, CHUNK), 32 + 512);
    src[0] = 1, src[1] = 0, src[3] = 0;
    assert_int_equal(round_trip(&formats[0], src, CHUNK), 1 + 511 + 511);
    free(src);
}

/* Chunks of any length, with NaNs of any payload and infinities, too. */
TEST_CASE(every_float_comes_back) {
    static const int lengths[] = {1, 2, 3, 4, 31, 32, 33, 255, 256, 257, 511, 513, 768, 1000, 1023, CHUNK};
    static const uint32_t special[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff, 1, 0x80000000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int n = lengths[l];
        uint32_t *src = words_of(n);
        for (int family = 0; family < FAMILIES; family++) {
            float *values = malloc((size_t)n * sizeof *values);
            assert_non_null(values);
            codec_data_fill(values, n, (codec_family)family, (uint64_t)n);
            memcpy(src, values, (size_t)n * sizeof *src);
            free(values);
            for (int i = 0; i < n; i += 13) src[i] = special[i / 13 % 7];
            for (int f = 0; f < FORMATS; f++) round_trip(&formats[f], src, n);
        }
        free(src);
    }
}

/* A damaged code is refused, or decodes to n other elements; no other memory is touched. */
TEST_CASE(damage_is_refused_or_harmless) {
    uint64_t random = codec_seed(5);
    for (int f = 0; f < FORMATS; f++) {
        int refused = 0;
        for (int round = 0; round < DAMAGED; round++) {
            const int n = 8 + (int)(random_next(&random) % (CHUNK - 7));
            uint32_t *src = words_of(n), *words = words_of(n);
            for (int i = 0; i < n; i++) src[i] = random_next(&random) % 4 ? 0 : (uint32_t)random_next(&random);
            int count = formats[f].encode(src, n, words);
            if (count < n) {
                if (round % 3 == 0) count = (int)(random_next(&random) % (uint64_t)count);
                uint32_t *code = words_of(count);
                memcpy(code, words, (size_t)count * sizeof *code);
                for (int i = 0; count > 0 && round % 3 && i < 1 + round % 4; i++)
                    code[random_next(&random) % (uint64_t)(round % 2 && count > 8 ? 8 : count)] ^=
                        1u << random_next(&random) % 32;
                refused += !formats[f].decode(code, count, n, src);
                free(code);
            }
            free(words);
            free(src);
        }
        assert_true(refused > DAMAGED / 3); /* at least those that are cut short */
    }
}

TEST_CASE(each_fault_of_a_code_is_refused) {
    static const struct {
        int format, count;
        uint32_t words[6];
    } cases[] = {
        {0, 0, {0}},                                          /* no words */
        {0, 1, {1}},                                          /* the only run is missing */
        {0, 2, {0xffffffff, 0}},                              /* a number of runs that overflows */
        {0, 3, {1, 3 | 3 << 16, 5}},                          /* an empty run */
        {0, 3, {1, 19 | 21u << 16, 5}},                       /* a run past the end, with too few values */
        {0, 5, {2, 4 | 5 << 16, 4 | 5 << 16, 5, 6}},          /* runs that are not in order */
        {0, 5, {2, 4 | 5 << 16, 5 | 6 << 16, 5, 6}},          /* two runs without a gap between */
        {0, 4, {1, 4 | 5 << 16, 5, 6}},                       /* a value of no run */
        {5, 0, {0}},                                          /* no mask */
        {5, 1, {1}},                                          /* the only value is missing */
        {5, 2, {0, 5}},                                       /* a value too many */
        {5, 2, {1 << 20, 5}},                                 /* a value past the end */
        {1, 1, {0}},                                          /* half a head */
        {1, 3, {0, 0, 1}},                                    /* a word too many */
        {1, 4, {1 | 1 << 16, 1 | 1 << 16, 20, 5}},            /* a column past the end */
        {1, 4, {0, 1 << 16, 0, 5}},                           /* a row past the end */
        {1, 4, {0, 0xffffu << 16, 0, 5}},                     /* an end beyond all values */
        {1, 5, {2 | 1 << 16, 2 | 2 << 16, 1 | 2 << 8, 5, 6}}, /* a row's end before the last row's */
        {1, 5, {2 | 2 << 16, 2 | 2 << 16, 2 | 2 << 8, 5, 6}}, /* a column twice */
        {1, 5, {3 | 2 << 16, 2 | 2 << 16, 1 | 2 << 8, 5, 6}}, /* an end past the last */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t dst[20], *code = words_of(cases[i].count);
        memcpy(code, cases[i].words, (size_t)cases[i].count * sizeof *code);
        if (formats[cases[i].format].decode(code, cases[i].count, 20, dst)) fail_msg("case %zu is taken", i);
        free(code);
    }
}

/* With every chunk codec of the host, all instruction sets of this machine give the bits of the portable form. */
TEST_CASE(every_instruction_set_gives_the_same_bits) {
    static const int lengths[] = {1, 15, 16, 17, 31, 32, 33, 48, 100, 511, 1000, 1023, CHUNK};
    static const float bounds[] = {0, 1e-4f, 0.02f, 0.5f, 1e10f};
    static uint32_t src[CHUNK], words[2][MM_CHUNK_ROOM], *back[2];
    const mm_codec_ops *ops;
    for (int i = 0; i < 2; i++) back[i] = words_of(CHUNK);
    for (size_t at = 0; (ops = mm_codec_table(at)); at++) {
        if (ops->body_bound != mm_chunk_body_bound || strcmp(ops->device, "host") != 0) continue;
        const mm_chunk_host *own = ops->own;
        for (int of = 0; of < 13 * (FAMILIES + 2) * 5; of++) {
            const int n = lengths[of % 13], family = of / 13 % (FAMILIES + 2);
            const mm_chunk_params params = {.bound = bounds[of / 13 / (FAMILIES + 2)]};
            int count[2];
            codec_data_fill((float *)src, n, (codec_family)(family % FAMILIES), (uint64_t)of);
            for (int i = 0; family >= FAMILIES && i < n; i += 1 + i % 7) src[i] = i % 2 ? 0x7fc00001 : 0xff800000;
            count[1] = own->encode[MM_PACKED_ISAS - 1](&params, (float *)src, n, words[1]);
            if (count[1] < n)
                assert_true(own->decode[MM_PACKED_ISAS - 1](&params, words[1], count[1], n, (float *)back[1]));
            for (int isa = 0; isa < MM_PACKED_ISAS - 1; isa++) {
                if (!mm_packed_isa_usable(isa)) continue;
                count[0] = own->encode[isa](&params, (float *)src, n, words[0]);
                if (count[0] != count[1]) fail_msg("%s: %d words, not %d, of %d", ops->name, count[0], count[1], n);
                if (count[0] > 0) assert_memory_equal(words[0], words[1], (size_t)count[0] * sizeof *src);
                if (count[0] == n) continue;
                uint32_t *code = words_of(count[0]);
                memcpy(code, words[0], (size_t)count[0] * sizeof *code);
                assert_true(own->decode[isa](&params, code, count[0], n, (float *)back[0]));
                assert_memory_equal(back[0], back[1], (size_t)n * sizeof *src);
                free(code);
            }
        }
    }
    free(back[0]);
    free(back[1]);
}

/* ---------------------------------------------------------------- on the host device */

static void same_decoded(const format *f, const mm_chunk_host *host, const mm_chunk_params *params, int isa,
                         const uint32_t *code, int count, int n) {
    uint32_t *expected = words_of(n), *back = words_of(n);
    const bool whole = f->decode(code, count, n, expected);
    assert_int_equal(host->decode[isa](params, code, count, n, (float *)back), whole);
    if (whole) assert_memory_equal(back, expected, (size_t)n * sizeof *back);
    free(expected);
    free(back);
}

static void same_as_the_header(const format *f, const mm_chunk_host *host, const mm_chunk_params *params, int isa,
                               const uint32_t *src, int n, uint64_t *random) {
    uint32_t *expected = words_of(n), *words = words_of(MM_CHUNK_ROOM);
    const int count = f->encode(src, n, expected);
    assert_int_equal(host->encode[isa](params, (const float *)src, n, words), count);
    assert_memory_equal(words, count < n ? expected : src, (size_t)count * sizeof *words);
    if (count < n) {
        uint32_t *code = words_of(count); /* allocated to size: reading a word more is found */
        memcpy(code, words, (size_t)count * sizeof *code);
        same_decoded(f, host, params, isa, code, count, n);
        for (int i = 0; i < 4; i++) {
            code[random_next(random) % (uint64_t)(i % 2 && count > 3 ? 3 : count)] ^= 1u << random_next(random) % 32;
            same_decoded(f, host, params, isa, code, count, n);
        }
        free(code);
    }
    free(expected);
    free(words);
}

TEST_CASE(each_instruction_set_makes_the_codes_of_the_headers) {
    uint64_t random = codec_seed(9);
    for (int f = 0; f < FORMATS; f++) {
        mm_codec *codec;
        assert_int_equal(mm_codec_create(formats[f].name, "host", &codec), MM_OK);
        const mm_chunk_params params = ((const mm_chunk_codec *)codec)->params;
        for (int round = 0; round < 60 * MM_PACKED_ISAS; round++) {
            const int n = round % 4 ? 1 + (int)(random_next(&random) % CHUNK) : CHUNK;
            uint32_t *src = words_of(n), share = (uint32_t)random_next(&random) % 5, value = 1;
            for (int i = 0; i < n; i++) { /* runs of some, or none */
                if (random_next(&random) % (uint64_t)(1 + round % 7) == 0) value = random_next(&random) % 4 < share;
                src[i] = value ? (uint32_t)random_next(&random) : 0;
            }
            if (mm_packed_isa_usable(round % MM_PACKED_ISAS))
                same_as_the_header(&formats[f], codec->ops->own, &params, round % MM_PACKED_ISAS, src, n, &random);
            free(src);
        }
        mm_codec_destroy(codec);
    }
}

TEST_CASE(parameters_are_said_in_one_line) {
    static const struct {
        const char *spec, *says;
    } bad[] = {
        {"csr:values=fp9", "codec csr: 'values=fp9': there are fp16, fp10 and fp8"},
        {"csr:values=", "there are fp16, fp10 and fp8"},
        {"csr:fp16", "unknown parameter 'fp16'; there are values=, reserve= and sms="},
        {"csr:values=fp16:values=fp8", "values= is given twice"},
        {"rle:values=fp16", "unknown parameter 'values'"},
        {"deflate:level=0", "'level=0': must be a whole number from 1 to 9"},
        {"deflate:level=10", "from 1 to 9"},
    };
    mm_codec *codec;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mm_codec_create(bad[i].spec, "host", &codec), MM_ERR_INVALID);
        if (!strstr(mm_last_error(), bad[i].says)) fail_msg("%s: %s", bad[i].spec, mm_last_error());
    }
    static const struct {
        const char *spec;
        bool lossless;
        int64_t typical_bytes, reserve_bytes;
    } good[] = {{"csr", true, 477 * 4, 635 * 4},
                {"csr:values=fp16", false, 287 * 4, 382 * 4},
                {"csr:values=fp8,reserve=30", false, 192 * 4, 300 * 4},
                {"rle", true, 600 * 4, 735 * 4},
                {"deflate:level=1", true, 385 * 4, 538 * 4}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const mm_shape map = {MM_F32, 2, {10, 100, 1, 1}};
        mm_body_nominal body;
        assert_int_equal(mm_codec_create(good[i].spec, "host", &codec), MM_OK);
        assert_string_equal(codec->spec, good[i].spec);
        assert_int_equal(codec->flags.lossless, good[i].lossless);
        assert_int_equal(mm_codec_body_nominal(codec, &map, &body), MM_OK);
        assert_int_equal(body.typical_bytes, good[i].typical_bytes);
        assert_int_equal(body.reserve_bytes, good[i].reserve_bytes);
        mm_codec_destroy(codec);
    }
}
