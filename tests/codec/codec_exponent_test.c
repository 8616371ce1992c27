/* SPDX-License-Identifier: MIT */
/* exponent: codes are bit for bit what exponent_chunk.h says, by a reference that tries every form and writes bit by
 * bit; every element comes back; damage is refused. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/chunk/exponent_chunk.h"
#include "tests/codec/codec_data.h"
#include "tests/core/test_case.h"

enum { CHUNK = 1024, DAMAGED = 4000, TYPES = 3 };

typedef struct element {
    mm_dtype type;
    int bits, exponent_bits;
} element;
static const element elements[TYPES] = {{MM_F32, 32, 8}, {MM_BF16, 16, 8}, {MM_F16, 16, 5}};

static const mm_chunk_host *host(void) {
    const mm_codec_ops *ops;
    for (size_t i = 0; (ops = mm_codec_table(i)); i++)
        if (strcmp(ops->name, "exponent") == 0 && strcmp(ops->device, "host") == 0) return ops->own;
    fail_msg("there is no codec exponent");
    return NULL;
}

static int exponent_of(element e, uint32_t bits) {
    return (int)(bits >> (e.bits - 1 - e.exponent_bits)) & ((1 << e.exponent_bits) - 1);
}

/* Mantissa, and then the sign as the highest bit but the exponent's. */
static uint32_t rest_of(element e, uint32_t bits) {
    const int mantissa = e.bits - 1 - e.exponent_bits;
    return (bits & ((1u << mantissa) - 1)) << 1 | bits >> (e.bits - 1);
}

/* ---------------------------------------------------------------- the reference */

static void put_bits(uint32_t *words, int lane, int from, uint32_t value, int count) {
    for (int b = 0; b < count; b++) words[(from + b) / 32 * 32 + lane] |= (value >> b & 1) << (from + b) % 32;
}

/* Writes the code of n elements, and returns its words; raw if it would not be smaller. */
static int reference(element e, const uint32_t *src, int n, uint32_t *words) {
    const int rest = e.bits - e.exponent_bits, raw = (n * e.bits + 31) / 32;
    int count[256] = {0}, least = 255, best = raw, best_base = 0, best_bits = 0, best_escapes = 0;
    for (int i = 0; i < n; i++) count[exponent_of(e, src[i])]++;
    for (int x = 255; x >= 0; x--) least = count[x] ? x : least;
    for (int bits = 0; bits <= 5; bits++) {
        int form_base = least, form_escapes = n;
        for (int base = least; base < 256; base++)
            for (int reserved = 0; reserved <= 1; reserved++) { /* all codes are exponents' only if none escapes */
                int escapes = n;
                for (int x = base; x < base + (1 << bits) - reserved && x < 256; x++) escapes -= count[x];
                if (escapes < form_escapes && (reserved || escapes == 0)) form_escapes = escapes, form_base = base;
            }
        const int width = bits + rest, rows = (n + 31) / 32;
        const int all = 1 + (rows * width + 31) / 32 * 32 + (form_escapes + 3) / 4;
        if (all < best) best = all, best_base = form_base, best_bits = bits, best_escapes = form_escapes;
    }
    if (best == raw) return raw;
    memset(words, 0, (size_t)best * sizeof *words);
    words[0] = (uint32_t)(best_base | best_bits << 8 | best_escapes << 16);
    const int width = best_bits + rest, codes = (1 << best_bits) - (best_escapes > 0);
    uint8_t *list = (uint8_t *)(words + best - (best_escapes + 3) / 4);
    for (int lane = 0; lane < 32; lane++)
        for (int i = lane; i < n; i += 32) {
            const int x = exponent_of(e, src[i]) - best_base;
            const bool escapes = x < 0 || x >= codes;
            if (escapes) *list++ = (uint8_t)exponent_of(e, src[i]);
            put_bits(words + 1, lane, i / 32 * width, (uint32_t)(escapes ? codes : x) << rest | rest_of(e, src[i]),
                     width);
        }
    return best;
}

/* ---------------------------------------------------------------- chunks */

