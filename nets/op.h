/* The op contract: how a layer's forward and backward are computed on a device.
 *
 * An op is a layer's operation prepared for given shapes on one backend: everything that needs memory or time (creating
 * primitives, choosing algorithms) happens in nets_op_create. Enqueuing it puts work on a stream and returns; the
 * pointers are captured then. Layers of equal description may share one op, since a backend's ops run one at a time, in
 * the order in which one stream runs them.
 *
 * Where tensors lie is given by role (role.h), the same for every device. Maps are of the type that its description
 * says, images NHWC; parameters, their gradients and statistics are f32, in torchvision's order; an op that wants them
 * otherwise reorders them in its workspace. Pointers are
 * 256-byte aligned. Two inputs may be one tensor; then so are their DX, which is also EARLIER of the second one: an op
 * gives its inputs' gradients in their order. Ops write the same bits for the same inputs wherever the tensors lie, in
 * place or not; their gradients only if the backend's configuration says so. */
#ifndef NETS_OP_H
#define NETS_OP_H

#include "mm/device/device.h"
#include "nets/optimizer.h"
#include "nets/role.h"

typedef struct nets_op_args {
    void *at[NETS_ROLES]; /* NULL: absent */
    uint64_t sign_roles;  /* bit r: role r is given as mm.h's sign mask (MM_FORM_SIGN) instead of its elements */
    uint64_t given_roles; /* bit r: role r, which the op writes, holds its value from the first time, and is to be read
                             and left alone. Of what a description says so of (nets_saved_spec.given), all or nothing */
    uint64_t exact_roles; /* bit r: role r has the bits that it had in the forward: what depends on it alone can be
                             computed again in place of being read. Said where signs are read; may be left 0 */
    uint32_t layer;       /* the layer's number, to tell dropout layers apart */
} nets_op_args;

typedef struct nets_op_desc {
    nets_op_kind kind;
    nets_attrs attrs;
    /* Of a batch norm: y = max(0, bn(x)), or max(0, bn(x) + x2) where it has two inputs. (Of a ReLU, attrs.bias: y =
     * max(0, x + b).) The bits are those of the single operations, one after the other. */
    bool relu;
    mm_dtype maps;                    /* of X, Y and their gradients */
    nets_shape x[NETS_MAX_INPUTS], y; /* of each input, and of the output, with the batch */
    int n_inputs;
    bool training;     /* else evaluation: no backward */
    bool wants_dx;     /* by the first input; the others' DX may be absent too */
    bool adds_earlier; /* EARLIER is there in every backward; else in none. Convolutions want to know */
} nets_op_desc;

typedef struct nets_backend nets_backend;
typedef struct nets_op nets_op;

/* How factors of products may be rounded before they are multiplied; sums are float32. A permission: a device without
 * such units computes in float32. (A switch over it names all: bf16 will be one more.) */
typedef enum nets_precision { NETS_FP32, NETS_TF32 } nets_precision;

typedef struct nets_backend_config {
    nets_precision precision;
    bool deterministic;            /* gradients, too, have the same bits for the same inputs every time */
    int64_t workspace_limit_bytes; /* of one library call; 0: see NETS_WORKSPACE_LIMIT_BYTES */
    bool no_fuse;                  /* nets are lowered layer by layer (fuse.h) */
    int threads;                   /* that device host computes on; 0: mm_host_cpus. Others have none to set: 0. The
                                      same number gives the same bits, another one others, which differ by rounding */
    bool untimed;                  /* nothing is timed: as without a device. For planning only */
    const char *algorithms_path;   /* where the algorithms chosen by timing are kept; NULL: nowhere */
    mm_log log;
} nets_backend_config;

/* Where none is given. Beyond the first, up to the second, goes only a convolution that tensor cores cannot compute
 * with less, and that they compute much faster: a first layer's gradient by weights, say. One that is given is never
 * passed. */
#define NETS_WORKSPACE_LIMIT_BYTES             (INT64_C(256) << 20)
#define NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES (INT64_C(2) << 30)

#define NETS_DTYPE_BIT(dtype) (1u << (dtype))

/* What computes an operation on a device. All zero: the device has none. */
typedef struct nets_op_impl {
    uint32_t maps; /* bit d: it takes maps of mm_dtype d; others are refused by name */
    mm_status (*create)(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out);
    void (*destroy)(nets_op *op);
    int64_t (*workspace_bytes)(const nets_op *op, mm_phase phase); /* NULL: none */
    mm_status (*forward)(nets_op *op, const nets_op_args *args, mm_stream *stream);
    mm_status (*backward)(nets_op *op, const nets_op_args *args, mm_stream *stream);
} nets_op_impl;

typedef struct nets_backend_ops {
    const char *name; /* of the kind of device that it computes on */
    mm_status (*open)(int ordinal, const nets_backend_config *config, nets_backend **backend_out);
    void (*close)(nets_backend *backend);
    mm_status (*update)(nets_backend *backend, const nets_update_args *args, mm_stream *stream);
    /* Of a backend that times algorithms when ops are created; NULL, or gives NULL: it does not. */
    const nets_backend_config *(*config)(const nets_backend *backend);
    /* As mm_device_ops.enter and leave, around an op's creation; NULL: nothing is to be entered for it. */
    mm_status (*enter)(nets_backend *backend, bool *entered_out);
    void (*leave)(nets_backend *backend);
    const nets_op_impl *impls[NETS_OP_KINDS]; /* NULL for the data */
} nets_backend_ops;

/* The first member of every implementation's struct. */
struct nets_backend {
    const nets_backend_ops *ops;
    int ordinal;   /* of the device, among those of its kind; set by nets_backend_open */
    bool no_fuse;  /* of its configuration; set by nets_backend_open */
    int threads;   /* of this machine's CPUs that it computes on; 0: it computes elsewhere */
    mm_dtype maps; /* that nets are lowered with: MM_F32 */
};
struct nets_op {
    const nets_op_impl *impl;
};

/* The backend for a device, by the device's name ("cuda:1"); the errors of mm_device_find. `config` NULL: all zero; it is copied, its strings
 * too. Opening needs no device: the workspaces of a net can be known without one. Where
 * they depend on algorithms that only timing can choose, they are those of the algorithms kept at algorithms_path, else
 * the limit (the first, where none is given). Close after its ops were destroyed. */
MM_CHECKED mm_status nets_backend_open(const char *device, const nets_backend_config *config,
                                       nets_backend **backend_out);
void nets_backend_close(nets_backend *backend);

/* Of a backend that times algorithms when ops are created: one of the same configuration that does not, and whose
 * workspaces are no larger than those will be: what does not fit with them does not fit. For planning only.
 * MM_ERR_UNSUPPORTED: the backend times nothing. */
MM_CHECKED mm_status nets_backend_open_bound(const nets_backend *backend, nets_backend **bound_out);

/* MM_ERR_UNSUPPORTED if the backend cannot do it; MM_ERR_NOMEM. Destroy after its work was done. */
MM_CHECKED mm_status nets_op_create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out);
void nets_op_destroy(nets_op *op);

/* Scratch that a phase needs, MM_FORWARD or MM_BACKWARD. */
int64_t nets_op_workspace_bytes(const nets_op *op, mm_phase phase);

/* Enqueues a phase. */
MM_CHECKED mm_status nets_op_enqueue(nets_op *op, mm_phase phase, const nets_op_args *args, mm_stream *stream);

#endif
