/* SPDX-License-Identifier: MIT */
/* Options for plans and predictions of several devices (ranks), each of which trains a part of every batch
 * (nets_allreduce). */
#ifndef TOOLS_NEED_RANKS_H
#define TOOLS_NEED_RANKS_H

#include "tools/facts/facts_source.h"
#include "tools/need/target.h"

typedef struct ranks {
    int n[ARG_TEXTS_MAX]; /* numbers of devices to plan for */
    int count;            /* entries of n, at least 1 */
    mm_allreduce_when when;
    mm_sum_at sum_at;
    nets_divide divide;
} ranks;

/* Options for a command's table. */
#define RANKS_ARGS(list, sum, at, divided)                                                                             \
    ARG("--ranks", "N", "devices that each train an N-th of the batch; their gradients are added up (1)", ARG_TEXT,    \
        list, 0, 0),                                                                                                   \
        ARG("--sum", "WHEN",                                                                                           \
            "when gradients are added up: overlap: during the backward pass; end: after it (overlap)", ARG_TEXT, sum,  \
            0, 0),                                                                                                     \
        ARG("--sum-at", "WHERE",                                                                                       \
            "who adds up: ranks: a part each; root: one core; device: the first; nccl: in place (ranks)", ARG_TEXT,    \
            at, 0, 0),                                                                                                 \
        RANKS_DIVIDE_ARG(divided)

#define RANKS_DIVIDE_ARG(divided)                                                                                      \
    ARG("--divide", "none|states|gradients",                                                                           \
        "what ranks share out: states: of the optimizer; gradients: these, too (none)", ARG_TEXT, divided, 0, 0)

/* Reads the options' texts; NULL: not given. MM_ERR_INVALID: the message names the option. */
MM_CHECKED mm_status ranks_read(const char *list, const char *sum, const char *sum_at, const char *divide,
                                ranks *ranks_out);
/* Reads --divide; NULL: not given. sum: the text of --sum; NULL: not given. MM_ERR_INVALID. */
MM_CHECKED mm_status ranks_read_divide(const char *divide, const char *sum, nets_divide *divide_out);

/* How many images of the batch each of n devices trains. MM_ERR_INVALID: n does not divide the batch; the message names
 * the nearest batches that n divides. */
MM_CHECKED mm_status ranks_part(int64_t batch, int n, int64_t *part_out);

/* From now on, networks are lowered for the target as one of n devices trains them, and the source gives the times of
 * one of these devices. source may be NULL. */
void ranks_use(const ranks *ranks, int n, target *target, facts_source *source);

#endif
