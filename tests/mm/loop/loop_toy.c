/* SPDX-License-Identifier: MIT */
#include "tests/mm/loop/loop_toy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/core/expect.h"

/* ---------------------------------------------------------------- what steps compute */

static void block(const float *x, float *h, float *y, float *scratch, const float *w, int n, bool zero) {
    for (int i = 0; i < n && zero; i++) h[i] = 0;
    for (int i = 0; i < n; i++) scratch[i] = x[i] * w[i];
    for (int i = 0; i < n; i++) h[i] += scratch[i] > 0 ? scratch[i] : 0.1F * scratch[i];
    for (int i = 0; i < n; i++) y[i] = x[i] + 0.5F * h[i] + 0.25F * h[(i + 1) % n];
}

static void block_back(const float *x, const float *h, const float *dy, float *dx, const float *w, float *dw, int n) {
    for (int i = 0; i < n; i++) {
        const float dh = (0.5F * dy[i] + 0.25F * dy[(i + n - 1) % n]) * (h[i] > 0 ? 1 : 0.1F);
        dx[i] += dy[i] + dh * w[i];
        dw[i] += dh * x[i];
    }
}

void toy_compute(const toy_task *t) {
    const int n = t->elems;
    float *const *at = t->at;
    switch (t->op) {
    case TOY_EMBED:
        for (int i = 0; i < n; i++) at[0][i] = (float)((i * 37 + t->batch * 11) % 101) / 101 - 0.5F;
        break;
    case TOY_BLOCK:
        block(at[0], at[1], at[2], at[3], t->w, n, t->given);
        break;
    case TOY_PROBS:
        for (int i = 0; i < n; i++) at[1][i] = at[0][i] * 0.5F;
        break;
    case TOY_LOSS:
        for (int i = 0; i < n; i++) at[1][i] = at[0][i] - (float)(i % 3) / 2;
        for (int i = 0; i < n; i++) at[2][i] += at[1][i] / 8;
        break;
    case TOY_SPLIT:
        for (int i = 0; i < n && !t->given; i++) at[1][i] += at[0][i];
        break;
    case TOY_BLOCK_BACK:
        block_back(at[0], at[1], at[2], at[3], t->w, t->dw, n);
        break;
    }
}

/* ---------------------------------------------------------------- plain memory */

static float *find_plain(toy *t, const mm_slot *slot) {
    char name[32];
    snprintf(name, sizeof name, "%s.%d", slot->name, slot->row);
    for (int i = 0; i < t->n_plain; i++)
        if (strcmp(t->plain[i].name, name) == 0) return t->plain[i].data;
    toy_tensor *added = &t->plain[t->n_plain++];
    assert_true(t->n_plain <= (int)(sizeof t->plain / sizeof *t->plain));
    memcpy(added->name, name, sizeof name);
    added->bytes = slot->bytes;
    added->data = calloc(1, (size_t)slot->bytes);
    assert_non_null(added->data);
    return added->data;
}

static void begin_plain(toy *t) {
    for (int i = 0; i < t->n_plain; i++) memset(t->plain[i].data, 0, (size_t)t->plain[i].bytes);
}

/* ---------------------------------------------------------------- steps */

static bool enter(toy *t, const mm_loop_step *step, const mm_slot *slots, size_t n) {
    if (t->loop) return mm_loop_enter(t->loop, step, slots, n);
    for (size_t i = 0; i < n; i++) *(float **)slots[i].where = find_plain(t, &slots[i]);
    return true;
}

static void leave(toy *t) {
    if (t->loop) mm_loop_leave(t->loop);
}

static mm_status compute(toy *t, toy_task task) {
    task.elems = TOY_ELEMS;
    task.batch = t->batch;
    if (t->launch) return t->launch(&task);
    toy_compute(&task);
    return MM_OK;
}

/* Whether a block adds to h, or writes it. */
static bool adds(int l) { return l % 2 == 0; }

static mm_status run_block(void *ctx, int32_t l) {
    toy *t = ctx;
    t->runs++;
    return compute(
        t, (toy_task){TOY_BLOCK, .given = !adds(l), .w = t->w + l * TOY_ELEMS, .at = {t->x, t->h, t->y, t->scratch}});
}

static void forward(toy *t, int l) {
    const mm_loop_step step = {"block", l, MM_FORWARD, MM_LAYER_LINEAR, t->again ? run_block : NULL, t};
    const mm_slot slots[] = {
        mm_slot_read("x", l, &t->x),
        adds(l) ? mm_slot_add("h", l, &t->h, TOY_ELEMS * 4) : mm_slot_write("h", l, &t->h, TOY_ELEMS * 4),
        mm_slot_write("x", l + 1, &t->y, TOY_ELEMS * 4), mm_slot_scratch(&t->scratch, TOY_ELEMS * 4)};
    if (t->again && t->loop)
        mm_loop_run(t->loop, &step, slots, 4);
    else if (enter(t, &step, slots, 4)) {
        expect_ok(run_block(t, l));
        leave(t);
    }
}

