/* SPDX-License-Identifier: MIT */
/* Enqueues a piece of an operation: a call of a codec, or a copy over the link. */
#include "pipeline/operation.h"

#include <string.h>

#include "mm/device/trace.h"
#include "pipeline/allreduce.h"
#include "pipeline/disk_move.h"
#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"
#include "pipeline/variable_codes.h"

static void *address_or_null(mm_dispatch *d, int segment) {
    return segment < 0 ? NULL : mm_dispatch_address(d, segment);
}

/* The shape of the rows that the piece covers. */
static mm_shape piece_shape(const mm_dispatch *d, const mm_piece *piece) {
    const mm_plan *plan = d->execution->plan;
    mm_shape shape = mm_codec_shape(mm_graph_tensor(plan->graph, plan->nodes[piece->node].tensor));
    shape.dims[0] = piece->rows;
    return shape;
}

/* Whether it is its node's last piece, with which the statistics count the node. */
static bool is_last(const mm_dispatch *d, const mm_piece *piece) {
    return mm_piece_is_last(d->execution->program, piece);
}

/* The codec's inputs beside the map and the code. code: the code's segment. */
static mm_code_inputs inputs_of(const mm_dispatch *d, const mm_piece *piece, int code, mm_code_body *body) {
    const mm_plan *plan = d->execution->plan;
    const mm_tensor tensor = plan->nodes[piece->node].tensor;
    const int64_t elem_bytes = (int64_t)mm_dtype_bytes(mm_graph_tensor(plan->graph, tensor)->dtype);
    mm_code_inputs inputs = mm_code_block_inputs(d->execution->block, tensor, piece->map_offset / elem_bytes);
    inputs.body = mm_body_of(d, code, body);
    return inputs;
}

static mm_status encode(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    const mm_plan *plan = d->execution->plan;
    const mm_node *node = &plan->nodes[piece->node];
    const mm_segment *dst = &plan->segments[node->dst];
    const mm_shape shape = piece_shape(d, piece);
    mm_code_body body;
    const mm_code_inputs inputs = inputs_of(d, piece, node->dst, &body);
    uint8_t *code = (uint8_t *)mm_dispatch_address(d, node->dst) + piece->stored_offset;
    void *target = node->stage >= 0 ? mm_dispatch_address(d, node->stage) : code;
    MM_TRY(mm_codec_encode(d->execution->codecs[dst->codec], stream, &shape,
                           (uint8_t *)mm_dispatch_address(d, node->src) + piece->map_offset, target,
                           address_or_null(d, node->work), &inputs, d->counters));
    if (target != code) MM_TRY(mm_copy_async(stream, code, target, dst->bytes, MM_COPY_DEVICE));
    if (!is_last(d, piece)) return MM_OK;
    pthread_mutex_lock(&d->lock);
    d->stats.encodes++;
    d->stats.encoded_bytes += mm_graph_tensor(plan->graph, node->tensor)->bytes;
    d->stats.coded_bytes += dst->bytes;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

static mm_status decode(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    const mm_plan *plan = d->execution->plan;
    const mm_node *node = &plan->nodes[piece->node];
    const mm_shape shape = piece_shape(d, piece);
    mm_code_body body;
    const mm_code_inputs inputs = inputs_of(d, piece, node->src, &body);
    MM_TRY(mm_codec_decode(d->execution->codecs[plan->segments[node->src].codec], stream, &shape,
                           (uint8_t *)mm_dispatch_address(d, node->src) + piece->stored_offset,
                           (uint8_t *)mm_dispatch_address(d, node->dst) + piece->map_offset,
                           address_or_null(d, node->work), &inputs, d->counters));
    if (!is_last(d, piece)) return MM_OK;
    pthread_mutex_lock(&d->lock);
    d->stats.decodes++;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

static mm_status copy(mm_dispatch *d, const mm_piece *piece, mm_stream *stream, mm_copy_kind kind, int64_t *counter) {
    const mm_node *node = &d->execution->plan->nodes[piece->node];
    MM_TRY(mm_copy_async(stream, (uint8_t *)mm_dispatch_address(d, node->dst) + piece->stored_offset,
                         (uint8_t *)mm_dispatch_address(d, node->src) + piece->stored_offset, piece->stored_bytes,
                         kind));
    pthread_mutex_lock(&d->lock);
    *counter += piece->stored_bytes;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

static mm_status offload(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    MM_TRY(copy(d, piece, stream, MM_COPY_OUT, &d->stats.out_bytes));
    return mm_allreduce_call_async(d, piece, stream);
}

static mm_status prefetch(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    MM_TRY(mm_allreduce_call_async(d, piece, stream));
    return copy(d, piece, stream, MM_COPY_IN, &d->stats.in_bytes);
}

static mm_status move(mm_dispatch *d, const mm_piece *piece, mm_stream *stream, int64_t *counter) {
    MM_TRY(mm_disk_move_async(d, piece, stream));
    pthread_mutex_lock(&d->lock);
    *counter += piece->stored_bytes;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

static mm_status store(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    return move(d, piece, stream, &d->stats.store_bytes);
}

static mm_status load(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    return move(d, piece, stream, &d->stats.load_bytes);
}

static mm_status measure(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    mm_execution *p = d->execution;
    const mm_node *node = &p->plan->nodes[piece->node];
    const int64_t elems = mm_graph_tensor(p->plan->graph, node->tensor)->bytes / (int64_t)sizeof(float);
    return mm_sums_async(stream, mm_dispatch_address(d, node->src), elems, p->measured->scratch,
                         &p->measured->sums[node->tensor]);
}

/* What each kind of node enqueues. NULL: steps, which the caller computes. A kind that has no entry is refused. */
typedef mm_status (*operation)(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);
static const operation operations[] = {
    [MM_NODE_STEP] = NULL,       [MM_NODE_ENCODE] = encode, [MM_NODE_DECODE] = decode,
    [MM_NODE_OUT] = offload,     [MM_NODE_IN] = prefetch,   [MM_NODE_RECOMPUTE] = NULL,
    [MM_NODE_MEASURE] = measure, [MM_NODE_STORE] = store,   [MM_NODE_LOAD] = load,
};
_Static_assert(sizeof operations / sizeof *operations == MM_NODE_KINDS, "an entry for each kind of node");

static mm_status enqueue(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    const mm_node_kind kind = d->execution->plan->nodes[piece->node].kind;
    if (!operations[kind])
        return mm_fail(MM_ERR_UNSUPPORTED, "a node of kind %s is no operation to enqueue", mm_node_kind_name(kind));
    return operations[kind](d, piece, stream);
}

mm_status mm_operation_enqueue(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    const mm_plan *plan = d->execution->plan;
    mm_trace_push(mm_stream_id_name(piece->stream),
                  mm_graph_tensor(plan->graph, plan->nodes[piece->node].tensor)->name);
    mm_status status = enqueue(d, piece, stream);
    mm_trace_pop();
    return status;
}
