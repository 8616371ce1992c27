/* SPDX-License-Identifier: MIT */
/* The account of a plan's memory: what its bytes are for, at the peak and step by step, and what it moves. This and
 * the other accounts are pure arithmetic on a plan, its graph and its facts. Thread-safe. */
#ifndef MM_CORE_ACCOUNT_ACCOUNT_H
#define MM_CORE_ACCOUNT_ACCOUNT_H

#include "mm/core/plan/plan.h"

/* Purposes of bytes. The first five are on the device for the whole iteration, the others for a part of it. */
typedef enum mm_account_kind {
    MM_ACCOUNT_WEIGHT,
    MM_ACCOUNT_WEIGHT_GRADIENT,
    MM_ACCOUNT_OPTIMIZER,
    MM_ACCOUNT_STATE,
    MM_ACCOUNT_REST,  /* the rest of the plan's base: alignment, and persistent tensors of other graphs */
    MM_ACCOUNT_STASH, /* inputs, feature maps and saved tensors that wait for the backward pass, not as codes */
    MM_ACCOUNT_CODE,
    MM_ACCOUNT_BUFFER,      /* maps in the region of tensor buffers (mm_plan.buffers) */
    MM_ACCOUNT_FEATURE_MAP, /* inputs, feature maps and saved tensors that only one pass uses */
    MM_ACCOUNT_GRADIENT_MAP,
    MM_ACCOUNT_WORKSPACE, /* workspaces of steps, scratch of codecs */
    MM_ACCOUNT_KINDS
} mm_account_kind;

const char *mm_account_kind_name(mm_account_kind kind);

/* Memory of a step: the node with the most live bytes, among the step's own node and those of the operations queued
 * after it. */
typedef struct mm_account_step {
    int step; /* index in the graph */
    int node; /* the node with the most live bytes */
    int64_t live_bytes;
    int64_t bytes[MM_ACCOUNT_KINDS]; /* live_bytes by kind */
} mm_account_step;

typedef struct mm_account {
    const mm_plan *plan; /* borrowed */
    /* Bytes of all tensors that the graph declares, whatever the plan does with them. STASH: tensors that the forward
     * pass uses and the backward pass reads. WORKSPACE: the most at one time. CODE: the sum of all codes. BUFFER: the
     * region of tensor buffers. REST: as in the plan. */
    int64_t declared[MM_ACCOUNT_KINDS];
    int peak_node;                     /* first node at which live bytes are plan->live_peak_bytes */
    int64_t at_peak[MM_ACCOUNT_KINDS]; /* live bytes at peak_node, by kind; their sum is plan->live_peak_bytes */
    int64_t lasting[MM_ACCOUNT_KINDS]; /* bytes that are on the device during the whole iteration: the base and external
                                          tensors */
    int last_forward, first_backward;  /* nodes: mm_plan_turning_point */
    int64_t idle_bytes; /* plan->peak_bytes less plan->live_peak_bytes: free parts of regions, gaps between segments */
    int *segments;      /* indices of the segments that are alive on the device at the peak, largest first */
    int n_segments;
    mm_account_step *steps; /* in the order of the plan */
    int n_steps;
} mm_account;

/* Makes the account of a finished plan, which it borrows. MM_ERR_NOMEM. O(nodes + segments log segments). */
MM_CHECKED mm_status mm_account_init(const mm_plan *plan, mm_account *account_out);
void mm_account_fini(mm_account *account);

/* Writes the name of a segment: its tensor's, "workspace of STEP", or "pool of codes". Returns buffer. */
const char *mm_account_segment_name(const mm_plan *plan, int segment, char *buffer, size_t capacity);

/* What a segment's bytes are for. For the segment of a persistent tensor: by the kind of the tensor. */
mm_account_kind mm_account_segment_kind(const mm_account *account, int segment);

/* Bytes of a plan's pools, in which the bodies of codes lie (plan.h). */
typedef struct mm_pool_sums {
    int64_t reserve_bytes; /* pools on the device */
    int64_t spill_bytes;   /* spills, in pinned memory */
    int64_t pinned_bytes;  /* other pools in pinned memory */
    int64_t bound_bytes;   /* the most that bodies may take in all pools and spills */
} mm_pool_sums;

mm_pool_sums mm_account_pools(const mm_plan *plan);

/* What a plan moves over the link, and to the disk and back, in one iteration. */
typedef struct mm_moves {
    int64_t offloads, prefetches; /* copies to and from pinned memory */
    int64_t bytes; /* bytes of these copies. Bodies of codes that encoders write to pinned memory themselves are not
                      counted: their size is not known beforehand */
    int64_t stores, loads, disk_bytes; /* copies to and from the disk, and their bytes */
} mm_moves;

mm_moves mm_account_moves(const mm_plan *plan);

/* Number of recomputed steps in one iteration. */
int mm_account_steps_again(const mm_plan *plan);

#endif
