/* SPDX-License-Identifier: MIT */
/* The choices of what computes each convolution: algorithms of cuDNN's legacy API, engines of its graph API or, for a
 * convolution that is a product of matrices, algorithms of cuBLAS; and of what computes attention: engines, or our own
 * kernels. They are chosen once by timing and kept in a file.
 *
 * The file is text. It has a line for each convolution, and one for each phase of an attention, with the device, the
 * libraries' versions, everything that the choices depend on, and the choices with their times. Its last line has the
 * number of lines and a checksum of all before. A file of another form is ignored with a warning, and later
 * overwritten. Writers replace the whole file at once, so a reader never sees half of it; of two writers, the last
 * one's choices remain. */
#ifndef NETS_CUDA_CHOOSE_ALGORITHM_CACHE_H
#define NETS_CUDA_CHOOSE_ALGORITHM_CACHE_H

#include "nets/contract/op.h"

typedef enum nets_direction { NETS_CONV_FORWARD, NETS_CONV_BY_INPUT, NETS_CONV_BY_WEIGHTS } nets_direction;

/* The directions of attention's choices (cudnn_attention.h): x is its samples, tokens, heads and channels of a head. */
enum { NETS_ATTENTION_FORWARD = NETS_CONV_BY_WEIGHTS + 1, NETS_ATTENTION_BACKWARD };

/* Tensors of bf16: x, y and weights, but that a product's gradient by the weights is f32; or, of a product, all but its
 * result; or all, where a product adds a bias of bf16 before it rounds its sums (product.h). */
typedef enum nets_conv_bf16 { NETS_CONV_BF16 = 1, NETS_CONV_BF16_TO_F32, NETS_CONV_BF16_BIAS } nets_conv_bf16;

/* One direction of a convolution from x to y (NHWC); pairs are {height, width}. */
typedef struct nets_conv_shape {
    int direction; /* nets_direction */
    int x[4], y[4];
    int kernel[2], stride[2], pad[2], dilation[2], groups;
    int adds;  /* 1: the result is added to what the output holds; 0: it replaces that */
    int bf16;  /* nets_conv_bf16; 0: all are f32 */
    int pitch; /* of a product: elements from row to row of y; 0: its channels */
} nets_conv_shape;

/* Whether it is a product of matrices: windows are single pixels, and x and y have the same. Rows and columns are
 * counted in 32 bits by some kernels. */
static inline bool nets_conv_is_product(const nets_conv_shape *s) {
    for (int d = 0; d < 2; d++)
        if (s->kernel[d] != 1 || s->stride[d] != 1 || s->pad[d] != 0) return false;
    return s->groups == 1 && (int64_t)s->x[0] * s->x[1] <= INT32_MAX / s->x[2];
}

/* Whether the result is bf16. Gradients by the weights of bf16 images are f32 of a product, as cuBLASLt gives them. For
 * others cuDNN 9.19 has no such engines (cudnn_plans_test): it sums in f32 and rounds them once. */
static inline bool nets_conv_gives_bf16(const nets_conv_shape *s) {
    const bool bf16 = s->bf16 == NETS_CONV_BF16 || s->bf16 == NETS_CONV_BF16_BIAS;
    return bf16 && !(s->direction == NETS_CONV_BY_WEIGHTS && nets_conv_is_product(s));
}

/* Whether the tensor is bf16 that a direction gives: y, x or weights. */
static inline bool nets_conv_is_bf16(const nets_conv_shape *s, nets_direction giving) {
    return (int)giving == s->direction ? nets_conv_gives_bf16(s) : s->bf16 != 0;
}

/* What may be chosen. */
typedef struct nets_conv_terms {
    bool deterministic;
    int64_t limit_bytes;             /* of workspace */
    int64_t tensor_core_limit_bytes; /* at least limit_bytes; applies if tensor cores cannot be used within that */
} nets_conv_terms;

typedef enum nets_conv_api {
    NETS_CONV_UNCHOSEN, /* without a device, and with nothing kept */
    NETS_CONV_LEGACY,
    NETS_CONV_GRAPH,
    NETS_CONV_PRODUCT,
    NETS_CONV_OWN,      /* kernels of our own: attention's */
    NETS_CONV_UNORDERED /* of the graph API: an attention's backward that adds in any order */
} nets_conv_api;

enum { NETS_CONV_KNOBS = 44 }; /* types of knobs that cuDNN 9 has (CUDNN_KNOB_TYPE_COUNTS) */

/* Numbers are cuDNN's or cuBLAS's own. */
typedef struct nets_conv_choice {
    int api;                 /* nets_conv_api */
    int algorithm;           /* graph API: the engine's index; cuBLAS: the algorithm's number */
    int math;                /* legacy API; of an attention's engine: the parts of its batch; else 0 */
    int64_t workspace_bytes; /* of the library */
    int64_t ns;              /* as timed, at least 1; 0: it was not */
    int n_knobs;             /* an engine's knobs; cuBLAS: the words of the algorithm's description */
    struct nets_conv_knob {
        int type;
        int64_t value;
    } knobs[NETS_CONV_KNOBS];
} nets_conv_choice;

/* The Pareto front of time and workspace: the fastest choice first; each next one takes more time and less
 * workspace. */
typedef struct nets_conv_pareto {
    int n; /* at least 1 */
    nets_conv_choice of[NETS_WORKSPACES];
} nets_conv_pareto;

typedef struct nets_algorithm_cache {
    char device[128]; /* device and libraries whose choices are used; "": any, since there is no device */
    int precision;
    char *path; /* NULL: kept in memory only */
    mm_log log;
    struct nets_cached_choice *kept;
    int n, capacity;
} nets_algorithm_cache;

/* Reads the file, if there is one. `device` names the device and the libraries' versions, without spaces.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status nets_algorithm_cache_init(nets_algorithm_cache *choices, const nets_backend_config *config,
                                               const char *device);
void nets_algorithm_cache_fini(nets_algorithm_cache *choices);

/* The choices for a shape and terms; NULL: there are none yet. Valid until nets_algorithm_cache_store. */
const nets_conv_pareto *nets_algorithm_cache_find(const nets_algorithm_cache *choices, const nets_conv_shape *shape,
                                                  const nets_conv_terms *terms);

/* Keeps choices, replaces older ones, and writes the file. A failure to write is only a warning. MM_ERR_NOMEM. */
MM_CHECKED mm_status nets_algorithm_cache_store(nets_algorithm_cache *choices, const nets_conv_shape *shape,
                                                const nets_conv_terms *terms, const nets_conv_pareto *front);

#endif