/* Which exponents a chunk has: the highest of an element's type is that of infinities and NaNs, 0 of subnormals. */
enum { ANY_BITS, EQUAL, BELL, TWO_ENDS, OUTLIERS, SPAN, SPECIAL, FEW, KINDS };

static int drawn_exponent(int kind, int most, int round, uint64_t *random) {
    const int r = (int)(random_next(random) >> 33), center = round * 7 % (most + 1);
    switch (kind) {
    case BELL: /* half has one exponent, half of the rest the next, ... */
        return center > r % 30 ? center - __builtin_ctz((unsigned)r | 1u << 20) * (center > 20) : center;
    case TWO_ENDS:
        return r % 2 ? most : 0;
    case OUTLIERS:
        return r % 40 ? center : r / 40 % (most + 1);
    case SPAN: /* as many as codes of some bits are, and one or two more or fewer */
        return (center + r % ((1 << round % 6) + round / 6 % 4)) % (most + 1);
    case SPECIAL:
        return r % 3 == 0 ? most : r % 3 == 1 ? 0 : center;
    case FEW:
        return r % 8 ? center : (center + 3) % (most + 1);
    default:
        return center;
    }
}

static void fill(element e, int kind, int round, int n, uint32_t *src) {
    uint64_t random = codec_seed((uint64_t)(round * KINDS + kind));
    for (int i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)random_next(&random);
        const int most = (1 << e.exponent_bits) - 1, mantissa = e.bits - 1 - e.exponent_bits;
        src[i] = bits >> (32 - e.bits);
        if (kind == ANY_BITS) continue;
        src[i] &= ~((uint32_t)most << mantissa);
        src[i] |= (uint32_t)drawn_exponent(kind, most, round, &random) << mantissa;
    }
}

static uint32_t *words_of(int n) {
    uint32_t *words = malloc((size_t)(n > 0 ? n : 1) * sizeof *words);
    assert_non_null(words);
    return words;
}

/* Every instruction set writes the reference's words, and gives every bit back. Returns whether the code is smaller. */
static bool check(element e, const uint32_t *src, int n) {
    static uint32_t want[2 * CHUNK], have[MM_CHUNK_ROOM];
    const mm_chunk_params params = {.type = e.type};
    const int raw = mm_chunk_raw_words(n, e.bits == 16), count = reference(e, src, n, want);
    for (int isa = 0; isa < MM_PACKED_ISAS; isa++) {
        if (!mm_packed_isa_usable(isa)) continue;
        assert_int_equal(host()->encode[isa](&params, (const float *)(const void *)src, n, have), count);
        if (count == raw) continue;
        assert_memory_equal(have, want, (size_t)count * sizeof *have);
        uint32_t *code = words_of(count), *back = words_of(n);
        memcpy(code, have, (size_t)count * sizeof *code);
        assert_true(host()->decode[isa](&params, code, count, n, (float *)(void *)back));
        assert_memory_equal(back, src, (size_t)n * sizeof *src);
        free(code);
        free(back);
    }
    return count < raw;
}

TEST_CASE(codes_are_the_references_and_every_bit_comes_back) {
    static const int lengths[] = {1, 2, 31, 32, 33, 64, 100, 511, 512, 513, 1000, 1023, CHUNK, CHUNK, CHUNK, CHUNK};
    int smaller = 0, raw = 0;
    for (int t = 0; t < TYPES; t++)
        for (int round = 0; round < 48; round++)
            for (int kind = 0; kind < KINDS; kind++) {
                const int n = lengths[round % 16];
                uint32_t *src = words_of(n);
                fill(elements[t], kind, round, n, src);
                *(check(elements[t], src, n) ? &smaller : &raw) += 1;
                free(src);
            }
    assert_true(smaller > 300 && raw > 100);
}

