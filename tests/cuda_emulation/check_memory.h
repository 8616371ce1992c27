/* SPDX-License-Identifier: MIT */
/* Memory as the checker of kernels (check.h) sees it: for each piece its kind, which bytes were ever written, and
 * their last accesses. The runtime reports what it allocates, copies and fills. */
#ifndef TESTS_CUDA_EMULATION_CHECK_MEMORY_H
#define TESTS_CUDA_EMULATION_CHECK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum check_kind {
    CHECK_ALLOCATION,
    CHECK_ADDRESSES, /* a reserved range of addresses; accessible where granules are open */
    CHECK_PINNED,    /* the CPU writes it too, which the checker does not see */
    CHECK_SHARED,
    CHECK_SHARED_DYNAMIC,
} check_kind;

/* The last accesses to a place in launch `launch`, each packed into 64 bits (check_race.cc); 0: none. */
typedef struct check_cell {
    uint32_t launch;
    bool split; /* for a word: its bytes have cells of their own */
    uint64_t write, read, other_read;
} check_cell;

typedef struct check_memory {
    const char *base;
    size_t bytes; /* 0: this entry is free */
    check_kind kind;
    unsigned char *written;      /* per byte; 1: it was written */
    unsigned char *open;         /* CHECK_ADDRESSES: per granule of CHECK_GRANULE bytes */
    check_cell *words, *singles; /* per four bytes, and per byte of split words; pages take memory when first used */
} check_memory;

enum { CHECK_GRANULE = 64 << 10 };

/* Report memory that is new (never written), gone, opened or closed. Thread-safe. */
void check_memory_made(const void *base, size_t bytes, check_kind kind);
void check_memory_gone(const void *base);
void check_memory_opened(const void *at, size_t bytes, bool open);
/* Reports bytes that were copied to, or filled. */
void check_memory_written(const void *at, size_t bytes);

/* The piece that contains the byte; NULL: none does. */
check_memory *check_memory_at(const void *at);
/* The nearest piece that begins before the byte, for messages; NULL: none does. */
check_memory *check_memory_before(const void *at);

#ifdef __cplusplus
}
#endif

#endif
