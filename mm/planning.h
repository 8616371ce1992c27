/* From a policy and a graph to a checked plan: what the manager does before it runs anything, and what can be asked
 * without a device. */
#ifndef MM_PLANNING_H
#define MM_PLANNING_H

#include "mm/core/program.h"
#include "pipeline/codec/codec.h"
#include "policies/policy.h"

/* A plan and what it was made from. May be moved: whoever borrows from it borrows what it points to. */
typedef struct mm_planned {
    mm_plan *plan;
    mm_program *program; /* of the plan: what was proved, and is issued */
    bool *exact;         /* of each of the plan's segments: mm_program_prove */
    mm_facts *facts;
    mm_codec **codecs; /* facts->n_codecs of them; NULL up to MM_MAX_CODECS */
} mm_planned;

/* What a device tells of itself (mm_device_description), for plans that are made without measured times. 0: not
 * known. */
typedef struct mm_rates {
    int64_t memory_bytes_per_s, link_bytes_per_s;
} mm_rates;

/* Whether the codecs that the policy asks for can be had on `device`; the errors of mm_codec_create. */
MM_CHECKED mm_status mm_planned_try_codecs(const mm_policy *policy, const char *device);

/* Codecs that the policy asks for, as on `device`, and the facts that follow from them; no times. A caller may add
 * measured ones to planned->facts (mm_facts_apply) before it plans. */
MM_CHECKED mm_status mm_planned_init(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                     const char *device);
/* Adds them to the facts that have none of their own. */
void mm_planned_tell(mm_planned *planned, const mm_rates *rates);

/* Makes planned->plan, in place of one that it has. It is proved at the size that it needs: whether that is within
 * the limits, mm_plan_fits tells. */
MM_CHECKED mm_status mm_planned_make(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                     const mm_limits *limits);
void mm_planned_fini(mm_planned *planned);

#endif
