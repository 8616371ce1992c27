/* SPDX-License-Identifier: MIT */
/* Causal attention of bf16 maps by cuDNN's graph API: a candidate beside our kernels (op_attention_kernels.cu), which
 * compute any other attention. For f32 maps on an H200, cuDNN 9.19 proposes engines for the forward only. Internal.
 *
 * cuDNN and our kernels write and read the same tensors: y, and the natural logarithm of the sum of each row's
 * exponentials. All the same, cuDNN computes both phases or neither. The choice is made when an op is created, by the
 * time of both phases together, or it comes from the cache. cuDNN is accepted only if its results on random numbers
 * agree with our kernels', and have the same bits when they are computed again (but for the gradients of an unordered
 * backward).
 *
 * cuDNN has two backwards. The deterministic one needs workspace that grows with the square of the context. So the
 * samples of a batch are divided into parts, which use the workspace one after the other; into as few as the limit
 * allows. In the unordered one, blocks add to q's gradient in f32 in memory, in any order. A deterministic
 * configuration uses neither of the two. */
#ifndef NETS_CUDA_LIBRARIES_CUDNN_ATTENTION_H
#define NETS_CUDA_LIBRARIES_CUDNN_ATTENTION_H

#include "nets/cuda/kernels/cuda_token_kernels.h"
#include "nets/cuda/libraries/cudnn_graph.h"

/* The oldest cuDNN that is used: 9.19 was seen to have engines for these graphs. */
enum { NETS_CUDNN_ATTENTION_OLDEST = 91900 };

/* One phase, computed by cuDNN. */
typedef struct nets_cudnn_attention_step {
    nets_cudnn_graph graph; /* for one part of the batch */
    nets_cudnn_plan plan;
    int64_t parts;
    bool unordered; /* only in the backward */
} nets_cudnn_attention_step;

typedef struct nets_cudnn_attention {
    nets_cuda_backend *cuda;
    nets_cuda_attention of;
    bool chosen;                /* false: our kernels run */
    int64_t workspace_bytes[2]; /* of MM_FORWARD and MM_BACKWARD, with the choice */
    nets_cudnn_attention_step steps[2];
} nets_cudnn_attention;

typedef struct nets_attention_tensors {
    void *x, *y, *log_sums, *dy, *dx, *workspace;
} nets_attention_tensors;

/* Chooses cuDNN or our kernels. Our kernels are used if `candidate` is false, with a deterministic configuration, and
 * with an older cuDNN. Without a device the workspaces are those of the choice cached for any device, else our
 * kernels'. On failure nothing is left to free. */
MM_CHECKED mm_status nets_cudnn_attention_init(nets_cudnn_attention *attention, nets_cuda_backend *cuda,
                                               const nets_cuda_attention *of, bool candidate);
void nets_cudnn_attention_fini(nets_cudnn_attention *attention);

/* ---------------------------------------------------------------- cudnn_attention.c */

/* Builds the graph of a phase for of->samples samples. On failure nothing is left to free. */
MM_CHECKED mm_status nets_cudnn_attention_graph(nets_cudnn_graph *graph, const nets_cuda_backend *cuda,
                                                const nets_cuda_attention *of, mm_phase phase, bool unordered);
void nets_cudnn_attention_step_fini(nets_cudnn_attention_step *step);

/* The workspace of a phase, for a batch in `parts` parts and a plan that takes plan_bytes. */
int64_t nets_cudnn_attention_bytes(const nets_cuda_attention *of, mm_phase phase, int64_t parts, bool unordered,
                                   int64_t plan_bytes);

/* Enqueues a phase on the stream of cuDNN's handle. */
MM_CHECKED mm_status nets_cudnn_attention_enqueue(const nets_cudnn_attention_step *step, const nets_cuda_attention *of,
                                                  mm_phase phase, const nets_attention_tensors *tensors);

#endif
