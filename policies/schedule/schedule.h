/* SPDX-License-Identifier: MIT */
/* Shared by the planners: finds tensors that may share storage, builds a plan step by step with its segments and
 * bindings, and places them in the regions of the arena.
 *
 * A group is one storage: segments that take the same bytes one after the other, in place (a convolution's output, the
 * normalised map written over it, the ReLU over that). Groups are placed, not segments. */
#ifndef POLICIES_SCHEDULE_SCHEDULE_H
#define POLICIES_SCHEDULE_SCHEDULE_H

#include "buffers/layout/layout.h"
#include "mm/core/plan/plan.h"
#include "policies/rules/config.h"

typedef struct mm_group {
    mm_region region;
    int64_t bytes;
    int32_t hold;   /* the group lives at least to this node, since an operation in flight may still use its bytes; -1:
                     * none */
    int64_t offset; /* GIVEN: offset from the end of the base (mm_limits.base_bytes) */
    int32_t rank;   /* CODES: the map's first backward use; codes lie in its order */
} mm_group;

/* What is known of a tensor while the plan is built. */
typedef struct mm_schedule_tensor {
    int32_t last_step;  /* of a root (a tensor that aliases no other): last step that uses it or an alias of it */
    mm_tensor over;     /* the tensor over which it is written in place; -1: none */
    int32_t value;      /* of a root: the segment that holds its elements now; -1: none */
    int32_t sign;       /* of a root: the segment of the mask that holds its signs now; -1: none */
    int32_t value_node; /* the operation that wrote `value`; -1: a step did */
    int32_t sign_node;  /* the operation that wrote `sign`; -1: none */
} mm_schedule_tensor;

typedef struct mm_visits mm_visits; /* visits.h */

typedef struct mm_schedule {
    const mm_graph *graph;
    const mm_graph_facts *facts;
    mm_plan *plan;
    mm_schedule_tensor *tensors; /* per tensor of the graph */
    /* per segment; unset for segments of persistent tensors */
    int32_t *segment_group;
    int segment_capacity;
    mm_group *groups;
    int n_groups, group_capacity;
    mm_layout_algorithm layout; /* for regions that are placed by lifetime; MM_LAYOUT_FIT places them to the limits */
    int64_t device_bytes, pinned_bytes, ahead_bytes; /* the limits */
    mm_inplace inplace;                              /* which tensors are written in place, and share storage */
    bool apart;                                      /* MM_STASH_APART */
    bool lends; /* the regions of codes and buffers lend bytes that are idle to groups that are placed by lifetime */
    int32_t *variant;        /* per step: index of the variant (facts.h) that it runs; owned; NULL: the first of each */
    mm_visits *visits;       /* of persistent tensors whose homes are in pinned memory; NULL: there are none */
    int32_t workspace_group; /* the group of all steps' workspaces; -1: each step has its own */
    /* set by mm_schedule_close */
    struct mm_interval *lives;        /* per group: its lifetime, and its offset in its region */
    int64_t region_bytes[MM_REGIONS]; /* for regions placed by lifetime: a lower bound until they are placed.
                                         With `lends`, GENERAL: what lies above the regions that lend */
} mm_schedule;

/* Begins a plan. Where `sharing` allows it, finds aliases, and outputs to write in place over inputs that no later step
 * needs. Borrows graph and facts. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_schedule_init(mm_schedule *schedule, const mm_graph *graph, const mm_graph_facts *facts,
                                      const mm_limits *limits, const mm_sharing *sharing);
/* Begins a plan for the graph of `model`, a schedule to which no step was appended: copies its aliases, last steps and
 * in-place pairs. The visits of persistent tensors are yet to be found, before the first step (mm_visits_init).
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_schedule_init_as(mm_schedule *schedule, const mm_schedule *model, const mm_limits *limits);
void mm_schedule_fini(mm_schedule *schedule);

/* Undoes an in-place pair: `tensor` gets storage of its own. */
static inline void mm_schedule_split(mm_schedule *schedule, mm_tensor tensor) { schedule->tensors[tensor].over = -1; }

