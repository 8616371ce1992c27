/* SPDX-License-Identifier: MIT */
/* The words of NETS_RNG (role.h), a persistent tensor of training graphs. For C and CUDA. */
#ifndef NETS_RNG_H
#define NETS_RNG_H

/* The halted word if an iteration ended after some weights were updated, and not all. */
enum { NETS_TORN = 1 << 30 };

enum {
    NETS_RNG_SEED = 0,      /* and 1: the seed's low and high words */
    NETS_RNG_ITERATION = 2, /* and 3: how many updates were made */
    NETS_RNG_HALTED = 4,    /* not 0: updates are halted (nets_optimizer.only_finite) */
    NETS_RNG_IMAGE = 5,     /* the index of the pass's first image in the whole batch (nets_pass) */
    NETS_RNG_WORDS
};

#endif
