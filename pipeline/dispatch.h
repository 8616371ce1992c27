/* SPDX-License-Identifier: MIT */
/* The dispatcher executes any program that passed the check; it knows no policy. It issues each operation at the end
 * of the step that it follows in the program, and makes steps wait for the operations that they need.
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
 * Failure. If a piece cannot be issued, the iteration fails: later operations are dropped, and threads that wait
 * return the failure. A task that fails while it runs poisons its stream and those that wait for it (device.h).
 * mm_dispatch_end and mm_dispatch_abort clear both. Where the device cannot fail a task that finds a code damaged, it
 * counts them (mm_codec_counters), and the next call that waits fails with MM_ERR_FORMAT. Of an iteration that was left
 * running, the failure has one owner: it is kept until a call that waits, and has no failure of its own iteration to
 * tell, returns it.
 *
 * Threads. One thread at a time calls the functions of a dispatcher, but for mm_dispatch_stats_get, which any thread
 * may call. */
#ifndef PIPELINE_DISPATCH_H
#define PIPELINE_DISPATCH_H

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
    mm_issue issue;
    bool self_check;    /* overwrite segments after their last use, compare lossless copies by checksum */
    bool measure_times; /* measure how long nodes take (the device's events must be timed) */
    bool timed;         /* the device's events are timed, so that iterations can be traced; those of some always are */
    bool equal_streams; /* the compute stream has the priority of the others, not a higher one */
} mm_dispatch_config;

typedef struct mm_dispatch_stats {
    int64_t encodes, decodes, encoded_bytes, coded_bytes; /* encoded_bytes: of the maps, coded_bytes: of their codes */
    int64_t spilled_bytes;                                /* part of the bodies of codes that is in pinned memory */
    int64_t out_bytes, in_bytes;                          /* over the link: copies, and bodies in pinned memory */
    int64_t unplanned_allocs;
    int64_t host_waits;    /* calls of step_begin that blocked */
    int64_t issue_wait_ns; /* time blocked in them with a stream, until workers had issued; the stream went on */
    int64_t data_wait_ns;  /* time blocked in them without a stream, until the inputs were there */
    int64_t end_wait_ns;   /* time blocked at the end of iterations, for workers and (mm_dispatch_end) for the device */
    int64_t codec_wait_ns; /* time that the computation waited while an encode or decode ran that it needed. Only on
                              devices with timed events, for iterations that ended with mm_dispatch_end and no
                              failure */
    int64_t nonfinite_blocks; /* blocks with NaN or infinity that codecs met */
    mm_stream_stats stream[MM_STREAM_COUNT];
} mm_dispatch_stats;

/* Copies the config, and borrows what it points to until destroyed. The caller destroys it. MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_dispatch_create(const mm_dispatch_config *config, mm_dispatch **dispatch_out);
/* Aborts an iteration that is running. Executions must be destroyed first. NULL is legal. */
void mm_dispatch_destroy(mm_dispatch *dispatch);
/* The compute stream, owned by the dispatcher. */
mm_stream *mm_dispatch_compute(const mm_dispatch *dispatch);

/* Makes a program ready to run. Borrows the program, facts and codecs (codecs[c] is the facts' codec c) until
 * destroyed. To be called, and destroyed, between iterations. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_execution_create(mm_dispatch *dispatch, const mm_program *program, const mm_facts *facts,
                                         mm_codec *const *codecs, mm_execution **execution_out);
/* Tells where on the device the block of numbers lies that its codecs read (pipeline/codec/code_block.h). Without, they
 * find none. To be called before the first iteration. */
void mm_execution_set_block(mm_execution *execution, const void *block);
/* Sets what becomes of the plan's shared tensors (mm_allreduce_set); NULL: nothing. Its iterations must have ended. */
void mm_execution_set_gradients(mm_execution *execution, const mm_allreduce_fns *fns, void *ctx);
/* NULL is legal. */
void mm_execution_destroy(mm_execution *execution);

/* Mean time of a node, the sum of its pieces', in ns, over the iterations so far without the first, in which caches
 * warm up; 0: not measured. */
int64_t mm_execution_ns(const mm_execution *execution, int node);

/* Number of pieces that a node is issued in (mm/core/plan/program.h). */
int mm_execution_pieces(const mm_execution *execution, int node);

/* What the code of a map took when the map was last encoded. */
typedef struct mm_code_size {
    mm_tensor tensor;
    const char *codec;                 /* spec; the execution's facts own it */
    int64_t bytes;                     /* in all */
    int64_t body_bytes, spilled_bytes; /* parts of them: the body; what of it lay in pinned memory */
} mm_code_size;

/* The size of the code that a node encodes or decodes, in the iteration that ended last. Of a body: 0 before the first,
 * and what the iteration that runs has encoded, as far as it has. Does not wait. */
void mm_execution_code(const mm_execution *execution, int node, mm_code_size *size_out);

/* Those of all codes of the plan, in the order in which they are encoded. Fills in `capacity` at most; returns their
 * number. */
int mm_execution_codes(const mm_execution *execution, mm_code_size *sizes_out, int capacity);

/* What the plan's last measure of a tensor found in the last iteration that is known to have ended (mm_dispatch_end,
 * mm_dispatch_sync); no later one may have begun. All 0 before the first. False: the plan does not measure it. */
