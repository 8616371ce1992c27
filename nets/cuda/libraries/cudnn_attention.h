/* SPDX-License-Identifier: MIT */
/* Causal attention of bf16 maps by cuDNN's graph API: a candidate beside our kernels (op_attention_kernels.cu), which
 * all else runs by. Of f32 maps cuDNN 9.19, told of an H200, proposes engines for the forward alone. Internal.
 *
 * Both write and read the same: y, and the natural logarithm of the sum of each row's exponentials. All the same a
 * backward runs by what its forward ran by. That is chosen when an op is created, by the time of both together; or it
 * is what was kept. cuDNN has to prove itself where it runs: what it gives of the trial's random numbers agrees with
 * our kernels', and has the same bits when it is run again, but for gradients of an unordered backward.
 *
 * There are two backwards by cuDNN. A deterministic one holds the square of the context in its workspace. So the
 * samples of a batch are divided into parts, which use the workspace one after the other; as few as the limit allows.
 * An unordered one has blocks add to q's gradient in f32 in memory, in any order. With a deterministic configuration
 * neither is used. */
#ifndef NETS_CUDA_LIBRARIES_CUDNN_ATTENTION_H
#define NETS_CUDA_LIBRARIES_CUDNN_ATTENTION_H

#include "nets/cuda/kernels/cuda_token_kernels.h"
#include "nets/cuda/libraries/cudnn_graph.h"

/* What the graphs are written for: 9.19 was seen to have engines for them. */
enum { NETS_CUDNN_ATTENTION_OLDEST = 91900 };

/* One phase by cuDNN. */
typedef struct nets_cudnn_attention_step {
    nets_cudnn_graph graph; /* of one part */
    nets_cudnn_plan plan;
    int64_t parts;
    bool unordered; /* backward alone */
} nets_cudnn_attention_step;

typedef struct nets_cudnn_attention {
    nets_cuda_backend *cuda;
    nets_cuda_attention of;
    bool chosen;                /* false: our kernels run */
    int64_t workspace_bytes[2]; /* of MM_FORWARD and MM_BACKWARD, by what was chosen */
    nets_cudnn_attention_step steps[2];
} nets_cudnn_attention;

typedef struct nets_attention_tensors {
    void *x, *y, *log_sums, *dy, *dx, *workspace;
} nets_attention_tensors;

/* Chooses. `candidate` false: our kernels, as with a deterministic configuration, and with an older cuDNN. Without a
 * device the workspaces are those of the choice that was kept for any, else our kernels'. On failure nothing is left
 * to free. */
MM_CHECKED mm_status nets_cudnn_attention_init(nets_cudnn_attention *attention, nets_cuda_backend *cuda,
                                               const nets_cuda_attention *of, bool candidate);
void nets_cudnn_attention_fini(nets_cudnn_attention *attention);

/* ---------------------------------------------------------------- cudnn_attention.c */

/* The graph of a phase, of so many samples. On failure nothing is left to free. */
MM_CHECKED mm_status nets_cudnn_attention_graph(nets_cudnn_graph *graph, const nets_cuda_backend *cuda,
                                                const nets_cuda_attention *of, mm_phase phase, bool unordered);
void nets_cudnn_attention_step_fini(nets_cudnn_attention_step *step);

/* The workspace of a phase, in so many parts, whose plan takes so much. */
int64_t nets_cudnn_attention_bytes(const nets_cuda_attention *of, mm_phase phase, int64_t parts, bool unordered,
                                   int64_t plan_bytes);

/* Enqueues a phase on the stream of cuDNN's handle. */
MM_CHECKED mm_status nets_cudnn_attention_enqueue(const nets_cudnn_attention_step *step, const nets_cuda_attention *of,
                                                  mm_phase phase, const nets_attention_tensors *tensors);

#endif
