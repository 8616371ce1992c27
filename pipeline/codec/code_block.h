/* SPDX-License-Identifier: MIT */
/* The block of numbers that codecs read on the device (mm_code_inputs). Each graph that is planned with a codec that
 * reads it has one, right above the persistent tensors. The manager uploads it before each iteration, also before one
 * that is replayed (mm/manager/values.h). */
#ifndef PIPELINE_CODEC_CODE_BLOCK_H
#define PIPELINE_CODEC_CODE_BLOCK_H

#include "mm/core/graph/graph.h"
#include "pipeline/codec/codec.h"

typedef struct mm_code_block {
    int64_t iteration; /* the iteration's number */
    uint64_t reserved;
    float bound[]; /* per tensor of the graph: its error bound; 0 until one is set */
} mm_code_block;

static inline int64_t mm_code_block_bytes(const mm_graph *graph) {
    return (int64_t)(sizeof(mm_code_block) + (size_t)mm_graph_tensors(graph) * sizeof(float));
}

/* The inputs that a codec's call finds in the block. block: its device address; NULL: there is none. first: index in
 * the tensor of the call's first element. */
static inline mm_code_inputs mm_code_block_inputs(const mm_code_block *block, mm_tensor tensor, int64_t first) {
    return (mm_code_inputs){.iteration = block ? &block->iteration : NULL,
                            .bound = block ? &block->bound[tensor] : NULL,
                            .tensor = tensor,
                            .first = first};
}

#endif
