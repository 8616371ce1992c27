/* SPDX-License-Identifier: MIT */
/* The interface of codecs. A codec encodes a tensor's elements to a code, and decodes it, on the caller's stream and in
 * the caller's buffers. encode and decode never allocate and never synchronise. Codes are the same bytes on every
 * device.
 *
 * A code has a fixed size, or a head of a fixed size and a body of a size that nobody knows beforehand
 * (code_body.h). */
#ifndef PIPELINE_CODEC_CODEC_H
#define PIPELINE_CODEC_CODEC_H

#include <stdatomic.h>

#include "mm/core/graph/code_strips.h"
#include "mm/core/graph/graph.h"
#include "mm/device/contract/device.h"
#include "pipeline/codec/code_body.h"

typedef struct mm_codec mm_codec;
typedef struct mm_codec_ops mm_codec_ops;

typedef struct mm_shape {
    mm_dtype dtype;
    int rank; /* 1 to 4 */
    /* Outermost first; unused ones are 1. Rank 4 is NHWC, unless the codec has layout=nchw. At most 2^62 bytes in
     * all */
    int64_t dims[4];
} mm_shape;

/* A tensor's shape for codecs, which see at most 4 dimensions: all but the outermost and the innermost two are
 * merged. */
mm_shape mm_codec_shape(const mm_tensor_info *tensor);

/* Counters that tasks increase as they run. In memory that the device reaches: MM_MEMORY_PINNED, or any on the host
 * device. To be read when the tasks are done. */
typedef struct mm_codec_counters {
    _Atomic int64_t nonfinite_blocks;
    _Atomic int64_t damaged_chunks; /* CUDA: chunks of codes that could not be read; zeros were decoded instead. On the
                                       host device the task fails */
} mm_codec_counters;

/* What encode and decode take beside the map and the code. A member that the codec does not need may be NULL or 0. The
 * struct and the body are read during the call; what they point to, when the task runs. */
typedef struct mm_code_inputs {
    const mm_code_body *body; /* NULL: a code of fixed size */
    const int64_t *iteration; /* in device memory: the iteration's number, key of stochastic rounding; NULL: 0 */
    const float *bound;       /* in device memory: the error bound of this map; NULL: the spec has it */
    int32_t tensor;           /* the tensor's number in its graph, key of stochastic rounding */
    int64_t first;            /* index in the tensor of the call's first element: above 0 for later pieces of a code;
                               * key of stochastic rounding */
} mm_code_inputs;

typedef struct mm_codec_flags {
    bool lossless;    /* the code keeps the elements bit for bit, or, without gives_value, their signs */
    bool fixed_size;  /* codes have no body */
    bool gives_value; /* there is a decode */
    bool gives_sign;  /* the code is the mask of MM_FORM_SIGN */
    bool exact_signs; /* a decoded element is > 0 exactly if the element was; lossless implies it */
    bool drops_zeros; /* the code leaves out zeros, and is small only if the map has many */
    bool reads_iteration, reads_bound; /* it reads these members of mm_code_inputs */
} mm_codec_flags;

/* Assumed size of a body, if nothing was measured. */
typedef struct mm_body_nominal {
    int64_t typical_bytes; /* expected size */
    int64_t reserve_bytes; /* what plans reserve on the device; at least 1 */
} mm_body_nominal;

/* The strips of a tensor's code (mm.h), with what their functions need. */
typedef struct mm_codec_strips {
    mm_strips strips; /* the first member: its functions get this struct */
    const mm_codec *codec;
    mm_shape shape;
} mm_codec_strips;

