/* Inside the checker. */
#ifndef TESTS_CUDA_EMULATION_CHECK_ACCESS_H
#define TESTS_CUDA_EMULATION_CHECK_ACCESS_H

#include <cuda_runtime.h>

#include "tests/cuda_emulation/check.h"
#include "tests/cuda_emulation/check_memory.h"

namespace cuda_emulation {

/* ATOMIC: reads and writes. */
enum class use { READ, WRITE, ATOMIC };

/* The launch that runs, and how far it is. */
struct progress {
    uint32_t launch; /* a number of its own, for each run */
    uint64_t block;
    uint32_t barrier; /* how many the block has passed */
};

inline bool is_shared(const check_memory *m) { return m->kind == CHECK_SHARED || m->kind == CHECK_SHARED_DYNAMIC; }

/* Of a CUDA thread, or, where none runs here, of an emulated library; about to happen. */
void check_access(const void *at, size_t bytes, use as);

/* Dies if the bytes from `offset` on were touched by another thread that this one does not come after. first(at,
 * bytes): of those that the launch has not written before, and now will. */
void check_race(check_memory *m, size_t offset, size_t bytes, use as, const witness &w, const progress &now,
                void (*first)(const char *at, size_t bytes));

/* As die, of an access: what it is of which memory, then the format. */
[[noreturn]] __attribute__((format(printf, 6, 7))) void
check_fail(const char *which, use as, size_t bytes, const void *at, const check_memory *m, const char *format, ...);

} // namespace cuda_emulation

#endif
