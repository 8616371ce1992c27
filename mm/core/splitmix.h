/* SPDX-License-Identifier: MIT */
/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): pseudo-random numbers that are the same everywhere. Two states that
 * differ give sequences that are independent for all that they are used for here; none is for secrets. */
#ifndef MM_CORE_SPLITMIX_H
#define MM_CORE_SPLITMIX_H

#include <stdint.h>

#define MM_RANDOM_GAMMA UINT64_C(0x9e3779b97f4a7c15)

/* The finalizer: a bijection that spreads each bit over all. */
static inline uint64_t mm_random_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The next 64 random bits; advances the state. */
static inline uint64_t mm_random_next(uint64_t *state) { return mm_random_mix(*state += MM_RANDOM_GAMMA); }

/* Mixes a number into a hash. */
static inline uint64_t mm_random_fold(uint64_t hash, uint64_t with) {
    return mm_random_mix(hash * MM_RANDOM_GAMMA + with);
}

#endif
