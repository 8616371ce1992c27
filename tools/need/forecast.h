/* SPDX-License-Identifier: MIT */
/* What an iteration takes by the plans at hand: bytes, copies, and time by the simulator. */
#ifndef TOOLS_NEED_FORECAST_H
#define TOOLS_NEED_FORECAST_H

#include "mm/core/account/account.h"
#include "tools/need/need.h"

typedef enum forecast_times {
    FORECAST_NO_TIMES,
    FORECAST_NOMINAL, /* by the facts' times, or nominal ones if these have none */
    FORECAST_FACTS    /* by the facts' times; what they have none of is told */
} forecast_times;

/* Of all passes: the most bytes of any, and the sums of an iteration. */
typedef struct forecast {
    int64_t peak_bytes, stash_bytes, pinned_bytes;
    mm_moves moves;
    int64_t steps_again, defragmentations;
    char holder[256]; /* the step that holds the peak */
    bool fits;
    bool cut_short;                 /* the search for a plan was stopped: it is the best so far (mm_plan) */
    const char *pinned_hint;        /* mm_plan_pinned_hint */
    char untimed[MM_SPEC_CAPACITY]; /* an operation that the facts have no time of; "": none */
    int64_t iteration_ns, codec_ns; /* valid if `untimed` is "" */
    double hidden_ns;               /* of codec_ns */
    /* No plan with these codecs takes less (mm/core/time/time_bound.h), in the budget, or in what the plans take.
     * INT64_MAX: not known, as without times, of plans that do not fit, or that have a heap, which the bound is not
     * for. */
    int64_t bound_ns;
} forecast;

/* budget_bytes 0: there is none, what the plans need fits. most_out: receives the simulation of the pass that needs
 * most, if there are times; the caller ends it; NULL: not wanted. */
MM_CHECKED mm_status forecast_of(const need *n, int64_t budget_bytes, int64_t pinned_bytes, forecast_times times,
                                 forecast *forecast_out, mm_simulation *most_out);

#endif
