/* SPDX-License-Identifier: MIT */
/* See include/cublasLt.h. Products of column-major matrices, summed in double; libraries.h names the algorithms. An
 * algorithm that runs overwrites all the workspace that it asked for. */
#include <cublasLt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_emulation/enqueue.h"
#include "tests/cuda_emulation/libraries.h"

struct cublasLtContext {
    int device;
    int unused;
};

/* Global, because the real library has one state for the whole process. */
static atomic_long executed;
static _Atomic double slowness = 1;
static atomic_int unreadable = -1, factor_sums = SUMS_RIGHT;
static atomic_long moved, summed;

long cuda_emulation_blas_executed(void) { return atomic_load(&executed); }
long cuda_emulation_blas_bytes(void) { return atomic_load(&moved); }
void cuda_emulation_blas_factor_sums(cuda_emulation_factor_sums how) { atomic_store(&factor_sums, (int)how); }
void cuda_emulation_blas_slow_products(double factor) { atomic_store(&slowness, factor); }
void cuda_emulation_blas_unreadable(int number) { atomic_store(&unreadable, number); }

const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "the emulation succeeds";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the emulation has no memory";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "the emulation refuses a value";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the emulation cannot do that";
    default:
        return "the emulation fails";
    }
}

static cublasStatus_t status_of(cudaError_t error) {
    return error == cudaSuccess                 ? CUBLAS_STATUS_SUCCESS
           : error == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED
                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}

#define ENTER(name)                                                                                                    \
    do {                                                                                                               \
        cublasStatus_t enter_ = status_of(cuda_emulation_enter(name));                                                 \
        if (enter_ != CUBLAS_STATUS_SUCCESS) return enter_;                                                            \
    } while (0)

size_t cublasLtGetVersion(void) { return 130100; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    if (*handle) (*handle)->device = cuda_emulation_device();
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    cublasStatus_t status = status_of(cuda_emulation_on(handle->device));
    free(handle);
    return status;
}

/* ---------------------------------------------------------------- the opaque structs */

typedef struct matrix {
    uint64_t rows, columns;
    int64_t leading, type;
} matrix;

typedef struct operation {
    cublasComputeType_t compute;
    cublasOperation_t a, b;
    uint32_t epilogue;
    void *bias; /* of the result's type: one for each of its rows; of BGRADB, one for each of its columns */
} operation;

typedef struct preference {
    uint64_t workspace;
    uint32_t schemes, alignment[4];
} preference;

enum { ATTRIBUTES = 9 }; /* as many as the real library has: CUBLASLT_ALGO_CONFIG_* */

typedef struct algorithm {
    uint32_t config[ATTRIBUTES]; /* by attribute; the first is the algorithm's number */
} algorithm;

/* Copy to and from an opaque struct, which must be large enough. */
#define PUT(opaque, of)                                                                                                \
    do {                                                                                                               \
        _Static_assert(sizeof(of) <= sizeof *(opaque), "it fits");                                                     \
        memcpy((opaque), &(of), sizeof(of));                                                                           \
    } while (0)
