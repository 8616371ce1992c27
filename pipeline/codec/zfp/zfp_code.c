/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/zfp/zfp_code.h"

#include "pipeline/codec/packed/half_host.h"
#include "pipeline/codec/zfp/zfp_bits.h"

/* ---------------------------------------------------------------- positions of a group's values */

/* Walks the blocks in order, in spans of `lanes` blocks: neighbouring channels of one place (bx, by); or, if a tensor
 * has one channel, neighbouring blocks of equal width along a row. */
typedef struct cursor {
    const mm_zfp_layout *layout;
    int64_t left; /* number of blocks left */
    int64_t n, by, bx, c;
    /* of the place, set when its first channel is entered */
    int width, height;             /* the part of a block that is inside the plane */
    int64_t offset[MM_ZFP_VALUES]; /* from a block's first value to value i, or to its replacement if it is outside */
    /* of the span */
    int lanes, step; /* distance between values of neighbouring lanes */
    int64_t first;   /* position of the first block's first value */
} cursor;

static cursor cursor_make(const mm_zfp_layout *layout) { return (cursor){.layout = layout, .left = layout->blocks}; }

static void enter_place(cursor *at) {
    /* how zfp pads a row, then a column, of which 1 to 4 values are inside: index of the value used */
    static const uint8_t stand_in[5][4] = {{0}, {0, 0, 0, 0}, {0, 1, 1, 0}, {0, 1, 2, 0}, {0, 1, 2, 3}};
    const mm_zfp_layout *layout = at->layout;
    const int64_t columns = layout->columns - 4 * at->bx, rows = layout->rows - 4 * at->by;
    at->width = columns < 4 ? (int)columns : 4;
    at->height = rows < 4 ? (int)rows : 4;
    for (int i = 0; i < MM_ZFP_VALUES; i++) {
        const int64_t x = stand_in[at->width][i % 4], y = stand_in[at->height][i / 4];
        at->offset[i] = y * layout->stride_y + x * layout->stride_x;
    }
}

static void next_place(cursor *at, int64_t places) {
    at->c = 0;
    at->bx += places;
    if (at->bx < at->layout->blocks_x) return;
    at->bx = 0;
    if (++at->by < at->layout->blocks_y) return;
    at->by = 0;
    at->n++;
}

/* Sets the next span, of at most `most_lanes` blocks. */
static void next_span(cursor *at, int most_lanes) {
    const mm_zfp_layout *layout = at->layout;
    const bool along_row = layout->channels == 1;
    if (at->c == 0) enter_place(at);
    const int64_t whole = layout->columns / 4 - at->bx, row = whole > 0 ? whole : 1;
    const int64_t most = along_row ? row : layout->channels - at->c;
    at->lanes = most < most_lanes ? (int)most : most_lanes;
    at->step = along_row ? 4 : 1;
    at->first = ((at->n * layout->rows + 4 * at->by) * layout->columns + 4 * at->bx) * layout->channels + at->c;
    at->left -= at->lanes;
    at->c += along_row ? 0 : at->lanes;
    if (along_row)
        next_place(at, at->lanes);
    else if (at->c == layout->channels)
        next_place(at, 1);
}

/* For elements of 16 bits. If type, lanes and step are constants, the loops are vectorised. */
static inline __attribute__((always_inline)) void halves_load(float *to, const uint16_t *from, mm_dtype type, int lanes,
                                                              int64_t step) {
    for (int l = 0; l < lanes; l++) to[l] = mm_float_of(mm_half_widen(from[l * step], type));
}

static inline __attribute__((always_inline)) void halves_store(const float *from, uint16_t *to, mm_dtype type,
                                                               int lanes, int64_t step) {
    for (int l = 0; l < lanes; l++) to[l * step] = (uint16_t)mm_half_narrow(mm_float_bits(from[l]), type);
}

#define EACH_HALVES(fn, from, to)                                                                                      \
    (at->lanes != MM_ZFP_GROUP || at->step != 1 ? fn(from, to, at->layout->type, at->lanes, at->step)                  \
     : at->layout->type == MM_BF16              ? fn(from, to, MM_BF16, MM_ZFP_GROUP, 1)                               \
                                                : fn(from, to, MM_F16, MM_ZFP_GROUP, 1))

/* Loads, or stores, the same value of each lane's block. first: index in the map of the first lane's value. */
static void lanes_load(float *to, const void *map, int64_t first, const cursor *at) {
    if (at->layout->type != MM_F32)
        EACH_HALVES(halves_load, to, (const uint16_t *)map + first);
    else if (at->step == 1 && at->lanes == MM_ZFP_GROUP)
        memcpy(to, (const float *)map + first, MM_ZFP_GROUP * sizeof *to);
    else
        for (int l = 0; l < at->lanes; l++) to[l] = ((const float *)map)[first + l * at->step];
}

static void lanes_store(const float *from, void *map, int64_t first, const cursor *at) {
    if (at->layout->type != MM_F32)
        EACH_HALVES(halves_store, from, (uint16_t *)map + first);
    else if (at->step == 1 && at->lanes == MM_ZFP_GROUP)
        memcpy((float *)map + first, from, MM_ZFP_GROUP * sizeof *from);
    else
        for (int l = 0; l < at->lanes; l++) ((float *)map)[first + l * at->step] = from[l];
}

