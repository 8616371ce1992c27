/* SPDX-License-Identifier: MIT */
/* The launchers of the kernels for operations on tokens; cuda_kernels.h has the others. Maps have type `maps`, f32 or
 * bf16; all else is f32. Internal. */
#ifndef NETS_CUDA_KERNELS_CUDA_TOKEN_KERNELS_H
#define NETS_CUDA_KERNELS_CUDA_TOKEN_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "mm/core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- op_token_kernels.cu */

/* A batch of `rows` tokens, `places` in each sample. vocabulary: rows of an embedding's weights; 0 for positions, whose
 * weights have a row for each place. */
typedef struct nets_cuda_tokens {
    int64_t rows, places, channels, vocabulary;
} nets_cuda_tokens;

/* y[row] = weight[tokens[row]]; NaN if that is no token: a kernel cannot fail the stream, so the loss shows it. The
 * weight is of type `weights`; MM_BF16 only if maps are. */
void nets_cuda_embed(mm_dtype maps, nets_cuda_tokens t, const float *tokens, mm_dtype weights, const void *weight,
                     void *y, cudaStream_t stream);
/* dweight[v] = the sum of dy[row] over the rows whose token is v, in a fixed order; adds: it is added to dweight[v]. */
void nets_cuda_embed_backward(mm_dtype maps, nets_cuda_tokens t, const float *tokens, const void *dy, bool adds,
                              float *dweight, cudaStream_t stream);

/* y[row] = x[row] + weight[place of the row in its sample]; y may be x. */
void nets_cuda_place(mm_dtype maps, nets_cuda_tokens t, const void *x, const float *weight, void *y,
                     cudaStream_t stream);
/* dx = dy (+ earlier), unless dx is NULL, or dx is dy and `earlier` is NULL. */
void nets_cuda_place_backward(mm_dtype maps, nets_cuda_tokens t, const void *dy, const void *earlier, void *dx,
                              float *dweight, cudaStream_t stream);

/* y = the weight `token` [channels] before each sample's rows of x, plus `position` [places][channels]. t is y's. */
void nets_cuda_class_token(mm_dtype maps, nets_cuda_tokens t, const void *x, const float *token, const float *position,
                           void *y, cudaStream_t stream);
/* dx NULL: not wanted. */
void nets_cuda_class_token_backward(mm_dtype maps, nets_cuda_tokens t, const void *dy, const void *earlier, void *dx,
                                    float *dtoken, float *dposition, cudaStream_t stream);

/* ---------------------------------------------------------------- op_layer_norm_kernels.cu */

typedef struct nets_cuda_layer_norm {
    int64_t rows;
    int channels;
    float eps;
    bool rms; /* an RMS norm: the mean is taken for 0, and there is no bias: `means`, `bias` and `dbias` are NULL */
} nets_cuda_layer_norm;

/* `means`, `factors` (1 / deviation), [rows]: NULL: not wanted. y may be x. */
void nets_cuda_layer_norm_forward(mm_dtype maps, nets_cuda_layer_norm ln, const void *x, const float *weight,
                                  const float *bias, void *y, float *means, float *factors, cudaStream_t stream);

int64_t nets_cuda_layer_norm_backward_bytes(nets_cuda_layer_norm ln);
/* dx may be dy; NULL: not wanted. */
void nets_cuda_layer_norm_backward(mm_dtype maps, nets_cuda_layer_norm ln, const void *x, const float *weight,
                                   const float *means, const float *factors, const void *dy, const void *earlier,
                                   void *scratch, void *dx, float *dweight, float *dbias, cudaStream_t stream);

/* ---------------------------------------------------------------- op_attention_kernels.cu */

/* The most channels of a head, and the most heads of all samples together. */
enum { NETS_CUDA_HEAD_MOST = 128, NETS_CUDA_HEADS_MOST = 65535 };

/* A token has q, k and v in x, one after the other: q of heads times `size` channels, k and v of kv_heads times `size`.
 * Heads of q, a group of heads / kv_heads neighbours, share a head of k and v. */
typedef struct nets_cuda_attention {
    int64_t samples, tokens;
    int heads, kv_heads, size;
    float scale;
    bool full; /* each token attends to all, not only to those up to itself */
} nets_cuda_attention;

/* log_sums, [samples][heads][tokens]: the logarithm of the sum of a row's exponentials; NULL: not wanted. */
void nets_cuda_attention_forward(mm_dtype maps, nets_cuda_attention a, const void *x, void *y, float *log_sums,
                                 cudaStream_t stream);
int64_t nets_cuda_attention_backward_bytes(nets_cuda_attention a);
void nets_cuda_attention_backward(mm_dtype maps, nets_cuda_attention a, const void *x, const void *y, const void *dy,
                                  const float *log_sums, const void *earlier, void *scratch, void *dx,
                                  cudaStream_t stream);

/* ---------------------------------------------------------------- op_rotary_kernels.cu */

/* A token has `turned` heads of `size` channels that are turned, then `width - turned * size` channels that are not. */
typedef struct nets_cuda_rotary {
    int64_t rows, places, width;
    int turned, size;
    double base;
    bool back; /* turns the other way: the gradient */
} nets_cuda_rotary;

/* to = from, turned (+ earlier, unless NULL). `to` may be `from`, or `earlier`. */
void nets_cuda_rotate(mm_dtype maps, nets_cuda_rotary r, const void *from, const void *earlier, void *to,
                      cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
