/* SPDX-License-Identifier: MIT */
/* What training a batch needs under a policy, found by planning, without a device.
 *
 * A batch is trained on whole, or in sub-batches: then an iteration has up to three passes that differ
 * (nets_exec_graphs), each with a graph and a plan of its own. They run one after the other in the same memory, so what
 * the pass that needs most needs is what the batch needs.
 *
 *   need_init     lowers all passes, and plans each with the lowest peak that the policy can reach, its minimum; where
 *                 that is open, with layers fused or apart, whichever does better
 *   need_within   plans a pass anew within limits
 *   forecast_of   (forecast.h) what an iteration by these plans takes */
#ifndef TOOLS_NEED_NEED_H
#define TOOLS_NEED_NEED_H

#include "mm/core/time/simulate.h"
#include "mm/planning/planning.h"
#include "nets/exec/exec.h"
#include "tools/facts/facts_source.h"
#include "tools/need/target.h"

/* What is planned. All that it points to must outlive the need. */
typedef struct need_case {
    const nets_net *net;
    int64_t batch, sub_batch; /* sub_batch: images of a pass; 0, or the batch: whole batches */
    nets_mode mode;
    const target *target;
    const char *policy;
    const facts_source *facts; /* NULL: no times */
    bool only_facts;           /* with facts: rates that they do not have are not known; else they are the target's */
    int64_t budget_bytes;      /* 0: none */
    int64_t pinned_bytes;      /* INT64_MAX: no limit */
    int64_t base_bytes;        /* bytes of the persistent tensors; 0: those of the passes' own graphs */
    bool apart;                /* layers are not fused, whatever the target does */
    /* Where it is open (need_may_unfuse), layers are not fused if fused ones do not fit the budget and others need
     * less; without a budget, if others need less. */
    bool may_unfuse;
    /* ... nor if fused ones just fit (need_is_near) and others are faster: plans of both are made. */
    bool wants_fastest;
    /* least_bytes is of both, though fused ones fit; and minima are those within the pinned memory, though they are
     * above the budget with any. That takes long. */
    bool wants_least;
} need_case;

/* What a policy's smallest plan takes if pinned memory has no limit. */
typedef struct need_free {
    int64_t device_bytes, pinned_bytes;
} need_free;

/* Limits that a plan is made for. */
typedef struct need_room {
    int64_t device_bytes; /* 0: none, it is the plan with the lowest peak */
    int64_t pinned_bytes;
    int64_t staged_bytes; /* of the device's */
} need_room;

typedef struct need_pass {
    nets_exec_graph graph;
    nets_lowered *lowered;
    mm_policy policy;
    mm_planned planned;
    int64_t minimum_bytes; /* the lowest peak of the policy's plans, */
    int64_t minimum_pinned_bytes;
    int minimum_step; /* and what that plan pins, and the step that holds it */
    need_free free;
    need_room room; /* that the plan was made for */
} need_pass;

/* Owns its passes. The struct may be moved. */
typedef struct need {
    need_case asked;
    need_pass pass[NETS_PASSES];
    int n;
    int most;            /* the one whose minimum is the minimum of all */
    int64_t base_bytes;  /* bytes of the persistent tensors of all passes */
    bool fused;          /* whether layers are (nets/lower/fuse.h) */
    int64_t fused_bytes; /* the minimum with layers fused as the target does, */
    int64_t least_bytes; /* and the least of the minima that were found */
} need;

static inline const need_pass *need_most(const need *n) { return &n->pass[n->most]; }

/* ---------------------------------------------------------------- planning */

/* Plans all passes within the pinned memory; but without a limit of it where the budget is too small even so
 * (wants_least). */
MM_CHECKED mm_status need_init(need *n, const need_case *c);
/* Legal on a zeroed one. */
void need_fini(need *n);

/* Parts of need_init, for layers as the target fuses them now: lowers all passes, without plans; plans them. */
MM_CHECKED mm_status need_open(need *n, const need_case *c);
MM_CHECKED mm_status need_least(need *n);
/* Lowers one pass. */
MM_CHECKED mm_status need_lower(const need_case *c, const nets_exec_graph *graph, nets_lowered **lowered_out);
/* The pass that updates the weights: its graph has the persistent tensors of all. */
nets_exec_graph need_last(const need_case *c);
/* Adds the source's times to the facts of a graph, and the link's of the target, where it has one of its own. source
 * NULL: adds nothing. Errors of facts_source_fill. */
