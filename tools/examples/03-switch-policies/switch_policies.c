/* SPDX-License-Identifier: MIT */
/* Switches the policy while a network trains. Lossless policies leave the weights of the plain loop, bit for bit; after
 * a lossy one they differ a little. A policy that is refused changes nothing.
 *
 *     cc switch_policies.c $(pkg-config --cflags --libs mm) -lm -o switch_policies && ./switch_policies */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/mm_loop.h"

enum { DEPTH = 12, BATCH = 64, WIDTH = 16, MAP = BATCH * WIDTH, MAP_BYTES = MAP * (int)sizeof(float), STEPS = 6 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "switch_policies: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}

/* ---- the network: layers x[l + 1] = tanh(x[l] weight[l]). Weights and gradients stay in the program's memory. */

typedef float layer_weights[WIDTH * WIDTH];
static layer_weights weight[DEPTH], gradient[DEPTH];
static float images[MAP], targets[MAP], loss;

static void layer(const float *x, const float *w, float *y) {
    for (int i = 0; i < MAP; i++) {
        float sum = 0;
        for (int c = 0; c < WIDTH; c++) sum += x[i / WIDTH * WIDTH + c] * w[c * WIDTH + i % WIDTH];
        y[i] = tanhf(sum);
    }
}

/* dx may be NULL: the images have no gradient. */
static void layer_back(const float *x, const float *w, const float *y, const float *dy, float *dx, float *dw) {
    memset(dw, 0, sizeof(layer_weights));
    if (dx) memset(dx, 0, MAP_BYTES);
    for (int i = 0; i < MAP; i++) {
        const float dz = dy[i] * (1 - y[i] * y[i]);
        const int row = i / WIDTH * WIDTH, o = i % WIDTH;
        for (int c = 0; c < WIDTH; c++) {
            dw[c * WIDTH + o] += x[row + c] * dz;
            if (dx) dx[row + c] += w[c * WIDTH + o] * dz;
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

static void update(void) {
    for (int l = 0; l < DEPTH; l++)
        for (int i = 0; i < WIDTH * WIDTH; i++) weight[l][i] -= gradient[l][i];
}

static void set_up(void) {
    for (int l = 0; l < DEPTH; l++)
        for (int i = 0; i < WIDTH * WIDTH; i++) weight[l][i] = sinf((float)((l + 1) * i * i)) * 0.45F;
    for (int i = 0; i < MAP; i++) images[i] = sinf((float)(3 * i)), targets[i] = cosf((float)(i % WIDTH)) / 2;
}

/* ---- the plain loop: every map stays in memory from the forward to the backward pass */

static void iterate_plain(void) {
    static float x[DEPTH + 1][MAP], dx[2][MAP];
    memcpy(x[0], images, MAP_BYTES);
    for (int l = 0; l < DEPTH; l++) layer(x[l], weight[l], x[l + 1]);
    squared_error(x[DEPTH], dx[DEPTH % 2]);
    for (int l = DEPTH - 1; l >= 0; l--)
        layer_back(x[l], weight[l], x[l + 1], dx[(l + 1) % 2], l ? dx[l % 2] : NULL, gradient[l]);
    update();
}

/* ---- the same loop inside a budget. mm fills these pointers at mm_loop_enter. */

static const float *x, *dy;
static float *y, *dx;

/* Layers have a function of their own, so that policies may compute them again. */
static mm_status run_layer(void *ctx, int32_t l) {
    (void)ctx;
    layer(l ? x : images, weight[l], y);
    return MM_OK;
}

static void iterate(mm_loop *loop) {
    bool again;
    do {
        check(mm_loop_begin(loop, 0));
        for (int l = 0; l < DEPTH; l++) {
            const mm_loop_step step = {"layer", l, MM_FORWARD, MM_LAYER_LINEAR, run_layer, NULL};
            const mm_slot slots[] = {mm_slot_write("x", l + 1, &y, MAP_BYTES), mm_slot_read("x", l, &x)};
            mm_loop_run(loop, &step, slots, l ? 2 : 1); /* layer 0 reads the images, which are not mm's */
        }
        const mm_loop_step error = {"error", 0, MM_FORWARD, MM_LAYER_LOSS, NULL, NULL};
        const mm_slot error_slots[] = {mm_slot_read("x", DEPTH, &x), mm_slot_write("dx", DEPTH, &dx, MAP_BYTES)};
        if (mm_loop_enter(loop, &error, error_slots, 2)) {
            squared_error(x, dx);
            mm_loop_leave(loop);
        }
        for (int l = DEPTH - 1; l >= 0; l--) {
            const float *out;
            const mm_loop_step step = {"layer", l, MM_BACKWARD, MM_LAYER_LINEAR, NULL, NULL};
            const mm_slot slots[] = {mm_slot_read("x", l + 1, &out), mm_slot_read("dx", l + 1, &dy),
                                     mm_slot_read("x", l, &x), mm_slot_write("dx", l, &dx, MAP_BYTES)};
            if (mm_loop_enter(loop, &step, slots, l ? 4 : 2)) {
                layer_back(l ? x : images, weight[l], out, dy, l ? dx : NULL, gradient[l]);
                mm_loop_leave(loop);
            }
        }
        check(mm_loop_end(loop, &again));
    } while (again);
    update();
}

/* Trains some steps, and prints what the policy does with the maps. */
static void train(mm_manager *m, mm_loop *loop) {
    mm_stats before, after;
    mm_stats_get(m, &before);
    for (int i = 0; i < STEPS; i++) iterate(loop);
    mm_stats_get(m, &after);
    printf("%-42s %7lld %7lld %7lld  %.4f\n", mm_policy_now(m), (long long)after.stash_bytes,
           (long long)(after.out_bytes - before.out_bytes) / STEPS,
           (long long)(after.coded_bytes - before.coded_bytes) / STEPS, loss);
}

/* Trains the plain loop by as many steps, from the first, and compares the weights. */
static bool equals_plain(int steps) {
    static layer_weights embedded[DEPTH];
    memcpy(embedded, weight, sizeof weight);
    set_up();
    for (int i = 0; i < steps; i++) iterate_plain();
    const bool equal = memcmp(embedded, weight, sizeof weight) == 0;
    memcpy(weight, embedded, sizeof weight);
    return equal;
}

int main(void) {
    static const char *const lossless[] = {"liveness", "swap-async:when=always", "recompute:mode=sqrt,when=always",
                                           "recompute-swap:when=always"};
    enum { POLICIES = sizeof lossless / sizeof *lossless };
    const mm_options options = {.device_bytes = 128 << 10, .pinned_bytes = 128 << 10};
    mm_manager *m;
    mm_loop *loop;
    set_up();
    check(mm_manager_create(&options, &m));
    check(mm_loop_create(m, NULL, &loop));
    printf("%-42s %7s %7s %7s  %s\n", "policy", "stash", "out", "coded", "loss"); /* bytes an iteration */
    for (int p = 0; p < POLICIES; p++) {
        check(mm_policy_set(m, lossless[p]));
        train(m, loop);
    }
    if (mm_policy_set(m, "swap-asink") == MM_OK) return 1;
    printf("refused: %s\n", mm_last_error());
    train(m, loop);
    const bool exact = equals_plain((POLICIES + 1) * STEPS);
    printf("weights as the plain loop's, bit for bit: %s\n", exact ? "yes" : "NO");

    check(mm_policy_set(m, "freelunch:rate=8,eligible=all,when=always")); /* 8 bits a value, for 32 */
    train(m, loop);
    const bool lossy = !equals_plain((POLICIES + 2) * STEPS);
    printf("now they differ: %s\n", lossy ? "yes" : "NO");
    mm_loop_destroy(loop);
    mm_manager_destroy(m);
    return exact && lossy ? 0 : 1;
}
