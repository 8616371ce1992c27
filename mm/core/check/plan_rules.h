/* SPDX-License-Identifier: MIT */
/* The rules of the proof (mm_program_prove), by number, and what a plan that breaks one is refused with.
 * SPECIFICATION.md, beside this file, says what each rule means and why it is there. */
#ifndef MM_CORE_CHECK_PLAN_RULES_H
#define MM_CORE_CHECK_PLAN_RULES_H

#include "mm/core/plan/program.h"

/* clang-format off */
/*    name              number  what must hold */
#define MM_RULES(X) \
    X(FACTS,            "1.1",  "the facts are of the plan's graph")                                                   \
    X(ROOTS,            "1.2",  "only managed tensors share storage, and each has one root")                           \
    X(DECLARED_EQUAL,   "1.3",  "an output shares only the storage of an input that its step declares equal")          \
    X(CONTENT,          "2.1",  "each segment has a content, and what belongs to it: a tensor, a codec")               \
    X(SIZE,             "2.2",  "each segment has the bytes of what it holds")                                         \
    X(PLACE,            "2.3",  "each segment is aligned, above the base, and in a memory that its content may be in") \
    X(LOSS,             "2.4",  "only managed maps and gradients are held in lossy codes")                             \
    X(POOL,             "2.5",  "a code has a body in a pool if and only if its codec gives it one")                   \
    X(POOL_ROOM,        "2.6",  "each pool has room for the largest bodies of all its codes")                          \
    X(STEPS,            "3.1",  "each step of the graph runs once, in order, by a variant that it has")                \
    X(BINDINGS,         "3.2",  "each use of a step is bound to a segment of its tensor on the device")                \
    X(CODE_READ,        "3.3",  "a step reads a code in place of elements only if it declares that it can")            \
    X(CODE_WRITTEN,     "3.4",  "a step writes a code only if it declares that it can, of elements that it has")       \
    X(WORKSPACE,        "3.5",  "each node has the workspace that it needs")                                           \
    X(RECOMPUTE,        "3.6",  "only a forward step that has run, and may run again, is recomputed")                  \
    X(ENDS,             "4.1",  "an operation's source and target are what its kind takes, and of its tensor")         \
    X(COPY,             "4.2",  "a copy changes neither form nor size, and is not of a code with a body")              \
    X(CODING,           "4.3",  "an encode or decode has a codec that can do it")                                      \
    X(MEASURE,          "4.4",  "a measure is of elements in f32, and needs no workspace")                             \
    X(STREAM,           "5.1",  "each node is the next on the stream of its kind")                                     \
    X(WAITS,            "5.2",  "a node waits only for nodes of other streams that are issued before it")              \
    X(PIECES,           "5.3",  "pieces follow the order of their nodes, and wait for earlier pieces")                 \
    X(PARTS,            "5.4",  "the pieces of a node do its work once, in order")                                     \
    X(CUT,              "5.5",  "only an operation whose work can be cut has several pieces")                          \
    X(WRITTEN,          "6.1",  "a segment that is read was written before")                                           \
    X(READ_WAITS,       "6.2",  "a read waits for the write whose value it reads")                                     \
    X(WRITE_WAITS,      "6.3",  "a write waits for all earlier users of its segment")                                  \
    X(VALUE,            "6.4",  "what is read is the value that the sequential execution reads")                       \
    X(SIGNS,            "6.5",  "signs are read from an exact form, or from a code that has them")                     \
    X(ELEMENTS,         "6.6",  "a step writes elements, not over a code")                                             \
    X(SHARED_OUTPUT,    "6.7",  "an output that shares storage is in the segment of the input that it shares")         \
    X(FRESH,            "6.8",  "an operation, or a step that writes a code, writes to an unused segment, or home")    \
    X(ALONE,            "6.9",  "a workspace is of one node alone")                                                    \
    X(UNCHANGED,        "6.10", "a recomputation reads what the step read the first time")                             \
    X(MEASURED,         "6.11", "a measure reads its tensor's present value, exactly")                                 \
    X(HOME,             "7.1",  "each persistent tensor has one home, whole, and no other segment counts as one")      \
    X(HOME_PLACE,       "7.2",  "each home is where the limits place it, below the base")                              \
    X(HOMES_APART,      "7.3",  "homes share no byte")                                                                 \
    X(HOME_ENTRY,       "7.4",  "an operation uses a home only after the first step")                                  \
    X(HOME_END,         "7.5",  "at the end, each home holds what was last written to its tensor")                     \
    X(HANDOVER,         "8.1",  "a segment takes bytes only after all users of their earlier owners")                  \
    X(FREED,            "8.2",  "a segment of the heap is freed after all its users")                                  \
    X(HEAP_ROOM,        "8.3",  "the segments that live in the heap at once have room in it")                          \
    X(HEAP_PLACE,       "8.4",  "the heap is apart from all other segments")                                           \
    X(DEVICE_BYTES,     "9.1",  "the bytes on the device are within their limit")                                      \
    X(PINNED_BYTES,     "9.2",  "the bytes of pinned memory are within their limit")                                   \
    X(BASE,             "9.3",  "the plan was made for the bases of both memories")                                    \
    X(STATED,           "9.4",  "the totals that the plan states are right")                                           \
    X(DISK_BYTES,       "9.5",  "the bytes on the disk are within their limit")                                        \
    X(RESULT_USED,      "10.1", "each result of an operation or a recomputation is used")                              \
    X(SEGMENT_USED,     "10.2", "each segment is used")
/* clang-format on */

#define MM_RULE_NAME(name, number, text) MM_RULE_##name,
typedef enum mm_rule { MM_RULES(MM_RULE_NAME) MM_RULE_COUNT } mm_rule;
#undef MM_RULE_NAME

/* "6.2", and what must hold. */
const char *mm_rule_number(mm_rule rule);
const char *mm_rule_text(mm_rule rule);

/* Which rule a plan breaks, and where. Nodes and segments are -1 where there is none to name. */
typedef struct mm_violation {
    mm_rule rule;
    int32_t node; /* the first node, in issue order, that goes wrong */
    /* Rules 6.2, 6.3, 8.1, 8.2: a node that must have ended before `node` starts (8.2: before it ends), and may not
     * have. For the other rules -1. */
    int32_t other;
    mm_tensor tensor;
    int32_t segment, old; /* the segment; 8.1: and the one that it is put over */
} mm_violation;

/* mm_program_prove, which also says what a plan that is refused breaks. violation_out is set with MM_ERR_PLAN and
 * MM_ERR_INFEASIBLE alone. */
MM_CHECKED mm_status mm_program_prove_or_say(const mm_program *program, const mm_graph_facts *facts,
                                             const mm_limits *limits, bool *exact_out, mm_violation *violation_out);

#endif
