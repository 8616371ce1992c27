/* SPDX-License-Identifier: MIT */
/* A network at a batch, in sub-batches or whole, lowered once, to simulate policies and budgets on. */
#ifndef TOOLS_SIMULATED_H
#define TOOLS_SIMULATED_H

#include "mm/core/time/simulate.h"
#include "mm/planning/planning.h"
#include "nets/exec/exec.h"
#include "tools/target.h"

typedef struct simulated {
    nets_exec_graph graphs[NETS_PASSES];
    nets_lowered *lowered[NETS_PASSES];
    int n; /* passes that differ; 0: nothing is lowered */
    bool fused;
    const mm_graph *beside; /* the fused one, where both are planned: requirement_hasten; NULL: this one alone */
    int64_t batch, sub_batch;
    const target *target;
    int64_t staged_bytes; /* bytes for staging batches; plans are without */
} simulated;

/* sub_batch: the batch, for whole ones. The net must outlive it. */
MM_CHECKED mm_status simulated_init(simulated *s, const nets_net *net, int64_t batch, int64_t sub_batch,
                                    const target *target);
/* Legal on a zeroed one. */
void simulated_fini(simulated *s);

/* A source of times. */
typedef struct time_source {
    mm_status (*fill)(const void *ctx, const mm_graph *graph, mm_facts *facts); /* adds times to facts of the graph */
    const void *ctx;
    bool planned_with; /* the policy plans by these times too, as `mm plan --facts`; else by the device's rates, as a
                          manager does */
} time_source;

/* Of all passes: the most bytes of any, and the time of all. */
typedef struct simulated_run {
    int64_t peak_bytes, stash_bytes, pinned_bytes;
    int64_t moved_bytes, steps_again; /* of an iteration */
    int64_t fused_bytes;              /* of a budget of 0 that was planned fused and not: the peak, fused */
    char holder[256];                 /* the step that holds the peak */
    bool fits;
    bool fused;                     /* layers are (nets/lower/fuse.h) */
    bool cut_short;                 /* the search for a plan was stopped (mm_plan) */
    const char *pinned_hint;        /* mm_plan_pinned_hint */
    char untimed[MM_SPEC_CAPACITY]; /* an operation that the source has no time of; "": none */
    int64_t iteration_ns, codec_ns; /* valid if `untimed` is "" */
    int64_t bound_ns;               /* no plan takes less (mm/core/time/time_bound.h); 0: not known */
    double hidden_ns;               /* of codec_ns */
    uint64_t nodes_hash;            /* hash of the plans' nodes in order; equal for plans that do the same */
} simulated_run;

/* Plans and simulates. budget_bytes 0: as much as the plan with the lowest peak needs; pinned_bytes
 * PINNED_OPEN: no limit. source NULL: no times. */
MM_CHECKED mm_status simulated_policy(const simulated *s, const char *policy, int64_t budget_bytes,
                                      int64_t pinned_bytes, const time_source *source, simulated_run *run_out);

/* The name of an operation that the facts have no time of, so that a simulation would count it as 0; NULL: there is
 * none. */
const char *simulated_untimed(const mm_plan *plan, const mm_facts *facts);

#endif
