/* SPDX-License-Identifier: MIT */
/* cuDNN's legacy convolutions: descriptors that count in 32 bits, and a few algorithms for each direction. */
#include "mm/core/log.h"
#include "nets/cuda/libraries/cudnn_conv.h"

enum { CANDIDATES = 16 };

/* ---------------------------------------------------------------- descriptors */

static cudnnDataType_t type_of(const nets_conv_shape *s) { return s->bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT; }

static mm_status describe_image(const nets_conv_shape *s, const int dims[4], cudnnTensorDescriptor_t *image_out) {
    MM_TRY(nets_cuda_dnn_check(cudnnCreateTensorDescriptor(image_out), "describing an image"));
    return nets_cuda_dnn_check(
        cudnnSetTensor4dDescriptor(*image_out, CUDNN_TENSOR_NHWC, type_of(s), dims[0], dims[3], dims[1], dims[2]),
        "describing an image");
}

static mm_status describe_weights(const nets_conv_shape *s, cudnnFilterDescriptor_t *weights_out) {
    MM_TRY(nets_cuda_dnn_check(cudnnCreateFilterDescriptor(weights_out), "describing weights"));
    return nets_cuda_dnn_check(cudnnSetFilter4dDescriptor(*weights_out, type_of(s), CUDNN_TENSOR_NHWC, s->y[3],
                                                          s->x[3] / s->groups, s->kernel[0], s->kernel[1]),
                               "describing weights");
}

static mm_status describe_conv(const nets_conv_shape *s, cudnnConvolutionDescriptor_t *conv_out) {
    MM_TRY(nets_cuda_dnn_check(cudnnCreateConvolutionDescriptor(conv_out), "describing a convolution"));
    MM_TRY(nets_cuda_dnn_check(cudnnSetConvolution2dDescriptor(*conv_out, s->pad[0], s->pad[1], s->stride[0],
                                                               s->stride[1], s->dilation[0], s->dilation[1],
                                                               CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                               "describing a convolution"));
    return nets_cuda_dnn_check(cudnnSetConvolutionGroupCount(*conv_out, s->groups), "describing a convolution");
}

/* The least exact math type that the precision allows: FMA is plain float32; the default allows TF32. */
static cudnnMathType_t widest_math(const nets_cudnn_conv *conv) {
    if (conv->shape.bf16) return CUDNN_DEFAULT_MATH; /* even tensor cores multiply bf16 exactly */
    switch (conv->cuda->config.precision) {
    case NETS_FP32:
        return CUDNN_FMA_MATH;
    case NETS_TF32:
    case NETS_BF16: /* for operations that run in f32 */
        return CUDNN_DEFAULT_MATH;
    }
    return CUDNN_FMA_MATH;
}

static mm_status set_math(const nets_cudnn_conv *conv, int math) {
    return nets_cuda_dnn_check(cudnnSetConvolutionMathType(conv->legacy.conv, (cudnnMathType_t)math),
                               "setting the precision");
}

static int64_t library_bytes(const nets_cudnn_conv *c, int algorithm) {
    cudnnHandle_t dnn = c->cuda->dnn;
    const nets_cudnn_legacy *l = &c->legacy;
    cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
    size_t bytes = 0;
    switch ((nets_direction)c->shape.direction) {
    case NETS_CONV_FORWARD:
        status = cudnnGetConvolutionForwardWorkspaceSize(dnn, l->x, l->weights, l->conv, l->y,
                                                         (cudnnConvolutionFwdAlgo_t)algorithm, &bytes);
        break;
    case NETS_CONV_BY_INPUT:
        status = cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, l->weights, l->y, l->conv, l->x,
                                                              (cudnnConvolutionBwdDataAlgo_t)algorithm, &bytes);
        break;
    case NETS_CONV_BY_WEIGHTS:
        status = cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, l->x, l->y, l->conv, l->weights,
                                                                (cudnnConvolutionBwdFilterAlgo_t)algorithm, &bytes);
        break;
    }
    return status == CUDNN_STATUS_SUCCESS ? (int64_t)bytes : -1;
}

/* An algorithm's workspace; -1: it cannot compute this convolution. */
static int64_t bytes_of(const nets_cudnn_conv *conv, int algorithm, int math) {
    return conv->legacy.x && set_math(conv, math) == MM_OK ? library_bytes(conv, algorithm) : -1;
}

bool nets_cudnn_legacy_holds(const nets_cudnn_conv *conv, const nets_conv_choice *choice) {
    int64_t bytes = bytes_of(conv, choice->algorithm, choice->math);
    return bytes >= 0 && bytes <= choice->workspace_bytes;
}

mm_status nets_cudnn_legacy_init(nets_cudnn_legacy *legacy, const nets_conv_shape *shape) {
    MM_TRY(describe_image(shape, shape->x, &legacy->x));
    MM_TRY(describe_image(shape, shape->y, &legacy->y));
    MM_TRY(describe_weights(shape, &legacy->weights));
    return describe_conv(shape, &legacy->conv);
}

