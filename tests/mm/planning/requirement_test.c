/* SPDX-License-Identifier: MIT */
/* What mm_requirement_get says is what a manager then needs; it is the same for graphs that went through a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/plan/plan_digest.h"
#include "mm/manager/prepare.h"
#include "mm/planning/homes.h"
#include "mm/planning/together.h"
#include "tests/core/alloc_fault.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/graph_files.h"
#include "tests/mm/manager/manager_rig.h"

enum { LAYERS = 12, CHANNELS = 6, GRAPHS = 2, PINNED = 1 << 20 };

static const char *const policies[] = {"naive",
                                       "liveness",
                                       "recompute",
                                       "recompute:mode=sqrt,when=always",
                                       "swap-async",
                                       "recompute-swap:mode=nested",
                                       "vdnn-all",
                                       "freelunch:rate=8,eligible=all",
                                       "gist:lossless",
                                       "modnn",
                                       "auto:effort=0,resident=all"};
enum { POLICIES = sizeof policies / sizeof *policies };

/* Training, and a second graph with persistent tensors of its own. */
static void make_graphs(uint64_t seed, mm_graph *graphs[GRAPHS]) {
    graphs[0] = rig_random_graph(seed, LAYERS, CHANNELS);
    graphs[1] = graph_files_everything();
}

static void destroy_graphs(mm_graph *graphs[GRAPHS]) {
    for (int i = 0; i < GRAPHS; i++) mm_graph_destroy(graphs[i]);
}

#define LIST(graphs) ((const mm_graph *const *)(graphs))

static mm_requirement *need_of(mm_graph **graphs, size_t n, const char *policy, const mm_plan_limits *limits) {
    mm_requirement *r;
    mm_plan_limits own = *limits;
    if (!own.device) own.device = rig_device_used()->name;
    if (mm_requirement_get(LIST(graphs), n, NULL, policy, &own, &r) != MM_OK)
        fail_msg("%s: %s", policy, mm_last_error());
    return r;
}

/* Prepares the graphs in this budget; the first failure, after which the manager is gone. */
static mm_status start(mm_graph **graphs, size_t n, const char *policy, int64_t device_bytes, int64_t pinned_bytes) {
    mm_manager *m = rig_manager(
        &(mm_options){.device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .policy = policy, .no_ladder = true});
    mm_status status = MM_OK;
    for (size_t i = 0; status == MM_OK && i < n; i++) status = mm_manager_prepare(m, graphs[i]);
    mm_failure failure;
    mm_failure_save(&failure, status);
    mm_manager_destroy(m);
    return mm_failure_restore(&failure);
}

/* ---------------------------------------------------------------- as a manager */

TEST_CASE(a_manager_with_just_the_least_bytes_starts_and_with_a_byte_less_refuses) {
    const int seeds = test_depth(4, 40);
    int moved = 0, again = 0;
    for (int seed = 1; seed <= seeds; seed++) {
        mm_graph *graphs[GRAPHS];
        make_graphs((uint64_t)seed, graphs);
        for (int p = 0; p < POLICIES; p++) {
            mm_requirement *r = need_of(graphs, GRAPHS, policies[p], &(mm_plan_limits){.pinned_bytes = PINNED});
            assert_true(r->fits);
            if (start(graphs, GRAPHS, policies[p], r->least_bytes, PINNED) != MM_OK)
                fail_msg("seed %d, %s in %lld: %s", seed, policies[p], (long long)r->least_bytes, mm_last_error());
            if (start(graphs, GRAPHS, policies[p], r->least_bytes - 1, PINNED) != MM_ERR_INFEASIBLE)
                fail_msg("seed %d, %s: %s", seed, policies[p], mm_last_error());
            moved += r->graphs[0].moved_bytes > 0;
            again += r->needs_recompute_set;
            mm_requirement_destroy(r);
        }
        destroy_graphs(graphs);
    }
    assert_true(moved > 0 && again > 0);
}

