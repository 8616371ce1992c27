/* SPDX-License-Identifier: MIT */
#include "tests/cuda_emulation/cudnn_operations.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_emulation/cudnn_loops.h"
#include "tests/cuda_emulation/enqueue.h"
#include "tests/cuda_emulation/libraries.h"

static _Atomic cuda_emulation_outputs outputs = OUTPUTS_RIGHT;
static atomic_int runs;
static atomic_bool unordered_faster;

void cuda_emulation_dnn_outputs(cuda_emulation_outputs how) { atomic_store(&outputs, how); }
void cuda_emulation_dnn_unordered(bool faster) { atomic_store(&unordered_faster, faster); }

/* ---------------------------------------------------------------- a job */

typedef struct tensor {
    int64_t id, dims[4], strides[4];
    cudnnDataType_t type;
    bool is_virtual;
    void *data;  /* NULL: the tensor is virtual, and the job is not running */
    float value; /* of a tensor passed by value: `data` points at it */
} tensor;

typedef struct operation {
    cudnnBackendDescriptorType_t type;
    int how; /* the pointwise mode, or the operator of a reduction */
    int64_t axis;
    int x, b, t, y; /* tensors; -1: none */
} operation;

typedef struct job {
    tensor tensors[DNN_TENSORS];
    operation operations[DNN_OPERATIONS];
    int n_tensors, n;
    unsigned char *workspace;
    int64_t bytes;
    double time;
} job;

static const dnn_descriptor *operation_at(const dnn_descriptor *graph, int i) {
    return ((dnn_descriptor *const *)dnn_values(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS))[i];
}

/* cuDNN's names for a type of operation and its attributes. */
typedef struct names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t of, how, x, b, t, y;
} names;

