/* SPDX-License-Identifier: MIT */
/* The plan: what happens to every tensor in one iteration of one graph, as plain data. Policies make it, the check
 * proves it, the simulator times it, the pipeline executes it.
 *
 * NODES are in issue order. A node is a step of the graph, on the compute stream or, if it runs on the host
 * (mm_graph_run_on_host), on the host stream; or an operation on a side stream.
 * When a step ends, the operations that follow it in the array, up to the next step, are queued. A node waits for at
 * most one node of each other stream, and so for all nodes before that one on its stream. It waits only for nodes that
 * are earlier in issue order. So no plan can deadlock, and vector clocks (mm_program_clocks) tell which nodes have
 * ended before a node starts. Some nodes are executed in pieces: program.h.
 *
 * SEGMENTS say where bytes lie: one for each place and form of a tensor (raw, coded, decoded again), and one for each
 * workspace. The first segments are the HOMES of the graph's persistent tensors, in the order of their declaration:
 * each has one, at a fixed place that the limits give; at the first node it holds what it held after the last node of
 * the previous iteration. A home is on the device, where steps use it, or in pinned memory. There only steps on
 * the host use it. For the others the plan copies the tensor to segments on the device, which they use, and copies
 * what they write there back. Or a home is on the disk: then these copies go through segments in pinned memory.
 *
 * A code of variable size has two parts. Its head, of a fixed size, is its segment. Its body lies in a POOL, a segment
 * in which bodies follow one another in the order of the encodes, which are all on one stream. Only the device knows
 * where a body begins. A body consists of chunks of at most MM_CHUNK_BYTES. A pool on the device may have a spill: a
 * pool in pinned memory, for the chunks that the pool on the device has no room for. The two share one range of
 * positions: a chunk that does not end within the pool lies in the spill. So every chunk has room, as no body exceeds
 * its bound. Positions only grow within an iteration: no bytes of a pool are used twice, and the whole pool lives from
 * the first encode of its codes to their last decode.
 *
 *      positions   0                      pool.bytes                  at most the sum of the bounds
 *                  | body | body | chunk | chunk      | chunk | body | body ...
 *                  | pool (device)          |
 *      spill                  | one chunk   | chunk   | chunk | body | body ...  |   (position p is at its offset
 *                                                                      p - pool.bytes + MM_CHUNK_BYTES)
 *
 * BINDINGS say, for each use of each step, in which segment the step finds or puts the tensor. A step that declares it
 * (mm_graph_allow_code) may find a code in place of elements that it reads, and may also put the code of what it reads
 * or writes into another segment. The codes that a step reads or writes itself are on the device, never in pinned
 * memory.
 *
 *      arena of a manager (one address range; offsets from its base, multiples of 256)
 *      0            base                                                        extent
 *      | persistent | raw, gradient maps, workspaces ... | codes | buffers | heap |
 * */
#ifndef MM_CORE_PLAN_PLAN_H
#define MM_CORE_PLAN_PLAN_H

#include "mm/core/facts/facts.h"
#include "mm/core/graph/graph.h"
#include "mm/core/plan/plan_node.h"

enum { MM_ALIGN = 256 }; /* alignment of all offsets, that of cudaMalloc (CUDA C++ Programming Guide) */

/* Most bytes of a chunk of a body: the window of cDMA (Rhu et al., HPCA 2018). */
enum { MM_CHUNK_BYTES = 4096 };

static inline int64_t mm_align(int64_t bytes) { return (bytes + MM_ALIGN - 1) / MM_ALIGN * MM_ALIGN; }

/* The memories that segments lie in: name, word, where (for messages), and of what number offsets there are multiples.
 * On the disk it is the largest block that O_DIRECT accesses are made of (open(2)), so that no two segments share a
 * block. */
#define MM_MEMORIES(X)                                                                                                 \
    X(DEVICE, "device", "on the device", MM_ALIGN)                                                                     \
    X(PINNED, "pinned", "in pinned memory", MM_ALIGN)                                                                  \
    X(DISK, "disk", "on the disk", 4096)

