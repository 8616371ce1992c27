/* SPDX-License-Identifier: MIT */
#include "tests/nets_io/onnx_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/nets/ref_exec.h"

/* Images as the data has them: NHWC. */
static float *to_nhwc(const nets_shape *shape, int64_t batch, const float *inputs) {
    const int64_t channels = nets_shape_channels(shape), pixels = nets_shape_rows(shape);
    float *images = malloc((size_t)(batch * channels * pixels) * sizeof *images);
    assert_non_null(images);
    for (int64_t n = 0; n < batch; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t p = 0; p < pixels; p++)
                images[(n * pixels + p) * channels + c] = inputs[(n * channels + c) * pixels + p];
    return images;
}

/* Scores of tokens: the loss computes them only in parts, so they are computed here of its input and weight. */
static float *token_scores(const ref_exec *ref, const nets_layer *loss, const float *x, int64_t rows, int64_t classes) {
    const int64_t width = nets_shape_channels(&loss->shape);
    const int param = loss->tied_param >= 0 ? loss->tied_param : loss->first_param;
    const float *weight = ref_tensor(ref, nets_net_param(ref->net, param)->name);
    float *scores = calloc((size_t)(rows * classes), sizeof *scores);
    assert_non_null(scores);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < classes; k++) {
            double sum = 0;
            for (int64_t c = 0; c < width; c++) sum += (double)x[r * width + c] * (double)weight[k * width + c];
            scores[r * classes + k] = (float)sum;
        }
    return scores;
}

float *onnx_run(const nets_net *net, int64_t batch, const float *inputs, bool channels_last, int64_t *elems_out) {
    ref_exec ref;
    const nets_layer *loss = nets_net_layer(net, nets_net_layers(net) - 1);
    const nets_layer *last = nets_net_layer(net, loss->inputs[0]);
    const int64_t rows = batch * nets_shape_rows(&last->shape), classes = nets_net_classes(net);
    ref_init(&ref, net, batch, NETS_EVAL, (ref_options){.no_fuse = true}, 1, NULL);
    int32_t *labels = calloc((size_t)(batch * nets_net_labels(net)), sizeof *labels);
    const nets_shape *shape = &nets_net_layer(net, 0)->shape;
    const nets_shape row = {3, {1, 1, nets_shape_elems(shape)}};
    float *images = to_nhwc(channels_last ? &row : shape, batch, inputs), *scores;
    assert_non_null(labels);
    ref_iteration(&ref, images, labels, 0);
    char name[NETS_NAME_CAPACITY + 8];
    snprintf(name, sizeof name, "%s.out", last->name);
    const float *map = ref_tensor(&ref, name);
    *elems_out = rows * classes;
    if (loss->op == NETS_TOKEN_LOSS) {
        scores = token_scores(&ref, loss, map, rows, classes);
    } else {
        scores = malloc((size_t)*elems_out * sizeof *scores);
        assert_non_null(scores);
        for (int64_t i = 0; i < *elems_out; i++) scores[i] = map[i];
    }
    free(labels);
    free(images);
    ref_fini(&ref);
    return scores;
}
