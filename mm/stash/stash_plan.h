/* SPDX-License-Identifier: MIT */
/* From an order to a proved plan: which entries callers keep, and where the others lie when. Needs no device. */
#ifndef MM_STASH_STASH_PLAN_H
#define MM_STASH_STASH_PLAN_H

#include "mm/planning/planning.h"
#include "mm/stash/stash_graph.h"

/* What orders are planned by. Borrowed. */
typedef struct mm_stash_terms {
    const mm_policy *policy;
    const mm_policy
        *signing;       /* the same with exact signs beside lossy codes (mm_stash_sign_policy); NULL: entries that need
                                 signs are never in a lossy code */
    const char *device; /* its name */
    mm_rates rates;
    const mm_facts *facts; /* measured times; NULL: none */
    int64_t device_bytes, pinned_bytes;
    const volatile int *stop; /* mm_limits.stop */
} mm_stash_terms;

typedef struct mm_stash_plan {
    bool *kept; /* per entry */
    int64_t kept_bytes;
    mm_stash_graph graph;
    mm_planned planned;   /* of the entries that are not kept; plan NULL: there are none */
    int64_t needed_bytes; /* the least budget; 0: not known */
    int64_t cpu_ns;       /* that planning took */
} mm_stash_plan;

/* What a refusal says, as data. */
typedef struct mm_stash_refused {
    int64_t needed_bytes, device_bytes, tensor_bytes; /* needed_bytes 0: nothing is refused */
    int tensor;                                       /* the entry that is put, got or read where most is needed */
    char producer[64], policy[256];                   /* of the entry; that would fit, "": none is known */
} mm_stash_refused;

/* Plans. An order that fits the budget as a whole is kept. Of others, entries that the plan never moves are kept, if
 * what is left is enough for the rest, and for entries that are served unplanned should an iteration leave the plan.
 * MM_ERR_INFEASIBLE: *refused_out says more. MM_ERR_UNSUPPORTED: a policy that moves what is held. The caller frees the
 * plan with mm_stash_plan_fini, even after a failure. */
MM_CHECKED mm_status mm_stash_plan_make(const mm_stash_terms *terms, const mm_order *order, mm_stash_plan *plan_out,
                                        mm_stash_refused *refused_out);
/* Makes a policy whose rules have, before each with a lossy codec, one with the codec 'signs:CODEC' for layers with the
 * part mm_stash_signs_part. MM_ERR_INVALID: a rule that cannot have it. Errors of mm_codec_create. The caller frees
 * it. */
MM_CHECKED mm_status mm_stash_sign_policy(const mm_policy *policy, const char *device, mm_policy *signed_out);
void mm_stash_plan_fini(mm_stash_plan *plan);

/* The bytes of the arena that the plan uses, from its beginning on. */
int64_t mm_stash_plan_extent(const mm_stash_plan *plan);

/* Bytes of the arena, or of pinned memory, that an entry takes. */
static inline int64_t mm_stash_piece(const mm_stash_desc *kind) { return mm_align(kind->bytes); }

#endif
