/* SPDX-License-Identifier: MIT */
/* A caller of a stash: tensors of its own in device memory, streams that the stash does not know, and what entries must
 * hold. On the host it computes on its own thread; on emulated CUDA all goes over streams, and is checked when they
 * have run. */
#ifndef TESTS_MM_STASH_STASH_RIG_H
#define TESTS_MM_STASH_STASH_RIG_H

#include "mm/device/contract/device.h"
#include "tests/core/random.h"

enum { STASH_RIG_STREAMS = 2, STASH_RIG_MOST = 16 << 10 /* bytes of a tensor */ };

typedef struct stash_read stash_read;

typedef struct stash_rig {
    mm_stash *stash;
    mm_device *device;
    mm_stream *streams[STASH_RIG_STREAMS]; /* NULL on the host */
    void *handles[STASH_RIG_STREAMS];
    uint8_t *tensor[STASH_RIG_STREAMS]; /* device memory */
    uint64_t random;
    uint64_t next_seed;
    stash_read *reads; /* to be checked when the streams have run */
    int n_reads;
    struct stash_handover *handover; /* a test's: another thread that drops entries; NULL: none */
    void (*guard)(bool inside);      /* called before and after each call of the stash; NULL: none */
} stash_rig;

/* What must come back. */
typedef enum stash_comes_back {
    STASH_BITS,
    STASH_SIGNS_ALONE /* of f32, f16, bf16: whether each is above 0 */,
    STASH_SOMETHING
} stash_comes_back;

/* What a test knows of an entry. */
typedef struct stash_item {
    mm_stash_entry entry;
    mm_stash_answer answer;
    uint64_t seed; /* of its bytes */
    int64_t bytes;
    mm_dtype dtype;
    int held;
    void *kept; /* device memory of an entry that is kept */
    stash_comes_back back;
} stash_item;

/* The device of this process (rig_device_used). */
void stash_rig_init(stash_rig *rig, mm_stash *stash, uint64_t seed);
/* Checks what was read. Nothing may be kept any more. */
void stash_rig_fini(stash_rig *rig);

/* Puts a tensor of random bytes, and overwrites it if it was taken. */
mm_status stash_rig_put(stash_rig *rig, const mm_stash_tensor *like, stash_item *item_out);
/* Gets an entry, on a random stream, and checks its bytes there; now, or at the latest in stash_rig_fini. */
mm_status stash_rig_get(stash_rig *rig, stash_item *item);
void stash_rig_give_back(stash_rig *rig, stash_item *item);
void stash_rig_drop(stash_rig *rig, stash_item *item);
/* Waits for this rig's streams, and checks what was read there. */
void stash_rig_check(stash_rig *rig);

/* Creates a stash, on the device of this process unless another is named. */
mm_stash *stash_create(mm_stash_options options);
mm_stash_stats stash_stats_of(mm_stash *stash);
void stash_expect_ok(mm_status status);
/* The call failed so, and the message has the text. */
void stash_expect_refused(mm_status status, mm_status expected, const char *text);
/* For mm_log: ctx is an int that warnings are added to. */
void stash_count_warnings(void *ctx, mm_log_level level, const char *message);

/* A tensor of f32 elements, of a producer. */
mm_stash_tensor stash_tensor_f32(const char *producer, int64_t elems);

#endif
