/* SPDX-License-Identifier: MIT */
/* The configuration of a policy. A spec, which is text for people, is parsed into it once. */
#ifndef POLICIES_RULES_CONFIG_H
#define POLICIES_RULES_CONFIG_H

#include "mm/core/plan/plan.h"
#include "policies/rules/observer.h"
#include "policies/rules/selector.h"

/* Regions of the arena and of pinned memory. */
typedef enum mm_region {
    MM_REGION_GENERAL, /* placed by lifetime */
    MM_REGION_GIVEN,   /* placed by the planner (mm_group.offset) */
    MM_REGION_CODES,   /* the sliding workspace */
    MM_REGION_BUFFERS, /* the tensor buffers */
    MM_REGION_HEAP,    /* placed at run time */
    MM_REGION_PINNED,  /* pinned host memory, placed by lifetime */
    MM_REGIONS
} mm_region;

/* What a rule does with a map between the map's last forward and first backward use. */
typedef enum mm_action {
    MM_ACTION_KEEP,
    MM_ACTION_CODE,      /* compress; the code stays on the device */
    MM_ACTION_SWAP,      /* copy to pinned memory */
    MM_ACTION_CODE_SWAP, /* compress, and copy the code to pinned memory */
    MM_ACTION_RECOMPUTE, /* drop, and compute again from the inputs of its layer */
} mm_action;

/* Which layers run again, and how long the maps that they make are kept. An expensive layer counts as cheap if the
 * map's rule names its kind, as conv=recompute does. */
typedef enum mm_recompute_mode {
    MM_RECOMPUTE_SPEED,  /* cheap layers run again once; maps made on the way are kept until their last backward use */
    MM_RECOMPUTE_MEMORY, /* cheap layers run again for each backward step that needs them, and what they make is not
                            kept. A map that would take more than 128 tensors to make is not dropped */
    MM_RECOMPUTE_COST,   /* SuperNeurons' cost-aware recomputation. A segment is a set of maps that are made from one
                            another. SPEED for segments of at most the bytes of the largest layer's step, else MEMORY. A
                            sum, a concatenation or an expensive layer's map that would make its segment larger than
                            that is not dropped (SuperNeurons keeps all sums): MEMORY takes quadratic time along a chain
                            of residual blocks */
    MM_RECOMPUTE_SQRT,   /* all layers, convolutions too, run again once, in about sqrt(n) segments (Chen et al.) */
    MM_RECOMPUTE_NESTED, /* as SQRT, in segments of segments: as many levels as pay (recompute_levels.h) */
    /* For comparison. They choose which maps are kept otherwise, and are NESTED in all else. */
    MM_RECOMPUTE_BLOCKS,   /* optimal for chains of blocks (recompute_blocks.h) */
    MM_RECOMPUTE_KNAPSACK, /* by time a byte (recompute_knapsack.h) */
} mm_recompute_mode;

typedef struct mm_rule {
    mm_selector selector;
    mm_action action;
    char codec[MM_SPEC_CAPACITY];
    bool offered; /* of a menu (mm_rules_menu): nobody named its codec, so it is for maps that promise zeros alone
                     (mm_facts_promise_zeros), and left out if the facts lack the codec's times */
    bool mask;    /* CODE: codes are exact masks, so the rule serves only maps of which signs alone are read */
    bool lean;    /* SWAP: as little as possible stays on the device. Signs are read from a mask. If only signs of a map
                  are read, its mask is made in the forward pass, and nothing is copied. Else the mask is made when the
                  elements are back, and these leave after their last reader, or between backward steps that are far
                  apart. Inputs and saved tensors are swapped like maps; gradient maps leave between steps that are far
                  apart (engine_gradients.h). RECOMPUTE: the map is made again for each backward step that needs it,
                  and dropped after that step, whatever the mode */
} mm_rule;

static inline bool mm_rule_swaps_lean(const mm_rule *rule) { return rule->lean && rule->action == MM_ACTION_SWAP; }

/* When evicted maps are fetched. */
typedef enum mm_fetch {
    MM_FETCH_DEPTH,  /* `depth` maps when the backward pass begins, then one more after each map that it finishes with.
                        Depth 0: as DEMAND */
    MM_FETCH_LAYER,  /* one backward step ahead (vDNN) */
    MM_FETCH_DEMAND, /* right before the step that needs them */
} mm_fetch;

/* Which storages share bytes (mm_sharing). The first values are the lean choices, the others papers' baselines. */
typedef enum mm_inplace {
    MM_INPLACE_ON,        /* layers write in place, and equal tensors share storage, where the graph allows it */
    MM_INPLACE_OFF,       /* every tensor has storage of its own while it lives */
    MM_INPLACE_GRADIENTS, /* gradient maps as ON, all other maps as OFF */
} mm_inplace;

typedef enum mm_placing {
    MM_PLACING_SEARCHED, /* the best of several placements (MM_LAYOUT_BEST) */
    MM_PLACING_GROUPS,   /* CNTK's static allocator (MM_LAYOUT_GROUPS) */
} mm_placing;

