/* SPDX-License-Identifier: MIT */
/* What a network needs under a policy, found by planning, without a device. */
#ifndef TOOLS_REQUIREMENT_H
#define TOOLS_REQUIREMENT_H

#include "mm/core/time/simulate.h"
#include "mm/planning/planning.h"
#include "nets/exec/exec.h"
#include "tools/facts_source.h"
#include "tools/target.h"

/* The pinned memory that plans may take. */
typedef struct requirement_pinned {
    int64_t bytes;
    bool given; /* by the user; else it is requirement_pinned_most, and refusals say so */
} requirement_pinned;

/* What a policy's smallest plan takes if pinned memory has no limit. */
typedef struct requirement_free {
    int64_t device_bytes, pinned_bytes;
} requirement_free;

/* Limits that a plan is made for. */
typedef struct requirement_room {
    int64_t device_bytes; /* 0: none, it is the plan with the lowest peak */
    int64_t pinned_bytes;
    int64_t staged_bytes; /* of the device's */
} requirement_room;

typedef struct requirement {
    nets_lowered *lowered;
    mm_planned planned;
    mm_policy policy;
    int64_t base_bytes;    /* bytes of persistent tensors */
    int64_t minimum_bytes; /* the lowest peak of the policy's plans, */
    int64_t minimum_pinned_bytes;
    int minimum_step;      /* and what that plan pins, and the step that holds it */
    requirement_room room; /* that the plan was made for */
    requirement_free free;
    const volatile int *stop; /* the target's */
} requirement;

/* Returns MM_ERR_INFEASIBLE; the message has the minimum, what its plan pins if that is more than there is, the step
 * that holds it, and, if that is less, the minimum with more pinned memory (`free`). */
MM_CHECKED mm_status requirement_refuse(int64_t minimum_bytes, int64_t minimum_pinned_bytes, const char *holder,
                                        requirement_pinned pinned, const requirement_free *free);

/* Lowers the net and plans, with the lowest peak that the policy can reach. base_bytes 0: bytes of the graph's own
 * persistent tensors. facts: times to plan by, or NULL. The net must outlive the requirement. */
MM_CHECKED mm_status requirement_init(requirement *r, const nets_net *net, nets_exec_graph graph, nets_mode mode,
                                      const target *target, const char *policy, int64_t base_bytes,
                                      const facts_source *facts);
/* A graph of whole batches; the graph that ends a training in sub-batches (0: in whole batches), which has the most
 * persistent tensors. */
static inline nets_exec_graph requirement_whole(int64_t batch) {
    return (nets_exec_graph){.batch = batch, .passes = 1};
}
static inline nets_exec_graph requirement_last(int64_t batch, int64_t sub_batch) {
    nets_exec_graph graphs[3];
    return graphs[nets_exec_graphs(batch, sub_batch ? sub_batch : batch, graphs) - 1];
}
/* Adds the source's times to the facts of a graph, and the link's of the target, where it has one of its own. source
 * NULL: adds nothing. Errors of facts_source_fill. */
MM_CHECKED mm_status requirement_add_times(const facts_source *source, const target *target, const mm_graph *graph,
                                           mm_facts *facts);

/* Plans anew within these limits, unless the plan was made for them; if no plan fits, with the lowest peak within the
 * pinned memory. staged_bytes: size of a staging buffer beside the persistent tensors (target_staged_bytes), or 0. */
MM_CHECKED mm_status requirement_limit(requirement *r, int64_t device_bytes, int64_t pinned_bytes,
                                       int64_t staged_bytes);

/* Simulates the plan by the facts' times, or nominal ones if these have none. The caller ends it. */
MM_CHECKED mm_status requirement_simulate(const requirement *r, mm_simulation *sim_out);

/* Plans anew if the plan with the lowest peak takes more pinned memory than this, and updates the minimum. If the
 * policy cannot do with less, the plan still takes more. */
MM_CHECKED mm_status requirement_limit_pinned(requirement *r, int64_t pinned_bytes);

/* Adds advice to the refusal in mm_last_error (mm_advise), and returns MM_ERR_INFEASIBLE. facts: the times that were
 * planned by, or NULL. refused: what was refused; with a policy, of the same graph; NULL: not known. */
MM_CHECKED mm_status requirement_advise(const nets_net *net, nets_exec_graph graph, const target *target,
                                        int64_t device_bytes, requirement_pinned pinned, const facts_source *facts,
                                        const requirement *refused);

/* The most pinned memory that a plan gets if the user sets no limit: half of the machine's free memory (chosen, so that
 * the rest of the system keeps the other half). 0: not known. */
