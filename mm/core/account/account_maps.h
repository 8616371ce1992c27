/* SPDX-License-Identifier: MIT */
/* Maps as papers on feature maps count them: without weights, workspaces and the batch. */
#ifndef MM_CORE_ACCOUNT_ACCOUNT_MAPS_H
#define MM_CORE_ACCOUNT_ACCOUNT_MAPS_H

#include "mm/core/account/account_stash.h"

/* Classes of stashed tensors, by the layers that write and read them, as in Gist (Jain et al., ISCA 2018, Figure 3). */
typedef enum mm_stash_class {
    MM_STASH_RELU_POOL, /* a ReLU's output that a pool reads, and no convolution */
    MM_STASH_RELU_CONV, /* a ReLU's output that a convolution reads */
    MM_STASH_POOL_CONV, /* a pool's output that a convolution reads */
    MM_STASH_OTHER,     /* other feature maps */
    MM_STASH_SAVED,     /* saved tensors: index maps of pools, statistics */
    MM_STASH_BATCH,     /* inputs */
    MM_STASH_CLASSES
} mm_stash_class;

const char *mm_stash_class_name(mm_stash_class class);

typedef struct mm_stash_sum {
    int64_t bytes;      /* bytes of the maps */
    int64_t held_bytes; /* bytes that the maps take under the plan between the passes, with the reserves of bodies */
} mm_stash_sum;

/* A plan's maps as papers on feature maps count them: feature maps, gradient maps, saved tensors and codes; without
 * weights, their gradients and states, and without the batch. */
typedef struct mm_map_account {
    int64_t placed_bytes;    /* bytes of the region in which the plan places the maps, without the batch, with the
                                workspaces that lie among the maps */
    int64_t dynamic_bytes;   /* most bytes at a time, without workspaces, if each map and code were allocated at its
                                first use and freed after its last */
    int64_t undecoded_bytes; /* as dynamic_bytes, if layers computed on codes directly, so that no map were decoded */
    mm_stash_sum stash[MM_STASH_CLASSES];
} mm_map_account;

/* stash: of the same plan and facts. The facts have the plan's codecs. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_map_account_init(const mm_plan *plan, const mm_graph_facts *facts,
                                         const mm_stash_account *stash, mm_map_account *account_out);

#endif
