/* SPDX-License-Identifier: MIT */
/* CUDA makes the same codes, decoded maps and counts as the host device, whatever the data, the shape and the rate.
 * (zfp_code_test.c checks that the host's zfp codes are libzfp's.) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/codec/codec.h"
#include "tests/codec/codec_data.h"
#include "tests/core/deep.h"

enum { AREA_BYTES = 1 << 20, MOST_SHIFT = 16, SPILL_BYTES = AREA_BYTES + 4096 };

static const float error_bound = 0.004f;

/* A device with a stream and what its codecs use. */
typedef struct side {
    const char *name;
    mm_device *device;
    mm_stream *stream;
    void *src, *dst, *scratch, *pool, *bound;
    uint8_t *staging, *spill;
    mm_codec_counters *counters;
    int64_t *iteration;
    mm_body_record *records; /* [0]: of the body before; [1]: of the body made last */
    mm_code_body body;
    int shift; /* bytes by which codes begin behind a multiple of MOST_SHIFT */
} side;

typedef struct rig {
    side host, cuda;
} rig;

/* Numbers of memory areas of a side: of device memory, then of pinned memory. */
enum { DEVICE_AREAS = 5, PINNED_AREAS = 5 };
typedef struct area {
    void **at;
    int64_t bytes;
} area;

static void areas_of(side *s, area out[DEVICE_AREAS + PINNED_AREAS]) {
    const area all[] = {{&s->src, AREA_BYTES},
                        {&s->dst, AREA_BYTES},
                        {&s->scratch, AREA_BYTES},
                        {&s->pool, AREA_BYTES},
                        {&s->bound, sizeof error_bound},
                        {(void **)&s->staging, AREA_BYTES},
                        {(void **)&s->spill, SPILL_BYTES},
                        {(void **)&s->counters, sizeof *s->counters},
                        {(void **)&s->iteration, sizeof *s->iteration},
                        {(void **)&s->records, 2 * sizeof *s->records}};
    memcpy(out, all, sizeof all);
}

static mm_memory_kind kind_of(int i) { return i < DEVICE_AREAS ? MM_MEMORY_DEVICE : MM_MEMORY_PINNED; }

static void side_init(side *s, const char *name) {
    area areas[DEVICE_AREAS + PINNED_AREAS];
    s->name = name;
    assert_int_equal(mm_device_create(name, NULL, &s->device), MM_OK);
    assert_int_equal(mm_stream_create(s->device, "codec", 0, &s->stream), MM_OK);
    areas_of(s, areas);
    for (int i = 0; i < DEVICE_AREAS + PINNED_AREAS; i++)
        assert_int_equal(mm_device_reserve(s->device, kind_of(i), areas[i].bytes, areas[i].at), MM_OK);
    *s->counters = (mm_codec_counters){0};
    *s->iteration = INT64_C(1) << 33 | 7; /* the device reads pinned memory, too */
    memcpy(s->staging, &error_bound, sizeof error_bound);
    assert_int_equal(mm_copy_async(s->stream, s->bound, s->staging, sizeof error_bound, MM_COPY_IN), MM_OK);
    assert_int_equal(mm_stream_sync(s->stream), MM_OK);
}

static void side_fini(side *s) {
    area areas[DEVICE_AREAS + PINNED_AREAS];
    mm_stream_destroy(s->stream);
    areas_of(s, areas);
    for (int i = 0; i < DEVICE_AREAS + PINNED_AREAS; i++)
        mm_device_release(s->device, kind_of(i), *areas[i].at, areas[i].bytes);
    mm_device_destroy(s->device);
}

static int setup(void **state) {
    static rig r;
    mm_device *device = NULL;
    *state = NULL;
    const mm_status status = mm_device_create("cuda", NULL, &device);
    mm_device_destroy(device);
    if (status == MM_ERR_NOT_FOUND) return 0; /* no GPU answers: each test skips */
    assert_int_equal(status, MM_OK);
    side_init(&r.host, "host");
    side_init(&r.cuda, "cuda");
    *state = &r;
    return 0;
}

