/* SPDX-License-Identifier: MIT */
/* Homes move between the memories of a manager, many pieces each, with their bytes; whatever a disk fails at, values
 * are as before, or are known to be lost until something writes them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffers/disk.h"
#include "mm/manager/home_moves.h"
#include "mm/manager/prepare.h"
#include "tests/buffers/disk_fault.h"
#include "tests/core/deep.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

enum { TENSORS = 24, MOST_BYTES = 60000, PIECE = 2 * MM_DISK_BLOCK, ROOM = 4 << 20 };

typedef struct fixture {
    mm_manager *m;
    uint64_t random;
    int n;
    int64_t bytes[TENSORS];
    uint8_t *values[TENSORS];
    uint8_t memory[TENSORS + 1];
} fixture;

static const char *name_of(int i, char name[16]) {
    snprintf(name, 16, "t%d", i);
    return name;
}

static void set(fixture *f, int i) {
    char name[16];
    for (int64_t b = 0; b < f->bytes[i]; b++) f->values[i][b] = (uint8_t)random_next(&f->random);
    assert_int_equal(mm_persistent_set(f->m, name_of(i, name), 0, f->values[i], f->bytes[i]), MM_OK);
}

static void begin(fixture *f, int n) {
    char name[16];
    const char *directory = getenv("TEST_TMPDIR");
    *f = (fixture){.n = n, .random = 56};
    f->m = rig_manager(&(mm_options){
        .device_bytes = ROOM, .pinned_bytes = ROOM, .disk = directory ? directory : "/tmp", .disk_bytes = ROOM});
    f->m->home_piece_bytes = PIECE;
    for (int i = 0; i < n; i++) {
        f->bytes[i] = 1 + random_below(&f->random, i % 3 ? MOST_BYTES : 5000);
        f->values[i] = malloc((size_t)f->bytes[i]);
        assert_non_null(f->values[i]);
        assert_int_equal(mm_persistent_add(f->m, name_of(i, name), f->bytes[i]), MM_OK);
        set(f, i);
    }
}

static void end(fixture *f) {
    mm_manager_destroy(f->m);
    for (int i = 0; i < f->n; i++) free(f->values[i]);
}

static mm_status move_to(fixture *f) { return mm_homes_move(f->m, &(mm_homes){f->memory, f->n + 1}); }

static void draw(fixture *f) {
    for (int i = 0; i < f->n; i++) f->memory[i] = (uint8_t)random_below(&f->random, MM_MEMORY_COUNT);
}

static mm_persistent *entry_of(fixture *f, int i) { return &f->m->persistents.entries[i]; }

/* All values are there; of those that are lost, that is said. Returns how many are lost. */
static int expect_values(fixture *f) {
    int lost = 0;
    for (int i = 0; i < f->n; i++) {
        char name[16];
        uint8_t *now = malloc((size_t)f->bytes[i]);
        assert_non_null(now);
        const mm_status status = mm_persistent_get(f->m, name_of(i, name), 0, now, f->bytes[i]);
        assert_int_equal(status, entry_of(f, i)->lost ? MM_ERR_IO : MM_OK);
        if (status == MM_OK) assert_memory_equal(now, f->values[i], (size_t)f->bytes[i]);
        lost += status != MM_OK;
        free(now);
    }
    return lost;
}

/* ---------------------------------------------------------------- a disk that fails */

/* Moves while access number `nth` fails, and perhaps all later ones. Returns whether one failed. */
static bool move_failing(fixture *f, int nth, bool ever_after) {
    disk_fault_set(f->m->disk, ever_after ? DISK_FAULT_FOR_GOOD : DISK_FAULT_ONCE, nth, EIO);
    const mm_status status = move_to(f);
    const bool failed = disk_fault_end(f->m->disk);
    assert_int_equal(status, failed ? MM_ERR_IO : MM_OK);
    return failed;
}

TEST_CASE(many_pieces_move_between_all_memories) {
    fixture f;
    begin(&f, TENSORS);
    for (int i = 0; i < test_depth(60, 2000); i++) {
        draw(&f);
        assert_int_equal(move_to(&f), MM_OK);
        assert_int_equal(expect_values(&f), 0);
    }
    end(&f);
}