bool mm_execution_sums(const mm_execution *execution, mm_tensor tensor, mm_sums *sums_out);

/* The strips of the code in a segment that a step reads or writes by itself, valid until the execution is destroyed;
 * NULL: it has none. */
const mm_strips *mm_execution_strips(const mm_execution *execution, int segment);
/* What codecs count, for those strips. */
mm_codec_counters *mm_dispatch_counters(const mm_dispatch *dispatch);

/* The node of a step of the graph. */
int mm_execution_node(const mm_execution *execution, int step);

/* Begins an iteration. Iterations of one dispatcher do not overlap. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_dispatch_begin(mm_dispatch *dispatch, mm_execution *execution);
/* The same, of an iteration in which nothing is shared. */
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
/* Waits for iterations that mm_dispatch_end_async left running. Returns their failure once, and clears it, unless the
 * end of a later iteration that went well has done so. To be called between iterations. */
MM_CHECKED mm_status mm_dispatch_sync(mm_dispatch *dispatch);
/* Whether the next mm_dispatch_sync returns a failure that is known already. */
bool mm_dispatch_owes_failure(const mm_dispatch *dispatch);

/* ---- tracing.c: iterations become a timeline, as soon as their times are known: when they end, or, if they were left
 * running, when a later call finds that they have. Nothing waits for them. If a program is begun so often that the
 * first of its iterations still runs MM_TRACED_AHEAD later, the times of that one are lost, and counted as dropped. */
enum { MM_TRACED_AHEAD = 4 };

/* Puts the iterations that begin from now on into a timeline, which is borrowed; NULL: no more. The streams must be
 * idle (mm_dispatch_sync). Iterations cannot be recorded meanwhile. MM_ERR_UNSUPPORTED: events have no times. */
MM_CHECKED mm_status mm_dispatch_trace(mm_dispatch *dispatch, mm_timeline *timeline);

/* ---- window.c: what the nodes of a program took in its latest iterations, whose times are taken as those of traces
 * are: nothing waits for them. What passed between the end of the iteration before, of whatever program that is
 * observed, and the first step counts to that step: the facts of `mm bench --facts` have it there, too. */

/* Keeps the times of the latest `iterations` (> 0) from now on. The streams must be idle, and events timed.
 * MM_ERR_NOMEM: nothing changed. */
MM_CHECKED mm_status mm_execution_observe(mm_execution *execution, int iterations);
/* No more. The streams must be idle. */
void mm_execution_unobserve(mm_execution *execution);
/* Whether so many have ended since it was observed or restarted, the first left out, in which caches warm up. */
bool mm_execution_window_is_full(const mm_execution *execution);
void mm_execution_window_restart(mm_execution *execution);

typedef struct mm_quartiles {
    int64_t lower_ns, median_ns, upper_ns;
} mm_quartiles;

/* Times of the latest iterations, and the median of each node's. Returns how many iterations there are; 0: nothing is
 * set. */
int mm_execution_window_times(const mm_execution *execution, mm_quartiles *iteration_out, int64_t *node_ns_out);

/* ---- replay.c: recordings. An iteration is recorded instead of run, and then replayed with one call. */

/* Begins an iteration that is recorded and does not run, until mm_dispatch_record_end. The execution keeps the
 * recording. MM_ERR_UNSUPPORTED; the message says why this program cannot be recorded. */
MM_CHECKED mm_status mm_dispatch_record_begin(mm_dispatch *dispatch, mm_execution *execution);
/* Ends the recording in any case; on failure there is none. */
MM_CHECKED mm_status mm_dispatch_record_end(mm_dispatch *dispatch);
bool mm_execution_recorded(const mm_execution *execution);
/* Drops the recording, if there is one. It may not be running. */
void mm_execution_unrecord(mm_execution *execution);
/* Enqueues the recorded iteration. It ends as by mm_dispatch_end_async. */
MM_CHECKED mm_status mm_dispatch_replay(mm_dispatch *dispatch, mm_execution *execution);

/* Ends the iteration, or the recording, if one is under way: drops queued operations, waits for the streams, and clears
 * its failures. That of iterations which mm_dispatch_end_async left running stays. So does mm_last_error. */
void mm_dispatch_abort(mm_dispatch *dispatch);

/* ---- salvage.c: an iteration that will not go on, with MM_ISSUE_INLINE. Values that its plan holds can be taken over
 * before it is aborted. */

/* Waits for all that has been issued. The iteration stays under way. Returns the first failure of a task; what ran is
 * not known then. */
MM_CHECKED mm_status mm_dispatch_pause(mm_dispatch *dispatch);
/* Whether all of an operation was issued. After one that failed to be, none is. */
bool mm_dispatch_has_issued(mm_dispatch *dispatch, int node);
/* Decodes the code in a segment to memory that the device reaches, as large as the map, and waits. scratch: of so many
 * bytes (0: none), as reachable. Errors of mm_codec_decode, and of its task. */
MM_CHECKED mm_status mm_dispatch_decode_paused(mm_dispatch *dispatch, int segment, void *map, void *scratch);
int64_t mm_dispatch_decode_scratch(const mm_dispatch *dispatch, int segment);

/* The address of a segment of the running program. */
void *mm_dispatch_address(mm_dispatch *dispatch, int segment);

void mm_dispatch_stats_get(mm_dispatch *dispatch, mm_dispatch_stats *stats_out);

#endif
