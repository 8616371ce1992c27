/* SPDX-License-Identifier: MIT */
/* The dispatcher executes any program that passed the check; it knows no policy. It issues each operation at the end of
 * the step that it follows in the program, and makes steps wait for the operations that they need.
 *
 * No stream waits for an event before it was recorded. A step's event is recorded before the operations after it are
 * queued; and a thread that lets a stream wait for an operation first blocks until that operation has been issued.
 *
 *   training thread            worker (one for each side stream)      streams
 *   step_begin  wait issued ── ... ──▶ issue: stream waits, codec, record ──▶ encode, decode
 *               compute stream waits on its event
 *   step_end    record step, push operations
 *
 * Codes that go over the link are cut into pieces with an event each, so that a code is copied while it is still being
 * encoded, and decoded while it still arrives (mm/core/plan/program.h).
 *
 * Failure. If a piece cannot be issued, the iteration fails: later operations are dropped, and threads that wait return
 * the failure. A task that fails while it runs poisons its stream and those that wait for it (device.h).
 * mm_dispatch_end and mm_dispatch_abort clear both. A device whose tasks cannot fail counts damaged codes
 * (mm_codec_counters), and the next call that waits fails with MM_ERR_FORMAT. The failure of an iteration that was left
 * running is returned once: by the next call that waits and has no failure of its own iteration to return.
 *
 * Threads. One thread at a time calls the functions of a dispatcher, but for mm_dispatch_stats_get, which any thread
 * may call. */
#ifndef PIPELINE_DISPATCH_H
#define PIPELINE_DISPATCH_H

#include "buffers/disk.h"
#include "buffers/pool.h"
#include "mm/core/plan/program.h"
#include "mm/core/timeline/timeline.h"
#include "pipeline/codec/codec.h"

typedef struct mm_dispatch mm_dispatch;
typedef struct mm_execution mm_execution; /* a program with its events: ready to run */

typedef struct mm_dispatch_config {
    mm_device *device;
    mm_pool *pool;   /* the arena */
    mm_pool *pinned; /* pinned memory; NULL: none */
    mm_disk *disk;   /* NULL: none; plans that use one are refused */
    mm_issue issue;
    bool self_check;    /* overwrite segments after their last use, compare lossless copies by checksum */
    bool measure_times; /* measure how long nodes take (the device's events must be timed) */
    bool timed;         /* time events, so that iterations can be traced; some devices always do */
    bool verify_issued; /* hold what was issued against the plan; a difference fails the iteration with MM_ERR_PLAN */
    bool equal_streams; /* the compute stream has the priority of the others, not a higher one */
} mm_dispatch_config;

typedef struct mm_dispatch_stats {
    int64_t encodes, decodes, encoded_bytes, coded_bytes; /* encoded_bytes: of the maps, coded_bytes: of their codes */
    int64_t spilled_bytes;                                /* bytes of codes' bodies in pinned memory */
    int64_t out_bytes, in_bytes;                          /* over the link: copies, and bodies in pinned memory */
    int64_t store_bytes, load_bytes;                      /* to the disk and back */
    int64_t unplanned_allocs;
    int64_t host_waits;    /* calls of step_begin that blocked */
    int64_t issue_wait_ns; /* with a stream: time for which step_begin blocked until workers had issued; the stream went
                            * on meanwhile */
    int64_t data_wait_ns;  /* without a stream: time blocked until the inputs were there */
    int64_t end_wait_ns;   /* time blocked at the end of iterations, for workers and (mm_dispatch_end) for the device */
    int64_t codec_wait_ns; /* time that the computation waited while an encode or decode ran that it needed. Only on
                              devices with timed events, for iterations that ended with mm_dispatch_end and no
                              failure */
    int64_t nonfinite_blocks; /* blocks with NaN or infinity that codecs met */
    int64_t verified;         /* pieces that were held against the plan (mm_dispatch_config.verify_issued) */
    mm_stream_stats stream[MM_STREAM_COUNT];
} mm_dispatch_stats;

/* Copies the config, and borrows what it points to until destroyed. The caller destroys it. MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_dispatch_create(const mm_dispatch_config *config, mm_dispatch **dispatch_out);
/* Aborts an iteration that is running. Executions must be destroyed first. NULL is legal. */
void mm_dispatch_destroy(mm_dispatch *dispatch);
/* The compute stream, owned by the dispatcher. */
mm_stream *mm_dispatch_compute(const mm_dispatch *dispatch);
/* The stream of steps on the host. Call it while a program that has such a step is issued. */
mm_stream *mm_dispatch_host(const mm_dispatch *dispatch);

