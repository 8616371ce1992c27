/* SPDX-License-Identifier: MIT */
/* The one table of codecs: one line for each, with its devices: all, or the host alone. Each codec of a device is an
 * mm_codec_NAME_DEVICE_ops. A device that needs more than the C library has a define, as in
 * mm/device/device_table.c. */
#include "pipeline/codec/codec.h"

/* clang-format off */
#define CODECS(EVERYWHERE, HOST_ALONE) \
    EVERYWHERE(raw) \
    EVERYWHERE(mask) \
    EVERYWHERE(zfp) \
    EVERYWHERE(dpr) \
    EVERYWHERE(mx) \
    EVERYWHERE(group) \
    EVERYWHERE(zvc) \
    EVERYWHERE(eb) \
    EVERYWHERE(rle) \
    EVERYWHERE(csr) \
    EVERYWHERE(exponent) \
    EVERYWHERE(signs) \
    HOST_ALONE(deflate)
/* clang-format on */

#define DECLARE_HOST(name) extern const mm_codec_ops mm_codec_##name##_host_ops;
#define DECLARE_CUDA(name) extern const mm_codec_ops mm_codec_##name##_cuda_ops;
#define HOST(name)         &mm_codec_##name##_host_ops,
#define CUDA(name)         &mm_codec_##name##_cuda_ops,
#define NONE(name)

CODECS(DECLARE_HOST, DECLARE_HOST)
#ifdef MM_CODEC_CUDA
CODECS(DECLARE_CUDA, NONE)
#endif

static const mm_codec_ops *const codecs[] = {CODECS(HOST, HOST)
#ifdef MM_CODEC_CUDA
                                                 CODECS(CUDA, NONE)
#endif
};

const mm_codec_ops *mm_codec_table(size_t i) { return i < sizeof codecs / sizeof codecs[0] ? codecs[i] : NULL; }
