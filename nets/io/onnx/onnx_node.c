/* SPDX-License-Identifier: MIT */
/* What handlers read of nodes: inputs, attributes, constants; and what they fail with. */
#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

mm_status onnx_refused(const onnx_import *m, const onnx_node *node, mm_status status) {
    if (!node) return mm_fail_in(status, "%s", m->path);
    return mm_fail_in(status, "%s: node %.80s (%.32s)", m->path, node->name, node->op);
}

onnx_value *onnx_in(const onnx_import *m, const onnx_node *node, int i) {
    const int value = i < node->n_inputs ? m->links[node->first_value + i] : -1;
    return value < 0 ? NULL : &m->values[value];
}

onnx_value *onnx_out(const onnx_import *m, const onnx_node *node, int i) {
    const int value = i < node->n_outputs ? m->links[node->first_value + node->n_inputs + i] : -1;
    return value < 0 ? NULL : &m->values[value];
}

/* ---------------------------------------------------------------- attributes */

const Onnx__AttributeProto *onnx_attr(const onnx_node *node, const char *name) {
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const Onnx__AttributeProto *attr = node->proto->attribute[i];
        if (attr->name && strcmp(attr->name, name) == 0) return attr;
    }
    return NULL;
}

bool onnx_attr_given(const onnx_node *node, const char *name) { return onnx_attr(node, name); }

int64_t onnx_attr_int(const onnx_node *node, const char *name, int64_t otherwise) {
    const Onnx__AttributeProto *attr = onnx_attr(node, name);
    return attr ? attr->i : otherwise;
}

double onnx_attr_real(const onnx_node *node, const char *name, double otherwise) {
    const Onnx__AttributeProto *attr = onnx_attr(node, name);
    return attr ? (double)attr->f : otherwise;
}

const char *onnx_attr_text(const onnx_node *node, const char *name, char text_out[ONNX_TEXT_CAPACITY]) {
    const Onnx__AttributeProto *attr = onnx_attr(node, name);
    size_t n = 0;
    for (; attr && n < attr->s.len && n + 1 < ONNX_TEXT_CAPACITY; n++) {
        const char c = (char)attr->s.data[n];
        text_out[n] = c;
        if (c < ' ' || c > '~') text_out[n] = '?';
    }
    text_out[n] = '\0';
    return text_out;
}

mm_status onnx_attr_ints(const onnx_import *m, const onnx_node *node, const char *name, int n, int64_t otherwise,
                         int64_t numbers_out[]) {
    const Onnx__AttributeProto *attr = onnx_attr(node, name);
    if (attr && attr->n_ints != (size_t)n)
        return onnx_refuse(m, node, "%s has %zu numbers, not %d as for images", name, attr->n_ints, n);
    for (int i = 0; i < n; i++) numbers_out[i] = attr ? attr->ints[i] : otherwise;
    return MM_OK;
}

/* ---------------------------------------------------------------- constants */

mm_status onnx_in_constant(onnx_import *m, const onnx_node *node, int i, onnx_tensor **tensor_out) {
    onnx_value *value = onnx_in(m, node, i);
    *tensor_out = NULL;
    if (!value) return MM_OK;
    if (value->kind != ONNX_CONSTANT)
        return onnx_refuse(m, node, "its input %.64s is computed from the data; here it must be constant", value->name);
    return onnx_constant(m, value, tensor_out);
}

mm_status onnx_in_number(onnx_import *m, const onnx_node *node, int i, double otherwise, double *number_out) {
    onnx_tensor *tensor;
    MM_TRY(onnx_in_constant(m, node, i, &tensor));
    if (tensor && tensor->elems != 1) return onnx_refuse(m, node, "its input %d must be one number", i);
    *number_out = tensor ? onnx_tensor_at(tensor, 0) : otherwise;
    return MM_OK;
}

mm_status onnx_numbers(onnx_import *m, const onnx_node *node, int i, const char *name, int *n_out,
                       int64_t numbers_out[ONNX_RANK_MAX]) {
    onnx_tensor *tensor;
    const Onnx__AttributeProto *attr = name ? onnx_attr(node, name) : NULL;
    MM_TRY(onnx_in_constant(m, node, i, &tensor));
    *n_out = -1;
    if (!tensor && !attr) return MM_OK;
    const int64_t n = tensor ? tensor->elems : (int64_t)attr->n_ints;
    if (n > ONNX_RANK_MAX || (tensor && tensor->real))
        return onnx_refuse(m, node, "%s must be at most %d whole numbers", name ? name : "an input", ONNX_RANK_MAX);
    for (int64_t k = 0; k < n; k++) numbers_out[k] = tensor ? tensor->wholes[k] : attr->ints[k];
    *n_out = (int)n;
    return MM_OK;
}

mm_status onnx_axis(const onnx_import *m, const onnx_node *node, int64_t axis, int rank, int *axis_out) {
    if (axis < -rank || axis >= rank)
        return onnx_refuse(m, node, "axis %lld of a tensor of %d dimensions", (long long)axis, rank);
    *axis_out = (int)(axis < 0 ? axis + rank : axis);
    return MM_OK;
}

/* ---------------------------------------------------------------- maps */

int onnx_dims(const onnx_import *m, const onnx_value *value, int64_t dims_out[ONNX_RANK_MAX]) {
    (void)m;
    if (value->kind == ONNX_MAP) {
        for (int d = 0; d < value->view.rank; d++) dims_out[d] = onnx_dim_size(&value->view.dims[d]);
        return value->view.rank;
    }
    if (value->kind != ONNX_CONSTANT) return -1;
    if (value->constant) {
        memcpy(dims_out, value->constant->dims, (size_t)value->constant->rank * sizeof *dims_out);
        return value->constant->rank;
    }
    if (value->initializer->proto->n_dims > ONNX_RANK_MAX) return -1;
    for (size_t d = 0; d < value->initializer->proto->n_dims; d++) dims_out[d] = value->initializer->proto->dims[d];
    return (int)value->initializer->proto->n_dims;
}

mm_status onnx_in_map(const onnx_import *m, const onnx_node *node, int i, onnx_value **value_out) {
    static const char *const others[] = {[ONNX_UNKNOWN] = "given by no earlier node",
                                         [ONNX_CONSTANT] = "a constant",
                                         [ONNX_SCORES] = "a part of attention, queries times keys",
                                         [ONNX_SHARES] = "a part of attention, a softmax",
                                         [ONNX_IS_NAN] = "a part of attention, IsNaN"};
    onnx_value *value = onnx_in(m, node, i);
    if (!value) return onnx_refuse(m, node, "its input %d is missing", i);
    if (value->kind != ONNX_MAP)
        return onnx_refuse(m, node, "no layer here takes its input %.64s, %s", value->name, others[value->kind]);
    *value_out = value;
    return MM_OK;
}
