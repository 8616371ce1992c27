/* SPDX-License-Identifier: MIT */
/* The weights' gradient of a convolution of each channel by itself (depthwise), of f32 or bf16 maps. oneDNN 2.6.3's
 * kernel for maps [pixels, channels] pads each channel's weights to 16x16 of them: at batch 16 EfficientNet-B0 took
 * 225 MiB for that. Trainings of it and of MobileNetV2 on one thread of an EPYC take 5 to 15 % less time with these
 * loops. Internal. */
#ifndef NETS_HOST_DEPTHWISE_H
#define NETS_HOST_DEPTHWISE_H

#include "nets/host/onednn.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"

typedef struct nets_depthwise {
    mm_host_pool *pool;
    const nets_simd_map *lines;
    int64_t elem_bytes;
    nets_cut images;
    nets_dnn_windows w;
} nets_depthwise;

static inline bool nets_is_depthwise(const nets_dnn_windows *w) {
    return w->groups > 1 && w->groups == w->x[3] && w->groups == w->y[3];
}

/* `w`: depthwise; `half`: of bf16 maps. */
nets_depthwise nets_depthwise_of(const nets_dnn_windows *w, mm_host_pool *pool);
/* Bytes of scratch. */
int64_t nets_depthwise_bytes(const nets_depthwise *d);
/* dw = the gradient by the weights, [channels][kernel height][kernel width]; adds: it is added. x has the windows,
 * dy a number for each. The order of sums depends on the shape and the number of threads. */
void nets_depthwise_give_weights(const nets_depthwise *d, const void *x, const void *dy, bool adds, float *dw,
                                 void *scratch);

#endif