static int teardown(void **state) {
    rig *r = *state;
    if (!r) return 0;
    side_fini(&r->host);
    side_fini(&r->cuda);
    return 0;
}

static rig *rig_of(void **state) {
    if (!*state) skip();
    return *state;
}

static int64_t bytes_of(const mm_shape *shape) {
    int64_t bytes = (int64_t)mm_dtype_bytes(shape->dtype);
    for (int d = 0; d < shape->rank; d++) bytes *= shape->dims[d];
    return bytes;
}

/* An address as near to the area's end as alignment and shift allow: an access beyond it leaves the area, and a checker
 * sees that. */
static uint8_t *place(void *area, int64_t bytes, int shift) {
    assert_true(bytes + MOST_SHIFT <= AREA_BYTES);
    return (uint8_t *)area + (AREA_BYTES - bytes - shift) / MOST_SHIFT * MOST_SHIFT + shift;
}

/* Runs one encode or decode on that side: of `in`, to `out`, which is filled with other bytes before. */
static mm_status try_job(side *s, const mm_codec *codec, bool encode, const mm_shape *shape, const void *in,
                         int64_t in_bytes, void *out, int64_t out_bytes) {
    uint8_t *src = place(s->src, in_bytes, encode ? 0 : s->shift),
            *dst = place(s->dst, out_bytes, encode ? s->shift : 0);
    const mm_code_inputs inputs = {
        .body = &s->body, .bound = s->bound, .iteration = s->iteration, .tensor = 3, .first = INT64_C(512) << 25};
    memcpy(s->staging, in, (size_t)in_bytes);
    assert_int_equal(mm_copy_async(s->stream, src, s->staging, in_bytes, MM_COPY_IN), MM_OK);
    assert_int_equal(mm_fill_async(s->stream, dst, 0x5a, out_bytes), MM_OK);
    assert_true(mm_codec_scratch(codec, shape) <= AREA_BYTES);
    assert_int_equal((encode ? mm_codec_encode : mm_codec_decode)(codec, s->stream, shape, src, dst, s->scratch,
                                                                  &inputs, s->counters),
                     MM_OK);
    MM_TRY(mm_stream_sync(s->stream));
    assert_int_equal(mm_copy_async(s->stream, s->staging, dst, out_bytes, MM_COPY_OUT), MM_OK);
    assert_int_equal(mm_stream_sync(s->stream), MM_OK);
    memcpy(out, s->staging, (size_t)out_bytes);
    return MM_OK;
}

static void job(side *s, const mm_codec *codec, bool encode, const mm_shape *shape, const void *in, int64_t in_bytes,
                void *out, int64_t out_bytes) {
    if (try_job(s, codec, encode, shape, in, in_bytes, out, out_bytes) != MM_OK)
        fail_msg("%s on %s: %s", codec->spec, s->name, mm_last_error());
}

static uint8_t memory[5][AREA_BYTES];

/* Gives the side a pool for a third of a map of `bytes` bytes, which ends where its memory ends, and a spill with room
 * for the whole map. */
static void put_body(side *s, int64_t bytes) {
    const int64_t pool_bytes = (bytes / 3 + 255) / 256 * 256;
    memset(s->spill, 0x5a, SPILL_BYTES);
    assert_int_equal(mm_fill_async(s->stream, s->pool, 0x5a, AREA_BYTES), MM_OK);
    memset(s->records, 0, 2 * sizeof *s->records);
    s->records[0].end = 301;
    s->body = (mm_code_body){.pool = (uint8_t *)s->pool + AREA_BYTES - pool_bytes,
                             .pool_bytes = pool_bytes,
                             .spill = s->spill,
                             .spill_bytes = SPILL_BYTES,
                             .before = &s->records[0],
                             .record = &s->records[1]};
}

