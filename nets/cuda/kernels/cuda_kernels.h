/* SPDX-License-Identifier: MIT */
/* The launchers of the CUDA backend's own kernels: the interface of the .cu files to C. Each enqueues on the stream and
 * returns; cudaGetLastError reports a failure. Tensors are NHWC in device memory, as in op.h; void tensors have
 * elements of type `maps`, MM_F32 or MM_BF16. `earlier`, if not NULL, is added to what is written. An output may lie at
 * an input's address if the operation's description pairs them (net_ops.h).
 *
 * Grids and the order of every sum depend only on the shapes, so the same inputs give the same bits. Kernels compute in
 * f32, and round results to bf16 maps once. Loads and stores take 16 bytes at a time if a pixel's channels are a
 * multiple of that. Internal. */
#ifndef NETS_CUDA_KERNELS_CUDA_KERNELS_H
#define NETS_CUDA_KERNELS_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "mm/core/status.h"
#include "nets/activation.h"
#include "nets/cuda/kernels/strips.h"
#include "nets/optimizer.h"
#include "nets/rng.h"
#include "nets/state_codes.h"
#include "pipeline/codec/block/code_blocks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The gate of a ReLU's gradient: it passes where the ReLU's output y is positive, given as y or as its sign mask. Both
 * NULL: open, everything passes. */
typedef struct nets_cuda_gate {
    const void *y; /* of the maps' type */
    const uint32_t *mask;
} nets_cuda_gate;

/* ---------------------------------------------------------------- op_elementwise_kernels.cu */

void nets_cuda_relu(mm_dtype maps, const void *x, void *y, int64_t n, cudaStream_t stream);
void nets_cuda_relu_backward(mm_dtype maps, const void *dy, nets_cuda_gate gate, const void *earlier, void *dx,
                             int64_t n, cudaStream_t stream);
/* y = a + b; b NULL: y = a. */
void nets_cuda_sum(mm_dtype maps, const void *a, const void *b, void *y, int64_t n, cudaStream_t stream);
/* y = a b (+ earlier) */
void nets_cuda_product(mm_dtype maps, const void *a, const void *b, const void *earlier, void *y, int64_t n,
                       cudaStream_t stream);
/* y = silu(x) x2: op_activation_kernels.cu. */
void nets_cuda_gated_product(mm_dtype maps, const void *x, const void *x2, void *y, int64_t n, cudaStream_t stream);
/* Its gradients, plus `earlier` and `earlier2` unless NULL. dx may be dy. dx, dx2 NULL: not wanted. */
typedef struct nets_cuda_gated {
    const void *x, *x2, *dy, *earlier;
    void *dx;
    const void *earlier2;
    void *dx2;
} nets_cuda_gated;
void nets_cuda_gated_product_backward(mm_dtype maps, const nets_cuda_gated *g, int64_t n, cudaStream_t stream);
/* Elements whose random word is below the threshold become zero, the others are scaled: nets/host/host_dropout.c. */
typedef struct nets_cuda_dropout {
    const uint32_t *rng; /* NETS_RNG */
    int64_t image_elems; /* elements of an image: random words are numbered over the whole batch */
    uint32_t layer, threshold;
    float scale;
    bool by_sample; /* an image's elements share a random word */
} nets_cuda_dropout;

void nets_cuda_drop(mm_dtype maps, nets_cuda_dropout how, const void *in, const void *earlier, void *out, int64_t n,
                    cudaStream_t stream);

/* ---------------------------------------------------------------- op_activation_kernels.cu */

typedef struct nets_cuda_activation {
    nets_activation activation;
    float slope; /* the layer's attribute */
} nets_cuda_activation;

/* y may be x. */
void nets_cuda_activate(mm_dtype maps, nets_cuda_activation a, const void *x, void *y, int64_t n, cudaStream_t stream);
/* in: x or y, as nets_activation_by says; or NULL, and `mask` has its signs. dx may be dy. */
void nets_cuda_activate_backward(mm_dtype maps, nets_cuda_activation a, const void *in, const uint32_t *mask,
                                 const void *dy, const void *earlier, void *dx, int64_t n, cudaStream_t stream);

/* ---------------------------------------------------------------- op_update_kernels.cu */

/* TENSORS: with that many, nets_cuda_update has 31 KB; a kernel's arguments have at most 32764 bytes (CUDA 12.1 on).
 * CHUNK: elements that a block's threads update at once (op_update_kernels.cu). */
