/* SPDX-License-Identifier: MIT */
/* Planning without a device: what would a loop need, before it is run, or written?
 *
 *     cc plan_only.c $(pkg-config --cflags --libs mm) -o plan_only
 *     ./plan_only [BUDGET_BYTES [FILE]]
 *
 * Declares the graphs of a loop, training and evaluation of a deep perceptron, and asks what policies need for both
 * together, which batch is the largest that fits, and what to do if none does. Nothing is computed, and no memory is
 * reserved. FILE: the graphs as a file, for 'mm plan --graph FILE --svg memory.svg'. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "mm/mm.h"

enum { LAYERS = 12, WIDTH = 512, CLASSES = 10, MAPS = 2 * LAYERS + 1 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "plan_only: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}

/* ---- the graphs */

static mm_tensor add(mm_graph *graph, const char *name, int number, mm_tensor_kind kind, mm_ownership ownership,
                     int64_t rows, int64_t columns) {
    char text[64];
    mm_tensor tensor;
    snprintf(text, sizeof text, "%s%d", name, number);
    check(mm_graph_add_tensor(
        graph,
        &(mm_tensor_desc){.name = text, .kind = kind, .ownership = ownership, .rank = 2, .dims = {rows, columns}},
        &tensor));
    return tensor;
}

#define READ(t)                    ((mm_use){t, MM_READ, MM_FORM_VALUE})
#define SIGN(t)                    ((mm_use){t, MM_READ, MM_FORM_SIGN})
#define WRITE(t)                   ((mm_use){t, MM_WRITE, MM_FORM_VALUE})
#define MODIFY(t)                  ((mm_use){t, MM_MODIFY, MM_FORM_VALUE})
#define STEP(layer, phase, n, ...) check(mm_graph_add_step(graph, layer, phase, (mm_use[n]){__VA_ARGS__}, n, 0))
#define GRADIENT(name, number)     add(graph, name, number, MM_GRADIENT_MAP, MM_MANAGED, batch, WIDTH)

/* Of LAYERS pairs of a linear layer and a ReLU, and a loss. Layer i reads maps[2 * i], writes maps[2 * i + 1], and its
 * ReLU maps[2 * i + 2]. The weights are updated in the backward steps. */
static mm_graph *declare(const char *name, int64_t batch, bool trains) {
    mm_graph *graph;
    mm_tensor weight[LAYERS], maps[MAPS], state;
    mm_layer linear[LAYERS], relu[LAYERS], loss;
    char text[32];
    check(mm_graph_create(name, &graph));
    for (int i = 0; i < LAYERS; i++) weight[i] = add(graph, "w", i, MM_WEIGHT, MM_PERSISTENT, WIDTH, WIDTH);
    for (int i = 0; i < MAPS; i++)
        maps[i] = add(graph, "map", i, i ? MM_FEATURE_MAP : MM_INPUT, i ? MM_MANAGED : MM_EXTERNAL, batch, WIDTH);
    state = add(graph, trains ? "loss" : "accuracy", 0, MM_STATE, MM_PERSISTENT, 1, 1);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(text, sizeof text, "linear%d", i);
        check(mm_graph_add_layer(graph, text, MM_LAYER_LINEAR, &linear[i]));
        STEP(linear[i], MM_FORWARD, 3, READ(maps[2 * i]), READ(weight[i]), WRITE(maps[2 * i + 1]));
        snprintf(text, sizeof text, "relu%d", i);
        check(mm_graph_add_layer(graph, text, MM_LAYER_RELU, &relu[i]));
        STEP(relu[i], MM_FORWARD, 2, READ(maps[2 * i + 1]), WRITE(maps[2 * i + 2]));
        check(mm_graph_allow_inplace(graph, maps[2 * i + 1], maps[2 * i + 2]));
    }
    check(mm_graph_add_layer(graph, "loss", MM_LAYER_LOSS, &loss));
    if (!trains) {
        STEP(loss, MM_FORWARD, 2, READ(maps[MAPS - 1]), MODIFY(state));
    } else {
        mm_tensor after = GRADIENT("d", MAPS - 1);
        STEP(loss, MM_BACKWARD, 3, READ(maps[MAPS - 1]), WRITE(after), WRITE(state));
        for (int i = LAYERS - 1; i >= 0; i--) {
            const mm_tensor middle = GRADIENT("d", 2 * i + 1);
            STEP(relu[i], MM_BACKWARD, 3, SIGN(maps[2 * i + 2]), READ(after), WRITE(middle));
            check(mm_graph_allow_inplace(graph, after, middle));
            after = i ? GRADIENT("d", 2 * i) : middle;
            if (i)
                STEP(linear[i], MM_BACKWARD, 4, READ(maps[2 * i]), MODIFY(weight[i]), READ(middle), WRITE(after));
            else
                STEP(linear[i], MM_BACKWARD, 3, READ(maps[0]), MODIFY(weight[i]), READ(middle));
        }
    }
    check(mm_graph_freeze(graph));
    return graph;
}

