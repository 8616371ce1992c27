/* SPDX-License-Identifier: MIT */
/* Times of a plan's nodes, each running alone, from facts. */
#ifndef MM_CORE_TIME_NODE_TIME_H
#define MM_CORE_TIME_NODE_TIME_H

#include "mm/core/plan/plan.h"

/* Time of a node that runs a step, alone and with warm caches. A recomputation that is given a result (mm_node.given)
 * takes two thirds of the time: it is taken for a batch norm that is given its statistics, and so skips one of its
 * three passes over the map. */
int64_t mm_simulate_step_ns(const mm_graph_facts *facts, const mm_node *node);

/* Time of a plan's steps alone, each run once. */
int64_t mm_plan_steps_ns(const mm_plan *plan, const mm_graph_facts *facts);

/* Time of any node alone: for a copy without the time to issue it, for a codec without what it moves over the link. */
int64_t mm_simulate_node_ns(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *node);

/* Time of an access to the disk, at one of its two rates (mm_graph_facts). */
int64_t mm_disk_ns(const mm_graph_facts *facts, int64_t rate, int64_t bytes);

/* Time of bytes at a rate; 0 if the rate is not known. */
int64_t mm_rate_ns(int64_t rate, int64_t bytes);

/* ns + more; a sum above MM_NS_MOST does not overflow: it stays above MM_NS_MOST, and is refused later. */
int64_t mm_add_ns(int64_t ns, double more);

#endif
