/* SPDX-License-Identifier: MIT */
/* Collects facts of one network and batch while policies run it.
 *
 *   steps        from a run without side streams, under liveness if there is one. The first step also gets the part
 *                of the iteration's time that is in no step
 *   variants     of a step that has several, the others from runs under liveness:algorithms=N besides those asked for
 *   codecs       from the runs that use them. What a body of a code takes is that of the last iteration; plans reserve
 *                an eighth more for it
 *   link         issue_ns and the rates: the line through the times of all copies. The rates with both directions
 *                busy are measured separately, because no network keeps both busy
 *   far bytes    far_ps_per_byte: a least-squares fit of how much longer or shorter the steps of other runs without
 *                side streams took, to how many more or fewer far bytes (mm/core/time/cache_miss.h) they had. Step times are
 *                then reduced to those with warm caches
 *   contention   the two contention_permille: a least-squares fit of how much longer steps took in runs with side
 *                streams, beyond their far bytes, to how long codecs and copies ran beside them
 *   pairs        contention of each pair of kinds of work: measured separately (device_pairs.h), with the first listed
 *                codec that it takes. Pairs that it cannot measure are as the two contention_permille have them. None
 *                on the host device: steps, codecs and copies share its CPUs, so how much they slow each other hangs on
 *                the numbers of threads and on the network, which the fit to its own runs is of */
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

/* How well a run is suited for the times of steps: with side streams, without, and without under liveness. */
typedef enum collect_rank { COLLECT_NONE, COLLECT_BESIDE, COLLECT_ALONE, COLLECT_LIVENESS } collect_rank;

typedef struct collector {
    nets_lowered *lowered;
    mm_codec *codecs[MM_MAX_CODECS];
    mm_facts *facts;
    mm_copy_line copies[2];             /* [0] in, [1] out */
    int64_t both_bytes_per_s;           /* rate of each direction of the link with both busy; 0: not measured */
    int threads;                        /* CPU threads of the host device; 0: another device */
    int64_t cache_bytes;                /* of the device; 0: not known */
    collect_rank steps_from;            /* the run that gave the times of steps */
    int64_t *miss_bytes;                /* per step in that run */
    int64_t alone_ns, alone_miss_bytes; /* sums over the steps of that run, if it had no side streams */
    int64_t beyond_ns;                  /* time of an iteration of that run in no step */
    double miss_squared, miss_longer;   /* sums over runs: additional far bytes squared, and times additional ns */
    collect_contention contention;
    bool has_pairs;
    device_pairs pairs; /* with has_pairs */
    bool variants_only; /* of runs now, only times of variants are taken that there are none of yet */
} collector;

/* Begins, with the codecs of all these policies. */
MM_CHECKED mm_status collector_init(collector *c, const nets_net *net, int64_t batch, const target *target,
                                    const arg_texts *policies);
void collector_fini(collector *c);

/* Adds the times that a session measured (mm_options.measure_times). r: the row of its run. */
MM_CHECKED mm_status collector_add(collector *c, session *s, const row *r);

/* Lets `run` train under each policy by which variants run that there are no times of yet, and call collector_add. */
typedef mm_status (*collect_run)(void *ctx, const char *policy, collector *c);
MM_CHECKED mm_status collector_measure_variants(collector *c, collect_run run, void *ctx);

/* Measures what no run tells: the link with both directions busy, and, but on the host device, the pairs. */
MM_CHECKED mm_status collector_measure_device(collector *c, const target *target);

/* A time_source.fill: adds the collected times to facts of the same graph, or of an equal one. Codecs that these facts
 * do not have are left out. */
mm_status collector_fill(const void *collector, const mm_graph *graph, mm_facts *facts);

/* Writes the facts to a file. MM_ERR_IO. */
MM_CHECKED mm_status collector_save(const collector *c, const char *path);

#endif