/* Makes a program ready to run. Borrows the program, facts and codecs (codecs[c] is the facts' codec c) until
 * destroyed. To be called, and destroyed, between iterations. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_execution_create(mm_dispatch *dispatch, const mm_program *program, const mm_graph_facts *facts,
                                         mm_codec *const *codecs, mm_execution **execution_out);
/* Sets the device address of the block of numbers that the execution's codecs read (pipeline/codec/code_block.h).
 * Without this call, the codecs get no block. Call it before the first iteration. */
void mm_execution_set_block(mm_execution *execution, const void *block);
/* Sets the functions that all-reduce the plan's shared tensors (mm_allreduce_set); NULL: no all-reduce. The execution's
 * iterations must have ended. */
void mm_execution_set_allreduce(mm_execution *execution, const mm_allreduce_fns *fns, void *ctx);
/* NULL is legal. */
void mm_execution_destroy(mm_execution *execution);

/* Mean time of a node (of all its pieces together), in ns, over all iterations but the first, in which caches warm up;
 * 0: not measured. */
int64_t mm_execution_ns(const mm_execution *execution, int node);

/* Number of pieces that a node is issued in (mm/core/plan/program.h). */
int mm_execution_pieces(const mm_execution *execution, int node);

/* Size of a map's code, when the map was last encoded. */
typedef struct mm_code_size {
    mm_tensor tensor;
    const char *codec;                 /* spec; the execution's facts own it */
    int64_t bytes;                     /* head and body */
    int64_t body_bytes, spilled_bytes; /* the body; the part of it that lay in pinned memory */
} mm_code_size;

/* Size of the code that a node encodes or decodes, in the latest iteration that ended. A body counts as 0 bytes before
 * the first iteration; once the running iteration has encoded it, its new size counts. Does not wait. */
void mm_execution_code(const mm_execution *execution, int node, mm_code_size *size_out);

/* Sizes of all codes of the plan, in the order in which they are encoded. Fills in at most `capacity`; returns the
 * number of codes. */
int mm_execution_codes(const mm_execution *execution, mm_code_size *sizes_out, int capacity);

/* Result of the plan's last measure of a tensor, in the latest iteration that is known to have ended (mm_dispatch_end,
 * mm_dispatch_sync); no later iteration may have begun. All 0 before the first. Returns false if the plan does not
 * measure the tensor. */
bool mm_execution_sums(const mm_execution *execution, mm_tensor tensor, mm_sums *sums_out);

/* The strips of the code in a segment that a step reads or writes without its codec, valid until the execution is
 * destroyed; NULL: it has none. */
const mm_strips *mm_execution_strips(const mm_execution *execution, int segment);
/* The codecs' counters, for the functions of those strips. */
mm_codec_counters *mm_dispatch_counters(const mm_dispatch *dispatch);

int mm_execution_node(const mm_execution *execution, int step);

/* Begins an iteration. Iterations of one dispatcher do not overlap. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_dispatch_begin(mm_dispatch *dispatch, mm_execution *execution);
/* The same for a rehearsal: an iteration without all-reduce. */
MM_CHECKED mm_status mm_dispatch_rehearse(mm_dispatch *dispatch, mm_execution *execution);
/* Begins a step. `stream`: the dispatcher's compute stream, which is made to wait for the step's inputs; or NULL, to
 * block until the inputs are there. *waited_ns_out: how long the call blocked. MM_ERR_INVALID: another stream; else
 * the iteration's failure. */
MM_CHECKED mm_status mm_dispatch_step_begin(mm_dispatch *dispatch, int node, mm_stream *stream, int64_t *waited_ns_out);
/* Ends a step, and queues the operations that follow it. */
MM_CHECKED mm_status mm_dispatch_step_end(mm_dispatch *dispatch, int node);
/* Ends the iteration in any case: blocks until all of it has run, and returns its first failure, even if a step has
 * returned it before. */
MM_CHECKED mm_status mm_dispatch_end(mm_dispatch *dispatch);
/* Ends the iteration while streams may still run it. Tasks enqueued on the compute stream afterwards, and later
 * iterations, come after all of it. Blocks like mm_dispatch_end if issuing has failed, or if results must be inspected
 * (segments placed at run time, self_check, measure_times). */
MM_CHECKED mm_status mm_dispatch_end_async(mm_dispatch *dispatch);
/* Waits for iterations that mm_dispatch_end_async left running. Returns their failure once, and clears it, unless
 * mm_dispatch_end of a later iteration has returned it already. Call it between iterations. */
