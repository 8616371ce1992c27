// SPDX-License-Identifier: MIT
/* Tests the emulation's kernel language: it does what CUDA's does, and what would hang there fails here. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

#include <cuda_runtime.h>

namespace {

constexpr unsigned WHOLE = 0xffffffff;

cudaStream_t stream_new() {
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    return stream;
}

/* Launches the kernel and waits for it. */
#define RUN(kernel, grid, block, shared, ...)                                                                          \
    do {                                                                                                               \
        const cudaStream_t stream = stream_new();                                                                      \
        MM_LAUNCH(kernel, grid, block, shared, stream, __VA_ARGS__);                                                   \
        assert_int_equal(cudaGetLastError(), cudaSuccess);                                                             \
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);                                                  \
        assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);                                                      \
    } while (0)

/* ---------------------------------------------------------------- grids and barriers */

__global__ void number(int *out) {
    const int block = (int)(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    const int thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    const int threads = (int)(blockDim.x * blockDim.y * blockDim.z);
    out[block * threads + thread] += block * threads + thread + 1;
}

void every_thread_of_every_block_runs_once(void **) {
    int out[2 * 3 * 2 * 5 * 2 * 3] = {};
    RUN(number, dim3(2, 3, 2), dim3(5, 2, 3), 0, out);
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) assert_int_equal(out[i], i + 1);
}

template <int N, typename T> __global__ void reverse(T *values) {
    __shared__ T tile[N];
    tile[threadIdx.x] = values[blockIdx.x * N + threadIdx.x];
    __syncthreads();
    values[blockIdx.x * N + threadIdx.x] = tile[N - 1 - threadIdx.x];
}

void shared_memory_is_the_blocks_and_a_barrier_orders_it(void **) {
    constexpr int N = 96;
    float values[3 * N];
    for (int i = 0; i < 3 * N; i++) values[i] = (float)i;
    RUN((reverse<N, float>), 3, N, 0, values);
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < N; i++) assert_true(values[b * N + i] == (float)(b * N + N - 1 - i));
}

