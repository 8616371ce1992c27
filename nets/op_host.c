/* The host backend: its table of ops, and how their work gets onto a stream. */
#include <stdlib.h>

#include "mm/device/device_host.h"
#include "nets/host_ops.h"

typedef struct host_job {
    nets_op *op;
    nets_host_fn fn;
    nets_op_args args;
} host_job;

_Static_assert(sizeof(host_job) <= MM_HOST_ARG_CAPACITY, "a job is copied into the stream's queue");

static mm_status run_job(void *arg) {
    const host_job *job = arg;
    return job->fn(job->op, &job->args);
}

mm_status nets_host_enqueue(nets_op *op, nets_host_fn fn, const nets_op_args *args, mm_stream *stream) {
    const host_job job = {.op = op, .fn = fn, .args = *args};
    return mm_host_launch(stream, run_job, &job, sizeof job);
}

static mm_status open_host(nets_backend **backend_out) {
    nets_host_backend *host = calloc(1, sizeof *host);
    if (!host) return mm_fail(MM_ERR_NOMEM, "no memory for the host's network operations");
    host->base.ops = &nets_host_backend_ops;
    mm_status status = nets_dnn_init(&host->dnn);
    if (status != MM_OK) {
        free(host);
        return status;
    }
    *backend_out = &host->base;
    return MM_OK;
}

static void close_host(nets_backend *backend) {
    nets_host_backend *host = (nets_host_backend *)backend;
    nets_dnn_fini(&host->dnn);
    free(host);
}

const nets_backend_ops nets_host_backend_ops = {
    .name = "host",
    .open = open_host,
    .close = close_host,
    .sgd = nets_host_sgd,
    .impls =
        {
            [NETS_CONV] = &nets_host_conv,
            [NETS_BATCH_NORM] = &nets_host_batch_norm,
            [NETS_RELU] = &nets_host_relu,
            [NETS_MAX_POOL] = &nets_host_pool,
            [NETS_AVG_POOL] = &nets_host_pool,
            [NETS_GLOBAL_AVG_POOL] = &nets_host_pool,
            [NETS_LINEAR] = &nets_host_linear,
            [NETS_ADD] = &nets_host_add,
            [NETS_DROPOUT] = &nets_host_dropout,
            [NETS_LOSS] = &nets_host_loss,
        },
};
