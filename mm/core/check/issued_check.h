/* SPDX-License-Identifier: MIT */
/* Holds what was issued against the plan. The proof says that every order which the plan's waits allow is right; this
 * check says that the issued streams, events and copies are those of the plan:
 *
 *   - the pieces of each stream are issued once, in their order, each on its node's stream;
 *   - what a piece must come after (the piece before it on its stream, its waits, all earlier iterations) has ended
 *     before its first work starts, by the order of streams, event records and event waits alone;
 *   - copies have the planned addresses and sizes; what else is copied or filled lies in segments of its node;
 *   - nothing is issued that the plan lacks. The caller's own work may follow the last step on the compute stream.
 *
 * The order is that of the pieces' waits, as in SPECIFICATION.md: a piece may wait for less than its node. Which bytes
 * a kernel uses is not known. Clocks: for each stream and event of the log, how many pieces of each of the plan's
 * streams are known to have ended. */
#ifndef MM_CORE_CHECK_ISSUED_CHECK_H
#define MM_CORE_CHECK_ISSUED_CHECK_H

#include "mm/core/issued.h"
#include "mm/core/plan/program.h"

/* What a log is held against. */
typedef struct mm_issued_plan {
    const mm_program *program;
    uint64_t device, pinned;           /* addresses of the first byte of both memories */
    uint64_t streams[MM_STREAM_COUNT]; /* the log's stream for each of the plan's; 0: none */
    uint64_t sums;                     /* the stream of all-reduces in place, which no plan has; 0: none */
} mm_issued_plan;

typedef struct mm_issued_clock mm_issued_clock;

/* What is known to have ended, from log to log. All zero: everything has. The caller frees it with
 * mm_issued_order_fini, and then may use it again. */
typedef struct mm_issued_order {
    mm_issued_clock *clocks; /* by the number of a stream, an event or a caller */
    int n, capacity;
    int64_t before[MM_STREAM_COUNT]; /* number of pieces of earlier iterations */
} mm_issued_order;

/* Checks the log of one iteration, from its first entry to its last. MM_ERR_PLAN: the message names node, stream and
 * what differs or is missing; then *order is no longer valid. MM_ERR_NOMEM. O(n log n). */
MM_CHECKED mm_status mm_issued_check(const mm_issued_plan *plan, const mm_issued *log, size_t n,
                                     mm_issued_order *order);
/* Takes what was issued between iterations: events that order the next one. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_issued_follow(const mm_issued *log, size_t n, mm_issued_order *order);
/* An iteration that was checked when it was captured was launched on the stream of computation. MM_ERR_PLAN: it may
 * start before an earlier iteration has ended; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_issued_replay(const mm_issued_plan *plan, mm_issued_order *order);
/* A copy of an order, for a log that is captured and does not run. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_issued_order_copy(const mm_issued_order *order, mm_issued_order *copy_out);
void mm_issued_order_fini(mm_issued_order *order);

#endif
