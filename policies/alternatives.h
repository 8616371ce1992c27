/* SPDX-License-Identifier: MIT */
/* Why a plan does with a map what it does: what would come of another action.
 *
 * The engine plans the same actions anew, each map with the one that the plan has for it; then with another action for
 * one map alone. Both are drafts: bytes are the live ones, without gaps of a placement, and no step waits for bytes
 * that are used again. So a draft whose bytes exceed the budget shows that no placement of those actions fits; and two
 * drafts are compared with each other, not one with the plan. What a draft says is faster is placed before it is
 * told. */
#ifndef POLICIES_ALTERNATIVES_H
#define POLICIES_ALTERNATIVES_H

#include "mm/core/account/account_stash.h"
#include "policies/rules/config.h"

/* Why a map has no other action. */
typedef enum mm_why {
    MM_WHY_UNKNOWN,    /* it was not looked for, or its codec is none of the policy's */
    MM_WHY_ROOM,       /* the map is kept, and that fits: nothing is cheaper */
    MM_WHY_IMPOSSIBLE, /* the map cannot have it: no layer can make it again, or more than its signs are read */
    MM_WHY_BARRED,     /* it cannot have it as long as other maps have their actions */
    MM_WHY_DEVICE,     /* it would need `bytes` more than there are, at `step` */
    MM_WHY_PINNED,     /* it would need `bytes` more of pinned memory than there are */
    MM_WHY_PLACES,     /* its live bytes would fit, but no placement was found */
    MM_WHY_SLOWER,     /* an iteration would take `ns` more */
    MM_WHY_EQUAL,      /* an iteration would take as long, to a thousandth */
    MM_WHY_FASTER,     /* an iteration would take `ns` less, and it fits: the policy did not do it */
    MM_WHYS
} mm_why;

/* The reason in a word: "device", "slower". */
const char *mm_why_name(mm_why why);

typedef struct mm_alternative {
    mm_why why;
    int64_t bytes, ns;
    int step; /* of the graph */
} mm_alternative;

typedef struct mm_alternatives_of {
    const mm_plan *plan;
    const mm_graph_facts *facts; /* with times, of the plan's codecs */
    const mm_stash_account *stash;
    const mm_decision *decisions;       /* of the stash's maps */
    const mm_engine_config *config;     /* of the plan's policy */
    int64_t device_bytes, pinned_bytes; /* what there is; device_bytes 0: what the plan takes */
} mm_alternatives_of;

/* The plan's actions planned anew. */
typedef struct mm_anew {
    int64_t ns;          /* time of an iteration of that draft */
    int64_t plan_ns;     /* and of the plan */
    int64_t peak_bytes;  /* its most live bytes */
    int64_t limit_bytes; /* what MM_WHY_DEVICE compares with: what there is, or if it takes more itself, that */
} mm_anew;

typedef struct mm_alternatives mm_alternatives;

/* Plans the plan's actions anew, in the way that comes nearest to the plan's time. Borrows what `of` points to.
 * MM_ERR_NOMEM. The caller destroys it. */
MM_CHECKED mm_status mm_alternatives_create(const mm_alternatives_of *of, mm_alternatives **alternatives_out);
void mm_alternatives_destroy(mm_alternatives *a);
mm_anew mm_alternatives_anew(const mm_alternatives *a);

/* What would come of another action on a map (its index in the stash): KEEP, MASK, RECOMPUTE or SWAP. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_alternatives_try(mm_alternatives *a, int map, mm_remedy_kind action,
                                         mm_alternative *alternative_out);

#endif
