/* SPDX-License-Identifier: MIT */
#include "nets/cuda/libraries/cudnn_graph.h"

enum { TENSORS = 3, ALIGNMENT = 16 /* bytes, of all tensors; kernels profit from no more */ };

static const int64_t IDS[TENSORS] = {'x', 'y', 'w'};

mm_status nets_cudnn_check(cudnnStatus_t status, const char *what) {
    char words[256] = "";
    if (status == CUDNN_STATUS_SUCCESS) return MM_OK;
    cudnnGetLastErrorString(words, sizeof words);
    mm_status told = nets_cuda_dnn_check(status, what);
    return words[0] ? mm_fail_in(told, "%s", words) : told;
}

/* ---------------------------------------------------------------- descriptors */

mm_status nets_cudnn_make(nets_cudnn_descriptors *made, cudnnBackendDescriptorType_t type, const char *what,
                          cudnnBackendDescriptor_t *out) {
    MM_TRY(nets_cudnn_check(cudnnBackendCreateDescriptor(type, out), what));
    made->of[made->n++] = *out;
    return MM_OK;
}

void nets_cudnn_drop(nets_cudnn_descriptors *made) {
    while (made->n > 0) cudnnBackendDestroyDescriptor(made->of[--made->n]);
}

mm_status nets_cudnn_describe(nets_cudnn_descriptors *made, cudnnBackendDescriptorType_t type, const char *what,
                              const nets_cudnn_attribute *attributes, cudnnBackendDescriptor_t *out) {
    MM_TRY(nets_cudnn_make(made, type, what, out));
    for (const nets_cudnn_attribute *a = attributes; a->values; a++)
        if (a->count)
            MM_TRY(nets_cudnn_check(cudnnBackendSetAttribute(*out, a->name, a->type, a->count, a->values), what));
    return nets_cudnn_check(cudnnBackendFinalize(*out), what);
}

/* ---------------------------------------------------------------- the graph */

/* `d` has the dims in memory order (NHWC, KRSC). cuDNN wants them as NCHW (KCRS), whatever the order in memory. */
static mm_status describe_tensor(nets_cudnn_graph *g, int64_t id, const int64_t d[4], bool bf16,
                                 cudnnBackendDescriptor_t *out) {
    const cudnnDataType_t type = bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int64_t dims[] = {d[0], d[3], d[1], d[2]}, alignment = ALIGNMENT;
    const int64_t strides[] = {d[1] * d[2] * d[3], 1, d[2] * d[3], d[3]};
    const nets_cudnn_attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
        {0},
    };
    return nets_cudnn_describe(&g->made, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "describing a tensor", attributes, out);
}

static mm_status describe_conv(nets_cudnn_graph *g, const nets_conv_shape *s, cudnnBackendDescriptor_t *out) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t n = 2, dilation[] = {s->dilation[0], s->dilation[1]}, stride[] = {s->stride[0], s->stride[1]};
    const int64_t pad[] = {s->pad[0], s->pad[1]};
    const nets_cudnn_attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, dilation},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, stride},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, pad},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, pad},
        {0},
    };
    return nets_cudnn_describe(&g->made, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "describing a convolution", attributes,
                               out);
}

/* cuDNN's names for a direction's operation and its attributes. */
typedef struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t tensors[TENSORS], conv, alpha, beta;
} operation;

