/* SPDX-License-Identifier: MIT */
/* A short notation for small graphs, and for plans of them. Sizes are in units of the alignment, so that peaks are
 * sums. Any failure fails the test. */
#ifndef TESTS_POLICIES_TERSE_GRAPH_H
#define TESTS_POLICIES_TERSE_GRAPH_H

#include <stdio.h>

#include "policies/policy.h"

enum { UNIT = MM_ALIGN };

typedef struct terse_graph {
    mm_graph *graph;
    size_t workspace_bytes; /* of the steps that are added from now on */
    int i;                  /* '#' in names of tensors and layers stands for i, '<' for i - 1 */
    mm_layer layers[256];
    char names[256][16];
    int n_layers;
} terse_graph;

void terse_init(terse_graph *graph, const char *name);
void terse_persistent(terse_graph *graph, const char *name, int units);
/* A managed tensor of floats. */
void terse_map(terse_graph *graph, const char *name, mm_tensor_kind kind, int units);
/* uses: names of tensors; "x" is read, "?x" is read for its sign, "=x" is written, "+x" is modified. A new name of a
 * layer adds the layer. */
void terse_step(terse_graph *graph, const char *layer, mm_layer_kind kind, mm_phase phase, const char *uses);
void terse_inplace(terse_graph *graph, const char *input, const char *output);
void terse_alias(terse_graph *graph, const char *input, const char *output);
mm_graph *terse_freeze(terse_graph *graph);

mm_tensor terse_tensor(const mm_graph *graph, const char *name);

typedef struct planned {
    mm_graph_facts *facts;
    mm_plan *plan;
} planned;

/* Facts with the codecs "zfp:rate=8", whose codes all have `code_bytes`, and "mask". */
mm_graph_facts *terse_facts(const mm_graph *graph, int64_t code_bytes);

/* Plans, as published (when=always) unless the policy says otherwise, and proves the plan. */
void plan_terse(planned *planned, const mm_graph *graph, const char *policy, int64_t code_bytes);
/* Likewise in a budget. If nothing fits it, the plan is the one that needs least. */
void plan_terse_within(planned *planned, const mm_graph *graph, const char *policy, int64_t code_bytes,
                       int64_t device_bytes);
void planned_done(planned *planned);

/* Writes the nodes in issue order: "conv" a forward step, "conv'" a backward step, "~conv" a recomputation; "(x"
 * encode, ">x" out, "<x" in, "x)" decode. Returns text. */
const char *terse_tell(const mm_plan *plan, char *text, size_t capacity);

/* Whether the first segments of two tensors begin at the same place. */
bool same_place(const planned *planned, const char *a, const char *b);
/* The tensor's n-th segment; NULL: it has fewer. */
const mm_segment *segment_of(const planned *planned, const char *tensor, int n);

#endif
