/* SPDX-License-Identifier: MIT */
/* Operations that take a part: of channels, which is a view; of pixels or tokens, a crop; rows of a matrix by tokens,
 * an embedding; and parts of constants. */
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

/* ---------------------------------------------------------------- parts */

/* Makes out elements first, first + step, ... of an axis; `drops`: without that axis. */
static mm_status give_part(onnx_import *m, const onnx_node *node, onnx_value *in, onnx_value *out, int axis,
                           int64_t first, int64_t n, int64_t step, bool drops) {
    int64_t old[ONNX_RANK_MAX];
    const int rank = onnx_dims(m, in, old);
    if (n == old[axis] && step == 1 && !drops) {
        if (in->kind == ONNX_MAP) return onnx_give_view(out, in, &in->view), MM_OK;
        onnx_tensor *whole;
        MM_TRY(onnx_constant(m, in, &whole));
        return onnx_give_constant(out, whole), MM_OK;
    }
    if (in->kind == ONNX_CONSTANT) {
        onnx_tensor *from, *to;
        int64_t dims[ONNX_RANK_MAX], strides[ONNX_RANK_MAX];
        int left = 0;
        MM_TRY(onnx_constant(m, in, &from));
        onnx_strides(rank, old, strides);
        const int64_t start = first * strides[axis];
        for (int d = 0; d < rank; d++) {
            if (d == axis && drops) continue;
            dims[left] = d == axis ? n : old[d];
            strides[left++] = d == axis ? strides[d] * step : strides[d];
        }
        MM_TRY(onnx_tensor_gather(&m->tensors, from, start, left, dims, strides, &to));
        return onnx_give_constant(out, to), MM_OK;
    }
    onnx_value *map;
    MM_TRY(onnx_in_map(m, node, 0, &map));
    const onnx_dim *dim = &map->view.dims[axis];
    onnx_view view = map->view;
    const nets_shape *shape = onnx_shape(m, map->draft);
    if (step != 1 || n < 1 || dim->n > 1) return onnx_refuse(m, node, "layers here take no such part of a map");
    const int64_t channels = nets_shape_channels(shape), stride = dim->n ? dim->pairs[0].stride : 1;
    if (dim->n == 0 || stride < channels) { /* some of the channels, or of the only one */
        if (dim->n) {
            view.offset += first * stride;
            view.dims[axis] = onnx_dim_of(n, stride);
        }
    } else { /* some rows, columns or tokens: a crop */
        const nets_shape before = *shape;
        const bool rows =
            before.dims[0] > 1 && stride == before.dims[1] * channels && dim->pairs[0].size == before.dims[0];
        const bool columns = before.dims[1] > 1 && stride == channels && dim->pairs[0].size == before.dims[1];
        if (!rows && !columns)
            return onnx_refuse(m, node, "it takes some samples of a batch, or some pixels across rows");
        nets_attrs attrs = {.out_size = {rows ? n : before.dims[0], columns ? n : before.dims[1]},
                            .offset = {rows ? first : 0, columns ? first : 0}};
        int whole, draft;
        MM_TRY(onnx_whole(m, node, map, &whole));
        MM_TRY(onnx_draft_add(m, node, NETS_CROP, &attrs, &whole, 1, NULL, &draft));
        view = map->view;
        view.dims[axis].n = 0;
        if (!onnx_view_move(&view, &before, onnx_shape(m, draft)))
            return onnx_refuse(m, node, "no layer here takes such a part");
        view.dims[axis] = onnx_dim_of(n, rows ? onnx_shape(m, draft)->dims[1] * channels : channels);
        if (drops) {
            for (int d = axis; d + 1 < view.rank; d++) view.dims[d] = view.dims[d + 1];
            view.rank--;
        }
        onnx_give_map(out, draft, &view);
        return MM_OK;
    }
    if (drops) {
        for (int d = axis; d + 1 < view.rank; d++) view.dims[d] = view.dims[d + 1];
        view.rank--;
    }
    onnx_give_view(out, map, &view);
    return MM_OK;
}

static int64_t clamp(int64_t x, int64_t least, int64_t most) { return x < least ? least : x > most ? most : x; }

