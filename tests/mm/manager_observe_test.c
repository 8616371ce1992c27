/* mm_observe: plans follow what is measured; weights do not change by that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mm/core/facts.h"
#include "mm/core/simulate.h"
#include "mm/measured.h"
#include "pipeline/internal.h"
#include "tests/core/expect.h"
#include "tests/core/trace_check.h"
#include "tests/mm/manager_rig.h"

/* ---------------------------------------------------------------- a device whose link changes
 *
 * The linker puts this in the place of what takes the times of an iteration: they are what the simulator says of the
 * plan's facts with the link as it is then. So no test depends on how busy its machine is. */

static struct {
    int64_t link; /* bytes/s, each way */
    int64_t now_ns;
    int measured; /* iterations */
} device;

void __real_mm_window_add(mm_execution *execution, const mm_period *periods);
void __wrap_mm_window_add(mm_execution *p, const mm_period *periods);
void __wrap_mm_window_add(mm_execution *p, const mm_period *periods) {
    (void)periods;
    mm_facts truth = *p->facts;
    mm_simulation simulation;
    truth.out_bytes_per_s = truth.in_bytes_per_s = device.link;
    expect_ok(mm_program_simulate(p->program, &truth, &simulation));
    for (int i = 0; i < p->program->n; i++) {
        simulation.spans[i].start_ns += device.now_ns;
        simulation.spans[i].end_ns += device.now_ns;
    }
    __real_mm_window_add(p, simulation.spans);
    device.now_ns += simulation.iteration_ns;
    device.measured++;
    mm_simulation_fini(&simulation);
}

/* ---------------------------------------------------------------- a chain whose steps take known times */

enum { BLOCKS = 4, MAPS = 2 * BLOCKS + 1, SIDE = 16, STEPS_MOST = 32, CONV_NS = 200000, RELU_NS = 100000 };
#define FAST_LINK INT64_C(123000000) /* bytes/s: a map takes a third of a ReLU's time, */
#define SLOW_LINK INT64_C(8000000)   /* and five times its time */

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

static void chain_init(chain *c, const char *name) {
    *c = (chain){0};
    expect_ok(mm_graph_create(name, &c->graph));
    for (int i = 0; i < MAPS; i++) {
        c->map[i] =
            i == 0 ? add(c, "map", i, MM_INPUT, MM_EXTERNAL, SIDE) : add(c, "map", i, MM_FEATURE_MAP, MM_MANAGED, SIDE);
        if (i > 0) c->gradient[i] = add(c, "gradient", i, MM_GRADIENT_MAP, MM_MANAGED, SIDE);
    }
    c->loss = add(c, "loss", 0, MM_STATE, MM_PERSISTENT, 1);
    for (int i = 0; i < BLOCKS; i++) {
        c->weight[i] = add(c, "weight", i, MM_WEIGHT, MM_PERSISTENT, 2);
        c->conv[i] = layer(c, "conv", i, MM_LAYER_CONV);
        c->relu[i] = layer(c, "relu", i, MM_LAYER_RELU);
        STEP(c, c->conv[i], MM_FORWARD, CONV_NS, {c->map[2 * i], MM_READ, 0}, {c->weight[i], MM_READ, 0},
             {c->map[2 * i + 1], MM_WRITE, 0});
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

/* Facts with the times that the steps are to take, without codecs. */
static mm_facts *facts_of(const chain *c, int64_t link) {
    mm_facts *facts;
    expect_ok(mm_facts_create(c->graph, 0, &facts));
    for (int s = 0; s < facts->n_steps; s++) facts->variants[facts->variant_first[s]].ns = c->step_ns[s];
    facts->out_bytes_per_s = facts->in_bytes_per_s = link;
    return facts;
}

/* What an iteration of the graph's present plan takes by the facts. */
static int64_t simulated(const mm_manager *m, const chain *c, const mm_facts *facts) {
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
    mm_facts *fast, *slow;
    int64_t budget;
    int events, lines; /* replans that were told */
    char last[512];    /* line of the log that was last about the plan */
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
                                              .facts = facts,
                                              .log = {note_line, r, MM_LOG_INFO},
                                              .event_fn = note_event,
                                              .event_ctx = r});
    expect_ok(mm_recompute_set(m, r->chain.graph, rig_again, &r->rig));
    expect_ok(rig_bind(&r->rig, m));
    return m;
}

static void start(run *r, const char *policy) {
    memset(r, 0, sizeof *r);
    chain_init(&r->chain, "chain");
    rig_init(&r->rig, r->chain.graph, 1);
    device.link = FAST_LINK;
    device.now_ns = 1;
    device.measured = 0;
    r->fast = facts_of(&r->chain, FAST_LINK);
    r->slow = facts_of(&r->chain, SLOW_LINK);
    const int64_t least = rig_minimum(r->chain.graph, "swap:when=always"),
                  all = rig_minimum(r->chain.graph, "liveness");
    r->budget = least + (all - least) / 3;
    r->m = manager(r, policy, r->fast);
}

static void finish(run *r) {
    mm_manager_destroy(r->m);
    mm_facts_destroy(r->fast);
    mm_facts_destroy(r->slow);
    rig_fini(&r->rig);
    mm_graph_destroy(r->chain.graph);
}

static void observe(mm_manager *m, int percent, int window) {
    expect_ok(mm_observe(m, &(mm_observe_options){.replan_permille = 10 * percent, .window = window}));
}

static void iterate(run *r, int n) {
    for (int i = 0; i < n; i++) expect_ok(rig_iteration(&r->rig, r->m, RIG_INLINE));
}

static int64_t replans(mm_manager *m) {
    mm_stats stats;
    mm_stats_get(m, &stats);
    return stats.replans;
}

/* Acceptance 3 of issue 16. */
static void a_link_that_slows_down_makes_another_plan_once(void **state) {
    (void)state;
    run r;
    start(&r, "auto");
    observe(r.m, 20, 0);
    iterate(&r, 10);
    const uint64_t before = mm_plan_digest(mm_plan_now(r.m, r.chain.graph));
    device.link = SLOW_LINK;
    iterate(&r, 30);
    printf("%s\n", r.last);
    const int64_t now = simulated(r.m, &r.chain, r.slow);
    mm_manager *informed = manager(&r, "auto", r.slow);
    const int64_t best = simulated(informed, &r.chain, r.slow);
    mm_manager_destroy(informed);
    printf("now %lld, best %lld\n", (long long)now, (long long)best);
    assert_int_equal(replans(r.m), 1);
    assert_int_equal(r.lines, 1);
    assert_int_equal(r.events, 1);
    assert_true(mm_plan_digest(mm_plan_now(r.m, r.chain.graph)) != before);
    assert_true(now <= best + best / 10);
    assert_true(rig_digest(&r.rig, r.m) == random_graph_reference(r.chain.graph, 1, 40));
    finish(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_that_slows_down_makes_another_plan_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