static void check_bodies(rig *r, const char *spec) {
    static uint8_t pool[AREA_BYTES];
    assert_memory_equal(&r->cuda.records[1], &r->host.records[1], sizeof *r->host.records);
    for (side *s = &r->host; s <= &r->cuda; s++) {
        assert_int_equal(mm_copy_async(s->stream, s->staging, s->pool, AREA_BYTES, MM_COPY_OUT), MM_OK);
        assert_int_equal(mm_stream_sync(s->stream), MM_OK);
        if (s == &r->host) memcpy(pool, s->staging, AREA_BYTES);
    }
    if (memcmp(pool, r->cuda.staging, AREA_BYTES) != 0) fail_msg("%s: what is in the pools differs", spec);
    if (memcmp(r->host.spill, r->cuda.spill, SPILL_BYTES) != 0) fail_msg("%s: what is in the spills differs", spec);
    assert_int_equal(r->cuda.counters->damaged_chunks, 0);
}

static void check_shifted(rig *r, const char *spec, mm_shape shape, const void *values) {
    mm_codec *host, *cuda;
    int64_t bytes = bytes_of(&shape), code_bytes, on_cuda;
    assert_int_equal(mm_codec_create(spec, "cuda", &cuda), MM_OK);
    assert_int_equal(mm_codec_create(spec, "host", &host), MM_OK);
    assert_string_equal(host->spec, cuda->spec);
    assert_int_equal(mm_codec_bound(host, &shape, &code_bytes), MM_OK);
    assert_int_equal(mm_codec_bound(cuda, &shape, &on_cuda), MM_OK);
    assert_int_equal(on_cuda, code_bytes);
    assert_int_equal(mm_codec_split(cuda, &shape), mm_codec_split(host, &shape));

    for (side *s = &r->host; s <= &r->cuda && !host->flags.fixed_size; s++) put_body(s, bytes);
    const int64_t host_before = r->host.counters->nonfinite_blocks, cuda_before = r->cuda.counters->nonfinite_blocks;
    job(&r->host, host, true, &shape, values, bytes, memory[0], code_bytes);
    job(&r->cuda, cuda, true, &shape, values, bytes, memory[1], code_bytes);
    for (int64_t i = 0; i < code_bytes; i++)
        if (memory[0][i] != memory[1][i])
            fail_msg("%s of %lldx%lldx%lldx%lld: byte %lld of the code is %02x, not %02x", spec,
                     (long long)shape.dims[0], (long long)shape.dims[1], (long long)shape.dims[2],
                     (long long)shape.dims[3], (long long)i, memory[1][i], memory[0][i]);
    assert_int_equal(r->cuda.counters->nonfinite_blocks - cuda_before,
                     r->host.counters->nonfinite_blocks - host_before);
    if (!host->flags.fixed_size) check_bodies(r, spec);
    if (host->flags.gives_value) {
        job(&r->host, host, false, &shape, memory[0], code_bytes, memory[2], bytes);
        job(&r->cuda, cuda, false, &shape, memory[0], code_bytes, memory[3], bytes);
        for (int64_t i = 0; i < bytes; i++)
            if (memory[2][i] != memory[3][i])
                fail_msg("%s of %lldx%lldx%lldx%lld: byte %lld of the values is %02x, not %02x", spec,
                         (long long)shape.dims[0], (long long)shape.dims[1], (long long)shape.dims[2],
                         (long long)shape.dims[3], (long long)i, memory[3][i], memory[2][i]);
    }
    mm_codec_destroy(host);
    mm_codec_destroy(cuda);
}

static void check(rig *r, const char *spec, mm_shape shape, const void *values) {
    for (r->cuda.shift = MOST_SHIFT / 2; r->cuda.shift <= MOST_SHIFT; r->cuda.shift += MOST_SHIFT / 2)
        check_shifted(r, spec, shape, values);
}

static void check_family(rig *r, const char *spec, mm_shape shape, int family, uint64_t seed) {
    float *values = (float *)(void *)memory[4];
    codec_data_fill(values, bytes_of(&shape) / 4, (codec_family)family, seed);
    check(r, spec, shape, values);
}

static mm_shape nhwc(int64_t n, int64_t h, int64_t w, int64_t c) {
    return (mm_shape){.dtype = MM_F32, .rank = 4, .dims = {n, h, w, c}};
}

