/* SPDX-License-Identifier: MIT */
/* Measures of maps, gradient maps and persistent tensors find what a plain loop finds, which runs the steps in
 * memory of its own; and an iteration with measures gives the same bits as one without. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan.h"
#include "mm/core/plan/plan_measures.h"
#include "tests/core/test_case.h"
#include "tests/pipeline/dispatch_rig.h"

enum { LAYERS = 10, SEEDS = 12, ITERATIONS = 3 };

/* The step after which a tensor is measured: the last that writes it, or in half of the graphs the first, so that
 * others change it later; of a persistent tensor that is only read, any. -1: it is not measured. */
static int measured_after(const mm_graph *graph, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(graph, tensor);
    const bool first = mm_graph_steps(graph) % 2;
    int found = -1;
    if (info->ownership == MM_EXTERNAL || info->dtype != MM_F32) return -1;
    for (int s = 0; s < mm_graph_steps(graph) && (found < 0 || !first); s++)
        for (int u = 0; u < mm_graph_step(graph, s)->n_uses; u++) {
            const mm_use *use = &mm_graph_step(graph, s)->uses[u];
            if (use->tensor == tensor && (use->access != MM_READ || info->persistent >= 0)) found = s;
        }
    return found;
}

/* The segment in which the step at `node` reads or writes a tensor. */
static int32_t segment_of(const mm_plan *plan, int node, mm_tensor tensor) {
    const mm_step_info *step = mm_graph_step(plan->graph, plan->nodes[node].step);
    int u = 0;
    while (step->uses[u].tensor != tensor) u++;
    return plan->bindings[plan->nodes[node].first_binding + u];
}

/* Makes a plan of the same steps, without operations but with measures. */
static mm_plan *with_measures(const mm_plan *plan, const mm_limits *limits) {
    (void)limits;
    const int tensors = mm_graph_tensors(plan->graph);
    mm_plan *made;
    int n = 0;
    mm_measure_at *at = calloc((size_t)tensors + 1, sizeof *at);
    assert_non_null(at);
    for (mm_tensor t = 0; t < tensors; t++) {
        const int step = measured_after(plan->graph, t);
        if (step >= 0) at[n++] = (mm_measure_at){.before = step + 1, .segment = segment_of(plan, step, t)};
    }
    assert_int_equal(mm_plan_add_measures(plan, at, n, &made), MM_OK);
    free(at);
    return made;
}

static mm_sums sums_of(const float *elements, int64_t n) {
    mm_sums sums = {0};
    for (int64_t i = 0; i < n; i++) {
        const double value = fabs((double)elements[i]);
        sums.nonzero += value > 0;
        sums.sum_abs += value;
        sums.sum_squares += value * value;
        if (value > sums.max_abs) sums.max_abs = value;
    }
    return sums;
}

static bool is_near(double value, double expected) { return fabs(value - expected) <= 1e-12 * expected; }

/* Runs an iteration in the plain loop's memory. found: per tensor, its sums after the step after which it is
 * measured. */
static void run_plain(plain *plain, mm_sums *found) {
    for (int s = 0; s < mm_graph_steps(plain->graph); s++) {
        plain_steps(plain, s, 1);
        for (mm_tensor t = 0; t < mm_graph_tensors(plain->graph); t++)
            if (measured_after(plain->graph, t) == s)
                found[t] = sums_of(plain->memory[t], mm_graph_tensor(plain->graph, t)->bytes / 4);
    }
}

/* Compares the measures of all tensors of a kind with those expected. Returns how many there were. */
static int compare(const rig *r, const mm_sums *expected, mm_tensor_kind kind) {
    int n = 0;
    for (mm_tensor t = 0; t < mm_graph_tensors(r->graph); t++) {
        mm_sums sums;
        const bool measured = mm_execution_sums(r->execution, t, &sums);
        const mm_tensor_info *info = mm_graph_tensor(r->graph, t);
        if (measured_after(r->graph, t) < 0) assert_false(measured);
        if (measured_after(r->graph, t) < 0 || info->kind != kind) continue;
        assert_true(measured);
        if (sums.nonzero != expected[t].nonzero || sums.max_abs != expected[t].max_abs ||
            !is_near(sums.sum_abs, expected[t].sum_abs) || !is_near(sums.sum_squares, expected[t].sum_squares))
            fail_msg("%s: %g, %g, %g, %g where %g, %g, %g, %g are due", info->name, sums.nonzero, sums.sum_abs,
                     sums.sum_squares, sums.max_abs, expected[t].nonzero, expected[t].sum_abs, expected[t].sum_squares,
                     expected[t].max_abs);
        n++;
    }
    return n;
}

TEST_CASE(measures_find_what_a_loop_finds) {
    static const mm_tensor_kind kinds[] = {MM_FEATURE_MAP, MM_GRADIENT_MAP, MM_WEIGHT, MM_WEIGHT_GRADIENT};
    int compared[sizeof kinds / sizeof *kinds] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        rig r;
        plain plain;
        const bool ahead = seed % 2, on_stream = ahead || seed % 4;
        const rig_options options = {.seed = seed,
                                     .layers = LAYERS,
                                     .policy = "liveness",
                                     .issue = seed % 3 ? MM_ISSUE_THREAD : MM_ISSUE_INLINE,
                                     .self_check = !ahead && seed % 4 == 2,
                                     .delay_max_ns = seed % 5 ? 100000 : 0,
                                     .change = with_measures};
        rig_init(&r, &options);
        plain_init(&plain, r.graph, seed);
        mm_sums *expected = calloc((size_t)mm_graph_tensors(r.graph), sizeof *expected);
        assert_non_null(expected);
        for (int i = 0; i < ITERATIONS; i++) {
            if ((ahead ? rig_iteration_ahead(&r) : rig_iteration(&r, on_stream, NULL)) != MM_OK)
                fail_msg("seed %d: %s", (int)seed, mm_last_error());
            run_plain(&plain, expected);
            if (ahead && i < ITERATIONS - 1) continue;
            assert_int_equal(mm_dispatch_sync(r.dispatch), MM_OK);
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) compared[k] += compare(&r, expected, kinds[k]);
        }
        if (rig_digest(&r) != rig_expected(&r, seed, ITERATIONS)) fail_msg("seed %d: other bits", (int)seed);
        free(expected);
        plain_fini(&plain);
        rig_fini(&r);
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) assert_true(compared[k] > 50);
}
