/* SPDX-License-Identifier: MIT */
/* Attention as cuDNN's graphs. cuDNN has no operation for causal attention; its engines recognise the graph of
 * operations that NVIDIA's cudnn-frontend composes for cuDNN 9.19, which is built here. In a deterministic backward a
 * product gives q's gradient directly. An unordered one adds to an f32 sum in memory, in any order, which is then
 * rounded. Where heads of q share a head of k and v, their gradients are summed by a reduction. */
#include "nets/cuda/libraries/cudnn_attention.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- tensors */

typedef enum name {
    NONE,
    Q,
    K_TURNED,
    V,
    V_TURNED,
    Y,
    LOG_SUMS,
    DY,
    DQ,
    DK,
    DV,
    AT_Y /* dot product of y and dy, for each row */,
    SCALE,
    NEVER,
    ONE,
    SCORES,
    SCALED,
    ROW,
    COLUMN,
    SEEN,
    MASKED,
    TOP,
    LOWERED,
    POWERS,
    SUM,
    LOG,
    P,
    P_TURNED,
    DY_Y,
    DOTS,
    DP,
    DP_LESS,
    DS,
    DS_SCALED,
    DS_TURNED,
    K,
    DQ_SUM,
    DK_ALL /* for each head of q: the heads of a group add up */,
    DV_ALL,
    NAMES
} name;

typedef enum form { OF_X, OF_KV, OF_KV_TURNED, OF_Y, SQUARE, SQUARE_TURNED, PER_ROW, PER_CHANNEL, NUMBER } form;
typedef enum place { MEMORY, VIRTUAL, HOST } place;

/* clang-format off */
static const struct {
    form form;
    cudnnDataType_t type;
    place place;
} TENSOR[NAMES] = {
    [Q] = {OF_X, CUDNN_DATA_BFLOAT16, MEMORY},
    [K_TURNED] = {OF_KV_TURNED, CUDNN_DATA_BFLOAT16, MEMORY},
    [V] = {OF_KV, CUDNN_DATA_BFLOAT16, MEMORY},
    [V_TURNED] = {OF_KV_TURNED, CUDNN_DATA_BFLOAT16, MEMORY},
    [Y] = {OF_Y, CUDNN_DATA_BFLOAT16, MEMORY},
    [LOG_SUMS] = {PER_ROW, CUDNN_DATA_FLOAT, MEMORY},
    [DY] = {OF_Y, CUDNN_DATA_BFLOAT16, MEMORY},
    [DQ] = {OF_X, CUDNN_DATA_BFLOAT16, MEMORY},
    [DK] = {OF_KV, CUDNN_DATA_BFLOAT16, MEMORY},
    [DV] = {OF_KV, CUDNN_DATA_BFLOAT16, MEMORY},
    [AT_Y] = {PER_ROW, CUDNN_DATA_FLOAT, MEMORY},
    [SCALE] = {NUMBER, CUDNN_DATA_FLOAT, HOST},
    [NEVER] = {NUMBER, CUDNN_DATA_FLOAT, HOST},
    [ONE] = {NUMBER, CUDNN_DATA_FLOAT, HOST},
    [SCORES] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [SCALED] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [ROW] = {SQUARE, CUDNN_DATA_INT32, VIRTUAL},
    [COLUMN] = {SQUARE, CUDNN_DATA_INT32, VIRTUAL},
    [SEEN] = {SQUARE, CUDNN_DATA_BOOLEAN, VIRTUAL},
    [MASKED] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [TOP] = {PER_ROW, CUDNN_DATA_FLOAT, VIRTUAL},
    [LOWERED] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [POWERS] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [SUM] = {PER_ROW, CUDNN_DATA_FLOAT, VIRTUAL},
    [LOG] = {PER_ROW, CUDNN_DATA_FLOAT, VIRTUAL},
    [P] = {SQUARE, CUDNN_DATA_BFLOAT16, VIRTUAL},
    [P_TURNED] = {SQUARE_TURNED, CUDNN_DATA_BFLOAT16, VIRTUAL},
    [DY_Y] = {PER_CHANNEL, CUDNN_DATA_FLOAT, VIRTUAL},
    [DOTS] = {PER_ROW, CUDNN_DATA_FLOAT, VIRTUAL},
    [DP] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [DP_LESS] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [DS] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [DS_SCALED] = {SQUARE, CUDNN_DATA_FLOAT, VIRTUAL},
    [DS_TURNED] = {SQUARE_TURNED, CUDNN_DATA_BFLOAT16, VIRTUAL},
    [K] = {OF_KV, CUDNN_DATA_FLOAT, VIRTUAL},
    [DQ_SUM] = {PER_CHANNEL, CUDNN_DATA_FLOAT, MEMORY},
    [DK_ALL] = {PER_CHANNEL, CUDNN_DATA_BFLOAT16, VIRTUAL},
    [DV_ALL] = {PER_CHANNEL, CUDNN_DATA_BFLOAT16, VIRTUAL},
};

