/* The device contract: memory, streams, events. Implementations: device_host.c (the embedded default), device_cuda.c.
 *
 * A stream runs its work in order; streams run beside each other. Work is copies, fills, checksums, and whatever a
 * device's own launcher enqueues (device_host.h: a C function). An event marks a place in a stream: mm_event_record
 * puts it there, later recordings replace earlier ones.
 *
 * Failure. A task that fails poisons its stream: later tasks are skipped, events recorded after it complete with its
 * status, a stream that waits for such an event is poisoned too. So nothing is computed from garbage. mm_stream_sync
 * and mm_event_sync return the status and set mm_last_error; mm_stream_reset makes the stream usable again. On CUDA a
 * fault of the device poisons all of it: every call fails from there on, until the process ends (device_cuda.h).
 *
 * Threads: every function may be called from any thread, a given stream's enqueuing functions from one at a time. Where
 * threads have a current device (CUDA), each function makes its device that, and what was current before again. Whoever
 * enqueues work by other means than these functions does the same: mm_device_enter.
 *
 * Names: a device is KIND or KIND:ORDINAL ("host", "cuda", "cuda:1"); KIND alone is ordinal 0. */
#ifndef MM_DEVICE_DEVICE_H
#define MM_DEVICE_DEVICE_H

#include "mm/core/status.h"

typedef struct mm_device mm_device;
typedef struct mm_event mm_event;
typedef struct mm_replay mm_replay; /* captured work */

typedef enum mm_memory_kind { MM_MEMORY_DEVICE, MM_MEMORY_PINNED } mm_memory_kind;
typedef enum mm_copy_kind { MM_COPY_DEVICE, MM_COPY_OUT /* device to host */, MM_COPY_IN } mm_copy_kind;

typedef struct mm_device_config {
    int64_t link_out_bytes_per_s, link_in_bytes_per_s; /* host: 0 is as fast as memcpy */
    int64_t alloc_cost_ns; /* what mm_device_charge_alloc takes (busy): the price of a cudaMalloc */
    uint64_t delay_seed;   /* host: not 0 delays each task by a random time up to delay_max_ns */
    int64_t delay_max_ns;
    int codec_threads; /* host: that one codec's operation is shared out among; 0: 1 */
    bool timed; /* cuda: events know when they completed, streams how long they were busy; costs about as much as the
                   events themselves. The host always knows */
} mm_device_config;

typedef struct mm_device_description {
    char model[128];
    /* To plan by where nothing is measured, so that plans do not depend on a measurement: what the device's memory
     * moves, and the link to pinned memory each way. 0: not known. */
    int64_t memory_bytes_per_s, link_bytes_per_s;
    int64_t cache_bytes; /* what lies between the processors and that memory, and all of them share. 0: not known */
    int processors;      /* multiprocessors of a GPU, CPUs of the host */
    const char *pinned;  /* how large pinned memory is taken; static */
} mm_device_description;

typedef struct mm_memory_info {
    int64_t free_bytes, total_bytes; /* of the device */
    int64_t reserved_bytes;          /* taken through this mm_device, MM_MEMORY_DEVICE */
    int64_t outside_bytes;           /* taken on the device by others in this process since it was created; on the
                                        host: the growth of the C heap; on CUDA by other processes too */
} mm_memory_info;

typedef struct mm_stream_stats {
    int64_t tasks;   /* run so far; on CUDA enqueued, and each mm_cuda_stream is one */
    int64_t busy_ns; /* running them; on CUDA this and wait_ns are 0 unless the device is timed */
    int64_t wait_ns; /* standing at an event that was not complete, with work behind it */
} mm_stream_stats;

