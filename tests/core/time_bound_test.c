/* SPDX-License-Identifier: MIT */
/* The bound of an iteration's time: below every plan that the check accepts, and what it is where that is known. */
#include <stdio.h>
#include <stdlib.h>

#include "mm/core/status.h"
#include "mm/core/time/simulate.h"
#include "mm/core/time/time_bound.h"
#include "tests/core/expect.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

static void set_rates(mm_graph_facts *facts, uint64_t seed) {
    facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1) << (24 + seed % 8);
    facts->in_both_bytes_per_s = facts->in_bytes_per_s / 2;
    facts->contention_permille = (int)(seed * 37 % 900);
    facts->link_contention_permille = (int)(seed * 53 % 400);
    facts->issue_ns = (int64_t)(seed % 7) * 100;
}

/* Whether the plan runs only repeatable layers again: the bound holds for plans that do. */
static bool repeats_well(const mm_plan *plan) {
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE &&
            !mm_graph_step_properties(plan->graph, plan->nodes[i].step)->repeatable)
            return false;
    return true;
}

/* The bound of the time in as much memory as the plan takes. */
static int64_t bound_of(const mm_plan *plan, const mm_graph_facts *facts) {
    mm_time_bound bound, any;
    expect_ok(mm_time_bound_beside(plan, facts, plan->peak_bytes, plan->pinned_bytes, &bound));
    const mm_limits limits = {.device_bytes = plan->peak_bytes, .pinned_bytes = plan->pinned_bytes};
    expect_ok(mm_time_bound_any_home(plan->graph, facts, &limits, &any));
    return any.ns > bound.ns ? any.ns : bound.ns;
}

/* Puts the homes of persistent tensors, of every other variant some into pinned memory. The caller frees the places. */
static mm_limits place_homes(const mm_graph *graph, uint64_t variant) {
    mm_place *places = calloc((size_t)mm_graph_persistents(graph) + 1, sizeof *places);
    mm_limits limits = {.places = places};
    assert_non_null(places);
    for (int t = 0, i = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
        if (tensor->persistent < 0) continue;
        const bool pinned = variant % 2 && tensor->first_use > 0 && tensor->shared == MM_ALLREDUCE_NOT && t % 4 > 0;
        int64_t *end = pinned ? &limits.pinned_base_bytes : &limits.base_bytes;
        places[i++] = (mm_place){.offset = *end, .memory = pinned ? MM_MEM_PINNED : MM_MEM_DEVICE};
        *end += mm_align(tensor->bytes);
    }
    return limits;
}

TEST_CASE(random_plans_take_at_least_the_bound) {
    int compared = 0, housed = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        const random_graph_options graph_options = {
            .seed = seed, .layers = 4 + (int)(seed % 12), .max_channels = 4, .images = 12};
        expect_ok(random_graph_create(&graph_options, &graph));
        expect_ok(random_facts_create(graph, seed, &facts));
        set_rates(facts, seed);
        for (uint64_t variant = 0; variant < 4; variant++) {
            const random_plan_options options = {
                .seed = seed + 1000 * variant, .lossy = variant != 3, .pools = variant % 2, .measures = variant == 2};
            mm_plan *plan;
            mm_simulation sim;
            const mm_limits limits = place_homes(graph, seed + variant);
            expect_ok(random_plan_create(graph, facts, &limits, &options, &plan));
            expect_ok(mm_simulate(plan, facts, &sim));
            const int64_t bound = bound_of(plan, facts);
            if (repeats_well(plan)) {
                compared++;
                housed += plan->pinned_base_bytes > 0;
                if (bound > sim.iteration_ns)
                    fail_msg("seed %d, %d: %lld ns, the bound is %lld", (int)seed, (int)variant,
                             (long long)sim.iteration_ns, (long long)bound);
            }
            mm_simulation_fini(&sim);
            mm_plan_destroy(plan);
            free((void *)limits.places);
        }
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(compared > 100 && housed > 50);
}

/* ---------------------------------------------------------------- what is known by hand */

enum { FIRST, WIDE, LAST, BACK, STEPS, A_BYTES = 4096, WIDE_BYTES = 65536, STEP_NS = 100000 };

typedef struct subject {
    mm_graph *graph;
    mm_graph_facts *facts;
} subject;

