/* Which maps the engine has to do with, and what is to become of each. */
#ifndef POLICIES_ENGINE_MAPS_H
#define POLICIES_ENGINE_MAPS_H

#include "policies/engine.h"

/* What the plans of a graph have in common. */
struct mm_survey {
    const mm_graph *graph;
    const mm_facts *facts;
    const mm_limits *limits;
    mm_tensor *order;   /* tensors as they are first used */
    uint8_t *kept;      /* per tensor: kept for the others to be made of */
    uint8_t *named;     /* of each rule, per layer: it names it */
    int64_t layer_peak; /* for recomputing by cost */
};

/* A map that a rule names. */
typedef struct mm_map {
    mm_tensor tensor;
    mm_action action;
    int rule;              /* that says so */
    int codec;             /* in the facts, of its elements; -1: none */
    int last_forward;      /* step after which it is put away */
    int first_backward;    /* step that first reads it again */
    int needed;            /* step that first needs it again: to read it, or what is made of it */
    int last_value;        /* last backward step that reads its elements; -1: only its sign is read */
    bool value, sign;      /* what is put away: elements, mask */
    bool anew;             /* RECOMPUTE: for each backward step; else once, and kept */
    bool exact;            /* RECOMPUTE: bit for bit */
    bool along;            /* RECOMPUTE: with another output of its step, and only then: a pool's index map */
    int segment;           /* RECOMPUTE: leads to the last map of its segment, those that are made of one another */
    int64_t segment_bytes; /* if it is that one: what they all take */
    int counted;           /* in the search of that number */
    /* while the plan is built */
    int away_node, away_segment; /* last operation that put the elements away, and where they are then */
} mm_map;

typedef struct mm_maps {
    mm_map *maps; /* as they are made: those used longest ago at the turn of the iteration first */
    int n;
    int *map_of;   /* per tensor; -1 */
    int *queue;    /* maps whose elements must be fetched ahead, by first backward use; -1: one that is kept */
    int64_t *keys; /* the queue while it is made */
    int n_queue;
    int *ended;         /* per step: how many of those that are kept it is the last to read */
    uint8_t *region_of; /* per tensor: where its storage is to lie */
    int eligible;       /* how many there are to select from, so far */
    int *of_rule;       /* how many of them each rule acts on */
    const mm_survey *survey;
    int *mark, marks; /* per tensor: the number of the last search that met it */
    mm_tensor *met;   /* by the last search */
    int n_met;
} mm_maps;

/* The selected ones of the maps that the rules name. Splits in-place pairs of the schedule that would write over
 * them. */
MM_CHECKED mm_status mm_maps_init(mm_maps *maps, const mm_survey *survey, mm_schedule *schedule,
                                  const mm_engine_config *config, const mm_selection *selection);
void mm_maps_fini(mm_maps *maps);

/* The forward step that writes a tensor, or -1. */
int mm_maps_producer(const mm_graph *graph, mm_tensor tensor);

/* Whether some step from `step` on still uses a tensor, so that it is kept until then. */
bool mm_maps_outlives(const mm_schedule *schedule, mm_tensor tensor, int step);

/* The map's signs are read from its elements when those come back exactly. */
void mm_maps_read_signs_from_value(const mm_schedule *schedule, mm_map *map);

#endif
