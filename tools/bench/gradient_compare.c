/* SPDX-License-Identifier: MIT */
#include "tools/bench/gradient_compare.h"

#include <math.h>

static mm_status collect(nets_exec *exec, float *gradients_out) {
    const nets_net *net = nets_exec_lowered(exec)->net;
    for (int p = 0; p < nets_net_params(net); p++) {
        const nets_param *param = nets_net_param(net, p);
        if (!param->learned) continue;
        MM_TRY(nets_exec_param_get(exec, p, NETS_GRADIENT, gradients_out));
        gradients_out += param->elems;
    }
    return MM_OK;
}

mm_status gradient_probe(const trainer *from, const char *policy, const gradient_batch *batch, float *gradients_out) {
    const nets_optimizer sgd = {0};
    trainer probe;
    MM_TRY(trainer_init(&probe, nets_exec_lowered(from->exec)->net, batch->n, &sgd, &(mm_options){.policy = policy}));
    nets_result result;
    mm_status status = trainer_copy(from, &probe);
    if (status == MM_OK) status = nets_exec_iteration(probe.exec, batch->images, batch->labels, batch->n, 0, &result);
    if (status == MM_OK) status = collect(probe.exec, gradients_out);
    trainer_fini(&probe);
    return status;
}

static void compare(const float *exact, const float *tested, int64_t n, gradient_figure *figure) {
    double exact2 = 0, tested2 = 0, product = 0, error2 = 0;
    for (int64_t i = 0; i < n; i++) {
        const double e = exact[i], t = tested[i];
        exact2 += e * e;
        tested2 += t * t;
        product += e * t;
        error2 += (t - e) * (t - e);
    }
    figure->norm = sqrt(exact2);
    const double norms = sqrt(exact2) * sqrt(tested2);
    figure->cosine = error2 == 0 ? 1 : isfinite(norms) && norms > 0 ? product / norms : 0;
    figure->relative_error = error2 == 0 ? 0 : isfinite(error2) ? sqrt(error2 / exact2) : INFINITY;
    figure->sigma = sqrt(error2 / (double)n);
}

/* Counts the errors that are at most the root mean square of all n errors. */
static int64_t count_within(const float *exact, const float *tested, int64_t n) {
    double error2 = 0;
    int64_t within = 0;
    for (int64_t i = 0; i < n; i++) error2 += ((double)tested[i] - exact[i]) * ((double)tested[i] - exact[i]);
    for (int64_t i = 0; i < n; i++) within += fabs((double)tested[i] - exact[i]) <= sqrt(error2 / (double)n);
    return within;
}

static double share_within(const float *exact, const float *tested, const nets_param *param) {
    const int64_t channels = param->rank > 1 ? param->dims[0] : 1, n = param->elems / channels;
    int64_t within = 0;
    for (int64_t c = 0; c < channels; c++) within += count_within(exact + c * n, tested + c * n, n);
    return (double)within / (double)param->elems;
}

int gradient_compare(const nets_net *net, const float *exact, const float *tested, gradient_figure *figures_out) {
    int n = 0;
    for (int p = 0; p < nets_net_params(net); p++) {
        const nets_param *param = nets_net_param(net, p);
        if (!param->learned) continue;
        gradient_figure *figure = &figures_out[n++];
        *figure = (gradient_figure){.param = p, .conv = nets_net_layer(net, param->layer)->op == NETS_CONV};
        compare(exact, tested, param->elems, figure);
        figure->within_sigma = share_within(exact, tested, param);
        exact += param->elems;
        tested += param->elems;
    }
    return n;
}

const gradient_figure *gradient_worst(const gradient_figure *figures, int n, bool conv_only) {
    const gradient_figure *worst = NULL;
    for (int i = 0; i < n; i++)
        if ((figures[i].conv || !conv_only) && (!worst || figures[i].cosine < worst->cosine)) worst = &figures[i];
    return worst;
}
