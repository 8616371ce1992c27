/* SPDX-License-Identifier: MIT */
/* Moves what a finished plan keeps in pinned memory for long on to the disk: maps, codes, and homes. */
#ifndef POLICIES_SCHEDULE_ONTO_DISK_H
#define POLICIES_SCHEDULE_ONTO_DISK_H

#include "mm/core/plan/plan.h"

/* Makes a copy of the plan that fits the limits of pinned memory and of the disk, if there is one: maps and codes are
 * stored on the disk and loaded again, so that others can use their pinned memory meanwhile. As few as that needs, and
 * those first whose next use is farthest in time; stores and loads overlap with the computation as far as the pinned
 * memory allows. What lies on the device stays where it is. Without measured times it goes by nominal ones. The plan
 * must have no copies of all-reduced tensors yet.
 *
 * Homes that the limits have on the disk are in pinned memory in the given plan; in the copy all homes are where the
 * limits have them. MM_ERR_INFEASIBLE: no such plan fits, and the limits have none of the graph's homes on the disk; if
 * they have some, the plan that needs least pinned memory. MM_ERR_NOMEM. The caller destroys *plan_out. */
MM_CHECKED mm_status mm_schedule_onto_disk(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits,
                                           mm_plan **plan_out);

#endif
