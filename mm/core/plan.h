/* The plan: what happens to every tensor in one iteration of one graph, as plain data. Policies make it, plan_check
 * proves it, simulate times it, the pipeline executes it.
 *
 * NODES, in issue order. A node is a step of the graph on the compute stream or an operation on a side stream; after a
 * step the operations that follow it in the array are queued, up to the next step. A node waits for at most one node of
 * each other stream (waiting for a node means waiting for all before it on its stream), always an earlier one in issue
 * order: so no plan can deadlock, and waits are vector clocks. How some nodes are executed in pieces: program.h.
 *
 * SEGMENTS, one for each residence of a tensor (raw, coded, decoded again) or workspace: where its bytes lie. The first
 * ones are those of the graph's persistent tensors, in the order of their declaration: each has one, at a fixed place that
 * the limits give, and holds in the first node what it held after the last one of the iteration before.
 *
 * BINDINGS: for each use of each step, the segment in which the step finds (or puts) the tensor.
 *
 *      arena of a manager (one address range; offsets from its base, multiples of 256)
 *      0            base                                                        extent
 *      | persistent | raw, gradient maps, workspaces ... | codes | buffers | heap |
 */
#ifndef MM_CORE_PLAN_H
#define MM_CORE_PLAN_H

#include "mm/core/facts.h"
#include "mm/core/graph.h"

enum { MM_ALIGN = 256 };

static inline int64_t mm_align(int64_t bytes) { return (bytes + MM_ALIGN - 1) / MM_ALIGN * MM_ALIGN; }

typedef struct mm_limits {
    int64_t device_bytes; /* the budget: base + the plan's segments + external tensors */
    int64_t pinned_bytes;
    int64_t base_bytes; /* taken by persistent tensors at the low end of the arena (of all graphs), MM_ALIGNed */
    /* Offset of each persistent tensor of the graph, in the order of their declaration, below base_bytes; borrowed.
     * NULL: one after the other from 0, as in a graph's own arena (mm_plan_base). */
    const int64_t *places;
} mm_limits;

typedef enum mm_stream_id {
    MM_STREAM_COMPUTE,
    MM_STREAM_ENCODE,
    MM_STREAM_DECODE,
    MM_STREAM_OUT,
    MM_STREAM_IN,
    MM_STREAM_COUNT
} mm_stream_id;

const char *mm_stream_id_name(mm_stream_id id);

typedef enum mm_node_kind {
    MM_NODE_STEP,      /* a step of the graph */
    MM_NODE_ENCODE,    /* src raw -> dst coded */
    MM_NODE_DECODE,    /* src coded -> dst raw */
    MM_NODE_OUT,       /* src on the device, raw or coded -> dst pinned, the same bytes */
    MM_NODE_IN,        /* src pinned -> dst on the device, the same bytes */
    MM_NODE_RECOMPUTE, /* a forward step run again for what it writes. It must find the values that it found the first
                          time, may write persistent tensors no more (it gets them to look at), and what it writes goes
                          to segments of its own. What it may be given (mm_graph_allow_given) and is there it reads
                          where it is */
    MM_NODE_KINDS
} mm_node_kind;

/* What an operation's source or target may be. */
typedef enum mm_node_end {
    MM_END_NONE,   /* a step: it has none */
    MM_END_RAW,    /* a map on the device */
    MM_END_CODED,  /* a code, on the device or in pinned memory */
    MM_END_DEVICE, /* a map or a code on the device */
    MM_END_PINNED, /* the same in pinned memory */
} mm_node_end;

/* Where the time of a node comes from (mm_facts), and what scratch it needs. */
typedef enum mm_node_cost {
    MM_COST_STEP,     /* the time and the workspace of the step's variant */
    MM_COST_ENCODE,   /* encode_ns and the scratch of the code */
    MM_COST_DECODE,   /* decode_ns, and the same scratch */
    MM_COST_LINK_OUT, /* the bytes of the target, at the rate of the link to the host; no scratch */
    MM_COST_LINK_IN,  /* and to the device */
} mm_node_cost;

/* All that is fixed of a kind of node. The check, the simulator and the lowering go by it. A new kind is an entry here,
 * one in the pipeline's table of operations (operation.c), and a stream of its own if no other may hold it up. */
typedef struct mm_node_traits {
    const char *word; /* for messages */
    mm_stream_id stream;
    mm_node_cost cost;
    mm_node_end src, dst;
    bool moves;              /* dst holds what src does, in the same form and size */
    mm_node_kind carries_on; /* cut into pieces together with a node of that kind, which it carries on with
                                 (program.h); its own kind: it is not */
} mm_node_traits;

extern const mm_node_traits mm_node_table[MM_NODE_KINDS];

static inline mm_stream_id mm_node_stream(mm_node_kind kind) { return mm_node_table[kind].stream; }

/* A word for messages; "unknown" for what is no kind. */
const char *mm_node_kind_name(mm_node_kind kind);

