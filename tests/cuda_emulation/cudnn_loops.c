/* SPDX-License-Identifier: MIT */
#include "tests/cuda_emulation/cudnn_loops.h"

#include <stdlib.h>
#include <string.h>

#include "tests/cuda_emulation/enqueue.h"
#include "tests/cuda_emulation/libraries.h"

cudnnStatus_t dnn_status(cudaError_t error) {
    return error == cudaSuccess                 ? CUDNN_STATUS_SUCCESS
           : error == cudaErrorMemoryAllocation ? CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
                                                : CUDNN_STATUS_EXECUTION_FAILED;
}

float cuda_emulation_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + 0x1000) & ~UINT32_C(0x1fff);
    memcpy(&x, &bits, sizeof bits);
    return x;
}

float cuda_emulation_bf16_value(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t cuda_emulation_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---------------------------------------------------------------- sizes */

int64_t conv_x_elems(const conv_job *j) { return j->x.n * j->x.c * j->x.h * j->x.w; }
int64_t conv_y_elems(const conv_job *j) { return j->y.n * j->y.c * j->y.h * j->y.w; }
int64_t conv_w_elems(const conv_job *j) { return j->w.k * j->w.c * j->w.h * j->w.w; }

static bool extent_fits(const conv_job *j, int d, int64_t x, int64_t y, int64_t kernel) {
    int64_t room = x + 2 * j->pad[d] - (j->dilation[d] * (kernel - 1) + 1);
    return room >= 0 && room / j->stride[d] + 1 == y;
}

bool conv_fits(const conv_job *j) {
    if (j->x_bf16 != j->y_bf16 || (j->w_bf16 != j->x_bf16 && (j->w_bf16 || j->of != BY_WEIGHTS))) return false;
    return j->x.n == j->y.n && j->y.c == j->w.k && j->x.c == j->w.c * j->groups && j->y.c % j->groups == 0 &&
           extent_fits(j, 0, j->x.h, j->y.h, j->w.h) && extent_fits(j, 1, j->x.w, j->y.w, j->w.w);
}

/* ---------------------------------------------------------------- sums */

static float *output(const conv_job *j) {
    return j->of == FORWARD ? j->y_data : j->of == BY_INPUT ? j->x_data : j->w_data;
}

static int64_t output_elems(const conv_job *j) {
    return j->of == FORWARD ? conv_y_elems(j) : j->of == BY_INPUT ? conv_x_elems(j) : conv_w_elems(j);
}

/* Adds the products of channel o of a pixel of y, element {ky, kx} of the window, and a pixel of x. */
static void multiply(const conv_job *j, double *sums, int64_t y_pixel, int64_t x_pixel, int o, int ky, int kx) {
    int per_group = j->y.c / j->groups, channels = j->w.c;
    int64_t y_at = y_pixel * j->y.c + o, x_at = x_pixel * j->x.c + (int64_t)(o / per_group) * channels;
    int64_t w_at = (((int64_t)o * j->w.h + ky) * j->w.w + kx) * channels;
    const float *x = j->x_data, *y = j->y_data, *w = j->w_data;
    switch (j->of) {
    case FORWARD:
        for (int c = 0; c < channels; c++) sums[y_at] += (double)x[x_at + c] * w[w_at + c];
        break;
    case BY_INPUT:
        for (int c = 0; c < channels; c++) sums[x_at + c] += (double)y[y_at] * w[w_at + c];
        break;
    case BY_WEIGHTS:
        for (int c = 0; c < channels; c++) sums[w_at + c] += (double)y[y_at] * x[x_at + c];
        break;
    }
}

static void convolve_pixel(const conv_job *j, double *sums, int n, int oy, int ox) {
    int64_t y_pixel = ((int64_t)n * j->y.h + oy) * j->y.w + ox;
    for (int ky = 0; ky < j->w.h; ky++)
        for (int kx = 0; kx < j->w.w; kx++) {
            int iy = oy * j->stride[0] + ky * j->dilation[0] - j->pad[0];
            int ix = ox * j->stride[1] + kx * j->dilation[1] - j->pad[1];
            if (iy < 0 || iy >= j->x.h || ix < 0 || ix >= j->x.w) continue;
            int64_t x_pixel = ((int64_t)n * j->x.h + iy) * j->x.w + ix;
            for (int o = 0; o < j->y.c; o++) multiply(j, sums, y_pixel, x_pixel, o, ky, kx);
        }
}

static void convolve(const conv_job *j) {
    int64_t n = output_elems(j);
    double *sums = calloc((size_t)n, sizeof *sums);
    if (!sums) abort();
    for (int image = 0; image < j->y.n; image++)
        for (int oy = 0; oy < j->y.h; oy++)
            for (int ox = 0; ox < j->y.w; ox++) convolve_pixel(j, sums, image, oy, ox);
    for (int64_t i = 0; i < n; i++) output(j)[i] = (float)sums[i] + (j->beta != 0 ? j->beta * output(j)[i] : 0);
    free(sums);
}

/* A copy of the elements as floats; with `tf32`, rounded as factors. */
static float *floats_of(const void *data, int64_t n, bool bf16, bool tf32) {
    float *copy = malloc((size_t)n * sizeof *copy);
    if (!copy) abort();
    for (int64_t i = 0; i < n; i++) {
        const float value = bf16 ? cuda_emulation_bf16_value(((const uint16_t *)data)[i]) : ((const float *)data)[i];
        copy[i] = tf32 ? cuda_emulation_tf32(value) : value;
    }
    return copy;
}

static void give_back(void *data, float *copy, int64_t n, bool bf16, bool is_output) {
    for (int64_t i = 0; is_output && i < n; i++) {
        if (bf16)
            ((uint16_t *)data)[i] = cuda_emulation_bf16(copy[i]);
        else
            ((float *)data)[i] = copy[i];
    }
    free(copy);
}

bool cuda_emulation_is_trial(const void *data, bool bf16) {
    if (bf16) return *(const uint16_t *)data == cuda_emulation_bf16(CUDA_EMULATION_TRIAL_VALUE);
    return *(const float *)data == CUDA_EMULATION_TRIAL_VALUE;
}

void cuda_emulation_pass_trial(double time) { cuda_emulation_pass((int64_t)(time * 1e12)); }

/* Trials are not summed: it would take long, and nobody reads the sums. */
static bool is_trial(const conv_job *j) {
    return (j->of == BY_INPUT || cuda_emulation_is_trial(j->x_data, j->x_bf16)) &&
           (j->of == FORWARD || cuda_emulation_is_trial(j->y_data, j->y_bf16)) &&
           (j->of == BY_WEIGHTS || cuda_emulation_is_trial(j->w_data, j->w_bf16));
}

static void run(void *arg) {
    const conv_job *j = arg;
    if (j->memory > 0) memset(j->workspace, 0xa5, j->memory);
    if (is_trial(j)) {
        cuda_emulation_pass_trial(j->time);
        return;
    }
    conv_job r = *j;
    const int64_t x = conv_x_elems(j), y = conv_y_elems(j), w = conv_w_elems(j);
    r.x_data = floats_of(j->x_data, x, j->x_bf16, j->tf32 && j->of != BY_INPUT);
    r.y_data = floats_of(j->y_data, y, j->y_bf16, j->tf32 && j->of != FORWARD);
    r.w_data = floats_of(j->w_data, w, j->w_bf16, j->tf32 && j->of != BY_WEIGHTS);
    convolve(&r);
    give_back(j->x_data, r.x_data, x, j->x_bf16, j->of == BY_INPUT);
    give_back(j->y_data, r.y_data, y, j->y_bf16, j->of == FORWARD);
    give_back(j->w_data, r.w_data, w, j->w_bf16, j->of == BY_WEIGHTS);
}

cudnnStatus_t conv_enqueue(cudaStream_t stream, const conv_job *job) {
    conv_job *copy = malloc(sizeof *copy);
    if (!copy) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    *copy = *job;
    return dnn_status(cuda_emulation_enqueue(stream, run, copy));
}
