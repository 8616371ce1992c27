/* SPDX-License-Identifier: MIT */
/* Copies of persistent tensors on their way home: their bytes on the device are kept from others until the copy can be
 * expected to have ended, so that no step waits for it; but no more bytes than the limits allow for copies. */
#ifndef POLICIES_SCHEDULE_LEAVING_H
#define POLICIES_SCHEDULE_LEAVING_H

#include "policies/schedule/schedule.h"

typedef struct mm_leaving_copy {
    int group;
    int64_t bytes, ends_ns;
} mm_leaving_copy;

typedef struct mm_leaving {
    mm_leaving_copy *copies; /* in the order of the link: those from `first` on are under way */
    int first, n;
    int64_t bytes, most; /* under way, and the most of that */
    int64_t free_ns;     /* when the link has copied all so far */
} mm_leaving;

/* Makes room for n copies. most: 0: nothing is kept. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_leaving_init(mm_leaving *leaving, int n, int64_t most);
void mm_leaving_fini(mm_leaving *leaving);

/* The tensor in `segment` leaves at begins_ns, and takes ns on the link. */
void mm_leaving_add(mm_leaving *leaving, const mm_schedule *schedule, int segment, int64_t begins_ns, int64_t ns);
/* Before a step that begins at now_ns: gives the bytes free of the copies that have ended, and of the oldest if there
 * are too many. */
void mm_leaving_look(mm_leaving *leaving, mm_schedule *schedule, int64_t now_ns);

#endif