#define MM_MEMORY_ID(name, ...) MM_MEM_##name,
typedef enum mm_memory { MM_MEMORIES(MM_MEMORY_ID) MM_MEMORY_COUNT } mm_memory;
#undef MM_MEMORY_ID

/* The memory's word, and where a segment in it is; "unknown" for a number that is not an mm_memory. */
const char *mm_memory_name(mm_memory memory);
const char *mm_memory_where(mm_memory memory);
int64_t mm_memory_align(mm_memory memory);
/* Bytes, rounded up so that the next segment of that memory may follow. */
static inline int64_t mm_memory_round(mm_memory memory, int64_t bytes) {
    const int64_t to = mm_memory_align(memory);
    return (bytes + to - 1) / to * to;
}

/* Where the home of a persistent tensor is. */
typedef struct mm_place {
    int64_t offset; /* from the base of the memory */
    mm_memory memory;
} mm_place;

static inline bool mm_place_differs(const mm_place *a, const mm_place *b) {
    return a->memory != b->memory || a->offset != b->offset;
}

typedef struct mm_limits {
    int64_t device_bytes; /* the budget: base + the plan's segments + external tensors */
    int64_t pinned_bytes; /* that of pinned memory: its base + the plan's segments there */
    /* Bytes at the low end of the arena for the persistent tensors of all graphs that have their homes there and, above
     * them, for the block of numbers that codecs read (mm_planned.block_offset); aligned. */
    int64_t base_bytes;
    int64_t pinned_base_bytes; /* bytes at the low end of pinned memory, for the homes there; aligned */
    int64_t disk_bytes;        /* the most bytes on the disk, with its base; 0: there is none */
    int64_t disk_base_bytes;   /* bytes at the low end of the disk, for the homes there; aligned */
    /* Homes of the graph's persistent tensors, in the order of their declaration, below the bases; borrowed. NULL: on
     * the device, one after the other from 0, as in an arena for this graph alone (mm_plan_base). */
    const mm_place *places;
    /* The most bytes that copies of persistent tensors may take on the device ahead of the steps that use them: those
     * that come from homes in other memories. 0: each copy comes right before its step. */
    int64_t ahead_bytes;
    /* If *stop is not 0, a planner that searches ends, with its best plan so far. A signal handler or another thread
     * sets it; borrowed. NULL: planners do not stop. */
    const volatile int *stop;
    /* A planner that tries several plans takes the first that fits, and does not search for further ones. */
    bool first_fit;
    /* Plans that take at least so long, by their facts, are of no use: a planner that tries several need not find one,
     * and may return any, which then counts as one that does not fit. 0: no limit. Of policies, only `auto`
     * reads this. */
    int64_t below_ns;
    /* The caller takes the fastest of about so many plans, each for other homes: a planner that searches spends such a
     * part of its usual work. 0: this plan alone. Of policies, only `auto` reads this. */
    int compared;
    /* The caller also plans with other limits: a planner that compares policies tries only those that fit and win most
     * often, and finds no small plan if none of theirs fits. Of policies, only `auto` reads this. */
    bool few;
    /* The graph is one of several that train in an iteration, and share the homes of persistent tensors. Then no more
     * of these leave the device than must: the time of one graph does not say whether that makes the iteration faster.
     * Policies do not read this. */
    bool one_of_several;
    /* There is no function that recomputes layers (mm_recompute_set): `auto` makes a plan that does not recompute.
     * Other policies do not read this. */
    bool no_recompute;
} mm_limits;

/* Whether a planner must end: mm_limits.stop. */
static inline bool mm_is_stopped(const volatile int *stop) { return stop && __atomic_load_n(stop, __ATOMIC_RELAXED); }

typedef enum mm_content {
    MM_CONTENT_RAW,
    MM_CONTENT_CODED, /* a code; its head, if it has a body */
    MM_CONTENT_WORK,
    MM_CONTENT_POOL, /* bodies of codes */
    MM_CONTENTS
} mm_content;

/* The name of the content, for messages; "unknown" for a number that is not an mm_content. */
const char *mm_content_name(mm_content content);