enum { NETS_CUDA_UPDATE_TENSORS = 600, NETS_CUDA_UPDATE_CHUNK = 4096 };
/* At most so many partial sums of the gradients' squares, one for each block of threads. Chosen: more than fit on a GPU
 * at once. */
enum { NETS_CUDA_UPDATE_PARTS = 1024 };

/* What one launch updates. It is the kernel's argument: a CUDA graph keeps it, and no table is copied to the device.
 * Blocks first_block[i] .. first_block[i + 1] - 1 update tensor i, NETS_CUDA_UPDATE_CHUNK elements each. */
typedef struct nets_cuda_update {
    struct {
        float *weight, *state[NETS_OPTIMIZER_STATES];
        const float *gradient;
        uint16_t *copy; /* the weight's bf16 copy; NULL: none */
        int64_t elems;
    } tensors[NETS_CUDA_UPDATE_TENSORS];
    uint32_t first_block[NETS_CUDA_UPDATE_TENSORS + 1];
    uint32_t decayed[(NETS_CUDA_UPDATE_TENSORS + 31) / 32]; /* bit i: weight decay applies to tensor i */
    int n;
    nets_optimizer optimizer;
    const float *lr;
    const uint32_t *step; /* the number of earlier updates, if the optimizer counts */
    uint32_t *rng; /* NETS_RNG, whose iteration is advanced, and whose image becomes 0; NULL: it is not touched */
    const uint32_t *halted; /* points at a number other than 0: nothing is updated. NULL: updates are never halted */
    const float *clip;      /* points at the factor for gradients; NULL: 1 */
} nets_cuda_update;

/* Sets *halted to `as`, unless it is set, if the loss is not finite (NULL: it is not checked), or if one of the
 * update's gradients is NaN or above `most` in magnitude. */
void nets_cuda_update_halt(const nets_cuda_update *update, const float *loss, float most, uint32_t *halted, uint32_t as,
                           cudaStream_t stream);
/* parts[b] becomes the sum of the squares of the update's gradients in every n-th chunk from the b-th on; with `adds`,
 * that sum is added to it. */
void nets_cuda_update_squares(const nets_cuda_update *update, double *parts, int n, bool adds, cudaStream_t stream);
/* Sets *clip to the factor for gradients, from the partial sums of their squares: nets_optimizer.clip_norm. */
void nets_cuda_update_clip(const double *parts, int n, double clip_norm, float *clip, cudaStream_t stream);
void nets_cuda_update_sgd(const nets_cuda_update *update, cudaStream_t stream);
void nets_cuda_update_plain_sgd(const nets_cuda_update *update, cudaStream_t stream);
void nets_cuda_update_adamw(const nets_cuda_update *update, cudaStream_t stream);

/* The same for parameters with codes (state_codes.h), op_update_codes_kernels.cu. TENSORS: with that many the argument
 * has 31 KB. CHUNK: elements that a block's threads update, one block of codes after the other; chosen, so that the
 * maps, which they copy before, are little beside it. */
enum { NETS_CUDA_CODED_TENSORS = 400, NETS_CUDA_CODED_CHUNK = 8 * NETS_STATE_BLOCK };

typedef struct nets_cuda_coded_update {
    struct {
        float *weight;
        const float *gradient;
        uint16_t *copy; /* the weight's bf16 copy; NULL: none */
        uint8_t *codes[NETS_OPTIMIZER_STATES];
        float *absmax[NETS_OPTIMIZER_STATES];
        int64_t elems;
    } tensors[NETS_CUDA_CODED_TENSORS];
    uint32_t first_block[NETS_CUDA_CODED_TENSORS + 1];
    uint32_t decayed[(NETS_CUDA_CODED_TENSORS + 31) / 32];
    int n;
    nets_state_maps maps;
    nets_optimizer optimizer;
    const float *lr;
    const uint32_t *step, *halted;
    const float *clip;
} nets_cuda_coded_update;

void nets_cuda_update_coded(const nets_cuda_coded_update *update, cudaStream_t stream);
/* Advances *step by one unless *halted is set. */
void nets_cuda_update_count(uint32_t *step, const uint32_t *halted, cudaStream_t stream);
/* Advances NETS_RNG's image by `images`. */
void nets_cuda_pass_on(uint32_t *rng, int64_t images, cudaStream_t stream);

