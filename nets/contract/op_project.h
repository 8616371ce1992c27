/* SPDX-License-Identifier: MIT */
/* Shared by projections' implementations. */
#ifndef NETS_CONTRACT_OP_PROJECT_H
#define NETS_CONTRACT_OP_PROJECT_H

#include "nets/contract/op.h"

/* Creates a projection whose weight is [out][in] as the backend's linear layer, for which each token is an image of one
 * pixel. */
static inline mm_status nets_project_as_linear(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    nets_op_desc linear = *desc;
    linear.kind = NETS_LINEAR;
    linear.x[0] = (nets_shape){4, {nets_shape_rows(&desc->x[0]), 1, 1, nets_shape_channels(&desc->x[0])}};
    linear.y = (nets_shape){4, {nets_shape_rows(&desc->y), 1, 1, nets_shape_channels(&desc->y)}};
    return backend->ops->impls[NETS_LINEAR]->create(backend, &linear, op_out);
}

#endif
