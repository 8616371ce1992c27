/* SPDX-License-Identifier: MIT */
/* Random training graphs whose steps can be executed. A step computes a deterministic mix of all bytes that it reads,
 * so that one wrong byte anywhere changes all later results. */
#ifndef TESTS_CORE_RANDOM_GRAPH_H
#define TESTS_CORE_RANDOM_GRAPH_H

#include "mm/core/facts/facts.h"
#include "mm/core/graph/graph.h"
#include "tests/core/random.h"

typedef struct random_graph_options {
    uint64_t seed;
    int layers;               /* forward layers, besides the loss */
    int max_channels;         /* maps are at most 2 x 8 x 8 x max_channels */
    int images;               /* first dimension of maps; 0: 1 or 2 */
    mm_dtype dtype;           /* of feature and gradient maps: a float type */
    mm_allreduce_when shares; /* how weights' gradients that persist, and the loss, are shared */
    bool hosts;               /* some updates run on the host, unless gradients are shared */
    bool repeats;             /* most layers that are of no kind, and data, are repeatable, too */
} random_graph_options;

/* A frozen training graph: chains with branches, residual sums, concatenations of many earlier maps, readers of signs,
 * saved tensors, in-place and alias pairs, codes that steps can read and write by themselves, tensors written more than
 * once, persistent and external ones; forward, backward in reverse, updates. The same options give the same graph. */
MM_CHECKED mm_status random_graph_create(const random_graph_options *options, mm_graph **graph_out);

/* The codecs of random_facts, in this order. */
enum { RANDOM_LOSSLESS, RANDOM_LOSSY, RANDOM_MASK, RANDOM_VARIABLE, RANDOM_CODECS };

/* Facts of a graph: one to three variants for each step, times, and RANDOM_CODECS codecs. The mask's code has the
 * exact size of a sign mask. The variable one's has a head of 8 bytes for each chunk, and a body of at most the
 * tensor's size. The others have the size of their tensor. */
MM_CHECKED mm_status random_facts_create(const mm_graph *graph, uint64_t seed, mm_graph_facts **facts_out);

/* Address and form of the tensor of one use (MM_FORM_SIGN: the mask's bits; MM_FORM_CODE: the code in `read`). */
typedef struct random_operand {
    void *data;
    mm_form form;
    mm_coded read, write; /* codes that are read in place of the elements, and written of them; strips NULL: none */
} random_operand;

/* Computes a step. operands[u]: of its use u. Outputs may be in place over inputs, or aliases (equal pointers), if the
 * graph allows it. workspace: workspace_bytes, or NULL; it is written and read back. Persistent tensors that a forward
 * step modifies have no effect on its outputs, so it can run again on copies of them. Floats stay finite.
 * Thread-safe. */
void random_graph_run_step(const mm_graph *graph, int step, const random_operand *operands, void *workspace,
                           size_t workspace_bytes);

enum { RANDOM_USES = 24 }; /* at most, of a step */

/* A step for a stream, which reads `operands` when it gets there: random_graph_run_task(the task). */
typedef struct random_task {
    const mm_graph *graph;
    int step;
    const random_operand *operands;
    void *workspace;
    int64_t ns; /* it sleeps that long first */
} random_task;
mm_status random_graph_run_task(void *task);

/* Fills a persistent or external tensor with its content before the first iteration. */
void random_graph_fill(const mm_graph *graph, mm_tensor tensor, uint64_t seed, void *data);

/* A checksum of bytes. digest: that of the bytes before, or 0. */
uint64_t random_graph_digest(uint64_t digest, const void *data, size_t bytes);

/* ---- steps with memory of its own for every tensor: what others must come to; running out of it fails the test */

typedef struct plain {
    const mm_graph *graph;
    void **memory; /* per tensor, and one workspace */
} plain;

void plain_init(plain *plain, const mm_graph *graph, uint64_t seed);
void plain_fini(plain *plain);
void plain_steps(plain *plain, int first, int count);
/* Of all persistent tensors, in order of their indices. */
uint64_t plain_digest(const plain *plain);

/* What plain_digest is after so many iterations. */
uint64_t random_graph_reference(const mm_graph *graph, uint64_t seed, int iterations);

#endif
