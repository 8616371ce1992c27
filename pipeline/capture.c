/* SPDX-License-Identifier: MIT */
#include "pipeline/capture.h"

#include "pipeline/dispatch_state.h"

mm_dispatch_stats mm_record_take_stats(mm_dispatch *d) {
    pthread_mutex_lock(&d->lock);
    const mm_dispatch_stats *now = &d->stats, *before = &d->before;
    mm_dispatch_stats did = {.encodes = now->encodes - before->encodes,
                             .decodes = now->decodes - before->decodes,
                             .encoded_bytes = now->encoded_bytes - before->encoded_bytes,
                             .coded_bytes = now->coded_bytes - before->coded_bytes,
                             .out_bytes = now->out_bytes - before->out_bytes,
                             .in_bytes = now->in_bytes - before->in_bytes};
    d->stats = d->before;
    pthread_mutex_unlock(&d->lock);
    return did;
}

void mm_record_abort(mm_dispatch *d) {
    if (!d->recording) return;
    mm_replay *replay = NULL;
    mm_status ended = mm_capture_end(d->compute, &replay);
    (void)ended; /* the recording is given up in any case */
    mm_replay_destroy(replay);
    mm_record_take_stats(d);
    d->recording = false;
}
