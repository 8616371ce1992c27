/* SPDX-License-Identifier: MIT */
/* How codecs' kernels are launched, as the emulation has recorded it: blocks that end soon, on all multiprocessors;
 * with sms=N N blocks of 1024 threads; on the stream and with the priority that were asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/codec/codec.h"
#include "tests/cuda_emulation/control.h"

/* A map of more blocks than the 4 multiprocessors of the emulated GPU run at once. */
enum { ELEMS = 1 << 19, MAP_BYTES = 4 * ELEMS, CODE_BYTES = MAP_BYTES + 4096, MULTIPROCESSORS = 4, MOST_STRIDES = 8 };

typedef struct rig {
    mm_device *device;
    mm_stream *stream;
    void *map, *code, *scratch, *pool;
    mm_body_record *record;
} rig;

static void reserve(rig *r, mm_memory_kind kind, int64_t bytes, void **at) {
    assert_int_equal(mm_device_reserve(r->device, kind, bytes, at), MM_OK);
}

static int setup(void **state) {
    static rig r;
    cuda_emulation_reset();
    assert_int_equal(mm_device_create("cuda", NULL, &r.device), MM_OK);
    assert_int_equal(mm_stream_create(r.device, "codec", 0, &r.stream), MM_OK);
    reserve(&r, MM_MEMORY_DEVICE, MAP_BYTES, &r.map);
    reserve(&r, MM_MEMORY_DEVICE, CODE_BYTES, &r.code);
    reserve(&r, MM_MEMORY_DEVICE, CODE_BYTES, &r.scratch);
    reserve(&r, MM_MEMORY_DEVICE, CODE_BYTES, &r.pool);
    reserve(&r, MM_MEMORY_PINNED, sizeof *r.record, (void **)&r.record);
    assert_int_equal(mm_fill_async(r.stream, r.map, 0, MAP_BYTES), MM_OK);
    assert_int_equal(mm_stream_sync(r.stream), MM_OK);
    *state = &r;
    return 0;
}

static int teardown(void **state) {
    rig *r = *state;
    mm_stream_destroy(r->stream);
    mm_device_release(r->device, MM_MEMORY_DEVICE, r->map, MAP_BYTES);
    mm_device_release(r->device, MM_MEMORY_DEVICE, r->code, CODE_BYTES);
    mm_device_release(r->device, MM_MEMORY_DEVICE, r->scratch, CODE_BYTES);
    mm_device_release(r->device, MM_MEMORY_DEVICE, r->pool, CODE_BYTES);
    mm_device_release(r->device, MM_MEMORY_PINNED, r->record, sizeof *r->record);
    mm_device_destroy(r->device);
    return 0;
}

