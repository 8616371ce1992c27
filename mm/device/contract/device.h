/* SPDX-License-Identifier: MIT */
/* The device contract: memory, streams, events. Implementations: device_host.c (the default), device_cuda.c.
 *
 * A stream runs its tasks in order; streams run concurrently. Tasks are copies, fills, checksums, marks, sums, and what
 * a device's own launcher enqueues (device_host.h: a C function; device_cuda.h: kernels). An event marks a place in a
 * stream. mm_event_record puts it there; a later recording replaces an earlier one.
 *
 * Failure. A task that fails poisons its stream: later tasks are skipped, events recorded after it complete with its
 * status, and a stream that waits for such an event is poisoned too. So nothing is computed from invalid data.
 * mm_stream_sync and mm_event_sync return the status and set mm_last_error; mm_stream_reset makes the stream usable
 * again. On CUDA a fault of the GPU is final: every later call fails until the process ends (device_cuda.h).
 *
 * Threads. Every function may be called from any thread. Calls that enqueue on one stream must not overlap. On CUDA,
 * where each thread has a current device, each function makes its device current and then restores the previous one.
 * Code that enqueues by other means (kernels, libraries) does the same with mm_device_enter and mm_device_leave.
 *
 * Names: a device is KIND or KIND:ORDINAL ("host", "cuda", "cuda:1"); KIND alone is ordinal 0. */
#ifndef MM_DEVICE_CONTRACT_DEVICE_H
#define MM_DEVICE_CONTRACT_DEVICE_H

#include "mm/core/issued.h"
#include "mm/core/status.h"

typedef struct mm_device mm_device;
typedef struct mm_event mm_event;
typedef struct mm_replay mm_replay; /* captured tasks */

typedef enum mm_memory_kind { MM_MEMORY_DEVICE, MM_MEMORY_PINNED } mm_memory_kind;
/* Between which memories a copy goes: within the device's; from it to pinned memory; back; or ANY: each of the two
 * addresses is in either. */
typedef enum mm_copy_kind { MM_COPY_DEVICE, MM_COPY_OUT, MM_COPY_IN, MM_COPY_ANY } mm_copy_kind;

/* What the CPU may do with memory. */
typedef enum mm_permit { MM_PERMIT_NONE, MM_PERMIT_READ, MM_PERMIT_ALL } mm_permit;

typedef struct mm_device_config {
    int64_t link_out_bytes_per_s, link_in_bytes_per_s; /* host: simulated rate of the link; 0: as fast as memcpy */
    int64_t alloc_cost_ns; /* how long mm_device_charge_alloc keeps the caller busy: the price of a cudaMalloc */
    uint64_t delay_seed;   /* host: if not 0, each task is delayed by a random time up to delay_max_ns */
    int64_t delay_max_ns;
    int codec_threads; /* host: threads for one operation of a codec; 0: 1 */
    bool timed; /* cuda: record when events completed and how long streams were busy. Timing costs about as much as the
                   events themselves. The host always records both */
} mm_device_config;

typedef struct mm_device_description {
    char model[128];
    /* Nominal rates of the device's memory and of the link to pinned memory, each way; 0: not known. Planners use them
     * where nothing is measured, so that a plan does not depend on a measurement. */
    int64_t memory_bytes_per_s, link_bytes_per_s;
    int64_t cache_bytes; /* last-level cache that all processors share; 0: not known */
    int processors;      /* multiprocessors of a GPU, CPUs of the host */
    const char *pinned;  /* in a few words, how large blocks of pinned memory are allocated; static */
} mm_device_description;

/* A reservation of device memory above free_bytes fails. On the host, both are by mm_host_memory_get; memory that is
 * reserved counts as taken once it is touched. */
typedef struct mm_memory_info {
    int64_t free_bytes, total_bytes; /* of the device */
    int64_t reserved_bytes;          /* MM_MEMORY_DEVICE reserved through this mm_device */
} mm_memory_info;

typedef struct mm_stream_stats {
    int64_t tasks;   /* host: tasks run; CUDA: tasks enqueued, each call of mm_cuda_stream counts as one */
    int64_t busy_ns; /* time spent running tasks. CUDA: this and wait_ns are 0 unless the device is timed */
    int64_t wait_ns; /* time spent waiting for events, with tasks queued behind the wait */
} mm_stream_stats;

