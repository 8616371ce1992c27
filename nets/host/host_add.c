/* SPDX-License-Identifier: MIT */
/* The residual sum: own loops, element by element, so they also work in place. */
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"

typedef struct add_op {
    nets_op base;
    mm_host_pool *pool;
    mm_dtype maps;
    int64_t elems;
} add_op;

void nets_host_accumulate(float *sum, const float *addend, int64_t elems) {
    if (!addend) return;
#pragma omp simd
    for (int64_t i = 0; i < elems; i++) sum[i] += addend[i];
}

/* y = a + b, or a where there is no b; y may be either. */
typedef struct addends {
    const nets_simd_map *lines;
    int64_t elem_bytes;
    const char *a, *b;
    char *y;
} addends;

static addends addends_of(mm_dtype maps, const void *a, const void *b, void *y) {
    return (addends){nets_simd_map_best(maps), mm_dtype_bytes(maps), a, b, y};
}

static void add(const void *ctx, int64_t from, int64_t to) {
    const addends *s = ctx;
    const int64_t at = from * s->elem_bytes;
    if (s->b)
        s->lines->add(s->a + at, s->b + at, to - from, s->y + at);
    else
        memcpy(s->y + at, s->a + at, (size_t)((to - from) * s->elem_bytes));
}

void nets_host_accumulate_on(mm_host_pool *pool, float *sum, const float *addend, int64_t elems) {
    const addends s = addends_of(MM_F32, sum, addend, sum);
    if (addend) nets_ranges(pool, elems, 1, 1, add, &s);
}

void nets_host_pass_gradient(mm_host_pool *pool, mm_dtype maps, const void *dy, const void *earlier, void *dx,
                             int64_t elems) {
    const addends s = addends_of(maps, dy, earlier, dx);
    if (dx && (earlier || dx != dy)) nets_ranges(pool, elems, 1, 1, add, &s);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const add_op *op = (const add_op *)base;
    const addends s = addends_of(op->maps, args->at[NETS_X], args->at[NETS_X2], args->at[NETS_Y]);
    nets_ranges(op->pool, op->elems, 1, 1, add, &s);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const add_op *op = (const add_op *)base;
    nets_host_pass_gradient(op->pool, op->maps, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX],
                            op->elems);
    nets_host_pass_gradient(op->pool, op->maps, args->at[NETS_DY], args->at[NETS_EARLIER2], args->at[NETS_DX2],
                            op->elems);
    return MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    add_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a sum");
    *op = (add_op){.base.impl = &nets_host_op_add.base,
                   .pool = nets_host_pool(backend),
                   .maps = desc->maps,
                   .elems = nets_shape_elems(&desc->x[0])};
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_add = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create,
                                                       nets_host_free, NULL, run_forward, run_backward);
