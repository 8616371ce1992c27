/* SPDX-License-Identifier: MIT */
/* Kernels with one fault each, which the checker of kernels (check.h) must find, and the same kernels without it. */
#ifndef TESTS_CUDA_EMULATION_PLANTED_H
#define TESTS_CUDA_EMULATION_PLANTED_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PLANTED_THREADS = 64, PLANTED_BLOCKS = 2, PLANTED_ELEMS = PLANTED_THREADS * PLANTED_BLOCKS };

/* Memory for the kernels, PLANTED_ELEMS elements each. `fresh` was never written; `host` is not device memory. */
typedef struct planted_memory {
    int *values, *out, *fresh, *host;
} planted_memory;

#define PLANTED(X)                                                                                                     \
    X(past_the_end)                                                                                                    \
    X(before_the_beginning)                                                                                            \
    X(past_dynamic_shared)                                                                                             \
    X(past_an_array)                                                                                                   \
    X(misaligned)                                                                                                      \
    X(memory_of_the_host)                                                                                              \
    X(stack_of_another)                                                                                                \
    X(writes_a_constant)                                                                                               \
    X(unwritten_shared)                                                                                                \
    X(unwritten_variable)                                                                                              \
    X(unwritten_device)                                                                                                \
    X(read_before_barrier)                                                                                             \
    X(write_before_barrier)                                                                                            \
    X(shuffle_for_syncwarp)                                                                                            \
    X(syncwarp_of_others)                                                                                              \
    X(blocks_write_one_place)                                                                                          \
    X(block_reads_of_another)                                                                                          \
    X(threads_write_one_byte)                                                                                          \
    X(plain_beside_atomic)                                                                                             \
    X(order_of_blocks)                                                                                                 \
    X(half_at_barrier)                                                                                                 \
    X(half_has_ended)                                                                                                  \
    X(half_in_the_mask)

#define X(name) void planted_##name(cudaStream_t stream, planted_memory memory, bool faulty);
PLANTED(X)
#undef X

#ifdef __cplusplus
}
#endif

#endif