/* When the first of some tasks began, and the last ended, by CLOCK_MONOTONIC. */
typedef struct mm_task_times {
    int64_t began_ns, ended_ns;
} mm_task_times;

/* Sums over elements of a tensor, each element by its magnitude. -0 is a zero. With a NaN among the elements, the last
 * three members are NaN; else, with an infinity, they are +Inf. Both count as non-zero. */
typedef struct mm_sums {
    double nonzero; /* number of elements that are not zero */
    double sum_abs, sum_squares, max_abs;
} mm_sums;

/* A pattern of 64 bits, and how many bytes of it make one element, of which the pattern repeats: 2, 4 or 8. */
typedef struct mm_mark {
    uint64_t word;
    int elem_bytes;
} mm_mark;

/* A function of the CPU as a task of a stream. It may not call the device. */
typedef struct mm_call {
    mm_status (*fn)(void *arg);
    void *arg;
} mm_call;

typedef struct mm_device_ops {
    const char *name, *summary; /* name: the kind, such as "host"; summary: one line about it */
    bool cpu_reaches_memory;    /* the CPU may read and write device memory */
    bool always_timed;          /* events have times, whatever mm_device_config.timed says */
    /* Functions of mm_call_async may wait for tasks of other streams. CUDA's may not: it may run the functions of all
     * streams one after the other. */
    bool calls_may_block;

    int (*count)(void); /* devices of this kind that answer; 0: none, or the hardware cannot be asked */
    mm_status (*create)(int ordinal, const mm_device_config *config, mm_device **device_out);
    void (*destroy)(mm_device *device);
    /* enter makes the device the calling thread's current one; *entered_out: false if it was already. After true, leave
     * restores the previous one. silent: a failure leaves mm_last_error as it is. Both NULL: threads have no current
     * device. All functions below, except describe and charge_alloc, are called between enter and leave. A function
     * that returns no status is called even if enter failed. */
    mm_status (*enter)(mm_device *device, bool silent, bool *entered_out);
    void (*leave)(mm_device *device);
    void (*describe)(mm_device *device, mm_device_description *description_out);
    mm_status (*reserve)(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out);
    mm_status (*reserve_trimmed)(mm_device *device, int64_t bytes, void **memory_out); /* NULL: reserve, then trim */
    void (*release)(mm_device *device, mm_memory_kind kind, void *memory, int64_t bytes);
    void (*trim)(mm_device *device, void *memory, int64_t bytes);
    mm_status (*restore)(mm_device *device, void *memory,
                         int64_t bytes); /* NULL: trimmed memory can be used again without a call */
    mm_status (*protect)(mm_device *device, void *memory, int64_t bytes, mm_permit permit); /* NULL: cannot */
    bool (*next_written)(mm_device *device, const void *memory, int64_t bytes, int64_t *at, int64_t *end_out);
    void (*memory_info)(mm_device *device, mm_memory_info *info_out);
    int64_t (*outside_bytes)(mm_device *device);
    void (*charge_alloc)(mm_device *device);

    mm_status (*stream_create)(mm_device *device, const char *name, int priority, mm_stream **stream_out);
    void (*stream_destroy)(mm_stream *stream);
    mm_status (*stream_wait)(mm_stream *stream, mm_event *event);
    mm_status (*stream_sync)(mm_stream *stream);
    void (*stream_reset)(mm_stream *stream);
    void (*stream_stats)(mm_stream *stream, mm_stream_stats *stats_out);
    void *(*stream_handle)(mm_stream *stream); /* mm_stream_handle (mm.h); NULL: streams have none */

    mm_status (*event_create)(mm_device *device, mm_event **event_out);
    void (*event_destroy)(mm_event *event);
    mm_status (*event_record)(mm_event *event, mm_stream *stream);
    mm_status (*event_sync)(mm_event *event);
    bool (*event_done)(mm_event *event);
    int64_t (*event_ns)(mm_event *event);
    mm_task_times (*event_tasks)(mm_event *event); /* NULL: not known */
    /* See mm_stream_check, mm_foreign_check. Both NULL: others cannot capture. */
    mm_status (*stream_check)(mm_stream *stream);
    mm_status (*foreign_check)(mm_device *device, void *handle);
    /* See mm_foreign_record. Both NULL: callers compute on their own threads. */
    mm_status (*foreign_record)(mm_event *event, void *handle);
    mm_status (*foreign_wait)(mm_device *device, void *handle, mm_event *event);

    mm_status (*copy_async)(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
    mm_status (*fill_async)(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes);
    mm_status (*checksum_async)(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out);
    mm_status (*mark_async)(mm_stream *stream, void *dst, int64_t bytes, uint64_t word);
    mm_status (*find_mark_async)(mm_stream *stream, const void *src, int64_t bytes, const mm_mark *mark,
                                 uint64_t *at_out);
    mm_status (*sums_async)(mm_stream *stream, const float *src, int64_t elems, void *scratch, mm_sums *sums_out);
    mm_status (*call_async)(mm_stream *stream, const mm_call *call);

    /* All NULL if tasks cannot be captured. */
    mm_status (*capture_begin)(mm_stream *stream);
    mm_status (*capture_end)(mm_stream *stream, mm_replay **replay_out);
    mm_status (*replay_launch)(mm_replay *replay, mm_stream *stream);
    void (*replay_destroy)(mm_replay *replay);
} mm_device_ops;

/* Is told of each call that enqueues work, or orders it, once the call has succeeded; of kernels, when mm_cuda_stream
 * is called for them. The thread that made the call tells, so `issued` may be called by several at a time. */
typedef struct mm_device_watch {
    void (*issued)(struct mm_device_watch *watch, const mm_issued *entry);
} mm_device_watch;

/* The first member of every implementation's struct. */
struct mm_device {
    const mm_device_ops *ops;
    char name[16]; /* as it was asked for: "cuda:1" */
    int ordinal;
    mm_device_watch *watch; /* borrowed; NULL: nobody watches. Set while nothing is enqueued */
};

static inline void mm_device_tell(mm_device *device, const mm_issued *entry) {
    if (device->watch) device->watch->issued(device->watch, entry);
}
struct mm_stream {
    mm_device *device;
};
struct mm_event {
    mm_device *device;
};
struct mm_replay {
    mm_device *device;
};

/* The i-th device of this build, NULL past the last. */
const mm_device_ops *mm_device_table(size_t i);

/* Reads a device's name. MM_ERR_NOT_FOUND: this build has no such kind (the message lists those that it has), or no
 * device with that ordinal answers (the message says how many do). MM_ERR_INVALID: the ordinal is not a number. Needs
 * no hardware: if none can be asked, any ordinal is accepted. */
MM_CHECKED mm_status mm_device_find(const char *name, const mm_device_ops **ops_out, int *ordinal_out);
/* Writes text such as "there are 2, cuda:0 to cuda:1". */
void mm_device_count_text(const char *kind, int count, char *text, size_t capacity);
/* Returns MM_ERR_NOT_FOUND. The message says that `count` devices of the kind answer, and that `ordinal` is not among
 * them. */
mm_status mm_device_fail_ordinal(const char *kind, int ordinal, int count);

/* Opens a device by name. `config` NULL: all zero. The errors of mm_device_find; MM_ERR_INVALID (a negative rate or
 * time, too many threads), MM_ERR_NOMEM, MM_ERR_DEVICE. The caller destroys it. */
MM_CHECKED mm_status mm_device_create(const char *name, const mm_device_config *config, mm_device **device_out);
/* The streams and events of the device must be destroyed before, and its memory released. NULL is legal. */
void mm_device_destroy(mm_device *device);

/* Makes the device the calling thread's current one (CUDA; nothing on the host). To be called around launches and calls
 * of libraries. Pairs nest. */
MM_CHECKED mm_status mm_device_enter(mm_device *device, bool *entered_out);
/* Restores the device that was current before. entered: what mm_device_enter set. */
void mm_device_leave(mm_device *device, bool entered);

/* Reserves `bytes` (> 0), aligned to 4096 and zero. The host allocates pages as they are touched. MM_ERR_NOMEM; the
 * message has the sizes. */
MM_CHECKED mm_status mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out);
/* Reserves addresses of device memory without memory, as if all of it had been trimmed. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_device_reserve_trimmed(mm_device *device, int64_t bytes, void **memory_out);
/* memory, bytes: as reserved. Nothing may use it any more. */
void mm_device_release(mm_device *device, mm_memory_kind kind, void *memory, int64_t bytes);
/* Gives the physical memory behind part of a reservation of device memory back, so that others can use it. Its content
 * is lost; the addresses stay reserved, and must not be used until mm_device_restore. Nothing may be using them. */
