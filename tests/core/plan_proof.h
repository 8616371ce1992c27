/* SPDX-License-Identifier: MIT */
/* The proof of any plan, also of one that nobody would lower. */
#ifndef TESTS_CORE_PLAN_PROOF_H
#define TESTS_CORE_PLAN_PROOF_H

#include "mm/core/plan/program.h"

/* Lowers the plan and proves its program (mm_program_prove: its errors, its exact_out). A plan of wrong form is refused
 * before it is lowered. */
MM_CHECKED mm_status plan_prove(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits,
                                bool *exact_out);
/* Whether the plan is of the right form, so that it can be lowered. */
bool plan_is_formed(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits);
MM_CHECKED mm_status plan_check(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits);

#endif
