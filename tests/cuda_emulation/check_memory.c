/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda_emulation/check_memory.h"

enum { MOST = 4096, PAGE = 4096, KNOWN = 256 };

/* One table for the process, like the runtime. It is changed under the lock and read without: `bytes` is set last, so
 * an access finds a complete piece or none. */
static check_memory all[MOST];
static size_t used;
static long changes; /* number of pieces that came or went so far */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Zeros, whose pages take memory when they are first touched. */
static void *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) return memory;
    perror("cuda_emulation: mmap for the checker of kernels");
    abort();
}

static size_t words_of(size_t bytes) { return bytes / 4 + 1; }
static size_t granules_of(size_t bytes) { return bytes / CHECK_GRANULE + 1; }

void check_memory_made(const void *base, size_t bytes, check_kind kind) {
    if (bytes == 0) return;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < used && all[i].bytes > 0) i++;
    if (i == MOST) {
        fprintf(stderr, "cuda_emulation: more than %d pieces of memory\n", MOST);
        abort();
    }
    check_memory *m = &all[i];
    m->base = base;
    m->kind = kind;
    m->written = map(bytes);
    m->open = kind == CHECK_ADDRESSES ? map(granules_of(bytes)) : NULL;
    m->words = map(words_of(bytes) * sizeof *m->words);
    m->singles = map(bytes * sizeof *m->singles);
    __atomic_store_n(&m->bytes, bytes, __ATOMIC_RELEASE);
    if (i == used) __atomic_store_n(&used, used + 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

static check_memory *find(const void *at) {
    size_t n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = __atomic_load_n(&all[i].bytes, __ATOMIC_ACQUIRE);
        if ((uintptr_t)at - (uintptr_t)all[i].base < bytes) return &all[i];
    }
    return NULL;
}

/* Whether a piece has bytes of the page. */
static bool is_page_used(uintptr_t page) {
    size_t n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);
    for (size_t i = 0; i < n; i++) {
        uintptr_t first = (uintptr_t)all[i].base / PAGE, last = ((uintptr_t)all[i].base + all[i].bytes - 1) / PAGE;
        if (all[i].bytes > 0 && page >= first && page <= last) return true;
    }
    return false;
}

/* What a thread remembers of a page: the piece that it last found there, or NULL if no piece is there. It holds until a
 * piece comes or goes (`changes`). */
typedef struct memory_page {
    uintptr_t page;
    long change;
    check_memory *found;
} memory_page;

check_memory *check_memory_at(const void *at) {
    static _Thread_local memory_page known[KNOWN];
    uintptr_t page = (uintptr_t)at / PAGE;
    long change = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
    memory_page *k = &known[page % KNOWN];
    if (k->page == page && k->change == change) {
        if (!k->found || (uintptr_t)at - (uintptr_t)k->found->base < k->found->bytes) return k->found;
    }
    check_memory *found = find(at);
    if (found || !is_page_used(page)) {
        k->page = page;
        k->change = change;
        k->found = found;
    }
    return found;
}

check_memory *check_memory_before(const void *at) {
    check_memory *nearest = NULL;
    size_t n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);
    for (size_t i = 0; i < n; i++)
        if (all[i].bytes > 0 && (const char *)at >= all[i].base && (!nearest || all[i].base > nearest->base))
            nearest = &all[i];
    return nearest;
}

void check_memory_gone(const void *base) {
    pthread_mutex_lock(&lock);
    check_memory *m = find(base);
    if (m && m->base == base) {
        size_t bytes = m->bytes;
        __atomic_store_n(&m->bytes, 0, __ATOMIC_RELEASE);
        __atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE);
        munmap(m->written, bytes);
        munmap(m->words, words_of(bytes) * sizeof *m->words);
        munmap(m->singles, bytes * sizeof *m->singles);
        if (m->open) munmap(m->open, granules_of(bytes));
    }
    pthread_mutex_unlock(&lock);
}

static size_t within(const check_memory *m, const void *at, size_t bytes) {
    size_t room = m->bytes - (size_t)((const char *)at - m->base);
    return bytes < room ? bytes : room;
}

void check_memory_opened(const void *at, size_t bytes, bool open) {
    pthread_mutex_lock(&lock);
    check_memory *m = find(at);
    if (m && m->open) {
        size_t first = (size_t)((const char *)at - m->base);
        memset(m->open + first / CHECK_GRANULE, open, granules_of(bytes - 1));
        memset(m->written + first, 0, within(m, at, bytes));
    }
    pthread_mutex_unlock(&lock);
}

void check_memory_written(const void *at, size_t bytes) {
    pthread_mutex_lock(&lock);
    check_memory *m = find(at);
    if (m) memset(m->written + ((const char *)at - m->base), 1, within(m, at, bytes));
    pthread_mutex_unlock(&lock);
}
