/* SPDX-License-Identifier: MIT */
/* mm_observe: plans follow the measured times, and weights stay the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/facts/facts.h"
#include "mm/core/plan/plan_digest.h"
#include "mm/core/time/simulate.h"
#include "mm/manager/prepare.h"
#include "mm/planning/planning.h"
#include "pipeline/execution.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/core/trace_check.h"
#include "tests/mm/manager/manager_rig.h"

/* ---------------------------------------------------------------- a device whose link changes
 *
 * The linker puts __wrap_mm_window_add in the place of mm_window_add, which takes an iteration's measured times. It
 * passes on simulated times instead, from the plan's facts and the `device` below, so no test depends on the machine's
 * load. */

static struct {
    int64_t link;                        /* bytes/s, each way */
    int steps_permille, codecs_permille; /* times of steps and of codecs, relative to the facts' */
    int64_t now_ns;
} device;

void __real_mm_window_add(mm_execution *execution, const mm_period *periods);
void __wrap_mm_window_add(mm_execution *p, const mm_period *periods);
void __wrap_mm_window_add(mm_execution *p, const mm_period *periods) {
    (void)periods;
    mm_graph_facts *truth;
    mm_simulation simulation;
    expect_ok(mm_graph_facts_copy(p->facts, &truth));
    truth->out_bytes_per_s = truth->in_bytes_per_s = device.link;
    for (int v = 0; v < truth->variant_first[truth->n_steps]; v++)
        truth->variants[v].ns = truth->variants[v].ns * device.steps_permille / 1000;
    for (int i = 0; i < truth->n_codecs * truth->n_tensors; i++) {
        truth->codes[i].encode_ns = truth->codes[i].encode_ns * device.codecs_permille / 1000;
        truth->codes[i].decode_ns = truth->codes[i].decode_ns * device.codecs_permille / 1000;
    }
    expect_ok(mm_program_simulate(p->program, truth, &simulation));
    for (int i = 0; i < p->program->n; i++) {
        simulation.spans[i].start_ns += device.now_ns;
        simulation.spans[i].end_ns += device.now_ns;
    }
    __real_mm_window_add(p, simulation.spans);
    device.now_ns += simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    mm_graph_facts_destroy(truth);
}

/* ---------------------------------------------------------------- a chain whose steps take known times */

enum { BLOCKS = 4, MAPS = 2 * BLOCKS + 1, SIDE = 16, STEPS_MOST = 32, CONV_NS = 200000, RELU_NS = 100000 };
#define FAST_LINK INT64_C(123000000) /* bytes/s: a copy of a map takes a third of a ReLU's time, */
#define SLOW_LINK INT64_C(8000000)   /* and here five times as long as a ReLU */

typedef struct chain {
    mm_graph *graph;
    int64_t step_ns[STEPS_MOST];
    int steps;
    mm_tensor map[MAPS], gradient[MAPS], weight[BLOCKS], loss;
    mm_layer conv[BLOCKS], relu[BLOCKS], last;
} chain;

static mm_tensor add(chain *c, const char *what, int i, mm_tensor_kind kind, mm_ownership ownership, int64_t side) {
    char name[32];
    mm_tensor tensor;
    snprintf(name, sizeof name, "%s%d", what, i);
    expect_ok(mm_graph_add_tensor(c->graph, &(mm_tensor_desc){name, kind, ownership, MM_F32, 4, {1, side, side, 4}},
                                  &tensor));
    return tensor;
}

static void step(chain *c, mm_layer layer, mm_phase phase, int64_t ns, const mm_use *uses, size_t n) {
    expect_ok(mm_graph_add_step(c->graph, layer, phase, uses, n, 0));
    c->step_ns[c->steps++] = ns;
}
#define STEP(c, layer, phase, ns, ...)                                                                                 \
    step(c, layer, phase, ns, (mm_use[]){__VA_ARGS__}, sizeof((mm_use[]){__VA_ARGS__}) / sizeof(mm_use))

