/* SPDX-License-Identifier: MIT */
/* What the files of a session share: session.c makes it, session_run.c trains, session_row.c fills the row,
 * session_evaluate.c evaluates. */
#ifndef TOOLS_TRAIN_SESSION_PARTS_H
#define TOOLS_TRAIN_SESSION_PARTS_H

#include "tools/train/session.h"

/* How many images of `batch` are computed at a time. A batch that is smaller than a sub-batch is trained on as a
 * whole. */
static inline int64_t session_sub_batch(const session *s, int64_t batch) {
    return s->config.sub_batch > 0 && s->config.sub_batch < batch ? s->config.sub_batch : batch;
}

/* Images are evaluated independently of each other, so in no more than are trained on at a time. */
static inline int64_t session_eval_batch(const session *s) {
    return session_sub_batch(s, session_part(s, s->config.batch));
}

/* How many labels n images have: one each, or one for each pixel of a map. */
static inline int64_t session_labels(const session *s, int64_t n) { return n * nets_net_labels(s->config.net); }

/* Prints a message of the manager's, or of the session's, on a line of its own, whatever the progress has left on
 * it. */
void session_say(void *ctx, mm_log_level level, const char *message);

/* Sets the row's figures, but for its times and those that are counted by iteration. before: the manager's counts when
 * the training began. MM_ERR_PLAN: something was written where no plan puts anything. */
MM_CHECKED mm_status session_fill_row(session *s, const mm_stats *before, row *row_out);

#endif