MM_CHECKED mm_status mm_dispatch_sync(mm_dispatch *dispatch);
/* Whether the next mm_dispatch_sync returns a failure that is known already. */
bool mm_dispatch_owes_failure(const mm_dispatch *dispatch);

/* ---- tracing.c: iterations become a timeline, as soon as their times are known: when they end, or, if they were left
 * running, when a later call finds that they have ended. Nothing waits for them. If an iteration still runs when the
 * program's MM_TRACED_AHEAD-th one after it begins, its times are lost, and counted as dropped. */
enum { MM_TRACED_AHEAD = 4 };

/* Puts the iterations that begin from now on into a timeline, which is borrowed; NULL: stops. The streams must be idle
 * (mm_dispatch_sync). Iterations cannot be recorded meanwhile. MM_ERR_UNSUPPORTED: events have no times. */
MM_CHECKED mm_status mm_dispatch_trace(mm_dispatch *dispatch, mm_timeline *timeline);

/* ---- window.c: times of a program's nodes in its latest iterations. They are collected as for traces: nothing waits
 * for them. The time between the end of the previous observed iteration, of any program, and the first step counts to
 * that step, as in the facts of `mm bench --facts`. */

/* Keeps the times of the latest `iterations` (> 0) from now on. The streams must be idle, and events timed.
 * MM_ERR_NOMEM: nothing changed. */
MM_CHECKED mm_status mm_execution_observe(mm_execution *execution, int iterations);
/* Stops observing. The streams must be idle. */
void mm_execution_unobserve(mm_execution *execution);
/* Whether `iterations` have ended since observing began or the window was restarted, not counting the first, in which
 * caches warm up. */
bool mm_execution_window_is_full(const mm_execution *execution);
void mm_execution_window_restart(mm_execution *execution);

typedef struct mm_quartiles {
    int64_t lower_ns, median_ns, upper_ns;
} mm_quartiles;

/* Quartiles of the iterations' times, and each node's median. Returns the number of iterations; 0: nothing is set. */
int mm_execution_window_times(const mm_execution *execution, mm_quartiles *iteration_out, int64_t *node_ns_out);

/* ---- replay.c: recordings. An iteration is recorded instead of run, and then replayed with one call. */

/* Begins an iteration that is recorded and does not run, until mm_dispatch_record_end. The execution keeps the
 * recording. MM_ERR_UNSUPPORTED; the message says why this program cannot be recorded. */
MM_CHECKED mm_status mm_dispatch_record_begin(mm_dispatch *dispatch, mm_execution *execution);
/* Ends the recording in any case; on failure nothing is recorded. */
MM_CHECKED mm_status mm_dispatch_record_end(mm_dispatch *dispatch);
bool mm_execution_recorded(const mm_execution *execution);
/* Drops the recording, if there is one. It may not be running. */
void mm_execution_unrecord(mm_execution *execution);
/* Enqueues the recorded iteration, and leaves it running, as mm_dispatch_end_async does. */
MM_CHECKED mm_status mm_dispatch_replay(mm_dispatch *dispatch, mm_execution *execution);

/* Ends the iteration, or the recording, if one is under way: drops queued operations, waits for the streams, and clears
 * its failures. It keeps the failure of iterations that mm_dispatch_end_async left running, and mm_last_error. */
void mm_dispatch_abort(mm_dispatch *dispatch);

/* ---- dispatch_pause.c: pauses an iteration before it is aborted (only with MM_ISSUE_INLINE), so that the values in
 * its segments can be saved first. */

/* Waits for all that has been issued. The iteration stays under way. Returns the first failure of a task; which tasks
 * ran is unknown then. */
MM_CHECKED mm_status mm_dispatch_pause(mm_dispatch *dispatch);
/* Whether all pieces of an operation were issued. After one that could not be issued, no later one is. */
bool mm_dispatch_has_issued(mm_dispatch *dispatch, int node);
/* Decodes the code in a segment to `map`, which is as large as the map, and waits. code: its bytes, at the segment's
 * address; or a copy of them, of a segment on the disk. scratch: mm_dispatch_decode_scratch bytes (0: none). The device
 * must reach all three. Errors of mm_codec_decode, and of its task. */
MM_CHECKED mm_status mm_dispatch_decode_paused(mm_dispatch *dispatch, int segment, const void *code, void *map,
                                               void *scratch);
int64_t mm_dispatch_decode_scratch(const mm_dispatch *dispatch, int segment);

/* The address of a segment of the running program; NULL: it is on the disk. */
void *mm_dispatch_address(mm_dispatch *dispatch, int segment);

void mm_dispatch_stats_get(mm_dispatch *dispatch, mm_dispatch_stats *stats_out);

#endif
