/* SPDX-License-Identifier: MIT */
/* The tasks of the contract: copies, fills, checksums, marks, sums. */
#include <stdio.h>

#include "mm/core/size.h"
#include "mm/device/cuda/cuda_internal.h"

static mm_status work_check(const cuda_stream *stream, cudaError_t error, const char *what, int64_t bytes) {
    if (error == cudaSuccess) return MM_OK;
    char text[128], size[32];
    snprintf(text, sizeof text, "%s of %s", what, mm_size_format(bytes, size, sizeof size));
    return cuda_stream_fail(stream, mm_cuda_check(error, text));
}

/* A copy of 0 bytes counts as a task, but is not passed to CUDA. */
mm_status cuda_copy_async(mm_stream *base, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    static const enum cudaMemcpyKind kinds[] = {[MM_COPY_DEVICE] = cudaMemcpyDeviceToDevice,
                                                [MM_COPY_OUT] = cudaMemcpyDeviceToHost,
                                                [MM_COPY_IN] = cudaMemcpyHostToDevice,
                                                [MM_COPY_ANY] = cudaMemcpyDefault};
    cudaStream_t stream = cuda_stream_task(base);
    for (int64_t done = 0, part; done < bytes; done += part) {
        char *to = (char *)dst + done;
        const char *from = (const char *)src + done;
        part = bytes - done;
        if (kind == MM_COPY_OUT || kind == MM_COPY_ANY) part = cuda_pinned_run(cuda_device_of(base), to, part);
        if (kind == MM_COPY_IN || kind == MM_COPY_ANY) part = cuda_pinned_run(cuda_device_of(base), from, part);
        MM_TRY(work_check((cuda_stream *)base, cudaMemcpyAsync(to, from, (size_t)part, kinds[kind], stream),
                          "cudaMemcpyAsync", part));
    }
    return MM_OK;
}

mm_status cuda_fill_async(mm_stream *base, void *dst, uint8_t byte, int64_t bytes) {
    cudaStream_t stream = cuda_stream_task(base);
    if (bytes == 0) return MM_OK;
    return work_check((cuda_stream *)base, cudaMemsetAsync(dst, byte, (size_t)bytes, stream), "cudaMemsetAsync", bytes);
}

/* ---------------------------------------------------------------- checksums, marks: on one multiprocessor */

enum { PAGE_BYTES = 4096 };

mm_status cuda_slots_add(cuda_device *device) {
    void *page;
    MM_TRY(cuda_pinned_reserve(device, PAGE_BYTES, true, &page));
    cuda_slot *slots = page;
    pthread_mutex_lock(&device->lock);
    for (size_t i = 0; i < PAGE_BYTES / sizeof *slots; i++) {
        slots[i] = (cuda_slot){.device = device, .next_free = device->free_slots};
        device->free_slots = &slots[i];
    }
    pthread_mutex_unlock(&device->lock);
    return MM_OK;
}

static mm_status slot_take(cuda_device *device, cuda_slot **slot_out) {
    for (;;) {
        pthread_mutex_lock(&device->lock);
        cuda_slot *slot = device->free_slots;
        if (slot != NULL) device->free_slots = slot->next_free;
        pthread_mutex_unlock(&device->lock);
        if (slot != NULL) {
            *slot_out = slot;
            return MM_OK;
        }
        MM_TRY(cuda_slots_add(device));
    }
}

static void slot_give(cuda_slot *slot) {
    pthread_mutex_lock(&slot->device->lock);
    slot->next_free = slot->device->free_slots;
    slot->device->free_slots = slot;
    pthread_mutex_unlock(&slot->device->lock);
}

/* Runs on a thread of CUDA, so it may not call CUDA. */
static void slot_tell(void *arg) {
    cuda_slot *slot = arg;
    *slot->host_out = slot->sum;
    slot_give(slot);
}

/* Of host memory, a kernel can write only to pinned memory, but `out` may be any host memory. So the result passes
 * through a slot, which the caller took. status: of the launch of the kernel that writes slot->sum. If the host
 * function cannot be enqueued after the kernel, the slot is lost, because the kernel may still write to it. */
static mm_status slot_pass_on(cuda_stream *stream, cuda_slot *slot, mm_status status, const char *what, int64_t bytes) {
    char text[64];
    if (status != MM_OK) {
        slot_give(slot);
        return status;
    }
    snprintf(text, sizeof text, "cudaLaunchHostFunc after %s", what);
    return work_check(stream, cudaLaunchHostFunc(cuda_stream_task(&stream->base), slot_tell, slot), text, bytes);
}

static mm_status slot_begin(mm_stream *base, const char *what, uint64_t *out, cuda_slot **slot_out) {
    const cuda_stream *stream = (cuda_stream *)base;
    if (stream->capture != 0)
        return mm_fail(MM_ERR_UNSUPPORTED, "stream %s: %s cannot be captured", stream->name, what);
    MM_TRY(slot_take(cuda_device_of(base), slot_out));
    (*slot_out)->host_out = out;
    return MM_OK;
}

mm_status cuda_checksum_async(mm_stream *base, const void *src, int64_t bytes, uint64_t *sum_out) {
    cuda_stream *stream = (cuda_stream *)base;
    cuda_slot *slot;
    MM_TRY(slot_begin(base, "a checksum", sum_out, &slot));
    const cudaError_t error = cuda_checksum_launch(cuda_stream_task(base), src, bytes, &slot->sum);
    return slot_pass_on(stream, slot, work_check(stream, error, "checksum", bytes), "a checksum", bytes);
}

mm_status cuda_mark_async(mm_stream *base, void *dst, int64_t bytes, uint64_t word) {
    return work_check((cuda_stream *)base, cuda_mark_launch(cuda_stream_task(base), dst, bytes, word), "mark", bytes);
}

mm_status cuda_find_mark_async(mm_stream *base, const void *src, int64_t bytes, const mm_mark *mark, uint64_t *at_out) {
    cuda_stream *stream = (cuda_stream *)base;
    cuda_slot *slot;
    MM_TRY(slot_begin(base, "a search for a mark", at_out, &slot));
    const cudaError_t error =
        cuda_find_mark_launch(cuda_stream_task(base), src, bytes, mark->word, mark->elem_bytes, &slot->sum);
    return slot_pass_on(stream, slot, work_check(stream, error, "search for a mark", bytes), "a search", bytes);
}

/* ---------------------------------------------------------------- sums */

mm_status cuda_sums_async(mm_stream *base, const float *src, int64_t elems, void *scratch, mm_sums *sums_out) {
    return work_check((cuda_stream *)base, cuda_sums_launch(cuda_stream_task(base), src, elems, scratch, sums_out),
                      "sums", elems * (int64_t)sizeof *src);
}

/* ---------------------------------------------------------------- functions of the CPU */

static void run_call(void *arg) {
    const mm_call *call = arg;
    mm_status status = call->fn(call->arg);
    (void)status; /* CUDA offers no way to fail the stream */
}

mm_status cuda_call_async(mm_stream *base, const mm_call *call) {
    cuda_stream *stream = (cuda_stream *)base;
    if (stream->capture != 0)
        return mm_fail(MM_ERR_UNSUPPORTED, "stream %s: a function of the CPU cannot be captured", stream->name);
    return work_check(stream, cudaLaunchHostFunc(cuda_stream_task(base), run_call, (void *)call), "cudaLaunchHostFunc",
                      0);
}