/* ---------------------------------------------------------------- op_convert_kernels.cu */

/* to[i] = from[i]; types are MM_F32 and MM_BF16, rounded to nearest, ties to even. */
void nets_cuda_convert(mm_dtype from_type, const void *from, mm_dtype to_type, void *to, int64_t n,
                       cudaStream_t stream);

/* ---------------------------------------------------------------- op_slices_kernels.cu */

/* to[r * to_pitch + i] = from[r * from_pitch + i] (+ earlier[r * to_pitch + i]) for rows of `width`. */
typedef struct nets_cuda_rows {
    int64_t rows, width, from_pitch, to_pitch;
} nets_cuda_rows;

void nets_cuda_copy_rows(mm_dtype maps, nets_cuda_rows shape, const void *from, const void *earlier, void *to,
                         cudaStream_t stream);

/* y is the rectangle of size y_size at `offset` in images x of x_size; pairs are {height, width}. */
typedef struct nets_cuda_crop {
    int images, channels, x_size[2], y_size[2], offset[2];
} nets_cuda_crop;

void nets_cuda_crop_forward(mm_dtype maps, nets_cuda_crop shape, const void *x, void *y, cudaStream_t stream);
void nets_cuda_crop_backward(mm_dtype maps, nets_cuda_crop shape, const void *dy, const void *earlier, void *dx,
                             cudaStream_t stream);

/* to[p] = {from[3 p], from[3 p + 1], from[3 p + 2], 0}; `from` is f32. */
void nets_cuda_pad_pixels(mm_dtype maps, const float *from, void *to, int64_t pixels, cudaStream_t stream);

/* to[b][c][r] = from[b][r][c] for each of the batches. A matrix has at most INT32_MAX elements. */
void nets_cuda_transpose(mm_dtype maps, const void *from, void *to, int64_t batches, int64_t rows, int64_t columns,
                         cudaStream_t stream);

/* ---------------------------------------------------------------- op_images_kernels.cu */

/* A map as images of pixels. Images times pixels are at most INT32_MAX. */
typedef struct nets_cuda_images {
    int64_t images, pixels;
    int channels;
} nets_cuda_images;

/* y = x times the image's factor of the channel, factors[image][channel] (+ earlier); y may be x or `earlier`. */
void nets_cuda_scale_images(mm_dtype maps, nets_cuda_images m, const void *x, const void *factors, const void *earlier,
                            void *y, cudaStream_t stream);
/* Bytes of scratch for sums of so many quantities over images' pixels. */
int64_t nets_cuda_images_bytes(nets_cuda_images m, int quantities);
/* sums[image][channel] = the sum of a b over the image's pixels (+ earlier). The scratch is for one quantity. */
void nets_cuda_image_products(mm_dtype maps, nets_cuda_images m, const void *a, const void *b, const void *earlier,
                              void *scratch, void *sums, cudaStream_t stream);

typedef struct nets_cuda_group_norm {
    nets_cuda_images images;
    int groups;
    float eps;
} nets_cuda_group_norm;

/* Bytes of scratch, forward and backward. */
int64_t nets_cuda_group_norm_bytes(nets_cuda_group_norm gn);
/* `means`, `factors` (1 / deviation), [images][groups]; NULL: not wanted. y may be x. */
void nets_cuda_group_norm_forward(mm_dtype maps, nets_cuda_group_norm gn, const void *x, const float *weight,
                                  const float *bias, void *scratch, void *y, float *means, float *factors,
                                  cudaStream_t stream);
/* dx may be dy; NULL: not wanted. */
void nets_cuda_group_norm_backward(mm_dtype maps, nets_cuda_group_norm gn, const void *x, const float *weight,
                                   const float *means, const float *factors, const void *dy, const void *earlier,
                                   void *scratch, void *dx, float *dweight, float *dbias, cudaStream_t stream);

/* ---------------------------------------------------------------- op_windows_kernels.cu */

/* Pairs are {height, width}. */
typedef struct nets_cuda_windows {
    int images, channels, x_size[2], y_size[2], kernel[2], stride[2], pad[2];
    bool exclude_pad;  /* for averages: only pixels inside the image count */
    bool halves_index; /* for maxima: nets_halves_index */
} nets_cuda_windows;

/* `index`: NETS_INDEX; NULL: not wanted. The first of equal maxima counts; NaN counts as a maximum. */
void nets_cuda_max_pool(mm_dtype maps, nets_cuda_windows w, const void *x, void *y, uint8_t *index,
                        cudaStream_t stream);
