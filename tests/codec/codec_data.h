/* SPDX-License-Identifier: MIT */
/* Test data: families of floats that stress different parts of a codec, the same in every run. */
#ifndef TESTS_CODEC_CODEC_DATA_H
#define TESTS_CODEC_CODEC_DATA_H

#include "tests/core/random.h"

typedef enum codec_family {
    FAMILY_UNIFORM,     /* uniform in [-1, 1) */
    FAMILY_SMOOTH,      /* neighbours are alike */
    FAMILY_CONSTANT,    /* each run of 16 is one value */
    FAMILY_RELU,        /* about half are 0 */
    FAMILY_SPARSE,      /* most are 0 */
    FAMILY_SINGLE,      /* one value in 16 is not 0 */
    FAMILY_TINY,        /* around 1e-30, where libzfp's scale overflows */
    FAMILY_SUBNORMAL,   /* all subnormal */
    FAMILY_HUGE,        /* close to the largest */
    FAMILY_LARGEST,     /* plus or minus the largest */
    FAMILY_MIXED,       /* exponents 60 apart */
    FAMILY_SHIFTED,     /* each run of 16 has its own exponent, any that exists */
    FAMILY_ZEROS,       /* 0 and -0 */
    FAMILY_MINUS_ZEROS, /* uniform, a third of it -0 */
    FAMILY_BITS,        /* any finite bit pattern */
    FAMILIES
} codec_family;

/* A state for random_next. Each seed gives another sequence. */
uint64_t codec_seed(uint64_t seed);

void codec_data_fill(float *values, int64_t n, codec_family family, uint64_t seed);

#endif
