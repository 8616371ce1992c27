/* SPDX-License-Identifier: MIT */
/* What the CUDA device does beyond the suite: memory that others can use meanwhile, captured work, times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "mm/core/size.h"
#include "mm/device/cuda/device_cuda.h"

enum { MIB = 1 << 20, PINNED_BYTES = MIB, BLOCK_BYTES = 3 * PINNED_BYTES, STREAMS = 3 };

typedef struct rig {
    mm_device *device;
    mm_stream *stream[STREAMS];
    mm_event *event[STREAMS];
    unsigned char *block, *pinned;
} rig;

#define OK(call) assert_int_equal(call, MM_OK)

static int setup(void **state) {
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    OK(mm_device_create("cuda", NULL, &r->device));
    for (int i = 0; i < STREAMS; i++) {
        OK(mm_stream_create(r->device, "test", -i, &r->stream[i]));
        OK(mm_event_create(r->device, &r->event[i]));
    }
    OK(mm_device_reserve(r->device, MM_MEMORY_DEVICE, BLOCK_BYTES, (void **)&r->block));
    OK(mm_device_reserve(r->device, MM_MEMORY_PINNED, PINNED_BYTES, (void **)&r->pinned));
    *state = r;
    return 0;
}

static int teardown(void **state) {
    rig *r = *state;
    for (int i = 0; i < STREAMS; i++) {
        OK(mm_stream_sync(r->stream[i]));
        mm_event_destroy(r->event[i]);
        mm_stream_destroy(r->stream[i]);
    }
    mm_device_release(r->device, MM_MEMORY_DEVICE, r->block, BLOCK_BYTES);
    mm_device_release(r->device, MM_MEMORY_PINNED, r->pinned, PINNED_BYTES);
    mm_device_destroy(r->device);
    free(r);
    return 0;
}

static void assert_pinned(const rig *r, unsigned char value, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++)
        if (r->pinned[i] != value) fail_msg("byte %lld is %d, not %d", (long long)i, r->pinned[i], value);
}

static int64_t free_bytes(const rig *r) {
    mm_memory_info info;
    mm_device_memory_info(r->device, &info);
    return info.free_bytes;
}

/* ---------------------------------------------------------------- memory */

static void assert_bytes(const rig *r, const unsigned char *memory, unsigned char value) {
    memset(r->pinned, ~value, PINNED_BYTES);
    OK(mm_copy_async(r->stream[0], r->pinned, memory, PINNED_BYTES, MM_COPY_OUT));
    OK(mm_stream_sync(r->stream[0]));
    assert_pinned(r, value, PINNED_BYTES);
}

/* Whether the calling process has the page. */
static bool has_page(void *page) {
    unsigned char resident;
    return mincore(page, 1, &resident) == 0;
}

/* Whether the kernel keeps the page from forked children: "dc" in the flags of its mapping (proc(5)). */
static bool is_kept_from_children(const void *page) {
    char line[512];
    bool here = false, kept = false;
    FILE *maps = fopen("/proc/self/smaps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            here = begin <= (uintptr_t)page && (uintptr_t)page < end;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            kept = strstr(line, " dc") != NULL;
    }
    fclose(maps);
    return kept;
}

/* At a fork Linux copies pinned pages for the child at once: gigabytes for each worker of a data loader. So a large
 * pinned block must not be in the child. */
static void a_large_pinned_block_is_not_the_forked_childs(void **state) {
    enum { BYTES = 24 * MIB };
    rig *r = *state;
    void *pinned;
    int ended;
    OK(mm_device_reserve(r->device, MM_MEMORY_PINNED, BYTES, &pinned));
    assert_true(has_page(pinned));
    assert_true(is_kept_from_children(pinned));
    assert_true(is_kept_from_children((char *)pinned + BYTES - 1));
    assert_false(is_kept_from_children(r->pinned));
    const pid_t child = fork();
    if (child == 0) _exit(has_page(pinned));
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &ended, 0), child);
    mm_device_release(r->device, MM_MEMORY_PINNED, pinned, BYTES);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 0);
}

