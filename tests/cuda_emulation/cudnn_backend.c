/* SPDX-License-Identifier: MIT */
/* The emulated cuDNN's graph API: see include/cudnn.h. A graph is one convolution, or several other operations
 * (cudnn_operations.c); libraries.h names the engines. */
#include <cudnn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda_emulation/cudnn_descriptor.h"
#include "tests/cuda_emulation/cudnn_loops.h"
#include "tests/cuda_emulation/cudnn_operations.h"
#include "tests/cuda_emulation/enqueue.h"
#include "tests/cuda_emulation/libraries.h"

/* Global, because the real library has one state for the whole process. */
static atomic_long executed;
static _Atomic double slowness = 1;
static _Atomic int64_t tensor_core_bytes = ENGINE_TENSOR_CORE_BYTES;

long cuda_emulation_dnn_executed(void) { return atomic_load(&executed); }
void cuda_emulation_dnn_slow_engines(double factor) { atomic_store(&slowness, factor); }
void cuda_emulation_dnn_tensor_core_bytes(int64_t bytes) { atomic_store(&tensor_core_bytes, bytes); }

void cudnnGetLastErrorString(char *message, size_t capacity) { snprintf(message, capacity, "the emulation refuses"); }

/* ---------------------------------------------------------------- engines */

enum { NO_NOTE = -1 };

typedef struct engine {
    double time;
    int64_t bytes;
    int numbers[2], behaviour; /* cuDNN's notes on the engine */
    int n_knobs;
} engine;

static const engine TABLE[ENGINES] = {
    [ENGINE_PLAIN] = {1.2, ENGINE_PLAIN_BYTES, {NO_NOTE, NO_NOTE}, NO_NOTE, 2},
    [ENGINE_TENSOR_CORE] = {0.7, 0, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, NO_NOTE}, NO_NOTE, 1},
    [ENGINE_NONDETERMINISTIC] =
        {0.8, ENGINE_NONDETERMINISTIC_BYTES, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, NO_NOTE}, NO_NOTE, 0},
    [ENGINE_CONVERTS] =
        {0.1, 0, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, NO_NOTE, 0},
    [ENGINE_COARSE] = {0.1, 0, {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, NO_NOTE}, NO_NOTE, 0},
    [ENGINE_UNPLANNED] = {0.1, 0, {NO_NOTE, NO_NOTE}, NO_NOTE, 1},
    [ENGINE_FAILS] = {0.1, 0, {NO_NOTE, NO_NOTE}, NO_NOTE, 0},
    [ENGINE_COMPILED] = {1.4, 0, {NO_NOTE, NO_NOTE}, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, 1},
    [ENGINE_HUNGRY] = {0.1, INT64_C(1) << 40, {NO_NOTE, NO_NOTE}, NO_NOTE, 0},
    [ENGINE_FALLBACK] = {0.1, 0, {NO_NOTE, NO_NOTE}, NO_NOTE, 0},
};

static int64_t bytes_of(int64_t index) {
    return index == ENGINE_TENSOR_CORE ? atomic_load(&tensor_core_bytes) : TABLE[index].bytes;
}

/* What each heuristic mode proposes; each compiled engine has another tile size. */
static const struct {
    cudnnBackendHeurMode_t mode;
    int n;
    cuda_emulation_engine engines[10];
} PROPOSALS[] = {
    {CUDNN_HEUR_MODE_A,
     7,
     {ENGINE_CONVERTS, ENGINE_COARSE, ENGINE_UNPLANNED, ENGINE_NONDETERMINISTIC, ENGINE_FAILS, ENGINE_TENSOR_CORE,
      ENGINE_PLAIN}},
    {CUDNN_HEUR_MODE_B,
     8,
     {ENGINE_PLAIN, ENGINE_HUNGRY, ENGINE_COMPILED, ENGINE_COMPILED, ENGINE_COMPILED, ENGINE_COMPILED, ENGINE_COMPILED,
      ENGINE_COMPILED}},
    {CUDNN_HEUR_MODE_FALLBACK, 2, {ENGINE_PLAIN, ENGINE_FALLBACK}},
};

static const int64_t KNOBS[DNN_KNOBS] = {CUDNN_KNOB_TYPE_TILE_SIZE, CUDNN_KNOB_TYPE_STAGES};

/* ---------------------------------------------------------------- a graph's convolution */

