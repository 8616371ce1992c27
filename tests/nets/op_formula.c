/* SPDX-License-Identifier: MIT */
#include "tests/nets/op_formula.h"

#include <math.h>

typedef struct spot {
    int64_t n, y, x, c;
} spot;

static spot spot_of(const nets_shape *shape, int64_t e) {
    const int64_t *d = shape->dims;
    return (spot){e / (d[3] * d[2] * d[1]), e / (d[3] * d[2]) % d[1], e / d[3] % d[2], e % d[3]};
}

/* The element of X at s; 0 outside the image. */
static double x_at(const op_rig *rig, spot s) {
    const int64_t *d = rig->desc.x[0].dims;
    if (s.y < 0 || s.y >= d[1] || s.x < 0 || s.x >= d[2]) return 0;
    return op_rig_floats(rig, NETS_X)[((s.n * d[1] + s.y) * d[2] + s.x) * d[3] + s.c];
}

static double bias_at(const op_rig *rig, int64_t c) { return rig->bytes[NETS_B] ? op_rig_floats(rig, NETS_B)[c] : 0; }

/* Weights [out, in / groups, kh, kw]. */
double op_formula_conv(const op_rig *rig, int64_t e) {
    const nets_attrs *a = &rig->desc.attrs;
    const spot at = spot_of(&rig->desc.y, e);
    const int64_t in_group = rig->desc.x[0].dims[3] / a->groups, group = at.c / (rig->desc.y.dims[3] / a->groups);
    const float *w = op_rig_floats(rig, NETS_W);
    double sum = bias_at(rig, at.c);
    for (int64_t c = 0; c < in_group; c++)
        for (int64_t ky = 0; ky < a->kernel[0]; ky++)
            for (int64_t kx = 0; kx < a->kernel[1]; kx++)
                sum += x_at(rig, (spot){at.n, at.y * a->stride[0] + ky * a->dilation[0] - a->pad[0],
                                        at.x * a->stride[1] + kx * a->dilation[1] - a->pad[1], group * in_group + c}) *
                       w[op_rig_place(rig, NETS_W, ((at.c * in_group + c) * a->kernel[0] + ky) * a->kernel[1] + kx)];
    return sum;
}

/* The input position from which kernel position k reaches output position `at`; -1: none. */
static int64_t before(int64_t at, int64_t k, const nets_attrs *a, int axis) {
    const int64_t moved = at + a->pad[axis] - k * a->dilation[axis];
    return moved >= 0 && moved % a->stride[axis] == 0 ? moved / a->stride[axis] : -1;
}

/* Weights [in, out / groups, kh, kw]. */
double op_formula_conv_transpose(const op_rig *rig, int64_t e) {
    const nets_attrs *a = &rig->desc.attrs;
    const spot at = spot_of(&rig->desc.y, e);
    const int64_t in_group = rig->desc.x[0].dims[3] / a->groups, out_group = rig->desc.y.dims[3] / a->groups;
    const float *w = op_rig_floats(rig, NETS_W);
    double sum = bias_at(rig, at.c);
    for (int64_t i = 0; i < in_group; i++)
        for (int64_t ky = 0; ky < a->kernel[0]; ky++)
            for (int64_t kx = 0; kx < a->kernel[1]; kx++) {
                const int64_t c = at.c / out_group * in_group + i;
                sum += x_at(rig, (spot){at.n, before(at.y, ky, a, 0), before(at.x, kx, a, 1), c}) *
                       w[op_rig_place(rig, NETS_W,
                                      ((c * out_group + at.c % out_group) * a->kernel[0] + ky) * a->kernel[1] + kx)];
            }
    return sum;
}

/* Features are counted channel by channel, images are stored pixel by pixel. */
double op_formula_linear(const op_rig *rig, int64_t e) {
    const int64_t *x = rig->desc.x[0].dims, pixels = x[1] * x[2], features = pixels * x[3];
    const int64_t out = nets_shape_channels(&rig->desc.y), n = e / out, o = e % out;
    const float *in = op_rig_floats(rig, NETS_X), *w = op_rig_floats(rig, NETS_W);
    double sum = bias_at(rig, o);
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t c = 0; c < x[3]; c++)
            sum += (double)in[n * features + p * x[3] + c] * w[o * features + c * pixels + p];
    return sum;
}

