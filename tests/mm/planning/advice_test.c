/* SPDX-License-Identifier: MIT */
/* A refusal names a policy that would fit, or the policy that needs least. Drafts of plans are committed or dropped. */
#include <stdio.h>
#include <string.h>

#include "mm/manager/prepare.h"
#include "mm/planning/fallback_draft.h"
#include "tests/core/deep.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 11, LAYERS = 24, PINNED = 1 << 30 };

static int64_t least_of(const mm_graph *graph, const char *policy, int64_t pinned) {
    return rig_needs(graph, policy, 0, pinned).device_bytes;
}

static mm_manager *manager_of(int64_t device_bytes, int64_t pinned_bytes, const char *policy) {
    return rig_manager(
        &(mm_options){.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .policy = policy, .no_ladder = true});
}

static mm_status run_again(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream) {
    (void)ctx, (void)manager, (void)layer, (void)stream;
    return MM_OK;
}

/* Checks that the policy that the last error's message names fits this memory; writes its spec to policy_out. */
static void follow(const mm_graph *graph, int64_t device_bytes, int64_t pinned_bytes, char *policy_out) {
    const char *named = strstr(mm_last_error(), "; policy ");
    if (!named || sscanf(named, "; policy %127s would fit", policy_out) != 1) fail_msg("%s", mm_last_error());
    mm_manager *m = manager_of(device_bytes, pinned_bytes, policy_out);
    if (mm_manager_prepare(m, graph) != MM_OK) fail_msg("%s: %s", policy_out, mm_last_error());
    mm_manager_destroy(m);
}

TEST_CASE(the_policy_that_is_named_fits) {
    char policy[128];
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 8);
    int64_t naive = rig_minimum(graph, "naive"), liveness = rig_minimum(graph, "liveness");
    int64_t least = least_of(graph, "swap", PINNED);
    assert_true(least < liveness && liveness < naive);
    mm_manager *m = manager_of(liveness, PINNED, "naive");
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
    follow(graph, liveness, PINNED, policy);
    assert_string_equal(policy, "liveness");
    mm_manager_destroy(m);
    for (int part = 0; part <= 4; part++) {
        int64_t budget = least + (liveness - 1 - least) * part / 4;
        m = manager_of(budget, PINNED, "liveness");
        assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
        assert_non_null(strstr(mm_last_error(), "needs at least"));
        follow(graph, budget, PINNED, policy);
        assert_null(strstr(policy, "zfp")); /* a lossless policy fits */
        assert_null(strstr(mm_last_error(), "lossy"));
        if (strstr(policy, "swap")) assert_non_null(strstr(mm_last_error(), " would fit, with about "));
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}

static bool ends_with(const char *text) {
    const size_t length = strlen(mm_last_error()), end = strlen(text);
    return length >= end && strcmp(mm_last_error() + length - end, text) == 0;
}

/* A loop may set the function after mm_manager_prepare, so what needs it is advised before, too, and says so. */
TEST_CASE(advice_does_not_depend_on_when_the_recompute_function_is_set) {
    enum { PARTS = 16 };
    int named = 0;
    char told[1024];
    for (int part = test_depth(2, 1); part <= PARTS / 2; part += test_depth(3, 1)) {
        mm_graph *graph = rig_random_graph(1, LAYERS, 8);
        mm_manager *m = manager_of(rig_minimum(graph, "liveness") * (PARTS - part) / PARTS, 0, "liveness");
        assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
        const bool needs = ends_with("; policy auto would fit (needs mm_recompute_set)") ||
                           ends_with(" (lossy) would fit, and lossless auto (needs mm_recompute_set)"),
                   fits = ends_with("; policy auto would fit");
        if (needs) assert_null(strstr(mm_last_error(), "no policy would fit"));
        snprintf(told, sizeof told, "%s", mm_last_error());
        assert_int_equal(mm_recompute_set(m, graph, run_again, NULL), MM_ERR_INFEASIBLE);
        if ((needs || fits) != ends_with("; policy auto would fit"))
            fail_msg("before: %s; after: %s", told, mm_last_error());
        named += needs;
        mm_manager_destroy(m);
        mm_graph_destroy(graph);
    }
    assert_true(named > 0);
}

