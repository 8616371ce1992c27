/* SPDX-License-Identifier: MIT */
/* Operations that compute nothing: other shapes and orders, and constants made of these. */
#include <math.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

/* ---------------------------------------------------------------- constants from nothing */

static mm_status constant(onnx_import *m, const onnx_node *node) {
    const Onnx__AttributeProto *attr = node->proto->n_attribute ? node->proto->attribute[0] : NULL;
    onnx_tensor *tensor;
    if (!attr || !attr->name) return onnx_refuse(m, node, "it has no value");
    if (strcmp(attr->name, "value") == 0 && attr->t) {
        MM_TRY(onnx_tensor_read(m, attr->t, &tensor));
        tensor->name = NULL;
    } else if (strcmp(attr->name, "value_int") == 0 || strcmp(attr->name, "value_float") == 0) {
        const bool real = attr->name[6] == 'f';
        MM_TRY(onnx_tensor_create(&m->tensors, real, 0, NULL, &tensor));
        onnx_tensor_put(tensor, 0, real ? (double)attr->f : (double)attr->i);
    } else if (strcmp(attr->name, "value_ints") == 0 || strcmp(attr->name, "value_floats") == 0) {
        const bool real = attr->name[6] == 'f';
        const int64_t n = real ? (int64_t)attr->n_floats : (int64_t)attr->n_ints;
        MM_TRY(onnx_tensor_create(&m->tensors, real, 1, &n, &tensor));
        for (int64_t i = 0; i < n; i++)
            onnx_tensor_put(tensor, i, real ? (double)attr->floats[i] : (double)attr->ints[i]);
    } else {
        return onnx_refuse(m, node, "its %.32s is not read", attr->name);
    }
    onnx_give_constant(onnx_out(m, node, 0), tensor);
    return MM_OK;
}

static mm_status constant_of_shape(onnx_import *m, const onnx_node *node) {
    const Onnx__AttributeProto *attr = onnx_attr(node, "value");
    int64_t dims[ONNX_RANK_MAX];
    int rank;
    onnx_tensor *value = NULL, *tensor;
    MM_TRY(onnx_numbers(m, node, 0, NULL, &rank, dims));
    if (rank < 0) return onnx_refuse(m, node, "it has no shape");
    if (attr && attr->t) MM_TRY(onnx_tensor_read(m, attr->t, &value));
    if (value && value->elems != 1) return onnx_refuse(m, node, "its value must be one number");
    MM_TRY(onnx_tensor_create(&m->tensors, !value || value->real, rank, dims, &tensor));
    for (int64_t i = 0; value && i < tensor->elems; i++) onnx_tensor_put(tensor, i, onnx_tensor_at(value, 0));
    onnx_give_constant(onnx_out(m, node, 0), tensor);
    return MM_OK;
}

static mm_status range(onnx_import *m, const onnx_node *node) {
    onnx_tensor *in[3], *tensor;
    for (int i = 0; i < 3; i++) {
        MM_TRY(onnx_in_constant(m, node, i, &in[i]));
        if (!in[i] || in[i]->elems != 1) return onnx_refuse(m, node, "its inputs must be numbers");
    }
    const double from = onnx_tensor_at(in[0], 0), to = onnx_tensor_at(in[1], 0), step = onnx_tensor_at(in[2], 0);
    const double n = ceil((to - from) / step);
    if (!(step != 0) || !(n < 1e9)) return onnx_refuse(m, node, "from %g to %g by %g", from, to, step);
    MM_TRY(onnx_tensor_create(&m->tensors, in[0]->real, 1, &(int64_t){n > 0 ? (int64_t)n : 0}, &tensor));
    for (int64_t i = 0; i < tensor->elems; i++) onnx_tensor_put(tensor, i, from + (double)i * step);
    onnx_give_constant(onnx_out(m, node, 0), tensor);
    return MM_OK;
}

