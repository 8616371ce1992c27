/* SPDX-License-Identifier: MIT */
/* Operations on single elements: of one map or constant, and of two. */
#include <math.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

/* ---------------------------------------------------------------- functions of one number */

static double f_relu(double x, const double a[2]) { return (void)a, x > 0 ? x : 0; }
static double f_leaky(double x, const double a[2]) { return x > 0 ? x : a[0] * x; }
static double f_sigmoid(double x, const double a[2]) { return (void)a, 1 / (1 + exp(-x)); }
static double f_hard_sigmoid(double x, const double a[2]) { return fmax(0, fmin(1, a[0] * x + a[1])); }
static double f_hard_swish(double x, const double a[2]) { return (void)a, x * fmax(0, fmin(1, x / 6 + 0.5)); }
static double f_swish(double x, const double a[2]) { return x / (1 + exp(-a[0] * x)); }
static double f_tanh(double x, const double a[2]) { return (void)a, tanh(x); }
static double f_erf(double x, const double a[2]) { return (void)a, erf(x); }
static double f_exp(double x, const double a[2]) { return (void)a, exp(x); }
static double f_log(double x, const double a[2]) { return (void)a, log(x); }
static double f_neg(double x, const double a[2]) { return (void)a, -x; }
static double f_abs(double x, const double a[2]) { return (void)a, fabs(x); }
static double f_sqrt(double x, const double a[2]) { return (void)a, sqrt(x); }
static double f_reciprocal(double x, const double a[2]) { return (void)a, 1 / x; }
static double f_floor(double x, const double a[2]) { return (void)a, floor(x); }
static double f_ceil(double x, const double a[2]) { return (void)a, ceil(x); }
static double f_not(double x, const double a[2]) { return (void)a, x == 0; }
static double f_clip(double x, const double a[2]) { return fmin(fmax(x, a[0]), a[1]); }
static double f_softplus(double x, const double a[2]) { return (void)a, log1p(exp(-fabs(x))) + fmax(x, 0); }
static double f_elu(double x, const double a[2]) { return x > 0 ? x : a[0] * expm1(x); }
static double f_mish(double x, const double a[2]) { return x * tanh(f_softplus(x, a)); }
static double f_gelu(double x, const double a[2]) {
    return a[0] != 0 ? 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)))
                     : 0.5 * x * (1 + erf(x / sqrt(2)));
}

/* Each as UNARY(Name, function, numbers' attributes, their defaults). */
#define NO_NUMBERS                                                                                                     \
    {NULL, NULL}, { 0, 0 }
#define UNARIES(UNARY)                                                                                                 \
    UNARY(Relu, f_relu, NO_NUMBERS)                                                                                    \
    UNARY(LeakyRelu, f_leaky, {"alpha", NULL}, {0.01, 0})                                                              \
    UNARY(Sigmoid, f_sigmoid, NO_NUMBERS)                                                                              \
    UNARY(HardSigmoid, f_hard_sigmoid, {"alpha", "beta"}, {0.2, 0.5})                                                  \
    UNARY(HardSwish, f_hard_swish, NO_NUMBERS)                                                                         \
    UNARY(Swish, f_swish, {"alpha", NULL}, {1, 0})                                                                     \
    UNARY(Gelu, f_gelu, NO_NUMBERS)                                                                                    \
    UNARY(Clip, f_clip, {NULL, NULL}, {-INFINITY, INFINITY})                                                           \
    UNARY(Tanh, f_tanh, NO_NUMBERS)                                                                                    \
    UNARY(Erf, f_erf, NO_NUMBERS)                                                                                      \
    UNARY(Exp, f_exp, NO_NUMBERS)                                                                                      \
    UNARY(Log, f_log, NO_NUMBERS)                                                                                      \
    UNARY(Neg, f_neg, NO_NUMBERS)                                                                                      \
    UNARY(Abs, f_abs, NO_NUMBERS)                                                                                      \
    UNARY(Sqrt, f_sqrt, NO_NUMBERS)                                                                                    \
    UNARY(Reciprocal, f_reciprocal, NO_NUMBERS)                                                                        \
    UNARY(Floor, f_floor, NO_NUMBERS)                                                                                  \
    UNARY(Ceil, f_ceil, NO_NUMBERS)                                                                                    \
    UNARY(Not, f_not, NO_NUMBERS)                                                                                      \
    UNARY(Softplus, f_softplus, NO_NUMBERS)                                                                            \
    UNARY(Elu, f_elu, {"alpha", NULL}, {1, 0})                                                                         \
    UNARY(Mish, f_mish, NO_NUMBERS)

