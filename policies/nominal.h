/* Nominal times: planners choose by them if no times were measured. */
#ifndef POLICIES_NOMINAL_H
#define POLICIES_NOMINAL_H

#include "mm/core/facts.h"

/* Whether the facts have no step's time. */
bool mm_nominal_is_due(const mm_facts *facts);

/* Sets the times of all steps and codes to those of the GPU described in nominal.c, and its link's rates. If the facts
 * have a rate of the memory, all times but the link's scale with it. Rates of the link that the facts have stay. The
 * ratios matter, not the times: a plan chosen by them is seldom far from the fastest on another machine. */
void mm_nominal_times(const mm_graph *graph, mm_facts *facts);

#endif
