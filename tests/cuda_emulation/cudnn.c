/* SPDX-License-Identifier: MIT */
/* See include/cudnn.h. The legacy API's algorithms differ only in what they ask for. Each direction has five. One is
 * fast: its workspace is as large as its tensors together, in plain float32 somewhat larger than the list of algorithms
 * says; in the backward directions its sums are not deterministic. Two need little workspace; of these two, the one
 * that needs less is hardly slower. One needs none. One cannot run. An algorithm that runs overwrites all the workspace
 * that it asked for. */
#include <cudnn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_emulation/cudnn_loops.h"
#include "tests/cuda_emulation/enqueue.h"
#include "tests/cuda_emulation/libraries.h"

struct cudnnTensorStruct {
    int n, c, h, w;
    cudnnDataType_t type;
};
struct cudnnFilterStruct {
    int k, c, h, w;
    cudnnDataType_t type;
};
struct cudnnConvolutionStruct {
    int pad[2], stride[2], dilation[2], groups;
    cudnnMathType_t math;
};

/* Global, because the real library has one state for the whole process. */
static atomic_long timed, listed;

long cuda_emulation_dnn_timed(void) { return atomic_load(&timed); }
long cuda_emulation_dnn_listed(void) { return atomic_load(&listed); }

static atomic_size_t version = CUDNN_VERSION;

void cuda_emulation_dnn_version(size_t to) { atomic_store(&version, to); }

size_t cudnnGetVersion(void) { return atomic_load(&version); }

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
        return "CUDNN_STATUS_OTHER";
    }
}

/* ---------------------------------------------------------------- descriptions */

static cudnnStatus_t make(void *out, size_t bytes) {
    void *made = calloc(1, bytes);
    memcpy(out, &made, sizeof made);
    return made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

static cudnnStatus_t drop(void *made) {
    free(made);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) return CUDNN_STATUS_NOT_INITIALIZED;
    cudnnStatus_t status = make(handle, sizeof **handle);
    if (status == CUDNN_STATUS_SUCCESS) (*handle)->device = cuda_emulation_device();
    return status;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    cudnnStatus_t status = dnn_status(cuda_emulation_on(handle->device));
    (void)drop(handle);
    return status;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    cudnnStatus_t status = dnn_status(cuda_emulation_on(handle->device));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor) { return make(tensor, sizeof **tensor); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) { return drop(tensor); }

static bool sizes_are_possible(int a, int b, int c, int d) {
    int64_t product = a;
    if (a < 1 || b < 1 || c < 1 || d < 1) return false;
    return !__builtin_mul_overflow(product, b, &product) && !__builtin_mul_overflow(product, c, &product) &&
           !__builtin_mul_overflow(product, d, &product) && product <= INT32_MAX;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    if (format != CUDNN_TENSOR_NHWC || (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16))
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (!sizes_are_possible(n, c, h, w)) return CUDNN_STATUS_BAD_PARAM;
    *tensor = (struct cudnnTensorStruct){n, c, h, w, type};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter) { return make(filter, sizeof **filter); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) { return drop(filter); }

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    if (format != CUDNN_TENSOR_NHWC || (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16))
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (!sizes_are_possible(k, c, h, w)) return CUDNN_STATUS_BAD_PARAM;
    *filter = (struct cudnnFilterStruct){k, c, h, w, type};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *conv) { return make(conv, sizeof **conv); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv) { return drop(conv); }

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w, int u, int v,
                                              int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
    if (mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT) return CUDNN_STATUS_NOT_SUPPORTED;
    if (pad_h < 0 || pad_w < 0 || !sizes_are_possible(u, v, dilation_h, dilation_w)) return CUDNN_STATUS_BAD_PARAM;
    *conv = (struct cudnnConvolutionStruct){{pad_h, pad_w}, {u, v}, {dilation_h, dilation_w}, 1, CUDNN_DEFAULT_MATH};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups) {
    if (groups < 1) return CUDNN_STATUS_BAD_PARAM;
    conv->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math) {
    conv->math = math;
    return CUDNN_STATUS_SUCCESS;
}

/* ---------------------------------------------------------------- algorithms */

enum { ALGORITHMS = 5, FASTEST = 0, IMPOSSIBLE = 4 };

typedef struct algorithm {
    int number;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnStatus_t status;
    float time;
} algorithm;

/* Lists the algorithms, best first. */
static void list_algorithms(const conv_job *j, algorithm list[ALGORITHMS]) {
    static const int NUMBERS[3][ALGORITHMS] = {
        [FORWARD] = {CUDNN_CONVOLUTION_FWD_ALGO_GEMM, 5, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                     CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_FFT},
        [BY_INPUT] = {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, 4, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, 5,
                      CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT},
        [BY_WEIGHTS] = {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, 4, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, 5,
                        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT},
    };
    static const float TIMES[ALGORITHMS] = {1, 2, 2.02f, 3, 0};
    const size_t memory[ALGORITHMS] = {4 * (size_t)(conv_x_elems(j) + conv_y_elems(j) + conv_w_elems(j)), 2000, 1000, 0,
                                       0};
    for (int i = 0; i < ALGORITHMS; i++)
        list[i] = (algorithm){.number = NUMBERS[j->of][i],
                              .memory = memory[i],
                              .determinism = i == 0 && j->of != FORWARD ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC,
                              .status = i == IMPOSSIBLE ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS,
                              .time = TIMES[i]};
}

