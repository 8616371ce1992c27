/* SPDX-License-Identifier: MIT */
/* Activations: functions of single elements, in float32. Host and CUDA code both include the functions, so that there
 * is one formula of each. A new one is a line here, two functions, a line of NETS_OPS and a description
 * (ops/describe_activations.c).
 *
 * To get the functions, a file defines NETS_ACTIVATION_FUNCTION, what they are declared as, and
 * NETS_ACTIVATION_EXP(x) and NETS_ACTIVATION_DIVIDE(a, b), how it computes e^x and a / b, before it includes this. */
#ifndef NETS_ACTIVATION_H
#define NETS_ACTIVATION_H

/* Each activation as ACT(NAME, name, OP, BY): NETS_<OP> computes it (gelu computes two), and its derivative is a
 * function of NETS_<BY>, the input or the output. Of leaky_relu's output only the sign matters. */
#define NETS_ACTIVATIONS(ACT)                                                                                          \
    ACT(LEAKY_RELU, leaky_relu, LEAKY_RELU, Y)                                                                         \
    ACT(RELU6, relu6, RELU6, Y)                                                                                        \
    ACT(SIGMOID, sigmoid, SIGMOID, Y)                                                                                  \
    ACT(HARD_SIGMOID, hard_sigmoid, HARD_SIGMOID, Y)                                                                   \
    ACT(SILU, silu, SILU, X)                                                                                           \
    ACT(HARD_SWISH, hard_swish, HARD_SWISH, X)                                                                         \
    ACT(GELU, gelu, GELU, X)                                                                                           \
    ACT(GELU_TANH, gelu_tanh, GELU, X)                                                                                 \
    ACT(SCALE, scale, SCALE, Y)

typedef enum nets_activation {
#define NETS_ACTIVATION_NUMBER(NAME, name, OP, BY) NETS_ACTIVATION_##NAME,
    NETS_ACTIVATIONS(NETS_ACTIVATION_NUMBER)
#undef NETS_ACTIVATION_NUMBER
        NETS_ACTIVATION_KINDS
} nets_activation;

#endif

#if defined(NETS_ACTIVATION_FUNCTION) && !defined(NETS_ACTIVATION_FUNCTIONS)
#define NETS_ACTIVATION_FUNCTIONS
#include <math.h>

/* For each, <name>_value, the function of x, and <name>_slope, its derivative as a function of x or y; `slope` is the
 * layer's attribute. The value of a NaN is NaN, so that a training that diverges shows. */

NETS_ACTIVATION_FUNCTION float nets_leaky_relu_value(float x, float slope) { return x > 0 ? x : x * slope; }
NETS_ACTIVATION_FUNCTION float nets_leaky_relu_slope(float y, float slope) { return y > 0 ? 1 : slope; }

NETS_ACTIVATION_FUNCTION float nets_limited_to_6(float x) { return x < 0 ? 0 : x > 6 ? 6 : x; }

NETS_ACTIVATION_FUNCTION float nets_relu6_value(float x, float slope) {
    (void)slope;
    return nets_limited_to_6(x);
}
NETS_ACTIVATION_FUNCTION float nets_relu6_slope(float y, float slope) {
    (void)slope;
    return y > 0 && y < 6 ? 1 : 0;
}

/* e^u, limited so that it stays finite: slopes need the product of it and 1 / (1 + e^u), and a GPU's fast division
 * takes no divisor above 2^126. */
NETS_ACTIVATION_FUNCTION float nets_finite_exp(float u) { return NETS_ACTIVATION_EXP(u > 80 ? 80 : u); }

NETS_ACTIVATION_FUNCTION float nets_sigmoid_value(float x, float slope) {
    (void)slope;
    return NETS_ACTIVATION_DIVIDE(1.0f, 1.0f + nets_finite_exp(-x));
}
NETS_ACTIVATION_FUNCTION float nets_sigmoid_slope(float y, float slope) {
    (void)slope;
    return y * (1 - y);
}

NETS_ACTIVATION_FUNCTION float nets_hard_sigmoid_value(float x, float slope) {
    (void)slope;
    return nets_limited_to_6(x + 3) * (1.0f / 6);
}
NETS_ACTIVATION_FUNCTION float nets_hard_sigmoid_slope(float y, float slope) {
    (void)slope;
    return y > 0 && y < 1 ? 1.0f / 6 : 0;
}

