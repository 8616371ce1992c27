/* A network at a batch, lowered once, and what each policy would do to it at a budget, by the simulator. */
#ifndef TOOLS_SIMULATED_H
#define TOOLS_SIMULATED_H

#include "mm/core/simulate.h"
#include "mm/planning.h"
#include "nets/lower.h"
#include "tools/target.h"

typedef struct simulated {
    nets_lowered *lowered;
    const target *target;
    int64_t staged_bytes; /* that it takes for batches to come in beside the computation; plans do without */
} simulated;

/* The net must outlive it. */
MM_CHECKED mm_status simulated_init(simulated *s, const nets_net *net, int64_t batch, const target *target);
void simulated_fini(simulated *s);

/* The times of a plan come from here. */
typedef struct time_source {
    mm_status (*fill)(const void *ctx, const mm_graph *graph, mm_facts *facts);
    const void *ctx;
    bool planned_with; /* the policy sees them too, as with 'mm plan --facts'; else what a manager has: the device's
                         rates */
} time_source;

typedef struct simulated_run {
    int64_t peak_bytes, stash_bytes, pinned_bytes;
    char holder[256]; /* the step that holds the peak */
    bool fits;
    char untimed[MM_SPEC_CAPACITY]; /* what the source has no time of, "": nothing */
    int64_t iteration_ns, codec_ns; /* they hold if nothing is untimed */
    int codec_hidden_permille;
    uint64_t nodes_hash; /* of what the plan does, in its order: equal for plans that do the same */
} simulated_run;

/* Budgets of 0: as much as it takes, which makes the plan with the lowest peak. source NULL: no times. */
MM_CHECKED mm_status simulated_policy(const simulated *s, const char *policy, int64_t budget_bytes,
                                      int64_t pinned_bytes, const time_source *source, simulated_run *run_out);

/* A side stream's operation of which the facts have no time, in words: a simulation would count it as nothing. NULL:
 * all are known. */
const char *simulated_untimed(const mm_plan *plan, const mm_facts *facts);

#endif
