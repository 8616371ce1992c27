/* SPDX-License-Identifier: MIT */
/* Codes that steps read and write by themselves (mm_graph_allow_code). */
#ifndef MM_CORE_PLAN_PLAN_CODES_H
#define MM_CORE_PLAN_PLAN_CODES_H

#include "mm/core/plan/plan.h"

/* Whether the segment has a code, which the step reads in place of the elements of its use. */
static inline bool mm_use_is_coded(const mm_use *use, const mm_segment *segment) {
    return use->form == MM_FORM_VALUE && segment->content == MM_CONTENT_CODED;
}

/* The segment to which a node writes the code of its use u; -1: none. */
static inline int32_t mm_node_code(const mm_plan *plan, const mm_node *node, int u) {
    return node->first_code < 0 ? -1 : plan->bindings[node->first_code + u];
}

/* The step's declaration (mm_graph_allow_code) that it can read or write the codec's code of its use `use` by itself;
 * NULL: it cannot, or the code has no strips. tensor: the root. */
const mm_step_code *mm_step_code_of(const mm_graph_facts *facts, const mm_step_info *step, int use, mm_access access,
                                    int codec, mm_tensor tensor);

/* Whether any of the plan's codes is lossy. */
bool mm_plan_is_lossy(const mm_plan *plan, const mm_graph_facts *facts);

/* Bytes of a step's workspace: its variant's, and what it needs for the codes that it reads and writes. */
int64_t mm_node_work_bytes(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *node);

/* How much longer a step takes for the codes that it reads and writes (u: for that use's alone; -1: for all). A code
 * takes the codec's time, less a pass over the map in memory if the memory's rate is known. */
int64_t mm_node_codes_ns(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *node, int u);

#endif