struct mm_codec_ops {
    const char *name, *summary; /* name: "zfp"; summary: describes its parameters */
    const char *device;         /* kind of device on whose streams it enqueues */
    mm_codec_flags flags;       /* of a codec without parameters */
    const void *own;            /* data of the implementation */
    /* ops: this struct; params: the spec after the name, "rate=4", or "". Sets codec->spec to the canonical form. */
    mm_status (*create)(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
    /* See mm_codec_format. NULL: no formats. */
    const char *(*format)(const mm_codec_ops *ops, size_t i);
    void (*destroy)(mm_codec *codec);
    mm_status (*bound)(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
    /* See mm_codec_body_bound, mm_codec_body_nominal. NULL: codes have no body. */
    mm_status (*body_bound)(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
    mm_status (*body_nominal)(const mm_codec *codec, const mm_shape *shape, mm_body_nominal *nominal_out);
    int64_t (*scratch)(const mm_codec *codec, const mm_shape *shape);
    int64_t (*split)(const mm_codec *codec, const mm_shape *shape); /* NULL: codes cannot be split */
    mm_status (*encode)(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                        void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters);
    mm_status (*decode)(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                        void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters);
    /* Fills in strips->strips, except elems, from the rest of the struct; false: codes of this shape have no strips.
     * NULL: no codes have. */
    bool (*strips)(mm_codec_strips *strips);
};

/* The first member of every implementation's struct. Immutable after creation, so any thread may use it. */
struct mm_codec {
    const mm_codec_ops *ops;
    mm_codec_flags flags;
    char spec[64]; /* canonical: "zfp:rate=4" */
};

/* The i-th codec of this build; NULL past the last. */
const mm_codec_ops *mm_codec_table(size_t i);

/* The i-th format that a spec may name after the codec's name, such as "fp10" in "dpr:fp10"; the default comes first.
 * NULL past the last. A codec without formats has one, "". */
const char *mm_codec_format(const mm_codec_ops *ops, size_t i);

/* Creates a codec by its spec, such as "zfp:rate=4", for a device by its name. The caller destroys it. Errors of
 * mm_device_find; MM_ERR_NOT_FOUND: no such codec (the message lists them); MM_ERR_INVALID: a parameter (the message
 * has its range); MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_codec_create(const char *spec, const char *device, mm_codec **codec_out);
/* NULL is legal. */
void mm_codec_destroy(mm_codec *codec);

/* The exact size of a code of this shape, or of its head if it has a body, in bytes. MM_ERR_UNSUPPORTED: the codec
 * cannot encode this shape or type. */
MM_CHECKED mm_status mm_codec_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
/* The most bytes that the body of a code of this shape takes; 0: codes have none. Errors of mm_codec_bound. */
MM_CHECKED mm_status mm_codec_body_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
/* Assumed size of the body of a code of this shape; zeros: codes have none. Errors of mm_codec_bound. */
MM_CHECKED mm_status mm_codec_body_nominal(const mm_codec *codec, const mm_shape *shape, mm_body_nominal *nominal_out);
/* Bytes of scratch that encode and decode need; 0: none. */
int64_t mm_codec_scratch(const mm_codec *codec, const mm_shape *shape);

/* The smallest number of outermost rows (dims[0]: images) after whose multiples a code can be split. If a and b are
 * multiples (or b is the end), the code of rows a to b - 1 alone equals the bytes of the whole code from bound(a rows)
 * on, an 8-byte boundary, and can be encoded and decoded alone. 0: the code cannot be split, or the shape not
 * encoded. */
int64_t mm_codec_split(const mm_codec *codec, const mm_shape *shape);

/* The strips of codes of this shape; together they are what encode makes. false: steps cannot read or write the code
 * without the codec. Borrows the codec. */
bool mm_codec_strips_of(const mm_codec *codec, const mm_shape *shape, mm_codec_strips *strips_out);

/* Enqueues the encoding. src: dense elements; dst: at least bound bytes, aligned to 256, all of which are written;
 * scratch: mm_codec_scratch bytes. All must stay valid until the task is done. inputs: NULL for codecs that need none.
 * All bodies of a pool must be encoded on one stream. MM_ERR_INVALID: no body, record or bound where the codec needs
 * one. A body that has no room in its pool and spill fails the task on the host (MM_ERR_INVALID); on CUDA the caller
 * must make sure that there is room (mm_program_prove does): bytes without room are not written. */
MM_CHECKED mm_status mm_codec_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                                     void *dst, void *scratch, const mm_code_inputs *inputs,
                                     mm_codec_counters *counters);
/* Enqueues the decoding. src: the code; dst: receives the elements. inputs: the body lies where encode put it.
 * MM_ERR_UNSUPPORTED without gives_value. A damaged code that has a body fails the task on the host with MM_ERR_FORMAT,
 * and is counted on CUDA (damaged_chunks); nothing outside the body's memory is read. */
MM_CHECKED mm_status mm_codec_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                                     void *dst, void *scratch, const mm_code_inputs *inputs,
                                     mm_codec_counters *counters);

#endif
