/* SPDX-License-Identifier: MIT */
/* The plan: what happens to every tensor in one iteration of one graph, as plain data. Policies make it, the check
 * proves it, the simulator times it, the pipeline executes it.
 *
 * NODES are in issue order. A node is a step of the graph on the compute stream, or an operation on a side stream.
 * When a step ends, the operations that follow it in the array, up to the next step, are queued. A node waits for at
 * most one node of each other stream, and so for all nodes before that one on its stream. It waits only for nodes
 * earlier in issue order. So no plan can deadlock, and vector clocks tell what has ended before a node starts. Some
 * nodes are executed in pieces: program.h.
 *
 * SEGMENTS say where bytes lie: one for each place and form of a tensor (raw, coded, decoded again), and one for each
 * workspace. The first segments are those of the graph's persistent tensors, in the order of their declaration. Each
 * has one, at a fixed place that the limits give; at the first node it holds what it held after the last node of the
 * previous iteration.
 *
 * A code of variable size has two parts. Its head, of a fixed size, is its segment. Its body lies in a POOL, a segment
 * in which bodies follow one another in the order of the encodes, which are all on one stream. Only the device knows
 * where a body begins. A body consists of chunks of at most MM_CHUNK_BYTES. A pool on the device may have a spill, a
 * pool in pinned memory for chunks that it has no room for. The two have one range of positions: a chunk that does not
 * end within the pool lies in the spill. So every chunk has room, as no body exceeds its bound. Positions only grow
 * within an iteration: no bytes of a pool are used twice, and the whole pool lives from the first encode of its codes
 * to their last decode.
 *
 *      positions   0                      pool.bytes                  at most the sum of the bounds
 *                  | body | body | chunk | chunk      | chunk | body | body ...
 *                  | pool (device)          |
 *      spill                  | one chunk   | chunk   | chunk | body | body ...  |   (position p is at its offset
 *                                                                      p - pool.bytes + MM_CHUNK_BYTES)
 *
 * BINDINGS say, for each use of each step, in which segment the step finds or puts the tensor. A step that declares it
 * (mm_graph_allow_code) may find a code in place of elements that it reads, and may also put the code of what it reads
 * or writes into another segment. Both codes are on the device, never in pinned memory.
 *
 *      arena of a manager (one address range; offsets from its base, multiples of 256)
 *      0            base                                                        extent
 *      | persistent | raw, gradient maps, workspaces ... | codes | buffers | heap |
 * */
#ifndef MM_CORE_PLAN_PLAN_H
#define MM_CORE_PLAN_PLAN_H

#include "mm/core/facts/facts.h"
#include "mm/core/graph/graph.h"

enum { MM_ALIGN = 256 }; /* alignment of all offsets, that of cudaMalloc (CUDA C++ Programming Guide) */

/* Most bytes of a chunk of a body: the window of cDMA (Rhu et al., HPCA 2018). */
enum { MM_CHUNK_BYTES = 4096 };

static inline int64_t mm_align(int64_t bytes) { return (bytes + MM_ALIGN - 1) / MM_ALIGN * MM_ALIGN; }

typedef struct mm_limits {
    int64_t device_bytes; /* the budget: base + the plan's segments + external tensors */
    int64_t pinned_bytes;
    /* Bytes at the low end of the arena for the persistent tensors of all graphs and, above them, for the block of
     * numbers that codecs read (mm_planned.block_offset); aligned. */
    int64_t base_bytes;
    /* Offsets of the graph's persistent tensors, in the order of their declaration, below base_bytes; borrowed. NULL:
     * one after the other from 0, as in an arena for this graph alone (mm_plan_base). */
    const int64_t *places;
    /* If *stop is not 0, a planner that searches ends, with its best plan so far. A signal handler or another thread
     * sets it; borrowed. NULL: planners do not stop. */
    const volatile int *stop;
    /* A planner that tries several plans takes the first that fits, and does not search for further ones. */
    bool first_fit;
} mm_limits;

/* Whether a planner must end: mm_limits.stop. */
static inline bool mm_is_stopped(const volatile int *stop) { return stop && __atomic_load_n(stop, __ATOMIC_RELAXED); }

/* Streams: name, word. Their number follows from this table. */
#define MM_STREAMS(X)                                                                                                  \
    X(COMPUTE, "compute")                                                                                              \
    X(ENCODE, "encode")                                                                                                \
    X(DECODE, "decode")                                                                                                \
    X(OUT, "out")                                                                                                      \
    X(IN, "in")

