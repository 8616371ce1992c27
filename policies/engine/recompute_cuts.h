/* SPDX-License-Identifier: MIT */
/* Private to the engine: places to cut the forward pass between two steps. A cut is allowed after a step if the
 * backward pass reads all maps that are read across it anyway. */
#ifndef POLICIES_ENGINE_RECOMPUTE_CUTS_H
#define POLICIES_ENGINE_RECOMPUTE_CUTS_H

#include "policies/schedule/schedule.h"

typedef struct mm_cutter {
    const mm_schedule *schedule;
    int n;             /* steps */
    int64_t *weight;   /* per step: bytes of the maps that it makes and that the backward pass reads */
    int64_t *crossing; /* per step: bytes that later forward steps read across a cut after it */
    bool *open;        /* per step: a cut after it is allowed */
    int64_t total_weight;
} mm_cutter;

/* Borrows the schedule. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_cutter_init(mm_cutter *cutter, const mm_schedule *schedule);
void mm_cutter_fini(mm_cutter *cutter);

/* Cuts the steps from `from` to before `to` so that segments have at most `size` bytes, as far as allowed places
 * permit. Each cut is at the place with the least crossing bytes among those that leave its segment at least half of
 * `size`. cuts_out: the steps after which it cuts; room for to - from. Returns their number. */
int mm_cutter_cut(const mm_cutter *cutter, int from, int to, int64_t size, int *cuts_out);

/* Whether the tensor is a managed feature map that a forward step writes. */
bool mm_is_forward_map(const mm_schedule *schedule, mm_tensor tensor);

#endif
