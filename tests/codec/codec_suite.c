/* SPDX-License-Identifier: MIT */
#include "tests/codec/codec_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/codec/codec.h"
#include "tests/codec/codec_data.h"
#include "tests/core/deep.h"

enum { GUARD_BYTES = 256, AREA_BYTES = 1 << 20, ALIGNMENT = 256 };

typedef struct suite_arg {
    const char *spec, *device;
} suite_arg;

/* A codec, its device with two streams, and for each stream its buffers, which only work on the stream touches. */
enum { DEVICE_AREAS = 5, PINNED_AREAS = 3 };
typedef struct lane {
    mm_stream *stream;
    void *areas[DEVICE_AREAS + PINNED_AREAS];    /* of AREA_BYTES each */
    uint8_t *src, *dst, *scratch, *pool, *bound; /* device memory */
    uint8_t *host, *spill;                       /* pinned, as the records */
    mm_body_record *records;                     /* of the body before, and of the last one */
    mm_code_body body;
    mm_code_inputs inputs;
} lane;

typedef struct suite {
    mm_codec *codec;
    mm_device *device;
    const suite_arg *arg;
    mm_codec_counters *counters;
    int64_t first; /* index in the tensor of the first element that is encoded */
    lane lanes[2];
} suite;

static const mm_shape shapes[] = {
    {MM_F32, 4, {2, 8, 8, 16}},  {MM_F32, 4, {1, 14, 14, 5}}, {MM_F32, 4, {3, 7, 7, 33}},  {MM_F32, 4, {1, 1, 1, 1}},
    {MM_F32, 4, {2, 5, 3, 24}},  {MM_F32, 4, {4, 32, 2, 3}},  {MM_F32, 1, {1, 1, 1, 1}},   {MM_F32, 1, {37, 1, 1, 1}},
    {MM_F32, 2, {8, 100, 1, 1}}, {MM_F32, 3, {3, 9, 11, 1}},  {MM_F32, 4, {70, 3, 3, 1}},  {MM_I32, 2, {6, 11, 1, 1}},
    {MM_U8, 4, {2, 3, 3, 7}},    {MM_F16, 4, {2, 8, 8, 16}},  {MM_BF16, 4, {3, 7, 7, 33}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---------------------------------------------------------------- fixture */

static void lane_init(lane *l, mm_device *device, const char *name) {
    assert_int_equal(mm_stream_create(device, name, 0, &l->stream), MM_OK);
    for (int i = 0; i < DEVICE_AREAS + PINNED_AREAS; i++)
        assert_int_equal(
            mm_device_reserve(device, i < DEVICE_AREAS ? MM_MEMORY_DEVICE : MM_MEMORY_PINNED, AREA_BYTES, &l->areas[i]),
            MM_OK);
    l->src = l->areas[0], l->dst = l->areas[1], l->scratch = l->areas[2], l->pool = l->areas[3], l->bound = l->areas[4];
    l->host = l->areas[5], l->spill = l->areas[6], l->records = l->areas[7];
    const float bound = 0.01f;
    memcpy(l->host, &bound, sizeof bound);
    assert_int_equal(mm_copy_async(l->stream, l->bound, l->host, sizeof bound, MM_COPY_IN), MM_OK);
    assert_int_equal(mm_stream_sync(l->stream), MM_OK);
    l->inputs = (mm_code_inputs){.body = &l->body, .bound = (const float *)(const void *)l->bound};
}

/* Puts the lane in the state in which each case begins. */
static void lane_reset(lane *l) {
    l->body = (mm_code_body){.pool = l->pool, .pool_bytes = AREA_BYTES, .record = &l->records[1]};
    memset(l->records, 0, 2 * sizeof *l->records);
}

static void lane_fini(lane *l, mm_device *device) {
    mm_stream_destroy(l->stream);
    for (int i = 0; i < DEVICE_AREAS + PINNED_AREAS; i++)
        mm_device_release(device, i < DEVICE_AREAS ? MM_MEMORY_DEVICE : MM_MEMORY_PINNED, l->areas[i], AREA_BYTES);
}

/* The codec and device that the suite runs with. Device, streams and memory are made once for all cases: on an emulated
 * device, making them takes longer than most cases. */
static suite_arg asked;

static int suite_setup(void **state) {
    const suite_arg *arg = &asked;
    suite *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->arg = arg;
    assert_int_equal(mm_device_create(arg->device, &(mm_device_config){.codec_threads = 2}, &s->device), MM_OK);
    assert_int_equal(mm_codec_create(arg->spec, arg->device, &s->codec), MM_OK);
    void *counters;
    assert_int_equal(mm_device_reserve(s->device, MM_MEMORY_PINNED, sizeof *s->counters, &counters), MM_OK);
    s->counters = counters;
    lane_init(&s->lanes[0], s->device, "suite");
    lane_init(&s->lanes[1], s->device, "suite-other");
    *state = s;
    return 0;
}

static int case_setup(void **state) {
    suite *s = *state;
    *s->counters = (mm_codec_counters){0};
    for (int i = 0; i < 2; i++) lane_reset(&s->lanes[i]);
    return 0;
}

static int suite_teardown(void **state) {
    suite *s = *state;
    mm_memory_info info;
    lane_fini(&s->lanes[0], s->device);
    lane_fini(&s->lanes[1], s->device);
    mm_device_release(s->device, MM_MEMORY_PINNED, s->counters, sizeof *s->counters);
    mm_device_memory_info(s->device, &info);
    assert_int_equal(info.reserved_bytes, 0);
    mm_codec_destroy(s->codec);
    mm_device_destroy(s->device);
    free(s);
    return 0;
}

static int64_t bytes_of(const mm_shape *shape) {
    int64_t bytes = (int64_t)mm_dtype_bytes(shape->dtype);
    for (int d = 0; d < shape->rank; d++) bytes *= shape->dims[d];
    return bytes;
}

/* Code bytes of a shape, or -1 if the codec does not take it. */
static int64_t bound_of(const suite *s, const mm_shape *shape) {
    int64_t bytes = -1;
    const mm_status status = mm_codec_bound(s->codec, shape, &bytes);
    if (status == MM_ERR_UNSUPPORTED) {
        assert_int_equal(bytes, -1);
        return -1;
    }
    assert_int_equal(status, MM_OK);
    assert_true(bytes > 0 && bytes + 2 * GUARD_BYTES <= AREA_BYTES);
    assert_true(mm_codec_scratch(s->codec, shape) >= 0 && mm_codec_scratch(s->codec, shape) <= AREA_BYTES);
    return bytes;
}

static void fill_source(const mm_shape *shape, uint64_t seed, uint8_t *bytes_out) {
    const int64_t bytes = bytes_of(shape);
    uint64_t random = codec_seed(seed);
    if (shape->dtype == MM_F32)
        codec_data_fill((float *)(void *)bytes_out, bytes / 4, (codec_family)(seed % FAMILIES), seed);
    else
        for (int64_t i = 0; i < bytes; i++) bytes_out[i] = (uint8_t)random_next(&random);
}

typedef mm_status (*direction)(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                               void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters);

/* Enqueues a copy of the source to the device, an encode or decode into a destination that is filled with `fill` and
 * has guards around, and a copy of destination and guards to l->host. */
static void enqueue(suite *s, lane *l, direction run, const mm_shape *shape, const uint8_t *host_src, int64_t src_bytes,
                    int64_t dst_bytes, uint8_t fill) {
    const int64_t whole = dst_bytes + 2 * GUARD_BYTES;
    memcpy(l->host, host_src, (size_t)src_bytes);
    assert_int_equal(mm_copy_async(l->stream, l->src, l->host, src_bytes, MM_COPY_IN), MM_OK);
    assert_int_equal(mm_fill_async(l->stream, l->dst, fill, whole), MM_OK);
    uint8_t *dst = l->dst + GUARD_BYTES;
    assert_int_equal((uintptr_t)dst % ALIGNMENT, 0);
    l->inputs.first = s->first;
    assert_int_equal(run(s->codec, l->stream, shape, l->src, dst, l->scratch, &l->inputs, s->counters), MM_OK);
    assert_int_equal(mm_copy_async(l->stream, l->host, l->dst, whole, MM_COPY_OUT), MM_OK);
}

/* Waits for what `enqueue` enqueued, checks the guards, and copies the destination's bytes to `out`. */
static void finish(lane *l, int64_t dst_bytes, uint8_t fill, uint8_t *out) {
    assert_int_equal(mm_stream_sync(l->stream), MM_OK);
    for (int i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(l->host[i], fill);
        assert_int_equal(l->host[GUARD_BYTES + dst_bytes + i], fill);
    }
    memcpy(out, l->host + GUARD_BYTES, (size_t)dst_bytes);
}

static uint8_t *bytes_new(int64_t bytes) {
    uint8_t *memory = malloc((size_t)bytes);
    assert_non_null(memory);
    return memory;
}

/* Runs twice, into a destination with different old bytes. Both must give the same: so each byte is written, and the
 * result does not vary. */
static void run_twice(suite *s, direction run, const mm_shape *shape, const uint8_t *src, int64_t src_bytes,
                      int64_t dst_bytes, uint8_t *out) {
    uint8_t *again = bytes_new(dst_bytes);
    enqueue(s, &s->lanes[0], run, shape, src, src_bytes, dst_bytes, 0x5a);
    finish(&s->lanes[0], dst_bytes, 0x5a, out);
    enqueue(s, &s->lanes[0], run, shape, src, src_bytes, dst_bytes, 0xa5);
    finish(&s->lanes[0], dst_bytes, 0xa5, again);
    assert_memory_equal(out, again, dst_bytes);
    free(again);
}

/* ---------------------------------------------------------------- cases */

static void the_table_has_it_with_words_about_it(void **state) {
    const suite *s = *state;
    const mm_codec_ops *ops = s->codec->ops;
    assert_int_equal(strncmp(ops->name, s->arg->spec, strlen(ops->name)), 0);
    assert_string_equal(ops->device, s->arg->device);
    assert_true(strlen(ops->summary) > 0);
    assert_true(ops->flags.gives_value || ops->flags.gives_sign);
}

static void its_spec_is_canonical(void **state) {
    const suite *s = *state;
    mm_codec *again = NULL;
    assert_int_equal(mm_codec_create(s->codec->spec, s->arg->device, &again), MM_OK);
    assert_string_equal(again->spec, s->codec->spec);
    assert_ptr_equal(again->ops, s->codec->ops);
    mm_codec_destroy(again);
}

static void parameters_that_it_does_not_know_are_invalid(void **state) {
    const suite *s = *state;
    char spec[64];
    mm_codec *codec = NULL;
    snprintf(spec, sizeof spec, "%s:colour=red", s->codec->ops->name);
    assert_int_equal(mm_codec_create(spec, s->arg->device, &codec), MM_ERR_INVALID);
    assert_null(codec);
    assert_non_null(strstr(mm_last_error(), "colour"));
}

static void every_shape_is_taken_or_unsupported_and_one_at_least_is_taken(void **state) {
    const suite *s = *state;
    int taken = 0;
    for (int i = 0; i < SHAPES; i++) taken += bound_of(s, &shapes[i]) > 0;
    assert_true(taken > 0);
}

static void shapes_that_make_no_sense_are_invalid(void **state) {
    const suite *s = *state;
    const mm_shape bad[] = {
        {MM_F32, 0, {1, 1, 1, 1}},
        {MM_F32, 5, {1, 1, 1, 1}},
        {MM_F32, -1, {1, 1, 1, 1}},
        {MM_F32, 2, {0, 4, 1, 1}},
        {MM_F32, 4, {1, 4, -4, 1}},
        {MM_F32, 4, {INT64_MAX, INT64_MAX, 1, 1}},
        {MM_F32, 1, {((int64_t)1 << 60) + 1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t bytes = 77;
        assert_int_equal(mm_codec_bound(s->codec, &bad[i], &bytes), MM_ERR_INVALID);
        assert_int_equal(bytes, 77);
        assert_int_equal(mm_codec_encode(s->codec, s->lanes[0].stream, &bad[i], s->lanes[0].src, s->lanes[0].dst, NULL,
                                         &s->lanes[0].inputs, NULL),
                         MM_ERR_INVALID);
    }
    assert_int_equal(mm_stream_sync(s->lanes[0].stream), MM_OK);
}

static void bounds_grow_with_the_batch_beyond_32_bits(void **state) {
    const suite *s = *state;
    int64_t one = 0, many = 0;
    if (!s->codec->flags.fixed_size) skip(); /* a codec with bodies takes maps below 16 GiB only */
    assert_int_equal(mm_codec_bound(s->codec, &(mm_shape){MM_F32, 4, {1, 32, 32, 48}}, &one), MM_OK);
    const int64_t batch = (int64_t)1 << 20; /* 3 * 2^34 elements */
    assert_int_equal(mm_codec_bound(s->codec, &(mm_shape){MM_F32, 4, {batch, 32, 32, 48}}, &many), MM_OK);
    assert_true(many == one * batch);
}

static void encode_writes_every_byte_none_beyond_and_always_the_same(void **state) {
    suite *s = *state;
    for (int i = 0; i < SHAPES; i++) {
        const int64_t code_bytes = bound_of(s, &shapes[i]), bytes = bytes_of(&shapes[i]);
        if (code_bytes < 0) continue;
        uint8_t *src = bytes_new(bytes), *code = bytes_new(code_bytes);
        fill_source(&shapes[i], (uint64_t)i, src);
        run_twice(s, mm_codec_encode, &shapes[i], src, bytes, code_bytes, code);
        free(src);
        free(code);
    }
}

static void decode_writes_every_element_none_beyond_and_always_the_same(void **state) {
    suite *s = *state;
    if (!s->codec->flags.gives_value) skip();
    for (int i = 0; i < SHAPES; i++) {
        const int64_t code_bytes = bound_of(s, &shapes[i]), bytes = bytes_of(&shapes[i]);
        if (code_bytes < 0) continue;
        uint8_t *src = bytes_new(bytes), *code = bytes_new(code_bytes), *back = bytes_new(bytes);
        fill_source(&shapes[i], (uint64_t)i + 100, src);
        run_twice(s, mm_codec_encode, &shapes[i], src, bytes, code_bytes, code);
        run_twice(s, mm_codec_decode, &shapes[i], code, code_bytes, bytes, back);
        if (s->codec->flags.lossless) assert_memory_equal(back, src, bytes);
        free(src);
        free(code);
        free(back);
    }
}

static void decode_of_a_codec_without_values_is_unsupported(void **state) {
    suite *s = *state;
    if (s->codec->flags.gives_value) skip();
    lane *l = &s->lanes[0];
    assert_int_equal(
        mm_codec_decode(s->codec, l->stream, &shapes[0], l->src, l->dst, l->scratch, &l->inputs, s->counters),
        MM_ERR_UNSUPPORTED);
}

static bool is_positive(mm_dtype dtype, const void *src, int64_t i) {
    const uint16_t bits = ((const uint16_t *)src)[i];
    if (dtype == MM_F32) return ((const float *)src)[i] > 0;
    return bits > 0 && bits <= (dtype == MM_F16 ? 0x7c00 : 0x7f80);
}

static void a_code_that_gives_the_sign_is_the_mask(void **state) {
    suite *s = *state;
    if (!s->codec->flags.gives_sign) skip();
    for (int i = 0; i < SHAPES; i++) {
        const int64_t code_bytes = bound_of(s, &shapes[i]), bytes = bytes_of(&shapes[i]),
                      elems = bytes / (int64_t)mm_dtype_bytes(shapes[i].dtype);
        if (code_bytes < 0) continue;
        assert_true(code_bytes >= (elems + 31) / 32 * 4);
        uint8_t *src = bytes_new(bytes), *code = bytes_new(code_bytes);
        fill_source(&shapes[i], (uint64_t)i + 200, src);
        run_twice(s, mm_codec_encode, &shapes[i], src, bytes, code_bytes, code);
        for (int64_t e = 0; e < (elems + 31) / 32 * 32; e++)
            assert_int_equal(code[e / 8] >> e % 8 & 1, e < elems && is_positive(shapes[i].dtype, src, e));
        free(src);
        free(code);
    }
}

static void unsupported_shapes_are_refused_by_encode_too(void **state) {
    suite *s = *state;
    lane *l = &s->lanes[0];
    for (int i = 0; i < SHAPES; i++)
        if (bound_of(s, &shapes[i]) < 0)
            assert_int_equal(
                mm_codec_encode(s->codec, l->stream, &shapes[i], l->src, l->dst, l->scratch, &l->inputs, s->counters),
                MM_ERR_UNSUPPORTED);
    assert_int_equal(mm_stream_sync(l->stream), MM_OK);
}

static mm_shape rows_of(const mm_shape *shape, int64_t rows) {
    mm_shape piece = *shape;
    piece.dims[0] = rows;
    return piece;
}

/* A map is cut wherever it may be. Each piece, encoded or decoded alone, gives exactly its part of the whole. */
static void pieces_are_byte_ranges_of_the_whole(void **state) {
    suite *s = *state;
    int cut = 0;
    for (int i = 0; i < SHAPES; i++) {
        const mm_shape *whole = &shapes[i];
        const int64_t code_bytes = bound_of(s, whole), bytes = bytes_of(whole), step = mm_codec_split(s->codec, whole);
        assert_true(step >= 0 && step < whole->dims[0]);
        if (code_bytes < 0 || step == 0) continue;
        uint8_t *src = bytes_new(bytes), *code = bytes_new(code_bytes), *have = bytes_new(bytes + code_bytes);
        uint8_t *back = bytes_new(bytes);
        fill_source(whole, (uint64_t)i + 300, src);
        run_twice(s, mm_codec_encode, whole, src, bytes, code_bytes, code);
        if (s->codec->flags.gives_value) run_twice(s, mm_codec_decode, whole, code, code_bytes, bytes, back);
        for (int64_t a = step; a < whole->dims[0]; a += step, cut++) {
            const mm_shape before = rows_of(whole, a), after = rows_of(whole, whole->dims[0] - a);
            const int64_t from = bound_of(s, &before), rest = bound_of(s, &after), skipped = bytes_of(&before);
            assert_int_equal(from % 8, 0);
            assert_int_equal(from + rest, code_bytes);
            s->first = skipped / (int64_t)mm_dtype_bytes(whole->dtype);
            run_twice(s, mm_codec_encode, &after, src + skipped, bytes - skipped, rest, have);
            s->first = 0;
            assert_memory_equal(have, code + from, rest);
            run_twice(s, mm_codec_encode, &before, src, skipped, from, have);
            assert_memory_equal(have, code, from);
            if (!s->codec->flags.gives_value) continue;
            run_twice(s, mm_codec_decode, &after, code + from, rest, bytes - skipped, have);
            assert_memory_equal(have, back + skipped, bytes - skipped);
        }
        free(src);
        free(code);
        free(have);
        free(back);
    }
    assert_true(cut > 0 || !s->codec->ops->split);
}

/* One codec works on two streams at once, many times; each gives what it gives alone. */
static void two_streams_at_once_do_not_disturb_each_other(void **state) {
    suite *s = *state;
    const mm_shape *of[2] = {&shapes[0], &shapes[2]};
    uint8_t *src[2], *alone[2], *beside[2];
    int64_t bytes[2], code_bytes[2];
    for (int i = 0; i < 2; i++) {
        bytes[i] = bytes_of(of[i]);
        code_bytes[i] = bound_of(s, of[i]);
        assert_true(code_bytes[i] > 0);
        src[i] = bytes_new(bytes[i]);
        alone[i] = bytes_new(code_bytes[i]);
        beside[i] = bytes_new(code_bytes[i]);
        fill_source(of[i], (uint64_t)i, src[i]);
        run_twice(s, mm_codec_encode, of[i], src[i], bytes[i], code_bytes[i], alone[i]);
    }
    const int rounds = test_is_slow() || test_is_sanitized() ? 3 : 20;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 2; i++)
            enqueue(s, &s->lanes[i], mm_codec_encode, of[i], src[i], bytes[i], code_bytes[i], (uint8_t)round);
        for (int i = 0; i < 2; i++) {
            finish(&s->lanes[i], code_bytes[i], (uint8_t)round, beside[i]);
            assert_memory_equal(beside[i], alone[i], code_bytes[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        free(src[i]);
        free(alone[i]);
        free(beside[i]);
    }
}

/* ---------------------------------------------------------------- codes with a body */

static void skip_without_body(const suite *s) {
    if (s->codec->flags.fixed_size) skip();
}

static void sizes_of_bodies_are_possible_and_none_of_a_fixed_code(void **state) {
    const suite *s = *state;
    const mm_shape large = {MM_F32, 2, {1 << 16, (1 << 16) - 1, 1, 1}},
                   too_large = {MM_F32, 2, {1 << 16, 1 << 16, 1, 1}};
    int64_t bound = -1;
    mm_body_nominal nominal = {-1, -1};
    for (int i = 0; i < SHAPES; i++) {
        if (bound_of(s, &shapes[i]) < 0) continue;
        assert_int_equal(mm_codec_body_bound(s->codec, &shapes[i], &bound), MM_OK);
        assert_int_equal(mm_codec_body_nominal(s->codec, &shapes[i], &nominal), MM_OK);
        assert_int_equal(bound, s->codec->flags.fixed_size ? 0 : (bytes_of(&shapes[i]) + 3) / 4 * 4);
        assert_in_range(nominal.typical_bytes, 0, bound);
        assert_in_range(nominal.reserve_bytes, bound > 0, bound);
    }
    skip_without_body(s);
    assert_int_equal(mm_codec_body_bound(s->codec, &large, &bound), MM_OK);
    assert_true(bound == bytes_of(&large));
    assert_int_equal(mm_codec_bound(s->codec, &large, &bound), MM_OK);
    assert_true(bound > 0 && bound < (s->codec->flags.exact_signs ? (int64_t)532 : 20) << 20);
    assert_int_equal(mm_codec_body_bound(s->codec, &too_large, &bound), MM_ERR_UNSUPPORTED);
    assert_int_equal(mm_codec_body_nominal(s->codec, &too_large, &nominal), MM_ERR_UNSUPPORTED);
    assert_int_equal(mm_codec_bound(s->codec, &too_large, &bound), MM_ERR_UNSUPPORTED);
}

/* Where a body lies: in the pool, in pool and spill, in the spill, or in a pool in pinned memory. */
typedef enum body_place { IN_POOL, SPILLING, SPILLED, IN_PINNED_POOL, BODY_PLACES } body_place;

/* Gives the lane a pool, and a spill, with room for a body of at most `bound` bytes from `begin` on. They end where
 * their areas end, so that an access beyond is found. */
static void put_body(lane *l, body_place place, int64_t begin, int64_t bound) {
    const int64_t all = (begin + bound + 255) / 256 * 256, slack = 4096;
    const int64_t pool = place == SPILLED ? 0 : place == SPILLING ? all / 3 / 4 * 4 : all, spill = all + slack - pool;
    const bool spills = place == SPILLING || place == SPILLED, pinned = place == IN_PINNED_POOL;
    assert_true(all + 2 * slack <= AREA_BYTES);
    memset(l->records, 0, 2 * sizeof *l->records);
    l->records[0].end = begin > 0 ? begin - 255 : 0;
    l->body = (mm_code_body){.pool = pool > 0 ? (pinned ? l->spill : l->pool) + (AREA_BYTES - pool) / 256 * 256 : NULL,
                             .pool_bytes = pool,
                             .spill = spills ? l->spill + (AREA_BYTES - spill) / 256 * 256 : NULL,
                             .spill_bytes = spills ? spill : 0,
                             .pool_pinned = pinned,
                             .before = begin > 0 ? &l->records[0] : NULL,
                             .record = &l->records[1]};
}

typedef struct head_of_code {
    int64_t begin;
    uint32_t at[];
} head_of_code;

static int chunks_of(const mm_shape *shape) { return (int)((bytes_of(shape) + 4095) / 4096); }

/* Copies the body's chunks from where they must lie to `out`. *pinned_out: bytes that must lie in pinned memory. */
static void gather(lane *l, const mm_shape *shape, const head_of_code *head, uint8_t *out, int64_t *pinned_out) {
    const mm_code_body *b = &l->body;
    int64_t pinned = 0;
    if (b->pool_pinned)
        memcpy(l->host, b->pool, (size_t)b->pool_bytes);
    else if (b->pool_bytes > 0)
        assert_int_equal(mm_copy_async(l->stream, l->host, b->pool, b->pool_bytes, MM_COPY_OUT), MM_OK);
    assert_int_equal(mm_stream_sync(l->stream), MM_OK);
    for (int i = 0; i < chunks_of(shape); i++) {
        const int64_t from = 4 * (int64_t)head->at[i], bytes = 4 * (int64_t)head->at[i + 1] - from,
                      at = head->begin + from;
        const bool in_pool = at + bytes <= b->pool_bytes;
        assert_in_range(bytes, 0, 4096);
        if (bytes == 0) continue;
        memcpy(out + from, in_pool ? l->host + at : (uint8_t *)b->spill + at - b->pool_bytes + 4096, (size_t)bytes);
        pinned += in_pool && !b->pool_pinned ? 0 : bytes;
    }
    *pinned_out = pinned;
}

static const mm_shape body_shapes[] = {
    {MM_F32, 1, {1, 1, 1, 1}},    {MM_F32, 2, {33, 31, 1, 1}},  {MM_F32, 1, {1024, 1, 1, 1}},
    {MM_F32, 1, {1025, 1, 1, 1}}, {MM_F32, 4, {3, 7, 10, 100}},
};
enum { BODY_SHAPES = sizeof body_shapes / sizeof body_shapes[0] };

/* Fills a map with a family of floats; for the last kinds, also with infinities, NaNs, denormals and -0. */
static void fill_special(const mm_shape *shape, int kind, uint8_t *bytes_out) {
    static const uint32_t special[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001,
                                       0xffffffff, 0x80000000, 1,          0x807fffff, 0x7f7fffff};
    fill_source(shape, (uint64_t)kind, bytes_out);
    for (int64_t i = 0; kind >= FAMILIES && i < bytes_of(shape) / 4; i += 1 + i % 37)
        memcpy(bytes_out + 4 * i, &special[i % 10], 4);
}

/* Encodes and decodes with the body at that place, and checks both. Head, body and decoded map go to the last three. */
static void check_body(suite *s, const mm_shape *shape, const uint8_t *src, body_place place, int64_t begin,
                       uint8_t *head, uint8_t *body, uint8_t *back) {
    lane *l = &s->lanes[0];
    const int64_t bytes = bytes_of(shape), head_bytes = bound_of(s, shape), damaged = s->counters->damaged_chunks;
    int64_t bound = 0, pinned;
    assert_int_equal(mm_codec_body_bound(s->codec, shape, &bound), MM_OK);
    put_body(l, place, begin, bound);
    run_twice(s, mm_codec_encode, shape, src, bytes, head_bytes, head);
    const head_of_code *const h = (const head_of_code *)(const void *)head;
    const mm_body_record *const record = &l->records[1];
    const int64_t body_bytes = 4 * (int64_t)h->at[chunks_of(shape)];
    assert_int_equal(h->begin, begin);
    assert_int_equal(h->at[0], 0);
    assert_in_range(body_bytes, 0, bound);
    gather(l, shape, h, body, &pinned);
    assert_int_equal(record->end, begin + body_bytes);
    assert_int_equal(record->bytes, body_bytes);
    assert_int_equal(record->spilled, pinned);
    assert_int_equal(record->all_bytes, 2 * body_bytes);
    assert_int_equal(record->all_spilled, 2 * pinned);
    run_twice(s, mm_codec_decode, shape, head, head_bytes, bytes, back);
    if (s->codec->flags.lossless) assert_memory_equal(back, src, bytes);
    assert_int_equal(s->counters->damaged_chunks, damaged);
}

static void a_body_is_the_same_wherever_it_lies(void **state) {
    suite *s = *state;
    skip_without_body(s);
    const bool fast = strcmp(s->arg->device, "host") == 0; /* CUDA may be emulated */
    for (int i = 0; i < BODY_SHAPES; i++)
        for (int kind = i; kind < FAMILIES + 2; kind += test_is_slow()        ? FAMILIES + 2
                                                        : !fast               ? 6
                                                        : i < BODY_SHAPES - 1 ? 1
                                                                              : 3) {
            const mm_shape *shape = &body_shapes[i];
            const int64_t bytes = bytes_of(shape), head_bytes = bound_of(s, shape);
            uint8_t *src = bytes_new(bytes), *head[2], *body[2], *back[2];
            for (int j = 0; j < 2; j++)
                head[j] = bytes_new(head_bytes), body[j] = bytes_new(bytes), back[j] = bytes_new(bytes);
            fill_special(shape, kind, src);
            check_body(s, shape, src, IN_POOL, 0, head[0], body[0], back[0]);
            for (body_place place = IN_POOL; place < BODY_PLACES; place++) {
                const int64_t begin = place * 512, body_bytes = s->lanes[0].records[1].bytes;
                check_body(s, shape, src, place, begin, head[1], body[1], back[1]);
                assert_memory_equal(head[1] + 8, head[0] + 8, head_bytes - 8);
                assert_memory_equal(back[1], back[0], bytes);
                if (body_bytes > 0) assert_memory_equal(body[1], body[0], body_bytes);
            }
            free(src);
            for (int j = 0; j < 2; j++) free(head[j]), free(body[j]), free(back[j]);
        }
}

static void calls_without_what_a_body_needs_are_invalid(void **state) {
    suite *s = *state;
    lane *l = &s->lanes[0];
    skip_without_body(s);
    const mm_code_body no_record = {.pool = l->pool, .pool_bytes = AREA_BYTES};
    const mm_code_inputs bad[] = {{.bound = l->inputs.bound},
                                  {.bound = l->inputs.bound, .body = &no_record},
                                  {.body = s->codec->flags.reads_bound ? &l->body : NULL}};
    const char *const words[] = {"place", "record", s->codec->flags.reads_bound ? "bound" : "place"};
    for (int i = -1; i < 3; i++) {
        assert_int_equal(mm_codec_encode(s->codec, l->stream, &shapes[0], l->src, l->dst, l->scratch,
                                         i < 0 ? NULL : &bad[i], s->counters),
                         MM_ERR_INVALID);
        assert_non_null(strstr(mm_last_error(), words[i < 0 ? 0 : i]));
        if (i != 1)
            assert_int_equal(mm_codec_decode(s->codec, l->stream, &shapes[0], l->src, l->dst, l->scratch,
                                             i < 0 ? NULL : &bad[i], s->counters),
                             MM_ERR_INVALID);
    }
    assert_int_equal(mm_stream_sync(l->stream), MM_OK);
}

static void the_host_says_that_a_body_has_no_room(void **state) {
    suite *s = *state;
    lane *l = &s->lanes[0];
    skip_without_body(s);
    if (strcmp(s->arg->device, "host") != 0) skip(); /* on other devices the caller must give enough room */
    codec_data_fill((float *)(void *)l->src, bytes_of(&shapes[0]) / 4, FAMILY_UNIFORM, 1);
    for (int spill = 0; spill < 2; spill++) {
        l->body = (mm_code_body){.pool = l->pool, .pool_bytes = 256, .record = &l->records[1]};
        if (spill) l->body.spill = l->spill, l->body.spill_bytes = 4096 + 256;
        assert_int_equal(
            mm_codec_encode(s->codec, l->stream, &shapes[0], l->src, l->dst, l->scratch, &l->inputs, s->counters),
            MM_OK);
        assert_int_equal(mm_stream_sync(l->stream), MM_ERR_INVALID);
        assert_non_null(strstr(mm_last_error(), "no room for"));
        mm_stream_reset(l->stream);
    }
}

/* Decodes a damaged head, and expects an error on the host, and a count of the damage on other devices. */
static void check_damaged(suite *s, const mm_shape *shape, const uint8_t *head, int64_t head_bytes) {
    lane *l = &s->lanes[0];
    const int64_t before = s->counters->damaged_chunks;
    memcpy(l->host, head, (size_t)head_bytes);
    assert_int_equal(mm_copy_async(l->stream, l->src, l->host, head_bytes, MM_COPY_IN), MM_OK);
    assert_int_equal(mm_codec_decode(s->codec, l->stream, shape, l->src, l->dst, l->scratch, &l->inputs, s->counters),
                     MM_OK);
    const bool on_host = strcmp(s->arg->device, "host") == 0;
    assert_int_equal(mm_stream_sync(l->stream), on_host ? MM_ERR_FORMAT : MM_OK);
    if (on_host)
        mm_stream_reset(l->stream);
    else
        assert_true(s->counters->damaged_chunks > before);
}

static void damaged_heads_are_found(void **state) {
    suite *s = *state;
    skip_without_body(s);
    const mm_shape *shape = &body_shapes[BODY_SHAPES - 1];
    const int64_t bytes = bytes_of(shape), head_bytes = bound_of(s, shape);
    const int last = chunks_of(shape);
    uint8_t *src = bytes_new(bytes), *head = bytes_new(head_bytes), *body = bytes_new(bytes), *back = bytes_new(bytes);
    fill_source(shape, FAMILY_RELU, src);
    for (body_place place = IN_POOL; place < (test_is_slow() ? IN_POOL + 1 : BODY_PLACES); place++) {
        check_body(s, shape, src, place, 256, head, body, back);
        head_of_code *const h = (head_of_code *)(void *)head;
        static const int64_t begins[] = {-256,      4, 257, INT64_MIN, INT64_MAX, INT64_MAX - 255, (int64_t)1 << 40,
                                         AREA_BYTES};
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
            h->begin = begins[i];
            check_damaged(s, shape, head, head_bytes);
        }
        h->begin = 256;
        for (int i = 0; i <= last; i += last / 4) {
            const uint32_t was = h->at[i],
                           bad[] = {UINT32_MAX, was + 1025, 0x80000000, was - 1 - h->at[i > 0 ? i - 1 : i]};
            for (int j = 0; j < (i > 0 && i < last ? 3 : 4); j++) {
                h->at[i] = bad[j];
                check_damaged(s, shape, head, head_bytes);
            }
            h->at[i] = was;
        }
    }
    free(src), free(head), free(body), free(back);
}

static void no_such_hardware(void **state) {
    (void)state;
    skip();
}

static bool answers(const char *device_name) {
    mm_device *device = NULL;
    const mm_status status = mm_device_create(device_name, NULL, &device);
    mm_device_destroy(device);
    return status != MM_ERR_NOT_FOUND;
}

int codec_suite_run(const char *spec, const char *device_name) {
#define CASE(name) cmocka_unit_test_setup(name, case_setup)
    struct CMUnitTest tests[] = {
        CASE(the_table_has_it_with_words_about_it),
        CASE(its_spec_is_canonical),
        CASE(parameters_that_it_does_not_know_are_invalid),
        CASE(every_shape_is_taken_or_unsupported_and_one_at_least_is_taken),
        CASE(shapes_that_make_no_sense_are_invalid),
        CASE(bounds_grow_with_the_batch_beyond_32_bits),
        CASE(encode_writes_every_byte_none_beyond_and_always_the_same),
        CASE(decode_writes_every_element_none_beyond_and_always_the_same),
        CASE(decode_of_a_codec_without_values_is_unsupported),
        CASE(a_code_that_gives_the_sign_is_the_mask),
        CASE(unsupported_shapes_are_refused_by_encode_too),
        CASE(pieces_are_byte_ranges_of_the_whole),
        CASE(two_streams_at_once_do_not_disturb_each_other),
        CASE(sizes_of_bodies_are_possible_and_none_of_a_fixed_code),
        CASE(a_body_is_the_same_wherever_it_lies),
        CASE(calls_without_what_a_body_needs_are_invalid),
        CASE(the_host_says_that_a_body_has_no_room),
        CASE(damaged_heads_are_found),
    };
#undef CASE
    const bool run = answers(device_name);
    for (size_t i = 0; !run && i < sizeof tests / sizeof tests[0]; i++)
        tests[i] = (struct CMUnitTest){.name = tests[i].name, .test_func = no_such_hardware};
    asked = (suite_arg){spec, device_name};
    return cmocka_run_group_tests_name(spec, tests, run ? suite_setup : NULL, run ? suite_teardown : NULL);
}