typedef struct unary {
    const char *name;
    double (*value)(double x, const double a[2]);
    const char *attrs[2]; /* that give its numbers */
    double otherwise[2];
} unary;

static const unary UNARY_LIST[] = {
#define UNARY_ENTRY(Name, function, ...) {#Name, function, __VA_ARGS__},
    UNARIES(UNARY_ENTRY)
#undef UNARY_ENTRY
        {NULL, NULL, {0}, {0}}};

/* The function, and its numbers. */
static mm_status unary_of(onnx_import *m, const onnx_node *node, const unary **f_out, double numbers_out[2]) {
    const unary *f = UNARY_LIST;
    char text[ONNX_TEXT_CAPACITY];
    while (f->name && strcmp(f->name, node->op) != 0) f++;
    *f_out = f;
    for (int k = 0; k < 2; k++)
        numbers_out[k] = f->attrs[k] ? onnx_attr_real(node, f->attrs[k], f->otherwise[k]) : f->otherwise[k];
    if (f->value == f_clip)
        for (int k = 0; k < 2; k++) MM_TRY(onnx_in_number(m, node, 1 + k, numbers_out[k], &numbers_out[k]));
    if (f->value == f_gelu) numbers_out[0] = strcmp(onnx_attr_text(node, "approximate", text), "tanh") == 0;
    return MM_OK;
}

static mm_status unary_map(onnx_import *m, const onnx_node *node) {
    onnx_value *in, *out = onnx_out(m, node, 0);
    const unary *f;
    double numbers[2];
    MM_TRY(onnx_in_map(m, node, 0, &in));
    MM_TRY(unary_of(m, node, &f, numbers));
    onnx_give_view(out, in, &in->view);
    for (int i = 0; i < ONNX_POINTS; i++) out->function[i] = f->value(in->function[i], numbers);
    return MM_OK;
}

static mm_status unary_constant(onnx_import *m, const onnx_node *node) {
    const unary *f;
    double numbers[2];
    onnx_tensor *in, *out;
    MM_TRY(onnx_in_constant(m, node, 0, &in));
    MM_TRY(unary_of(m, node, &f, numbers));
    MM_TRY(onnx_tensor_create(&m->tensors, in->real, in->rank, in->dims, &out));
    for (int64_t i = 0; i < in->elems; i++) onnx_tensor_put(out, i, f->value(onnx_tensor_at(in, i), numbers));
    onnx_give_constant(onnx_out(m, node, 0), out);
    return MM_OK;
}

/* ---------------------------------------------------------------- functions of two */

static double f_add(double x, double y) { return x + y; }
static double f_sub(double x, double y) { return x - y; }
static double f_mul(double x, double y) { return x * y; }
static double f_div(double x, double y) { return x / y; }
static double f_mod(double x, double y) { return x - y * floor(x / y); }
static double f_min(double x, double y) { return x < y ? x : y; }
static double f_max(double x, double y) { return x > y ? x : y; }
static double f_equal(double x, double y) { return x == y; }
static double f_less(double x, double y) { return x < y; }
static double f_greater(double x, double y) { return x > y; }
static double f_not_above(double x, double y) { return x <= y; }
static double f_not_below(double x, double y) { return x >= y; }
static double f_and(double x, double y) { return x != 0 && y != 0; }
static double f_or(double x, double y) { return x != 0 || y != 0; }

/* Each as BINARY(Name, function, what it does with maps, whether its result is true or false). */
#define BINARIES(BINARY)                                                                                               \
    BINARY(Add, f_add, binary_map, false)                                                                              \
    BINARY(Sub, f_sub, binary_map, false)                                                                              \
    BINARY(Mul, f_mul, binary_map, false)                                                                              \
    BINARY(Div, f_div, binary_map, false)                                                                              \
    BINARY(Pow, pow, binary_map, false)                                                                                \
    BINARY(Min, f_min, binary_map, false)                                                                              \
    BINARY(Max, f_max, binary_map, false)                                                                              \
    BINARY(Mod, f_mod, NULL, false)                                                                                    \
    BINARY(Equal, f_equal, NULL, true)                                                                                 \
    BINARY(Less, f_less, NULL, true)                                                                                   \
    BINARY(Greater, f_greater, NULL, true)                                                                             \
    BINARY(LessOrEqual, f_not_above, NULL, true)                                                                       \
    BINARY(GreaterOrEqual, f_not_below, NULL, true)                                                                    \
    BINARY(And, f_and, NULL, true)                                                                                     \
    BINARY(Or, f_or, NULL, true)

