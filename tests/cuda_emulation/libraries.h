/* What tests can see of the emulated cuDNN and cuBLAS, and what the two have in common. */
#ifndef TESTS_CUDA_EMULATION_LIBRARIES_H
#define TESTS_CUDA_EMULATION_LIBRARIES_H

#include <stdint.h>

/* Convolutions whose algorithms were timed, and listed without, since the process began. */
long cuda_emulation_dnn_timed(void);
long cuda_emulation_dnn_listed(void);

/* What the fastest algorithm takes in plain float32 beyond what is listed. */
enum { CUDA_EMULATION_FMA_BYTES = 640 };

/* A factor as tensor cores take it: TF32 has ten bits of mantissa. */
float cuda_emulation_tf32(float x);

#endif