double op_formula_lrn(const op_rig *rig, int64_t e) {
    const nets_attrs *a = &rig->desc.attrs;
    const float *x = op_rig_floats(rig, NETS_X);
    const int64_t channels = rig->desc.x[0].dims[3], c = e % channels, pixel = e - c;
    double sum = 0;
    for (int64_t j = c - a->size / 2; j <= c + a->size / 2; j++)
        if (j >= 0 && j < channels) sum += (double)x[pixel + j] * x[pixel + j];
    return x[e] / pow(a->k + (double)a->alpha / (double)a->size * sum, a->beta);
}

/* Where the centre of pixel `at` lies in the input image, along one axis: torch's rule with align_corners=False,
 * clamped to the centres of the outermost pixels. */
static double position(int64_t at, int64_t scale, int64_t extent) {
    return fmin(fmax(((double)at + 0.5) / (double)scale - 0.5, 0), (double)extent - 1);
}

double op_formula_upsample(const op_rig *rig, int64_t e) {
    const nets_attrs *a = &rig->desc.attrs;
    const int64_t *x = rig->desc.x[0].dims;
    const spot at = spot_of(&rig->desc.y, e);
    if (!a->bilinear) return x_at(rig, (spot){at.n, at.y / a->scale[0], at.x / a->scale[1], at.c});
    const double py = position(at.y, a->scale[0], x[1]), px = position(at.x, a->scale[1], x[2]);
    const int64_t top = (int64_t)py, left = (int64_t)px;
    const int64_t bottom = top + 1 < x[1] ? top + 1 : top, right = left + 1 < x[2] ? left + 1 : left;
    const double v = py - (double)top, u = px - (double)left;
    return (1 - v) *
               ((1 - u) * x_at(rig, (spot){at.n, top, left, at.c}) + u * x_at(rig, (spot){at.n, top, right, at.c})) +
           v * ((1 - u) * x_at(rig, (spot){at.n, bottom, left, at.c}) +
                u * x_at(rig, (spot){at.n, bottom, right, at.c}));
}

double op_formula_crop(const op_rig *rig, int64_t e) {
    const int64_t *offset = rig->desc.attrs.offset;
    const spot at = spot_of(&rig->desc.y, e);
    return x_at(rig, (spot){at.n, at.y + offset[0], at.x + offset[1], at.c});
}

double op_formula_relu(const op_rig *rig, int64_t e) { return fmax(op_rig_floats(rig, NETS_X)[e], 0); }

double op_formula_leaky_relu(const op_rig *rig, int64_t e) {
    const double x = (double)op_rig_floats(rig, NETS_X)[e];
    return x < 0 ? (double)rig->desc.attrs.slope * x : x;
}

double op_formula_scale(const op_rig *rig, int64_t e) {
    return (double)rig->desc.attrs.slope * op_rig_floats(rig, NETS_X)[e];
}

double op_formula_relu6(const op_rig *rig, int64_t e) { return fmin(fmax(op_rig_floats(rig, NETS_X)[e], 0), 6); }

double op_formula_sigmoid(const op_rig *rig, int64_t e) {
    return 1 / (1 + exp(-(double)op_rig_floats(rig, NETS_X)[e]));
}

double op_formula_silu(const op_rig *rig, int64_t e) {
    return (double)op_rig_floats(rig, NETS_X)[e] * op_formula_sigmoid(rig, e);
}

double op_formula_hard_sigmoid(const op_rig *rig, int64_t e) {
    return fmin(fmax((double)op_rig_floats(rig, NETS_X)[e] + 3, 0), 6) / 6;
}

double op_formula_hard_swish(const op_rig *rig, int64_t e) {
    const double x = (double)op_rig_floats(rig, NETS_X)[e];
    return x * fmin(fmax(x + 3, 0), 6) / 6;
}

double op_formula_gelu(const op_rig *rig, int64_t e) {
    const double x = (double)op_rig_floats(rig, NETS_X)[e], root = sqrt(2 / acos(-1));
    return rig->desc.attrs.tanh ? x * (1 + tanh(root * (x + 0.044715 * x * x * x))) / 2 : x * erfc(-x / sqrt(2)) / 2;
}