static const struct binary {
    const char *name;
    double (*value)(double x, double y);
    bool says; /* the result is true or false */
} BINARY_LIST[] = {
#define BINARY_ENTRY(Name, function, maps, says) {#Name, function, says},
    BINARIES(BINARY_ENTRY)
#undef BINARY_ENTRY
        {NULL, NULL, false}};

static const struct binary *binary_of(const onnx_node *node) {
    const struct binary *f = BINARY_LIST;
    while (f->name && strcmp(f->name, node->op) != 0) f++;
    return f;
}

static mm_status binary_constant(onnx_import *m, const onnx_node *node) {
    const struct binary *f = binary_of(node);
    onnx_tensor *in[2], *wide[2], *out;
    int64_t dims[ONNX_RANK_MAX];
    int rank;
    bool fits = true;
    if (node->n_inputs != 2) return onnx_refuse(m, node, "%d inputs; 2 are supported", node->n_inputs);
    for (int k = 0; k < 2; k++) MM_TRY(onnx_in_constant(m, node, k, &in[k]));
    if (!in[0] || !in[1]) return onnx_refuse(m, node, "an input is missing");
    if (!onnx_broadcast(in[0]->rank, in[0]->dims, in[1]->rank, in[1]->dims, &rank, dims))
        return onnx_refuse(m, node, "its inputs' shapes do not fit together");
    for (int k = 0; k < 2; k++) MM_TRY(onnx_tensor_expand(&m->tensors, in[k], rank, dims, &fits, &wide[k]));
    MM_TRY(onnx_tensor_create(&m->tensors, !f->says && in[0]->real, rank, dims, &out));
    for (int64_t i = 0; i < out->elems; i++) {
        const double y = onnx_tensor_at(wide[1], i);
        if (!in[0]->real && y == 0 && (f->value == f_div || f->value == f_mod))
            return onnx_refuse(m, node, "divides by zero");
        onnx_tensor_put(out, i, f->value(onnx_tensor_at(wide[0], i), y));
    }
    onnx_give_constant(onnx_out(m, node, 0), out);
    return MM_OK;
}

/* A map and a number. */
static mm_status with_number(onnx_import *m, const onnx_node *node, const onnx_value *map, double number, bool second) {
    double (*f)(double, double) = binary_of(node)->value;
    onnx_value *out = onnx_out(m, node, 0);
    onnx_give_view(out, map, &map->view);
    for (int i = 0; i < ONNX_POINTS; i++)
        out->function[i] = second ? f(map->function[i], number) : f(number, map->function[i]);
    return MM_OK;
}

static mm_status with_constant(onnx_import *m, const onnx_node *node, int which) {
    onnx_value *map = onnx_in(m, node, which);
    onnx_tensor *constant;
    MM_TRY(onnx_in_constant(m, node, 1 - which, &constant));
    if (constant->elems == 1 && constant->rank <= map->view.rank)
        return with_number(m, node, map, onnx_tensor_at(constant, 0), which == 0);
    if (strcmp(node->op, "Add") == 0) return onnx_add_constant(m, node, map, constant);
    if (strcmp(node->op, "Mul") == 0) return onnx_scale_channels(m, node, map, constant);
    return onnx_refuse(m, node, "of a map and %lld numbers: no layer here computes it", (long long)constant->elems);
}

/* Whether b has one number for each of a's channels, and its view is a's with height and width of 1. */
static bool is_gate(const onnx_import *m, const onnx_value *a, const onnx_value *b) {
    const nets_shape *of_a = onnx_shape(m, a->draft), *of_b = onnx_shape(m, b->draft);
    onnx_view small = a->view;
    if (nets_shape_rows(of_b) != 1 || nets_shape_channels(of_a) != nets_shape_channels(of_b)) return false;
    if (a->view.rank != b->view.rank) return false;
    for (int d = 0; d < small.rank; d++)
        if (!b->view.dims[d].n) small.dims[d].n = 0;
    return onnx_view_move(&small, of_a, of_b) && onnx_view_equal(&small, &b->view);
}

