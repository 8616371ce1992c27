/* Codecs that make the same number of bytes of each group of floats that follow one another in memory, whatever the
 * map's shape: dpr, mx. What is theirs alone are formats and kernels; what is here is all else.
 *
 * A code is its groups, one after the other. A last group that is not full is coded as if zeros followed. */
#ifndef PIPELINE_CODEC_PACKED_CODEC_H
#define PIPELINE_CODEC_PACKED_CODEC_H

#include "pipeline/codec/codec_impl.h"

enum { MM_PACKED_GROUP_MOST = 256, MM_PACKED_FORMATS_MOST = 4 };

typedef struct mm_packed_format {
    const char *name;                 /* as the spec has it, "fp10" */
    int64_t group_elems, group_bytes; /* at most MM_PACKED_GROUP_MOST; a multiple of 8 */
} mm_packed_format;

/* The first member of what mm_codec_ops.own is. */
typedef struct mm_packed_formats {
    mm_packed_format at[MM_PACKED_FORMATS_MOST + 1]; /* the default first; a name of NULL is the end */
} mm_packed_formats;

typedef struct mm_packed_codec {
    mm_codec base;
    int format; /* which one */
    int sms;    /* on a GPU: threads of at most so many multiprocessors; 0: of all */
} mm_packed_codec;

/* What a map takes, in groups. */
typedef struct mm_packed_layout {
    mm_packed_format format;
    int number; /* the format's */
    int sms;
    int64_t elems, groups;
} mm_packed_layout;

/* mm_codec_ops.create, destroyed by mm_codec_free. Parameters: a format's name, sms=N, both or neither. */
MM_CHECKED mm_status mm_packed_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
/* MM_ERR_UNSUPPORTED: not of f32. */
MM_CHECKED mm_status mm_packed_layout_of(const mm_codec *codec, const mm_shape *shape, mm_packed_layout *layout_out);

/* Of mm_codec_ops. */
const char *mm_packed_format_name(const mm_codec_ops *ops, size_t i);
MM_CHECKED mm_status mm_packed_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
int64_t mm_packed_split(const mm_codec *codec, const mm_shape *shape);

/* The ops of such a codec, lossy, on a device; own_: its formats and kernels there. */
#define MM_PACKED_OPS(name_, summary_, device_, own_, encode_, decode_)                                                \
    {                                                                                                                  \
        .name = name_, .summary = summary_, .device = device_, .own = own_, .create = mm_packed_create,                \
        .flags = {.fixed_size = true, .gives_value = true}, .format = mm_packed_format_name, .destroy = mm_codec_free, \
        .bound = mm_packed_bound, .scratch = mm_codec_no_scratch, .split = mm_packed_split, .encode = encode_,         \
        .decode = decode_,                                                                                             \
    }

#endif
