/* SPDX-License-Identifier: MIT */
/* The blocks that a tensor is cut into for ZFP, and their order.
 *
 * A tensor of rank 4 is NHWC, or NCHW with layout=nchw. Each image n is `rows` rows of `columns` places of `channels`
 * elements:
 *
 *      element (x, y) of channel c of image n is at
 *              NHWC    ((n * rows + y) * columns + x) * channels + c
 *              NCHW    ((n * channels + c) * rows + y) * columns + x
 *      block (n, by, bx, bc) is number
 *              NHWC    ((n * blocks_y + by) * blocks_x + bx) * blocks_c + bc
 *              NCHW    ((n * blocks_c + bc) * blocks_y + by) * blocks_x + bx
 *
 * dims = 1: blocks of 4 along a plane's flattened H*W, which is one row. A block has one channel; blocks_c = channels.
 * dims = 2: blocks of 4x4 in a plane. columns is lcm(W, 4) if that divides H*W, so that no block is partial in width;
 *           else W. A block has one channel.
 * dims = 3: blocks of 4x4x4: columns and rows as for 2, and 4 neighbouring channels; blocks_c = channels / 4, rounded
 *           up. Not 4 images: they are not correlated, would tie a code to its batch, and could not be split. In NHWC
 *           neighbouring channels are neighbours in memory too, so a GPU's thread loads four at once.
 *
 * Inside a block x, along the width, is the fastest dimension, then y, then z, the channels. So the same values make
 * the same blocks and codes in either layout. The order of the blocks is that of memory, so that neighbouring threads
 * have neighbouring blocks and all accesses are coalesced, for every layout and dims. With NHWC's order, neighbours
 * would be whole planes apart in NCHW.
 *
 * For dims 1 and 2 the planes of NCHW are treated as images of one channel, which gives the same order.
 *
 * A tensor of lower rank is one image. dims = 1: all its elements are one row. dims = 2: its innermost dimension is the
 * width, the product of the others the height. dims = 3: it is an image HWC, WC or C; with layout=nchw CHW, HW or W.
 *
 * Each block takes exactly `maxbits` bits, consecutive in the code's bit stream. Bit i of the stream is bit i % 64 of
 * the little-endian 64-bit word i / 64. The last word is padded with zeros. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_LAYOUT_H
#define PIPELINE_CODEC_ZFP_ZFP_LAYOUT_H

#include "mm/mm_base.h"
#include "pipeline/codec/codec.h"

typedef struct mm_zfp_layout {
    int dims, maxbits;
    mm_dtype type;       /* type of elements; those of 16 bits are widened to floats for each block (half_value.h) */
    bool channels_first; /* NCHW, with several channels in a block */
    int64_t columns, rows, channels;
    int64_t stride_x, stride_y, stride_c; /* distance of neighbours along x, y and c, in elements */
    int64_t blocks_x, blocks_y, blocks_c;
    int64_t blocks;     /* number of blocks of the tensor */
    int64_t code_bytes; /* bytes of all blocks, in whole 64-bit words */
} mm_zfp_layout;

/* dims: 1 to 3. MM_ERR_UNSUPPORTED: the type is not one of floats, or the code has 2^63 bits or more. */
MM_CHECKED mm_status mm_zfp_layout_make(const mm_shape *shape, int dims, bool channels_first, int maxbits,
                                        mm_zfp_layout *layout_out);

#endif
