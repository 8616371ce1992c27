/* SPDX-License-Identifier: MIT */
/* tools/bazel/jemalloc.bzl cuts jemalloc's thread state short. This test has the whole state, and checks that the part
 * behind the cut is never touched. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "buffers/heap_jemalloc.h"
#include "tests/core/test_case.h"

enum { STATE_BYTES = 0xa48, RANGE_BYTES = 64 << 20, PIECES = 20, THREADS = 4 };

extern const char *const je_malloc_conf_2_conf_harder;
const char *const je_malloc_conf_2_conf_harder = MM_JEMALLOC_CONF;

extern __thread unsigned char je_tsd_tls[STATE_BYTES];

/* Memory for an arena's extents: each byte is given out once, and never again. */
typedef struct range {
    extent_hooks_t hooks;
    char *next, *end;
    pthread_mutex_t lock;
} range;

static void *extent_alloc(extent_hooks_t *hooks, void *at, size_t bytes, size_t align, bool *zero, bool *commit,
                          unsigned arena) {
    (void)align, (void)zero, (void)arena;
    range *r = (range *)hooks;
    void *extent = NULL;
    pthread_mutex_lock(&r->lock);
    if (!at && (size_t)(r->end - r->next) >= bytes) {
        extent = r->next;
        r->next += bytes;
    }
    pthread_mutex_unlock(&r->lock);
    *commit = true;
    return extent;
}

static bool extent_dalloc(extent_hooks_t *hooks, void *extent, size_t bytes, bool committed, unsigned arena) {
    (void)hooks, (void)extent, (void)bytes, (void)committed, (void)arena;
    return false;
}

static bool is_zero(const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bytes[i]) return false;
    }
    return true;
}

static void *use_arenas(void *failed_out) {
    char *memory = aligned_alloc(4096, RANGE_BYTES);
    for (int round = 0; round < 20; round++) {
        range r = {
            .hooks = {.alloc = extent_alloc, .dalloc = extent_dalloc}, .next = memory, .end = memory + RANGE_BYTES};
        pthread_mutex_init(&r.lock, NULL);
        mm_jemalloc_arena_config config = {&r.hooks, false};
        unsigned arena;
        size_t length = sizeof arena;
        void *pieces[PIECES];
        char name[64];
        if (je_mallctl("experimental.arenas_create_ext", &arena, &length, &config, sizeof config)) abort();
        for (int i = 0; i < PIECES; i++) {
            pieces[i] = je_mallocx((size_t)16384 * (size_t)(1 + i),
                                   MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(256));
            if (!pieces[i] || je_sallocx(pieces[i], 0) == 0) abort();
        }
        for (int i = 0; i < PIECES; i++) je_dallocx(pieces[i], MALLOCX_TCACHE_NONE);
        snprintf(name, sizeof name, "arena.%u.purge", arena);
        if (je_mallctl(name, NULL, NULL, NULL, 0)) abort();
        snprintf(name, sizeof name, "arena.%u.destroy", arena);
        if (je_mallctl(name, NULL, NULL, NULL, 0)) abort();
        pthread_mutex_destroy(&r.lock);
    }
    free(memory);
    bool used = !is_zero(je_tsd_tls, MM_JEMALLOC_THREAD_BYTES);
    bool rest = is_zero(je_tsd_tls + MM_JEMALLOC_THREAD_BYTES, STATE_BYTES - MM_JEMALLOC_THREAD_BYTES);
    *(bool *)failed_out = !used || !rest;
    return NULL;
}

TEST_CASE(nothing_behind_the_cut_is_touched) {
    pthread_t threads[THREADS];
    bool failed[THREADS + 1];
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, use_arenas, &failed[i]), 0);
    use_arenas(&failed[THREADS]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i <= THREADS; i++) assert_false(failed[i]);
}
