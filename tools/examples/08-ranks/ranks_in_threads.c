/* SPDX-License-Identifier: MIT */
/* Four ranks share each batch. Each has its own manager, policy, weights and maps; mm hands over each gradient when it
 * is complete, and takes the sum back before the update. Here ranks are threads, which add up on a board; in processes,
 * `sent` and `await` would begin and finish MPI_Iallreduce. The weights are a plain loop's, bit for bit.
 *
 *     cc ranks_in_threads.c $(pkg-config --cflags --libs mm) -lm -lpthread -o ranks_in_threads && ./ranks_in_threads */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/mm.h"

enum { RANKS = 4, DEPTH = 6, BATCH = 64, ROWS = BATCH / RANKS, WIDTH = 16, MATRIX = WIDTH * WIDTH, STEPS = 30 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "ranks_in_threads: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}

/* ---- the network: layers x[l + 1] = tanh(x[l] w[l]), of a rank's rows */

static float images[BATCH * WIDTH], targets[BATCH * WIDTH], weight[DEPTH][MATRIX], wanted[DEPTH][MATRIX];

static void layer(const float *x, const float *w, float *y) {
    for (int i = 0; i < ROWS * WIDTH; i++) {
        y[i] = 0;
        for (int c = 0; c < WIDTH; c++) y[i] += x[i / WIDTH * WIDTH + c] * w[c * WIDTH + i % WIDTH];
        y[i] = tanhf(y[i]);
    }
}

static void layer_back(const float *x, const float *w, const float *y, const float *dy, float *dx, float *dw) {
    memset(dw, 0, MATRIX * sizeof *dw);
    memset(dx, 0, ROWS * WIDTH * sizeof *dx);
    for (int i = 0; i < ROWS * WIDTH; i++)
        for (int c = 0, row = i / WIDTH * WIDTH, o = i % WIDTH; c < WIDTH; c++) {
            const float dz = dy[i] * (1 - y[i] * y[i]);
            dw[c * WIDTH + o] += x[row + c] * dz;
            dx[row + c] += w[c * WIDTH + o] * dz;
        }
}

/* The gradient of the mean squared error of the whole batch. */
static void error_back(int rank, const float *y, float *dy) {
    const float *target = targets + rank * ROWS * WIDTH;
    for (int i = 0; i < ROWS * WIDTH; i++) dy[i] = 2 * (y[i] - target[i]) / (BATCH * WIDTH);
}

static void update(float *w, const float *dw) {
    for (int i = 0; i < MATRIX; i++) w[i] -= dw[i];
}

static float iterate_plain(float w[DEPTH][MATRIX]) {
    static float x[DEPTH + 1][ROWS * WIDTH], dx[2][ROWS * WIDTH], part[MATRIX], sum[DEPTH][MATRIX];
    memset(sum, 0, sizeof sum);
    float loss = 0;
    for (int r = 0; r < RANKS; r++) {
        memcpy(x[0], images + r * ROWS * WIDTH, sizeof x[0]);
        for (int l = 0; l < DEPTH; l++) layer(x[l], w[l], x[l + 1]);
        error_back(r, x[DEPTH], dx[DEPTH % 2]);
        for (int i = 0; i < ROWS * WIDTH; i++) loss += dx[DEPTH % 2][i] * dx[DEPTH % 2][i] * BATCH * WIDTH / 4;
        for (int l = DEPTH - 1; l >= 0; l--) {
            layer_back(x[l], w[l], x[l + 1], dx[(l + 1) % 2], dx[l % 2], part);
            for (int i = 0; i < MATRIX; i++) sum[l][i] += part[i];
        }
    }
    for (int l = 0; l < DEPTH; l++) update(w[l], sum[l]);
    return loss;
}

/* ---- ranks, and the board: places for all ranks' gradients, twice, since a rank may be one iteration ahead */

typedef struct rank {
    int number, sent, awaited; /* gradients so far; mm sends and awaits them in one order, the same on all ranks */
    mm_tensor x[DEPTH + 1], dx[DEPTH + 1], dw[DEPTH], w;
    float (*weights)[MATRIX]; /* of w: a persistent tensor never moves */
    bool equal;
} rank;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static float board[2 * DEPTH][RANKS][MATRIX];
static int arrived[2 * DEPTH]; /* ranks that have sent, times the turns of that place */

/* A thread of mm calls it when `part->data` has this rank's gradient; it may not block. */
static void sent(void *ctx, const mm_allreduce_part *part) {
    rank *r = ctx;
    const int place = r->sent++ % (2 * DEPTH);
    pthread_mutex_lock(&lock);
    memcpy(board[place][r->number], part->data, (size_t)part->bytes);
    arrived[place]++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* A thread of mm calls it before the update; it may block. It returns when `part->data` has the sum. */
static mm_status await(void *ctx, const mm_allreduce_part *part) {
    rank *r = ctx;
    const int place = r->awaited % (2 * DEPTH), turn = r->awaited++ / (2 * DEPTH);
    float *sum = part->data;
    pthread_mutex_lock(&lock);
    while (arrived[place] < (turn + 1) * RANKS) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    memset(sum, 0, (size_t)part->bytes);
    for (int other = 0; other < RANKS; other++) /* in one order, so that all ranks have the same bits */
        for (int i = 0; i < MATRIX; i++) sum[i] += board[place][other][i];
    return MM_OK;
}

static mm_tensor add(mm_graph *graph, const char *name, int l, mm_tensor_kind kind, mm_ownership owner, int rows) {
    char text[32];
    mm_tensor tensor;
    snprintf(text, sizeof text, "%s.%d", name, l);
    check(mm_graph_add_tensor(graph, &(mm_tensor_desc){text, kind, owner, MM_F32, 2, {rows, WIDTH}}, &tensor));
    return tensor;
}

#define AT(t)                      mm_tensor_data(m, r->t)
#define RUN(l, phase, doing)       (check(mm_layer_begin(m, l, phase, NULL)), doing, check(mm_layer_end(m, l, phase)))
#define USE(t, access)             ((mm_use){r->t, MM_##access, MM_FORM_VALUE})
#define STEP(layer, phase, n, ...) check(mm_graph_add_step(graph, layer, phase, (mm_use[]){__VA_ARGS__}, n, 0))

static mm_graph *declare(rank *r) {
    static const char *const layers[DEPTH + 1] = {"layer0", "layer1", "layer2", "layer3", "layer4", "layer5", "error"};
    mm_graph *graph;
    mm_layer number;
    check(mm_graph_create("network", &graph));
    r->w = add(graph, "weights", 0, MM_WEIGHT, MM_PERSISTENT, DEPTH * WIDTH);
    for (int l = 0; l <= DEPTH; l++) {
        r->x[l] = add(graph, "x", l, l ? MM_FEATURE_MAP : MM_INPUT, l ? MM_MANAGED : MM_EXTERNAL, ROWS);
        r->dx[l] = add(graph, "dx", l, MM_GRADIENT_MAP, MM_MANAGED, ROWS);
        check(mm_graph_add_layer(graph, layers[l], MM_LAYER_LINEAR, &number));
        if (l == DEPTH) break; /* the error has no weight */
        r->dw[l] = add(graph, "dw", l, MM_WEIGHT_GRADIENT, MM_PERSISTENT, WIDTH);
        check(mm_graph_allreduce(graph, r->dw[l], MM_ALLREDUCE_AT_ONCE, MM_REDUCE_SUM));
    }
    for (int l = 0; l < DEPTH; l++) STEP(l, MM_FORWARD, 3, USE(x[l], READ), USE(w, READ), USE(x[l + 1], WRITE));
    STEP(DEPTH, MM_BACKWARD, 2, USE(x[DEPTH], READ), USE(dx[DEPTH], WRITE));
    for (int l = DEPTH - 1; l >= 0; l--)
        STEP(l, MM_BACKWARD, 6, USE(x[l], READ), USE(w, READ), USE(x[l + 1], READ), USE(dx[l + 1], READ),
             USE(dw[l], WRITE), USE(dx[l], WRITE));
    for (int l = DEPTH - 1; l >= 0; l--) STEP(l, MM_UPDATE, 2, USE(w, MODIFY), USE(dw[l], READ));
    check(mm_graph_freeze(graph));
    return graph;
}

static void iterate(rank *r, mm_manager *m, const mm_graph *graph) {
    check(mm_iteration_begin(m, graph));
    for (int l = 0; l < DEPTH; l++) RUN(l, MM_FORWARD, layer(AT(x[l]), r->weights[l], AT(x[l + 1])));
    RUN(DEPTH, MM_BACKWARD, error_back(r->number, AT(x[DEPTH]), AT(dx[DEPTH])));
    for (int l = DEPTH - 1; l >= 0; l--)
        RUN(l, MM_BACKWARD, layer_back(AT(x[l]), r->weights[l], AT(x[l + 1]), AT(dx[l + 1]), AT(dx[l]), AT(dw[l])));
    for (int l = DEPTH - 1; l >= 0; l--) RUN(l, MM_UPDATE, update(r->weights[l], AT(dw[l]))); /* begins with the sum */
    check(mm_iteration_end(m));
}

static const char *const policies[RANKS] = {"liveness", "naive", "swap:when=always", "swap-async:when=always"};

static void *train(void *arg) {
    rank *r = arg;
    const mm_options options = {.device_bytes = 65536, .pinned_bytes = 65536, .policy = policies[r->number]};
    mm_graph *graph = declare(r);
    mm_manager *m;
    check(mm_manager_create(&options, &m));
    check(mm_external_set(m, graph, r->x[0], images + r->number * ROWS * WIDTH));
    check(mm_allreduce_set(m, graph, &(mm_allreduce_fns){sent, await, NULL}, r));
    r->weights = mm_persistent_data(m, "weights.0", NULL);
    memcpy(r->weights, weight, sizeof weight);
    for (int i = 0; i < STEPS; i++) iterate(r, m, graph);
    r->equal = memcmp(r->weights, wanted, sizeof wanted) == 0;
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
    return NULL;
}

int main(void) {
    static rank ranks[RANKS];
    pthread_t threads[RANKS];
    float loss = 0;
    bool equal = true;
    for (int i = 0; i < DEPTH * MATRIX; i++) weight[i / MATRIX][i % MATRIX] = sinf((float)(i % 1543 * i % 7919)) * 0.4F;
    for (int i = 0; i < BATCH * WIDTH; i++) images[i] = sinf((float)(3 * i)), targets[i] = cosf((float)(i % WIDTH)) / 2;
    memcpy(wanted, weight, sizeof weight);
    for (int i = 0; i < STEPS; i++) loss = iterate_plain(wanted);
    for (int r = 0; r < RANKS; r++) {
        ranks[r].number = r;
        if (pthread_create(&threads[r], NULL, train, &ranks[r]) != 0) return 1;
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        printf("rank %d, %-23s %d sums, weights %s\n", r, policies[r], ranks[r].awaited,
               ranks[r].equal ? "equal" : "DIFFER");
        equal &= ranks[r].equal;
    }
    printf("loss %.4f\n", loss);
    return equal ? 0 : 1;
}
