/* SPDX-License-Identifier: MIT */
/* Private to the checker. */
#ifndef TESTS_CUDA_EMULATION_CHECK_ACCESS_H
#define TESTS_CUDA_EMULATION_CHECK_ACCESS_H

#include <cuda_runtime.h>

#include "tests/cuda_emulation/check.h"
#include "tests/cuda_emulation/check_memory.h"

namespace cuda_emulation {

/* ATOMIC reads and writes in one atomic step; PUT is an atomic write that reads nothing. */
enum class use { READ, WRITE, ATOMIC, PUT };

/* Progress of the launch that runs. */
struct progress {
    uint32_t launch; /* number of the run */
    uint64_t block;
    uint32_t barrier; /* number of barriers that the block has passed */
};

inline bool is_shared(const check_memory *m) { return m->kind == CHECK_SHARED || m->kind == CHECK_SHARED_DYNAMIC; }

/* Checks an access before it happens: that of a CUDA thread, or, if none runs, of an emulated library. */
void check_access(const void *at, size_t bytes, use as);

/* Dies if the access conflicts with an earlier one of another thread to the bytes from `offset` on, and nothing orders
 * the two. Calls first(at, bytes, as) for bytes that the launch is about to write for the first time, or to read before
 * it has read or written them. */
void check_race(check_memory *m, size_t offset, size_t bytes, use as, const witness &w, const progress &now,
                void (*first)(const char *at, size_t bytes, use as));

/* Counts what the launch does (traffic.h): one begins; it reads device memory; it is the first to use these bytes. */
void check_traffic_begins(const char *kernel);
void check_traffic_read(size_t bytes);
void check_traffic_first(size_t bytes, use as);

/* die() with a description of the access and its memory before the formatted text. */
[[noreturn]] __attribute__((format(printf, 6, 7))) void
check_fail(const char *which, use as, size_t bytes, const void *at, const check_memory *m, const char *format, ...);

} // namespace cuda_emulation

#endif
