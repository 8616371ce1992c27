/* SPDX-License-Identifier: MIT */
/* To see what a manager does and did: statistics, traces for a viewer, and observing, which plans anew when iterations
 * do not take the planned time. Include mm/mm.h, which includes it. */
#ifndef MM_MM_TRACE_H
#define MM_MM_TRACE_H

#include "mm/mm_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- statistics */

typedef struct mm_stats {
    int64_t iterations;
    int64_t replays;              /* iterations among these that were replayed (mm_iteration_replay) */
    int64_t predicted_peak_bytes; /* largest peak of the plans run so far: extent in the arena + external tensors */
    int64_t persistent_bytes;     /* bytes of persistent tensors, which are part of the peak */
    int64_t stash_bytes;          /* bytes kept from the forward to the backward pass under the current plan, codes
                                included */
    int64_t outside_bytes;        /* bytes that libraries have allocated on the device, outside of the arena */
    int64_t pinned_bytes;         /* host memory reserved for offloaded tensors: mm_options.pinned_bytes, or less */
    int64_t compute_busy_ns; /* time the compute stream ran tasks, since creation; 0 if the caller computes inline */
    int64_t compute_wait_ns; /* time the compute stream, or the caller that computes inline, waited */
    int64_t codec_busy_ns;   /* time the encode and decode streams ran tasks */
    int64_t codec_wait_ns;   /* time the computation waited for a codec that ran. Only for iterations that ended with
                                     mm_iteration_end, on devices whose events are timed */
    int64_t encodes, decodes;
    int64_t encoded_bytes; /* bytes of maps that were encoded */
    /* coded_bytes: size of the codes of these maps. spilled_bytes: the part in pinned memory of codes of variable size.
     * Both are known once the device has encoded; of an iteration that still runs, the codes that are complete so far
     * are counted. */
    int64_t coded_bytes, spilled_bytes;
    int64_t out_bytes, in_bytes;     /* bytes that went to pinned memory, and back: copied, or written and read there by
                                    codecs */
    int64_t nonfinite_blocks;        /* blocks of zfp, mx and group codes that contained Inf or NaN */
    int64_t unplanned_allocs;        /* number of allocations at run time; naive forms only */
    int64_t host_waits;              /* number of mm_layer_begin calls that blocked, for a worker or for an input */
    int64_t ladder_steps;            /* number of substitutions because memory was short */
    int64_t replans;                 /* number of times that mm_observe changed plans */
    int64_t verified;                /* steps, operations and their pieces that were held against the plan
                                        (mm_options.verify_issued) */
    int64_t store_bytes, load_bytes; /* bytes stored on the disk (mm_options.disk) and loaded from it */
} mm_stats;

/* mm_stats_get for statistics of `stats_bytes` bytes: sizeof(mm_stats) in the caller's header. Members beyond this
 * library's are set to zero. Callers that find functions by name (dlsym) need this one; the function mm_stats_get,
 * which programs that were built with older headers call, fills in the members up to ladder_steps. */
MM_API void mm_stats_get_sized(mm_manager *manager, mm_stats *stats_out, size_t stats_bytes);

/* The manager's statistics since its creation. From any thread. Does nothing if an argument is NULL. */
MM_API void mm_stats_get(mm_manager *manager, mm_stats *stats_out);
#define mm_stats_get(manager, stats_out) mm_stats_get_sized((manager), (stats_out), sizeof(mm_stats))

/* Bytes of the arena that were written (measure_touched). Memory of plans is filled with a pattern before the first
 * plan that uses it runs. The rest of the arena stays zero and costs no memory; zeros that are written there are not
 * counted. */
typedef struct mm_touched {
    int64_t total_bytes;      /* all bytes that were touched. If memory was given back and taken back, the larger of the
                                 counts before and since */
    int64_t persistent_bytes; /* the part in persistent tensors */
    int64_t stray_bytes;      /* the part where no plan has placed anything; a bug if not 0 */
} mm_touched;

