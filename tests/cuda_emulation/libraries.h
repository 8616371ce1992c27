/* What tests can see of the emulated cuDNN and cuBLAS, and what the two have in common. */
#ifndef TESTS_CUDA_EMULATION_LIBRARIES_H
#define TESTS_CUDA_EMULATION_LIBRARIES_H

#include <stdbool.h>
#include <stdint.h>

/* Convolutions whose algorithms were timed, and listed without, since the process began. */
long cuda_emulation_dnn_timed(void);
long cuda_emulation_dnn_listed(void);

/* Factors that are nothing but this byte are a trial's: they are not multiplied, but time passes for events, so much
 * that what really passes does not count. An algorithm's or engine's is always the same. */
enum { CUDA_EMULATION_TRIAL_BYTE = 0x3c };

/* The graph API's engines (cudnn_backend.c) take `factor` times as long as they do at first, which is 1: longer than
 * the legacy algorithms, but for gradients by weights. */
void cuda_emulation_dnn_slow_engines(double factor);
/* ENGINE_TENSOR_CORE takes so much workspace from now on, ENGINE_TENSOR_CORE_BYTES at first. */
void cuda_emulation_dnn_tensor_core_bytes(int64_t bytes);
/* Convolutions enqueued by that API since the process began; its descriptors that were not destroyed. */
long cuda_emulation_dnn_executed(void);
long cuda_emulation_dnn_descriptors(void);

/* Its engines by their index, and what those ask for as workspace that have one. */
typedef enum cuda_emulation_engine {
    ENGINE_PLAIN,
    ENGINE_TENSOR_CORE,
    ENGINE_NONDETERMINISTIC,
    ENGINE_CONVERTS, /* this and the next are the fastest, and must not be taken */
    ENGINE_COARSE,
    ENGINE_UNPLANNED, /* no plan of it can be made */
    ENGINE_FAILS,     /* when it runs */
    ENGINE_COMPILED,  /* cannot add to what is there */
    ENGINE_HUNGRY,    /* takes more workspace than there is */
    ENGINE_FALLBACK,  /* proposed by that mode only: fast, so that it is seen where it was asked for */
    ENGINES
} cuda_emulation_engine;
enum { ENGINE_PLAIN_BYTES = 500, ENGINE_TENSOR_CORE_BYTES = 700, ENGINE_NONDETERMINISTIC_BYTES = 900 };

/* What the fastest algorithm takes in plain float32 beyond what is listed. */
enum { CUDA_EMULATION_FMA_BYTES = 640 };

/* cuBLAS's algorithms for a product by their number (cublaslt.c), and what those ask for as workspace that have one.
 * They take `factor` times as long as they do at first, which is 1: less than any other that is allowed. */
void cuda_emulation_blas_slow_products(double factor);
typedef enum cuda_emulation_product {
    PRODUCT_PLAIN,
    PRODUCT_SPLIT,       /* adds its parts in a step of its own */
    PRODUCT_INPLACE,     /* in an order that is not said */
    PRODUCT_TENSOR_CORE, /* in TF32 only; the next are the fastest, and must not be taken */
    PRODUCT_WIDE,        /* where matrices are aligned more than they need be */
    PRODUCT_GONE,        /* proposed, but cannot be made */
    PRODUCT_FAILS,       /* when it runs */
    PRODUCT_HUNGRY,      /* takes more workspace than there is */
    PRODUCTS
} cuda_emulation_product;
enum { PRODUCT_SPLIT_BYTES = 1100, PRODUCT_INPLACE_BYTES = 300, PRODUCT_TENSOR_CORE_BYTES = 1300 };
/* Products enqueued since the process began. */
long cuda_emulation_blas_executed(void);

/* A factor as tensor cores take it: TF32 has ten bits of mantissa. */
float cuda_emulation_tf32(float x);
/* Whether these factors are a trial's; what passes time in it. */
bool cuda_emulation_is_trial(const float *data, int64_t n);
void cuda_emulation_pass_trial(double time);

#endif