/* A block of three chunks of 32 MiB. The device takes or gives back whole chunks only. */
static void what_is_trimmed_is_free_for_others_until_it_is_restored(void **state) {
    enum { BYTES = 96 * MIB, KEPT = 64 * MIB, TABLES_BYTES = 2 * MIB /* of pages, that the driver takes or gives */ };
    rig *r = *state;
    mm_memory_info info;
    unsigned char *block;
    OK(mm_device_reserve(r->device, MM_MEMORY_DEVICE, BYTES, (void **)&block));
    OK(mm_fill_async(r->stream[0], block, 0x3c, BYTES));
    OK(mm_stream_sync(r->stream[0]));
    int64_t before = free_bytes(r);
    mm_device_trim(r->device, block + KEPT, BYTES - KEPT);
    assert_true(free_bytes(r) - before >= BYTES - KEPT - TABLES_BYTES);
    mm_device_memory_info(r->device, &info);
    assert_int_equal(info.reserved_bytes, BYTES + BLOCK_BYTES);
    assert_bytes(r, block + KEPT - PINNED_BYTES, 0x3c);
    OK(mm_device_restore(r->device, block, KEPT + 5 * MIB + 1));
    assert_true(free_bytes(r) < before + BYTES - KEPT - 5 * MIB + TABLES_BYTES);
    OK(mm_device_restore(r->device, block, BYTES));
    OK(mm_device_restore(r->device, block, BYTES));
    assert_true(free_bytes(r) <= before + TABLES_BYTES);
    assert_bytes(r, block, 0x3c);
    OK(mm_fill_async(r->stream[0], block, 0x5d, BYTES));
    assert_bytes(r, block + BYTES - PINNED_BYTES, 0x5d);
    mm_device_release(r->device, MM_MEMORY_DEVICE, block, BYTES);
}

static void a_budget_above_free_memory_is_refused_with_both_numbers(void **state) {
    rig *r = *state;
    char asked[32], total[32];
    void *memory = NULL;
    mm_memory_info info;
    mm_device_memory_info(r->device, &info);
    int64_t bytes = info.total_bytes + MIB;
    assert_int_equal(mm_device_reserve(r->device, MM_MEMORY_DEVICE, bytes, &memory), MM_ERR_NOMEM);
    assert_null(memory);
    assert_non_null(strstr(mm_last_error(), mm_size_format(bytes, asked, sizeof asked)));
    assert_non_null(strstr(mm_last_error(), mm_size_format(info.total_bytes, total, sizeof total)));
    assert_non_null(strstr(mm_last_error(), "are free"));
}

/* ---------------------------------------------------------------- checksums */

static void the_checksum_is_the_hosts_wherever_the_bytes_lie(void **state) {
    static const int64_t sizes[] = {0, 1, 7, 8, 9, 100, 8191, 8192, 8193, 70000, 262147};
    enum { N = sizeof sizes / sizeof *sizes, OFFSETS = 2 };
    rig *r = *state;
    mm_device *host;
    mm_stream *stream;
    uint64_t expected[N], sums[N * OFFSETS];
    for (int i = 0; i < PINNED_BYTES; i++) r->pinned[i] = (unsigned char)((unsigned)i * 2654435761u >> 13);
    OK(mm_device_create("host", NULL, &host));
    OK(mm_stream_create(host, "host", 0, &stream));
    for (int i = 0; i < N; i++) OK(mm_checksum_async(stream, r->pinned, sizes[i], &expected[i]));
    OK(mm_stream_sync(stream));
    for (int offset = 0; offset < OFFSETS; offset++) { /* all checksums are enqueued before a wait */
        unsigned char *at = r->block + offset * (PINNED_BYTES + 3);
        OK(mm_copy_async(r->stream[0], at, r->pinned, PINNED_BYTES, MM_COPY_IN));
        for (int i = 0; i < N; i++) OK(mm_checksum_async(r->stream[0], at, sizes[i], &sums[offset * N + i]));
    }
    OK(mm_stream_sync(r->stream[0]));
    for (int i = 0; i < N * OFFSETS; i++) assert_int_equal(sums[i], expected[i % N]);
    mm_stream_destroy(stream);
    mm_device_destroy(host);
}

