/* SPDX-License-Identifier: MIT */
/* Small graphs, solved exactly: the bound of the time is at most the optimum, and that is at most what plans take.
 *
 * The optimum is that of Checkmate (Jain et al., MLSys 2020), made so that it is below every plan without a link: stage
 * t runs step t for the first time, and before it any forward steps again. A value is held from one stage to the next,
 * or made in a stage from values that are held or made there. What is held while step t runs, and what t uses, fits. */
#include <stdlib.h>

#include "mm/core/time/simulate.h"
#include "mm/core/time/time_bound.h"
#include "tests/core/expect.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"
#include "tests/policies/milp.h"
#include "tests/policies/terse_graph.h"

enum { LAYERS = 5, STEPS_MOST = 2 * LAYERS + 4, TENSORS_MOST = 64 };

typedef struct subject {
    mm_graph *graph;
    mm_graph_facts *facts;
} subject;

/* x0 -> layer1 -> x1 -> ... -> loss, some layers also with a map from further back; maps of one to seven units, steps
 * of 1 to 30 us. The backward step of a layer reads what its forward step read, and every other what it wrote; that of
 * one layer reads neither, so that a map may be needed for recomputations alone. */
static subject subject_create(uint64_t seed) {
    subject s;
    terse_graph g;
    uint64_t random = seed;
    const int bare = 1 + (int)(seed % LAYERS);
    int back[LAYERS + 1];
    char uses[64];
    terse_init(&g, "small");
    terse_persistent(&g, "loss", 1);
    for (g.i = 0; g.i <= LAYERS; g.i++) {
        const int units = 1 + random_below(&random, 7);
        terse_map(&g, "x#", MM_FEATURE_MAP, units);
        terse_map(&g, "d#", MM_GRADIENT_MAP, units);
        back[g.i] = g.i > 2 ? random_below(&random, g.i) : 0;
    }
    g.i = 0;
    terse_step(&g, "layer#", MM_LAYER_CONV, MM_FORWARD, "=x0");
    for (g.i = 1; g.i <= LAYERS; g.i++) {
        if (back[g.i] > 0 && back[g.i] < g.i - 1)
            snprintf(uses, sizeof uses, "x< x%d =x#", back[g.i]);
        else
            snprintf(uses, sizeof uses, "x< =x#");
        terse_step(&g, "layer#", g.i % 2 ? MM_LAYER_CONV : MM_LAYER_POOL, MM_FORWARD, uses);
    }
    g.i = LAYERS;
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "x# +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "x# =d#");
    for (; g.i >= 1; g.i--)
        terse_step(&g, "layer#", g.i % 2 ? MM_LAYER_CONV : MM_LAYER_POOL, MM_BACKWARD,
                   g.i == bare ? "d# =d<"
                   : g.i % 2   ? "x< d# =d<"
                               : "x< x# d# =d<");
    s.graph = terse_freeze(&g);
    s.facts = terse_facts(s.graph, -1);
    for (int i = 0; i < mm_graph_steps(s.graph); i++) s.facts->variants[i].ns = 1000 * (1 + random_below(&random, 30));
    s.facts->out_bytes_per_s = s.facts->in_bytes_per_s = 1000000000; /* not used: there is no pinned memory */
    for (int i = 0; i < s.facts->n_codecs * s.facts->n_tensors; i++)
        s.facts->codes[i].encode_ns = s.facts->codes[i].decode_ns = 1000; /* not used: no codec serves a reader */
    return s;
}

static void subject_destroy(subject *s) {
    mm_graph_facts_destroy(s->facts);
    mm_graph_destroy(s->graph);
}

/* ---------------------------------------------------------------- the optimum */

typedef struct model {
    const subject *s;
    milp *m;
    int writer[TENSORS_MOST];               /* step that writes the tensor; -1: it is not managed */
    int again[STEPS_MOST][STEPS_MOST];      /* [stage][step]: variable: it runs again; -1: it cannot */
    int held[STEPS_MOST + 1][TENSORS_MOST]; /* [stage][tensor]: variable: it is held from the stage before; -1: no */
} model;

