/* SPDX-License-Identifier: MIT */
/* Packed codecs (dpr, mx, group): each group of consecutive elements becomes the same number of bytes, whatever the
 * map's shape. Each codec has its own formats and kernels; this header has what they share.
 *
 * Groups are coded as f32: elements of f16 and bf16 are widened, and decoded floats are rounded back to them
 * (half_value.h). So the code equals that of the widened map.
 *
 * A code is its groups, one after the other. An incomplete last group is padded with zeros, or, if the codec rounds at
 * random, with the map's last element. */
#ifndef PIPELINE_CODEC_PACKED_PACKED_CODEC_H
#define PIPELINE_CODEC_PACKED_PACKED_CODEC_H

#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/packed/packed_draw.h"

enum { MM_PACKED_GROUP_MOST = 512, MM_PACKED_FORMATS_MOST = 4 };

typedef struct mm_packed_format {
    const char *name;                 /* as in the spec, "fp10" */
    int64_t group_elems, group_bytes; /* at most MM_PACKED_GROUP_MOST elements; a multiple of 8 bytes */
} mm_packed_format;

/* The first member of a packed codec's mm_codec_ops.own. */
typedef struct mm_packed_formats {
    mm_packed_format at[MM_PACKED_FORMATS_MOST + 1]; /* the default first; a name of NULL ends the list */
} mm_packed_formats;

typedef struct mm_packed_codec {
    mm_codec base;
    int format; /* index in mm_packed_formats */
    int sms;    /* on a GPU: at most this many multiprocessors' worth of threads; 0: all */
    int seed;   /* seed of random rounding */
} mm_packed_codec;

/* Layout of a map's code. */
typedef struct mm_packed_layout {
    mm_packed_format format;
    int number; /* the format's index */
    mm_dtype type;
    int sms;
    int64_t elems, groups;
} mm_packed_layout;

/* For mm_codec_ops.create; mm_codec_free destroys the codec. Parameters, each at most once: a format's name, sms=N,
 * and, if the codec rounds at random (flags.reads_iteration), seed=N. */
MM_CHECKED mm_status mm_packed_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
/* MM_ERR_UNSUPPORTED: the map is not of floats. */
MM_CHECKED mm_status mm_packed_layout_of(const mm_codec *codec, const mm_shape *shape, mm_packed_layout *layout_out);

/* inputs: NULL for none. */
mm_packed_draw mm_packed_draw_of(const mm_codec *codec, const mm_code_inputs *inputs);

/* Members of mm_codec_ops. */
const char *mm_packed_format_name(const mm_codec_ops *ops, size_t i);
MM_CHECKED mm_status mm_packed_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
int64_t mm_packed_split(const mm_codec *codec, const mm_shape *shape);
mm_strips mm_packed_strips(const mm_packed_layout *layout);

/* The mm_codec_ops of a packed codec, which is lossy, on a device. own_: its formats and kernels there; draws_: whether
 * it rounds at random; strips_: NULL if steps cannot read and write its codes. */
#define MM_PACKED_OPS(name_, summary_, device_, own_, draws_, encode_, decode_, strips_)                               \
    {                                                                                                                  \
        .name = name_, .summary = summary_, .device = device_, .own = own_, .create = mm_packed_create,                \
        .flags = {.fixed_size = true, .gives_value = true, .reads_iteration = draws_},                                 \
        .format = mm_packed_format_name, .destroy = mm_codec_free, .bound = mm_packed_bound,                           \
        .scratch = mm_codec_no_scratch, .split = mm_packed_split, .encode = encode_, .decode = decode_,                \
        .strips = strips_,                                                                                             \
    }

#endif
