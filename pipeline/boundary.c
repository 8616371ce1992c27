/* Between iterations that follow each other without a drain the compute stream stands for all streams: side streams wait
 * for it where an iteration begins, and it waits for them where the iteration ends. So whatever follows on the compute
 * stream comes after the whole iteration, and the next one may use the same addresses and events.
 *
 *     compute  --o==== iteration ====o-----o==== iteration ====o--
 *     encode      \--o===========o--/       \--o===========o--/
 *                fork              join     fork              join
 *
 * Only the program's own side streams take part: those that an earlier program has used were joined at its end. */
#include "pipeline/internal.h"

mm_status mm_boundary_init(mm_dispatch *d) {
    MM_TRY(mm_event_create(d->config.device, &d->fork));
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++)
        MM_TRY(mm_event_create(d->config.device, &d->join[s]));
    return MM_OK;
}

void mm_boundary_fini(mm_dispatch *d) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) mm_event_destroy(d->join[s]);
    mm_event_destroy(d->fork);
}

static bool uses(const mm_dispatch *d, int stream) {
    return stream != MM_STREAM_COMPUTE && d->program->plan->stream_nodes[stream] > 0;
}

mm_status mm_boundary_fork(mm_dispatch *d) {
    MM_TRY(mm_event_record(d->fork, d->compute));
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (uses(d, s)) MM_TRY(mm_stream_wait(mm_worker_stream(d->worker[s]), d->fork));
    return MM_OK;
}

mm_status mm_boundary_join(mm_dispatch *d) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (!uses(d, s)) continue;
        MM_TRY(mm_event_record(d->join[s], mm_worker_stream(d->worker[s])));
        MM_TRY(mm_stream_wait(d->compute, d->join[s]));
    }
    return MM_OK;
}
