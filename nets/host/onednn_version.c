/* SPDX-License-Identifier: MIT */
/* oneDNN 2 describes a primitive in two steps, with layouts that are structs; 3 in one, with layouts that are
 * objects. */
#include "nets/host/onednn_internal.h"

typedef struct mds {
    dnnl_memory_desc_t x, weights, y, bias;
} mds;

#if DNNL_VERSION_MAJOR < 3

typedef union op_desc {
    dnnl_convolution_desc_t conv;
    dnnl_pooling_desc_t pool;
    dnnl_resampling_desc_t resampling;
    dnnl_matmul_desc_t matmul;
} op_desc;

static dnnl_status_t make_md(const nets_dnn_layout *layout, dnnl_memory_desc_t *md_out) {
    if (layout->md) *md_out = *layout->md;
    const dnnl_data_type_t type = layout->half ? dnnl_bf16 : dnnl_f32;
    if (layout->rank == 0) return dnnl_success;
    if (layout->strides[0])
        return dnnl_memory_desc_init_by_strides(md_out, layout->rank, layout->dims, type, layout->strides);
    return dnnl_memory_desc_init_by_tag(md_out, layout->rank, layout->dims, type, layout->tag);
}

static dnnl_status_t describe_conv(const nets_dnn_op *op, const mds *md, dnnl_convolution_desc_t *desc) {
    const nets_dnn_window_dims *w = &op->windows;
    if (op->direction == dnnl_backward_data)
        return dnnl_dilated_convolution_backward_data_desc_init(desc, op->algorithm, &md->x, &md->weights, &md->y,
                                                                w->stride, w->dilation, w->pad, w->pad_end);
    if (op->direction == dnnl_backward_weights)
        return dnnl_dilated_convolution_backward_weights_desc_init(desc, op->algorithm, &md->x, &md->weights, NULL,
                                                                   &md->y, w->stride, w->dilation, w->pad, w->pad_end);
    return dnnl_dilated_convolution_forward_desc_init(desc, op->direction, op->algorithm, &md->x, &md->weights, NULL,
                                                      &md->y, w->stride, w->dilation, w->pad, w->pad_end);
}

static dnnl_status_t describe_pool(const nets_dnn_op *op, const mds *md, dnnl_pooling_desc_t *desc) {
    const nets_dnn_window_dims *w = &op->windows;
    if (op->direction == dnnl_backward_data)
        return dnnl_pooling_backward_desc_init(desc, op->algorithm, &md->x, &md->y, w->stride, w->kernel, w->pad,
                                               w->pad_end);
    return dnnl_pooling_forward_desc_init(desc, op->direction, op->algorithm, &md->x, &md->y, w->stride, w->kernel,
                                          w->pad, w->pad_end);
}

static dnnl_status_t describe_resampling(const nets_dnn_op *op, const mds *md, dnnl_resampling_desc_t *desc) {
    if (op->direction == dnnl_backward_data)
        return dnnl_resampling_backward_desc_init(desc, op->algorithm, NULL, &md->x, &md->y);
    return dnnl_resampling_forward_desc_init(desc, op->direction, op->algorithm, NULL, &md->x, &md->y);
}

static dnnl_status_t describe_op(const nets_dnn_op *op, const mds *md, op_desc *desc) {
    switch ((int)op->kind) {
    case dnnl_convolution:
        return describe_conv(op, md, &desc->conv);
    case dnnl_pooling:
        return describe_pool(op, md, &desc->pool);
    case dnnl_resampling:
        return describe_resampling(op, md, &desc->resampling);
    case dnnl_matmul:
        return dnnl_matmul_desc_init(&desc->matmul, &md->x, &md->weights, op->bias.rank ? &md->bias : NULL, &md->y);
    default:
        return dnnl_invalid_arguments;
    }
}

dnnl_status_t nets_dnn_append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1); }

dnnl_status_t nets_dnn_md_block(nets_dnn_md md, int64_t *items_out, int64_t *stride_out) {
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    if (md->format_kind != dnnl_blocked) return dnnl_unimplemented;
    *items_out = 1;
    for (int i = 0; i < blocking->inner_nblks; i++)
        if (blocking->inner_idxs[i] == 0) *items_out *= blocking->inner_blks[i];
    *stride_out = blocking->strides[0];
    return dnnl_success;
}