/* What a segment's bytes are for, in accounts and pictures. */
typedef enum mm_category {
    MM_CAT_PERSISTENT,   /* homes of persistent tensors, and no other segments */
    MM_CAT_FEATURE_MAP,  /* managed inputs and saved tensors too */
    MM_CAT_GRADIENT_MAP, /* managed gradients of weights too */
    MM_CAT_WORKSPACE,    /* workspaces of steps, scratch of codecs */
    MM_CAT_CODE,         /* codes, pools of their bodies */
    MM_CAT_BUFFER,       /* tensor buffers */
    MM_CAT_VISIT,        /* copies of persistent tensors whose homes are not on the device */
    MM_CATEGORIES
} mm_category;

const char *mm_category_name(mm_category category);

typedef struct mm_segment {
    mm_content content;
    mm_category category;
    mm_tensor tensor; /* the tensor that it holds; -1 for MM_CONTENT_WORK and MM_CONTENT_POOL */
    int32_t codec;    /* CODED: index in the facts' codecs; else -1 */
    int32_t pool;     /* CODED with a body: segment of the pool that has the body; else -1 */
    int32_t spill;    /* POOL on the device: segment of its spill, a pool in pinned memory; else -1 */
    mm_memory memory;
    bool dynamic;   /* placed in the heap region when it is first used at run time (the unoptimised workflow); offset
                         is unused */
    int64_t offset; /* from the base of its memory */
    int64_t bytes;
    /* filled by mm_plan_finish */
    int32_t first_node, last_node; /* first and last user in issue order; -1: none */
    int32_t live_last; /* last node at which its bytes count: last_node, or the node before if that step writes another
                          segment in place over it */
} mm_segment;

typedef struct mm_plan {
    const mm_graph *graph; /* borrowed */
    char *policy;          /* spec of the policy (mm_plan_name); "" at first */
    mm_node *nodes;
    int n_nodes;
    int32_t stream_nodes[MM_STREAM_COUNT]; /* number of nodes on each stream */
    mm_segment *segments;
    int n_segments;
    int32_t *bindings; /* -1: external tensor */
    int n_bindings;
    bool keeps_all;   /* no bytes are used for a second segment (naive): segments that were written count as alive to
                           the end */
    mm_tensor *alias; /* per tensor of the graph: the root, whose storage it shares; a root has itself. Tensors alias
                           only along mm_graph_allow_alias pairs. The step that "writes" an aliased tensor binds it to
                           the root's segment and writes nothing */
    /* of the limits that the plan was made for */
    int64_t base_bytes, pinned_base_bytes, disk_base_bytes;
    int64_t heap_offset, heap_bytes; /* region of dynamic segments; 0, 0: none */
    int64_t heap_code_bytes;     /* low part of the heap, for codes. Codes live long: among short-lived maps they would
                                    leave no hole large enough for a map */
    int64_t code_region_bytes;   /* size of the sliding workspace */
    int64_t buffer_region_bytes; /* size of all tensor buffers */
    int buffers;                 /* number of tensor buffers */
    bool cut_short;              /* the search for it was stopped (mm_limits.stop), so the plan depends on when that
                                    was; for reports */
    int defragmentations; /* how often the plan offloads all tensors, and fetches again those that a step needs (modnn);
                             for reports */
    /* filled by mm_plan_finish */
    int64_t extent_bytes;    /* highest end of a device segment or the heap; at least base_bytes */
    int64_t external_bytes;  /* external tensors of the graph */
    int64_t peak_bytes;      /* extent + external: the device limit that the plan needs */
    int64_t pinned_bytes;    /* highest end of a pinned segment; at least pinned_base_bytes */
    int64_t disk_bytes;      /* highest end of a segment on the disk; at least disk_base_bytes */
    int64_t live_peak_bytes; /* most bytes alive at a node: base + live segments + external tensors. No placement of
                                these segments can need less */
    int peak_step;           /* graph step of the node with live_peak_bytes */
    int64_t stash_bytes;     /* segments, codes too, alive from the last forward step into the first backward step */
} mm_plan;

