/* SPDX-License-Identifier: MIT */
/* cuDNN's graph API. A graph is a convolution, one operation on three tensors, or attention (cudnn_attention.h), with
 * 64-bit sizes. cuDNN proposes engines for it; a plan is an engine with its knobs set, ready to run. Internal. */
#ifndef NETS_CUDA_LIBRARIES_CUDNN_GRAPH_H
#define NETS_CUDA_LIBRARIES_CUDNN_GRAPH_H

#include "nets/cuda/cuda_ops.h"

/* Room for what one call creates: 64 proposed engines and two more, or the graph of attention's gradients. */
enum { NETS_CUDNN_DESCRIPTORS = 96 };

/* The attribute that sets a descriptor's device (ENGINEHEUR, ENGINE, EXECUTION_PLAN) to one that need not be present.
 * cuDNN has these since 9.8. Before that, nets_cuda_backend.properties is always NULL, and none is set. */
#if CUDNN_VERSION >= 90800
#define NETS_CUDNN_DEVICE_OF(descriptor) CUDNN_ATTR_##descriptor##_DEVICEPROP
#else
#define NETS_CUDNN_DEVICE_OF(descriptor) ((cudnnBackendAttributeName_t)0)
#endif

/* Descriptors that were created; each comes after those it refers to. */
typedef struct nets_cudnn_descriptors {
    cudnnBackendDescriptor_t of[NETS_CUDNN_DESCRIPTORS];
    int n;
} nets_cudnn_descriptors;

/* An attribute of a descriptor; with count 0 it is not set. A list of attributes ends with one that has no values. */
typedef struct nets_cudnn_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *values;
} nets_cudnn_attribute;

typedef struct nets_cudnn_graph {
    const nets_cuda_backend *cuda; /* plans are for its device */
    nets_cudnn_descriptors made;
    cudnnBackendDescriptor_t graph; /* one of `made` */
} nets_cudnn_graph;

/* An engine with the knobs that cuDNN proposes, and its numerical and behaviour notes. */
typedef struct nets_cudnn_engine {
    nets_conv_choice choice; /* without the workspace, which only a plan reports */
    bool tensor_core;        /* computes with tensor cores, which round factors to TF32 */
    bool converts;           /* rounds its inputs, perhaps to a smaller range */
    bool coarse_sums;        /* does not sum in float32 */
    bool nondeterministic;
    bool compiles;   /* compiles its kernel when a plan is made */
    bool unreadable; /* cuDNN did not report all of this */
} nets_cudnn_engine;

typedef struct nets_cudnn_plan {
    const nets_cuda_backend *cuda;
    nets_cudnn_descriptors made;
    cudnnBackendDescriptor_t plan; /* one of `made`; NULL: there is none */
    int64_t workspace_bytes;
} nets_cudnn_plan;

/* MM_OK for success, else MM_ERR_DEVICE or MM_ERR_NOMEM, with cuDNN's own message. */
MM_CHECKED mm_status nets_cudnn_check(cudnnStatus_t status, const char *what);
/* Creates an empty descriptor and adds it to `made`. */
MM_CHECKED mm_status nets_cudnn_make(nets_cudnn_descriptors *made, cudnnBackendDescriptorType_t type, const char *what,
                                     cudnnBackendDescriptor_t *out);
void nets_cudnn_drop(nets_cudnn_descriptors *made);
/* Creates a descriptor with these attributes, and finalises it. */
MM_CHECKED mm_status nets_cudnn_describe(nets_cudnn_descriptors *made, cudnnBackendDescriptorType_t type,
                                         const char *what, const nets_cudnn_attribute *attributes,
                                         cudnnBackendDescriptor_t *out);

/* On failure nothing is left to free. The graph must outlive its plans. */
MM_CHECKED mm_status nets_cudnn_graph_init(nets_cudnn_graph *graph, const nets_cuda_backend *cuda,
                                           const nets_conv_shape *shape);
/* Makes the graph from its operations, whose descriptors are among `made`. */
MM_CHECKED mm_status nets_cudnn_graph_of(nets_cudnn_graph *graph, const cudnnBackendDescriptor_t *operations, int n);
void nets_cudnn_graph_fini(nets_cudnn_graph *graph);

/* The engines that one of cuDNN's heuristics proposes, best first, at most `capacity`. On failure *n_out is 0. */
MM_CHECKED mm_status nets_cudnn_engines(const nets_cudnn_graph *graph, cudnnBackendHeurMode_t mode, int capacity,
                                        nets_cudnn_engine *engines, int *n_out);

MM_CHECKED mm_status nets_cudnn_plan_init(nets_cudnn_plan *plan, const nets_cudnn_graph *graph,
                                          const nets_conv_choice *choice);
void nets_cudnn_plan_fini(nets_cudnn_plan *plan);

/* Enqueue the plan on the stream of cuDNN's handle: nets_cudnn_plan_run with any tensors, given by their ids in the
 * graph; nets_cudnn_plan_enqueue with those of a convolution. */
MM_CHECKED mm_status nets_cudnn_plan_run(const nets_cudnn_plan *plan, int n, const int64_t *ids, void *const *tensors,
                                         void *workspace, const char *what);
MM_CHECKED mm_status nets_cudnn_plan_enqueue(const nets_cudnn_plan *plan, void *x, void *y, void *weights,
                                             void *workspace);

#endif