static const mm_shape odd_shapes[] = {
    {MM_F32, 4, {2, 8, 8, 16}},  {MM_F32, 4, {1, 14, 14, 5}}, {MM_F32, 4, {3, 7, 7, 33}},  {MM_F32, 4, {1, 1, 1, 1}},
    {MM_F32, 4, {2, 5, 3, 24}},  {MM_F32, 4, {4, 32, 2, 3}},  {MM_F32, 1, {1, 1, 1, 1}},   {MM_F32, 1, {1003, 1, 1, 1}},
    {MM_F32, 2, {8, 100, 1, 1}}, {MM_F32, 3, {3, 9, 11, 1}},  {MM_F32, 4, {70, 3, 3, 1}},  {MM_F32, 2, {17, 64, 1, 1}},
    {MM_F32, 4, {1, 4, 4, 130}}, {MM_F32, 3, {6, 5, 12, 1}},  {MM_F32, 4, {2, 16, 16, 1}}, {MM_F32, 4, {1, 3, 2, 4}},
};
enum { SHAPES = sizeof odd_shapes / sizeof odd_shapes[0] };

static const uint32_t nonfinite[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001};
enum { NONFINITE = sizeof nonfinite / sizeof nonfinite[0] };

/* Bits a block, by dims: around whole words, and between. */
static void every_class_of_bits_on_odd_shapes(void **state) {
    rig *r = rig_of(state);
    static const int bits[] = {9,   10,  16,  31,  32,  33,  48,  63,  64,  65,  95,  96,   97,  102,
                               127, 128, 129, 160, 192, 256, 258, 384, 410, 511, 512, 1000, 2048};
    for (int dims = 1; dims <= 3; dims++)
        for (size_t b = 0; b < sizeof bits / sizeof bits[0] && bits[b] <= 32 << 2 * dims; b++) {
            char spec[64];
            const int values = 1 << 2 * dims, hundred_thousandths = bits[b] * 100000 / values;
            for (int s = 0; s < 8; s++) {
                snprintf(spec, sizeof spec, "zfp:rate=%d.%05d,dims=%d,layout=%s", hundred_thousandths / 100000,
                         hundred_thousandths % 100000, dims, s < 4 ? "nhwc" : "nchw");
                const int shape = (int)(4 * b + (size_t)(dims + s)) % SHAPES;
                check_family(r, spec, odd_shapes[shape], (int)(b + (size_t)s) % FAMILIES, b);
            }
        }
}

/* Calls check of each codec in each of its formats. */
static void check_formats(rig *r, mm_shape shape, const void *values) {
    const mm_codec_ops *ops;
    const char *format;
    for (size_t i = 0; (ops = mm_codec_table(i)); i++)
        for (size_t f = 0; strcmp(ops->device, "cuda") == 0 && (format = mm_codec_format(ops, f)); f++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s%s%s", ops->name, *format ? ":" : "", format);
            check(r, spec, shape, values);
        }
}

/* The step of loops over a case's inputs: each fifth input where kernels are checked, each third under a sanitizer. */
static int step(void) { return test_is_slow() ? 5 : test_is_sanitized() ? 3 : 1; }

static void every_format_on_odd_shapes_and_of_every_family(void **state) {
    rig *r = rig_of(state);
    float *values = (float *)(void *)memory[4];
    for (int i = 0; i < FAMILIES + SHAPES; i += step()) {
        const mm_shape shape = i < SHAPES ? odd_shapes[i] : nhwc(3, 9, 8, 12);
        codec_data_fill(values, bytes_of(&shape) / 4, (codec_family)(i % FAMILIES), (uint64_t)i);
        check_formats(r, shape, values);
    }
}

/* Elements of any bits; elements that are mostly zeros, so that chunks are not left as they are; and elements of which
 * half have one exponent, half of the rest the next one, and so on. */
