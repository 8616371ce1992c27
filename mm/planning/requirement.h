/* SPDX-License-Identifier: MIT */
/* What graphs need together under a policy (mm/mm_plan.h), planned without a device. */
#ifndef MM_PLANNING_REQUIREMENT_H
#define MM_PLANNING_REQUIREMENT_H

#include "mm/core/account/account.h"
#include "mm/planning/persistent_table.h"
#include "mm/planning/planning.h"

typedef struct mm_requirement_request {
    const mm_graph *const *graphs; /* frozen */
    int n;
    const mm_persistent_table *beside; /* persistent tensors that lie in the arena already; NULL: none */
    const mm_facts *facts;             /* measured times; NULL: none */
    const char *policy;
    mm_rates rates;        /* of the device */
    mm_plan_limits limits; /* device: as the codecs' table has it, not NULL */
} mm_requirement_request;

/* Makes an account's steps as an mm_held_step each. The caller frees them. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_requirement_timeline(const mm_account *account, mm_held_step **timeline_out);

/* Lists a plan's persistent tensors (mm_graph_requirement.housed). The caller frees the list, and with it the visits.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_requirement_housed(const mm_plan *plan, mm_housed **housed_out, int *n_out);

/* mm_requirement_get of frozen graphs, with limits that were checked. */
MM_CHECKED mm_status mm_requirement_make(const mm_requirement_request *request, mm_requirement **requirement_out);

#endif
