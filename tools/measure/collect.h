/* SPDX-License-Identifier: MIT */
/* Collects facts of one network and batch while policies run it.
 *
 *   steps        from a run without side streams, under liveness if there is such a run. The first step also gets the
 *                part of the iteration's time that is outside all steps
 *   variants     if a step has several variants: the others' times are from extra runs under liveness:algorithms=N
 *   codecs       from the runs that use them. The size of a variable code is that of the last iteration; plans reserve
 *                an eighth more
 *   link         issue_ns and the rates: fitted to the times of all copies. The rates with both directions busy are
 *                measured separately, because no network keeps both busy
 *   far bytes    bytes that a step does not find in the cache (mm/core/time/cache_miss.h). far_ps_per_byte is a
 *                least-squares fit: in runs without side streams, how much longer steps took than in the run that gave
 *                the step times, against how many more far bytes they had. Step times are then reduced to those with
 *                warm caches
 *   contention   the two contention_permille: a least-squares fit of how much longer steps took in runs with side
 *                streams, beyond the time of their far bytes, against how long codecs and copies ran beside them
 *   pairs        contention of each pair of kinds of work, measured separately (device_pairs.h) with the first codec
 *                that can be. Pairs that cannot be measured are set by the two contention_permille. The host device has
 *                no pairs: steps, codecs and copies share its CPUs, so contention depends on the number of threads and
 *                on the network, which only the fit to the network's own runs reflects */
#ifndef TOOLS_MEASURE_COLLECT_H
#define TOOLS_MEASURE_COLLECT_H

#include "mm/manager/facts_measured.h"
#include "tools/measure/device_pairs.h"
#include "tools/need/need.h"
#include "tools/need/target.h"
#include "tools/train/session.h"

/* Sums of products over runs with side streams, for the fit: c and l are the times that codecs and copies ran beside
 * the computation, y is how much longer the computation took, f its additional far bytes. */
typedef struct collect_contention {
    double cc, cl, ll, cy, ly;
    double cf, lf;
} collect_contention;

/* Kinds of runs, from the least to the most suitable for the times of steps: no run; a run with side streams; one
 * without; one without, under liveness. */
typedef enum collect_rank { COLLECT_NONE, COLLECT_BESIDE, COLLECT_ALONE, COLLECT_LIVENESS } collect_rank;

typedef struct collector {
    nets_lowered *lowered;
    mm_codec *codecs[MM_MAX_CODECS];
    mm_graph_facts *facts;
    mm_copy_line copies[2];             /* [0] in, [1] out */
    int64_t both_bytes_per_s;           /* rate of each direction of the link with both busy; 0: not measured */
    int threads;                        /* CPU threads of the host device; 0: another device */
    int64_t cache_bytes;                /* of the device; 0: unknown */
    collect_rank steps_from;            /* what kind of run gave the times of steps */
    int64_t *miss_bytes;                /* per step in that run: far bytes */
    int64_t alone_ns, alone_miss_bytes; /* sums over the steps of that run, if it had no side streams */
    int64_t beyond_ns;                  /* part of an iteration's time, in that run, outside all steps */
    double miss_squared, miss_longer;   /* sums over runs: additional far bytes squared, and times additional ns */
    collect_contention contention;
    bool has_pairs;
    device_pairs pairs; /* valid if has_pairs */
    bool variants_only; /* take from the next runs only times of variants that have none yet */
} collector;

/* Begins to collect, with the codecs of all the policies. */
MM_CHECKED mm_status collector_init(collector *c, const nets_net *net, int64_t batch, const target *target,
                                    const arg_texts *policies);
void collector_fini(collector *c);

/* Adds the times that a session measured (mm_options.measure_times). r: the row of its run. */
MM_CHECKED mm_status collector_add(collector *c, session *s, const row *r);

/* Calls `run` for each policy liveness:algorithms=N whose variants have no times yet. `run` trains under the policy and
 * calls collector_add. */
typedef mm_status (*collect_run)(void *ctx, const char *policy, collector *c);
MM_CHECKED mm_status collector_measure_variants(collector *c, collect_run run, void *ctx);

/* Measures what no run shows: the link with both directions busy, and except on the host device, the pairs. */
MM_CHECKED mm_status collector_measure_device(collector *c, const target *target);

/* A time_source.fill: adds the collected times to the facts of the same graph or an equal one. Times of codecs that
 * these facts do not have are left out. */
mm_status collector_fill(const void *collector, const mm_graph *graph, mm_graph_facts *facts);

/* Computes the facts and writes them to a file. MM_ERR_IO. */
MM_CHECKED mm_status collector_save(const collector *c, const char *path);

#endif