__global__ void unordered(int *values) {
    MM_DYNAMIC_SHARED(int, tile);
    tile[threadIdx.x] = (int)threadIdx.x;
    values[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

void a_forgotten_barrier_shows_in_every_block(void **) {
    int values[2 * 64];
    RUN(unordered, 2, 64, 64 * sizeof(int), values);
    for (int b = 0; b < 2; b++) {
        int wrong = 0;
        for (int i = 0; i < 64; i++) wrong += values[64 * b + i] != 63 - i;
        assert_true(wrong > 0);
    }
}

__global__ void sum_tree(const int *values, int *sums) {
    MM_DYNAMIC_SHARED(int, part);
    const unsigned t = threadIdx.x;
    part[t] = values[blockIdx.x * blockDim.x + t];
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) part[t] += part[t + half];
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}

void barriers_in_a_loop_of_many_blocks(void **) {
    int values[40 * 256], sums[40];
    for (int i = 0; i < 40 * 256; i++) values[i] = i % 1000;
    RUN(sum_tree, 40, 256, 256 * sizeof(int), values, sums);
    for (int b = 0; b < 40; b++) {
        int sum = 0;
        for (int i = 0; i < 256; i++) sum += values[256 * b + i];
        assert_int_equal(sums[b], sum);
    }
}

__global__ void barrier_votes(int *out) {
    const int count = __syncthreads_count(threadIdx.x % 3 == 0);
    const int any = __syncthreads_or(threadIdx.x == 39), none = __syncthreads_or(threadIdx.x == 40);
    const int all = __syncthreads_and(threadIdx.x < 40), some = __syncthreads_and(threadIdx.x < 39);
    out[threadIdx.x] = count * 16 + any * 8 + none * 4 + all * 2 + some;
}

void barriers_vote(void **) {
    int out[40] = {};
    RUN(barrier_votes, 1, 40, 0, out);
    for (int i = 0; i < 40; i++) assert_int_equal(out[i], 14 * 16 + 8 + 2);
}

/* ---------------------------------------------------------------- warps */

__global__ void shuffles(int *out) {
    const int l = (int)threadIdx.x % 32;
    int *of = out + 8 * threadIdx.x;
    of[0] = __shfl_sync(WHOLE, 100 + l, 33);
    of[1] = __shfl_sync(WHOLE, 100 + l, 3, 8);
    of[2] = __shfl_up_sync(WHOLE, 100 + l, 2, 16);
    of[3] = __shfl_down_sync(WHOLE, 100 + l, 5);
    of[4] = __shfl_xor_sync(WHOLE, 100 + l, 17);
    of[5] = __shfl_xor_sync(WHOLE, 100 + l, 4, 8);
    of[6] = (int)__shfl_sync(WHOLE, (double)l + 0.5, 9);
    of[7] = (int)(__shfl_xor_sync(WHOLE, (long long)l << 40, 1) >> 40);
}

void shuffles_read_the_lane_they_name(void **) {
    int out[64 * 8];
    RUN(shuffles, 1, 64, 0, out);
    for (int t = 0; t < 64; t++) {
        const int l = t % 32, *of = out + 8 * t;
        assert_int_equal(of[0], 101);
        assert_int_equal(of[1], 100 + l / 8 * 8 + 3);
        assert_int_equal(of[2], 100 + (l % 16 < 2 ? l : l - 2));
        assert_int_equal(of[3], 100 + (l + 5 > 31 ? l : l + 5));
        assert_int_equal(of[4], 100 + (l ^ 17));
        assert_int_equal(of[5], 100 + (l ^ 4));
        assert_int_equal(of[6], 9);
        assert_int_equal(of[7], l ^ 1);
    }
}

__global__ void votes(unsigned *out) {
    const unsigned l = threadIdx.x;
    const unsigned odd = __ballot_sync(WHOLE, l & 1);
    if (l < 8) {
        out[8 * l] = odd;
        out[8 * l + 1] = __ballot_sync(0xff, l > 4);
        out[8 * l + 2] = (unsigned)(__any_sync(0xff, l == 7) * 2 + __any_sync(0xff, l == 8));
        out[8 * l + 3] = (unsigned)(__all_sync(0xff, l < 8) * 2 + __all_sync(0xff, l < 7));
        out[8 * l + 4] = __reduce_add_sync(0xff, l);
        out[8 * l + 5] = (unsigned)__reduce_min_sync(0xff, (int)l - 5);
        out[8 * l + 6] = __reduce_max_sync(0xff, l) * 256 + __reduce_or_sync(0xff, 1u << l);
        out[8 * l + 7] = __match_any_sync(0xff, l / 4);
    }
    __syncwarp();
}

void votes_and_reductions_are_of_the_mask(void **) {
    unsigned out[64];
    RUN(votes, 1, 32, 0, out);
    for (unsigned l = 0; l < 8; l++) {
        const unsigned expected[8] = {0xaaaaaaaa, 0xe0, 2, 2, 28, (unsigned)-5, 7 * 256 + 0xff, l < 4 ? 0x0fu : 0xf0u};
        assert_memory_equal(out + 8 * l, expected, sizeof expected);
    }
}

__global__ void partial_warp(unsigned *out) { out[threadIdx.x] = __ballot_sync(WHOLE, 1); }

void lanes_beyond_the_block_are_absent(void **) {
    unsigned out[40];
    RUN(partial_warp, 1, 40, 0, out);
    assert_int_equal(out[0], WHOLE);
    assert_int_equal(out[39], 0xff);
}

__global__ void warp_then_block(int *out) {
    __shared__ int sums[32];
    int sum = (int)threadIdx.x;
    for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(WHOLE, sum, (unsigned)by);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(WHOLE, sum, by);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }
}

void a_reduction_over_warps_and_the_block(void **) {
    int out[5];
    RUN(warp_then_block, 5, 1024, 0, out);
    for (int b = 0; b < 5; b++) assert_int_equal(out[b], 1023 * 1024 / 2);
}

/* ---------------------------------------------------------------- atomics, intrinsics */

