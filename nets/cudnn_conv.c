#include "nets/cudnn_conv.h"

static mm_status describe_image(const int dims[4], cudnnTensorDescriptor_t *image_out) {
    MM_TRY(nets_cuda_dnn_check(cudnnCreateTensorDescriptor(image_out), "describing an image"));
    return nets_cuda_dnn_check(
        cudnnSetTensor4dDescriptor(*image_out, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, dims[0], dims[3], dims[1], dims[2]),
        "describing an image");
}

static mm_status describe_weights(const nets_conv_shape *s, cudnnFilterDescriptor_t *weights_out) {
    MM_TRY(nets_cuda_dnn_check(cudnnCreateFilterDescriptor(weights_out), "describing weights"));
    return nets_cuda_dnn_check(cudnnSetFilter4dDescriptor(*weights_out, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, s->y[3],
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

/* What factors may be rounded to: FMA is plain float32; the default lets tensor cores take TF32. */
static cudnnMathType_t widest_math(const nets_cuda_backend *cuda) {
    switch (cuda->config.precision) {
    case NETS_FP32:
        return CUDNN_FMA_MATH;
    case NETS_TF32:
        return CUDNN_DEFAULT_MATH;
    }
    return CUDNN_FMA_MATH;
}

static mm_status set_math(const nets_cudnn_conv *conv, int math) {
    return nets_cuda_dnn_check(cudnnSetConvolutionMathType(conv->conv, (cudnnMathType_t)math), "setting the precision");
}

static int64_t library_bytes(const nets_cudnn_conv *c, int algorithm) {
    cudnnHandle_t dnn = c->cuda->dnn;
    cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
    size_t bytes = 0;
    switch (c->direction) {
    case NETS_CONV_FORWARD:
        status = cudnnGetConvolutionForwardWorkspaceSize(dnn, c->x, c->weights, c->conv, c->y,
                                                         (cudnnConvolutionFwdAlgo_t)algorithm, &bytes);
        break;
    case NETS_CONV_BY_INPUT:
        status = cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, c->weights, c->y, c->conv, c->x,
                                                              (cudnnConvolutionBwdDataAlgo_t)algorithm, &bytes);
        break;
    case NETS_CONV_BY_WEIGHTS:
        status = cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, c->x, c->y, c->conv, c->weights,
                                                                (cudnnConvolutionBwdFilterAlgo_t)algorithm, &bytes);
        break;
    }
    return status == CUDNN_STATUS_SUCCESS ? (int64_t)bytes : -1;
}

int64_t nets_cudnn_bytes(const nets_cudnn_conv *conv, int algorithm, int math) {
    return set_math(conv, math) == MM_OK ? library_bytes(conv, algorithm) : -1;
}

/* A choice kept by another build of the library may no longer hold. */
static bool still_holds(const nets_cudnn_conv *conv, const nets_conv_choice *choice) {
    int64_t bytes = nets_cudnn_bytes(conv, choice->algorithm, choice->math);
    return bytes >= 0 && bytes <= choice->workspace_bytes;
}

static mm_status choose(nets_cudnn_conv *conv, const nets_conv_shape *shape) {
    nets_cuda_backend *cuda = conv->cuda;
    const nets_conv_choice *kept = nets_cuda_choices_find(&cuda->choices, shape);
    if (kept && (!cuda->dnn || still_holds(conv, kept))) {
        conv->choice = *kept;
        return MM_OK;
    }
    if (!cuda->dnn) {
        conv->choice = (nets_conv_choice){.algorithm = -1, .workspace_bytes = cuda->config.workspace_limit_bytes};
        return MM_OK;
    }
    bool timed;
    MM_TRY(set_math(conv, widest_math(cuda)));
    MM_TRY(nets_cudnn_choose(conv, &timed));
    MM_TRY(set_math(conv, conv->choice.math));
    return timed ? nets_cuda_choices_keep(&cuda->choices, shape, &conv->choice) : MM_OK;
}

static int64_t float_bytes(int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * b * c * d * (int64_t)sizeof(float);
}

static mm_status init(nets_cudnn_conv *conv, const nets_conv_shape *s) {
    conv->x_bytes = float_bytes(s->x[0], s->x[1], s->x[2], s->x[3]);
    conv->y_bytes = float_bytes(s->y[0], s->y[1], s->y[2], s->y[3]);
    conv->weights_bytes = float_bytes(s->y[3], s->kernel[0], s->kernel[1], s->x[3] / s->groups);
    MM_TRY(describe_image(s->x, &conv->x));
    MM_TRY(describe_image(s->y, &conv->y));
    MM_TRY(describe_weights(s, &conv->weights));
    MM_TRY(describe_conv(s, &conv->conv));
    return choose(conv, s);
}

mm_status nets_cudnn_conv_init(nets_cudnn_conv *conv, nets_cuda_backend *cuda, const nets_conv_shape *shape) {
    *conv = (nets_cudnn_conv){.cuda = cuda, .direction = (nets_direction)shape->direction};
    mm_status status = init(conv, shape);
    if (status != MM_OK) nets_cudnn_conv_fini(conv);
    return status;
}

void nets_cudnn_conv_fini(nets_cudnn_conv *conv) {
    if (conv->x) cudnnDestroyTensorDescriptor(conv->x);
    if (conv->y) cudnnDestroyTensorDescriptor(conv->y);
    if (conv->weights) cudnnDestroyFilterDescriptor(conv->weights);
    if (conv->conv) cudnnDestroyConvolutionDescriptor(conv->conv);
    *conv = (nets_cudnn_conv){0};
}

mm_status nets_cudnn_conv_enqueue(const nets_cudnn_conv *c, void *x, void *y, void *weights, void *workspace,
                                  mm_stream *stream) {
    const float one = 1, zero = 0;
    size_t bytes = (size_t)c->choice.workspace_bytes;
    int algorithm = c->choice.algorithm;
    cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
    cudnnHandle_t dnn;
    MM_TRY(nets_cuda_dnn_on(c->cuda, stream, &dnn));
    switch (c->direction) {
    case NETS_CONV_FORWARD:
        status = cudnnConvolutionForward(dnn, &one, c->x, x, c->weights, weights, c->conv,
                                         (cudnnConvolutionFwdAlgo_t)algorithm, workspace, bytes, &zero, c->y, y);
        break;
    case NETS_CONV_BY_INPUT:
        status =
            cudnnConvolutionBackwardData(dnn, &one, c->weights, weights, c->y, y, c->conv,
                                         (cudnnConvolutionBwdDataAlgo_t)algorithm, workspace, bytes, &zero, c->x, x);
        break;
    case NETS_CONV_BY_WEIGHTS:
        status = cudnnConvolutionBackwardFilter(dnn, &one, c->x, x, c->y, y, c->conv,
                                                (cudnnConvolutionBwdFilterAlgo_t)algorithm, workspace, bytes, &zero,
                                                c->weights, weights);
        break;
    }
    return nets_cuda_dnn_check(status, "a convolution");
}
