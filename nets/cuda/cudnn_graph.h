/* A convolution by cuDNN's graph API: an operation on three tensors, whose sizes are of 64 bits; the engines that cuDNN
 * proposes for it; a plan, which is an engine with its knobs set, ready to run. Internal. */
#ifndef NETS_CUDA_CUDNN_GRAPH_H
#define NETS_CUDA_CUDNN_GRAPH_H

#include "nets/cuda/cuda_ops.h"

enum { NETS_CUDNN_DESCRIPTORS = 66 };

/* The attribute by which a descriptor (ENGINEHEUR, ENGINE, EXECUTION_PLAN) is told of a device that need not be there.
 * cuDNN has them since 9.8: before that properties of nets_cuda_backend is always NULL, and none is set. */
#if CUDNN_VERSION >= 90800
#define NETS_CUDNN_DEVICE_OF(descriptor) CUDNN_ATTR_##descriptor##_DEVICEPROP
#else
#define NETS_CUDNN_DEVICE_OF(descriptor) ((cudnnBackendAttributeName_t)0)
#endif

/* Each after those that it refers to. */
typedef struct nets_cudnn_descriptors {
    cudnnBackendDescriptor_t of[NETS_CUDNN_DESCRIPTORS];
    int n;
} nets_cudnn_descriptors;

typedef struct nets_cudnn_graph {
    const nets_cuda_backend *cuda; /* for whose device it is planned */
    nets_cudnn_descriptors made;
    cudnnBackendDescriptor_t graph; /* one of them */
} nets_cudnn_graph;

/* An engine with its knobs as cuDNN would set them, and what its notes say. */
typedef struct nets_cudnn_engine {
    nets_conv_choice choice; /* without the workspace: only a plan knows it */
    bool tensor_core;        /* computes with them: rounds factors to TF32 */
    bool converts;           /* rounds its inputs, perhaps to a smaller range */
    bool coarse_sums;        /* does not sum in float32 */
    bool nondeterministic;
    bool compiles;   /* its kernel, when a plan is made */
    bool unreadable; /* what is said of it here is not all */
} nets_cudnn_engine;

typedef struct nets_cudnn_plan {
    const nets_cuda_backend *cuda;
    nets_cudnn_descriptors made;
    cudnnBackendDescriptor_t plan; /* one of them; NULL: there is none */
    int64_t workspace_bytes;
} nets_cudnn_plan;

/* MM_ERR_DEVICE or MM_ERR_NOMEM, with all that cuDNN says. */
MM_CHECKED mm_status nets_cudnn_check(cudnnStatus_t status, const char *what);
/* One more, empty. */
MM_CHECKED mm_status nets_cudnn_make(nets_cudnn_descriptors *made, cudnnBackendDescriptorType_t type, const char *what,
                                     cudnnBackendDescriptor_t *out);
void nets_cudnn_drop(nets_cudnn_descriptors *made);

/* Where one fails nothing is left to be ended. The graph must outlive its plans. */
MM_CHECKED mm_status nets_cudnn_graph_init(nets_cudnn_graph *graph, const nets_cuda_backend *cuda,
                                           const nets_conv_shape *shape);
void nets_cudnn_graph_fini(nets_cudnn_graph *graph);

/* The most promising engines by one of cuDNN's ways to guess, best first. Where it fails there are none. */
MM_CHECKED mm_status nets_cudnn_engines(const nets_cudnn_graph *graph, cudnnBackendHeurMode_t mode, int capacity,
                                        nets_cudnn_engine *engines, int *n_out);

MM_CHECKED mm_status nets_cudnn_plan_init(nets_cudnn_plan *plan, const nets_cudnn_graph *graph,
                                          const nets_conv_choice *choice);
void nets_cudnn_plan_fini(nets_cudnn_plan *plan);

/* On the handle's stream. */
MM_CHECKED mm_status nets_cudnn_plan_enqueue(const nets_cudnn_plan *plan, void *x, void *y, void *weights,
                                             void *workspace);

#endif