static void every_format_of_elements_of_16_bits(void **state) {
    rig *r = rig_of(state);
    uint16_t *halves = (uint16_t *)(void *)memory[4];
    for (int i = 0; i < 6 * SHAPES; i += step()) {
        mm_shape shape = odd_shapes[i % SHAPES];
        uint64_t random = codec_seed((uint64_t)i);
        shape.dtype = i % 2 ? MM_F16 : MM_BF16;
        for (int64_t e = 0; e < bytes_of(&shape) / 2; e++) {
            const uint16_t bits = (uint16_t)(random_next(&random) >> 20);
            const int less = __builtin_ctz((unsigned)random_next(&random) | 1u << 14);
            halves[e] = i < 2 * SHAPES           ? bits
                        : i >= 4 * SHAPES        ? shape.dtype == MM_BF16 ? (bits & 0x807f) | (127 - less) << 7
                                                                          : (bits & 0x83ff) | (15 - less) << 10
                        : bits % 4               ? 0
                        : shape.dtype == MM_BF16 ? bits >> 2 | 0x3c00
                                                 : bits & 0xbfff;
        }
        check_formats(r, shape, halves);
    }
}

static void every_format_of_values_that_are_not_finite(void **state) {
    rig *r = rig_of(state);
    const mm_shape shape = nhwc(2, 9, 8, 12);
    const int64_t elems = bytes_of(&shape) / 4;
    float *values = (float *)(void *)memory[4];
    for (int every = 1; every < 1000; every = every * 6 + 1) {
        codec_data_fill(values, elems, FAMILY_BITS, (uint64_t)every);
        for (int64_t at = every / 2; at < elems; at += every) memcpy(&values[at], &nonfinite[at % NONFINITE], 4);
        check_formats(r, shape, values);
    }
}

