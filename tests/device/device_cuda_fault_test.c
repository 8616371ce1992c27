/* SPDX-License-Identifier: MIT */
/* What the CUDA device does when CUDA fails: each of its calls refused in turn, a fault of the GPU, no GPU at all; and
 * which calls it makes in a loop. On the emulated CUDA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/device/cuda/cuda_internal.h"
#include "tests/cuda_emulation/control.h"
#include "tests/cuda_emulation/enqueue.h"

enum { CHUNK_BYTES = 16 * (64 << 10) /* 16 of the emulation's granules */ };
enum { MIB = 1 << 20, BLOCK_BYTES = 2 * CHUNK_BYTES + 1000, PINNED_BYTES = 8 << 10, STREAMS = 2 };

typedef struct rig {
    mm_device *device;
    mm_stream *stream[STREAMS];
    mm_event *event[STREAMS];
    mm_replay *replay;
    uint8_t *block, *pinned;
    uint64_t sum;
} rig;

static mm_status open_on(rig *r, const char *name, bool timed) {
    MM_TRY(mm_device_create(name, &(mm_device_config){.timed = timed}, &r->device));
    for (int i = 0; i < STREAMS; i++) {
        MM_TRY(mm_stream_create(r->device, "fault", -1, &r->stream[i]));
        MM_TRY(mm_event_create(r->device, &r->event[i]));
    }
    MM_TRY(mm_device_reserve(r->device, MM_MEMORY_DEVICE, BLOCK_BYTES, (void **)&r->block));
    return mm_device_reserve(r->device, MM_MEMORY_PINNED, PINNED_BYTES, (void **)&r->pinned);
}

static mm_status open_rig(rig *r, bool timed) { return open_on(r, "cuda", timed); }

static mm_status iterate(rig *r) {
    MM_TRY(mm_fill_async(r->stream[0], r->block, 1, PINNED_BYTES));
    MM_TRY(mm_event_record(r->event[0], r->stream[0]));
    MM_TRY(mm_stream_wait(r->stream[1], r->event[0]));
    MM_TRY(mm_copy_async(r->stream[1], r->pinned, r->block, PINNED_BYTES, MM_COPY_OUT));
    MM_TRY(mm_copy_async(r->stream[1], r->block, r->pinned, PINNED_BYTES, MM_COPY_IN));
    MM_TRY(mm_copy_async(r->stream[1], r->block + PINNED_BYTES, r->block, PINNED_BYTES, MM_COPY_DEVICE));
    MM_TRY(mm_event_record(r->event[1], r->stream[1]));
    return mm_stream_wait(r->stream[0], r->event[1]);
}

static mm_status capture(rig *r) {
    MM_TRY(mm_capture_begin(r->stream[0]));
    mm_status status = iterate(r);
    mm_status ended = mm_capture_end(r->stream[0], &r->replay);
    MM_TRY(status);
    return ended;
}

static mm_status use_rig(rig *r) {
    mm_stream_stats stats;
    mm_memory_info info;
    MM_TRY(iterate(r));
    MM_TRY(mm_checksum_async(r->stream[0], r->block, 1000, &r->sum));
    MM_TRY(mm_event_sync(r->event[1]));
    MM_TRY(mm_stream_sync(r->stream[0]));
    (void)mm_event_ns(r->event[0]);
    mm_stream_stats_get(r->stream[0], &stats);
    mm_device_memory_info(r->device, &info);
    MM_TRY(capture(r));
    MM_TRY(mm_replay_launch(r->replay, r->stream[0]));
    MM_TRY(mm_stream_sync(r->stream[0]));
    mm_device_trim(r->device, r->block + CHUNK_BYTES, BLOCK_BYTES - CHUNK_BYTES);
    return mm_device_restore(r->device, r->block, BLOCK_BYTES);
}