double op_formula_add(const op_rig *rig, int64_t e) {
    return op_rig_floats(rig, NETS_X)[e] + op_rig_floats(rig, NETS_X2)[e];
}

/* X2 has X's shape, or one number for each image and channel. */
double op_formula_mul(const op_rig *rig, int64_t e) {
    const spot at = spot_of(&rig->desc.y, e);
    const int64_t *d = rig->desc.x[1].dims;
    const int64_t y = d[1] == 1 ? 0 : at.y, x = d[2] == 1 ? 0 : at.x;
    return (double)op_rig_floats(rig, NETS_X)[e] *
           op_rig_floats(rig, NETS_X2)[((at.n * d[1] + y) * d[2] + x) * d[3] + at.c];
}

double op_formula_group_norm(const op_rig *rig, int64_t e) {
    const spot at = spot_of(&rig->desc.y, e);
    const int64_t *d = rig->desc.x[0].dims, pixels = d[1] * d[2], each = d[3] / rig->desc.attrs.groups;
    const float *image = op_rig_floats(rig, NETS_X) + at.n * pixels * d[3] + at.c / each * each;
    double mean = 0, var = 0;
    for (int64_t i = 0; i < pixels * each; i++) mean += image[i / each * d[3] + i % each];
    mean /= (double)(pixels * each);
    for (int64_t i = 0; i < pixels * each; i++) var += pow(image[i / each * d[3] + i % each] - mean, 2);
    var /= (double)(pixels * each);
    return (op_rig_floats(rig, NETS_X)[e] - mean) / sqrt(var + (double)rig->desc.attrs.eps) *
               op_rig_floats(rig, NETS_W)[at.c] +
           op_rig_floats(rig, NETS_B)[at.c];
}

double op_formula_rms_norm(const op_rig *rig, int64_t e) {
    const int64_t channels = rig->desc.x[0].dims[3], c = e % channels;
    const float *row = op_rig_floats(rig, NETS_X) + (e - c);
    double squares = 0;
    for (int64_t i = 0; i < channels; i++) squares += (double)row[i] * row[i];
    return row[c] / sqrt(squares / (double)channels + (double)rig->desc.attrs.eps) * op_rig_floats(rig, NETS_W)[c];
}

/* One window: its maximum and that element's index, its sum, the number of its elements inside the image. */
typedef struct window {
    float max;
    int index, inside;
    double sum;
} window;

static window look(const op_rig *rig, int64_t e) {
    const int64_t *d = rig->desc.x[0].dims;
    const nets_attrs *a = &rig->desc.attrs;
    const spot at = spot_of(&rig->desc.y, e);
    window w = {.max = -INFINITY};
    for (int64_t ky = 0; ky < a->kernel[0]; ky++)
        for (int64_t kx = 0; kx < a->kernel[1]; kx++) {
            const spot s = {at.n, at.y * a->stride[0] + ky - a->pad[0], at.x * a->stride[1] + kx - a->pad[1], at.c};
            if (s.y < 0 || s.y >= d[1] || s.x < 0 || s.x >= d[2]) continue;
            const float value = (float)x_at(rig, s);
            w.inside++;
            w.sum += value;
            if (value > w.max) {
                w.max = value;
                w.index = (int)(ky * a->kernel[1] + kx);
            }
        }
    return w;
}

/* The maximum of a window with a NaN is NaN: else a diverged run would look sound. */
double op_formula_max_pool(const op_rig *rig, int64_t e) {
    const window w = look(rig, e);
    return isnan(w.sum) ? NAN : w.max;
}

int op_formula_max_index(const op_rig *rig, int64_t e) { return look(rig, e).index; }

/* In ceil mode, positions beyond the padding never count. */
double op_formula_avg_pool(const op_rig *rig, int64_t e) {
    const nets_attrs *a = &rig->desc.attrs;
    const window w = look(rig, e);
    const bool all = !a->exclude_pad && !a->ceil_mode;
    return w.sum / (all ? (double)(a->kernel[0] * a->kernel[1]) : w.inside);
}
