/* SPDX-License-Identifier: MIT */
/* mm_program_prove against a second opinion by brute force: over right plans, and over plans broken in one place. Every
 * verdict must agree, in both directions: breaking a plan may be harmless. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/check/plan_rules.h"
#include "mm/core/plan/plan.h"
#include "mm/core/plan/plan_measures.h"
#include "tests/core/plan_mutate.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/plan_proof.h"
#include "tests/core/plan_run.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"
#include "tests/core/test_case.h"

enum { GRAPHS = 60, PLANS = 4, ROUNDS = 4, MUTATIONS = 150 };

typedef struct world {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_place *places;
    mm_limits limits; /* exactly what the plan needs */
} world;

/* Whether the home of a persistent tensor may be in pinned memory: not if the first step uses it, before which no copy
 * can be made. */
static bool may_visit(const mm_tensor_info *tensor) {
    return tensor->first_use > 0 && tensor->shared == MM_ALLREDUCE_NOT;
}

/* Places persistent tensors: in every other world one after the other, else in any order with room between them, and in
 * half of these worlds some of them in pinned memory; of these, in half, some on the disk. */
static void place_persistents(world *w, uint64_t seed) {
    const int n = mm_graph_persistents(w->graph);
    w->places = calloc((size_t)n + 1, sizeof *w->places);
    int *order = calloc((size_t)n + 1, sizeof *order);
    assert_true(w->places && order);
    for (int i = 0; i < n; i++) { /* random order: i takes position `at`, what was there the last one */
        const int at = random_below(&seed, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    const bool some_visit = random_chance(&seed, 50), some_on_disk = random_chance(&seed, 50);
    for (int t = 0, i = 0; t < mm_graph_tensors(w->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(w->graph, t);
        if (tensor->persistent < 0) continue;
        w->places[i].offset = mm_align(tensor->bytes); /* for now, how large it is */
        const bool leaves = some_visit && may_visit(tensor) && random_chance(&seed, 60);
        w->places[i++].memory = !leaves && !tensor->on_host                ? MM_MEM_DEVICE
                                : some_on_disk && random_chance(&seed, 50) ? MM_MEM_DISK
                                                                           : MM_MEM_PINNED;
    }
    for (int i = 0; i < n; i++) {
        mm_place *place = &w->places[order[i]];
        int64_t *end = place->memory == MM_MEM_DEVICE   ? &w->limits.base_bytes
                       : place->memory == MM_MEM_PINNED ? &w->limits.pinned_base_bytes
                                                        : &w->limits.disk_base_bytes;
        const int64_t bytes = place->offset;
        *end += mm_memory_align(place->memory) * random_below(&seed, 3);
        place->offset = *end;
        *end += mm_memory_round(place->memory, bytes);
    }
    w->limits.places = w->places;
    free(order);
}

static world world_create(uint64_t seed, int layers) {
    world w = {0};
    random_graph_options graph_options = {
        .seed = seed, .layers = layers, .max_channels = 6, .hosts = seed % 4 == 1, .repeats = true};
    assert_int_equal(random_graph_create(&graph_options, &w.graph), MM_OK);
    assert_int_equal(random_facts_create(w.graph, seed, &w.facts), MM_OK);
    if (seed % 2)
        place_persistents(&w, seed);
    else
        w.limits.base_bytes = mm_plan_base(w.graph) + MM_ALIGN * (int64_t)(seed % 5);
    random_plan_options plan_options = {.seed = seed,
                                        .lossy = seed % 2 == 0,
                                        .dynamic = seed % 3 == 0,
                                        .measures = seed % 7 < 4,
                                        .disk = seed % 3 == 1,
                                        .pools = seed % 5 < 2};
    assert_int_equal(random_plan_create(w.graph, w.facts, &w.limits, &plan_options, &w.plan), MM_OK);
    w.limits.device_bytes = w.plan->peak_bytes;
    w.limits.pinned_bytes = w.plan->pinned_bytes;
    w.limits.disk_bytes = w.plan->disk_bytes;
    return w;
}

static void world_destroy(world *w) {
    mm_plan_destroy(w->plan);
    mm_graph_facts_destroy(w->facts);
    mm_graph_destroy(w->graph);
    free(w->places);
}

static bool has_lossy_code(const mm_plan *plan) {
    bool lossy = false;
    for (int i = 0; i < plan->n_segments; i++)
        lossy |= plan->segments[i].content == MM_CONTENT_CODED && plan->segments[i].codec == RANDOM_LOSSY;
    return lossy;
}

/* Whether the plan may restore a tensor with other bits: from a lossy code, or by a variant that is not
 * deterministic. */
static bool may_lose(const mm_plan *plan) {
    bool lossy = has_lossy_code(plan);
    for (int i = 0; i < plan->n_nodes; i++) lossy |= plan->nodes[i].kind == MM_NODE_RECOMPUTE;
    return lossy;
}

/* Numbers of segments with a tensor: those that the proof calls exact, those that it does not, and those of which the
 * oracle found an inexact read, though something exact was written there too. */
typedef struct told {
    int exact, inexact, both;
} told;

/* If the proof calls a segment exact, no read of it may have found inexact content; and it must call a segment exact
 * that only exact content was written to. */
static void compare_exact(const mm_plan *plan, const bool *exact, const plan_contents *contents, told *told) {
    for (int i = 0; i < plan->n_segments; i++) {
        const plan_contents *found = &contents[i];
        if (plan->segments[i].content == MM_CONTENT_WORK || plan->segments[i].content == MM_CONTENT_POOL) continue;
        if (exact[i] && found->inexact_reads > 0)
            fail_msg("%s: segment %d is told exact, %d reads find it inexact", mm_graph_name(plan->graph), i,
                     found->inexact_reads);
        if (!exact[i] && found->inexact_writes == 0)
            fail_msg("%s: segment %d is told inexact, all that was written there is exact", mm_graph_name(plan->graph),
                     i);
        told->exact += exact[i];
        told->inexact += !exact[i];
        told->both += found->inexact_reads > 0 && found->exact_writes > 0;
    }
}

/* Returns the proof's verdict on a plan; *oracle_out: the oracle's. If both accept it, what they say of its segments
 * must agree. */
static mm_status prove(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits, mm_status *oracle_out,
                       const char **why_out, told *told) {
    size_t n = (size_t)plan->n_segments + 1;
    bool *exact = calloc(n, sizeof *exact);
    plan_contents *contents = calloc(n, sizeof *contents);
    assert_true(exact && contents);
    *oracle_out = plan_oracle(plan, facts, limits, contents, why_out);
    mm_status status = plan_prove(plan, facts, limits, exact);
    if (status == MM_OK && *oracle_out == MM_OK) compare_exact(plan, exact, contents, told);
    free(exact);
    free(contents);
    return status;
}

/* On the disk homes lie at blocks, so that no two share one, and below the base. */
TEST_CASE(homes_on_the_disk_have_blocks_and_a_base) {
    static const struct {
        int64_t by, base; /* how far the home moves, and the base, both in the plan and in the limits */
        const char *why;
    } CASES[] = {{MM_ALIGN, 2 * 4096, "not aligned, or not below the base"},
                 {0, -4096, "not aligned, or not below the base"},
                 {-(INT64_C(1) << 40), 0, "not aligned, or not below the base"}};
    int tried = 0;
    for (uint64_t seed = 1; seed < GRAPHS * PLANS && tried < 20; seed += 2) {
        if (seed % 3 == 1) continue; /* maps are on the disk, too, above the base */
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
            world w = world_create(seed, 3 + (int)(seed % 12));
            mm_status oracle;
            const char *why;
            told ignored = {0};
            int last = -1;
            for (int s = 0; s < mm_graph_persistents(w.graph); s++) {
                const mm_place *place = &w.places[s];
                if (place->memory == MM_MEM_DISK && (last < 0 || place->offset > w.places[last].offset)) last = s;
            }
            if (last >= 0) {
                w.plan->segments[last].offset = w.places[last].offset += CASES[i].by;
                w.plan->disk_base_bytes = w.limits.disk_base_bytes += CASES[i].base;
                assert_int_equal(prove(w.plan, w.facts, &w.limits, &oracle, &why, &ignored), MM_ERR_PLAN);
                assert_int_equal(oracle, MM_ERR_PLAN);
                if (!strstr(mm_last_error(), CASES[i].why)) fail_msg("seed %d: %s", (int)seed, mm_last_error());
                tried++;
            }
            world_destroy(&w);
        }
    }
    assert_true(tried >= 20);
}

/* A step on the host that shares no tensor with the device's steps: iterations follow each other on the compute stream
 * alone. */
TEST_CASE(a_step_on_the_host_must_wait_for_the_iteration_before) {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_tensor tensors[2];
    const mm_place places[] = {{0, MM_MEM_DEVICE}, {0, MM_MEM_PINNED}};
    const mm_limits limits = {.device_bytes = 1 << 20,
                              .pinned_bytes = 1 << 20,
                              .base_bytes = MM_ALIGN,
                              .pinned_base_bytes = MM_ALIGN,
                              .places = places};
    assert_int_equal(mm_graph_create("hosting", &graph), MM_OK);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "count" : "loss";
        const mm_tensor_desc desc = {
            .name = name, .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {1}};
        mm_layer layer;
        assert_int_equal(mm_graph_add_tensor(graph, &desc, &tensors[i]), MM_OK);
        assert_int_equal(mm_graph_add_layer(graph, name, MM_LAYER_UPDATE, &layer), MM_OK);
        const mm_use use = {tensors[i], MM_MODIFY, MM_FORM_VALUE};
        assert_int_equal(mm_graph_add_step(graph, layer, MM_UPDATE, &use, 1, 0), MM_OK);
    }
    assert_int_equal(mm_graph_run_on_host(graph), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
    assert_int_equal(mm_graph_facts_create(graph, 0, &facts), MM_OK);
    assert_int_equal(mm_plan_create(graph, &limits, &plan), MM_OK);
    for (int s = 0; s < 2; s++) assert_int_equal(mm_plan_step(plan, s), s);
    assert_int_equal(mm_plan_finish(plan), MM_OK);
    assert_int_equal(plan_check(plan, facts, &limits), MM_ERR_PLAN);
    assert_non_null(strstr(mm_last_error(), "without a wait for any step"));
    mm_plan_wait(plan, 1, 0);
    assert_int_equal(plan_check(plan, facts, &limits), MM_OK);
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

TEST_CASE(check_accepts_random_right_plans) {
    int ops = 0, trips = 0, measures[2] = {0}, /* maps, persistent tensors */ inplace = 0, aliases = 0, dynamic = 0,
        pinned = 0, waits = 0, recomputes = 0, bodies = 0, spills = 0, pinned_pools = 0,
        moves[2] = {0}; /* raw, coded */
    int visits = 0, returns = 0, hosts = 0, loads = 0, stores = 0, hosts_on_disk = 0;
    told told[2] = {0}; /* of plans in which nothing is lost, and of others */
    for (uint64_t seed = 0; seed < GRAPHS * PLANS; seed++) {
        world w = world_create(seed, 3 + (int)(seed % 12));
        mm_status oracle;
        const char *why;
        if (prove(w.plan, w.facts, &w.limits, &oracle, &why, &told[may_lose(w.plan)]) != MM_OK)
            fail_msg("seed %d: %s", (int)seed, mm_last_error());
        if (oracle != MM_OK) fail_msg("seed %d: oracle: %s", (int)seed, why);
        for (int i = 0; i < w.plan->n_nodes; i++) {
            const mm_node *n = &w.plan->nodes[i];
            ops += n->kind != MM_NODE_STEP;
            hosts += mm_node_on_host(n);
            for (int u = 0; mm_node_on_host(n) && u < mm_graph_step(w.graph, n->step)->n_uses; u++)
                hosts_on_disk += w.plan->bindings[n->first_binding + u] >= mm_graph_persistents(w.graph);
            const bool of_home = mm_plan_visits(w.plan, n->tensor >= 0 ? n->tensor : 0);
            visits += n->kind == MM_NODE_IN && of_home;
            returns += n->kind == MM_NODE_OUT && of_home;
            loads += n->kind == MM_NODE_LOAD && of_home;
            stores += n->kind == MM_NODE_STORE && of_home;
            trips += !of_home && n->dst >= 0 && n->dst < mm_graph_persistents(w.graph);
            if (n->kind == MM_NODE_MEASURE) measures[n->src < mm_graph_persistents(w.graph)]++;
            recomputes += n->kind == MM_NODE_RECOMPUTE;
            if (n->kind == MM_NODE_IN) moves[w.plan->segments[n->src].content]++;
            for (int s = 0; s < MM_STREAM_COUNT; s++) waits += w.plan->nodes[i].wait[s] >= 0;
        }
        for (int i = 0; i < w.plan->n_segments; i++) {
            inplace += w.plan->segments[i].live_last < w.plan->segments[i].last_node;
            dynamic += w.plan->segments[i].dynamic;
            pinned += w.plan->segments[i].memory == MM_MEM_PINNED;
            bodies += w.plan->segments[i].pool >= 0;
            spills += w.plan->segments[i].spill >= 0;
            pinned_pools +=
                w.plan->segments[i].pool >= 0 && w.plan->segments[w.plan->segments[i].pool].memory == MM_MEM_PINNED;
        }
        for (int t = 0; t < mm_graph_tensors(w.graph); t++) aliases += w.plan->alias[t] != t;
        world_destroy(&w);
    }
    print_message(
        "%d plans: %d operations (%d maps and %d codes fetched from pinned memory, %d recomputed, %d persistent "
        "tensors put back), %d maps and %d persistent tensors measured, %d waits, %d in place, %d aliases, %d dynamic, "
        "%d pinned, %d bodies (%d in pinned memory, "
        "%d spills)\n",
        GRAPHS * PLANS, ops, moves[0], moves[1], recomputes, trips, measures[0], measures[1], waits, inplace, aliases,
        dynamic, pinned, bodies, pinned_pools, spills);
    print_message("%d persistent tensors fetched from other homes, %d sent there, %d of them from the disk, %d to it; "
                  "%d steps on the host\n",
                  visits, returns, loads, stores, hosts);
    assert_true(visits > 100 && returns > 50 && hosts > 50 && loads > 30 && stores > 15 && hosts_on_disk > 10);
    assert_true(bodies > 200 && pinned_pools > 20 && spills > 20);
    assert_true(ops > 100 && waits > 100 && inplace > 100 && aliases > 20 && dynamic > 100 && pinned > 20);
    assert_true(measures[0] > 100 && measures[1] > 100);
    assert_true(moves[0] > 20 && moves[1] > 20 && recomputes > 100 && trips > 100);
    print_message("where nothing is lost, %d segments are exact; elsewhere %d are, %d are not, %d of these at times\n",
                  told[0].exact, told[1].exact, told[1].inexact, told[1].both);
    assert_int_equal(told[0].inexact, 0);
    assert_true(told[0].exact > 200 && told[1].exact > 1000 && told[1].inexact > 200 && told[1].both > 20);
}

/* Whether the plan gives the same results in every order that its waits allow; unless codes are lossy, these must also
 * be the results of steps with memory of their own for every tensor. */
static bool runs_right(const mm_plan *plan, const mm_graph_facts *facts, bool lossy) {
    uint64_t expected_measured, measured;
    uint64_t expected = plan_run(plan, facts, 7, 2, PLAN_ORDER_ISSUE, 0, &expected_measured);
    if (!lossy && expected != random_graph_reference(plan->graph, 7, 2)) return false;
    for (int order = PLAN_ORDER_EAGER; order <= PLAN_ORDER_RANDOM; order++)
        if (plan_run(plan, facts, 7, 2, order, 1, &measured) != expected || measured != expected_measured) return false;
    for (uint64_t seed = 2; seed < 5; seed++)
        if (plan_run(plan, facts, 7, 2, PLAN_ORDER_RANDOM, seed, &measured) != expected ||
            measured != expected_measured)
            return false;
    return true;
}

/* Chooses measures that the check must accept: after a step, of an exact segment that the step reads; at the end, of
 * exact persistent tensors. Returns their number, `most` at most. */
static int choose_measures(const mm_plan *plan, const bool *exact, mm_measure_at *at, int most) {
    int n = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (node->kind != MM_NODE_STEP || node->seq == 0) continue;
        const mm_step_info *step = mm_graph_step(plan->graph, node->step);
        for (int u = 0; u < step->n_uses && n < most; u++) {
            const int segment = plan->bindings[node->first_binding + u];
            if (step->uses[u].access != MM_READ || segment < 0 || !exact[segment] || mm_node_on_host(node)) continue;
            if (plan->segments[segment].content != MM_CONTENT_RAW || plan->segments[segment].dynamic) continue;
            if (mm_graph_tensor(plan->graph, step->uses[u].tensor)->dtype == MM_F32)
                at[n++] = (mm_measure_at){i, segment};
        }
    }
    for (int s = 0; s < mm_graph_persistents(plan->graph) && n < most; s++)
        if (plan->segments[s].memory == MM_MEM_DEVICE &&
            mm_graph_tensor(plan->graph, plan->segments[s].tensor)->dtype == MM_F32 && exact[s])
            at[n++] = (mm_measure_at){plan->n_nodes, s};
    return n;
}

TEST_CASE(measures_are_added_to_a_right_plan) {
    enum { MOST = 64 };
    int added = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        world w = world_create(seed, 3 + (int)(seed % 12));
        bool *exact = calloc((size_t)w.plan->n_segments + 1, sizeof *exact);
        mm_measure_at at[MOST];
        mm_plan *plan;
        const char *why;
        told ignored = {0};
        mm_status oracle;
        assert_int_equal(plan_prove(w.plan, w.facts, &w.limits, exact), MM_OK);
        const int n = choose_measures(w.plan, exact, at, MOST);
        assert_int_equal(mm_plan_add_measures(w.plan, at, n, &plan), MM_OK);
        if (prove(plan, w.facts, &w.limits, &oracle, &why, &ignored) != MM_OK)
            fail_msg("seed %d: %s", (int)seed, mm_last_error());
        if (oracle != MM_OK) fail_msg("seed %d: oracle: %s", (int)seed, why);
        if (!runs_right(plan, w.facts, has_lossy_code(plan))) fail_msg("seed %d goes wrong", (int)seed);
        assert_int_equal(plan->n_nodes, w.plan->n_nodes + n);
        assert_true(plan->peak_bytes == w.plan->peak_bytes && plan->extent_bytes == w.plan->extent_bytes);
        for (int i = 0; i < plan->n_nodes; i++) added += plan->nodes[i].kind == MM_NODE_MEASURE;
        for (int i = 0; i < w.plan->n_nodes; i++) added -= w.plan->nodes[i].kind == MM_NODE_MEASURE;
        mm_plan_destroy(plan);
        free(exact);
        world_destroy(&w);
    }
    assert_true(added > 500);
}

TEST_CASE(what_check_accepts_computes_the_same_in_every_order) {
    int accepted = 0, seen_wrong = 0, refused = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        world w = world_create(seed, 3 + (int)(seed % 12));
        if (!runs_right(w.plan, w.facts, has_lossy_code(w.plan))) fail_msg("seed %d goes wrong", (int)seed);
        for (int i = 0; mutation_at(i); i++) {
            const mutation *mutation = mutation_at(i);
            mutant m = {.plan = plan_clone(w.plan), .limits = w.limits, .facts = w.facts, .random = seed};
            if (mutation->apply(&m) && plan_walkable(m.plan) && mm_plan_finish(m.plan) == MM_OK) {
                m.limits.device_bytes = m.limits.pinned_bytes = 1 << 26; /* at most, to be run here */
                /* Refused plans are run only if nothing but a wait is missing; others might touch foreign memory. */
                bool accept = plan_check(m.plan, m.facts, &m.limits) == MM_OK;
                bool can_run = strcmp(mutation->name, "drop_wait") == 0 || accept;
                bool right = can_run && runs_right(m.plan, m.facts, has_lossy_code(m.plan));
                if (accept && !right) fail_msg("%s, seed %d: accepted but wrong", mutation->name, (int)seed);
                accepted += accept;
                refused += can_run && !accept;
                seen_wrong += can_run && !accept && !right;
            }
            mm_plan_destroy(m.plan);
        }
        world_destroy(&w);
    }
    print_message("%d accepted mutants run right; of %d refused for a wait, %d were seen to go wrong\n", accepted,
                  refused, seen_wrong);
    assert_true(accepted > 200 && seen_wrong > 5);
}

