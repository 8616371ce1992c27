/* SPDX-License-Identifier: MIT */
/* Private to the search of `auto` (auto_search.h): what its parts share. */
#ifndef POLICIES_AUTO_AUTO_STATE_H
#define POLICIES_AUTO_AUTO_STATE_H

#include "mm/core/time/simulate.h"
#include "policies/auto/auto_search.h"
#include "policies/engine/engine_maps.h"
#include "policies/policy.h"
#include "policies/schedule/draft_time.h"

enum { MM_AUTO_KEEP = -1, MM_AUTO_RULES = 64 /* most actions of a menu that are considered */ };
_Static_assert(5 + 2 * (MM_MAX_CODECS - 1) <= MM_AUTO_RULES, "masks, 4 actions without a codec, 2 for each codec");

/* A feature map that may be acted on. */
typedef struct mm_auto_map {
    mm_tensor tensor;
    int64_t bytes;
    int last_forward, first_backward; /* steps */
    uint64_t serves;                  /* bit r: rule r serves it */
    int64_t again_ns;                 /* time to make it again from what is there when it is needed */
    int64_t each_ns;                  /* time to make it again for each of its backward steps */
    int64_t gap_ns;                   /* computation between its last forward and first backward use */
    /* in the last draft: its bytes are free, or could be, after node `from` and before node `to` */
    int from, to;
    int last, need;  /* nodes of its last forward and its first backward use */
    int taken;       /* the rule that was taken */
    bool locked;     /* it keeps its action */
    uint64_t barred; /* bit r: the engine refused rule r, given the other maps' actions */
} mm_auto_map;

/* A node of a draft that uses a map's elements, and the segment in which they are. */
typedef struct mm_auto_touch {
    int node, segment;
} mm_auto_touch;

typedef struct mm_auto_used {
    int map; /* or n_maps plus the index of a gradient map */
    mm_auto_touch touch;
} mm_auto_used;

/* OUT: a map's bytes may be reused at once, so steps may wait for its copy. IN: it is fetched at the last moment. */
enum { MM_AUTO_EAGER_OUT = 1, MM_AUTO_EAGER_IN = 2 };

/* What an action on a map costs: mm_auto_cost. */
typedef struct mm_auto_price_of {
    double ns;          /* whatever the link costs */
    double link_ns;     /* time of its copies both ways */
    double exposed_ns;  /* by how much they take longer than the computation beside them */
    double leave_ns;    /* time that the map takes to leave */
    int64_t left_bytes; /* bytes that stay on the device: those of its code */
} mm_auto_price_of;

typedef struct mm_auto {
    const mm_graph *graph;
    const mm_graph_facts *facts;
    const mm_limits *limits;
    const mm_engine_config *menu;
    const mm_survey *like; /* for mm_survey_create */
    mm_survey *survey;
    mm_auto_map *maps;
    int n_maps, *map_of;        /* map_of: per tensor; -1: none */
    mm_auto_price_of *prices;   /* [map * n_rules + rule] of the rules that serve the map */
    mm_tensor *gradients;       /* gradient maps that may leave while they wait */
    int n_gradients, *touch_of; /* touch_of: per tensor, the index of its map, or n_maps plus that of its gradient map;
                                     -1: neither */
    int *class_first, *class_maps, n_classes; /* class_maps: the maps, class by class (auto_classes.c); class c is
                                                 class_maps[class_first[c]] to [class_first[c + 1] - 1] */
    int *by_last, *by_need;          /* the maps in order of their last forward, and of their first backward use */
    int n_rules;                     /* of the menu that are considered */
    int mask, recompute, lean, anew; /* indices of the rules with these actions (lean: lean-swap; anew:
                                        lean-recompute); -1: the menu has none */
    int64_t *start_ns;               /* per step, and one more: computation before that step */
    int64_t *choice_ns;              /* the same, with what the timed choice makes again */
    int64_t aim;                     /* the bytes to which a start is to be brought down: the budget, or less */
    int64_t target;                  /* bytes that drafts shall keep to */
    int64_t left, work;              /* nodes that may still be drafted, and that could be at first (auto_search.h) */
    uint64_t random;                 /* state of next_below */
    mm_auto_choice now, best;        /* best: the choice of `plan`, if this search made that */
    mm_auto_weights best_weights;    /* the weights with which `best` was found; link 0: there is no `best` */
    struct mm_auto_kept *kept;       /* auto_memo.c: the last drafts, of which next_kept is replaced next */
    int n_kept, next_kept;
    struct mm_auto_placed *placed; /* the choices that were placed */
    int n_placed, placed_room;
    /* set by the last draft */
    mm_engine_draft draft;  /* one of `kept`; borrowed */
    int64_t draft_ns;       /* the draft's time if nothing waits for bytes that are used again */
    int64_t *live;          /* per node: bytes alive, base and external included */
    int *node_of;           /* per step: its node */
    int *touch_first;       /* per map, gradient map, and one more: its first entry in `touches` */
    mm_auto_touch *touches; /* uses of the maps' elements in the backward pass, map by map, in order */
    mm_auto_used *used;     /* uses of the maps' elements, in the order of nodes */
    int n_used;
    int room, used_room; /* capacities of `live`; of `used` and `touches` */
    /* the best that was found so far */
    mm_plan *plan;
    int64_t plan_ns;
    bool fits;
} mm_auto;

