/* SPDX-License-Identifier: MIT */
/* The engines that cuDNN's graph API proposes for a graph. */
#include "nets/cuda/libraries/cudnn_graph.h"

/* Capacity for notes: a newer library may know notes that its header of today does not. */
enum { NOTES = 64 };

static const char ASKING[] = "asking for engines";

static mm_status check(cudnnStatus_t status) { return nets_cudnn_check(status, ASKING); }

static mm_status create(nets_cudnn_descriptors *made, cudnnBackendDescriptorType_t type,
                        cudnnBackendDescriptor_t *out) {
    return nets_cudnn_make(made, type, ASKING, out);
}

static mm_status get_number(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name, int64_t *out) {
    int64_t n;
    return check(cudnnBackendGetAttribute(from, name, CUDNN_TYPE_INT64, 1, &n, out));
}

static mm_status read_notes(cudnnBackendDescriptor_t engine, nets_cudnn_engine *e) {
    cudnnBackendNumericalNote_t numbers[NOTES];
    cudnnBackendBehaviorNote_t behaviour[NOTES];
    int64_t n;
    MM_TRY(check(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES,
                                          &n, numbers)));
    for (int64_t i = 0; i < n && i < NOTES; i++) {
        e->tensor_core |= numbers[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        e->converts |= numbers[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
        e->coarse_sums |= numbers[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
        e->nondeterministic |= numbers[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    }
    MM_TRY(check(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, NOTES, &n,
                                          behaviour)));
    for (int64_t i = 0; i < n && i < NOTES; i++) e->compiles |= behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    return MM_OK;
}

static mm_status read_knobs(nets_cudnn_descriptors *made, cudnnBackendDescriptor_t config, nets_conv_choice *c) {
    cudnnBackendDescriptor_t knobs[NETS_CONV_KNOBS];
    int64_t n;
    for (int i = 0; i < NETS_CONV_KNOBS; i++) MM_TRY(create(made, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]));
    MM_TRY(check(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          NETS_CONV_KNOBS, &n, knobs)));
    if (n > NETS_CONV_KNOBS)
        return mm_fail(MM_ERR_UNSUPPORTED, "an engine has %lld knobs, at most %d are known", (long long)n,
                       NETS_CONV_KNOBS);
    for (c->n_knobs = 0; c->n_knobs < n; c->n_knobs++) {
        struct nets_conv_knob *knob = &c->knobs[c->n_knobs];
        cudnnBackendKnobType_t type;
        int64_t one;
        MM_TRY(check(cudnnBackendGetAttribute(knobs[c->n_knobs], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                                              1, &one, &type)));
        MM_TRY(get_number(knobs[c->n_knobs], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &knob->value));
        knob->type = (int)type;
    }
    return MM_OK;
}

static mm_status read_parts(nets_cudnn_descriptors *made, cudnnBackendDescriptor_t config, nets_cudnn_engine *e) {
    cudnnBackendDescriptor_t engine;
    int64_t n, index;
    *e = (nets_cudnn_engine){.choice.api = NETS_CONV_GRAPH};
    MM_TRY(create(made, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    MM_TRY(check(
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine)));
    MM_TRY(get_number(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &index));
    e->choice.algorithm = (int)index;
    MM_TRY(read_notes(engine, e));
    return read_knobs(made, config, &e->choice);
}

static void read_engine(cudnnBackendDescriptor_t config, nets_cudnn_engine *e) {
    nets_cudnn_descriptors made = {.n = 0};
    e->unreadable = read_parts(&made, config, e) != MM_OK;
    nets_cudnn_drop(&made);
}

static mm_status list(nets_cudnn_descriptors *made, const nets_cudnn_graph *graph, cudnnBackendHeurMode_t mode,
                      int capacity, nets_cudnn_engine *engines, int *n_out) {
    cudnnBackendDescriptor_t guess, configs[NETS_CUDNN_DESCRIPTORS];
    const nets_cuda_backend *cuda = graph->cuda;
    int64_t n;
    *n_out = 0;
    MM_TRY(create(made, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &guess));
    MM_TRY(check(cudnnBackendSetAttribute(guess, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          1, &graph->graph)));
    MM_TRY(check(cudnnBackendSetAttribute(guess, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)));
    if (cuda->properties)
        MM_TRY(check(cudnnBackendSetAttribute(guess, NETS_CUDNN_DEVICE_OF(ENGINEHEUR), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                              &cuda->properties)));
    MM_TRY(check(cudnnBackendFinalize(guess)));
    if (capacity > NETS_CUDNN_DESCRIPTORS - made->n) capacity = NETS_CUDNN_DESCRIPTORS - made->n;
    for (int i = 0; i < capacity; i++) MM_TRY(create(made, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    MM_TRY(check(cudnnBackendGetAttribute(guess, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, capacity,
                                          &n, configs)));
    for (; *n_out < n && *n_out < capacity; (*n_out)++) read_engine(configs[*n_out], &engines[*n_out]);
    return MM_OK;
}

mm_status nets_cudnn_engines(const nets_cudnn_graph *graph, cudnnBackendHeurMode_t mode, int capacity,
                             nets_cudnn_engine *engines, int *n_out) {
    nets_cudnn_descriptors made = {.n = 0};
    mm_status status = list(&made, graph, mode, capacity, engines, n_out);
    nets_cudnn_drop(&made);
    return status;
}
