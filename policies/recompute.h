/* Maps that are dropped and made again: which can be, and what becomes of them once they are there. A map is made by
 * running forward steps again, in their order, from what is kept, fetched or was made on the way. */
#ifndef POLICIES_RECOMPUTE_H
#define POLICIES_RECOMPUTE_H

#include "policies/engine_maps.h"

/* Settles what a rule's `recompute` does to the map; false if it cannot be made again when it is needed. What the map
 * is made of has been settled. */
bool mm_recompute_settle(const mm_schedule *schedule, mm_maps *maps, mm_recompute_mode mode, mm_map *map);

/* To be called when a map that was settled so has become the maps' last: joins its segment with those of the maps that
 * it is made of. */
void mm_recompute_join(const mm_schedule *schedule, mm_maps *maps, int map);

/* Settles of all such maps whether they are kept from their first use on, or made anew for each. */
void mm_recompute_settle_keeping(mm_maps *maps, mm_recompute_mode mode);

/* The most that one layer's step takes: SuperNeurons' l_peak, below which no plan of its kind comes. */
int64_t mm_recompute_layer_peak(const mm_schedule *schedule);

/* Chen et al., "Training deep nets with sublinear memory cost" (2016): cuts the forward pass into about sqrt(n)
 * segments, and marks the maps that are read across a cut, which are kept. */
MM_CHECKED mm_status mm_recompute_cut(const mm_schedule *schedule, uint8_t *kept);

#endif
