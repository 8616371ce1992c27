/* SPDX-License-Identifier: MIT */
/* The host backend: its table of ops, and how their work gets onto a stream. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/host/device_host.h"
#include "nets/host/host_ops.h"

/* What a stream's queue takes a copy of: of the roles, which are many, those that are there, in their order. */
typedef struct host_job {
    nets_op *op;
    nets_host_fn fn;
    uint64_t roles, sign_roles, given_roles, exact_roles;
    uint32_t layer, coded; /* coded, bit i: nets_op_args.coded[i] is there, behind the roles */
    void *at[2 * NETS_MAX_INPUTS + 9];
} host_job;

enum { CODED_WORDS = sizeof(mm_coded) / sizeof(void *) };
_Static_assert(sizeof(mm_coded) % sizeof(void *) == 0, "a code's description is copied as pointers");
_Static_assert(sizeof(host_job) <= MM_HOST_ARG_CAPACITY, "a job is copied into the stream's queue");

static mm_status run_job(void *arg) {
    const host_job *job = arg;
    nets_op_args args = {.sign_roles = job->sign_roles,
                         .given_roles = job->given_roles,
                         .exact_roles = job->exact_roles,
                         .layer = job->layer};
    int n = 0;
    for (int r = 0; r < NETS_ROLES; r++)
        if (job->roles & NETS_ROLE_BIT(r)) args.at[r] = job->at[n++];
    for (int i = 0; i < NETS_CODED; i++) {
        if (!(job->coded >> i & 1)) continue;
        memcpy(&args.coded[i], &job->at[n], sizeof args.coded[i]);
        n += CODED_WORDS;
    }
    return job->fn(job->op, &args);
}

mm_status nets_host_enqueue(nets_op *op, nets_host_fn fn, const nets_op_args *args, mm_stream *stream) {
    host_job job = {.op = op,
                    .fn = fn,
                    .sign_roles = args->sign_roles,
                    .given_roles = args->given_roles,
                    .exact_roles = args->exact_roles,
                    .layer = args->layer};
    size_t n = 0, capacity = sizeof job.at / sizeof job.at[0];
    for (int r = 0; r < NETS_ROLES; r++) {
        if (!args->at[r]) continue;
        if (n == capacity) return mm_fail(MM_ERR_UNSUPPORTED, "an operation of more than %zu tensors", capacity);
        job.roles |= NETS_ROLE_BIT(r);
        job.at[n++] = args->at[r];
    }
    for (int i = 0; i < NETS_CODED; i++) {
        if (!args->coded[i].strips) continue;
        if (n + CODED_WORDS > capacity)
            return mm_fail(MM_ERR_UNSUPPORTED, "an operation of too many tensors and codes");
        job.coded |= 1u << i;
        memcpy(&job.at[n], &args->coded[i], sizeof args->coded[i]);
        n += CODED_WORDS;
    }
    return mm_host_launch(stream, run_job, &job, offsetof(host_job, at) + n * sizeof job.at[0]);
}

nets_dnn_windows nets_host_windows(const nets_op_desc *desc) {
    nets_dnn_windows w = {.groups = desc->attrs.groups};
    memcpy(w.x, desc->x[0].dims, sizeof w.x);
    memcpy(w.y, desc->y.dims, sizeof w.y);
    for (int d = 0; d < 2; d++) {
        w.kernel[d] = desc->attrs.kernel[d];
        w.stride[d] = desc->attrs.stride[d];
        w.pad[d] = w.pad_end_least[d] = desc->attrs.pad[d];
        w.dilation[d] = nets_larger(desc->attrs.dilation[d], 1); /* pools have none */
    }
    return w;
}

static mm_status init_host(const nets_backend_config *config, nets_host_backend *host) {
    host->base.ops = &nets_host_backend_ops;
    host->base.threads = config->threads > 0 ? config->threads : mm_host_cpus();
    MM_TRY(mm_host_pool_create(host->base.threads, "mm-compute", &host->pool));
    return nets_dnn_init(&host->dnn, host->pool);
}

static void close_host(nets_backend *backend) {
    nets_host_backend *host = (nets_host_backend *)backend;
    nets_dnn_fini(&host->dnn);
    mm_host_pool_destroy(host->pool);
    free(host);
}

/* It multiplies in float32 and times nothing: of the options, the threads and bf16 maps alone make a difference. */
static mm_status open_host(int ordinal, const nets_backend_config *config, nets_backend **backend_out) {
    (void)ordinal;
    nets_host_backend *host = calloc(1, sizeof *host);
    if (!host) return mm_fail(MM_ERR_NOMEM, "no memory for the host's network operations");
    mm_status status = init_host(config, host);
    if (status != MM_OK) {
        close_host(&host->base);
        return status;
    }
    *backend_out = &host->base;
    return MM_OK;
}

const nets_backend_ops nets_host_backend_ops = {
    .name = "host",
    .open = open_host,
    .close = close_host,
    .update = nets_host_update,
    .check = nets_host_check,
    .pass_on = nets_host_pass_on,
    .add = nets_host_add,
    .convert = nets_host_convert,
    .impls =
        {
#define IMPL(NAME, name) [NETS_##NAME] = &nets_host_op_##name,
            NETS_OPS(IMPL)
#undef IMPL
        },
};
