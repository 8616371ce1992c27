/* SPDX-License-Identifier: MIT */
/* The emulated runtime behaves as tests that rely on it expect of CUDA. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>

#include "tests/cuda_emulation/control.h"
#include "tests/cuda_emulation/enqueue.h"

enum { BYTES = 100000 };

typedef struct rig {
    cudaStream_t a, b;
    cudaEvent_t event, other;
    unsigned char *device, *host;
} rig;

#define OK(call) assert_int_equal(call, cudaSuccess)

static int setup(void **state) {
    rig *r = calloc(1, sizeof *r);
    cuda_emulation_reset();
    OK(cudaStreamCreateWithPriority(&r->a, cudaStreamNonBlocking, 0));
    OK(cudaStreamCreateWithPriority(&r->b, cudaStreamNonBlocking, -1));
    OK(cudaEventCreateWithFlags(&r->event, cudaEventDefault));
    OK(cudaEventCreateWithFlags(&r->other, cudaEventDefault));
    OK(cudaMalloc((void **)&r->device, BYTES));
    OK(cudaHostAlloc((void **)&r->host, BYTES, cudaHostAllocPortable));
    *state = r;
    return 0;
}

static int teardown(void **state) {
    rig *r = *state;
    (void)cudaStreamDestroy(r->a);
    (void)cudaStreamDestroy(r->b);
    (void)cudaEventDestroy(r->event);
    (void)cudaEventDestroy(r->other);
    (void)cudaFree(r->device);
    (void)cudaFreeHost(r->host);
    free(r);
    cuda_emulation_reset(); /* aborts if something is left */
    return 0;
}

static void assert_host(const rig *r, unsigned char value) {
    for (int i = 0; i < BYTES; i++)
        if (r->host[i] != value) fail_msg("byte %d is %d, not %d", i, r->host[i], value);
}

static void work_of_two_streams_is_ordered_by_an_event(void **state) {
    rig *r = *state;
    for (int i = 0; i < 300; i++) {
        OK(cudaMemsetAsync(r->device, i & 255, BYTES, r->a));
        OK(cudaEventRecord(r->event, r->a));
        OK(cudaStreamWaitEvent(r->b, r->event, 0));
        OK(cudaMemcpyAsync(r->host, r->device, BYTES, cudaMemcpyDeviceToHost, r->b));
        OK(cudaEventRecord(r->other, r->b));
        OK(cudaStreamWaitEvent(r->a, r->other, 0));
        if (i % 50 != 49) continue;
        OK(cudaEventSynchronize(r->other));
        assert_host(r, (unsigned char)i);
    }
    float ms = -1;
    OK(cudaEventElapsedTime(&ms, r->event, r->other));
    assert_true(ms >= 0);
}

