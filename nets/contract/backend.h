/* SPDX-License-Identifier: MIT */
/* A backend: a device with its implementations of the operations, and what is not a layer's: the update of the weights,
 * and conversions. */
#ifndef NETS_CONTRACT_BACKEND_H
#define NETS_CONTRACT_BACKEND_H

#include "mm/device/contract/device.h"
#include "nets/net.h"
#include "nets/optimizer.h"

typedef struct nets_backend nets_backend;
typedef struct nets_op nets_op;               /* op.h */
typedef struct nets_op_impl nets_op_impl;     /* op.h */
typedef struct nets_part_args nets_part_args; /* op_desc.h */

/* The type to which factors of products may be rounded before they are multiplied; sums are float32. NETS_TF32 is a
 * permission: a device without such units computes in float32. With NETS_BF16 maps are bf16, too, and weights are
 * rounded to bf16 before they are multiplied, on every device. Switches over it list all values, so that a new one is
 * not forgotten. */
typedef enum nets_precision { NETS_FP32, NETS_TF32, NETS_BF16 } nets_precision;

typedef struct nets_backend_config {
    nets_precision precision;
    bool deterministic;            /* gradients, like outputs, have the same bits for the same inputs every time */
    int64_t workspace_limit_bytes; /* hard limit for one library call; 0: NETS_WORKSPACE_LIMIT_BYTES applies */
    /* Threads of device host; 0: mm_host_cpus. Must be 0 for other devices. The same number gives the same bits;
     * results of different numbers differ by rounding. */
    int threads;
    bool untimed;                /* algorithms are not timed, as if there were no device. For planning only */
    bool plans_only;             /* graphs are lowered to be planned, and never run. The host makes no code for them */
    const char *algorithms_path; /* the file of algorithms chosen by timing; NULL: none */
    /* Once it is not 0, an op that has to time algorithms is not created: MM_ERR_ORDER. A signal handler may set it
     * (sig_atomic_t is int). It outlives the backend. NULL: never. */
    const volatile int *stop;
    mm_log log;
} nets_backend_config;

/* The limits if none is configured. The second limit applies only to a convolution that tensor cores cannot compute
 * within the first limit, but would compute much faster, such as the gradient of a first layer's weights. Both are
 * chosen. */
#define NETS_WORKSPACE_LIMIT_BYTES             (INT64_C(256) << 20)
#define NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES (INT64_C(2) << 30)

enum { NETS_LIBRARY_CAPACITY = 48 };

typedef struct nets_backend_ops {
    const char *name; /* the kind of its devices */
    mm_status (*open)(int ordinal, const nets_backend_config *config, nets_backend **backend_out);
    void (*close)(nets_backend *backend);
    mm_status (*update)(nets_backend *backend, const nets_update_args *args, mm_stream *stream);
    /* The same at once, on the calling thread and the backend's; all pointers are to the CPU's memory. Any thread may
     * call it, one at a time. NULL: the device is not the CPU. */
    mm_status (*update_now)(nets_backend *backend, const nets_update_args *args);
    /* Only the update's check; reads params, n_checked, most, late, loss and rng of `args`. */
    mm_status (*check)(nets_backend *backend, const nets_update_args *args, mm_stream *stream);
    /* Ends a pass that goes on: advances NETS_RNG_IMAGE by `images`. */
    mm_status (*pass_on)(nets_backend *backend, uint32_t *rng, int64_t images, mm_stream *stream);
    /* sum[i] += addend[i], f32 in device memory. */
    mm_status (*add)(nets_backend *backend, float *sum, const float *addend, int64_t elems, mm_stream *stream);
    /* to[p] = {from[3 p], from[3 p + 1], from[3 p + 2], 0} for each pixel p; `from` is device or pinned memory. NULL:
     * the device never pads images. */
    mm_status (*pad)(nets_backend *backend, const float *from, float *to, int64_t pixels, mm_stream *stream);
    /* to[i] = from[i], rounded, between MM_F32 and MM_BF16; called while an op's phase is enqueued. An op that has no
     * implementation for bf16 maps runs through its f32 form with it (op_through_f32.h). NULL: it is refused. */
    mm_status (*convert)(nets_backend *backend, mm_dtype from_type, const void *from, mm_dtype to_type, void *to,
                         int64_t elems, mm_stream *stream);
    /* The configuration of a backend that times algorithms when ops are created. The function or its result is NULL if
     * the backend does not. */
    const nets_backend_config *(*config)(const nets_backend *backend);
    /* Called around an op's creation, as mm_device_ops.enter and leave; NULL: not needed. */
    mm_status (*enter)(nets_backend *backend, bool *entered_out);
    void (*leave)(nets_backend *backend);
    /* Name and version of the library on which its speed depends: "oneDNN 3.5.3". NULL: not told. */
    void (*library)(char text_out[NETS_LIBRARY_CAPACITY]);
    const nets_op_impl *impls[NETS_OP_KINDS]; /* NULL for the data */
    /* Enqueues parts of the weight's gradient, for f32 maps (nets_op_enqueue_parts). NULL: the operation gives it whole
     * only. */
    mm_status (*parts[NETS_OP_KINDS])(nets_op *op, const nets_part_args *args, mm_stream *stream);
} nets_backend_ops;

/* The first member of every backend's struct. */
struct nets_backend {
    const nets_backend_ops *ops;
    int ordinal;   /* the device's, among those of its kind; set by nets_backend_open */
    int threads;   /* how many CPU threads it computes on; 0: it computes on another device */
    mm_dtype maps; /* the type of maps in nets lowered for it: MM_F32, or as its precision says */
    /* Parameters of rank 4, and their gradients, are [out][height][width][in] in its memory (op_order.h). */
    bool channels_last;
};

/* Opens the backend for a device by the device's name ("cuda:1"). `config` NULL: all zero; it is copied with its
 * strings. The device need not be present: a net's workspaces can be computed without it. If they depend on algorithms
 * that are chosen by timing, they are those of the algorithms stored at algorithms_path, else the limit
 * (workspace_limit_bytes or NETS_WORKSPACE_LIMIT_BYTES). Close the backend after its ops are destroyed. Errors are
 * those of mm_device_find. */
MM_CHECKED mm_status nets_backend_open(const char *device, const nets_backend_config *config,
                                       nets_backend **backend_out);
void nets_backend_close(nets_backend *backend);

/* Opens a backend of the same configuration that times no algorithms, and whose workspaces are at most those that
 * timing will give. A plan that does not fit with them does not fit at all. For planning only. MM_ERR_UNSUPPORTED: the
 * backend times nothing anyway. */
MM_CHECKED mm_status nets_backend_open_bound(const nets_backend *backend, nets_backend **bound_out);

#endif
