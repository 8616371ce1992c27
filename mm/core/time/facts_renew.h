/* SPDX-License-Identifier: MIT */
/* Renews facts by what a plan's nodes were measured to take. */
#ifndef MM_CORE_TIME_FACTS_RENEW_H
#define MM_CORE_TIME_FACTS_RENEW_H

#include "mm/core/plan/program.h"

/* Puts measured times into `facts`: what took longer than in the simulation takes longer in them by the same factor. So
 * contention and far bytes, which the simulation adds to a step's own time, are not taken for the step's. Renewed are
 * the variants of steps that ran, codes that were encoded or decoded on the device, and the link's rates, by all copies
 * of a direction; the rest stays. facts: of the plan's graph, with the codecs of `planned` at the same places, and with
 * its times. planned: the facts that were simulated. simulated_ns, measured_ns: per node; 0: not known. */
void mm_facts_renew(const mm_program *program, const mm_facts *planned, const int64_t *simulated_ns,
                    const int64_t *measured_ns, mm_facts *facts);

#endif