/* ---------------------------------------------------------------- operations */

typedef enum kind { PRODUCT, EACH, INDEX, SELECT, OVER_ROW, TURN } kind;

typedef struct operation {
    kind kind;
    int how; /* EACH: cudnnPointwiseMode_t; INDEX: the axis; OVER_ROW: cudnnReduceTensorOp_t */
    name x, b, y;
} operation;

enum { OPERATIONS = 25, UNORDERED = 2 /* BACKWARD's last ones, which replace the one before if unordered */ };

static const operation FORWARD[] = {
    {PRODUCT, 0, Q, K_TURNED, SCORES},
    {EACH, CUDNN_POINTWISE_MUL, SCORES, SCALE, SCALED},
    {INDEX, 2, SCALED, NONE, ROW},
    {INDEX, 3, SCALED, NONE, COLUMN},
    {EACH, CUDNN_POINTWISE_CMP_GE, ROW, COLUMN, SEEN},
    {SELECT, 0, SCALED, NEVER, MASKED},
    {OVER_ROW, CUDNN_REDUCE_TENSOR_MAX, MASKED, NONE, TOP},
    {EACH, CUDNN_POINTWISE_SUB, MASKED, TOP, LOWERED},
    {EACH, CUDNN_POINTWISE_EXP, LOWERED, NONE, POWERS},
    {OVER_ROW, CUDNN_REDUCE_TENSOR_ADD, POWERS, NONE, SUM},
    {EACH, CUDNN_POINTWISE_LOG, SUM, NONE, LOG},
    {EACH, CUDNN_POINTWISE_ADD, TOP, LOG, LOG_SUMS},
    {EACH, CUDNN_POINTWISE_DIV, POWERS, SUM, P},
    {PRODUCT, 0, P, V, Y},
};

static const operation BACKWARD[] = {
    {EACH, CUDNN_POINTWISE_MUL, DY, Y, DY_Y},
    {OVER_ROW, CUDNN_REDUCE_TENSOR_ADD, DY_Y, NONE, DOTS},
    {EACH, CUDNN_POINTWISE_MUL, DOTS, ONE, AT_Y},
    {PRODUCT, 0, Q, K_TURNED, SCORES},
    {EACH, CUDNN_POINTWISE_MUL, SCORES, SCALE, SCALED},
    {EACH, CUDNN_POINTWISE_SUB, SCALED, LOG_SUMS, LOWERED},
    {INDEX, 2, LOWERED, NONE, ROW},
    {INDEX, 3, LOWERED, NONE, COLUMN},
    {EACH, CUDNN_POINTWISE_CMP_GE, ROW, COLUMN, SEEN},
    {SELECT, 0, LOWERED, NEVER, MASKED},
    {EACH, CUDNN_POINTWISE_EXP, MASKED, NONE, POWERS},
    {TURN, 0, POWERS, NONE, P_TURNED},
    {PRODUCT, 0, P_TURNED, DY, DV_ALL},
    {OVER_ROW, CUDNN_REDUCE_TENSOR_ADD, DV_ALL, NONE, DV},
    {PRODUCT, 0, DY, V_TURNED, DP},
    {EACH, CUDNN_POINTWISE_SUB, DP, AT_Y, DP_LESS},
    {EACH, CUDNN_POINTWISE_MUL, DP_LESS, POWERS, DS},
    {EACH, CUDNN_POINTWISE_MUL, DS, SCALE, DS_SCALED},
    {TURN, 0, DS_SCALED, NONE, DS_TURNED},
    {PRODUCT, 0, DS_TURNED, Q, DK_ALL},
    {OVER_ROW, CUDNN_REDUCE_TENSOR_ADD, DK_ALL, NONE, DK},
    {TURN, 0, K_TURNED, NONE, K},
    {PRODUCT, 0, DS_SCALED, K, DQ},
    {PRODUCT, 0, DS_SCALED, K, DQ_SUM},
    {EACH, CUDNN_POINTWISE_IDENTITY, DQ_SUM, NONE, DQ},
};
/* clang-format on */

