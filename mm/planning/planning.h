/* SPDX-License-Identifier: MIT */
/* Makes a checked plan from a policy and a graph. Needs no device: the manager plans with it, and so does `mm plan`. */
#ifndef MM_PLANNING_PLANNING_H
#define MM_PLANNING_PLANNING_H

#include "mm/core/plan/plan_measures.h"
#include "mm/core/plan/program.h"
#include "pipeline/codec/codec.h"
#include "policies/policy.h"

/* A plan, and what it was made from. Owns all of it. The struct may be moved. */
typedef struct mm_planned {
    mm_plan *plan;
    mm_program *program; /* the lowered plan, which was proved and is issued */
    bool *exact;         /* per segment: mm_program_prove */
    mm_graph_facts *facts;
    int64_t block_offset; /* offset in the arena of the block that codecs read on the device
                             (pipeline/codec/code_block.h), */
    int64_t block_bytes;  /* and the block's bytes; 0: none of the policy's codecs reads a block */
    mm_codec **codecs;    /* MM_MAX_CODECS entries, of which facts->n_codecs are set, the rest NULL */
} mm_planned;

/* A graph that is to be planned. */
typedef struct mm_new_graph {
    const mm_graph *graph;
    bool recomputes; /* there is a function that recomputes its layers (mm_recompute_set) */
} mm_new_graph;

/* Rates from a device's description (mm_device_description), and of a disk, for planning without measured times. 0: not
 * known. */
typedef struct mm_rates {
    int64_t memory_bytes_per_s, link_bytes_per_s, disk_bytes_per_s;
} mm_rates;

/* Checks that `device` has the codecs that the policy needs, and that the policy can use them. Errors of
 * mm_codec_create and mm_policy_check_codec. */
MM_CHECKED mm_status mm_planned_try_codecs(const mm_policy *policy, const char *device);

/* Creates the codecs that the policy needs on `device`, and facts with their sizes and no times. A caller may then add
 * measured times to planned->facts (mm_facts_apply). Errors of mm_codec_create. The caller frees it with
 * mm_planned_fini. */
MM_CHECKED mm_status mm_planned_init(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                     const char *device);
/* Adds the rates to the facts, unless these have their own. */
void mm_planned_set_rates(mm_planned *planned, const mm_rates *rates);

/* Makes planned->plan, and replaces an earlier one. If a codec of the policy reads numbers on the device, the block of
 * these numbers lies right above limits.base_bytes, and the plan above the block: plan->base_bytes includes both. With
 * limits.disk_bytes, what does not fit the pinned memory may go on to the disk, if that is predicted to be faster than
 * what the policy does without, or if nothing else fits. The plan is proved within its own size;
 * mm_plan_fits says whether that is within the limits. Errors of mm_policy_plan, and MM_ERR_PLAN. On failure an earlier
 * plan stays. */
MM_CHECKED mm_status mm_planned_make(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                     const mm_limits *limits);

/* Gives planned->plan to the caller, who destroys it. The plan's graph may be destroyed before it, if nobody reads the
 * graph through the plan. */
mm_plan *mm_planned_release(mm_planned *planned);

/* As mm_planned_make, but takes over a plan that was made for an equal graph, with the same facts and within these
 * limits. It is proved like any other; *plan becomes NULL. MM_ERR_PLAN: the plan has another base_bytes, and stays the
 * caller's; or it is no plan for this graph, and is destroyed. */
MM_CHECKED mm_status mm_planned_take(mm_planned *planned, mm_plan **plan, const mm_graph *graph,
                                     const mm_limits *limits);

/* Makes from planned->plan one that also measures (mm_plan_add_measures). places: as in mm_limits, of its persistent
 * tensors. *measured_out has no facts and no codecs of its own: it uses those of `planned`. Errors of
 * mm_plan_add_measures and mm_program_prove. The caller frees it with mm_planned_fini. */
MM_CHECKED mm_status mm_planned_add_measures(const mm_planned *planned, const mm_place *places, const mm_measure_at *at,
                                             int n, mm_planned *measured_out);
void mm_planned_fini(mm_planned *planned);

#endif
