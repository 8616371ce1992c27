/* SPDX-License-Identifier: MIT */
/* Private to onto_disk.c: the stays on the disk that a plan can have, and when loads begin and stores end. */
#ifndef POLICIES_SCHEDULE_DISK_STAYS_H
#define POLICIES_SCHEDULE_DISK_STAYS_H

#include "mm/core/plan/plan.h"
#include "mm/core/status.h"
#include "mm/core/time/simulate.h"

/* A segment in pinned memory that can wait on the disk between two of its uses. Or a home, which the plan has in pinned
 * memory, and the copy on the disk: it is stored after each node that writes it, and loaded before each that reads it;
 * each is a stay of its own. A step on the host that modifies it has both, one after the other. */
typedef struct mm_stay {
    int32_t segment;
    int32_t from, to;   /* the nodes that use it before and after; of a home's: the first step, and the end of the plan,
                           if none does */
    int64_t gap_ns;     /* time between them */
    bool at_home;       /* it is a home's */
    bool stores, loads; /* one of both, of a home's; else both */
    bool chosen;        /* it goes to the disk; a home's always does */
    int32_t load_at;    /* the node right before which it is loaded */
    int32_t free_after; /* a node at which its bytes are still kept, because the store may not have ended; -1: none */
    /* In the copy: its segment on the disk, and the one it is loaded to; the nodes that do both; -1: none does. */
    int32_t disk, back, store_node, load_node;
} mm_stay;

/* How early loads begin, and how long segments are kept for stores. */
typedef enum mm_pace {
    MM_PACE_LATE, /* a load comes right before its reader, bytes are free after the store: the least pinned memory */
    MM_PACE_TIMED /* as the simulation of the plan has the times of the nodes */
} mm_pace;

typedef struct mm_stays {
    const mm_plan *plan;
    const mm_graph_facts *facts; /* with times */
    const mm_place *places;      /* of homes in the copy; NULL: all are on the device */
    mm_sim_node *at;             /* per node of the plan: its simulated times; borrowed */
    mm_stay *stays; /* those of maps, the farthest next use first; then those of homes, in the order of nodes */
    int n, n_maps;
    int32_t *by_use; /* numbers of stays, in the order of `to` */
    int32_t *visit;  /* per node of the plan: the first stay of a home that it reads or writes; -1: none */
} mm_stays;

/* Finds the stays; plan, facts, places and at are set. MM_ERR_NOMEM. The caller calls mm_stays_fini, also then. */
MM_CHECKED mm_status mm_stays_find(mm_stays *stays);
void mm_stays_fini(mm_stays *stays);

/* The next stay of a home at a node, from number *next on (begin with visit[node]); moves *next on. NULL: no more. */
mm_stay *mm_stays_next(const mm_stays *stays, int node, int *next);

/* Sets where the loads of the chosen stays come: so early that they are done in time, one after the other. */
void mm_stays_time_loads(mm_stays *stays, mm_pace pace);
/* Sets until when the segments of the chosen stays are kept, for stores one after the other. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stays_time_stores(mm_stays *stays, mm_pace pace);

#endif
