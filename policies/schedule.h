/* What the planners share: which tensors may share storage, a plan built step by step with its segments and bindings,
 * and the placement of what was built into the regions of the arena.
 *
 * A GROUP is a storage: segments that take the same bytes one after the other in place (a convolution's output, the
 * normalised map written over it, the ReLU over that). Groups are what is placed. */
#ifndef POLICIES_SCHEDULE_H
#define POLICIES_SCHEDULE_H

#include "buffers/layout.h"
#include "mm/core/plan.h"
#include "policies/config.h"

typedef struct mm_group {
    mm_region region;
    int64_t bytes;
    int32_t hold; /* held at least to this node (an operation in flight may still use it); -1 */
    int32_t rank; /* CODES: place in the order of first backward use */
} mm_group;

typedef struct mm_schedule {
    const mm_graph *graph;
    const mm_facts *facts;
    mm_plan *plan;
    /* per tensor */
    int32_t *last_step;  /* of a root: last step that uses it or an alias of it */
    mm_tensor *over;     /* tensor in whose place it is written; -1 */
    int32_t *value;      /* of a root: the segment that holds its elements now; -1 */
    int32_t *sign;       /* of a root: the coded segment that serves readers of its sign now; -1 */
    int32_t *value_node; /* node that wrote `value`, if it was an operation; -1 */
    int32_t *sign_node;
    /* per segment; of persistent tensors': unset */
    int32_t *segment_group;
    int segment_capacity;
    mm_group *groups;
    int n_groups, group_capacity;
    mm_layout_algorithm layout; /* of places by lifetime */
    int32_t workspace_group;    /* one for all steps, or -1: each step has its own */
    /* once it is closed */
    struct mm_interval *lives;        /* per group, with its offset in its region */
    int64_t region_bytes[MM_REGIONS]; /* of those that are placed by lifetime at least, until they are */
} mm_schedule;

/* share: recognise aliases and in-place pairs (an input that nobody needs after the step). */
MM_CHECKED mm_status mm_schedule_init(mm_schedule *schedule, const mm_graph *graph, const mm_facts *facts,
                                      const mm_limits *limits, bool share);
void mm_schedule_fini(mm_schedule *schedule);

/* Takes an in-place pair back: `tensor` gets storage of its own. */
static inline void mm_schedule_split(mm_schedule *schedule, mm_tensor tensor) { schedule->over[tensor] = -1; }

/* A new group, or -1 (out of memory). */
int mm_schedule_group(mm_schedule *schedule, mm_region region, int64_t bytes);

/* A new segment in a group, or -1. */
int mm_schedule_segment(mm_schedule *schedule, mm_content content, mm_category category, mm_tensor tensor,
                        int64_t bytes, int group);

/* Appends a step: binds its uses to where the tensors are now, makes segments for what it writes first (in the region
 * given by `region_of[root]`, NULL: general), a workspace, and waits for operations whose results it reads. Returns the
 * node, or -1. */
int mm_schedule_step(mm_schedule *schedule, int step, const uint8_t *region_of);

/* Appends a recomputation of a forward step, for those of its outputs that are `wanted` (per tensor). Each of them gets
 * a segment of its own, or over that of the input in whose place it was written at first, if that was wanted too and so
 * made before. What else the step writes, and need not be given, goes where nobody looks. `when`: the step that is to
 * come next. Returns the node, or -1. */
int mm_schedule_recompute(mm_schedule *schedule, int step, const uint8_t *wanted, int when);

/* What a plan takes at the least, however it is placed. */
typedef struct mm_bounds {
    int64_t peak_bytes, pinned_bytes;
} mm_bounds;

/* Nothing more is appended. Settles how long each group lives, and all places but those by lifetime. wanted_buffers 0:
 * as many as the largest overlap; MM_ERR_INFEASIBLE if there must be more. keep_all: no group's bytes are used again
 * (naive). */
MM_CHECKED mm_status mm_schedule_close(mm_schedule *schedule, int wanted_buffers, bool keep_all, mm_bounds *bounds_out);

/* Then places the rest, adds the waits that shared bytes need, and gives the plan away. */
MM_CHECKED mm_status mm_schedule_finish(mm_schedule *schedule, mm_plan **plan_out);

/* Waits so that the first user of a segment comes after everything that used its bytes before, for segments whose
 * [first, last] nodes do not overlap in issue order. Called by finish. */
MM_CHECKED mm_status mm_schedule_guard(mm_plan *plan);

#endif
