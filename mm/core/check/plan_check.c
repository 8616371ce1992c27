/* SPDX-License-Identifier: MIT */
#include "mm/core/check/plan_check.h"

#include <stdlib.h>

#include "mm/core/status.h"

static void check_fini(mm_check *c) {
    free(c->clocks);
    free(c->node_at[0]);
    free(c->residences);
    free(c->current);
    free(c->seen);
    free(c->ran);
    free(c->ran_exactly);
    free(c->useful);
}

/* Allocates the passes' arrays. Call it after the pass `form`, when the plan's counts can be trusted. */
static mm_status check_init(mm_check *c) {
    const mm_plan *plan = c->plan;
    size_t n_nodes = (size_t)plan->n_nodes, n_tensors = (size_t)mm_graph_tensors(c->graph);
    c->clocks = malloc(((size_t)c->program->n + 1) * sizeof *c->clocks);
    c->node_at[0] = malloc((n_nodes + 1) * sizeof *c->node_at[0]);
    c->residences = malloc(((size_t)plan->n_segments + 1) * sizeof *c->residences);
    c->current = malloc((n_tensors + 1) * sizeof *c->current);
    c->seen = malloc(((size_t)plan->n_bindings + 1) * sizeof *c->seen);
    c->ran = malloc(((size_t)mm_graph_steps(c->graph) + 1) * sizeof *c->ran);
    c->ran_exactly = malloc(((size_t)mm_graph_steps(c->graph) + 1) * sizeof *c->ran_exactly);
    c->useful = calloc(n_nodes + 1, sizeof *c->useful);
    if (!c->useful || !c->clocks || !c->node_at[0] || !c->residences || !c->current || !c->seen || !c->ran ||
        !c->ran_exactly) {
        check_fini(c);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the proof of a plan of %d nodes", plan->n_nodes);
    }
    for (int s = 1; s < MM_STREAM_COUNT; s++) c->node_at[s] = c->node_at[s - 1] + plan->stream_nodes[s - 1];
    for (int i = 0; i < plan->n_nodes; i++) c->node_at[plan->nodes[i].stream][plan->nodes[i].seq] = i;
    return MM_OK;
}

/* All passes after `form`. */
static mm_status prove(mm_check *c, bool *exact_out) {
    MM_TRY(mm_check_pools(c));
    MM_TRY(mm_check_pieces(c));
    MM_TRY(check_init(c));
    mm_program_clocks(c->program, c->clocks);
    mm_status status = mm_check_uses(c);
    if (status == MM_OK) status = mm_check_sharing(c);
    if (status == MM_OK) status = mm_check_limits(c);
    for (int s = 0; status == MM_OK && exact_out && s < c->plan->n_segments; s++)
        exact_out[s] = c->residences[s].always_exact;
    check_fini(c);
    return status;
}

mm_status mm_program_prove_or_say(const mm_program *program, const mm_graph_facts *facts, const mm_limits *limits,
                                  bool *exact_out, mm_violation *violation_out) {
    const mm_plan *plan = program->plan;
    mm_check c = {.plan = plan,
                  .graph = plan->graph,
                  .facts = facts,
                  .limits = limits,
                  .program = program,
                  .violation = violation_out};
    MM_TRY(mm_check_form(&c));
    return prove(&c, exact_out);
}

mm_status mm_program_prove(const mm_program *program, const mm_graph_facts *facts, const mm_limits *limits,
                           bool *exact_out) {
    mm_violation violation;
    return mm_program_prove_or_say(program, facts, limits, exact_out, &violation);
}