static void backward(toy *t, int l) {
    mm_slot split[] = {mm_slot_read("dx", l + 1, &t->dy), mm_slot_add("da", l, &t->da, TOY_ELEMS * 4)};
    split[1].over = &t->dy;
    if (enter(t, &(mm_loop_step){.name = "split", .row = l, .phase = MM_BACKWARD, .kind = MM_LAYER_ADD}, split, 2)) {
        const bool given = t->loop && mm_loop_given(t->loop, &t->da);
        expect_ok(compute(t, (toy_task){TOY_SPLIT, .given = given, .at = {t->dy, t->da}}));
        leave(t);
    }
    const mm_slot slots[] = {mm_slot_read("x", l, &t->x), mm_slot_read("h", l, &t->h), mm_slot_read("da", l, &t->dy),
                             mm_slot_add("dx", l, &t->dx, TOY_ELEMS * 4)};
    if (enter(t, &(mm_loop_step){.name = "block", .row = l, .phase = MM_BACKWARD, .kind = MM_LAYER_LINEAR}, slots, 4)) {
        expect_ok(compute(t, (toy_task){TOY_BLOCK_BACK, .w = t->w + l * TOY_ELEMS, .dw = t->dw + l * TOY_ELEMS,
                                        .at = {t->x, t->h, t->dy, t->dx}}));
        leave(t);
    }
}

/* The last step of the forward pass. */
static void finish(toy *t, int64_t key) {
    const mm_slot slots[] = {mm_slot_read("x", TOY_BLOCKS, &t->x), mm_slot_result("probs", 0, &t->probs, TOY_ELEMS * 4),
                             mm_slot_add("dx", TOY_BLOCKS, &t->dx, TOY_ELEMS * 4)};
    const bool trains = key == TOY_TRAIN;
    const mm_loop_step step = {.name = trains ? "loss" : "probs", .kind = MM_LAYER_LOSS};
    if (!enter(t, &step, slots, trains ? 3 : 2)) return;
    expect_ok(compute(t, (toy_task){trains ? TOY_LOSS : TOY_PROBS, .at = {t->x, t->probs, t->dx}}));
    leave(t);
}

void toy_steps(toy *t, int64_t key) {
    const mm_slot slot = mm_slot_write("x", 0, &t->x, TOY_ELEMS * 4);
    if (enter(t, &(mm_loop_step){.name = "embed", .row = 0, .phase = MM_FORWARD, .kind = MM_LAYER_EMBEDDING}, &slot,
              1)) {
        expect_ok(compute(t, (toy_task){TOY_EMBED, .at = {t->x}}));
        leave(t);
    }
    for (int l = 0; l < TOY_BLOCKS; l++) forward(t, l);
    finish(t, key);
    for (int l = TOY_BLOCKS - 1; key == TOY_TRAIN && l >= 0; l--) backward(t, l);
}

/* ---------------------------------------------------------------- iterations */

static mm_status pass(toy *t, int64_t key) {
    bool again = false;
    begin_plain(t);
    do {
        memset(t->dw, 0, sizeof t->dw);
        mm_status status = t->loop ? mm_loop_begin(t->loop, key) : MM_OK;
        if (status != MM_OK) return status;
        toy_steps(t, key);
        if (t->loop) status = mm_loop_end(t->loop, &again);
        if (status != MM_OK) return status;
    } while (again);
    return MM_OK;
}

mm_status toy_iterate(toy *t, int64_t key) {
    const mm_status status = pass(t, key);
    if (status != MM_OK) return status;
    assert_non_null(t->probs);
    if (t->sync) t->sync();
    if (!t->launch) t->read = t->probs[1];
    t->batch += key == TOY_TRAIN;
    for (int i = 0; key == TOY_TRAIN && i < TOY_BLOCKS * TOY_ELEMS; i++) t->w[i] -= 0.05F * t->dw[i];
    return MM_OK;
}

void toy_init(toy *t, mm_manager *manager, const mm_loop_options *options) {
    memset(t, 0, sizeof *t);
    for (int i = 0; i < TOY_BLOCKS * TOY_ELEMS; i++) t->w[i] = (float)((i * 29) % 97) / 97 - 0.4F;
    if (manager) expect_ok(mm_loop_create(manager, options, &t->loop));
}

void toy_fini(toy *t) {
    mm_loop_destroy(t->loop);
    for (int i = 0; i < t->n_plain; i++) free(t->plain[i].data);
}

uint64_t toy_digest(const toy *t) {
    uint64_t digest = 0xcbf29ce484222325;
    for (int i = 0; i < TOY_BLOCKS * TOY_ELEMS; i++) {
        uint32_t bits;
        memcpy(&bits, &t->w[i], sizeof bits);
        digest = (digest ^ bits) * 0x100000001b3;
    }
    return digest;
}

uint64_t toy_reference(int iterations) {
    static toy t;
    toy_init(&t, NULL, NULL);
    for (int i = 0; i < iterations; i++) expect_ok(toy_iterate(&t, TOY_TRAIN));
    const uint64_t digest = toy_digest(&t);
    toy_fini(&t);
    return digest;
}
