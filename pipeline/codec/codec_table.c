/* The one table of codecs. Those of a device that needs more than this machine's C library are entries behind a define
 * of their own, as mm/device/device_table.c has it. */
#include "pipeline/codec/codec_impl.h"

static const mm_codec_ops *const codecs[] = {
    &mm_codec_raw_host_ops, &mm_codec_mask_host_ops, &mm_codec_zfp_host_ops,
#ifdef MM_CODEC_CUDA
    &mm_codec_raw_cuda_ops, &mm_codec_mask_cuda_ops, &mm_codec_zfp_cuda_ops,
#endif
};

const mm_codec_ops *mm_codec_table(size_t i) { return i < sizeof codecs / sizeof codecs[0] ? codecs[i] : NULL; }
