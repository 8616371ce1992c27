/* SPDX-License-Identifier: MIT */
/* A small training loop whose steps do what they declare, or, in one step, something else. */
#ifndef TESTS_MM_MANAGER_LIES_H
#define TESTS_MM_MANAGER_LIES_H

#include "tests/core/expect.h"
#include "tests/mm/manager/rig_device.h"

/* What a step does beside, or instead of, what it declares. */
typedef enum deed {
    DEED_NONE,
    DEED_CHANGES,   /* changes an element of the tensor */
    DEED_ADDS,      /* adds to the tensor, which it should write */
    DEED_SKIPS,     /* does not write the tensor */
    DEED_LEAVES_1,  /* does not write one element of the tensor */
    DEED_LEAVES,    /* does not write the end of the tensor */
    DEED_ASKS,      /* asks for the address of the tensor */
    DEED_REMEMBERS, /* reads the tensor, which it does not use, where an earlier step has used it */
} deed;

typedef struct lie {
    const char *step, *tensor;
    deed deed;
    bool again;          /* only when the step is computed again */
    const char *says[3]; /* words of the finding, beside the step's and the tensor's name */
    const char *closed;  /* the same, if the memory is closed, so that the step faults; NULL: it is not */
} lie;

typedef enum lies_mode { LIES_INLINE, LIES_STREAM, LIES_MODES } lies_mode;

typedef struct lies_loop lies_loop;

/* A loop under a policy, with self_check. A failure fails the test. */
lies_loop *lies_create(const char *policy, lies_mode mode, const lie *told);
void lies_destroy(lies_loop *loop);
/* Runs an iteration; aborts it if a call fails. A step that faults fails with MM_ERR_INVALID and the message that the
 * library gave. */
mm_status lies_iterate(lies_loop *loop);
/* Where a step has found the tensor last; NULL: it had no memory yet. */
const float *lies_place(const lies_loop *loop, const char *tensor);
/* Reads an element, as a program might that keeps a pointer. MM_ERR_INVALID: that faults. */
mm_status lies_read(const float *element, float *value_out);
/* How often the lie was told. */
int lies_told(const lies_loop *loop);
/* Checksum of the persistent tensors. */
uint64_t lies_digest(lies_loop *loop);

#endif
