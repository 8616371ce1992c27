/* SPDX-License-Identifier: MIT */
/* The frozen graph as planners see it. All of it is read-only after mm_graph_freeze, and may be read by any thread. */
#ifndef MM_CORE_GRAPH_GRAPH_H
#define MM_CORE_GRAPH_GRAPH_H

#include "mm/mm.h"

typedef struct mm_tensor_info {
    char *name;
    mm_tensor_kind kind;
    mm_ownership ownership;
    mm_dtype dtype;
    int rank;
    int64_t dims[MM_RANK_MAX]; /* unused ones are 1 */
    int64_t bytes;
    int persistent;           /* its index among the persistent tensors, and that of its segment in every plan (plan.h);
                                 -1: not persistent */
    mm_tensor weight;         /* the weight whose gradient or optimizer state it is (mm_graph_set_weight); -1: none */
    mm_tensor gradient;       /* for a weight: its gradient; -1: none was declared */
    mm_allreduce_when shared; /* whether and when it is all-reduced (mm_graph_allreduce) */
    mm_reduce_op shared_as;
    mm_layer producer; /* layer of the first step that writes it; -1: none does */
    int first_use;     /* first and last step that uses it */
    int last_use;
    int last_write;     /* last step that writes or modifies it; -1: none does */
    int last_forward;   /* last MM_FORWARD step that uses it; -1: none does */
    int first_backward; /* first MM_BACKWARD step that reads it; -1: none does */
    int writes;         /* number of steps that write or modify it */
    bool on_host;       /* a step on the host uses it (mm_graph_run_on_host): its home is not on the device */
} mm_tensor_info;

/* Whether a tensor is all-reduced through copies in pinned memory; and whether its all-reduce, through copies or in
 * place, begins only after the last step before the update. */
static inline bool mm_allreduce_copies(mm_allreduce_when share) {
    return share == MM_ALLREDUCE_AT_ONCE || share == MM_ALLREDUCE_AT_END;
}
static inline bool mm_allreduce_at_end(mm_allreduce_when share) {
    return share == MM_ALLREDUCE_AT_END || share == MM_ALLREDUCE_IN_PLACE_AT_END;
}

typedef struct mm_layer_info {
    char *name;
    char **parts; /* further names, of the parts of a fused layer (mm_graph_add_part) */
    int n_parts;
    mm_layer_kind kind; /* policies' rules name layers by it */
    mm_layer_properties properties;
    int step[3]; /* per phase: its step; -1: none */
} mm_layer_info;

/* Whether outputs of layers of a kind have many zeros. */
typedef enum mm_layer_zeros {
    MM_ZEROS_NONE,   /* none but by chance */
    MM_ZEROS_MADE,   /* the layer makes them: ReLU, dropout */
    MM_ZEROS_PASSED, /* if its inputs have: pool, concatenation */
} mm_layer_zeros;

mm_layer_zeros mm_layer_kind_zeros(mm_layer_kind kind);

/* A pair of a step: `output` may take the bytes of `input`. */
typedef struct mm_pair {
    mm_tensor input, output;
    bool alias; /* output equals input, and may share its storage; else output may be written in place */
} mm_pair;

enum { MM_GIVEN_USES = 64 }; /* bits of mm_step_info.given */

enum { MM_CODEC_NAME_CAPACITY = 24 }; /* of a codec's name in a step's declaration, with its NUL */

/* A code that a step can read or write by itself (mm_code_use). */
typedef struct mm_step_code {
    int use;
    mm_access access; /* MM_READ or MM_WRITE */
    char codec[MM_CODEC_NAME_CAPACITY];
    int64_t workspace_bytes;
    int workspace_strips, passes;
} mm_step_code;

typedef struct mm_step_info {
    mm_layer layer;
    mm_phase phase;
    const mm_use *uses;
    int n_uses;
    const mm_pair *pairs;
    int n_pairs;
    /* bit u: a recomputation can read the output of use u, if that output is still in memory, instead of writing it
     * again (mm_graph_allow_given) */
    uint64_t given;
    const mm_step_code *codes;
    int n_codes;
    bool on_host; /* mm_graph_run_on_host */
    int64_t workspace_bytes;
    const int64_t *less_bytes; /* bytes of smaller workspaces that the step can run with, descending */
    int n_less;
} mm_step_info;

/* Whether the tensor may be stored as a lossy code: only managed feature maps and gradient maps may. Saved tensors and
 * batches must come back exactly (mm.h). In a persistent tensor, loss would become part of the training state. */
bool mm_tensor_takes_loss(const mm_tensor_info *tensor);

const char *mm_graph_name(const mm_graph *graph);
bool mm_graph_frozen(const mm_graph *graph);
int mm_graph_tensors(const mm_graph *graph);
/* Number of persistent tensors. */
int mm_graph_persistents(const mm_graph *graph);
/* Whether a step runs on the host. */
bool mm_graph_uses_host(const mm_graph *graph);
int mm_graph_layers(const mm_graph *graph);
int mm_graph_steps(const mm_graph *graph);
/* The tensor with that name; -1: there is none. */
mm_tensor mm_graph_index(const mm_graph *graph, const char *name);
const mm_tensor_info *mm_graph_tensor(const mm_graph *graph, mm_tensor tensor);
const mm_layer_info *mm_graph_layer(const mm_graph *graph, mm_layer layer);
const mm_step_info *mm_graph_step(const mm_graph *graph, int step);

/* The properties of a step's layer. */
static inline const mm_layer_properties *mm_graph_step_properties(const mm_graph *graph, int step) {
    return &mm_graph_layer(graph, mm_graph_step(graph, step)->layer)->properties;
}

/* Writes a step's name for messages, such as "layer1.0.conv1 backward". Returns buffer. */
const char *mm_graph_step_name(const mm_graph *graph, int step, char *buffer, size_t capacity);

#endif
