/* SPDX-License-Identifier: MIT */
/* Error bounds of tensors, for codecs that read theirs on the device (mm_codec_flags.reads_bound). Not public: whoever
 * runs a policy that chooses bounds by what it observes sets them. */
#ifndef MM_MANAGER_BOUNDS_H
#define MM_MANAGER_BOUNDS_H

#include "mm/core/graph/graph.h"

/* Sets the bound of a tensor of a prepared graph, for iterations that begin from now on. It stays until it is set again
 * or the graph is forgotten, whatever policy runs; it is 0 at first. Recordings stay valid. Does not wait. Between
 * iterations only. MM_ERR_NOT_FOUND: the graph was not prepared. MM_ERR_INVALID: no such tensor, or a bound that is
 * negative or not finite. */
MM_CHECKED mm_status mm_bound_set(mm_manager *manager, const mm_graph *graph, mm_tensor tensor, float bound);
/* What was set last; 0: nothing was. Errors of mm_bound_set. */
MM_CHECKED mm_status mm_bound_get(mm_manager *manager, const mm_graph *graph, mm_tensor tensor, float *bound_out);

#endif