static int group_count(const cursor *at) { return at->left < MM_ZFP_GROUP ? (int)at->left : MM_ZFP_GROUP; }

/* Loads the next `count` blocks; further lanes get zeros. */
static void group_load(cursor *at, int count, const void *src, mm_zfp_group_values *values_out) {
    if (count < MM_ZFP_GROUP) memset(values_out, 0, sizeof *values_out);
    for (int l = 0; l < count; l += at->lanes) {
        next_span(at, count - l);
        for (int i = 0; i < MM_ZFP_VALUES; i++) lanes_load(&values_out->at[i][l], src, at->first + at->offset[i], at);
    }
}

static void group_store(cursor *at, int count, const mm_zfp_group_values *values, void *dst) {
    for (int l = 0; l < count; l += at->lanes) {
        next_span(at, count - l);
        for (int y = 0; y < at->height; y++)
            for (int x = 0; x < at->width; x++)
                lanes_store(&values->at[4 * y + x][l], dst, at->first + at->offset[4 * y + x], at);
    }
}

/* ---------------------------------------------------------------- the code's bits */

static void group_put(mm_bit_writer *out, const mm_zfp_group_code *code, int maxbits, int count) {
    for (int l = 0; l < count; l++)
        for (int bit = 0; bit < maxbits; bit += 64) {
            const int left = maxbits - bit, j = bit / 32;
            const uint64_t high = left > 32 ? code->word[j + 1][l] : 0;
            mm_bits_put(out, code->word[j][l] | high << 32, left < 64 ? left : 64);
        }
}

static void group_get(mm_bit_reader *in, int maxbits, int count, mm_zfp_group_code *code_out) {
    for (int l = 0; l < count; l++)
        for (int bit = 0; bit < maxbits; bit += 64) {
            const int left = maxbits - bit, j = bit / 32;
            const uint64_t bits = mm_bits_get(in, left < 64 ? left : 64);
            code_out->word[j][l] = (uint32_t)bits;
            code_out->word[j + 1][l] = (uint32_t)(bits >> 32);
        }
}

/* ---------------------------------------------------------------- blocks that are not finite */

static void encode_nonfinite(const mm_zfp_group_values *values, int lane, int maxbits, mm_zfp_group_code *code) {
    float block[MM_ZFP_VALUES];
    for (int i = 0; i < MM_ZFP_VALUES; i++) block[i] = values->at[i][lane];
    for (int j = 0; j < mm_zfp_words(maxbits); j++) code->word[j][lane] = mm_zfp_nonfinite_word(block, 2, maxbits, j);
}

static void decode_nonfinite(const mm_zfp_group_code *code, int maxbits, int count, mm_zfp_group_values *values) {
    for (int l = 0; l < count; l++) {
        const uint32_t words[2] = {code->word[0][l], code->word[1][l]};
        if (!mm_zfp_is_nonfinite(words, 2)) continue;
        float block[MM_ZFP_VALUES];
        mm_zfp_nonfinite_decode(words, 2, maxbits, block);
        for (int i = 0; i < MM_ZFP_VALUES; i++) values->at[i][l] = block[i];
    }
}

/* ---------------------------------------------------------------- a tensor */

int64_t mm_zfp_code_encode(const mm_zfp_kernel *kernel, const mm_zfp_layout *layout, const void *src, uint8_t *dst) {
    if (layout->dims != 2) return mm_zfp_blocks_encode(layout, src, dst);
    cursor at = cursor_make(layout);
    mm_bit_writer out = {.dst = dst};
    int64_t nonfinite_blocks = 0;
    while (at.left > 0) {
        mm_zfp_group_values values;
        mm_zfp_group_code code;
        const int count = group_count(&at);
        group_load(&at, count, src, &values);
        uint32_t nonfinite = kernel->encode(&values, layout->maxbits, &code);
        for (; nonfinite; nonfinite &= nonfinite - 1, nonfinite_blocks++)
            encode_nonfinite(&values, __builtin_ctz(nonfinite), layout->maxbits, &code);
        group_put(&out, &code, layout->maxbits, count);
    }
    mm_bits_finish(&out);
    return nonfinite_blocks;
}

void mm_zfp_code_decode(const mm_zfp_kernel *kernel, const mm_zfp_layout *layout, const uint8_t *src, void *dst) {
    if (layout->dims != 2) {
        mm_zfp_blocks_decode(layout, src, dst);
        return;
    }
    cursor at = cursor_make(layout);
    mm_bit_reader in = {.src = src};
    mm_zfp_group_code code = {0};
    while (at.left > 0) {
        mm_zfp_group_values values;
        const int count = group_count(&at);
        group_get(&in, layout->maxbits, count, &code);
        kernel->decode(&code, layout->maxbits, &values);
        decode_nonfinite(&code, layout->maxbits, count, &values);
        group_store(&at, count, &values, dst);
    }
}
