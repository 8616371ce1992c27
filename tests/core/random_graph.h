/* Random training graphs whose steps can be executed: what they compute is no network's arithmetic but a deterministic
 * mixing of every byte that they read, so that one wrong byte anywhere changes everything after it. */
#ifndef TESTS_CORE_RANDOM_GRAPH_H
#define TESTS_CORE_RANDOM_GRAPH_H

#include "mm/core/facts.h"
#include "mm/core/graph.h"
#include "tests/core/random.h"

typedef struct random_graph_options {
    uint64_t seed;
    int layers;       /* forward layers, besides the loss */
    int max_channels; /* maps are at most 2 x 8 x 8 x max_channels */
    int images;       /* their first dimension; 0: 1 or 2 */
    mm_dtype dtype;   /* of feature and gradient maps: a type of floats */
} random_graph_options;

/* A frozen training graph: chains with branches, residual sums, concatenations of many earlier maps, readers of signs,
 * saved tensors, in-place and alias pairs, tensors written more than once, persistent and external ones; forward,
 * backward in reverse, updates. The same options give the same graph. */
MM_CHECKED mm_status random_graph_create(const random_graph_options *options, mm_graph **graph_out);

/* The codecs of random_facts, in this order. */
enum { RANDOM_LOSSLESS, RANDOM_LOSSY, RANDOM_MASK, RANDOM_CODECS };

/* Facts of a graph: one to three variants a step, times, and RANDOM_CODECS codecs (the mask's code is of the exact size
 * of a sign mask, the others' of their tensor's). */
MM_CHECKED mm_status random_facts_create(const mm_graph *graph, uint64_t seed, mm_facts **facts_out);

/* Where a step finds one of its uses' tensors, and in which form (MM_FORM_SIGN: the mask's bits). */
typedef struct random_operand {
    void *data;
    mm_form form;
} random_operand;

/* Computes a step: operands[u] belongs to its u-th use. Outputs written in place of inputs and aliases (equal pointers)
 * are allowed where the graph allows them. `workspace` (workspace_bytes of it, or NULL) is written and read back.
 * What a forward step modifies of persistent tensors has no effect on what it writes: it can be run again, given copies
 * of them. Floats stay finite. Thread-safe. */
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

/* What a persistent or external tensor holds before the first iteration. */
void random_graph_fill(const mm_graph *graph, mm_tensor tensor, uint64_t seed, void *data);

/* A checksum of bytes, to be chained. */
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
