/* SPDX-License-Identifier: MIT */
/* Enqueues the work of an operation on a stream. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/host/device_host.h"
#include "nets/host/host_ops.h"

/* The arguments of an operation, which the stream's queue copies. Roles are many, so `at` has only those that are
 * present, in order. */
typedef struct host_job {
    nets_op *op;
    nets_host_fn fn;
    uint64_t roles, sign_roles, given_roles, exact_roles;
    uint32_t layer, coded; /* coded, bit i: `at` has nets_op_args.coded[i], behind the roles */
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

static mm_status enqueue(nets_op *op, nets_host_fn fn, const nets_op_args *args, mm_stream *stream) {
    host_job job = {.op = op,
                    .fn = fn,
                    .sign_roles = args->sign_roles,
                    .given_roles = args->given_roles,
                    .exact_roles = args->exact_roles,
                    .layer = args->layer};
    size_t n = 0, capacity = sizeof job.at / sizeof job.at[0];
    for (int r = 0; r < NETS_ROLES; r++) {
        if (!args->at[r]) continue;
        if (n == capacity)
            return mm_fail(MM_ERR_UNSUPPORTED, "an operation has more than the %zu tensors that fit a task", capacity);
        job.roles |= NETS_ROLE_BIT(r);
        job.at[n++] = args->at[r];
    }
    for (int i = 0; i < NETS_CODED; i++) {
        if (!args->coded[i].strips) continue;
        if (n + CODED_WORDS > capacity)
            return mm_fail(MM_ERR_UNSUPPORTED, "an operation has more tensors and codes than fit a task");
        job.coded |= 1u << i;
        memcpy(&job.at[n], &args->coded[i], sizeof args->coded[i]);
        n += CODED_WORDS;
    }
    return mm_host_launch(stream, run_job, &job, offsetof(host_job, at) + n * sizeof job.at[0]);
}

static const nets_host_impl *impl_of(const nets_op *op) { return (const nets_host_impl *)op->impl; }

mm_status nets_host_forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return enqueue(op, impl_of(op)->forward, args, stream);
}

mm_status nets_host_backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return enqueue(op, impl_of(op)->backward, args, stream);
}

typedef struct parts_job {
    nets_op *op;
    nets_host_parts_fn fn;
    nets_part_args args;
} parts_job;

static mm_status run_parts(void *arg) {
    const parts_job *job = arg;
    return job->fn(job->op, &job->args);
}

mm_status nets_host_parts(nets_op *op, nets_host_parts_fn fn, const nets_part_args *args, mm_stream *stream) {
    const parts_job job = {op, fn, *args};
    return mm_host_launch(stream, run_parts, &job, sizeof job);
}

void nets_host_free(nets_op *op) { free(op); }
