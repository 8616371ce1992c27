/* Codecs of chunks on CUDA: the bits of those on the host device. */
#ifndef PIPELINE_CODEC_CODEC_CHUNK_CUDA_H
#define PIPELINE_CODEC_CODEC_CHUNK_CUDA_H

#include "pipeline/codec/chunk_codec.h"
#include "pipeline/codec/chunk_cuda.h"

/* mm_codec_ops.own of a chunk codec on CUDA. */
typedef struct mm_chunk_cuda {
    const mm_chunk_kind *kind;
    mm_chunk_cuda_fn encode, decode;
} mm_chunk_cuda;

/* Members of mm_codec_ops. */
int64_t mm_chunk_cuda_scratch(const mm_codec *codec, const mm_shape *shape);
MM_CHECKED mm_status mm_chunk_cuda_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape,
                                          const void *src, void *dst, void *scratch, const mm_code_inputs *inputs,
                                          mm_codec_counters *counters);
MM_CHECKED mm_status mm_chunk_cuda_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape,
                                          const void *src, void *dst, void *scratch, const mm_code_inputs *inputs,
                                          mm_codec_counters *counters);

/* The mm_codec_ops of a chunk codec on CUDA, as MM_CHUNK_HOST_OPS. */
#define MM_CHUNK_CUDA_OPS(name_, summary_, own_, ...)                                                                  \
    MM_CHUNK_OPS(name_, summary_, "cuda", own_, mm_chunk_cuda_scratch, mm_chunk_cuda_encode, mm_chunk_cuda_decode,     \
                 __VA_ARGS__)

#endif
