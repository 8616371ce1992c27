/* SPDX-License-Identifier: MIT */
/* Computes maps again in the backward pass, instead of holding them (activation checkpointing), in a learned loop: a
 * step that has a function, `run`, may run again. The weights are the plain loop's, bit for bit. recompute_declared.c
 * does the same with a declared graph.
 *
 *     cc recompute_learned.c $(pkg-config --cflags --libs mm) -lm -o recompute_learned && ./recompute_learned */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/mm_loop.h"

enum { LAYERS = 16, BATCH = 64, WIDTH = 16, MAP = BATCH * WIDTH, MAP_BYTES = MAP * (int)sizeof(float), STEPS = 10 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "recompute_learned: %s: %s\n", mm_status_name(status), mm_last_error());
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

/* ---- a learned loop: a step that has `run` can be computed again */

static const float *x, *dy;
static float *y, *dx;

static mm_status run(void *ctx, int32_t k) {
    (void)ctx;
    forward(k, k ? x : images, y);
    return MM_OK;
}

static void iterate(mm_loop *loop) {
    for (bool again = true; again;) {
        check(mm_loop_begin(loop, 0));
        for (int k = 0; k < LAYERS; k++) {
            const mm_loop_step step = {"layer", k, MM_FORWARD, k % 2 ? MM_LAYER_GELU : MM_LAYER_LINEAR, run, NULL};
            const mm_slot slots[] = {mm_slot_write("map", k + 1, &y, MAP_BYTES), mm_slot_read("map", k, &x)};
            mm_loop_run(loop, &step, slots, k ? 2 : 1);
        }
        const mm_loop_step error = {"error", 0, MM_BACKWARD, MM_LAYER_LOSS, NULL, NULL};
        const mm_slot uses[] = {mm_slot_read("map", LAYERS, &x), mm_slot_write("d_map", LAYERS, &dx, MAP_BYTES)};
        if (mm_loop_enter(loop, &error, uses, 2)) squared_error(x, dx), mm_loop_leave(loop);
        for (int k = LAYERS - 1; k >= 0; k--) {
            const mm_loop_step step = {"layer", k, MM_BACKWARD, MM_LAYER_OTHER, NULL, NULL};
            const mm_slot slots[] = {mm_slot_read("d_map", k + 1, &dy), mm_slot_read("map", k, &x),
                                     mm_slot_write("d_map", k, &dx, MAP_BYTES)};
            if (mm_loop_enter(loop, &step, slots, k ? 3 : 1)) {
                backward(k, k ? x : images, dy, k ? dx : NULL);
                mm_loop_leave(loop);
            }
        }
        check(mm_loop_end(loop, &again));
    }
}

/* ---- training under one policy. Prints the plan's peak, and how many forward steps an iteration computes. */

static int64_t peak;

static void note_peak(void *ctx, const mm_event_info *event) {
    (void)ctx;
    if (event->kind == MM_EVENT_ITERATION_BEGIN) peak = event->bytes;
}

static bool train(mm_manager *m, mm_loop *loop, const char *policy, const void *wanted) {
    check(mm_policy_set(m, policy));
    set_up();
    forwards = 0;
    for (int i = 0; i < STEPS; i++) {
        iterate(loop);
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
    mm_loop *loop;
    set_up();
    for (int i = 0; i < STEPS; i++) {
        iterate_plain();
        update();
    }
    memcpy(wanted, weight, sizeof weight);
    check(mm_manager_create(&options, &m));
    check(mm_loop_create(m, NULL, &loop));
    bool equal = train(m, loop, "liveness", wanted);
    equal &= train(m, loop, "recompute:when=always", wanted);           /* layers that are cheap: the odd ones */
    equal &= train(m, loop, "recompute:mode=sqrt,when=always", wanted); /* all but a map in each run of layers */
    mm_loop_destroy(loop);
    mm_manager_destroy(m);
    return equal ? 0 : 1;
}
