/* Inside the emulated cuDNN: a convolution as work for a stream, whichever API it came from. */
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
    bool tf32;   /* rounds its factors to it */
    float beta;  /* times what the output held is added */
    double time; /* in a trial; see libraries.h */
    float *x_data, *y_data, *w_data;
    unsigned char *workspace;
    size_t memory; /* of the workspace */
} conv_job;

int64_t conv_x_elems(const conv_job *job);
int64_t conv_y_elems(const conv_job *job);
int64_t conv_w_elems(const conv_job *job);

/* Whether the sizes are those of one convolution. */
bool conv_fits(const conv_job *job);

/* Of a copy; it overwrites all of its workspace. */
cudnnStatus_t conv_enqueue(cudaStream_t stream, const conv_job *job);

cudnnStatus_t dnn_status(cudaError_t error);

#endif