#define TAKE(opaque, of) memcpy(&(of), (opaque), sizeof(of))

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type, uint64_t rows, uint64_t cols,
                                        int64_t leading) {
    const matrix m = {rows, cols, leading, type};
    ENTER("cublasLtMatrixLayoutInit");
    if (type != CUDA_R_32F && type != CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!rows || !cols || leading < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    PUT(layout, m);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t compute, cudaDataType_t scale) {
    const operation o = {compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL};
    ENTER("cublasLtMatmulDescInit");
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    PUT(desc, o);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
    operation o;
    TAKE(desc, o);
    ENTER("cublasLtMatmulDescSetAttribute");
    void *to = name == CUBLASLT_MATMUL_DESC_TRANSA     ? (void *)&o.a
               : name == CUBLASLT_MATMUL_DESC_TRANSB   ? (void *)&o.b
               : name == CUBLASLT_MATMUL_DESC_EPILOGUE ? (void *)&o.epilogue
                                                       : (void *)&o.bias;
    if (bytes != (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof o.bias : sizeof o.a))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    PUT(desc, o);
    switch (o.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return CUBLAS_STATUS_SUCCESS;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* As the real one, it assumes that tensors are aligned like new allocations. */
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t of) {
    const preference p = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    PUT(of, p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                    size_t bytes) {
    preference p;
    TAKE(of, p);
    bool large = name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    void *to = large ? (void *)&p.workspace
               : name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
                   ? &p.schemes
                   : &p.alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    if (bytes != (large ? sizeof p.workspace : sizeof p.schemes)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    PUT(of, p);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---------------------------------------------------------------- algorithms */

typedef struct kind {
    double time;
    uint64_t bytes;
    uint32_t tile, splits, scheme, stages, cluster; /* as proposed; other values are refused */
    uint32_t alignment;
} kind;

static const kind TABLE[PRODUCTS] = {
    [PRODUCT_PLAIN] = {0.3, 0, 20, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 16},
    [PRODUCT_SPLIT] = {0.25, PRODUCT_SPLIT_BYTES, 20, 4, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 12, 0, 16},
    [PRODUCT_INPLACE] = {0.2, PRODUCT_INPLACE_BYTES, 15, 3, CUBLASLT_REDUCTION_SCHEME_INPLACE, 12, 0, 16},
    [PRODUCT_TENSOR_CORE] = {0.15, PRODUCT_TENSOR_CORE_BYTES, 18, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 8, 3, 16},
    [PRODUCT_WIDE] = {0.01, 0, 24, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 256},
    [PRODUCT_GONE] = {0.01, 0, 23, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 16},
    [PRODUCT_FAILS] = {0.01, 0, 22, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 16},
    [PRODUCT_HUNGRY] = {0.01, UINT64_C(1) << 40, 21, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 16},
    [PRODUCT_ROUNDING] = {0.28, PRODUCT_SPLIT_BYTES, 20, 2, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 0, 0, 16},
};

static algorithm configured(int number) {
    const kind *k = &TABLE[number];
    return (algorithm){{(uint32_t)number, k->tile, k->splits, k->scheme, 0, 0, k->stages, 0, k->cluster}};
}

static const kind *kind_of(const algorithm *a) {
    return a->config[0] < PRODUCTS && a->config[0] != PRODUCT_GONE ? &TABLE[a->config[0]] : NULL;
}

static bool is_as_proposed(const algorithm *a) {
    const algorithm proposed = configured((int)a->config[0]);
    return memcmp(a, &proposed, sizeof proposed) == 0;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *of,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, void *value,
                                                    size_t bytes, size_t *written) {
    algorithm a;
    TAKE(of, a);
    ENTER("cublasLtMatmulAlgoConfigGetAttribute");
    if (name != CUBLASLT_ALGO_CONFIG_ID || bytes != sizeof a.config[name]) return CUBLAS_STATUS_INVALID_VALUE;
    if (atomic_load(&unreadable) == (int)a.config[name]) return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(value, &a.config[name], bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *of, cublasLtMatmulAlgoCapAttributes_t name,
                                                 void *value, size_t bytes, size_t *written) {
    algorithm a;
    TAKE(of, a);
    const uint64_t flags =
        a.config[0] == PRODUCT_TENSOR_CORE ? CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA : CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA;
    if (name != CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS || bytes != sizeof flags) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &flags, sizeof flags);
    *written = sizeof flags;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---------------------------------------------------------------- a product */

typedef struct product {
    operation of;
    matrix a, b, c;
    const void *a_data, *b_data;
    void *c_data;
    float beta;
    bool tf32;
    double time;
    void *workspace;
    size_t bytes; /* of the workspace */
} product;

static uint64_t rows_of(const matrix *m, cublasOperation_t op) { return op == CUBLAS_OP_N ? m->rows : m->columns; }
static uint64_t columns_of(const matrix *m, cublasOperation_t op) { return op == CUBLAS_OP_N ? m->columns : m->rows; }

/* Fills the product. False: the matrices do not fit together. */
static bool take_product(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, product *p) {
    *p = (product){.beta = 0};
    TAKE(desc, p->of);
    TAKE(a, p->a);
    TAKE(b, p->b);
    TAKE(c, p->c);
    if (p->a.type != p->b.type || (p->c.type != p->a.type && p->c.type != CUDA_R_32F)) return false;
    return memcmp(c, d, sizeof p->c) == 0 && rows_of(&p->a, p->of.a) == p->c.rows &&
           columns_of(&p->b, p->of.b) == p->c.columns && columns_of(&p->a, p->of.a) == rows_of(&p->b, p->of.b);
}

static bool aligned(const void *pointer, uint32_t alignment) { return pointer && (uintptr_t)pointer % alignment == 0; }

static bool has_bias(const product *p) { return p->of.epilogue == CUBLASLT_EPILOGUE_BIAS; }

static bool sums_factor(const product *p) {
    return p->of.epilogue == CUBLASLT_EPILOGUE_BGRADA || p->of.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

/* Whether an algorithm has the product's epilogue (the real ones: CUBLASLT_ALGO_CAP_EPILOGUE_MASK), and its vector is
 * aligned as the algorithm wants it. Those that split sums have no sums over factors; of f32 factors none has. */
static bool has_epilogue(const product *p, const kind *k) {
    if (p->of.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
    if (sums_factor(p) && (p->a.type != CUDA_R_16BF || k->splits > 1 || atomic_load(&factor_sums) == SUMS_MISSING))
        return false;
    return aligned(p->of.bias, k->alignment);
}

static bool has_tensor_cores(const product *p) {
    return p->of.compute == CUBLAS_COMPUTE_32F_FAST_TF32 || p->a.type == CUDA_R_16BF;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *of, cublasLtMatmulHeuristicResult_t *result) {
    (void)handle;
    algorithm made;
    product p;
    ENTER("cublasLtMatmulAlgoCheck");
    TAKE(of, made);
    if (!take_product(desc, a, b, c, d, &p)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!kind_of(&made) || !is_as_proposed(&made)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (made.config[0] == PRODUCT_TENSOR_CORE && !has_tensor_cores(&p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!has_epilogue(&p, kind_of(&made))) return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = kind_of(&made)->bytes;
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

static bool proposes(const product *p, const preference *wanted, int number) {
    const kind *k = &TABLE[number];
    for (int i = 0; i < 4; i++)
        if (wanted->alignment[i] < k->alignment) return false;
    return has_epilogue(p, k) && k->bytes <= wanted->workspace && (k->scheme & ~wanted->schemes) == 0 &&
           (number != PRODUCT_TENSOR_CORE || has_tensor_cores(p));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t of, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *returned) {
    static const int ORDER[PRODUCTS] = {PRODUCT_WIDE,  PRODUCT_GONE,    PRODUCT_HUNGRY,
                                        PRODUCT_PLAIN, PRODUCT_SPLIT,   PRODUCT_TENSOR_CORE,
                                        PRODUCT_FAILS, PRODUCT_INPLACE, PRODUCT_ROUNDING};
    (void)handle;
    preference wanted;
    product p;
    ENTER("cublasLtMatmulAlgoGetHeuristic");
    TAKE(of, wanted);
    if (!take_product(desc, a, b, c, d, &p) || requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    for (int i = 0; i < PRODUCTS && *returned < requested; i++) {
        const algorithm made = configured(ORDER[i]);
        if (!proposes(&p, &wanted, ORDER[i])) continue;
        cublasLtMatmulHeuristicResult_t *result = &results[(*returned)++];
        *result = (cublasLtMatmulHeuristicResult_t){.workspaceSize = TABLE[ORDER[i]].bytes};
        PUT(&result->algo, made);
    }
    return *returned ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---------------------------------------------------------------- running */

static float element(const matrix *m, const void *data, uint64_t at) {
    return m->type == CUDA_R_16BF ? cuda_emulation_bf16_value(((const uint16_t *)data)[at]) : ((const float *)data)[at];
}

static double factor(const product *p, float value) { return p->tf32 ? cuda_emulation_tf32(value) : value; }

static double a_at(const product *p, uint64_t row, uint64_t column) {
    uint64_t leading = (uint64_t)p->a.leading;
    return factor(p,
                  element(&p->a, p->a_data, p->of.a == CUBLAS_OP_N ? column * leading + row : row * leading + column));
}

static double b_at(const product *p, uint64_t row, uint64_t column) {
    uint64_t leading = (uint64_t)p->b.leading;
    return factor(p,
                  element(&p->b, p->b_data, p->of.b == CUBLAS_OP_N ? column * leading + row : row * leading + column));
}

static void multiply(const product *p) {
    const uint64_t inner = columns_of(&p->a, p->of.a);
    for (uint64_t j = 0; j < p->c.columns; j++)
        for (uint64_t i = 0; i < p->c.rows; i++) {
            const uint64_t at = j * (uint64_t)p->c.leading + i;
            double sum = 0;
            for (uint64_t l = 0; l < inner; l++) sum += a_at(p, i, l) * b_at(p, l, j);
            float value = (float)sum + (p->beta != 0 ? p->beta * element(&p->c, p->c_data, at) : 0);
            if (has_bias(p)) value += element(&p->c, p->of.bias, i);
            if (p->c.type == CUDA_R_16BF)
                ((uint16_t *)p->c_data)[at] = cuda_emulation_bf16(value);
            else
                ((float *)p->c_data)[at] = value;
        }
}

/* The sums of a factor over the inner dimension, in double, rounded once to the result's type. */
static void sum_factor(const product *p) {
    const bool of_a = p->of.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    const uint64_t n = of_a ? p->c.rows : p->c.columns, inner = columns_of(&p->a, p->of.a);
    const int how = atomic_load(&factor_sums);
    const double wrong = how == SUMS_WRONG      ? 1.1
                         : how == SUMS_UNSTEADY ? 1 + 1e-6 * (double)(atomic_fetch_add(&summed, 1) % 2)
                                                : 1;
    for (uint64_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint64_t l = 0; l < inner; l++) sum += of_a ? a_at(p, i, l) : b_at(p, l, i);
        sum *= wrong;
        if (p->c.type == CUDA_R_16BF)
            ((uint16_t *)p->of.bias)[i] = cuda_emulation_bf16((float)sum);
        else
            ((float *)p->of.bias)[i] = (float)sum;
    }
}

static long bytes_of(const matrix *m) {
    return (long)(m->rows * m->columns * (m->type == CUDA_R_16BF ? sizeof(uint16_t) : sizeof(float)));
}

static void count_bytes(const product *p) {
    const long c = bytes_of(&p->c), each = p->c.type == CUDA_R_16BF ? sizeof(uint16_t) : sizeof(float);
    const bool by_column = p->of.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    const long vector =
        p->of.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 0 : (long)(by_column ? p->c.columns : p->c.rows) * each;
    atomic_fetch_add(&moved, bytes_of(&p->a) + bytes_of(&p->b) + (p->beta != 0 ? 2 * c : c) + vector);
}

static void run(void *arg) {
    const product *p = arg;
    if (p->bytes) memset(p->workspace, 0xa5, p->bytes);
    const bool bf16 = p->a.type == CUDA_R_16BF;
    if (sums_factor(p)) sum_factor(p);
    if (cuda_emulation_is_trial(p->a_data, bf16) && cuda_emulation_is_trial(p->b_data, bf16)) {
        cuda_emulation_pass_trial(p->time);
        return;
    }
    count_bytes(p);
    multiply(p);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *of, void *workspace,
                              size_t bytes, cudaStream_t stream) {
    algorithm made;
    product p;
    ENTER("cublasLtMatmul");
    cublasStatus_t on = status_of(cuda_emulation_on(handle->device));
    if (on != CUBLAS_STATUS_SUCCESS) return on;
    TAKE(of, made);
    const kind *k = kind_of(&made);
    if (!take_product(desc, a_layout, b_layout, c_layout, d_layout, &p) || !k || bytes < k->bytes ||
        (k->bytes && !aligned(workspace, 256)))
        return CUBLAS_STATUS_INVALID_VALUE;
    p.beta = *(const float *)beta;
    if (*(const float *)alpha != 1 || (p.beta != 0 && p.beta != 1) || c != d || !aligned(a, k->alignment) ||
        !aligned(b, k->alignment) || !aligned(d, k->alignment) || !has_epilogue(&p, k))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (made.config[0] == PRODUCT_FAILS) return CUBLAS_STATUS_EXECUTION_FAILED;
    product *copy = malloc(sizeof *copy);
    if (!copy) return CUBLAS_STATUS_ALLOC_FAILED;
    p.a_data = a;
    p.b_data = b;
    p.c_data = d;
    p.tf32 = made.config[0] == PRODUCT_TENSOR_CORE;
    p.time = k->time * atomic_load(&slowness);
    if (sums_factor(&p)) p.time *= atomic_load(&factor_sums) == SUMS_SLOW ? 10 : 0.9;
    p.workspace = workspace;
    p.bytes = k->bytes;
    *copy = p;
    atomic_fetch_add(&executed, 1);
    return status_of(cuda_emulation_enqueue(stream, run, copy));
}