static void close_rig(rig *r) {
    mm_replay_destroy(r->replay);
    for (int i = 0; i < STREAMS; i++) {
        mm_event_destroy(r->event[i]);
        mm_stream_destroy(r->stream[i]);
    }
    mm_device_release(r->device, MM_MEMORY_PINNED, r->pinned, PINNED_BYTES);
    mm_device_release(r->device, MM_MEMORY_DEVICE, r->block, BLOCK_BYTES);
    mm_device_destroy(r->device);
    memset(r, 0, sizeof *r);
}

/* Opens, uses and closes a rig. *calls_out: the number of calls of `name` before the rig is closed. */
static mm_status run_rig(bool timed, const char *name, long *calls_out) {
    rig r = {0};
    mm_status status = open_rig(&r, timed);
    if (status == MM_OK) status = use_rig(&r);
    *calls_out = cuda_emulation_calls(name);
    char message[512];
    strcpy(message, mm_last_error());
    close_rig(&r);
    if (status != MM_OK) assert_string_equal(mm_last_error(), message); /* closing keeps the message */
    return status;
}

static void assert_nothing_left(void) {
    cuda_emulation_alive alive = cuda_emulation_alive_get();
    assert_int_equal(alive.streams, 0);
    assert_int_equal(alive.events, 0);
    assert_int_equal(alive.graphs, 0);
    assert_int_equal(alive.ranges, 0);
    assert_int_equal(alive.contexts, 0);
    assert_int_equal(alive.device_bytes, 0);
    assert_int_equal(alive.pinned_bytes, 0);
}

static int setup(void **state) {
    (void)state;
    cuda_emulation_reset();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    cuda_emulation_fail("cudaMalloc", 0, cudaSuccess);
    assert_nothing_left();
    cuda_emulation_reset();
    return 0;
}

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

/* Whether the device's caller need not learn that this call failed: it only asks, and the answer comes from elsewhere,
 * or is left out. */
static bool only_asks(const char *name, bool timed) {
    static const char *const names[] = {"cudaGetLastError",
                                        "cudaEventElapsedTime",
                                        "cudaEventQuery",
                                        "cudaMemGetInfo",
                                        "cuCtxGetCurrent",
                                        "cuCtxPushCurrent", /* by calls without a status; others return it */
                                        NULL};
    static const char *const of_times[] = {"cudaEventRecord", "cudaEventCreateWithFlags", NULL}; /* no times then */
    return is_one_of(name, names) || (timed && is_one_of(name, of_times));
}

/* Whether the call frees or ends something. If CUDA refuses it, that is left behind, through no fault of the device. */
static bool ends_things(const char *name) {
    static const char *const names[] = {"cuMemUnmap",
                                        "cuMemAddressFree",
                                        "cuMemRelease",
                                        "cudaFreeHost",
                                        "cuCtxPopCurrent",
                                        "cuDevicePrimaryCtxRelease",
                                        NULL};
    return is_one_of(name, names) || strstr(name, "Destroy") != NULL;
}

static void refuse_each_call(bool timed) {
    const char *name;
    for (size_t i = 0; (name = cuda_emulation_name(i)) != NULL; i++) {
        if (ends_things(name)) continue;
        long calls, unused;
        cuda_emulation_reset();
        assert_int_equal(run_rig(timed, name, &calls), MM_OK);
        for (long nth = 1; nth <= calls; nth++) {
            cuda_emulation_reset();
            cuda_emulation_fail(name, nth, cudaErrorUnknown);
            mm_status status = run_rig(timed, name, &unused);
            assert_true(cuda_emulation_failed());
            if (status == MM_OK && !only_asks(name, timed)) fail_msg("call %ld of %s failed unseen", nth, name);
            if (status != MM_OK && !strstr(mm_last_error(), "cudaErrorUnknown") &&
                !strstr(mm_last_error(), "unknown error") && !strstr(mm_last_error(), "cudaErrorStreamCapture"))
                fail_msg("call %ld of %s: %s", nth, name, mm_last_error());
            assert_nothing_left();
        }
    }
}

