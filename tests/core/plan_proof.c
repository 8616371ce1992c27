/* SPDX-License-Identifier: MIT */
#include "tests/core/plan_proof.h"

#include "mm/core/check/plan_check.h"
#include "mm/core/status.h"

mm_status plan_prove(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits, bool *exact_out) {
    mm_program program;
    mm_violation violation;
    MM_TRY(mm_check_form(
        &(mm_check){.plan = plan, .graph = plan->graph, .facts = facts, .limits = limits, .violation = &violation}));
    MM_TRY(mm_program_init(plan, facts, &program));
    mm_status status = mm_program_prove(&program, facts, limits, exact_out);
    mm_program_fini(&program);
    return status;
}

mm_status plan_check(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits) {
    return plan_prove(plan, facts, limits, NULL);
}
