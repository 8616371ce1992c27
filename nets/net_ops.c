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

/* The attributes of windows that convolutions and pools have in common. */
static mm_status check_windows(nets_layer *layer, bool pool) {
    nets_attrs *a = &layer->attrs;
    for (int d = 0; d < 2; d++) {
        if (a->stride[d] == 0) a->stride[d] = pool ? a->kernel[d] : 1;
        if (a->kernel[d] < 1 || a->kernel[d] > MAX_EXTENT || a->stride[d] < 1 || a->stride[d] > MAX_EXTENT)
            return mm_fail(MM_ERR_INVALID, "layer %s: kernel %lld or stride %lld out of range", layer->name,
                           (long long)a->kernel[d], (long long)a->stride[d]);
        /* A pool's window that lies wholly in the padding would have no maximum. */
        if (a->pad[d] < 0 || a->pad[d] > MAX_EXTENT || (pool && 2 * a->pad[d] > a->kernel[d]))
            return mm_fail(MM_ERR_INVALID, "layer %s: padding %lld out of range", layer->name, (long long)a->pad[d]);
    }
    return MM_OK;
}

/* What a kernel covers of an axis. */
static int64_t reach(const nets_attrs *a, int d) {
    int64_t dilation = a->dilation[d] ? a->dilation[d] : 1; /* pools have none */
    return dilation * (a->kernel[d] - 1) + 1;
}

static mm_status infer_windows(nets_layer *layer, const int64_t in[3]) {
    const nets_attrs *a = &layer->attrs;
    for (int d = 0; d < 2; d++) {
        int64_t room = in[d] + 2 * a->pad[d] - reach(a, d);
        if (room < 0)
            return mm_fail(MM_ERR_INVALID, "layer %s: kernel %lld does not fit into %s %lld padded by %lld",
                           layer->name, (long long)reach(a, d), AXIS[d], (long long)in[d], (long long)a->pad[d]);
        int64_t last = room / a->stride[d];
        /* torch's rule: one more for the rest, unless it would begin in the padding behind. */
        if (a->ceil_mode && room % a->stride[d] && (last + 1) * a->stride[d] < in[d] + a->pad[d]) last++;
        layer->shape[d] = last + 1;
    }
    return MM_OK;
}

static mm_status check_out_channels(const nets_layer *layer) {
    int64_t n = layer->attrs.out_channels;
    if (n >= 1 && n <= MAX_EXTENT) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "layer %s: %lld output channels", layer->name, (long long)n);
}

/* What both convolutions have in common. */
static mm_status check_conv(nets_layer *layer, const int64_t in[3]) {
    nets_attrs *a = &layer->attrs;
    MM_TRY(check_out_channels(layer));
    MM_TRY(check_windows(layer, false));
    for (int d = 0; d < 2; d++) {
        if (a->dilation[d] == 0) a->dilation[d] = 1;
        if (a->dilation[d] < 1 || a->dilation[d] > MAX_EXTENT)
            return mm_fail(MM_ERR_INVALID, "layer %s: dilation %lld out of range", layer->name,
                           (long long)a->dilation[d]);
    }
    if (a->groups == 0) a->groups = 1;
    if (a->groups < 1 || in[2] % a->groups || a->out_channels % a->groups)
        return mm_fail(MM_ERR_INVALID, "layer %s: %lld groups do not divide %lld input and %lld output channels",
                       layer->name, (long long)a->groups, (long long)in[2], (long long)a->out_channels);
    layer->shape[2] = a->out_channels;
    return MM_OK;
}

static mm_status infer_conv(nets_layer *layer, const int64_t (*in)[3]) {
    MM_TRY(check_conv(layer, in[0]));
    return infer_windows(layer, in[0]);
}

static mm_status infer_conv_transpose(nets_layer *layer, const int64_t (*in)[3]) {
    const nets_attrs *a = &layer->attrs;
    MM_TRY(check_conv(layer, in[0]));
    for (int d = 0; d < 2; d++) {
        /* More would be rows that the convolution whose gradient this is does not look at. */
        if (a->output_pad[d] < 0 || a->output_pad[d] >= a->stride[d])
            return mm_fail(MM_ERR_INVALID, "layer %s: output padding %lld, which must be less than the stride %lld",
                           layer->name, (long long)a->output_pad[d], (long long)a->stride[d]);
        layer->shape[d] = (in[0][d] - 1) * a->stride[d] + reach(a, d) + a->output_pad[d] - 2 * a->pad[d];
        if (layer->shape[d] < 1)
            return mm_fail(MM_ERR_INVALID, "layer %s: padding %lld leaves nothing of %s %lld", layer->name,
                           (long long)a->pad[d], AXIS[d], (long long)(layer->shape[d] + 2 * a->pad[d]));
    }
    return MM_OK;
}

