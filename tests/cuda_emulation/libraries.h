/* SPDX-License-Identifier: MIT */
/* Tests inspect and control the emulated cuDNN and cuBLAS by these functions; some are shared by the two. */
#ifndef TESTS_CUDA_EMULATION_LIBRARIES_H
#define TESTS_CUDA_EMULATION_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of convolutions, since the process began, whose algorithms were timed, and listed without timing. */
long cuda_emulation_dnn_timed(void);
long cuda_emulation_dnn_listed(void);

/* Factors that begin with this number belong to a trial (the first of nets/cuda/libraries/timing.c's). They are not
 * multiplied; instead event times grow by a pretended time, far longer than the real one, which is always the same for
 * an algorithm or engine. */
#define CUDA_EMULATION_TRIAL_VALUE ((float)(int32_t)723471715u * 0x1p-31f)

/* Makes the engines of the graph API (cudnn_backend.c) take `factor` times as long in trials. At first the factor is 1,
 * with which they take longer than the legacy algorithms, except for gradients with respect to weights. */
void cuda_emulation_dnn_slow_engines(double factor);
/* Sets what cudnnGetVersion returns; at first CUDNN_VERSION, which is 9.0. */
void cuda_emulation_dnn_version(size_t version);
/* What graphs of several operations give: the right outputs (at first); every output a tenth too large; outputs with
 * other bits at each run. For each sample, the engines of these graphs take as much workspace as for a convolution.
 * These graphs are computed in trials, too. */
typedef enum cuda_emulation_outputs { OUTPUTS_RIGHT, OUTPUTS_WRONG, OUTPUTS_UNSTEADY } cuda_emulation_outputs;
void cuda_emulation_dnn_outputs(cuda_emulation_outputs how);
/* Which of attention's two backwards takes far longer in trials: at first the one that adds to sums in memory. */
void cuda_emulation_dnn_unordered(bool faster);
/* Sets the workspace of ENGINE_TENSOR_CORE, at first ENGINE_TENSOR_CORE_BYTES. */
void cuda_emulation_dnn_tensor_core_bytes(int64_t bytes);
/* Number of convolutions enqueued by the graph API since the process began; number of its descriptors that exist. */
long cuda_emulation_dnn_executed(void);
long cuda_emulation_dnn_descriptors(void);

/* The engines by index, and the workspaces of those that need one. */
typedef enum cuda_emulation_engine {
    ENGINE_PLAIN,
    ENGINE_TENSOR_CORE,
    ENGINE_NONDETERMINISTIC,
    ENGINE_CONVERTS, /* this and the next are the fastest, and must not be chosen */
    ENGINE_COARSE,
    ENGINE_UNPLANNED, /* no plan of it can be made */
    ENGINE_FAILS,     /* fails when it runs */
    ENGINE_COMPILED,  /* cannot add to the output's content */
    ENGINE_HUNGRY,    /* needs more workspace than there is */
    ENGINE_FALLBACK,  /* proposed only in the fallback mode; fast, so that a test sees whether that mode was used */
    ENGINES
} cuda_emulation_engine;
enum { ENGINE_PLAIN_BYTES = 500, ENGINE_TENSOR_CORE_BYTES = 700, ENGINE_NONDETERMINISTIC_BYTES = 900 };

/* Workspace of the fastest algorithm in plain f32 beyond the listed size. */
enum { CUDA_EMULATION_FMA_BYTES = 640 };

/* The algorithms of cuBLAS for a product by index (cublaslt.c), and the workspaces of those that need one. The
 * function makes them take `factor` times as long in trials. At first the factor is 1: less time than any other
 * allowed kernel. */
void cuda_emulation_blas_slow_products(double factor);
typedef enum cuda_emulation_product {
    PRODUCT_PLAIN,
    PRODUCT_SPLIT,       /* sums its parts in a separate step */
    PRODUCT_INPLACE,     /* sums in an undefined order */
    PRODUCT_TENSOR_CORE, /* only for TF32; the next ones are the fastest, and must not be chosen */
    PRODUCT_WIDE,        /* needs a larger alignment than matrices have */
    PRODUCT_GONE,        /* proposed, but cannot be created */
    PRODUCT_FAILS,       /* fails when it runs */
    PRODUCT_HUNGRY,      /* needs more workspace than there is */
    PRODUCT_ROUNDING, /* sums its parts in a separate step, rounded to the result's type; slower than PRODUCT_SPLIT */
    PRODUCTS
} cuda_emulation_product;
enum { PRODUCT_SPLIT_BYTES = 1100, PRODUCT_INPLACE_BYTES = 300, PRODUCT_TENSOR_CORE_BYTES = 1300 };
/* Makes the description of this algorithm unreadable; -1, as at first: of no algorithm. */
void cuda_emulation_blas_unreadable(int number);
/* Number of products enqueued since the process began. */
long cuda_emulation_blas_executed(void);
/* Bytes of matrices, biases and sums that products outside of trials have read and written, each once a product. */
long cuda_emulation_blas_bytes(void);
/* What products do that also give sums over a factor (CUBLASLT_EPILOGUE_BGRADA, _BGRADB): give the right sums (at
 * first); sums a tenth too large; sums with other bits at each run; the right sums, ten times as slowly; nothing, since
 * none is proposed. They are summed in trials, too. Unless slow, they take a tenth less pretended time than products
 * without sums: were both equal, a busy machine's delays would choose. */
typedef enum cuda_emulation_factor_sums {
    SUMS_RIGHT,
    SUMS_WRONG,
    SUMS_UNSTEADY,
    SUMS_SLOW,
    SUMS_MISSING
} cuda_emulation_factor_sums;
void cuda_emulation_blas_factor_sums(cuda_emulation_factor_sums how);

/* A factor rounded to TF32, which has ten bits of mantissa. */
float cuda_emulation_tf32(float x);
/* Whether these factors belong to a trial. cuda_emulation_pass_trial lets the trial's pretended time pass. */
bool cuda_emulation_is_trial(const void *data, bool bf16);
/* bf16 to float, and float rounded to bf16: to nearest, ties to even. */
float cuda_emulation_bf16_value(uint16_t half);
uint16_t cuda_emulation_bf16(float value);
void cuda_emulation_pass_trial(double time);

#endif
