/* SPDX-License-Identifier: MIT */
/* The update step on the host: see nets/optimizer.h. One pass updates all parameters; with only_finite, one before it
 * checks the gradients. */
#include <math.h>
#include <stdatomic.h>

#include "mm/device/host/device_host.h"
#include "nets/contract/op_sizes.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_states.h"
#include "nets/host/simd_update.h"
#include "nets/role.h"

typedef struct update_job {
    mm_host_pool *pool;
    nets_update_args args;
} update_job;

/* The numbers with which a parameter is updated. `clip`: gradients are multiplied by it. */
static nets_simd_move move_of(const nets_update_param *p, const nets_update_args *args, float clip) {
    nets_simd_move by = {.clip = clip,
                         .lr = *args->lr,
                         .keep = (float)args->optimizer.momentum,
                         .decay = p->decayed ? (float)args->optimizer.weight_decay : 0};
    if (args->optimizer.id != NETS_ADAMW && args->optimizer.id != NETS_ADAMW_8BIT) return by;
    by.adamw = nets_adamw_factors_at(&args->optimizer, *args->step + 1, *args->lr);
    if (!p->decayed) by.adamw.decay = 0;
    return by;
}

/* Updates by blocks, whose weights are still in cache when they are copied. */
static void update(const nets_update_param *p, const nets_update_args *args, float clip, int64_t from, int64_t to) {
    enum { BLOCK = 8192 };
    const nets_simd_update *simd = nets_simd_update_best();
    const nets_simd_move by = move_of(p, args, clip);
    for (int64_t at = from; at < to; at += BLOCK) {
        const int64_t n = to - at < BLOCK ? to - at : BLOCK;
        float *const state[NETS_OPTIMIZER_STATES] = {p->state[0] ? p->state[0] + at : NULL,
                                                     p->state[1] ? p->state[1] + at : NULL};
        simd->move[args->optimizer.id](&by, p->weight + at, state, p->gradient + at, n);
        if (p->copy) simd->copy(p->weight + at, n, p->copy + at);
    }
}

/* Updates a parameter with codes: of its blocks those that begin in the range. */
static void update_coded(const nets_update_param *p, const nets_update_args *args, const nets_state_maps *maps,
                         float clip, int64_t from, int64_t to) {
    nets_adamw_factors f = nets_adamw_factors_at(&args->optimizer, *args->step + 1, *args->lr);
    if (!p->decayed) f.decay = 0;
    for (int64_t block = nets_state_blocks(from); block < nets_state_blocks(to); block++) {
        const int64_t at = block * NETS_STATE_BLOCK, left = p->elems - at;
        const int n = left < NETS_STATE_BLOCK ? (int)left : NETS_STATE_BLOCK;
        nets_simd_states_best()(maps, p, f, clip, block, n);
        if (p->copy) nets_simd_update_best()->copy(p->weight + at, n, p->copy + at);
    }
}

static double squares(const nets_update_param *p, int64_t from, int64_t to) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++) sum += (double)p->gradient[i] * (double)p->gradient[i];
    return sum;
}

/* A pass over the first n parameters, whose elements count as one range, one parameter after the other. */
typedef struct pass {
    const nets_update_args *args;
    const nets_update_param *params;
    int n;
    float clip; /* the update multiplies gradients by it */
    const nets_state_maps *maps;
    atomic_bool *overflow; /* set if a gradient overflows; NULL: the pass updates, or sums squares */
    nets_cut cut;          /* for a sum of squares: cuts the range into parts */
    double *parts;         /* the parts' sums; NULL: the pass does not sum squares */
} pass;

static void pass_range(const void *ctx, int64_t from, int64_t to) {
    const pass *p = ctx;
    int64_t first = 0;
    for (int i = 0; i < p->n && first < to; first += p->params[i++].elems) {
        const nets_update_param *param = &p->params[i];
        int64_t begin = nets_larger(from - first, 0), end = to - first < param->elems ? to - first : param->elems;
        if (begin >= end) continue;
        if (p->parts)
            p->parts[from / p->cut.each] += squares(param, begin, end);
        else if (!p->overflow && param->codes[0])
            update_coded(param, p->args, p->maps, p->clip, begin, end);
        else if (!p->overflow)
            update(param, p->args, p->clip, begin, end);
        else if (nets_simd_update_best()->overflows(param->gradient + begin, end - begin, p->args->most))
            atomic_store(p->overflow, true);
    }
}

static int64_t elems_of(const nets_update_param *params, int n) {
    int64_t elems = 0;
    for (int i = 0; i < n; i++) elems += params[i].elems;
    return elems;
}

static void run_pass(const update_job *job, const nets_update_param *params, int n, float clip, atomic_bool *overflow) {
    nets_state_maps maps;
    const pass all = {.args = &job->args, .params = params, .n = n, .clip = clip, .maps = &maps, .overflow = overflow};
    if (nets_optimizer_traits_of(job->args.optimizer.id)->coded && !overflow) nets_state_maps_make(&maps);
    nets_ranges(job->pool, elems_of(params, n), 16, 1, pass_range, &all);
}

