/* The plan set: prepared graphs, each with the plan that it is run by. New plans are drafted beside these, and then taken
 * up all at once or dropped. It knows a device by its name only, and no memory and no thread. */
#ifndef MM_PLAN_SET_H
#define MM_PLAN_SET_H

#include "mm/core/status.h"
#include "mm/directory.h"
#include "mm/planning.h"

/* A graph that has a plan. Its address stays until it is planned anew or forgotten. */
typedef struct mm_prepared {
    const mm_graph *graph;
    mm_planned planned;
    bool recomputes;    /* its steps can be run again: somebody said how */
    mm_failure untimed; /* why it is planned without the measured times that there are; MM_OK: it is not */
} mm_prepared;

/* What plans are made from beside their graphs. Borrowed for the set's life. */
typedef struct mm_plan_sources {
    const char *device;
    mm_rates rates;                /* that the device tells */
    const mm_facts *facts;         /* measured times; NULL: none */
    const mm_directory *directory; /* where persistent tensors lie */
} mm_plan_sources;

typedef struct mm_plan_set {
    mm_plan_sources sources;
    mm_policy policy;      /* as it was set */
    mm_policy policy_now;  /* that plans are made by: the same, or a substitute (policies/fallback.h) */
    bool least_workspaces; /* plans take the variants with the least workspace */
    mm_prepared **prepared;
    int n;
} mm_plan_set;

/* A graph that is to be prepared. */
typedef struct mm_newcomer {
    const mm_graph *graph;
    bool recomputes; /* as in mm_prepared */
} mm_newcomer;

/* What is to be drafted. */
typedef struct mm_attempt {
    const mm_policy *policy;
    bool least_workspaces;
    bool stands_in;   /* the policy is a substitute: it must not need what only the user can provide */
    const char *step; /* of the ladder, in a word (static); NULL: it is none */
    mm_limits limits;
    const mm_newcomer *added; /* or NULL */
    bool others_stay;         /* only `added` is planned */
} mm_attempt;

/* Plans that are made, proved and within the limits, and that nothing is run by yet. */
typedef struct mm_draft {
    mm_policy policy;
    bool least_workspaces, stands_in;
    const char *step;
    mm_prepared **prepared; /* of the set's graphs in their order, then of the new one */
    int n;
    int kept;           /* so many of them, from the first, are the set's own: they keep their plans */
    int64_t need_bytes; /* what the largest of the new plans takes */
} mm_draft;

/* Why an attempt is refused. */
typedef struct mm_refusal {
    const mm_graph *graph; /* whose plan does not fit */
    bool recomputes;       /* as in mm_prepared */
    int64_t need_bytes;    /* what the largest of the plans takes that could be made; 0: there is none */
    mm_failure failure;    /* in words */
} mm_refusal;

/* Drafts plans of every prepared graph, and of the new one. The caller ends the draft. MM_ERR_INFEASIBLE: a plan does not
 * fit the limits, and *refusal_out is set (NULL: nobody asks). The set does not change. */
MM_CHECKED mm_status mm_plan_set_draft(const mm_plan_set *set, const mm_attempt *attempt, mm_draft *draft_out,
                                       mm_refusal *refusal_out);
/* What is run now, as an attempt within other limits. */
mm_attempt mm_plan_set_again(const mm_plan_set *set, const mm_limits *limits);
/* From now on the draft's plans are the set's; those that they replace are gone. The draft keeps its figures. */
void mm_plan_set_commit(mm_plan_set *set, mm_draft *draft);
/* Drops what was not committed. */
void mm_draft_fini(mm_draft *draft);

/* NULL if the graph is not prepared. */
mm_prepared *mm_plan_set_find(const mm_plan_set *set, const mm_graph *graph);
void mm_plan_set_forget(mm_plan_set *set, const mm_graph *graph);
/* A step that the plan runs again and nobody said how; -1 if there is none. */
int mm_prepared_unable(const mm_prepared *prepared);
void mm_plan_set_fini(mm_plan_set *set);

#endif
