/* Which 4x4 blocks a tensor is cut into for ZFP, and in which order (DESIGN 7).
 *
 * A rank 4 tensor is NHWC. Each (n, c) plane of H*W elements, C apart, is one 2-D field of `rows` rows of `columns`
 * elements. columns is lcm(W, 4) where that divides H*W, so that no block is partial in width; else W. A tensor of
 * lower rank is one field: its innermost dimension is the width, the product of the others the height.
 *
 *      element (x, y) of the field (n, c) is at  ((n * rows + y) * columns + x) * channels + c
 *      block (n, by, bx, c)            is number ((n * blocks_y + by) * blocks_x + bx) * channels + c
 *
 * Each block takes exactly `maxbits` bits, consecutive in the code's bit stream: bit i is bit i % 64 of the
 * little-endian 64-bit word i / 64. The last word is padded with zeros. */
#ifndef PIPELINE_CODEC_ZFP_LAYOUT_H
#define PIPELINE_CODEC_ZFP_LAYOUT_H

#include "pipeline/codec/codec.h"

typedef struct mm_zfp_layout {
    int maxbits;
    int64_t columns, rows, channels;
    int64_t blocks_x, blocks_y;
    int64_t blocks;     /* in all */
    int64_t code_bytes; /* of all of them, whole 64-bit words */
} mm_zfp_layout;

/* MM_ERR_UNSUPPORTED for other types than float32 and for codes of 2^63 bits or more. */
MM_CHECKED mm_status mm_zfp_layout_make(const mm_shape *shape, int maxbits, mm_zfp_layout *layout_out);

#endif
