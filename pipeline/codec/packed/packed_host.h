/* SPDX-License-Identifier: MIT */
/* Packed codecs on the host device: the interface of their kernels, and the functions that run them. */
#ifndef PIPELINE_CODEC_PACKED_PACKED_HOST_H
#define PIPELINE_CODEC_PACKED_PACKED_HOST_H

#include "pipeline/codec/packed/packed_codec.h"

/* Encode and decode whole groups. encode returns how many blocks lost finite values because they also have infinities
 * or NaNs. `src` and `dst` do not overlap. draw: only for codecs that round at random. */
typedef int64_t (*mm_packed_encode_fn)(const float *src, int64_t groups, uint8_t *dst, const mm_packed_draw *draw);
typedef void (*mm_packed_decode_fn)(const uint8_t *src, int64_t groups, float *dst);

/* The instruction sets that every kernel is compiled for, the fastest first. */
#if defined(__x86_64__)
enum { MM_PACKED_ISAS = 3 };
#define MM_PACKED_EACH_ISA(DEFINE, ...)                                                                                \
    DEFINE(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))), __VA_ARGS__)                         \
    DEFINE(avx2, __attribute__((target("avx2"))), __VA_ARGS__)                                                         \
    DEFINE(portable, , __VA_ARGS__)
#define MM_PACKED_ISA_LIST(name)                                                                                       \
    { name##_avx512, name##_avx2, name##_portable }
#else
enum { MM_PACKED_ISAS = 1 };
#define MM_PACKED_EACH_ISA(DEFINE, ...) DEFINE(portable, , __VA_ARGS__)
#define MM_PACKED_ISA_LIST(name)                                                                                       \
    { name##_portable }
#endif
#define MM_PACKED_INLINE static inline __attribute__((always_inline))

typedef struct mm_packed_kernels {
    mm_packed_encode_fn encode[MM_PACKED_ISAS];
    mm_packed_decode_fn decode[MM_PACKED_ISAS];
} mm_packed_kernels;

/* mm_codec_ops.own of a packed codec on the host device. */
typedef struct mm_packed_host {
    mm_packed_formats formats;
    mm_packed_kernels kernels[MM_PACKED_FORMATS_MOST]; /* per format */
} mm_packed_host;

/* Whether this machine supports the i-th instruction set. */
bool mm_packed_isa_usable(int i);
/* Index of the first one that it supports. */
int mm_packed_isa_fastest(void);

/* Members of mm_codec_ops. */
MM_CHECKED mm_status mm_packed_host_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape,
                                           const void *src, void *dst, void *scratch, const mm_code_inputs *inputs,
                                           mm_codec_counters *counters);
MM_CHECKED mm_status mm_packed_host_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape,
                                           const void *src, void *dst, void *scratch, const mm_code_inputs *inputs,
                                           mm_codec_counters *counters);
bool mm_packed_host_strips(mm_codec_strips *strips);

#endif