static mm_layer layer(chain *c, const char *what, int i, mm_layer_kind kind) {
    char name[32];
    mm_layer layer;
    snprintf(name, sizeof name, "%s%d", what, i);
    expect_ok(mm_graph_add_layer(c->graph, name, kind, &layer));
    return layer;
}

/* workspace_bytes: the workspace of a convolution's forward step, which can also run without it; 0: it has none. */
static void chain_init(chain *c, const char *name, size_t workspace_bytes) {
    *c = (chain){0};
    expect_ok(mm_graph_create(name, &c->graph));
    for (int i = 0; i < MAPS; i++) {
        c->map[i] =
            i == 0 ? add(c, "map", i, MM_INPUT, MM_EXTERNAL, SIDE) : add(c, "map", i, MM_FEATURE_MAP, MM_MANAGED, SIDE);
        if (i > 0) c->gradient[i] = add(c, "gradient", i, MM_GRADIENT_MAP, MM_MANAGED, SIDE);
    }
    c->loss = add(c, "chain_loss", 0, MM_STATE, MM_PERSISTENT, 1);
    for (int i = 0; i < BLOCKS; i++) {
        c->weight[i] = add(c, "filter", i, MM_WEIGHT, MM_PERSISTENT, 2);
        c->conv[i] = layer(c, "conv", i, MM_LAYER_CONV);
        c->relu[i] = layer(c, "relu", i, MM_LAYER_RELU);
        const mm_use uses[] = {
            {c->map[2 * i], MM_READ, 0}, {c->weight[i], MM_READ, 0}, {c->map[2 * i + 1], MM_WRITE, 0}};
        expect_ok(mm_graph_add_step(c->graph, c->conv[i], MM_FORWARD, uses, 3, workspace_bytes));
        if (workspace_bytes > 0) expect_ok(mm_graph_allow_workspace(c->graph, 0));
        c->step_ns[c->steps++] = CONV_NS;
        STEP(c, c->relu[i], MM_FORWARD, RELU_NS, {c->map[2 * i + 1], MM_READ, 0}, {c->map[2 * i + 2], MM_WRITE, 0});
    }
    c->last = layer(c, "last", 0, MM_LAYER_LOSS);
    STEP(c, c->last, MM_FORWARD, RELU_NS, {c->map[MAPS - 1], MM_READ, 0}, {c->loss, MM_WRITE, 0});
    STEP(c, c->last, MM_BACKWARD, RELU_NS, {c->map[MAPS - 1], MM_READ, 0}, {c->gradient[MAPS - 1], MM_WRITE, 0});
    for (int i = BLOCKS - 1; i >= 0; i--) {
        STEP(c, c->relu[i], MM_BACKWARD, RELU_NS, {c->map[2 * i + 1], MM_READ, 0}, {c->gradient[2 * i + 2], MM_READ, 0},
             {c->gradient[2 * i + 1], MM_WRITE, 0});
        if (i > 0)
            STEP(c, c->conv[i], MM_BACKWARD, CONV_NS, {c->map[2 * i], MM_READ, 0}, {c->gradient[2 * i + 1], MM_READ, 0},
                 {c->weight[i], MM_MODIFY, 0}, {c->gradient[2 * i], MM_WRITE, 0});
        else
            STEP(c, c->conv[i], MM_BACKWARD, CONV_NS, {c->map[0], MM_READ, 0}, {c->gradient[1], MM_READ, 0},
                 {c->weight[0], MM_MODIFY, 0});
    }
    expect_ok(mm_graph_freeze(c->graph));
}

enum { CODEC_NS = 30000 };

