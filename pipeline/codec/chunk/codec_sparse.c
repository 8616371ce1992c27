/* SPDX-License-Identifier: MIT */
/* rle and csr on the host device; rle_chunk.h and csr_chunk.h have their formats. Here both use masks of the non-zeros,
 * of 32 elements each. Instruction sets differ in how masks are made, and non-zeros gathered and spread. */
#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/chunk/csr_chunk.h"
#include "pipeline/codec/chunk/rle_chunk.h"

enum { MASKS = MM_CHUNK_ELEMS / 32 };

/* ---------------------------------------------------------------- masks */

/* Makes the masks. Bits beyond the last element are 0. */
static inline void masks_portable(const float *src, int n, uint32_t masks[MASKS]) {
    for (int i = 0; i < n; i += 32) {
        uint32_t mask = 0;
        for (int j = 0; j < 32 && i + j < n; j++) mask |= (uint32_t)(((const uint32_t *)src)[i + j] != 0) << j;
        masks[i / 32] = mask;
    }
}

/* Gathers the elements whose bits are set. value: must have room for 15 elements more than are gathered. */
static inline void gather_portable(const float *src, int n, const uint32_t masks[MASKS], uint32_t *value) {
    for (int i = 0; i < n; i += 32)
        for (uint32_t mask = masks[i / 32]; mask; mask &= mask - 1)
            *value++ = ((const uint32_t *)src)[i + __builtin_ctz(mask)];
}

static inline void mm_chunk_spread_portable(const uint32_t *value, int n, const uint32_t masks[MASKS], float *dst) {
    memset(dst, 0, (size_t)n * sizeof *dst);
    for (int i = 0; i < n; i += 32)
        for (uint32_t mask = masks[i / 32]; mask; mask &= mask - 1)
            ((uint32_t *)dst)[i + __builtin_ctz(mask)] = *value++;
}

#if defined(__x86_64__)
MM_CHUNK_AVX512 static inline void masks_avx512(const float *src, int n, uint32_t masks[MASKS]) {
    for (int i = 0; i < n; i += 32) {
        uint32_t mask = 0;
        for (int half = 0; half < 32 && i + half < n; half += 16) {
            const __m512i x = _mm512_maskz_loadu_epi32(mm_chunk_lanes(n - i - half), src + i + half);
            mask |= (uint32_t)_mm512_test_epi32_mask(x, x) << half;
        }
        masks[i / 32] = mask;
    }
}

MM_CHUNK_AVX512 static inline void gather_avx512(const float *src, int n, const uint32_t masks[MASKS],
                                                 uint32_t *value) {
    for (int i = 0; i < n; i += 16) {
        const __mmask16 kept = (__mmask16)(masks[i / 32] >> i % 32);
        _mm512_storeu_si512(value, _mm512_maskz_compress_epi32(kept, _mm512_maskz_loadu_epi32(kept, src + i)));
        value += __builtin_popcount(kept);
    }
}
#endif

MM_HD int count(const uint32_t masks[MASKS], int n) {
    int kept = 0;
    for (int i = 0; i < n; i += 32) kept += __builtin_popcount(masks[i / 32]);
    return kept;
}

/* ---------------------------------------------------------------- rle */

/* Writes the number of runs, which it returns, and the runs. */
MM_HD int put_runs(const uint32_t masks[MASKS], int n, uint32_t *words) {
    int runs = 0, first = -1;
    for (int i = 0; i < n; i += 32) {
        /* Set where a run begins or ends, that is, where zero and non-zero change. */
        uint32_t turns = masks[i / 32] ^ (masks[i / 32] << 1 | (uint32_t)(first >= 0));
        if (n - i < 32) turns &= (1u << (n - i)) - 1;
        for (; turns; turns &= turns - 1) {
            const int at = i + __builtin_ctz(turns);
            if (first >= 0) words[++runs] = (uint32_t)first | (uint32_t)at << 16;
            first = first >= 0 ? -1 : at;
        }
    }
    if (first >= 0) words[++runs] = (uint32_t)first | (uint32_t)n << 16;
    words[0] = (uint32_t)runs;
    return runs;
}

