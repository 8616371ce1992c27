/* SPDX-License-Identifier: MIT */
/* exponent on the host device. exponent_chunk.h has its format. The loops over lanes are for the compiler to vectorise;
 * instruction sets differ in nothing else. */
#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/chunk/exponent_chunk.h"

enum { LANES = MM_EXPONENT_LANES, ROWS = MM_CHUNK_ELEMS / LANES };

/* Type of the elements, as the formats' functions take it. */
typedef struct layout {
    int whole, rest; /* bits of an element, and of it without its exponent */
} layout;

/* ---------------------------------------------------------------- the form of a chunk */

/* The exponents of a chunk. before[e - least]: number of exponents below e, for e from least to most + 1. */
typedef struct exponents {
    int least, most;
    uint16_t before[MM_EXPONENTS + 1];
} exponents;

/* Counts the exponents of n turned elements: into four tables, so that an addition seldom waits for the one before,
 * although equal exponents follow one another. */
MM_HD void count_exponents(const uint32_t *turned, int n, int rest, exponents *out) {
    uint16_t count[4][MM_EXPONENTS];
    uint32_t least = UINT32_MAX, most = 0;
    int i = 0, sum = 0;
    for (int j = 0; j < n; j++) {
        least = turned[j] < least ? turned[j] : least;
        most = turned[j] > most ? turned[j] : most;
    }
    out->least = (int)(least >> rest), out->most = (int)(most >> rest);
    const int span = out->most - out->least + 1;
    for (int t = 0; t < 4; t++) memset(&count[t][out->least], 0, (size_t)span * sizeof **count);
    for (; i + 4 <= n; i += 4)
        for (int t = 0; t < 4; t++) count[t][turned[i + t] >> rest]++;
    for (; i < n; i++) count[0][turned[i] >> rest]++;
    for (int e = 0; e < span; e++) {
        out->before[e] = (uint16_t)sum;
        for (int t = 0; t < 4; t++) sum += count[t][out->least + e];
    }
    out->before[span] = (uint16_t)sum;
}

/* The form with the fewest words; of equal ones that with the fewest bits, then with the smallest base. */
MM_HD mm_exponent_form choose_form(const uint32_t *turned, int n, int rest) {
    exponents all;
    mm_exponent_form best = {0};
    int fewest = INT32_MAX;
    count_exponents(turned, n, rest, &all);
    const int span = all.most - all.least + 1;
    for (int bits = 0; bits <= MM_EXPONENT_BITS_MOST; bits++) {
        const int codes = (1 << bits) - 1;
        mm_exponent_form form = {.base = all.least, .bits = bits};
        int covered = span <= 1 << bits ? n : 0;
        for (int from = 0; from < span && covered < n; from++) {
            const int here = all.before[from + codes < span ? from + codes : span] - all.before[from];
            if (here > covered) covered = here, form.base = all.least + from;
        }
        form.escapes = n - covered;
        const int words = mm_exponent_words(n, rest, form);
        if (words < fewest) fewest = words, best = form;
        if (form.escapes == 0) break;
    }
    return best;
}

/* ---------------------------------------------------------------- escapes */

/* Where each lane's escapes begin in their list, given each row's mask of the lanes with an escape. Returns their
 * number. */
MM_HD int place_escapes(const uint32_t masks[ROWS], int rows, int at_out[LANES]) {
    int counts[LANES] = {0}, sum = 0;
    for (int row = 0; row < rows; row++)
        for (uint32_t mask = masks[row]; mask; mask &= mask - 1) counts[__builtin_ctz(mask)]++;
    for (int lane = 0; lane < LANES; lane++) {
        at_out[lane] = sum;
        sum += counts[lane];
    }
    return sum;
}

/* Mask of the lanes whose field has the code for escapes, or a higher one. */
MM_HD uint32_t mask_escapes(const uint32_t *fields, uint32_t escape) {
    uint32_t mask = 0;
    for (int lane = 0; lane < LANES; lane++) mask |= (uint32_t)(fields[lane] >= escape) << lane;
    return mask;
}

