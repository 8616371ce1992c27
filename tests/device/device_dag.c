/* SPDX-License-Identifier: MIT */
#include "tests/device/device_dag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/core/random.h"

enum { CELLS = 12, CELL_BYTES = 1037, STREAMS_MAX = 8 };

typedef struct dag {
    mm_device *device;
    int streams;
    mm_stream *stream[STREAMS_MAX];
    mm_event *used[CELLS]; /* recorded behind each use of the cell */
    bool ever_used[CELLS];
    unsigned char *memory; /* the device's cells */
    unsigned char *result; /* pinned */
    unsigned char expected[CELLS][CELL_BYTES];
} dag;

static void dag_init(dag *dag, mm_device *device, int streams) {
    void *memory;
    memset(dag, 0, sizeof *dag);
    dag->device = device;
    dag->streams = streams;
    for (int i = 0; i < streams; i++) {
        char name[32];
        snprintf(name, sizeof name, "dag-%d", i);
        assert_int_equal(mm_stream_create(device, name, 0, &dag->stream[i]), MM_OK);
    }
    for (int i = 0; i < CELLS; i++) assert_int_equal(mm_event_create(device, &dag->used[i]), MM_OK);
    assert_int_equal(mm_device_reserve(device, MM_MEMORY_DEVICE, CELLS * CELL_BYTES, &memory), MM_OK);
    dag->memory = memory;
    assert_int_equal(mm_device_reserve(device, MM_MEMORY_PINNED, CELLS * CELL_BYTES, &memory), MM_OK);
    dag->result = memory;
}

static void dag_fini(dag *dag) {
    mm_device_release(dag->device, MM_MEMORY_DEVICE, dag->memory, CELLS * CELL_BYTES);
    mm_device_release(dag->device, MM_MEMORY_PINNED, dag->result, CELLS * CELL_BYTES);
    for (int i = 0; i < CELLS; i++) mm_event_destroy(dag->used[i]);
    for (int i = 0; i < dag->streams; i++) mm_stream_destroy(dag->stream[i]);
}

static void before_use(dag *dag, mm_stream *stream, int cell) {
    if (dag->ever_used[cell]) assert_int_equal(mm_stream_wait(stream, dag->used[cell]), MM_OK);
}

static void after_use(dag *dag, mm_stream *stream, int cell) {
    assert_int_equal(mm_event_record(dag->used[cell], stream), MM_OK);
    dag->ever_used[cell] = true;
}

static void dag_fill(dag *dag, mm_stream *stream, int cell, uint8_t byte) {
    before_use(dag, stream, cell);
    assert_int_equal(mm_fill_async(stream, dag->memory + cell * CELL_BYTES, byte, CELL_BYTES), MM_OK);
    after_use(dag, stream, cell);
    memset(dag->expected[cell], byte, CELL_BYTES);
}

/* Copies a part of one cell to a part of another, so that a cell's bytes depend on many operations. */
static void dag_copy(dag *dag, mm_stream *stream, int to, int from, uint64_t *random) {
    int64_t bytes = random_below(random, CELL_BYTES);
    int64_t at = random_below(random, (int)(CELL_BYTES - bytes));
    before_use(dag, stream, from);
    before_use(dag, stream, to);
    assert_int_equal(mm_copy_async(stream, dag->memory + to * CELL_BYTES + at, dag->memory + from * CELL_BYTES, bytes,
                                   MM_COPY_DEVICE),
                     MM_OK);
    after_use(dag, stream, from);
    after_use(dag, stream, to);
    memcpy(dag->expected[to] + at, dag->expected[from], (size_t)bytes);
}

static void dag_check(dag *dag) {
    for (int i = 0; i < CELLS; i++) before_use(dag, dag->stream[0], i);
    assert_int_equal(mm_copy_async(dag->stream[0], dag->result, dag->memory, CELLS * CELL_BYTES, MM_COPY_OUT), MM_OK);
    assert_int_equal(mm_stream_sync(dag->stream[0]), MM_OK);
    assert_memory_equal(dag->result, dag->expected, CELLS * CELL_BYTES);
}

void device_dag_run(mm_device *device, const device_dag_config *config) {
    uint64_t random = config->seed;
    dag dag;
    dag_init(&dag, device, config->streams);
    for (int i = 0; i < config->operations; i++) {
        mm_stream *stream = dag.stream[random_below(&random, config->streams)];
        int to = random_below(&random, CELLS);
        int from = (to + 1 + random_below(&random, CELLS - 1)) % CELLS;
        if (random_chance(&random, 25))
            dag_fill(&dag, stream, to, (uint8_t)random_next(&random));
        else
            dag_copy(&dag, stream, to, from, &random);
    }
    dag_check(&dag);
    dag_fini(&dag);
}
