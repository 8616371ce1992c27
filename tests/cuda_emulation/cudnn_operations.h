/* SPDX-License-Identifier: MIT */
/* Private to the emulated cuDNN: graphs of several operations, computed one after the other as they are described. */
#ifndef TESTS_CUDA_EMULATION_CUDNN_OPERATIONS_H
#define TESTS_CUDA_EMULATION_CUDNN_OPERATIONS_H

#include "tests/cuda_emulation/cudnn_descriptor.h"

/* Whether a graph is of these. */
bool dnn_is_of_operations(const dnn_descriptor *graph);
/* The first operation's samples; of a convolution 1. */
int64_t dnn_samples(const dnn_descriptor *graph);

/* Enqueues it with a pack's tensors. When it runs, it overwrites all of its workspace; `time`: in a trial,
 * libraries.h. */
cudnnStatus_t dnn_operations_enqueue(cudaStream_t stream, const dnn_descriptor *graph, const dnn_descriptor *pack,
                                     int64_t bytes, double time);

#endif
