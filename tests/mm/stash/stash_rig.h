/* SPDX-License-Identifier: MIT */
/* A program that uses a stash: it has tensors in device memory, streams that the stash does not know, and checks what
 * comes back. On the host it computes on the calling thread; on emulated CUDA everything runs on streams, and is
 * checked once they have run. */
#ifndef TESTS_MM_STASH_STASH_RIG_H
#define TESTS_MM_STASH_STASH_RIG_H

#include "mm/device/contract/device.h"
#include "tests/core/random.h"

enum { STASH_RIG_STREAMS = 2, STASH_RIG_MOST = 16 << 10 /* most bytes of a tensor */ };

typedef struct stash_read stash_read;

typedef struct stash_rig {
    mm_stash *stash;
    mm_device *device;
    mm_stream *streams[STASH_RIG_STREAMS]; /* NULL on the host */
    void *handles[STASH_RIG_STREAMS];
    uint8_t *tensor[STASH_RIG_STREAMS]; /* device memory */
    uint64_t random;
    uint64_t next_seed;
    stash_read *reads; /* copies of what was read; they are checked once the streams have run */
    int n_reads;
    struct stash_handover *handover; /* set by a test in which another thread drops entries; else NULL */
    void (*guard)(bool inside);      /* called before and after each call of the stash; NULL: none */
} stash_rig;

/* What must come back of an entry: the same bits, the same signs, or (lossy) anything. */
typedef enum stash_comes_back {
    STASH_BITS,
    STASH_SIGNS_ALONE /* tensors of f32, f16 and bf16: whether each element is above 0 */,
    STASH_SOMETHING
} stash_comes_back;

/* An entry, as the test knows it. */
typedef struct stash_item {
    mm_stash_entry entry;
    mm_stash_answer answer;
    uint64_t seed; /* of its random bytes */
    int64_t bytes;
    mm_dtype dtype;
    int held;
    void *kept; /* the entry's device memory if the answer was MM_STASH_KEPT; else NULL */
    stash_comes_back back;
} stash_item;

/* Uses the device of this process (rig_device_used). */
void stash_rig_init(stash_rig *rig, mm_stash *stash, uint64_t seed);
/* Checks what was read, and ends the rig. All entries that the caller kept must have been dropped. */
void stash_rig_fini(stash_rig *rig);

/* Puts a tensor of random bytes, and overwrites the tensor if the stash has copied it. */
mm_status stash_rig_put(stash_rig *rig, const mm_stash_tensor *like, stash_item *item_out);
/* Gets an entry on a random stream, and checks its bytes: now, or in stash_rig_fini at the latest. */
mm_status stash_rig_get(stash_rig *rig, stash_item *item);
void stash_rig_give_back(stash_rig *rig, stash_item *item);
void stash_rig_drop(stash_rig *rig, stash_item *item);
/* Waits for the rig's streams, and checks what was read. */
void stash_rig_check(stash_rig *rig);

/* Creates a stash on the device of this process, unless the options name one. */
mm_stash *stash_create(mm_stash_options options);
mm_stash_stats stash_stats_of(mm_stash *stash);
void stash_expect_ok(mm_status status);
/* Checks that the call failed with `expected`, and that its message contains the text. */
void stash_expect_refused(mm_status status, mm_status expected, const char *text);
/* A function for mm_log. ctx: int, to which it adds the number of warnings. */
void stash_count_warnings(void *ctx, mm_log_level level, const char *message);

mm_stash_tensor stash_tensor_f32(const char *producer, int64_t elems);

#endif
