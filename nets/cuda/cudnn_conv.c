#include "nets/cuda/cudnn_conv.h"

static void keep_none(nets_cudnn_conv *conv) {
    nets_cudnn_plan_fini(&conv->plan);
    nets_cudnn_graph_fini(&conv->graph);
    conv->choice = (nets_conv_choice){.api = NETS_CONV_UNCHOSEN};
}

static mm_status make_engine(nets_cudnn_conv *conv, const nets_conv_choice *choice, int64_t *bytes_out) {
    MM_TRY(nets_cudnn_graph_init(&conv->graph, conv->cuda, &conv->shape));
    MM_TRY(nets_cudnn_plan_init(&conv->plan, &conv->graph, choice));
    *bytes_out = conv->plan.workspace_bytes;
    return MM_OK;
}

static mm_status make_product(nets_cudnn_conv *conv, const nets_conv_choice *choice, int64_t *bytes_out) {
    if (!conv->product.lt) return mm_fail(MM_ERR_UNSUPPORTED, "it is no product");
    MM_TRY(nets_product_make(&conv->product, choice, &conv->algorithm));
    *bytes_out = conv->algorithm.workspace_bytes;
    return MM_OK;
}

static mm_status make_kept(nets_cudnn_conv *conv, const nets_conv_choice *kept) {
    int64_t bytes = 0;
    if (kept->api == NETS_CONV_LEGACY && !nets_cudnn_legacy_holds(conv, kept))
        return mm_fail(MM_ERR_UNSUPPORTED, "there is no such algorithm now, or it takes more workspace");
    if (kept->api == NETS_CONV_GRAPH) MM_TRY(make_engine(conv, kept, &bytes));
    if (kept->api == NETS_CONV_PRODUCT) MM_TRY(make_product(conv, kept, &bytes));
    if (bytes <= kept->workspace_bytes) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "it takes %lld bytes of workspace now", (long long)bytes);
}

/* A choice kept by another build of the library may no longer hold. */
static bool take_kept(nets_cudnn_conv *conv, const nets_conv_choice *kept) {
    if (make_kept(conv, kept) != MM_OK) {
        mm_log_send(&conv->cuda->config.log, MM_LOG_DEBUG, "what was kept for a convolution is chosen anew: %s",
                    mm_last_error());
        keep_none(conv);
        return false;
    }
    conv->choice = *kept;
    return true;
}

static mm_status choose(nets_cudnn_conv *conv) {
    nets_cuda_backend *cuda = conv->cuda;
    const nets_conv_choice *kept = nets_cuda_choices_find(&cuda->choices, &conv->shape, &conv->terms);
    if (!cuda->dnn && !cuda->properties) {
        conv->choice = kept ? *kept : (nets_conv_choice){.workspace_bytes = conv->terms.limit_bytes};
        return MM_OK;
    }
    if (kept && take_kept(conv, kept)) return MM_OK;
    bool timed;
    MM_TRY(nets_cudnn_choose(conv, &timed));
    return timed ? nets_cuda_choices_keep(&cuda->choices, &conv->shape, &conv->terms, &conv->choice) : MM_OK;
}

static int64_t elems(int64_t a, int64_t b, int64_t c, int64_t d) { return a * b * c * d; }

static mm_status init(nets_cudnn_conv *conv) {
    const nets_conv_shape *s = &conv->shape;
    const int64_t x = elems(s->x[0], s->x[1], s->x[2], s->x[3]), y = elems(s->y[0], s->y[1], s->y[2], s->y[3]);
    conv->x_bytes = x * (int64_t)sizeof(float);
    conv->y_bytes = y * (int64_t)sizeof(float);
    conv->weights_bytes = elems(s->y[3], s->kernel[0], s->kernel[1], s->x[3] / s->groups) * (int64_t)sizeof(float);
    const bool has_legacy = x <= INT32_MAX && y <= INT32_MAX && !conv->cuda->properties;
    if (has_legacy) MM_TRY(nets_cudnn_legacy_init(&conv->legacy, s));
    if (nets_product_init(&conv->product, conv->cuda, s) != MM_OK)
        mm_log_send(&conv->cuda->config.log, MM_LOG_DEBUG, "a convolution is left to cuDNN: %s", mm_last_error());
    return choose(conv);
}

mm_status nets_cudnn_conv_init(nets_cudnn_conv *conv, nets_cuda_backend *cuda, const nets_conv_shape *shape,
                               const nets_conv_terms *terms) {
    *conv = (nets_cudnn_conv){.cuda = cuda, .shape = *shape, .terms = *terms};
    mm_status status = init(conv);
    if (status != MM_OK) nets_cudnn_conv_fini(conv);
    return status;
}

void nets_cudnn_conv_fini(nets_cudnn_conv *conv) {
    keep_none(conv);
    nets_cudnn_legacy_fini(&conv->legacy);
}

mm_status nets_cudnn_conv_launch(const nets_cudnn_conv *conv, void *x, void *y, void *weights, void *workspace,
                                 cudaStream_t stream) {
    if (conv->choice.api == NETS_CONV_PRODUCT)
        return nets_product_enqueue(&conv->product, &conv->algorithm, x, y, weights, workspace, stream);
    if (conv->choice.api == NETS_CONV_GRAPH) return nets_cudnn_plan_enqueue(&conv->plan, x, y, weights, workspace);
    return nets_cudnn_legacy_launch(conv, x, y, weights, workspace);
}

mm_status nets_cudnn_conv_enqueue(const nets_cudnn_conv *conv, void *x, void *y, void *weights, void *workspace,
                                  mm_stream *stream) {
    cudnnHandle_t dnn;
    MM_TRY(nets_cuda_dnn_on(conv->cuda, stream, &dnn));
    return nets_cudnn_conv_launch(conv, x, y, weights, workspace, mm_cuda_stream(stream));
}
