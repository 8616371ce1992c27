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
_Static_assert(4 + 2 * MM_MAX_CODECS <= MM_AUTO_RULES, "codecs are compressed by, and swapped; beside what has none");

/* A feature map that may be acted on. */
typedef struct mm_auto_map {
    mm_tensor tensor;
    int64_t bytes;
    int last_forward, first_backward; /* steps */
    uint64_t serves;                  /* bit r: rule r serves it when all else is kept */
    int64_t again_ns;                 /* to make it again, of what is there when it is needed */
    int64_t gap_ns;                   /* computation between its last forward and first backward use */
    /* of the last draft: nodes after and before which its bytes are free, or could be */
    int from, to;
    int last, need;  /* nodes of its last forward, and of its first backward use */
    int taken;       /* the rule that was taken */
    bool locked;     /* it keeps its action */
    uint64_t barred; /* bit r: rule r was refused, beside the other actions */
} mm_auto_map;

/* An assignment, with its arrays. */
typedef struct mm_auto_choice {
    int8_t *rule;          /* per tensor */
    uint8_t *eager;        /* per tensor, MM_AUTO_EAGER bits */
    int lead;              /* permille of their time that copies are given */
    int nesting;           /* levels and cuts of that choice of the survey; -1: none */
    int32_t *fetch, *gone; /* per tensor */
} mm_auto_choice;

/* OUT: a map's bytes are free at once when it has left. IN: it is fetched at the last moment. */
enum { MM_AUTO_EAGER_OUT = 1, MM_AUTO_EAGER_IN = 2 };

/* What a search weighs by. */
typedef struct mm_auto_weights {
    double link; /* price of a ns of the link, in ns */
    bool deep;   /* of a choice of nested recomputation, what it keeps may be made again, too */
    bool capped; /* bytes beyond those that are too many at a node count for nothing there */
} mm_auto_weights;

typedef struct mm_auto {
    const mm_graph *graph;
    const mm_facts *facts;
    const mm_limits *limits;
    const mm_engine_config *menu;
    mm_survey *survey;
    mm_auto_map *maps;
    int n_maps, *map_of;          /* map_of: per tensor; -1: none */
    int *by_last, *by_need;       /* the maps in order of their last forward, and of their first backward use */
    int mask, recompute, lean;    /* rules; -1: the menu has none */
    int64_t *start_ns;            /* per step, and one more: computation before it */
    int64_t *choice_ns;           /* the same, with what is made again */
    int64_t aim;                  /* bytes that a start is relieved to: the budget, or less */
    int64_t target;               /* bytes that drafts shall keep to */
    int left;                     /* drafts */
    uint64_t random;              /* state of next_below */
    mm_auto_choice now, best;     /* best: of the plan, if it is this search's */
    mm_auto_weights best_weights; /* by which it was found; of link 0: none was */
    /* of the last draft */
    mm_engine_draft draft;
    int64_t draft_ns; /* what it takes if nothing waits for bytes that are used again */
    int64_t *live;    /* per node: bytes alive, base and external included */
    int *node_of;     /* per step: its node */
    int room;         /* of live */
    /* the best that was found so far */
    mm_plan *plan;
    int64_t plan_ns;
    bool fits;
} mm_auto;

enum { MM_AUTO_LINKS = 6, MM_AUTO_LEADS = 4 };
extern const double mm_auto_links[MM_AUTO_LINKS]; /* prices of a link */
extern const int mm_auto_leads[MM_AUTO_LEADS];

/* Sets what the maps cost, when all is kept. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_auto_price(mm_auto *a);

/* Whether a rule may be given to a map of a->now. What a choice of nested recomputation keeps, so that other maps are
 * made of it, is made again itself only with weights that are deep: the chains may grow by more than it saves. */
bool mm_auto_may(const mm_auto *a, const mm_auto_weights *w, const mm_auto_map *map, int rule);

/* Price of an action on a map, in ns. */
double mm_auto_cost(const mm_auto *a, const mm_auto_weights *w, const mm_auto_map *map, int rule);

/* Time that a map takes to leave by an action. */
double mm_auto_leave_ns(const mm_auto *a, const mm_auto_map *map, int rule);

/* Bytes of the map that an action leaves on the device meanwhile. */
int64_t mm_auto_left(const mm_auto *a, const mm_auto_map *map, int rule);

/* Sets the steps before which fetches begin, and those up to which the bytes of what leaves are left alone. */
void mm_auto_time(const mm_auto *a, mm_auto_choice *choice);

/* The choice as the engine takes it; borrows it. */
mm_assignment mm_auto_assignment(const mm_auto *a, const mm_auto_choice *choice);

/* Plans a choice, whose copies it times (mm_auto_time), without placing it: a->draft and what follows from it.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_auto_draft(mm_auto *a, mm_auto_choice *choice);

/* Acts on maps of a->now until the draft is within a->target, or nothing is left to act on. */
MM_CHECKED mm_status mm_auto_relieve(mm_auto *a, const mm_auto_weights *w);

/* Keeps maps of a->now again that fit within a->target. */
MM_CHECKED mm_status mm_auto_restore(mm_auto *a, const mm_auto_weights *w);

void mm_auto_copy_choice(const mm_auto *a, const mm_auto_choice *from, mm_auto_choice *to);

/* Takes the plan as the best so far if it is better, and else destroys it. Errors of mm_simulate. */
MM_CHECKED mm_status mm_auto_compare(mm_auto *a, mm_plan *plan, bool *better_out);

/* Relieves a->now, restores, and places it if it may win. *better_out: whether it does. MM_ERR_NOMEM, errors of
 * mm_simulate. */
MM_CHECKED mm_status mm_auto_try(mm_auto *a, const mm_auto_weights *w, bool *better_out);

/* Tries starts: a plan, if there is one; all choices of nested recomputation; keeping all. Errors of mm_auto_try. */
MM_CHECKED mm_status mm_auto_start(mm_auto *a, const mm_plan *plan);

/* Tries starts by kinds of layers: from letting all maps leave, which needs least, to another action for one kind at a
 * time, while that makes the draft better. Errors of mm_auto_try. */
MM_CHECKED mm_status mm_auto_start_kinds(mm_auto *a);

/* Whether the search's drafts are used up, or it was told to stop. */
bool mm_auto_stopped(const mm_auto *a);

#endif
