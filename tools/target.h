/* What networks are computed on, and how: the options that plan, train and bench have in common. */
#ifndef TOOLS_TARGET_H
#define TOOLS_TARGET_H

#include "mm/device/host_pool.h"
#include "mm/planning.h"
#include "nets/exec.h"
#include "tools/args.h"

typedef struct target {
    const char *device, *precision, *fuse, *algorithms; /* algorithms NULL: nowhere */
    bool deterministic;
    int64_t threads;            /* of the host device; 0: all CPUs that the process may use */
    int64_t codec_threads;      /* that a codec's operation is shared out among on it; 0: 1 */
    int64_t workspace_bytes;    /* that one convolution may take; 0: as the device has it */
    int64_t link_bytes_per_s;   /* of the host device's link, each way; 0: as memcpy */
    const char *optimizer_text; /* NULL: "sgd" */
    nets_optimizer optimizer;   /* that text, read: what graphs that train are updated by */
    nets_backend *backend;      /* made of these; of all that a command plans and runs: what it times, it times once */
    mm_rates rates;             /* that a manager on the device plans by: whoever plans without one does, too */
} target;

#define TARGET_DEFAULTS                                                                                                \
    { .device = "host", .precision = "fp32", .fuse = "on" }

/* Rows of a command's table of options: what to compute on, and how. */
#define TARGET_ARGS(t)                                                                                                 \
    {"--device", "NAME",       "what to compute on, or whose workspaces to plan for: host, cuda, cuda:1 (host)",       \
     ARG_TEXT,   &(t)->device, 0,                                                                                      \
     0},                                                                                                               \
        TARGET_HOW_ARGS(t)
#define TARGET_HOW_ARGS(t)                                                                                             \
    {"--threads",                                                                                                      \
     "N",                                                                                                              \
     "to compute on, of device host; another N rounds differently (all CPUs there are for it)",                        \
     ARG_COUNT,                                                                                                        \
     &(t)->threads,                                                                                                    \
     1,                                                                                                                \
     MM_HOST_THREADS_MOST},                                                                                            \
        {"--precision", "P", "of products on cuda: fp32, or tf32 (fp32)", ARG_TEXT, &(t)->precision, 0, 0},            \
        {"--fuse", "on|off",   "batch norm, sum and ReLU, or bias and ReLU, as one layer; the bits are the same (on)", \
         ARG_TEXT, &(t)->fuse, 0,                                                                                      \
         0},                                                                                                           \
        {"--deterministic",                                                                                            \
         NULL,                                                                                                         \
         "same bits on every run; the host device always is",                                                          \
         ARG_FLAG,                                                                                                     \
         &(t)->deterministic,                                                                                          \
         0,                                                                                                            \
         0},                                                                                                           \
        {"--workspace",                                                                                                \
         "SIZE",                                                                                                       \
         "a convolution's scratch on cuda; more can be faster (256MiB, 2GiB if tensor cores need it)",                 \
         ARG_SIZE,                                                                                                     \
         &(t)->workspace_bytes,                                                                                        \
         0,                                                                                                            \
         0},                                                                                                           \
    {                                                                                                                  \
        "--algorithms", "FILE", "where cuda's choices of algorithms are kept (nowhere: they are timed each time)",     \
            ARG_TEXT, &(t)->algorithms, 0, 0                                                                           \
    }

/* Of a link slower than that, in bytes a second, nobody would see the end. */
enum { TARGET_LINK_LEAST = 100000 };

#define TARGET_LINK_ARG(t)                                                                                             \
    {                                                                                                                  \
        "--link", "SIZE", "bytes a second between device host and host memory, as 12GB (as fast as memcpy)", ARG_SIZE, \
            &(t)->link_bytes_per_s, TARGET_LINK_LEAST, 0                                                               \
    }

#define TARGET_OPTIMIZER_ARG(t)                                                                                        \
    {                                                                                                                  \
        "--optimizer", "NAME[,k=v..]", "sgd[,momentum=X], or adamw[,beta1=X,beta2=X,eps=X]; weight-decay=X of either", \
            ARG_TEXT, &(t)->optimizer_text, 0, 0                                                                       \
    }

#define TARGET_CODEC_THREADS_ARG(t)                                                                                    \
    {                                                                                                                  \
        "--codec-threads", "N", "that one encode or decode is shared out among on device host (1)", ARG_COUNT,         \
            &(t)->codec_threads, 1, MM_HOST_THREADS_MOST                                                               \
    }

/* By the device's name: whether it is the host's CPU. */
bool target_is_host(const char *device);

/* The errors of mm_device_find: this build has no such device, or fewer answer. */
MM_CHECKED mm_status target_check_device(const char *device);

/* Checks the device, opens the backend, and learns the device's rates. MM_ERR_INVALID: no such precision, --fuse
 * neither on nor off, no such optimizer, for the host device what only cuda has (a --workspace, tf32, --algorithms), for another a link's
 * speed, or threads. */
MM_CHECKED mm_status target_init(target *target);
/* MM_ERR_INVALID: the speed of its link cannot be set. */
MM_CHECKED mm_status target_allows_link(const target *target);
/* Sets it after all, and learns the rates anew. */
void target_set_link(target *target, int64_t bytes_per_s);
/* Legal on one that is not initialised. */
void target_fini(target *target);

/* What it takes of the budget that a network's batches come in beside the computation (nets_exec_stage); 0: on this
 * device they never do. */
int64_t target_staged_bytes(const target *target, const nets_net *net, int64_t batch);

/* That facts (a file, or something else in words) were measured on another number of threads than the target has, if so:
 * a line on stderr. */
void target_tell_threads(const target *target, const char *facts, int threads);

/* Whether the device answers: for those who run something on it, before they do anything else. */
MM_CHECKED mm_status target_probe(const target *target);

/* --issue: "auto" (inline, which allows recording, where the device can; thread on the host), "thread" or "inline". */
MM_CHECKED mm_status target_issue(const target *target, const char *text, mm_issue *issue_out);

#endif
