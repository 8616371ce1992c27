/* SPDX-License-Identifier: MIT */
/* The target: the device that networks are computed on, and how. The options that plan, train and bench share. */
#ifndef TOOLS_NEED_TARGET_H
#define TOOLS_NEED_TARGET_H

#include <signal.h>

#include "mm/device/host/host_pool.h"
#include "mm/planning/planning.h"
#include "nets/exec/exec.h"
#include "tools/args/args.h"

typedef struct target {
    const char *device, *precision, *fuse, *algorithms; /* algorithms NULL: choices are not kept in a file */
    const char *fuse_facts; /* with --fuse auto: file of measured facts, whose layers say what is fused; NULL: none */
    bool deterministic;
    int64_t threads;            /* of the host device; 0: all CPUs that the process may use */
    int64_t codec_threads;      /* host device: threads for one encode or decode; 0: 1 */
    int64_t workspace_bytes;    /* most workspace of one convolution; 0: the device's default */
    int64_t link_bytes_per_s;   /* host device: rate of the simulated link, each way; 0: as memcpy */
    const char *optimizer_text; /* NULL: "sgd" */
    nets_optimizer optimizer;   /* parsed from optimizer_text */
    bool apart;                 /* layers are not fused now (nets/lower/fuse.h): --fuse, facts or a budget says so */
    nets_allreduce allreduce;   /* of one rank of several */
    nets_backend *backend; /* opened with these options; one for the whole command, so that it times algorithms once */
    const volatile sig_atomic_t *stop; /* set by SIGINT: planning ends with the best plan so far; NULL: never */
    mm_rates rates;                    /* of the device; plans without a manager use them as a manager does */
} target;

/* Pinned memory as options have it: bytes, or PINNED_OPEN, no limit of the user's: then it is `otherwise`. */
enum { PINNED_OPEN = -1 };
static inline int64_t pinned_limit(int64_t option, int64_t otherwise) {
    return option == PINNED_OPEN ? otherwise : option;
}

#define TARGET_DEFAULTS                                                                                                \
    { .device = "host", .precision = "fp32", .fuse = "auto" }

/* Rows of a command's table of options: the device, and how to compute on it. */
#define TARGET_ARGS(t)                                                                                                 \
    ARG("--device", "NAME", "what to compute on, or whose workspaces to plan for: host, cuda, cuda:1 (host)",          \
        ARG_TEXT, &(t)->device, 0, 0),                                                                                 \
        TARGET_HOW_ARGS(t)
#define TARGET_HOW_ARGS(t)                                                                                             \
    ARG("--threads", "N", "to compute on, of device host; another N rounds differently (all CPUs there are for it)",   \
        ARG_COUNT, &(t)->threads, 1, MM_HOST_THREADS_MOST),                                                            \
        ARG("--precision", "P", "fp32; bf16: maps and factors of products; tf32: factors, on cuda (fp32)", ARG_TEXT,   \
            &(t)->precision, 0, 0),                                                                                    \
        ARG("--fuse", "HOW", "batch norm, sum and ReLU as one layer, same bits: on, off; auto: as suits auto (auto)",  \
            ARG_TEXT, &(t)->fuse, 0, 0),                                                                               \
        ARG("--deterministic", NULL, "same bits on every run; the host device always is", ARG_FLAG,                    \
            &(t)->deterministic, 0, 0),                                                                                \
        ARG("--workspace", "SIZE",                                                                                     \
            "a convolution's scratch on cuda; more can be faster (256MiB, 2GiB if tensor cores need it)", ARG_SIZE,    \
            &(t)->workspace_bytes, 0, 0),                                                                              \
        ARG("--algorithms", "FILE", "where cuda's choices of algorithms are kept (nowhere: they are timed each time)", \
            ARG_TEXT, &(t)->algorithms, 0, 0)

/* The slowest --link, in bytes per second. Chosen: with less a run would seem to hang. */
enum { TARGET_LINK_LEAST = 100000 };

#define TARGET_LINK_ARG(t)                                                                                             \
    ARG("--link", "SIZE", "bytes a second between device host and host memory, as 12GB (as fast as memcpy)", ARG_SIZE, \
        &(t)->link_bytes_per_s, TARGET_LINK_LEAST, 0)
#define TARGET_OPTIMIZER_ARG(t)                                                                                        \
    ARG("--optimizer", "NAME[,k=v..]",                                                                                 \
        "sgd[,momentum=X], or adamw[,beta1=X,beta2=X,eps=X]; weight-decay=X, clip-norm=X of either", ARG_TEXT,         \
        &(t)->optimizer_text, 0, 0)
#define TARGET_CODEC_THREADS_ARG(t)                                                                                    \
    ARG("--codec-threads", "N", "that one encode or decode is shared out among on device host (1)", ARG_COUNT,         \
        &(t)->codec_threads, 1, MM_HOST_THREADS_MOST)

/* Whether a device's name is that of the host device. */
bool target_is_host(const char *device);

/* Checks a device's name. Errors of mm_device_find. */
MM_CHECKED mm_status target_check_device(const char *device);

/* Checks the device, opens the backend, and finds the device's rates. MM_ERR_INVALID: an unknown precision or
 * optimizer, --fuse not auto, on or off, options of cuda for the host device (--workspace, tf32, --algorithms), or
 * options of the host device for another (--link, --threads). */
MM_CHECKED mm_status target_init(target *target);
/* MM_ERR_INVALID: the device's link has no rate to set. */
MM_CHECKED mm_status target_allows_link(const target *target);
/* Sets the link's rate after target_init, and finds the rates anew. */
void target_set_link(target *target, int64_t bytes_per_s);

/* Whether it is left open if layers are fused (nets/lower/fuse.h): --fuse is auto, and no measured facts say it. */
bool target_may_unfuse(const target *target);
/* How networks are lowered for the target. */
nets_lowering target_lowering(const target *target, nets_mode mode);
/* Ends fuse_facts: layers are fused again as --fuse says. */
void target_forget_facts(target *target);
/* As JSON has it: "on", "off". */
const char *target_fuse_text(const target *target);

/* Legal on a target that is not initialised. */
void target_fini(target *target);

/* Bytes of the budget for staging a network's batches (nets_exec_stage); 0: batches are not staged on this device. */
int64_t target_staged_bytes(const target *target, const nets_net *net, int64_t batch);

/* Prints a line on stderr if facts were measured on another number of threads than the target has. facts: their
 * name. */
void target_log_threads(const target *target, const char *facts, int threads);

/* Checks that the device answers. Commands that run on it call this first. */
MM_CHECKED mm_status target_probe(const target *target);

/* Parses --issue: "thread", "inline", or "auto": inline if the device can record, which needs it; else thread. */
MM_CHECKED mm_status target_issue(const target *target, const char *text, mm_issue *issue_out);

#endif