/* Makes the masks from a code's runs. Returns false if the code is damaged. */
MM_HD bool take_runs(const uint32_t *words, int all, int n, uint32_t masks[MASKS]) {
    if (all < 1 || words[0] > (uint32_t)(all - 1)) return false;
    const int runs = (int)words[0];
    int kept = 0, last = -1;
    memset(masks, 0, MASKS * sizeof *masks);
    for (int r = 1; r <= runs; r++) {
        const int first = (int)(words[r] & 0xffff), end = (int)(words[r] >> 16);
        if (first <= last || end <= first || end > n) return false;
        for (int i = first; i < end;) {
            const int to = i / 32 * 32 + 32 < end ? i / 32 * 32 + 32 : end;
            masks[i / 32] |= (to - i < 32 ? (1u << (to - i)) - 1 : ~0u) << i % 32;
            i = to;
        }
        kept += end - first;
        last = end;
    }
    return kept == all - 1 - runs;
}

/* ---------------------------------------------------------------- csr */

MM_HD mm_csr_values values_of(int format) {
#define VALUES(name, e, m, per_word) {e, m, per_word},
    static const mm_csr_values all[] = {{0, 0, 0}, MM_DPR_FORMATS(VALUES)};
    return all[format];
#undef VALUES
}

/* Writes the rows' ends and the columns. */
MM_HD void put_columns(const uint32_t masks[MASKS], int n, uint32_t *words) {
    uint8_t *columns = (uint8_t *)(words + MM_CSR_HEAD_WORDS);
    uint16_t ends[MM_CSR_ROWS];
    int k = 0;
    for (int row = 0; row < MM_CSR_ROWS; row++) {
        for (int i = row * MM_CSR_ROW; i < (row + 1) * MM_CSR_ROW && i < n; i += 32)
            for (uint32_t mask = masks[i / 32]; mask; mask &= mask - 1)
                columns[k++] = (uint8_t)(i % MM_CSR_ROW + __builtin_ctz(mask));
        ends[row] = (uint16_t)k;
    }
    memcpy(words, ends, sizeof ends);
    while (k % 4) columns[k++] = 0;
}

/* Makes the masks from a code's columns. Returns the number of non-zeros, or -1 if the code is damaged. */
MM_HD int take_columns(mm_csr_values v, const uint32_t *words, int all, int n, uint32_t masks[MASKS]) {
    const uint8_t *columns = (const uint8_t *)(words + MM_CSR_HEAD_WORDS);
    uint16_t ends[MM_CSR_ROWS];
    if (all < MM_CSR_HEAD_WORDS) return -1;
    memcpy(ends, words, sizeof ends);
    if (ends[MM_CSR_ROWS - 1] > n || mm_csr_words(v, ends[MM_CSR_ROWS - 1]) != all) return -1;
    memset(masks, 0, MASKS * sizeof *masks);
    int k = 0;
    for (int row = 0; row < MM_CSR_ROWS; row++) {
        if (ends[row] < k || ends[row] > ends[MM_CSR_ROWS - 1]) return -1;
        for (int before = -1; k < ends[row]; k++) {
            const int i = row * MM_CSR_ROW + columns[k];
            if (columns[k] <= before || i >= n) return -1;
            before = columns[k];
            masks[i / 32] |= 1u << i % 32;
        }
    }
    return k;
}

#define PACK(name, e, m, per_word)                                                                                     \
    if (format == ++f) {                                                                                               \
        for (int w = 0; w < words; w++) {                                                                              \
            uint32_t word = 0;                                                                                         \
            for (int j = 0; j < per_word; j++)                                                                         \
                word |= mm_dpr_encode(values[w * per_word + j], e, m) << j * (1 + e + m);                              \
            packed[w] = word;                                                                                          \
        }                                                                                                              \
    }
#define UNPACK(name, e, m, per_word)                                                                                   \
    if (format == ++f)                                                                                                 \
        for (int w = 0; w < words; w++)                                                                                \
            for (int j = 0; j < per_word; j++)                                                                         \
                values[w * per_word + j] = mm_dpr_decode(packed[w] >> j * (1 + e + m), e, m);