/* A weight of these dims and, where wanted, a bias. */
static int params_weight_bias(const nets_layer *layer, int rank, int64_t d0, int64_t d1,
                              nets_param_spec out[NETS_MAX_PARAMS]) {
    const nets_attrs *a = &layer->attrs;
    bool kernel = rank == 4;
    out[0] = (nets_param_spec){
        "weight", NETS_PARAM_WEIGHT, true, rank, {d0, d1, kernel ? a->kernel[0] : 1, kernel ? a->kernel[1] : 1}};
    if (!a->bias) return 1;
    out[1] = (nets_param_spec){"bias", NETS_PARAM_BIAS, true, 1, {a->out_channels, 1, 1, 1}};
    return 2;
}

static int params_conv(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    return params_weight_bias(layer, 4, layer->attrs.out_channels, in[2] / layer->attrs.groups, out);
}

static int params_conv_transpose(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    return params_weight_bias(layer, 4, in[2], layer->attrs.out_channels / layer->attrs.groups, out);
}

static mm_status infer_linear(nets_layer *layer, const int64_t (*in)[3]) {
    (void)in;
    MM_TRY(check_out_channels(layer));
    layer->shape[0] = layer->shape[1] = 1;
    layer->shape[2] = layer->attrs.out_channels;
    return MM_OK;
}