static int child_status(void (*run)(rig *r), rig *r) {
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* else cmocka and sanitizers would catch it */
        signal(SIGBUS, SIG_DFL);
        run(r);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void touch_device(rig *r) { *(volatile unsigned char *)r->device = 1; }

static void touch_pinned(rig *r) { *(volatile unsigned char *)r->host = 1; }

static void the_cpu_cannot_touch_device_memory(void **state) {
    rig *r = *state;
    OK(cudaMemsetAsync(r->device, 0, BYTES, r->a));
    OK(cudaStreamSynchronize(r->a));
    int status = child_status(touch_device, r);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = child_status(touch_pinned, r);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_copy_of_the_wrong_direction_and_the_default_stream_are_refused(void **state) {
    rig *r = *state;
    assert_int_equal(cudaMemcpyAsync(r->host, r->device, 1, cudaMemcpyHostToDevice, r->a), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(r->host, r->device, 1, cudaMemcpyDeviceToHost, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void the_nth_call_fails_as_ordered_and_calls_are_counted(void **state) {
    rig *r = *state;
    long before = cuda_emulation_calls("cudaMemsetAsync");
    cuda_emulation_fail("cudaMemsetAsync", 2, cudaErrorMemoryAllocation);
    OK(cudaMemsetAsync(r->device, 1, 1, r->a));
    assert_false(cuda_emulation_failed());
    assert_int_equal(cudaMemsetAsync(r->device, 2, BYTES, r->a), cudaErrorMemoryAllocation);
    assert_true(cuda_emulation_failed());
    OK(cudaMemsetAsync(r->device, 3, 1, r->a));
    assert_int_equal(cuda_emulation_calls("cudaMemsetAsync") - before, 3);
    assert_int_equal(cuda_emulation_calls_here("cudaMemsetAsync"), cuda_emulation_calls("cudaMemsetAsync"));
}

static void fault(void *arg) {
    (void)arg;
    cuda_emulation_fault(cudaErrorIllegalAddress);
}

static void after_a_fault_work_is_passed_over_and_every_call_fails(void **state) {
    rig *r = *state;
    memset(r->host, 9, BYTES);
    OK(cuda_emulation_enqueue(r->a, fault, NULL));
    (void)cudaMemcpyAsync(r->host, r->device, BYTES, cudaMemcpyDeviceToHost, r->a); /* may report the fault already */
    assert_int_equal(cudaStreamSynchronize(r->a), cudaErrorIllegalAddress);
    assert_host(r, 9);
    assert_int_equal(cudaEventRecord(r->event, r->b), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
}

static void device_memory_is_limited_and_told(void **state) {
    (void)state;
    size_t before, after, total;
    void *memory = NULL;
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&memory, (3 << 20) - 1));
    OK(cudaMemGetInfo(&after, &total));
    assert_int_equal(before - after, 3 << 20);
    OK(cudaFree(memory));
    assert_int_equal(cudaMalloc(&memory, before + 1), cudaErrorMemoryAllocation);
}

/* ---------------------------------------------------------------- several devices */

#define STRAYS(call) assert_int_equal(call, cudaErrorInvalidResourceHandle)

static void what_is_another_devices_is_refused_and_counted(void **state) {
    enum { CALLS = 16 };
    rig *r = *state; /* on device 0 */
    cudaStream_t stream;
    cudaEvent_t event;
    void *memory;
    float ms;
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(r->a, cudaStreamCaptureModeThreadLocal));
    OK(cudaStreamEndCapture(r->a, &graph));
    OK(cudaSetDevice(1));
    OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    OK(cudaEventCreateWithFlags(&event, cudaEventDefault));
    OK(cudaMalloc(&memory, BYTES));
    STRAYS(cudaStreamSynchronize(r->a));
    STRAYS(cudaStreamQuery(r->a));
    STRAYS(cudaStreamWaitEvent(r->a, event, 0));
    STRAYS(cudaEventRecord(event, r->a));
    STRAYS(cudaEventRecord(r->event, stream));
    STRAYS(cudaEventSynchronize(r->event));
    STRAYS(cudaEventQuery(r->event));
    STRAYS(cudaEventElapsedTime(&ms, r->event, r->event));
    STRAYS(cudaMemsetAsync(memory, 1, 1, r->a));
    STRAYS(cudaMemsetAsync(r->device, 1, 1, stream));
    STRAYS(cudaMemcpyAsync(r->host, r->device, 1, cudaMemcpyDeviceToHost, stream));
    STRAYS(cuda_emulation_enqueue(r->a, free, NULL));
    STRAYS(cuda_emulation_on(0));
    STRAYS(cudaStreamBeginCapture(r->a, cudaStreamCaptureModeThreadLocal));
    STRAYS(cudaGraphInstantiate(&(cudaGraphExec_t){NULL}, graph, 0));
    STRAYS(cudaLaunchHostFunc(r->a, free, NULL));
    assert_int_equal(cuda_emulation_strays(), CALLS);
    cuda_emulation_forget_strays();
    OK(cudaFree(memory));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaGraphDestroy(graph));
    OK(cudaSetDevice(0));
}

static void touch_from_a_stream(void *memory) { *(volatile unsigned char *)memory = 1; }

static void reach_from_device_1(rig *r) {
    cudaStream_t stream;
    (void)cudaSetDevice(1);
    (void)cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
    cudaMemsetAsync(r->device, 0, 0, stream);
    (void)cudaLaunchHostFunc(stream, touch_from_a_stream, r->device);
    (void)cudaStreamSynchronize(stream);
}

static void work_of_one_device_cannot_touch_anothers_memory(void **state) {
    rig *r = *state;
#ifdef __SANITIZE_THREAD__
    skip(); /* the sanitizer ends a forked child that starts a thread, as a stream does */
#endif
    OK(cudaStreamSynchronize(r->a));
    int status = child_status(reach_from_device_1, r);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void each_device_has_memory_of_its_own(void **state) {
    (void)state;
    size_t before[2], after, total;
    void *memory;
    for (int d = 0; d < 2; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMemGetInfo(&before[d], &total));
    }
    OK(cudaMalloc(&memory, 1 << 20));
    OK(cudaMemGetInfo(&after, &total));
    assert_int_equal(before[1] - after, 1 << 20);
    OK(cudaSetDevice(0));
    OK(cudaMemGetInfo(&after, &total));
    assert_int_equal(before[0], after);
    OK(cudaSetDevice(1));
    OK(cudaFree(memory));
    OK(cudaSetDevice(0));
}

/* As in CUDA: asking for the device makes no context; pushing one keeps the current one below it. */
static void contexts_are_made_by_use_and_pushed_on_what_was_current(void **state) {
    (void)state;
    CUcontext one, now;
    int device = -1;
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    assert_int_equal(device, 0);
    OK((int)cuDevicePrimaryCtxRetain(&one, 1));
    assert_true(cuda_emulation_has_context(1));
    OK((int)cuCtxPushCurrent(one));
    OK(cudaGetDevice(&device));
    assert_int_equal(device, 1);
    OK((int)cuCtxGetCurrent(&now));
    assert_ptr_equal(now, one);
    OK((int)cuCtxPopCurrent(&now));
    OK(cudaGetDevice(&device));
    assert_int_equal(device, 0);
    OK((int)cuDevicePrimaryCtxRelease(1));
    assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
}

/* ---------------------------------------------------------------- virtual memory */

static void *driver(const char *name) {
    void *function;
    enum cudaDriverEntryPointQueryResult found;
    OK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    assert_int_equal(found, cudaDriverEntryPointSuccess);
    return function;
}

static void chunks_of_a_range_come_and_go(void **state) {
    rig *r = *state;
    enum { CHUNK = 2 << 20, N = 3 };
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t before = cuda_emulation_alive_get().device_bytes;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    assert_non_null(driver("cuMemMap"));
    OK((int)cuMemAddressReserve(&base, N * CHUNK, 0, 0, 0));
    for (int i = 0; i < N; i++) {
        OK((int)cuMemCreate(&handle, CHUNK, &properties, 0));
        OK((int)cuMemMap(base + (CUdeviceptr)i * CHUNK, CHUNK, 0, handle, 0));
        OK((int)cuMemSetAccess(base + (CUdeviceptr)i * CHUNK, CHUNK, &access, 1));
        OK((int)cuMemRelease(handle)); /* the mapping keeps it */
    }
    OK(cudaMemsetAsync((void *)base, 5, N * CHUNK, r->a));
    OK(cudaMemcpyAsync(r->host, (void *)(base + CHUNK - BYTES / 2), BYTES, cudaMemcpyDeviceToHost, r->a));
    OK(cudaStreamSynchronize(r->a));
    assert_host(r, 5);
    assert_int_equal(cuda_emulation_alive_get().device_bytes - before, N * CHUNK);
    OK((int)cuMemUnmap(base + CHUNK, CHUNK));
    assert_int_equal(cuda_emulation_alive_get().device_bytes - before, (N - 1) * CHUNK);
    assert_int_equal(cuMemUnmap(base, N * CHUNK), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(base, N * CHUNK), CUDA_ERROR_INVALID_VALUE);
    OK((int)cuMemUnmap(base, CHUNK));
    OK((int)cuMemUnmap(base + 2 * CHUNK, CHUNK));
    OK((int)cuMemAddressFree(base, N * CHUNK));
    assert_int_equal(cuda_emulation_alive_get().device_bytes, before);
}

/* ---------------------------------------------------------------- graphs */

static void begin(cudaStream_t stream) { OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)); }