void nets_cuda_max_pool_backward(mm_dtype maps, nets_cuda_windows w, const void *dy, const uint8_t *index,
                                 const void *earlier, void *dx, cudaStream_t stream);
void nets_cuda_avg_pool(mm_dtype maps, nets_cuda_windows w, const void *x, void *y, cudaStream_t stream);
void nets_cuda_avg_pool_backward(mm_dtype maps, nets_cuda_windows w, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream);

typedef struct nets_cuda_upsample {
    int images, channels, x_size[2], scale[2];
    bool bilinear;
} nets_cuda_upsample;

void nets_cuda_upsample_forward(mm_dtype maps, nets_cuda_upsample shape, const void *x, void *y, cudaStream_t stream);
void nets_cuda_upsample_backward(mm_dtype maps, nets_cuda_upsample shape, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream);

/* ---------------------------------------------------------------- op_bias_kernels.cu */

/* values[r][c] += bias[c] */
void nets_cuda_add_bias(mm_dtype maps, void *values, const float *bias, int64_t rows, int64_t channels,
                        cudaStream_t stream);
/* y[r][c] = x[r][c] + bias[c]; x is f32, and y is rounded to bf16. */
void nets_cuda_add_bias_bf16(const float *x, const float *bias, void *y, int64_t rows, int64_t channels,
                             cudaStream_t stream);
/* y[r][c] = max(0, x[r][c] + bias[c]) */
void nets_cuda_bias_relu(mm_dtype maps, const void *x, const float *bias, void *y, int64_t rows, int64_t channels,
                         cudaStream_t stream);

/* What a reduction goes over (reduce.h). */
typedef struct nets_cuda_reduction {
    nets_strips strips;
    unsigned *counters; /* nets_strips_counters of them, all 0; one stream uses them at a time */
} nets_cuda_reduction;

/* sums[c] = the sum of values[r][c] over r. The scratch has nets_strips_bytes. */
void nets_cuda_sum_rows(mm_dtype maps, const void *values, const nets_cuda_reduction *over, void *scratch, float *sums,
                        cudaStream_t stream);

/* The gradient of nets_cuda_bias_relu: dx is dy where the gate passes it, dbias the sum of its rows. The gate must not
 * be open. */
void nets_cuda_bias_relu_backward(mm_dtype maps, const void *dy, nets_cuda_gate gate, const void *earlier, void *dx,
                                  const nets_cuda_reduction *over, void *scratch, float *dbias, cudaStream_t stream);

/* ---------------------------------------------------------------- op_batch_norm_kernels.cu */

typedef struct nets_cuda_batch_norm {
    nets_cuda_reduction over;
    float eps, momentum;
    bool relu;      /* y's negative elements become zero */
    bool keep_mask; /* the gradient's scratch has room for y's sign mask, which saves reading y twice */
} nets_cuda_batch_norm;

/* Computes the batch's mean and biased variance, and updates the running ones unless they are NULL. */
void nets_cuda_batch_norm_statistics(mm_dtype maps, nets_cuda_batch_norm bn, const void *x, void *scratch, float *mean,
                                     float *var, float *running_mean, float *running_var, cudaStream_t stream);
/* y = (x - mean) / sqrt(var + eps) * scale + shift, plus x2 unless that is NULL. */
void nets_cuda_batch_norm_apply(mm_dtype maps, nets_cuda_batch_norm bn, const void *x, const void *x2,
                                const float *mean, const float *var, const float *scale, const float *shift, void *y,
                                cudaStream_t stream);

/* A code that kernels read or write by themselves. */
typedef struct nets_cuda_code {
    mm_code_blocks blocks; /* MM_BLOCKS_NONE: there is none */
    void *code;
    unsigned long long *nonfinite; /* counts blocks written that are not finite; NULL: not counted */
} nets_cuda_code;

typedef struct nets_cuda_batch_norm_gradients {
    const void *x, *dy;
    const float *mean, *var, *scale, *shift;
    nets_cuda_gate gate; /* open: there is no ReLU, or gate_by_x is set */
    bool gate_by_x;      /* y's signs are computed from x again: there is a ReLU, no x2, and x has the forward's bits */
    const void *earlier, *earlier2;
    /* Gradients by x and x2; NULL: not wanted. dx may be dy. dx2 may be earlier2 or, without earlier2, gate.y. */
    void *dx, *dx2;
    float *dscale, *dshift;
    nets_cuda_code x_code; /* from which x is decoded, in registers; x is NULL (op_batch_norm_decode_kernels.cu) */
} nets_cuda_batch_norm_gradients;

