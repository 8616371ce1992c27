/* SPDX-License-Identifier: MIT */
/* Others need memory, so the budget shrinks and grows while a network trains. mm runs the first policy that fits; the
 * weights stay the plain loop's, bit for bit. What cannot fit is refused, and training goes on as it was.
 *
 *     cc budget_changes.c $(pkg-config --cflags --libs mm) -lm -o budget_changes && ./budget_changes */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/mm_loop.h"

enum { DEPTH = 10, TAPS = 5, SIGNALS = 8, LENGTH = 256, MAP = SIGNALS * LENGTH, MAP_BYTES = MAP * (int)sizeof(float) };
enum { STEPS = 6 }; /* with each budget */

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "budget_changes: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}

/* ---- the network cleans signals: layers of tanh(convolution). Weights and gradients are the program's own memory. */

static float weight[DEPTH][TAPS], gradient[DEPTH][TAPS], noisy[MAP], clean[MAP], loss;

/* Whether tap k of output i lies within the signal. */
static int inside(int i, int k) { return i % LENGTH + k >= TAPS / 2 && i % LENGTH + k < LENGTH + TAPS / 2; }

static void layer(const float *x, const float *w, float *y) {
    for (int i = 0; i < MAP; i++) {
        float sum = 0;
        for (int k = 0; k < TAPS; k++) sum += inside(i, k) ? w[k] * x[i + k - TAPS / 2] : 0;
        y[i] = tanhf(sum);
    }
}

static void layer_back(const float *x, const float *w, const float *y, const float *dy, float *dx, float *dw) {
    memset(dw, 0, TAPS * sizeof *dw);
    if (dx) memset(dx, 0, MAP_BYTES); /* NULL: the first layer's input needs no gradient */
    for (int i = 0; i < MAP; i++)
        for (int k = 0; k < TAPS; k++) {
            if (!inside(i, k)) continue;
            const float dz = dy[i] * (1 - y[i] * y[i]);
            dw[k] += dz * x[i + k - TAPS / 2];
            if (dx) dx[i + k - TAPS / 2] += dz * w[k];
        }
}

static void squared_error(const float *y, float *dy) {
    loss = 0;
    for (int i = 0; i < MAP; i++) {
        dy[i] = 2 * (y[i] - clean[i]) / MAP;
        loss += (y[i] - clean[i]) * (y[i] - clean[i]) / MAP;
    }
}

static void update(void) {
    for (int l = 0; l < DEPTH; l++)
        for (int k = 0; k < TAPS; k++) weight[l][k] -= 0.1F * gradient[l][k];
}

static void set_up(void) {
    for (int l = 0; l < DEPTH; l++)
        for (int k = 0; k < TAPS; k++) weight[l][k] = k == TAPS / 2 ? 1 : 0.1F;
    for (int i = 0; i < MAP; i++) {
        clean[i] = sinf((float)(i % LENGTH) * 0.05F * (float)(1 + i / LENGTH)) / 2;
        noisy[i] = clean[i] + sinf((float)(i * 37 % 1009 * 11)) / 4;
    }
}

static void iterate_plain(void) {
    static float x[DEPTH + 1][MAP], dx[2][MAP];
    memcpy(x[0], noisy, MAP_BYTES);
    for (int l = 0; l < DEPTH; l++) layer(x[l], weight[l], x[l + 1]);
    squared_error(x[DEPTH], dx[DEPTH % 2]);
    for (int l = DEPTH - 1; l >= 0; l--)
        layer_back(x[l], weight[l], x[l + 1], dx[(l + 1) % 2], l ? dx[l % 2] : NULL, gradient[l]);
    update();
}

/* ---- the same loop inside a budget */

static const float *x, *dy;
static float *y, *dx;

static mm_status run_layer(void *ctx, int32_t l) {
    (void)ctx;
    layer(l ? x : noisy, weight[l], y);
    return MM_OK;
}