#define MM_STREAM_ID(name, word) MM_STREAM_##name,
typedef enum mm_stream_id { MM_STREAMS(MM_STREAM_ID) MM_STREAM_COUNT } mm_stream_id;
#undef MM_STREAM_ID

const char *mm_stream_id_name(mm_stream_id id);

/* clang-format off */
/* Kinds of nodes, with their properties (mm_node_traits). The check, the simulator and the lowering use these. A new
 * kind needs a line here, one in the pipeline's table of operations (operation.c), and a stream of its own if it shall
 * not delay other kinds. A new cost needs a case wherever operations are checked or timed: that code does not compile
 * without.
 *
 * STEP       a step of the graph
 * ENCODE     src raw -> dst coded
 * DECODE     src coded -> dst raw
 * OUT        src on the device, raw or coded -> dst pinned, the same bytes
 * IN         src pinned -> dst on the device, the same bytes
 * MEASURE    src raw on the device, in f32 -> a record of the execution, which is in no segment: sums over the elements
 *            (mm/device/contract/sums.h). src must hold the tensor's present value, exactly. It runs beside the
 *            computation, on the encode stream, which also reads maps
 * RECOMPUTE  a forward step that runs again. It must read the values that it read the first time. It writes to new
 *            segments, but not to persistent tensors, which it may only read. If an output that it may be given
 *            (mm_graph_allow_given) is still held, it reads that output instead of writing it
 *
 *        name       word         stream   cost      source  target  carries on with */
#define MM_NODES(X)                                                                                                    \
    X(STEP,      "step",      COMPUTE, STEP,     NONE,   NONE,   STEP)                                                 \
    X(ENCODE,    "encode",    ENCODE,  ENCODE,   RAW,    CODED,  ENCODE)                                               \
    X(DECODE,    "decode",    DECODE,  DECODE,   CODED,  RAW,    IN)                                                   \
    X(OUT,       "offload",   OUT,     LINK_OUT, DEVICE, PINNED, ENCODE)                                               \
    X(IN,        "prefetch",  IN,      LINK_IN,  PINNED, DEVICE, IN)                                                   \
    X(RECOMPUTE, "recompute", COMPUTE, STEP,     NONE,   NONE,   RECOMPUTE)                                            \
    X(MEASURE,   "measure",   ENCODE,  MEMORY,   RAW,    NONE,   MEASURE)
/* clang-format on */

#define MM_NODE_KIND(name, ...) MM_NODE_##name,
typedef enum mm_node_kind { MM_NODES(MM_NODE_KIND) MM_NODE_KINDS } mm_node_kind;
#undef MM_NODE_KIND

/* What an operation's source or target may be. */
typedef enum mm_node_end {
    MM_END_NONE,   /* no segment: for steps, and for a measure's target */
    MM_END_RAW,    /* elements on the device: of a map, or of a persistent tensor */
    MM_END_CODED,  /* a code, on the device or in pinned memory */
    MM_END_DEVICE, /* a map or a code on the device */
    MM_END_PINNED, /* a map or a code in pinned memory */
} mm_node_end;

/* Which facts give a node's time and scratch. */
typedef enum mm_node_cost {
    MM_COST_STEP,     /* time and workspace of the step's variant */
    MM_COST_ENCODE,   /* encode_ns and scratch_bytes of the code */
    MM_COST_DECODE,   /* decode_ns and scratch_bytes of the code */
    MM_COST_LINK_OUT, /* the target's bytes at the link's rate to the host; no scratch */
    MM_COST_LINK_IN,  /* the target's bytes at the link's rate to the device; no scratch */
    MM_COST_MEMORY,   /* the source's bytes at the rate of the device's memory; no scratch */
} mm_node_cost;

/* Properties of a kind of node. */
typedef struct mm_node_traits {
    const char *word; /* for messages */
    mm_stream_id stream;
    mm_node_cost cost;
    mm_node_end src, dst;
    mm_node_kind carries_on; /* kind of the node whose result it works on piece by piece, so that both are cut
                                (program.h); its own kind: none */
} mm_node_traits;

extern const mm_node_traits mm_node_table[MM_NODE_KINDS];

