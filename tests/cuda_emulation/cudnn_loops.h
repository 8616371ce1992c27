/* SPDX-License-Identifier: MIT */
/* Private to the emulated cuDNN: a convolution as a task for a stream, for both of its APIs. */
#ifndef TESTS_CUDA_EMULATION_CUDNN_LOOPS_H
#define TESTS_CUDA_EMULATION_CUDNN_LOOPS_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>

struct cudnnContext {
    int device;
    cudaStream_t stream;
};

typedef enum conv_direction { FORWARD, BY_INPUT, BY_WEIGHTS } conv_direction;

typedef struct conv_image {
    int64_t n, c, h, w;
} conv_image;

typedef struct conv_job {
    conv_direction of;
    conv_image x, y;
    struct {
        int64_t k, c, h, w;
    } w;
    int64_t pad[2], stride[2], dilation[2], groups;
    bool x_bf16, y_bf16, w_bf16; /* else float */
    bool tf32;                   /* rounds its factors to TF32 */
    float beta;                  /* the output's earlier content, times beta, is added */
    double time;                 /* pretended time of a trial; see libraries.h */
    void *x_data, *y_data, *w_data;
    unsigned char *workspace;
    size_t memory; /* bytes of the workspace */
} conv_job;

int64_t conv_x_elems(const conv_job *job);
int64_t conv_y_elems(const conv_job *job);
int64_t conv_w_elems(const conv_job *job);

/* Whether the sizes and types fit together. With bf16 images, gradients by the weights may be float. */
bool conv_fits(const conv_job *job);

/* Enqueues a copy of the job. When it runs, it overwrites all of its workspace. */
cudnnStatus_t conv_enqueue(cudaStream_t stream, const conv_job *job);

cudnnStatus_t dnn_status(cudaError_t error);

#endif
