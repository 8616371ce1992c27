/* SPDX-License-Identifier: MIT */
/* Steps with several variants ("ways"), each with a workspace of its own size. A step computes by the size that it
 * gets, and what it writes shows the way. */
#include <stdio.h>
#include <string.h>

#include "mm/mm.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"

enum { LAYERS = 9, ELEMS = 1024, WAYS = 3, BUDGET = 1 << 20, PINNED = 1 << 20 };
static const size_t WORKSPACES[WAYS] = {32768, 12288, 256};

typedef struct chain {
    mm_graph *graph;
    mm_manager *manager;
    mm_layer data, layers[LAYERS];
    mm_tensor x[LAYERS + 1], dx[LAYERS + 1];
    int forward[LAYERS], backward[LAYERS]; /* the way of each step in this iteration */
    int again;                             /* steps that ran again, each in its first way */
} chain;

static mm_tensor add_map(chain *c, mm_tensor_kind kind, const char *prefix, int i) {
    char name[32];
    mm_tensor t;
    snprintf(name, sizeof name, "%s%d", prefix, i);
    const mm_tensor_desc desc = {.name = name, .kind = kind, .dtype = MM_F32, .rank = 1, .dims = {ELEMS}};
    expect_ok(mm_graph_add_tensor(c->graph, &desc, &t));
    return t;
}

static void add_step(chain *c, int i, mm_phase phase, const mm_use *uses, size_t n) {
    expect_ok(mm_graph_add_step(c->graph, c->layers[i], phase, uses, n, WORKSPACES[0]));
    for (int way = 1; way < WAYS; way++) expect_ok(mm_graph_allow_workspace(c->graph, WORKSPACES[way]));
}

/* x0 -> x1 -> ... and back. A backward step reads its layer's input and output. */
static void make_graph(chain *c) {
    expect_ok(mm_graph_create("chain", &c->graph));
    for (int i = 0; i <= LAYERS; i++) c->x[i] = add_map(c, i ? MM_FEATURE_MAP : MM_INPUT, "x", i);
    for (int i = 0; i < LAYERS; i++) c->dx[i] = add_map(c, MM_GRADIENT_MAP, "dx", i);
    expect_ok(mm_graph_add_layer(c->graph, "data", MM_LAYER_DATA, &c->data));
    expect_ok(mm_graph_add_step(c->graph, c->data, MM_FORWARD, &(mm_use){c->x[0], MM_WRITE, MM_FORM_VALUE}, 1, 0));
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d", i);
        expect_ok(mm_graph_add_layer(c->graph, name, i % 2 ? MM_LAYER_RELU : MM_LAYER_CONV, &c->layers[i]));
        const mm_use uses[] = {{c->x[i], MM_READ, MM_FORM_VALUE}, {c->x[i + 1], MM_WRITE, MM_FORM_VALUE}};
        add_step(c, i, MM_FORWARD, uses, 2);
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        const mm_use uses[] = {{c->x[i], MM_READ, MM_FORM_VALUE},
                               {c->x[i + 1], MM_READ, MM_FORM_VALUE},
                               {c->dx[i], MM_WRITE, MM_FORM_VALUE},
                               {c->dx[i + 1], MM_READ, MM_FORM_VALUE}};
        add_step(c, i, MM_BACKWARD, uses, i == LAYERS - 1 ? 3 : 4);
    }
    expect_ok(mm_graph_freeze(c->graph));
}

/* Returns the way whose workspace has the present size, and overwrites the workspace. */
static int way_of(const chain *c) {
    int way = 0;
    while (way < WAYS && WORKSPACES[way] != mm_workspace_bytes(c->manager)) way++;
    if (way == WAYS) fail_msg("a workspace of %zu bytes", mm_workspace_bytes(c->manager));
    memset(mm_workspace_data(c->manager), 0xee, WORKSPACES[way]);
    return way;
}

static int compute_forward(const chain *c, int i) {
    const int way = way_of(c);
    const float *x = mm_tensor_data(c->manager, c->x[i]);
    float *y = mm_tensor_data(c->manager, c->x[i + 1]);
    for (int e = 0; e < ELEMS; e++) y[e] = x[e] / 2 + (float)(1 + way);
    return way;
}

static int compute_backward(const chain *c, int i) {
    const int way = way_of(c);
    const float *x = mm_tensor_data(c->manager, c->x[i]), *y = mm_tensor_data(c->manager, c->x[i + 1]);
    float *dx = mm_tensor_data(c->manager, c->dx[i]);
    for (int e = 0; e < ELEMS; e++) {
        assert_true(y[e] == x[e] / 2 + (float)(1 + c->forward[i]));
        dx[e] = y[e];
    }
    return way;
}

/* mm_recompute_fn */
static mm_status run_again(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream) {
    chain *c = ctx;
    (void)manager, (void)stream;
    for (int i = 0; i < LAYERS; i++)
        if (c->layers[i] == layer) assert_int_equal(compute_forward(c, i), c->forward[i]);
    c->again++;
    return MM_OK;
}

