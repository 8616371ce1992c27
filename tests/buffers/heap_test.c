/* SPDX-License-Identifier: MIT */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "buffers/layout/heap_size.h"
#include "buffers/pool.h"
#include "tests/buffers/untouchable.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"

enum { MIB = 1 << 20 };

/* The heap's memory faults at any touch. */
typedef struct fixture {
    mm_device *device;
    mm_pool *pool;
} fixture;

static fixture fixture_open(int64_t bytes) {
    fixture f = {.device = untouchable_create()};
    assert_int_equal(mm_pool_create(f.device, MM_MEMORY_DEVICE, bytes, &f.pool), MM_OK);
    return f;
}

static void fixture_close(fixture *f) {
    mm_pool_destroy(f->pool);
    mm_device_destroy(f->device);
}

static mm_heap *open_heap(const fixture *f, int64_t offset, int64_t bytes) {
    mm_heap *heap = NULL;
    assert_int_equal(mm_heap_open(f->pool, offset, bytes, &heap), MM_OK);
    return heap;
}

static void *alloc(mm_heap *heap, int64_t bytes) {
    void *memory = NULL;
    mm_status status = mm_heap_alloc(heap, bytes, &memory);
    if (status != MM_OK) fail_msg("%s", mm_last_error());
    return memory;
}

TEST_CASE(allocations_are_aligned_and_inside) {
    fixture f = fixture_open(64 * MIB);
    mm_heap *heap = open_heap(&f, 4096, 64 * MIB - 4096 - 100);
    char *begin = (char *)mm_pool_base(f.pool) + 4096, *end = (char *)mm_pool_base(f.pool) + 64 * MIB - 4096;
    const int64_t sizes[] = {0, 1, 255, 4096, 16384, 16385, 100000, MIB, 5 * MIB + 1};
    enum { N = sizeof sizes / sizeof *sizes };
    void *memory[N];
    int64_t used = 0;
    for (int i = 0; i < N; i++) {
        char *m = memory[i] = alloc(heap, sizes[i]);
        assert_int_equal((uintptr_t)m % 256, 0);
        assert_true(m >= begin && m + sizes[i] <= end);
        for (int j = 0; j < i; j++) {
            char *other = memory[j];
            assert_true(m + sizes[i] <= other || other + sizes[j] <= m);
        }
        used += mm_heap_class_bytes(sizes[i]);
        assert_int_equal(mm_heap_used(heap), used);
    }
    assert_int_equal(mm_heap_allocs(heap), N);
    for (int i = 0; i < N; i++) mm_heap_free(heap, memory[i]);
    mm_heap_free(heap, NULL);
    assert_int_equal(mm_heap_used(heap), 0);
    assert_int_equal(mm_heap_allocs(heap), N);
    assert_int_equal(untouchable_charges(f.device), 2 * N);
    mm_heap_close(heap);
    mm_heap_close(NULL);
    fixture_close(&f);
}

TEST_CASE(a_class_is_exactly_what_an_allocation_takes) {
    fixture f = fixture_open(64 * MIB);
    for (int64_t bytes = 1; bytes < 40 * MIB; bytes = bytes * 5 / 3 + 1) {
        void *memory = NULL;
        int64_t class_bytes = mm_heap_class_bytes(bytes);
        mm_heap *heap = open_heap(&f, 0, class_bytes);
        mm_heap_free(heap, alloc(heap, bytes));
        mm_heap_close(heap);
        heap = open_heap(&f, 0, class_bytes - 1);
        assert_int_equal(mm_heap_alloc(heap, bytes, &memory), MM_ERR_NOMEM);
        assert_null(memory);
        mm_heap_close(heap);
    }
    fixture_close(&f);
}