typedef enum mm_stashing {
    MM_STASH_SHARED, /* bytes are used again after a storage's last use, whatever it holds */
    MM_STASH_APART, /* what waits for the backward pass shares its bytes with nothing (Gist's investigation baseline) */
} mm_stashing;

typedef struct mm_sharing {
    mm_inplace inplace;
    mm_placing layout;
    mm_stashing stash;
} mm_sharing;

typedef enum mm_when {
    MM_WHEN_NEEDED, /* act on no more maps than the budget forces (mm_engine_plan_needed) */
    MM_WHEN_ALWAYS, /* act on all maps that the rules name, whatever the budget */
} mm_when;

/* Which variant (facts.h) computes a step. The fastest is the first; each later one has a smaller workspace. */
typedef enum mm_algorithms {
    MM_ALGORITHMS_FASTEST, /* the first */
    MM_ALGORITHMS_LEAST,   /* the one with the least workspace (vDNN's memory-optimal choice) */
    MM_ALGORITHMS_GAIN,    /* the one with the least time, counting the transfers that its workspace forces (modnn) */
} mm_algorithms;

/* Values of mm_engine_config.sub_batch that are not a number of images. Planners do not read it: whoever builds the
 * graphs does (mm_policy_sub_batch). */
enum { MM_SUB_BATCH_OFF = -1, /* the whole batch */ MM_SUB_BATCH_AUTO = 0 /* as many as the budget bears */ };

/* Which weights, gradients and optimizer states have their homes on the device (mm/core/plan/plan.h). Planners do not
 * read it: whoever gives them the limits does (mm/planning/homes.h). */
typedef enum mm_resident {
    MM_RESIDENT_ALL,
    MM_RESIDENT_NEEDED, /* as many as the budget has room for, or, of `auto`, as is fastest; the others have them in
                           pinned memory */
    MM_RESIDENT_NONE,   /* none that may leave */
} mm_resident;

enum { MM_OWN_OPTIONS = 4 }; /* most options of a policy with a planner of its own */

/* Who encodes and decodes a map that is compressed on the device. */
typedef enum mm_coding {
    MM_CODES_BESIDE,  /* a codec on a side stream */
    MM_CODES_IN_STEP, /* the steps that write and read the map, where they can (mm_graph_allow_code); else a codec */
    MM_CODES_AUTO,    /* whichever of these two gives a plan that fits; if both do, the faster plan */
} mm_coding;

/* The configuration of a policy. The engine, which plans for most policies, reads all but `own`. Policies with a
 * planner of their own (liveness, modnn, auto) have numbers and choices in `own`, and read few other fields. */
typedef struct mm_engine_config {
    mm_rule *rules; /* owned; a plain copy of the struct borrows them */
    int n_rules;
    char *file; /* name of a file of plans; owned, as the rules are; NULL: none */
    mm_fetch fetch;
    int depth;         /* FETCH_DEPTH: maps fetched ahead; 0: evictions and fetches are in line with the steps: a step
                          waits for those issued before it */
    int leave_steps;   /* n: the n-th step after an eviction waits for its end; 0: none does (asynchronous) */
    mm_region buffers; /* where evicted maps lie before they leave and after they are fetched */
    int k;             /* number of tensor buffers; 0: as many as needed */
    mm_recompute_mode recompute;
    mm_region codes; /* where codes that stay on the device lie. HEAP: a code is made elsewhere and copied there (the
                        unoptimised workflow) */
    int throttle;    /* CODE_SWAP: most pieces encoded ahead of the link (mm_node.throttle); 0: no limit */
    int signs_whole; /* CODE_SWAP, lossless, maps of which signs alone are read: 1: the code moves; 0: a mask stays */
    mm_coding coding;
    mm_when when;
    bool names_absent; /* a rule may name layers that the graph does not have */
    mm_sharing sharing;
    bool lends; /* codes and buffers lend their regions' idle bytes (mm_schedule.lends). Planners set it, if the budget
                   forces it */
    mm_comet_config comet;
    mm_algorithms algorithms;
    const int32_t *variants; /* per step: index of the variant that runs, whatever `algorithms` says; borrowed. NULL:
                                as `algorithms` says */
    mm_resident resident;
    unsigned away;           /* NONE: a bit for each mm_tensor_kind that leaves; 0: all kinds */
    int sub_batch;           /* images, or MM_SUB_BATCH_OFF or MM_SUB_BATCH_AUTO */
    int own[MM_OWN_OPTIONS]; /* options of a policy with a planner of its own; its file says what they mean */
} mm_engine_config;

/* When evicted maps are fetched: a depth of 0 counts as DEMAND. */
static inline mm_fetch mm_config_fetch(const mm_engine_config *config) {
    return config->fetch == MM_FETCH_DEPTH && config->depth == 0 ? MM_FETCH_DEMAND : config->fetch;
}

/* Whether evictions, too, are in line with the steps. */
static inline bool mm_config_in_line(const mm_engine_config *config) {
    return config->fetch == MM_FETCH_DEPTH && config->depth == 0;
}

#endif
