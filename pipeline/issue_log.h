/* SPDX-License-Identifier: MIT */
/* The log of what the dispatcher's device is asked to do, held against the plan when an iteration ends
 * (mm_dispatch_config.verify_issued). A device without a log calls nothing here. */
#ifndef PIPELINE_ISSUE_LOG_H
#define PIPELINE_ISSUE_LOG_H

#include "pipeline/dispatch.h"

typedef struct mm_issue_log mm_issue_log;

/* Watches the dispatcher's device. MM_ERR_NOMEM; MM_ERR_ORDER: somebody watches it already. The dispatcher frees it
 * with mm_issue_log_destroy; NULL is legal there. */
MM_CHECKED mm_status mm_issue_log_create(mm_dispatch *dispatch, mm_issue_log **log_out);
void mm_issue_log_destroy(mm_issue_log *log);

/* The functions below do nothing if `log` is NULL. */

/* The iteration's work begins. MM_ERR_NOMEM; or the failure of an earlier iteration's check: nothing runs after it. */
MM_CHECKED mm_status mm_issue_log_begin(mm_issue_log *log);
/* What this thread issues between these calls is of the piece. computed: the thread computes the step itself. */
void mm_issue_log_piece_begin(mm_issue_log *log, int piece, bool computed);
void mm_issue_log_piece_end(mm_issue_log *log, int piece);
/* Holds the iteration, all of which has been issued, against its plan. captured: it was captured and has not run.
 * MM_ERR_PLAN: node, stream, and what differs; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_issue_log_end(mm_issue_log *log, const mm_execution *execution, bool captured);
/* A captured iteration was launched. MM_ERR_PLAN, MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_issue_log_replay(mm_issue_log *log, const mm_execution *execution);
/* The iteration was given up, and all streams are idle. */
void mm_issue_log_drop(mm_issue_log *log);

/* Pieces that were held against a plan so far, replays included. Any thread may call it. */
int64_t mm_issue_log_verified(mm_issue_log *log);

#endif
