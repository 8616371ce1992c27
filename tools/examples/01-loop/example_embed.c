/* SPDX-License-Identifier: MIT */
/* An example of your own training loop on mm: two linear layers with a ReLU between them, in plain C, synthetic data.
 *
 *     cc example_embed.c $(pkg-config --cflags --libs mm) -lm -o example_embed
 *     ./example_embed [POLICY [BUDGET_BYTES [SUB_BATCHES [TRACE]]]]
 *
 * declare() declares the graph once. In iterate(), each step runs between mm_layer_begin and mm_layer_end, and asks
 * there where its tensors lie. main() makes a manager with a budget (0: what the graphs need), trains, and changes the
 * policy half-way. TRACE is a file to write, which shows in a viewer such as https://ui.perfetto.dev when each step and
 * operation of mm ran.
 *
 * With sub-batches, each update takes several iterations of mm, each over one part of the batch, so that only a part's
 * maps are in memory. Each part has a graph of its own in the same manager. The first part writes the gradients, later
 * parts add to them (MODIFY), and the last updates the weights. Persistent tensors of one name are one tensor. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "mm/mm.h"

enum { BATCH = 64, INPUTS = 32, HIDDEN = 256, CLASSES = 8, ITERATIONS = 60, PARTS_MAX = 4 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "example_embed: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}

/* ---- the graph: all tensors, and the steps in order of execution, with the tensors that each reads and writes */

enum { X, LABELS, W1, W2, DW1, DW2, LOSS, H, R, Y, DY, DR, DH, TENSORS }; /* a graph numbers its tensors from 0 */
static const mm_tensor_desc tensors[TENSORS] = {
    [X] = {"x", MM_INPUT, MM_EXTERNAL, MM_F32, 2, {BATCH, INPUTS}}, /* in our own memory */
    [LABELS] = {"labels", MM_INPUT, MM_EXTERNAL, MM_I32, 1, {BATCH}},
    [W1] = {"w1", MM_WEIGHT, MM_PERSISTENT, MM_F32, 2, {INPUTS, HIDDEN}}, /* in mm's memory; outlives iterations */
    [W2] = {"w2", MM_WEIGHT, MM_PERSISTENT, MM_F32, 2, {HIDDEN, CLASSES}},
    [DW1] = {"dw1", MM_WEIGHT_GRADIENT, MM_PERSISTENT, MM_F32, 2, {INPUTS, HIDDEN}},
    [DW2] = {"dw2", MM_WEIGHT_GRADIENT, MM_PERSISTENT, MM_F32, 2, {HIDDEN, CLASSES}},
    [LOSS] = {"loss", MM_STATE, MM_PERSISTENT, MM_F32, 1, {1}},
    [H] = {"h", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 2, {BATCH, HIDDEN}}, /* mm places, compresses and frees it */
    [R] = {"r", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 2, {BATCH, HIDDEN}},
    [Y] = {"y", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 2, {BATCH, CLASSES}},
    [DY] = {"dy", MM_GRADIENT_MAP, MM_MANAGED, MM_F32, 2, {BATCH, CLASSES}},
    [DR] = {"dr", MM_GRADIENT_MAP, MM_MANAGED, MM_F32, 2, {BATCH, HIDDEN}},
    [DH] = {"dh", MM_GRADIENT_MAP, MM_MANAGED, MM_F32, 2, {BATCH, HIDDEN}},
};
static mm_layer linear1, relu1, linear2, softmax2;

/* The part of the batch that is being declared or computed. */
static int rows; /* images */
static bool first, last;
static void set_part(int part, int parts) {
    rows = BATCH / parts;
    first = part == 0;
    last = part == parts - 1;
}