static const operation OPERATIONS[] = {
    [NETS_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [NETS_CONV_BY_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                            {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [NETS_CONV_BY_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW},
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static mm_status describe_operation(nets_cudnn_graph *g, const nets_conv_shape *s,
                                    const cudnnBackendDescriptor_t tensors[TENSORS], cudnnBackendDescriptor_t conv,
                                    cudnnBackendDescriptor_t *out) {
    const operation *o = &OPERATIONS[s->direction];
    const float alpha = 1, beta = s->adds ? 1 : 0;
    const nets_cudnn_attribute attributes[] = {
        {o->tensors[0], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[0]},
        {o->tensors[1], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[1]},
        {o->tensors[2], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[2]},
        {o->conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv},
        {o->alpha, CUDNN_TYPE_FLOAT, 1, &alpha},
        {o->beta, CUDNN_TYPE_FLOAT, 1, &beta},
        {0},
    };
    return nets_cudnn_describe(&g->made, o->type, "describing an operation", attributes, out);
}

mm_status nets_cudnn_graph_of(nets_cudnn_graph *g, const cudnnBackendDescriptor_t *operations, int n) {
    const nets_cudnn_attribute attributes[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, operations},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, !g->cuda->properties, &g->cuda->dnn},
        {0},
    };
    return nets_cudnn_describe(&g->made, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "describing a graph", attributes,
                               &g->graph);
}

static mm_status init_graph(nets_cudnn_graph *g, const nets_conv_shape *s) {
    const int64_t dims[TENSORS][4] = {{s->x[0], s->x[1], s->x[2], s->x[3]},
                                      {s->y[0], s->y[1], s->y[2], s->y[3]},
                                      {s->y[3], s->kernel[0], s->kernel[1], s->x[3] / s->groups}};
    const bool bf16[TENSORS] = {nets_conv_is_bf16(s, NETS_CONV_BY_INPUT), nets_conv_is_bf16(s, NETS_CONV_FORWARD),
                                nets_conv_is_bf16(s, NETS_CONV_BY_WEIGHTS)};
    cudnnBackendDescriptor_t tensors[TENSORS], conv, of;
    for (int i = 0; i < TENSORS; i++) MM_TRY(describe_tensor(g, IDS[i], dims[i], bf16[i], &tensors[i]));
    MM_TRY(describe_conv(g, s, &conv));
    MM_TRY(describe_operation(g, s, tensors, conv, &of));
    return nets_cudnn_graph_of(g, &of, 1);
}

mm_status nets_cudnn_graph_init(nets_cudnn_graph *graph, const nets_cuda_backend *cuda, const nets_conv_shape *shape) {
    *graph = (nets_cudnn_graph){.cuda = cuda};
    mm_status status = init_graph(graph, shape);
    if (status != MM_OK) nets_cudnn_graph_fini(graph);
    return status;
}

void nets_cudnn_graph_fini(nets_cudnn_graph *graph) {
    nets_cudnn_drop(&graph->made);
    graph->graph = NULL;
}

/* ---------------------------------------------------------------- a plan */

static mm_status describe_config(nets_cudnn_plan *p, const nets_cudnn_graph *g, const nets_conv_choice *c,
                                 cudnnBackendDescriptor_t *out) {
    const int64_t index = c->algorithm;
    cudnnBackendDescriptor_t engine, knobs[NETS_CONV_KNOBS];
    const nets_cudnn_attribute of_engine[] = {
        {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->graph},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index},
        {NETS_CUDNN_DEVICE_OF(ENGINE), CUDNN_TYPE_BACKEND_DESCRIPTOR, g->cuda->properties != NULL,
         &g->cuda->properties},
        {0},
    };
    MM_TRY(nets_cudnn_describe(&p->made, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "describing an engine", of_engine, &engine));
    for (int i = 0; i < c->n_knobs; i++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)c->knobs[i].type;
        const nets_cudnn_attribute of_knob[] = {
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type},
            {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &c->knobs[i].value},
            {0},
        };
        MM_TRY(
            nets_cudnn_describe(&p->made, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "setting a knob", of_knob, &knobs[i]));
    }
    const nets_cudnn_attribute of_config[] = {
        {CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine},
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, c->n_knobs, knobs},
        {0},
    };
    return nets_cudnn_describe(&p->made, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "setting knobs", of_config, out);
}

static mm_status init_plan(nets_cudnn_plan *p, const nets_cudnn_graph *g, const nets_conv_choice *choice) {
    const nets_cuda_backend *cuda = g->cuda;
    cudnnBackendDescriptor_t config;
    int64_t n;
    MM_TRY(describe_config(p, g, choice, &config));
    const nets_cudnn_attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config},
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, !cuda->properties, &cuda->dnn},
        {NETS_CUDNN_DEVICE_OF(EXECUTION_PLAN), CUDNN_TYPE_BACKEND_DESCRIPTOR, cuda->properties != NULL,
         &cuda->properties},
        {0},
    };
    MM_TRY(
        nets_cudnn_describe(&p->made, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "making a plan", attributes, &p->plan));
    return nets_cudnn_check(cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                     CUDNN_TYPE_INT64, 1, &n, &p->workspace_bytes),
                            "asking for a plan's workspace");
}

mm_status nets_cudnn_plan_init(nets_cudnn_plan *plan, const nets_cudnn_graph *graph, const nets_conv_choice *choice) {
    *plan = (nets_cudnn_plan){.cuda = graph->cuda};
    mm_status status = init_plan(plan, graph, choice);
    if (status != MM_OK) nets_cudnn_plan_fini(plan);
    return status;
}

void nets_cudnn_plan_fini(nets_cudnn_plan *plan) {
    nets_cudnn_drop(&plan->made);
    plan->plan = NULL;
}

/* A finalised descriptor's pointers cannot be changed, so each call creates its own. Where time matters, iterations are
 * recorded once, and replaying them does not call this. */
mm_status nets_cudnn_plan_run(const nets_cudnn_plan *plan, int n, const int64_t *ids, void *const *tensors,
                              void *workspace, const char *what) {
    const nets_cudnn_attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, tensors},
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace},
        {0},
    };
    nets_cudnn_descriptors made = {.n = 0};
    cudnnBackendDescriptor_t pack;
    mm_status status =
        nets_cudnn_describe(&made, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "passing tensors", attributes, &pack);
    if (status == MM_OK) status = nets_cudnn_check(cudnnBackendExecute(plan->cuda->dnn, plan->plan, pack), what);
    nets_cudnn_drop(&made);
    return status;
}

mm_status nets_cudnn_plan_enqueue(const nets_cudnn_plan *plan, void *x, void *y, void *weights, void *workspace) {
    return nets_cudnn_plan_run(plan, TENSORS, IDS, (void *const[]){x, y, weights}, workspace, "a convolution");
}