/* ---- the questions */

enum { TRAINING, EVALUATION, GRAPHS };

static void declare_both(mm_graph *graphs[GRAPHS], int64_t batch) {
    graphs[TRAINING] = declare("training", batch, true);
    graphs[EVALUATION] = declare("evaluation", batch, false);
}

static void destroy_both(mm_graph *graphs[GRAPHS]) {
    for (int i = 0; i < GRAPHS; i++) mm_graph_destroy(graphs[i]);
}

static mm_requirement *ask(mm_graph *graphs[GRAPHS], const char *policy, mm_plan_limits limits) {
    mm_requirement *needs;
    check(mm_requirement_get((const mm_graph *const *)graphs, GRAPHS, NULL, policy, &limits, &needs));
    return needs;
}

static bool fits(const char *policy, int64_t batch, int64_t budget_bytes) {
    mm_graph *graphs[GRAPHS];
    declare_both(graphs, batch);
    mm_requirement *needs = ask(
        graphs, policy, (mm_plan_limits){.device_bytes = budget_bytes, .pinned_bytes = INT64_MAX, .no_advice = true});
    const bool fit = needs->fits;
    mm_requirement_destroy(needs);
    destroy_both(graphs);
    return fit;
}

/* The largest batch that fits, by bisection; 0: none does. */
static int64_t largest_batch(const char *policy, int64_t budget_bytes) {
    int64_t low = 0, high = 1;
    while (high < 1 << 20 && fits(policy, high, budget_bytes)) high *= 2;
    for (low = high / 2; high - low > 1;) {
        const int64_t middle = low + (high - low) / 2;
        if (fits(policy, middle, budget_bytes))
            low = middle;
        else
            high = middle;
    }
    return low;
}

int main(int argc, char **argv) {
    static const char *const policies[] = {"naive", "liveness", "recompute", "recompute:mode=sqrt", "swap-async"};
    const int64_t budget = argc > 1 ? atoll(argv[1]) : INT64_C(16) << 20, batch = 256;
    mm_graph *graphs[GRAPHS];
    declare_both(graphs, batch);

    printf("%-20s %12s %12s %22s %14s\n", "batch 256", "needs", "host memory", "held by", "largest batch");
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        mm_requirement *needs = ask(graphs, policies[i], (mm_plan_limits){.pinned_bytes = INT64_MAX});
        printf("%-20s %12lld %12lld %22s %14lld%s\n", policies[i], (long long)needs->least_bytes,
               (long long)needs->pinned_bytes, needs->graphs[needs->most].held_by,
               (long long)largest_batch(policies[i], budget),
               needs->needs_recompute_set ? "  needs mm_recompute_set" : "");
        mm_requirement_destroy(needs);
    }

    mm_requirement *needs = ask(graphs, "liveness", (mm_plan_limits){.device_bytes = budget});
    char *text;
    check(mm_requirement_text(needs, &text));
    printf("\n%s", text);
    if (!needs->fits && needs->advised.kind == MM_ADVICE_FITS) printf("so take policy %s\n", needs->advised.policy);
    free(text);
    mm_requirement_destroy(needs);

    if (argc > 2) check(mm_graph_save((const mm_graph *const *)graphs, GRAPHS, argv[2]));
    destroy_both(graphs);
}
