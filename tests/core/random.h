/* SPDX-License-Identifier: MIT */
/* Random numbers, the same in every run. All tests use these. */
#ifndef TESTS_CORE_RANDOM_H
#define TESTS_CORE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): advances the state. */
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform in [0, n). */
static inline int random_below(uint64_t *state, int n) { return (int)(random_next(state) % (uint64_t)n); }

/* True with a chance of `percent` in a hundred. */
static inline bool random_chance(uint64_t *state, int percent) { return random_below(state, 100) < percent; }

#endif