static bool uses(const mm_step_info *step, mm_tensor t, bool writes) {
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == t && (step->uses[u].access == MM_WRITE) == writes) return true;
    return false;
}

static void add_variables(model *m) {
    const mm_graph *graph = m->s->graph;
    const int n = mm_graph_steps(graph);
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++) {
        m->writer[t] = -1;
        for (int s = n - 1; s >= 0 && mm_graph_tensor(graph, t)->ownership == MM_MANAGED; s--)
            if (uses(mm_graph_step(graph, s), t, true)) m->writer[t] = s;
    }
    for (int t = 0; t <= n; t++) {
        for (int s = 0; t < n && s < n; s++) {
            const bool may =
                s < t && mm_graph_step(graph, s)->phase == MM_FORWARD && mm_graph_step_properties(graph, s)->repeatable;
            m->again[t][s] = may ? milp_variable(m->m, true, (double)m->s->facts->variants[s].ns) : -1;
        }
        for (mm_tensor v = 0; v < mm_graph_tensors(graph); v++)
            m->held[t][v] = t < n && m->writer[v] >= 0 && m->writer[v] < t ? milp_variable(m->m, true, 0) : -1;
    }
}

/* Adds the rows that say: each tensor that step s reads in stage t is held at its start, or made in it. */
static void add_reads(model *m, int t, int s) {
    const mm_step_info *step = mm_graph_step(m->s->graph, s);
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor v = step->uses[u].tensor;
        if (m->writer[v] < 0 || step->uses[u].access != MM_READ) continue;
        milp_row(m->m, s == t ? -1 : 0);
        if (s != t) milp_term(m->m, m->again[t][s], 1);
        milp_term(m->m, m->held[t][v], -1);
        milp_term(m->m, m->again[t][m->writer[v]], -1);
    }
}

static void add_stage(model *m, int t, double room) {
    const mm_graph *graph = m->s->graph;
    const mm_step_info *step = mm_graph_step(graph, t);
    for (int s = 0; s <= t; s++)
        if (s == t || m->again[t][s] >= 0) add_reads(m, t, s);
    for (mm_tensor v = 0; v < mm_graph_tensors(graph); v++) {
        if (m->held[t + 1][v] < 0 || m->writer[v] == t) continue;
        milp_row(m->m, 0);
        milp_term(m->m, m->held[t + 1][v], 1);
        milp_term(m->m, m->held[t][v], -1);
        milp_term(m->m, m->again[t][m->writer[v]], -1);
    }
    double used = 0;
    for (mm_tensor v = 0; v < mm_graph_tensors(graph); v++)
        if (m->writer[v] >= 0 && (uses(step, v, true) || uses(step, v, false)))
            used += (double)mm_graph_tensor(graph, v)->bytes;
    milp_row(m->m, room - used);
    for (mm_tensor v = 0; v < mm_graph_tensors(graph); v++)
        if (!uses(step, v, true) && !uses(step, v, false))
            milp_term(m->m, m->held[t + 1][v], (double)mm_graph_tensor(graph, v)->bytes);
}

/* The least time of a schedule; < 0: none fits. */
static double optimum(const subject *s, const mm_limits *limits) {
    model m = {.s = s, .m = milp_create()};
    double ns = 0;
    assert_in_range(mm_graph_steps(s->graph), 1, STEPS_MOST);
    add_variables(&m);
    for (int t = 0; t < mm_graph_steps(s->graph); t++) {
        add_stage(&m, t, (double)(limits->device_bytes - limits->base_bytes));
        ns += (double)s->facts->variants[t].ns;
    }
    const double again = milp_solve(m.m);
    milp_destroy(m.m);
    return again < 0 ? -1 : ns + again;
}

/* ---------------------------------------------------------------- between the bound and the plans */