static mm_status sum_part(void *ctx, int64_t part, int thread) {
    const pass *p = ctx;
    const int64_t from = part * p->cut.each, to = from + p->cut.each;
    (void)thread;
    pass_range(p, from, to < p->cut.items ? to : p->cut.items);
    return MM_OK;
}

/* Finds the factor of all gradients (nets_optimizer.clip_norm). The number of partial sums depends only on the number
 * of elements, and they are added in order, so any number of threads gives the same bits. */
static mm_status find_clip(const update_job *job, float *clip_out) {
    enum { PARTS = 256, LEAST_ELEMS = 4096 };
    double parts[PARTS] = {0}, sum = 0;
    *clip_out = 1;
    if (!(job->args.optimizer.clip_norm > 0)) return MM_OK;
    pass all = {.args = &job->args, .params = job->args.params, .n = job->args.n_params, .parts = parts};
    all.cut = nets_cut_of(elems_of(all.params, all.n), PARTS, 16, LEAST_ELEMS);
    MM_TRY(mm_host_pool_run(job->pool, all.cut.pieces, sum_part, &all));
    for (int i = 0; i < all.cut.pieces; i++) sum += parts[i];
    const double clip = job->args.optimizer.clip_norm / (sqrt(sum) + 1e-6);
    if (clip < 1) *clip_out = (float)clip;
    return MM_OK;
}

static bool has_diverged(const update_job *job) {
    atomic_bool overflow = false;
    if (job->args.loss && !isfinite(*job->args.loss)) return true;
    run_pass(job, job->args.params, job->args.n_checked, 1, &overflow);
    return overflow;
}

static void check(const update_job *job) {
    uint32_t *halted = job->args.rng + NETS_RNG_HALTED;
    if (!*halted && has_diverged(job)) *halted = job->args.late ? NETS_TORN : 1;
}

static mm_status run_check(void *arg) {
    check(arg);
    return MM_OK;
}

static mm_status run_update(void *arg) {
    const update_job *job = arg;
    const nets_update_args *args = &job->args;
    if (args->rng) args->rng[NETS_RNG_IMAGE] = 0;
    if (args->rng && args->optimizer.only_finite) {
        if (args->checks) check(job);
        if (args->rng[NETS_RNG_HALTED]) return MM_OK;
    }
    float clip;
    MM_TRY(find_clip(job, &clip));
    run_pass(job, args->moved ? args->moved : args->params, args->n_params, clip, NULL);
    if (args->goes_on) return MM_OK;
    if (args->rng && ++args->rng[2] == 0) args->rng[3]++;
    if (args->step) ++*args->step;
    return MM_OK;
}

mm_status nets_host_update_now(nets_backend *backend, const nets_update_args *args) {
    update_job job = {.pool = nets_host_pool(backend), .args = *args};
    return run_update(&job);
}

_Static_assert(sizeof(update_job) <= MM_HOST_ARG_CAPACITY, "a job is copied into the stream's queue");

mm_status nets_host_update(nets_backend *backend, const nets_update_args *args, mm_stream *stream) {
    const update_job job = {.pool = nets_host_pool(backend), .args = *args};
    return mm_host_launch(stream, run_update, &job, sizeof job);
}

mm_status nets_host_check(nets_backend *backend, const nets_update_args *args, mm_stream *stream) {
    const update_job job = {.pool = nets_host_pool(backend), .args = *args};
    return mm_host_launch(stream, run_check, &job, sizeof job);
}

/* ---------------------------------------------------------------- sub-batches */

typedef struct pass_job {
    uint32_t *rng;
    int64_t images;
} pass_job;

static mm_status run_pass_on(void *arg) {
    const pass_job *job = arg;
    job->rng[NETS_RNG_IMAGE] += (uint32_t)job->images;
    return MM_OK;
}

mm_status nets_host_pass_on(nets_backend *backend, uint32_t *rng, int64_t images, mm_stream *stream) {
    const pass_job job = {rng, images};
    (void)backend;
    return mm_host_launch(stream, run_pass_on, &job, sizeof job);
}

typedef struct add_job {
    mm_host_pool *pool;
    float *sum;
    const float *addend;
    int64_t elems;
} add_job;

static mm_status run_add(void *arg) {
    const add_job *job = arg;
    nets_host_accumulate_on(job->pool, job->sum, job->addend, job->elems);
    return MM_OK;
}

mm_status nets_host_add(nets_backend *backend, float *sum, const float *addend, int64_t elems, mm_stream *stream) {
    const add_job job = {nets_host_pool(backend), sum, addend, elems};
    return mm_host_launch(stream, run_add, &job, sizeof job);
}
