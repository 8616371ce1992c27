/* SPDX-License-Identifier: MIT */
/* A small made-up training loop, as programs have them: gradients are added up (+=), weights are the program's own. Its
 * steps run on plain memory, or under a loop. */
#ifndef TESTS_MM_LOOP_LOOP_TOY_H
#define TESTS_MM_LOOP_LOOP_TOY_H

#include "mm/mm_loop.h"

enum { TOY_BLOCKS = 9, TOY_ELEMS = 600, TOY_TRAIN = 0, TOY_EVALUATE = 1, TOY_POINTERS = 6 };

typedef enum toy_op { TOY_EMBED, TOY_BLOCK, TOY_LOSS, TOY_SPLIT, TOY_BLOCK_BACK, TOY_PROBS } toy_op;

/* What a step computes. */
typedef struct toy_task {
    toy_op op;
    int elems, batch;
    bool given;              /* of TOY_SPLIT: the sum is there; of TOY_BLOCK: h has any contents, and is not added to */
    float *w, *dw;           /* of the block */
    float *at[TOY_POINTERS]; /* as the step's slots have them */
} toy_task;

void toy_compute(const toy_task *task);

/* Plain memory of a tensor. */
typedef struct toy_tensor {
    char name[32];
    float *data;
    int64_t bytes;
} toy_tensor;

typedef struct toy {
    mm_loop *loop;                             /* NULL: plain memory, all of it zeroed when an iteration begins */
    mm_status (*launch)(const toy_task *task); /* enqueues the task; NULL: steps are computed at once */
    void (*sync)(void);                        /* waits for what was launched; NULL: nothing to wait for */
    bool again;                                /* forward blocks have a function: they can be computed again */
    int batch;                                 /* number of iterations so far */
    int runs;                                  /* blocks computed again, or for the first time, by that function */
    float w[TOY_BLOCKS * TOY_ELEMS], dw[TOY_BLOCKS * TOY_ELEMS];
    float *x, *y, *h, *scratch, *dx, *dy, *da, *probs; /* what slots fill */
    float read;                                        /* read from the result, after the iteration */
    toy_tensor plain[16 * TOY_BLOCKS];
    int n_plain;
} toy;

void toy_init(toy *t, mm_manager *manager, const mm_loop_options *options);
/* Destroys the loop, and frees plain memory. */
void toy_fini(toy *t);

/* Runs an iteration, twice if it was recorded: TOY_TRAIN, and updates the weights; or TOY_EVALUATE. After a failure the
 * weights are what they were. */
mm_status toy_iterate(toy *t, int64_t key);
/* The same steps without mm_loop_begin and mm_loop_end. */
void toy_steps(toy *t, int64_t key);

/* Checksum of the weights after so many iterations of training on plain memory. */
uint64_t toy_reference(int iterations);
uint64_t toy_digest(const toy *t);

#endif