/* The plan's time; -1: it does not fit. */
static int64_t plan_ns(const subject *s, const char *spec, const mm_limits *limits, int64_t *peak_out) {
    mm_policy policy;
    mm_plan *plan;
    mm_simulation sim;
    expect_ok(mm_policy_parse(spec, &policy));
    expect_ok(mm_policy_plan(&policy, s->graph, s->facts, limits, &plan));
    mm_policy_fini(&policy);
    expect_ok(mm_simulate(plan, s->facts, &sim));
    const bool fits = plan->peak_bytes <= limits->device_bytes;
    if (peak_out) *peak_out = plan->peak_bytes;
    const int64_t ns = fits ? sim.iteration_ns : -1;
    mm_simulation_fini(&sim);
    mm_plan_destroy(plan);
    return ns;
}

typedef struct tally {
    int optima, met, above_steps; /* optima found; those that a plan reaches; those above the steps' sum */
} tally;

/* Compares bound, optimum and plans. with_auto: also auto's plan, which takes longer than all others to make. */
static void compare(const subject *s, const mm_limits *limits, uint64_t seed, bool with_auto, tally *tally) {
    static const char *const policies[] = {"recompute:mode=nested",
                                           "recompute:mode=sqrt",
                                           "recompute",
                                           "recompute:mode=memory",
                                           "rotor",
                                           "knapsack",
                                           "auto"};
    mm_time_bound bound;
    int64_t steps = 0;
    for (int i = 0; i < mm_graph_steps(s->graph); i++) steps += s->facts->variants[i].ns;
    expect_ok(mm_time_bound_of(s->graph, s->facts, limits, &bound));
    const double least = optimum(s, limits);
    if (least >= 0 && (double)bound.ns > least)
        fail_msg("seed %d: an optimum of %.0f ns, a bound of %lld", (int)seed, least, (long long)bound.ns);
    tally->optima += least >= 0;
    tally->above_steps += bound.ns > steps + 1000;
    bool met = false;
    for (size_t p = 0; p < sizeof policies / sizeof *policies - !with_auto; p++) {
        const int64_t ns = plan_ns(s, policies[p], limits, NULL);
        if (ns < 0) continue;
        if (least < 0 || (double)ns + 0.5 < least)
            fail_msg("seed %d, %s: %lld ns, the optimum is %.0f", (int)seed, policies[p], (long long)ns, least);
        met |= (double)ns < least + 0.5;
    }
    tally->met += met;
}

/* Where nothing can be copied, what keeps most may need least. */
TEST_CASE(without_pinned_memory_auto_needs_no_more_than_policies_that_recompute) {
    static const char *const policies[] = {"recompute:mode=nested", "recompute:mode=sqrt", "recompute",
                                           "recompute:mode=speed", "recompute:mode=memory"};
    int without_nested = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        subject s = subject_create(seed);
        const mm_limits limits = {.device_bytes = 1, .base_bytes = mm_plan_base(s.graph)};
        int64_t least, nested = 0;
        plan_ns(&s, "auto", &limits, &least);
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            int64_t peak;
            plan_ns(&s, policies[p], &limits, &peak);
            if (least > peak)
                fail_msg("seed %d: auto needs %lld bytes, %s %lld", (int)seed, (long long)least, policies[p],
                         (long long)peak);
            if (p == 0) nested = peak;
            without_nested += peak < nested;
        }
        subject_destroy(&s);
    }
    assert_true(without_nested > 0);
}

TEST_CASE(the_optimum_is_between_the_bound_and_every_plan) {
    tally tally = {0};
    if (!milp_is_there()) skip();
    for (uint64_t seed = 1; seed <= 12; seed++) {
        subject s = subject_create(seed);
        mm_limits limits = {.device_bytes = INT64_MAX, .base_bytes = mm_plan_base(s.graph)};
        int64_t most, least;
        plan_ns(&s, "liveness", &limits, &most);
        limits.device_bytes = 1;
        plan_ns(&s, "recompute:mode=nested", &limits, &least);
        for (int b = 0; b < 4; b++) {
            limits.device_bytes = least + (most - least) * b / 3;
            compare(&s, &limits, seed, b == 1, &tally);
        }
        subject_destroy(&s);
    }
    assert_int_equal(tally.optima, 48);
    assert_true(tally.met >= 30 && tally.above_steps >= 20);
}