TEST_CASE(many_pieces_go_back_whatever_access_fails) {
    fixture f;
    int failed = 0;
    begin(&f, TENSORS);
    for (int i = 0; i < test_depth(6, 60); i++) {
        draw(&f);
        for (int nth = 0; move_failing(&f, nth, false); nth += 1 + random_below(&f.random, 5)) {
            assert_int_equal(expect_values(&f), 0);
            failed++;
        }
        assert_int_equal(expect_values(&f), 0);
    }
    assert_true(failed > 50);
    end(&f);
}

/* The zeros of a tensor that is being added lie over homes of before, which no step of the route has overwritten. */
TEST_CASE(a_zero_that_fails_takes_the_move_back) {
    fixture f;
    int failed = 0;
    begin(&f, 3);
    for (int i = 0; i < f.n; i++) f.memory[i] = MM_MEM_DISK;
    assert_int_equal(move_to(&f), MM_OK);
    for (int i = 0; i < f.n; i++) f.memory[i] = i % 2 ? MM_MEM_PINNED : MM_MEM_DEVICE;
    f.memory[f.n] = MM_MEM_DISK;
    assert_int_equal(mm_persistent_table_append(&f.m->persistents, "added", 1 << 20), MM_OK);
    for (int nth = 0; move_failing(&f, nth, false); nth++) {
        assert_int_equal(expect_values(&f), 0);
        failed++;
    }
    assert_true(failed > 10); /* reads, and zeros of 16 parts */
    assert_int_equal(expect_values(&f), 0);
    end(&f);
}

/* ---------------------------------------------------------------- what is lost */

TEST_CASE(what_is_lost_moves_along_and_stays_lost) {
    fixture f;
    char name[16];
    int lost = 0;
    begin(&f, TENSORS);
    for (int i = 0; i < 12; i++) {
        draw(&f);
        move_failing(&f, 8 + random_below(&f.random, 40), true);
        lost += expect_values(&f);
        const int there = expect_values(&f);
        draw(&f);
        assert_int_equal(move_to(&f), MM_OK);
        assert_int_equal(expect_values(&f), there);
        for (int k = 0; i % 3 == 2 && k < f.n; k++) set(&f, k);
    }
    assert_true(lost > 0);
    for (int k = 0; k < f.n; k++) set(&f, k);
    assert_int_equal(expect_values(&f), 0);
    entry_of(&f, 1)->set_bytes = 0;
    entry_of(&f, 1)->lost = true; /* set by halves: a move between them leaves the first half behind */
    const int64_t half = f.bytes[1] / 2;
    assert_int_equal(mm_persistent_set(f.m, name_of(1, name), 0, f.values[1], half), MM_OK);
    f.memory[1] = f.memory[1] == MM_MEM_DEVICE ? MM_MEM_PINNED : MM_MEM_DEVICE;
    assert_int_equal(move_to(&f), MM_OK);
    assert_int_equal(mm_persistent_set(f.m, name, half, f.values[1] + half, f.bytes[1] - half), MM_OK);
    assert_int_equal(expect_values(&f), 1);
    set(&f, 1);
    assert_int_equal(expect_values(&f), 0);
    end(&f);
}

typedef struct writer {
    mm_graph *graph;
    mm_tensor out, in, values;
    mm_layer layer;
    mm_manager *m;
} writer;

static mm_tensor add(mm_graph *graph, const char *name) {
    const mm_tensor_desc desc = {name, MM_STATE, MM_PERSISTENT, MM_I32, 1, {4}};
    mm_tensor tensor;
    assert_int_equal(mm_graph_add_tensor(graph, &desc, &tensor), MM_OK);
    return tensor;
}

static mm_status fail_now(void *arg) {
    return *(const bool *)arg ? mm_fail(MM_ERR_DEVICE, "a step that fails") : MM_OK;
}

/* The step of an iteration that has begun: all but its writes. */
static mm_status step(const writer *w, bool fails) {
    mm_stream *stream = mm_compute_stream(w->m);
    mm_status status = mm_layer_begin(w->m, w->layer, MM_FORWARD, stream);
    if (status == MM_OK) status = rig_device_used()->launch(stream, fail_now, &fails, sizeof fails);
    return status == MM_OK ? mm_layer_end(w->m, w->layer, MM_FORWARD) : status;
}

