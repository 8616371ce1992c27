/* SPDX-License-Identifier: MIT */
/* 'mm plan --which-gpu': which GPUs (gpu.h) a training fits, and how fast each is, as estimated. */
#ifndef TOOLS_PLAN_WHICH_GPU_H
#define TOOLS_PLAN_WHICH_GPU_H

#include <stdio.h>

#include "tools/plan/plan_case.h"

typedef struct which_gpu {
    const char *net;           /* as the user named it */
    const char *sub_batch;     /* value of --sub-batch; NULL: not given */
    need_case asked;           /* facts, budget and policy are set for each GPU */
    const arg_texts *policies; /* of those that fit, the fastest counts */
    int ranks;
    mm_sum_at sum_at;
    texts *texts;                             /* owns texts of the cases; borrowed */
    const volatile sig_atomic_t *interrupted; /* planning ends with the GPUs so far */
    const char *json;                         /* NULL: no file */
} which_gpu;

/* Refuses options of mm plan that are for one machine, or one budget. MM_ERR_INVALID. */
MM_CHECKED mm_status which_gpu_check_options(int argc, char **argv);

/* Plans for every GPU, each in its own budget (gpu_budget_bytes), and prints a table, the fastest first. *fits_out:
 * whether any GPU fits. */
MM_CHECKED mm_status which_gpu_run(const which_gpu *w, bool *fits_out);

#endif
