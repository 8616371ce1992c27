/* SPDX-License-Identifier: MIT */
/* Operations on persistent tensors: gradients go to pinned memory and come back before the update, weights are copied
 * while the forward pass reads them. Every iteration has the bits of one without, also where iterations follow each
 * other without a wait. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/program.h"
#include "tests/core/test_case.h"
#include "tests/pipeline/dispatch_rig.h"

enum { LAYERS = 10, SEEDS = 12, ITERATIONS = 4 };

/* The next step after `step` that uses the tensor; -1: there is none. */
static int next_user(const mm_graph *graph, int step, mm_tensor tensor) {
    for (int s = step + 1; s < mm_graph_steps(graph); s++)
        for (int u = 0; u < mm_graph_step(graph, s)->n_uses; u++)
            if (mm_graph_step(graph, s)->uses[u].tensor == tensor) return s;
    return -1;
}

/* Adds a copy of a persistent tensor to pinned memory, and back, after the step that was planned last. */
static int add_trip(mm_plan *plan, mm_tensor tensor, int64_t *pinned_bytes) {
    const mm_tensor_info *info = mm_graph_tensor(plan->graph, tensor);
    const int copy = mm_plan_segment(plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, tensor, info->bytes);
    const int last = plan->n_nodes - 1;
    plan->segments[copy].memory = MM_MEM_PINNED;
    plan->segments[copy].offset = *pinned_bytes;
    *pinned_bytes += mm_align(info->bytes);
    const int out = mm_plan_op(plan, MM_NODE_OUT, tensor, info->persistent, copy);
    mm_plan_wait(plan, out, last);
    const int in = mm_plan_op(plan, MM_NODE_IN, tensor, copy, info->persistent);
    mm_plan_wait(plan, in, out);
    return in;
}

/* Makes a plan of the same steps, with copies out and back of the persistent tensors that each step uses. */
static mm_plan *with_trips(const mm_plan *plan, const mm_limits *limits) {
    mm_plan *made;
    int64_t pinned_bytes = 0;
    int *awaited = malloc((size_t)mm_graph_steps(plan->graph) * sizeof *awaited); /* per step */
    assert_non_null(awaited);
    for (int s = 0; s < mm_graph_steps(plan->graph); s++) awaited[s] = -1;
    assert_int_equal(mm_plan_create(plan->graph, limits, &made), MM_OK);
    for (int i = mm_graph_persistents(plan->graph); i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        const int copy = mm_plan_segment(made, s->content, s->category, s->tensor, s->bytes);
        made->segments[copy].offset = s->offset;
    }
    memcpy(made->alias, plan->alias, (size_t)mm_graph_tensors(plan->graph) * sizeof *plan->alias);
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        const mm_step_info *step = mm_graph_step(plan->graph, n->step);
        const int node = mm_plan_step(made, n->step);
        made->nodes[node].work = n->work;
        memcpy(&made->bindings[made->nodes[node].first_binding], &plan->bindings[n->first_binding],
               (size_t)step->n_uses * sizeof *plan->bindings);
        if (awaited[n->step] >= 0) mm_plan_wait(made, node, awaited[n->step]);
        for (int u = 0; u < step->n_uses; u++) {
            const mm_tensor tensor = step->uses[u].tensor;
            const mm_tensor_info *info = mm_graph_tensor(plan->graph, tensor);
            const int next = next_user(plan->graph, n->step, tensor);
            if (next >= 0 && info->persistent >= 0 && (info->kind == MM_WEIGHT_GRADIENT || info->kind == MM_WEIGHT))
                awaited[next] = add_trip(made, tensor, &pinned_bytes);
        }
    }
    free(awaited);
    assert_int_equal(mm_plan_finish(made), MM_OK);
    return made;
}

TEST_CASE(gradients_and_weights_travel_and_every_bit_stays) {
    int64_t trips = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        rig r;
        mm_dispatch_stats stats;
        const bool ahead = seed % 2, on_stream = ahead || seed % 4;
        const rig_options options = {.seed = seed,
                                     .layers = LAYERS,
                                     .policy = "liveness",
                                     .issue = seed % 3 ? MM_ISSUE_THREAD : MM_ISSUE_INLINE,
                                     .self_check = !ahead && seed % 4 == 2,
                                     .delay_max_ns = seed % 5 ? 100000 : 0,
                                     .change = with_trips};
        rig_init(&r, &options);
        int64_t bytes = 0;
        for (int i = 0; i < r.planned.plan->n_segments; i++)
            if (r.planned.plan->segments[i].memory == MM_MEM_PINNED) bytes += r.planned.plan->segments[i].bytes;
        for (int i = 0; i < ITERATIONS; i++)
            if ((ahead ? rig_iteration_ahead(&r) : rig_iteration(&r, on_stream, NULL)) != MM_OK)
                fail_msg("seed %d: %s", (int)seed, mm_last_error());
        assert_int_equal(mm_dispatch_sync(r.dispatch), MM_OK);
        mm_dispatch_stats_get(r.dispatch, &stats);
        assert_int_equal(stats.out_bytes, ITERATIONS * bytes);
        assert_int_equal(stats.in_bytes, ITERATIONS * bytes);
        if (rig_digest(&r) != rig_expected(&r, seed, ITERATIONS)) fail_msg("seed %d: other bits", (int)seed);
        trips += stats.out_bytes;
        rig_fini(&r);
    }
    assert_true(trips > 0);
}