void nets_cudnn_legacy_fini(nets_cudnn_legacy *legacy) {
    if (legacy->x) cudnnDestroyTensorDescriptor(legacy->x);
    if (legacy->y) cudnnDestroyTensorDescriptor(legacy->y);
    if (legacy->weights) cudnnDestroyFilterDescriptor(legacy->weights);
    if (legacy->conv) cudnnDestroyConvolutionDescriptor(legacy->conv);
    *legacy = (nets_cudnn_legacy){0};
}

/* ---------------------------------------------------------------- cuDNN's lists */

/* What cuDNN's list of algorithms for a direction says about one of them. */
typedef struct candidate {
    int algorithm, math;
    cudnnStatus_t status;
    cudnnDeterminism_t determinism;
    size_t memory;
    float time; /* ms, if it was run */
} candidate;

typedef struct candidates {
    candidate of[CANDIDATES];
    int n;
} candidates;

/* Copies one of cuDNN's lists. Its structs for the three directions have the same members. */
#define COPY_LIST(from, list)                                                                                          \
    for (int i = 0; i < (list)->n; i++) (list)->of[i] = (candidate) {                                                  \
            .algorithm = (int)(from)[i].algo, .math = (int)(from)[i].mathType, .status = (from)[i].status,             \
            .determinism = (from)[i].determinism, .memory = (from)[i].memory, .time = (from)[i].time                   \
        }

/* Lists the algorithms by running them; `t` NULL: by cuDNN's heuristic. */
static cudnnStatus_t list_forward(const nets_cudnn_conv *c, const nets_conv_tensors *t, size_t limit,
                                  candidates *list) {
    cudnnConvolutionFwdAlgoPerf_t found[CANDIDATES];
    cudnnStatus_t status =
        t ? cudnnFindConvolutionForwardAlgorithmEx(c->cuda->dnn, c->legacy.x, t->x, c->legacy.weights, t->weights,
                                                   c->legacy.conv, c->legacy.y, t->y, CANDIDATES, &list->n, found,
                                                   t->workspace, limit)
          : cudnnGetConvolutionForwardAlgorithm_v7(c->cuda->dnn, c->legacy.x, c->legacy.weights, c->legacy.conv,
                                                   c->legacy.y, CANDIDATES, &list->n, found);
    if (status == CUDNN_STATUS_SUCCESS) COPY_LIST(found, list);
    return status;
}

static cudnnStatus_t list_by_input(const nets_cudnn_conv *c, const nets_conv_tensors *t, size_t limit,
                                   candidates *list) {
    cudnnConvolutionBwdDataAlgoPerf_t found[CANDIDATES];
    cudnnStatus_t status =
        t ? cudnnFindConvolutionBackwardDataAlgorithmEx(c->cuda->dnn, c->legacy.weights, t->weights, c->legacy.y, t->y,
                                                        c->legacy.conv, c->legacy.x, t->x, CANDIDATES, &list->n, found,
                                                        t->workspace, limit)
          : cudnnGetConvolutionBackwardDataAlgorithm_v7(c->cuda->dnn, c->legacy.weights, c->legacy.y, c->legacy.conv,
                                                        c->legacy.x, CANDIDATES, &list->n, found);
    if (status == CUDNN_STATUS_SUCCESS) COPY_LIST(found, list);
    return status;
}

static cudnnStatus_t list_by_weights(const nets_cudnn_conv *c, const nets_conv_tensors *t, size_t limit,
                                     candidates *list) {
    cudnnConvolutionBwdFilterAlgoPerf_t found[CANDIDATES];
    cudnnStatus_t status =
        t ? cudnnFindConvolutionBackwardFilterAlgorithmEx(c->cuda->dnn, c->legacy.x, t->x, c->legacy.y, t->y,
                                                          c->legacy.conv, c->legacy.weights, t->weights, CANDIDATES,
                                                          &list->n, found, t->workspace, limit)
          : cudnnGetConvolutionBackwardFilterAlgorithm_v7(c->cuda->dnn, c->legacy.x, c->legacy.y, c->legacy.conv,
                                                          c->legacy.weights, CANDIDATES, &list->n, found);
    if (status == CUDNN_STATUS_SUCCESS) COPY_LIST(found, list);
    return status;
}

static mm_status list_candidates(const nets_cudnn_conv *c, const nets_conv_tensors *t, candidates *list) {
    cudnnStatus_t (*const of[])(const nets_cudnn_conv *, const nets_conv_tensors *, size_t, candidates *) = {
        [NETS_CONV_FORWARD] = list_forward,
        [NETS_CONV_BY_INPUT] = list_by_input,
        [NETS_CONV_BY_WEIGHTS] = list_by_weights,
    };
    list->n = 0;
    cudnnStatus_t status = of[c->shape.direction](c, t, (size_t)c->terms.limit_bytes, list);
    return nets_cuda_dnn_check(status, t ? "timing algorithms" : "listing algorithms");
}

/* Although FMA was set, cuDNN's list may name another math type, with the workspace that this type takes: corrects both
 * to FMA's. */
