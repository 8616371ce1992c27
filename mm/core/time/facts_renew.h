/* SPDX-License-Identifier: MIT */
/* Updates facts with the measured times of a plan's nodes. */
#ifndef MM_CORE_TIME_FACTS_RENEW_H
#define MM_CORE_TIME_FACTS_RENEW_H

#include "mm/core/plan/program.h"

/* Updates times in `facts`: if a node took some factor longer than in the simulation, its time is multiplied by that
 * factor. So the delays that the simulation adds to a step's own time (contention, far bytes) do not become part of
 * that time in the facts. Updated are the variants of steps that ran, codes that were encoded or decoded on the device,
 * and the link's rates, from all copies of a direction; the rest stays. planned: the facts that were simulated. facts:
 * of the same graph, with the same codecs at the same indices, and at first with the same times. simulated_ns,
 * measured_ns: per node; 0: not known. */
void mm_facts_renew(const mm_program *program, const mm_graph_facts *planned, const int64_t *simulated_ns,
                    const int64_t *measured_ns, mm_graph_facts *facts);

#endif
