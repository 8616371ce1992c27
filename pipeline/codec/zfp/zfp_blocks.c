/* SPDX-License-Identifier: MIT */
/* Encodes and decodes tensors in 1-D and 3-D blocks, one block after another. */
#include "pipeline/codec/packed/half_host.h"
#include "pipeline/codec/zfp/zfp_bits.h"
#include "pipeline/codec/zfp/zfp_code.h"

/* Walks the blocks in order. */
typedef struct cursor {
    const mm_zfp_layout *layout;
    int64_t left; /* number of blocks left */
    int64_t n, by, bx, bc;
} cursor;

/* A block: position of its first value, number of its values inside the map along x, y and z, and their strides. */
typedef struct place {
    int64_t first;
    int inside[3];
    int64_t stride[3];
} place;

static int inside_of(int64_t extent, int64_t block) {
    const int64_t left = extent - 4 * block;
    return left < 4 ? (int)left : 4;
}

/* Increments a digit. Returns true if it wraps to zero. */
static bool next(int64_t *digit, int64_t base) {
    *digit = *digit + 1 < base ? *digit + 1 : 0;
    return *digit == 0;
}

static place place_next(cursor *at) {
    const mm_zfp_layout *l = at->layout;
    const int side = l->dims == 3 ? 4 : 1; /* along y and z */
    place p = {
        .first = at->n * l->columns * l->rows * l->channels + side * at->by * l->stride_y + 4 * at->bx * l->stride_x +
                 side * at->bc * l->stride_c,
        .inside = {inside_of(l->columns, at->bx), 1, 1},
        .stride = {l->stride_x, l->stride_y, l->stride_c},
    };
    if (l->dims == 3) {
        p.inside[1] = inside_of(l->rows, at->by);
        p.inside[2] = inside_of(l->channels, at->bc);
    }
    at->left--;
    const bool carried = l->channels_first
                             ? next(&at->bx, l->blocks_x) && next(&at->by, l->blocks_y) && next(&at->bc, l->blocks_c)
                             : next(&at->bc, l->blocks_c) && next(&at->bx, l->blocks_x) && next(&at->by, l->blocks_y);
    at->n += carried;
    return p;
}

/* How zfp pads a line of which 1 to 4 values are inside: index of the value that is used for each of the 4. */
static const uint8_t stand_in[5][4] = {{0}, {0, 0, 0, 0}, {0, 1, 1, 0}, {0, 1, 2, 0}, {0, 1, 2, 3}};

static void block_load(const place *p, int values, mm_dtype type, const void *src, float *block) {
    for (int i = 0; i < values; i++) {
        const int64_t x = stand_in[p->inside[0]][i % 4], y = stand_in[p->inside[1]][i / 4 % 4];
        const int64_t z = stand_in[p->inside[2]][i / 16];
        block[i] = mm_elem_read(type, src, p->first + x * p->stride[0] + y * p->stride[1] + z * p->stride[2]);
    }
}

static void block_store(const place *p, const float *block, mm_dtype type, void *dst) {
    for (int z = 0; z < p->inside[2]; z++)
        for (int y = 0; y < p->inside[1]; y++)
            for (int x = 0; x < p->inside[0]; x++)
                mm_elem_write(type, block[x + 4 * y + 16 * z], dst,
                              p->first + x * p->stride[0] + y * p->stride[1] + z * p->stride[2]);
}

/* Functions for each number of dims, so that it is a constant (zfp_block.h). encode returns whether the block is
 * finite. */
#define BLOCK_FUNCTIONS(dims)                                                                                          \
    static bool encode_##dims(const float *block, int maxbits, uint32_t *words) {                                      \
        const int e = mm_zfp_exponent(block, dims);                                                                    \
        if (e != MM_ZFP_NONFINITE)                                                                                     \
            mm_zfp_block_encode(block, dims, e, maxbits, words);                                                       \
        else                                                                                                           \
            for (int j = 0; j < mm_zfp_words(maxbits); j++) words[j] = mm_zfp_nonfinite_word(block, dims, maxbits, j); \
        return e != MM_ZFP_NONFINITE;                                                                                  \
    }                                                                                                                  \
    static void decode_##dims(const uint32_t *words, int maxbits, float *block) {                                      \
        if (mm_zfp_is_nonfinite(words, dims))                                                                          \
            mm_zfp_nonfinite_decode(words, dims, maxbits, block);                                                      \
        else                                                                                                           \
            mm_zfp_block_decode(words, 0, dims, maxbits, block);                                                       \
    }
BLOCK_FUNCTIONS(1)
BLOCK_FUNCTIONS(3)
#undef BLOCK_FUNCTIONS

int64_t mm_zfp_blocks_encode(const mm_zfp_layout *layout, const void *src, uint8_t *dst) {
    const int maxbits = layout->maxbits, values = mm_zfp_values(layout->dims);
    mm_bit_writer out = {.dst = dst};
    int64_t nonfinite = 0;
    for (cursor at = {.layout = layout, .left = layout->blocks}; at.left > 0;) {
        const place p = place_next(&at);
        float block[MM_ZFP_MOST_VALUES];
        uint32_t words[MM_ZFP_MOST_WORDS];
        block_load(&p, values, layout->type, src, block);
        nonfinite += !(layout->dims == 1 ? encode_1 : encode_3)(block, maxbits, words);
        for (int bit = 0; bit < maxbits; bit += 32)
            mm_bits_put(&out, words[bit / 32], maxbits - bit < 32 ? maxbits - bit : 32);
    }
    mm_bits_finish(&out);
    return nonfinite;
}

void mm_zfp_blocks_decode(const mm_zfp_layout *layout, const uint8_t *src, void *dst) {
    const int maxbits = layout->maxbits;
    mm_bit_reader in = {.src = src};
    uint32_t words[MM_ZFP_MOST_WORDS + MM_ZFP_PAD_WORDS] = {0};
    for (cursor at = {.layout = layout, .left = layout->blocks}; at.left > 0;) {
        const place p = place_next(&at);
        float block[MM_ZFP_MOST_VALUES];
        for (int bit = 0; bit < maxbits; bit += 32)
            words[bit / 32] = (uint32_t)mm_bits_get(&in, maxbits - bit < 32 ? maxbits - bit : 32);
        (layout->dims == 1 ? decode_1 : decode_3)(words, maxbits, block);
        block_store(&p, block, layout->type, dst);
    }
}
