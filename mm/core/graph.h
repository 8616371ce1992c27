/* The frozen graph as planners see it. Everything here is read-only after mm_graph_freeze and may be shared. */
#ifndef MM_CORE_GRAPH_H
#define MM_CORE_GRAPH_H

#include "mm/mm.h"

typedef struct mm_tensor_info {
    char *name;
    mm_tensor_kind kind;
    mm_ownership ownership;
    mm_dtype dtype;
    int rank;
    int64_t dims[MM_RANK_MAX]; /* unused ones are 1 */
    int64_t bytes;
    int persistent;    /* its number among the persistent tensors, from 0: the number of its segment in every plan
                          (plan.h); -1: it is not persistent */
    mm_layer producer; /* layer of the first step that writes it; -1 if none does */
    int first_use;     /* first and last step that uses it */
    int last_use;
    int last_forward;   /* last MM_FORWARD step that uses it; -1 */
    int first_backward; /* first MM_BACKWARD step that reads it; -1 */
    int writes;         /* how many steps write or modify it */
} mm_tensor_info;

typedef struct mm_layer_info {
    char *name;
    char **parts; /* names of what it computes besides (mm_graph_add_part) */
    int n_parts;
    mm_layer_kind kind; /* a label for rules */
    mm_layer_properties properties;
    int step[3]; /* index of the step of each phase; -1 */
} mm_layer_info;

/* A pair of a step: `output` may take `input`'s bytes. */
typedef struct mm_pair {
    mm_tensor input, output;
    bool alias; /* output equals input (share); else in place */
} mm_pair;

enum { MM_GIVEN_USES = 64 };

typedef struct mm_step_info {
    mm_layer layer;
    mm_phase phase;
    const mm_use *uses;
    int n_uses;
    const mm_pair *pairs;
    int n_pairs;
    uint64_t given; /* bit u: run again, it can do with what use u wrote the first time */
    int64_t workspace_bytes;
    const int64_t *less_bytes; /* workspaces that would do too, each less than the one before */
    int n_less;
} mm_step_info;

const char *mm_graph_name(const mm_graph *graph);
bool mm_graph_frozen(const mm_graph *graph);
int mm_graph_tensors(const mm_graph *graph);
/* How many of them are persistent. */
int mm_graph_persistents(const mm_graph *graph);
int mm_graph_layers(const mm_graph *graph);
int mm_graph_steps(const mm_graph *graph);
const mm_tensor_info *mm_graph_tensor(const mm_graph *graph, mm_tensor tensor);
const mm_layer_info *mm_graph_layer(const mm_graph *graph, mm_layer layer);
const mm_step_info *mm_graph_step(const mm_graph *graph, int step);

/* The properties of a step's layer. */
static inline const mm_layer_properties *mm_graph_step_properties(const mm_graph *graph, int step) {
    return &mm_graph_layer(graph, mm_graph_step(graph, step)->layer)->properties;
}

/* "layer1.0.conv1 backward", for messages. Returns buffer. */
const char *mm_graph_step_name(const mm_graph *graph, int step, char *buffer, size_t capacity);

#endif
