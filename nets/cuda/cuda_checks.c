/* SPDX-License-Identifier: MIT */
/* What ops share: turns failures of CUDA, cuDNN and cuBLAS into statuses, checks what must hold before they are called,
 * and frees ops that own nothing else. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

mm_status nets_cuda_launched(const char *what) { return mm_cuda_check(cudaGetLastError(), what); }

mm_status nets_cuda_check_dims(const nets_op_desc *desc) {
    const int64_t most = INT32_MAX;
    char text[NETS_SHAPE_TEXT_CAPACITY];
    for (int side = 0; side < 2; side++) {
        const nets_shape *shape = side ? &desc->y : &desc->x[0];
        if (nets_shape_rows(shape) > most || nets_shape_channels(shape) > most)
            return mm_fail(MM_ERR_UNSUPPORTED, "a %s of %s is too large: at most %lld pixels, and as many channels",
                           nets_op_name(desc->kind), nets_shape_text(shape, text), (long long)most);
    }
    return MM_OK;
}

mm_status nets_cuda_dnn_check(cudnnStatus_t status, const char *what) {
    if (status == CUDNN_STATUS_SUCCESS) return MM_OK;
    (void)cudaGetLastError(); /* clear the error that the call left: it is reported here, not by a later launch */
    bool short_of_memory = status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
                           status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    return mm_fail(short_of_memory ? MM_ERR_NOMEM : MM_ERR_DEVICE, "cuDNN: %s: %s", what, cudnnGetErrorString(status));
}

mm_status nets_cuda_blas_check(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return MM_OK;
    (void)cudaGetLastError();
    return mm_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? MM_ERR_NOMEM : MM_ERR_DEVICE, "cuBLAS: %s: %s", what,
                   cublasLtGetStatusString(status));
}

mm_status nets_cuda_dnn_on(nets_cuda_backend *cuda, mm_stream *stream, cudnnHandle_t *handle_out) {
    if (!cuda->dnn)
        return mm_fail(MM_ERR_DEVICE, "no CUDA device was present when the network's operations were created");
    MM_TRY(nets_cuda_dnn_check(cudnnSetStream(cuda->dnn, mm_cuda_stream(stream)), "setting a stream"));
    *handle_out = cuda->dnn;
    return MM_OK;
}

void nets_cuda_free(nets_op *op) { free(op); }
