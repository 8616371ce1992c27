/* SPDX-License-Identifier: MIT */
/* The learning rate over time. */
#ifndef NETS_LR_SCHEDULE_H
#define NETS_LR_SCHEDULE_H

#include "mm/core/status.h"

enum { NETS_SCHEDULE_STEPS = 8 };

typedef enum nets_schedule_id {
    NETS_SCHEDULE_STEP,   /* `rate`, multiplied by `factor` at each of the rising iterations at[0] .. at[n - 1] */
    NETS_SCHEDULE_COSINE, /* rises linearly to `rate` over `warmup` iterations, then falls as half a cosine and reaches
                             zero after `iterations`: Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts */
    NETS_SCHEDULES
} nets_schedule_id;

/* If all members but `rate` are zero, the rate is constant. */
typedef struct nets_schedule {
    nets_schedule_id id;
    float rate, factor;
    int n;
    int64_t at[NETS_SCHEDULE_STEPS];
    int64_t warmup, iterations;
} nets_schedule;

/* Reads "constant" or "cosine[,warmup=N]" into the id and the warmup. MM_ERR_INVALID: any other text; the message lists
 * the schedules. */
MM_CHECKED mm_status nets_schedule_parse(const char *text, nets_schedule *schedule);

/* MM_ERR_INVALID: a rate or factor is not positive and finite, there are too many steps, the steps do not rise, or the
 * warmup is as long as all iterations. */
MM_CHECKED mm_status nets_schedule_check(const nets_schedule *schedule);

/* The rate of an iteration, from 0. */
float nets_schedule_rate(const nets_schedule *schedule, int64_t iteration);

#endif