static const names *names_of(const dnn_descriptor *operation) {
    static const names NAMES[] = {
        {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_ATTR_MATMUL_COMP_TYPE,
         CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
         CUDNN_ATTR_OPERATION_MATMUL_CDESC},
        {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
         CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
         CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
        {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
         CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
         CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
        {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_REDUCTION_OPERATOR,
         CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
         CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (NAMES[i].type == operation->type) return &NAMES[i];
    return NULL;
}

bool dnn_is_of_operations(const dnn_descriptor *graph) { return names_of(operation_at(graph, 0)) != NULL; }

int64_t dnn_samples(const dnn_descriptor *graph) {
    const names *n = names_of(operation_at(graph, 0));
    if (!n) return 1;
    return *(const int64_t *)dnn_values(dnn_reference(operation_at(graph, 0), n->x), CUDNN_ATTR_TENSOR_DIMENSIONS);
}

/* Adds the operation's tensor of that name to the job, if it is new. Returns its number; -1: there is none. */
static int add_tensor(job *j, const dnn_descriptor *operation, cudnnBackendAttributeName_t name,
                      const dnn_descriptor *pack) {
    if (!dnn_find(operation, name)) return -1;
    const dnn_descriptor *of = dnn_reference(operation, name);
    const int64_t id = dnn_number(of, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    const dnn_attribute *ids = dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *pointers = dnn_values(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int i = 0; i < j->n_tensors; i++)
        if (j->tensors[i].id == id) return i;
    tensor *t = &j->tensors[j->n_tensors];
    t->id = id;
    memcpy(t->dims, dnn_values(of, CUDNN_ATTR_TENSOR_DIMENSIONS), sizeof t->dims);
    memcpy(t->strides, dnn_values(of, CUDNN_ATTR_TENSOR_STRIDES), sizeof t->strides);
    t->type = *(const cudnnDataType_t *)dnn_values(of, CUDNN_ATTR_TENSOR_DATA_TYPE);
    t->is_virtual = *(const bool *)dnn_values(of, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    for (int64_t i = 0; i < ids->count; i++)
        if (((const int64_t *)ids->values)[i] == id) t->data = pointers[i];
    if (*(const bool *)dnn_values(of, CUDNN_ATTR_TENSOR_IS_BY_VALUE)) {
        t->value = *(const float *)t->data;
        t->data = &t->value;
    }
    return j->n_tensors++;
}

/* ---------------------------------------------------------------- running */

static int64_t offset_of(const tensor *t, const int64_t at[4]) {
    int64_t offset = 0;
    for (int d = 0; d < 4; d++) offset += (at[d] < t->dims[d] ? at[d] : t->dims[d] - 1) * t->strides[d];
    return offset;
}

static float load_at(const tensor *t, int64_t offset) {
    return t->type == CUDNN_DATA_BFLOAT16 && !t->is_virtual
               ? cuda_emulation_bf16_value(((const uint16_t *)t->data)[offset])
               : ((const float *)t->data)[offset];
}

/* A dimension with fewer elements repeats its last one. */
static float load(const tensor *t, const int64_t at[4]) { return load_at(t, offset_of(t, at)); }

static void store(const tensor *t, const int64_t at[4], float value) {
    const int64_t offset = offset_of(t, at);
    const cuda_emulation_outputs how = atomic_load(&outputs);
    if (!t->is_virtual && how == OUTPUTS_WRONG) value *= 1.1f;
    if (!t->is_virtual && how == OUTPUTS_UNSTEADY) value *= 1 + 0x1p-8f * (float)(atomic_load(&runs) % 64);
    const uint16_t half = t->type == CUDNN_DATA_BFLOAT16 ? cuda_emulation_bf16(value) : 0;
    if (t->type == CUDNN_DATA_BFLOAT16 && !t->is_virtual)
        ((uint16_t *)t->data)[offset] = half;
    else
        ((float *)t->data)[offset] = t->type == CUDNN_DATA_BFLOAT16 ? cuda_emulation_bf16_value(half) : value;
}

static float each(const operation *o, const job *j, const int64_t at[4]) {
    const float x = load(&j->tensors[o->x], at), b = o->b < 0 ? 0 : load(&j->tensors[o->b], at);
    switch (o->how) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_GEN_INDEX:
        return (float)at[o->axis];
    case CUDNN_POINTWISE_BINARY_SELECT:
        return load(&j->tensors[o->t], at) != 0 ? x : b;
    default:
        return NAN;
    }
}

/* The head of t of which `head` of so many is one of a group: neighbours share a head. */
static int64_t group_of(const tensor *t, int64_t head, int64_t heads) { return head * t->dims[1] / heads; }

/* Sums x over the heads of a group, each of which is a head of y. */
static float over_group(const tensor *x, const tensor *y, const int64_t at[4]) {
    const int64_t n = x->dims[1] / y->dims[1];
    float sum = 0;
    for (int64_t k = 0; k < n; k++) sum += load(x, (const int64_t[4]){at[0], at[1] * n + k, at[2], at[3]});
    return sum;
}

/* The factor of a product in b's row k. */
static float load_of_group(const tensor *b, const tensor *y, const int64_t at[4], int64_t k) {
    return load(b, (const int64_t[4]){at[0], group_of(b, at[1], y->dims[1]), k, at[3]});
}

/* Sums, or takes the maximum, over x's last dimension: of its elements, or their products with b's. */
static float over(const operation *o, const job *j, const int64_t at[4]) {
    const tensor *x = &j->tensors[o->x], *y = &j->tensors[o->y];
    if (y->dims[1] < x->dims[1]) return over_group(x, y, at);
    const bool product = o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    const bool most = !product && o->how == CUDNN_REDUCE_TENSOR_MAX;
    float sum = most ? -INFINITY : 0;
    for (int64_t k = 0; k < x->dims[3]; k++) {
        const float a = load(x, (const int64_t[4]){at[0], group_of(x, at[1], y->dims[1]), at[2], k});
        if (most)
            sum = fmaxf(sum, a);
        else
            sum += product ? a * load_of_group(&j->tensors[o->b], y, at, k) : a;
    }
    return sum;
}

static void compute(const operation *o, const job *j) {
    const tensor *y = &j->tensors[o->y];
    int64_t at[4];
    for (at[0] = 0; at[0] < y->dims[0]; at[0]++)
        for (at[1] = 0; at[1] < y->dims[1]; at[1]++)
            for (at[2] = 0; at[2] < y->dims[2]; at[2]++)
                for (at[3] = 0; at[3] < y->dims[3]; at[3]++) {
                    const bool turns = o->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
                    const bool is_each = o->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
                    store(y, at,
                          turns     ? load_at(&j->tensors[o->x], offset_of(y, at))
                          : is_each ? each(o, j, at)
                                    : over(o, j, at));
                }
}

static int64_t extent(const tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < 4; d++) n += (t->dims[d] - 1) * t->strides[d];
    return n;
}

/* Works on a copy, because the job may run again. */
static void run(void *arg) {
    job j = *(const job *)arg;
    atomic_fetch_add(&runs, 1);
    if (j.bytes) memset(j.workspace, 0xa5, (size_t)j.bytes);
    for (int i = 0; i < j.n_tensors; i++) {
        tensor *t = &j.tensors[i];
        if (t->is_virtual) t->data = calloc((size_t)extent(t), sizeof(float));
    }
    for (int i = 0; i < j.n; i++) compute(&j.operations[i], &j);
    if (j.time > 0 && cuda_emulation_is_trial(j.tensors[0].data, j.tensors[0].type == CUDNN_DATA_BFLOAT16))
        cuda_emulation_pass_trial(j.time);
    for (int i = 0; i < j.n_tensors; i++)
        if (j.tensors[i].is_virtual) free(j.tensors[i].data);
}

/* Whether the job is the one of attention's two backwards that takes longer in trials (cuda_emulation_dnn_unordered). A
 * backward is told from a forward by its reshape; the unordered one from the other by an identity, which rounds the sum
 * in memory. */
static bool is_slower(const job *j) {
    bool turns = false, rounds = false;
    for (int i = 0; i < j->n; i++) {
        turns |= j->operations[i].type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
        rounds |= j->operations[i].type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR &&
                  j->operations[i].how == CUDNN_POINTWISE_IDENTITY;
    }
    return turns && rounds != atomic_load(&unordered_faster);
}

cudnnStatus_t dnn_operations_enqueue(cudaStream_t stream, const dnn_descriptor *graph, const dnn_descriptor *pack,
                                     int64_t bytes, double time) {
    const int64_t n = dnn_find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)->count;
    job *j = calloc(1, sizeof *j);
    if (!j) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    j->workspace = *(unsigned char *const *)dnn_values(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    j->bytes = bytes;
    j->time = time;
    for (; j->n < n; j->n++) {
        const dnn_descriptor *from = operation_at(graph, j->n);
        const names *names = names_of(from);
        const dnn_descriptor *of = dnn_find(from, names->of) ? dnn_reference(from, names->of) : NULL;
        operation *o = &j->operations[j->n];
        *o = (operation){
            .type = from->type,
            .how = of ? *(const int *)dnn_values(of, names->how) : 0,
            .axis = of && dnn_find(of, CUDNN_ATTR_POINTWISE_AXIS) ? dnn_number(of, CUDNN_ATTR_POINTWISE_AXIS) : 0,
            .x = add_tensor(j, from, names->x, pack),
            .b = add_tensor(j, from, names->b, pack),
            .t = add_tensor(j, from, names->t, pack),
            .y = add_tensor(j, from, names->y, pack)};
    }
    if (is_slower(j)) j->time += 1;
    bool whole = !bytes || j->workspace;
    for (int i = 0; i < j->n_tensors; i++) whole &= j->tensors[i].is_virtual == (j->tensors[i].data == NULL);
    if (whole) return dnn_status(cuda_emulation_enqueue(stream, run, j));
    free(j);
    return CUDNN_STATUS_BAD_PARAM;
}
