/* SPDX-License-Identifier: MIT */
/* Forecasts an iteration from its plans: bytes, copies, and the simulator's time. */
#ifndef TOOLS_NEED_FORECAST_H
#define TOOLS_NEED_FORECAST_H

#include "mm/core/account/account.h"
#include "tools/need/need.h"
#include "tools/need/plan_work.h"

typedef enum forecast_times {
    FORECAST_NO_TIMES,
    FORECAST_NOMINAL, /* with the facts' times; with nominal ones if the facts have none */
    FORECAST_FACTS    /* with the facts' times only; forecast.untimed names what they lack */
} forecast_times;

/* Bytes are the largest of any pass. Copies, steps and times are sums over an iteration. */
typedef struct forecast {
    int64_t peak_bytes, stash_bytes, pinned_bytes, disk_bytes;
    mm_moves moves;
    int64_t steps_again, defragmentations;
    plan_work work;   /* of all passes */
    char holder[256]; /* the step at which the plan reaches the peak */
    bool fits;
    bool cut_short;                 /* the search for a plan was stopped; this is the best found so far (mm_plan) */
    const char *pinned_hint;        /* mm_plan_pinned_hint */
    char untimed[MM_SPEC_CAPACITY]; /* an operation for which the facts have no time; "": none */
    int64_t iteration_ns, codec_ns; /* valid if `untimed` is "" */
    double hidden_ns;               /* the part of codec_ns that is hidden behind computation */
    /* Lower bound of the time: no plan with these codecs that fits the budget (without one: the plan's peak) takes less
     * (mm/core/time/time_bound.h). INT64_MAX: unknown, because times are missing, or a plan does not fit, or has a
     * heap. */
    int64_t bound_ns;
    bool any_home; /* of plans with any homes of weights and states; else of those that have them on the device */
} forecast;

/* budget_bytes 0: no budget, so any plan fits. most_out: receives the simulation of the pass with the largest minimum,
 * unless times is FORECAST_NO_TIMES; the caller ends it with mm_simulation_fini. NULL: not wanted. */
MM_CHECKED mm_status forecast_of(const need *n, int64_t budget_bytes, int64_t pinned_bytes, forecast_times times,
                                 forecast *forecast_out, mm_simulation *most_out);

#endif
