/* The update step on the host: see nets/sgd.h. One pass over all parameters. */
#include <math.h>

#include "mm/device/device_host.h"
#include "nets/host/ops.h"

static void update(const nets_sgd_param *p, const nets_sgd_args *args) {
    float *weight = p->weight, *momentum = p->momentum;
    const float *gradient = p->gradient;
    float lr = *args->lr, keep = args->sgd.momentum, decay = args->sgd.weight_decay;
    for (int64_t i = 0; i < p->elems; i++) {
        float v = keep * momentum[i] + (gradient[i] + decay * weight[i]);
        momentum[i] = v;
        weight[i] -= lr * v;
    }
}

static mm_status run_sgd(void *arg) {
    const nets_sgd_args *args = arg;
    if (args->sgd.only_finite) {
        if (!isfinite(*args->loss)) args->rng[NETS_RNG_HALTED] = 1;
        if (args->rng[NETS_RNG_HALTED]) return MM_OK;
    }
    for (int i = 0; i < args->n_params; i++) update(&args->params[i], args);
    if (++args->rng[2] == 0) args->rng[3]++;
    return MM_OK;
}

_Static_assert(sizeof(nets_sgd_args) <= MM_HOST_ARG_CAPACITY, "a job is copied into the stream's queue");

mm_status nets_host_sgd(nets_backend *backend, const nets_sgd_args *args, mm_stream *stream) {
    (void)backend;
    return mm_host_launch(stream, run_sgd, args, sizeof *args);
}
