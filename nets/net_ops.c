#include "nets/net_ops.h"

enum { MAX_EXTENT = 1 << 24 }; /* of one dimension: keeps sums of a few of them far from overflow */

static const int64_t MAX_ELEMS = INT64_C(1) << 60;

int64_t nets_mul(int64_t a, int64_t b) {
    int64_t product;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > MAX_ELEMS) return -1;
    return product;
}

static const char AXIS[2][8] = {"height", "width"};

static mm_status infer_same(nets_layer *layer, const int64_t (*in)[3]) {
    for (int d = 0; d < 3; d++) layer->shape[d] = in[0][d];
    return MM_OK;
}

/* The windows' geometry that convolutions and pools have in common. */
static mm_status infer_windows(nets_layer *layer, const int64_t in[3], bool pool) {
    nets_attrs *a = &layer->attrs;
    for (int d = 0; d < 2; d++) {
        if (a->stride[d] == 0) a->stride[d] = pool ? a->kernel[d] : 1;
        if (a->kernel[d] < 1 || a->kernel[d] > MAX_EXTENT || a->stride[d] < 1 || a->stride[d] > MAX_EXTENT)
            return mm_fail(MM_ERR_INVALID, "layer %s: kernel %lld or stride %lld out of range", layer->name,
                           (long long)a->kernel[d], (long long)a->stride[d]);
        /* A pool's window that lies wholly in the padding would have no maximum. */
        if (a->pad[d] < 0 || a->pad[d] > MAX_EXTENT || (pool && 2 * a->pad[d] > a->kernel[d]))
            return mm_fail(MM_ERR_INVALID, "layer %s: padding %lld out of range", layer->name, (long long)a->pad[d]);
        int64_t room = in[d] + 2 * a->pad[d] - a->kernel[d];
        if (room < 0)
            return mm_fail(MM_ERR_INVALID, "layer %s: kernel %lld does not fit into %s %lld padded by %lld",
                           layer->name, (long long)a->kernel[d], AXIS[d], (long long)in[d], (long long)a->pad[d]);
        layer->shape[d] = room / a->stride[d] + 1;
    }
    return MM_OK;
}

static mm_status check_out_channels(const nets_layer *layer) {
    int64_t n = layer->attrs.out_channels;
    if (n >= 1 && n <= MAX_EXTENT) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "layer %s: %lld output channels", layer->name, (long long)n);
}

static mm_status infer_conv(nets_layer *layer, const int64_t (*in)[3]) {
    MM_TRY(check_out_channels(layer));
    MM_TRY(infer_windows(layer, in[0], false));
    layer->shape[2] = layer->attrs.out_channels;
    return MM_OK;
}

static int params_conv(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    const nets_attrs *a = &layer->attrs;
    out[0] =
        (nets_param_spec){"weight", NETS_PARAM_WEIGHT, true, 4, {a->out_channels, in[2], a->kernel[0], a->kernel[1]}};
    if (!a->bias) return 1;
    out[1] = (nets_param_spec){"bias", NETS_PARAM_BIAS, true, 1, {a->out_channels, 1, 1, 1}};
    return 2;
}

static mm_status infer_linear(nets_layer *layer, const int64_t (*in)[3]) {
    (void)in;
    MM_TRY(check_out_channels(layer));
    layer->shape[0] = layer->shape[1] = 1;
    layer->shape[2] = layer->attrs.out_channels;
    return MM_OK;
}

static int params_linear(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    const nets_attrs *a = &layer->attrs;
    int64_t features = in[0] * in[1] * in[2];
    out[0] = (nets_param_spec){"weight", NETS_PARAM_WEIGHT, true, 2, {a->out_channels, features, 1, 1}};
    if (!a->bias) return 1;
    out[1] = (nets_param_spec){"bias", NETS_PARAM_BIAS, true, 1, {a->out_channels, 1, 1, 1}};
    return 2;
}

static mm_status infer_batch_norm(nets_layer *layer, const int64_t (*in)[3]) {
    nets_attrs *a = &layer->attrs;
    if (a->eps == 0) a->eps = 1e-5f;
    if (a->momentum == 0) a->momentum = 0.1f;
    if (!(a->eps > 0 && a->eps < 1) || !(a->momentum > 0 && a->momentum <= 1))
        return mm_fail(MM_ERR_INVALID, "layer %s: eps %g or momentum %g out of range", layer->name, (double)a->eps,
                       (double)a->momentum);
    return infer_same(layer, in);
}

