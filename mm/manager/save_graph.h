/* SPDX-License-Identifier: MIT */
/* Writes a manager's graphs to the file that the environment's MM_SAVE_GRAPH names (mm/mm_plan.h). */
#ifndef MM_MANAGER_SAVE_GRAPH_H
#define MM_MANAGER_SAVE_GRAPH_H

#include "mm/manager/manager.h"

/* Writes the prepared graphs, and the one that is to be prepared. Without the variable, does nothing; a failure is a
 * warning in the log. */
void mm_manager_save_graphs(mm_manager *manager, const mm_graph *added);

#endif