/* Facts with quick steps, and a link so slow that no copy is worth its time. */
static mm_facts *slow_link(const mm_graph *graph) {
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_facts_create(graph, 0, &facts), MM_OK);
    for (int v = 0; v < facts->variant_first[facts->n_steps]; v++) facts->variants[v].ns = 1000;
    facts->out_bytes_per_s = facts->in_bytes_per_s = 12345;
    mm_facts *by_name = rig_facts(graph, facts);
    mm_graph_facts_destroy(facts);
    return by_name;
}

static int count_recomputed(const mm_manager *m, const mm_graph *graph) {
    const mm_plan *plan = mm_plan_now(m, graph);
    int n = 0;
    for (int i = 0; i < plan->n_nodes; i++) n += plan->nodes[i].kind == MM_NODE_RECOMPUTE;
    return n;
}

/* A budget in which swapping helps as well as recomputing: without a function, auto plans without recomputing. */
TEST_CASE(a_policy_that_recomputes_is_refused_when_it_is_set_and_auto_leaves_it_out) {
    int recomputing = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        mm_graph *graph = rig_random_graph(seed, LAYERS, 8);
        const int64_t budget = rig_minimum(graph, "liveness");
        mm_facts *facts = slow_link(graph);
        mm_options options = {.device_bytes = budget, .pinned_bytes = PINNED, .policy = "liveness", .facts = facts};
        mm_manager *m = rig_manager(&options);
        assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
        assert_int_equal(mm_policy_set(m, "recompute:when=always"), MM_ERR_UNSUPPORTED);
        assert_non_null(strstr(mm_last_error(), "mm_recompute_set"));
        assert_string_equal(mm_policy_now(m), "liveness");
        assert_int_equal(mm_budget_set(m, budget - 1), MM_OK); /* a substitute */
        assert_int_equal(mm_policy_set(m, "recompute:when=always"), MM_ERR_UNSUPPORTED);
        assert_int_equal(mm_policy_set(m, "auto"), MM_OK);
        assert_string_equal(mm_policy_now(m), "auto");
        assert_int_equal(count_recomputed(m, graph), 0);
        assert_int_equal(mm_recompute_set(m, graph, run_again, NULL), MM_OK);
        assert_int_equal(mm_policy_set(m, "auto:effort=0"), MM_OK);
        recomputing += count_recomputed(m, graph) > 0;
        assert_int_equal(mm_policy_set(m, "recompute:when=always"), MM_OK);
        mm_manager_destroy(m);
        mm_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(recomputing > 0); /* so it would have recomputed without the limit */
}

/* Without pinned memory and recomputation, only compression is left. */
TEST_CASE(a_policy_that_loses_something_is_named_as_lossy) {
    int named = 0;
    for (uint64_t seed = 1; seed <= 12 && named == 0; seed++) {
        mm_graph *graph = rig_random_graph(seed, LAYERS, 8);
        mm_manager *m = manager_of(rig_minimum(graph, "liveness") - 1, 0, "liveness");
        assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
        const char *compressing = strstr(mm_last_error(), "policy freelunch");
        if (compressing) assert_int_equal(strncmp(compressing, "policy freelunch (lossy) would fit", 34), 0);
        named += compressing != NULL;
        mm_manager_destroy(m);
        mm_graph_destroy(graph);
    }
    assert_true(named > 0);
}

TEST_CASE(without_pinned_memory_nothing_that_swaps_is_named) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 8);
    int64_t budget = rig_minimum(graph, "liveness") - 1;
    char policy[128];
    mm_manager *m = manager_of(budget, 0, "liveness");
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
    if (!strstr(mm_last_error(), "; no policy ")) follow(graph, budget, 0, policy);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

TEST_CASE(where_only_pinned_memory_is_missing_that_is_said) {
    char policy[128];
    long long pinned;
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 8);
    int64_t budget = rig_needs(graph, "swap:when=always", 0, PINNED).device_bytes;
    mm_manager *m = manager_of(budget, 0, "liveness");
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
    const char *named = strstr(mm_last_error(), "; no policy would fit with 0 bytes");
    if (!named ||
        sscanf(named, "; no policy would fit with 0 bytes of pinned memory; with %lld bytes (%*[^)]), policy %127s",
               &pinned, policy) != 2)
        fail_msg("%s", mm_last_error());
    mm_manager_destroy(m);
    m = manager_of(budget, pinned, policy);
    if (mm_manager_prepare(m, graph) != MM_OK) fail_msg("%s: %s", policy, mm_last_error());
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

