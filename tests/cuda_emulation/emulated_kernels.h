/* SPDX-License-Identifier: MIT */
/* Runs the kernels of cuda_runtime.h, of which this is a part: each block as a set of fibers. */
#ifndef TESTS_CUDA_EMULATION_EMULATED_KERNELS_H
#define TESTS_CUDA_EMULATION_EMULATED_KERNELS_H

#include <new>
#include <stdlib.h>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_emulation/enqueue.h"

constexpr int warpSize = 32;

/* Indices of the CUDA thread that this thread runs. They are declared __thread, because each use of another file's
 * thread_local variable costs a call. */
extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_emulation {

/* A kernel's parameters, one by one. */
constexpr int MOST_PARAMETERS = 32;
struct parameters {
    int count;
    const void *at[MOST_PARAMETERS];
    size_t bytes[MOST_PARAMETERS];
};

/* A launch: a kernel with its arguments, to run on a stream's thread. */
struct grid {
    const char *kernel;
    const void *function;
    dim3 blocks, threads;
    size_t shared_bytes;
    void (*body)(const void *arguments);
    parameters (*parameters_of)(const void *arguments);
    size_t argument_bytes;
};

/* Runs the launch on this thread. */
void run(const grid &of, const void *arguments);

/* cudaSuccess, or the error with which a real device would refuse the launch. */
cudaError_t check(const grid &of);

/* Prints kernel, block, thread and the text on stderr, and aborts. */
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...);

void *dynamic_shared();

/* Waits for all threads of the block that have not ended; returns the number of those with a true predicate. */
int block_barrier(bool predicate, const char *file, int line);

/* The values that the lanes of a warp passed to one operation. present: set of lanes that took part. */
struct lanes {
    uint32_t present;
    uint64_t value[32];
};

/* Waits for the lanes of `mask` that have not ended. All must call the same operation with the same mask. The result is
 * valid until this CUDA thread's next operation. */
const lanes &exchange(const char *operation, unsigned mask, uint64_t value);

int lane();

template <typename... Parameters> struct packed {
    grid of;
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
};

template <typename... Parameters, typename... Arguments>
void launch(const char *name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared_bytes,
            cudaStream_t stream, Arguments... arguments) {
    using packed = cuda_emulation::packed<Parameters...>;
    static_assert((std::is_trivially_destructible<Parameters>::value && ...),
                  "a kernel's arguments are copied as bytes");
    static_assert(sizeof...(Parameters) <= MOST_PARAMETERS, "raise MOST_PARAMETERS");
    const grid of = {name,
                     reinterpret_cast<const void *>(kernel),
                     blocks,
                     threads,
                     shared_bytes,
                     [](const void *arg) {
                         const packed *p = static_cast<const packed *>(arg);
                         std::apply(p->kernel, p->arguments);
                     },
                     [](const void *arg) {
                         return std::apply(
                             [](const auto &...each) {
                                 return parameters{sizeof...(each), {&each...}, {sizeof each...}};
                             },
                             static_cast<const packed *>(arg)->arguments);
                     },
                     sizeof(packed)};
    cudaError_t error = check(of);
    const size_t shared_limit = cuda_emulation_shared_limit(reinterpret_cast<const void *>(kernel));
    if (shared_bytes > shared_limit) error = cudaErrorInvalidValue;
    void *memory = error == cudaSuccess ? malloc(sizeof(packed)) : nullptr;
    if (error == cudaSuccess && !memory) error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess) {
        new (memory) packed{of, kernel, std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)};
        error = cuda_emulation_enqueue(
            stream, [](void *arg) { run(static_cast<const packed *>(arg)->of, arg); }, memory);
        if (error == cudaSuccess)
            cuda_emulation_launched(stream, name, (long)blocks.x * blocks.y * blocks.z,
                                    (long)threads.x * threads.y * threads.z, shared_bytes, shared_limit);
    }
    if (error != cudaSuccess) cuda_emulation_set_last_error(error);
}

} // namespace cuda_emulation

#endif
