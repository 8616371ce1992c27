/* SPDX-License-Identifier: MIT */
/* Finds by planning, without a device, what training a batch needs under a policy.
 *
 * A batch is computed whole or in sub-batches. With sub-batches, an iteration has up to three different passes
 * (nets_exec_graphs), each with a graph and a plan of its own. They run one after the other in the same memory, so the
 * batch needs what its most demanding pass needs.
 *
 *   need_init     lowers all passes, and plans each with the lowest peak that the policy can reach, its minimum, or
 *                 within the budget alone (need_case.wants_plan). If fusing layers is left open, takes fused or single
 *                 layers, whichever is better
 *   need_within   plans a pass anew within limits
 *   forecast_of   (forecast.h) forecasts an iteration under these plans */
#ifndef TOOLS_NEED_NEED_H
#define TOOLS_NEED_NEED_H

#include "mm/core/time/simulate.h"
#include "mm/planning/planning.h"
#include "nets/exec/exec.h"
#include "tools/facts/facts_source.h"
#include "tools/need/target.h"

/* What to plan. Everything that it points to must outlive the need. */
typedef struct need_case {
    const nets_net *net;
    int64_t batch, sub_batch; /* sub_batch: images of a pass; 0 or batch: the batch is computed whole */
    nets_mode mode;
    const target *target;
    const char *policy;
    const facts_source *facts; /* NULL: no times */
    bool only_facts;           /* rates that the facts lack stay unknown; else the target's rates are used */
    int64_t budget_bytes;      /* 0: none */
    pinned_limit pinned;
    int64_t base_bytes; /* bytes of the persistent tensors; 0: take them from the passes' graphs */
    bool apart;         /* do not fuse layers, whatever the target says */
    /* If planning may choose whether to fuse layers (need_may_unfuse): takes single layers if fused ones do not fit the
     * budget and need more; without a budget, if fused ones need more. */
    bool may_unfuse;
    /* The same, and takes single layers also if fused ones only just fit (need_is_near) and single ones are faster.
     * Comparing them takes plans of both. */
    bool wants_fastest;
    /* Slow. Finds least_bytes of fused and of single layers even if fused ones fit, and finds minima within the pinned
     * memory even if the budget is too small for the minimum without that limit. */
    bool wants_least;
    /* Plans within the budget first. If that fits, no minimum is found: need_pass.minimum_bytes, need.fused_bytes and
     * need.least_bytes are 0. Else minima are found as with wants_least. */
    bool wants_plan;
    int64_t below_ns;     /* within a budget: a pass's plans are of no use from this time on (mm_limits); 0: no limit */
    int64_t staged_bytes; /* wants_plan: room for a staging buffer, which plans have if they fit with it */
} need_case;

/* What a policy's smallest plan needs if pinned memory is not limited. */
typedef struct need_free {
    int64_t device_bytes, pinned_bytes;
    int step; /* at which it reaches device_bytes */
} need_free;

/* Limits that a plan is made for. */
typedef struct need_room {
    int64_t device_bytes; /* 0: no limit; the plan has the lowest peak */
    int64_t pinned_bytes;
    int64_t staged_bytes; /* part of device_bytes, for a staging buffer */
} need_room;

typedef struct need_pass {
    nets_exec_graph graph;
    nets_lowered *lowered;
    mm_policy policy;
    mm_planned planned;
    int64_t minimum_bytes;        /* the lowest peak of the policy's plans, without a budget and wants_least that of
                                     the plan in need_free_room; 0: not known, `planned` fits the budget */
    int64_t minimum_pinned_bytes; /* pinned memory of that plan, */
    int64_t minimum_disk_bytes;   /* and its bytes on the disk */
    int minimum_step;             /* the step at which it reaches the peak */
    need_free free;
    need_room room; /* the limits that `planned` was made for */
} need_pass;

/* Whether a plan is within the case's pinned memory and disk. */
static inline bool need_is_within(const need_case *c, const mm_plan *plan) {
    return plan->pinned_bytes <= c->pinned.bytes && plan->disk_bytes <= c->target->disk_bytes;
}