static mm_status slice(onnx_import *m, const onnx_node *node) {
    int64_t from[ONNX_RANK_MAX], to[ONNX_RANK_MAX], axes[ONNX_RANK_MAX], steps[ONNX_RANK_MAX], dims[ONNX_RANK_MAX];
    int n, n_to, n_axes, n_steps;
    onnx_value *out = onnx_out(m, node, 0), *in = onnx_in(m, node, 0);
    if (!in) return onnx_refuse(m, node, "its input is missing");
    MM_TRY(onnx_numbers(m, node, 1, NULL, &n, from));
    MM_TRY(onnx_numbers(m, node, 2, NULL, &n_to, to));
    MM_TRY(onnx_numbers(m, node, 3, NULL, &n_axes, axes));
    MM_TRY(onnx_numbers(m, node, 4, NULL, &n_steps, steps));
    if (n < 1 || n_to != n || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n))
        return onnx_refuse(m, node, "its starts, ends, axes and steps differ in number");
    onnx_value part = *in; /* cut axis by axis */
    for (int i = 0; i < n; i++) {
        const int rank = onnx_dims(m, &part, dims);
        const int64_t step = n_steps < 0 ? 1 : steps[i];
        int axis;
        if (rank < 0) return onnx_refuse(m, node, "the shape of its input is not known");
        MM_TRY(onnx_axis(m, node, n_axes < 0 ? i : axes[i], rank, &axis));
        const int64_t size = dims[axis];
        if (step == 0 || step == INT64_MIN) return onnx_refuse(m, node, "a step of %lld", (long long)step);
        int64_t first = from[i] < 0 ? from[i] + size : from[i], end = to[i] < 0 ? to[i] + size : to[i];
        first = clamp(first, 0, step > 0 ? size : size - 1);
        end = clamp(end, step > 0 ? 0 : -1, size);
        const int64_t count = step > 0 ? (end - first + step - 1) / step : (first - end - step - 1) / -step;
        onnx_value cut = part;
        MM_TRY(give_part(m, node, &part, &cut, axis, first, count < 0 ? 0 : count, step, false));
        part = cut;
    }
    const onnx_value before = *out;
    *out = part;
    out->name = before.name;
    out->uses = before.uses;
    out->sole = false;
    return MM_OK;
}

