/* SPDX-License-Identifier: MIT */
/* The ops of device "host": convolutions, products, pools and upsampling by oneDNN, the rest by own loops. Internal. */
#ifndef NETS_HOST_HOST_OPS_H
#define NETS_HOST_HOST_OPS_H

#include "nets/contract/op.h"
#include "nets/contract/op_sizes.h"
#include "nets/host/onednn.h"

typedef struct nets_host_backend {
    nets_backend base;
    mm_host_pool *pool; /* all ops of the backend compute on the pool's threads */
    nets_dnn dnn;
} nets_host_backend;

static inline mm_host_pool *nets_host_pool(const nets_backend *backend) {
    return ((const nets_host_backend *)backend)->pool;
}

extern const nets_backend_ops nets_host_backend_ops;

/* Computes a phase of an op, on the stream's thread. */
typedef mm_status (*nets_host_fn)(nets_op *op, const nets_op_args *args);

typedef struct nets_host_impl {
    nets_op_impl base;
    nets_host_fn forward, backward;
} nets_host_impl;

#define NETS_HOST_IMPL(maps, create, destroy, workspace_bytes, forward, backward)                                      \
    { {maps, create, destroy, workspace_bytes, nets_host_forward, nets_host_backward}, forward, backward }

/* The implementations of the operations, in host_<group>.c. */
#define NETS_HOST_OP(NAME, name) extern const nets_host_impl nets_host_op_##name;
NETS_OPS(NETS_HOST_OP)
#undef NETS_HOST_OP

/* nets_op_impl.forward and backward: enqueue those of nets_host_impl. `args` is copied. */
MM_CHECKED mm_status nets_host_forward(nets_op *op, const nets_op_args *args, mm_stream *stream);
MM_CHECKED mm_status nets_host_backward(nets_op *op, const nets_op_args *args, mm_stream *stream);

/* Parts of weights' gradients (nets_backend_ops.parts). */
typedef mm_status (*nets_host_parts_fn)(nets_op *op, const nets_part_args *args);
MM_CHECKED mm_status nets_host_parts(nets_op *op, nets_host_parts_fn fn, const nets_part_args *args, mm_stream *stream);
MM_CHECKED mm_status nets_host_embedding_parts(nets_op *op, const nets_part_args *args, mm_stream *stream);
MM_CHECKED mm_status nets_host_project_parts(nets_op *op, const nets_part_args *args, mm_stream *stream);
MM_CHECKED mm_status nets_host_token_loss_parts(nets_op *op, const nets_part_args *args, mm_stream *stream);

/* nets_op_impl.destroy of ops that own nothing else. */
void nets_host_free(nets_op *op);

/* Implemented in host_update.c. */
MM_CHECKED mm_status nets_host_update(nets_backend *backend, const nets_update_args *args, mm_stream *stream);
MM_CHECKED mm_status nets_host_update_now(nets_backend *backend, const nets_update_args *args);
mm_status nets_host_check(nets_backend *backend, const nets_update_args *args, mm_stream *stream);
MM_CHECKED mm_status nets_host_pass_on(nets_backend *backend, uint32_t *rng, int64_t images, mm_stream *stream);
MM_CHECKED mm_status nets_host_add(nets_backend *backend, float *sum, const float *addend, int64_t elems,
                                   mm_stream *stream);

/* Implemented in host_convert.c. */
MM_CHECKED mm_status nets_host_convert(nets_backend *backend, mm_dtype from_type, const void *from, mm_dtype to_type,
                                       void *to, int64_t elems, mm_stream *stream);

/* The windows of a convolution or pool, as oneDNN gets them. Implemented in host_resize.c. */
nets_dnn_windows nets_host_windows(const nets_op_desc *desc);

/* sum[i] += addend[i]; `addend` NULL: they do nothing. The first function runs on the calling thread, the second on the
 * pool's threads. */
void nets_host_accumulate(float *sum, const float *addend, int64_t elems);
void nets_host_accumulate_on(mm_host_pool *pool, float *sum, const float *addend, int64_t elems);
/* dx = dy + earlier, or dy if `earlier` is NULL; maps of the type. dx may be either; NULL: it is not wanted. */
void nets_host_pass_gradient(mm_host_pool *pool, mm_dtype maps, const void *dy, const void *earlier, void *dx,
                             int64_t elems);

#endif