int64_t requirement_pinned_most(void);
/* As an option has it: PINNED_OPEN, then it is `otherwise`. */
static inline requirement_pinned requirement_pinned_of(int64_t option, int64_t otherwise) {
    return (requirement_pinned){pinned_limit(option, otherwise), option != PINNED_OPEN};
}

void requirement_fini(requirement *r);

/* What training a batch needs: that of each pass of an iteration (nets_exec_graphs). */
typedef struct requirement_passes {
    nets_exec_graph graphs[NETS_PASSES];
    requirement r[NETS_PASSES];
    int n;
    int most;   /* the one whose minimum is the minimum of all: they run one after the other in the same memory */
    bool fused; /* whether layers are (nets/lower/fuse.h) */
    int64_t fused_bytes; /* the minimum with layers fused as the target does, */
    int64_t least_bytes; /* and the least of the minima that were found */
} requirement_passes;

/* What is planned. */
typedef struct requirement_asked {
    const nets_net *net;
    int64_t batch, sub_batch; /* sub_batch: the batch, for whole ones */
    nets_mode mode;
    const target *target;
    const char *policy;
    int64_t base_bytes; /* bytes of the persistent tensors of all passes; 0: not known */
    int64_t pinned_bytes;
    const facts_source *facts; /* NULL: no times */
    /* Where it is open (requirement_may_unfuse), layers are not fused if fused ones do not fit the budget and others
     * need less; budget 0: if others need less. */
    bool may_unfuse;
    int64_t budget_bytes;
    bool
        wants_fastest; /* nor if fused ones just fit (requirement_near) and others are faster: plans of both are made */
    /* Finds least_bytes of both, though fused ones fit; and minima within the pinned memory, though they are above the
     * budget with any. That takes long. */
    bool wants_least;
} requirement_asked;

/* Whether it is open if layers are fused: target_may_unfuse, and the policy is auto. */
bool requirement_may_unfuse(const target *target, const char *policy);
/* Whether, in this budget, plans of layers that are not fused may be the faster ones: it is little more than the
 * minimum of the fused graph. False where planning both takes long. */
bool requirement_near(int64_t fused_bytes, const mm_graph *fused, int64_t budget_bytes);
/* If the policy is auto, its plans of these layers take less time to make, in all but small graphs: what other policies
 * find is compared alone. */
void requirement_hasten(mm_policy *policy, const mm_graph *fused);
/* Measured facts are of one graph: where --fuse is auto, layers are fused or not as they were measured, from now on.
 * facts NULL, or a machine's: nothing changes. */
MM_CHECKED mm_status requirement_follow_facts(target *target, const nets_net *net, const facts_source *facts);
/* Adds to the refusal in mm_last_error that a plan without fusion would fit, if target.fuse_facts alone are why there
 * was none. Returns MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status requirement_advise_apart(const requirement_asked *asked);

/* Plans all passes within the pinned memory, as requirement_init and requirement_limit_pinned do; but without a limit
 * of it where the budget is too small even so (wants_least). The target fuses layers afterwards as before. */
MM_CHECKED mm_status requirement_passes_init(requirement_passes *p, const requirement_asked *asked);
void requirement_passes_fini(requirement_passes *p);
/* Predicts the time of an iteration, all passes of it, planned anew within the budget and the pinned memory, by the
 * times that were asked for, or nominal ones. INT64_MAX: they have no plan within these. */
MM_CHECKED mm_status requirement_passes_time(requirement_passes *p, const requirement_asked *asked, int64_t *ns_out);

/* Whether all passes have a plan within the limits, found sooner than what they need at least. Errors of
 * requirement_init. */
MM_CHECKED mm_status requirement_try_passes(const nets_net *net, int64_t batch, int64_t sub_batch, const target *target,
                                            const char *policy, int64_t device_bytes, int64_t pinned_bytes,
                                            const facts_source *facts, bool *fit_out);
/* What no policy can undercut in these passes (mm_lower_bound_of), as text: the bytes, what of them stays on the
 * device, and the step that uses the rest. Returns buffer. */
const char *requirement_bound_text(const requirement_passes *p, char *buffer, size_t capacity);
static inline const requirement *requirement_most(const requirement_passes *p) { return &p->r[p->most]; }

/* Whether training under a policy is lossy: a codec that it names gives other values back. False of what is no
 * policy. */
bool requirement_is_lossy(const char *policy);
/* Whether it samples: it observes, and a codec that it names takes its bounds from that. False of what is no policy. */
bool requirement_samples(const char *policy);
/* What stands behind a policy's name in every table: " (lossy)", or "". */
const char *requirement_mark(const char *policy);

#endif
