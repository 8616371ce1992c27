/* SPDX-License-Identifier: MIT */
/* Planning for a caller that has a plan already, and has use for faster ones only. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "policies/engine/engine.h"
#include "policies/schedule/draft_time.h"
#include "tests/core/random_graph.h"
#include "tests/core/test_case.h"
#include "tests/policies/engine_rig.h"

typedef struct fixture {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_limits limits; /* device_bytes: half way from the least that the policy takes to what liveness takes */
    mm_policy policy;
} fixture;

static mm_plan *plan_by(const fixture *f, const char *spec, int64_t device_bytes) {
    mm_policy policy;
    mm_plan *plan;
    mm_limits limits = f->limits;
    limits.device_bytes = device_bytes;
    assert_int_equal(mm_policy_parse(spec, &policy), MM_OK);
    if (mm_policy_plan(&policy, f->graph, f->facts, &limits, &plan) != MM_OK) fail_msg("%s", mm_last_error());
    mm_policy_fini(&policy);
    return plan;
}

static int64_t peak_of(const fixture *f, const char *spec, int64_t device_bytes) {
    mm_plan *plan = plan_by(f, spec, device_bytes);
    const int64_t bytes = plan->peak_bytes;
    mm_plan_destroy(plan);
    return bytes;
}

static fixture fixture_create(uint64_t seed, const char *spec) {
    fixture f = {.limits = {.pinned_bytes = INT64_MAX, .base_bytes = 128 * UNIT}};
    const random_graph_options options = {.seed = seed, .layers = 4 + (int)seed % 16, .max_channels = 6};
    assert_int_equal(random_graph_create(&options, &f.graph), MM_OK);
    assert_int_equal(random_facts_create(f.graph, seed, &f.facts), MM_OK);
    strcpy(f.facts->codecs[RANDOM_MASK].spec, "mask");
    f.facts->out_bytes_per_s = f.facts->in_bytes_per_s = INT64_C(1000000000);
    if (mm_policy_parse(spec, &f.policy) != MM_OK) fail_msg("%s", mm_last_error());
    const int64_t least = peak_of(&f, spec, 0), most = peak_of(&f, "liveness", INT64_MAX);
    f.limits.device_bytes = least + (most - least) / 2;
    return f;
}

static void fixture_destroy(fixture *f) {
    mm_policy_fini(&f->policy);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->graph);
}

static int64_t time_of(const fixture *f, const mm_plan *plan) {
    int64_t ns;
    assert_int_equal(mm_simulated_time(plan, f->facts, &ns), MM_OK);
    return ns;
}

/* The time of the engine's plan that takes less than below_ns; INT64_MAX: all that may take less were tried, and none
 * fits, or none was left. */
static int64_t time_below(const fixture *f, int64_t below_ns) {
    mm_plan *plan;
    assert_int_equal(
        mm_engine_plan_below(f->graph, f->facts, &f->limits, &f->policy.config, NULL, below_ns, INT64_MAX, &plan),
        MM_OK);
    const bool fits = plan && plan->peak_bytes <= f->limits.device_bytes;
    const int64_t ns = fits ? time_of(f, plan) : INT64_MAX;
    mm_plan_destroy(plan);
    return ns;
}

/* Whatever the limit, the plan is the one without a limit, as long as that is faster than the limit. */
TEST_CASE(a_limit_of_time_rules_out_slower_plans_alone) {
    static const char *const specs[] = {"swap-async",
                                        "recompute:mode=nested",
                                        "recompute-swap",
                                        "rules:*=mask;*=swap",
                                        "rules:conv=lean-recompute;*=lean-swap,mode=memory",
                                        "freelunch:codec=test-lossy:rate=8,eligible=all"};
    int none = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        fixture f = fixture_create(seed, specs[seed % (sizeof specs / sizeof *specs)]);
        const int64_t ns = time_below(&f, INT64_MAX);
        assert_true(ns < INT64_MAX);
        assert_int_equal(time_below(&f, 2 * ns), ns);
        assert_int_equal(time_below(&f, ns + 1), ns);
        assert_true(time_below(&f, ns) >= ns);
        none += time_below(&f, ns - ns / 8) == INT64_MAX;
        fixture_destroy(&f);
    }
    assert_true(none > 0);
}

/* The same for auto, whose policies may each be slower by a small part where that spares a layout. */
TEST_CASE(auto_finds_what_is_faster_than_its_limit_of_time) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        fixture f = fixture_create(seed, "auto:effort=0");
        mm_plan *plan = plan_by(&f, "auto:effort=0", f.limits.device_bytes);
        const int64_t ns = time_of(&f, plan);
        mm_plan_destroy(plan);
        f.limits.below_ns = ns + 1;
        plan = plan_by(&f, "auto:effort=0", f.limits.device_bytes);
        assert_true(plan->peak_bytes <= f.limits.device_bytes);
        if (time_of(&f, plan) > ns + ns / 200)
            fail_msg("seed %d: %lld ns, with a limit just above %lld", (int)seed, (long long)time_of(&f, plan),
                     (long long)ns);
        mm_plan_destroy(plan);
        fixture_destroy(&f);
    }
}

/* Of very many plans that a caller compares, each gets no work: then the search finds no more than without it. */
TEST_CASE(compared_plans_share_the_work) {
    int gains = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        fixture f = fixture_create(seed, "auto");
        int64_t ns[3];
        for (int i = 0; i < 3; i++) {
            f.limits.compared = i == 1 ? INT_MAX : i;
            mm_plan *plan = plan_by(&f, i == 0 ? "auto:effort=0" : "auto", f.limits.device_bytes);
            ns[i] = time_of(&f, plan);
            mm_plan_destroy(plan);
        }
        assert_int_equal(ns[1], ns[0]);
        gains += ns[2] < ns[1];
        fixture_destroy(&f);
    }
    assert_true(gains > 0);
}
