/* Progress of long work on stderr: a bar that is redrawn if that is a terminal, a plain line now and then if not. */
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
/* `done` of total; `format` adds what is worth knowing. */
void progress_show(progress *p, int64_t done, const char *format, ...) MM_PRINTF(3, 4);
/* Leaves the line clean. */
void progress_end(progress *p);

#endif
