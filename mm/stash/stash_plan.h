/* SPDX-License-Identifier: MIT */
/* From an order to a proved plan: which entries callers keep, and where the others lie when. Needs no device. */
#ifndef MM_STASH_STASH_PLAN_H
#define MM_STASH_STASH_PLAN_H

#include "mm/planning/planning.h"
#include "mm/stash/stash_graph.h"

/* What orders are planned with. Borrowed. */
typedef struct mm_stash_terms {
    const mm_policy *policy;
    const mm_policy
        *signing;       /* `policy` with exact signs beside lossy codes (mm_stash_sign_policy); NULL: entries that need
                           signs never get a lossy code */
    const char *device; /* the device's name */
    mm_rates rates;
    const mm_facts *facts; /* measured times; NULL: none */
    int64_t device_bytes, pinned_bytes, disk_bytes;
    bool take_always;         /* callers keep nothing */
    bool keep_always;         /* they keep everything */
    const volatile int *stop; /* mm_limits.stop */
} mm_stash_terms;

typedef struct mm_stash_plan {
    bool *kept; /* per entry */
    int64_t kept_bytes;
    mm_stash_graph graph;
    mm_planned planned;   /* the plan of the entries that are not kept; planned.plan NULL: all are kept */
    int64_t needed_bytes; /* the least budget that is enough for the order; 0: not known */
    int64_t cpu_ns;       /* CPU time of planning */
} mm_stash_plan;

/* The contents of mm_stash_refusal. */
typedef struct mm_stash_refused {
    int64_t needed_bytes, device_bytes, tensor_bytes; /* needed_bytes 0: nothing is refused */
    int tensor;                                       /* the entry of the event that needs most */
    char producer[MM_STASH_PRODUCER_CAPACITY],
        policy[256]; /* producer of that entry; a policy that would fit, "": none is
                                                         known */
} mm_stash_refused;

/* Plans an order. With take_always, callers keep nothing. If all its entries fit the budget, callers keep them all.
 * Otherwise callers keep the entries that the plan never moves, if the rest of the budget is enough for the other
 * entries, both under the plan and unplanned, in case an iteration leaves the plan. MM_ERR_INFEASIBLE: *refused_out
 * says more. MM_ERR_UNSUPPORTED: the plan does what a stash cannot do, such as moving held entries. The caller frees
 * the plan with mm_stash_plan_fini, even after a failure. */
MM_CHECKED mm_status mm_stash_plan_make(const mm_stash_terms *terms, const mm_order *order, mm_stash_plan *plan_out,
                                        mm_stash_refused *refused_out);
/* Makes a policy that has, before each rule with a lossy codec, a rule with the codec 'signs:CODEC' for layers with the
 * part mm_stash_signs_part. MM_ERR_INVALID: this cannot be done for some rule. Errors of mm_codec_create. The caller
 * frees it. */
MM_CHECKED mm_status mm_stash_sign_policy(const mm_policy *policy, const char *device, mm_policy *signed_out);
void mm_stash_plan_fini(mm_stash_plan *plan);

/* The plan's extent: the end of the bytes that it uses in the arena. */
int64_t mm_stash_plan_extent(const mm_stash_plan *plan);

/* Bytes of the arena, or of pinned memory, that an entry takes. */
static inline int64_t mm_stash_piece(const mm_stash_desc *kind) { return mm_align(kind->bytes); }

#endif