static void each_call_refused_in_turn_is_told_and_leaves_nothing(void **state) {
    (void)state;
    refuse_each_call(false);
}

static void each_call_of_a_timed_device_refused_in_turn_leaves_nothing(void **state) {
    (void)state;
    refuse_each_call(true);
}

static void out_of_device_memory_midway_is_out_of_memory(void **state) {
    (void)state;
    rig r = {0};
    assert_int_equal(mm_device_create("cuda", NULL, &r.device), MM_OK);
    cuda_emulation_fail("cuMemCreate", 2, cudaErrorMemoryAllocation);
    assert_int_equal(mm_device_reserve(r.device, MM_MEMORY_DEVICE, BLOCK_BYTES, (void **)&r.block), MM_ERR_NOMEM);
    assert_non_null(strstr(mm_last_error(), "cuMemCreate"));
    assert_null(r.block);
    cuda_emulation_alive alive = cuda_emulation_alive_get();
    assert_int_equal(alive.device_bytes, 0);
    assert_int_equal(alive.ranges, 0);
    mm_device_destroy(r.device);
}

enum { LARGE_BYTES = 40 * MIB + 1000 };

static void reserve_large(rig *r, const char *how) {
    mm_device_description description;
    assert_int_equal(mm_device_reserve(r->device, MM_MEMORY_PINNED, LARGE_BYTES, (void **)&r->pinned), MM_OK);
    assert_int_equal((uintptr_t)r->pinned % 4096, 0);
    for (int i = 0; i < LARGE_BYTES; i++)
        if (r->pinned[i] != 0) fail_msg("byte %d is not zero", i);
    memset(r->pinned, 1, LARGE_BYTES);
    mm_device_describe(r->device, &description);
    assert_string_equal(description.pinned, how);
}

static void large_pinned_memory_is_registered_or_else_cudas(void **state) {
    (void)state;
    rig r = {0};
    assert_int_equal(mm_device_create("cuda", NULL, &r.device), MM_OK);
    long before = cuda_emulation_calls("cudaHostAlloc");
    reserve_large(&r, "mapped in huge pages and registered");
    assert_int_equal(cuda_emulation_calls("cudaHostRegister"), 1);
    assert_int_equal(cuda_emulation_calls("cudaHostAlloc"), before);
    mm_device_release(r.device, MM_MEMORY_PINNED, r.pinned, LARGE_BYTES);
    cuda_emulation_fail("cudaHostRegister", 1, cudaErrorMemoryAllocation);
    reserve_large(&r, "cudaHostAlloc");
    assert_int_equal(cuda_emulation_calls("cudaHostRegister"), 2);
    assert_int_equal(cuda_emulation_calls("cudaHostAlloc"), before + 1);
    mm_device_release(r.device, MM_MEMORY_PINNED, r.pinned, LARGE_BYTES);
    reserve_large(&r, "mapped in huge pages and registered"); /* the next block is tried again */
    assert_int_equal(cuda_emulation_calls("cudaHostAlloc"), before + 1);
    mm_device_release(r.device, MM_MEMORY_PINNED, r.pinned, LARGE_BYTES);
    mm_device_destroy(r.device);
}

/* LARGE_BYTES are 2.5 chunks. */
enum { REGISTERED_BYTES = 16 * MIB };

/* Returns the pinned bytes of the device itself. */
static size_t reserve_in_chunks(rig *r) {
    assert_int_equal(mm_device_create("cuda", NULL, &r->device), MM_OK);
    ((cuda_device *)r->device)->register_most_bytes = REGISTERED_BYTES;
    cuda_emulation_set_registration(REGISTERED_BYTES);
    const size_t own = cuda_emulation_alive_get().pinned_bytes;
    reserve_large(r, "mapped in huge pages and registered");
    return own;
}

