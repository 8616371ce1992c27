/* SPDX-License-Identifier: MIT */
/* Executions that go wrong: what a plan that breaks a rule allows (SPECIFICATION.md, part 2). */
#ifndef MM_CORE_CHECK_COUNTEREXAMPLE_H
#define MM_CORE_CHECK_COUNTEREXAMPLE_H

#include "mm/core/check/plan_rules.h"

/* An execution, in units: each piece takes one, but for `late`. */
typedef struct mm_counterexample {
    mm_period *periods; /* per piece of the program; start_ns and end_ns are units */
    int32_t at;         /* piece that goes wrong; -1: none, the plan is wrong whatever its execution */
    int32_t late;       /* piece that takes longer than all others together, and has not ended when `at` starts (8.2:
                           when `at` ends). -1: none takes long: what `at` does is wrong in every execution */
} mm_counterexample;

/* Makes the execution. Without a late piece it is the issue order: one piece after the other. The program broke the
 * rule in mm_program_prove_or_say, which has passed its form and its pieces: rules 6.1 and later. For earlier rules
 * `at` is -1 and there are no periods. MM_ERR_NOMEM. The caller frees it with mm_counterexample_fini. */
MM_CHECKED mm_status mm_counterexample_make(const mm_program *program, const mm_violation *violation,
                                            mm_counterexample *example_out);
void mm_counterexample_fini(mm_counterexample *example);

#endif
