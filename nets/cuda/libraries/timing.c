/* SPDX-License-Identifier: MIT */
#include "nets/cuda/libraries/timing.h"

#include <stdlib.h>
#include <string.h>

#include "nets/bf16.h"

/* These numbers are chosen. */
enum {
    SLOW = 2,         /* a candidate that takes this many times the time of the fastest, */
    SLOW_NS = 50000,  /* and longer than this, is timed by a single run, which includes some 10 us of launch */
    RUNS = 4,         /* at least so many runs of others are timed together, */
    RUNS_MOST = 32,   /* at most so many, */
    RUNS_NS = 200000, /* and as many as take this long */
    VALUES = 1 << 18, /* random numbers, which tensors repeat; a power of two */
};

/* ---------------------------------------------------------------- memory */

mm_status nets_cuda_timing_take(int64_t bytes, void **memory_out) {
    cudaError_t error = cudaMalloc(memory_out, (size_t)nets_larger(bytes, 1));
    if (error != cudaSuccess) *memory_out = NULL;
    return mm_cuda_check(error, "cudaMalloc");
}

/* Random numbers in [-1, 1), the same in every run (xorshift32). On constant data kernels would be faster: fewer wires
 * switch, and clocks stay higher. */
static mm_status make_values(nets_cuda_timing *t) {
    uint32_t x = 2463534242u;
    t->values = malloc(VALUES * sizeof *t->values);
    t->halves = malloc(VALUES * sizeof *t->halves);
    if (!t->values || !t->halves) return mm_fail(MM_ERR_NOMEM, "no memory for %d numbers", VALUES);
    for (int i = 0; i < VALUES; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        t->values[i] = (float)(int32_t)x * 0x1p-31f;
        uint32_t bits;
        memcpy(&bits, &t->values[i], sizeof bits);
        t->halves[i] = nets_bf16_of(bits);
    }
    return MM_OK;
}

static mm_status copy(void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind, const nets_cuda_timing *t) {
    return mm_cuda_check(cudaMemcpyAsync(to, from, (size_t)bytes, kind, t->stream), "cudaMemcpyAsync");
}

/* Copies the random numbers to the tensor once, then doubles what is filled. */
mm_status nets_cuda_timing_tensor(const nets_cuda_timing *t, int64_t bytes, bool bf16, void **memory_out) {
    const int64_t most = VALUES * (int64_t)(bf16 ? sizeof *t->halves : sizeof *t->values);
    int64_t n = bytes < most ? bytes : most;
    MM_TRY(nets_cuda_timing_take(bytes, memory_out));
    MM_TRY(copy(*memory_out, bf16 ? (const void *)t->halves : t->values, n, cudaMemcpyHostToDevice, t));
    for (int64_t done = n; done < bytes; done += n) {
        n = bytes - done < done ? bytes - done : done;
        MM_TRY(copy((char *)*memory_out + done, *memory_out, n, cudaMemcpyDeviceToDevice, t));
    }
    return MM_OK;
}

mm_status nets_cuda_timing_start(nets_cuda_timing *t) {
    MM_TRY(mm_cuda_check(cudaStreamCreateWithPriority(&t->stream, cudaStreamNonBlocking, 0),
                         "cudaStreamCreateWithPriority"));
    MM_TRY(mm_cuda_check(cudaEventCreateWithFlags(&t->begin, cudaEventDefault), "cudaEventCreateWithFlags"));
    MM_TRY(mm_cuda_check(cudaEventCreateWithFlags(&t->end, cudaEventDefault), "cudaEventCreateWithFlags"));
    return make_values(t);
}

void nets_cuda_timing_stop(const nets_cuda_timing *t) {
    if (t->stream) (void)cudaStreamSynchronize(t->stream);
}

