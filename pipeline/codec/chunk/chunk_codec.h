/* SPDX-License-Identifier: MIT */
/* Codecs of variable size (zvc, rle, csr, exponent, deflate, eb): each encodes chunks of 1024 elements, one by one.
 * chunk_code.h has the layout of heads and bodies; this header has what such codecs share, and how each differs.
 *
 * Parameters of all: reserve=PERCENT (1 to 100, of the map: what plans reserve for a body on the device) and sms=N (on
 * a GPU: at most this many multiprocessors' worth of threads). Maps are f32, f16 or bf16, of fewer than 2^32 elements.
 * Codes cannot be split (mm_codec_split). */
#ifndef PIPELINE_CODEC_CHUNK_CHUNK_CODEC_H
#define PIPELINE_CODEC_CHUNK_CHUNK_CODEC_H

#include "pipeline/codec/chunk/chunk_code.h"
#include "pipeline/codec/codec_impl.h"

enum { MM_CHUNK_SMS_MOST = 1 << 16, MM_CHUNK_VALUE_CAPACITY = 32, MM_CHUNK_FORMATS = 4 };

/* A codec's own parameters, for its kernels on all devices. Members that a codec does not have are 0. */
typedef struct mm_chunk_params {
    int32_t format; /* csr: format of its values. 0: unchanged; else 1 + index of the dpr format */
    int32_t level;  /* deflate: zlib's level; 0: the default */
    float bound;    /* eb: the error bound, set when the task runs, from the spec or mm_code_inputs */
    mm_dtype type;  /* of the map's elements, set when the task is enqueued */
} mm_chunk_params;

typedef struct mm_chunk_codec {
    mm_codec base;
    mm_chunk_params params;
    int reserve_percent; /* 0: mm_chunk_kind.reserve_permille applies */
    int sms;             /* 0: all */
} mm_chunk_codec;

/* What is particular to one codec, on all devices. The first member of its mm_codec_ops.own points to it. */
typedef struct mm_chunk_kind {
    const char *const *formats; /* see mm_codec_format; NULL: none */
    /* Indexed by params.format: a body's expected size, and what plans reserve for it, if nothing was measured. In
     * thousandths of the map. */
    int typical_permille[MM_CHUNK_FORMATS], reserve_permille[MM_CHUNK_FORMATS];
    /* For a lossless codec: number of words before the non-zeros in the code of n elements; reads the first two words.
     * If the code is damaged, the result is still at most n. NULL: two elements of 16 bits are coded as one. */
    int (*head)(const uint32_t *words, int n);
    bool by_type; /* lossless, without `head`: kernels get elements of 16 bits zero-extended, and params.type; their
                     codes have fewer words than the elements fill */
    bool counts_nonfinite; /* a chunk with infinities or NaNs is stored raw, and counted in nonfinite_blocks */
    const char *key;       /* name of its own parameter, such as "abs"; NULL: it has none */
    /* Parses the parameter's value: sets codec->params, codec->base.flags and the value's canonical form.
     * MM_ERR_INVALID: the message says what is possible. */
    mm_status (*take)(mm_chunk_codec *codec, const char *value, char canonical_out[MM_CHUNK_VALUE_CAPACITY]);
} mm_chunk_kind;

/* Members of mm_codec_ops. A codec of mm_chunk_create is destroyed by mm_codec_free. */
MM_CHECKED mm_status mm_chunk_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
const char *mm_chunk_format(const mm_codec_ops *ops, size_t i);
/* MM_ERR_UNSUPPORTED: the map is not of floats, or too large. */
MM_CHECKED mm_status mm_chunk_map_elems(const mm_codec *codec, const mm_shape *shape, int64_t *elems_out);
MM_CHECKED mm_status mm_chunk_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
MM_CHECKED mm_status mm_chunk_body_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
MM_CHECKED mm_status mm_chunk_body_nominal(const mm_codec *codec, const mm_shape *shape, mm_body_nominal *nominal_out);
/* The mm_codec_ops of a chunk codec on a device; `...`: its flags. own_: a struct that begins with a pointer to its
 * kind. */
#define MM_CHUNK_OPS(name_, summary_, device_, own_, scratch_, encode_, decode_, ...)                                  \
    {                                                                                                                  \
        .name = name_, .summary = summary_, .device = device_, .own = own_, .create = mm_chunk_create,                 \
        .flags = {.gives_value = true, __VA_ARGS__}, .format = mm_chunk_format, .destroy = mm_codec_free,              \
        .bound = mm_chunk_bound, .body_bound = mm_chunk_body_bound, .body_nominal = mm_chunk_body_nominal,             \
        .scratch = scratch_, .encode = encode_, .decode = decode_,                                                     \
    }
/* Every such codec. */
extern const mm_chunk_kind mm_zvc_kind, mm_eb_kind, mm_rle_kind, mm_csr_kind, mm_exponent_kind, mm_deflate_kind;
#define MM_ZVC_SUMMARY                                                                                                 \
    "32 elements become a mask of the non-zeros, and these; reserve=PERCENT of the map on the device; sms=N as for "   \
    "zfp"
#define MM_EB_SUMMARY                                                                                                  \
    "each value within an error bound, abs=E or one set while it runs; values below it become 0; reserve= and sms= "   \
    "as for zvc"
#define MM_RLE_SUMMARY                                                                                                 \
    "runs of zeros: where each run of non-zeros begins and ends, and these; reserve= and sms= as for zvc"
#define MM_CSR_SUMMARY                                                                                                 \
    "Gist's sparse rows of 256: the non-zeros and a byte each; values=fp16|fp10|fp8: in a format "                     \
    "of dpr, lossy; reserve= and sms= as for zvc"
#define MM_EXPONENT_SUMMARY "exponents become codes of few bits, for maps without zeros; reserve= and sms= as for zvc"
#define MM_DEFLATE_SUMMARY  "zlib, each 4 KiB, slow; level=1 to 9, default 6; reserve= as for zvc; device host only"

#endif