/* The forward step that writes a tensor; -1: none does. */
static inline int mm_schedule_producer(const mm_graph *graph, mm_tensor tensor) {
    return mm_graph_layer(graph, mm_graph_tensor(graph, tensor)->producer)->step[MM_FORWARD];
}

/* Whether `step` or a later one uses the tensor, so that it is still there at `step`. */
static inline bool mm_schedule_outlives(const mm_schedule *schedule, mm_tensor tensor, int step) {
    return schedule->tensors[tensor].last_step >= step;
}

/* Makes each step that is appended from now on run the variant with the least workspace. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_schedule_least_workspaces(mm_schedule *schedule);

/* Makes it run these variants, one per step (copied). MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_schedule_take_variants(mm_schedule *schedule, const int32_t *variants);

/* Adds a group; returns it, or -1 (out of memory). */
int mm_schedule_group(mm_schedule *schedule, mm_region region, int64_t bytes);

/* Adds a segment to a group; returns it, or -1 (out of memory). */
int mm_schedule_segment(mm_schedule *schedule, mm_content content, mm_category category, mm_tensor tensor,
                        int64_t bytes, int group);

/* Appends a step, and the copies of visiting tensors that come before and after it. Binds its uses to the tensors'
 * present segments. Makes segments for its workspace, and for tensors that it is the first to write, in the region
 * region_of[root] (NULL: general). Makes it wait for the operations whose results it reads. Returns the node, or -1
 * (out of memory). */
int mm_schedule_step(mm_schedule *schedule, int step, const uint8_t *region_of);

/* Appends a forward step again, with copies of visiting tensors, for those of its outputs that are `wanted` (per
 * tensor). A wanted output gets a new segment; or, if it was written in place over an input that is wanted too, that
 * input's place. Other outputs are written to scratch, unless they are still there and the step can read them instead
 * (mm_graph_allow_given). when: the backward step that follows. Returns the node, or -1 (out of memory). */
int mm_schedule_recompute(mm_schedule *schedule, int step, const uint8_t *wanted, int when);

/* Appends an operation and the segment that it writes, in a new group of the region. `codec` is the index, in the
 * facts, of the codec whose code it writes; -1: it writes elements. The caller adds the operation's waits
 * (mm_plan_wait) and binds uses to the segment by `value` and `value_node`, or `sign` and `sign_node`. Returns the
 * node; -1: out of memory. */
int mm_schedule_op(mm_schedule *schedule, mm_node_kind kind, mm_tensor tensor, int src, int codec, mm_region region,
                   int64_t bytes, int *segment_out);

/* Makes the step at `node`, the last one appended, write the code of a tensor that it uses to a new segment, in a new
 * group of the region. Returns the segment; -1: out of memory. */
int mm_schedule_code(mm_schedule *schedule, int node, mm_tensor tensor, int codec, mm_region region);

/* Adds the codecs' scratch, once all nodes are there: one group for each stream, since a stream runs one operation at a
 * time. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_schedule_scratch(mm_schedule *schedule);

/* Lower bounds of what a plan takes, wherever its segments are placed. */
typedef struct mm_bounds {
    int64_t peak_bytes, pinned_bytes;
} mm_bounds;

/* Ends the list of nodes. Computes the groups' lifetimes, and places the regions that are not placed by lifetime.
 * wanted_buffers: number of tensor buffers; 0: as many as needed. keep_all: no group's bytes are used again (naive).
 * MM_ERR_INFEASIBLE: more buffers are needed; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_schedule_close(mm_schedule *schedule, int wanted_buffers, bool keep_all, mm_bounds *bounds_out);

/* Places the other regions, and adds the waits that shared bytes need. The caller owns the plan, and destroys it.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_schedule_finish(mm_schedule *schedule, mm_plan **plan_out);

/* Adds waits so that the first user of a segment comes after all earlier users of its bytes. The [first, last] nodes of
 * segments that share bytes must not overlap in issue order. Called by mm_schedule_finish. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_schedule_reuse_waits(mm_plan *plan);

#endif
