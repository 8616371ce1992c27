/* SPDX-License-Identifier: MIT */
/* Codecs of chunks (chunk_code.h) on CUDA: the C interface of their kernels. */
#ifndef PIPELINE_CODEC_CHUNK_CHUNK_CUDA_H
#define PIPELINE_CODEC_CHUNK_CHUNK_CUDA_H

#include <cuda_runtime_api.h>

#include "mm/mm_base.h"
#include "pipeline/codec/chunk/chunk_code.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One encode or decode of a map. Pointers are to memory that the device reaches. */
typedef struct mm_chunk_work {
    int64_t elems;      /* elements of the map, 1 to MM_CHUNK_MAP_ELEMS_MOST */
    void *map;          /* encode reads it, decode writes it */
    mm_dtype type;      /* of its elements */
    void *head;         /* aligned to 8; encode writes all of it, decode reads it */
    mm_code_body body;  /* only encode uses `before` and `record` */
    void *scratch;      /* encode: mm_chunk_cuda_scratch_bytes, aligned to 8 */
    int format;         /* csr: params.format */
    float abs;          /* eb: the map's error bound, if `bound` is NULL */
    const float *bound; /* eb: address of the error bound when the task runs; NULL: use `abs` */
    /* nonfinite: increased by the number of chunks that encode stores raw because of infinities or NaNs; damaged: by
     * the number of chunks that decode cannot read. NULL: not counted. */
    unsigned long long *nonfinite, *damaged;
    int sms; /* at most this many multiprocessors; 0: all */
} mm_chunk_work;

/* Fewest chunks of a group, which a block encodes together; with sms=, up to 32. */
enum { MM_CHUNK_CUDA_GROUP = 8 };

static inline int64_t mm_chunk_cuda_groups(int64_t elems, int group) { return (mm_chunks(elems) + group - 1) / group; }

/* Bytes of an encode's scratch: four counters, and a state for each group. The encode initialises it. */
static inline int64_t mm_chunk_cuda_scratch_bytes(int64_t elems) {
    return 8 * (4 + mm_chunk_cuda_groups(elems, MM_CHUNK_CUDA_GROUP));
}

/* Enqueues an encode or a decode. */
typedef cudaError_t (*mm_chunk_cuda_fn)(cudaStream_t stream, const mm_chunk_work *work);

#define MM_CHUNK_CUDA_DECLARE(name)                                                                                    \
    cudaError_t mm_##name##_cuda_encode(cudaStream_t stream, const mm_chunk_work *work);                               \
    cudaError_t mm_##name##_cuda_decode(cudaStream_t stream, const mm_chunk_work *work);
MM_CHUNK_CUDA_DECLARE(zvc)
MM_CHUNK_CUDA_DECLARE(rle)
MM_CHUNK_CUDA_DECLARE(csr)
MM_CHUNK_CUDA_DECLARE(exponent)
MM_CHUNK_CUDA_DECLARE(eb)

#ifdef __cplusplus
}
#endif

#endif
