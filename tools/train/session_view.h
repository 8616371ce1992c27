/* SPDX-License-Identifier: MIT */
/* What a session does with memory and streams right now, as lines below its progress. */
#ifndef TOOLS_TRAIN_SESSION_VIEW_H
#define TOOLS_TRAIN_SESSION_VIEW_H

#include "tools/train/session.h"

typedef struct session_view {
    const session *session; /* borrowed */
    mm_stats begun, last;   /* when it began, and when it was last shown */
    int64_t last_ns;
} session_view;

void session_view_begin(session_view *view, const session *session);

/* progress_details: the budget and what the plan has at its peak, by kind; how busy streams were since they were last
 * shown, and how much of the codecs' time was hidden so far. */
int session_view_lines(void *view, char lines[PROGRESS_LINES][PROGRESS_LINE_BYTES]);

#endif
