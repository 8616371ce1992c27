/* SPDX-License-Identifier: MIT */
/* A certified lower bound of an iteration's simulated time: no plan for the graph, the facts (their codecs alone) and
 * the limits takes less. Pure arithmetic. Thread-safe.
 *
 * It holds for the time that mm_simulate predicts from the same facts, for every plan that mm_program_prove accepts,
 * that places all segments (mm_plan.heap_bytes is 0: the simulator does not wait for room in the heap), and that
 * recomputes only repeatable layers.
 *
 * PROOF. Take any step c, and the moment at which it starts in the simulation: of each node is then known whether it
 * has started, and whether it has ended. Let X be the time before that moment, and Y the time from it on.
 *
 * 1. Memory. A segment is alive then if a node that uses it has started and another one, or the same, has not ended.
 *    Segments that share a byte are not alive at the same time: all users of one have ended before the other's first
 *    starts (except segments that c itself writes in place, which are not counted). So the bytes of all live segments,
 *    and of c's outputs and workspace, are together at most what the limits leave beside the base and the external
 *    tensors.
 *
 * 2. Values. A managed tensor that is written before c, and read by c or by a later step, must be kept in some form
 *    while c starts. Follow the chain from the segment that its reader reads back to the node that computed the
 *    tensor, and take the last node of that chain that has started:
 *      kept         it wrote a map that is on the device: the map's bytes
 *      compressed   it wrote a code that is on the device: the code's bytes, a whole encode in X, a whole decode in Y
 *      swapped      it wrote a map or a code to pinned memory, and has ended (if not, its source is alive, too): a
 *                   whole copy in X, and one in Y; or its codec writes to pinned memory and reads from there itself
 *      recomputed   none has started: the step that writes the tensor runs again in Y. That step reads its inputs in
 *                   Y, so they are kept, too, in one of these four ways
 *    If only a tensor's signs are read, a mask of its signs may be kept instead. Tensors that may share one storage
 *    count as one. The body of a code either takes its typical bytes on the device, or its codec takes at least as long
 *    as these bytes take over the link.
 *
 *    Homes. A persistent tensor either has its home on the device, or takes pinned memory. In the second case it may
 *    visit the device while c starts, which takes the same bytes as a home there (or those of a code), and copies more.
 *    Else no segment of it is alive then. If a step before c reads what the iteration before left, its first visit has
 *    been fetched in X; if it was written before c and is needed later, that has left in X. If the first use from c on
 *    reads it, a whole copy comes back in Y; what is written from c on, and the next iteration reads, leaves in Y.
 *
 * 3. Time. X is at least what steps before c take, each in its fastest variant; at least all copies to the host that
 *    are in X, or all copies from it; at least all encodes in X.
 *    Y is at least what c, all later steps and what is recomputed take; at least all copies from the host, or all to
 *    it; at least all decodes, each as long as it takes alone: contention lengthens it.
 *    While both directions of the link are busy, each does at most a share of what it does alone. Let b be the sum of
 *    both shares, at least 1. In any ns the link does at most b ns of copies, as long as they take alone. So X and Y
 *    are each at least their copies in both directions together, divided by b.
 *    Steps lose time to contention, too. Let p(w) be by how many permille work w lengthens a step. Beside several
 *    works, a step's speed is 1000 / (1000 + the sum of their p). So in each ns in which w runs, the step loses
 *    p(w) / (1000 + the sum of p over all kinds) or more; the bound takes the kind of step that loses least. If no step
 *    runs, all of the ns is lost, which is not less: the shares of all kinds are less than 1 together.
 *
 * 4. Duality. The least X + Y under 1 to 3 is the solution of a linear programme, if a tensor may be kept partly in one
 *    of these ways and partly in others. Take a weight for each of the bounds of X, which sum up to 1, and for
 *    each of those of Y, likewise, and a price for a byte on the device and for a byte of pinned memory. They turn the
 *    programme into a sum over tensors, in which each takes its cheapest way:
 *      X + Y >= weights . times of the steps + sum of the cheapest ways - price . bytes that there are
 *    The price of a recomputation is that of the step that runs again, and of the inputs that nothing else needs. If
 *    several steps read such an input, each is charged a share of its price; if a step has several outputs, each output
 *    is charged a share of the step's price. Whatever the weights and prices, this is a bound: the search for good ones
 *    (where homes may leave, first with all weight on one bound of X and one of Y; then the ellipsoid method; the bound
 *    is concave in them) needs no proof.
 *
 * The result is the largest such bound over several steps c: the turn from the forward to the backward pass, and a
 * sample of other steps. Roundings of the simulator (at most 1 ns for a piece, speeds to 1e-6) are subtracted. */
#ifndef MM_CORE_TIME_TIME_BOUND_H
#define MM_CORE_TIME_TIME_BOUND_H

#include "mm/core/plan/plan.h"

typedef struct mm_time_bound {
    int64_t ns; /* INT64_MAX: no plan fits the limits. A smaller number does not say that some plan fits */
    int step;   /* the step c (of the proof above) that gives this bound */
} mm_time_bound;

/* limits->device_bytes 0: no limit. limits->below_ns: a bound that is no less is not improved. MM_ERR_NOMEM. The search
 * evaluates the bound for hundreds to thousands of choices of weights and prices, each in O(steps). */
MM_CHECKED mm_status mm_time_bound_of(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                      mm_time_bound *bound_out);

/* The same of plans with any homes of persistent tensors, on the device or in pinned memory; those that are all-reduced
 * stay on the device. limits->base_bytes counts nothing: what else is in the arena may have left, too. */
MM_CHECKED mm_status mm_time_bound_any_home(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                            mm_time_bound *bound_out);

/* A bound for plans beside this one, within a budget: with all homes on the device, as the plan has them; or, if the
 * plan has a home in pinned memory, with any homes. Errors of mm_time_bound_of. */
MM_CHECKED mm_status mm_time_bound_beside(const mm_plan *plan, const mm_graph_facts *facts, int64_t device_bytes,
                                          int64_t pinned_bytes, mm_time_bound *bound_out);

/* By how much a plan's time exceeds the bound, in permille of the bound; no plan is faster by more than this. */
static inline int64_t mm_time_bound_gap_permille(int64_t ns, int64_t bound_ns) {
    if (bound_ns <= 0) return INT64_MAX;
    return ns <= bound_ns ? 0 : (int64_t)((double)(ns - bound_ns) * 1000 / (double)bound_ns);
}

#endif
