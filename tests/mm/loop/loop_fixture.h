/* SPDX-License-Identifier: MIT */
/* A loop under a manager on the host, and a small iteration. */
#ifndef TESTS_MM_LOOP_LOOP_FIXTURE_H
#define TESTS_MM_LOOP_LOOP_FIXTURE_H

#include <string.h>

#include "mm/mm_loop.h"
#include "tests/core/expect.h"

enum { N = 64, BYTES = N * 4, ARENA = 1 << 20 };

/* Pointers that slots fill. Results outlive a step. */
extern float *a, *b, *c;

typedef struct fixture {
    mm_manager *m;
    mm_loop *loop;
} fixture;

fixture start_with(const char *policy, mm_loop_record record);
/* Under liveness; recordings compute nothing. */
fixture start(void);
void finish(const fixture *f);

bool step(const fixture *f, const char *name, mm_phase phase, const mm_slot *slots, size_t n);

#define COUNT(slots) (sizeof(slots) / sizeof *(slots))
#define SLOTS(...)                                                                                                     \
    (const mm_slot[]) { __VA_ARGS__ }
#define STEP(f, name, phase, ...) step(f, name, phase, SLOTS(__VA_ARGS__), COUNT((SLOTS(__VA_ARGS__))))

/* Leaves a step, after writing all of its output of BYTES bytes. */
void leave_written(const fixture *f, float *output);

/* Ends an iteration that must fail so, with all of `words` (which end with NULL) in its message. */
void expect_failure(const fixture *f, mm_status wanted, const char *const *words);
#define EXPECT_FAILURE(f, status, ...) expect_failure(f, status, (const char *const[]){__VA_ARGS__, NULL})

/* An iteration of two steps: make.0 writes x.0 (a), double.0 reads it and writes the result y.0 (b). Returns whether
 * they computed. */
bool pass(const fixture *f, int64_t key);
/* Passes of key 0 until one computes. */
void record(const fixture *f);

#endif