/* ---------------------------------------------------------------- encode */

/* Makes the fields of rows, packs them to `words`, and lists the escapes after them. */
MM_HD void pack(const uint32_t *turned, int n, layout l, mm_exponent_form form, uint32_t *words) {
    const int rows = (n + LANES - 1) / LANES, width = form.bits + l.rest;
    const uint32_t kept = (1u << l.rest) - 1, base = (uint32_t)form.base << l.rest, all = ~0u >> (32 - l.whole);
    const uint32_t escape = (uint32_t)mm_exponent_codes(form) << l.rest;
    uint8_t *const list = (uint8_t *)(words + mm_exponent_field_words(n, width));
    uint32_t fields[LANES], packed[LANES] = {0}, masks[ROWS];
    int filled = 0, at[LANES];
    for (int row = 0; row < rows; row++) {
        for (int lane = 0; lane < LANES; lane++) fields[lane] = (turned[row * LANES + lane] - base) & all;
        if (form.escapes > 0) {
            masks[row] = mask_escapes(fields, escape);
            for (int lane = 0; lane < LANES; lane++)
                fields[lane] = fields[lane] >= escape ? (fields[lane] & kept) | escape : fields[lane];
        }
        for (int lane = 0; lane < LANES; lane++) packed[lane] |= fields[lane] << filled;
        filled += width;
        if (filled < 32 && row + 1 < rows) continue;
        memcpy(words, packed, sizeof packed);
        words += LANES;
        filled -= 32;
        for (int lane = 0; lane < LANES; lane++) packed[lane] = filled > 0 ? fields[lane] >> (width - filled) : 0;
    }
    if (filled > 0) memcpy(words, packed, sizeof packed);
    if (form.escapes == 0) return;
    memset(list + form.escapes / 4 * 4, 0, form.escapes % 4 ? 4 : 0);
    place_escapes(masks, rows, at);
    for (int row = 0; row < rows; row++)
        for (uint32_t mask = masks[row]; mask; mask &= mask - 1) {
            const int lane = __builtin_ctz(mask);
            list[at[lane]++] = (uint8_t)(turned[row * LANES + lane] >> l.rest);
        }
}

MM_HD int encode(const uint32_t *src, int n, layout l, uint32_t *words) {
    uint32_t turned[MM_CHUNK_ELEMS];
    const int raw = mm_chunk_raw_words(n, l.whole == 16);
    for (int i = 0; i < n; i++) turned[i] = mm_exponent_turn(src[i], l.whole);
    const mm_exponent_form form = choose_form(turned, n, l.rest);
    const int count = mm_exponent_words(n, l.rest, form);
    if (count >= raw) return l.whole == 16 ? raw : mm_chunk_raw((const float *)src, n, words);
    for (int i = n; i % LANES; i++) turned[i] = (uint32_t)form.base << l.rest; /* its field is 0 */
    words[0] = mm_exponent_head(form);
    pack(turned, n, l, form, words + 1);
    return count;
}

int mm_exponent_chunk_words(mm_dtype type, const uint32_t *elements, int n) {
    uint32_t turned[MM_CHUNK_ELEMS];
    const int whole = type == MM_F32 ? 32 : 16, rest = mm_exponent_rest(type), raw = mm_chunk_raw_words(n, whole == 16);
    for (int i = 0; i < n; i++) turned[i] = mm_exponent_turn(elements[i], whole);
    const int count = mm_exponent_words(n, rest, choose_form(turned, n, rest));
    return count < raw ? count : raw;
}

/* ---------------------------------------------------------------- decode */

