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

enum { GUARD_BYTES = 256, AREA_BYTES = 1 << 20, ALIGNMENT = 256 };

typedef struct suite_arg {
    const char *spec, *device;
} suite_arg;

/* A codec, its device with two streams, and for each stream its buffers: all in device memory, which only work on the
 * stream touches, and one in host memory. */
typedef struct lane {
    mm_stream *stream;
    uint8_t *src, *dst, *scratch; /* device memory, AREA_BYTES each */
    uint8_t *host;                /* pinned, AREA_BYTES */
} lane;

typedef struct suite {
    mm_codec *codec;
    mm_device *device;
    const suite_arg *arg;
    mm_codec_counters *counters;
    int64_t first; /* number of the first element that is encoded in its tensor */
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
    void *memory[3], *host;
    for (int i = 0; i < 3; i++)
        assert_int_equal(mm_device_reserve(device, MM_MEMORY_DEVICE, AREA_BYTES, &memory[i]), MM_OK);
    assert_int_equal(mm_device_reserve(device, MM_MEMORY_PINNED, AREA_BYTES, &host), MM_OK);
    l->src = memory[0];
    l->dst = memory[1];
    l->scratch = memory[2];
    l->host = host;
}

static void lane_fini(lane *l, mm_device *device) {
    mm_stream_destroy(l->stream);
    mm_device_release(device, MM_MEMORY_DEVICE, l->src, AREA_BYTES);
    mm_device_release(device, MM_MEMORY_DEVICE, l->dst, AREA_BYTES);
    mm_device_release(device, MM_MEMORY_DEVICE, l->scratch, AREA_BYTES);
    mm_device_release(device, MM_MEMORY_PINNED, l->host, AREA_BYTES);
}

static int suite_setup(void **state) {
    const suite_arg *arg = *state;
    suite *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->arg = arg;
    assert_int_equal(mm_device_create(arg->device, NULL, &s->device), MM_OK);
    assert_int_equal(mm_codec_create(arg->spec, arg->device, &s->codec), MM_OK);
    void *counters;
    assert_int_equal(mm_device_reserve(s->device, MM_MEMORY_PINNED, sizeof *s->counters, &counters), MM_OK);
    s->counters = counters;
    lane_init(&s->lanes[0], s->device, "suite");
    lane_init(&s->lanes[1], s->device, "suite-other");
    *state = s;
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

/* Enqueues: host bytes in, one encode or decode into a destination filled with `fill`, with its guards, and it all back
 * out to l->host. */
static void enqueue(suite *s, lane *l, direction run, const mm_shape *shape, const uint8_t *host_src, int64_t src_bytes,
                    int64_t dst_bytes, uint8_t fill) {
    const int64_t whole = dst_bytes + 2 * GUARD_BYTES;
    memcpy(l->host, host_src, (size_t)src_bytes);
    assert_int_equal(mm_copy_async(l->stream, l->src, l->host, src_bytes, MM_COPY_IN), MM_OK);
    assert_int_equal(mm_fill_async(l->stream, l->dst, fill, whole), MM_OK);
    uint8_t *dst = l->dst + GUARD_BYTES;
    assert_int_equal((uintptr_t)dst % ALIGNMENT, 0);
    const mm_code_inputs inputs = {.first = s->first};
    assert_int_equal(run(s->codec, l->stream, shape, l->src, dst, l->scratch, &inputs, s->counters), MM_OK);
    assert_int_equal(mm_copy_async(l->stream, l->host, l->dst, whole, MM_COPY_OUT), MM_OK);
}

/* Waits for that; the destination's bytes go to `out`. */
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

/* One run over other garbage must give the same bytes: so every one of them is written, and always the same. */
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
        assert_int_equal(
            mm_codec_encode(s->codec, s->lanes[0].stream, &bad[i], s->lanes[0].src, s->lanes[0].dst, NULL, NULL, NULL),
            MM_ERR_INVALID);
    }
    assert_int_equal(mm_stream_sync(s->lanes[0].stream), MM_OK);
}

static void bounds_grow_with_the_batch_beyond_32_bits(void **state) {
    const suite *s = *state;
    int64_t one = 0, many = 0;
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
        if (!s->codec->flags.fixed_size) continue;
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
    assert_int_equal(mm_codec_decode(s->codec, l->stream, &shapes[0], l->src, l->dst, l->scratch, NULL, s->counters),
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
                mm_codec_encode(s->codec, l->stream, &shapes[i], l->src, l->dst, l->scratch, NULL, s->counters),
                MM_ERR_UNSUPPORTED);
    assert_int_equal(mm_stream_sync(l->stream), MM_OK);
}

static mm_shape rows_of(const mm_shape *shape, int64_t rows) {
    mm_shape piece = *shape;
    piece.dims[0] = rows;
    return piece;
}

/* Cut at every place where it may be: what each piece gives alone is its part of the whole, both ways. */
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

/* One codec, two tensors, two streams at once, many times: what each gives alone. */
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
    for (int round = 0; round < 20; round++) {
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
    suite_arg arg = {spec, device_name};
#define CASE(name) cmocka_unit_test_prestate_setup_teardown(name, suite_setup, suite_teardown, &arg)
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
    };
#undef CASE
    const bool run = answers(device_name);
    for (size_t i = 0; !run && i < sizeof tests / sizeof tests[0]; i++)
        tests[i] = (struct CMUnitTest){.name = tests[i].name, .test_func = no_such_hardware};
    return cmocka_run_group_tests_name(spec, tests, NULL, NULL);
}