typedef struct operation {
    cudnnBackendDescriptorType_t type;
    conv_direction of;
    cudnnBackendAttributeName_t x, y, w, conv, alpha, beta;
} operation;

#define OPERATION(type, of, name, x, y, w)                                                                             \
    {                                                                                                                  \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, of, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x,    \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w,              \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA,      \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA                                                             \
    }

static const operation *operation_of(const dnn_descriptor *d) {
    static const operation OPERATIONS[] = {
        OPERATION(FORWARD, FORWARD, FORWARD, X, Y, W),
        OPERATION(BACKWARD_DATA, BY_INPUT, BWD_DATA, DX, DY, W),
        OPERATION(BACKWARD_FILTER, BY_WEIGHTS, BWD_FILTER, X, DY, DW),
    };
    for (int i = 0; i < 3; i++)
        if (OPERATIONS[i].type == d->type) return &OPERATIONS[i];
    return NULL;
}

static void copy_pair(const dnn_descriptor *d, cudnnBackendAttributeName_t name, int64_t pair[2]) {
    memcpy(pair, dnn_values(d, name), 2 * sizeof *pair);
}

static bool is_bf16(const dnn_descriptor *tensor) {
    return *(const cudnnDataType_t *)dnn_values(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_BFLOAT16;
}

/* The job of a complete operation. */
static conv_job job_of(const dnn_descriptor *d) {
    const operation *o = operation_of(d);
    const int64_t *x = dnn_values(dnn_reference(d, o->x), CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *y = dnn_values(dnn_reference(d, o->y), CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *w = dnn_values(dnn_reference(d, o->w), CUDNN_ATTR_TENSOR_DIMENSIONS);
    const dnn_descriptor *conv = dnn_reference(d, o->conv);
    conv_job j = {.of = o->of,
                  .x = {x[0], x[1], x[2], x[3]},
                  .y = {y[0], y[1], y[2], y[3]},
                  .w = {w[0], w[1], w[2], w[3]},
                  .groups = x[1] / w[1],
                  .x_bf16 = is_bf16(dnn_reference(d, o->x)),
                  .y_bf16 = is_bf16(dnn_reference(d, o->y)),
                  .w_bf16 = is_bf16(dnn_reference(d, o->w)),
                  .beta = *(const float *)dnn_values(d, o->beta)};
    copy_pair(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, j.pad);
    copy_pair(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, j.stride);
    copy_pair(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, j.dilation);
    return j;
}

static conv_job job_of_graph(const dnn_descriptor *graph) {
    return job_of(dnn_reference(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS));
}

/* As in cuDNN 9.19, no engine gives float gradients by the weights for bf16 images. */
static bool can(const dnn_descriptor *graph, int64_t index) {
    if (dnn_is_of_operations(graph)) return index >= 0 && index < ENGINES;
    const conv_job j = job_of_graph(graph);
    if (j.x_bf16 && !j.w_bf16) return false;
    return index >= 0 && index < ENGINES && (index != ENGINE_COMPILED || j.beta == 0);
}

/* ---------------------------------------------------------------- finalizing */

/* A convolution's tensors are float or bf16, NHWC without gaps. */
static cudnnStatus_t finalize_tensor(const dnn_descriptor *d) {
    if (dnn_find(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) return CUDNN_STATUS_SUCCESS; /* no convolution has one */
    const int64_t *dims = dnn_values(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *strides = dnn_values(d, CUDNN_ATTR_TENSOR_STRIDES);
    const int64_t expected[4] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
    for (int i = 0; i < 4; i++)
        if (dims[i] < 1 || strides[i] != expected[i]) return CUDNN_STATUS_BAD_PARAM;
    bool is_float = *(const cudnnDataType_t *)dnn_values(d, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_FLOAT;
    return (is_float || is_bf16(d)) && dnn_number(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) % 4 == 0
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t finalize_conv(const dnn_descriptor *d) {
    int64_t before[2], after[2];
    copy_pair(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before);
    copy_pair(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after);
    bool known =
        dnn_number(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2 &&
        *(const cudnnDataType_t *)dnn_values(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
        *(const cudnnConvolutionMode_t *)dnn_values(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION &&
        before[0] == after[0] && before[1] == after[1];
    return known ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t finalize_operation(const dnn_descriptor *d) {
    const conv_job j = job_of(d);
    if (!conv_fits(&j)) return CUDNN_STATUS_BAD_PARAM;
    bool known = *(const float *)dnn_values(d, operation_of(d)->alpha) == 1 && (j.beta == 0 || j.beta == 1);
    return known ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t finalize_engine(dnn_descriptor *d) {
    d->graph = dnn_reference(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    d->engine = dnn_number(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    return can(d->graph, d->engine) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t finalize_knob(dnn_descriptor *d) {
    d->knobs[0] = *(const cudnnBackendKnobType_t *)dnn_values(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
    d->knobs[1] = dnn_number(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_config(dnn_descriptor *d) {
    const dnn_descriptor *engine = dnn_reference(d, CUDNN_ATTR_ENGINECFG_ENGINE);
    const dnn_attribute *choices = dnn_find(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    d->graph = engine->graph;
    d->engine = engine->engine;
    d->n_knobs = choices ? (int)choices->count : 0;
    if (d->n_knobs != TABLE[d->engine].n_knobs) return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < d->n_knobs; i++) {
        const dnn_descriptor *choice = ((dnn_descriptor *const *)choices->values)[i];
        if (choice->knobs[0] != KNOBS[i]) return CUDNN_STATUS_BAD_PARAM;
        d->knobs[i] = choice->knobs[1];
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_plan(dnn_descriptor *d) {
    const dnn_descriptor *config = dnn_reference(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    d->graph = config->graph;
    d->engine = config->engine;
    return d->engine == ENGINE_UNPLANNED ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(dnn_descriptor *d) {
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return finalize_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return finalize_conv(d);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return finalize_engine(d);
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR:
        return finalize_knob(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return finalize_config(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return finalize_plan(d);
    default:
        return operation_of(d) ? finalize_operation(d) : CUDNN_STATUS_SUCCESS;
    }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    dnn_descriptor *d = descriptor;
    cudnnStatus_t status = dnn_status(cuda_emulation_enter("cudnnBackendFinalize"));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (d->finalized || !dnn_complete(d)) return CUDNN_STATUS_BAD_PARAM;
    status = finalize(d);
    d->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---------------------------------------------------------------- answers */

/* Fills descriptors that the caller made and did not finalize. */
static cudnnStatus_t give_configs(const dnn_descriptor *guess, int64_t requested, int64_t *count, void *values) {
    cudnnBackendHeurMode_t mode = *(const cudnnBackendHeurMode_t *)dnn_values(guess, CUDNN_ATTR_ENGINEHEUR_MODE);
    const dnn_descriptor *graph = dnn_reference(guess, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    *count = 0;
    for (size_t way = 0; way < sizeof PROPOSALS / sizeof PROPOSALS[0]; way++)
        for (int i = 0; PROPOSALS[way].mode == mode && i < PROPOSALS[way].n; i++) {
            int64_t index = PROPOSALS[way].engines[i];
            if (!can(graph, index)) continue;
            if (*count < requested) {
                dnn_descriptor *config = ((dnn_descriptor **)values)[*count];
                if (config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || config->finalized)
                    return CUDNN_STATUS_BAD_PARAM;
                config->graph = graph;
                config->engine = index;
                config->n_knobs = TABLE[index].n_knobs;
                config->knobs[0] = index == ENGINE_COMPILED ? 16 * i : -1;
                config->knobs[1] = 3;
                config->finalized = true;
            }
            ++*count;
        }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t give_engine(const dnn_descriptor *config, int64_t *count, void *values) {
    dnn_descriptor *engine = *(dnn_descriptor **)values;
    if (engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR || engine->finalized) return CUDNN_STATUS_BAD_PARAM;
    engine->graph = config->graph;
    engine->engine = config->engine;
    engine->finalized = true;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t give_knobs(const dnn_descriptor *config, int64_t requested, int64_t *count, void *values) {
    *count = config->n_knobs;
    for (int64_t i = 0; i < *count && i < requested; i++) {
        dnn_descriptor *choice = ((dnn_descriptor **)values)[i];
        if (choice->type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR || choice->finalized) return CUDNN_STATUS_BAD_PARAM;
        choice->knobs[0] = KNOBS[i];
        choice->knobs[1] = config->knobs[i];
        choice->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t give_notes(const int *notes, int n, int64_t requested, int64_t *count, void *values) {
    *count = 0;
    for (int i = 0; i < n && notes[i] != NO_NOTE; i++, ++*count)
        if (*count < requested) ((int *)values)[*count] = notes[i];
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t give_number(int64_t number, int64_t *count, void *values) {
    *(int64_t *)values = number;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t *count,
                                       void *values) {
    const dnn_descriptor *d = descriptor;
    cudnnStatus_t status = dnn_status(cuda_emulation_enter("cudnnBackendGetAttribute"));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (!d->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
#define ASKS(of, attribute, as)                                                                                        \
    (d->type == CUDNN_BACKEND_##of##_DESCRIPTOR && name == CUDNN_ATTR_##attribute && type == CUDNN_TYPE_##as)
    if (ASKS(ENGINEHEUR, ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR)) return give_configs(d, requested, count, values);
    if (requested < 1) return CUDNN_STATUS_BAD_PARAM;
    if (ASKS(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR)) return give_engine(d, count, values);
    if (ASKS(ENGINECFG, ENGINECFG_KNOB_CHOICES, BACKEND_DESCRIPTOR)) return give_knobs(d, requested, count, values);
    if (ASKS(ENGINE, ENGINE_GLOBAL_INDEX, INT64)) return give_number(d->engine, count, values);
    if (ASKS(ENGINE, ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE))
        return give_notes(TABLE[d->engine].numbers, 2, requested, count, values);
    if (ASKS(ENGINE, ENGINE_BEHAVIOR_NOTE, BEHAVIOR_NOTE))
        return give_notes(&TABLE[d->engine].behaviour, 1, requested, count, values);
    if (ASKS(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64)) return give_number(d->knobs[1], count, values);
    if (ASKS(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE)) {
        *(cudnnBackendKnobType_t *)values = (cudnnBackendKnobType_t)d->knobs[0];
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (ASKS(EXECUTION_PLAN, EXECUTION_PLAN_WORKSPACE_SIZE, INT64))
        return give_number(bytes_of(d->engine) * dnn_samples(d->graph), count, values);
#undef ASKS
    return CUDNN_STATUS_BAD_PARAM;
}

/* ---------------------------------------------------------------- running */

static void *pointer_of(const dnn_descriptor *pack, const dnn_descriptor *tensor) {
    const int64_t *ids = dnn_values(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *pointers = dnn_values(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int i = 0; i < 3; i++)
        if (ids[i] == dnn_number(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)) return pointers[i];
    return NULL;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    static const double TIMES[] = {[FORWARD] = 1.5, [BY_INPUT] = 1.5, [BY_WEIGHTS] = 0.5};
    const dnn_descriptor *p = plan, *v = pack;
    cudnnStatus_t status = dnn_status(cuda_emulation_enter("cudnnBackendExecute"));
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR ||
        !p->finalized || !v->finalized)
        return CUDNN_STATUS_BAD_PARAM;
    if (p->engine == ENGINE_FAILS) return CUDNN_STATUS_EXECUTION_FAILED;
    const engine *e = &TABLE[p->engine];
    const int64_t bytes = bytes_of(p->engine) * dnn_samples(p->graph);
    if (dnn_is_of_operations(p->graph)) {
        atomic_fetch_add(&executed, 1);
        status = dnn_status(cuda_emulation_on(handle->device));
        return status == CUDNN_STATUS_SUCCESS
                   ? dnn_operations_enqueue(handle->stream, p->graph, v, bytes, e->time * atomic_load(&slowness))
                   : status;
    }
    const dnn_descriptor *of = dnn_reference(p->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const operation *o = operation_of(of);
    conv_job j = job_of(of);
    j.x_data = pointer_of(v, dnn_reference(of, o->x));
    j.y_data = pointer_of(v, dnn_reference(of, o->y));
    j.w_data = pointer_of(v, dnn_reference(of, o->w));
    j.workspace = *(unsigned char *const *)dnn_values(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!j.x_data || !j.y_data || !j.w_data || (bytes && !j.workspace)) return CUDNN_STATUS_BAD_PARAM;
    j.memory = (size_t)bytes;
    j.tf32 = e->numbers[0] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    j.time = e->time * TIMES[j.of] * atomic_load(&slowness);
    atomic_fetch_add(&executed, 1);
    status = dnn_status(cuda_emulation_on(handle->device));
    return status == CUDNN_STATUS_SUCCESS ? conv_enqueue(handle->stream, &j) : status;
}
