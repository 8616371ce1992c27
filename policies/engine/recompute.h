/* SPDX-License-Identifier: MIT */
/* Private to the engine: recomputed maps. A recomputed map is dropped, and made again in the backward pass: forward
 * steps run again, in their order, from maps that are kept, fetched, or made again before it. */
#ifndef POLICIES_ENGINE_RECOMPUTE_H
#define POLICIES_ENGINE_RECOMPUTE_H

#include "policies/engine/engine_maps.h"

/* Decides whether a map can be recomputed, and fills in how. False: it cannot. The maps that it is made from must have
 * been decided before. */
bool mm_recompute_choose(const mm_schedule *schedule, mm_maps *maps, mm_recompute_mode mode, mm_map *map);

/* Joins the segment of a map with those of the maps that it is made from. Call it right after mm_recompute_choose, once
 * the map is the last of `maps`. */
void mm_recompute_join(const mm_schedule *schedule, mm_maps *maps, int map);

/* Decides for all recomputed maps whether they are kept once they were made again, or made anew for each use. Call it
 * once all maps are joined. */
void mm_recompute_choose_retaining(const mm_schedule *schedule, mm_maps *maps, mm_recompute_mode mode);

/* Bytes of the largest step: its managed tensors and its workspace. SuperNeurons' l_peak, a lower bound of the peak of
 * any recomputing plan. */
int64_t mm_recompute_layer_peak(const mm_schedule *schedule);

/* RECOMPUTE_SQRT, after Chen et al., "Training deep nets with sublinear memory cost" (2016): cuts the forward pass into
 * about sqrt(n) segments. kept: set for each map that is read across a cut. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_recompute_cut(const mm_schedule *schedule, uint8_t *kept);

#endif
