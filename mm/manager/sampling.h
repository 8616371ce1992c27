/* SPDX-License-Identifier: MIT */
/* Sampling: under a policy that observes (policies/rules/observer.h), each graph's first iteration and every W-th after
 * it run a plan that also measures. In these iterations the error bounds are 0, so codes are lossless. From the
 * measurements the policy chooses the bounds of later iterations.
 *
 * The plan is the graph's own with measures added (mm_plan_add_measures), so it takes the same memory. Bounds lie in
 * device memory (values.h), so a recording of the graph's own plan stays valid. */
#ifndef MM_MANAGER_SAMPLING_H
#define MM_MANAGER_SAMPLING_H

#include "mm/manager/manager.h"

struct mm_sampling {
    const mm_observer *observer;
    mm_comet_config config;
    mm_planned planned; /* the graph's plan with measures; its facts and codecs are not set: those of the graph's own
                           plan are used */
    mm_execution *execution;
    int n; /* layers */
    mm_watched *watched;
    mm_tensor *coded; /* per layer: the tensor whose code has the bound, the root of its input's storage */
    mm_layer_sample *samples;
    mm_layer_verdict *verdicts;
    bool pending; /* the policy has not judged the latest samples yet */
};

/* Makes ready->sampling for a graph that is about to be ready under `policy`. ready->sampling stays NULL if the policy
 * does not observe, or no code of the plan has a bound. MM_ERR_NOMEM, MM_ERR_DEVICE, MM_ERR_PLAN. */
MM_CHECKED mm_status mm_sampling_create(const mm_manager *manager, const mm_policy *policy, mm_ready *ready);
/* NULL is legal. */
void mm_sampling_destroy(mm_sampling *sampling);

/* Whether the graph's next iteration that runs step by step samples. */
bool mm_sampling_is_due(const mm_ready *ready);
/* Judges pending samples, if there are any, and sets the bounds. To be called before an iteration begins, and before
 * the graph is planned anew. */
void mm_sampling_judge(mm_ready *ready);
/* Notes that an iteration has ended. If it sampled, takes what it measured. */
void mm_sampling_note_end(mm_ready *ready, bool sampled);

#endif