int64_t nets_cuda_batch_norm_backward_bytes(nets_cuda_batch_norm bn);
void nets_cuda_batch_norm_backward(mm_dtype maps, nets_cuda_batch_norm bn, nets_cuda_batch_norm_gradients g,
                                   void *scratch, cudaStream_t stream);

/* ---------------------------------------------------------------- op_batch_norm_encode_kernels.cu */

/* As nets_cuda_batch_norm_apply for f32 maps. Also writes x's code, unless x_code is none, and the mask of y's signs,
 * unless y_mask is NULL. y must not lie at x. */
void nets_cuda_batch_norm_apply_and_encode(nets_cuda_batch_norm bn, const float *x, const float *x2, const float *mean,
                                           const float *var, const float *scale, const float *shift, float *y,
                                           nets_cuda_code x_code, uint32_t *y_mask, cudaStream_t stream);

/* ---------------------------------------------------------------- op_batch_norm_decode_kernels.cu */

/* As nets_cuda_batch_norm_backward for f32 maps, with x decoded from x_code; gate_by_x is false. */
void nets_cuda_batch_norm_backward_of_code(nets_cuda_batch_norm bn, nets_cuda_batch_norm_gradients g, void *scratch,
                                           cudaStream_t stream);

/* ---------------------------------------------------------------- op_lrn_kernels.cu */

typedef struct nets_cuda_lrn {
    int64_t pixels;
    int channels, half;   /* half: channels of a window on either side of its middle; below `channels` */
    float alpha, beta, k; /* alpha: already divided by the window's size */
} nets_cuda_lrn;

/* Whether a pixel's channels fit into shared memory, where the kernels hold them. */
bool nets_cuda_lrn_fits(nets_cuda_lrn lrn);
void nets_cuda_lrn_forward(mm_dtype maps, nets_cuda_lrn lrn, const void *x, void *y, cudaStream_t stream);
void nets_cuda_lrn_backward(mm_dtype maps, nets_cuda_lrn lrn, const void *x, const void *dy, const void *earlier,
                            void *dx, cudaStream_t stream);

/* ---------------------------------------------------------------- op_loss_kernels.cu */

int64_t nets_cuda_loss_bytes(int64_t labels);
typedef struct nets_cuda_labels {
    const int32_t *of; /* [n] */
    int64_t n, whole;  /* n: of these labels; whole: of the whole batch, by which the loss is divided */
    int64_t image;     /* labels of an image */
    int64_t first;     /* labels of the graph's batch before these */
    int classes;
    const uint32_t *rng; /* NETS_RNG: its image is the place of the first image in the whole batch; NULL: 0 */
    bool adds;           /* loss and correct labels are added to those of earlier passes */
} nets_cuda_labels;

/* `probabilities` may be `scores`; NULL: not wanted. `loss`, `correct` (NETS_CORRECT): NULL in a recomputation. */
void nets_cuda_loss(mm_dtype maps, nets_cuda_labels labels, const void *scores, void *scratch, float *probabilities,
                    float *loss, int32_t *correct, cudaStream_t stream);
void nets_cuda_loss_backward(mm_dtype maps, nets_cuda_labels labels, const float *probabilities, const void *earlier,
                             void *dx, cudaStream_t stream);

/* The gradients by rows of scores, of the maps' type. They may begin where the scores do: then each row must begin
 * where its scores do, too. */
typedef struct nets_cuda_score_gradients {
    void *at;      /* NULL: not wanted */
    int64_t pitch; /* elements from row to row, a multiple of 4 */
} nets_cuda_score_gradients;

/* The loss of rows of many scores. Rows are `pitch` elements apart, a multiple of 4. Each score is read twice, the
 * second time for its gradient. Otherwise as nets_cuda_loss. */
int64_t nets_cuda_token_loss_bytes(int64_t labels);
void nets_cuda_token_loss(mm_dtype maps, nets_cuda_labels labels, float *scores, int64_t pitch,
                          nets_cuda_score_gradients gradients, void *scratch, float *loss, int32_t *correct,
                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
