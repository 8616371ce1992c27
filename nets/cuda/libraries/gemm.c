/* SPDX-License-Identifier: MIT */
/* cuBLAS's matrices are stored column by column, so it sees ours transposed: images as [channels, pixels], weights as
 * [in, out].
 *
 *   forward      y = weights' x      by input     x = weights y      by weights   weights = x y'
 *
 * An algorithm is cached as the words of its opaque description, which "can be trivially serialized and later restored
 * for use with the same version of cuBLAS" (its reference, cublasLtMatmulAlgo_t): the algorithm that was timed is the
 * one that runs, in this process and in later ones. algorithm_cache.c stores the version with it. */
#include "nets/cuda/libraries/gemm.h"

#include <string.h>

enum { ALIGNMENT = 16, /* bytes, of all tensors; kernels profit from no more */ PROPOSED = 16 };

static const cudaDataType_t FLOAT = CUDA_R_32F, BF16 = CUDA_R_16BF;

/* ---------------------------------------------------------------- description */

static cublasComputeType_t compute_type(nets_precision precision) {
    switch (precision) {
    case NETS_FP32:
    case NETS_BF16:
        return CUBLAS_COMPUTE_32F;
    case NETS_TF32:
        return CUBLAS_COMPUTE_32F_FAST_TF32;
    }
    return CUBLAS_COMPUTE_32F;
}

static mm_status check_description(cublasStatus_t status) {
    return nets_cuda_blas_check(status, "describing a product");
}

/* size: rows, columns, and elements from one column to the next. */
static mm_status describe_matrix(cublasLtMatrixLayoutOpaque_t *matrix, bool bf16, const uint64_t size[3]) {
    return check_description(cublasLtMatrixLayoutInit(matrix, bf16 ? BF16 : FLOAT, size[0], size[1], (int64_t)size[2]));
}

/* By x, the first factor of cuBLAS's product by the weights, and by y, its second. */
static uint32_t epilogue_of(const nets_conv_shape *shape) {
    switch (shape->bf16) {
    case NETS_CONV_BF16_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case NETS_CONV_BF16_SUMS_X:
        return CUBLASLT_EPILOGUE_BGRADA;
    case NETS_CONV_BF16_SUMS_Y:
        return CUBLASLT_EPILOGUE_BGRADB;
    default:
        return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

int64_t nets_gemm_extra_bytes(const nets_conv_shape *s) {
    const int64_t in = s->x[3], out = s->y[3], f32 = sizeof(float), bf16 = sizeof(uint16_t);
    switch (epilogue_of(s)) {
    case CUBLASLT_EPILOGUE_BIAS:
        return (s->direction == NETS_CONV_FORWARD ? out : in) * bf16;
    case CUBLASLT_EPILOGUE_BGRADA:
        return in * f32;
    case CUBLASLT_EPILOGUE_BGRADB:
        return out * f32;
    default:
        return 0;
    }
}

/* Sets the address of `extra` also before calls that do not use it: cuBLASLt derives its alignment from the address.
 * Its type is that of the result, as is the default. */
static mm_status add_epilogue(cublasLtMatmulDescOpaque_t *operation, uint32_t epilogue, const void *extra) {
    MM_TRY(check_description(
        cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue)));
    return check_description(
        cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &extra, sizeof extra));
}

static bool has_epilogue(const nets_gemm *p) { return p->epilogue != CUBLASLT_EPILOGUE_DEFAULT; }

static mm_status transpose(nets_gemm *p, cublasLtMatmulDescAttributes_t which) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    return check_description(cublasLtMatmulDescSetAttribute(&p->operation, which, &transposed, sizeof transposed));
}