_Static_assert(sizeof BACKWARD == OPERATIONS * sizeof(operation) && sizeof FORWARD <= sizeof BACKWARD,
               "so many at most");
_Static_assert(NAMES + 2 * OPERATIONS + 1 <= NETS_CUDNN_DESCRIPTORS, "a graph's descriptors fit");

/* ---------------------------------------------------------------- the graph */

/* Dims are samples, heads, tokens, channels; those of a _TURNED form have the last two exchanged. */
static mm_status describe_tensor(nets_cudnn_graph *g, const nets_cuda_attention *a, name id,
                                 cudnnBackendDescriptor_t *out) {
    enum { ALIGNMENT = 16 }; /* a head begins at a multiple of 8 elements */
    const int64_t n = a->samples, h = a->heads, kv = a->kv_heads, s = a->tokens, d = a->size, w = h * d;
    const int64_t x = w + 2 * kv * d; /* a token's row of x */
    const struct {
        int64_t dims[4], strides[4];
    } forms[] = {
        [OF_X] = {{n, h, s, d}, {s * x, d, x, 1}},
        [OF_KV] = {{n, kv, s, d}, {s * x, d, x, 1}},
        [OF_KV_TURNED] = {{n, kv, d, s}, {s * x, d, 1, x}},
        [OF_Y] = {{n, h, s, d}, {s * w, d, w, 1}},
        [SQUARE] = {{n, h, s, s}, {h * s * s, s * s, s, 1}},
        [SQUARE_TURNED] = {{n, h, s, s}, {h * s * s, s * s, 1, s}},
        [PER_ROW] = {{n, h, s, 1}, {h * s, s, 1, 1}},
        [PER_CHANNEL] = {{n, h, s, d}, {h * s * d, s * d, d, 1}},
        [NUMBER] = {{1, 1, 1, 1}, {1, 1, 1, 1}},
    };
    const int64_t unique = id, alignment = ALIGNMENT;
    const bool is_virtual = TENSOR[id].place == VIRTUAL, by_value = TENSOR[id].place == HOST;
    const nets_cudnn_attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &unique},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &TENSOR[id].type},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, forms[TENSOR[id].form].dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, forms[TENSOR[id].form].strides},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual},
        {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value},
        {0},
    };
    return nets_cudnn_describe(&g->made, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "describing attention's tensors", attributes,
                               out);
}

/* cuDNN's names for a kind of operation: for its own descriptor (TURN has none), and for the operation. */
/* clang-format off */
#define POINTWISE                                                                                                      \
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_ATTR_POINTWISE_MODE,                    \
     CUDNN_TYPE_POINTWISE_MODE, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,                                          \
     CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,                               \
     CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC}