static void every_family_of_values(void **state) {
    rig *r = rig_of(state);
    static const char *const specs[] = {"zfp:rate=4",
                                        "zfp:rate=6.4",
                                        "zfp:rate=6",
                                        "zfp:rate=8",
                                        "zfp:rate=2",
                                        "zfp:rate=20",
                                        "zfp:rate=4,layout=nchw",
                                        "zfp:rate=6.4,layout=nchw",
                                        "zfp:rate=4,dims=3,layout=nchw",
                                        "zfp:rate=4,dims=1",
                                        "zfp:rate=6.4,dims=1",
                                        "zfp:rate=16,dims=1",
                                        "zfp:rate=4,dims=3",
                                        "zfp:rate=6.4,dims=3",
                                        "zfp:rate=20,dims=3",
                                        "eb:abs=3.5e-5", /* this bound gives the most planes */
                                        "eb:abs=0.1"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        for (int family = 0; family < FAMILIES; family += step())
            check_family(r, specs[i], nhwc(2, 9, 8, 12), family, i);
}

static void blocks_that_are_not_finite_and_their_count(void **state) {
    rig *r = rig_of(state);
    static const char *const specs[] = {"zfp:rate=1",        "zfp:rate=2",        "zfp:rate=4",
                                        "zfp:rate=6.4",      "zfp:rate=8",        "zfp:rate=20",
                                        "zfp:rate=4,dims=1", "zfp:rate=1,dims=3", "zfp:rate=4,dims=3",
                                        "zfp:rate=2.1",      "zfp:layout=nchw",   "zfp:rate=4,dims=3,layout=nchw"};
    const mm_shape shape = nhwc(2, 9, 8, 12);
    const int64_t elems = bytes_of(&shape) / 4, before = r->cuda.counters->nonfinite_blocks;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        for (int every = 3; every < 1000; every = every * 5 + 2) {
            float *values = (float *)(void *)memory[4];
            codec_data_fill(values, elems, FAMILY_RELU, i);
            for (int64_t at = every / 2; at < elems; at += every) memcpy(&values[at], &nonfinite[at % NONFINITE], 4);
            check(r, specs[i], shape, values);
        }
    assert_true(r->cuda.counters->nonfinite_blocks > before);
}

/* Codes shorter than the classes of 64 values: the last lanes must not look for their classes behind the shared
 * memory. */
static void short_codes_of_cubes(void **state) {
    rig *r = rig_of(state);
    static const char *const specs[] = {"zfp:rate=1,dims=3", "zfp:rate=0.14,dims=3",
                                        "zfp:rate=0.14,dims=3,layout=nchw"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        for (int family = 0; family < FAMILIES; family += step())
            check_family(r, specs[i], nhwc(2, 16, 16, 16), family, i);
}

static void nobody_need_count(void **state) {
    rig *r = rig_of(state);
    mm_codec_counters *counters = r->cuda.counters;
    mm_codec *codec;
    float values[64], back[64];
    uint8_t code[32];
    for (int i = 0; i < 64; i++) values[i] = NAN;
    r->cuda.counters = NULL;
    assert_int_equal(mm_codec_create("zfp:rate=4", "cuda", &codec), MM_OK);
    job(&r->cuda, codec, true, &(mm_shape){MM_F32, 4, {1, 4, 4, 4}}, values, sizeof values, code, sizeof code);
    job(&r->cuda, codec, false, &(mm_shape){MM_F32, 4, {1, 4, 4, 4}}, code, sizeof code, back, sizeof back);
    for (int i = 0; i < 64; i++) assert_true(back[i] != back[i]);
    mm_codec_destroy(codec);
    r->cuda.counters = counters;
}

/* With sms=, a grid has fewer threads than there are blocks of values, so each thread goes on to a next block. */
static void a_capped_grid_makes_the_same_code(void **state) {
    rig *r = rig_of(state);
    static const char *const specs[] = {"zfp:rate=4,sms=1",
                                        "zfp:rate=6.4,sms=2",
                                        "zfp:rate=4,dims=1,sms=1",
                                        "zfp:rate=4,dims=3,sms=1",
                                        "zfp:rate=20,sms=1",
                                        "zfp:rate=8,sms=1000",
                                        "zfp:rate=4,layout=nchw,sms=1",
                                        "zfp:rate=4,dims=3,layout=nchw,sms=1",
                                        "dpr:fp10,sms=1",
                                        "mx:fp6,sms=1",
                                        "group:bits=4,sms=1"};
    static const mm_shape many[] = {{MM_F32, 4, {3, 21, 10, 50}}, {MM_F32, 4, {90, 9, 7, 5}}, {MM_F32, 2, {199, 251}}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        for (size_t s = 0; s < sizeof many / sizeof many[0]; s++) check_family(r, specs[i], many[s], FAMILY_SMOOTH, i);

    /* more groups of chunks than one multiprocessor has blocks */
    static const char *const of_chunks[] = {"zvc:sms=1", "csr:sms=1", "exponent:sms=1", "eb:abs=0.01,sms=1"};
    for (size_t i = 0; i < sizeof of_chunks / sizeof of_chunks[0]; i++)
        check_family(r, of_chunks[i], (mm_shape){MM_F32, 2, {300, 251}}, FAMILY_RELU, i);
}

/* Codes of chunks with changed words: host and CUDA either both find the damage, or decode the same. */
static void damaged_chunks_are_zeros_and_counted(void **state) {
    rig *r = rig_of(state);
    static const char *const specs[] = {"zvc", "rle", "csr", "csr:values=fp10", "exponent", "eb:abs=0.01"};
    static const int64_t sizes[] = {1024, 1000, 96};
    int damaged = 0, undamaged = 0;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        for (int round = 0; round < 60; round += step()) {
            const mm_shape shape = {MM_F32, 1, {sizes[round % 3], 1, 1, 1}};
            const int64_t bytes = bytes_of(&shape);
            uint64_t random = codec_seed((uint64_t)round);
            mm_codec *host, *cuda;
            assert_int_equal(mm_codec_create(specs[i], "cuda", &cuda), MM_OK);
            assert_int_equal(mm_codec_create(specs[i], "host", &host), MM_OK);
            codec_data_fill((float *)(void *)memory[4], bytes / 4, round % 2 ? FAMILY_RELU : FAMILY_SPARSE,
                            (uint64_t)round);
            for (side *s = &r->host; s <= &r->cuda; s++) put_body(s, 0);
            int64_t head_bytes;
            assert_int_equal(mm_codec_bound(host, &shape, &head_bytes), MM_OK);
            job(&r->host, host, true, &shape, memory[4], bytes, memory[0], head_bytes);
            job(&r->cuda, cuda, true, &shape, memory[4], bytes, memory[1], head_bytes);
            const int64_t words = r->host.records[1].bytes / 4;
            for (int changes = round % 4; changes >= 0; changes--) {
                const int64_t at = (int64_t)(random_next(&random) % (uint64_t)(changes % 2 ? words : words / 8 + 1));
                const uint32_t bit = 1u << random_next(&random) % 32;
                for (side *s = &r->host; s <= &r->cuda; s++) ((uint32_t *)(void *)(s->spill + 512 + 4096))[at] ^= bit;
            }
            const int64_t before = r->cuda.counters->damaged_chunks;
            job(&r->cuda, cuda, false, &shape, memory[0], head_bytes, memory[3], bytes);
            const bool is_damaged = r->cuda.counters->damaged_chunks > before;
            damaged += is_damaged, undamaged += !is_damaged;
            r->cuda.counters->damaged_chunks = 0;
            const mm_status on_host = try_job(&r->host, host, false, &shape, memory[0], head_bytes, memory[2], bytes);
            assert_int_equal(on_host, is_damaged ? MM_ERR_FORMAT : MM_OK);
            if (is_damaged) memset(memory[2], 0, (size_t)bytes), mm_stream_reset(r->host.stream);
            assert_memory_equal(memory[3], memory[2], bytes);
            mm_codec_destroy(host);
            mm_codec_destroy(cuda);
        }
    assert_true(damaged > 10 && undamaged > 10);
}

static void shapes_beyond_what_kernels_count_are_unsupported(void **state) {
    rig_of(state);
    const mm_shape shapes[] = {nhwc((int64_t)1 << 33, 1, 1, 1),
                               nhwc(1, 4, 4, (int64_t)1 << 30),
                               nhwc(1, 4, (int64_t)1 << 30, 1),
                               {MM_F32, 1, {(int64_t)1 << 33, 1, 1, 1}}};
    mm_codec *codec;
    assert_int_equal(mm_codec_create("zfp:rate=4", "cuda", &codec), MM_OK);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        int64_t bytes = 7;
        assert_int_equal(mm_codec_bound(codec, &shapes[s], &bytes), MM_ERR_UNSUPPORTED);
        assert_int_equal(bytes, 7);
    }
    mm_codec_destroy(codec);

    /* a shape can be too large in one layout, but not in the other */
    const mm_shape deep = {MM_F32, 4, {1, (int64_t)1 << 30, 4, 4}};
    const mm_shape wide = {MM_F32, 4, {1, 8, (int64_t)1 << 15, (int64_t)1 << 15}};
    int64_t bytes = 7;
    assert_int_equal(mm_codec_create("zfp:rate=4,layout=nchw", "cuda", &codec), MM_OK);
    assert_int_equal(mm_codec_bound(codec, &deep, &bytes), MM_OK);
    assert_true(bytes == (int64_t)8 << 30);
    mm_codec_destroy(codec);
    assert_int_equal(mm_codec_create("zfp:rate=4,dims=3,layout=nchw", "cuda", &codec), MM_OK);
    assert_int_equal(mm_codec_bound(codec, &wide, &bytes), MM_ERR_UNSUPPORTED);
    mm_codec_destroy(codec);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_class_of_bits_on_odd_shapes),
        cmocka_unit_test(every_format_on_odd_shapes_and_of_every_family),
        cmocka_unit_test(every_format_of_elements_of_16_bits),
        cmocka_unit_test(every_format_of_values_that_are_not_finite),
        cmocka_unit_test(every_family_of_values),
        cmocka_unit_test(blocks_that_are_not_finite_and_their_count),
        cmocka_unit_test(short_codes_of_cubes),
        cmocka_unit_test(nobody_need_count),
        cmocka_unit_test(a_capped_grid_makes_the_same_code),
        cmocka_unit_test(damaged_chunks_are_zeros_and_counted),
        cmocka_unit_test(shapes_beyond_what_kernels_count_are_unsupported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