/* Forward: first writes a; wide reads a, writes w; last reads w, writes the loss. Backward: first reads a and the loss.
 * Only while `last` runs, which does not read a, can a be away. `kind`: that of the layer `first`. */
static subject subject_create(mm_layer_kind kind) {
    subject s;
    expect_ok(mm_graph_create("wide", &s.graph));
    const mm_tensor a = small_tensor(s.graph, "a", MM_FEATURE_MAP, MM_MANAGED, A_BYTES);
    const mm_tensor w = small_tensor(s.graph, "w", MM_FEATURE_MAP, MM_MANAGED, WIDE_BYTES);
    const mm_tensor loss = small_tensor(s.graph, "loss", MM_STATE, MM_PERSISTENT, 256);
    const mm_layer first = small_layer(s.graph, "first", kind), wide = small_layer(s.graph, "wide", MM_LAYER_OTHER);
    const mm_layer last = small_layer(s.graph, "last", MM_LAYER_LOSS);
    small_step(s.graph, first, MM_FORWARD, (mm_use[]){{a, MM_WRITE, MM_FORM_VALUE}}, 1, 0);
    small_step(s.graph, wide, MM_FORWARD, (mm_use[]){{a, MM_READ, MM_FORM_VALUE}, {w, MM_WRITE, MM_FORM_VALUE}}, 2, 0);
    small_step(s.graph, last, MM_FORWARD, (mm_use[]){{w, MM_READ, MM_FORM_VALUE}, {loss, MM_WRITE, MM_FORM_VALUE}}, 2,
               2 * A_BYTES);
    small_step(s.graph, first, MM_BACKWARD, (mm_use[]){{a, MM_READ, MM_FORM_VALUE}, {loss, MM_READ, MM_FORM_VALUE}}, 2,
               0);
    expect_ok(mm_graph_freeze(s.graph));
    expect_ok(mm_graph_facts_create(s.graph, 0, &s.facts));
    for (int i = 0; i < STEPS; i++) s.facts->variants[i].ns = STEP_NS;
    s.facts->out_bytes_per_s = A_BYTES * INT64_C(1000000000) / (5 * STEP_NS);
    s.facts->in_bytes_per_s = A_BYTES * INT64_C(1000000000) / (3 * STEP_NS);
    return s;
}

static void subject_destroy(subject *s) {
    mm_graph_facts_destroy(s->facts);
    mm_graph_destroy(s->graph);
}

/* Checks the bound where `last`, with w and its workspace, leaves `beside` bytes of the device. */
static void expect_bound(const subject *s, int64_t beside, int64_t pinned, int64_t expected) {
    const mm_limits limits = {
        .device_bytes = 256 + WIDE_BYTES + 2 * A_BYTES + beside, .pinned_bytes = pinned, .base_bytes = 256};
    mm_time_bound bound;
    expect_ok(mm_time_bound_of(s->graph, s->facts, &limits, &bound));
    if (expected == INT64_MAX ? bound.ns != expected : bound.ns > expected || bound.ns < expected - expected / 500)
        fail_msg("%lld bytes, %lld pinned: %lld ns, expected %lld", (long long)beside, (long long)pinned,
                 (long long)bound.ns, (long long)expected);
}

TEST_CASE(without_a_limit_it_is_the_time_of_the_steps) {
    subject s = subject_create(MM_LAYER_OTHER);
    const mm_limits limits = {.pinned_bytes = INT64_MAX};
    mm_time_bound bound;
    s.facts->variants[WIDE].ns = 2 * STEP_NS;
    expect_ok(mm_time_bound_of(s.graph, s.facts, &limits, &bound));
    assert_in_range(bound.ns, 5 * STEP_NS - 20, 5 * STEP_NS);
    expect_bound(&s, A_BYTES, 0, 5 * STEP_NS);
    subject_destroy(&s);
}

