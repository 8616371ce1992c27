/* SPDX-License-Identifier: MIT */
/* Philox4x32-10, a counter-based random number generator: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011. The same key and counter give the same four words on every device, so random numbers need not be stored for
 * a step that is recomputed or a tensor that is encoded again. */
#ifndef MM_CORE_PHILOX_H
#define MM_CORE_PHILOX_H

#include <stdint.h>

#ifndef MM_PHILOX_FUNCTION
#define MM_PHILOX_FUNCTION static inline /* .cu files define it with __device__ */
#endif

MM_PHILOX_FUNCTION void mm_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