static mm_status shape(onnx_import *m, const onnx_node *node) {
    int64_t dims[ONNX_RANK_MAX];
    const onnx_value *in = onnx_in(m, node, 0);
    const int rank = in ? onnx_dims(m, in, dims) : -1;
    if (rank < 0) return onnx_refuse(m, node, "the shape of its input is not known");
    int64_t from = onnx_attr_int(node, "start", 0), to = onnx_attr_int(node, "end", rank);
    from = from < 0 ? from + rank : from;
    to = to < 0 ? to + rank : to;
    from = from < 0 ? 0 : from > rank ? rank : from;
    to = to < from ? from : to > rank ? rank : to;
    onnx_tensor *tensor;
    MM_TRY(onnx_tensor_of(&m->tensors, dims + from, (int)(to - from), &tensor));
    onnx_give_constant(onnx_out(m, node, 0), tensor);
    return MM_OK;
}

/* 1 - upper: keeps the elements below the diagonal k, else those above. */
static mm_status trilu(onnx_import *m, const onnx_node *node) {
    onnx_tensor *in, *out;
    double k;
    MM_TRY(onnx_in_constant(m, node, 0, &in));
    MM_TRY(onnx_in_number(m, node, 1, 0, &k));
    if (!in || in->rank < 2) return onnx_refuse(m, node, "its input is no matrix");
    const bool upper = onnx_attr_int(node, "upper", 1);
    const int64_t rows = in->dims[in->rank - 2], columns = in->dims[in->rank - 1];
    MM_TRY(onnx_tensor_create(&m->tensors, in->real, in->rank, in->dims, &out));
    for (int64_t i = 0; i < in->elems; i++) {
        const int64_t row = i / columns % rows, column = i % columns;
        if (upper ? column - row >= k : column - row <= k) onnx_tensor_put(out, i, onnx_tensor_at(in, i));
    }
    onnx_give_constant(onnx_out(m, node, 0), out);
    return MM_OK;
}

static mm_status cum_sum(onnx_import *m, const onnx_node *node) {
    onnx_tensor *in, *out;
    double along;
    int axis;
    MM_TRY(onnx_in_constant(m, node, 0, &in));
    MM_TRY(onnx_in_number(m, node, 1, 0, &along));
    MM_TRY(onnx_axis(m, node, (int64_t)along, in->rank, &axis));
    if (onnx_attr_int(node, "exclusive", 0) || onnx_attr_int(node, "reverse", 0))
        return onnx_refuse(m, node, "exclusive or reverse sums are not computed");
    int64_t strides[ONNX_RANK_MAX];
    onnx_strides(in->rank, in->dims, strides);
    MM_TRY(onnx_tensor_create(&m->tensors, in->real, in->rank, in->dims, &out));
    for (int64_t i = 0; i < in->elems; i++) {
        const bool first = i / strides[axis] % in->dims[axis] == 0;
        onnx_tensor_put(out, i, onnx_tensor_at(in, i) + (first ? 0 : onnx_tensor_at(out, i - strides[axis])));
    }
    onnx_give_constant(onnx_out(m, node, 0), out);
    return MM_OK;
}

/* ---------------------------------------------------------------- the same elements in the same order */

/* Gives the output the input's elements, as dims. */
static mm_status give_reshaped(onnx_import *m, const onnx_node *node, int rank, const int64_t dims[]) {
    onnx_value *in = onnx_in(m, node, 0), *out = onnx_out(m, node, 0);
    if (in->kind == ONNX_CONSTANT) {
        onnx_tensor *from, *to;
        MM_TRY(onnx_constant(m, in, &from));
        int64_t strides[ONNX_RANK_MAX];
        onnx_strides(rank, dims, strides);
        MM_TRY(onnx_tensor_gather(&m->tensors, from, 0, rank, dims, strides, &to));
        to->name = from->name;
        to->transposed = from->transposed;
        onnx_give_constant(out, to);
        return MM_OK;
    }
    onnx_view view;
    onnx_value *map;
    MM_TRY(onnx_in_map(m, node, 0, &map));
    if (!onnx_view_reshape(&map->view, rank, dims, &view))
        return onnx_refuse(m, node, "it cuts a map's channels, height or width otherwise than layers here can");
    onnx_give_view(out, map, &view);
    return MM_OK;
}