#define READ(t)                    ((mm_use){t, MM_READ, MM_FORM_VALUE})
#define SIGN(t)                    ((mm_use){t, MM_READ, MM_FORM_SIGN})
#define WRITE(t)                   ((mm_use){t, MM_WRITE, MM_FORM_VALUE})
#define MODIFY(t)                  ((mm_use){t, MM_MODIFY, MM_FORM_VALUE})
#define SUM(t)                     (first ? WRITE(t) : MODIFY(t)) /* summed over the parts of the batch */
#define WEIGHT(t)                  (last ? MODIFY(t) : READ(t))   /* the last part updates it */
#define STEP(layer, phase, n, ...) check(mm_graph_add_step(graph, layer, phase, (mm_use[n]){__VA_ARGS__}, n, 0))
/* Declares the graph of part `part` of `parts`; parts count from 0. */
static mm_graph *declare(int part, int parts) {
    char name[32];
    mm_graph *graph;
    set_part(part, parts);
    snprintf(name, sizeof name, "example %d of %d", part + 1, parts);
    check(mm_graph_create(name, &graph));
    for (mm_tensor t = 0, number; t < TENSORS; t++) {
        mm_tensor_desc tensor = tensors[t];
        if (tensor.dims[0] == BATCH) tensor.dims[0] = rows;
        check(mm_graph_add_tensor(graph, &tensor, &number));
    }
    check(mm_graph_add_layer(graph, "linear1", MM_LAYER_LINEAR, &linear1));
    check(mm_graph_add_layer(graph, "relu1", MM_LAYER_RELU, &relu1));
    check(mm_graph_add_layer(graph, "linear2", MM_LAYER_LINEAR, &linear2));
    check(mm_graph_add_layer(graph, "softmax2", MM_LAYER_LOSS, &softmax2));
    STEP(linear1, MM_FORWARD, 3, READ(X), READ(W1), WRITE(H));
    STEP(relu1, MM_FORWARD, 2, READ(H), WRITE(R));
    check(mm_graph_allow_inplace(graph, H, R)); /* the last step may write R over H */
    STEP(linear2, MM_FORWARD, 3, READ(R), READ(W2), WRITE(Y));
    STEP(softmax2, MM_BACKWARD, 4, READ(Y), READ(LABELS), WRITE(DY), SUM(LOSS));
    STEP(linear2, MM_BACKWARD, 5, READ(R), WEIGHT(W2), READ(DY), WRITE(DR), SUM(DW2));
    STEP(relu1, MM_BACKWARD, 3, SIGN(R), READ(DR), WRITE(DH)); /* only whether R is positive matters */
    check(mm_graph_allow_inplace(graph, DR, DH));
    STEP(linear1, MM_BACKWARD, 4, READ(X), WEIGHT(W1), READ(DH), SUM(DW1));
    check(mm_graph_freeze(graph));
    return graph;
}

/* ---- what the steps compute. Only relu_back depends on mm: it reads signs in the form that mm gives. */

static void linear(const float *x, const float *w, float *y, int in, int out) {
    for (int i = 0; i < rows * out; i++) {
        y[i] = 0;
        for (int p = 0; p < in; p++) y[i] += x[i / out * in + p] * w[p * out + i % out];
    }
}
static void linear_back(const float *x, float *w, const float *dy, float *dx, float *dw, int in, int out) {
    for (int i = 0; dx && i < rows * in; i++) {
        dx[i] = 0;
        for (int q = 0; q < out; q++) dx[i] += dy[i / in * out + q] * w[i % in * out + q];
    }
    for (int i = 0; i < in * out; i++) {
        if (first) dw[i] = 0;
        for (int s = 0; s < rows; s++) dw[i] += x[s * in + i / out] * dy[s * out + i % out];
        if (last) w[i] -= 0.1F * dw[i];
    }
}
static void relu(const float *x, float *y) {
    for (int i = 0; i < rows * HIDDEN; i++) y[i] = x[i] > 0 ? x[i] : 0;
}
static void relu_back(const void *y, mm_form form, const float *dy, float *dx) {
    const float *value = y;
    const uint32_t *mask = form == MM_FORM_SIGN ? y : NULL; /* one bit for each value: is it positive? */
    for (int i = 0; i < rows * HIDDEN; i++) dx[i] = (mask ? mask[i / 32] >> i % 32 & 1 : value[i] > 0) ? dy[i] : 0;
}
static void softmax(const float *x, const int32_t *label, float *dx, float *loss) {
    if (first) *loss = 0;
    for (int s = 0; s < rows; s++, x += CLASSES, dx += CLASSES) { /* the loss is the mean over the whole batch */
        float sum = 0;
        for (int c = 0; c < CLASSES; c++) sum += expf(x[c]);
        for (int c = 0; c < CLASSES; c++) dx[c] = (expf(x[c]) / sum - (float)(c == label[s])) / BATCH;
        *loss += (logf(sum) - x[label[s]]) / BATCH;
    }
}