static mm_codec *codec_of(const char *spec) {
    mm_codec *codec;
    if (mm_codec_create(spec, "cuda", &codec) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    return codec;
}

/* Encodes and decodes a map of so many rows of 1024 elements, on a stream. Returns the number of launches that
 * this took; cuda_emulation_launch_get tells them. */
static long launches_of(rig *r, mm_stream *stream, const char *spec, int64_t rows) {
    const mm_shape shape = {MM_F32, 4, {1, 4 * rows, 4, 64}};
    const mm_code_body body = {.pool = r->pool, .pool_bytes = CODE_BYTES, .record = r->record};
    const mm_code_inputs inputs = {.body = &body};
    const long before = cuda_emulation_calls("kernel_launch");
    mm_codec *codec = codec_of(spec);
    memset(r->record, 0, sizeof *r->record);
    assert_true(mm_codec_scratch(codec, &shape) <= CODE_BYTES);
    assert_int_equal(mm_codec_encode(codec, stream, &shape, r->map, r->code, r->scratch, &inputs, NULL), MM_OK);
    if (codec->flags.gives_value)
        assert_int_equal(mm_codec_decode(codec, stream, &shape, r->code, r->map, r->scratch, &inputs, NULL), MM_OK);
    assert_int_equal(mm_stream_sync(stream), MM_OK);
    mm_codec_destroy(codec);
    return cuda_emulation_calls("kernel_launch") - before;
}

/* A codec; values that a thread takes at a step; strides of a block of a large map; threads of a block with sms=. */
static const struct kernels {
    const char *spec;
    int values, strides, fat_threads;
} codecs[] = {
    {"zfp:rate=4", 16, 4, 1024},  {"zfp:rate=6.4", 16, 4, 1024},
    {"zfp:rate=32", 16, 4, 1024}, {"zfp:dims=1", 4, 8, 1024},
    {"zfp:dims=3", 64, 1, 512},   {"zfp:dims=3:rate=32", 64, 1, 512},
    {"dpr:fp16", 4, 8, 1024},     {"dpr:fp10", 6, 8, 1024},
    {"mx:fp8", 8, 8, 1024},       {"group:bits=4", 8, 8, 1024},
    {"mask", 32, 2, 0},           {"zvc", 32, 2, 1024},
    {"rle", 32, 2, 1024},         {"csr", 32, 2, 1024},
    {"eb:abs=0.01", 32, 2, 1024},
};
enum {
    CODECS = sizeof codecs / sizeof *codecs,
    STATE_VALUES = 8 * 1024 /* values of the map whose state one block of `prepare` clears */
};

static long strides_of(cuda_emulation_launch launch, long elems, long values) {
    const long stride = launch.blocks * launch.threads * values;
    return (elems + stride - 1) / stride;
}

static void blocks_end_after_few_strides(void **state) {
    rig *r = *state;
    for (int c = 0; c < CODECS; c++)
        for (int64_t rows = 1; rows <= ELEMS / 1024; rows *= 8) {
            const long elems = (long)rows * 1024, launches = launches_of(r, r->stream, codecs[c].spec, rows);
            assert_true(launches > 0);
            for (long i = 0; i < launches; i++) {
                const cuda_emulation_launch l = cuda_emulation_launch_get(i);
                const bool prepares = strcmp(l.kernel, "prepare") == 0;
                const long strides = strides_of(l, elems, prepares ? STATE_VALUES : codecs[c].values);
                if (strides > MOST_STRIDES || l.threads > 256)
                    fail_msg("%s, %ld elements: %s of %ld blocks of %ld threads: %ld strides", codecs[c].spec, elems,
                             l.kernel, l.blocks, l.threads, strides);
                if (!prepares && elems == ELEMS && strides != codecs[c].strides)
                    fail_msg("%s: %ld strides a block, not %d", codecs[c].spec, strides, codecs[c].strides);
                if (!prepares && rows >= 64 && l.blocks < MULTIPROCESSORS)
                    fail_msg("%s, %ld elements: %ld blocks", codecs[c].spec, elems, l.blocks);
            }
        }
}

static void sms_are_as_many_blocks_of_1024_threads(void **state) {
    rig *r = *state;
    for (int c = 0; c < CODECS; c++)
        for (int sms = 1; sms <= 3 && codecs[c].fat_threads; sms++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s%ssms=%d", codecs[c].spec, strchr(codecs[c].spec, ':') ? "," : ":", sms);
            const long launches = launches_of(r, r->stream, spec, ELEMS / 1024);
            assert_true(launches > 1);
            for (long i = 0; i < launches; i++) {
                const cuda_emulation_launch l = cuda_emulation_launch_get(i);
                const bool prepares = strcmp(l.kernel, "prepare") == 0; /* `prepare` has work for one block only */
                if (l.blocks != (prepares ? 1 : sms) || l.threads != (prepares ? 1024 : codecs[c].fat_threads))
                    fail_msg("%s: %s of %ld blocks of %ld threads", spec, l.kernel, l.blocks, l.threads);
            }
        }
}

/* sms= is capped: by the number of multiprocessors, and by the blocks that there is work for. */
static void sms_are_no_more_than_there_are_or_have_work(void **state) {
    rig *r = *state;
    assert_true(launches_of(r, r->stream, "zfp:rate=4,sms=1000", ELEMS / 1024) == 2);
    assert_int_equal(cuda_emulation_launch_get(0).blocks, MULTIPROCESSORS);
    assert_true(launches_of(r, r->stream, "zfp:rate=4,sms=3", 32) == 2); /* 2048 blocks of values */
    assert_int_equal(cuda_emulation_launch_get(0).blocks, 2);
}

/* A kernel's limit of shared memory does not shrink to the last launch's need: launches that are under way, or
 * recorded, may need more. */
static void shared_memory_is_asked_for_once_and_all(void **state) {
    static const char *const specs[] = {"zfp:rate=32,dims=3,sms=2", "zfp:rate=20,dims=3,sms=2",
                                        "zfp:rate=4,dims=3,sms=2"};
    rig *r = *state;
    cuda_emulation_launch first[2];
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        assert_int_equal(launches_of(r, r->stream, specs[s], 64), 2);
        for (long i = 0; i < 2; i++) {
            const cuda_emulation_launch l = cuda_emulation_launch_get(i);
            if (s == 0) first[i] = l;
            assert_true(s == 0 ? l.shared_bytes > 48 << 10 : l.shared_bytes < first[i].shared_bytes);
            assert_true(l.shared_limit >= first[i].shared_bytes);
        }
    }
}

static void launches_have_the_priority_that_was_asked(void **state) {
    rig *r = *state;
    static const int asked[] = {0, -1, -5, -9, 3}, given[] = {0, -1, -5, -5, 0};
    for (size_t p = 0; p < sizeof asked / sizeof *asked; p++) {
        mm_stream *stream;
        assert_int_equal(mm_stream_create(r->device, "codec", asked[p], &stream), MM_OK);
        const long launches = launches_of(r, stream, "zvc", 8);
        assert_int_equal(launches, 3);
        for (long i = 0; i < launches; i++) assert_int_equal(cuda_emulation_launch_get(i).priority, given[p]);
        mm_stream_destroy(stream);
    }
}

/* The scratch has bytes of earlier work, which a later launch must not take for its input. */
static void an_encode_whose_first_launch_fails_launches_nothing_more(void **state) {
    rig *r = *state;
    const mm_shape shape = {MM_F32, 4, {1, 4, 4, 64}};
    const mm_code_body body = {.pool = r->pool, .pool_bytes = CODE_BYTES, .record = r->record};
    const mm_code_inputs inputs = {.body = &body};
    for (int c = 0; c < CODECS; c++) {
        mm_codec *codec = codec_of(codecs[c].spec);
        assert_int_equal(mm_fill_async(r->stream, r->scratch, 0x3e, CODE_BYTES), MM_OK);
        const long before = cuda_emulation_calls("kernel_launch");
        cuda_emulation_fail("kernel_launch", 1, cudaErrorMemoryAllocation);
        assert_int_not_equal(mm_codec_encode(codec, r->stream, &shape, r->map, r->code, r->scratch, &inputs, NULL),
                             MM_OK);
        assert_int_equal(cuda_emulation_calls("kernel_launch") - before, 1);
        assert_int_equal(mm_stream_sync(r->stream), MM_OK);
        mm_codec_destroy(codec);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_end_after_few_strides),
        cmocka_unit_test(sms_are_as_many_blocks_of_1024_threads),
        cmocka_unit_test(sms_are_no_more_than_there_are_or_have_work),
        cmocka_unit_test(shared_memory_is_asked_for_once_and_all),
        cmocka_unit_test(launches_have_the_priority_that_was_asked),
        cmocka_unit_test(an_encode_whose_first_launch_fails_launches_nothing_more),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
