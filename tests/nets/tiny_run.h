/* SPDX-License-Identifier: MIT */
/* The tiny network, trained under a manager on device host, and its batches. */
#ifndef TESTS_NETS_TINY_RUN_H
#define TESTS_NETS_TINY_RUN_H

#include "nets/exec/exec.h"

enum { TINY_BATCH = 4, TINY_BATCHES = 3, TINY_SEED = 5 };
static const nets_optimizer TINY_SGD = {.momentum = 0.9f, .weight_decay = 1e-4f, .only_finite = true};

typedef struct tiny_run {
    nets_net *net;
    mm_manager *manager;
    nets_exec *exec;
    float *images[TINY_BATCHES];
    int32_t *labels[TINY_BATCHES];
} tiny_run;

/* Fails the test on an error. */
void tiny_run_init(tiny_run *run, const mm_options *options);
/* tiny_run_init under this manager, which tiny_run_fini destroys. */
void tiny_run_init_under(tiny_run *run, mm_manager *manager);
void tiny_run_fini(tiny_run *run);

#endif
