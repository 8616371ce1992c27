/* SPDX-License-Identifier: MIT */
/* zfp (fixed-rate ZFP) on the host device. zfp_layout.h has the order of blocks, zfp_block.h a block's bits,
 * zfp_group.h the fast kernels. */
#include "mm/device/host/device_host.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/packed/half_host.h"
#include "pipeline/codec/zfp/zfp_code.h"
#include "pipeline/codec/zfp/zfp_codec.h"

typedef struct zfp_job {
    const mm_codec *codec; /* outlives the job */
    const void *src_elems;
    const uint8_t *src_code;
    void *dst_elems; /* set in a decode; dst_code in an encode */
    uint8_t *dst_code;
    mm_shape shape;
    const mm_zfp_kernel *kernel;
    mm_host_pool *pool;
    mm_codec_counters *counters;
} zfp_job;

/* Some outermost rows of the tensor: their layout, and the positions of their first element and their code. */
typedef struct zfp_part {
    mm_zfp_layout layout;
    int64_t elem, byte;
} zfp_part;

static int64_t elem_bytes(const zfp_part *part) { return mm_elem_bytes(part->layout.type); }

static zfp_part part_of(const zfp_job *job, int64_t from, int64_t to) {
    zfp_part part = {.elem = 0};
    mm_shape shape = job->shape;
    mm_status known_to_do; /* this call did not fail for the whole shape, so it cannot fail for a part */
    if (from > 0) {
        shape.dims[0] = from;
        known_to_do = mm_zfp_codec_layout(job->codec, &shape, &part.layout);
        (void)known_to_do;
        part.byte = part.layout.code_bytes;
        part.elem = from * shape.dims[1] * shape.dims[2] * shape.dims[3];
    }
    shape.dims[0] = to - from;
    known_to_do = mm_zfp_codec_layout(job->codec, &shape, &part.layout);
    (void)known_to_do;
    return part;
}

static void encode_rows(const void *arg, int64_t from, int64_t to) {
    const zfp_job *job = arg;
    const zfp_part part = part_of(job, from, to);
    const int64_t nonfinite =
        mm_zfp_code_encode(job->kernel, &part.layout, (const uint8_t *)job->src_elems + part.elem * elem_bytes(&part),
                           job->dst_code + part.byte);
    if (nonfinite && job->counters) atomic_fetch_add(&job->counters->nonfinite_blocks, nonfinite);
}

static void decode_rows(const void *arg, int64_t from, int64_t to) {
    const zfp_job *job = arg;
    const zfp_part part = part_of(job, from, to);
    mm_zfp_code_decode(job->kernel, &part.layout, job->src_code + part.byte,
                       (uint8_t *)job->dst_elems + part.elem * elem_bytes(&part));
}

static mm_status run(void *arg) {
    const zfp_job *job = arg;
    mm_codec_run_rows(job->pool, job->shape.dims[0], mm_zfp_codec_split(job->codec, &job->shape),
                      job->dst_code ? encode_rows : decode_rows, job);
    return MM_OK;
}

static mm_status zfp_enqueue(mm_stream *stream, zfp_job job) {
    mm_zfp_layout layout;
    MM_TRY(mm_zfp_codec_layout(job.codec, &job.shape, &layout));
    job.kernel = mm_zfp_kernel_usable(0);
    if (stream->device->ops == &mm_device_host_ops) job.pool = mm_host_codec_pool(stream);
    return mm_host_launch(stream, run, &job, sizeof job);
}

static mm_status zfp_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                            void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs;
    return zfp_enqueue(
        stream, (zfp_job){.codec = codec, .src_elems = src, .dst_code = dst, .shape = *shape, .counters = counters});
}

static mm_status zfp_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                            void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs, (void)counters;
    return zfp_enqueue(stream, (zfp_job){.codec = codec, .src_code = src, .dst_elems = dst, .shape = *shape});
}

/* ---------------------------------------------------------------- strips */

/* The layout of strip s, as if it were a map of its own. */
static mm_zfp_layout strip_layout(const mm_strips *strips, int64_t s) {
    const mm_codec_strips *of = (const mm_codec_strips *)strips;
    mm_zfp_layout layout;
    /* this call did not fail when the strips were made, so it cannot fail now */
    mm_status known_to_do = mm_zfp_codec_layout(of->codec, &of->shape, &layout);
    (void)known_to_do;
    const int64_t left = layout.rows - s % layout.blocks_y * MM_ZFP_SIDE;
    layout.rows = left < MM_ZFP_SIDE ? left : MM_ZFP_SIDE;
    layout.blocks_y = 1;
    layout.blocks = layout.blocks_x * layout.blocks_c;
    layout.code_bytes = strips->strip_bytes;
    return layout;
}

static void decode_strips(const mm_strips *strips, const void *code, int64_t first, int64_t n, float *elems_out) {
    const mm_zfp_kernel *kernel = mm_zfp_kernel_usable(0);
    for (int64_t s = first; s < first + n; s++) {
        const mm_zfp_layout layout = strip_layout(strips, s);
        mm_zfp_code_decode(kernel, &layout, (const uint8_t *)code + s * strips->strip_bytes, elems_out);
        elems_out += mm_strips_elems(strips, s, 1);
    }
}

static void encode_strips(const mm_strips *strips, const float *elems, int64_t first, int64_t n, void *code_out,
                          void *counters) {
    const mm_zfp_kernel *kernel = mm_zfp_kernel_usable(0);
    int64_t nonfinite = 0;
    for (int64_t s = first; s < first + n; s++) {
        const mm_zfp_layout layout = strip_layout(strips, s);
        nonfinite += mm_zfp_code_encode(kernel, &layout, elems, (uint8_t *)code_out + s * strips->strip_bytes);
        elems += mm_strips_elems(strips, s, 1);
    }
    if (nonfinite && counters) atomic_fetch_add(&((mm_codec_counters *)counters)->nonfinite_blocks, nonfinite);
}

static bool zfp_strips(mm_codec_strips *s) {
    if (!mm_zfp_codec_strips(s)) return false;
    s->strips.decode = decode_strips;
    s->strips.encode = encode_strips;
    return true;
}

const mm_codec_ops mm_codec_zfp_host_ops = {
    .name = "zfp",
    .summary = MM_ZFP_SUMMARY,
    .device = "host",
    .flags = {.fixed_size = true, .gives_value = true},
    .create = mm_zfp_codec_create,
    .destroy = mm_codec_free,
    .bound = mm_zfp_codec_bound,
    .scratch = mm_codec_no_scratch,
    .split = mm_zfp_codec_split,
    .encode = zfp_encode,
    .decode = zfp_decode,
    .strips = zfp_strips,
};
