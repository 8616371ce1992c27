/* The update step on the host: see nets/sgd.h. One pass over all parameters. */
#include <math.h>

#include "mm/device/device_host.h"
#include "nets/host/ops.h"
#include "nets/host/pieces.h"
#include "nets/op_sizes.h"

typedef struct sgd_job {
    mm_host_pool *pool;
    nets_sgd_args args;
} sgd_job;

static void update(const nets_sgd_param *p, const nets_sgd_args *args, int64_t from, int64_t to) {
    float *weight = p->weight, *momentum = p->momentum;
    const float *gradient = p->gradient;
    float lr = *args->lr, keep = args->sgd.momentum, decay = args->sgd.weight_decay;
    for (int64_t i = from; i < to; i++) {
        float v = keep * momentum[i] + (gradient[i] + decay * weight[i]);
        momentum[i] = v;
        weight[i] -= lr * v;
    }
}

/* Of all parameters, one behind the other. */
static void update_range(const void *ctx, int64_t from, int64_t to) {
    const nets_sgd_args *args = ctx;
    int64_t first = 0;
    for (int i = 0; i < args->n_params && first < to; first += args->params[i++].elems) {
        const nets_sgd_param *p = &args->params[i];
        int64_t begin = nets_larger(from - first, 0), end = to - first < p->elems ? to - first : p->elems;
        if (begin < end) update(p, args, begin, end);
    }
}

static mm_status run_sgd(void *arg) {
    const sgd_job *job = arg;
    const nets_sgd_args *args = &job->args;
    if (args->sgd.only_finite) {
        if (!isfinite(*args->loss)) args->rng[NETS_RNG_HALTED] = 1;
        if (args->rng[NETS_RNG_HALTED]) return MM_OK;
    }
    int64_t elems = 0;
    for (int i = 0; i < args->n_params; i++) elems += args->params[i].elems;
    nets_ranges(job->pool, elems, 16, 1, update_range, args);
    if (++args->rng[2] == 0) args->rng[3]++;
    return MM_OK;
}

_Static_assert(sizeof(sgd_job) <= MM_HOST_ARG_CAPACITY, "a job is copied into the stream's queue");

mm_status nets_host_sgd(nets_backend *backend, const nets_sgd_args *args, mm_stream *stream) {
    const sgd_job job = {.pool = nets_host_pool(backend), .args = *args};
    return mm_host_launch(stream, run_sgd, &job, sizeof job);
}