static mm_status reshape(onnx_import *m, const onnx_node *node) {
    int64_t old[ONNX_RANK_MAX], dims[ONNX_RANK_MAX], elems = 1, known = 1;
    const onnx_value *in = onnx_in(m, node, 0);
    const int old_rank = in ? onnx_dims(m, in, old) : -1;
    int rank, open = -1;
    if (old_rank < 0) return onnx_refuse(m, node, "the shape of its input is not known");
    MM_TRY(onnx_numbers(m, node, 1, "shape", &rank, dims));
    if (rank < 0) return onnx_refuse(m, node, "it has no shape");
    for (int d = 0; d < old_rank; d++) elems *= old[d];
    for (int d = 0; d < rank; d++) {
        if (dims[d] == 0 && !onnx_attr_int(node, "allowzero", 0) && d < old_rank) dims[d] = old[d];
        if (dims[d] == -1 && open < 0)
            open = d;
        else
            known = nets_mul(known, dims[d]);
    }
    if (open >= 0 && known > 0) dims[open] = elems / known;
    if (known < 1 || elems < 1 || known * (open >= 0 ? dims[open] : 1) != elems)
        return onnx_refuse(m, node, "its input has %lld elements, its shape others", (long long)elems);
    return give_reshaped(m, node, rank, dims);
}

static mm_status flatten(onnx_import *m, const onnx_node *node) {
    int64_t old[ONNX_RANK_MAX], dims[2] = {1, 1}, axis = onnx_attr_int(node, "axis", 1);
    const onnx_value *in = onnx_in(m, node, 0);
    const int rank = in ? onnx_dims(m, in, old) : -1;
    if (rank < 0 || axis > rank || axis < -rank) return onnx_refuse(m, node, "the shape of its input is not known");
    if (axis < 0) axis += rank;
    for (int d = 0; d < rank; d++) dims[d >= axis] *= old[d];
    return give_reshaped(m, node, 2, dims);
}

/* Squeeze and Unsqueeze. */
static mm_status squeeze(onnx_import *m, const onnx_node *node) {
    const bool adds = strcmp(node->op, "Unsqueeze") == 0;
    int64_t old[ONNX_RANK_MAX], axes[ONNX_RANK_MAX], dims[2 * ONNX_RANK_MAX];
    const onnx_value *in = onnx_in(m, node, 0);
    const int rank = in ? onnx_dims(m, in, old) : -1;
    int n, to = 0, from = 0;
    bool marked[2 * ONNX_RANK_MAX] = {false};
    if (rank < 0) return onnx_refuse(m, node, "the shape of its input is not known");
    MM_TRY(onnx_numbers(m, node, 1, "axes", &n, axes));
    const int wide = adds ? rank + n : rank;
    if (adds && (n < 0 || wide > ONNX_RANK_MAX)) return onnx_refuse(m, node, "%d dimensions; at most 8 are read", wide);
    for (int i = 0; i < n; i++) {
        int axis;
        MM_TRY(onnx_axis(m, node, axes[i], wide, &axis));
        if (marked[axis]) return onnx_refuse(m, node, "axis %d is named twice", axis);
        marked[axis] = true;
    }
    for (int d = 0; d < wide; d++) {
        if (adds)
            dims[to++] = marked[d] ? 1 : old[from++];
        else if (!(n < 0 ? old[d] == 1 : marked[d]))
            dims[to++] = old[d];
        else if (old[d] != 1)
            return onnx_refuse(m, node, "dimension %d is %lld, not 1", d, (long long)old[d]);
    }
    return give_reshaped(m, node, to, dims);
}

mm_status onnx_same(onnx_import *m, const onnx_node *node) {
    onnx_value *in = onnx_in(m, node, 0), *out = onnx_out(m, node, 0);
    const char *name = out->name;
    const int uses = out->uses;
    if (!in || in->kind == ONNX_UNKNOWN) return onnx_refuse(m, node, "no earlier node gives its input");
    const bool sole = in->sole && in->uses == 1;
    *out = *in;
    out->name = name;
    out->uses = uses;
    out->sole = sole;
    return MM_OK;
}