NETS_ACTIVATION_FUNCTION float nets_silu_value(float x, float slope) { return x * nets_sigmoid_value(x, slope); }
NETS_ACTIVATION_FUNCTION float nets_silu_slope(float x, float slope) {
    const float e = nets_finite_exp(-x), share = NETS_ACTIVATION_DIVIDE(1.0f, 1.0f + e);
    (void)slope;
    return share * (1 + x * (e * share));
}

NETS_ACTIVATION_FUNCTION float nets_hard_swish_value(float x, float slope) {
    return x * nets_hard_sigmoid_value(x, slope);
}
NETS_ACTIVATION_FUNCTION float nets_hard_swish_slope(float x, float slope) {
    const float inside = x * (1.0f / 3) + 0.5f;
    (void)slope;
    return x <= -3 ? 0 : x >= 3 ? 1 : inside;
}

NETS_ACTIVATION_FUNCTION float nets_scale_value(float x, float slope) { return x * slope; }
NETS_ACTIVATION_FUNCTION float nets_scale_slope(float y, float slope) {
    (void)y;
    return slope;
}

/* e^(-x^2 / 2). The square's rounding would grow with x, so x is split: h has 11 bits, of which the square is exact,
 * and u, at most 1/16, is what is left of the exponent. From 16 on all is 0, and of -16 to 0 too. */
NETS_ACTIVATION_FUNCTION float nets_bell(float x) {
    const float shifter = 98304.0f; /* 1.5 2^16: rounds to multiples of 1/128 when added */
    const float size = x < 0 ? -x : x, a = size > 16 ? 16 : size;
    const float h = (a + shifter) - shifter, u = -0.5f * (a - h) * (h + a);
    return NETS_ACTIVATION_EXP(-0.5f * h * h) * (1.0f + u * (1.0f + u * (0.5f + u * 0.1666666667f)));
}

/* The normal distribution's share below x, within 5 units in the last place. It is, for a = -x, bell(a) times a
 * function that falls slowly: p(t) / (1 + a), t = (a - 3.5) / (a + 3.5). (Such a fraction makes the function smooth up
 * to infinity: Shepherd and Laframboise 1981, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x".) p was fitted
 * for 0 <= a <= 14 by least relative error, 1.4e-8. 1 + erf would cancel for x below 0. bell: nets_bell(x). */
NETS_ACTIVATION_FUNCTION float nets_share_below(float x, float bell) {
    const float size = x < 0 ? -x : x, a = size > 16 ? 16 : size;
    const float low = a + 3.5f, high = 1.0f + a, inverse = NETS_ACTIVATION_DIVIDE(1.0f, low * high);
    const float t = (a - 3.5f) * (high * inverse);
    float p = 1.454316225e-04f;
    p = p * t + 9.087689250e-05f;
    p = p * t - 1.389587182e-03f;
    p = p * t + 2.965312451e-04f;
    p = p * t + 1.037303731e-02f;
    p = p * t - 3.026345186e-02f;
    p = p * t + 3.804824129e-02f;
    p = p * t + 7.873852155e-04f;
    p = p * t - 9.771259129e-02f;
    p = p * t + 4.785531759e-01f;
    const float beyond = bell * (p * (low * inverse));
    return x < 0 ? beyond : 1.0f - beyond;
}

/* GELU is x times the share below x; its slope is the share plus x times the density. */
NETS_ACTIVATION_FUNCTION float nets_gelu_value(float x, float slope) {
    (void)slope;
    return x * nets_share_below(x, nets_bell(x));
}
NETS_ACTIVATION_FUNCTION float nets_gelu_slope(float x, float slope) {
    const float bell = nets_bell(x);
    (void)slope;
    return nets_share_below(x, bell) + x * 0.3989422804f * bell;
}

/* The approximation by tanh takes 1 / (1 + e) as the share; this is e. */
NETS_ACTIVATION_FUNCTION float nets_gelu_power(float x) {
    return nets_finite_exp(-2.0f * 0.7978845608f * (x + 0.044715f * x * x * x));
}

NETS_ACTIVATION_FUNCTION float nets_gelu_tanh_value(float x, float slope) {
    (void)slope;
    return x * NETS_ACTIVATION_DIVIDE(1.0f, 1.0f + nets_gelu_power(x));
}
NETS_ACTIVATION_FUNCTION float nets_gelu_tanh_slope(float x, float slope) {
    const float e = nets_gelu_power(x), share = NETS_ACTIVATION_DIVIDE(1.0f, 1.0f + e);
    (void)slope;
    return share + x * share * (e * share) * 2.0f * 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
}
#endif