typedef struct mm_device_ops {
    const char *name, *summary; /* the kind */
    bool cpu_reaches_memory;    /* device memory may be read and written by the CPU */
    bool knows_free_memory; /* more than mm_memory_info.free_bytes is never given; the host's is what nobody has asked
                                for, whoever has it */
    bool always_timed;      /* events know when they completed, whatever mm_device_config.timed says */

    int (*count)(void); /* how many answer; 0: none, or the hardware cannot be asked */
    mm_status (*create)(int ordinal, const mm_device_config *config, mm_device **device_out);
    void (*destroy)(mm_device *device);
    /* Makes the device the calling thread's current one. *entered_out: it was not, and leave is to be called, which
     * makes what was current again. `silent`: a failure leaves mm_last_error as it is. Both NULL: threads have no
     * current device. All others but create, destroy, describe and charge_alloc are called between the two, except
     * where entering was refused and the function has no status. */
    mm_status (*enter)(mm_device *device, bool silent, bool *entered_out);
    void (*leave)(mm_device *device);
    void (*describe)(mm_device *device, mm_device_description *description_out);
    mm_status (*reserve)(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out);
    void (*release)(mm_device *device, mm_memory_kind kind, void *memory, int64_t bytes);
    void (*trim)(mm_device *device, void *memory, int64_t bytes);
    mm_status (*restore)(mm_device *device, void *memory,
                         int64_t bytes); /* NULL: trimmed memory comes back by itself */
    bool (*next_written)(mm_device *device, const void *memory, int64_t bytes, int64_t *at, int64_t *end_out);
    void (*memory_info)(mm_device *device, mm_memory_info *info_out);
    void (*charge_alloc)(mm_device *device);

    mm_status (*stream_create)(mm_device *device, const char *name, int priority, mm_stream **stream_out);
    void (*stream_destroy)(mm_stream *stream);
    mm_status (*stream_wait)(mm_stream *stream, mm_event *event);
    mm_status (*stream_sync)(mm_stream *stream);
    void (*stream_reset)(mm_stream *stream);
    void (*stream_stats)(mm_stream *stream, mm_stream_stats *stats_out);
    void *(*stream_handle)(mm_stream *stream); /* mm_stream_handle (mm.h); NULL: has none */

    mm_status (*event_create)(mm_device *device, mm_event **event_out);
    void (*event_destroy)(mm_event *event);
    mm_status (*event_record)(mm_event *event, mm_stream *stream);
    mm_status (*event_sync)(mm_event *event);
    bool (*event_done)(mm_event *event);
    int64_t (*event_ns)(mm_event *event);

    mm_status (*copy_async)(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
    mm_status (*fill_async)(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes);
    mm_status (*checksum_async)(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out);

    /* All NULL where work cannot be captured. */
    mm_status (*capture_begin)(mm_stream *stream);
    mm_status (*capture_end)(mm_stream *stream, mm_replay **replay_out);
    mm_status (*replay_launch)(mm_replay *replay, mm_stream *stream);
    void (*replay_destroy)(mm_replay *replay);
} mm_device_ops;

/* The first member of every implementation's struct. */
struct mm_device {
    const mm_device_ops *ops;
    char name[16]; /* as it was asked for: "cuda:1" */
    int ordinal;
};
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

/* What a device's name says. MM_ERR_NOT_FOUND: this build has no such kind (the message lists those it has), or fewer of
 * it answer (the message says how many). MM_ERR_INVALID: the ordinal is no number. Needs no hardware: where none can be
 * asked, any ordinal is taken. */
MM_CHECKED mm_status mm_device_find(const char *name, const mm_device_ops **ops_out, int *ordinal_out);
/* MM_ERR_NOT_FOUND: of the kind, `count` answer, and not this one. */
mm_status mm_device_fail_ordinal(const char *kind, int ordinal, int count);

/* A device by name; the errors of mm_device_find, and MM_ERR_NOT_FOUND where no such hardware answers. `config` NULL:
 * all zero. */
MM_CHECKED mm_status mm_device_create(const char *name, const mm_device_config *config, mm_device **device_out);
/* All streams and events of it must be gone, all memory released. NULL is legal. */
void mm_device_destroy(mm_device *device);

/* Makes the device the calling thread's current one, where threads have such: for launches and libraries' calls. Leave
 * with *entered_out. They nest. */
MM_CHECKED mm_status mm_device_enter(mm_device *device, bool *entered_out);
/* What was current before the enter is again. */
void mm_device_leave(mm_device *device, bool entered);

/* Address range of exactly `bytes` (> 0), 4096-byte aligned, zeroed on first touch. MM_ERR_NOMEM with the sizes. */
MM_CHECKED mm_status mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out);
void mm_device_release(mm_device *device, mm_memory_kind kind, void *memory, int64_t bytes);
/* Part of a reservation that is not needed for now: others may have its memory, what is in it is lost. It stays
 * reserved, and must not be used before mm_device_restore. Nothing may be using it. */