typedef struct mm_node {
    mm_node_kind kind;
    mm_stream_id stream;
    int32_t seq;                   /* its number on its stream, from 0, in issue order */
    int32_t wait[MM_STREAM_COUNT]; /* of each other stream, the seq that must have ended before it starts; -1: none */
    int32_t step;                  /* STEP, RECOMPUTE: which; else -1 */
    int32_t variant;               /* STEP: index among the step's variants in the facts */
    int32_t first_binding;         /* STEP: use u has segment bindings[first_binding + u] */
    uint64_t given;                /* RECOMPUTE: bit u: what use u wrote the first time is still there: it is read */
    mm_tensor tensor;              /* operations: which; else -1 */
    int32_t src, dst;              /* operations: segments; else -1 */
    int32_t work;                  /* segment of the step's workspace, of the codec's scratch, or -1 */
    int32_t stage;                 /* ENCODE, unoptimised workflow: encode here, then copy to dst; else -1 */
    int32_t throttle;              /* ENCODE right before the OUT of its code: at most so many pieces (program.h) are
                                      encoded and not copied yet, of this and earlier such maps; 0: no limit */
} mm_node;

/* Whether a node runs a step of the graph, for the first time or again. */
static inline bool mm_node_runs_step(const mm_node *node) {
    return node->kind == MM_NODE_STEP || node->kind == MM_NODE_RECOMPUTE;
}

/* Whether a step that is run again reads what its use u wrote the first time. */
static inline bool mm_node_is_given(const mm_node *node, int u) { return u < MM_GIVEN_USES && node->given >> u & 1; }

/* What a node does with its use `u`. What a step has changed of a persistent tensor it does not change again: run again,
 * it gets it to look at. */
static inline mm_access mm_node_access(const mm_node *node, const mm_use *use, int u) {
    if (mm_node_is_given(node, u)) return MM_READ;
    return node->kind == MM_NODE_RECOMPUTE && use->access == MM_MODIFY ? MM_READ : use->access;
}

typedef enum mm_content { MM_CONTENT_RAW, MM_CONTENT_CODED, MM_CONTENT_WORK } mm_content;

/* What bytes are used for, in accounts and pictures. */
typedef enum mm_category {
    MM_CAT_PERSISTENT,  /* the segment of a persistent tensor, and no other segment */
    MM_CAT_FEATURE_MAP, /* managed inputs and saved tensors too */
    MM_CAT_GRADIENT_MAP,
    MM_CAT_WORKSPACE, /* of steps and codecs */
    MM_CAT_CODE,
    MM_CAT_BUFFER, /* persistent tensor buffers */
    MM_CATEGORIES
} mm_category;

const char *mm_category_name(mm_category category);

typedef struct mm_segment {
    mm_content content;
    mm_category category;
    mm_tensor tensor; /* whose; -1 for MM_CONTENT_WORK */
    int32_t codec;    /* CODED: index in the facts' codecs; else -1 */
    bool pinned;      /* in pinned host memory, else on the device */
    bool dynamic;     /* placed at run time in the heap region (the unoptimised workflow); offset unused */
    int64_t offset;   /* from the arena's base */
    int64_t bytes;
    /* filled by mm_plan_finish */
    int32_t first_node, last_node; /* first and last user in issue order */
    int32_t live_last; /* last node at which its bytes count: last_node, or the one before if that node's step writes
                          another segment in place of it */
} mm_segment;

typedef struct mm_plan {
    const mm_graph *graph; /* borrowed */
    char *policy;          /* name and options (mm_plan_name); "" at first */
    mm_node *nodes;
    int n_nodes;
    int32_t stream_nodes[MM_STREAM_COUNT]; /* how many of them on each stream */
    mm_segment *segments;
    int n_segments;
    int32_t *bindings; /* -1: external tensor */
    int n_bindings;
    bool keeps_all;     /* nothing is freed: what was written counts as alive to the end (naive) */
    mm_tensor *alias;   /* per tensor of the graph: the tensor whose storage it shares, or itself. Roots alias
                           themselves; a tensor aliases only along mm_graph_allow_alias pairs. The step that "writes" an
                           aliased tensor binds it to the root's segment and writes nothing. */
    int64_t base_bytes; /* of the limits it was made for */
    int64_t heap_offset, heap_bytes; /* for dynamic segments; 0, 0 if none */
    int64_t heap_code_bytes;         /* the heap's low part, where codes are put: among the short-lived raw maps
                                        they would leave no hole large enough for one */
    int64_t code_region_bytes;       /* sliding compression workspace: total */
    int64_t buffer_region_bytes;     /* persistent tensor buffers: total, and how many */
    int buffers;
    /* filled by mm_plan_finish */
    int64_t extent_bytes;    /* highest end of any device segment or the heap; at least base_bytes */
    int64_t external_bytes;  /* external tensors of the graph */
    int64_t peak_bytes;      /* extent + external: what the device limit must be at least */
    int64_t pinned_bytes;    /* highest end of any pinned segment */
    int64_t live_peak_bytes; /* max over nodes of base + live segments + external: no placement can need less */
    int peak_step;           /* graph step where that is reached */
    int64_t stash_bytes;     /* segments (codes too) alive from the last forward step into the first backward step */
} mm_plan;

