/* SPDX-License-Identifier: MIT */
#include "tools/args/traces.h"

#include <stdio.h>
#include <stdlib.h>

#include "mm/core/size.h"
#include "mm/core/status.h"

const char *traces_name(const char *net, int64_t batch, const char *policy, int64_t budget_bytes,
                        char buffer[TRACES_NAME_CAPACITY]) {
    char size[32];
    snprintf(buffer, TRACES_NAME_CAPACITY, "%.200s b%lld %.200s %s", net, (long long)batch, policy,
             mm_size_format(budget_bytes, size, sizeof size));
    return buffer;
}

mm_status traces_add(traces *t, mm_timeline *timeline) {
    mm_timeline **timelines = realloc(t->timelines, ((size_t)t->n + 1) * sizeof *timelines);
    if (!timelines) {
        mm_timeline_destroy(timeline);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a trace");
    }
    t->timelines = timelines;
    t->timelines[t->n++] = timeline;
    return MM_OK;
}

mm_status traces_save(const traces *t, const char *command, const char *path) {
    int64_t dropped = 0;
    for (int i = 0; i < t->n; i++) dropped += mm_timeline_dropped(t->timelines[i]);
    MM_TRY(mm_timelines_write(t->timelines, t->n, path));
    if (dropped > 0)
        fprintf(stderr, "mm %s: %s lacks %lld slices: the buffer was full, or their times were unknown\n", command,
                path, (long long)dropped);
    return MM_OK;
}

void traces_fini(traces *t) {
    for (int i = 0; i < t->n; i++) mm_timeline_destroy(t->timelines[i]);
    free(t->timelines);
    *t = (traces){0};
}