static int params_linear(const nets_layer *layer, const int64_t in[3], nets_param_spec out[NETS_MAX_PARAMS]) {
    return params_weight_bias(layer, 2, layer->attrs.out_channels, in[0] * in[1] * in[2], out);
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

static mm_status infer_lrn(nets_layer *layer, const int64_t (*in)[3]) {
    nets_attrs *a = &layer->attrs;
    if (a->alpha == 0) a->alpha = 1e-4f;
    if (a->beta == 0) a->beta = 0.75f;
    if (a->k == 0) a->k = 1;
    if (a->size < 1 || a->size > MAX_EXTENT || a->size % 2 == 0)
        return mm_fail(MM_ERR_INVALID, "layer %s: windows of %lld channels, which must be odd", layer->name,
                       (long long)a->size);
    if (!(a->alpha > 0 && a->alpha <= MAX_EXTENT) || !(a->beta > 0 && a->beta <= 16) ||
        !(a->k > 0 && a->k <= MAX_EXTENT))
        return mm_fail(MM_ERR_INVALID, "layer %s: alpha %g, beta %g or k %g out of range", layer->name,
                       (double)a->alpha, (double)a->beta, (double)a->k);
    return infer_same(layer, in);
}

static mm_status infer_pool(nets_layer *layer, const int64_t (*in)[3]) {
    layer->shape[2] = in[0][2];
    MM_TRY(check_windows(layer, true));
    return infer_windows(layer, in[0]);
}

static mm_status infer_avg_pool(nets_layer *layer, const int64_t (*in)[3]) {
    MM_TRY(infer_pool(layer, in));
    const nets_attrs *a = &layer->attrs;
    bool padded = a->pad[0] || a->pad[1];
    for (int d = 0; d < 2; d++) {
        int64_t end = (layer->shape[d] - 1) * a->stride[d] + a->kernel[d];
        if (padded && !a->exclude_pad && end > in[0][d] + 2 * a->pad[d])
            return mm_fail(
                MM_ERR_UNSUPPORTED,
                "layer %s: an average that counts padding, of windows beyond it (ceil_mode); exclude_pad can",
                layer->name);
    }
    return MM_OK;
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
    return infer_same(layer, in);
}

static mm_status infer_concat(nets_layer *layer, const int64_t (*in)[3]) {
    MM_TRY(infer_same(layer, in));
    for (int i = 1; i < layer->n_inputs; i++) {
        if (in[i][0] != in[0][0] || in[i][1] != in[0][1])
            return mm_fail(MM_ERR_INVALID, "layer %s: its input %d is %lldx%lld, not %lldx%lld as the first",
                           layer->name, i, (long long)in[i][0], (long long)in[i][1], (long long)in[0][0],
                           (long long)in[0][1]);
        layer->shape[2] += in[i][2];
    }
    return MM_OK;
}

static mm_status infer_crop(nets_layer *layer, const int64_t (*in)[3]) {
    nets_attrs *a = &layer->attrs;
    for (int d = 0; d < 2; d++) {
        int64_t rest = in[0][d] - a->out_size[d];
        if (a->out_size[d] < 1 || rest < 0)
            return mm_fail(MM_ERR_INVALID, "layer %s: cannot crop %s %lld to %lld", layer->name, AXIS[d],
                           (long long)in[0][d], (long long)a->out_size[d]);
        if (a->center && a->offset[d] != 0 && a->offset[d] != rest / 2)
            return mm_fail(MM_ERR_INVALID, "layer %s: an offset %lld and center, which is %lld", layer->name,
                           (long long)a->offset[d], (long long)(rest / 2));
        if (a->center) a->offset[d] = rest / 2;
        if (a->offset[d] < 0 || a->offset[d] > rest)
            return mm_fail(MM_ERR_INVALID, "layer %s: %lld from %lld on is beyond %s %lld", layer->name,
                           (long long)a->out_size[d], (long long)a->offset[d], AXIS[d], (long long)in[0][d]);
        layer->shape[d] = a->out_size[d];
    }
    layer->shape[2] = in[0][2];
    return MM_OK;
}

static mm_status infer_upsample(nets_layer *layer, const int64_t (*in)[3]) {
    for (int d = 0; d < 2; d++) {
        int64_t scale = layer->attrs.scale[d];
        if (scale < 1 || scale > MAX_EXTENT)
            return mm_fail(MM_ERR_INVALID, "layer %s: factor %lld out of range", layer->name, (long long)scale);
        layer->shape[d] = in[0][d] * scale;
    }
    layer->shape[2] = in[0][2];
    return MM_OK;
}

static mm_status infer_dropout(nets_layer *layer, const int64_t (*in)[3]) {
    float p = layer->attrs.p;
    if (!(p >= 0 && p < 1)) return mm_fail(MM_ERR_INVALID, "layer %s: rate %g not in [0, 1)", layer->name, (double)p);
    return infer_same(layer, in);
}

static const nets_op_info OPS[NETS_OP_KINDS] = {
    [NETS_DATA] = {"data", 0, 0, NULL, NULL},
    [NETS_CONV] = {"conv", 1, 1, infer_conv, params_conv},
    [NETS_CONV_TRANSPOSE] = {"conv_transpose", 1, 1, infer_conv_transpose, params_conv_transpose},
    [NETS_BATCH_NORM] = {"batch_norm", 1, 1, infer_batch_norm, params_batch_norm},
    [NETS_LRN] = {"lrn", 1, 1, infer_lrn, NULL},
    [NETS_RELU] = {"relu", 1, 1, infer_same, NULL},
    [NETS_MAX_POOL] = {"max_pool", 1, 1, infer_max_pool, NULL},
    [NETS_AVG_POOL] = {"avg_pool", 1, 1, infer_avg_pool, NULL},
    [NETS_GLOBAL_AVG_POOL] = {"global_avg_pool", 1, 1, infer_global_pool, NULL},
    [NETS_LINEAR] = {"linear", 1, 1, infer_linear, params_linear},
    [NETS_ADD] = {"add", 2, 2, infer_add, NULL},
    [NETS_CONCAT] = {"concat", 2, NETS_MAX_INPUTS, infer_concat, NULL},
    [NETS_CROP] = {"crop", 1, 1, infer_crop, NULL},
    [NETS_UPSAMPLE] = {"upsample", 1, 1, infer_upsample, NULL},
    [NETS_DROPOUT] = {"dropout", 1, 1, infer_dropout, NULL},
    [NETS_LOSS] = {"loss", 1, 1, infer_same, NULL},
};

const nets_op_info *nets_op_info_of(nets_op_kind op) { return (unsigned)op < NETS_OP_KINDS ? &OPS[op] : NULL; }

const char *nets_op_name(nets_op_kind op) {
    const nets_op_info *info = nets_op_info_of(op);
    return info ? info->name : "?";
}