dnnl_status_t nets_dnn_md_part(nets_dnn_md whole, int64_t first, int64_t n, dnnl_memory_desc_t *md_out) {
    dnnl_dims_t dims, from = {first};
    for (int d = 0; d < whole->ndims; d++) dims[d] = whole->dims[d];
    dims[0] = n;
    const dnnl_status_t status = dnnl_memory_desc_init_submemory(md_out, whole, dims, from);
    md_out->offset0 = whole->offset0;
    return status;
}

void nets_dnn_md_destroy(dnnl_memory_desc_t *md) { (void)md; }
nets_dnn_md nets_dnn_md_of(const dnnl_memory_desc_t *md) { return md; }

dnnl_status_t nets_dnn_describe(dnnl_engine_t engine, const nets_dnn_op *op, const_dnnl_primitive_desc_t hint,
                                const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *description_out) {
    mds md;
    op_desc desc;
    dnnl_status_t status = make_md(&op->x, &md.x);
    if (status == dnnl_success) status = make_md(&op->weights, &md.weights);
    if (status == dnnl_success) status = make_md(&op->y, &md.y);
    if (status == dnnl_success) status = make_md(&op->bias, &md.bias);
    if (status != dnnl_success) return status;
    if (op->kind == dnnl_reorder)
        return dnnl_reorder_primitive_desc_create(description_out, &md.x, engine, &md.y, engine, attr);
    status = describe_op(op, &md, &desc);
    return status == dnnl_success ? dnnl_primitive_desc_create(description_out, &desc, attr, engine, hint) : status;
}

#else

static dnnl_status_t make_md(const nets_dnn_layout *layout, dnnl_memory_desc_t *md_out) {
    if (layout->md) return dnnl_memory_desc_clone(md_out, layout->md);
    const dnnl_data_type_t type = layout->half ? dnnl_bf16 : dnnl_f32;
    if (layout->rank == 0) return dnnl_success;
    if (layout->strides[0])
        return dnnl_memory_desc_create_with_strides(md_out, layout->rank, layout->dims, type, layout->strides);
    return dnnl_memory_desc_create_with_tag(md_out, layout->rank, layout->dims, type, layout->tag);
}

static void destroy_md(dnnl_memory_desc_t md) {
    if (md) dnnl_memory_desc_destroy(md);
}

static dnnl_status_t describe_conv(dnnl_engine_t engine, const nets_dnn_op *op, const mds *md,
                                   const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr,
                                   dnnl_primitive_desc_t *description_out) {
    const nets_dnn_window_dims *w = &op->windows;
    if (op->direction == dnnl_backward_data)
        return dnnl_convolution_backward_data_primitive_desc_create(description_out, engine, op->algorithm, md->x,
                                                                    md->weights, md->y, w->stride, w->dilation, w->pad,
                                                                    w->pad_end, hint, attr);
    if (op->direction == dnnl_backward_weights)
        return dnnl_convolution_backward_weights_primitive_desc_create(description_out, engine, op->algorithm, md->x,
                                                                       md->weights, NULL, md->y, w->stride, w->dilation,
                                                                       w->pad, w->pad_end, hint, attr);
    return dnnl_convolution_forward_primitive_desc_create(description_out, engine, op->direction, op->algorithm, md->x,
                                                          md->weights, NULL, md->y, w->stride, w->dilation, w->pad,
                                                          w->pad_end, attr);
}

static dnnl_status_t describe_pool(dnnl_engine_t engine, const nets_dnn_op *op, const mds *md,
                                   const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr,
                                   dnnl_primitive_desc_t *description_out) {
    const nets_dnn_window_dims *w = &op->windows;
    if (op->direction == dnnl_backward_data)
        return dnnl_pooling_backward_primitive_desc_create(description_out, engine, op->algorithm, md->x, md->y,
                                                           w->stride, w->kernel, w->dilation, w->pad, w->pad_end, hint,
                                                           attr);
    return dnnl_pooling_forward_primitive_desc_create(description_out, engine, op->direction, op->algorithm, md->x,
                                                      md->y, w->stride, w->kernel, w->dilation, w->pad, w->pad_end,
                                                      attr);
}