static int params_batch_norm(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    (void)layer;
    out[0] = (nets_param_spec){"weight", NETS_PARAM_WEIGHT, true, 1, {in[2], 1, 1, 1}};
    out[1] = (nets_param_spec){"bias", NETS_PARAM_BIAS, true, 1, {in[2], 1, 1, 1}};
    out[2] = (nets_param_spec){"running_mean", NETS_PARAM_RUNNING_MEAN, false, 1, {in[2], 1, 1, 1}};
    out[3] = (nets_param_spec){"running_var", NETS_PARAM_RUNNING_VAR, false, 1, {in[2], 1, 1, 1}};
    return 4;
}

static mm_status infer_pool(nets_layer *layer, const int64_t (*in)[3]) {
    layer->shape[2] = in[0][2];
    return infer_windows(layer, in[0], true);
}

static mm_status infer_max_pool(nets_layer *layer, const int64_t (*in)[3]) {
    MM_TRY(infer_pool(layer, in));
    const int64_t *k = layer->attrs.kernel;
    /* The index map names the window's element in one byte. */
    if (k[0] > 255 || k[1] > 255 || k[0] * k[1] > 255)
        return mm_fail(MM_ERR_UNSUPPORTED, "layer %s: a max pool of %lldx%lld, at most 255 elements", layer->name,
                       (long long)k[0], (long long)k[1]);
    return MM_OK;
}

static mm_status infer_global_pool(nets_layer *layer, const int64_t (*in)[3]) {
    layer->attrs.kernel[0] = layer->attrs.stride[0] = in[0][0];
    layer->attrs.kernel[1] = layer->attrs.stride[1] = in[0][1];
    return infer_pool(layer, in);
}

static mm_status infer_add(nets_layer *layer, const int64_t (*in)[3]) {
    for (int d = 0; d < 3; d++)
        if (in[0][d] != in[1][d])
            return mm_fail(MM_ERR_INVALID, "layer %s: adds %lldx%lldx%lld to %lldx%lldx%lld", layer->name,
                           (long long)in[1][0], (long long)in[1][1], (long long)in[1][2], (long long)in[0][0],
                           (long long)in[0][1], (long long)in[0][2]);
    if (layer->inputs[0] == layer->inputs[1])
        return mm_fail(MM_ERR_UNSUPPORTED, "layer %s: adds a layer to itself", layer->name);
    return infer_same(layer, in);
}

static mm_status infer_dropout(nets_layer *layer, const int64_t (*in)[3]) {
    float p = layer->attrs.p;
    if (!(p >= 0 && p < 1)) return mm_fail(MM_ERR_INVALID, "layer %s: rate %g not in [0, 1)", layer->name, (double)p);
    return infer_same(layer, in);
}

static const nets_op_info OPS[NETS_OP_KINDS] = {
    [NETS_DATA] = {.name = "data", .n_inputs = 0},
    [NETS_CONV] = {.name = "conv", .n_inputs = 1, .infer = infer_conv, .params = params_conv},
    [NETS_BATCH_NORM] = {"batch_norm", .n_inputs = 1, .infer = infer_batch_norm, .params = params_batch_norm},
    [NETS_RELU] = {.name = "relu", .n_inputs = 1, .infer = infer_same},
    [NETS_MAX_POOL] = {.name = "max_pool", .n_inputs = 1, .infer = infer_max_pool},
    [NETS_AVG_POOL] = {.name = "avg_pool", .n_inputs = 1, .infer = infer_pool},
    [NETS_GLOBAL_AVG_POOL] = {.name = "global_avg_pool", .n_inputs = 1, .infer = infer_global_pool},
    [NETS_LINEAR] = {.name = "linear", .n_inputs = 1, .infer = infer_linear, .params = params_linear},
    [NETS_ADD] = {.name = "add", .n_inputs = 2, .infer = infer_add},
    [NETS_DROPOUT] = {.name = "dropout", .n_inputs = 1, .infer = infer_dropout},
    [NETS_LOSS] = {.name = "loss", .n_inputs = 1, .infer = infer_same},
};

const nets_op_info *nets_op_info_of(nets_op_kind op) { return (unsigned)op < NETS_OP_KINDS ? &OPS[op] : NULL; }

const char *nets_op_name(nets_op_kind op) {
    const nets_op_info *info = nets_op_info_of(op);
    return info ? info->name : "?";
}
