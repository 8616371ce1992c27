/* SPDX-License-Identifier: MIT */
/* Computes maps again in the backward pass, instead of holding them (activation checkpointing): mm_recompute_set gives
 * a declared graph the function that runs a forward step again. The weights are the plain loop's, bit for bit.
 * recompute_learned.c does the same with a learned loop.
 *
 *     cc recompute_declared.c $(pkg-config --cflags --libs mm) -lm -o recompute_declared && ./recompute_declared */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/mm.h"

enum { LAYERS = 16, BATCH = 64, WIDTH = 16, MAP = BATCH * WIDTH, MAP_BYTES = MAP * (int)sizeof(float), STEPS = 10 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "recompute_declared: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}

/* ---- the network: layer k makes map k + 1 of map k. Even layers multiply by a weight, odd ones are x sigmoid(x). */

typedef float matrix[WIDTH * WIDTH];
static matrix weight[LAYERS / 2], gradient[LAYERS / 2];
static float images[MAP], targets[MAP], loss;
static int forwards; /* forward steps that were computed, for the table below */

/* What is to be computed again may change nothing that training depends on: no running mean, no random state. */
static void forward(int k, const float *x, float *y) {
    forwards++;
    for (int i = 0; i < MAP; i++) {
        y[i] = k % 2 ? x[i] / (1 + expf(-x[i])) : 0;
        for (int c = 0; k % 2 == 0 && c < WIDTH; c++)
            y[i] += x[i / WIDTH * WIDTH + c] * weight[k / 2][c * WIDTH + i % WIDTH];
    }
}

/* dx may be NULL: the images have no gradient. */
static void backward(int k, const float *x, const float *dy, float *dx) {
    if (dx) memset(dx, 0, MAP_BYTES);
    if (k % 2 == 0) memset(gradient[k / 2], 0, sizeof(matrix));
    for (int i = 0; i < MAP; i++) {
        const int row = i / WIDTH * WIDTH, o = i % WIDTH;
        const float s = 1 / (1 + expf(-x[i]));
        if (k % 2) dx[i] = dy[i] * s * (1 + x[i] * (1 - s));
        for (int c = 0; k % 2 == 0 && c < WIDTH; c++) {
            gradient[k / 2][c * WIDTH + o] += x[row + c] * dy[i];
            if (dx) dx[row + c] += weight[k / 2][c * WIDTH + o] * dy[i];
        }
    }
}

static void squared_error(const float *y, float *dy) {
    loss = 0;
    for (int i = 0; i < MAP; i++) {
        dy[i] = 2 * (y[i] - targets[i]) / MAP;
        loss += (y[i] - targets[i]) * (y[i] - targets[i]) / MAP;
    }
}

static void set_up(void) {
    for (int l = 0; l < LAYERS / 2; l++)
        for (int i = 0; i < WIDTH * WIDTH; i++) weight[l][i] = sinf((float)((l + 1) * i * i)) * 0.6F;
    for (int i = 0; i < MAP; i++) images[i] = sinf((float)(3 * i)), targets[i] = cosf((float)(i % WIDTH)) / 2;
}

static void update(void) {
    for (int l = 0; l < LAYERS / 2; l++)
        for (int i = 0; i < WIDTH * WIDTH; i++) weight[l][i] -= gradient[l][i];
}

static void iterate_plain(void) {
    static float x[LAYERS + 1][MAP], dx[2][MAP];
    memcpy(x[0], images, MAP_BYTES);
    for (int k = 0; k < LAYERS; k++) forward(k, x[k], x[k + 1]);
    squared_error(x[LAYERS], dx[LAYERS % 2]);
    for (int k = LAYERS - 1; k >= 0; k--) backward(k, x[k], dx[(k + 1) % 2], k ? dx[k % 2] : NULL);
}

/* ---- the graph. mm numbers layers from 0, in the order of their declaration: layer k has number k. */

static mm_tensor map_of[LAYERS + 1], d_of[LAYERS + 1];

static mm_graph *declare(void) {
    mm_graph *graph;
    mm_layer layer;
    char name[24];
    check(mm_graph_create("network", &graph));
    for (int k = 1; k <= LAYERS; k++) { /* map 0 is the images, which stay in the program's memory */
        mm_tensor_desc map = {name, MM_FEATURE_MAP, MM_MANAGED, MM_F32, 2, {BATCH, WIDTH}};
        snprintf(name, sizeof name, "map.%d", k);
        check(mm_graph_add_tensor(graph, &map, &map_of[k]));
        map.kind = MM_GRADIENT_MAP;
        snprintf(name, sizeof name, "d_map.%d", k);
        check(mm_graph_add_tensor(graph, &map, &d_of[k]));
    }
    for (int k = 0; k < LAYERS; k++) {
        const mm_use uses[] = {{map_of[k + 1], MM_WRITE, MM_FORM_VALUE}, {map_of[k], MM_READ, MM_FORM_VALUE}};
        snprintf(name, sizeof name, "layer.%d", k);
        check(mm_graph_add_layer(graph, name, k % 2 ? MM_LAYER_GELU : MM_LAYER_LINEAR, &layer));
        check(mm_graph_add_step(graph, layer, MM_FORWARD, uses, k ? 2 : 1, 0));
    }
    const mm_use error[] = {{map_of[LAYERS], MM_READ, MM_FORM_VALUE}, {d_of[LAYERS], MM_WRITE, MM_FORM_VALUE}};
    check(mm_graph_add_layer(graph, "error", MM_LAYER_LOSS, &layer));
    check(mm_graph_add_step(graph, layer, MM_BACKWARD, error, 2, 0));
    for (int k = LAYERS - 1; k >= 0; k--) {
        const mm_use uses[] = {{d_of[k + 1], MM_READ, MM_FORM_VALUE},
                               {map_of[k], MM_READ, MM_FORM_VALUE},
                               {d_of[k], MM_WRITE, MM_FORM_VALUE}};
        check(mm_graph_add_step(graph, k, MM_BACKWARD, uses, k ? 3 : 1, 0));
    }
    check(mm_graph_freeze(graph));
    return graph;
}

/* A forward step, the first time and again: addresses come from mm_tensor_data both times. */
static mm_status compute(void *ctx, mm_manager *m, mm_layer k, mm_stream *stream) {
    (void)ctx, (void)stream;
    forward(k, k ? mm_tensor_data(m, map_of[k]) : images, mm_tensor_data(m, map_of[k + 1]));
    return MM_OK;
}

static void iterate(mm_manager *m, const mm_graph *graph) {
    check(mm_iteration_begin(m, graph));
    for (int k = 0; k < LAYERS; k++) {
        check(mm_layer_begin(m, k, MM_FORWARD, NULL));
        check(compute(NULL, m, k, NULL));
        check(mm_layer_end(m, k, MM_FORWARD));
    }
    check(mm_layer_begin(m, LAYERS, MM_BACKWARD, NULL));
    squared_error(mm_tensor_data(m, map_of[LAYERS]), mm_tensor_data(m, d_of[LAYERS]));
    check(mm_layer_end(m, LAYERS, MM_BACKWARD));
    for (int k = LAYERS - 1; k >= 0; k--) {
        check(mm_layer_begin(m, k, MM_BACKWARD, NULL)); /* calls `compute` if the plan says so */
        backward(k, k ? mm_tensor_data(m, map_of[k]) : images, mm_tensor_data(m, d_of[k + 1]),
                 k ? mm_tensor_data(m, d_of[k]) : NULL);
        check(mm_layer_end(m, k, MM_BACKWARD));
    }
    check(mm_iteration_end(m));
}

/* ---- training under one policy. Prints the plan's peak, and how many forward steps an iteration computes. */

static int64_t peak;

static void note_peak(void *ctx, const mm_event_info *event) {
    (void)ctx;
    if (event->kind == MM_EVENT_ITERATION_BEGIN) peak = event->bytes;
}

static bool train(mm_manager *m, const mm_graph *graph, const char *policy, const void *wanted) {
    check(mm_policy_set(m, policy));
    set_up();
    forwards = 0;
    for (int i = 0; i < STEPS; i++) {
        iterate(m, graph);
        update();
    }
    const bool equal = memcmp(weight, wanted, sizeof weight) == 0;
    printf("%-40s peak %5lld, %d forward steps, loss %.4f, weights %s\n", policy, (long long)peak, forwards / STEPS,
           loss, equal ? "equal" : "DIFFER");
    return equal;
}

int main(void) {
    const mm_options options = {.device_bytes = 100000, .event_fn = note_peak};
    static matrix wanted[LAYERS / 2];
    mm_manager *m;
    mm_graph *graph;
    set_up();
    for (int i = 0; i < STEPS; i++) {
        iterate_plain();
        update();
    }
    memcpy(wanted, weight, sizeof weight);
    graph = declare();
    check(mm_manager_create(&options, &m));
    check(mm_manager_prepare(m, graph));
    if (mm_policy_set(m, "recompute:when=always") == MM_OK) return 1; /* it does not know how to recompute */
    printf("without mm_recompute_set: %s\n", mm_last_error());
    check(mm_recompute_set(m, graph, compute, NULL));
    bool equal = train(m, graph, "liveness", wanted);
    equal &= train(m, graph, "recompute:when=always", wanted);           /* layers that are cheap: the odd ones */
    equal &= train(m, graph, "recompute:mode=sqrt,when=always", wanted); /* all but a map in each run of layers */
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
    return equal ? 0 : 1;
}