static void lose(writer *w, const char *name) {
    const mm_persistent *entry = mm_persistent_table_find(&w->m->persistents, name);
    assert_non_null(entry);
    w->m->persistents.entries[entry - w->m->persistents.entries].lost = true;
}

static mm_status get(writer *w, const char *name) {
    int32_t word;
    return mm_persistent_get(w->m, name, 0, &word, sizeof word);
}

static void writer_begin(writer *w) {
    assert_int_equal(mm_graph_create("writer", &w->graph), MM_OK);
    w->out = add(w->graph, "out");
    w->in = add(w->graph, "in");
    w->values = add(w->graph, MM_VALUES);
    assert_int_equal(mm_graph_add_layer(w->graph, "write", MM_LAYER_OTHER, &w->layer), MM_OK);
    const mm_use uses[] = {
        {w->out, MM_WRITE, MM_FORM_VALUE}, {w->in, MM_READ, MM_FORM_VALUE}, {w->values, MM_READ, MM_FORM_VALUE}};
    assert_int_equal(mm_graph_add_step(w->graph, w->layer, MM_FORWARD, uses, 3, 0), MM_OK);
    assert_int_equal(mm_graph_freeze(w->graph), MM_OK);
    w->m = rig_manager(&(mm_options){.device_bytes = 1 << 20});
    assert_int_equal(mm_manager_prepare(w->m, w->graph), MM_OK);
}

static void writer_end(writer *w) {
    mm_manager_destroy(w->m);
    mm_graph_destroy(w->graph);
}

/* "out" is written first. It is whole again once an iteration that writes it has ended well, and not before. */
TEST_CASE(only_an_iteration_that_ends_well_makes_whole_what_it_writes) {
    writer w;
    const int32_t zeros[4] = {0};
    writer_begin(&w);
    lose(&w, "out");
    lose(&w, "in");
    assert_int_equal(mm_iteration_begin(w.m, w.graph), MM_ERR_IO); /* it reads "in" */
    assert_int_equal(get(&w, "out"), MM_ERR_IO);
    assert_int_equal(mm_persistent_set(w.m, "in", 0, zeros, sizeof zeros), MM_OK);
    assert_int_equal(mm_rehearsal_begin(w.m, w.graph), MM_OK);
    mm_iteration_abort(w.m);
    assert_int_equal(get(&w, "out"), MM_ERR_IO);
    assert_int_equal(mm_iteration_begin(w.m, w.graph), MM_OK);
    mm_iteration_abort(w.m);
    assert_int_equal(get(&w, "out"), MM_ERR_IO);
    for (int async = 0; async < 2; async++) {
        lose(&w, "out");
        assert_int_equal(mm_iteration_begin(w.m, w.graph), MM_OK);
        assert_int_equal(step(&w, true), MM_OK);
        mm_status status = async ? mm_iteration_end_async(w.m) : mm_iteration_end(w.m);
        if (status == MM_OK) status = mm_manager_sync(w.m);
        assert_int_equal(status, MM_ERR_DEVICE);
        assert_int_equal(get(&w, "out"), MM_ERR_IO);
        for (int i = 0; i <= async; i++) { /* one that is issued behind it may read what it writes */
            assert_int_equal(mm_iteration_begin(w.m, w.graph), MM_OK);
            assert_int_equal(step(&w, false), MM_OK);
            assert_int_equal(async ? mm_iteration_end_async(w.m) : mm_iteration_end(w.m), MM_OK);
        }
        assert_int_equal(get(&w, "out"), MM_OK);
    }
    writer_end(&w);
}

/* The manager writes the values itself. */
TEST_CASE(lost_values_of_iterations_come_back_with_the_next) {
    writer w;
    writer_begin(&w);
    lose(&w, MM_VALUES);
    assert_int_equal(get(&w, MM_VALUES), MM_ERR_IO);
    assert_int_equal(mm_iteration_begin(w.m, w.graph), MM_OK);
    assert_int_equal(step(&w, false), MM_OK);
    assert_int_equal(mm_iteration_end(w.m), MM_OK);
    assert_int_equal(get(&w, MM_VALUES), MM_OK);
    writer_end(&w);
}