TEST_CASE(a_full_heap_says_so_and_serves_again_after_a_free) {
    fixture f = fixture_open(64 * MIB);
    mm_heap *heap = open_heap(&f, 0, 64 * MIB);
    void *first = alloc(heap, 30 * MIB), *second = alloc(heap, 20 * MIB), *third = NULL;
    assert_int_equal(mm_heap_alloc(heap, 30 * MIB, &third), MM_ERR_NOMEM);
    assert_null(third);
    assert_non_null(strstr(mm_last_error(), "31457280"));
    assert_int_equal(mm_heap_alloc(heap, INT64_MAX, &third), MM_ERR_NOMEM);
    assert_int_equal(mm_heap_alloc(heap, -1, &third), MM_ERR_INVALID);
    mm_heap_free(heap, first);
    third = alloc(heap, 30 * MIB);
    mm_heap_free(heap, second);
    mm_heap_free(heap, third);
    mm_heap_free(heap, alloc(heap, 50 * MIB)); /* the free memory is one piece again */
    mm_heap_close(heap);
    fixture_close(&f);
}

TEST_CASE(ranges_outside_of_the_pool_are_refused) {
    fixture f = fixture_open(MIB);
    mm_heap *heap = NULL;
    assert_int_equal(mm_heap_open(f.pool, 0, MIB + 1, &heap), MM_ERR_INVALID);
    assert_int_equal(mm_heap_open(f.pool, 4096, MIB, &heap), MM_ERR_INVALID);
    assert_int_equal(mm_heap_open(f.pool, 100, 4096, &heap), MM_ERR_INVALID);
    assert_int_equal(mm_heap_open(f.pool, -4096, 4096, &heap), MM_ERR_INVALID);
    assert_null(heap);
    fixture_close(&f);
}

TEST_CASE(an_empty_heap_gives_nothing) {
    fixture f = fixture_open(MIB);
    mm_heap *heap = open_heap(&f, 0, 4095);
    void *memory = NULL;
    assert_int_equal(mm_heap_alloc(heap, 1, &memory), MM_ERR_NOMEM);
    mm_heap_close(heap);
    fixture_close(&f);
}

static int64_t mapped_pages(void) {
    long size = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &size), 1);
    fclose(file);
    return size;
}

/* An arena that is not destroyed keeps 2 MiB of address space, and there can be only 4095 arenas. */
TEST_CASE(opening_and_closing_leaves_nothing) {
    enum { ROUNDS = 5000, WARM = 10, PAGES_OF_8_MIB = 2048 };
    fixture f = fixture_open(64 * MIB);
    int64_t before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        mm_heap *heap = open_heap(&f, 0, 64 * MIB);
        void *a = alloc(heap, MIB + i), *b = alloc(heap, 3 * MIB);
        mm_heap_free(heap, a);
        mm_heap_free(heap, b);
        mm_heap_close(heap);
        if (i == WARM) before = mapped_pages();
    }
    assert_true(mapped_pages() - before < PAGES_OF_8_MIB);
    fixture_close(&f);
}

TEST_CASE(two_heaps_do_not_see_each_other) {
    fixture f = fixture_open(64 * MIB);
    mm_heap *low = open_heap(&f, 0, 32 * MIB), *high = open_heap(&f, 32 * MIB, 32 * MIB);
    char *middle = (char *)mm_pool_base(f.pool) + 32 * MIB;
    void *filler = alloc(low, 28 * MIB), *memory = NULL;
    assert_int_equal(mm_heap_alloc(low, 8 * MIB, &memory), MM_ERR_NOMEM);
    memory = alloc(high, 28 * MIB);
    assert_true((char *)filler < middle && (char *)memory >= middle);
    mm_heap_free(low, filler);
    mm_heap_close(low);
    assert_int_equal(mm_heap_used(high), mm_heap_class_bytes(28 * MIB));
    mm_heap_free(high, memory);
    mm_heap_close(high);
    fixture_close(&f);
}

static int64_t below(uint64_t *random, int64_t n) { return (int64_t)(random_next(random) % (uint64_t)n); }

enum { TENSORS = 60 };

typedef struct sequence {
    uint64_t random;
    int64_t largest;  /* most bytes of one allocation */
    int64_t sizes[4]; /* sizes to choose from, as a network has few shapes; 0: any size */
    int64_t live_max; /* limit of `live` */
    void *memory[TENSORS];
    int64_t bytes[TENSORS];
    int n;
    int64_t live;
} sequence;