static void pinned_memory_is_registered_in_chunks_that_no_copy_crosses(void **state) {
    (void)state;
    enum { AT = REGISTERED_BYTES - 1001, BYTES = REGISTERED_BYTES + 5003 /* over both borders */ };
    rig r = {0};
    const size_t own = reserve_in_chunks(&r);
    assert_int_equal(cuda_emulation_calls("cudaHostRegister"), 3);
    assert_int_equal(cuda_emulation_alive_get().pinned_bytes - own, (LARGE_BYTES + 4095) / 4096 * 4096);
    assert_int_equal(mm_stream_create(r.device, "chunks", 0, &r.stream[0]), MM_OK);
    assert_int_equal(mm_device_reserve(r.device, MM_MEMORY_DEVICE, BYTES, (void **)&r.block), MM_OK);
    for (int i = 0; i < BYTES; i++) r.pinned[AT + i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(mm_copy_async(r.stream[0], r.block, r.pinned + AT, BYTES, MM_COPY_IN), MM_OK);
    assert_int_equal(mm_stream_sync(r.stream[0]), MM_OK);
    assert_int_equal(cuda_emulation_calls("cudaMemcpyAsync"), 3);
    memset(r.pinned, 0, LARGE_BYTES);
    assert_int_equal(mm_copy_async(r.stream[0], r.pinned + AT, r.block, BYTES, MM_COPY_OUT), MM_OK);
    assert_int_equal(mm_stream_sync(r.stream[0]), MM_OK);
    for (int i = 0; i < LARGE_BYTES; i++) {
        const bool copied = i >= AT && i < AT + BYTES;
        if (r.pinned[i] != (copied ? (uint8_t)((i - AT) * 7 + (i - AT) / 251) : 0)) fail_msg("byte %d", i);
    }
    mm_stream_destroy(r.stream[0]);
    mm_device_release(r.device, MM_MEMORY_DEVICE, r.block, BYTES);
    mm_device_release(r.device, MM_MEMORY_PINNED, r.pinned, LARGE_BYTES);
    assert_int_equal(cuda_emulation_alive_get().pinned_bytes, own);
    mm_device_destroy(r.device);
    cuda_emulation_set_registration(0);
}

static void a_chunk_that_is_not_registered_leaves_none_registered(void **state) {
    (void)state;
    rig r = {0};
    const size_t own = reserve_in_chunks(&r);
    mm_device_release(r.device, MM_MEMORY_PINNED, r.pinned, LARGE_BYTES);
    for (int chunk = 1; chunk <= 3; chunk++) {
        const long before = cuda_emulation_calls("cudaHostUnregister");
        cuda_emulation_fail("cudaHostRegister", chunk, cudaErrorMemoryAllocation);
        reserve_large(&r, "cudaHostAlloc");
        assert_int_equal(cuda_emulation_calls("cudaHostUnregister") - before, chunk - 1);
        assert_int_equal(cuda_emulation_alive_get().pinned_bytes - own, LARGE_BYTES);
        mm_device_release(r.device, MM_MEMORY_PINNED, r.pinned, LARGE_BYTES);
        assert_int_equal(cuda_emulation_alive_get().pinned_bytes, own);
    }
    cuda_emulation_fail("cudaHostRegister", 0, cudaSuccess);
    mm_device_destroy(r.device);
    cuda_emulation_set_registration(0);
}

static void what_others_took_meanwhile_cannot_be_restored(void **state) {
    (void)state;
    rig r = {0};
    assert_int_equal(open_rig(&r, false), MM_OK);
    mm_device_trim(r.device, r.block, BLOCK_BYTES);
    assert_int_equal(cuda_emulation_alive_get().device_bytes, 0);
    cuda_emulation_set_memory((size_t)64 * MIB, (size_t)63 * MIB); /* 1 is free */
    assert_int_equal(mm_device_restore(r.device, r.block, BLOCK_BYTES), MM_ERR_NOMEM);
    assert_non_null(strstr(mm_last_error(), "2.06MiB of device memory asked, 1MiB of the GPU's 64MiB are free"));
    cuda_emulation_set_memory((size_t)4 << 30, (size_t)64 * MIB);
    assert_int_equal(mm_device_restore(r.device, r.block, BLOCK_BYTES), MM_OK);
    assert_int_equal(use_rig(&r), MM_OK);
    close_rig(&r);
}

static void no_gpu_is_told_with_what_to_do(void **state) {
    (void)state;
    mm_device *device = NULL;
    cuda_emulation_set_devices(0);
    assert_int_equal(mm_device_create("cuda", NULL, &device), MM_ERR_NOT_FOUND);
    cuda_emulation_set_devices(2);
    assert_null(device);
    assert_non_null(strstr(mm_last_error(), "no GPU answers"));
    assert_non_null(strstr(mm_last_error(), "nvidia-smi"));
    assert_null(strchr(mm_last_error(), '\n'));
}

static void fault(void *arg) {
    (void)arg;
    cuda_emulation_fault(cudaErrorIllegalAddress);
}

static void a_fault_of_the_gpu_is_told_by_every_call_and_all_can_be_destroyed(void **state) {
    (void)state;
    rig r = {0};
    assert_int_equal(open_rig(&r, false), MM_OK);
    assert_int_equal(cuda_emulation_enqueue(mm_cuda_stream(r.stream[1]), fault, NULL), cudaSuccess);
    assert_int_equal(mm_stream_sync(r.stream[1]), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "cudaErrorIllegalAddress"));
    assert_non_null(strstr(mm_last_error(), "stream fault"));
    assert_int_equal(iterate(&r), MM_ERR_DEVICE);
    assert_int_equal(mm_event_record(r.event[0], r.stream[0]), MM_ERR_DEVICE);
    assert_int_equal(mm_checksum_async(r.stream[0], r.block, 10, &r.sum), MM_ERR_DEVICE);
    assert_int_equal(capture(&r), MM_ERR_DEVICE);
    mm_stream_reset(r.stream[1]);
    assert_int_equal(mm_stream_sync(r.stream[1]), MM_ERR_DEVICE);
    mm_memory_info info;
    mm_device_memory_info(r.device, &info);
    assert_true(info.total_bytes > 0 && info.reserved_bytes == BLOCK_BYTES);
    for (int i = 0; i < STREAMS; i++) {
        mm_event_destroy(r.event[i]);
        mm_stream_destroy(r.stream[i]);
    }
    mm_device_release(r.device, MM_MEMORY_PINNED, r.pinned, PINNED_BYTES);
    mm_device_release(r.device, MM_MEMORY_DEVICE, r.block, BLOCK_BYTES);
    mm_device_destroy(r.device);
}