static void iterate(mm_loop *loop) {
    bool again;
    do {
        check(mm_loop_begin(loop, 0));
        for (int l = 0; l < DEPTH; l++) {
            const mm_loop_step step = {"layer", l, MM_FORWARD, MM_LAYER_CONV, run_layer, NULL};
            const mm_slot slots[] = {mm_slot_write("x", l + 1, &y, MAP_BYTES), mm_slot_read("x", l, &x)};
            mm_loop_run(loop, &step, slots, l ? 2 : 1); /* layer 0 reads the signals, which are not mm's */
        }
        const mm_loop_step error = {"error", 0, MM_FORWARD, MM_LAYER_LOSS, NULL, NULL};
        const mm_slot error_slots[] = {mm_slot_read("x", DEPTH, &x), mm_slot_write("dx", DEPTH, &dx, MAP_BYTES)};
        if (mm_loop_enter(loop, &error, error_slots, 2)) {
            squared_error(x, dx);
            mm_loop_leave(loop);
        }
        for (int l = DEPTH - 1; l >= 0; l--) {
            const float *out;
            const mm_loop_step step = {"layer", l, MM_BACKWARD, MM_LAYER_CONV, NULL, NULL};
            const mm_slot slots[] = {mm_slot_read("x", l + 1, &out), mm_slot_read("dx", l + 1, &dy),
                                     mm_slot_read("x", l, &x), mm_slot_write("dx", l, &dx, MAP_BYTES)};
            if (mm_loop_enter(loop, &step, slots, l ? 4 : 2)) {
                layer_back(l ? x : noisy, weight[l], out, dy, l ? dx : NULL, gradient[l]);
                mm_loop_leave(loop);
            }
        }
        check(mm_loop_end(loop, &again));
    } while (again);
    update();
}

/* ---- what mm tells: peaks of plans as events, and each substitute policy as a warning */

static int64_t peak;

static void note_peak(void *ctx, const mm_event_info *event) {
    (void)ctx;
    if (event->kind == MM_EVENT_ITERATION_BEGIN) peak = event->bytes;
}

static void print_message(void *ctx, mm_log_level level, const char *message) {
    (void)ctx;
    printf("%s: %s\n", level == MM_LOG_WARNING ? "warning" : "error", message);
}

int main(void) {
    enum { RESERVED = 120000 }; /* a budget never grows beyond what the manager was created with */
    static const int64_t budgets[] = {RESERVED, 70000, 45000, 20000, 50000, 2 * RESERVED, RESERVED};
    const mm_options options = {.device_bytes = RESERVED,
                                .pinned_bytes = 100000,
                                .policy = "liveness",
                                .log = {print_message, NULL, MM_LOG_WARNING},
                                .event_fn = note_peak};
    static float embedded[DEPTH][TAPS];
    mm_manager *m;
    mm_loop *loop;
    int steps = 0, refused = 0;
    set_up();
    check(mm_manager_create(&options, &m));
    check(mm_loop_create(m, NULL, &loop));
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        if (mm_budget_set(m, budgets[b]) != MM_OK) { /* nothing has changed: the old budget and plan go on */
            printf("budget %lld refused: %s\n", (long long)budgets[b], mm_last_error());
            refused++;
        }
        for (int i = 0; i < STEPS; i++, steps++) iterate(loop);
        printf("budget %6lld, peak %6lld, %s, loss %.4f\n", (long long)mm_manager_device_bytes(m), (long long)peak,
               mm_policy_now(m), loss);
        if (peak > mm_manager_device_bytes(m)) return 1;
    }
    mm_loop_destroy(loop);
    mm_manager_destroy(m);

    memcpy(embedded, weight, sizeof weight);
    set_up();
    for (int i = 0; i < steps; i++) iterate_plain();
    const bool equal = memcmp(embedded, weight, sizeof weight) == 0;
    printf("weights as the plain loop's, bit for bit: %s\n", equal ? "yes" : "NO");
    return equal && refused == 2 ? 0 : 1;
}
