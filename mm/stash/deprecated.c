/* SPDX-License-Identifier: MIT */
/* The functions of mm_deprecated.h: each is one of the present interface under its old name. */
#include "mm/mm.h"

mm_status mm_graph_share_as(mm_graph *graph, mm_tensor tensor, mm_share when, mm_shared_as as) {
    return mm_graph_allreduce(graph, tensor, when, as);
}

mm_status mm_graph_share(mm_graph *graph, mm_tensor tensor, mm_share when) {
    return mm_graph_allreduce(graph, tensor, when, MM_REDUCE_SUM);
}

mm_status mm_gradient_set(mm_manager *manager, const mm_graph *graph, const mm_gradient_fns *fns, void *ctx) {
    return mm_allreduce_set(manager, graph, fns, ctx);
}

mm_status mm_sampling_tell(mm_manager *manager, const mm_graph *graph, mm_tensor weight, double sigma) {
    return mm_sampling_report(manager, graph, weight, sigma);
}

void mm_stash_give_back(mm_stash *stash, mm_stash_entry entry, void *stream) { mm_stash_release(stash, entry, stream); }

void mm_stash_mark(mm_stash *stash) { mm_stash_iteration_end(stash); }

mm_status mm_stash_settle(mm_stash *stash) { return mm_stash_wait_planned(stash); }