typedef struct tally {
    int rejected, infeasible, harmless;
    told told;
} tally;

/* The rule that the latest refusal names. */
static mm_rule rule_of_refusal(void) {
    const char *named = strstr(mm_last_error(), "(rule ");
    for (int r = 0; named && r < MM_RULE_COUNT; r++) {
        char ending[16];
        snprintf(ending, sizeof ending, "%s)", mm_rule_number((mm_rule)r));
        if (strcmp(named + strlen("(rule "), ending) == 0) return (mm_rule)r;
    }
    fail_msg("no rule in: %s", mm_last_error());
    return MM_RULE_COUNT;
}

/* broken: how often each rule was. */
static void compare_verdicts(const world *w, const mutation *mutation, uint64_t seed, tally *tally, int *broken) {
    mutant m = {.plan = plan_clone(w->plan), .limits = w->limits, .facts = w->facts, .random = seed};
    if (mutation->apply(&m)) {
        if (!m.keep_sums && plan_walkable(m.plan)) assert_int_equal(mm_plan_finish(m.plan), MM_OK);
        /* Without limits, unless the mutation set them: that a plan is larger now must not hide what else is wrong. */
        if (m.limits.device_bytes == w->limits.device_bytes) m.limits.device_bytes = INT64_MAX;
        if (m.limits.pinned_bytes == w->limits.pinned_bytes) m.limits.pinned_bytes = INT64_MAX;
        const char *why;
        mm_status expected, status = prove(m.plan, m.facts, &m.limits, &expected, &why, &tally->told);
        if (status != expected)
            fail_msg("%s, seed %llu on %s: check says %s (%s), oracle says %s (%s)", mutation->name,
                     (unsigned long long)seed, mm_graph_name(w->graph), mm_status_name(status),
                     status == MM_OK ? "" : mm_last_error(), mm_status_name(expected), why);
        if (status == MM_ERR_PLAN) broken[rule_of_refusal()]++;
        tally->rejected += status == MM_ERR_PLAN;
        tally->infeasible += status == MM_ERR_INFEASIBLE;
        tally->harmless += status == MM_OK;
    }
    mm_plan_destroy(m.plan);
}

