/* What to run when memory is short: the policy that is wanted, if its plans fit; else the first of its substitutes
 * (policies/fallback.h) whose plans do. It only drafts plans: nothing changes. */
#ifndef MM_DESCEND_H
#define MM_DESCEND_H

#include "mm/plan_set.h"

typedef struct mm_wish {
    const mm_policy *policy;
    mm_limits limits;
    bool is_short;            /* there is less memory than was asked for: substitutes may stand in */
    const mm_newcomer *added; /* or NULL */
    bool others_stay;         /* the others keep their plans if the new one fits by what is run now */
} mm_wish;

/* Drafts what fits. The caller ends the draft. MM_ERR_INFEASIBLE: nothing does; the message says what the policy needs, and
 * which one would fit. */
MM_CHECKED mm_status mm_wish_draft(const mm_plan_set *set, const mm_wish *wish, mm_draft *draft_out);

#endif