static void captured_work_keeps_the_priorities_of_its_streams(void **state) {
    (void)state;
    rig r = {0};
    assert_int_equal(open_rig(&r, false), MM_OK);
    assert_int_equal(capture(&r), MM_OK);
    assert_int_equal(cuda_emulation_alive_get().prioritized, 1);
    close_rig(&r);
    assert_int_equal(cuda_emulation_alive_get().prioritized, 0);
}

/* CUDA tells times as a float of milliseconds, which three hours after the first event has whole milliseconds only. */
static void times_stay_exact_however_long_it_ran(void **state) {
    enum { PART_NS = 300000, PARTS = 8, ROUNDING_NS = 1000, MS_NS = 1000000 };
    (void)state;
    rig r = {0};
    assert_int_equal(open_rig(&r, true), MM_OK);
    cuda_emulation_pass(INT64_C(3) * 3600 * 1000000000);
    int64_t before_ns = 0;
    for (int i = 0; i < 2 + PARTS; i++) {
        if (i > 1) cuda_emulation_pass(PART_NS);
        assert_int_equal(mm_fill_async(r.stream[0], r.block, 1, 16), MM_OK);
        assert_int_equal(mm_event_record(r.event[0], r.stream[0]), MM_OK);
        assert_int_equal(mm_event_sync(r.event[0]), MM_OK);
        int64_t ns = mm_event_ns(r.event[0]);
        if (i == 1) assert_true(ns > before_ns - 2 * MS_NS); /* the first time was in whole milliseconds */
        if (i > 1) assert_true(ns - before_ns >= PART_NS - ROUNDING_NS);
        before_ns = ns;
    }
    close_rig(&r);
}