__global__ void atomics(int *sum, float *real, unsigned *bits, unsigned long long *most, int *ticket, int *seen) {
    __shared__ int local;
    if (threadIdx.x == 0) local = 0;
    __syncthreads();
    atomicAdd(&local, 2);
    atomicAdd(sum, 1);
    atomicAdd(real, 0.5f);
    atomicOr(bits, 1u << threadIdx.x % 32);
    atomicMax(most, (unsigned long long)threadIdx.x << 33);
    seen[atomicAdd(ticket, 1)]++;
    __syncthreads();
    if (threadIdx.x == 0 && local != 2 * (int)blockDim.x) *sum = -1;
    if (threadIdx.x == 0) atomicCAS(sum, -7, 0);
}

void atomics_in_shared_and_global_memory(void **) {
    int sum = 0, ticket = 0, seen[4 * 48] = {};
    float real = 0;
    unsigned bits = 0;
    unsigned long long most = 0;
    RUN(atomics, 4, 48, 0, &sum, &real, &bits, &most, &ticket, seen);
    assert_int_equal(sum, 4 * 48);
    assert_true(real == 2 * 48);
    assert_int_equal(bits, WHOLE);
    assert_true(most == 47ULL << 33);
    for (int i = 0; i < 4 * 48; i++) assert_int_equal(seen[i], 1);
}

void bit_functions_are_cudas(void **) {
    assert_int_equal(__clz(0), 32);
    assert_int_equal(__clz(1), 31);
    assert_int_equal(__clz(-1), 0);
    assert_int_equal(__clzll(1), 63);
    assert_int_equal(__ffs(0), 0);
    assert_int_equal(__ffs(8), 4);
    assert_int_equal(__popc(0xf0f0), 8);
    assert_int_equal(__brev(1), 0x80000000);
    assert_true(__brevll(1) == 1ULL << 63);
    assert_int_equal(__byte_perm(0x33221100, 0x77665544, 0x6240), 0x66224400);
    assert_int_equal(__byte_perm(0x33221100, 0x77665544, 0x7351), 0x77335511);
    assert_int_equal(__funnelshift_l(0x80000001, 0x1, 4), 0x18);
    assert_int_equal(__funnelshift_r(0x80000001, 0x1, 4), 0x18000000);
    assert_int_equal(__funnelshift_r(5, 7, 32), 5);
    assert_int_equal(__funnelshift_rc(5, 7, 32), 7);
    assert_int_equal(__funnelshift_l(5, 7, 0), 7);
    assert_int_equal(__umulhi(0x80000000, 6), 3);
    assert_int_equal(__float_as_uint(1.0f), 0x3f800000);
    assert_true(__uint_as_float(0xbf800000) == -1.0f);
}

void conversions_out_of_range_saturate(void **) {
    assert_int_equal(__float2int_rz(3e9f), INT32_MAX);
    assert_int_equal(__float2int_rz(-3e9f), INT32_MIN);
    assert_int_equal(__float2int_rz(NAN), 0);
    assert_int_equal(__float2int_rz(-1.9f), -1);
    assert_int_equal(__float2int_rn(2.5f), 2);
    assert_int_equal(__float2uint_rz(-1.0f), 0);
}

__global__ void vectors(const float4 *in, uint2 *out) {
    const float4 v = __ldg(in + threadIdx.x);
    __stcs(out + threadIdx.x, make_uint2((unsigned)(v.x + v.y), (unsigned)(v.z * v.w)));
}

void vectors_load_and_store(void **) {
    const float4 in[2] = {make_float4(1, 2, 3, 4), make_float4(5, 6, 7, 8)};
    uint2 out[2];
    RUN(vectors, 1, 2, 0, in, out);
    assert_int_equal(out[0].x, 3);
    assert_int_equal(out[1].y, 56);
}

/* ---------------------------------------------------------------- what would hang or be undefined */

__global__ void half_at_barrier() {
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncwarp(0xffff0000);
    if (threadIdx.x >= 16) __ballot_sync(0xffffffff, 1);
}

__global__ void half_ends() {
    if (threadIdx.x < 16) __syncthreads();
}