/* Packs values in a dpr format. values: as many as fill the words, the last word's padded with zeros. */
MM_HD void pack(int format, const uint32_t *values, int words, uint32_t *packed) {
    int f = 0;
    MM_DPR_FORMATS(PACK)
}

MM_HD void unpack(int format, const uint32_t *packed, int words, uint32_t *values) {
    int f = 0;
    MM_DPR_FORMATS(UNPACK)
}

/* ---------------------------------------------------------------- both, in each instruction set */

#define DEFINE(isa, TARGET)                                                                                            \
    TARGET static int rle_encode_##isa(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {      \
        uint32_t masks[MASKS];                                                                                         \
        (void)params;                                                                                                  \
        masks_##isa(src, n, masks);                                                                                    \
        const int head = 1 + put_runs(masks, n, words), total = head + count(masks, n);                                \
        if (total >= n) return mm_chunk_raw(src, n, words);                                                            \
        gather_##isa(src, n, masks, words + head);                                                                     \
        return total;                                                                                                  \
    }                                                                                                                  \
    TARGET static bool rle_decode_##isa(const mm_chunk_params *params, const uint32_t *words, int all, int n,          \
                                        float *dst) {                                                                  \
        uint32_t masks[MASKS];                                                                                         \
        (void)params;                                                                                                  \
        if (!take_runs(words, all, n, masks)) return false;                                                            \
        mm_chunk_spread_##isa(words + 1 + words[0], n, masks, dst);                                                    \
        return true;                                                                                                   \
    }                                                                                                                  \
    TARGET static int csr_encode_##isa(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {      \
        const mm_csr_values v = values_of(params->format);                                                             \
        uint32_t masks[MASKS], values[MM_CHUNK_ELEMS + 16];                                                            \
        masks_##isa(src, n, masks);                                                                                    \
        const int kept = count(masks, n), head = MM_CSR_HEAD_WORDS + (kept + 3) / 4, total = mm_csr_words(v, kept);    \
        if (total >= n) return mm_chunk_raw(src, n, words);                                                            \
        put_columns(masks, n, words);                                                                                  \
        gather_##isa(src, n, masks, v.per_word ? values : words + head);                                               \
        if (v.per_word) {                                                                                              \
            memset(values + kept, 0, 4 * sizeof *values);                                                              \
            pack(params->format, values, total - head, words + head);                                                  \
        }                                                                                                              \
        return total;                                                                                                  \
    }                                                                                                                  \
    TARGET static bool csr_decode_##isa(const mm_chunk_params *params, const uint32_t *words, int all, int n,          \
                                        float *dst) {                                                                  \
        const mm_csr_values v = values_of(params->format);                                                             \
        uint32_t masks[MASKS], values[MM_CHUNK_ELEMS + 4];                                                             \
        const int kept = take_columns(v, words, all, n, masks), head = MM_CSR_HEAD_WORDS + (kept + 3) / 4;             \
        if (kept < 0) return false;                                                                                    \
        if (v.per_word) unpack(params->format, words + head, all - head, values);                                      \
        mm_chunk_spread_##isa(v.per_word ? values : words + head, n, masks, dst);                                      \
        return true;                                                                                                   \
    }

DEFINE(portable, )
#if defined(__x86_64__)
DEFINE(avx512, MM_CHUNK_AVX512)
#endif

static const mm_chunk_host rle_host = {&mm_rle_kind, MM_CHUNK_ISA_LIST(rle_encode), MM_CHUNK_ISA_LIST(rle_decode)};
const mm_codec_ops mm_codec_rle_host_ops =
    MM_CHUNK_HOST_OPS("rle", MM_RLE_SUMMARY, &rle_host, .lossless = true, .drops_zeros = true);

static const mm_chunk_host csr_host = {&mm_csr_kind, MM_CHUNK_ISA_LIST(csr_encode), MM_CHUNK_ISA_LIST(csr_decode)};
const mm_codec_ops mm_codec_csr_host_ops =
    MM_CHUNK_HOST_OPS("csr", MM_CSR_SUMMARY, &csr_host, .lossless = true, .drops_zeros = true);