/* CUDA's call that destroys a stream does not wait for the stream's work. */
static void destroying_a_stream_waits_for_its_work(void **state) {
    (void)state;
    rig r = {0};
    assert_int_equal(open_rig(&r, false), MM_OK);
    assert_int_equal(iterate(&r), MM_OK);
    long before = cuda_emulation_calls("cudaStreamSynchronize");
    mm_stream_destroy(r.stream[1]);
    assert_int_equal(cuda_emulation_calls("cudaStreamSynchronize"), before + 1);
    r.stream[1] = NULL;
    close_rig(&r);
}

static void a_loop_neither_synchronises_nor_allocates(void **state) {
    static const char *const allowed[] = {"cudaMemsetAsync",
                                          "cudaMemcpyAsync",
                                          "cudaEventRecord",
                                          "cudaStreamWaitEvent",
                                          "cudaGraphLaunch",
                                          "cudaEventQuery",
                                          "cudaGetLastError",
                                          "cuCtxGetCurrent",
                                          "cuCtxPushCurrent",
                                          "cuCtxPopCurrent",
                                          NULL};
    (void)state;
    rig r = {0};
    const char *name;
    assert_int_equal(open_rig(&r, false), MM_OK);
    assert_int_equal(capture(&r), MM_OK);
    long before[128] = {0};
    for (size_t i = 0; (name = cuda_emulation_name(i)) != NULL; i++) before[i] = cuda_emulation_calls(name);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(iterate(&r), MM_OK);
        assert_int_equal(mm_replay_launch(r.replay, r.stream[0]), MM_OK);
        (void)mm_event_done(r.event[0]);
    }
    for (size_t i = 0; (name = cuda_emulation_name(i)) != NULL; i++) {
        if (!is_one_of(name, allowed) && cuda_emulation_calls(name) != before[i])
            fail_msg("%s was called %ld times", name, cuda_emulation_calls(name) - before[i]);
    }
    close_rig(&r);
}

/* ---------------------------------------------------------------- ordinals */

static int current(void) {
    int device = -1;
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    return device;
}