static mm_status describe(nets_gemm *p, uint64_t pixels, uint64_t in, uint64_t out, uint64_t pitch) {
    const uint64_t x[] = {in, pixels, in}, y[] = {out, pixels, pitch}, weights[] = {in, out, in};
    const uint64_t *a = p->direction == NETS_CONV_BY_WEIGHTS ? x : weights;
    const uint64_t *b = p->direction == NETS_CONV_FORWARD ? x : y;
    const uint64_t *c = p->direction == NETS_CONV_FORWARD ? y : p->direction == NETS_CONV_BY_INPUT ? x : weights;
    MM_TRY(check_description(cublasLtMatmulDescInit(&p->operation, p->compute, FLOAT)));
    MM_TRY(describe_matrix(&p->a, p->bf16, a));
    MM_TRY(describe_matrix(&p->b, p->bf16, b));
    MM_TRY(describe_matrix(&p->c, p->gives_bf16, c));
    if (has_epilogue(p)) MM_TRY(add_epilogue(&p->operation, p->epilogue, (const void *)(uintptr_t)ALIGNMENT));
    if (p->direction == NETS_CONV_FORWARD) return transpose(p, CUBLASLT_MATMUL_DESC_TRANSA);
    return p->direction == NETS_CONV_BY_WEIGHTS ? transpose(p, CUBLASLT_MATMUL_DESC_TRANSB) : MM_OK;
}

mm_status nets_gemm_init(nets_gemm *product, const nets_cuda_backend *cuda, const nets_conv_shape *shape) {
    const uint64_t pixels = (uint64_t)shape->x[0] * (uint64_t)shape->x[1] * (uint64_t)shape->x[2];
    const uint64_t in = (uint64_t)shape->x[3], out = (uint64_t)shape->y[3];
    const uint64_t pitch = shape->pitch > 0 ? (uint64_t)shape->pitch : out;
    *product = (nets_gemm){.direction = (nets_direction)shape->direction,
                           .beta = (float)shape->adds,
                           .compute = shape->bf16 ? CUBLAS_COMPUTE_32F : compute_type(cuda->config.precision),
                           .bf16 = shape->bf16 != 0,
                           .gives_bf16 = nets_conv_gives_bf16(shape),
                           .epilogue = epilogue_of(shape)};
    if (!cuda->lt || !nets_conv_is_product(shape)) return MM_OK;
    MM_TRY(describe(product, pixels, in, out, pitch));
    product->lt = cuda->lt;
    return MM_OK;
}

/* ---------------------------------------------------------------- an algorithm as numbers */

enum { WORDS = sizeof(((cublasLtMatmulAlgo_t *)0)->data) / sizeof(uint64_t) };
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == WORDS * sizeof(uint64_t) && WORDS <= (int)NETS_CONV_KNOBS, "its words");

static mm_status check_algorithm(cublasStatus_t status) {
    return nets_cuda_blas_check(status, "a product's algorithm");
}

static mm_status read_choice(const cublasLtMatmulAlgo_t *algorithm, nets_conv_choice *c) {
    int32_t number;
    size_t n;
    *c = (nets_conv_choice){.api = NETS_CONV_PRODUCT, .n_knobs = WORDS};
    MM_TRY(check_algorithm(
        cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_ID, &number, sizeof number, &n)));
    c->algorithm = number;
    for (int i = 0; i < WORDS; i++) {
        c->knobs[i].type = i;
        memcpy(&c->knobs[i].value, &algorithm->data[i], sizeof algorithm->data[i]);
    }
    return MM_OK;
}

static mm_status write_choice(cublasLtMatmulAlgo_t *algorithm, const nets_conv_choice *c) {
    if (c->n_knobs != WORDS)
        return mm_fail(MM_ERR_UNSUPPORTED, "a cached cuBLAS algorithm has %d words instead of %d", c->n_knobs,
                       (int)WORDS);
    for (int i = 0; i < WORDS; i++) memcpy(&algorithm->data[i], &c->knobs[i].value, sizeof algorithm->data[i]);
    return MM_OK;
}

static bool uses_tensor_cores(const cublasLtMatmulAlgo_t *algorithm) {
    uint64_t flags = 0;
    size_t n;
    cublasStatus_t status =
        cublasLtMatmulAlgoCapGetAttribute(algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags, &n);
    return status == CUBLAS_STATUS_SUCCESS && (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK) != 0;
}