static sequence sequence_make(uint64_t seed) {
    sequence s = {.random = seed};
    s.largest = MIB + below(&s.random, 63 * MIB);
    int kind = (int)below(&s.random, 3);
    for (int i = 0; i < 4; i++) {
        int64_t bytes = 1 + below(&s.random, s.largest);
        s.sizes[i] = kind == 0 ? 0 : kind == 1 || i == 0 ? bytes : s.sizes[0] / 8 + 1;
    }
    s.live_max =
        mm_heap_class_bytes(s.largest) * (1 + below(&s.random, 3 + below(&s.random, 10))) + below(&s.random, s.largest);
    while (mm_heap_region_bytes(s.live_max, s.largest) > INT64_C(1024) * MIB) s.live_max = s.live_max * 3 / 4;
    return s;
}

static void free_one(sequence *s, mm_heap *heap) {
    int i = (int)below(&s->random, s->n);
    s->live -= mm_heap_class_bytes(s->bytes[i]);
    mm_heap_free(heap, s->memory[i]);
    s->n--;
    s->memory[i] = s->memory[s->n];
    s->bytes[i] = s->bytes[s->n];
}

/* Allocates up to the limit; frees in random order when the limit is reached, and in between. */
static void sequence_run(sequence *s, mm_heap *heap, int operations) {
    for (int op = 0; op < operations; op++) {
        int64_t bytes = s->sizes[below(&s->random, 4)];
        if (bytes == 0) bytes = 1 + below(&s->random, s->largest);
        int64_t class_bytes = mm_heap_class_bytes(bytes);
        if (class_bytes > s->live_max) continue;
        while (s->n > 0 && (s->live + class_bytes > s->live_max || s->n == TENSORS || below(&s->random, 3) == 0)) {
            free_one(s, heap);
        }
        s->memory[s->n] = alloc(heap, bytes);
        s->bytes[s->n++] = bytes;
        s->live += class_bytes;
        assert_int_equal(mm_heap_used(heap), s->live);
    }
    while (s->n > 0) free_one(s, heap);
}

TEST_CASE(random_sequences_fit_in_the_region_they_are_given) {
    enum { SEQUENCES = 4000, OPERATIONS = 200 };
    fixture f = fixture_open(INT64_C(1024) * MIB);
    for (uint64_t seed = 0; seed < SEQUENCES; seed++) {
        sequence s = sequence_make(seed);
        mm_heap *heap = open_heap(&f, 0, mm_heap_region_bytes(s.live_max, s.largest));
        sequence_run(&s, heap, OPERATIONS);
        assert_int_equal(mm_heap_used(heap), 0);
        mm_heap_close(heap);
    }
    fixture_close(&f);
}

typedef struct worker {
    mm_heap *heap;
    uint64_t seed;
    int failures;
} worker;

static void *work(void *arg) {
    enum { OPERATIONS = 2000, HELD = 4 };
    worker *w = arg;
    void *held[HELD] = {0};
    for (int op = 0; op < OPERATIONS; op++) {
        int i = (int)below(&w->seed, HELD);
        mm_heap_free(w->heap, held[i]);
        held[i] = NULL;
        if (mm_heap_alloc(w->heap, 1 + below(&w->seed, 2 * MIB), &held[i]) != MM_OK) w->failures++;
    }
    for (int i = 0; i < HELD; i++) mm_heap_free(w->heap, held[i]);
    return NULL;
}

TEST_CASE(threads_share_a_heap) {
    enum { THREADS = 4 };
    fixture f = fixture_open(64 * MIB);
    mm_heap *heap = open_heap(&f, 0, 64 * MIB);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.heap = heap, .seed = (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    assert_int_equal(mm_heap_used(heap), 0);
    mm_heap_free(heap, alloc(heap, 50 * MIB));
    mm_heap_close(heap);
    fixture_close(&f);
}
