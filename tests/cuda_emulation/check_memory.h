/* What the checker of kernels (check.h) knows of memory: for each piece what it is, which of its bytes were ever
 * written, and who touched them last. The runtime tells of what it makes, copies and fills. */
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
    CHECK_ADDRESSES, /* a range of addresses: closed until granules are opened */
    CHECK_PINNED,    /* the CPU writes it too, unseen */
    CHECK_SHARED,
    CHECK_SHARED_DYNAMIC,
} check_kind;

/* The last to touch a place in the launch of that number: an access each (check_race.cc), 0: none. */
typedef struct check_cell {
    uint32_t launch;
    bool split; /* of a word: its bytes have cells of their own */
    uint64_t write, read, other_read;
} check_cell;

typedef struct check_memory {
    const char *base;
    size_t bytes; /* 0: the place is free */
    check_kind kind;
    unsigned char *written;      /* by byte; 1: it was */
    unsigned char *open;         /* of CHECK_ADDRESSES: by granule of CHECK_GRANULE bytes */
    check_cell *words, *singles; /* by four bytes, and by byte where a word is split; without use they take no memory */
} check_memory;

enum { CHECK_GRANULE = 64 << 10 };

/* Never written. Any thread may call these; one that frees what another uses makes an error of its own. */
void check_memory_made(const void *base, size_t bytes, check_kind kind);
void check_memory_gone(const void *base);
void check_memory_opened(const void *at, size_t bytes, bool open);
/* Rows that were copied to or filled. */
void check_memory_written(const void *at, size_t bytes);

/* What it is a byte of; NULL: none. */
check_memory *check_memory_at(const void *at);
/* The nearest that begins before it, for words about a stray access; NULL: none. */
check_memory *check_memory_before(const void *at);

#ifdef __cplusplus
}
#endif

#endif
