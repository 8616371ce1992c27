#include "nets/schedule.h"

#include <math.h>

mm_status nets_schedule_check(const nets_schedule *schedule) {
    if (!(schedule->rate > 0) || !isfinite(schedule->rate))
        return mm_fail(MM_ERR_INVALID, "learning rate %g: must be positive", (double)schedule->rate);
    if (schedule->n < 0 || schedule->n > NETS_SCHEDULE_STEPS)
        return mm_fail(MM_ERR_INVALID, "%d steps of the learning rate, at most %d", schedule->n, NETS_SCHEDULE_STEPS);
    if (schedule->n > 0 && (!(schedule->factor > 0) || !isfinite(schedule->factor)))
        return mm_fail(MM_ERR_INVALID, "learning rate's factor %g: must be positive", (double)schedule->factor);
    for (int i = 1; i < schedule->n; i++)
        if (schedule->at[i] <= schedule->at[i - 1])
            return mm_fail(MM_ERR_INVALID, "learning rate's steps: %lld comes after %lld", (long long)schedule->at[i],
                           (long long)schedule->at[i - 1]);
    return MM_OK;
}

float nets_schedule_rate(const nets_schedule *schedule, int64_t iteration) {
    float rate = schedule->rate;
    for (int i = 0; i < schedule->n && schedule->at[i] <= iteration; i++) rate *= schedule->factor;
    return rate;
}