/* Facts with the chain's step times and a policy's codecs. A step takes half as long again without its workspace. */
static mm_graph_facts *facts_of(const chain *c, const char *spec, int64_t link) {
    mm_policy policy;
    mm_planned planned;
    mm_graph_facts *facts;
    expect_ok(mm_policy_parse(spec, &policy));
    expect_ok(mm_planned_init(&planned, &policy, c->graph, rig_device_used()->name));
    expect_ok(mm_graph_facts_copy(planned.facts, &facts));
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    for (int s = 0; s < facts->n_steps; s++)
        for (int v = facts->variant_first[s], i = 0; v < facts->variant_first[s + 1]; v++, i++)
            facts->variants[v].ns = c->step_ns[s] * (2 + i) / 2;
    for (int i = 0; i < facts->n_codecs * facts->n_tensors; i++)
        facts->codes[i].encode_ns = facts->codes[i].decode_ns = CODEC_NS;
    facts->out_bytes_per_s = facts->in_bytes_per_s = link;
    return facts;
}

/* Simulated time of an iteration under the graph's present plan. */
static int64_t simulated(const mm_manager *m, const chain *c, const mm_graph_facts *facts) {
    mm_simulation simulation;
    expect_ok(mm_simulate(mm_plan_now(m, c->graph), facts, &simulation));
    const int64_t ns = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return ns;
}

/* ---------------------------------------------------------------- a manager that runs it */

typedef struct run {
    chain chain;
    rig rig;
    mm_manager *m;
    mm_facts *fast, *slow;  /* with each link */
    mm_graph_facts *slowed; /* those of the slow link, to simulate with */
    int64_t budget;
    int iterations;
    int events, lines; /* replans: events, and lines of the log */
    char last[512];    /* the log's last line about the plan */
} run;

static void note_event(void *ctx, const mm_event_info *event) {
    run *r = ctx;
    if (event->kind != MM_EVENT_REPLAN) return;
    assert_string_equal(event->name, "chain");
    assert_true(event->ns > 0 && event->bytes > 0 && event->bytes <= r->budget);
    r->events++;
}

static void note_line(void *ctx, mm_log_level level, const char *message) {
    run *r = ctx;
    const bool again = strstr(message, "is planned again") != NULL;
    assert_true(!again || level == MM_LOG_WARNING);
    r->lines += again;
    if (again || strstr(message, "keeps its plan")) snprintf(r->last, sizeof r->last, "%s", message);
}

static mm_manager *manager(run *r, const char *policy, const mm_facts *facts) {
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = r->budget,
                                              .pinned_bytes = 16 << 20,
                                              .policy = policy,
                                              .issue = MM_ISSUE_INLINE,
                                              .facts = facts,
                                              .trace_bytes = 1 << 20,
                                              .log = {note_line, r, MM_LOG_INFO},
                                              .event_fn = note_event,
                                              .event_ctx = r});
    expect_ok(mm_recompute_set(m, r->chain.graph, rig_again, &r->rig));
    expect_ok(rig_bind(&r->rig, m));
    return m;
}

/* The budget lies `share` per cent of the way from what the policy `least_of` needs to what liveness needs. */
static void start_with(run *r, const char *policy, const char *least_of, int share, size_t workspace_bytes) {
    memset(r, 0, sizeof *r);
    chain_init(&r->chain, "chain", workspace_bytes);
    rig_init(&r->rig, r->chain.graph, 1);
    device.link = FAST_LINK;
    device.steps_permille = device.codecs_permille = 1000;
    device.now_ns = 1;
    mm_graph_facts *fast = facts_of(&r->chain, policy, FAST_LINK);
    r->slowed = facts_of(&r->chain, policy, SLOW_LINK);
    r->fast = rig_facts(r->chain.graph, fast);
    r->slow = rig_facts(r->chain.graph, r->slowed);
    mm_graph_facts_destroy(fast);
    const int64_t least = rig_minimum(r->chain.graph, least_of), all = rig_minimum(r->chain.graph, "liveness");
    r->budget = least + (all - least) * share / 100;
    r->m = manager(r, policy, r->fast);
}

static void start_within(run *r, const char *policy, const char *least_of, int share) {
    start_with(r, policy, least_of, share, 0);
}

static void start(run *r, const char *policy) { start_within(r, policy, "swap:when=always", 33); }