static void more_checksums_than_there_are_places_for_are_all_told(void **state) {
    enum { N = 130 };
    rig *r = *state;
    uint64_t sums[N];
    for (int round = 0; round < 2; round++) {
        memset(sums, 0xff, sizeof sums);
        for (int i = 0; i < N; i++) OK(mm_checksum_async(r->stream[i % STREAMS], r->block, i, &sums[i]));
        for (int i = 0; i < STREAMS; i++) OK(mm_stream_sync(r->stream[i]));
        for (int i = 0; i < N; i++) assert_true(sums[i] != UINT64_MAX);
    }
}

/* ---------------------------------------------------------------- sums */

/* The sums are the same on the host, with any number of threads, and on the GPU. */
static void sums_are_the_same_bits_on_host_and_gpu(void **state) {
    enum { MOST = 3 * 1024 * 1024 + 1717, CONFIGS = 3 }; /* so many that strips are longer than the shortest */
    static const int64_t sizes[] = {1, 1000, 4097, 100003, MOST};
    enum { N = sizeof sizes / sizeof *sizes };
    rig *r = *state;
    mm_sums expected[N];
    void *elements, *pinned;
    uint32_t random = 1;
    OK(mm_device_reserve(r->device, MM_MEMORY_PINNED, MOST * sizeof(float), &pinned));
    OK(mm_device_reserve(r->device, MM_MEMORY_DEVICE, MOST * sizeof(float), &elements));
    for (int i = 0; i < MOST; i++) {
        random = random * 1664525u + 1013904223u;
        ((float *)pinned)[i] = random >> 30 == 0 ? 0 : (float)(int32_t)random * 3.1e-5f;
    }
    OK(mm_copy_async(r->stream[0], elements, pinned, MOST * sizeof(float), MM_COPY_IN));
    for (int config = 0; config < CONFIGS; config++) {
        mm_device *host;
        mm_stream *stream;
        mm_sums sums[N];
        memset(sums, 0, sizeof sums);
        OK(mm_device_create("host", &(mm_device_config){.codec_threads = config + 1}, &host));
        OK(mm_stream_create(host, "host", 0, &stream));
        for (int i = 0; i < N; i++) OK(mm_sums_async(stream, pinned, sizes[i], r->pinned, &sums[i]));
        OK(mm_stream_sync(stream));
        if (config == 0) memcpy(expected, sums, sizeof sums);
        assert_memory_equal(sums, expected, sizeof sums);
        mm_stream_destroy(stream);
        mm_device_destroy(host);
    }
    mm_sums *sums = (mm_sums *)(r->pinned + MM_SUMS_SCRATCH_BYTES);
    for (int i = 0; i < N; i++) OK(mm_sums_async(r->stream[0], elements, sizes[i], r->pinned, &sums[i]));
    OK(mm_stream_sync(r->stream[0]));
    assert_memory_equal(sums, expected, sizeof expected);
    mm_device_release(r->device, MM_MEMORY_PINNED, pinned, MOST * sizeof(float));
    mm_device_release(r->device, MM_MEMORY_DEVICE, elements, MOST * sizeof(float));
}

/* ---------------------------------------------------------------- captured work */

static void captured_sums_are_those_of_what_is_there_at_each_launch(void **state) {
    enum { N = 5000 };
    rig *r = *state;
    mm_replay *replay;
    mm_sums *sums = (mm_sums *)(r->pinned + MM_SUMS_SCRATCH_BYTES);
    memset(sums, 0, sizeof *sums);
    OK(mm_capture_begin(r->stream[0]));
    OK(mm_sums_async(r->stream[0], (const float *)r->block, N, r->pinned, sums));
    OK(mm_capture_end(r->stream[0], &replay));
    assert_true(sums->nonzero == 0);
    for (int round = 0; round < 3; round++) {
        const float value = (float)round;
        float *elements = (float *)(r->pinned + 2 * MM_SUMS_SCRATCH_BYTES);
        for (int i = 0; i < N; i++) elements[i] = -value;
        OK(mm_copy_async(r->stream[0], r->block, elements, N * sizeof *elements, MM_COPY_IN));
        OK(mm_replay_launch(replay, r->stream[0]));
        OK(mm_stream_sync(r->stream[0]));
        assert_true(sums->nonzero == (round ? N : 0) && sums->max_abs == value);
        assert_true(sums->sum_abs == N * value && sums->sum_squares == N * value * value);
    }
    mm_replay_destroy(replay);
}

