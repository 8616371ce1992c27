/* SPDX-License-Identifier: MIT */
#include "tools/need/plan_work.h"

#include "mm/core/account/account.h"
#include "mm/core/hash.h"
#include "mm/core/plan/plan_digest.h"
#include "policies/policy.h"

_Static_assert(MM_MAX_CODECS <= 32, "a bit for each codec");

unsigned plan_work_lossy_codecs(const mm_graph_facts *facts) {
    unsigned codecs = 0;
    for (int i = 0; i < facts->n_codecs; i++)
        if (!facts->codecs[i].lossless) codecs |= 1u << i;
    return codecs;
}

void plan_work_add(plan_work *work, const mm_plan *plan, unsigned lossy_codecs) {
    work->digest = mm_hash_word(work->digest ? work->digest : MM_HASH_BEGIN, mm_plan_digest(plan));
    work->acts |= mm_account_moves(plan).offloads > 0 || mm_account_steps_again(plan) > 0;
    for (int i = 0; i < plan->n_segments; i++) {
        const int32_t codec = plan->segments[i].codec;
        work->acts |= codec >= 0;
        work->lossy |= codec >= 0 && (lossy_codecs >> codec & 1);
    }
}