/* Unpacks the fields of a row. */
MM_HD void unpack_row(const uint32_t *words, int row, int width, uint32_t fields[LANES]) {
    const uint32_t *const low = words + row * width / 32 * LANES;
    const int from = row * width % 32;
    const uint32_t mask = (1u << width) - 1;
    for (int lane = 0; lane < LANES; lane++) fields[lane] = low[lane] >> from;
    if (from + width > 32)
        for (int lane = 0; lane < LANES; lane++) fields[lane] |= low[LANES + lane] << (32 - from);
    for (int lane = 0; lane < LANES; lane++) fields[lane] &= mask;
}

MM_HD bool decode(const uint32_t *words, int count, int n, layout l, uint32_t *dst) {
    mm_exponent_form form;
    if (count < 1 || !mm_exponent_read_head(words[0], count, n, l.rest, &form)) return false;
    const int rows = (n + LANES - 1) / LANES, width = form.bits + l.rest;
    const uint32_t base = (uint32_t)form.base << l.rest, all = ~0u >> (32 - l.whole);
    const uint32_t escape = (uint32_t)mm_exponent_codes(form) << l.rest;
    const uint8_t *const list = (const uint8_t *)(words + 1 + mm_exponent_field_words(n, width));
    uint32_t fields[LANES], masks[ROWS];
    int at[LANES];
    for (int row = 0; row < rows; row++) {
        const int lanes = n - row * LANES < LANES ? n - row * LANES : LANES;
        unpack_row(words + 1, row, width, fields);
        if (form.escapes > 0) masks[row] = mask_escapes(fields, escape) & (lanes < LANES ? (1u << lanes) - 1 : ~0u);
        for (int lane = 0; lane < LANES; lane++)
            fields[lane] = mm_exponent_turn_back((fields[lane] + base) & all, l.whole);
        memcpy(dst + row * LANES, fields, (size_t)lanes * sizeof *dst);
    }
    if (form.escapes == 0) return true;
    if (place_escapes(masks, rows, at) != form.escapes) return false;
    const uint32_t kept = (1u << l.rest) - 1;
    for (int row = 0; row < rows; row++)
        for (uint32_t mask = masks[row]; mask; mask &= mask - 1) {
            const int lane = __builtin_ctz(mask);
            uint32_t *const out = &dst[row * LANES + lane];
            const uint32_t turned = mm_exponent_turn(*out, l.whole);
            *out = mm_exponent_turn_back((turned & kept) | (uint32_t)list[at[lane]++] << l.rest, l.whole);
        }
    return true;
}

/* ---------------------------------------------------------------- each type and instruction set */

/* Each type's functions are compiled by themselves: with constant shifts they are a third faster. */
#define DEFINE(isa, TARGET)                                                                                            \
    TARGET static int encode_##isa(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {          \
        const uint32_t *const bits = (const uint32_t *)src;                                                            \
        if (params->type == MM_F32) return encode(bits, n, (layout){32, 24}, words);                                   \
        if (params->type == MM_BF16) return encode(bits, n, (layout){16, 8}, words);                                   \
        return encode(bits, n, (layout){16, 11}, words);                                                               \
    }                                                                                                                  \
    TARGET static bool decode_##isa(const mm_chunk_params *params, const uint32_t *words, int count, int n,            \
                                    float *dst) {                                                                      \
        uint32_t *const bits = (uint32_t *)dst;                                                                        \
        if (params->type == MM_F32) return decode(words, count, n, (layout){32, 24}, bits);                            \
        if (params->type == MM_BF16) return decode(words, count, n, (layout){16, 8}, bits);                            \
        return decode(words, count, n, (layout){16, 11}, bits);                                                        \
    }

DEFINE(portable, )
#if defined(__x86_64__)
DEFINE(avx512, MM_CHUNK_AVX512)
#endif

static const mm_chunk_host exponent_host = {&mm_exponent_kind, MM_CHUNK_ISA_LIST(encode), MM_CHUNK_ISA_LIST(decode)};
const mm_codec_ops mm_codec_exponent_host_ops =
    MM_CHUNK_HOST_OPS("exponent", MM_EXPONENT_SUMMARY, &exponent_host, .lossless = true);