/* Enqueues a fill on the first stream, then a copy out of one half on each other stream; the first stream goes on. */
static void enqueue_fork(rig *r, unsigned char byte) {
    OK(mm_fill_async(r->stream[0], r->block, byte, PINNED_BYTES));
    OK(mm_event_record(r->event[0], r->stream[0]));
    for (int i = 1; i < STREAMS; i++) {
        int64_t half = PINNED_BYTES / 2, at = (i - 1) * half;
        OK(mm_stream_wait(r->stream[i], r->event[0]));
        OK(mm_copy_async(r->stream[i], r->pinned + at, r->block + at, half, MM_COPY_OUT));
        OK(mm_event_record(r->event[i], r->stream[i]));
    }
    OK(mm_fill_async(r->stream[0], r->block + 2 * PINNED_BYTES, byte, 1000));
}

static void captured_work_of_several_streams_runs_at_each_launch(void **state) {
    rig *r = *state;
    mm_replay *replay;
    OK(mm_capture_begin(r->stream[0]));
    enqueue_fork(r, 0x71);
    OK(mm_capture_end(r->stream[0], &replay));
    memset(r->pinned, 0, PINNED_BYTES);
    for (int i = 0; i < STREAMS; i++) OK(mm_stream_sync(r->stream[i]));
    assert_pinned(r, 0, PINNED_BYTES); /* captured work has not run */
    for (int round = 0; round < 3; round++) {
        memset(r->pinned, 0, PINNED_BYTES);
        OK(mm_replay_launch(replay, r->stream[0]));
        OK(mm_stream_sync(r->stream[0]));
        assert_pinned(r, 0x71, PINNED_BYTES);
    }
    enqueue_fork(r, 0x72); /* after the capture, work on the streams runs as usual */
    for (int i = 0; i < STREAMS; i++) OK(mm_stream_sync(r->stream[i]));
    assert_pinned(r, 0x72, PINNED_BYTES);
    OK(mm_replay_launch(replay, r->stream[2])); /* on another stream, in order with it */
    OK(mm_event_record(r->event[2], r->stream[2]));
    OK(mm_event_sync(r->event[2]));
    assert_pinned(r, 0x71, PINNED_BYTES);
    mm_replay_destroy(replay);
}

static void an_event_recorded_in_a_capture_was_never_recorded_outside(void **state) {
    rig *r = *state;
    mm_replay *replay;
    OK(mm_capture_begin(r->stream[0]));
    enqueue_fork(r, 1);
    assert_false(mm_event_done(r->event[0]));
    OK(mm_capture_end(r->stream[0], &replay));
    assert_true(mm_event_done(r->event[0]));
    OK(mm_event_sync(r->event[0]));
    assert_int_equal(mm_stream_wait(r->stream[1], r->event[0]), MM_ERR_ORDER);
    OK(mm_event_record(r->event[0], r->stream[0]));
    OK(mm_stream_wait(r->stream[1], r->event[0]));
    mm_replay_destroy(replay);
    mm_replay_destroy(NULL);
}

static void assert_spoilt(rig *r) {
    mm_replay *replay = NULL;
    assert_int_equal(mm_capture_end(r->stream[0], &replay), MM_ERR_DEVICE);
    assert_null(replay);
    memset(r->pinned, 0, PINNED_BYTES); /* the streams work as before */
    enqueue_fork(r, 0x17);
    for (int i = 0; i < STREAMS; i++) OK(mm_stream_sync(r->stream[i]));
    assert_pinned(r, 0x17, PINNED_BYTES);
}

static void what_cannot_be_captured_fails_and_so_does_the_end(void **state) {
    rig *r = *state;
    OK(mm_event_record(r->event[1], r->stream[1]));
    OK(mm_capture_begin(r->stream[0]));
    assert_int_equal(mm_stream_wait(r->stream[0], r->event[1]), MM_ERR_DEVICE);
    assert_spoilt(r);
    OK(mm_capture_begin(r->stream[0]));
    enqueue_fork(r, 2);
    assert_int_equal(mm_stream_sync(r->stream[0]), MM_ERR_DEVICE);
    assert_spoilt(r);
    OK(mm_capture_begin(r->stream[0]));
    enqueue_fork(r, 2);
    assert_int_equal(mm_event_sync(r->event[0]), MM_ERR_DEVICE);
    assert_spoilt(r);
}

