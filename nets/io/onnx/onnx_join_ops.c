/* SPDX-License-Identifier: MIT */
/* Joining channels, and constants. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

/* The inputs' maps, joined in channels. */
static mm_status join_inputs(onnx_import *m, const onnx_node *node, int axis, int drafts[]) {
    onnx_value *in, *first = onnx_in(m, node, 0);
    int draft;
    for (int i = 0; i < node->n_inputs; i++) {
        MM_TRY(onnx_in_map(m, node, i, &in));
        MM_TRY(onnx_whole(m, node, in, &drafts[i]));
        const nets_shape *shape = onnx_shape(m, drafts[i]);
        const onnx_dim channels = onnx_dim_of(nets_shape_channels(shape), 1);
        if (axis >= in->view.rank || !onnx_dim_equal(&in->view.dims[axis], &channels))
            return onnx_refuse(m, node, "layers here join channels only");
        onnx_view own = in->view, wanted = first->view;
        own.dims[axis].n = wanted.dims[axis].n = 0;
        if (own.rank != wanted.rank || !onnx_view_move(&own, shape, onnx_shape(m, drafts[0])) ||
            !onnx_view_equal(&own, &wanted))
            return onnx_refuse(m, node, "its inputs differ in more than channels");
    }
    MM_TRY(onnx_join(m, node, drafts, node->n_inputs, &draft));
    onnx_view view = first->view;
    view.dims[axis].n = 0;
    if (!onnx_view_move(&view, onnx_shape(m, drafts[0]), onnx_shape(m, draft)))
        return onnx_refuse(m, node, "its inputs are not in order");
    view.dims[axis] = onnx_dim_of(nets_shape_channels(onnx_shape(m, draft)), 1);
    onnx_give_map(onnx_out(m, node, 0), draft, &view);
    return MM_OK;
}

static mm_status concat_maps(onnx_import *m, const onnx_node *node) {
    onnx_value *last = onnx_in(m, node, node->n_inputs - 1), *first = onnx_in(m, node, 0);
    int axis;
    if (!first || !last) return onnx_refuse(m, node, "an input is missing");
    const int rank = last->kind == ONNX_MAP ? last->view.rank : first->kind == ONNX_MAP ? first->view.rank : 0;
    MM_TRY(onnx_axis(m, node, onnx_attr_int(node, "axis", 0), rank, &axis));
    if (node->n_inputs == 1) {
        onnx_give_view(onnx_out(m, node, 0), first, &first->view);
        return MM_OK;
    }
    if (node->n_inputs == 2 && first->kind == ONNX_CONSTANT) return onnx_class_token(m, node, axis);
    int *drafts = malloc((size_t)node->n_inputs * sizeof *drafts);
    if (!drafts) return mm_fail(MM_ERR_NOMEM, "%s: no memory for %d inputs", m->path, node->n_inputs);
    const mm_status status = join_inputs(m, node, axis, drafts);
    free(drafts);
    return status;
}

static mm_status concat_constants(onnx_import *m, const onnx_node *node) {
    onnx_tensor *in, *first, *out;
    int axis;
    int64_t dims[ONNX_RANK_MAX], along = 0;
    MM_TRY(onnx_in_constant(m, node, 0, &first));
    if (!first) return onnx_refuse(m, node, "an input is missing");
    MM_TRY(onnx_axis(m, node, onnx_attr_int(node, "axis", 0), first->rank, &axis));
    memcpy(dims, first->dims, sizeof dims);
    dims[axis] = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        MM_TRY(onnx_in_constant(m, node, i, &in));
        bool fits = in && in->rank == first->rank && in->real == first->real;
        for (int d = 0; fits && d < in->rank; d++) fits = d == axis || in->dims[d] == dims[d];
        if (!fits) return onnx_refuse(m, node, "its inputs differ in shape or type");
        dims[axis] += in->dims[axis];
    }
    MM_TRY(onnx_tensor_create(&m->tensors, first->real, first->rank, dims, &out));
    int64_t inner = 1;
    for (int d = axis + 1; d < first->rank; d++) inner *= dims[d];
    for (int i = 0; i < node->n_inputs; i++, along += in->dims[axis]) {
        MM_TRY(onnx_in_constant(m, node, i, &in));
        const int64_t block = in->dims[axis] * inner;
        for (int64_t k = 0; k < in->elems; k++)
            onnx_tensor_put(out, k / block * dims[axis] * inner + along * inner + k % block, onnx_tensor_at(in, k));
    }
    onnx_give_constant(onnx_out(m, node, 0), out);
    return MM_OK;
}

const onnx_op onnx_join_ops[] = {
    {"Concat", concat_maps, concat_constants},
    {NULL, NULL, NULL},
};