/* Rules that no mutation breaks. The facts are always the graph's; homes are where the limits place them, apart; no
 * step between a forward step and its recomputation writes a persistent tensor; the limits of bytes are no MM_ERR_PLAN;
 * and pieces are broken by program_check_test. plan_rules_test breaks the others. */
static bool is_never_broken(mm_rule rule) {
    static const mm_rule rules[] = {MM_RULE_FACTS,        MM_RULE_PIECES,       MM_RULE_PARTS,
                                    MM_RULE_CUT,          MM_RULE_HOMES_APART,  MM_RULE_UNCHANGED,
                                    MM_RULE_DEVICE_BYTES, MM_RULE_PINNED_BYTES, MM_RULE_DISK_BYTES};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i] == rule) return true;
    return false;
}

TEST_CASE(check_and_brute_force_agree_on_every_mutant) {
    tally tallies[MUTATIONS] = {0}, all = {0};
    int broken[MM_RULE_COUNT] = {0};
    assert_null(mutation_at(MUTATIONS));
    for (uint64_t seed = 0; seed < GRAPHS * PLANS; seed++) {
        world w = world_create(seed, 3 + (int)(seed % 10));
        for (int i = 0; mutation_at(i); i++)
            for (int round = 0; round < ROUNDS; round++)
                compare_verdicts(&w, mutation_at(i), seed * 1000 + (uint64_t)(i * ROUNDS + round), &tallies[i], broken);
        world_destroy(&w);
    }
    for (int i = 0; mutation_at(i); i++) {
        print_message("%-28s rejected %5d, infeasible %5d, harmless %5d\n", mutation_at(i)->name, tallies[i].rejected,
                      tallies[i].infeasible, tallies[i].harmless);
        assert_true(tallies[i].rejected + tallies[i].infeasible > 0);
        all.rejected += tallies[i].rejected;
        all.infeasible += tallies[i].infeasible;
        all.harmless += tallies[i].harmless;
        all.told.exact += tallies[i].told.exact;
        all.told.inexact += tallies[i].told.inexact;
        all.told.both += tallies[i].told.both;
    }
    print_message("%-28s rejected %5d, infeasible %5d, harmless %5d\n", "all", all.rejected, all.infeasible,
                  all.harmless);
    for (int r = 0; r < MM_RULE_COUNT; r++) {
        print_message("rule %-5s broken %5d times\n", mm_rule_number((mm_rule)r), broken[r]);
        if (!is_never_broken((mm_rule)r) && broken[r] == 0)
            fail_msg("rule %s is broken by no mutant", mm_rule_number((mm_rule)r));
    }
    print_message("in those that are harmless, %d segments are exact, %d are not, %d of these at times\n",
                  all.told.exact, all.told.inexact, all.told.both);
    assert_true(all.told.exact > 10000 && all.told.inexact > 1000 && all.told.both > 100);
    assert_true(all.rejected > 10000 && all.infeasible > 500 && all.harmless > 1000);
}