static mm_status cast(onnx_import *m, const onnx_node *node) {
    onnx_value *in = onnx_in(m, node, 0);
    const int64_t to = onnx_attr_int(node, "to", 1);
    const bool real = to == 1 || to == 10 || to == 11 || to == 16; /* ONNX's float types */
    if (!in || in->kind != ONNX_CONSTANT) return onnx_same(m, node);
    onnx_tensor *from, *result;
    MM_TRY(onnx_constant(m, in, &from));
    if (from->real == real && to != 9) return onnx_same(m, node);
    MM_TRY(onnx_tensor_create(&m->tensors, real, from->rank, from->dims, &result));
    for (int64_t i = 0; i < from->elems; i++) {
        const double value = onnx_tensor_at(from, i);
        onnx_tensor_put(result, i, to == 9 ? value != 0 : value);
    }
    onnx_give_constant(onnx_out(m, node, 0), result);
    return MM_OK;
}

static mm_status expand(onnx_import *m, const onnx_node *node) {
    onnx_value *in = onnx_in(m, node, 0);
    int64_t own[ONNX_RANK_MAX], wanted[ONNX_RANK_MAX], dims[ONNX_RANK_MAX];
    int n, rank;
    MM_TRY(onnx_numbers(m, node, 1, NULL, &n, wanted));
    const int own_rank = in ? onnx_dims(m, in, own) : -1;
    if (n < 0 || own_rank < 0 || !onnx_broadcast(own_rank, own, n, wanted, &rank, dims))
        return onnx_refuse(m, node, "its input and its shape do not fit together");
    if (in->kind == ONNX_CONSTANT) {
        onnx_tensor *from, *to;
        bool fits;
        MM_TRY(onnx_constant(m, in, &from));
        MM_TRY(onnx_tensor_expand(&m->tensors, from, rank, dims, &fits, &to));
        to->name = to->elems == from->elems ? from->name : NULL;
        onnx_give_constant(onnx_out(m, node, 0), to);
        return MM_OK;
    }
    for (int d = 0; d < rank; d++)
        if (rank != own_rank || dims[d] != own[d]) return onnx_refuse(m, node, "layers here repeat no elements");
    return onnx_same(m, node);
}

static mm_status transpose(onnx_import *m, const onnx_node *node) {
    onnx_value *in = onnx_in(m, node, 0);
    const Onnx__AttributeProto *attr = onnx_attr(node, "perm");
    int64_t old[ONNX_RANK_MAX], dims[ONNX_RANK_MAX], strides[ONNX_RANK_MAX], own[ONNX_RANK_MAX];
    int order[ONNX_RANK_MAX];
    bool taken[ONNX_RANK_MAX] = {false};
    const int rank = in ? onnx_dims(m, in, old) : -1;
    if (rank < 0 || (attr && attr->n_ints != (size_t)rank)) return onnx_refuse(m, node, "its order is not its input's");
    for (int d = 0; d < rank; d++) {
        const int64_t from = attr ? attr->ints[d] : rank - 1 - d;
        if (from < 0 || from >= rank || taken[from]) return onnx_refuse(m, node, "its order is no order");
        taken[from] = true;
        order[d] = (int)from;
    }
    if (in->kind == ONNX_MAP) {
        const onnx_view view = onnx_view_transpose(&in->view, order);
        onnx_give_view(onnx_out(m, node, 0), in, &view);
        return MM_OK;
    }
    onnx_tensor *from, *to;
    MM_TRY(onnx_constant(m, in, &from));
    onnx_strides(rank, old, own);
    for (int d = 0; d < rank; d++) {
        dims[d] = old[order[d]];
        strides[d] = own[order[d]];
    }
    MM_TRY(onnx_tensor_gather(&m->tensors, from, 0, rank, dims, strides, &to));
    if (rank == 2) {
        to->name = from->name;
        to->transposed = from->transposed != (order[0] == 1);
    }
    onnx_give_constant(onnx_out(m, node, 0), to);
    return MM_OK;
}

const onnx_op onnx_shape_ops[] = {
    {"Constant", NULL, constant},
    {"ConstantOfShape", NULL, constant_of_shape},
    {"Range", NULL, range},
    {"Shape", shape, shape},
    {"Trilu", NULL, trilu},
    {"CumSum", NULL, cum_sum},
    {"Reshape", reshape, reshape},
    {"Flatten", flatten, flatten},
    {"Squeeze", squeeze, squeeze},
    {"Unsqueeze", squeeze, squeeze},
    {"Identity", onnx_same, onnx_same},
    {"Cast", cast, cast},
    {"Expand", expand, expand},
    {"Transpose", transpose, transpose},
    {NULL, NULL, NULL},
};
