/* SPDX-License-Identifier: MIT */
/* Chunk codecs on the host device: the interface of their kernels, and the functions that run them. */
#ifndef PIPELINE_CODEC_CHUNK_CHUNK_HOST_H
#define PIPELINE_CODEC_CHUNK_CHUNK_HOST_H

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "pipeline/codec/chunk/chunk_codec.h"
#include "pipeline/codec/packed/packed_host.h"

/* Kernels: several threads call them at once.
 *
 * Encodes n (1 to 1024) floats to `words`, which has room for MM_CHUNK_ROOM words; all may be written. Returns the
 * number of the code's words if it is below n; else n, and words[0] to words[n - 1] are the elements as decode will
 * return them. Of a codec by_type, for elements of 16 bits: below mm_chunk_raw_words, or that number and no words. */
enum { MM_CHUNK_ROOM = 2 * MM_CHUNK_ELEMS };
typedef int (*mm_chunk_encode_fn)(const mm_chunk_params *params, const float *src, int n, uint32_t *words);
/* Decodes `count` (< n) words to n floats. False: the code is damaged; dst may have been written. Never reads beyond
 * words[count - 1] or writes beyond dst[n - 1]. */
typedef bool (*mm_chunk_decode_fn)(const mm_chunk_params *params, const uint32_t *words, int count, int n, float *dst);

/* Stores a chunk raw. */
static inline int mm_chunk_raw(const float *src, int n, uint32_t *words) {
    memcpy(words, src, (size_t)n * sizeof *words);
    return n;
}

/* Kernels come in two variants, NAME_portable and, on x86-64, NAME_avx512; the list has one for each instruction set of
 * packed_host.h. */
#if defined(__x86_64__)
#define MM_CHUNK_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt,lzcnt,bmi2")))
#define MM_CHUNK_ISA_LIST(name)                                                                                        \
    { name##_avx512, name##_portable, name##_portable }

MM_CHUNK_AVX512 static inline __mmask16 mm_chunk_lanes(int left) {
    return left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
}

/* Stores the values, in their order, where bits of the masks (of 32 elements each) are set, and zeros elsewhere. */
MM_CHUNK_AVX512 static inline void mm_chunk_spread_avx512(const uint32_t *value, int n, const uint32_t *masks,
                                                          float *dst) {
    for (int i = 0; i < n; i += 16) {
        const __mmask16 kept = (__mmask16)(masks[i / 32] >> i % 32);
        _mm512_mask_storeu_epi32(dst + i, mm_chunk_lanes(n - i), _mm512_maskz_expandloadu_epi32(kept, value));
        value += __builtin_popcount(kept);
    }
}
#else
#define MM_CHUNK_ISA_LIST(name)                                                                                        \
    { name##_portable }
#endif

/* mm_codec_ops.own of a chunk codec on the host device. */
typedef struct mm_chunk_host {
    const mm_chunk_kind *kind;
    mm_chunk_encode_fn encode[MM_PACKED_ISAS];
    mm_chunk_decode_fn decode[MM_PACKED_ISAS];
} mm_chunk_host;

/* Members of mm_codec_ops. */
MM_CHECKED mm_status mm_chunk_host_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape,
                                          const void *src, void *dst, void *scratch, const mm_code_inputs *inputs,
                                          mm_codec_counters *counters);
MM_CHECKED mm_status mm_chunk_host_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape,
                                          const void *src, void *dst, void *scratch, const mm_code_inputs *inputs,
                                          mm_codec_counters *counters);

/* Words of the exponent codec's code of n (1 to 1024) elements, given their bits, zero-extended; as many as they fill
 * if the code would not be smaller. */
int mm_exponent_chunk_words(mm_dtype type, const uint32_t *elements, int n);

/* The mm_codec_ops of a chunk codec on the host device; `...`: its flags. own_: an mm_chunk_host. */
#define MM_CHUNK_HOST_OPS(name_, summary_, own_, ...)                                                                  \
    MM_CHUNK_OPS(name_, summary_, "host", own_, mm_codec_no_scratch, mm_chunk_host_encode, mm_chunk_host_decode,       \
                 __VA_ARGS__)

#endif