TEST_CASE(what_cannot_stay_goes_over_the_link_before_and_after) {
    subject s = subject_create(MM_LAYER_OTHER);
    expect_bound(&s, 0, INT64_MAX, 8 * STEP_NS); /* a is copied out for 5 steps' time, and in for 3 */
    expect_bound(&s, 0, A_BYTES, 8 * STEP_NS);
    expect_bound(&s, A_BYTES / 2, INT64_MAX, 9 * STEP_NS / 2); /* half of a stays: 2.5 before, 2 after */
    expect_bound(&s, 0, 0, INT64_MAX);
    expect_bound(&s, -1, INT64_MAX, INT64_MAX);
    s.facts->link_contention_permille = 1000;
    /* Beside a copy, steps do half of their work. */
    expect_bound(&s, A_BYTES / 2, INT64_MAX, (325 + 275) * STEP_NS / 100);
    s.facts->contention.known = true; /* expensive steps lose least: a quarter, if a decode runs, too */
    s.facts->contention.permille[MM_WORK_CHEAP][MM_WORK_LINK] = 2000;
    s.facts->contention.permille[MM_WORK_EXPENSIVE][MM_WORK_LINK] = 1000;
    s.facts->contention.permille[MM_WORK_EXPENSIVE][MM_WORK_DECODE] = 2000;
    expect_bound(&s, A_BYTES / 2, INT64_MAX, (2625 + 2375) * STEP_NS / 1000);
    subject_destroy(&s);
}

TEST_CASE(a_bound_that_is_enough_is_not_improved) {
    subject s = subject_create(MM_LAYER_OTHER);
    mm_limits limits = {
        .device_bytes = 256 + WIDE_BYTES + 2 * A_BYTES + A_BYTES / 2, .pinned_bytes = INT64_MAX, .base_bytes = 256};
    mm_time_bound whole, part;
    int less = 0;
    expect_ok(mm_time_bound_of(s.graph, s.facts, &limits, &whole));
    for (int percent = 50; percent <= 110; percent += 5) {
        limits.below_ns = whole.ns * percent / 100;
        expect_ok(mm_time_bound_of(s.graph, s.facts, &limits, &part));
        assert_true(part.ns <= whole.ns && (part.ns >= limits.below_ns || part.ns == whole.ns));
        less += part.ns < whole.ns;
    }
    assert_true(less > 0);
    subject_destroy(&s);
}

TEST_CASE(what_can_run_again_takes_its_time_again) {
    subject s = subject_create(MM_LAYER_CONV);
    expect_bound(&s, 0, 0, 5 * STEP_NS);
    expect_bound(&s, A_BYTES / 2, 0, 9 * STEP_NS / 2);
    expect_bound(&s, A_BYTES, 0, 4 * STEP_NS);
    /* Two fifths of a are copied out during two steps; the rest is recomputed: 2.6 steps' time. */
    expect_bound(&s, 0, INT64_MAX, 46 * STEP_NS / 10);
    subject_destroy(&s);
}

/* Makes a; then b, which equals a and, if `may`, may share its storage; then c, which may be written over b. a and c
 * are read at the end. */
static mm_graph *sharing(bool may) {
    mm_graph *graph;
    mm_tensor t[3];
    expect_ok(mm_graph_create("sharing", &graph));
    for (int i = 0; i < 3; i++)
        t[i] = small_tensor(graph, (const char *[]){"a", "b", "c"}[i], MM_FEATURE_MAP, MM_MANAGED, A_BYTES);
    const mm_layer layers[] = {small_layer(graph, "first", MM_LAYER_OTHER),
                               small_layer(graph, "second", MM_LAYER_OTHER),
                               small_layer(graph, "third", MM_LAYER_OTHER), small_layer(graph, "last", MM_LAYER_OTHER)};
    small_step(graph, layers[0], MM_FORWARD, (mm_use[]){{t[0], MM_WRITE, MM_FORM_VALUE}}, 1, 0);
    small_step(graph, layers[1], MM_FORWARD,
               (mm_use[]){{t[0], MM_READ, MM_FORM_VALUE}, {t[1], MM_WRITE, MM_FORM_VALUE}}, 2, 0);
    if (may) expect_ok(mm_graph_allow_alias(graph, t[0], t[1]));
    small_step(graph, layers[3], MM_FORWARD, (mm_use[]){{t[0], MM_READ, MM_FORM_VALUE}, {t[1], MM_READ, MM_FORM_VALUE}},
               2, 0);
    small_step(graph, layers[2], MM_FORWARD,
               (mm_use[]){{t[1], MM_READ, MM_FORM_VALUE}, {t[2], MM_WRITE, MM_FORM_VALUE}}, 2, 0);
    if (may) expect_ok(mm_graph_allow_inplace(graph, t[1], t[2]));
    small_step(graph, layers[2], MM_BACKWARD, (mm_use[]){{t[2], MM_READ, MM_FORM_VALUE}}, 1, 0);
    expect_ok(mm_graph_freeze(graph));
    return graph;
}

