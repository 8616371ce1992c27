/* SPDX-License-Identifier: MIT */
/* Codes of variable size. */
#ifndef PIPELINE_VARIABLE_CODES_H
#define PIPELINE_VARIABLE_CODES_H

#include "pipeline/codec/code_body.h"
#include "pipeline/dispatch.h"

/* Codes of the plan that have a body (code_body.h), numbered in the order in which they are encoded. */
typedef struct mm_variable_codes {
    int n;                   /* 0: there are none, and all else is NULL */
    int32_t *of_segment;     /* per segment: number of the code whose head lies in it; -1: none */
    int32_t *before;         /* per code: the previous code in its pool; -1: it is the first there */
    int32_t *decodes;        /* per code: how often an iteration decodes it */
    mm_body_record *records; /* per code; in pinned memory */
    mm_execution *next;      /* list of the dispatcher's executions with bodies */
} mm_variable_codes;

MM_CHECKED mm_status mm_variable_codes_init(mm_execution *execution);
/* Frees what belongs to the codes. The dispatcher's statistics still count their bytes. */
void mm_variable_codes_fini(mm_execution *execution);
/* Where the body of a code lies, or will be written. code: a segment of the running program. NULL: the code has no
 * body. */
const mm_code_body *mm_body_of(const mm_dispatch *dispatch, int code, mm_code_body *body_out);
/* Adds the bytes of all bodies encoded so far to the statistics. Call it under the dispatcher's lock. */
void mm_variable_codes_add(const mm_dispatch *dispatch, mm_dispatch_stats *stats);

#endif