/* A tensor that is at home elsewhere is on the device at each step on the device that uses it. */
static void expect_there_when_used(const mm_graph_requirement *g, const mm_graph *graph, const mm_housed *one) {
    if (one->home == MM_HOME_DEVICE || mm_graph_tensor(graph, one->tensor)->on_host) return;
    for (int i = 0; i < g->n_timeline; i++) {
        const mm_step_info *step = mm_graph_step(graph, g->timeline[i].step);
        bool used = false, there = false;
        for (int u = 0; u < step->n_uses; u++) used |= step->uses[u].tensor == one->tensor;
        for (int v = 0; v < one->n_visits; v++) there |= one->visits[v].begin <= i && i <= one->visits[v].end;
        if (used && !there) fail_msg("%s is not on the device at step %d of %s", one->name, i, g->graph);
    }
}

/* Each list of homes has all persistent tensors, or none if all are on the device; visits lie within the timeline, and
 * those of one tensor do not overlap. Returns their number. */
static int expect_homes(const mm_requirement *r, mm_graph *const graphs[]) {
    int visits = 0;
    for (int i = 0; i < r->n_graphs; i++) {
        const mm_graph_requirement *g = &r->graphs[i];
        bool away = false;
        if (g->n_housed > 0) assert_int_equal(g->n_housed, mm_graph_persistents(graphs[i]));
        for (int h = 0; h < g->n_housed; h++) {
            const mm_housed *one = &g->housed[h];
            const mm_tensor_info *tensor = mm_graph_tensor(graphs[i], one->tensor);
            assert_string_equal(one->name, tensor->name);
            assert_true(one->bytes == tensor->bytes && one->kind == tensor->kind && tensor->persistent >= 0);
            assert_true(one->home != MM_HOME_DEVICE || one->n_visits == 0);
            away |= one->home != MM_HOME_DEVICE;
            for (int v = 0; v < one->n_visits; v++) {
                const int after = v > 0 ? one->visits[v - 1].end : 0;
                assert_in_range(one->visits[v].begin, after, g->n_timeline - 1);
                assert_in_range(one->visits[v].end, one->visits[v].begin, g->n_timeline - 1);
            }
            visits += one->n_visits;
            expect_there_when_used(g, graphs[i], one);
        }
        assert_true(away == (g->n_housed > 0));
    }
    return visits;
}

/* Weights and states in pinned memory count, of one graph and of several that share an arena. */
TEST_CASE(homes_in_pinned_memory_make_the_least_less_and_it_starts) {
    static const char *const moving[] = {"swap-async:resident=needed", "auto:effort=0"};
    static const char *const staying[] = {"swap-async", "auto:effort=0,resident=all"};
    int less[GRAPHS] = {0}, named = 0, visits = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        mm_graph *graphs[GRAPHS];
        make_graphs(seed, graphs);
        for (int p = 0; p < 2; p++) {
            const mm_plan_limits limits = {.pinned_bytes = PINNED};
            const int n = 1 + (int)seed % GRAPHS;
            mm_requirement *r = need_of(graphs, n, moving[p], &limits), *all = need_of(graphs, n, staying[p], &limits);
            assert_true(r->fits && r->least_bytes <= all->least_bytes);
            less[n - 1] += r->least_bytes < all->least_bytes;
            visits += expect_homes(r, graphs);
            assert_int_equal(expect_homes(all, graphs), 0);
            if (start(graphs, n, moving[p], r->least_bytes, PINNED) != MM_OK)
                fail_msg("seed %d, %s: %s", (int)seed, moving[p], mm_last_error());
            if (p == 1 && r->least_bytes < all->least_bytes) {
                assert_int_equal(start(graphs, n, "naive", r->least_bytes, PINNED), MM_ERR_INFEASIBLE);
                named += strstr(mm_last_error(), "policy auto would fit") != NULL;
            }
            mm_requirement_destroy(r);
            mm_requirement_destroy(all);
        }
        destroy_graphs(graphs);
    }
    assert_true(less[0] > 2 && less[1] > 2 && named > 2 && visits > 0);
}