void mm_device_trim(mm_device *device, void *memory, int64_t bytes);
/* Makes part of a reservation of device memory usable again. What was trimmed is zero, the rest keeps its bytes.
 * MM_ERR_NOMEM: others have taken the memory. The message has the sizes; a part of the range may have been restored,
 * and the rest is still trimmed. */
MM_CHECKED mm_status mm_device_restore(mm_device *device, void *memory, int64_t bytes);
/* Sets what the CPU may do with part of a reservation; what it may not do faults (SIGSEGV). Both ends must be multiples
 * of MM_PAGE_BYTES. MM_ERR_UNSUPPORTED: the device cannot; MM_ERR_DEVICE: the system refuses. */
enum { MM_PAGE_BYTES = 4096 };
MM_CHECKED mm_status mm_device_protect(mm_device *device, void *memory, int64_t bytes, mm_permit permit);
/* For memory that the CPU reaches: finds the next bytes at *at or later that may have been written since they were
 * reserved or trimmed, and sets *at and *end_out to them (offsets in `memory`). Bytes between such ranges are zero.
 * False: there are no more. */
bool mm_device_next_written(mm_device *device, const void *memory, int64_t bytes, int64_t *at, int64_t *end_out);
void mm_device_memory_info(mm_device *device, mm_memory_info *info_out);
/* Bytes that others have taken since this mm_device was created. Host: growth of the process's C heap; CUDA: memory of
 * the GPU that any process took. */
