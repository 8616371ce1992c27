/* Shows progress of long work on stderr: a bar that is redrawn on a terminal, else a plain line now and then. */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include "mm/core/status.h"

typedef struct progress {
    const char *what;
    int64_t total;
    bool terminal, quiet;
    double began, shown; /* seconds */
} progress;

void progress_begin(progress *p, const char *what, int64_t total, bool quiet);
/* Shows `done` of total, followed by the formatted text. */
void progress_show(progress *p, int64_t done, const char *format, ...) MM_PRINTF(3, 4);
/* Clears the bar. */
void progress_end(progress *p);

#endif
