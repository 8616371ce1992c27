/* SPDX-License-Identifier: MIT */
/* Private to the engine: the maps that it acts on, and what it does with each. */
#ifndef POLICIES_ENGINE_ENGINE_MAPS_H
#define POLICIES_ENGINE_ENGINE_MAPS_H

#include "policies/engine/engine.h"
#include "policies/engine/engine_survey.h"

/* A map that the engine acts on. Codec and segment numbers are indices; steps are the graph's. */
typedef struct mm_map {
    mm_tensor tensor;
    mm_action action;
    int rule;              /* the rule that was taken */
    int codec;             /* codec of its elements, in the facts; -1: none */
    int last_forward;      /* step after which it is evicted or dropped */
    int first_backward;    /* first backward step that reads it */
    int needed;            /* first backward step that reads it, or a map that is made from it */
    int last_value;        /* last backward step that reads its elements; -1: only its sign is read */
    bool value, sign;      /* forms that must be there in the backward pass: elements, mask */
    bool anew;             /* RECOMPUTE: made again for each backward step; else once, and then kept */
    uint8_t level;         /* RECOMPUTE: kept until the backward pass is past a cut of a smaller level (mm_nesting) */
    bool expensive;        /* RECOMPUTE: its rule names its layer's kind, so the layer may be expensive */
    bool exact;            /* RECOMPUTE: comes back bit for bit */
    bool lean;             /* SWAP: moved out between backward readers that are far apart (mm_rule.lean) */
    bool late;             /* SWAP: its mask is made when it has come back, and serves readers of signs from then on */
    bool again;            /* SWAP: it has come back and left again, so it is fetched when its next reader is due */
    bool in_step;          /* CODE: its last forward step writes the code of its elements, and backward steps read it */
    bool mask_in_step;     /* the step that writes it writes its mask, too */
    bool along;            /* RECOMPUTE: only made together with another output of its step, like a pool's index map */
    int segment;           /* RECOMPUTE: union-find link towards the last map of its segment (mm_recompute_mode) */
    int64_t segment_bytes; /* for that last map: bytes of the whole segment */
    int counted;           /* number of the search that last added up its segment */
    /* while the plan is built */
    int away_node, away_segment; /* last operation of its eviction, and the segment that it wrote */
    int away_first, away_end; /* operations of its eviction: nodes from away_first to before away_end; both 0: none */
} mm_map;

typedef struct mm_maps {
    mm_map *maps; /* in order of first use */
    int n;
    int *map_of;   /* per tensor: its map; -1: none */
    int *queue;    /* maps to fetch ahead, by first backward use; -1: a map that is kept, so nothing to fetch */
    int64_t *keys; /* the queue's sort keys */
    int n_queue;
    int *ended;         /* per step: number of kept maps in the queue that it is the last to read */
    uint8_t *region_of; /* per tensor: region of its storage */
    uint8_t *leaves;    /* per tensor: a gradient map that leaves between far steps (engine_gradients.h) */
    int eligible;       /* number of eligible maps so far */
    int *of_rule;       /* the same, per rule */
    const mm_survey *survey;
    const mm_assignment *assigned; /* NULL: each rule applies to the maps that its selector names */
    const uint8_t *level, *cut;    /* RECOMPUTE_NESTED: per tensor and step, as in mm_nesting; NULL: another mode */
    int *mark, marks; /* mark: per tensor, the number of the last search that reached it; marks: searches so far */
    mm_tensor *met;   /* tensors that the last search reached */
    int n_met;
} mm_maps;

/* Finds the eligible maps, and fills in those that are selected. Splits in-place pairs of the schedule that would write
 * over a map. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_maps_init(mm_maps *maps, const mm_survey *survey, mm_schedule *schedule,
                                  const mm_engine_config *config, const mm_selection *selection);
void mm_maps_fini(mm_maps *maps);

/* The step before which a map's fetch begins. There must be an assignment with `fetch`. */
static inline int mm_maps_fetch_step(const mm_maps *maps, const mm_map *map) {
    const int step = maps->assigned->fetch[map->tensor];
    return step < map->needed ? step : map->needed;
}

/* Makes readers of the map's signs read them from its elements, which come back exactly; it needs no mask then. */
static inline void mm_maps_read_signs_from_value(const mm_schedule *schedule, mm_map *map) {
    map->value = true;
    map->sign = false;
    map->last_value = schedule->tensors[map->tensor].last_step;
}

#endif
