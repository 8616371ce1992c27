/* What a plan would take, from facts alone: an event simulation of its streams. */
#ifndef MM_CORE_SIMULATE_H
#define MM_CORE_SIMULATE_H

#include "mm/core/program.h"

typedef struct mm_sim_node {
    int64_t start_ns, end_ns;
    int64_t live_bytes; /* device bytes alive while it runs, in issue order: base, segments, external */
} mm_sim_node;

typedef struct mm_simulation {
    int64_t iteration_ns;
    int64_t compute_ns; /* the compute stream at work */
    int64_t stall_ns;   /* the compute stream waiting, from first step to last */
    int64_t busy_ns[MM_STREAM_COUNT];
    int hidden_permille;       /* of the side streams' work, what did not lengthen the iteration:
                            1000 * (1 - stall / side busy), clamped; 1000 if there is none */
    int codec_hidden_permille; /* of the codecs' work, what the computation did not wait for: it may wait for the link,
                                  and for codecs that do */
    int n_nodes;
    mm_sim_node *nodes;
} mm_simulation;

/* What a node that runs a step takes alone, and finds all near. Run again with something given, it is taken for a batch
 * norm that was given its statistics: of its three passes over the map, the one that makes them is left out. */
int64_t mm_simulate_step_ns(const mm_facts *facts, const mm_node *node);

/* Each piece of a node (program.h) starts when its stream is free and its waits have ended, and takes its facts' ns:
 * steps longer by the contention while side streams work, copies at the rate of the link as it is at each moment.
 * Steps take longer by what they do not find in the caches.
 * A copy begins with issue_ns, which the codecs' times have in them. Memory is allocated and freed at run
 * time with every stream idle (facts.h). Deterministic. MM_ERR_INVALID: facts out of range (facts.h). */
MM_CHECKED mm_status mm_program_simulate(const mm_program *program, const mm_facts *facts,
                                         mm_simulation *simulation_out);

/* The same of a plan that is lowered for this alone. */
MM_CHECKED mm_status mm_simulate(const mm_plan *plan, const mm_facts *facts, mm_simulation *simulation_out);
void mm_simulation_fini(mm_simulation *simulation);

#endif