void mm_device_trim(mm_device *device, void *memory, int64_t bytes);
/* Makes all of that part of a reservation usable, whatever of it was trimmed, which is zero then; what was not keeps
 * its bytes.
 * MM_ERR_NOMEM with the sizes where others have the memory now; the part may still be trimmed then. */
MM_CHECKED mm_status mm_device_restore(mm_device *device, void *memory, int64_t bytes);
/* Of part of a reservation that the CPU reaches, from *at on: the next bytes that may have been written since they were
 * reserved or trimmed, *at to *end_out, of which the others are zero. False: none were. */
bool mm_device_next_written(mm_device *device, const void *memory, int64_t bytes, int64_t *at, int64_t *end_out);
void mm_device_memory_info(mm_device *device, mm_memory_info *info_out);
void mm_device_describe(mm_device *device, mm_device_description *description_out);
/* Takes as long as an allocation on the real device; the pool calls it for every unplanned one. */
void mm_device_charge_alloc(mm_device *device);

/* priority: 0 normal, negative more urgent (a hint). `name` (copied, 15 bytes) names its thread. */
MM_CHECKED mm_status mm_stream_create(mm_device *device, const char *name, int priority, mm_stream **stream_out);
/* Drains, then frees. NULL is legal. */
void mm_stream_destroy(mm_stream *stream);
/* Work enqueued later on `stream` starts after the event's last recording completed. Never blocks the caller. An event
 * never recorded is MM_ERR_ORDER: CUDA itself would not wait at all. */
MM_CHECKED mm_status mm_stream_wait(mm_stream *stream, mm_event *event);
/* Blocks until all enqueued work is done; returns the stream's status. */
MM_CHECKED mm_status mm_stream_sync(mm_stream *stream);
/* Of a drained stream: forgets its failure. */
void mm_stream_reset(mm_stream *stream);
void mm_stream_stats_get(mm_stream *stream, mm_stream_stats *stats_out);

MM_CHECKED mm_status mm_event_create(mm_device *device, mm_event **event_out);
/* NULL is legal. Not while a stream still has a recording of it or a wait for it queued. */
void mm_event_destroy(mm_event *event);
MM_CHECKED mm_status mm_event_record(mm_event *event, mm_stream *stream);
/* Blocks until the last recording completed; returns the status of what came before it. */
MM_CHECKED mm_status mm_event_sync(mm_event *event);
/* Whether the last recording completed (true if never recorded). */
bool mm_event_done(mm_event *event);
/* When it completed, CLOCK_MONOTONIC; 0 if not timed or not complete. */
int64_t mm_event_ns(mm_event *event);

MM_CHECKED mm_status mm_copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
MM_CHECKED mm_status mm_fill_async(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes);
/* *sum_out (host memory, valid until the work is done) := a 64-bit checksum of the bytes, the same on every device. */
MM_CHECKED mm_status mm_checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out);

/* Captured work: what is enqueued once, kept, and then run any number of times by one cheap call (a CUDA graph).
 * Addresses and sizes are those of the capture. MM_ERR_UNSUPPORTED where the device cannot (host): run without, then.
 *
 * From begin to end, what is enqueued on `stream` is kept and not run, and so is what is enqueued on every other stream
 * of the device from the moment on that it waits for an event recorded in the capture. Only the thread that began may
 * enqueue on them, and it may not synchronise, reserve, release, or wait for events recorded outside: that fails, and
 * so does the end. What is recorded meanwhile counts as never recorded outside. One capture of a device at a time. */
MM_CHECKED mm_status mm_capture_begin(mm_stream *stream);
/* Ends it, in any case; streams that joined are ordinary again, and all of their work comes before the replay's end.
 * Ready to run: nothing is allocated at launches. *replay_out is set only on success; nothing is kept otherwise. */
MM_CHECKED mm_status mm_capture_end(mm_stream *stream, mm_replay **replay_out);
/* Enqueues all of it as one piece of work of `stream`. */
MM_CHECKED mm_status mm_replay_launch(mm_replay *replay, mm_stream *stream);
/* Nothing of it may be enqueued or running. NULL is legal. */
void mm_replay_destroy(mm_replay *replay);

#endif
