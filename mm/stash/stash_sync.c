/* SPDX-License-Identifier: MIT */
#include "mm/stash/stash_sync.h"

#include <string.h>

#include "mm/stash/stash.h"

mm_status mm_stash_sync_enter(mm_stash *s, void *stream) {
    if (s->is_inline) return mm_foreign_check(s->device, stream);
    MM_TRY(mm_foreign_record(s->entered, stream));
    return mm_stream_wait(s->stream, s->entered);
}

mm_status mm_stash_sync_exit(mm_stash *s, void *stream) {
    if (s->is_inline) return MM_OK;
    MM_TRY(mm_event_record(s->left, s->stream));
    return mm_foreign_wait(s->device, stream, s->left);
}

mm_status mm_stash_sync_wait(mm_stash *s, mm_event *event) { return event ? mm_stream_wait(s->stream, event) : MM_OK; }

mm_status mm_stash_sync_copy(mm_stash *s, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    if (!s->is_inline) return mm_copy_async(s->stream, dst, src, bytes, kind);
    memcpy(dst, src, (size_t)bytes);
    return MM_OK;
}

mm_status mm_stash_sync_drain(mm_stash *s) {
    if (s->is_inline) return MM_OK;
    mm_status status = mm_stream_sync(s->stream);
    if (status != MM_OK) mm_stream_reset(s->stream);
    return status;
}