static inline mm_stream_id mm_node_stream(mm_node_kind kind) { return mm_node_table[kind].stream; }

/* The kind's word; "unknown" for a number that is no kind. */
const char *mm_node_kind_name(mm_node_kind kind);

typedef struct mm_node {
    mm_node_kind kind;
    mm_stream_id stream;
    int32_t seq; /* number on its stream, from 0, in issue order */
    /* per other stream: seq of the node that must have ended before this one starts; -1: none */
    int32_t wait[MM_STREAM_COUNT];
    int32_t step;          /* STEP, RECOMPUTE: the graph's step; else -1 */
    int32_t variant;       /* STEP, RECOMPUTE: index among the step's variants in the facts */
    int32_t first_binding; /* STEP, RECOMPUTE: use u has segment bindings[first_binding + u] */
    int32_t first_code;    /* STEP that writes codes: that of use u goes to segment bindings[first_code + u], if that is
                              not -1; else -1 */
    uint64_t given;        /* RECOMPUTE: bit u: the output of use u is still held, and is read */
    mm_tensor tensor;      /* operations: the tensor; else -1 */
    int32_t src, dst;      /* operations: segments (a measure has no dst); else -1 */
    int32_t work;          /* segment of the step's workspace or of the codec's scratch; -1: none */
    int32_t stage;         /* ENCODE in the unoptimised workflow: segment to encode to, before a copy to dst; else -1 */
    int32_t throttle; /* ENCODE right before the OUT of its code: most pieces (program.h) of this and earlier throttled
                         maps that may be encoded but not copied yet; 0: no limit */
} mm_node;

/* Whether a node runs a step of the graph, for the first time or again. */
static inline bool mm_node_runs_step(const mm_node *node) {
    return node->kind == MM_NODE_STEP || node->kind == MM_NODE_RECOMPUTE;
}

/* Whether a recomputation is given the output of its use u: it reads it instead of writing it. */
static inline bool mm_node_is_given(const mm_node *node, int u) { return u < MM_GIVEN_USES && node->given >> u & 1; }

/* How a node accesses its use u. A recomputation only reads given outputs, and modified persistent tensors. */
static inline mm_access mm_node_access(const mm_node *node, const mm_use *use, int u) {
    if (mm_node_is_given(node, u)) return MM_READ;
    return node->kind == MM_NODE_RECOMPUTE && use->access == MM_MODIFY ? MM_READ : use->access;
}

typedef enum mm_content {
    MM_CONTENT_RAW,
    MM_CONTENT_CODED, /* a code; its head, if it has a body */
    MM_CONTENT_WORK,
    MM_CONTENT_POOL, /* bodies of codes */
    MM_CONTENTS
} mm_content;

/* The content's word; "unknown" for a number that is none. */
const char *mm_content_name(mm_content content);

/* What a segment's bytes are for, in accounts and pictures. */
typedef enum mm_category {
    MM_CAT_PERSISTENT,  /* persistent tensors, and no other segments */
    MM_CAT_FEATURE_MAP, /* managed inputs and saved tensors too */
    MM_CAT_GRADIENT_MAP,
    MM_CAT_WORKSPACE, /* workspaces of steps, scratch of codecs */
    MM_CAT_CODE,      /* codes, pools of their bodies */
    MM_CAT_BUFFER,    /* tensor buffers */
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
    bool pinned;      /* in pinned host memory, else on the device */
    bool dynamic;     /* placed at run time in the heap region (the unoptimised workflow); offset unused */
    int64_t offset;   /* from the arena's base */
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
    bool keeps_all;     /* bytes are never used again: written segments count as alive to the end (naive) */
    mm_tensor *alias;   /* per tensor of the graph: the root, whose storage it shares; a root has itself. Tensors alias
                           only along mm_graph_allow_alias pairs. The step that "writes" an aliased tensor binds it to
                           the root's segment and writes nothing */
    int64_t base_bytes; /* base_bytes of the limits that it was made for */
    int64_t heap_offset, heap_bytes; /* region of dynamic segments; 0, 0: none */
    int64_t heap_code_bytes;     /* low part of the heap, for codes. Codes live long: among short-lived maps they would
                                    leave no hole large enough for a map */
    int64_t code_region_bytes;   /* size of the sliding workspace */
    int64_t buffer_region_bytes; /* size of all tensor buffers */
    int buffers;                 /* number of tensor buffers */
    bool cut_short;              /* its search was stopped (mm_limits.stop), so it depends on when; for reports */
    int defragmentations; /* how often all was offloaded, and what a step needs fetched again (modnn); for reports */
    /* filled by mm_plan_finish */
    int64_t extent_bytes;    /* highest end of a device segment or the heap; at least base_bytes */
    int64_t external_bytes;  /* external tensors of the graph */
    int64_t peak_bytes;      /* extent + external: the device limit that the plan needs */
    int64_t pinned_bytes;    /* highest end of a pinned segment */
    int64_t live_peak_bytes; /* most bytes alive at a node: base + segments + external. No placement can need less */
    int peak_step;           /* graph step at that node */
    int64_t stash_bytes;     /* segments, codes too, alive from the last forward step into the first backward step */
} mm_plan;

