/* SPDX-License-Identifier: MIT */
#include "nets/ops/describe.h"

mm_status nets_infer_same(nets_layer *layer, const nets_shape *in) {
    layer->shape = in[0];
    return MM_OK;
}

int nets_channels_in(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    (void)layer;
    dims_out[0] = nets_shape_channels(in);
    return 1;
}

int nets_channels_out(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]) {
    (void)in;
    dims_out[0] = nets_shape_channels(&layer->shape);
    return 1;
}

nets_shape nets_saved_channels(const nets_attrs *attrs, const nets_shape *x, const nets_shape *y) {
    (void)attrs, (void)x;
    return (nets_shape){1, {nets_shape_channels(y)}};
}