void nets_cuda_timing_end(nets_cuda_timing *t) {
    if (t->begin) (void)cudaEventDestroy(t->begin);
    if (t->end) (void)cudaEventDestroy(t->end);
    if (t->stream) (void)cudaStreamDestroy(t->stream);
    free(t->values);
    free(t->halves);
    *t = (nets_cuda_timing){0};
}

/* ---------------------------------------------------------------- running */

mm_status nets_cuda_timing_go_on(const nets_cuda_backend *cuda) {
    const volatile int *stop = cuda->config.stop;
    return stop && *stop ? mm_fail(MM_ERR_ORDER, "interrupted while algorithms were timed") : MM_OK;
}

/* Captures n launches as one graph. Launches that cannot be captured are no candidate, because iterations could not be
 * replayed with them. */
static mm_status record(const nets_cuda_timing *t, nets_cuda_timed_fn launch, const void *ctx, int n,
                        cudaGraphExec_t *exec_out) {
    cudaGraph_t graph = NULL;
    MM_TRY(
        mm_cuda_check(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
    mm_failure failure = {.status = MM_OK};
    for (int i = 0; i < n && failure.status == MM_OK; i++) mm_failure_save(&failure, launch(ctx, t->stream));
    cudaError_t error = cudaStreamEndCapture(t->stream, &graph);
    if (failure.status == MM_OK) mm_failure_save(&failure, mm_cuda_check(error, "cudaStreamEndCapture"));
    if (failure.status == MM_OK)
        mm_failure_save(&failure, mm_cuda_check(cudaGraphInstantiate(exec_out, graph, 0), "cudaGraphInstantiate"));
    (void)cudaGetLastError();
    if (error == cudaSuccess) (void)cudaGraphDestroy(graph);
    return mm_failure_restore(&failure);
}

static mm_status time_graph(const nets_cuda_timing *t, cudaGraphExec_t exec, float *ms_out) {
    MM_TRY(mm_cuda_check(cudaGraphUpload(exec, t->stream), "cudaGraphUpload"));
    MM_TRY(mm_cuda_check(cudaEventRecord(t->begin, t->stream), "cudaEventRecord"));
    MM_TRY(mm_cuda_check(cudaGraphLaunch(exec, t->stream), "cudaGraphLaunch"));
    MM_TRY(mm_cuda_check(cudaEventRecord(t->end, t->stream), "cudaEventRecord"));
    MM_TRY(mm_cuda_check(cudaEventSynchronize(t->end), "cudaEventSynchronize"));
    return mm_cuda_check(cudaEventElapsedTime(ms_out, t->begin, t->end), "cudaEventElapsedTime");
}

/* Times launches in a graph, as a replayed iteration runs them. Launched one by one, kernels of less than some 20 us
 * would be ranked by what their launch costs the host. */
static mm_status time_launches(const nets_cuda_timing *t, nets_cuda_timed_fn launch, const void *ctx, int n,
                               int64_t *ns_out) {
    cudaGraphExec_t exec;
    float ms = 0;
    MM_TRY(record(t, launch, ctx, n, &exec));
    mm_status status = time_graph(t, exec, &ms);
    (void)cudaGraphExecDestroy(exec);
    *ns_out = 1 + (int64_t)((double)ms * 1e6 / n);
    return status;
}

/* The first run is not timed: it loads the kernel. */
mm_status nets_cuda_timing_run(const nets_cuda_timing *t, nets_cuda_timed_fn launch, const void *ctx,
                               int64_t fastest_ns, int64_t *ns_out) {
    MM_TRY(launch(ctx, t->stream));
    MM_TRY(time_launches(t, launch, ctx, 1, ns_out));
    if (*ns_out > SLOW_NS && (*ns_out - 1) / SLOW >= fastest_ns) return MM_OK;
    const int64_t n = RUNS_NS / *ns_out;
    return time_launches(t, launch, ctx, n < RUNS ? RUNS : n > RUNS_MOST ? RUNS_MOST : (int)n, ns_out);
}
