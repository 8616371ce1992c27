/* SPDX-License-Identifier: MIT */
/* The log of issued work: what was enqueued on which stream, and what orders it. A device tells its calls (device.h),
 * the dispatcher where it is in its program. mm/core/check/issued_check.h holds a log against a plan. */
#ifndef MM_CORE_ISSUED_H
#define MM_CORE_ISSUED_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mm_issued_kind {
    MM_ISSUED_BEGIN,  /* what the caller issues from here on is of the piece */
    MM_ISSUED_END,    /* ... up to here */
    MM_ISSUED_TASK,   /* work on the stream, whose bytes are not known: kernels, checksums, functions of the CPU */
    MM_ISSUED_COPY,   /* work on the stream: `bytes` bytes from src to dst */
    MM_ISSUED_FILL,   /* work on the stream that overwrites `bytes` bytes at dst */
    MM_ISSUED_RECORD, /* the event stands for all work on the stream so far, and all that this waited for */
    MM_ISSUED_WAIT,   /* later work on the stream starts after what the event stands for */
    MM_ISSUED_SYNC,   /* the caller has waited for the event, or, if that is 0, for the stream */
} mm_issued_kind;

/* An entry. Streams and events are named by numbers that differ from each other, such as addresses. */
typedef struct mm_issued {
    mm_issued_kind kind;
    bool computed;  /* BEGIN: the caller computes the step itself, on no stream */
    int32_t caller; /* who issues: 0 the training thread, 1 + s the thread that issues on stream s of plans */
    int32_t piece;  /* BEGIN, END: its index in the program */
    uint64_t stream, event;
    uint64_t dst, src; /* addresses */
    int64_t bytes;
} mm_issued;

#endif