/* Counts touched bytes, in a pass over the memory of plans. Between iterations. MM_ERR_ORDER: the manager was created
 * without measure_touched. */
MM_API MM_CHECKED mm_status mm_touched_get(mm_manager *manager, mm_touched *touched_out);

/* ---------------------------------------------------------------- traces */

/* Begins a trace, which records until mm_trace_stop when each step and operation of each iteration ran. That costs
 * about a hundredth of the time. Nothing waits for it. Iterations are not replayed meanwhile (mm_replay_state). A step
 * or an operation takes 16 bytes of the buffer (mm_options.trace_bytes); what finds no room is dropped. name: the run's
 * name in the viewer. Between iterations. MM_ERR_ORDER: a trace is under way. MM_ERR_UNSUPPORTED: the device is a GPU,
 * and trace_bytes is 0. */
MM_API MM_CHECKED mm_status mm_trace_start(mm_manager *manager, const char *name);

/* Ends the trace in any case, and writes it to a file, in Chrome's "Trace Event Format", which https://ui.perfetto.dev
 * opens (tools/README.md says what it contains). The file appears as a whole, or not at all. *dropped_out (may be
 * NULL): how many steps and operations were dropped. Waits for iterations that were ended without waiting. Between
 * iterations. MM_ERR_ORDER: no trace is under way; MM_ERR_IO; MM_ERR_FORMAT: a name is not UTF-8; else the failure of
 * an iteration. */
MM_API MM_CHECKED mm_status mm_trace_stop(mm_manager *manager, const char *path, int64_t *dropped_out);

/* ---------------------------------------------------------------- observing */

typedef struct mm_observe_options {
    int replan_permille; /* by how many thousandths of the planned time iterations may differ from it, 1 to 10000; 0:
                            observe nothing */
    int window; /* number of iterations of a graph that are compared with its plan at a time, 1 to 100; 0: 10 */
} mm_observe_options;

/* From now on, iterations are measured, and compared with their plans, a window at a time. If three quarters of a
 * window's iterations take longer than planned by more than replan_permille, or shorter by that much, the median times
 * of the graph's steps, codecs and copies replace those in its facts; steps, codecs and copies that did not run keep
 * their times. Then the policy that runs now plans all graphs again by these facts. The new plans run from then on, if
 * by these facts they are at least 2 % faster, and if no graph returns to a plan that it left in this way. The weights
 * are the same, bit for bit, as without observing: each step keeps its variant, each lossy map its codec, and no other
 * map becomes lossy.
 *
 * Planning again happens in mm_iteration_begin, at most once in 100 iterations of all graphs together. It waits for the
 * iterations before, whose failure mm_iteration_begin then returns, and takes as long as the policy takes to plan. Each
 * change of plan is logged as a warning, counted (mm_stats.replans), reported (MM_EVENT_REPLAN) and part of a trace; if
 * the plan stays, MM_LOG_INFO says why. mm_policy_set, mm_budget_set and the ladder also plan by the renewed facts, and
 * mm_facts_save saves them.
 *
 * Otherwise nothing waits, and measuring costs what a trace costs (mm_trace_start). An iteration's time counts from the
 * end of the one before, as in `mm bench --facts`. On a GPU the first window of a plan runs step by step
 * (mm_replay_state), then one in 100 iterations; recorded iterations are not measured. Nor are the iterations of a loop
 * that has more than four of them running at a time (mm_iteration_end_async).
 *
 * A second call sets other options; facts stay renewed. Between iterations. MM_ERR_INVALID: options out of range, or
 * the manager has no measured times (mm_options.facts). Graphs without measured times are not compared.
 * MM_ERR_UNSUPPORTED: the device is a GPU, and neither trace_bytes nor measure_times is set. MM_ERR_NOMEM: nothing is
 * observed then. Else the failure of an iteration that was ended without waiting. */
MM_API MM_CHECKED mm_status mm_observe(mm_manager *manager, const mm_observe_options *options);

#ifdef __cplusplus
}
#endif
#endif