static void a_captured_fork_and_join_runs_at_each_launch_and_not_before(void **state) {
    rig *r = *state;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    memset(r->host, 0, BYTES);
    begin(r->a);
    OK(cudaMemsetAsync(r->device, 7, BYTES, r->a));
    OK(cudaEventRecord(r->event, r->a));
    OK(cudaStreamWaitEvent(r->b, r->event, 0));
    OK(cudaMemcpyAsync(r->host, r->device, BYTES, cudaMemcpyDeviceToHost, r->b));
    OK(cudaEventRecord(r->other, r->b));
    OK(cudaStreamWaitEvent(r->a, r->other, 0));
    OK(cudaStreamEndCapture(r->a, &graph));
    OK(cudaStreamSynchronize(r->b));
    assert_host(r, 0);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        memset(r->host, 0, BYTES);
        OK(cudaGraphLaunch(exec, r->a));
        OK(cudaStreamSynchronize(r->a));
        assert_host(r, 7);
    }
    OK(cudaGraphExecDestroy(exec));
    assert_int_equal(cudaEventQuery(r->event), cudaErrorCapturedEvent);
}

static void a_fork_that_is_not_joined_fails_at_the_end(void **state) {
    rig *r = *state;
    cudaGraph_t graph;
    begin(r->a);
    OK(cudaEventRecord(r->event, r->a));
    OK(cudaStreamWaitEvent(r->b, r->event, 0));
    OK(cudaMemsetAsync(r->device, 7, BYTES, r->b));
    assert_int_equal(cudaStreamEndCapture(r->a, &graph), cudaErrorStreamCaptureUnjoined);
    OK(cudaStreamSynchronize(r->b));
}