int64_t mm_device_outside_bytes(mm_device *device);
void mm_device_describe(mm_device *device, mm_device_description *description_out);
/* Keeps the caller busy for config.alloc_cost_ns. The heap calls it for every allocation and free. */
void mm_device_charge_alloc(mm_device *device);

/* priority: 0 normal, negative more urgent: a hint. The host's threads of normal streams, which sleep most of the time,
 * ask to run soon after they wake (thread.h). name: copied, 15 bytes; the name of the stream's thread, and of the
 * stream in messages. The caller destroys it. */
MM_CHECKED mm_status mm_stream_create(mm_device *device, const char *name, int priority, mm_stream **stream_out);
/* Waits until all tasks of the stream have run, then frees it. NULL is legal. */
void mm_stream_destroy(mm_stream *stream);
/* Tasks enqueued on `stream` after this call start when the event's latest recording has completed. Never blocks the
 * caller. MM_ERR_ORDER: the event was never recorded (CUDA itself would not wait at all). */
MM_CHECKED mm_status mm_stream_wait(mm_stream *stream, mm_event *event);
/* Blocks until all tasks enqueued before the call are done; returns the stream's status. */
MM_CHECKED mm_status mm_stream_sync(mm_stream *stream);
/* MM_ERR_ORDER: someone else captures the stream (cudaStreamBeginCapture, torch.cuda.graph). What is enqueued now would
 * not run, but become a part of their graph, which later runs on memory that has other content by then. A capture of
 * mm_capture_begin is no error. */
MM_CHECKED mm_status mm_stream_check(mm_stream *stream);
/* Clears the failure of a stream that has no tasks left. */
void mm_stream_reset(mm_stream *stream);
void mm_stream_stats_get(mm_stream *stream, mm_stream_stats *stats_out);

/* The caller destroys it. */
MM_CHECKED mm_status mm_event_create(mm_device *device, mm_event **event_out);
/* No stream may still have a recording of it or a wait for it queued. NULL is legal. */
void mm_event_destroy(mm_event *event);
/* Enqueues a recording: the event completes when all tasks enqueued on `stream` before this call are done. */
MM_CHECKED mm_status mm_event_record(mm_event *event, mm_stream *stream);
/* Blocks until the latest recording has completed; returns the status that the stream had when it reached the
 * recording. */
MM_CHECKED mm_status mm_event_sync(mm_event *event);
/* Whether the latest recording has completed; true if there is none. */
bool mm_event_done(mm_event *event);
/* When the latest recording completed, by CLOCK_MONOTONIC; 0 if it has not, or if events are not timed. */
int64_t mm_event_ns(mm_event *event);
/* The time of the tasks that the stream ran between this event's latest recording and the stream's recording before it,
 * of whatever event. If there was no task, both members equal mm_event_ns. Both 0: the latest recording has not
 * completed, or the device does not know. */
mm_task_times mm_event_tasks(mm_event *event);

