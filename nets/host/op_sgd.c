/* The update step on the host: see nets/sgd.h. One pass over all parameters, and one before it that
 * looks for what overflows. */
#include <math.h>
#include <stdatomic.h>

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

/* Without an exit: then it runs as fast as the memory. */
static bool overflows(const nets_sgd_param *p, int64_t from, int64_t to) {
    int32_t bad = 0;
    for (int64_t i = from; i < to; i++) bad |= !(fabsf(p->gradient[i]) <= NETS_GRADIENT_MOST);
    return bad;
}

/* One of the passes over the first n of the list, one behind the other, as one range of elements. */
typedef struct pass {
    const nets_sgd_args *args;
    int n;
    atomic_bool *overflow; /* set if something does; NULL: it is the update */
} pass;

static void pass_range(const void *ctx, int64_t from, int64_t to) {
    const pass *p = ctx;
    int64_t first = 0;
    for (int i = 0; i < p->n && first < to; first += p->args->params[i++].elems) {
        const nets_sgd_param *param = &p->args->params[i];
        int64_t begin = nets_larger(from - first, 0), end = to - first < param->elems ? to - first : param->elems;
        if (begin >= end) continue;
        if (!p->overflow)
            update(param, p->args, begin, end);
        else if (overflows(param, begin, end))
            atomic_store(p->overflow, true);
    }
}

static void run_pass(const sgd_job *job, int n, atomic_bool *overflow) {
    const pass all = {&job->args, n, overflow};
    int64_t elems = 0;
    for (int i = 0; i < n; i++) elems += job->args.params[i].elems;
    nets_ranges(job->pool, elems, 16, 1, pass_range, &all);
}

static bool has_diverged(const sgd_job *job) {
    atomic_bool overflow = false;
    if (!isfinite(*job->args.loss)) return true;
    run_pass(job, job->args.n_checked, &overflow);
    return overflow;
}

static mm_status run_sgd(void *arg) {
    const sgd_job *job = arg;
    const nets_sgd_args *args = &job->args;
    if (args->sgd.only_finite) {
        if (!args->rng[NETS_RNG_HALTED]) args->rng[NETS_RNG_HALTED] = has_diverged(job);
        if (args->rng[NETS_RNG_HALTED]) return MM_OK;
    }
    run_pass(job, args->n_params, NULL);
    if (++args->rng[2] == 0) args->rng[3]++;
    return MM_OK;
}

_Static_assert(sizeof(sgd_job) <= MM_HOST_ARG_CAPACITY, "a job is copied into the stream's queue");

mm_status nets_host_sgd(nets_backend *backend, const nets_sgd_args *args, mm_stream *stream) {
    const sgd_job job = {.pool = nets_host_pool(backend), .args = *args};
    return mm_host_launch(stream, run_sgd, &job, sizeof job);
}
