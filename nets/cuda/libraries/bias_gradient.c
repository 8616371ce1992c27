/* SPDX-License-Identifier: MIT */
#include "nets/cuda/libraries/bias_gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/log.h"
#include "nets/cuda/libraries/timing.h"

/* Sums over n numbers below 1 may differ by n times this. Chosen: their f32 roundings add up to far less, while one
 * rounding to bf16 is more. */
static const double TOLERANCE = 0x1p-18;

/* A trial of the product's algorithms and of the kernel. */
typedef struct trial {
    const nets_cudnn_conv *dw;
    const nets_cuda_reduction *over;
    nets_cuda_timing timing;
    nets_conv_tensors at;
    void *scratch, *sums; /* the kernel's */
    const void *map;      /* that both sum up */
    int64_t channels;
    float *expected, *got, *again;
    int64_t own_ns;
} trial;

static mm_status start(trial *t, nets_conv_bf16 sums) {
    const int64_t bytes = t->channels * (int64_t)sizeof(float);
    float **const results[] = {&t->expected, &t->got, &t->again};
    for (int i = 0; i < 3; i++)
        if (!(*results[i] = malloc((size_t)bytes)))
            return mm_fail(MM_ERR_NOMEM, "no memory for %lld sums", (long long)t->channels);
    MM_TRY(nets_cuda_timing_start(&t->timing));
    MM_TRY(nets_cuda_timing_tensor(&t->timing, t->dw->x_bytes, true, &t->at.x));
    MM_TRY(nets_cuda_timing_tensor(&t->timing, t->dw->y_bytes, true, &t->at.y));
    MM_TRY(nets_cuda_timing_take(t->dw->weights_bytes, &t->at.weights));
    MM_TRY(nets_cuda_timing_take(bytes, &t->at.extra));
    MM_TRY(nets_cuda_timing_take(t->dw->of[0].choice.workspace_bytes, &t->at.workspace));
    MM_TRY(nets_cuda_timing_take(nets_strips_bytes(&t->over->strips), &t->scratch));
    MM_TRY(nets_cuda_timing_take(bytes, &t->sums));
    t->map = sums == NETS_CONV_BF16_SUMS_X ? t->at.x : t->at.y;
    return MM_OK;
}

static void end(trial *t) {
    void *const memory[] = {t->at.x, t->at.y, t->at.weights, t->at.extra, t->at.workspace, t->scratch, t->sums};
    nets_cuda_timing_stop(&t->timing);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (memory[i]) (void)cudaFree(memory[i]);
    nets_cuda_timing_end(&t->timing);
    free(t->expected);
    free(t->got);
    free(t->again);
}

static mm_status launch_own(const void *ctx, cudaStream_t stream) {
    const trial *t = ctx;
    nets_cuda_sum_rows(MM_BF16, t->map, t->over, t->scratch, t->sums, stream);
    return nets_cuda_launched("a bias's gradient");
}

static mm_status read_sums(const trial *t, const void *sums, float *to) {
    const size_t bytes = (size_t)t->channels * sizeof *to;
    MM_TRY(
        mm_cuda_check(cudaMemcpyAsync(to, sums, bytes, cudaMemcpyDeviceToHost, t->timing.stream), "cudaMemcpyAsync"));
    return mm_cuda_check(cudaStreamSynchronize(t->timing.stream), "cudaStreamSynchronize");
}

static mm_status run_product(const trial *t, int algorithm, float *to) {
    MM_TRY(nets_cudnn_conv_launch(t->dw, &t->dw->of[algorithm], &t->at, t->timing.stream));
    return read_sums(t, t->at.extra, to);
}

static mm_status check_sums(const trial *t, int algorithm) {
    const double most = TOLERANCE * (double)t->over->strips.rows;
    MM_TRY(run_product(t, algorithm, t->got));
    MM_TRY(run_product(t, algorithm, t->again));
    for (int64_t c = 0; c < t->channels; c++)
        if (!(fabs((double)t->got[c] - (double)t->expected[c]) <= most))
            return mm_fail(MM_ERR_UNSUPPORTED, "sum %lld is %g instead of %g", (long long)c, (double)t->got[c],
                           (double)t->expected[c]);
    if (memcmp(t->got, t->again, (size_t)t->channels * sizeof *t->got) != 0)
        return mm_fail(MM_ERR_UNSUPPORTED, "the sums have other bits when computed again");
    return MM_OK;
}