/* Within a budget, each graph has the plan that a manager makes of it. */
TEST_CASE(the_figures_within_a_budget_are_those_of_the_plans_that_run) {
    mm_graph *graphs[GRAPHS];
    make_graphs(5, graphs);
    for (int p = 0; p < POLICIES; p++) {
        mm_requirement *least = need_of(graphs, GRAPHS, policies[p], &(mm_plan_limits){.pinned_bytes = PINNED});
        const int64_t budget = least->least_bytes + least->least_bytes / 8;
        const mm_plan_limits limits = {.device_bytes = budget, .pinned_bytes = PINNED};
        mm_requirement *r = need_of(graphs, GRAPHS, policies[p], &limits);
        mm_manager *m =
            rig_manager(&(mm_options){.device_bytes = budget, .pinned_bytes = PINNED, .policy = policies[p]});
        for (int i = 0; i < GRAPHS; i++) expect_ok(mm_manager_prepare(m, graphs[i]));
        for (int i = 0; i < GRAPHS; i++) {
            const mm_plan *plan = mm_plan_now(m, graphs[i]);
            int64_t sum = 0;
            for (int k = 0; k < MM_HELD_KINDS; k++) sum += r->graphs[i].held[k];
            assert_int_equal(r->graphs[i].planned_bytes, plan->peak_bytes);
            assert_int_equal(r->graphs[i].pinned_bytes, plan->pinned_bytes);
            assert_int_equal(r->graphs[i].live_bytes, plan->live_peak_bytes);
            assert_int_equal(sum, plan->live_peak_bytes);
            assert_int_equal(r->graphs[i].steps, r->graphs[i].n_timeline);
        }
        assert_true(r->planned_bytes <= budget && r->least_bytes == least->least_bytes);
        mm_manager_destroy(m);
        mm_requirement_destroy(least);
        mm_requirement_destroy(r);
    }
    destroy_graphs(graphs);
}

/* Prepares a graph beside a disk, and checks what its plan takes against what was said. */
static void expect_with_disk(mm_graph *graph, const char *policy, const mm_requirement *r) {
    const char *directory = getenv("TEST_TMPDIR");
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = r->device_bytes,
                                              .pinned_bytes = r->pinned_limit_bytes,
                                              .policy = policy,
                                              .no_ladder = true,
                                              .disk = directory ? directory : "/tmp",
                                              .disk_bytes = r->disk_limit_bytes});
    expect_ok(mm_manager_prepare(m, graph));
    const mm_plan *plan = mm_plan_now(m, graph);
    assert_int_equal(plan->peak_bytes, r->planned_bytes);
    assert_int_equal(plan->pinned_bytes, r->pinned_bytes);
    assert_int_equal(plan->disk_bytes, r->disk_bytes);
    mm_manager_destroy(m);
}

/* With less pinned memory than a plan takes it does not fit, but with a disk. */
TEST_CASE(a_disk_does_for_pinned_memory_and_is_told) {
    static const char *const moving[] = {"swap-async:when=always", "auto:effort=0", "swap-async:resident=none"};
    enum { DISK = 16 << 20 };
    for (int p = 0; p < 3; p++) {
        mm_graph *graph = rig_random_graph(5, LAYERS, CHANNELS);
        mm_requirement *wide = need_of(&graph, 1, moving[p], &(mm_plan_limits){.pinned_bytes = PINNED});
        mm_plan_limits limits = {
            .device_bytes = wide->least_bytes, .pinned_bytes = wide->pinned_bytes * 2 / 3, .no_advice = true};
        mm_requirement *without = need_of(&graph, 1, moving[p], &limits);
        limits.disk_bytes = DISK;
        mm_requirement *r = need_of(&graph, 1, moving[p], &limits);
        assert_true(wide->fits && !without->fits && wide->disk_bytes == 0 && without->disk_bytes == 0);
        if (!r->fits) fail_msg("%s: %s", moving[p], r->refusal);
        assert_int_equal(r->disk_limit_bytes, DISK);
        assert_true(r->pinned_bytes <= limits.pinned_bytes && r->disk_bytes > 0 && r->disk_bytes <= DISK);
        assert_true(r->graphs[0].disk_bytes == r->disk_bytes && r->graphs[0].stored_bytes > 0);
        expect_with_disk(graph, moving[p], r);
        char *text, *json;
        expect_ok(mm_requirement_text(r, &text));
        expect_ok(mm_requirement_json(r, &json));
        assert_non_null(strstr(text, "of the disk"));
        assert_non_null(strstr(json, "\"disk_limit_bytes\": 16777216"));
        free(text);
        free(json);
        mm_requirement_destroy(wide);
        mm_requirement_destroy(without);
        mm_requirement_destroy(r);
        mm_graph_destroy(graph);
    }
    mm_requirement *r;
    mm_graph *graph = rig_random_graph(5, LAYERS, CHANNELS);
    assert_int_equal(mm_requirement_get(LIST(&graph), 1, NULL, "swap-async", &(mm_plan_limits){.disk_bytes = -1}, &r),
                     MM_ERR_INVALID);
    mm_graph_destroy(graph);
}

