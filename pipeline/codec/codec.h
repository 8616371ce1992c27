/* The codec contract: a tensor's elements to a code and back, on a caller's stream, in a caller's buffers.
 * encode and decode never allocate and never synchronise. Encoded bytes are the same on every device. */
#ifndef PIPELINE_CODEC_CODEC_H
#define PIPELINE_CODEC_CODEC_H

#include <stdatomic.h>

#include "mm/core/graph.h"
#include "mm/device/device.h"

typedef struct mm_codec mm_codec;
typedef struct mm_codec_ops mm_codec_ops;

typedef struct mm_shape {
    mm_dtype dtype;
    int rank; /* 1 to 4 */
    /* Outermost first, unused ones 1. Rank 4 is NHWC unless the codec says layout=nchw. Product * element size <=
     * 2^62 */
    int64_t dims[4];
} mm_shape;

/* The shape that codecs see of a tensor of at most MM_RANK_MAX dimensions: all but the outermost and the innermost two
 * are merged. */
mm_shape mm_codec_shape(const mm_tensor_info *tensor);

/* Counted by jobs as they run; one for each manager, in memory that the device reaches: its MM_MEMORY_PINNED, or any on
 * the host device. Read once the jobs are done. */
typedef struct mm_codec_counters {
    _Atomic int64_t nonfinite_blocks;
} mm_codec_counters;

typedef struct mm_codec_flags {
    bool lossless;    /* decode gives the same bits (of the elements, or of their signs where gives_value is false) */
    bool fixed_size;  /* bound is the exact size of every code */
    bool gives_value; /* decode exists */
    bool gives_sign;  /* the code itself is the sign mask of MM_FORM_SIGN */
} mm_codec_flags;

struct mm_codec_ops {
    const char *name, *summary; /* "zfp"; the summary teaches its parameters */
    const char *device;         /* the kind of device on whose streams it enqueues */
    mm_codec_flags flags;
    const void *own; /* the implementation's */
    /* `ops`: itself. `params`: what follows the name in the spec, "rate=4", or "". Fills codec->spec with the canonical
     * form. */
    mm_status (*create)(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
    /* mm_codec_format. NULL: it has none. */
    const char *(*format)(const mm_codec_ops *ops, size_t i);
    void (*destroy)(mm_codec *codec);
    mm_status (*bound)(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
    int64_t (*scratch)(const mm_codec *codec, const mm_shape *shape);
    int64_t (*split)(const mm_codec *codec, const mm_shape *shape); /* NULL: codes are never split */
    mm_status (*encode)(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                        void *scratch, mm_codec_counters *counters);
    mm_status (*decode)(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                        void *scratch, mm_codec_counters *counters);
};

/* The first member of every implementation's struct. Immutable after creation: any thread may use it. */
struct mm_codec {
    const mm_codec_ops *ops;
    char spec[64]; /* canonical: "zfp:rate=4" */
};

/* The i-th codec of this build, NULL past the last. */
const mm_codec_ops *mm_codec_table(size_t i);

/* The i-th of the formats that a codec's spec may name after its own name, as "fp10" in "dpr:fp10", the default first;
 * NULL past the last. A codec that has none has "". */
const char *mm_codec_format(const mm_codec_ops *ops, size_t i);

/* A codec by its spec, "zfp:rate=4", for a device by its name; the errors of mm_device_find. MM_ERR_NOT_FOUND lists those there are, MM_ERR_INVALID
 * says what is wrong with a parameter and its range. */
MM_CHECKED mm_status mm_codec_create(const char *spec, const char *device, mm_codec **codec_out);
void mm_codec_destroy(mm_codec *codec);

/* Bytes that a code of this shape takes at most (exactly, if fixed_size). MM_ERR_UNSUPPORTED: the codec does not take
 * this shape or type. */
MM_CHECKED mm_status mm_codec_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
/* Bytes of scratch that encode and decode need, 0 for none. */
int64_t mm_codec_scratch(const mm_codec *codec, const mm_shape *shape);

/* How many outermost rows (dims[0]: images) make a piece whose code ends on an 8-byte boundary, at least: so that, with
 * a and b multiples of it (or b the end), the code of the rows a to b alone is the bytes of the whole code from
 * bound(rows 0 to a) on, and may be encoded and decoded on its own. 0: there is no such piece smaller than the whole,
 * or the codec does not take the shape. */
int64_t mm_codec_split(const mm_codec *codec, const mm_shape *shape);

/* Enqueue. src: dense elements; dst: at least bound bytes, 256-byte aligned, every byte of it is written. */
MM_CHECKED mm_status mm_codec_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                                     void *dst, void *scratch, mm_codec_counters *counters);
/* Enqueue the inverse. MM_ERR_UNSUPPORTED unless gives_value. */
MM_CHECKED mm_status mm_codec_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                                     void *dst, void *scratch, mm_codec_counters *counters);

#endif
