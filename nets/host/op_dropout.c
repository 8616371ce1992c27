/* Dropout. No mask is stored: the backward draws the same random numbers again. Element e of layer l in iteration i
 * uses word e % 4 of Philox(key = seed, counter = {e / 4, its high word, l, i}). */
#include <stdlib.h>

#include "nets/host/ops.h"
#include "nets/philox.h"

typedef struct dropout_op {
    nets_op base;
    int64_t elems;
    uint32_t threshold; /* a word below it drops the element */
    float scale;        /* of the others: 1 / (1 - p) */
} dropout_op;

/* out := in with the layer's elements dropped; in may be out. */
static void drop(const dropout_op *op, const nets_op_args *args, const float *in, float *out) {
    const uint32_t *rng = args->at[NETS_RNG];
    uint32_t key[2] = {rng[0], rng[1]}, words[4];
    for (int64_t i = 0; i < op->elems; i += 4) {
        uint64_t block = (uint64_t)i / 4;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), args->layer, rng[2]};
        nets_philox(key, counter, words);
        int n = op->elems - i < 4 ? (int)(op->elems - i) : 4;
        for (int k = 0; k < n; k++) out[i + k] = words[k] < op->threshold ? 0 : in[i + k] * op->scale;
    }
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    drop((dropout_op *)base, args, args->at[NETS_X], args->at[NETS_Y]);
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    dropout_op *op = (dropout_op *)base;
    drop(op, args, args->at[NETS_DY], args->at[NETS_DX]);
    nets_host_accumulate(args->at[NETS_DX], args->at[NETS_EARLIER], op->elems);
    return MM_OK;
}

static mm_status forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_forward, args, stream);
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return nets_host_enqueue(op, run_backward, args, stream);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    dropout_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a dropout");
    op->base.impl = &nets_host_dropout;
    op->elems = nets_elems(desc->x);
    op->threshold = (uint32_t)((double)desc->attrs.p * 4294967296.0);
    op->scale = 1.0f / (1.0f - desc->attrs.p);
    *op_out = &op->base;
    return MM_OK;
}

static void destroy(nets_op *op) { free(op); }

const nets_op_impl nets_host_dropout = {create, destroy, NULL, forward, backward};
