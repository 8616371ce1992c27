/* SPDX-License-Identifier: MIT */
#include "nets/exec/exec_staging.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/plan/plan.h"

/* Records `taken` now: the buffer may be written once the compute stream has come to this point. */
static mm_status open_staging(nets_staging *staging, mm_manager *manager, const char *name, int64_t bytes) {
    snprintf(staging->name, sizeof staging->name, "%s", name);
    mm_stream *compute = mm_compute_stream(manager);
    MM_TRY(mm_event_create(compute->device, &staging->arrived));
    MM_TRY(mm_event_create(compute->device, &staging->taken));
    MM_TRY(mm_event_record(staging->taken, compute));
    MM_TRY(mm_stream_create(compute->device, "mm-batch", 0, &staging->stream));
    MM_TRY(mm_persistent_add(manager, staging->name, bytes));
    staging->manager = manager;
    staging->buffer = mm_persistent_data(manager, staging->name, NULL);
    return MM_OK;
}

mm_status nets_staging_init(nets_staging *staging, mm_manager *manager, const char *name, int64_t bytes) {
    mm_status status = open_staging(staging, manager, name, bytes);
    if (status != MM_OK) nets_staging_fini(staging);
    return status;
}

void nets_staging_fini(nets_staging *staging) {
    mm_stream_destroy(staging->stream);
    mm_event_destroy(staging->arrived);
    mm_event_destroy(staging->taken);
    if (staging->buffer) {
        mm_failure before;
        mm_failure_save(&before, MM_ERR_INFEASIBLE);
        /* If it cannot be removed, it stays in the manager, which is harmless; the earlier error message is kept. */
        if (mm_persistent_remove(staging->manager, staging->name) != MM_OK) mm_failure_restore(&before);
    }
    memset(staging, 0, sizeof *staging);
}

mm_status nets_staged_copy(const nets_staged *part, const void *from, mm_copy_kind kind, mm_stream *stream) {
    if (!part->padder) return mm_copy_async(stream, part->to, from, part->bytes, kind);
    return part->padder->ops->pad(part->padder, from, part->to, part->bytes / (3 * (int64_t)sizeof(float)), stream);
}

static mm_status copy_parts(mm_stream *stream, uint8_t *buffer, const nets_staged *parts, mm_copy_kind kind) {
    for (int i = 0; i < NETS_STAGED; buffer += mm_align(parts[i++].bytes)) {
        if (!parts[i].to) continue;
        MM_TRY(kind == MM_COPY_IN ? mm_copy_async(stream, buffer, parts[i].from, parts[i].bytes, kind)
                                  : nets_staged_copy(&parts[i], buffer, kind, stream));
    }
    return MM_OK;
}

mm_status nets_staging_pass(nets_staging *staging, mm_stream *compute, const nets_staged parts[NETS_STAGED]) {
    uint8_t *buffer = mm_persistent_data(staging->manager, staging->name, NULL); /* it may have moved */
    if (!buffer) return mm_fail(MM_ERR_IO, "persistent tensor %s has no value: load the last save", staging->name);
    staging->buffer = buffer;
    MM_TRY(mm_stream_wait(staging->stream, staging->taken));
    MM_TRY(copy_parts(staging->stream, staging->buffer, parts, MM_COPY_IN));
    MM_TRY(mm_event_record(staging->arrived, staging->stream));
    MM_TRY(mm_stream_wait(compute, staging->arrived));
    MM_TRY(copy_parts(compute, staging->buffer, parts, MM_COPY_DEVICE));
    return mm_event_record(staging->taken, compute);
}

mm_status nets_staging_wait(nets_staging *staging, mm_stream *compute) {
    if (!staging->stream) return MM_OK;
    mm_status status = mm_stream_sync(staging->stream);
    if (status != MM_OK) mm_stream_reset(staging->stream);
    /* The earlier record of `taken` has the failure; a new one replaces it. */
    return mm_event_record(staging->taken, compute);
}