static void captures_out_of_order_are_refused(void **state) {
    rig *r = *state;
    uint64_t sum;
    mm_replay *replay;
    assert_int_equal(mm_capture_end(r->stream[0], &replay), MM_ERR_ORDER);
    OK(mm_capture_begin(r->stream[0]));
    assert_int_equal(mm_capture_begin(r->stream[1]), MM_ERR_ORDER);
    assert_int_equal(mm_capture_end(r->stream[1], &replay), MM_ERR_ORDER);
    assert_int_equal(mm_checksum_async(r->stream[0], r->block, 100, &sum), MM_ERR_UNSUPPORTED);
    OK(mm_fill_async(r->stream[0], r->block, 0, 100));
    OK(mm_capture_end(r->stream[0], &replay));
    mm_replay_destroy(replay);
}

/* ---------------------------------------------------------------- times */

static void only_a_timed_device_knows_times(void **state) {
    rig *r = *state;
    mm_device *timed;
    mm_stream *stream, *other;
    mm_event *event;
    mm_stream_stats stats;
    void *memory;
    OK(mm_fill_async(r->stream[0], r->block, 0, BLOCK_BYTES));
    OK(mm_event_record(r->event[0], r->stream[0]));
    OK(mm_event_sync(r->event[0]));
    assert_int_equal(mm_event_ns(r->event[0]), 0);
    mm_stream_stats_get(r->stream[0], &stats);
    assert_int_equal(stats.busy_ns, 0);
    assert_int_equal(stats.tasks, 1);

    OK(mm_device_create("cuda", &(mm_device_config){.timed = true}, &timed));
    OK(mm_stream_create(timed, "timed", 0, &stream));
    OK(mm_stream_create(timed, "other", 0, &other));
    OK(mm_event_create(timed, &event));
    OK(mm_device_reserve(timed, MM_MEMORY_DEVICE, PINNED_BYTES, &memory));
    for (int i = 0; i < 700; i++) { /* more spans than are kept unread */
        OK(mm_fill_async(stream, memory, (uint8_t)i, PINNED_BYTES / 64));
        OK(mm_event_record(event, stream));
        OK(mm_stream_wait(other, event));
        OK(mm_fill_async(other, (uint8_t *)memory + PINNED_BYTES / 2, (uint8_t)i, 16));
    }
    OK(mm_stream_sync(stream));
    OK(mm_stream_sync(other));
    assert_true(mm_event_ns(event) > 0);
    mm_stream_stats_get(stream, &stats);
    assert_int_equal(stats.tasks, 700);
    assert_true(stats.busy_ns > 0);
    mm_stream_stats_get(other, &stats);
    assert_true(stats.busy_ns > 0 && stats.wait_ns > 0);
    mm_device_release(timed, MM_MEMORY_DEVICE, memory, PINNED_BYTES);
    mm_event_destroy(event);
    mm_stream_destroy(other);
    mm_stream_destroy(stream);
    mm_device_destroy(timed);
}

/* ---------------------------------------------------------------- CUDA's own */

static void what_is_launched_on_the_streams_own_handle_is_in_order_with_the_rest(void **state) {
    rig *r = *state;
    cudaStream_t stream = mm_cuda_stream(r->stream[0]);
    OK(mm_fill_async(r->stream[0], r->block, 1, PINNED_BYTES));
    OK(mm_cuda_check(cudaMemsetAsync(r->block, 2, PINNED_BYTES, stream), "cudaMemsetAsync"));
    assert_bytes(r, r->block, 2);
}