static void round_as_configured(const nets_cudnn_conv *c, candidate *a) {
    if (widest_math(c) != CUDNN_FMA_MATH || a->math == CUDNN_FMA_MATH || a->status != CUDNN_STATUS_SUCCESS) return;
    int64_t bytes = bytes_of(c, a->algorithm, CUDNN_FMA_MATH);
    a->math = CUDNN_FMA_MATH;
    if (bytes < 0)
        a->status = CUDNN_STATUS_NOT_SUPPORTED;
    else if ((size_t)bytes > a->memory)
        a->memory = (size_t)bytes;
}

static bool allowed(const nets_cudnn_conv *c, const candidate *a) {
    return a->status == CUDNN_STATUS_SUCCESS && a->memory <= (size_t)c->terms.limit_bytes &&
           (!c->terms.deterministic || a->determinism == CUDNN_DETERMINISTIC);
}

static void tell(const nets_cudnn_conv *c, const candidate *a) {
    mm_log_send(&c->cuda->config.log, MM_LOG_DEBUG, "  algorithm %d, math %d: %.4f ms by cuDNN, %zu bytes%s%s",
                a->algorithm, a->math, (double)a->time, a->memory, a->status == CUDNN_STATUS_SUCCESS ? "" : ", fails",
                a->determinism == CUDNN_DETERMINISTIC ? "" : ", not deterministic");
}

/* Chooses the best ones of the list. If they were not timed, a rank in the list stands for the time. */
static int choose_from(const nets_cudnn_conv *c, const candidates *list, bool timed, int capacity,
                       nets_conv_choice *choices) {
    nets_pareto_point points[CANDIDATES];
    int n = 0, allowed_at[CANDIDATES], chosen[CANDIDATES];
    for (int i = 0; i < list->n; i++) {
        const candidate *a = &list->of[i];
        if (!allowed(c, a)) continue;
        points[n] = (nets_pareto_point){(int64_t)a->memory, timed ? (int64_t)((double)a->time * 1e6) : i};
        allowed_at[n++] = i;
    }
    n = nets_pareto_of(points, n, NETS_CUDNN_NO_SLOWER, CANDIDATES, chosen);
    if (n > capacity) n = capacity;
    for (int i = 0; i < n; i++) {
        const candidate *a = &list->of[allowed_at[chosen[i]]];
        choices[i] = (nets_conv_choice){
            .api = NETS_CONV_LEGACY, .algorithm = a->algorithm, .math = a->math, .workspace_bytes = (int64_t)a->memory};
    }
    return n;
}

/* Has all algorithms timed twice, and uses only the second times: the first run also loads the kernels. */
mm_status nets_cudnn_legacy_propose(nets_cudnn_conv *c, const nets_conv_tensors *t, int capacity,
                                    nets_conv_choice *choices, int *n_out) {
    candidates list;
    MM_TRY(set_math(c, widest_math(c)));
    if (t) MM_TRY(list_candidates(c, t, &list));
    MM_TRY(list_candidates(c, t, &list));
    for (int i = 0; i < list.n; i++) {
        round_as_configured(c, &list.of[i]);
        tell(c, &list.of[i]);
    }
    *n_out = choose_from(c, &list, t != NULL, capacity, choices);
    if (*n_out) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "cuDNN has no %salgorithm for this convolution within %lld bytes of workspace",
                   c->terms.deterministic ? "deterministic " : "", (long long)c->terms.limit_bytes);
}

/* ---------------------------------------------------------------- running one */

mm_status nets_cudnn_legacy_launch(const nets_cudnn_conv *c, const nets_conv_choice *choice, void *x, void *y,
                                   void *weights, void *workspace) {
    const nets_cudnn_legacy *l = &c->legacy;
    const float one = 1, beta = c->shape.adds ? 1 : 0;
    size_t bytes = (size_t)choice->workspace_bytes;
    int algorithm = choice->algorithm;
    cudnnHandle_t dnn = c->cuda->dnn;
    cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
    MM_TRY(set_math(c, choice->math)); /* all choices share the descriptor */
    switch ((nets_direction)c->shape.direction) {
    case NETS_CONV_FORWARD:
        status = cudnnConvolutionForward(dnn, &one, l->x, x, l->weights, weights, l->conv,
                                         (cudnnConvolutionFwdAlgo_t)algorithm, workspace, bytes, &beta, l->y, y);
        break;
    case NETS_CONV_BY_INPUT:
        status =
            cudnnConvolutionBackwardData(dnn, &one, l->weights, weights, l->y, y, l->conv,
                                         (cudnnConvolutionBwdDataAlgo_t)algorithm, workspace, bytes, &beta, l->x, x);
        break;
    case NETS_CONV_BY_WEIGHTS:
        status = cudnnConvolutionBackwardFilter(dnn, &one, l->x, x, l->y, y, l->conv,
                                                (cudnnConvolutionBwdFilterAlgo_t)algorithm, workspace, bytes, &beta,
                                                l->weights, weights);
        break;
    }
    return nets_cuda_dnn_check(status, "a convolution");
}
