/* SPDX-License-Identifier: MIT */
/* Predicts a plan's times from facts, by an event simulation of its streams. Pure and deterministic. */
#ifndef MM_CORE_TIME_SIMULATE_H
#define MM_CORE_TIME_SIMULATE_H

#include "mm/core/plan/program.h"
#include "mm/core/time/node_time.h"

typedef struct mm_sim_node {
    int64_t start_ns, end_ns;
    int64_t live_bytes; /* device bytes alive at the node in issue order: base, segments, external tensors */
} mm_sim_node;

typedef struct mm_simulation {
    int64_t iteration_ns;
    int64_t compute_ns; /* time in which the compute stream runs steps */
    int64_t stall_ns;   /* time in which the compute stream waits, from the start of the first step to the end of the
                           last */
    int64_t busy_ns[MM_STREAM_COUNT];
    int64_t exposed_ns[MM_STREAM_COUNT]; /* for each side stream: how long the compute stream waited for that stream
                                            (mm_program_waits) */
    int hidden_permille;       /* share of the side streams' busy time in which the compute stream did not wait: 1000 *
                                  (1 - stall / side busy), clamped; 1000 if the side streams do nothing */
    int codec_hidden_permille; /* share of the codecs' busy time in which the compute stream did not wait for a codec
                                  (mm_program_codec_wait); waits for the link do not count */
    int n_nodes;
    mm_sim_node *nodes;
    mm_period *spans; /* per piece of the program, then per all-reduce in place (mm_plan_allreduce_groups) */
    int n_spans;
} mm_simulation;

/* Simulates one iteration. A piece (program.h) starts when its stream is free and the pieces that it waits for have
 * ended. It takes the time in the facts. Contention: all work takes longer while other streams work; the facts have a
 * delay for each pair of kinds (mm_contention), and delays add up. Steps take longer by their far bytes (cache_miss.h).
 * Codecs: bodies of codes take their typical bytes, one after the other in their pool. If a part of a body lies in the
 * spill, the time of that part on the link is added to the codec's time. If the pool or the code lies in pinned memory,
 * the longer of the two times counts. A codec that moves bytes over the link keeps the link busy; busy_ns of the copy
 * streams does not include this. Copies run at the link's rate at each moment, and take issue_ns more. An allocation or
 * free at run time takes alloc_ns, with all streams idle. Several ranks (mm_facts_set_ranks) all do the same at the
 * same time. Sums of tensors that are all-reduced through copies (mm_graph_allreduce) run on the host one after the
 * other, in the order in which the tensors arrive; the copy back waits for its sum. All-reduces in place begin after
 * the steps that write their tensors, and run one after the other; the update waits for the sums that it uses. They
 * slow nothing down. The caller frees the result. MM_ERR_INVALID: facts out of range (facts.h); MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_program_simulate(const mm_program *program, const mm_graph_facts *facts,
                                         mm_simulation *simulation_out);

/* The time of an iteration alone; 0: the facts lack times that the plan needs (mm_plan_untimed). Errors as above. */
MM_CHECKED mm_status mm_program_predict(const mm_program *program, const mm_graph_facts *facts, int64_t *ns_out);

/* Lowers a plan, and simulates its program. Errors of mm_program_init and of mm_program_simulate. */
MM_CHECKED mm_status mm_simulate(const mm_plan *plan, const mm_graph_facts *facts, mm_simulation *simulation_out);
void mm_simulation_fini(mm_simulation *simulation);

#endif
