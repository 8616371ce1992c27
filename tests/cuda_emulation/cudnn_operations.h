/* SPDX-License-Identifier: MIT */
/* Private to the emulated cuDNN: graphs of several operations, computed one after the other as they are described. */
#ifndef TESTS_CUDA_EMULATION_CUDNN_OPERATIONS_H
#define TESTS_CUDA_EMULATION_CUDNN_OPERATIONS_H

#include "tests/cuda_emulation/cudnn_descriptor.h"

/* Whether the graph has such operations, and not a convolution. */
bool dnn_is_of_operations(const dnn_descriptor *graph);
/* The samples of the graph's first operation; 1 for a convolution. */
int64_t dnn_samples(const dnn_descriptor *graph);

/* Enqueues the graph with a pack's tensors. It overwrites all of its workspace. time: pretended, of a trial
 * (libraries.h). */
cudnnStatus_t dnn_operations_enqueue(cudaStream_t stream, const dnn_descriptor *graph, const dnn_descriptor *pack,
                                     int64_t bytes, double time);

#endif