mm_status nets_gemm_make(nets_gemm *p, const nets_conv_choice *choice, nets_gemm_algorithm *algorithm_out) {
    cublasLtMatmulHeuristicResult_t said;
    cublasLtMatmulAlgo_t made;
    MM_TRY(write_choice(&made, choice));
    MM_TRY(check_algorithm(cublasLtMatmulAlgoCheck(p->lt, &p->operation, &p->a, &p->b, &p->c, &p->c, &made, &said)));
    *algorithm_out = (nets_gemm_algorithm){made, (int64_t)said.workspaceSize, uses_tensor_cores(&made)};
    return MM_OK;
}

/* ---------------------------------------------------------------- proposals */

static mm_status prefer(cublasLtMatmulPreferenceOpaque_t *preference, cublasLtMatmulPreferenceAttributes_t name,
                        const void *value, size_t bytes) {
    return check_description(cublasLtMatmulPreferenceSetAttribute(preference, name, value, bytes));
}

/* The allowed ways to add up partial sums, if a sum is split among blocks. Partial sums that blocks add in place have
 * no fixed order. Partial sums stored in the result's type are rounded to it; a bf16 result is rounded once, so its
 * partial sums are f32. */
static uint32_t reduction_schemes(const nets_gemm *p, bool deterministic) {
    if (p->gives_bf16) return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (deterministic) return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    return CUBLASLT_REDUCTION_SCHEME_MASK;
}

/* In its caller's workspace, an algorithm gives the same bits each time (cuBLAS's guide: results reproducibility),
 * unless partial sums are added in place. */
static mm_status describe_preference(cublasLtMatmulPreferenceOpaque_t *preference, int64_t limit_bytes,
                                     uint32_t schemes) {
    static const cublasLtMatmulPreferenceAttributes_t ALIGNED[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t limit = (uint64_t)limit_bytes;
    const uint32_t alignment = ALIGNMENT;
    MM_TRY(check_description(cublasLtMatmulPreferenceInit(preference)));
    MM_TRY(prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit));
    for (int i = 0; i < 4; i++) MM_TRY(prefer(preference, ALIGNED[i], &alignment, sizeof alignment));
    return prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
}

mm_status nets_gemm_propose(nets_gemm *p, int64_t limit_bytes, bool deterministic, int capacity,
                            nets_conv_choice *choices, int *n_out) {
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t proposed[PROPOSED];
    int n;
    *n_out = 0;
    if (capacity > PROPOSED) capacity = PROPOSED;
    MM_TRY(describe_preference(&preference, limit_bytes, reduction_schemes(p, deterministic)));
    MM_TRY(nets_cuda_blas_check(cublasLtMatmulAlgoGetHeuristic(p->lt, &p->operation, &p->a, &p->b, &p->c, &p->c,
                                                               &preference, capacity, proposed, &n),
                                "asking for a product's algorithms"));
    for (int i = 0; i < n; i++) {
        const bool made = proposed[i].state == CUBLAS_STATUS_SUCCESS;
        if (made && read_choice(&proposed[i].algo, &choices[*n_out]) == MM_OK) ++*n_out;
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- running */

/* cuBLAS only reads the descriptors, but its parameters are not const. */
mm_status nets_gemm_enqueue(const nets_gemm *product, const nets_gemm_algorithm *algorithm, void *x, void *y,
                            void *weights, void *extra, void *workspace, cudaStream_t stream) {
    nets_gemm *p = (nets_gemm *)product;
    const float one = 1;
    const void *a = p->direction == NETS_CONV_BY_WEIGHTS ? x : weights, *b = p->direction == NETS_CONV_FORWARD ? x : y;
    void *c = p->direction == NETS_CONV_FORWARD ? y : p->direction == NETS_CONV_BY_INPUT ? x : weights;
    cublasLtMatmulDescOpaque_t operation = p->operation;
    if (has_epilogue(p)) MM_TRY(add_epilogue(&operation, p->epilogue, extra));
    return nets_cuda_blas_check(cublasLtMatmul(p->lt, &operation, &one, a, &p->a, b, &p->b, &p->beta, c, &p->c, c,
                                               &p->c, &algorithm->made, workspace, (size_t)algorithm->workspace_bytes,
                                               stream),
                                "a product");
}