static mm_status split(onnx_import *m, const onnx_node *node) {
    int64_t sizes[ONNX_RANK_MAX], dims[ONNX_RANK_MAX], first = 0;
    onnx_value *in = onnx_in(m, node, 0);
    const int rank = in ? onnx_dims(m, in, dims) : -1;
    int n, axis;
    if (rank < 0) return onnx_refuse(m, node, "the shape of its input is not known");
    MM_TRY(onnx_axis(m, node, onnx_attr_int(node, "axis", 0), rank, &axis));
    MM_TRY(onnx_numbers(m, node, 1, "split", &n, sizes));
    if (n >= 0 && n != node->n_outputs)
        return onnx_refuse(m, node, "it has %d outputs and %d sizes", node->n_outputs, n);
    const int64_t each = (dims[axis] + node->n_outputs - 1) / node->n_outputs;
    for (int i = 0; i < node->n_outputs; i++) {
        const int64_t size = n >= 0 ? sizes[i] : dims[axis] - first < each ? dims[axis] - first : each;
        if (size < 0 || size > dims[axis] - first) return onnx_refuse(m, node, "its parts are more than its input");
        onnx_value *out = onnx_out(m, node, i);
        if (out && out->uses) MM_TRY(give_part(m, node, in, out, axis, first, size, 1, false));
        if (out) out->sole = false;
        first += size;
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- rows by index */

/* A constant's rows by constant indices. */
static mm_status gather_constant(onnx_import *m, const onnx_node *node, onnx_tensor *from, onnx_tensor *index,
                                 int axis) {
    int64_t dims[2 * ONNX_RANK_MAX], strides[ONNX_RANK_MAX];
    const int rank = from->rank - 1 + index->rank;
    onnx_tensor *to;
    if (rank > ONNX_RANK_MAX || index->real) return onnx_refuse(m, node, "its result has %d dimensions", rank);
    memcpy(dims, from->dims, (size_t)axis * sizeof *dims);
    memcpy(dims + axis, index->dims, (size_t)index->rank * sizeof *dims);
    memcpy(dims + axis + index->rank, from->dims + axis + 1, (size_t)(from->rank - axis - 1) * sizeof *dims);
    onnx_strides(from->rank, from->dims, strides);
    MM_TRY(onnx_tensor_create(&m->tensors, from->real, rank, dims, &to));
    const int64_t inner = strides[axis], size = from->dims[axis];
    bool in_order = axis == 0 && index->elems == size;
    for (int64_t i = 0; i < to->elems; i++) {
        const int64_t n = index->elems; /* above 0, or there would be no element */
        const int64_t outer = i / (inner * n), k = i / inner % n;
        const int64_t row = index->wholes[k] < 0 ? index->wholes[k] + size : index->wholes[k];
        if (row < 0 || row >= size) return onnx_refuse(m, node, "index %lld of %lld", (long long)row, (long long)size);
        in_order = in_order && row == k;
        const int64_t at = (outer * size + row) * inner + i % inner;
        if (from->real)
            to->reals[i] = from->reals[at];
        else
            to->wholes[i] = from->wholes[at];
    }
    to->name = in_order && !from->transposed ? from->name : NULL;
    onnx_give_constant(onnx_out(m, node, 0), to);
    return MM_OK;
}

/* A constant's parts by constant lists of indices, each of the first axes. */
static mm_status gather_nd(onnx_import *m, const onnx_node *node) {
    onnx_tensor *from, *index, *to;
    int64_t dims[2 * ONNX_RANK_MAX], strides[ONNX_RANK_MAX];
    MM_TRY(onnx_in_constant(m, node, 0, &from));
    MM_TRY(onnx_in_constant(m, node, 1, &index));
    const int64_t n = index && index->rank ? index->dims[index->rank - 1] : -1; /* axes that an index has */
    if (!from || n < 1 || n > from->rank || index->real || onnx_attr_int(node, "batch_dims", 0))
        return onnx_refuse(m, node, "its indices are not read");
    const int outer = index->rank - 1, inner = from->rank - (int)n;
    if (outer + inner > ONNX_RANK_MAX) return onnx_refuse(m, node, "its result has %d dimensions", outer + inner);
    memcpy(dims, index->dims, (size_t)outer * sizeof *dims);
    memcpy(dims + outer, from->dims + n, (size_t)inner * sizeof *dims);
    onnx_strides(from->rank, from->dims, strides);
    MM_TRY(onnx_tensor_create(&m->tensors, from->real, outer + inner, dims, &to));
    const int64_t block = strides[n - 1];
    for (int64_t i = 0; i < to->elems; i++) {
        int64_t at = i % block;
        for (int64_t k = 0; k < n; k++) {
            const int64_t given = index->wholes[i / block * n + k], row = given < 0 ? given + from->dims[k] : given;
            if (row < 0 || row >= from->dims[k])
                return onnx_refuse(m, node, "index %lld of %lld", (long long)given, (long long)from->dims[k]);
            at += row * strides[k];
        }
        onnx_tensor_put(to, i, onnx_tensor_at(from, at));
    }
    onnx_give_constant(onnx_out(m, node, 0), to);
    return MM_OK;
}

/* A constant's rows by tokens: an embedding. */
static mm_status embed(onnx_import *m, const onnx_node *node, onnx_tensor *weight) {
    onnx_value *tokens;
    int whole, draft;
    MM_TRY(onnx_in_map(m, node, 1, &tokens));
    MM_TRY(onnx_whole(m, node, tokens, &whole));
    if (!m->tokens || whole != 0 || weight->rank != 2 || !weight->real || onnx_attr_int(node, "axis", 0) != 0)
        return onnx_refuse(m, node, "it is supported as an embedding: rows of a matrix by the input's tokens");
    const nets_attrs attrs = {.vocabulary = weight->dims[0], .out_channels = weight->dims[1]};
    MM_TRY(onnx_draft_add(m, node, NETS_EMBEDDING, &attrs, &whole, 1, weight, &draft));
    m->drafts[draft].params[0].tensor = weight;
    onnx_view view = tokens->view;
    if (view.rank == ONNX_RANK_MAX || !onnx_view_move(&view, onnx_shape(m, whole), onnx_shape(m, draft)))
        return onnx_refuse(m, node, "its tokens are not in order");
    view.dims[view.rank++] = onnx_dim_of(weight->dims[1], 1);
    onnx_give_map(onnx_out(m, node, 0), draft, &view);
    return MM_OK;
}

static mm_status gather(onnx_import *m, const onnx_node *node) {
    onnx_value *in = onnx_in(m, node, 0), *by = onnx_in(m, node, 1);
    int64_t dims[ONNX_RANK_MAX];
    onnx_tensor *from, *index;
    int axis;
    if (!in || !by) return onnx_refuse(m, node, "an input is missing");
    if (in->kind == ONNX_CONSTANT && by->kind != ONNX_CONSTANT) {
        MM_TRY(onnx_constant(m, in, &from));
        return embed(m, node, from);
    }
    const int rank = onnx_dims(m, in, dims);
    if (rank < 0) return onnx_refuse(m, node, "the shape of its input is not known");
    MM_TRY(onnx_axis(m, node, onnx_attr_int(node, "axis", 0), rank, &axis));
    MM_TRY(onnx_in_constant(m, node, 1, &index));
    if (in->kind == ONNX_CONSTANT) {
        MM_TRY(onnx_constant(m, in, &from));
        return gather_constant(m, node, from, index, axis);
    }
    if (index->elems != 1 || index->real || index->rank > 1)
        return onnx_refuse(m, node, "layers here take one index of a map");
    const int64_t row = index->wholes[0] < 0 ? index->wholes[0] + dims[axis] : index->wholes[0];
    if (row < 0 || row >= dims[axis])
        return onnx_refuse(m, node, "index %lld of %lld", (long long)row, (long long)dims[axis]);
    MM_TRY(give_part(m, node, in, onnx_out(m, node, 0), axis, row, 1, 1, index->rank == 0));
    onnx_out(m, node, 0)->sole = false;
    return MM_OK;
}

const onnx_op onnx_part_ops[] = {
    {"Slice", slice, slice},       {"Split", split, split}, {"Gather", gather, gather},
    {"GatherND", NULL, gather_nd}, {NULL, NULL, NULL},
};