/* The base of a memory, below which the homes in it lie; and what a plan takes of a memory, which mm_plan_finish
 * fills. */
static inline int64_t mm_limits_base(const mm_limits *limits, mm_memory memory) {
    return memory == MM_MEM_DEVICE   ? limits->base_bytes
           : memory == MM_MEM_PINNED ? limits->pinned_base_bytes
                                     : limits->disk_base_bytes;
}
static inline int64_t mm_plan_memory_base(const mm_plan *plan, mm_memory memory) {
    return memory == MM_MEM_DEVICE   ? plan->base_bytes
           : memory == MM_MEM_PINNED ? plan->pinned_base_bytes
                                     : plan->disk_base_bytes;
}
static inline int64_t *mm_plan_end(mm_plan *plan, mm_memory memory) {
    return memory == MM_MEM_DEVICE   ? &plan->extent_bytes
           : memory == MM_MEM_PINNED ? &plan->pinned_bytes
                                     : &plan->disk_bytes;
}

/* Whether a segment's bytes count among the device's live bytes from its first to its last node. Homes do not: their
 * bytes are in base_bytes. */
static inline bool mm_segment_has_life(const mm_segment *s) {
    return s->memory == MM_MEM_DEVICE && s->first_node >= 0 && s->category != MM_CAT_PERSISTENT;
}

/* Whether a tensor is persistent with its home in another memory than the device's, so that steps use copies of it. */
static inline bool mm_plan_visits(const mm_plan *plan, mm_tensor tensor) {
    const int home = mm_graph_tensor(plan->graph, tensor)->persistent;
    return home >= 0 && plan->segments[home].memory != MM_MEM_DEVICE;
}

/* base_bytes of an arena for this graph alone: the bytes of its persistent tensors, each aligned, one after the
 * other. */
int64_t mm_plan_base(const mm_graph *graph);

/* Creates a plan without nodes, with the segments of the persistent tensors. Each tensor is its own root. Borrows the
 * graph. MM_ERR_NOMEM. The caller destroys it. */
MM_CHECKED mm_status mm_plan_create(const mm_graph *graph, const mm_limits *limits, mm_plan **plan_out);
/* NULL is legal. */
void mm_plan_destroy(mm_plan *plan);

/* Sets plan->policy to a copy of the spec. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_name(mm_plan *plan, const char *policy);

/* Append in issue order. Each returns the new index, or -1 when out of memory (mm_last_error is set). mm_plan_step,
 * mm_plan_recompute: a node with no waits and variant 0. Persistent tensors are bound to their homes on the device,
 * other uses to -1. mm_plan_op: an operation on the stream of its kind. */
int mm_plan_step(mm_plan *plan, int step);
int mm_plan_recompute(mm_plan *plan, int step);
int mm_plan_op(mm_plan *plan, mm_node_kind kind, mm_tensor tensor, int src, int dst);
/* Makes the step at `node` write the code of its use number `use` to a segment. False: out of memory (mm_last_error is
 * set). */
bool mm_plan_write_code(mm_plan *plan, int node, int use, int segment);
int mm_plan_segment(mm_plan *plan, mm_content content, mm_category category, mm_tensor tensor, int64_t bytes);

/* Makes node `node` wait for node `earlier` (indices in issue order). Does nothing if both are on one stream. */
void mm_plan_wait(mm_plan *plan, int node, int earlier);

/* Fills in the derived fields. Call it when all offsets are set. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_finish(mm_plan *plan);

/* The root of a tensor's storage. */
static inline mm_tensor mm_plan_root(const mm_plan *plan, mm_tensor tensor) { return plan->alias[tensor]; }

/* The nodes of the last forward and of the first backward step; -1: there is none. */
void mm_plan_turning_point(const mm_plan *plan, int *last_forward_out, int *first_backward_out);

/* Live bytes by category at a node, base and external tensors included (the latter as feature maps). */
void mm_plan_live_at(const mm_plan *plan, int node, int64_t bytes_out[MM_CATEGORIES]);

#endif
