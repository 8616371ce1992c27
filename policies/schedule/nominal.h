/* SPDX-License-Identifier: MIT */
/* Nominal times: planners use them if no times were measured. */
#ifndef POLICIES_SCHEDULE_NOMINAL_H
#define POLICIES_SCHEDULE_NOMINAL_H

#include "mm/core/facts/facts.h"
#include "mm/core/status.h"

/* Whether the facts have no time of any step. */
bool mm_nominal_is_due(const mm_graph_facts *facts);

/* Sets the times of all steps and codes to those of the GPU described in nominal.c, and its link's rates. If the facts
 * have the memory's rate, all times but those of copies scale with it. The link's rates stay if the facts have them.
 * The ratios matter, not the times: a plan chosen by them is seldom far from the fastest on another machine. */
void mm_nominal_times(const mm_graph *graph, mm_graph_facts *facts);

/* Makes a copy of the facts with nominal times. It borrows all arrays but variants and codes. MM_ERR_NOMEM. The caller
 * frees it with mm_nominal_fini, even after a failure. */
MM_CHECKED mm_status mm_nominal_init(const mm_graph *graph, const mm_graph_facts *facts, mm_graph_facts *nominal_out);
void mm_nominal_fini(mm_graph_facts *nominal);

/* Checks that the facts have the time of every step and both rates of the link. Some policies need all these times: if
 * some were missing, a plan would count as free what was not measured. MM_ERR_INVALID: the message names what is
 * missing, and what measures it. */
MM_CHECKED mm_status mm_nominal_check_times(const mm_graph *graph, const mm_graph_facts *facts);

/* Returns MM_ERR_INVALID; the message names what the facts lack ("time of conv1 forward"), and what measures it. */
mm_status mm_nominal_lacks(const char *what);

#endif
