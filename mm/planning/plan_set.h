/* SPDX-License-Identifier: MIT */
/* The plan set: prepared graphs, each with its plan. New plans are drafted beside these, and then committed all at
 * once, or dropped. It uses of a device only its name, allocates no device memory, and has no threads. */
#ifndef MM_PLANNING_PLAN_SET_H
#define MM_PLANNING_PLAN_SET_H

#include "mm/core/account/account.h"
#include "mm/core/status.h"
#include "mm/planning/homes.h"
#include "mm/planning/planning.h"

/* A graph that has a plan. Its address stays until it is planned anew or forgotten. */
typedef struct mm_prepared {
    const mm_graph *graph;
    mm_planned planned;
    bool recomputes;    /* there is a function that recomputes its layers (mm_recompute_set) */
    bool has_begun;     /* an iteration of it has begun, under this plan or an earlier one */
    mm_failure untimed; /* why it was planned without the set's measured times; MM_OK: it was planned with them, or
                           there are none */
} mm_prepared;

/* What plans are made from, besides their graphs. Borrowed for the set's life. */
typedef struct mm_plan_sources {
    const char *device;
    mm_rates rates;                         /* of the device */
    const mm_facts *facts;                  /* measured times; NULL: none */
    const mm_persistent_table *persistents; /* places of persistent tensors */
} mm_plan_sources;

/* Facts of a graph as its iterations have shown them (observe.h). Plans use them in preference to the facts in
 * mm_plan_sources. */
typedef struct mm_observed_facts {
    const mm_graph *graph;
    mm_graph_facts *facts;
} mm_observed_facts;

/* A plan that was made before its graph is prepared (mm_plan_offer). */
typedef struct mm_ready_made_plan {
    mm_plan *plan; /* made for an equal graph, which is gone; NULL: the plan was taken */
    char *graph;   /* name of that graph */
    int steps, tensors;
    int64_t tensor_bytes; /* its size (mm_facts_tensor_bytes) */
    int64_t device_bytes; /* the budget that the plan was made within */
} mm_ready_made_plan;

typedef struct mm_plan_set {
    mm_plan_sources sources;
    mm_ready_made_plan *offered;
    int n_offered;
    mm_observed_facts *learned;
    int n_learned;
    mm_policy policy;      /* the policy that was set */
    mm_policy policy_now;  /* the policy that plans are made under: the same, or a substitute (policies/fallback.h) */
    bool least_workspaces; /* plans use the variants with the least workspace, and no others */
    mm_prepared **prepared;
    int n;
    mm_homes homes; /* where persistent tensors are under these plans; owned */
} mm_plan_set;

/* How to draft plans. */
typedef struct mm_plan_request {
    const mm_policy *policy;
    bool least_workspaces;
    bool stands_in;     /* the policy is a substitute */
    bool runs_at_once;  /* a plan that recomputes without mm_recompute_set is refused for every graph. Else only for
                           graphs whose present plan can run, and, where a new graph is prepared, has begun to: a loop
                           may prepare all graphs, and then set the functions */
    const char *step;   /* the ladder's step, in a few words (static); NULL: none */
    bool same_variants; /* each step runs in the variant that it has now, so that it gives the same bits */
    mm_limits limits;
    const mm_new_graph *added; /* a new graph, or NULL */
    bool others_stay;          /* only `added` is planned, and all homes stay */
    bool homes_stay;           /* all homes stay */
} mm_plan_request;

/* Plans that are made, proved and within the limits, and not committed yet. */
typedef struct mm_draft {
    mm_policy policy;
    bool least_workspaces, stands_in;
    const char *step;
    mm_prepared **prepared; /* the set's graphs in their order, then the new one */
    int n;
    mm_homes homes;     /* owned, until they are committed */
    int kept;           /* the first `kept` are the set's own, with their present plans */
    int64_t need_bytes; /* peak of the largest new plan */
} mm_draft;

/* Why a request was refused. */
typedef struct mm_misfit {
    const mm_graph *graph;          /* of those whose plans do not fit, the graph that needs most */
    bool recomputes;                /* as in mm_prepared */
    int64_t need_bytes;             /* peak of the largest plan that could be made; 0: none could */
    int64_t pinned_bytes;           /* of the graph's plan: its host memory, */
    int64_t disk_bytes;             /* its bytes on the disk, */
    int held_step;                  /* the step with most live bytes (-1: there is no plan), */
    int64_t held[MM_ACCOUNT_KINDS]; /* and these, by what they are for */
    mm_failure failure;             /* status and message */
} mm_misfit;

/* Drafts plans for all prepared graphs, and for the new one, with homes as the policy's option `resident` says
 * (homes.h): all graphs' plans have the same. The caller frees the draft. The set does not change. MM_ERR_INFEASIBLE: a
 * plan does not fit the limits, or is a substitute's that cannot run. MM_ERR_UNSUPPORTED: a plan recomputes, and no
 * function is set (mm_plan_request.runs_at_once). With both, *misfit_out (may be NULL) is set; it costs planning the
 * other graphs, too, unless the policy is a substitute. */
MM_CHECKED mm_status mm_plan_set_draft(const mm_plan_set *set, const mm_plan_request *attempt, mm_draft *draft_out,
                                       mm_misfit *misfit_out);
/* The same with the given homes. */
MM_CHECKED mm_status mm_plan_set_draft_with(const mm_plan_set *set, const mm_plan_request *attempt,
                                            const mm_homes *homes, mm_draft *draft_out, mm_misfit *misfit_out);
/* A request with the policy that runs now, within other limits. */
mm_plan_request mm_plan_set_again(const mm_plan_set *set, const mm_limits *limits);
/* Moves the draft's plans into the set, and frees those that they replace. The draft's other members stay. */
void mm_plan_set_commit(mm_plan_set *set, mm_draft *draft);
/* Frees the draft, with its plans if they were not committed. */
void mm_draft_fini(mm_draft *draft);

/* Makes facts of a prepared graph: its plan's codecs, numbered as in the plan, and all variants; with the sources'
 * times, if these were measured on this graph, and then what was learned. MM_ERR_NOMEM. The caller destroys them. */
MM_CHECKED mm_status mm_plan_set_facts(const mm_plan_set *set, const mm_prepared *prepared, mm_graph_facts **facts_out);
/* Takes over facts that were learned of a graph, in place of those learned before. On failure the caller keeps the
 * facts. MM_ERR_NOMEM. Plans stay as they are. */
MM_CHECKED mm_status mm_plan_set_learn(mm_plan_set *set, const mm_graph *graph, mm_graph_facts *facts);

/* mm_plan_offer. */
MM_CHECKED mm_status mm_plan_set_offer(mm_plan_set *set, mm_plan *plan, int64_t device_bytes);

/* The graph's entry; NULL if it is not prepared. */
mm_prepared *mm_plan_set_find(const mm_plan_set *set, const mm_graph *graph);
void mm_plan_set_forget(mm_plan_set *set, const mm_graph *graph);
/* The first step that the plan recomputes without a callback (mm_recompute_set); -1: there is none. */
int mm_prepared_unable(const mm_prepared *prepared);
/* Fails with MM_ERR_UNSUPPORTED, and names that step. */
MM_CHECKED mm_status mm_prepared_refuse(const mm_prepared *prepared);
void mm_plan_set_fini(mm_plan_set *set);

#endif
