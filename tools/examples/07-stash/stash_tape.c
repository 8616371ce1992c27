/* SPDX-License-Identifier: MIT */
/* A loop whose order nobody declares: each iteration decides how many layers run, as with stochastic depth, and what
 * they save for the backward pass goes to a stash. It learns each order when it first occurs, and plans it. First, each
 * layer allocates its output, and keeps it if the stash says so; then, with MM_STASH_TAKE_ALWAYS, all layers write to
 * two buffers by turns. Both leave the weights of the plain loop, bit for bit.
 *
 *     cc stash_tape.c $(pkg-config --cflags --libs mm) -lm -o stash_tape && ./stash_tape */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/mm.h"

enum { DEPTH = 12, BATCH = 64, WIDTH = 16, MAP = BATCH * WIDTH, MAP_BYTES = MAP * (int)sizeof(float), STEPS = 24 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "stash_tape: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}

/* ---- the network: layers x[l + 1] = tanh(x[l] weight[l]), of which an iteration runs the first few */

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

/* dz: the gradient of x w, from the gradient of y */
static void tanh_back(const float *y, const float *dy, float *dz) {
    for (int i = 0; i < MAP; i++) dz[i] = dy[i] * (1 - y[i] * y[i]);
}

static void linear_back(const float *x, const float *w, const float *dz, float *dx, float *dw) {
    memset(dw, 0, sizeof(layer_weights));
    memset(dx, 0, MAP_BYTES);
    for (int i = 0; i < MAP; i++)
        for (int c = 0, row = i / WIDTH * WIDTH, o = i % WIDTH; c < WIDTH; c++) {
            dw[c * WIDTH + o] += x[row + c] * dz[i];
            dx[row + c] += w[c * WIDTH + o] * dz[i];
        }
}

static void squared_error(const float *y, float *dy) {
    loss = 0;
    for (int i = 0; i < MAP; i++) {
        dy[i] = 2 * (y[i] - targets[i]) / MAP;
        loss += (y[i] - targets[i]) * (y[i] - targets[i]) / MAP;
    }
}

static void update(int depth) {
    for (int l = 0; l < depth; l++)
        for (int i = 0; i < WIDTH * WIDTH; i++) weight[l][i] -= gradient[l][i];
}

static void set_up(void) {
    for (int l = 0; l < DEPTH; l++)
        for (int i = 0; i < WIDTH * WIDTH; i++) weight[l][i] = sinf((float)((l + 1) * i * i)) * 0.45F;
    for (int i = 0; i < MAP; i++) images[i] = sinf((float)(3 * i)), targets[i] = cosf((float)(i % WIDTH)) / 2;
}

/* 12 layers, at times 8: what an iteration will do is known when it does it. */
static int draw_depth(int step) { return step % 9 == 6 ? 8 : DEPTH; }

static float d[MAP], dz[MAP]; /* gradients of the map behind a layer, then before it; and of x w */

static void iterate_plain(int depth) {
    static float x[DEPTH + 1][MAP];
    memcpy(x[0], images, MAP_BYTES);
    for (int l = 0; l < depth; l++) layer(x[l], weight[l], x[l + 1]);
    squared_error(x[depth], d);
    for (int l = depth - 1; l >= 0; l--) {
        tanh_back(x[l + 1], d, dz);
        linear_back(x[l], weight[l], dz, d, gradient[l]);
    }
    update(depth);
}

/* ---- the same loop with a stash */

typedef struct saved {
    mm_stash_entry entry;
    float *kept; /* the layer's own allocation, if the stash left it to us, or NULL */
} saved;

/* Saves a map for the backward pass. */
static saved save(mm_stash *stash, float *map, bool take_always) {
    saved s = {0, NULL};
    mm_stash_answer answer;
    const mm_stash_tensor tensor = {map, MM_F32, 2, {BATCH, WIDTH}, {0}, "tanh", 0};
    check(mm_stash_put(stash, &tensor, NULL, &s.entry, &answer));
    if (answer == MM_STASH_KEPT) s.kept = map;
    if (answer == MM_STASH_TAKEN && !take_always) free(map);
    return s;
}

/* Until its release, the map stays where `get` says. */
static const float *get(mm_stash *stash, const saved *s) {
    void *data;
    check(mm_stash_get(stash, s->entry, NULL, &data));
    return data;
}

static void iterate(mm_stash *stash, int depth, bool take_always) {
    static float buffer[2][MAP];
    float *x[DEPTH + 1] = {images};
    saved tape[DEPTH + 1];
    for (int l = 0; l < depth; l++) {
        x[l + 1] = take_always ? buffer[l % 2] : malloc(MAP_BYTES);
        if (!x[l + 1]) abort();
        layer(x[l], weight[l], x[l + 1]);
        if (l > 0) tape[l] = save(stash, x[l], take_always); /* this pass no longer needs it */
    }
    squared_error(x[depth], d);
    tape[depth] = save(stash, x[depth], take_always);
    for (int l = depth - 1; l >= 0; l--) {
        tanh_back(get(stash, &tape[l + 1]), d, dz);
        mm_stash_release(stash, tape[l + 1].entry, NULL);
        mm_stash_drop(stash, tape[l + 1].entry); /* the last one ends the iteration */
        free(tape[l + 1].kept);
        linear_back(l ? get(stash, &tape[l]) : images, weight[l], dz, d, gradient[l]);
        if (l) mm_stash_release(stash, tape[l].entry, NULL);
    }
    check(mm_stash_wait_planned(stash)); /* a real loop goes on, and runs unplanned until the plan is there */
    update(depth);
}

/* Trains with a stash, and compares the weights. */
static bool train(bool take_always, const void *wanted) {
    const mm_stash_options options = {
        .device_bytes = 6 * MAP_BYTES, .pinned_bytes = 1 << 20, .modes = take_always ? MM_STASH_TAKE_ALWAYS : 0};
    mm_stash *stash;
    mm_stash_stats s;
    check(mm_stash_create(&options, &stash));
    set_up();
    for (int i = 0; i < STEPS; i++) iterate(stash, draw_depth(i), take_always);
    mm_stash_stats_get(stash, &s);
    const bool equal = memcmp(weight, wanted, sizeof weight) == 0;
    printf("%s: %lld iterations, %lld planned, %lld left their plan, %lld plans\n",
           take_always ? "two buffers" : "allocations", (long long)s.iterations, (long long)s.planned,
           (long long)s.off_plan, (long long)s.plans);
    printf("    %lld puts, most bytes at a time %lld, loss %.4f, weights %s\n", (long long)s.puts,
           (long long)s.peak_bytes, loss, equal ? "equal" : "DIFFER");
    mm_stash_destroy(stash);
    return equal;
}

int main(void) {
    static layer_weights wanted[DEPTH];
    set_up();
    for (int i = 0; i < STEPS; i++) iterate_plain(draw_depth(i));
    memcpy(wanted, weight, sizeof weight);
    printf("plain: %d bytes of maps, loss %.4f\n", DEPTH * MAP_BYTES, loss);
    const bool equal = train(false, wanted);
    return train(true, wanted) && equal ? 0 : 1;
}