static void finish(run *r) {
    mm_manager_destroy(r->m);
    mm_facts_destroy(r->fast);
    mm_facts_destroy(r->slow);
    mm_graph_facts_destroy(r->slowed);
    rig_fini(&r->rig);
    mm_graph_destroy(r->chain.graph);
}

static void observe(mm_manager *m, int percent, int window) {
    expect_ok(mm_observe(m, &(mm_observe_options){.replan_permille = 10 * percent, .window = window}));
}

static void iterate(run *r, int n) {
    for (int i = 0; i < n; i++, r->iterations++) expect_ok(rig_iteration(&r->rig, r->m, RIG_STREAM));
}

/* Runs n iterations as a loop does that waits only before every third, and replays an iteration where it may. */
static void iterate_ahead(run *r, int n) {
    for (int i = 0; i < n; i++, r->iterations++) {
        if (i % 3 == 0) expect_ok(mm_manager_sync(r->m));
        if (mm_replay_state(r->m, r->chain.graph) == MM_REPLAY_MAY) {
            expect_ok(mm_record_begin(r->m, r->chain.graph));
            expect_ok(rig_steps(&r->rig, r->m, RIG_STREAM, 0, mm_graph_steps(r->chain.graph)));
            expect_ok(mm_record_end(r->m));
        }
        expect_ok(mm_replay_state(r->m, r->chain.graph) == MM_REPLAY_READY
                      ? mm_iteration_replay(r->m, r->chain.graph)
                      : rig_iteration_ahead(&r->rig, r->m, RIG_STREAM));
    }
}

static mm_stats stats_of(mm_manager *m) {
    mm_stats stats;
    mm_stats_get(m, &stats);
    return stats;
}

static uint64_t plan_of(const run *r) { return mm_plan_digest(mm_plan_now(r->m, r->chain.graph)); }

static void expect_replans(const run *r, int n) {
    if (stats_of(r->m).replans != n || r->events != n || r->lines != n)
        fail_msg("planned again %lld times, not %d; %d events, %d lines in the log, the last: %s",
                 (long long)stats_of(r->m).replans, n, r->events, r->lines, r->last);
}

static void expect_the_bits(const run *r) {
    assert_true(rig_digest(&r->rig, r->m) == random_graph_reference(r->chain.graph, 1, r->iterations));
}

/* ---------------------------------------------------------------- tests */

/* One new plan is made; its simulated time is within 10 % of that of a plan made with the slow link's facts. */
TEST_CASE(a_link_that_slows_down_makes_another_plan_once) {
    run r;
    start(&r, "auto");
    observe(r.m, 20, 0);
    iterate(&r, 10);
    const uint64_t before = plan_of(&r);
    expect_replans(&r, 0);
    device.link = SLOW_LINK;
    iterate(&r, 30);
    const int64_t now = simulated(r.m, &r.chain, r.slowed);
    mm_manager *informed = manager(&r, "auto", r.slow);
    const int64_t best = simulated(informed, &r.chain, r.slowed);
    mm_manager_destroy(informed);
    expect_replans(&r, 1);
    assert_true(plan_of(&r) != before);
    assert_true(now <= best + best / 10);
    expect_the_bits(&r);
    iterate(&r, 100); /* the times are now as planned */
    expect_replans(&r, 1);
    finish(&r);
}

/* All steps become slower by the same factor, so no other plan is better. From then on the new times are the expected
 * ones. */
TEST_CASE(the_plan_stays_where_another_gains_nothing) {
    run r;
    start(&r, "auto");
    observe(r.m, 20, 5);
    device.steps_permille = 1190; /* an iteration is slower by just less than the limit: its time is nearly all steps */
    iterate(&r, 20);
    assert_string_equal(r.last, "");
    device.steps_permille = 1500;
    const uint64_t before = plan_of(&r);
    iterate(&r, 20);
    assert_non_null(strstr(r.last, "keeps its plan"));
    device.steps_permille = 1000; /* relative to the facts, which now have the new times */
    r.last[0] = '\0';
    iterate(&r, 130);
    assert_string_equal(r.last, "");
    assert_true(plan_of(&r) == before);
    expect_replans(&r, 0);
    expect_the_bits(&r);
    finish(&r);
}