static dnnl_status_t describe_resampling(dnnl_engine_t engine, const nets_dnn_op *op, const mds *md,
                                         const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr,
                                         dnnl_primitive_desc_t *description_out) {
    if (op->direction == dnnl_backward_data)
        return dnnl_resampling_backward_primitive_desc_create(description_out, engine, op->algorithm, NULL, md->x,
                                                              md->y, hint, attr);
    return dnnl_resampling_forward_primitive_desc_create(description_out, engine, op->direction, op->algorithm, NULL,
                                                         md->x, md->y, attr);
}

static dnnl_status_t describe_op(dnnl_engine_t engine, const nets_dnn_op *op, const mds *md,
                                 const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr,
                                 dnnl_primitive_desc_t *description_out) {
    switch ((int)op->kind) {
    case dnnl_convolution:
        return describe_conv(engine, op, md, hint, attr, description_out);
    case dnnl_pooling:
        return describe_pool(engine, op, md, hint, attr, description_out);
    case dnnl_resampling:
        return describe_resampling(engine, op, md, hint, attr, description_out);
    case dnnl_matmul:
        return dnnl_matmul_primitive_desc_create(description_out, engine, md->x, md->weights, md->bias, md->y, attr);
    case dnnl_reorder:
        return dnnl_reorder_primitive_desc_create(description_out, md->x, engine, md->y, engine, attr);
    default:
        return dnnl_invalid_arguments;
    }
}

dnnl_status_t nets_dnn_append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t get_dims(nets_dnn_md md, int *rank_out, const dnnl_dims_t **dims_out) {
    const dnnl_status_t status = dnnl_memory_desc_query(md, dnnl_query_ndims_s32, rank_out);
    return status == dnnl_success ? dnnl_memory_desc_query(md, dnnl_query_dims, (void *)dims_out) : status;
}

/* A layout whose last block is filled up counts as one block. Only a part that ends where the tensor does has such a
 * block, and it begins where the tensor does plus an offset, with which primitives do not fill it up: they fail. */
dnnl_status_t nets_dnn_md_block(nets_dnn_md md, int64_t *items_out, int64_t *stride_out) {
    const dnnl_dims_t *dims, *blocks, *of, *strides;
    int rank, n;
    dnnl_status_t status = get_dims(md, &rank, &dims);
    if (status == dnnl_success) status = dnnl_memory_desc_query(md, dnnl_query_strides, (void *)&strides);
    if (status == dnnl_success) status = dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &n);
    if (status == dnnl_success) status = dnnl_memory_desc_query(md, dnnl_query_inner_blks, (void *)&blocks);
    if (status == dnnl_success) status = dnnl_memory_desc_query(md, dnnl_query_inner_idxs, (void *)&of);
    if (status != dnnl_success) return status;
    *items_out = 1;
    for (int i = 0; i < n; i++)
        if ((*of)[i] == 0) *items_out *= (*blocks)[i];
    if ((*dims)[0] % *items_out != 0) *items_out = (*dims)[0];
    *stride_out = (*strides)[0];
    return dnnl_success;
}

/* The layout of whole blocks does not depend on `first`. */
dnnl_status_t nets_dnn_md_part(nets_dnn_md whole, int64_t first, int64_t n, dnnl_memory_desc_t *md_out) {
    const dnnl_dims_t *all;
    int rank;
    dnnl_dims_t dims, from = {0};
    const dnnl_status_t status = get_dims(whole, &rank, &all);
    (void)first;
    if (status != dnnl_success) return status;
    for (int d = 0; d < rank; d++) dims[d] = (*all)[d];
    dims[0] = n;
    return dnnl_memory_desc_create_submemory(md_out, whole, dims, from);
}

void nets_dnn_md_destroy(dnnl_memory_desc_t *md) { destroy_md(*md); }
nets_dnn_md nets_dnn_md_of(const dnnl_memory_desc_t *md) { return *md; }

dnnl_status_t nets_dnn_describe(dnnl_engine_t engine, const nets_dnn_op *op, const_dnnl_primitive_desc_t hint,
                                const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *description_out) {
    mds md = {0};
    dnnl_status_t status = make_md(&op->x, &md.x);
    if (status == dnnl_success) status = make_md(&op->weights, &md.weights);
    if (status == dnnl_success) status = make_md(&op->y, &md.y);
    if (status == dnnl_success) status = make_md(&op->bias, &md.bias);
    if (status == dnnl_success) status = describe_op(engine, op, &md, hint, attr, description_out);
    destroy_md(md.x);
    destroy_md(md.weights);
    destroy_md(md.y);
    destroy_md(md.bias);
    return status;
}

#endif
