/* SPDX-License-Identifier: MIT */
#include "nets/lr_schedule.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct schedule_kind {
    mm_status (*check)(const nets_schedule *schedule);
    float (*rate)(const nets_schedule *schedule, int64_t iteration);
} schedule_kind;

static mm_status check_steps(const nets_schedule *schedule) {
    if (schedule->n < 0 || schedule->n > NETS_SCHEDULE_STEPS)
        return mm_fail(MM_ERR_INVALID, "the learning rate has %d steps, at most %d are possible", schedule->n,
                       NETS_SCHEDULE_STEPS);
    if (schedule->n > 0 && (!(schedule->factor > 0) || !isfinite(schedule->factor)))
        return mm_fail(MM_ERR_INVALID, "learning rate's factor %g: must be positive", (double)schedule->factor);
    for (int i = 1; i < schedule->n; i++)
        if (schedule->at[i] <= schedule->at[i - 1])
            return mm_fail(MM_ERR_INVALID, "learning rate's steps must rise: %lld comes after %lld",
                           (long long)schedule->at[i], (long long)schedule->at[i - 1]);
    return MM_OK;
}

static float stepped_rate(const nets_schedule *schedule, int64_t iteration) {
    float rate = schedule->rate;
    for (int i = 0; i < schedule->n && schedule->at[i] <= iteration; i++) rate *= schedule->factor;
    return rate;
}

static mm_status check_cosine(const nets_schedule *schedule) {
    if (schedule->warmup >= 0 && schedule->warmup < schedule->iterations) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "learning rate's warmup of %lld iterations: must be from 0 to below all %lld",
                   (long long)schedule->warmup, (long long)schedule->iterations);
}

/* The rate of the cosine schedule: above zero in every iteration before `iterations`. */
static float cosine_rate(const nets_schedule *schedule, int64_t iteration) {
    const double pi = 3.14159265358979323846;
    const int64_t warmup = schedule->warmup, at = iteration - warmup, all = schedule->iterations - warmup;
    if (at < 0) return (float)(schedule->rate * (double)(iteration + 1) / (double)warmup);
    return at >= all ? 0 : (float)(schedule->rate * 0.5 * (1 + cos(pi * (double)at / (double)all)));
}

static const schedule_kind KINDS[] = {
    [NETS_SCHEDULE_STEP] = {check_steps, stepped_rate}, [NETS_SCHEDULE_COSINE] = {check_cosine, cosine_rate}};
_Static_assert(sizeof KINDS / sizeof *KINDS == NETS_SCHEDULES, "an entry for each");

mm_status nets_schedule_parse(const char *text, nets_schedule *schedule) {
    static const char COSINE[] = "cosine", WARMUP[] = ",warmup=";
    if (strcmp(text, "constant") == 0) {
        schedule->id = NETS_SCHEDULE_STEP;
        return MM_OK;
    }
    bool cosine = strncmp(text, COSINE, sizeof COSINE - 1) == 0;
    const char *rest = text + (cosine ? sizeof COSINE - 1 : 0);
    long long warmup = 0;
    if (cosine && strncmp(rest, WARMUP, sizeof WARMUP - 1) == 0) {
        const char *number = rest + sizeof WARMUP - 1;
        char *end;
        errno = 0;
        warmup = strtoll(number, &end, 10);
        cosine = !errno && end != number && warmup >= 0;
        rest = end;
    }
    if (!cosine || *rest)
        return mm_fail(MM_ERR_INVALID,
                       "learning rate's schedule '%.64s': must be constant or cosine[,warmup=N], N iterations from 0",
                       text);
    schedule->id = NETS_SCHEDULE_COSINE;
    schedule->warmup = warmup;
    return MM_OK;
}

mm_status nets_schedule_check(const nets_schedule *schedule) {
    if (!(schedule->rate > 0) || !isfinite(schedule->rate))
        return mm_fail(MM_ERR_INVALID, "learning rate %g: must be positive", (double)schedule->rate);
    return KINDS[schedule->id].check(schedule);
}

float nets_schedule_rate(const nets_schedule *schedule, int64_t iteration) {
    return KINDS[schedule->id].rate(schedule, iteration);
}