static conv_job describe(conv_direction of, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
                         cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv) {
    const conv_job j = {.of = of,
                        .x = {x->n, x->c, x->h, x->w},
                        .y = {y->n, y->c, y->h, y->w},
                        .w = {w->k, w->c, w->h, w->w},
                        .pad = {conv->pad[0], conv->pad[1]},
                        .stride = {conv->stride[0], conv->stride[1]},
                        .dilation = {conv->dilation[0], conv->dilation[1]},
                        .groups = conv->groups,
                        .x_bf16 = x->type == CUDNN_DATA_BFLOAT16,
                        .y_bf16 = y->type == CUDNN_DATA_BFLOAT16,
                        .w_bf16 = w->type == CUDNN_DATA_BFLOAT16,
                        .tf32 = conv->math != CUDNN_FMA_MATH};
    return j;
}

/* The legacy API takes tensors of one type only. */
static bool fits(const conv_job *j) { return conv_fits(j) && j->x_bf16 == j->w_bf16; }

/* The direction's algorithm of that number; NULL: there is none. */
static const algorithm *find(const algorithm list[ALGORITHMS], int number) {
    for (int i = 0; i < ALGORITHMS; i++)
        if (list[i].number == number) return &list[i];
    return NULL;
}

static cudnnStatus_t memory_of(const conv_job *j, int number, size_t *bytes_out) {
    algorithm list[ALGORITHMS];
    if (!fits(j)) return CUDNN_STATUS_BAD_PARAM;
    list_algorithms(j, list);
    const algorithm *a = find(list, number);
    if (!a) return CUDNN_STATUS_BAD_PARAM;
    *bytes_out = a->memory + (a == &list[FASTEST] && !j->tf32 ? CUDA_EMULATION_FMA_BYTES : 0);
    return a->status;
}

static cudnnStatus_t enqueue(cudnnHandle_t handle, conv_job j, int number, const void *alpha, const void *beta,
                             void *workspace, size_t workspace_bytes) {
    algorithm list[ALGORITHMS];
    cudnnStatus_t status = memory_of(&j, number, &j.memory);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (*(const float *)alpha != 1) return CUDNN_STATUS_NOT_SUPPORTED;
    if (j.memory > workspace_bytes || (j.memory && !workspace)) return CUDNN_STATUS_BAD_PARAM;
    list_algorithms(&j, list);
    j.time = (double)find(list, number)->time;
    j.beta = *(const float *)beta;
    j.workspace = workspace;
    status = dnn_status(cuda_emulation_on(handle->device));
    return status == CUDNN_STATUS_SUCCESS ? conv_enqueue(handle->stream, &j) : status;
}

/* Fills found[] from the list: first those that work within `limit`, then the others with their failures. */
#define GIVE(list, limit, wanted, got, found, math)                                                                    \
    do {                                                                                                               \
        *(got) = 0;                                                                                                    \
        for (int fails = 0; fails < 2; fails++)                                                                        \
            for (int i = 0; i < ALGORITHMS && *(got) < (wanted); i++) {                                                \
                const algorithm *a = &(list)[i];                                                                       \
                cudnnStatus_t status =                                                                                 \
                    a->memory > (limit) ? CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED : a->status;            \
                if ((status != CUDNN_STATUS_SUCCESS) != fails) continue;                                               \
                memset(&(found)[*(got)], 0, sizeof(found)[0]);                                                         \
                (found)[*(got)].algo = a->number;                                                                      \
                (found)[*(got)].status = status;                                                                       \
                (found)[*(got)].time = fails ? -1.0f : a->time;                                                        \
                (found)[*(got)].memory = a->memory;                                                                    \
                (found)[*(got)].determinism = a->determinism;                                                          \
                (found)[(*(got))++].mathType = (math);                                                                 \
            }                                                                                                          \
    } while (0)

#define LIST(of, x, y, w, conv, limit, wanted, got, found)                                                             \
    algorithm list[ALGORITHMS];                                                                                        \
    const conv_job j = describe(of, x, y, w, conv);                                                                    \
    (void)handle;                                                                                                      \
    if (!fits(&j)) return CUDNN_STATUS_BAD_PARAM;                                                                      \
    list_algorithms(&j, list);                                                                                         \
    GIVE(list, limit, wanted, got, found, CUDNN_DEFAULT_MATH);                                                         \
    return CUDNN_STATUS_SUCCESS

#define LISTED(of, x, y, w, conv, wanted, got, found)                                                                  \
    atomic_fetch_add(&listed, 1);                                                                                      \
    LIST(of, x, y, w, conv, SIZE_MAX, wanted, got, found)

