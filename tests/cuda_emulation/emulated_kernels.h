/* Blocks of fibers: how the kernels of cuda_runtime.h run. A part of it, in a file of its own. */
#ifndef TESTS_CUDA_EMULATION_KERNELS_H
#define TESTS_CUDA_EMULATION_KERNELS_H

#include <new>
#include <stdlib.h>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_emulation/enqueue.h"

constexpr int warpSize = 32;

/* Of the CUDA thread that runs on this thread. Not thread_local, whose variables of other files are reached by a
 * call. */
extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_emulation {

/* A kernel and its arguments, to be run on a stream's thread. */
struct grid {
    const char *kernel;
    dim3 blocks, threads;
    size_t shared_bytes;
    void (*body)(const void *arguments);
    size_t argument_bytes;
};

/* Runs it, on this thread. */
void run(const grid &of, const void *arguments);

/* MM_OK's equivalent, or why a real device would refuse the launch. */
cudaError_t check(const grid &of);

/* Says on stderr which kernel, block and thread and what, and aborts. */
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char *format, ...);

void *dynamic_shared();

/* Waits for the threads of the block that have not ended; how many of them gave a predicate that is not 0. */
int block_barrier(bool predicate, const char *file, int line);

/* What the lanes of a warp gave to one operation; those in `present` did. */
struct lanes {
    uint32_t present;
    uint64_t value[32];
};

/* Waits for the lanes in `mask` that have not ended, all of which must do the same operation with the same mask. Valid
 * until this CUDA thread's next operation. */
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
    const grid of = {name,
                     blocks,
                     threads,
                     shared_bytes,
                     [](const void *arg) {
                         const packed *p = static_cast<const packed *>(arg);
                         std::apply(p->kernel, p->arguments);
                     },
                     sizeof(packed)};
    cudaError_t error = check(of);
    if (error == cudaSuccess) {
        void *memory = malloc(sizeof(packed));
        if (!memory) die("no memory for the launch");
        new (memory) packed{of, kernel, std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)};
        error = cuda_emulation_enqueue(
            stream, [](void *arg) { run(static_cast<const packed *>(arg)->of, arg); }, memory);
    }
    if (error != cudaSuccess) cuda_emulation_set_last_error(error);
}

} // namespace cuda_emulation

#endif