/* Owns its passes. The struct may be moved. */
typedef struct need {
    need_case asked;
    need_pass pass[NETS_PASSES];
    int n;
    int most;            /* the pass with the largest minimum, which is the batch's minimum; if minima are not known,
                            the one whose plan takes most */
    int64_t base_bytes;  /* bytes of the persistent tensors of all passes */
    bool fused;          /* layers are fused (nets/lower/fuse.h) */
    int64_t fused_bytes; /* the minimum with layers fused as the target says; 0: not known */
    int64_t least_bytes; /* the smallest minimum found, with fused or single layers; 0: not known */
} need;

static inline const need_pass *need_most(const need *n) { return &n->pass[n->most]; }

/* ---------------------------------------------------------------- planning */

/* Lowers and plans all passes, within the pinned memory. If the budget is too small even with unlimited pinned memory,
 * the minima are those with unlimited pinned memory, unless wants_least. */
MM_CHECKED mm_status need_init(need *n, const need_case *c);
/* Legal on an all-zero struct. */
void need_fini(need *n);

/* The two halves of need_init, with layers fused as the case and its target say: need_open lowers all passes,
 * need_least plans them. */
MM_CHECKED mm_status need_open(need *n, const need_case *c);
MM_CHECKED mm_status need_least(need *n);
/* The device memory for a pass's plan without a budget. 0: as little as the policy can do with. INT64_MAX: a policy
 * that acts on all maps whatever the budget has slower forms for small ones (engine.c), which nobody needs then. */
int64_t need_free_room(const need *n, int pass);
/* Plans all passes within the case's budget, with room for its staging buffer if they fit with it. */
MM_CHECKED mm_status need_plan(need *n, bool *fit_out);
/* Lowers one pass. */
MM_CHECKED mm_status need_lower(const need_case *c, const nets_exec_graph *graph, nets_lowered **lowered_out);
/* The pass that updates the weights. Its graph has the persistent tensors of all passes. */
nets_exec_graph need_last(const need_case *c);
/* Adds the source's times to the facts of a graph. If the target has a link of a set speed, takes the link's rates from
 * it, unless source->for_run. source NULL: adds nothing. Errors of facts_source_fill. */
MM_CHECKED mm_status need_add_times(const facts_source *source, const target *target, const mm_graph *graph,
                                    mm_graph_facts *facts);

/* Plans a pass anew within these limits, unless its present plan was made for them. device_bytes 0, or no plan fits:
 * the plan has the lowest peak within the pinned memory. staged_bytes: size of a staging buffer beside the persistent
 * tensors (target_staged_bytes), or 0. */
MM_CHECKED mm_status need_within(need *n, int pass, int64_t device_bytes, int64_t pinned_bytes, int64_t staged_bytes);
/* If the pass's smallest plan takes more pinned memory than pinned_bytes, plans it anew within that limit, and updates
 * its minimum. If the policy cannot do with so little, the plan still takes more. */
MM_CHECKED mm_status need_limit_pinned(need *n, int pass, int64_t pinned_bytes);

/* How many of these bytes the plans have room for, for a staging buffer: all, or none if they are from a file (the
 * policy plan:FILE) and were made without one. */
int64_t need_stages(const need *n, int64_t staged_bytes);

/* Simulates a pass with the facts' times, or nominal ones if they have none. The caller calls mm_simulation_fini. */
MM_CHECKED mm_status need_simulate(const need *n, int pass, mm_simulation *sim_out);
/* Predicts the time of an iteration within the case's budget and pinned memory, with the plans that were made for
 * these, staging buffer or not, or else without one. INT64_MAX: no plan of the policy fits. */
MM_CHECKED mm_status need_time(need *n, int64_t *ns_out);

/* A lower bound of that time, of opened passes (mm/core/time/time_bound.h). device_bytes 0: in any budget, which takes
 * a small part of the time. below_ns: a bound that is no less is not improved. INT64_MAX: no plan fits. */
MM_CHECKED mm_status need_bound(const need *n, int64_t device_bytes, int64_t pinned_bytes, int64_t below_ns,
                                int64_t *ns_out);