#define TIMED(of, x, y, w, conv, wanted, got, found)                                                                   \
    atomic_fetch_add(&timed, 1);                                                                                       \
    if (!x_data || !y_data || !w_data || !workspace) return CUDNN_STATUS_BAD_PARAM;                                    \
    cudnnStatus_t launched = dnn_status(cuda_emulation_launch_check(handle->stream));                                  \
    if (launched == CUDNN_STATUS_SUCCESS) launched = dnn_status(cuda_emulation_on(handle->device));                    \
    if (launched != CUDNN_STATUS_SUCCESS) return launched;                                                             \
    LIST(of, x, y, w, conv, workspace_bytes, wanted, got, found)

/* ---------------------------------------------------------------- forward */

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                                                     cudnnTensorDescriptor_t y, int wanted, int *got,
                                                     cudnnConvolutionFwdAlgoPerf_t *found) {
    LISTED(FORWARD, x, y, w, conv, wanted, got, found);
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                     const void *x_data, cudnnFilterDescriptor_t w, const void *w_data,
                                                     cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y,
                                                     void *y_data, int wanted, int *got,
                                                     cudnnConvolutionFwdAlgoPerf_t *found, void *workspace,
                                                     size_t workspace_bytes) {
    TIMED(FORWARD, x, y, w, conv, wanted, got, found);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                                                      cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t *bytes) {
    const conv_job j = describe(FORWARD, x, y, w, conv);
    (void)handle;
    return memory_of(&j, (int)algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x,
                                      const void *x_data, cudnnFilterDescriptor_t w, const void *w_data,
                                      cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *workspace, size_t workspace_bytes, const void *beta,
                                      cudnnTensorDescriptor_t y, void *y_data) {
    conv_job j = describe(FORWARD, x, y, w, conv);
    j.x_data = (float *)x_data;
    j.w_data = (float *)w_data;
    j.y_data = y_data;
    return enqueue(handle, j, (int)algorithm, alpha, beta, workspace, workspace_bytes);
}

/* ---------------------------------------------------------------- by input */

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t conv,
                                                          cudnnTensorDescriptor_t dx, int wanted, int *got,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *found) {
    LISTED(BY_INPUT, dx, dy, w, conv, wanted, got, found);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                          const void *w_data, cudnnTensorDescriptor_t dy,
                                                          const void *y_data, cudnnConvolutionDescriptor_t conv,
                                                          cudnnTensorDescriptor_t dx, void *x_data, int wanted,
                                                          int *got, cudnnConvolutionBwdDataAlgoPerf_t *found,
                                                          void *workspace, size_t workspace_bytes) {
    TIMED(BY_INPUT, dx, dy, w, conv, wanted, got, found);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t dy,
                                                           cudnnConvolutionDescriptor_t conv,
                                                           cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t *bytes) {
    const conv_job j = describe(BY_INPUT, dx, dy, w, conv);
    (void)handle;
    return memory_of(&j, (int)algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha, cudnnFilterDescriptor_t w,
                                           const void *w_data, cudnnTensorDescriptor_t dy, const void *dy_data,
                                           cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void *workspace, size_t workspace_bytes, const void *beta,
                                           cudnnTensorDescriptor_t dx, void *dx_data) {
    conv_job j = describe(BY_INPUT, dx, dy, w, conv);
    j.w_data = (float *)w_data;
    j.y_data = (float *)dy_data;
    j.x_data = dx_data;
    return enqueue(handle, j, (int)algorithm, alpha, beta, workspace, workspace_bytes);
}

/* ---------------------------------------------------------------- by weights */

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                            cudnnTensorDescriptor_t dy,
                                                            cudnnConvolutionDescriptor_t conv,
                                                            cudnnFilterDescriptor_t dw, int wanted, int *got,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *found) {
    LISTED(BY_WEIGHTS, x, dy, dw, conv, wanted, got, found);
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                            const void *x_data, cudnnTensorDescriptor_t dy,
                                                            const void *y_data, cudnnConvolutionDescriptor_t conv,
                                                            cudnnFilterDescriptor_t dw, void *w_data, int wanted,
                                                            int *got, cudnnConvolutionBwdFilterAlgoPerf_t *found,
                                                            void *workspace, size_t workspace_bytes) {
    TIMED(BY_WEIGHTS, x, dy, dw, conv, wanted, got, found);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                                             cudnnTensorDescriptor_t dy,
                                                             cudnnConvolutionDescriptor_t conv,
                                                             cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *bytes) {
    const conv_job j = describe(BY_WEIGHTS, x, dy, dw, conv);
    (void)handle;
    return memory_of(&j, (int)algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x,
                                             const void *x_data, cudnnTensorDescriptor_t dy, const void *dy_data,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                             size_t workspace_bytes, const void *beta, cudnnFilterDescriptor_t dw,
                                             void *dw_data) {
    conv_job j = describe(BY_WEIGHTS, x, dy, dw, conv);
    j.x_data = (float *)x_data;
    j.y_data = (float *)dy_data;
    j.w_data = dw_data;
    return enqueue(handle, j, (int)algorithm, alpha, beta, workspace, workspace_bytes);
}