MM_CHECKED mm_status need_add_times(const facts_source *source, const target *target, const mm_graph *graph,
                                    mm_facts *facts);

/* Plans a pass anew within these limits, unless its plan was made for them; if no plan fits, with the lowest peak
 * within the pinned memory. device_bytes 0: with the lowest peak. staged_bytes: size of a staging buffer beside the
 * persistent tensors (target_staged_bytes), or 0. */
MM_CHECKED mm_status need_within(need *n, int pass, int64_t device_bytes, int64_t pinned_bytes, int64_t staged_bytes);
/* Plans a pass anew if its smallest plan takes more pinned memory than this, and updates its minimum. If the policy
 * cannot do with less, the plan still takes more. */
MM_CHECKED mm_status need_limit_pinned(need *n, int pass, int64_t pinned_bytes);

/* Simulates a pass by the facts' times, or nominal ones if these have none. The caller ends it. */
MM_CHECKED mm_status need_simulate(const need *n, int pass, mm_simulation *sim_out);
/* Predicts the time of an iteration within the budget and the pinned memory that were asked for. INT64_MAX: the policy
 * has no plan within these. */
MM_CHECKED mm_status need_time(need *n, int64_t *ns_out);

/* Whether the plans that need least fit what was asked for. */
bool need_fits(const need *n);
/* Whether all passes have a plan within the limits, found sooner than what they need at least. Errors of need_open. */
MM_CHECKED mm_status need_try(const need_case *c, bool *fit_out);

/* ---------------------------------------------------------------- fused or apart (need_fuse.c) */

/* Whether it is open if layers are fused: target_may_unfuse, and the policy is auto. */
bool need_may_unfuse(const target *target, const char *policy);
/* Whether, in this budget, plans of layers that are not fused may be the faster ones: it is little more than the
 * minimum of the fused graph, which has so many steps. False where planning both takes long. */
bool need_is_near(int64_t fused_bytes, int fused_steps, int64_t budget_bytes);
/* If the policy is auto, its plans take less time to make, in all but small graphs: what other policies find is
 * compared alone. */
void need_hasten(mm_policy *policy, int fused_steps);
/* Measured facts are of one graph: where --fuse is auto, layers are fused or not as they were measured, from now on.
 * facts NULL, or a machine's: nothing changes. */
MM_CHECKED mm_status need_follow_facts(target *target, const nets_net *net, const facts_source *facts);

/* ---------------------------------------------------------------- refusals and advice (need_advise.c) */

/* The pinned memory that plans may take. */
typedef struct need_pinned {
    int64_t bytes;
    bool given; /* by the user; else it is need_pinned_most, and refusals say so */
} need_pinned;

/* The most pinned memory that a plan gets if the user sets no limit: half of the machine's free memory (chosen, so that
 * the rest of the system keeps the other half). 0: not known. */
int64_t need_pinned_most(void);
/* As an option has it: PINNED_OPEN, then it is `otherwise`. */
static inline need_pinned need_pinned_of(int64_t option, int64_t otherwise) {
    return (need_pinned){pinned_limit(option, otherwise), option != PINNED_OPEN};
}

/* Returns MM_ERR_INFEASIBLE; the message has the minimum, what its plan pins if that is more than there is, the step
 * that holds it, and, if that is less, the minimum with more pinned memory (`free`). */
MM_CHECKED mm_status need_refuse(int64_t minimum_bytes, int64_t minimum_pinned_bytes, const char *holder,
                                 need_pinned pinned, const need_free *free);

/* What no policy can undercut in these passes (mm_lower_bound_of), as text: the bytes, what of them stays on the
 * device, and the step that uses the rest. Returns buffer. */
const char *need_bound_text(const need *n, char *buffer, size_t capacity);

/* Adds a policy that would fit to the refusal in mm_last_error (mm_advise), and returns MM_ERR_INFEASIBLE. refused: the
 * policy that was refused, parsed; NULL: not known. needs_bytes: what it needs at least; 0: not known. */
MM_CHECKED mm_status need_advise(const need_case *c, bool pinned_given, const mm_policy *refused, int64_t needs_bytes);

/* Adds to the refusal in mm_last_error what the policy itself would fit with: a plan without fusion, if
 * target.fuse_facts alone are why there was none; smaller sub-batches, if it fits with one image at a time. Returns
 * MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status need_advise_own(const need_case *c);

#endif