static const struct {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t type, how;
    cudnnBackendAttributeType_t how_type;
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t described, x, b, y;
} KIND[] = {
    [PRODUCT] = {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, 0, 0,
                 CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                 CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                 CUDNN_ATTR_OPERATION_MATMUL_CDESC},
    [EACH] = POINTWISE, [INDEX] = POINTWISE, [SELECT] = POINTWISE,
    [OVER_ROW] = {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_ATTR_REDUCTION_OPERATOR,
                  CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 0,
                  CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
    [TURN] = {0, 0, 0, 0, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 0, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 0,
              CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
};
#undef POINTWISE
/* clang-format on */

static mm_status describe_operation(nets_cudnn_graph *g, const operation *o,
                                    const cudnnBackendDescriptor_t tensors[NAMES], cudnnBackendDescriptor_t *out) {
    static const char WHAT[] = "describing attention's operations";
    const bool compares = o->kind == EACH && o->how == CUDNN_POINTWISE_CMP_GE, described = o->kind != TURN;
    const cudnnDataType_t type = compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    const int how = o->kind == INDEX    ? CUDNN_POINTWISE_GEN_INDEX
                    : o->kind == SELECT ? CUDNN_POINTWISE_BINARY_SELECT
                                        : o->how;
    const int64_t axis = o->how;
    cudnnBackendDescriptor_t of = NULL;
    const nets_cudnn_attribute own[] = {
        {KIND[o->kind].type, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {KIND[o->kind].how, KIND[o->kind].how_type, o->kind != PRODUCT, &how},
        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, o->kind == INDEX, &axis},
        {0},
    };
    if (described) MM_TRY(nets_cudnn_describe(&g->made, KIND[o->kind].of, WHAT, own, &of));
    const nets_cudnn_attribute attributes[] = {
        {KIND[o->kind].described, CUDNN_TYPE_BACKEND_DESCRIPTOR, described, &of},
        {KIND[o->kind].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[o->x]},
        {KIND[o->kind].b, CUDNN_TYPE_BACKEND_DESCRIPTOR, o->b != NONE, &tensors[o->b]},
        {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, o->kind == SELECT, &tensors[SEEN]},
        {KIND[o->kind].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[o->y]},
        {0},
    };
    return nets_cudnn_describe(&g->made, KIND[o->kind].operation, WHAT, attributes, out);
}

/* Where each head of q has its own k and v, nothing is summed: the sums' results take the place of what they sum. */
static bool is_group_sum(const operation *o) { return o->x == DK_ALL || o->x == DV_ALL; }

static name ungrouped(name of) { return of == DK_ALL ? DK : of == DV_ALL ? DV : of; }

static int operations_of(mm_phase phase, bool unordered, bool grouped, operation operations[OPERATIONS]) {
    enum { SHARED = OPERATIONS - UNORDERED - 1 };
    const operation *from = phase == MM_FORWARD ? FORWARD : BACKWARD;
    const int all = phase == MM_FORWARD ? (int)(sizeof FORWARD / sizeof *FORWARD) : OPERATIONS;
    int n = 0;
    for (int i = 0; i < all; i++) {
        if (phase == MM_BACKWARD && (unordered ? i == SHARED : i > SHARED)) continue;
        if (!grouped && is_group_sum(&from[i])) continue;
        operations[n] = from[i];
        if (!grouped) operations[n].y = ungrouped(from[i].y);
        n++;
    }
    return n;
}

static mm_status make_graph(nets_cudnn_graph *g, const nets_cuda_attention *a, mm_phase phase, bool unordered) {
    cudnnBackendDescriptor_t tensors[NAMES] = {NULL}, made[OPERATIONS];
    operation operations[OPERATIONS];
    const int n = operations_of(phase, unordered, a->kv_heads < a->heads, operations);
    for (int i = 0; i < n; i++) {
        const name of[] = {operations[i].x, operations[i].b, operations[i].y};
        for (size_t k = 0; k < sizeof of / sizeof of[0]; k++)
            if (of[k] != NONE && !tensors[of[k]]) MM_TRY(describe_tensor(g, a, of[k], &tensors[of[k]]));
        MM_TRY(describe_operation(g, &operations[i], tensors, &made[i]));
    }
    return nets_cudnn_graph_of(g, made, n);
}

mm_status nets_cudnn_attention_graph(nets_cudnn_graph *graph, const nets_cuda_backend *cuda,
                                     const nets_cuda_attention *of, mm_phase phase, bool unordered) {
    *graph = (nets_cudnn_graph){.cuda = cuda};
    mm_status status = make_graph(graph, of, phase, unordered);
    if (status != MM_OK) nets_cudnn_graph_fini(graph);
    return status;
}

void nets_cudnn_attention_step_fini(nets_cudnn_attention_step *step) {
    nets_cudnn_plan_fini(&step->plan);
    nets_cudnn_graph_fini(&step->graph);
}

/* ---------------------------------------------------------------- running */

/* The backward's workspace: AT_Y of the whole batch, then DQ_SUM of one part (unordered only), then the plan's own. */
static int64_t sums_at(const nets_cuda_attention *of) { return nets_aligned(nets_cuda_attention_backward_bytes(*of)); }

static int64_t in_front(const nets_cuda_attention *of, mm_phase phase, int64_t parts, bool unordered) {
    const int64_t sums = of->samples / parts * of->tokens * of->heads * of->size * (int64_t)sizeof(float);
    return phase == MM_FORWARD ? 0 : sums_at(of) + (unordered ? nets_aligned(sums) : 0);
}

int64_t nets_cudnn_attention_bytes(const nets_cuda_attention *of, mm_phase phase, int64_t parts, bool unordered,
                                   int64_t plan_bytes) {
    return in_front(of, phase, parts, unordered) + plan_bytes;
}

mm_status nets_cudnn_attention_enqueue(const nets_cudnn_attention_step *step, const nets_cuda_attention *of,
                                       mm_phase phase, const nets_attention_tensors *t) {
    enum { BF16 = 2 };
    const int64_t samples = of->samples / step->parts, width = (int64_t)of->heads * of->size;
    const int64_t k_at = width * BF16, v_at = k_at + (int64_t)of->kv_heads * of->size * BF16; /* in a row of x */
    const int64_t x = samples * of->tokens * (2 * v_at - k_at);
    const int64_t y = samples * of->tokens * width * BF16,
                  rows = samples * of->heads * of->tokens * (int64_t)sizeof(float);
    float scale = of->scale, never = -INFINITY, one = 1;
    for (int64_t i = 0; i < step->parts; i++) {
        char *x_at = (char *)t->x + i * x, *dx_at = t->dx ? (char *)t->dx + i * x : NULL;
        void *at[NAMES] = {
            [Q] = x_at,
            [K_TURNED] = x_at + k_at,
            [Y] = (char *)t->y + i * y,
            [LOG_SUMS] = (char *)t->log_sums + i * rows,
            [SCALE] = &scale,
            [NEVER] = &never,
        };
        if (phase == MM_FORWARD) {
            at[V] = x_at + v_at;
        } else {
            at[V_TURNED] = x_at + v_at;
            at[DY] = (char *)t->dy + i * y;
            at[AT_Y] = (char *)t->workspace + i * rows;
            at[ONE] = &one;
            if (step->unordered) at[DQ_SUM] = (char *)t->workspace + sums_at(of);
            at[DQ] = dx_at;
            at[DK] = dx_at + k_at;
            at[DV] = dx_at + v_at;
        }
        int64_t ids[NAMES];
        void *tensors[NAMES];
        int n = 0;
        for (int id = 0; id < NAMES; id++)
            if (at[id]) {
                ids[n] = id;
                tensors[n++] = at[id];
            }
        void *const workspace = (char *)t->workspace + in_front(of, phase, step->parts, step->unordered);
        MM_TRY(nets_cudnn_plan_run(&step->plan, n, ids, tensors, workspace, "attention"));
    }
    return MM_OK;
}