/* Whether a segment's bytes count among the device's live bytes from its first to its last node. Those of persistent
 * tensors do not: they are in base_bytes. */
static inline bool mm_segment_has_life(const mm_segment *s) {
    return !s->pinned && s->first_node >= 0 && s->category != MM_CAT_PERSISTENT;
}

/* Bytes of a graph's persistent tensors, aligned, one after the other: the base of an arena for this graph alone. */
int64_t mm_plan_base(const mm_graph *graph);

/* Creates a plan without nodes, with the segments of the persistent tensors. Each tensor is its own root. Borrows the
 * graph. MM_ERR_NOMEM. The caller destroys it. */
MM_CHECKED mm_status mm_plan_create(const mm_graph *graph, const mm_limits *limits, mm_plan **plan_out);
/* NULL is legal. */
void mm_plan_destroy(mm_plan *plan);

/* Sets plan->policy to a copy of the spec. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_name(mm_plan *plan, const char *policy);

/* Append in issue order. Each returns the new index, or -1 when out of memory (mm_last_error is set). mm_plan_step,
 * mm_plan_recompute: a node with no waits and variant 0. Persistent tensors are bound to their segments, other uses to
 * -1. mm_plan_op: an operation on the stream of its kind. */
int mm_plan_step(mm_plan *plan, int step);
int mm_plan_recompute(mm_plan *plan, int step);
int mm_plan_op(mm_plan *plan, mm_node_kind kind, mm_tensor tensor, int src, int dst);
/* Makes the step at `node` write its use's code to a segment. False: out of memory (mm_last_error is set). */
bool mm_plan_write_code(mm_plan *plan, int node, int use, int segment);
int mm_plan_segment(mm_plan *plan, mm_content content, mm_category category, mm_tensor tensor, int64_t bytes);

/* Makes node `node` wait for node `earlier` (indices in issue order). Does nothing if both are on one stream. */
void mm_plan_wait(mm_plan *plan, int node, int earlier);

/* Fills in the derived fields. Call it when all offsets are set. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_finish(mm_plan *plan);

/* A measure to add, of what `segment` holds: right before a node, a step but not the first; or after all nodes. */
typedef struct mm_measure_at {
    int32_t before; /* index of the node; n_nodes: after all nodes */
    int32_t segment;
} mm_measure_at;

/* A copy of a finished plan with measures. The computation waits for each of them. Segments and their places are the
 * plan's. MM_ERR_NOMEM. The caller destroys the copy. */
MM_CHECKED mm_status mm_plan_add_measures(const mm_plan *plan, const mm_measure_at *at, int n, mm_plan **plan_out);

/* A copy of a finished plan in which tensors that are all-reduced through copies (mm_graph_allreduce) go to pinned
 * memory, after the last step that writes them, and come back before the update, which waits for them. Their pinned
 * bytes lie above the plan's. MM_ERR_NOMEM. The caller destroys the copy. */
MM_CHECKED mm_status mm_plan_add_allreduce(const mm_plan *plan, mm_plan **plan_out);
/* The most pinned bytes that this adds; 0: no tensor is all-reduced through copies. */
int64_t mm_plan_allreduce_bytes(const mm_graph *graph);

/* Tensors whose all-reduces in place begin together, when those of earlier groups have begun. */
typedef struct mm_allreduce_group {
    int first, n;          /* its tensors: mm_allreduce_groups.tensors[first] to [first + n - 1] */
    int32_t after, update; /* nodes: they may begin after the one, and must be done before the other */
    int32_t writer; /* the graph's step that writes these gradients last; INT32_MAX: no gradients, or all at the end */
} mm_allreduce_group;