/* Streams that belong to the caller, not to this mm_device. handle: what mm_stream_handle returns for a stream; on cuda
 * a cudaStream_t (NULL: the legacy default stream). The caller keeps them alive. Calls for one stream may overlap. On
 * the host the handle must be NULL, which stands for the calling thread: a recording completes at once, and a wait
 * blocks. MM_ERR_ORDER of mm_foreign_record and mm_foreign_check: the stream is being captured (mm_stream_check). */
MM_CHECKED mm_status mm_foreign_record(mm_event *event, void *handle);
MM_CHECKED mm_status mm_foreign_check(mm_device *device, void *handle);
/* The errors of mm_stream_wait. Whether the stream is being captured is not checked. */
MM_CHECKED mm_status mm_foreign_wait(mm_device *device, void *handle, mm_event *event);
/* Whether callers compute on their own threads, so that there are no foreign streams. */
bool mm_device_is_inline(const mm_device *device);

MM_CHECKED mm_status mm_copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
MM_CHECKED mm_status mm_fill_async(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes);
/* *sum_out (host memory, must stay valid until the task is done): a 64-bit checksum of the bytes, the same on every
 * device (checksum.h). */
MM_CHECKED mm_status mm_checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out);

/* Fills the bytes with the mark's words, little-endian; the last one is cut. */
MM_CHECKED mm_status mm_mark_async(mm_stream *stream, void *dst, int64_t bytes, uint64_t word);
/* *at_out (as sum_out): the offset of the first element, counted from src, that has all bytes of the mark;
 * MM_MARK_NONE: there is none. Bytes behind the last whole element are not looked at. */
#define MM_MARK_NONE UINT64_MAX
MM_CHECKED mm_status mm_find_mark_async(mm_stream *stream, const void *src, int64_t bytes, const mm_mark *mark,
                                        uint64_t *at_out);
/* *sums_out: the sums of `elems` floats, the same bits on every device and with any number of threads (sums.h). src:
 * device memory, aligned to 16. scratch: MM_SUMS_SCRATCH_BYTES. The device writes to scratch and sums_out, which are
 * aligned to 8, in pinned or device memory, and used by one such task at a time. Can be captured. MM_ERR_INVALID: src
 * is not aligned. */
enum { MM_SUMS_SCRATCH_BYTES = 1 << 16 };
MM_CHECKED mm_status mm_sums_async(mm_stream *stream, const float *src, int64_t elems, void *scratch,
                                   mm_sums *sums_out);

/* Calls a function when the tasks before it are done; tasks enqueued after it wait until it has returned. `call` is
 * borrowed until then. It may block only if the device's calls_may_block. On the host a failure of the function poisons
 * the stream; CUDA cannot do that, and drops the failure. It cannot be captured. */
MM_CHECKED mm_status mm_call_async(mm_stream *stream, const mm_call *call);
/* Like mm_call_async, for a function that may block, on any device. If the device's calls may not block, the calling
 * thread waits for `after`, or (NULL) for all of the stream's tasks, then calls the function itself, and returns its
 * status. */
MM_CHECKED mm_status mm_call_blocking(mm_stream *stream, const mm_call *call, mm_event *after);

/* A capture collects tasks instead of running them; the replay made from it runs them any number of times with one
 * cheap call (a CUDA graph). Addresses and sizes stay those of the capture. MM_ERR_UNSUPPORTED: the device has no
 * captures (the host has none); the caller enqueues the tasks each time instead.
 *
 * From begin to end, tasks enqueued on `stream` are captured. Another stream of the device joins the capture when it
 * waits for an event that was recorded in it. Only the thread that began the capture may enqueue on these streams. It
 * may not synchronise, reserve, release, or wait for events recorded outside the capture: such a call fails, and so
 * does mm_capture_end. Events recorded in the capture count as never recorded outside. One capture per device at a
 * time. */
MM_CHECKED mm_status mm_capture_begin(mm_stream *stream);
/* Ends the capture, even if it fails; joined streams are ordinary again. The replay completes after the tasks of all
 * streams that joined. Launching it allocates nothing. *replay_out is set only on success; the caller destroys it. */
MM_CHECKED mm_status mm_capture_end(mm_stream *stream, mm_replay **replay_out);
/* Enqueues the replay as one task of `stream`. */
MM_CHECKED mm_status mm_replay_launch(mm_replay *replay, mm_stream *stream);
/* The replay may be neither enqueued nor running. NULL is legal. */
void mm_replay_destroy(mm_replay *replay);

#endif
