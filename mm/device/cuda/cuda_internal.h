/* SPDX-License-Identifier: MIT */
/* Private to the CUDA device: device_cuda.c (the device), cuda_error.c (failures), cuda_gpu.c (GPUs by ordinal),
 * cuda_memory.c and cuda_pinned.c (reservations), cuda_stream.c (streams and events), cuda_time.c (times), cuda_work.c
 * and cuda_checksum.cu (copies, fills, checksums), cuda_capture.c (captures).
 *
 * Locks: device->lock and stream->lock are never held over a call of CUDA. device->time_lock is held while the origin
 * of times is read or replaced; only callers that ask for times wait for it. No lock is taken while another is held. */
#ifndef MM_DEVICE_CUDA_CUDA_INTERNAL_H
#define MM_DEVICE_CUDA_CUDA_INTERNAL_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>

#include "mm/device/contract/clock.h"
#include "mm/device/cuda/device_cuda.h"

/* CUDA_TRY(cudaCall(...), "cudaCall") */
#define CUDA_TRY(call, what) MM_TRY(mm_cuda_check((call), (what)))

/* ---------------------------------------------------------------- the device (device_cuda.c) */

/* The functions of the contract are called with the GPU current (mm_device_ops.enter). */

/* The driver's functions for virtual memory, looked up at run time, because nothing links the driver. */
typedef struct cuda_driver {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
    CUresult (*address_reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*address_free)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} cuda_driver;

typedef struct cuda_range cuda_range;
typedef struct cuda_pinned cuda_pinned;
typedef struct cuda_stream cuda_stream;

/* The result of a checksum, or of a search, in pinned memory. The kernel writes `sum`; then a host function copies it
 * to *host_out. */
typedef struct cuda_slot {
    uint64_t sum;
    uint64_t *host_out;
    struct cuda_device *device;
    struct cuda_slot *next_free;
} cuda_slot;

typedef struct cuda_device {
    mm_device base;
    int ordinal;
    mm_cuda_gpu *gpu;
    mm_device_config config;
    cuda_driver driver;
    size_t granule_bytes;
    bool can_register;          /* cudaHostRegister works, and a GPU uses registered memory at its host addresses */
    atomic_bool registers;      /* the large block that was reserved last is registered */
    size_t register_most_bytes; /* most bytes of one registration, a multiple of a page; tests set less */
    atomic_int chunked;         /* number of blocks of pinned memory that are registered in several chunks */
    mm_device_description description;
    int64_t total_bytes, free_at_creation_bytes;
    mm_stream *service; /* internal stream: zeroes reservations, records origins of times */
    atomic_int alive;   /* streams and events, without the internal ones */
    /* cuda_time.c, under time_lock: an event that times are measured from, and when it completed (CLOCK_MONOTONIC) */
    cudaEvent_t origin;
    int64_t origin_ns;
    pthread_mutex_t lock, time_lock;
    /* under the lock */
    cuda_range *ranges;
    cuda_pinned *pinned;
    cuda_slot *free_slots;
    int64_t reserved_bytes, mapped_bytes;
    /* capturing: the number of the capture under way, from 1; 0: none. captured: a list of the streams in it, which
     * only the capturing thread uses. */
    atomic_long capturing, captures;
    cuda_stream *captured;
} cuda_device;

/* cuda_error.c: mm_cuda_check for results of the driver. */
mm_status cuda_driver_check(CUresult result, const char *what);
/* Puts the stream's name before the message of a failure; returns `status`. */
mm_status cuda_stream_fail(const cuda_stream *stream, mm_status status);
/* False if cudaEventQuery returns cudaErrorNotReady. Leaves no error behind. */
bool cuda_event_completed(cudaEvent_t event);

/* cuda_gpu.c: looks up a function of the driver. function_out: address of a function pointer. MM_ERR_UNSUPPORTED. */
mm_status cuda_find_function(const char *symbol, void *function_out);

/* ---------------------------------------------------------------- memory (cuda_memory.c) */

mm_status cuda_memory_init(cuda_device *device);
void cuda_memory_fini(cuda_device *device);
mm_status cuda_reserve(mm_device *base, mm_memory_kind kind, int64_t bytes, void **memory_out);
void cuda_release(mm_device *base, mm_memory_kind kind, void *memory, int64_t bytes);
mm_status cuda_reserve_trimmed(mm_device *base, int64_t bytes, void **memory_out);
void cuda_trim(mm_device *base, void *memory, int64_t bytes);
mm_status cuda_restore(mm_device *base, void *memory, int64_t bytes);
void cuda_memory_info(mm_device *base, mm_memory_info *info_out);
int64_t cuda_outside_bytes(mm_device *base);

/* ---------------------------------------------------------------- pinned memory (cuda_pinned.c) */

/* own: the memory is for the device's own slots, and cuda_pinned_fini releases it. */
mm_status cuda_pinned_reserve(cuda_device *device, int64_t bytes, bool own, void **memory_out);
void cuda_pinned_release(cuda_device *device, const void *memory);
/* How many of the bytes from `memory` on one copy may read or write: at most `bytes`, fewer if a registration of pinned
 * memory ends before. */
int64_t cuda_pinned_run(cuda_device *device, const void *memory, int64_t bytes);
void cuda_pinned_fini(cuda_device *device);