/* Groups in the order in which they begin, which is the same for all plans of a graph. */
typedef struct mm_allreduce_groups {
    mm_allreduce_group *groups;
    int n; /* number of groups */
    mm_tensor *tensors;
} mm_allreduce_groups;

/* Groups the tensors that a plan all-reduces in place. MM_ERR_NOMEM. mm_allreduce_groups_fini frees the groups. */
MM_CHECKED mm_status mm_plan_allreduce_groups(const mm_plan *plan, mm_allreduce_groups *groups_out);
/* Bytes of a group's tensors. */
int64_t mm_allreduce_group_bytes(const mm_plan *plan, const mm_allreduce_groups *groups, int group);
/* Legal on a zeroed one. */
void mm_allreduce_groups_fini(mm_allreduce_groups *groups);

/* A use of a segment by a node. */
typedef struct mm_touch {
    int32_t segment;
    int32_t use;      /* index of the step's use; -1: a code that the step writes, an operation's source or target, a
                         workspace, or a pool */
    mm_access access; /* MM_WRITE for a workspace, and for a pool that a code is encoded into */
    bool work;        /* a workspace, scratch or stage: no other node may use it */
} mm_touch;

/* Iterates over the segments that a node touches: a step's uses in their order, the codes that it writes, source,
 * target, workspace and stage, and, if it encodes or decodes a code with a body, the body's pool and its spill. A
 * segment that is named twice is visited twice. Uses without a segment are skipped. Start with *i = 0. False: no
 * more. */
bool mm_node_next_touch(const mm_plan *plan, const mm_node *node, int *i, mm_touch *touch_out);

/* A hash of what a plan's nodes do and wait for, and of where segments lie. Equal hashes are taken for equal plans. */
uint64_t mm_plan_digest(const mm_plan *plan);

/* Whether the segment has a code, which the step reads in place of the elements of its use. */
static inline bool mm_use_is_coded(const mm_use *use, const mm_segment *segment) {
    return use->form == MM_FORM_VALUE && segment->content == MM_CONTENT_CODED;
}

/* The segment to which a node writes the code of its use u; -1: none. */
static inline int32_t mm_node_code(const mm_plan *plan, const mm_node *node, int u) {
    return node->first_code < 0 ? -1 : plan->bindings[node->first_code + u];
}

/* The step's declaration (mm_graph_allow_code) that it can read or write the codec's code of its use `use` by itself;
 * NULL: it cannot, or the code has no strips. tensor: the root. */
const mm_step_code *mm_step_code_of(const mm_facts *facts, const mm_step_info *step, int use, mm_access access,
                                    int codec, mm_tensor tensor);

/* Bytes of a step's workspace: its variant's, and what it needs for the codes that it reads and writes. */
int64_t mm_node_work_bytes(const mm_plan *plan, const mm_facts *facts, const mm_node *node);

/* How much longer a step takes for the codes that it reads and writes (u: for that use's alone; -1: for all). A code
 * takes the codec's time, less a pass over the map in memory if the memory's rate is known. */
int64_t mm_node_codes_ns(const mm_plan *plan, const mm_facts *facts, const mm_node *node, int u);

/* The root of a tensor's storage. */
static inline mm_tensor mm_plan_root(const mm_plan *plan, mm_tensor tensor) { return plan->alias[tensor]; }

/* The nodes of the last forward and of the first backward step; -1: there is none. */
void mm_plan_turning_point(const mm_plan *plan, int *last_forward_out, int *first_backward_out);

/* Bytes of the spills of the plan's pools. */
int64_t mm_plan_spill_bytes(const mm_plan *plan);

/* For the end of a message about too little pinned memory: what else the user can do; "": nothing. */
const char *mm_plan_pinned_hint(const mm_plan *plan);

/* Live bytes by category at a node, base and external tensors included (the latter as feature maps). */
void mm_plan_live_at(const mm_plan *plan, int node, int64_t bytes_out[MM_CATEGORIES]);

/* MM_ERR_INFEASIBLE if the plan's peak is above the limits; the message is "needs at least N, held by LAYER ...". */
MM_CHECKED mm_status mm_plan_fits(const mm_plan *plan, const mm_limits *limits);

#endif
