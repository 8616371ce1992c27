/* SPDX-License-Identifier: MIT */
/* A training graph and an evaluation graph in one manager. Their batches differ in size, and they share the weights:
 * persistent tensors of one name are one tensor. The evaluation, forward only, has room where training holds its maps.
 *
 *     cc evaluation_graph.c $(pkg-config --cflags --libs mm) -lm -o evaluation_graph && ./evaluation_graph */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/mm.h"

enum { DEPTH = 6, WIDTH = 16, CLASSES = 4, BATCH = 64, IMAGES = 4 * BATCH, EVALUATED = 160, EPOCHS = 12 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "evaluation_graph: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}

/* ---- the network: DEPTH layers of tanh(x w); the first CLASSES outputs of the last are scores of classes */

typedef float matrix[WIDTH * WIDTH];

static void layer(int rows, const float *x, const float *w, float *y) {
    for (int i = 0; i < rows * WIDTH; i++) {
        float sum = 0;
        for (int c = 0; c < WIDTH; c++) sum += x[i / WIDTH * WIDTH + c] * w[c * WIDTH + i % WIDTH];
        y[i] = tanhf(sum);
    }
}

/* Also updates w, by its gradient, for which dw is scratch. dx may be NULL: images have no gradient. */
static void layer_back(const float *x, float *w, const float *y, const float *dy, float *dx, float *dw) {
    memset(dw, 0, sizeof(matrix));
    if (dx) memset(dx, 0, BATCH * WIDTH * sizeof *dx);
    for (int i = 0; i < BATCH * WIDTH; i++)
        for (int c = 0, row = i / WIDTH * WIDTH, o = i % WIDTH; c < WIDTH; c++) {
            const float dz = dy[i] * (1 - y[i] * y[i]);
            dw[c * WIDTH + o] += x[row + c] * dz;
            if (dx) dx[row + c] += w[c * WIDTH + o] * dz;
        }
    for (int i = 0; i < WIDTH * WIDTH; i++) w[i] -= 2 * dw[i];
}

/* The gradient of the mean squared distance of the scores to 1 for the right class and -1 for others. */
static void score_back(const float *y, const int *labels, float *dy) {
    for (int i = 0; i < BATCH * WIDTH; i++) {
        const float wanted = i % WIDTH == labels[i / WIDTH] ? 1 : -1;
        dy[i] = i % WIDTH < CLASSES ? 2 * (y[i] - wanted) / (BATCH * CLASSES) : 0;
    }
}

/* How many of the images of the evaluation have the highest score at their label. */
static int count_right(const float *y, const int *labels) {
    int right = 0;
    for (int s = 0, best; s < EVALUATED; s++, y += WIDTH) {
        best = 0;
        for (int c = 1; c < CLASSES; c++) best = y[c] > y[best] ? c : best;
        right += best == labels[s];
    }
    return right;
}

static matrix *weights; /* a persistent tensor: it never moves */
static float images[IMAGES * WIDTH], held_out[EVALUATED * WIDTH];
static int labels[IMAGES], held_out_labels[EVALUATED];

/* Images of a class have a wave of its frequency, and noise. */
static void make_images(float *out, int *label, int n, int seed) {
    for (int i = 0; i < n * WIDTH; i++) {
        label[i / WIDTH] = i / WIDTH % CLASSES;
        const float wave = cosf((float)((i % WIDTH) * (1 + label[i / WIDTH])) * 0.4F);
        out[i] = wave / 2 + sinf((float)((i + seed) % 4099 * 31 % 4099 * 7)) * 1.4F;
    }
}

/* ---- the plain loop */

/* Returns how many images of the evaluation are right at the end. */
static int train_plain(matrix *w) {
    static float x[DEPTH + 1][EVALUATED * WIDTH], dx[2][BATCH * WIDTH];
    static matrix dw;
    for (int b = 0; b < EPOCHS * IMAGES; b += BATCH) {
        memcpy(x[0], images + b % IMAGES * WIDTH, BATCH * WIDTH * sizeof *images);
        for (int l = 0; l < DEPTH; l++) layer(BATCH, x[l], w[l], x[l + 1]);
        score_back(x[DEPTH], labels + b % IMAGES, dx[DEPTH % 2]);
        for (int l = DEPTH - 1; l >= 0; l--)
            layer_back(x[l], w[l], x[l + 1], dx[(l + 1) % 2], l ? dx[l % 2] : NULL, dw);
    }
    memcpy(x[0], held_out, sizeof held_out);
    for (int l = 0; l < DEPTH; l++) layer(EVALUATED, x[l], w[l], x[l + 1]);
    return count_right(x[DEPTH], held_out_labels);
}

/* ---- the two graphs. Layers 0 to DEPTH - 1 are the network's, layer DEPTH compares with the labels. */

typedef struct net {
    mm_graph *graph;
    mm_tensor x[DEPTH + 1], dx[DEPTH + 1], w; /* x[0]: the images */
    int rows;
} net;

static mm_tensor add(mm_graph *graph, const char *name, int number, mm_tensor_kind kind, mm_ownership owner, int rows) {
    char text[32];
    mm_tensor tensor;
    snprintf(text, sizeof text, "%s.%d", name, number);
    check(mm_graph_add_tensor(graph, &(mm_tensor_desc){text, kind, owner, MM_F32, 2, {rows, WIDTH}}, &tensor));
    return tensor;
}

#define USE(t, access) ((mm_use){net->t, MM_##access, MM_FORM_VALUE})
#define STEP(layer, phase, n, workspace, ...)                                                                          \
    check(mm_graph_add_step(net->graph, layer, phase, (mm_use[]){__VA_ARGS__}, n, workspace))

static void declare(net *net, const char *name, int rows, bool training) {
    mm_layer layer;
    net->rows = rows;
    check(mm_graph_create(name, &net->graph));
    net->x[0] = add(net->graph, "images", 0, MM_INPUT, MM_EXTERNAL, rows);
    net->w = add(net->graph, "weights", 0, MM_WEIGHT, MM_PERSISTENT, DEPTH * WIDTH); /* in both graphs: one tensor */
    for (int l = 0; l < DEPTH; l++) {
        char text[32];
        snprintf(text, sizeof text, "layer.%d", l);
        check(mm_graph_add_layer(net->graph, text, MM_LAYER_LINEAR, &layer));
        if (training) net->dx[l + 1] = add(net->graph, "dx", l + 1, MM_GRADIENT_MAP, MM_MANAGED, rows);
        net->x[l + 1] = add(net->graph, "x", l + 1, MM_FEATURE_MAP, MM_MANAGED, rows);
        STEP(l, MM_FORWARD, 3, 0, USE(x[l], READ), USE(w, READ), USE(x[l + 1], WRITE));
    }
    check(mm_graph_add_layer(net->graph, "score", MM_LAYER_LOSS, &layer));
    if (!training) STEP(DEPTH, MM_FORWARD, 1, 0, USE(x[DEPTH], READ));
    if (training) STEP(DEPTH, MM_BACKWARD, 2, 0, USE(x[DEPTH], READ), USE(dx[DEPTH], WRITE));
    for (int l = DEPTH - 1; training && l >= 0; l--)
        STEP(l, MM_BACKWARD, l ? 5 : 4, sizeof(matrix), USE(x[l], READ), USE(w, MODIFY), USE(x[l + 1], READ),
             USE(dx[l + 1], READ), USE(dx[l], WRITE));
    check(mm_graph_freeze(net->graph));
}

#define AT(t)                mm_tensor_data(m, t)
#define RUN(l, phase, doing) (check(mm_layer_begin(m, l, phase, NULL)), doing, check(mm_layer_end(m, l, phase)))

static void forward(mm_manager *m, const net *net, float *batch) {
    check(mm_external_set(m, net->graph, net->x[0], batch)); /* the batch stays where it is */
    check(mm_iteration_begin(m, net->graph));
    for (int l = 0; l < DEPTH; l++) RUN(l, MM_FORWARD, layer(net->rows, AT(net->x[l]), weights[l], AT(net->x[l + 1])));
}

static void train(mm_manager *m, const net *net, int b) {
    forward(m, net, images + b * WIDTH);
    RUN(DEPTH, MM_BACKWARD, score_back(AT(net->x[DEPTH]), labels + b, AT(net->dx[DEPTH])));
    for (int l = DEPTH - 1; l >= 0; l--)
        RUN(l, MM_BACKWARD,
            layer_back(AT(net->x[l]), weights[l], AT(net->x[l + 1]), AT(net->dx[l + 1]), l ? AT(net->dx[l]) : NULL,
                       mm_workspace_data(m)));
    check(mm_iteration_end(m));
}

static int evaluate(mm_manager *m, const net *net) {
    int right;
    forward(m, net, held_out);
    RUN(DEPTH, MM_FORWARD, right = count_right(AT(net->x[DEPTH]), held_out_labels));
    check(mm_iteration_end(m));
    return right;
}

static void print_plan(void *ctx, const mm_event_info *event) {
    (void)ctx;
    if (event->kind == MM_EVENT_PLAN) printf("%s needs %lld bytes\n", event->name, (long long)event->bytes);
}

int main(void) {
    const mm_options options = {.device_bytes = 65536, .event_fn = print_plan};
    static matrix w[DEPTH];
    net training = {0}, evaluation = {0};
    mm_manager *m;
    int right = 0;
    make_images(images, labels, IMAGES, 0);
    make_images(held_out, held_out_labels, EVALUATED, 1234);
    declare(&training, "training", BATCH, true);
    declare(&evaluation, "evaluation", EVALUATED, false);
    check(mm_manager_create(&options, &m));
    check(mm_manager_prepare(m, training.graph)); /* both plans are proved to fit before anything runs */
    check(mm_manager_prepare(m, evaluation.graph));
    weights = mm_persistent_data(m, "weights.0", NULL);
    for (int i = 0; i < DEPTH * WIDTH * WIDTH; i++)
        w[i / (WIDTH * WIDTH)][i % (WIDTH * WIDTH)] = sinf((float)(i % 1543 * i % 7919)) * 0.4F;
    memcpy(weights, w, sizeof w);
    for (int e = 1; e <= EPOCHS; e++) {
        for (int b = 0; b < IMAGES; b += BATCH) train(m, &training, b);
        right = evaluate(m, &evaluation);
        if (e % 4 == 0) printf("epoch %d: %d of %d right\n", e, right, EVALUATED);
    }
    const bool equal = train_plain(w) == right && memcmp(w, weights, sizeof w) == 0;
    printf("weights and evaluation as the plain loop's, bit for bit: %s\n", equal ? "yes" : "NO");
    mm_manager_destroy(m);
    mm_graph_destroy(training.graph);
    mm_graph_destroy(evaluation.graph);
    return equal ? 0 : 1;
}