/* The limit of pinned memory is named where more of it could help. */
TEST_CASE(where_no_policy_needs_less_that_is_said_with_the_pinned_memory_that_limits_it) {
    static const int64_t limits[] = {PINNED, 4096};
    char needs[96];
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 8);
    for (int i = 0; i < 2; i++) {
        const int64_t least = least_of(graph, "auto", limits[i]);
        mm_manager *m = manager_of(4096, limits[i], "auto");
        assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
        snprintf(needs, sizeof needs, "; no policy needs less than %lld bytes (", (long long)least);
        const bool names_pinned = strstr(mm_last_error(), " with 4096 bytes (4KiB) of pinned memory") != NULL;
        if (!strstr(mm_last_error(), needs) && !strstr(mm_last_error(), "; no policy would fit"))
            fail_msg("%s", mm_last_error());
        assert_int_equal(names_pinned, i == 1);
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
}

TEST_CASE(below_what_any_needs_the_least_is_named_and_does) {
    char policy[128], lossy[16] = "";
    long long bytes;
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 8);
    mm_manager *m = manager_of(4096, PINNED, "freelunch");
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
    const char *named = strstr(mm_last_error(), "; no policy would fit: ");
    if (!named || (sscanf(named, "; no policy would fit: %127s (lossy%1[)] needs least, %lld bytes", policy, lossy,
                          &bytes) != 3 &&
                   sscanf(named, "; no policy would fit: %127s needs least, %lld bytes", policy, &bytes) != 2))
        fail_msg("%s", mm_last_error());
    mm_manager_destroy(m);
    m = manager_of(bytes, PINNED, policy);
    if (mm_manager_prepare(m, graph) != MM_OK) fail_msg("%s: %s", policy, mm_last_error());
    mm_manager_destroy(m);
    static const char *const others[] = {"liveness", "swap-async", "swap", "modnn", "vdnn-all", "hybrid"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(least_of(graph, others[i], PINNED) >= bytes);
    mm_graph_destroy(graph);
}

TEST_CASE(a_change_that_is_refused_names_it_too_and_changes_nothing) {
    char policy[128];
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 8);
    int64_t liveness = rig_minimum(graph, "liveness");
    mm_manager *m = manager_of(liveness, PINNED, "swap");
    assert_int_equal(mm_manager_prepare(m, graph), MM_OK);
    assert_int_equal(mm_policy_set(m, "naive"), MM_ERR_INFEASIBLE);
    follow(graph, liveness, PINNED, policy);
    assert_int_equal(mm_policy_set(m, "liveness"), MM_OK);
    assert_int_equal(mm_budget_set(m, liveness - 1), MM_ERR_INFEASIBLE);
    follow(graph, liveness - 1, PINNED, policy);
    assert_int_equal(mm_manager_device_bytes(m), liveness);
    assert_int_equal(mm_policy_set(m, policy), MM_OK);
    assert_int_equal(mm_budget_set(m, liveness - 1), MM_OK);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

/* With nominal rates the message names auto. With a slow link's facts it names auto or a policy that recomputes, and
 * none that copies. */
TEST_CASE(it_goes_by_the_facts_that_the_manager_was_given) {
    int by_rates = 0, by_facts = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        mm_graph *graph = rig_random_graph(seed, LAYERS, 8);
        mm_facts *facts = slow_link(graph);
        const int64_t budget = least_of(graph, "recompute:when=always", 0);
        mm_options options = {.device_bytes = budget, .pinned_bytes = PINNED, .policy = "liveness", .no_ladder = true};
        for (int given = 0; budget < rig_minimum(graph, "liveness") && given < 2; given++) {
            options.facts = given ? facts : NULL;
            mm_manager *m = rig_manager(&options);
            assert_int_equal(mm_recompute_set(m, graph, run_again, NULL), MM_ERR_INFEASIBLE);
            const bool swaps = strstr(mm_last_error(), "swap") || strstr(mm_last_error(), "vdnn");
            if (given && swaps) fail_msg("by facts: %s", mm_last_error());
            by_rates += !given && strstr(mm_last_error(), "policy auto would fit");
            by_facts += given && (strstr(mm_last_error(), "policy recompute") ||
                                  strstr(mm_last_error(), "policy auto would fit"));
            mm_manager_destroy(m);
        }
        mm_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(by_rates > 0 && by_facts == by_rates);
}

/* ---------------------------------------------------------------- drafts */

/* A plan set without graphs, and two equal graphs to add to it. */
typedef struct two {
    mm_graph *first, *second;
    mm_persistent_table directory;
    mm_plan_set set;
    mm_plan_request attempt; /* a request for plans with as much memory as they want */
} two;

