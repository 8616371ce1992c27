/* SPDX-License-Identifier: MIT */
/* State of the tests of claims, which claims.c fills, and claims_look.c compares. */
#ifndef MM_MANAGER_CLAIMS_STATE_H
#define MM_MANAGER_CLAIMS_STATE_H

#include "mm/manager/claims.h"

/* What is tested of a use of a tensor by a node. */
typedef enum mm_claim_test {
    MM_CLAIM_NONE,  /* nothing: modified, or in place over another tensor */
    MM_CLAIM_SAME,  /* its bytes stay */
    MM_CLAIM_ALIAS, /* its bytes stay, and an output that equals it shares its storage */
    MM_CLAIM_MARK,  /* all of it is written */
} mm_claim_test;

typedef struct mm_claim_use {
    mm_claim_test test;
    int equals;    /* MARK: the use of which it is a copy (mm_graph_allow_alias); -1: none */
    int32_t first; /* MARK by a recomputation: index in `uses` of the first time's output; -1: not compared */
    uint8_t *data;
    int64_t bytes;
    int elem_bytes;         /* MARK: of mm_mark; 0: too small to be marked */
    uint64_t before, after; /* sums; after: of a MARK only if it is compared */
    uint64_t hole;          /* MARK: of mm_find_mark_async */
} mm_claim_use;

typedef struct mm_claim_memory {
    const char *name;
    const char *ownership;
    const void *data;
    int64_t bytes;
    uint64_t before, after;
} mm_claim_memory;

struct mm_claims {
    const mm_plan *plan;     /* of the iteration */
    mm_claim_use *uses;      /* as plan->bindings */
    bool *repeats;           /* per step: the plan has a recomputation of it */
    int32_t *nodes;          /* those that have begun, in order */
    uint64_t *pending;       /* for each: 0 once all of its results are there */
    int n_nodes, n_looked;   /* n_looked: those that were compared */
    mm_claim_memory *memory; /* what a recomputation may not change */
    int n_memory;
    uint64_t random;
    mm_failure undeclared; /* of the step under way */
};

/* Compares the results of the nodes whose results are there. MM_ERR_INVALID: the first that differs. */
MM_CHECKED mm_status mm_claims_look(mm_claims *claims);
/* Compares what a recomputation may not change. */
MM_CHECKED mm_status mm_claims_look_memory(const mm_claims *claims, int node);

#endif
