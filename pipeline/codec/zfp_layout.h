/* Which blocks a tensor is cut into for ZFP, and in which order (DESIGN 7).
 *
 * A rank 4 tensor is NHWC, or NCHW if the codec is told so. Each image n is `rows` rows of `columns` places of
 * `channels` elements:
 *
 *      element (x, y) of channel c of image n is at
 *              NHWC    ((n * rows + y) * columns + x) * channels + c
 *              NCHW    ((n * channels + c) * rows + y) * columns + x
 *      block (n, by, bx, bc) is number
 *              NHWC    ((n * blocks_y + by) * blocks_x + bx) * blocks_c + bc
 *              NCHW    ((n * blocks_c + bc) * blocks_y + by) * blocks_x + bx
 *
 * dims = 1: blocks of 4 along a plane's flattened H*W, which is its one row. A block has one channel, blocks_c =
 *           channels.
 * dims = 2: blocks of 4x4 of a plane. columns is lcm(W, 4) where that divides H*W, so that no block is partial in
 *           width; else W. A block has one channel.
 * dims = 3: blocks of 4x4x4: columns and rows as for 2, and 4 neighbouring channels, blocks_c = channels / 4 rounded
 *           up. Not 4 images: those have nothing in common, would tie a code to its batch, and could not be split.
 *           In NHWC neighbouring channels are neighbours in memory too: a GPU's thread loads the four at once.
 *
 * In blocks x, along the width, is the fastest dimension, then y, then z, the channels: so the same values make the
 * same blocks, and codes of them, in either layout. But their order is that of memory: neighbouring threads are on
 * neighbouring blocks, and every access is coalesced, whatever the layout and dims are. In NHWC's order neighbours
 * would be whole planes apart in NCHW.
 *
 * For dims 1 and 2, NCHW's planes are taken for images of one channel: they make the same order.
 *
 * A tensor of lower rank has one image. dims = 1: all its elements are the row. dims = 2: its innermost dimension is
 * the width, the product of the others the height. dims = 3: it is taken for an image HWC, WC or C; or CHW, HW or W.
 *
 * Each block takes exactly `maxbits` bits, consecutive in the code's bit stream: bit i is bit i % 64 of the
 * little-endian 64-bit word i / 64. The last word is padded with zeros. */
#ifndef PIPELINE_CODEC_ZFP_LAYOUT_H
#define PIPELINE_CODEC_ZFP_LAYOUT_H

#include "pipeline/codec/codec.h"

typedef struct mm_zfp_layout {
    int dims, maxbits;
    bool channels_first; /* NCHW, of several channels that share blocks */
    int64_t columns, rows, channels;
    int64_t stride_x, stride_y, stride_c; /* how many elements one is from the next */
    int64_t blocks_x, blocks_y, blocks_c;
    int64_t blocks;     /* in all */
    int64_t code_bytes; /* of all of them, whole 64-bit words */
} mm_zfp_layout;

/* dims: 1 to 3. MM_ERR_UNSUPPORTED for other types than float32 and for codes of 2^63 bits or more. */
MM_CHECKED mm_status mm_zfp_layout_make(const mm_shape *shape, int dims, bool channels_first, int maxbits,
                                        mm_zfp_layout *layout_out);

#endif
