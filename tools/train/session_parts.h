/* SPDX-License-Identifier: MIT */
/* What the files of a session share: session.c creates it, session_run.c trains, session_row.c fills the row,
 * session_evaluate.c evaluates. */
#ifndef TOOLS_TRAIN_SESSION_PARTS_H
#define TOOLS_TRAIN_SESSION_PARTS_H

#include "tools/train/session.h"

/* What policies do in the network, and which ran (session_policies.c). find: before the session runs, once the training
 * graph is planned. note: before each iteration; returns the policy that will run it. name, fill: as session_name_row
 * and session_fill_row. MM_ERR_NOMEM. */
MM_CHECKED mm_status session_find_effects(session *s, const mm_graph *graph);
MM_CHECKED mm_status session_note_policy(session *s, const char **now_out);
MM_CHECKED mm_status session_name_policies(const session *s, row *r);
MM_CHECKED mm_status session_fill_policies(session *s, row *r);

/* Whether the session plans again once by its first iterations' times (session_again.c). */
static inline bool session_plans_again(const session *s) {
    return s->config.rates && s->config.rates->from == HOST_RATES_RUN && !s->config.self_check;
}
/* Plans again once enough iterations were measured, and says so. Call it when an iteration has ended. *changed_out:
 * other plans run from now on. A failure to plan is told, and the plans stay. */
void session_plan_again(session *s, bool *changed_out);

/* How many images of `batch` are computed at a time. A batch smaller than a sub-batch is computed whole. */
static inline int64_t session_sub_batch(const session *s, int64_t batch) {
    return s->config.sub_batch > 0 && s->config.sub_batch < batch ? s->config.sub_batch : batch;
}

/* Batch size of evaluation: what training computes at a time. Images are evaluated independently, so any size will
 * do. */
static inline int64_t session_eval_batch(const session *s) {
    return session_sub_batch(s, session_part(s, s->config.batch));
}

/* How many labels n images have: one each, or one for each pixel of a map. */
static inline int64_t session_labels(const session *s, int64_t n) { return n * nets_net_labels(s->config.net); }

/* Prints a message of the manager or the session on a line of its own, in place of the progress bar. */
void session_say(void *ctx, mm_log_level level, const char *message);

/* Sets the row's figures, except times and those counted during iterations. before: the manager's statistics when
 * training began. MM_ERR_PLAN: bytes were written that no plan uses. */
MM_CHECKED mm_status session_fill_row(session *s, const mm_stats *before, row *row_out);

#endif