/* What a plan does with each map agrees with what it copies and computes again. */
TEST_CASE(actions_on_maps_agree_with_copies_and_recomputed_steps) {
    int seen[MM_MAP_ACTIONS] = {0};
    mm_graph *graphs[GRAPHS];
    make_graphs(5, graphs);
    for (int p = 0; p <= POLICIES; p++) {
        const char *policy = p < POLICIES ? policies[p] : "freelunch:rate=8,eligible=all,when=always";
        mm_requirement *r = need_of(graphs, 1, policy, &(mm_plan_limits){.pinned_bytes = PINNED});
        const mm_graph_requirement *g = &r->graphs[0];
        uint32_t all = 0;
        assert_true(g->n_stashed > 0);
        for (int i = 0; i < g->n_stashed; i++) {
            const mm_stashed *map = &g->stashed[i];
            mm_tensor found;
            expect_ok(mm_graph_find_tensor(graphs[0], map->name, &found));
            assert_int_equal(found, map->tensor);
            assert_true(map->actions != 0);
            assert_true(map->actions == 1u << MM_MAP_KEEP || !(map->actions >> MM_MAP_KEEP & 1));
            all |= map->actions;
            if (map->actions == 1u << MM_MAP_KEEP) assert_true(map->held_bytes >= map->bytes);
            for (int a = 0; a < MM_MAP_ACTIONS; a++) seen[a] += map->actions >> a & 1;
        }
        assert_true(g->moved_bytes == 0 || all & (1u << MM_MAP_SWAP | 1u << MM_MAP_COMPRESS_SWAP));
        assert_true(!(all >> MM_MAP_RECOMPUTE & 1) || g->steps_again > 0);
        if (strcmp(policy, "liveness") == 0) assert_true(all == 1u << MM_MAP_KEEP);
        mm_requirement_destroy(r);
    }
    for (int a = 0; a < MM_MAP_ACTIONS; a++)
        if (!seen[a] && a != MM_MAP_MASK && a != MM_MAP_COMPRESS_SWAP)
            fail_msg("no policy does %s", mm_map_action_name((mm_map_action)a));
    destroy_graphs(graphs);
}

/* Persistent tensors of the other graph count, and of that the requirement says how much. */
TEST_CASE(graphs_together_need_more_than_each_alone) {
    mm_graph *graphs[GRAPHS];
    make_graphs(2, graphs);
    const mm_plan_limits none = {.pinned_bytes = PINNED};
    mm_requirement *both = need_of(graphs, GRAPHS, "liveness", &none);
    for (int i = 0; i < GRAPHS; i++) {
        mm_requirement *alone = need_of(&graphs[i], 1, "liveness", &none);
        assert_int_equal(alone->graphs[0].other_bytes, 0);
        assert_int_equal(alone->least_bytes + both->graphs[i].other_bytes, both->graphs[i].least_bytes);
        assert_true(both->graphs[i].other_bytes > 0);
        mm_requirement_destroy(alone);
    }
    assert_int_equal(both->graphs[both->most].least_bytes, both->least_bytes);
    mm_requirement_destroy(both);
    destroy_graphs(graphs);
}