/* At least a hundred iterations lie between two plannings. A plan that was replaced is not used again until a policy is
 * set. */
TEST_CASE(plans_that_were_left_are_not_taken_up_again) {
    run r;
    start(&r, "auto");
    observe(r.m, 20, 4);
    const uint64_t first = plan_of(&r);
    device.link = SLOW_LINK;
    iterate(&r, 6);
    expect_replans(&r, 1);
    const uint64_t second = plan_of(&r);
    device.steps_permille = 20000; /* compared with such slow steps, copies are quick again */
    r.last[0] = '\0';
    iterate(&r, 60);
    assert_string_equal(r.last, "");
    iterate(&r, 60);
    assert_non_null(strstr(r.last, "was left before"));
    assert_true(plan_of(&r) == second);
    expect_ok(mm_policy_set(r.m, "auto"));
    expect_ok(mm_policy_wait(r.m));
    assert_true(plan_of(&r) == first);
    expect_replans(&r, 1);
    expect_the_bits(&r);
    finish(&r);
}

/* Bit s is set if step s runs with a workspace. */
static uint32_t steps_with_workspace(const mm_manager *m, const chain *c) {
    const mm_plan *plan = mm_plan_now(m, c->graph);
    uint32_t steps = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_STEP && plan->nodes[i].work >= 0) steps |= 1U << plan->nodes[i].step;
    return steps;
}

/* With a slow link the policy would run steps without workspaces, so that fewer maps are copied out; but such steps
 * might round differently, so a new plan keeps each step's workspace. */
TEST_CASE(steps_keep_their_variants) {
    for (int share = 20; share < 100; share += 40) {
        run r;
        start_with(&r, "modnn", "swap:when=always", share, 3 * 4096);
        const uint32_t before = steps_with_workspace(r.m, &r.chain);
        observe(r.m, 20, 4);
        device.link = SLOW_LINK;
        iterate(&r, 12);
        expect_replans(&r, 1);
        assert_int_equal(steps_with_workspace(r.m, &r.chain), before);
        expect_the_bits(&r);
        mm_manager *informed = manager(&r, "modnn", r.slow);
        assert_int_not_equal(steps_with_workspace(informed, &r.chain), before);
        mm_manager_destroy(informed);
        finish(&r);
    }
}

/* coded[t]: whether tensor t is encoded. */
static void find_coded(const run *r, bool coded[64]) {
    const mm_plan *plan = mm_plan_now(r->m, r->chain.graph);
    memset(coded, 0, 64 * sizeof *coded);
    assert_true(mm_graph_tensors(r->chain.graph) <= 64);
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_ENCODE) coded[plan->nodes[i].tensor] = true;
}

/* In a new plan no map loses its codec or gets one, even where the policy, with the new times, would choose that. */
TEST_CASE(lossy_maps_keep_their_codecs) {
    static const char *const policies[] = {"freelunch:rate=8,eligible=all", "hybrid:rate=8"};
    static const char *const always[] = {"freelunch:rate=8,eligible=all,when=always", "hybrid:rate=8,when=always"};
    int refused = 0;
    for (int i = 0; i < 2 * 3 * 3; i++) {
        const int policy = i % 2, share = 25 + 25 * (i / 2 % 3), change = i / 6;
        bool before[64], after[64];
        run r;
        start_within(&r, policies[policy], always[policy], share);
        find_coded(&r, before);
        observe(r.m, 20, 4);
        device.link = change == 0 ? SLOW_LINK : FAST_LINK;
        device.steps_permille = change == 1 ? 100 : 1000;
        device.codecs_permille = change == 2 ? 50000 : 1000;
        iterate(&r, 12);
        refused += strstr(r.last, "other maps would lose bits") != NULL;
        find_coded(&r, after);
        assert_memory_equal(before, after, sizeof before);
        finish(&r);
    }
    assert_true(refused > 0);
}

