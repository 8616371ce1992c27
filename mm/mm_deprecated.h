/* SPDX-License-Identifier: MIT */
/* For programs that were written for version 0.14: its names, which version 0.17 removes. mm.h includes this, unless
 * MM_NO_DEPRECATED is defined. */
#ifndef MM_MM_DEPRECATED_H
#define MM_MM_DEPRECATED_H

#include "mm/mm_comm.h"
#include "mm/mm_stash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All-reduces (mm_comm.h). */
#define MM_SHARE_NOT              MM_ALLREDUCE_NOT
#define MM_SHARE_AT_ONCE          MM_ALLREDUCE_AT_ONCE
#define MM_SHARE_AT_END           MM_ALLREDUCE_AT_END
#define MM_SHARE_IN_PLACE_AT_ONCE MM_ALLREDUCE_IN_PLACE_AT_ONCE
#define MM_SHARE_IN_PLACE_AT_END  MM_ALLREDUCE_IN_PLACE_AT_END
#define MM_SHARED_SUM             MM_REDUCE_SUM
#define MM_SHARED_MEAN            MM_REDUCE_MEAN
typedef mm_allreduce_when mm_share;
typedef mm_reduce_op mm_shared_as;
typedef mm_allreduce_part mm_shared;
typedef mm_allreduce_fns mm_gradient_fns;
MM_API MM_CHECKED MM_DEPRECATED("use mm_graph_allreduce") mm_status
    mm_graph_share_as(mm_graph *graph, mm_tensor tensor, mm_share when, mm_shared_as as);
MM_API MM_CHECKED MM_DEPRECATED("use mm_graph_allreduce with MM_REDUCE_SUM") mm_status
    mm_graph_share(mm_graph *graph, mm_tensor tensor, mm_share when);
MM_API MM_CHECKED MM_DEPRECATED("use mm_allreduce_set") mm_status
    mm_gradient_set(mm_manager *manager, const mm_graph *graph, const mm_gradient_fns *fns, void *ctx);

/* Layers (mm.h). */
#define MM_LAYER_DEAR MM_LAYER_EXPENSIVE

/* Sampling (mm.h). */
MM_API MM_CHECKED MM_DEPRECATED("use mm_sampling_report") mm_status
    mm_sampling_tell(mm_manager *manager, const mm_graph *graph, mm_tensor weight, double sigma);

/* The stash (mm_stash.h). */
MM_API MM_DEPRECATED("use mm_stash_release") void mm_stash_give_back(mm_stash *stash, mm_stash_entry entry,
                                                                     void *stream);
MM_API MM_DEPRECATED("use mm_stash_iteration_end") void mm_stash_mark(mm_stash *stash);
MM_API MM_CHECKED MM_DEPRECATED("use mm_stash_wait_planned") mm_status mm_stash_settle(mm_stash *stash);

#ifdef __cplusplus
}
#endif
#endif
