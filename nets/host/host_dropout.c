/* SPDX-License-Identifier: MIT */
/* Dropout. No mask is stored: the backward draws the same random numbers again. Element e of layer l in iteration i
 * uses word e % 4 of Philox(key = seed, counter = {e / 4, its high word, l, i}). Elements are counted from the whole
 * batch's first. By sample, all elements of sample e use that word. */
#include <stdlib.h>

#include "mm/core/philox.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

typedef struct dropout_op {
    nets_op base;
    mm_host_pool *pool;
    int64_t elems, image_elems;
    uint32_t threshold; /* a word below it drops the element */
    float scale;        /* multiplies the others: 1 / (1 - p) */
    bool by_sample;
} dropout_op;

/* out := in with the layer's elements dropped; in may be out. */
typedef struct dropping {
    const dropout_op *op;
    const uint32_t *rng;
    uint32_t layer;
    int64_t first; /* the first element's number in the whole batch */
    const float *in;
    float *out;
} dropping;

static void draw(const dropping *d, uint64_t block, uint32_t words[4]) {
    const uint32_t key[2] = {d->rng[0], d->rng[1]};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), d->layer, d->rng[2]};
    mm_philox(key, counter, words);
}

static void drop_samples(const void *ctx, int64_t from, int64_t to) {
    const dropping *d = ctx;
    const dropout_op *op = d->op;
    for (int64_t i = from, end; i < to; i = end) {
        const uint64_t sample = (uint64_t)((d->first + i) / op->image_elems);
        uint32_t words[4];
        draw(d, sample / 4, words);
        const bool dropped = words[sample % 4] < op->threshold;
        end = (i / op->image_elems + 1) * op->image_elems;
        if (end > to) end = to;
        for (int64_t k = i; k < end; k++) d->out[k] = dropped ? 0 : d->in[k] * op->scale;
    }
}

static void drop(const void *ctx, int64_t from, int64_t to) {
    const dropping *d = ctx;
    const dropout_op *op = d->op;
    uint32_t words[4];
    for (int64_t i = from; i < to;) {
        const uint64_t element = (uint64_t)(d->first + i);
        draw(d, element / 4, words);
        for (int k = (int)(element % 4); k < 4 && i < to; k++, i++)
            d->out[i] = words[k] < op->threshold ? 0 : d->in[i] * op->scale;
    }
}

static void drop_all(const dropout_op *op, const nets_op_args *args, nets_role in, nets_role out) {
    const uint32_t *rng = args->at[NETS_RNG];
    const dropping d = {.op = op,
                        .rng = rng,
                        .layer = args->layer,
                        .first = rng[NETS_RNG_IMAGE] * op->image_elems,
                        .in = args->at[in],
                        .out = args->at[out]};
    nets_ranges(op->pool, op->elems, 4, 1, op->by_sample ? drop_samples : drop, &d);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    drop_all((dropout_op *)base, args, NETS_X, NETS_Y);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    dropout_op *op = (dropout_op *)base;
    drop_all(op, args, NETS_DY, NETS_DX);
    nets_host_accumulate_on(op->pool, args->at[NETS_DX], args->at[NETS_EARLIER], op->elems);
    return MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    dropout_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a dropout");
    op->base.impl = &nets_host_op_dropout.base;
    op->pool = nets_host_pool(backend);
    op->elems = nets_shape_elems(&desc->x[0]);
    op->image_elems = op->elems / desc->x[0].dims[0];
    op->threshold = (uint32_t)((double)desc->attrs.p * 4294967296.0);
    op->by_sample = desc->attrs.by_sample;
    op->scale = 1.0f / (1.0f - desc->attrs.p);
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_dropout =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, NULL, run_forward, run_backward);
