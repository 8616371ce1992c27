#include "pipeline/codec/zfp_layout.h"

#include "pipeline/codec/codec_impl.h"

/* The width at which no block is partial in width, if the plane can be cut so. */
static int64_t unfolded_columns(int64_t height, int64_t width) {
    const int64_t times = width % 4 == 0 ? 1 : width % 2 == 0 ? 2 : 4;
    return height % times == 0 ? width * times : width;
}

mm_status mm_zfp_layout_make(const mm_shape *shape, int maxbits, mm_zfp_layout *layout_out) {
    int64_t elems;
    MM_TRY(mm_shape_elems(shape, &elems));
    if (shape->dtype != MM_F32) return mm_fail(MM_ERR_UNSUPPORTED, "codec zfp takes float32 only");

    const bool nhwc = shape->rank == 4;
    const int64_t batch = nhwc ? shape->dims[0] : 1, channels = nhwc ? shape->dims[3] : 1;
    const int64_t width = nhwc ? shape->dims[2] : shape->dims[shape->rank - 1];
    const int64_t height = nhwc ? shape->dims[1] : elems / width;

    mm_zfp_layout layout = {
        .maxbits = maxbits,
        .columns = unfolded_columns(height, width),
        .channels = channels,
    };
    layout.rows = height * width / layout.columns;
    layout.blocks_x = (layout.columns + 3) / 4;
    layout.blocks_y = (layout.rows + 3) / 4;
    /* no more blocks than elements: below 2^60 */
    layout.blocks = batch * layout.blocks_y * layout.blocks_x * channels;
    int64_t bits;
    if (__builtin_mul_overflow(layout.blocks, (int64_t)maxbits, &bits) || bits > INT64_MAX - 63)
        return mm_fail(MM_ERR_UNSUPPORTED, "codec zfp: %lld blocks of %d bits are more than 2^63 bits",
                       (long long)layout.blocks, maxbits);
    layout.code_bytes = (bits + 63) / 64 * 8;
    *layout_out = layout;
    return MM_OK;
}