/* A device that can record measures, replays, and measures again. */
TEST_CASE(iterations_are_measured_between_replays) {
    run r;
    start(&r, "auto");
    const bool records = !rig_device_used()->cpu_reaches_memory;
    observe(r.m, 20, 5);
    iterate_ahead(&r, 40);
    const int64_t replays = stats_of(r.m).replays;
    assert_true(records ? replays > 20 && replays < 35 : replays == 0);
    device.link = SLOW_LINK;
    iterate_ahead(&r, 50);
    if (records) expect_replans(&r, 0);
    iterate_ahead(&r, 40);
    expect_replans(&r, 1);
    iterate_ahead(&r, 40);
    assert_true(!records || stats_of(r.m).replays > replays + 60);
    expect_ok(mm_manager_sync(r.m));
    expect_the_bits(&r);
    finish(&r);
}

/* While times are observed, budgets and policies are set, iterations aborted, tensors and graphs added, and a trace is
 * written. */
TEST_CASE(changes_meanwhile_are_no_obstacle) {
    static trace_checked checked;
    run r;
    mm_graph *other = rig_random_graph(3, 6, 4);
    rig side;
    start(&r, "auto");
    rig_init(&side, other, 3);
    expect_ok(rig_bind(&side, r.m));
    observe(r.m, 20, 4);
    expect_ok(mm_trace_start(r.m, "changes"));
    static const char *const policies[] = {"auto", "swap-async", "recompute-swap", "modnn", "liveness", "auto"};
    int side_iterations = 0;
    for (int i = 0; i < 6; i++) {
        const int64_t whole = r.budget;
        r.budget = mm_manager_device_bytes(r.m);
        mm_status set = mm_policy_set(r.m, policies[i]);
        if (set != MM_OK && set != MM_ERR_INFEASIBLE) fail_msg("%s: %s", policies[i], mm_last_error());
        device.link = i % 2 ? FAST_LINK : SLOW_LINK;
        for (int k = 0; k < 30; k++) {
            iterate(&r, 1);
            if (k % 3 == 0) expect_ok(rig_iteration(&side, r.m, RIG_STREAM));
            side_iterations += k % 3 == 0;
            if (k % 7) continue;
            expect_ok(mm_iteration_begin(r.m, r.chain.graph));
            expect_ok(rig_steps(&r.rig, r.m, RIG_STREAM, 0, 3));
            mm_iteration_abort(r.m);
        }
        iterate_ahead(&r, 10);
        set = mm_budget_set(r.m, whole - (i % 3) * (whole / 50));
        if (set != MM_OK && set != MM_ERR_INFEASIBLE) fail_msg("%s", mm_last_error());
        r.budget = whole;
        if (i == 2) expect_ok(mm_manager_forget(r.m, other));
        if (i == 2) expect_ok(rig_bind(&(rig){.graph = other, .seed = 3, .external = side.external}, r.m));
        if (i == 2) side_iterations = 0;
    }
    expect_ok(mm_trace_stop(r.m, "trace.json", NULL));
    assert_true(trace_check("trace.json", NULL, &checked));
    assert_int_equal(unlink("trace.json"), 0);
    assert_true(stats_of(r.m).replans > 0);
    assert_int_equal(checked.process[0].replans, stats_of(r.m).replans);
    expect_the_bits(&r);
    assert_true(rig_digest(&side, r.m) == random_graph_reference(other, 3, side_iterations));
    finish(&r);
    rig_fini(&side);
    mm_graph_destroy(other);
}

