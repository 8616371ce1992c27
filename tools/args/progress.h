/* SPDX-License-Identifier: MIT */
/* Shows progress of long work on stderr: a bar that is redrawn on a terminal (terminal_redraws), else a plain line now
 * and then. */
#ifndef TOOLS_ARGS_PROGRESS_H
#define TOOLS_ARGS_PROGRESS_H

#include "mm/core/status.h"

enum { PROGRESS_LINES = 3, PROGRESS_LINE_BYTES = 320 };

/* Makes the lines to show below the bar on a terminal, which cuts each to its width. Returns their number. */
typedef int (*progress_details)(void *ctx, char lines[PROGRESS_LINES][PROGRESS_LINE_BYTES]);

typedef struct progress {
    const char *what;
    int64_t total, from; /* from: done before progress_begin */
    bool terminal, quiet;
    double began, shown;      /* seconds */
    progress_details details; /* NULL: none; may be set after progress_begin */
    void *details_ctx;
} progress;

/* Begins with `from` of `total` done already. The time left is extrapolated from what is done after this call. */
void progress_begin(progress *p, const char *what, int64_t from, int64_t total, bool quiet);
/* Shows `done` of total, followed by the formatted text. */
void progress_show(progress *p, int64_t done, const char *format, ...) MM_PRINTF(3, 4);
/* Clears the bar, and what is below it. */
void progress_end(progress *p);

#endif