static void iterate(chain *c) {
    mm_manager *m = c->manager;
    c->again = 0;
    expect_ok(mm_iteration_begin(m, c->graph));
    expect_ok(mm_layer_begin(m, c->data, MM_FORWARD, NULL));
    float *x = mm_tensor_data(m, c->x[0]);
    for (int e = 0; e < ELEMS; e++) x[e] = (float)e;
    expect_ok(mm_layer_end(m, c->data, MM_FORWARD));
    for (int i = 0; i < LAYERS; i++) {
        expect_ok(mm_layer_begin(m, c->layers[i], MM_FORWARD, NULL));
        c->forward[i] = compute_forward(c, i);
        expect_ok(mm_layer_end(m, c->layers[i], MM_FORWARD));
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        expect_ok(mm_layer_begin(m, c->layers[i], MM_BACKWARD, NULL));
        c->backward[i] = compute_backward(c, i);
        expect_ok(mm_layer_end(m, c->layers[i], MM_BACKWARD));
    }
    expect_ok(mm_iteration_end(m));
}

static void expect_way(const chain *c, int way) {
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(c->forward[i], way);
        assert_int_equal(c->backward[i], way);
    }
}

static void ignore(void *ctx, mm_log_level level, const char *message) { (void)ctx, (void)level, (void)message; }

static void begin(chain *c, const char *policy, mm_issue issue) {
    const mm_options options = {.device_bytes = BUDGET,
                                .pinned_bytes = PINNED,
                                .policy = policy,
                                .issue = issue,
                                .log = {ignore, NULL, MM_LOG_ERROR}};
    memset(c, 0, sizeof *c);
    make_graph(c);
    expect_ok(mm_manager_create(&options, &c->manager));
    expect_ok(mm_recompute_set(c->manager, c->graph, run_again, c));
}

static void end(chain *c) {
    mm_manager_destroy(c->manager);
    mm_graph_destroy(c->graph);
}

/* A recomputed step runs in its first way: the callback checks this, and so do the steps that read the map. */
TEST_CASE(steps_compute_in_the_way_of_the_workspace_that_the_policy_chose) {
    static const struct {
        const char *policy;
        int way;
        bool recomputes;
    } cases[] = {
        {"liveness", 0, false},
        {"liveness:algorithms=1", 1, false},
        {"liveness:algorithms=least", 2, false},
        {"vdnn-all:algorithms=fastest,when=always", 0, false},
        {"vdnn-all:algorithms=least,when=always", 2, false},
        {"vdnn-conv:algorithms=least,when=always", 2, false},
        {"swap-async:when=always", 0, false},
        {"recompute:mode=sqrt,when=always", 0, true},
        {"recompute:mode=memory,when=always", 0, true},
        {"recompute-swap:when=always", 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (mm_issue issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++) {
            chain c;
            begin(&c, cases[i].policy, issue);
            for (int n = 0; n < 2; n++) {
                iterate(&c);
                expect_way(&c, cases[i].way);
                assert_int_equal(c.again > 0, cases[i].recomputes);
            }
            end(&c);
        }
}

TEST_CASE(policies_change_the_way_between_iterations) {
    chain c;
    begin(&c, "liveness", MM_ISSUE_THREAD);
    iterate(&c);
    expect_way(&c, 0);
    expect_ok(mm_policy_set(c.manager, "vdnn-all:algorithms=least,when=always"));
    iterate(&c);
    expect_way(&c, 2);
    expect_ok(mm_policy_set(c.manager, "liveness:algorithms=1"));
    iterate(&c);
    expect_way(&c, 1);
    end(&c);
}

/* With a byte less than its plan takes, each policy goes on with the smallest workspaces, whatever it chose before. A
 * step that it recomputes runs in the same way both times. */
TEST_CASE(where_memory_is_short_all_run_in_the_way_that_takes_least) {
    static const char *const policies[] = {"liveness", "liveness:algorithms=1",
                                           "vdnn-all:algorithms=fastest,when=always",
                                           "recompute:mode=sqrt,when=always"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        chain c;
        mm_stats stats;
        begin(&c, policies[i], MM_ISSUE_THREAD);
        iterate(&c);
        mm_stats_get(c.manager, &stats);
        const int64_t peak = stats.predicted_peak_bytes;
        expect_ok(mm_budget_set(c.manager, peak - 1));
        iterate(&c);
        expect_way(&c, WAYS - 1);
        assert_string_equal(mm_policy_now(c.manager), policies[i]);
        mm_stats_get(c.manager, &stats);
        assert_int_equal(stats.ladder_steps, 1);
        expect_ok(mm_budget_set(c.manager, peak));
        iterate(&c);
        assert_true(c.forward[0] < WAYS - 1);
        end(&c);
    }
}