enum { MM_AUTO_LINKS = 6, MM_AUTO_LEADS = 4 };
extern const double mm_auto_links[MM_AUTO_LINKS]; /* prices of a link */
extern const int mm_auto_leads[MM_AUTO_LEADS];

/* Sets the maps, the rules that serve them, and the times that prices are made from. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_auto_price(mm_auto *a);

/* Sorts the maps into classes of equal surroundings. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_auto_classify(mm_auto *a);

/* Whether a rule may be given to a map of a->now. A map that the choice of nested recomputation keeps, to make others
 * from it, is made again itself only with `deep` weights: the chains may grow by more than that saves. */
bool mm_auto_may(const mm_auto *a, const mm_auto_weights *w, const mm_auto_map *map, int rule);

/* Whether a rule, or MM_AUTO_KEEP, makes its map again. */
bool mm_auto_makes_again(const mm_auto *a, int rule);

/* Price of an action on a map, in ns. */
double mm_auto_cost(const mm_auto *a, const mm_auto_weights *w, const mm_auto_map *map, int rule);

/* Time that bytes take over the link and back. */
double mm_auto_both_ways_ns(const mm_auto *a, int64_t bytes);

static inline const mm_auto_price_of *mm_auto_price_at(const mm_auto *a, const mm_auto_map *map, int rule) {
    return &a->prices[(map - a->maps) * a->n_rules + rule];
}

/* Sets choice->fetch and choice->gone (mm_assignment) by the times of the copies. */
void mm_auto_time(const mm_auto *a, mm_auto_choice *choice);

/* The choice as the engine takes it; borrows it. */
mm_assignment mm_auto_assignment(const mm_auto *a, const mm_auto_choice *choice);

/* Times the copies of a choice (mm_auto_time), and plans it without placing it: sets a->draft and what follows from it.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_auto_draft(mm_auto *a, mm_auto_choice *choice);

/* Sets a->draft and a->draft_ns to the draft of a choice whose copies are timed, or to the one that is kept of it.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_auto_memo_draft(mm_auto *a, const mm_auto_choice *choice);

/* *again_out: whether a->now was placed before. *over_out: the bytes by which its lowest placement exceeds the budget,
 * for the caller to set the first time; until the next call. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_auto_memo_place(mm_auto *a, int64_t **over_out, bool *again_out);

/* Frees what is kept. */
void mm_auto_memo_fini(mm_auto *a);

/* Acts on maps of a->now until the draft is within a->target, or nothing is left to act on. */
MM_CHECKED mm_status mm_auto_relieve(mm_auto *a, const mm_auto_weights *w);

/* Keeps maps of a->now again that fit within a->target. */
MM_CHECKED mm_status mm_auto_restore(mm_auto *a, const mm_auto_weights *w);

void mm_auto_copy_choice(const mm_auto *a, const mm_auto_choice *from, mm_auto_choice *to);

/* Takes the plan as the best so far if it is better; else destroys it. Errors of mm_simulate. */
MM_CHECKED mm_status mm_auto_compare(mm_auto *a, mm_plan *plan, bool *better_out);

/* Relieves and restores a->now, and places it if it may win. *better_out: whether it is the best so far. MM_ERR_NOMEM,
 * errors of mm_simulate. */
MM_CHECKED mm_status mm_auto_try(mm_auto *a, const mm_auto_weights *w, bool *better_out);

/* Tries what a plan does as a start. Errors of mm_auto_try. */
MM_CHECKED mm_status mm_auto_start_from(mm_auto *a, const mm_plan *plan);

/* Tries starts: choices of nested recomputation, those that are near the plan (NULL: the best choice) first; keeping
 * all maps. Errors of mm_auto_try. */
MM_CHECKED mm_status mm_auto_start(mm_auto *a, const mm_plan *plan);

/* Tries starts by kinds of layers. First, all maps leave, which needs least memory; then one kind at a time gets
 * another action, while that makes the draft better. Errors of mm_auto_try. */
MM_CHECKED mm_status mm_auto_start_kinds(mm_auto *a);

/* Whether the search's work is used up, or it was told to stop. */
bool mm_auto_stopped(const mm_auto *a);

#endif
