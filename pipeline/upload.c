/* SPDX-License-Identifier: MIT */
#include "pipeline/upload.h"

#include <stdlib.h>
#include <string.h>

struct mm_upload {
    mm_device *device;
    void *target;
    int64_t bytes;
    uint8_t *data;
    uint8_t *slots; /* pinned: MM_UPLOADS_AHEAD blocks of `bytes`; sent[i] is the end of slot i's copy */
    mm_event *sent[MM_UPLOADS_AHEAD];
    int next; /* index of the next slot */
};

static int64_t slots_bytes(const mm_upload *m) { return MM_UPLOADS_AHEAD * m->bytes; }

static mm_status open_parts(mm_upload *m) {
    void *slots;
    m->data = calloc(1, (size_t)m->bytes);
    if (!m->data)
        return mm_fail(MM_ERR_NOMEM, "out of memory for a block of %lld bytes to upload", (long long)m->bytes);
    MM_TRY(mm_device_reserve(m->device, MM_MEMORY_PINNED, slots_bytes(m), &slots));
    m->slots = slots;
    for (int i = 0; i < MM_UPLOADS_AHEAD; i++) MM_TRY(mm_event_create(m->device, &m->sent[i]));
    return MM_OK;
}

mm_status mm_upload_create(mm_device *device, void *target, int64_t bytes, mm_upload **mirror_out) {
    mm_upload *m = calloc(1, sizeof *m);
    if (!m) return mm_fail(MM_ERR_NOMEM, "out of memory for an upload");
    *m = (mm_upload){.device = device, .target = target, .bytes = bytes};
    mm_status status = open_parts(m);
    if (status == MM_OK)
        *mirror_out = m;
    else
        mm_upload_destroy(m);
    return status;
}

void mm_upload_destroy(mm_upload *m) {
    if (!m) return;
    for (int i = 0; i < MM_UPLOADS_AHEAD; i++) mm_event_destroy(m->sent[i]);
    if (m->slots) mm_device_release(m->device, MM_MEMORY_PINNED, m->slots, slots_bytes(m));
    free(m->data);
    free(m);
}

void *mm_upload_data(mm_upload *m) { return m->data; }

void mm_upload_retarget(mm_upload *m, void *target) { m->target = target; }

mm_status mm_upload_send(mm_upload *m, mm_stream *stream) {
    uint8_t *slot = m->slots + m->next * m->bytes;
    mm_event *sent = m->sent[m->next];
    /* A send that has ended frees its slot, even if the send failed: whoever waits for its stream gets the failure. */
    if (!mm_event_done(sent)) MM_TRY(mm_event_sync(sent));
    memcpy(slot, m->data, (size_t)m->bytes);
    MM_TRY(mm_copy_async(stream, m->target, slot, m->bytes, MM_COPY_IN));
    MM_TRY(mm_event_record(sent, stream));
    m->next = (m->next + 1) % MM_UPLOADS_AHEAD;
    return MM_OK;
}
