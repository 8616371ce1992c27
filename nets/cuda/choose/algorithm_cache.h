/* SPDX-License-Identifier: MIT */
/* Cache of what computes each convolution: algorithms of cuDNN's legacy API, engines of its graph API or, for a
 * convolution that is a product of matrices, algorithms of cuBLAS; and of what computes attention: engines, or our own
 * kernels. Timing chooses them once; a file stores them.
 *
 * The file is text. It has a line for each convolution, and one for each phase of an attention, with the device, the
 * libraries' versions, everything that the choices depend on, and the choices with their times. Its last line has the
 * number of lines and a checksum of all before. A file of another form is ignored with a warning, and later
 * overwritten. Writers replace the whole file at once, so a reader never sees half of it; of two writers, the later
 * one's choices remain. */
#ifndef NETS_CUDA_CHOOSE_ALGORITHM_CACHE_H
#define NETS_CUDA_CHOOSE_ALGORITHM_CACHE_H

#include "nets/contract/op.h"

typedef enum nets_direction { NETS_CONV_FORWARD, NETS_CONV_BY_INPUT, NETS_CONV_BY_WEIGHTS } nets_direction;

/* The directions of attention's choices (cudnn_attention.h): x has samples, tokens, heads, channels of a head. */
enum { NETS_ATTENTION_FORWARD = NETS_CONV_BY_WEIGHTS + 1, NETS_ATTENTION_BACKWARD };

/* Which tensors are bf16; of a product also what the library does beside it, with a tensor more (gemm.h). */
typedef enum nets_conv_bf16 {
    NETS_CONV_BF16 = 1,    /* x, y and weights; but a product's gradient by the weights is f32 */
    NETS_CONV_BF16_TO_F32, /* of a product: all but the result */
    NETS_CONV_BF16_BIAS,   /* adds a bias, one bf16 for each channel of the result, to the sums before rounding */
    /* By the weights: also gives the sums over all pixels of x (of y), one f32 for each of its channels. */
    NETS_CONV_BF16_SUMS_X,
    NETS_CONV_BF16_SUMS_Y
} nets_conv_bf16;

/* One direction of a convolution from x to y (NHWC); pairs are {height, width}. */
typedef struct nets_conv_shape {
    int direction; /* nets_direction */
    int x[4], y[4];
    int kernel[2], stride[2], pad[2], dilation[2], groups;
    int adds;  /* 1: the result is added to what the output has; 0: it replaces what the output has */
    int bf16;  /* nets_conv_bf16; 0: all are f32 */
    int pitch; /* of a product: elements from row to row of y; 0: its channels */
} nets_conv_shape;

/* Whether the convolution is a product of matrices: windows are single pixels, and x and y have the same pixels. Their
 * number is limited, since some kernels count rows and columns in 32 bits. */
static inline bool nets_conv_is_product(const nets_conv_shape *s) {
    for (int d = 0; d < 2; d++)
        if (s->kernel[d] != 1 || s->stride[d] != 1 || s->pad[d] != 0) return false;
    return s->groups == 1 && (int64_t)s->x[0] * s->x[1] <= INT32_MAX / s->x[2];
}

/* Whether the result is bf16. Even with bf16 tensors, a product's gradient by the weights is f32, as cuBLASLt can give
 * it. For other convolutions cuDNN 9.19 has no engine that gives f32 (cudnn_plans_test): it sums in f32 and rounds
 * once. */
static inline bool nets_conv_gives_bf16(const nets_conv_shape *s) {
    return s->bf16 && s->bf16 != NETS_CONV_BF16_TO_F32 &&
           !(s->direction == NETS_CONV_BY_WEIGHTS && nets_conv_is_product(s));
}

/* Whether the library does something beside the product, which only cuBLASLt can. */
static inline bool nets_conv_has_epilogue(const nets_conv_shape *s) { return s->bf16 >= NETS_CONV_BF16_BIAS; }

/* Whether the tensor that direction `giving` computes is bf16. (Forward computes y, by input x.) */
static inline bool nets_conv_is_bf16(const nets_conv_shape *s, nets_direction giving) {
    return (int)giving == s->direction ? nets_conv_gives_bf16(s) : s->bf16 != 0;
}

/* What a choice must satisfy. */
typedef struct nets_conv_terms {
    bool deterministic;
    int64_t limit_bytes;             /* of workspace */
    int64_t tensor_core_limit_bytes; /* at least limit_bytes; applies if tensor cores need more than limit_bytes */
} nets_conv_terms;

typedef enum nets_conv_api {
    NETS_CONV_UNCHOSEN, /* no device, and nothing cached */
    NETS_CONV_LEGACY,
    NETS_CONV_GRAPH,
    NETS_CONV_PRODUCT,
    NETS_CONV_OWN,      /* kernels of our own: attention's; or in place of an epilogue (epilogue.h) */
    NETS_CONV_UNORDERED /* graph API: a backward of attention that adds in any order */
} nets_conv_api;

enum { NETS_CONV_KNOBS = 44 }; /* number of types of knobs in cuDNN 9 (CUDNN_KNOB_TYPE_COUNTS) */

/* One way to compute. Numbers of algorithms, math types and knobs are those of cuDNN or cuBLAS. */
typedef struct nets_conv_choice {
    int api;                 /* nets_conv_api */
    int algorithm;           /* graph API: the engine's index; cuBLAS: the algorithm's number */
    int math;                /* legacy API: math type; attention's engine: number of parts of its batch; else 0 */
    int64_t workspace_bytes; /* of the library */
    int64_t ns;              /* measured, at least 1; 0: not timed */
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
    char device[128]; /* the device and libraries whose choices are used; "": no device, those for any are used */
    int precision;
    char *path; /* NULL: no file, the cache is only in memory */
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

/* Stores the choices for a shape and terms, in place of older ones, and writes the file. A failure to write is only a
 * warning. MM_ERR_NOMEM. */
MM_CHECKED mm_status nets_algorithm_cache_store(nets_algorithm_cache *choices, const nets_conv_shape *shape,
                                                const nets_conv_terms *terms, const nets_conv_pareto *front);

#endif
