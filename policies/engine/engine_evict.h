/* SPDX-License-Identifier: MIT */
/* Private to the engine: the operations of a plan while it is built, and how maps are evicted in the forward pass. */
#ifndef POLICIES_ENGINE_ENGINE_EVICT_H
#define POLICIES_ENGINE_ENGINE_EVICT_H

#include "policies/engine/engine_build.h"

/* Adds an operation. Returns the node, or -1 (out of memory). */
int mm_engine_add_op(mm_engine *e, mm_node_kind kind, const mm_map *m, int src, int codec, mm_region region,
                     int64_t bytes, int *segment_out);

/* Whether the map, or its code, is copied over the link. A code with a body is not copied: its codec writes to pinned
 * memory. */
bool mm_engine_is_moved(const mm_engine *e, const mm_map *m);

/* Adds an ENCODE after node `after`. passing: the code is for pinned memory. If it has no body, it passes through the
 * general region; else only its head is on the device, and the codec writes the body to pinned memory. Returns the
 * node, or -1 (out of memory). */
int mm_engine_encode(mm_engine *e, const mm_map *m, int codec, int after, bool passing, int *code_out);

/* Adds a copy of segment `src` over the link, after node `after`. Returns the node, or -1 (out of memory). */
int mm_engine_move(mm_engine *e, mm_node_kind kind, const mm_map *m, int src, int after, mm_region region,
                   int *copy_out);

/* Makes the step write the masks of its outputs, where mask_in_step says so. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_mask_made(mm_engine *e, int step, int node);

/* Evicts the maps whose last forward use is this step. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_put_away_after(mm_engine *e, int step, int node);

/* Keeps the bytes of evicted maps from reuse for as long as the assignment says (mm_assignment.gone). */
void mm_engine_hold_until_gone(mm_engine *e);

#endif
