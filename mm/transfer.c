/* Copies persistent tensors to and from the CPU's memory. */
#include "mm/adopt.h"

/* Checks the range, and finds its address. */
static mm_status find(mm_manager *m, const char *call, const char *name, int64_t offset, int64_t bytes,
                      uint8_t **place_out) {
    MM_TRY(mm_manager_settle(m, call));
    MM_TRY(mm_check_given(name, call, "name"));
    const mm_persistent *entry = mm_directory_find(&m->directory, name);
    if (!entry) return mm_fail(MM_ERR_NOT_FOUND, "%s: no graph of this manager has a persistent tensor %s", call, name);
    if (offset < 0 || bytes < 0 || offset > entry->bytes || bytes > entry->bytes - offset)
        return mm_fail(MM_ERR_INVALID, "%s: %lld bytes at %lld of %s, which has %lld", call, (long long)bytes,
                       (long long)offset, name, (long long)entry->bytes);
    *place_out = (uint8_t *)mm_pool_base(m->pool) + entry->offset + offset;
    return MM_OK;
}

static mm_status copy(mm_manager *m, void *to, const void *from, int64_t bytes, mm_copy_kind kind) {
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    if (bytes == 0) return MM_OK;
    MM_TRY(mm_copy_async(stream, to, from, bytes, kind));
    mm_status status = mm_stream_sync(stream);
    if (status != MM_OK) mm_stream_reset(stream);
    return status;
}

mm_status mm_persistent_get(mm_manager *m, const char *name, int64_t offset, void *data, int64_t bytes) {
    uint8_t *place;
    MM_TRY(find(m, "mm_persistent_get", name, offset, bytes, &place));
    if (bytes > 0) MM_TRY(mm_check_given(data, "mm_persistent_get", "data"));
    return copy(m, data, place, bytes, MM_COPY_OUT);
}

mm_status mm_persistent_set(mm_manager *m, const char *name, int64_t offset, const void *data, int64_t bytes) {
    uint8_t *place;
    MM_TRY(find(m, "mm_persistent_set", name, offset, bytes, &place));
    if (bytes > 0) MM_TRY(mm_check_given(data, "mm_persistent_set", "data"));
    return copy(m, place, data, bytes, MM_COPY_IN);
}
