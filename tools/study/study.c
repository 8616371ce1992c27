/* SPDX-License-Identifier: MIT */
#include "tools/study/study.h"

#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/chunk/csr_chunk.h"
#include "pipeline/codec/chunk/deflate_chunk.h"
#include "pipeline/codec/chunk/rle_chunk.h"

const char *const study_layout_names[STUDY_LAYOUTS] = {"nchw", "nhwc", "chwn"};
const char *const study_codec_names[STUDY_CODECS] = {"zvc", "rle", "deflate", "csr", "exponent"};

/* For each layout: its dimensions, outermost first, as indices into NHWC. */
static const int orders[STUDY_LAYOUTS][4] = {{0, 3, 1, 2}, {0, 1, 2, 3}, {3, 1, 2, 0}};

/* The bits of an element, zero-extended. */
static uint32_t bits_of(const void *map, mm_dtype type, int64_t i) {
    return type == MM_F32 ? ((const uint32_t *)map)[i] : ((const uint16_t *)map)[i];
}

/* Copies n elements of an NHWC map, in the order of the layout, from position `from` of that order. */
static void gather(const void *map, mm_dtype type, const int64_t dims[4], const int order[4], int64_t from, int n,
                   uint32_t *window) {
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
    int64_t at[4], left = from;
    for (int d = 3; d >= 0; d--) {
        at[d] = left % dims[order[d]];
        left /= dims[order[d]];
    }
    for (int i = 0; i < n; i++) {
        int64_t index = 0;
        for (int d = 0; d < 4; d++) index += at[d] * strides[order[d]];
        window[i] = bits_of(map, type, index);
        for (int d = 3; d >= 0 && ++at[d] == dims[order[d]]; d--) at[d] = 0;
    }
}

static int count_nonzeros(const uint32_t *window, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) kept += window[i] != 0;
    return kept;
}

static int deflated_bytes(mm_dtype type, const uint32_t *window, int n) {
    uint32_t code[2 * STUDY_WINDOW_ELEMS];
    uint16_t halves[STUDY_WINDOW_ELEMS];
    for (int i = 0; i < n; i++) halves[i] = (uint16_t)window[i];
    return type == MM_F32 ? mm_deflate_encode(MM_DEFLATE_LEVEL, window, 4 * n, code, (int)sizeof code)
                          : mm_deflate_encode(MM_DEFLATE_LEVEL, halves, 2 * n, code, (int)sizeof code);
}

static int64_t code_bytes(study_codec codec, mm_dtype type, const uint32_t *window, int n) {
    const int kept = count_nonzeros(window, n),
              saved = type == MM_F32 ? 0 : kept / 2; /* two in a word (chunk_code.h) */
    int runs;
    switch (codec) {
    case STUDY_ZVC:
        return 4 * ((int64_t)(n + 31) / 32 + kept - saved);
    case STUDY_RLE:
        return 4 * (int64_t)(mm_rle_words(window, n, &runs) - saved);
    case STUDY_DEFLATE:
        return deflated_bytes(type, window, n);
    case STUDY_CSR:
        return 4 * (int64_t)(mm_csr_words((mm_csr_values){0, 0, 0}, kept) - saved);
    case STUDY_EXPONENT:
        return 4 * (int64_t)mm_exponent_chunk_words(type, window, n);
    case STUDY_CODECS:
        break;
    }
    return 0;
}

void study_measure(const void *map, mm_dtype type, const int64_t dims[4], int64_t most_windows,
                   study_sizes *sizes_out) {
    uint32_t window[STUDY_WINDOW_ELEMS];
    study_sizes s = {.elems = dims[0] * dims[1] * dims[2] * dims[3], .elem_bytes = (int)mm_dtype_bytes(type)};
    const int64_t windows = (s.elems + STUDY_WINDOW_ELEMS - 1) / STUDY_WINDOW_ELEMS;
    const int64_t taken = most_windows > 0 && most_windows < windows ? most_windows : windows;
    for (int64_t i = 0; i < s.elems; i++) s.nonzeros += bits_of(map, type, i) != 0;
    for (int64_t t = 0; t < taken; t++) {
        const int64_t from = t * windows / taken * STUDY_WINDOW_ELEMS, left = s.elems - from;
        const int n = left < STUDY_WINDOW_ELEMS ? (int)left : STUDY_WINDOW_ELEMS;
        s.window_elems += n;
        for (int layout = 0; layout < STUDY_LAYOUTS; layout++) {
            gather(map, type, dims, orders[layout], from, n, window);
            for (int codec = 0; codec < STUDY_CODECS; codec++)
                s.code_bytes[codec][layout] += code_bytes((study_codec)codec, type, window, n);
        }
    }
    *sizes_out = s;
}

double study_ratio(const study_sizes *sizes, study_codec codec, study_layout layout) {
    return sizes->elem_bytes * (double)sizes->window_elems / (double)sizes->code_bytes[codec][layout];
}