static void a_wait_for_uncaptured_work_and_a_synchronising_call_end_a_capture(void **state) {
    rig *r = *state;
    cudaGraph_t graph;
    void *memory;
    OK(cudaEventRecord(r->event, r->b));
    begin(r->a);
    assert_int_equal(cudaStreamWaitEvent(r->a, r->event, 0), cudaErrorStreamCaptureIsolation);
    assert_int_equal(cudaMemsetAsync(r->device, 7, BYTES, r->a), cudaErrorStreamCaptureInvalidated);
    assert_int_equal(cudaStreamEndCapture(r->a, &graph), cudaErrorStreamCaptureInvalidated);
    begin(r->a);
    assert_int_equal(cudaMalloc(&memory, 1), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(r->a, &graph), cudaErrorStreamCaptureInvalidated);
    begin(r->a);
    assert_int_equal(cudaStreamSynchronize(r->a), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(r->a, &graph), cudaErrorStreamCaptureInvalidated);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(work_of_two_streams_is_ordered_by_an_event),
        CASE(the_cpu_cannot_touch_device_memory),
        CASE(a_copy_of_the_wrong_direction_and_the_default_stream_are_refused),
        CASE(the_nth_call_fails_as_ordered_and_calls_are_counted),
        CASE(after_a_fault_work_is_passed_over_and_every_call_fails),
        CASE(device_memory_is_limited_and_told),
        CASE(what_is_another_devices_is_refused_and_counted),
        CASE(work_of_one_device_cannot_touch_anothers_memory),
        CASE(each_device_has_memory_of_its_own),
        CASE(contexts_are_made_by_use_and_pushed_on_what_was_current),
        CASE(chunks_of_a_range_come_and_go),
        CASE(a_captured_fork_and_join_runs_at_each_launch_and_not_before),
        CASE(a_fork_that_is_not_joined_fails_at_the_end),
        CASE(a_wait_for_uncaptured_work_and_a_synchronising_call_end_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
