/* Facts of one network and batch, collected while policies run it.
 *
 *   steps        from a run without side streams, the one under liveness if there is one. The first step takes what the
 *                iteration takes beyond all others
 *   codecs       from the runs that use them
 *   link         what a copy takes is a constant (issue_ns) and its bytes at a rate: the line through all copies
 *                both ways at once: no network keeps both busy, so that is measured by itself
 *   far bytes    what the steps of other runs without side streams took longer, or less, as a part of the bytes that
 *                they found in the cache less, or more, often: the part that explains all runs best. Less that, the
 *                steps' times are of steps that find all near
 *   contention   what computation took longer in the runs with side streams, as a part of the time that codecs and
 *                copies worked beside it, and beyond what it did not find near: the two parts that explain all runs
 *                best */
#ifndef TOOLS_COLLECT_H
#define TOOLS_COLLECT_H

#include "mm/measured.h"
#include "tools/requirement.h"
#include "tools/session.h"
#include "tools/target.h"

/* Of runs with side streams: time that codecs (c) and copies (l) worked beside the computation, and how much longer
 * that took (y), multiplied and summed up. */
typedef struct collect_contention {
    double cc, cl, ll, cy, ly;
    double cf, lf; /* and how many bytes more it did not find near */
} collect_contention;

/* How good a run is for the times of steps. */
typedef enum collect_rank { COLLECT_NONE, COLLECT_BESIDE, COLLECT_ALONE, COLLECT_LIVENESS } collect_rank;

typedef struct collector {
    nets_lowered *lowered;
    mm_codec *codecs[MM_MAX_CODECS];
    mm_facts *facts;
    mm_copy_line copies[2];   /* in, and out */
    int64_t both_bytes_per_s; /* each way of the link while both are busy; 0: not measured */
    int threads;              /* of the host device; 0: another device */
    int64_t cache_bytes;      /* of the device; 0: not known */
    collect_rank steps_from;
    int64_t *far_bytes;                /* per step, in that run */
    int64_t alone_ns, alone_far_bytes; /* of all steps there, if that had no side streams */
    int64_t beyond_ns;                 /* of an iteration, beyond its steps, there */
    double far_squared,
        far_longer; /* sums of how many bytes more a run did not find near, squared, and times ns more */
    collect_contention contention;
} collector;

/* For every codec that any of the policies uses. */
MM_CHECKED mm_status collector_init(collector *c, const nets_net *net, int64_t batch, const target *target,
                                    const arg_texts *policies);
void collector_fini(collector *c);

/* Takes what a session measured (mm_options.measure_times), and the row of its run. */
MM_CHECKED mm_status collector_add(collector *c, session *s, const row *r);

/* Measures the link with both ways busy. */
MM_CHECKED mm_status collector_measure_link(collector *c, const target *target);

/* Adds what was collected to facts of the same graph, or of an equal one; of codecs that it does not know, nothing. A
 * time_source's fill. */
mm_status collector_fill(const void *collector, const mm_graph *graph, mm_facts *facts);

MM_CHECKED mm_status collector_save(const collector *c, const char *path);

#endif