TEST_CASE(what_may_share_a_storage_takes_it_once) {
    for (int may = 0; may < 2; may++) {
        subject s = {.graph = sharing(may)};
        const mm_limits limits = {.device_bytes = A_BYTES};
        mm_time_bound bound;
        expect_ok(mm_graph_facts_create(s.graph, 0, &s.facts));
        expect_ok(mm_time_bound_of(s.graph, s.facts, &limits, &bound));
        assert_int_equal(bound.ns, may ? 0 : INT64_MAX);
        subject_destroy(&s);
    }
}

/* v and w are made from u, and are read at the end. In between, one step leaves no memory for any of the three. */
TEST_CASE(what_two_recomputations_read_is_made_once) {
    subject s;
    mm_tensor t[3];
    mm_layer layers[3];
    mm_time_bound bound;
    const mm_limits limits = {.device_bytes = 256 + 4 * A_BYTES, .base_bytes = 256};
    expect_ok(mm_graph_create("fork", &s.graph));
    for (int i = 0; i < 3; i++) {
        t[i] = small_tensor(s.graph, (const char *[]){"u", "v", "w"}[i], MM_FEATURE_MAP, MM_MANAGED, A_BYTES);
        layers[i] = small_layer(s.graph, (const char *[]){"first", "second", "third"}[i], MM_LAYER_CONV);
    }
    const mm_tensor loss = small_tensor(s.graph, "loss", MM_STATE, MM_PERSISTENT, 256);
    const mm_layer last = small_layer(s.graph, "last", MM_LAYER_LOSS);
    small_step(s.graph, layers[0], MM_FORWARD, (mm_use[]){{t[0], MM_WRITE, MM_FORM_VALUE}}, 1, 0);
    for (int i = 1; i < 3; i++)
        small_step(s.graph, layers[i], MM_FORWARD,
                   (mm_use[]){{t[0], MM_READ, MM_FORM_VALUE}, {t[i], MM_WRITE, MM_FORM_VALUE}}, 2, 0);
    small_step(s.graph, last, MM_FORWARD, (mm_use[]){{loss, MM_WRITE, MM_FORM_VALUE}}, 1, 4 * A_BYTES);
    small_step(s.graph, last, MM_BACKWARD, (mm_use[]){{t[1], MM_READ, MM_FORM_VALUE}, {t[2], MM_READ, MM_FORM_VALUE}},
               2, 0);
    expect_ok(mm_graph_freeze(s.graph));
    expect_ok(mm_graph_facts_create(s.graph, 0, &s.facts));
    for (int i = 0; i < mm_graph_steps(s.graph); i++) s.facts->variants[i].ns = STEP_NS;
    expect_ok(mm_time_bound_of(s.graph, s.facts, &limits, &bound));
    assert_in_range(bound.ns, 8 * STEP_NS - STEP_NS / 50, 8 * STEP_NS);
    subject_destroy(&s);
}

/* Three steps: the second uses a weight, the third another one, and the device has room for one of them. */
static int64_t bound_of_two_weights(mm_access access, int64_t pinned, bool any_home) {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_time_bound bound;
    expect_ok(mm_graph_create("weights", &graph));
    const mm_tensor x = small_tensor(graph, "x", MM_FEATURE_MAP, MM_MANAGED, 256);
    const mm_tensor v = small_tensor(graph, "v", MM_WEIGHT, MM_PERSISTENT, A_BYTES);
    const mm_tensor w = small_tensor(graph, "w", MM_WEIGHT, MM_PERSISTENT, A_BYTES);
    mm_layer layers[3];
    for (int i = 0; i < 3; i++) layers[i] = small_layer(graph, ((const char *[]){"a", "b", "c"})[i], MM_LAYER_OTHER);
    small_step(graph, layers[0], MM_FORWARD, (mm_use[]){{x, MM_WRITE, MM_FORM_VALUE}}, 1, 0);
    small_step(graph, layers[1], MM_FORWARD, (mm_use[]){{x, MM_READ, MM_FORM_VALUE}, {v, access, MM_FORM_VALUE}}, 2, 0);
    small_step(graph, layers[2], MM_FORWARD, (mm_use[]){{x, MM_READ, MM_FORM_VALUE}, {w, MM_READ, MM_FORM_VALUE}}, 2,
               0);
    expect_ok(mm_graph_freeze(graph));
    expect_ok(mm_graph_facts_create(graph, 0, &facts));
    for (int i = 0; i < 3; i++) facts->variants[i].ns = STEP_NS;
    facts->out_bytes_per_s = A_BYTES * INT64_C(1000000000) / (5 * STEP_NS);
    facts->in_bytes_per_s = A_BYTES * INT64_C(1000000000) / (3 * STEP_NS);
    const mm_limits limits = {.device_bytes = A_BYTES + 256, .pinned_bytes = pinned, .base_bytes = mm_plan_base(graph)};
    expect_ok((any_home ? mm_time_bound_any_home : mm_time_bound_of)(graph, facts, &limits, &bound));
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
    return bound.ns;
}