/* Whether a segment's bytes are on the device, and count there only from its first to its last node: those of persistent
 * tensors count in base_bytes. */
static inline bool mm_segment_has_life(const mm_segment *s) {
    return !s->pinned && s->first_node >= 0 && s->category != MM_CAT_PERSISTENT;
}

/* Bytes of a graph's persistent tensors, one after the other: the base where the graph is alone in its arena. */
int64_t mm_plan_base(const mm_graph *graph);

/* An empty plan (no nodes, everything aliasing itself): it has the segments of the persistent tensors. */
MM_CHECKED mm_status mm_plan_create(const mm_graph *graph, const mm_limits *limits, mm_plan **plan_out);
void mm_plan_destroy(mm_plan *plan);

/* Names the policy that made it; a copy is kept. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_name(mm_plan *plan, const char *policy);

/* Building, in issue order. Each returns the new index, or -1 when memory is out (mm_last_error set).
 * mm_plan_step, mm_plan_recompute: persistent tensors are bound to their segments, other bindings start at -1; waits at
 * none, variant 0.
 * mm_plan_op: an operation on the stream that its kind implies. */
int mm_plan_step(mm_plan *plan, int step);
int mm_plan_recompute(mm_plan *plan, int step);
int mm_plan_op(mm_plan *plan, mm_node_kind kind, mm_tensor tensor, int src, int dst);
int mm_plan_segment(mm_plan *plan, mm_content content, mm_category category, mm_tensor tensor, int64_t bytes);

/* Node `node` waits for node `earlier` (an index in issue order). Nothing if both are on one stream. */
void mm_plan_wait(mm_plan *plan, int node, int earlier);

/* Fills in the derived fields. Call once offsets are set. */
MM_CHECKED mm_status mm_plan_finish(mm_plan *plan);

/* How a node touches a segment. */
typedef struct mm_touch {
    int32_t segment;
    int32_t use;      /* of the step; -1: the operation's own, or a workspace */
    mm_access access; /* a workspace is written */
    bool work;        /* a workspace, scratch or stage: nobody else may have it */
} mm_touch;

/* The i-th segment that a node touches, from 0: a step's uses in their order, then source, target, workspace and stage.
 * Each time a segment is named is a touch of its own. What has no segment is passed over: start with *i = 0. False:
 * there are no more. */
bool mm_node_next_touch(const mm_plan *plan, const mm_node *node, int *i, mm_touch *touch_out);

/* The root of a tensor's storage. */
static inline mm_tensor mm_plan_root(const mm_plan *plan, mm_tensor tensor) { return plan->alias[tensor]; }

/* The nodes of the last forward and the first backward step; -1 where there is none. */
void mm_plan_turning_point(const mm_plan *plan, int *last_forward_out, int *first_backward_out);

/* Live bytes by category at a node, base and external included (external as feature maps). */
void mm_plan_live_at(const mm_plan *plan, int node, int64_t bytes_out[MM_CATEGORIES]);

/* MM_ERR_INFEASIBLE with "needs at least N, held by LAYER ..." if the plan's peak is above the limits. */
MM_CHECKED mm_status mm_plan_fits(const mm_plan *plan, const mm_limits *limits);

/* The proof, of the plan lowered to its program (program.h). For any plan, with one vector clock a stream:
 *  1. every step's read finds its tensor in a form that serves it, written by the right writer (the last write before
 *     the reader), complete, and not overwritten since; a decoded lossy code never serves MM_FORM_SIGN;
 *  2. two segments share bytes only when everything that uses the first happens-before the first write of the second
 *     (or the second is written in place of the first by a step whose graph allows it, as its last use);
 *  3. device bytes (base, segments, heap with every dynamic segment that can be alive at once, external tensors)
 *     within the limit, offsets aligned, nothing below base;
 *  4. pinned bytes within theirs;
 *  5. each persistent tensor lies where the limits have it, apart from all others; no other segment comes below the
 *     base. It holds a value before the first node, and after the last one exactly what was written to it last. What a
 *     side stream does to it comes after the first step: iterations follow each other on the compute stream;
 *  6. nothing is left or in vain: every step once and in order, every operation's result used, waits only for earlier
 *     nodes, code sizes as the facts say, workspaces as the variant needs.
 * MM_ERR_PLAN names tensor, step and why; MM_ERR_INFEASIBLE if only a limit is exceeded. O(n log n). */
MM_CHECKED mm_status mm_plan_check(const mm_plan *plan, const mm_facts *facts, const mm_limits *limits);

/* The same; and of each segment, whether all that it ever holds is bit for bit what was computed first (a code: what
 * was encoded was). Not what a lossy code gave back, nor what is computed again from that or by other means; and
 * where one of those is written over, no reader is told so, not even of what comes after. `exact_out`: one of each
 * segment, false of workspaces; NULL: not asked. */
MM_CHECKED mm_status mm_plan_prove(const mm_plan *plan, const mm_facts *facts, const mm_limits *limits,
                                   bool *exact_out);

#endif
