/* SPDX-License-Identifier: MIT */
/* Collects timelines of several runs and writes them as one trace, a file for a timeline viewer. */
#ifndef TOOLS_ARGS_TRACES_H
#define TOOLS_ARGS_TRACES_H

#include "mm/core/timeline/timeline.h"

typedef struct traces {
    mm_timeline **timelines; /* owned */
    int n;
} traces;

enum { TRACES_NAME_CAPACITY = 512 };

/* The name of a run in a trace: "resnet32 b128 freelunch:when=always 700MiB". Returns buffer. */
const char *traces_name(const char *net, int64_t batch, const char *policy, int64_t budget_bytes,
                        char buffer[TRACES_NAME_CAPACITY]);

/* Takes over the timeline, on failure too. MM_ERR_NOMEM. */
MM_CHECKED mm_status traces_add(traces *t, mm_timeline *timeline);

/* Writes all timelines (mm_timelines_write). Warns on stderr, as `command`, if slices were dropped. */
MM_CHECKED mm_status traces_save(const traces *t, const char *command, const char *path);

/* Legal on an all-zero struct. */
void traces_fini(traces *t);

#endif
