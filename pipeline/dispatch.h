/* Executes any checked plan, and knows no policy: it issues the operations of a plan at the end of the steps that they
 * follow, and makes steps wait for what they need.
 *
 * An event is never waited on before it was recorded: a step's event is recorded before the operations after it are
 * queued, and whoever waits for an operation first makes sure that it has been issued.
 *
 *   training thread            worker (one for each side stream)      streams
 *   step_begin  wait issued ── ... ──▶ issue: stream waits, codec, record ──▶ encode, decode
 *               compute stream waits on its event
 *   step_end    record step, push operations
 *
 * A code on its way over the link goes in pieces, each with an event of its own, so that it is copied while it is still
 * being encoded, and decoded while it still comes in (mm/core/program.h).
 *
 * Failure. What fails to be issued fails the iteration: later operations are dropped, and whoever waits is told. What
 * fails while running poisons its stream and those that wait for it (device.h). mm_dispatch_end or _abort clears it. */
#ifndef PIPELINE_DISPATCH_H
#define PIPELINE_DISPATCH_H

#include "buffers/pool.h"
#include "mm/core/program.h"
#include "pipeline/codec/codec.h"

typedef struct mm_dispatch mm_dispatch;
typedef struct mm_execution mm_execution; /* a plan made ready to run */

typedef struct mm_dispatch_config {
    mm_device *device;
    mm_pool *pool;    /* the arena */
    mm_pool *staging; /* pinned memory; NULL: none */
    mm_issue issue;
    bool self_check;    /* poison segments after their last use, compare lossless copies by checksum */
    bool measure_times; /* keep how long nodes took (devices with timed events) */
    bool equal_streams; /* the computation's stream is no more urgent than the others */
} mm_dispatch_config;

typedef struct mm_dispatch_stats {
    int64_t encodes, decodes, encoded_bytes, coded_bytes;
    int64_t out_bytes, in_bytes; /* over the link */
    int64_t unplanned_allocs;
    int64_t host_waits;    /* times that step_begin waited for a worker to issue, or (no stream) for data */
    int64_t issue_wait_ns; /* that took so long while the compute stream went on with what it had */
    int64_t data_wait_ns;  /* and so long while the caller, who computes inline, stood waiting */
    int64_t end_wait_ns;   /* and so long at the end of iterations: for workers, and for the device where they drain */
    int64_t codec_wait_ns; /* the computation waited for an encode or decode that was at work; of iterations that ended
                              well, on devices with timed events */
    int64_t nonfinite_blocks;
    mm_stream_stats stream[MM_STREAM_COUNT];
} mm_dispatch_stats;

/* Everything in the config is borrowed. */
MM_CHECKED mm_status mm_dispatch_create(const mm_dispatch_config *config, mm_dispatch **dispatch_out);
void mm_dispatch_destroy(mm_dispatch *dispatch);
mm_stream *mm_dispatch_compute(const mm_dispatch *dispatch);

/* Borrows the program, facts and codecs (codecs[c] is the facts' codec c) until destroyed. Between iterations. */
MM_CHECKED mm_status mm_execution_create(mm_dispatch *dispatch, const mm_program *program, const mm_facts *facts,
                                         mm_codec *const *codecs, mm_execution **execution_out);
void mm_execution_destroy(mm_execution *execution);

/* Mean ns of a node over the iterations so far but the first; 0: not known. */
int64_t mm_execution_ns(const mm_execution *execution, int node);

/* In how many pieces a node is issued (mm/core/program.h): its ns are the sum of theirs. */
int mm_execution_pieces(const mm_execution *execution, int node);

/* Node of each step of the program's graph. */
int mm_execution_node(const mm_execution *execution, int step);

MM_CHECKED mm_status mm_dispatch_begin(mm_dispatch *dispatch, mm_execution *execution);
/* stream NULL: blocks until the node's inputs are there. *waited_ns_out: how long the caller was held up, 0 if not. */
MM_CHECKED mm_status mm_dispatch_step_begin(mm_dispatch *dispatch, int node, mm_stream *stream, int64_t *waited_ns_out);
MM_CHECKED mm_status mm_dispatch_step_end(mm_dispatch *dispatch, int node);
/* Drains. The iteration is over whatever it returns: its first failure, told to a step before or not. */
MM_CHECKED mm_status mm_dispatch_end(mm_dispatch *dispatch);
/* The iteration is over, but the streams may still run it: what is enqueued on the compute stream from now on comes
 * after all of it, and so do later iterations. Drains as mm_dispatch_end does where what it did has to be looked at
 * (unplanned segments, self_check, measured times), and where issuing has failed. */
MM_CHECKED mm_status mm_dispatch_end_async(mm_dispatch *dispatch);
/* Waits for what mm_dispatch_end_async left running. A failure is returned once, and cleared. Between iterations. */
MM_CHECKED mm_status mm_dispatch_sync(mm_dispatch *dispatch);
/* ---- replay.c. As mm_dispatch_begin, but the work until mm_dispatch_record_end is kept with the program, and does not
 * run. MM_ERR_UNSUPPORTED: why this program's cannot be. */
MM_CHECKED mm_status mm_dispatch_record_begin(mm_dispatch *dispatch, mm_execution *execution);
/* The recording is over whatever it returns. */
MM_CHECKED mm_status mm_dispatch_record_end(mm_dispatch *dispatch);
bool mm_execution_recorded(const mm_execution *execution);
/* Drops the recording, if there is one. Nothing of it may be running. */
void mm_execution_unrecord(mm_execution *execution);
/* Enqueues an iteration as recorded; it ends as by mm_dispatch_end_async. */
MM_CHECKED mm_status mm_dispatch_replay(mm_dispatch *dispatch, mm_execution *execution);

/* Drops what is queued, drains, clears failures. A recording is given up. */
void mm_dispatch_abort(mm_dispatch *dispatch);

/* Where a segment of the running program lies now. */
void *mm_dispatch_address(mm_dispatch *dispatch, int segment);

void mm_dispatch_stats_get(mm_dispatch *dispatch, mm_dispatch_stats *stats_out);

#endif
