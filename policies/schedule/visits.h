/* SPDX-License-Identifier: MIT */
/* Visits: the times at which a persistent tensor whose home is in pinned memory is on the device. A visit begins with
 * a copy from the home, unless its first step writes the tensor in full, and ends after its last step: with a copy back
 * if a step has written the tensor, else without. Steps that are near each other share a visit. A forward step that
 * runs again may need a visit of its own. A step on the host uses the home itself: no visit spans it.
 *
 * A copy begins so early that it ends when the visit's first step begins, if the link has nothing else to do; but no
 * more bytes wait on the device than the limits allow (mm_limits.ahead_bytes). */
#ifndef POLICIES_SCHEDULE_VISITS_H
#define POLICIES_SCHEDULE_VISITS_H

#include "policies/schedule/schedule.h"

/* Finds the visits of a schedule that begins. Does nothing if all homes are on the device. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_visits_init(mm_schedule *schedule);
void mm_visits_fini(mm_visits *visits);

/* Before a step is appended: begins the visits that are due. False: out of memory. */
bool mm_visits_before(mm_schedule *schedule, int step);
/* After the step was appended as `node`: ends the visits whose last step it is. False: out of memory. */
bool mm_visits_after(mm_schedule *schedule, int step, int node);

/* The same for a step that runs again ahead of step `when`. */
bool mm_visits_before_again(mm_schedule *schedule, int step);
/* Begins the copies for a step that runs again soon, if the budget has room for them. False: out of memory. */
bool mm_visits_expect_again(mm_schedule *schedule, int step);
void mm_visits_after_again(mm_schedule *schedule, int step, int when);

/* Makes the step at `node`, which runs on the host, wait until its tensors are at home, and may be changed there. */
void mm_visits_use_homes(mm_schedule *schedule, int step, int node);

#endif
