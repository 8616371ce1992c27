/* SPDX-License-Identifier: MIT */
/* Exporters write activations out: x * sigmoid(x), 0.5 * x * (1 + erf(x / sqrt 2)), and in several ways. So functions
 * of single elements are not found by their form: each is known by its values at some points, operations change these
 * values, and an activation is recognised by having the same. */
#include <math.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

#define NETS_ACTIVATION_FUNCTION     static inline
#define NETS_ACTIVATION_EXP(x)       expf(x)
#define NETS_ACTIVATION_DIVIDE(a, b) ((a) / (b))
#include "nets/activation.h"

/* More densely about 0, and none where an activation bends. */
double onnx_point(int i) {
    const double t = (i - (ONNX_POINTS - 1) * 0.5) / ((ONNX_POINTS - 1) * 0.5); /* -1 to 1 */
    return 3 * t + 17 * t * t * t;
}

/* Floats differ by less from what doubles give. The two GELUs differ by up to 5e-4. */
static bool is_near(double a, double b) { return fabs(a - b) <= 2e-6 + 1e-5 * fabs(b); }

bool onnx_is_identity(const double function[ONNX_POINTS]) {
    double factor;
    return onnx_is_factor(function, &factor) && fabs(factor - 1) < 1e-12;
}

bool onnx_is_factor(const double function[ONNX_POINTS], double *factor_out) {
    *factor_out = function[0] / onnx_point(0);
    for (int i = 0; i < ONNX_POINTS; i++)
        if (!(fabs(function[i] - *factor_out * onnx_point(i)) <= 1e-9 * fabs(function[i]))) return false;
    return true;
}

static float relu_value(float x, float slope) {
    (void)slope;
    return x > 0 ? x : 0;
}

nets_op_kind onnx_activation(const double function[ONNX_POINTS], nets_attrs *attrs_out) {
    static const struct {
        nets_op_kind op;
        float (*value)(float x, float slope);
        bool tanh, sloped;
    } activations[] = {
        {NETS_RELU, relu_value, false, false},
        {NETS_RELU6, nets_relu6_value, false, false},
        {NETS_SIGMOID, nets_sigmoid_value, false, false},
        {NETS_HARD_SIGMOID, nets_hard_sigmoid_value, false, false},
        {NETS_SILU, nets_silu_value, false, false},
        {NETS_HARD_SWISH, nets_hard_swish_value, false, false},
        {NETS_GELU, nets_gelu_value, false, false},
        {NETS_GELU, nets_gelu_tanh_value, true, false},
        {NETS_LEAKY_RELU, nets_leaky_relu_value, false, true},
    };
    const double slope = function[0] / onnx_point(0); /* of negative numbers, if it is leaky */
    for (size_t k = 0; k < sizeof activations / sizeof *activations; k++) {
        bool same = !activations[k].sloped || (slope > 0 && slope <= 16);
        for (int i = 0; same && i < ONNX_POINTS; i++)
            same = is_near(function[i], (double)activations[k].value((float)onnx_point(i), (float)slope));
        if (!same) continue;
        *attrs_out = (nets_attrs){.tanh = activations[k].tanh, .slope = activations[k].sloped ? (float)slope : 0};
        return activations[k].op;
    }
    return NETS_OP_KINDS;
}
