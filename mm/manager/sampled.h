/* SPDX-License-Identifier: MIT */
/* What a graph's last sampling found (mm.h: mm_sampling_guards), by layer. */
#ifndef MM_MANAGER_SAMPLED_H
#define MM_MANAGER_SAMPLED_H

#include "mm/core/graph/graph.h"
#include "policies/rules/observer.h"

/* The manager owns all of it, until the policy or the budget changes or the graph is forgotten. */
typedef struct mm_sampled {
    int n; /* layers */
    const mm_watched *watched;
    const mm_tensor *coded; /* per layer: the tensor whose code has the bound: its input, or the root of the input's
                               storage */
    const mm_layer_sample *samples;
    const mm_layer_verdict *verdicts;
    const float *bounds; /* per tensor of the graph: the bounds that apply from now on (mm_bound_get) */
    mm_comet_config config;
} mm_sampled;

/* Between iterations. Judges pending samples, so call mm_sampling_report before. MM_ERR_NOT_FOUND:
 * the policy that runs now samples nothing of the graph. */
MM_CHECKED mm_status mm_sampled_get(mm_manager *manager, const mm_graph *graph, mm_sampled *sampled_out);

#endif
