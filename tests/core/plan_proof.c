/* SPDX-License-Identifier: MIT */
#include "tests/core/plan_proof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "mm/core/check/counterexample.h"
#include "mm/core/check/plan_check.h"
#include "mm/core/status.h"

/* Checks the execution with which a refusal is explained: the waits allow it, and what must come first comes too
 * late. */
static void check_counterexample(const mm_program *p, const mm_violation *v) {
    mm_counterexample e;
    assert_int_equal(mm_counterexample_make(p, v, &e), MM_OK);
    for (int i = 0; e.periods && i < p->n; i++) {
        const mm_piece *piece = &p->pieces[i];
        assert_true(e.periods[i].end_ns > e.periods[i].start_ns);
        for (int s = 0; s < MM_STREAM_COUNT; s++) {
            const int32_t seq = s == (int)piece->stream ? piece->seq - 1 : piece->wait[s];
            if (seq >= 0) assert_true(e.periods[p->at[s][seq]].end_ns <= e.periods[i].start_ns);
        }
    }
    if (e.late >= 0) {
        assert_int_equal(p->pieces[e.at].node, v->node);
        assert_int_equal(p->pieces[e.late].node, v->other);
        const mm_period *at = &e.periods[e.at];
        assert_true(e.periods[e.late].end_ns > (v->rule == MM_RULE_FREED ? at->end_ns : at->start_ns));
    } else if (v->other >= 0)
        assert_int_equal(v->other, v->node);
    mm_counterexample_fini(&e);
}

static mm_status check_form(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits) {
    mm_violation violation;
    return mm_check_form(
        &(mm_check){.plan = plan, .graph = plan->graph, .facts = facts, .limits = limits, .violation = &violation});
}

bool plan_is_formed(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits) {
    return check_form(plan, facts, limits) == MM_OK;
}

mm_status plan_prove(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits, bool *exact_out) {
    mm_program program;
    mm_violation violation;
    MM_TRY(check_form(plan, facts, limits));
    MM_TRY(mm_program_init(plan, facts, &program));
    mm_status status = mm_program_prove_or_say(&program, facts, limits, exact_out, &violation);
    if (status == MM_ERR_PLAN) {
        char said[512];
        snprintf(said, sizeof said, "%s", mm_last_error());
        check_counterexample(&program, &violation);
        mm_fail_set("%s", said);
    }
    mm_program_fini(&program);
    return status;
}

mm_status plan_check(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits) {
    return plan_prove(plan, facts, limits, NULL);
}
