/* What an operation's piece enqueues: a codec's work, or a copy over the link. */
#include <string.h>

#include "mm/device/trace.h"
#include "pipeline/internal.h"

/* The rows [first_row, first + rows) of a map or of its code: where they lie in the whole. */
typedef struct part {
    mm_shape shape; /* of these rows */
    int64_t map_offset, code_offset, code_bytes;
} part;

static mm_shape tensor_shape(const mm_graph *graph, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(graph, tensor);
    mm_shape shape = {.dtype = info->dtype, .rank = info->rank};
    memcpy(shape.dims, info->dims, sizeof shape.dims);
    return shape;
}

static void *address_or_null(mm_dispatch *d, int segment) {
    return segment < 0 ? NULL : mm_dispatch_address(d, segment);
}

/* `stored`: the segment on the other side of the operation than the map, a code or the map itself. */
static mm_status find_part(const mm_dispatch *d, const mm_piece *piece, int stored, part *out) {
    const mm_program *p = d->program;
    const mm_node *node = &p->plan->nodes[piece->node];
    const mm_segment *segment = &p->plan->segments[stored];
    const mm_tensor_info *tensor = mm_graph_tensor(p->plan->graph, node->tensor);
    *out = (part){.shape = tensor_shape(p->plan->graph, node->tensor), .code_bytes = segment->bytes};
    if (mm_piece_is_first(&p->pieces, piece) && mm_piece_is_last(&p->pieces, piece)) return MM_OK;
    int64_t end = segment->bytes, all = tensor->dims[0];
    const mm_codec *codec = p->codecs[segment->codec];
    out->map_offset = tensor->bytes / all * piece->first_row;
    out->shape.dims[0] = piece->first_row; /* the rows before have a code of their own */
    if (piece->first_row > 0) MM_TRY(mm_codec_bound(codec, &out->shape, &out->code_offset));
    out->shape.dims[0] = piece->first_row + piece->rows;
    if (out->shape.dims[0] < all) MM_TRY(mm_codec_bound(codec, &out->shape, &end));
    out->shape.dims[0] = piece->rows;
    out->code_bytes = end - out->code_offset;
    return MM_OK;
}

/* Statistics count a node once, with its last piece. */
static bool is_last(const mm_dispatch *d, const mm_piece *piece) {
    return mm_piece_is_last(&d->program->pieces, piece);
}

static mm_status encode(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    const mm_plan *plan = d->program->plan;
    const mm_node *node = &plan->nodes[piece->node];
    const mm_segment *dst = &plan->segments[node->dst];
    part part;
    MM_TRY(find_part(d, piece, node->dst, &part));
    uint8_t *code = (uint8_t *)mm_dispatch_address(d, node->dst) + part.code_offset;
    void *target = node->stage >= 0 ? mm_dispatch_address(d, node->stage) : code;
    MM_TRY(mm_codec_encode(d->program->codecs[dst->codec], stream, &part.shape,
                           (uint8_t *)mm_dispatch_address(d, node->src) + part.map_offset, target,
                           address_or_null(d, node->work), d->counters));
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
    const mm_plan *plan = d->program->plan;
    const mm_node *node = &plan->nodes[piece->node];
    part part;
    MM_TRY(find_part(d, piece, node->src, &part));
    MM_TRY(mm_codec_decode(d->program->codecs[plan->segments[node->src].codec], stream, &part.shape,
                           (uint8_t *)mm_dispatch_address(d, node->src) + part.code_offset,
                           (uint8_t *)mm_dispatch_address(d, node->dst) + part.map_offset,
                           address_or_null(d, node->work), d->counters));
    if (!is_last(d, piece)) return MM_OK;
    pthread_mutex_lock(&d->lock);
    d->stats.decodes++;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

/* Offload and prefetch. */
static mm_status copy(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    const mm_node *node = &d->program->plan->nodes[piece->node];
    bool out = node->kind == MM_NODE_OUT;
    part part;
    MM_TRY(find_part(d, piece, node->dst, &part));
    MM_TRY(mm_copy_async(stream, (uint8_t *)mm_dispatch_address(d, node->dst) + part.code_offset,
                         (uint8_t *)mm_dispatch_address(d, node->src) + part.code_offset, part.code_bytes,
                         out ? MM_COPY_OUT : MM_COPY_IN));
    pthread_mutex_lock(&d->lock);
    *(out ? &d->stats.out_bytes : &d->stats.in_bytes) += part.code_bytes;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

static mm_status enqueue(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    switch (d->program->plan->nodes[piece->node].kind) {
    case MM_NODE_ENCODE:
        return encode(d, piece, stream);
    case MM_NODE_DECODE:
        return decode(d, piece, stream);
    default:
        return copy(d, piece, stream);
    }
}

mm_status mm_operation_enqueue(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    const mm_plan *plan = d->program->plan;
    mm_trace_push(mm_stream_id_name(piece->stream),
                  mm_graph_tensor(plan->graph, plan->nodes[piece->node].tensor)->name);
    mm_status status = enqueue(d, piece, stream);
    mm_trace_pop();
    return status;
}