/* What steps on the host use takes pinned memory, of one graph and of several; without any, they do not fit. */
TEST_CASE(tensors_of_the_host_take_pinned_memory) {
    enum { COUNT_BYTES = 512 };
    mm_graph *graphs[] = {rig_random_graph(7, LAYERS, CHANNELS), graph_files_with_host()};
    mm_graph *without = graph_files_everything();
    for (int first = 0; first < 2; first++) {
        mm_graph *same[] = {graphs[0], without};
        const mm_plan_limits some = {.pinned_bytes = PINNED}, none = {.pinned_bytes = 0};
        mm_requirement *r = need_of(graphs + first, (size_t)(2 - first), "liveness", &some);
        mm_requirement *other = need_of(same + first, (size_t)(2 - first), "liveness", &some);
        assert_int_equal(r->least_bytes, other->least_bytes);
        assert_true(r->fits && r->pinned_bytes == COUNT_BYTES + other->pinned_bytes);
        mm_requirement_destroy(r);
        mm_requirement_destroy(other);
        expect_ok(mm_requirement_get(LIST(graphs + first), (size_t)(2 - first), NULL, "liveness", &none, &r));
        assert_true(!r->fits && strstr(r->refusal, "pinned"));
        mm_requirement_destroy(r);
    }
    mm_graph_destroy(graphs[0]);
    mm_graph_destroy(graphs[1]);
    mm_graph_destroy(without);
}

/* ---------------------------------------------------------------- through a file */

static uint64_t digest_of(const mm_graph *graph, const char *spec) {
    mm_policy policy;
    mm_planned planned;
    const mm_limits limits = {.device_bytes = 0, .pinned_bytes = PINNED, .base_bytes = mm_plan_base(graph)};
    expect_ok(mm_policy_parse(spec, &policy));
    expect_ok(mm_planned_init(&planned, &policy, graph, rig_device_used()->name));
    expect_ok(mm_planned_make_housed(&planned, &policy, graph, &limits));
    const uint64_t digest = mm_plan_digest(planned.plan);
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    return digest;
}

TEST_CASE(graphs_from_a_file_have_equal_plans_and_needs) {
    mm_graph *graphs[GRAPHS], **read;
    char path[GRAPH_PATH];
    size_t n;
    make_graphs(9, graphs);
    expect_ok(mm_graph_save(LIST(graphs), GRAPHS, graph_files_path("plans.json", path)));
    expect_ok(mm_graph_load(path, &read, &n));
    unlink(path);
    for (int p = 0; p < POLICIES; p++) {
        const mm_plan_limits limits = {.pinned_bytes = PINNED};
        char *texts[2];
        for (int i = 0; i < GRAPHS; i++)
            assert_true(digest_of(graphs[i], policies[p]) == digest_of(read[i], policies[p]));
        for (int i = 0; i < 2; i++) {
            mm_requirement *r = need_of(i ? read : graphs, GRAPHS, policies[p], &limits);
            expect_ok(mm_requirement_json(r, &texts[i]));
            mm_requirement_destroy(r);
        }
        assert_string_equal(texts[0], texts[1]);
        free(texts[0]);
        free(texts[1]);
    }
    mm_graph_list_destroy(read, n);
    destroy_graphs(graphs);
}

/* ---------------------------------------------------------------- advice */

/* The advised policy fits all graphs, and says whether it needs mm_recompute_set. */
TEST_CASE(the_advised_policy_fits_all_graphs_and_says_what_it_needs) {
    int recomputing = 0, fit = 0;
    for (int part = 12; part < 16; part += test_depth(2, 1)) {
        mm_graph *graphs[GRAPHS] = {rig_random_graph(1, 24, 8), graph_files_everything()};
        mm_requirement *all = need_of(graphs, GRAPHS, "liveness", &(mm_plan_limits){.pinned_bytes = PINNED});
        const int64_t pinned = all->pinned_bytes; /* of all-reduces */
        mm_plan_limits limits = {.device_bytes = all->least_bytes * part / 16, .pinned_bytes = pinned};
        mm_requirement_destroy(all);
        for (int no_recompute = 0; no_recompute < 2; no_recompute++) {
            limits.no_recompute = no_recompute;
            mm_requirement *r = need_of(graphs, GRAPHS, "liveness", &limits);
            assert_false(r->fits);
            assert_non_null(strstr(r->refusal, "liveness on "));
            assert_non_null(strstr(r->refusal, "needs at least"));
            const mm_advised *a = no_recompute && r->recomputing.kind == MM_ADVICE_FITS ? &r->recomputing : &r->advised;
            if (a->kind == MM_ADVICE_FITS) {
                if (start(graphs, GRAPHS, a->policy, limits.device_bytes, pinned) != MM_OK)
                    fail_msg("%s: %s", a->policy, mm_last_error());
                assert_non_null(strstr(r->refusal, a->policy));
                assert_int_equal(strstr(r->refusal, "(needs mm_recompute_set)") != NULL, a->needs_recompute_set);
                fit++;
                recomputing += a->needs_recompute_set;
            }
            if (no_recompute) assert_false(r->advised.kind == MM_ADVICE_FITS && r->advised.needs_recompute_set);
            mm_requirement_destroy(r);
        }
        destroy_graphs(graphs);
    }
    assert_true(fit > 1 && recomputing > 1);
}