TEST_CASE(a_chunk_with_one_exponent_has_no_codes_and_others_have_escapes) {
    uint32_t src[CHUNK], words[MM_CHUNK_ROOM];
    const mm_chunk_params params = {.type = MM_F32};
    const mm_chunk_host *own = host();
    for (int i = 0; i < CHUNK; i++) src[i] = 0x3f800000 | (uint32_t)i << 3 | (uint32_t)(i % 2) << 31;
    const mm_chunk_encode_fn encode = own->encode[MM_PACKED_ISAS - 1];
    assert_int_equal(encode(&params, (const float *)(const void *)src, CHUNK, words), 1 + CHUNK * 24 / 32);
    assert_int_equal(words[0], 127);
    src[3] = 0x7fc12345, src[33] = 1,
    src[36] = 0x41000000; /* a NaN in lane 3, a subnormal in lane 1, and 8 in lane 4 */
    assert_int_equal(encode(&params, (const float *)(const void *)src, CHUNK, words), 1 + CHUNK * 25 / 32 + 1);
    assert_int_equal(words[0], 127 | 1 << 8 | 3 << 16);
    assert_int_equal(words[1 + CHUNK * 25 / 32], 0 | 255 << 8 | 130 << 16);
}

/* ---------------------------------------------------------------- damage */

TEST_CASE(damage_is_refused_or_harmless) {
    uint64_t random = codec_seed(9);
    for (int t = 0; t < TYPES; t++) {
        const mm_chunk_params params = {.type = elements[t].type};
        int refused = 0, taken = 0;
        for (int round = 0; round < DAMAGED; round++) {
            const int n = 40 + (int)(random_next(&random) % (CHUNK - 39)), isa = round / 2 % MM_PACKED_ISAS;
            uint32_t *src = words_of(n), *words = words_of(MM_CHUNK_ROOM);
            fill(elements[t], round % 2 ? FEW : OUTLIERS, round, n, src);
            int count = mm_packed_isa_usable(isa)
                            ? host()->encode[isa](&params, (const float *)(const void *)src, n, words)
                            : n;
            if (count < mm_chunk_raw_words(n, elements[t].bits == 16)) {
                if (round % 3 == 0) count = (int)(random_next(&random) % (uint64_t)count);
                uint32_t *code = words_of(count);
                memcpy(code, words, (size_t)count * sizeof *code);
                for (int i = 0; count > 0 && round % 3 && i < 1 + round % 4; i++)
                    code[random_next(&random) % (uint64_t)(round % 5 ? count : 1)] ^= 1u << random_next(&random) % 32;
                *(host()->decode[isa](&params, code, count, n, (float *)(void *)src) ? &taken : &refused) += 1;
                free(code);
            }
            free(words);
            free(src);
        }
        assert_true(refused > DAMAGED / 6 && taken > DAMAGED / 20);
    }
}

TEST_CASE(each_fault_of_a_code_is_refused) {
    const uint32_t plain = 127 | 3 << 8, escape = 7u << 24;
    const struct {
        uint32_t head, fields[2];
        int more; /* words beyond those that the head asks for */
    } cases[] = {
        {plain, {0}, 1},                        /* a word too many */
        {plain, {0}, -1},                       /* a word too few */
        {plain | 1 << 12, {0}, 0},              /* a bit that must be 0 */
        {plain | 1u << 31, {0}, 0},             /* more escapes than elements */
        {127 | 4 << 16, {0}, 0},                /* escapes, but no code for them */
        {127 | 6 << 8, {0}, 0},                 /* more bits than codes have */
        {plain | 1 << 16, {escape - 1}, 0},     /* an escape that no element has */
        {plain | 1 << 16, {escape, escape}, 0}, /* two elements escape, but one is listed */
    };
    const mm_chunk_params params = {.type = MM_F32};
    uint32_t *back = words_of(CHUNK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mm_exponent_form form = {127, (int)(cases[i].head >> 8 & 0xf), (int)(cases[i].head >> 16)};
        const int asked = mm_exponent_words(CHUNK, 24, form), count = asked < CHUNK ? asked + cases[i].more : CHUNK - 1;
        uint32_t *code = words_of(count);
        memset(code, 0, (size_t)count * sizeof *code);
        code[0] = cases[i].head;
        memcpy(code + 1, cases[i].fields, sizeof cases[i].fields);
        for (int isa = 0; isa < MM_PACKED_ISAS; isa++)
            if (mm_packed_isa_usable(isa) && host()->decode[isa](&params, code, count, CHUNK, (float *)(void *)back))
                fail_msg("case %zu is taken", i);
        free(code);
    }
    free(back);
}
