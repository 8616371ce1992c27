/* SPDX-License-Identifier: MIT */
/* Private to the engine: what a survey (engine.h) has found. */
#ifndef POLICIES_ENGINE_ENGINE_SURVEY_H
#define POLICIES_ENGINE_ENGINE_SURVEY_H

#include "policies/engine/engine.h"
#include "policies/engine/recompute_levels.h"
#include "policies/schedule/schedule.h"

/* What the backward pass reads of a tensor. It is the same in all selections of maps, so it is found once. */
typedef struct mm_map_reads {
    bool is_map;      /* the tensor is a map between the passes; else all else is unset */
    bool value, sign; /* as in mm_map, like last_value */
    int last_value;
} mm_map_reads;

struct mm_survey {
    const mm_graph *graph;
    const mm_graph_facts *facts;
    const mm_limits *limits;
    mm_schedule begun;   /* a schedule with the configuration's sharing, before its first step */
    mm_tensor *order;    /* all tensors, in order of first use */
    uint8_t *kept;       /* per tensor: RECOMPUTE_SQRT keeps it, and makes other maps from it */
    mm_map_reads *reads; /* per tensor */
    mm_recompute_mode mode;
    mm_nesting nesting; /* RECOMPUTE_NESTED and the modes after it */
    bool borrows;       /* `nesting` is another survey's */
    uint8_t *named;     /* [rule][term][layer]: that term of the rule's selector names the layer */
    int64_t layer_peak; /* RECOMPUTE_COST: bytes of the largest layer's step */
};

/* For qsort: int64_t keys in rising order. */
static inline int mm_survey_by_key(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

#endif
