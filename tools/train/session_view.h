/* SPDX-License-Identifier: MIT */
/* Lines below the progress bar that show what a session's memory and streams do now. */
#ifndef TOOLS_TRAIN_SESSION_VIEW_H
#define TOOLS_TRAIN_SESSION_VIEW_H

#include "tools/train/session.h"

typedef struct session_view {
    const session *session; /* borrowed */
    mm_stats begun, last;   /* at session_view_begin, and when last shown */
    int64_t last_ns;
} session_view;

void session_view_begin(session_view *view, const session *session);

/* A progress_details. The lines show the policy; the budget and what the plan holds at its peak, by kind; how busy the
 * streams were since the lines were last shown, and the share of the codecs' time that has been hidden so far. */
int session_view_lines(void *view, char lines[PROGRESS_LINES][PROGRESS_LINE_BYTES]);

#endif
