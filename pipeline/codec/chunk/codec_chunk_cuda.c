/* SPDX-License-Identifier: MIT */
/* Chunk codecs on CUDA, with the same bits as on the host (chunk_host.c). chunk_cuda_kernel.h has the kernels. */
#include "mm/device/cuda/device_cuda.h"
#include "pipeline/codec/chunk/chunk_codec.h"
#include "pipeline/codec/chunk/chunk_cuda.h"

_Static_assert(sizeof(_Atomic int64_t) == sizeof(unsigned long long), "kernels count in it");

/* mm_codec_ops.own. */
typedef struct chunk_cuda {
    const mm_chunk_kind *kind;
    mm_chunk_cuda_fn encode, decode;
} chunk_cuda;

static int64_t cuda_scratch(const mm_codec *codec, const mm_shape *shape) {
    int64_t elems;
    return mm_chunk_map_elems(codec, shape, &elems) == MM_OK ? mm_chunk_cuda_scratch_bytes(elems) : 0;
}

/* Fills in all members but the map, the head and the scratch. */
static mm_status work_of(const mm_codec *codec, const mm_shape *shape, const mm_code_inputs *inputs,
                         mm_codec_counters *counters, mm_chunk_work *work_out) {
    const mm_chunk_codec *chunked = (const mm_chunk_codec *)codec;
    mm_chunk_work work = {
        .body = *inputs->body,
        .type = shape->dtype,
        .format = chunked->params.format,
        .abs = chunked->params.bound,
        .bound = codec->flags.reads_bound ? inputs->bound : NULL,
        .nonfinite = counters ? (unsigned long long *)&counters->nonfinite_blocks : NULL,
        .damaged = counters ? (unsigned long long *)&counters->damaged_chunks : NULL,
        .sms = chunked->sms,
    };
    MM_TRY(mm_chunk_map_elems(codec, shape, &work.elems));
    *work_out = work;
    return MM_OK;
}

static mm_status cuda_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    const chunk_cuda *own = codec->ops->own;
    mm_chunk_work work;
    MM_TRY(work_of(codec, shape, inputs, counters, &work));
    work.map = (void *)src;
    work.head = dst;
    work.scratch = scratch;
    return mm_cuda_check(own->encode(mm_cuda_stream(stream), &work), "encode of a map's chunks");
}

static mm_status cuda_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch;
    const chunk_cuda *own = codec->ops->own;
    mm_chunk_work work;
    MM_TRY(work_of(codec, shape, inputs, counters, &work));
    work.map = dst;
    work.head = (void *)src;
    return mm_cuda_check(own->decode(mm_cuda_stream(stream), &work), "decode of a map's chunks");
}

/* Defines a codec's ops; `...`: its flags. */
#define OPS(name, summary, ...)                                                                                        \
    static const chunk_cuda name = {&mm_##name##_kind, mm_##name##_cuda_encode, mm_##name##_cuda_decode};              \
    const mm_codec_ops mm_codec_##name##_cuda_ops =                                                                    \
        MM_CHUNK_OPS(#name, summary, "cuda", &name, cuda_scratch, cuda_encode, cuda_decode, __VA_ARGS__);

OPS(zvc, MM_ZVC_SUMMARY, .lossless = true, .drops_zeros = true)
OPS(eb, MM_EB_SUMMARY, .reads_bound = true)
OPS(exponent, MM_EXPONENT_SUMMARY, .lossless = true)
OPS(rle, MM_RLE_SUMMARY, .lossless = true, .drops_zeros = true)
OPS(csr, MM_CSR_SUMMARY, .lossless = true, .drops_zeros = true)
