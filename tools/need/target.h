/* SPDX-License-Identifier: MIT */
/* The target: the device that computes networks, and how it computes them. Options that plan, train and bench share. */
#ifndef TOOLS_NEED_TARGET_H
#define TOOLS_NEED_TARGET_H

#include <signal.h>

#include "mm/device/host/host_pool.h"
#include "mm/planning/planning.h"
#include "nets/exec/exec.h"
#include "tools/args/args.h"

typedef struct target {
    const char *device, *precision, *fuse, *algorithms; /* algorithms NULL: no file stores choices */
    const char *fuse_facts; /* --fuse auto: measured facts (a file), whose graph tells what is fused; NULL: none */
    bool deterministic;
    int64_t threads;            /* of the host device; 0: all CPUs that the process may use */
    int64_t codec_threads;      /* host device: threads for one encode or decode; 0: 1 */
    int64_t workspace_bytes;    /* limit of one convolution's workspace; 0: the device's default */
    int64_t link_bytes_per_s;   /* host device: rate of the simulated link, each way; 0: as fast as memcpy */
    const char *disk_text;      /* NULL: no disk */
    char disk[1024];            /* of disk_text: the directory, */
    int64_t disk_bytes;         /* the limit, 0: no disk, */
    int64_t disk_bytes_per_s;   /* and the rate, each way: MM_DISK_BYTES_PER_S if it is not given */
    const char *optimizer_text; /* NULL: "sgd" */
    const char *lora, *freeze;  /* what is trained of a network (nets/adapt.h); "" or NULL: all of it */
    nets_optimizer optimizer;   /* parsed from optimizer_text */
    const char *update_text;    /* NULL: "at-end" */
    nets_update_when update;    /* update_when_read */
    bool apart;                 /* layers are not fused (nets/lower/fuse.h), because of --fuse, facts or a budget */
    bool plans_only;            /* nothing is run: nets_backend_config */
    nets_allreduce allreduce;   /* lower networks for one of several ranks */
    nets_backend *backend; /* opened with these options, once for the whole command, so that it times algorithms once */
    const volatile sig_atomic_t *stop; /* set by SIGINT: planning ends with the best plan so far; NULL: never */
    mm_rates rates;                    /* the device's; for plans made without a manager */
    int64_t host_free_bytes;           /* what this host had free when the target was initialised */
} target;

/* Pinned memory that is taken where the user sets no limit: half of what the host has free; beside a disk a quarter. */
static inline int64_t target_free_part(int64_t free_bytes, bool disk) { return free_bytes / (disk ? 4 : 2); }

/* The value of --pinned: bytes; or PINNED_OPEN: the user set no limit. */
enum { PINNED_OPEN = -1 };

/* The pinned memory within which bounds hold for plans that may use the target's disk, too: what goes to the disk is as
 * if it stayed in more pinned memory. */
int64_t target_pinned_and_disk(const target *target, int64_t pinned_bytes);

/* Where a limit of pinned memory comes from: --pinned; half of what this host has free; on the device host, what the
 * budget leaves of that, if it is less than half; with a disk, a quarter of what is free, or half of what the budget
 * leaves of it; or there is none, because the plan is for another machine. */
typedef enum pinned_from { PINNED_GIVEN, PINNED_HALF, PINNED_REST, PINNED_DISK, PINNED_ELSEWHERE } pinned_from;

/* The pinned memory that plans may take. */
typedef struct pinned_limit {
    int64_t bytes; /* INT64_MAX: no limit */
    pinned_from from;
    int64_t disk_bytes; /* the limit of the disk beside it; 0: there is none */
} pinned_limit;

#define TARGET_DEFAULTS                                                                                                \
    { .device = "host", .precision = "fp32", .fuse = "auto", .lora = "", .freeze = "" }

/* Options for a command's table. TARGET_ARGS: device and how to compute on it; TARGET_HOW_ARGS: only how. */
#define TARGET_ARGS(t)                                                                                                 \
    ARG("--device", "host|cuda[:N]", "device to compute on, or to plan for (host)", ARG_TEXT, &(t)->device, 0, 0),     \
        TARGET_HOW_ARGS(t)
#define TARGET_HOW_ARGS(t)                                                                                             \
    ARG("--threads", "N",                                                                                              \
        "threads of device host; results are rounded differently for another N (all CPUs it may use)", ARG_COUNT,      \
        &(t)->threads, 1, MM_HOST_THREADS_MOST),                                                                       \
        ARG("--precision", "fp32|bf16|tf32",                                                                           \
            "bf16: feature maps and inputs of products; tf32: inputs of products, on cuda (fp32)", ARG_TEXT,           \
            &(t)->precision, 0, 0),                                                                                    \
        ARG("--fuse", "auto|on|off",                                                                                   \
            "batch norm, sum and ReLU as one layer; auto: on, or as policy auto chooses (auto)", ARG_TEXT, &(t)->fuse, \
            0, 0),                                                                                                     \
        ARG("--deterministic", NULL, "same bits on every run; device host always gives them", ARG_FLAG,                \
            &(t)->deterministic, 0, 0),                                                                                \
        ARG("--workspace", "SIZE",                                                                                     \
            "a convolution's scratch on cuda; more can be faster (256MiB, 2GiB if tensor cores need it)", ARG_SIZE,    \
            &(t)->workspace_bytes, 0, 0),                                                                              \
        ARG("--algorithms", "FILE",                                                                                    \
            "file that stores cuda's choices of algorithms (none: they are timed on each run)", ARG_TEXT,              \
            &(t)->algorithms, 0, 0)