/* ---------------------------------------------------------------- streams and events (cuda_stream.c) */

typedef struct cuda_span cuda_span;

struct cuda_stream {
    mm_stream base;
    cudaStream_t stream;
    cudaEvent_t join; /* an event that makes the stream on which the capture began wait, at the end of the capture, for
                         this stream */
    char name[16];
    atomic_long tasks;
    /* used only by the thread that enqueues: */
    long capture; /* the number of the capture that the stream is part of; 0: none */
    cuda_stream *next_captured;
    cuda_span *open; /* cuda_time.c: the span that has a begin and no end yet */
    pthread_mutex_t lock;
    /* cuda_time.c, under the lock. first to last: spans that have an end and are not added up yet, oldest first;
     * unused: spans to use again */
    cuda_span *first, *last, *unused;
    int unread; /* number of spans from first to last */
    int64_t busy_ns, wait_ns;
};

/* cuda_event.recorded: one of these, or the number of the capture in which the latest recording was made. */
enum { CUDA_EVENT_NEVER = 0, CUDA_EVENT_RECORDED = -1 };

typedef struct cuda_event {
    mm_event base;
    cudaEvent_t event;
    atomic_long recorded;
} cuda_event;

mm_status cuda_stream_create(mm_device *base, const char *name, int priority, mm_stream **stream_out);
void cuda_stream_destroy(mm_stream *base);
mm_status cuda_stream_wait(mm_stream *base, mm_event *event);
mm_status cuda_stream_sync(mm_stream *base);
void cuda_stream_reset(mm_stream *base);
mm_status cuda_event_create(mm_device *base, mm_event **event_out);
void cuda_event_destroy(mm_event *base);
mm_status cuda_event_record(mm_event *base, mm_stream *stream);
mm_status cuda_event_sync(mm_event *base);
bool cuda_event_done(mm_event *base);
mm_status cuda_stream_check(mm_stream *base);
mm_status cuda_foreign_check(mm_device *base, void *handle);
mm_status cuda_foreign_record(mm_event *base, void *handle);
mm_status cuda_foreign_wait(mm_device *base, void *handle, mm_event *event);

/* ---------------------------------------------------------------- times (cuda_time.c): no-ops unless config.timed */

mm_status cuda_time_init(cuda_device *device);
void cuda_time_fini(cuda_device *device);
int64_t cuda_event_ns(mm_event *base);
/* To be called as work is enqueued. A task (cuda_stream_task) opens a span of work unless one is open; a pause (a wait,
 * recording or synchronisation) ends it. If CUDA refuses an event, the span is missing from the statistics. */
void cuda_time_pause(cuda_stream *stream);
void cuda_time_wait_begin(cuda_stream *stream);
void cuda_time_wait_end(cuda_stream *stream);
void cuda_time_stream_fini(cuda_stream *stream);
void cuda_stream_stats(mm_stream *base, mm_stream_stats *stats_out);
/* mm_cuda_stream for the device's own calls, of which device.c tells the watch; counts as a task. */
cudaStream_t cuda_stream_task(mm_stream *stream);
/* mm_stream_handle; counts as a task. */
void *cuda_stream_handle(mm_stream *base);

/* ---------------------------------------------------------------- work (cuda_work.c) */

mm_status cuda_copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
mm_status cuda_fill_async(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes);
/* Adds a page of free slots for results of checksums and searches. */
mm_status cuda_slots_add(cuda_device *device);
mm_status cuda_checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out);
mm_status cuda_mark_async(mm_stream *stream, void *dst, int64_t bytes, uint64_t word);
mm_status cuda_find_mark_async(mm_stream *stream, const void *src, int64_t bytes, const mm_mark *mark,
                               uint64_t *at_out);
mm_status cuda_sums_async(mm_stream *stream, const float *src, int64_t elems, void *scratch, mm_sums *sums_out);
mm_status cuda_call_async(mm_stream *stream, const mm_call *call);

/* cuda_checksum.cu: writes the checksum to *sum_out, in pinned memory. */
cudaError_t cuda_checksum_launch(cudaStream_t stream, const void *src, int64_t bytes, uint64_t *sum_out);

/* cuda_mark.cu; at_out is in pinned memory. */
cudaError_t cuda_mark_launch(cudaStream_t stream, void *dst, int64_t bytes, uint64_t word);
cudaError_t cuda_find_mark_launch(cudaStream_t stream, const void *src, int64_t bytes, uint64_t word, int elem_bytes,
                                  uint64_t *at_out);

/* cuda_sums.cu */
cudaError_t cuda_sums_launch(cudaStream_t stream, const float *src, int64_t elems, void *scratch, mm_sums *sums_out);

/* ---------------------------------------------------------------- captured work (cuda_capture.c) */

/* Adds the stream to the capture under way. */
void cuda_capture_join(cuda_stream *stream, long capture);
mm_status cuda_capture_begin(mm_stream *base);
mm_status cuda_capture_end(mm_stream *base, mm_replay **replay_out);
mm_status cuda_replay_launch(mm_replay *replay, mm_stream *stream);
void cuda_replay_destroy(mm_replay *replay);

static inline cuda_device *cuda_device_of(const mm_stream *stream) { return (cuda_device *)stream->device; }

#endif