/* Fails if the product is not to give the sums. plain_ns: the product's time without them. */
static mm_status try_sums(trial *t, nets_conv_bf16 sums, int64_t plain_ns) {
    const int64_t ns = t->dw->of[0].choice.ns;
    MM_TRY(start(t, sums));
    MM_TRY(launch_own(t, t->timing.stream));
    MM_TRY(read_sums(t, t->sums, t->expected));
    for (int i = 0; i < t->dw->n; i++) MM_TRY(check_sums(t, i));
    MM_TRY(nets_cuda_timing_run(&t->timing, launch_own, t, INT64_MAX, &t->own_ns));
    if (ns <= plain_ns + t->own_ns) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "the product takes %.4f ms with them, %.4f ms without; the kernel %.4f ms",
                   (double)ns / 1e6, (double)plain_ns / 1e6, (double)t->own_ns / 1e6);
}

/* Decides in favour of the epilogue or of the kernel; the cache then has the decision. */
static mm_status decide(const nets_cudnn_conv *dw, const nets_cuda_reduction *over, int64_t plain_ns,
                        bool *gives_sums_out) {
    const nets_conv_bf16 sums = (nets_conv_bf16)dw->shape.bf16;
    trial t = {.dw = dw, .over = over, .channels = over->strips.channels};
    const mm_status status = try_sums(&t, sums, plain_ns);
    end(&t);
    *gives_sums_out = status == MM_OK;
    if (status == MM_OK) return MM_OK;
    mm_log_send(&dw->cuda->config.log, MM_LOG_DEBUG,
                "a kernel of its own sums up a bias's gradient, not the library: %s", mm_last_error());
    const nets_conv_pareto own = {1, {{.api = NETS_CONV_OWN, .ns = nets_larger(t.own_ns, 1)}}};
    return nets_algorithm_cache_store(&dw->cuda->choices, &dw->shape, &dw->terms, &own);
}

/* Takes the product with the sums, if it is the better one; *gives_sums_out false: nothing is created. */
static mm_status take_with_sums(nets_cudnn_conv *dw, nets_cuda_backend *cuda, const nets_conv_shape *shape,
                                const nets_conv_terms *terms, const nets_cuda_reduction *over, int64_t plain_ns,
                                bool *gives_sums_out) {
    const nets_conv_pareto *kept = nets_algorithm_cache_find(&cuda->choices, shape, terms);
    const bool known = kept != NULL;
    *gives_sums_out = false;
    if (cuda->config.deterministic) return MM_OK; /* the bits may not depend on times */
    if (known ? kept->of[0].api == NETS_CONV_OWN : plain_ns == 0) return MM_OK;
    mm_status status = nets_cudnn_conv_init(dw, cuda, shape, terms);
    if (status == MM_ERR_UNSUPPORTED) {
        mm_log_send(&cuda->config.log, MM_LOG_DEBUG, "cuBLASLt gives no bias's gradient here: %s", mm_last_error());
        return MM_OK;
    }
    MM_TRY(status);
    *gives_sums_out = known;
    if (!known && dw->of[0].choice.ns > 0) status = decide(dw, over, plain_ns, gives_sums_out);
    if (!*gives_sums_out) nets_cudnn_conv_fini(dw);
    return status;
}

mm_status nets_bias_gradient_init(nets_cudnn_conv *dw, nets_cuda_backend *cuda, const nets_conv_shape *shape,
                                  const nets_conv_terms *terms, nets_conv_bf16 sums, const nets_cuda_reduction *over,
                                  bool *gives_sums_out) {
    nets_conv_shape with_sums = *shape;
    with_sums.bf16 = (int)sums;
    MM_TRY(nets_cudnn_conv_init(dw, cuda, shape, terms));
    const int64_t plain_ns = dw->of[0].choice.ns;
    nets_cudnn_conv_fini(dw);
    MM_TRY(take_with_sums(dw, cuda, &with_sums, terms, over, plain_ns, gives_sums_out));
    return *gives_sums_out ? MM_OK : nets_cudnn_conv_init(dw, cuda, shape, terms);
}
