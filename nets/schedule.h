/* The learning rate over time: steps. */
#ifndef NETS_SCHEDULE_H
#define NETS_SCHEDULE_H

#include "mm/core/status.h"

enum { NETS_SCHEDULE_STEPS = 8 };

/* `rate`, multiplied by `factor` at each of the iterations `at[0 .. n)`, which increase. */
typedef struct nets_schedule {
    float rate, factor;
    int n;
    int64_t at[NETS_SCHEDULE_STEPS];
} nets_schedule;

/* MM_ERR_INVALID: a rate or factor that is not positive and finite, too many steps, steps that do not increase. */
MM_CHECKED mm_status nets_schedule_check(const nets_schedule *schedule);

/* The rate of an iteration, from 0. */
float nets_schedule_rate(const nets_schedule *schedule, int64_t iteration);

#endif