__global__ void barriers_apart() {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void masks_apart() {
    if (threadIdx.x < 16)
        __shfl_sync(WHOLE, 1, 0);
    else
        __shfl_sync(0xffff0000, 1, 16);
    __syncwarp();
}

__global__ void outside_of_the_mask() { __ballot_sync(1, 1); }

__global__ void misaligned(const char *bytes, float4 *out) { *out = __ldg((const float4 *)(const void *)(bytes + 4)); }

__global__ void traps() { __trap(); }

/* The message with which a kernel's launch dies; "" if it lives. */
template <typename F> void death_of(F launch, char *words, size_t capacity) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        launch();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; used < capacity - 1 && (n = read(ends[0], words + used, capacity - 1 - used)) > 0;)
        used += (size_t)n;
    words[used] = 0;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

#define DIES(words_expected, kernel, threads, ...)                                                                     \
    do {                                                                                                               \
        char words[1024];                                                                                              \
        death_of([&] { kernel_alone(#kernel, threads, [](const void *arg) { (void)arg, kernel(__VA_ARGS__); }); },     \
                 words, sizeof words);                                                                                 \
        if (!strstr(words, words_expected)) fail_msg("it said: %s", words);                                            \
    } while (0)

/* Runs a kernel on this thread, without a stream: a forked child does not have the stream's thread. */
void kernel_alone(const char *name, unsigned threads, void (*body)(const void *)) {
    cuda_emulation::run({name, nullptr, dim3(1), dim3(threads), 0, body, nullptr, 0}, nullptr);
}

alignas(16) const char bytes[32] = {};
float4 vector_out;

void a_barrier_that_some_never_reach_fails(void **) { DIES("the block cannot go on", half_at_barrier, 32); }
void a_thread_that_ends_before_a_barrier_fails(void **) { DIES("16 threads of the block have ended", half_ends, 32); }
void barriers_at_different_places_fail(void **) { DIES("waits at the barrier of", barriers_apart, 64); }
void lanes_with_different_masks_fail(void **) { DIES("with mask ffff0000", masks_apart, 32); }
void a_lane_outside_of_its_mask_fails(void **) { DIES("leaves out the caller's lane 1", outside_of_the_mask, 2); }
void a_misaligned_vector_load_fails(void **) { DIES("not aligned to 16 bytes", misaligned, 1, bytes, &vector_out); }
void a_trap_fails_and_names_the_kernel(void **) { DIES("kernel traps, block (0, 0, 0)", traps, 1); }

void a_launch_that_no_device_takes_is_an_error(void **) {
    int out = 0;
    const cudaStream_t stream = stream_new();
    MM_LAUNCH(number, 0, 32, 0, stream, &out);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    MM_LAUNCH(number, 1, 1025, 0, stream, &out);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(out, 0);
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_of_every_block_runs_once),
        cmocka_unit_test(shared_memory_is_the_blocks_and_a_barrier_orders_it),
        cmocka_unit_test(a_forgotten_barrier_shows_in_every_block),
        cmocka_unit_test(barriers_in_a_loop_of_many_blocks),
        cmocka_unit_test(barriers_vote),
        cmocka_unit_test(shuffles_read_the_lane_they_name),
        cmocka_unit_test(votes_and_reductions_are_of_the_mask),
        cmocka_unit_test(lanes_beyond_the_block_are_absent),
        cmocka_unit_test(a_reduction_over_warps_and_the_block),
        cmocka_unit_test(atomics_in_shared_and_global_memory),
        cmocka_unit_test(bit_functions_are_cudas),
        cmocka_unit_test(conversions_out_of_range_saturate),
        cmocka_unit_test(vectors_load_and_store),
        cmocka_unit_test(a_barrier_that_some_never_reach_fails),
        cmocka_unit_test(a_thread_that_ends_before_a_barrier_fails),
        cmocka_unit_test(barriers_at_different_places_fail),
        cmocka_unit_test(lanes_with_different_masks_fail),
        cmocka_unit_test(a_lane_outside_of_its_mask_fails),
        cmocka_unit_test(a_misaligned_vector_load_fails),
        cmocka_unit_test(a_trap_fails_and_names_the_kernel),
        cmocka_unit_test(a_launch_that_no_device_takes_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
