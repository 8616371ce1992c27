/* SPDX-License-Identifier: MIT */
/* Private to the engine: which rule a map is given, and what it then does with the map. */
#ifndef POLICIES_ENGINE_MAP_RULE_H
#define POLICIES_ENGINE_MAP_RULE_H

#include "policies/engine/engine_maps.h"

/* Finds what the backward pass reads of a tensor, by the schedule's aliases and last steps. */
mm_map_reads mm_map_find_reads(const mm_schedule *schedule, mm_tensor tensor);

/* Whether the tensor is a map between the passes; fills in what does not depend on a rule. */
bool mm_map_is_one(const mm_survey *survey, mm_tensor tensor, mm_map *map_out);

/* Finds the first rule that names the tensor and can serve it, and fills in the map. False: the tensor stays; it is no
 * map between the passes, or no rule serves it. Tensors that the map is made from must have been decided about. */
bool mm_map_find_rule(const mm_schedule *schedule, mm_maps *maps, const mm_engine_config *config, mm_tensor tensor,
                      mm_map *map_out);

/* Whether a gradient map may be moved out: a lean rule is assigned to it, or names it and all maps are selected. The
 * latter does not count in nested recomputation, where every choice selects all maps. */
bool mm_map_gradient_leaves(const mm_schedule *schedule, const mm_maps *maps, const mm_engine_config *config,
                            const mm_selection *selection, mm_tensor tensor);

#endif
