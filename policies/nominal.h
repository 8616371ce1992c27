/* Times to choose a plan by where nobody has measured any. */
#ifndef POLICIES_NOMINAL_H
#define POLICIES_NOMINAL_H

#include "mm/core/facts.h"

/* Whether the facts have no time of any step. */
bool mm_nominal_is_due(const mm_facts *facts);

/* Gives every step, copy and code the time that it would take on a GPU of some years ago (nominal.c), whose memory is
 * as fast as the facts say, if they do, and all else with it. What is right about them is how they compare: what is
 * chosen by them is seldom far from the fastest on another. A rate of the link that the facts have stays. */
void mm_nominal_times(const mm_graph *graph, mm_facts *facts);

#endif
