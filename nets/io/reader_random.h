/* SPDX-License-Identifier: MIT */
/* A counter-based random number generator: any number of any sequence is computed directly, so results do not depend on
 * the order of calls. Each key has a sequence of its own: that of mm/core/splitmix.h, started from the key. */
#ifndef NETS_IO_READER_RANDOM_H
#define NETS_IO_READER_RANDOM_H

#include "mm/core/splitmix.h"

/* The purpose of a sequence. Sequences of different purposes are independent. */
enum nets_random_purpose {
    NETS_RANDOM_SHUFFLE = 1,
    NETS_RANDOM_AUGMENT,
    NETS_RANDOM_PATTERN,
    NETS_RANDOM_NOISE,
    NETS_RANDOM_REGION
};

/* 64 random bits: number `counter` of the sequence `key`. */
static inline uint64_t nets_random_at(uint64_t key, uint64_t counter) {
    return mm_random_mix(key + (counter + 1) * MM_RANDOM_GAMMA);
}

/* The key of the sequence for a purpose, a seed and two more numbers, such as epoch and sample. */
static inline uint64_t nets_random_key(enum nets_random_purpose purpose, uint64_t seed, uint64_t a, uint64_t b) {
    return nets_random_at(nets_random_at(nets_random_at(mm_random_mix(seed), purpose), a), b);
}

/* Maps 64 random bits to 0..n-1, with a bias below n / 2^64. */
static inline uint64_t nets_random_below(uint64_t bits, uint64_t n) {
    return (uint64_t)(((unsigned __int128)bits * n) >> 64);
}

#endif