static mm_status of_maps(onnx_import *m, const onnx_node *node) {
    onnx_value *in[2], *out = onnx_out(m, node, 0);
    for (int k = 0; k < 2; k++) MM_TRY(onnx_in_map(m, node, k, &in[k]));
    const struct binary *f = binary_of(node);
    const bool plain = onnx_is_identity(in[0]->function) && onnx_is_identity(in[1]->function);
    if (in[0]->draft == in[1]->draft && onnx_view_equal(&in[0]->view, &in[1]->view) && !(plain && f->value == f_add)) {
        onnx_value result = *in[0]; /* a function of one map's elements */
        for (int i = 0; i < ONNX_POINTS; i++) result.function[i] = f->value(in[0]->function[i], in[1]->function[i]);
        onnx_give_view(out, in[0], &in[0]->view);
        memcpy(out->function, result.function, sizeof out->function);
        return MM_OK;
    }
    int drafts[2], draft;
    for (int k = 0; k < 2; k++) MM_TRY(onnx_whole(m, node, in[k], &drafts[k]));
    if (f->value != f_add && f->value != f_mul)
        return onnx_refuse(m, node, "of two maps: layers here add and multiply them only");
    const bool gated = f->value == f_mul && !is_gate(m, in[0], in[1]) && is_gate(m, in[1], in[0]);
    const int first = gated ? 1 : 0;
    const bool equal = onnx_view_equal(&in[0]->view, &in[1]->view) &&
                       nets_shape_equal(onnx_shape(m, drafts[0]), onnx_shape(m, drafts[1]));
    if (!equal && !(f->value == f_mul && is_gate(m, in[first], in[1 - first])))
        return onnx_refuse(m, node, "its maps %.48s and %.48s differ in shape or order of elements", in[0]->name,
                           in[1]->name);
    MM_TRY(onnx_draft_add(m, node, f->value == f_add ? NETS_ADD : NETS_MUL, NULL,
                          (int[]){drafts[first], drafts[1 - first]}, 2, NULL, &draft));
    onnx_give_map(out, draft, &in[first]->view);
    return MM_OK;
}

static mm_status binary_map(onnx_import *m, const onnx_node *node) {
    bool done;
    if (node->n_inputs != 2) return onnx_refuse(m, node, "%d inputs; 2 are supported", node->n_inputs);
    MM_TRY(onnx_attention_arithmetic(m, node, &done));
    if (done) return MM_OK;
    for (int k = 0; k < 2; k++) {
        const onnx_value *other = onnx_in(m, node, 1 - k);
        onnx_value *map;
        if (!other || other->kind != ONNX_CONSTANT) continue;
        MM_TRY(onnx_in_map(m, node, k, &map));
        return with_constant(m, node, k);
    }
    return of_maps(m, node);
}

static mm_status where_constant(onnx_import *m, const onnx_node *node) {
    onnx_tensor *in[3], *wide[3], *out;
    int64_t dims[ONNX_RANK_MAX];
    int rank = 0;
    bool fits = true;
    for (int k = 0; k < 3; k++) {
        MM_TRY(onnx_in_constant(m, node, k, &in[k]));
        if (!in[k] || !onnx_broadcast(rank, dims, in[k]->rank, in[k]->dims, &rank, dims))
            return onnx_refuse(m, node, "its inputs' shapes do not fit together");
    }
    for (int k = 0; k < 3; k++) MM_TRY(onnx_tensor_expand(&m->tensors, in[k], rank, dims, &fits, &wide[k]));
    MM_TRY(onnx_tensor_create(&m->tensors, in[1]->real, rank, dims, &out));
    for (int64_t i = 0; i < out->elems; i++)
        onnx_tensor_put(out, i, onnx_tensor_at(wide[onnx_tensor_at(wide[0], i) != 0 ? 1 : 2], i));
    onnx_give_constant(onnx_out(m, node, 0), out);
    return MM_OK;
}

static mm_status where_map(onnx_import *m, const onnx_node *node) {
    bool done;
    MM_TRY(onnx_attention_arithmetic(m, node, &done));
    return done ? MM_OK : onnx_refuse(m, node, "layers here choose no elements, except in attention's mask");
}

static mm_status is_nan(onnx_import *m, const onnx_node *node) {
    const onnx_value *in = onnx_in(m, node, 0);
    if (in->kind != ONNX_SHARES) return onnx_refuse(m, node, "it is supported of attention's shares only");
    onnx_out(m, node, 0)->kind = ONNX_IS_NAN;
    return MM_OK;
}

#define UNARY_OP(Name, ...)                   {#Name, unary_map, unary_constant},
#define BINARY_OP(Name, function, maps, says) {#Name, maps, binary_constant},
const onnx_op onnx_element_ops[] = {
    UNARIES(UNARY_OP) BINARIES(BINARY_OP){"Where", where_map, where_constant},
    {"IsNaN", is_nan, NULL},
    {NULL, NULL, NULL},
};