TEST_CASE(a_policy_that_recomputes_does_not_fit_a_loop_that_cannot) {
    mm_graph *graph = rig_random_graph(1, 24, 8);
    const mm_plan_limits limits = {.no_recompute = true};
    mm_requirement *r = need_of(&graph, 1, "recompute:mode=sqrt,when=always", &limits);
    assert_true(r->needs_recompute_set && !r->fits);
    assert_non_null(strstr(r->refusal, "set a function for that with mm_recompute_set"));
    mm_requirement_destroy(r);
    r = need_of(&graph, 1, "auto:effort=0", &limits);
    assert_true(r->fits && !r->needs_recompute_set);
    mm_requirement_destroy(r);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- times */

TEST_CASE(times_are_known_where_the_facts_have_them) {
    mm_graph *graph = rig_random_graph(3, LAYERS, CHANNELS), *other = graph_files_everything();
    mm_graph *both[GRAPHS] = {graph, other};
    mm_graph_facts *facts;
    mm_requirement *r;
    expect_ok(mm_graph_facts_create(graph, 0, &facts));
    for (int v = 0; v < facts->variant_first[facts->n_steps]; v++) facts->variants[v].ns = 1000;
    facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1000000000);
    mm_facts *by_name = rig_facts(graph, facts);
    expect_ok(mm_requirement_get(LIST(&graph), 1, by_name, "liveness", NULL, &r));
    assert_int_equal(r->iteration_ns, 1000 * mm_graph_steps(graph));
    assert_in_range(r->graphs[0].bound_ns, 900 * mm_graph_steps(graph), 1000 * mm_graph_steps(graph));
    mm_requirement_destroy(r);
    expect_ok(mm_requirement_get(LIST(both), GRAPHS, by_name, "liveness", NULL, &r));
    assert_int_equal(r->graphs[0].iteration_ns, 1000 * mm_graph_steps(graph));
    assert_int_equal(r->graphs[1].iteration_ns, 0);
    assert_int_equal(r->graphs[1].bound_ns, 0);
    assert_int_equal(r->iteration_ns, 0); /* not of both */
    mm_requirement_destroy(r);
    /* The codec has no times. */
    expect_ok(mm_requirement_get(LIST(&graph), 1, by_name, "freelunch:rate=8,eligible=all,when=always", NULL, &r));
    assert_int_equal(r->iteration_ns, 0);
    assert_true(r->lossy);
    mm_requirement_destroy(r);
    mm_facts_destroy(by_name);
    mm_graph_facts_destroy(facts);
    destroy_graphs(both);
}

/* ---------------------------------------------------------------- text, errors */

TEST_CASE(the_text_has_the_figures) {
    mm_graph *graphs[GRAPHS];
    make_graphs(4, graphs);
    mm_requirement *r = need_of(graphs, GRAPHS, "liveness", &(mm_plan_limits){.device_bytes = 5000});
    char *text, number[32];
    expect_ok(mm_requirement_text(r, &text));
    const int64_t figures[] = {r->least_bytes,           r->persistent_bytes,      r->graphs[0].least_bytes,
                               r->graphs[1].least_bytes, r->graphs[0].other_bytes, r->graphs[1].stash_bytes};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        snprintf(number, sizeof number, " %lld ", (long long)figures[i]);
        if (!strstr(text, number)) fail_msg("no %s in %s", number, text);
    }
    assert_non_null(strstr(text, " and 1 more, liveness: does not fit "));
    assert_non_null(strstr(text, r->refusal));
    assert_non_null(strstr(text, r->graphs[1].held_by));
    free(text);
    mm_requirement_destroy(r);
    destroy_graphs(graphs);
}

