/* SPDX-License-Identifier: MIT */
#include "tests/cuda_emulation/cudnn_descriptor.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_emulation/cudnn_loops.h"
#include "tests/cuda_emulation/enqueue.h"
#include "tests/cuda_emulation/libraries.h"

/* Global, because the real library has one state for the whole process. */
static atomic_long alive;

long cuda_emulation_dnn_descriptors(void) { return atomic_load(&alive); }

/* ---------------------------------------------------------------- attributes that are allowed */

typedef struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most;
    bool optional;
} rule;

#define ONE(of, name, type)                                                                                            \
    { CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, 1, false }
#define SOME(of, name, type, n)                                                                                        \
    { CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, n, n, false }
#define MAYBE(of, name, type)                                                                                          \
    { CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, 1, true }
#define OPERATION(of, name, x, y, w)                                                                                   \
    ONE(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_##x, BACKEND_DESCRIPTOR),                           \
        ONE(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_##y, BACKEND_DESCRIPTOR),                       \
        ONE(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_##w, BACKEND_DESCRIPTOR),                       \
        ONE(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_CONV_DESC, BACKEND_DESCRIPTOR),                 \
        ONE(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_ALPHA, FLOAT),                                  \
        ONE(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_BETA, FLOAT)

static const rule RULES[] = {
    ONE(TENSOR, TENSOR_UNIQUE_ID, INT64),
    ONE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE),
    ONE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64),
    SOME(TENSOR, TENSOR_DIMENSIONS, INT64, 4),
    SOME(TENSOR, TENSOR_STRIDES, INT64, 4),
    MAYBE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN),
    MAYBE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN),
    ONE(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE),
    ONE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE),
    ONE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64),
    SOME(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 2),
    SOME(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 2),
    SOME(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 2),
    SOME(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 2),
    OPERATION(FORWARD, FORWARD, X, Y, W),
    OPERATION(BACKWARD_DATA, BWD_DATA, DX, DY, W),
    OPERATION(BACKWARD_FILTER, BWD_FILTER, X, DY, DW),
    ONE(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR),
    ONE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE),
    ONE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE),
    MAYBE(POINTWISE, POINTWISE_AXIS, INT64),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR),
    MAYBE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR),
    MAYBE(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR),
    ONE(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE),
    ONE(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR),
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     DNN_OPERATIONS, false},
    ONE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE),
    ONE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR),
    ONE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE),
    ONE(ENGINE, ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR),
    ONE(ENGINE, ENGINE_GLOBAL_INDEX, INT64),
    ONE(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE),
    ONE(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64),
    ONE(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR),
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, DNN_KNOBS,
     true},
    ONE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR),
    ONE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE),
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, DNN_TENSORS,
     false},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, DNN_TENSORS,
     false},
    ONE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR),
};
enum { N_RULES = sizeof RULES / sizeof RULES[0] };

static const rule *find_rule(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name) {
    for (int i = 0; i < N_RULES; i++)
        if (RULES[i].of == of && RULES[i].name == name) return &RULES[i];
    return NULL;
}

static size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_FLOAT:
        return sizeof(float);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return sizeof(int); /* an enum */
    }
}

bool dnn_complete(const dnn_descriptor *of) {
    for (int i = 0; i < N_RULES; i++)
        if (RULES[i].of == of->type && !RULES[i].optional && !dnn_find(of, RULES[i].name)) return false;
    return true;
}

/* ---------------------------------------------------------------- attributes that were set */

const dnn_attribute *dnn_find(const dnn_descriptor *of, cudnnBackendAttributeName_t name) {
    for (int i = 0; i < of->n; i++)
        if (of->set[i].name == name) return &of->set[i];
    return NULL;
}

const void *dnn_values(const dnn_descriptor *of, cudnnBackendAttributeName_t name) {
    return dnn_find(of, name)->values;
}

int64_t dnn_number(const dnn_descriptor *of, cudnnBackendAttributeName_t name) {
    return *(const int64_t *)dnn_values(of, name);
}

const dnn_descriptor *dnn_reference(const dnn_descriptor *of, cudnnBackendAttributeName_t name) {
    return *(dnn_descriptor *const *)dnn_values(of, name);
}

static bool all_finalized(const void *values, int64_t count) {
    dnn_descriptor *const *references = values;
    for (int64_t i = 0; i < count; i++)
        if (!references[i] || !references[i]->finalized) return false;
    return true;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    dnn_descriptor *d = descriptor;
    cudnnStatus_t status = dnn_status(cuda_emulation_enter("cudnnBackendSetAttribute"));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    const rule *r = find_rule(d->type, name);
    if (!r || r->type != type || count < r->least || count > r->most || !values || d->finalized || dnn_find(d, name))
        return CUDNN_STATUS_BAD_PARAM;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && !all_finalized(values, count))
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    void *copy = malloc((size_t)count * size_of(type));
    if (!copy) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    memcpy(copy, values, (size_t)count * size_of(type));
    d->set[d->n++] = (dnn_attribute){name, count, copy};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
    cudnnStatus_t status = dnn_status(cuda_emulation_enter("cudnnBackendCreateDescriptor"));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    dnn_descriptor *d = calloc(1, sizeof *d);
    if (!d) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    d->type = type;
    atomic_fetch_add(&alive, 1);
    *descriptor = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    dnn_descriptor *d = descriptor;
    for (int i = 0; i < d->n; i++) free(d->set[i].values);
    free(d);
    atomic_fetch_sub(&alive, 1);
    return CUDNN_STATUS_SUCCESS;
}