/* mm_facts_save saves the observed times, also if the manager was created without measure_times. */
TEST_CASE(what_was_learned_is_saved) {
    run r;
    mm_facts *learned;
    start(&r, "swap:when=always");
    observe(r.m, 20, 4);
    device.link = SLOW_LINK;
    device.steps_permille = 2000;
    iterate(&r, 6);
    device.steps_permille = 1000; /* relative to the facts, which now have the new times */
    iterate(&r, 6);
    expect_ok(mm_facts_save(r.m, r.chain.graph, "facts.json"));
    expect_ok(mm_facts_load("facts.json", &learned));
    assert_int_equal(unlink("facts.json"), 0);
    mm_graph_facts *full = facts_of(&r.chain, "swap:when=always", FAST_LINK);
    expect_ok(mm_facts_apply(learned, r.chain.graph, MM_FACTS_TIMES, full));
    for (int s = 0; s < full->n_steps; s++)
        assert_in_range(full->variants[full->variant_first[s]].ns, 2 * r.chain.step_ns[s] - 2000,
                        2 * r.chain.step_ns[s] + 2000);
    assert_in_range(full->out_bytes_per_s, SLOW_LINK - SLOW_LINK / 100, SLOW_LINK + SLOW_LINK / 100);
    assert_in_range(full->in_bytes_per_s, SLOW_LINK - SLOW_LINK / 100, SLOW_LINK + SLOW_LINK / 100);
    mm_graph_facts_destroy(full);
    mm_facts_destroy(learned);
    finish(&r);
}

static void refused(mm_manager *m, mm_observe_options options, mm_status status, const char *words) {
    if (mm_observe(m, &options) != status || !strstr(mm_last_error(), words)) fail_msg("'%s'", mm_last_error());
}

TEST_CASE(bad_input_is_refused_and_changes_nothing) {
    run r;
    start(&r, "auto");
    assert_int_equal(mm_observe(NULL, &(mm_observe_options){.replan_permille = 200}), MM_ERR_INVALID);
    assert_int_equal(mm_observe(r.m, NULL), MM_ERR_INVALID);
    refused(r.m, (mm_observe_options){.replan_permille = -1}, MM_ERR_INVALID, "replan_permille is -1");
    refused(r.m, (mm_observe_options){.replan_permille = 10001}, MM_ERR_INVALID, "from 1 to 10000");
    refused(r.m, (mm_observe_options){200, -1}, MM_ERR_INVALID, "window is -1");
    refused(r.m, (mm_observe_options){200, 101}, MM_ERR_INVALID, "from 1 to 100");
    expect_ok(mm_iteration_begin(r.m, r.chain.graph));
    refused(r.m, (mm_observe_options){200, 0}, MM_ERR_ORDER, "an iteration of chain is under way");
    mm_iteration_abort(r.m);
    device.link = SLOW_LINK;
    iterate(&r, 20);
    observe(r.m, 20, 4);
    observe(r.m, 0, 0); /* ends the observation */
    iterate(&r, 20);
    expect_replans(&r, 0);
    mm_manager *without = manager(&r, "auto", NULL);
    refused(without, (mm_observe_options){200, 0}, MM_ERR_INVALID, "give mm_options.facts");
    expect_ok(mm_observe(without, &(mm_observe_options){0}));
    mm_manager_destroy(without);
    if (!rig_device_used()->cpu_reaches_memory) {
        without = rig_manager(&(mm_options){.device_bytes = r.budget, .facts = r.fast});
        refused(without, (mm_observe_options){200, 0}, MM_ERR_UNSUPPORTED, "give mm_options.trace_bytes");
        mm_manager_destroy(without);
    }
    finish(&r);
}

/* A program that was built with an older mm.h passes a smaller mm_stats. */
TEST_CASE(statistics_of_older_headers_keep_their_size) {
    run r;
    mm_stats stats;
    start(&r, "auto");
    iterate(&r, 2);
    memset(&stats, 0x55, sizeof stats);
    (mm_stats_get)(r.m, &stats);
    assert_int_equal(stats.iterations, 2);
    assert_int_equal(stats.ladder_steps, 0);
    assert_true(stats.replans == INT64_C(0x5555555555555555));
    finish(&r);
}
