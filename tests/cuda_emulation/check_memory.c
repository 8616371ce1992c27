#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda_emulation/check_memory.h"

enum { MOST = 4096 };

/* One for the process, as the runtime. Changed under the lock and read without, place by place: `bytes` is set last. */
static check_memory all[MOST];
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Zeros, which take memory where they are touched. */
static void *map(size_t bytes) {
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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

/* The piece found last is mostly the next. */
check_memory *check_memory_at(const void *at) {
    static _Thread_local check_memory *last;
    if (last && (uintptr_t)at - (uintptr_t)last->base < __atomic_load_n(&last->bytes, __ATOMIC_ACQUIRE)) return last;
    check_memory *found = find(at);
    if (found) last = found;
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
    check_memory *m = find(at);
    if (!m || !m->open) return;
    size_t first = (size_t)((const char *)at - m->base);
    memset(m->open + first / CHECK_GRANULE, open, granules_of(bytes - 1));
    memset(m->written + first, 0, within(m, at, bytes));
}

void check_memory_written(const void *at, size_t bytes) {
    check_memory *m = find(at);
    if (m) memset(m->written + ((const char *)at - m->base), 1, within(m, at, bytes));
}
