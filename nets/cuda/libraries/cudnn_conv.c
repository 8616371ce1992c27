/* SPDX-License-Identifier: MIT */
/* Chooses what computes a convolution: the cached choices, or new ones. */
#include "nets/cuda/libraries/cudnn_conv.h"

#include "mm/core/log.h"

static void keep_none(nets_cudnn_conv *conv) {
    for (int i = 0; i < conv->n; i++) nets_cudnn_plan_fini(&conv->of[i].plan);
    nets_cudnn_graph_fini(&conv->graph);
    conv->n = 0;
}

static mm_status make_engine(nets_cudnn_conv *conv, nets_conv_algorithm *a, int64_t *bytes_out) {
    if (!conv->graph.graph) MM_TRY(nets_cudnn_graph_init(&conv->graph, conv->cuda, &conv->shape));
    MM_TRY(nets_cudnn_plan_init(&a->plan, &conv->graph, &a->choice));
    *bytes_out = a->plan.workspace_bytes;
    return MM_OK;
}

static mm_status make_product(nets_cudnn_conv *conv, nets_conv_algorithm *a, int64_t *bytes_out) {
    if (!conv->product.lt)
        return mm_fail(MM_ERR_UNSUPPORTED, "a cached algorithm is cuBLAS's, which cannot compute this");
    MM_TRY(nets_gemm_make(&conv->product, &a->choice, &a->product));
    *bytes_out = a->product.workspace_bytes;
    return MM_OK;
}

static mm_status make_kept(nets_cudnn_conv *conv, const nets_conv_choice *kept) {
    nets_conv_algorithm *a = &conv->of[conv->n++];
    int64_t bytes = 0;
    *a = (nets_conv_algorithm){.choice = *kept};
    if (kept->api == NETS_CONV_LEGACY && !nets_cudnn_legacy_holds(conv, kept))
        return mm_fail(MM_ERR_UNSUPPORTED, "cuDNN no longer has a cached algorithm, or it takes more workspace");
    if (kept->api == NETS_CONV_GRAPH) MM_TRY(make_engine(conv, a, &bytes));
    if (kept->api == NETS_CONV_PRODUCT) MM_TRY(make_product(conv, a, &bytes));
    if (bytes <= kept->workspace_bytes) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "a cached algorithm now takes %lld bytes of workspace", (long long)bytes);
}

/* How many of n choices are used. A deterministic configuration uses one: with several, the result's bits would depend
 * on which of them a plan has room for. */
static int used_of(const nets_cudnn_conv *conv, int n) { return conv->cuda->config.deterministic ? 1 : n; }

/* Prepares the cached choices. *taken_out false: one of them no longer holds, for instance because another build of the
 * library made it. MM_ERR_NOMEM is returned: other algorithms might give other bits. */
static mm_status take_kept(nets_cudnn_conv *conv, const nets_conv_pareto *kept, bool *taken_out) {
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < used_of(conv, kept->n); i++) status = make_kept(conv, &kept->of[i]);
    *taken_out = status == MM_OK;
    if (status == MM_OK) return MM_OK;
    keep_none(conv);
    if (status == MM_ERR_NOMEM) return status;
    mm_log_send(&conv->cuda->config.log, MM_LOG_DEBUG, "chooses a convolution's algorithms anew: %s", mm_last_error());
    return MM_OK;
}

/* Without a device nothing is prepared: takes the choices cached for any device, `kept`, for their workspaces. If there
 * are none, the workspace is the limit. */
static void describe(nets_cudnn_conv *conv, const nets_conv_pareto *kept) {
    conv->n = kept ? used_of(conv, kept->n) : 1;
    conv->of[0].choice.workspace_bytes = conv->terms.limit_bytes;
    for (int i = 0; kept && i < conv->n; i++) conv->of[i].choice = kept->of[i];
}

static mm_status choose_anew(nets_cudnn_conv *conv) {
    bool timed;
    MM_TRY(nets_cudnn_choose(conv, &timed));
    nets_conv_pareto front = {.n = conv->n};
    for (int i = 0; i < conv->n; i++) front.of[i] = conv->of[i].choice;
    while (conv->n > used_of(conv, conv->n)) nets_cudnn_plan_fini(&conv->of[--conv->n].plan);
    return timed ? nets_algorithm_cache_store(&conv->cuda->choices, &conv->shape, &conv->terms, &front) : MM_OK;
}

static mm_status choose(nets_cudnn_conv *conv) {
    nets_cuda_backend *cuda = conv->cuda;
    const nets_conv_pareto *kept = nets_algorithm_cache_find(&cuda->choices, &conv->shape, &conv->terms);
    if (!cuda->dnn && !cuda->properties) {
        describe(conv, kept);
        return MM_OK;
    }
    bool taken = false;
    if (kept) MM_TRY(take_kept(conv, kept, &taken));
    return taken ? MM_OK : choose_anew(conv);
}

static int64_t elems(int64_t a, int64_t b, int64_t c, int64_t d) { return a * b * c * d; }

/* Bytes of an element of the tensor that direction `giving` computes. */
static int64_t bytes_of(const nets_conv_shape *s, nets_direction giving) {
    return nets_conv_is_bf16(s, giving) ? sizeof(uint16_t) : sizeof(float);
}

static mm_status init(nets_cudnn_conv *conv) {
    const nets_conv_shape *s = &conv->shape;
    const int64_t x = elems(s->x[0], s->x[1], s->x[2], s->x[3]),
                  y = elems(s->y[0], s->y[1], s->y[2], s->pitch > 0 ? s->pitch : s->y[3]);
    const int64_t weights = elems(s->y[3], s->kernel[0], s->kernel[1], s->x[3] / s->groups);
    conv->x_bytes = x * bytes_of(s, NETS_CONV_BY_INPUT);
    conv->y_bytes = y * bytes_of(s, NETS_CONV_FORWARD);
    conv->weights_bytes = weights * bytes_of(s, NETS_CONV_BY_WEIGHTS);
    /* The legacy API wants one type for all tensors. */
    const bool one_type = !s->bf16 || (nets_conv_gives_bf16(s) && !nets_conv_has_epilogue(s));
    const bool has_legacy = one_type && s->pitch == 0 && x <= INT32_MAX && y <= INT32_MAX && !conv->cuda->properties;
    if (has_legacy) MM_TRY(nets_cudnn_legacy_init(&conv->legacy, s));
    if (nets_gemm_init(&conv->product, conv->cuda, s) != MM_OK)
        mm_log_send(&conv->cuda->config.log, MM_LOG_DEBUG, "leaves a convolution to cuDNN, without cuBLAS: %s",
                    mm_last_error());
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