/* ---- the loop. Steps compute on this thread: mm_layer_begin gets no stream, so it returns when the inputs are
 * ready. */

#define AT(t)                  mm_tensor_data(m, t) /* valid until the step ends; the tensor may move between steps */
#define RUN(l, phase, compute) (check(mm_layer_begin(m, l, phase, NULL)), compute, check(mm_layer_end(m, l, phase)))

static void iterate(mm_manager *m, const mm_graph *graph) {
    check(mm_iteration_begin(m, graph));
    RUN(linear1, MM_FORWARD, linear(AT(X), AT(W1), AT(H), INPUTS, HIDDEN));
    RUN(relu1, MM_FORWARD, relu(AT(H), AT(R)));
    RUN(linear2, MM_FORWARD, linear(AT(R), AT(W2), AT(Y), HIDDEN, CLASSES));
    RUN(softmax2, MM_BACKWARD, softmax(AT(Y), AT(LABELS), AT(DY), AT(LOSS)));
    RUN(linear2, MM_BACKWARD, linear_back(AT(R), AT(W2), AT(DY), AT(DR), AT(DW2), HIDDEN, CLASSES));
    RUN(relu1, MM_BACKWARD, relu_back(AT(R), mm_tensor_form(m, R), AT(DR), AT(DH)));
    RUN(linear1, MM_BACKWARD, linear_back(AT(X), AT(W1), AT(DH), NULL, AT(DW1), INPUTS, HIDDEN));
    check(mm_iteration_end(m));
}

int main(int argc, char **argv) {
    static float images[BATCH * INPUTS];
    static int32_t labels[BATCH];
    mm_options options = {.device_bytes = argc > 2 ? atoll(argv[2]) : 400000, .policy = argc > 1 ? argv[1] : NULL};
    const int parts = argc > 3 ? atoi(argv[3]) : 1;
    mm_graph *graphs[PARTS_MAX];
    mm_manager *m;
    if (parts < 1 || parts > PARTS_MAX || BATCH % parts != 0) {
        fprintf(stderr, "example_embed: %s: SUB_BATCHES must be 1, 2 or 4\n", argv[3]);
        return 1;
    }
    check(mm_manager_create(&options, &m));
    for (int p = 0; p < parts; p++) {
        graphs[p] = declare(p, parts);
        check(mm_manager_prepare(m, graphs[p])); /* plans, and proves that the plan fits the budget */
        check(mm_external_set(m, graphs[p], X, images + p * rows * INPUTS));
        check(mm_external_set(m, graphs[p], LABELS, labels + p * rows));
    }
    float *w1 = mm_persistent_data(m, "w1", NULL), *w2 = mm_persistent_data(m, "w2", NULL), loss_first = 0;
    const float *loss = mm_persistent_data(m, "loss", NULL);
    for (int i = 0; i < INPUTS * HIDDEN; i++) w1[i] = sinf((float)(7 * i * i + 3 * i)) / 6;
    for (int i = 0; i < HIDDEN * CLASSES; i++) w2[i] = sinf((float)(5 * i * i + i)) / 16;
    for (int s = 0; s < BATCH; s++) labels[s] = s % CLASSES;
    for (int i = 0; i < BATCH * INPUTS; i++) images[i] = sinf((float)i) + (float)(i % CLASSES == labels[i / INPUTS]);
    if (argc > 4) check(mm_trace_start(m, "example_embed"));
    for (int i = 0; i < ITERATIONS; i++) {
        if (i == ITERATIONS / 2) check(mm_policy_set(m, "freelunch:codec=raw,eligible=all,when=always"));
        for (int p = 0; p < parts; p++) {
            set_part(p, parts);
            iterate(m, graphs[p]);
        }
        if (i == 0) loss_first = *loss;
    }
    if (argc > 4) check(mm_trace_stop(m, argv[4], NULL));
    mm_stats stats;
    mm_stats_get(m, &stats);
    printf("budget %lld, predicted peak %lld, loss %.9g -> %.9g\n", (long long)mm_manager_device_bytes(m),
           (long long)stats.predicted_peak_bytes, loss_first, *loss);
    mm_manager_destroy(m);
    for (int p = 0; p < parts; p++) mm_graph_destroy(graphs[p]);
}
