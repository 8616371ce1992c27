/* See include/cublas_v2.h. A product of column-major matrices, summed in double. Running one overwrites the first 16 KiB
 * of the workspace. */
#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_emulation/enqueue.h"
#include "tests/cuda_emulation/libraries.h"

enum { LEAST_WORKSPACE = 16 << 10 };

struct cublasContext {
    cudaStream_t stream;
    void *workspace;
    size_t bytes;
};

const char *cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    default:
        return "CUBLAS_STATUS_OTHER";
    }
}

cublasStatus_t cublasCreate(cublasHandle_t *handle) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    *handle = (struct cublasContext){.stream = stream};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes) {
    if ((uintptr_t)workspace % 256) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    handle->bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

typedef struct product {
    cublasOperation_t op_a, op_b;
    int m, n, k, lda, ldb, ldc;
    const float *a, *b;
    float *c;
    cublasComputeType_t compute;
    void *workspace;
} product;

static double factor(const product *p, float value) {
    return p->compute == CUBLAS_COMPUTE_32F ? value : cuda_emulation_tf32(value);
}

static void run(void *arg) {
    const product *p = arg;
    memset(p->workspace, 0xa5, LEAST_WORKSPACE);
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->m; i++) {
            double sum = 0;
            for (int64_t l = 0; l < p->k; l++)
                sum += factor(p, p->a[p->op_a == CUBLAS_OP_N ? l * p->lda + i : i * p->lda + l]) *
                       factor(p, p->b[p->op_b == CUBLAS_OP_N ? j * p->ldb + l : l * p->ldb + j]);
            p->c[j * p->ldc + i] = (float)sum;
        }
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType a_type, int lda, const void *b,
                            cudaDataType b_type, int ldb, const void *beta, void *c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    if (m < 1 || n < 1 || k < 1 || lda < (op_a == CUBLAS_OP_N ? m : k) || ldb < (op_b == CUBLAS_OP_N ? k : n) ||
        ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a_type != CUDA_R_32F || b_type != CUDA_R_32F || c_type != CUDA_R_32F || algorithm != CUBLAS_GEMM_DEFAULT ||
        *(const float *)alpha != 1 || *(const float *)beta != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (handle->bytes < LEAST_WORKSPACE) return CUBLAS_STATUS_ALLOC_FAILED;
    product *p = malloc(sizeof *p);
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (product){op_a, op_b, m, n, k, lda, ldb, ldc, a, b, c, compute, handle->workspace};
    cudaError_t error = cuda_emulation_enqueue(handle->stream, run, p);
    return error == cudaSuccess                 ? CUBLAS_STATUS_SUCCESS
           : error == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED
                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}