/* Others capture a stream of their own (torch.cuda.graph), or ours by its handle. */
static void a_stream_that_others_capture_is_refused_by_name(void **state) {
    rig *r = *state;
    mm_stream *ours = r->stream[1];
    cudaStream_t theirs = mm_cuda_stream(r->stream[0]), handle = mm_cuda_stream(ours);
    cudaGraph_t graph;
    OK(mm_stream_check(ours));
    OK(mm_foreign_check(r->device, theirs));
    OK(mm_cuda_check(cudaStreamBeginCapture(theirs, cudaStreamCaptureModeThreadLocal), "capture"));
    assert_int_equal(mm_foreign_check(r->device, theirs), MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "the caller's stream is being captured"));
    assert_int_equal(mm_foreign_record(r->event[0], theirs), MM_ERR_ORDER);
    OK(mm_stream_check(ours));
    OK(mm_cuda_check(cudaStreamEndCapture(theirs, &graph), "the capture is as it was"));
    cudaGraphDestroy(graph);
    OK(mm_foreign_record(r->event[0], theirs));
    OK(mm_cuda_check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), "capture"));
    assert_int_equal(mm_stream_check(ours), MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "mm's own stream is being captured"));
    OK(mm_cuda_check(cudaStreamEndCapture(handle, &graph), "the capture is as it was"));
    cudaGraphDestroy(graph);
    mm_replay *replay;
    OK(mm_capture_begin(ours));
    OK(mm_stream_check(ours)); /* our own capture */
    OK(mm_fill_async(ours, r->block, 1, 1));
    OK(mm_capture_end(ours, &replay));
    mm_replay_destroy(replay);
}

static void a_refused_call_is_a_status_with_the_call_and_cudas_words(void **state) {
    rig *r = *state;
    cudaError_t error = cudaMemsetAsync(r->block, 2, 1, (cudaStream_t)NULL);
    if (error == cudaSuccess) error = cudaErrorInvalidValue; /* a GPU has a default stream */
    assert_int_equal(mm_cuda_check(error, "cudaMemsetAsync of a test"), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "cudaMemsetAsync of a test"));
    assert_non_null(strstr(mm_last_error(), "cudaErrorInvalidValue"));
    assert_int_equal(mm_cuda_check(cudaErrorMemoryAllocation, "x"), MM_ERR_NOMEM);
    OK(mm_cuda_check(cudaGetLastError(), "nothing is left"));
}

static void the_gpu_is_described(void **state) {
    rig *r = *state;
    mm_device_description description;
    mm_device_describe(r->device, &description);
    assert_true(strlen(description.model) > 0);
    assert_true(description.processors > 0);
    assert_in_range(description.memory_bytes_per_s, INT64_C(100000000000), INT64_C(100000000000000));
    assert_in_range(description.link_bytes_per_s, INT64_C(10000000000), INT64_C(100000000000));
}

static void skipped(void **state) {
    (void)state;
    skip();
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    struct CMUnitTest tests[] = {
        CASE(a_large_pinned_block_is_not_the_forked_childs),
        CASE(a_stream_that_others_capture_is_refused_by_name),
        CASE(what_is_trimmed_is_free_for_others_until_it_is_restored),
        CASE(a_budget_above_free_memory_is_refused_with_both_numbers),
        CASE(the_checksum_is_the_hosts_wherever_the_bytes_lie),
        CASE(more_checksums_than_there_are_places_for_are_all_told),
        CASE(sums_are_the_same_bits_on_host_and_gpu),
        CASE(captured_sums_are_those_of_what_is_there_at_each_launch),
        CASE(captured_work_of_several_streams_runs_at_each_launch),
        CASE(an_event_recorded_in_a_capture_was_never_recorded_outside),
        CASE(what_cannot_be_captured_fails_and_so_does_the_end),
        CASE(captures_out_of_order_are_refused),
        CASE(only_a_timed_device_knows_times),
        CASE(what_is_launched_on_the_streams_own_handle_is_in_order_with_the_rest),
        CASE(a_refused_call_is_a_status_with_the_call_and_cudas_words),
        CASE(the_gpu_is_described),
    };
#undef CASE
    mm_device *device;
    mm_status status = mm_device_create("cuda", NULL, &device);
    if (status == MM_OK) mm_device_destroy(device);
    for (size_t i = 0; status == MM_ERR_NOT_FOUND && i < sizeof tests / sizeof *tests; i++)
        tests[i] = (struct CMUnitTest){.name = tests[i].name, .test_func = skipped};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
