/* The one table of codecs: a line each, of which every device has one, mm_codec_NAME_DEVICE_ops. Those of a device that
 * needs more than this machine's C library are behind a define of their own, as mm/device/device_table.c has it. */
#include "pipeline/codec/codec.h"

/* clang-format off */
#define CODECS(ON) \
    ON(raw) \
    ON(mask) \
    ON(zfp) \
    ON(dpr) \
    ON(mx) \
    ON(group)
/* clang-format on */

#define DECLARE_HOST(name) extern const mm_codec_ops mm_codec_##name##_host_ops;
#define DECLARE_CUDA(name) extern const mm_codec_ops mm_codec_##name##_cuda_ops;
#define HOST(name)         &mm_codec_##name##_host_ops,
#define CUDA(name)         &mm_codec_##name##_cuda_ops,

CODECS(DECLARE_HOST)
#ifdef MM_CODEC_CUDA
CODECS(DECLARE_CUDA)
#endif

static const mm_codec_ops *const codecs[] = {CODECS(HOST)
#ifdef MM_CODEC_CUDA
                                                 CODECS(CUDA)
#endif
};

const mm_codec_ops *mm_codec_table(size_t i) { return i < sizeof codecs / sizeof codecs[0] ? codecs[i] : NULL; }
