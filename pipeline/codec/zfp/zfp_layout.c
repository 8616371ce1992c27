/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/zfp/zfp_layout.h"

#include "pipeline/codec/codec_impl.h"

/* The number of columns at which no block is partial in width, if the plane can be reshaped so; else the width. */
static int64_t unfolded_columns(int64_t height, int64_t width) {
    const int64_t times = width % 4 == 0 ? 1 : width % 2 == 0 ? 2 : 4;
    return height % times == 0 ? width * times : width;
}

/* Sets the numbers of images, rows, columns and channels, and the strides. */
static void place_elements(const mm_shape *shape, bool channels_first, int64_t elems, int64_t *images_out,
                           mm_zfp_layout *layout) {
    int64_t as[4] = {1, 1, 1, 1}; /* NHWC or NCHW */
    const int h = channels_first ? 2 : 1, c = channels_first ? 1 : 3;
    if (shape->rank == 4 || layout->dims == 3) {
        for (int d = 0; d < shape->rank; d++) as[4 - shape->rank + d] = shape->dims[d];
    } else {
        as[h + 1] = shape->dims[shape->rank - 1];
        as[h] = elems / as[h + 1];
    }
    const int64_t plane = as[h] * as[h + 1];
    layout->columns = layout->dims == 1 ? plane : unfolded_columns(as[h], as[h + 1]);
    layout->rows = plane / layout->columns;
    layout->channels = as[c];
    *images_out = as[0];
    if (channels_first && layout->dims < 3) { /* planes are coded independently */
        *images_out *= layout->channels;
        layout->channels = 1;
    }
    layout->channels_first = channels_first && layout->channels > 1;
    layout->stride_x = layout->channels_first ? 1 : layout->channels;
    layout->stride_y = layout->columns * layout->stride_x;
    layout->stride_c = layout->channels_first ? plane : 1;
}

mm_status mm_zfp_layout_make(const mm_shape *shape, int dims, bool channels_first, int maxbits,
                             mm_zfp_layout *layout_out) {
    int64_t elems, images;
    MM_TRY(mm_float_elems("zfp", shape, &elems));

    mm_zfp_layout layout = {.dims = dims, .maxbits = maxbits, .type = shape->dtype};
    place_elements(shape, channels_first, elems, &images, &layout);
    layout.blocks_x = (layout.columns + 3) / 4;
    layout.blocks_y = dims == 1 ? 1 : (layout.rows + 3) / 4;
    layout.blocks_c = dims == 3 ? (layout.channels + 3) / 4 : layout.channels;
    /* the product does not overflow: there are no more blocks than elements, so fewer than 2^60 */
    layout.blocks = images * layout.blocks_y * layout.blocks_x * layout.blocks_c;
    int64_t bits;
    if (__builtin_mul_overflow(layout.blocks, (int64_t)maxbits, &bits) || bits > INT64_MAX - 63)
        return mm_fail(MM_ERR_UNSUPPORTED, "codec zfp: %lld blocks of %d bits are more than 2^63 bits",
                       (long long)layout.blocks, maxbits);
    layout.code_bytes = (bits + 63) / 64 * 8;
    *layout_out = layout;
    return MM_OK;
}