static void refused(mm_status status, mm_status wanted, const char *says) {
    if (status != wanted || !strstr(mm_last_error(), says))
        fail_msg("%s: '%s' does not say '%s'", mm_status_name(status), mm_last_error(), says);
}

TEST_CASE(what_makes_no_sense_is_refused) {
    mm_graph *graph = rig_random_graph(1, 4, 2), *open, *twice;
    mm_requirement *r = NULL;
    char *text;
    mm_tensor tensor;
    mm_layer layer;
    const mm_tensor_desc desc = {
        .name = "w", .kind = MM_WEIGHT, .ownership = MM_PERSISTENT, .rank = 1, .dims = {INT64_C(1)}};
    expect_ok(mm_graph_create("open", &open));
    refused(mm_requirement_get(LIST(&graph), 0, NULL, NULL, NULL, &r), MM_ERR_INVALID, "0 graphs");
    refused(mm_requirement_get(NULL, 1, NULL, NULL, NULL, &r), MM_ERR_INVALID, "graphs is NULL");
    refused(mm_requirement_get(LIST(&graph), 1, NULL, NULL, NULL, NULL), MM_ERR_INVALID, "requirement_out is NULL");
    refused(mm_requirement_get(LIST(&open), 1, NULL, NULL, NULL, &r), MM_ERR_ORDER, "open is not frozen");
    refused(mm_requirement_get(LIST(&graph), 1, NULL, "hope", NULL, &r), MM_ERR_NOT_FOUND, "hope");
    refused(mm_requirement_get(LIST(&graph), 1, NULL, "naive:x=1", NULL, &r), MM_ERR_INVALID, "x");
    refused(mm_requirement_get(LIST(&graph), 1, NULL, NULL, &(mm_plan_limits){.device = "tpu"}, &r), MM_ERR_NOT_FOUND,
            "tpu");
    refused(mm_requirement_get(LIST(&graph), 1, NULL, NULL, &(mm_plan_limits){.device_bytes = -1}, &r), MM_ERR_INVALID,
            "-1 bytes");
    refused(mm_requirement_text(NULL, &text), MM_ERR_INVALID, "requirement is NULL");
    refused(mm_requirement_json(NULL, &text), MM_ERR_INVALID, "requirement is NULL");
    assert_null(r);
    twice = graph_files_everything();
    mm_graph *both[] = {twice, open};
    expect_ok(mm_graph_add_tensor(open, &desc, &tensor));
    expect_ok(mm_graph_add_layer(open, "l", MM_LAYER_OTHER, &layer));
    expect_ok(mm_graph_add_step(open, layer, MM_UPDATE, &(mm_use){tensor, MM_MODIFY, MM_FORM_VALUE}, 1, 0));
    expect_ok(mm_graph_freeze(open));
    refused(mm_requirement_get(LIST(both), 2, NULL, NULL, NULL, &r), MM_ERR_INVALID, "persistent tensor w");
    mm_requirement_destroy(NULL);
    mm_graph_destroy(twice);
    mm_graph_destroy(open);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- memory runs out */

TEST_CASE(one_allocation_that_fails_is_said_and_leaves_nothing) {
    const int stride = test_depth(test_is_sanitized() ? 197 : 89, 1);
    mm_graph *graph = rig_random_graph(1, 6, 2);
    const mm_plan_limits limits = {.device_bytes = 1, .device = "host"};
    bool happened = true;
    int nth = 1, whole = 0;
    for (; happened; nth += stride) {
        mm_requirement *r = NULL;
        char *text = NULL, *json = NULL;
        alloc_fault_set(nth);
        mm_status status = mm_requirement_get(LIST(&graph), 1, NULL, "freelunch:rate=8,eligible=all", &limits, &r);
        if (status == MM_OK) status = mm_requirement_text(r, &text);
        if (status == MM_OK) status = mm_requirement_json(r, &json);
        happened = alloc_fault_happened();
        alloc_fault_set(0);
        whole += status == MM_OK;
        if (status != MM_OK && (!happened || status != MM_ERR_NOMEM))
            fail_msg("allocation %d fails: %s: %s", nth, mm_status_name(status), mm_last_error());
        free(text);
        free(json);
        mm_requirement_destroy(r);
    }
    assert_true(nth > 20 * stride && whole > 0);
    mm_graph_destroy(graph);
}