/* The same of n->pass[pass] alone: the bound of one pass, times its number of passes. */
MM_CHECKED mm_status need_bound_passes(const need *n, int pass, int64_t device_bytes, int64_t pinned_bytes,
                                       int64_t below_ns, int64_t *ns_out);

/* Whether the minima fit the case's budget and pinned memory. */
bool need_fits(const need *n);
/* Whether all passes have a plan within the case's limits. Faster than finding their minima. Errors of need_open. */
MM_CHECKED mm_status need_try(const need_case *c, bool *fit_out);
/* The same of an opened pass, in device_bytes, with these homes of weights and states. The pass's plan stays. */
MM_CHECKED mm_status need_try_pass(const need *n, int pass, int64_t device_bytes, mm_resident resident, bool *fits_out);

/* ---------------------------------------------------------------- fused or apart (need_fuse.c) */

/* Whether planning may choose to fuse layers or not: target_may_unfuse, and the policy is auto. */
bool need_may_unfuse(const target *target, const char *policy);
/* Whether plans of single layers may be faster in the budget: it is near the minimum of the fused graph, which was
 * opened, with all weights and states on the device; or, where these have no room, with the policy's homes. False if
 * the graph is so large that planning both takes long, or the policy has effort=0. Errors of
 * mm_planned_make_housed. */
MM_CHECKED mm_status need_is_near(const need *n, bool *near_out);
/* Whether the passes with the largest minima have the same steps, which use the same tensors in the same way: fusion
 * has changed nothing. It may leave the number of steps as it is, and move only a bias from one to the next. */
bool need_is_like(const need *a, const need *b);
/* Makes planning faster if the policy is auto and the graph is not small: auto then only compares the plans of other
 * policies, and does not search beyond them. */
void need_hasten(mm_policy *policy, int fused_steps);
/* Measured facts belong to one graph. With --fuse auto, makes the target fuse layers, or not, as in that graph. facts
 * NULL, or a machine's: changes nothing. */
MM_CHECKED mm_status need_follow_facts(target *target, const nets_net *net, const facts_source *facts);

/* ---------------------------------------------------------------- refusals and advice (need_advise.c) */

/* Says in parentheses where the limit comes from; "" if the user gave it. */
const char *need_pinned_from(pinned_from from);

/* Refuses with MM_ERR_INFEASIBLE. The message has the minimum; the step at which it is reached (holder); its pinned
 * memory; and the minimum with more pinned memory (`free`), if that is less. */
MM_CHECKED mm_status need_refuse(int64_t minimum_bytes, int64_t minimum_pinned_bytes, const char *holder,
                                 pinned_limit pinned, const need_free *free);

/* Refuses a policy whose plan takes more pinned memory than the limit, with MM_ERR_INFEASIBLE. hint:
 * mm_plan_pinned_hint. */
MM_CHECKED mm_status need_refuse_pinned(const char *policy, int64_t pinned_bytes, pinned_limit pinned,
                                        const char *hint);
/* The same for the disk. */
MM_CHECKED mm_status need_refuse_disk(const char *policy, int64_t disk_bytes, const target *target);

/* Writes the lower bound of any policy for these passes (mm_lower_bound_of) as text: the bytes, how many of them stay
 * on the device, and the step that uses the rest. Returns buffer. */
const char *need_bound_text(const need *n, char *buffer, size_t capacity);

/* Adds to the refusal in mm_last_error the name of a policy that would fit (mm_advise). Returns MM_ERR_INFEASIBLE.
 * refused: the refused policy; NULL: unknown. needs_bytes: its minimum; 0: unknown. */
MM_CHECKED mm_status need_advise(const need_case *c, const mm_policy *refused, int64_t needs_bytes);

/* Adds to the refusal in mm_last_error how the same policy would fit: without fusion, if only target.fuse_facts
 * demanded it; with updates behind each layer's backward step; or in smaller sub-batches, if it fits with one image at
 * a time. Returns MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status need_advise_own(const need_case *c);

#endif
