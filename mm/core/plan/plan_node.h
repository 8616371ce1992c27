/* SPDX-License-Identifier: MIT */
/* The nodes of a plan: streams, kinds of nodes and their properties, and what a node says. */
#ifndef MM_CORE_PLAN_PLAN_NODE_H
#define MM_CORE_PLAN_PLAN_NODE_H

#include "mm/core/graph/graph.h"

/* Streams: name, word. Their number follows from this table. */
#define MM_STREAMS(X)                                                                                                  \
    X(COMPUTE, "compute")                                                                                              \
    X(ENCODE, "encode")                                                                                                \
    X(DECODE, "decode")                                                                                                \
    X(OUT, "out")                                                                                                      \
    X(IN, "in")                                                                                                        \
    X(HOST, "host")                                                                                                    \
    X(STORE, "store")                                                                                                  \
    X(LOAD, "load")

#define MM_STREAM_ID(name, word) MM_STREAM_##name,
typedef enum mm_stream_id { MM_STREAMS(MM_STREAM_ID) MM_STREAM_COUNT } mm_stream_id;
#undef MM_STREAM_ID

const char *mm_stream_id_name(mm_stream_id id);

/* clang-format off */
/* Kinds of nodes, with their properties (mm_node_traits). The check, the simulator and the lowering use these. A new
 * kind needs a line here, one in the pipeline's table of operations (operation.c), and a stream of its own if it shall
 * not delay other kinds. A new cost (mm_node_cost) needs a case in each switch that checks or times operations; without
 * it, that code does not compile.
 *
 * STEP       a step of the graph; on the host stream if it runs on the host (mm_graph_run_on_host). Such a step uses
 *            homes in pinned memory, or copies there of homes on the disk, and nothing else
 * ENCODE     src raw -> dst coded
 * DECODE     src coded -> dst raw
 * OUT        src on the device, raw or coded -> dst pinned, the same bytes
 * IN         src pinned -> dst on the device, the same bytes
 * STORE      src pinned -> dst on the disk, the same bytes: meanwhile others can use the pinned memory
 * LOAD       src on the disk -> dst pinned, the same bytes
 * MEASURE    src raw on the device, in f32 -> a record of the execution, which is in no segment: sums over the elements
 *            (mm/device/contract/sums.h). src must hold the tensor's present value, exactly. It runs beside the
 *            computation, on the encode stream, which also reads maps
 * RECOMPUTE  a forward step that runs again. It must read the values that it read the first time. It writes to new
 *            segments, but not to persistent tensors, which it may only read. If an output that it may be given
 *            (mm_graph_allow_given) is still in memory, it reads that output instead of writing it
 *
 *        name       word         stream   cost      source  target  carries on with */
#define MM_NODES(X)                                                                                                    \
    X(STEP,      "step",      COMPUTE, STEP,     NONE,   NONE,   STEP)                                                 \
    X(ENCODE,    "encode",    ENCODE,  ENCODE,   RAW,    CODED,  ENCODE)                                               \
    X(DECODE,    "decode",    DECODE,  DECODE,   CODED,  RAW,    IN)                                                   \
    X(OUT,       "offload",   OUT,     LINK_OUT, DEVICE, PINNED, ENCODE)                                               \
    X(IN,        "prefetch",  IN,      LINK_IN,  PINNED, DEVICE, IN)                                                   \
    X(RECOMPUTE, "recompute", COMPUTE, STEP,     NONE,   NONE,   RECOMPUTE)                                            \
    X(MEASURE,   "measure",   ENCODE,  MEMORY,   RAW,    NONE,   MEASURE)                                              \
    X(STORE,     "store",     STORE,   DISK_OUT, PINNED, DISK,   STORE)                                                \
    X(LOAD,      "load",      LOAD,    DISK_IN,  DISK,   PINNED, LOAD)
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
    MM_END_DISK,   /* a map or a code on the disk */
} mm_node_end;

/* Which facts give a node's time and scratch. */
typedef enum mm_node_cost {
    MM_COST_STEP,     /* time and workspace of the step's variant */
    MM_COST_ENCODE,   /* encode_ns and scratch_bytes of the code */
    MM_COST_DECODE,   /* decode_ns and scratch_bytes of the code */
    MM_COST_LINK_OUT, /* the target's bytes at the link's rate to the host; no scratch */
    MM_COST_LINK_IN,  /* the target's bytes at the link's rate to the device; no scratch */
    MM_COST_MEMORY,   /* the source's bytes at the rate of the device's memory; no scratch */
    MM_COST_DISK_OUT, /* the target's bytes at the disk's rate of writes, and its latency; no scratch */
    MM_COST_DISK_IN,  /* the target's bytes at the disk's rate of reads, and its latency; no scratch */
} mm_node_cost;

/* Properties of a kind of node. */
typedef struct mm_node_traits {
    const char *word; /* for messages */
    mm_stream_id stream;
    mm_node_cost cost;
    mm_node_end src, dst;
    mm_node_kind carries_on; /* kind of the node whose result it works on piece by piece, so that both are cut
                                (program.h); its own kind here: there is no such node */
} mm_node_traits;

extern const mm_node_traits mm_node_table[MM_NODE_KINDS];

/* The stream of the kind's nodes, except for steps on the host. */
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
    int32_t first_code;    /* STEP that writes codes: the code of use u goes to segment bindings[first_code + u], unless
                              that is -1; for other nodes -1 */
    uint64_t given;        /* RECOMPUTE: bit u: the output of use u is still in memory, and is read instead of
                              written */
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

/* Whether a node runs a step on the device, or on the host. */
static inline bool mm_node_computes(const mm_node *node) {
    return mm_node_runs_step(node) && node->stream == MM_STREAM_COMPUTE;
}
static inline bool mm_node_on_host(const mm_node *node) { return node->stream == MM_STREAM_HOST; }

/* Whether a recomputation is given the output of its use u: it reads it instead of writing it. */
static inline bool mm_node_is_given(const mm_node *node, int u) { return u < MM_GIVEN_USES && node->given >> u & 1; }

/* How a node accesses its use u. A recomputation only reads given outputs, and modified persistent tensors. */
static inline mm_access mm_node_access(const mm_node *node, const mm_use *use, int u) {
    if (mm_node_is_given(node, u)) return MM_READ;
    return node->kind == MM_NODE_RECOMPUTE && use->access == MM_MODIFY ? MM_READ : use->access;
}

#endif