TEST_CASE(weights_that_cannot_stay_go_over_the_link) {
    assert_true(bound_of_two_weights(MM_READ, INT64_MAX, false) == INT64_MAX);
    assert_true(bound_of_two_weights(MM_READ, 0, true) == INT64_MAX);
    /* the first weight comes before the third step; then the step */
    assert_in_range(bound_of_two_weights(MM_READ, INT64_MAX, true), 4 * STEP_NS - STEP_NS / 100, 4 * STEP_NS);
    /* if it was changed, it has left again: the longer way */
    assert_in_range(bound_of_two_weights(MM_MODIFY, INT64_MAX, true), 6 * STEP_NS - STEP_NS / 100, 6 * STEP_NS);
}

/* A first step, then one for each of 16 states, which it changes. The device has room for two: 14 come and leave. In
 * either direction a copy takes 5 steps alone; while both are busy, 3 fifths of that are done in the time. */
TEST_CASE(states_that_cannot_stay_load_both_directions_of_the_link) {
    enum { STATES = 16, AWAY = 14, COPY_STEPS = 5 };
    subject s;
    mm_time_bound bound;
    expect_ok(mm_graph_create("states", &s.graph));
    const mm_tensor x = small_tensor(s.graph, "x", MM_FEATURE_MAP, MM_MANAGED, 256);
    small_step(s.graph, small_layer(s.graph, "first", MM_LAYER_OTHER), MM_FORWARD,
               (mm_use[]){{x, MM_WRITE, MM_FORM_VALUE}}, 1, 0);
    for (int i = 0; i < STATES; i++) {
        char name[24];
        snprintf(name, sizeof name, "state %d", i);
        const mm_tensor state = small_tensor(s.graph, name, MM_OPTIMIZER, MM_PERSISTENT, A_BYTES);
        small_step(s.graph, small_layer(s.graph, name, MM_LAYER_OTHER), MM_FORWARD,
                   (mm_use[]){{x, MM_READ, MM_FORM_VALUE}, {state, MM_MODIFY, MM_FORM_VALUE}}, 2, 0);
    }
    expect_ok(mm_graph_freeze(s.graph));
    expect_ok(mm_graph_facts_create(s.graph, 0, &s.facts));
    for (int i = 0; i <= STATES; i++) s.facts->variants[i].ns = STEP_NS;
    s.facts->out_bytes_per_s = s.facts->in_bytes_per_s = A_BYTES * INT64_C(1000000000) / (COPY_STEPS * STEP_NS);
    s.facts->out_both_bytes_per_s = s.facts->in_both_bytes_per_s = s.facts->in_bytes_per_s / 5 * 3;
    const mm_limits limits = {
        .device_bytes = 256 + 2 * A_BYTES, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(s.graph)};
    expect_ok(mm_time_bound_any_home(s.graph, s.facts, &limits, &bound));
    const double link = 2.0 * AWAY * COPY_STEPS / 1.2;
    assert_in_range(bound.ns, (int64_t)(link * STEP_NS), (int64_t)((link + 2) * STEP_NS));
    subject_destroy(&s);
}

TEST_CASE(a_gap_is_a_share_of_the_bound) {
    assert_int_equal(mm_time_bound_gap_permille(1100, 1000), 100);
    assert_int_equal(mm_time_bound_gap_permille(1000, 1000), 0);
    assert_int_equal(mm_time_bound_gap_permille(1000, 0), INT64_MAX);
}