/* The slowest --link, in bytes per second. Chosen: a slower run would seem to hang. */
enum { TARGET_LINK_LEAST = 100000 };

#define TARGET_LINK_ARG(t)                                                                                             \
    ARG("--link", "SIZE", "bytes a second between device host and host memory, as 12GB (as fast as memcpy)", ARG_SIZE, \
        &(t)->link_bytes_per_s, TARGET_LINK_LEAST, 0)
#define TARGET_DISK_ARG(t)                                                                                             \
    ARG("--disk", "DIR:SIZE[:RATE]",                                                                                   \
        "a disk for what pinned memory has no room for: /mnt/nvme:200GiB; RATE: bytes a second, to plan by (none)",    \
        ARG_TEXT, &(t)->disk_text, 0, 0)
#define TARGET_OPTIMIZER_ARG(t)                                                                                        \
    ARG("--optimizer", "NAME[,k=v..]",                                                                                 \
        "sgd[,momentum=X], or adamw[,beta1=X,beta2=X,eps=X,states=8bit]; both: weight-decay=X, clip-norm=X, on=host "  \
        "(update on CPUs); 8bit, lossy: moments of large parameters in a byte each (32bit)",                           \
        ARG_TEXT, &(t)->optimizer_text, 0, 0)
#define TARGET_UPDATE_ARG(t)                                                                                           \
    ARG("--update", "HOW",                                                                                             \
        "at-end, by-layer, in-backward: update each layer behind its backward step, so that its gradient "             \
        "takes memory until then only; auto (at-end)",                                                                 \
        ARG_TEXT, &(t)->update_text, 0, 0)
#define TARGET_ADAPT_ARGS(t)                                                                                           \
    ARG("--lora", "rank=R[,k=v..]",                                                                                    \
        "train adapters alone: rank=R[,alpha=A][,layers=NAME,..]: attention, mlp, all, or names (attention)",          \
        ARG_TEXT, &(t)->lora, 0, 0),                                                                                   \
        ARG("--freeze", "NAME,..", "layers that are not trained: layer1,conv1; all but fc: '*,!fc'", ARG_TEXT,         \
            &(t)->freeze, 0, 0)
#define TARGET_CODEC_THREADS_ARG(t)                                                                                    \
    ARG("--codec-threads", "N", "threads of device host for one encode or decode (1)", ARG_COUNT, &(t)->codec_threads, \
        1, MM_HOST_THREADS_MOST)

/* The limit by --pinned's value: if that is open, half of what is free (chosen: the other half is for the rest of the
 * system). With a disk a quarter: what pinned memory has no room for goes there, and on the device host the rest must
 * do for the budget and the process itself, which a control group kills otherwise (chosen). elsewhere: the plan is for
 * another machine, whose memory is not known. */
pinned_limit target_pinned(const target *target, int64_t option, bool elsewhere);
/* The same for what will run here in this budget. 0: no budget is given. */
pinned_limit target_pinned_beside(const target *target, int64_t option, int64_t budget_bytes);

/* Whether the name is the host device's: "host", or "host:..." */
bool target_is_host(const char *device);

/* Checks a device's name. Errors of mm_device_find. */
MM_CHECKED mm_status target_check_device(const char *device);

/* Checks the device, opens the backend, and finds the device's rates. MM_ERR_INVALID: an unknown precision or
 * optimizer, --fuse not auto, on or off, options of cuda for the host device (--workspace, tf32, --algorithms), or
 * options of the host device for another (--link, --threads). */
MM_CHECKED mm_status target_init(target *target);
/* Reads --disk DIR:SIZE[:RATE], as target_init does. The directory may have colons: what follows the last ones counts.
 * MM_ERR_INVALID. */
MM_CHECKED mm_status target_read_disk(target *target);
/* MM_ERR_INVALID: the rate of the device's link cannot be set. */
MM_CHECKED mm_status target_allows_link(const target *target);
/* Sets the link's rate after target_init, and updates `rates`. */
void target_set_link(target *target, int64_t bytes_per_s);

/* Gives a network the adapters of --lora, or freezes the layers of --freeze. *net may be replaced; the caller destroys
 * it, also after a failure. MM_ERR_INVALID: an option is wrong, or does not fit the network; or both are given. */
MM_CHECKED mm_status target_adapt(const target *target, nets_net **net);

/* Whether planning may choose not to fuse layers: --fuse is auto, no measured facts decide it, and maps are not
 * bf16. */
bool target_may_unfuse(const target *target);
/* How networks are lowered for the target. */
nets_lowering target_lowering(const target *target, nets_mode mode);
/* Drops fuse_facts: layers are fused again as --fuse says. */
void target_forget_facts(target *target);
/* For JSON: "on" if layers are fused, else "off". */
const char *target_fuse_text(const target *target);

/* Legal on a target that is not initialised. */
void target_fini(target *target);

/* Bytes of the budget that staging a network's batches takes (nets_exec_stage); 0: this device needs no staging. */
int64_t target_staged_bytes(const target *target, const nets_net *net, int64_t batch);

/* Warns on stderr if facts were measured with another number of threads than the target has. facts: their name. */
void target_log_threads(const target *target, const char *facts, int threads);

/* Says on stderr if the optimizer's states are in codes, which is lossy. */
void target_log_lossy(const target *target);

/* Checks that the device answers. Commands that run on it call this first. */
MM_CHECKED mm_status target_probe(const target *target);

/* Parses --issue: "thread", "inline", or "auto": thread for device host, else inline, which recording needs. */
MM_CHECKED mm_status target_issue(const target *target, const char *text, mm_issue *issue_out);

#endif