static void two_init(two *t) {
    *t = (two){.first = rig_random_graph(SEED, LAYERS, 8), .second = rig_random_graph(SEED, LAYERS, 8)};
    t->set.sources = (mm_plan_sources){.device = "host", .persistents = &t->directory};
    assert_int_equal(mm_persistent_table_add(&t->directory, t->first), MM_OK);
    assert_int_equal(mm_persistent_table_add(&t->directory, t->second), MM_OK);
    assert_int_equal(mm_policy_parse("liveness", &t->set.policy), MM_OK);
    assert_int_equal(mm_policy_copy(&t->set.policy, &t->set.policy_now), MM_OK);
    const mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = PINNED, .base_bytes = t->directory.bytes};
    t->attempt = mm_plan_set_again(&t->set, &limits);
}

static void two_fini(two *t) {
    mm_plan_set_fini(&t->set);
    mm_persistent_table_fini(&t->directory);
    mm_graph_destroy(t->first);
    mm_graph_destroy(t->second);
}

static const mm_prepared *prepare(two *t, const mm_graph *graph) {
    mm_draft draft;
    const mm_new_graph newcomer = {.graph = graph};
    mm_plan_request attempt = t->attempt;
    attempt.added = &newcomer;
    assert_int_equal(mm_plan_set_draft(&t->set, &attempt, &draft, NULL), MM_OK);
    mm_plan_set_commit(&t->set, &draft);
    mm_draft_fini(&draft);
    return mm_plan_set_find(&t->set, graph);
}

TEST_CASE(a_draft_changes_nothing_until_it_is_committed) {
    two t;
    mm_draft draft;
    mm_misfit refusal;
    two_init(&t);
    const mm_prepared *first = prepare(&t, t.first);
    const mm_new_graph newcomer = {.graph = t.second};
    mm_plan_request attempt = t.attempt;
    attempt.added = &newcomer;
    attempt.others_stay = true;
    attempt.limits.device_bytes = 1;
    assert_int_equal(mm_plan_set_draft(&t.set, &attempt, &draft, &refusal), MM_ERR_INFEASIBLE);
    assert_ptr_equal(refusal.graph, t.second);
    attempt.limits.device_bytes = refusal.need_bytes - 1;
    assert_int_equal(mm_plan_set_draft(&t.set, &attempt, &draft, &refusal), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(refusal.failure.message, "needs at least"));
    attempt.limits.device_bytes = refusal.need_bytes;
    for (int commits = 0; commits < 2; commits++) {
        assert_int_equal(mm_plan_set_draft(&t.set, &attempt, &draft, NULL), MM_OK);
        assert_int_equal(draft.need_bytes, refusal.need_bytes);
        assert_null(mm_plan_set_find(&t.set, t.second));
        if (commits) mm_plan_set_commit(&t.set, &draft);
        mm_draft_fini(&draft);
        assert_ptr_equal(mm_plan_set_find(&t.set, t.first), first); /* the first graph keeps its plan */
        assert_int_equal(t.set.n, 1 + commits);
    }
    mm_plan_set_forget(&t.set, t.first);
    assert_null(mm_plan_set_find(&t.set, t.first));
    assert_non_null(mm_plan_set_find(&t.set, t.second));
    two_fini(&t);
}

TEST_CASE(a_substitute_is_drafted_only_where_memory_is_short) {
    two t;
    mm_draft draft;
    two_init(&t);
    const mm_prepared *second = prepare(&t, t.second);
    mm_fallback_request wish = {.policy = &t.set.policy, .limits = t.attempt.limits};
    wish.limits.device_bytes = second->planned.plan->peak_bytes - 1;
    assert_int_equal(mm_fallback_draft(&t.set, &wish, &draft), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), " would fit"));
    wish.is_short = true;
    assert_int_equal(mm_fallback_draft(&t.set, &wish, &draft), MM_OK);
    assert_true(draft.stands_in && draft.step);
    assert_false(mm_policy_equal(&draft.policy, &t.set.policy));
    assert_true(draft.need_bytes <= wish.limits.device_bytes);
    assert_true(mm_policy_equal(&t.set.policy_now, &t.set.policy));
    assert_ptr_equal(mm_plan_set_find(&t.set, t.second), second);
    mm_draft_fini(&draft);
    two_fini(&t);
}