static void names_of_devices_that_are_not_there_are_refused_with_how_many_are(void **state) {
    static const char *const there[] = {"there are 2, cuda:0 to cuda:1", "there is 1, host:0"};
    static const struct {
        const char *name;
        mm_status status;
        bool host;
    } cases[] = {
        {"cuda:2", MM_ERR_NOT_FOUND, false},   {"cuda:99", MM_ERR_NOT_FOUND, false},
        {"host:1", MM_ERR_NOT_FOUND, true},    {"cuda:x", MM_ERR_INVALID, false},
        {"cuda:", MM_ERR_INVALID, false},      {"cuda:-1", MM_ERR_INVALID, false},
        {"cuda:1 ", MM_ERR_INVALID, false},    {"cuda:1:0", MM_ERR_INVALID, false},
        {"cuda:00000", MM_ERR_INVALID, false}, {"host:", MM_ERR_INVALID, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_device *device = NULL;
        assert_int_equal(mm_device_create(cases[i].name, NULL, &device), cases[i].status);
        assert_null(device);
        if (!strstr(mm_last_error(), cases[i].name) || !strstr(mm_last_error(), there[cases[i].host]) ||
            strchr(mm_last_error(), '\n'))
            fail_msg("%s: '%s'", cases[i].name, mm_last_error());
    }
    const mm_device_ops *kind;
    int ordinal = -1;
    assert_int_equal(mm_device_find("host:0", &kind, &ordinal), MM_OK);
    assert_string_equal(kind->name, "host");
    cuda_emulation_set_devices(0); /* no GPU here: names must still be found, for plans of other machines */
    assert_int_equal(mm_device_find("cuda:3", &kind, &ordinal), MM_OK);
    cuda_emulation_set_devices(2);
    assert_string_equal(kind->name, "cuda");
    assert_int_equal(ordinal, 3);
}

static int64_t free_of(const rig *r) {
    mm_memory_info info;
    mm_device_memory_info(r->device, &info);
    return info.free_bytes;
}

/* The emulation refuses calls on another GPU than the device's (control.h, strays). */
static void a_device_is_its_gpu_whatever_is_current_and_leaves_that_as_it_was(void **state) {
    (void)state;
    rig one = {0}, zero = {0};
    assert_int_equal(open_on(&one, "cuda:1", true), MM_OK);
    assert_int_equal(use_rig(&one), MM_OK);
    mm_replay_destroy(one.replay);
    one.replay = NULL;
    assert_int_equal(current(), 0);
    assert_false(cuda_emulation_has_context(0)); /* the unused GPU has no context either */
    const int64_t free_on_one = free_of(&one);
    assert_int_equal(open_on(&zero, "cuda:0", true), MM_OK);
    assert_int_equal(free_of(&one), free_on_one);
    for (int chosen = 0; chosen < 2; chosen++) {
        assert_int_equal(cudaSetDevice(chosen), cudaSuccess);
        rig *const rigs[] = {&one, &zero, &one};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(use_rig(rigs[i]), MM_OK);
            mm_replay_destroy(rigs[i]->replay);
            rigs[i]->replay = NULL;
            assert_int_equal(current(), chosen);
        }
    }
    assert_int_equal(mm_stream_wait(one.stream[0], zero.event[0]), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "cuda:1"));
    assert_non_null(strstr(mm_last_error(), "cuda:0"));
    close_rig(&one);
    close_rig(&zero);
    assert_int_equal(current(), 1);
    assert_int_equal(cuda_emulation_strays(), 0);
}

static void a_gpu_that_cannot_be_made_current_is_told(void **state) {
    (void)state;
    rig r = {0};
    assert_int_equal(open_rig(&r, false), MM_OK);
    cuda_emulation_fail("cuCtxPushCurrent", 1, cudaErrorUnknown);
    assert_int_equal(mm_fill_async(r.stream[0], r.block, 1, 1), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "cuCtxPushCurrent"));
    assert_int_equal(mm_fill_async(r.stream[0], r.block, 1, 1), MM_OK);
    close_rig(&r);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(each_call_refused_in_turn_is_told_and_leaves_nothing),
        CASE(each_call_of_a_timed_device_refused_in_turn_leaves_nothing),
        CASE(out_of_device_memory_midway_is_out_of_memory),
        CASE(large_pinned_memory_is_registered_or_else_cudas),
        CASE(pinned_memory_is_registered_in_chunks_that_no_copy_crosses),
        CASE(a_chunk_that_is_not_registered_leaves_none_registered),
        CASE(what_others_took_meanwhile_cannot_be_restored),
        CASE(no_gpu_is_told_with_what_to_do),
        CASE(a_fault_of_the_gpu_is_told_by_every_call_and_all_can_be_destroyed),
        CASE(captured_work_keeps_the_priorities_of_its_streams),
        CASE(times_stay_exact_however_long_it_ran),
        CASE(destroying_a_stream_waits_for_its_work),
        CASE(a_loop_neither_synchronises_nor_allocates),
        CASE(names_of_devices_that_are_not_there_are_refused_with_how_many_are),
        CASE(a_device_is_its_gpu_whatever_is_current_and_leaves_that_as_it_was),
        CASE(a_gpu_that_cannot_be_made_current_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
