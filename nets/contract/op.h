/* SPDX-License-Identifier: MIT */
/* The op contract: how a layer's forward and backward are computed on a device.
 *
 * An op is a layer's operation prepared for given shapes on one backend. Everything that needs memory or time, such as
 * creating primitives or choosing algorithms, happens in nets_op_create. Enqueuing puts work on a stream and returns;
 * it copies the addresses, and the work reads the tensors. Layers of equal description may share one op, since a
 * backend's ops run one at a time, in the order of one stream.
 *
 * An op gets its tensors' addresses by role (role.h), on every device alike. Addresses are 256-byte aligned. Maps have
 * the type that the description says, but for the batch, which is f32, and outputs that the operation keeps in f32
 * (nets_op_info.f32_output); sums are f32 in any case. Images are NHWC. Parameters, their gradients and statistics are
 * f32, in torchvision's order; an op that needs another order makes a copy in its workspace. Where maps are bf16, a
 * weight that they are multiplied by comes rounded to bf16, in the same order, as W16 instead of W. An op that has W16
 * reads the batch rounded to bf16, to nearest, ties to even, as torch's autocast does; ops without it read the batch as
 * it is. Two inputs may be one tensor. Their DX are then one tensor too, which is also the second input's EARLIER: an
 * op computes its inputs' gradients in order.
 *
 * For the same inputs, forward outputs have the same bits wherever the tensors lie, in place or not. Gradients do so
 * only if the backend is deterministic. */
#ifndef NETS_CONTRACT_OP_H
#define NETS_CONTRACT_OP_H

#include "mm/device/contract/device.h"
#include "nets/optimizer.h"
#include "nets/role.h"

/* The tensors whose codes an op may get, as indices of nets_op_args.coded. */
enum { NETS_CODED_X, NETS_CODED_Y, NETS_CODED };

typedef struct nets_op_args {
    void *at[NETS_ROLES]; /* NULL: absent */
    /* Size of the memory at NETS_WORKSPACE; the op uses the largest of its workspace sizes that fits */
    int64_t workspace_bytes;
    uint64_t sign_roles; /* bit r: role r is a sign mask (mm.h, MM_FORM_SIGN) instead of elements */
    /* Bit r: this is a recomputation, and role r, an output, still has its value; the op reads it and must not write
     * it. Set for all saved tensors with nets_saved_spec.given, or for none. */
    uint64_t given_roles;
    /* Bit r: role r has the bits that it had in the forward, so what depends on it alone can be computed again instead
     * of read. Set only for steps that read signs; 0 is always legal. */
    uint64_t exact_roles;
    /* Codes, by NETS_CODED_*; strips NULL: there is none. A forward writes them beside the elements. A backward reads
     * them instead of the elements, whose address is NULL. Only ops with code_needs get any. */
    mm_coded coded[NETS_CODED];
    uint32_t layer; /* the layer's number: dropout layers need different random numbers */
} nets_op_args;

/* A training graph's part in one update of the weights. A batch may be trained on in sub-batches, one pass of a graph
 * each; the passes' gradients are added up, and the last pass updates. All zero: the graph's batch is the whole. */
typedef struct nets_pass {
    /* Images of the whole batch, whose number of labels divides the loss; 0: the graph's batch is the whole. With
     * several ranks the caller gives the images of this rank's part, which lowering multiplies by the number of
     * ranks. */
    int64_t whole;
    bool adds;    /* not the first pass: gradients, loss and correct labels are added to those of the passes before */
    bool goes_on; /* not the last pass: nothing is updated; NETS_RNG_IMAGE moves on to the next pass's first image */
} nets_pass;

typedef struct nets_op_desc {
    nets_op_kind kind;
    nets_attrs attrs;
    /* A batch norm is fused with a ReLU: y = max(0, bn(x)), or max(0, bn(x) + x2) if it has two inputs. (A ReLU with
     * attrs.bias is y = max(0, x + b).) The bits are those of the single operations, one after the other. */
    bool relu;
    mm_dtype maps;                    /* type of X, Y and their gradients */
    uint32_t f32_inputs;              /* bit i: input i is f32, whatever the maps are: it is the batch */
    int64_t factor_elems;             /* the weight's on the device, if it is a factor (nets_param_spec.factor) */
    nets_shape x[NETS_MAX_INPUTS], y; /* shapes of the inputs and the output, batch included */
    int n_inputs;
    bool training; /* false: evaluation, without a backward */
    bool wants_dx; /* the backward computes the first input's gradient; other inputs' DX may be absent in any case */
    /* Every backward of the op gets EARLIER; false: none does. A convolution chooses its algorithm by this, too */
    bool adds_earlier;
    /* Another layer reads the parameters, too, and has written their gradients: the op adds to them (nets_op.adds). */
    bool shared;
    nets_pass pass;
} nets_op_desc;

typedef struct nets_backend nets_backend;
typedef struct nets_op nets_op;

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
    const char *algorithms_path; /* the file of algorithms chosen by timing; NULL: none */
    mm_log log;
} nets_backend_config;

/* The limits if none is configured. The second limit applies only to a convolution that tensor cores cannot compute
 * within the first limit, but would compute much faster, such as the gradient of a first layer's weights. Both are
 * chosen. */
#define NETS_WORKSPACE_LIMIT_BYTES             (INT64_C(256) << 20)
#define NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES (INT64_C(2) << 30)

#define NETS_DTYPE_BIT(dtype) (1u << (dtype))
/* The implementation takes f32 inputs (nets_op_desc.f32_inputs) beside bf16 maps. */
#define NETS_MIXED (1u << 31)

/* An operation's implementation on a device. All zero: the device has none. */
typedef struct nets_op_impl {
    uint32_t maps; /* bit d: takes maps of mm_dtype d; NETS_MIXED */
    mm_status (*create)(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out);
    void (*destroy)(nets_op *op);
    int64_t (*workspace_bytes)(const nets_op *op, mm_phase phase); /* NULL: none, or nets_op.workspaces has them */
    mm_status (*forward)(nets_op *op, const nets_op_args *args, mm_stream *stream);
    mm_status (*backward)(nets_op *op, const nets_op_args *args, mm_stream *stream);
} nets_op_impl;

typedef struct nets_backend_ops {
    const char *name; /* the kind of its devices */
    mm_status (*open)(int ordinal, const nets_backend_config *config, nets_backend **backend_out);
    void (*close)(nets_backend *backend);
    mm_status (*update)(nets_backend *backend, const nets_update_args *args, mm_stream *stream);
    /* Only the update's check; reads params, n_checked, most, loss and rng of `args`. */
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
    const nets_op_impl *impls[NETS_OP_KINDS]; /* NULL for the data */
} nets_backend_ops;

/* The sizes of workspace with which a phase of an op can run, each with another algorithm: the fastest first, strictly
 * decreasing. Algorithms round differently. At most four; chosen: the fastest, the one with the least workspace, and
 * two between. */
enum { NETS_WORKSPACES = 4 };
typedef struct nets_workspaces {
    int n; /* at least 1 */
    int64_t bytes[NETS_WORKSPACES];
} nets_workspaces;

/* What an op's backward needs for the codes that it reads (mm_code_use). */
typedef struct nets_code_needs {
    int64_t workspace_bytes; /* of workspace for the codes, behind the op's own workspace */
    int workspace_strips, passes;
} nets_code_needs;

/* The first member of every backend's and every op's struct. */
struct nets_backend {
    const nets_backend_ops *ops;
    int ordinal;   /* the device's, among those of its kind; set by nets_backend_open */
    int threads;   /* how many CPU threads it computes on; 0: it computes on another device */
    mm_dtype maps; /* the type of maps in nets lowered for it: MM_F32, or as its precision says */
    /* Parameters of rank 4, and their gradients, are [out][height][width][in] in its memory (op_order.h). */
    bool channels_last;
};
struct nets_op {
    const nets_op_impl *impl;
    /* With pass.adds or shared parameters: the op adds what it computes to DPARAM, in blocks, because the parameters
     * may be large. Other ops write whole gradients to the workspace, from which the executor adds them. */
    bool adds;
    nets_code_needs code_needs; /* passes not 0: it reads and writes the codes that its description names (net_ops.h) */
    /* of MM_FORWARD and MM_BACKWARD; n is 0: there is one size, nets_op_impl.workspace_bytes */
    nets_workspaces workspaces[2];
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

/* Creates an op. Destroy it after its work is done. If the implementation cannot compute it with bf16 maps, it runs
 * through its f32 form. MM_ERR_UNSUPPORTED: the backend cannot compute it. MM_ERR_NOMEM. */
MM_CHECKED mm_status nets_op_create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out);
void nets_op_destroy(nets_op *op);

/* The sizes of workspace with which a phase can run, MM_FORWARD or MM_BACKWARD. */
nets_workspaces nets_op_workspaces(const nets_op *op, mm_phase phase);
/* The first of these sizes: the largest, with which the phase is fastest. */
int64_t nets_op_workspace_bytes(const nets_op *op, mm_phase phase);
/* The largest of these sizes that fits in `bytes`; -1: none fits. */
int64_t nets_op_workspace_within(const nets_op *op, mm_phase phase, int64_t bytes);

/* Enqueues a phase. */
MM_CHECKED mm_status nets_op_enqueue(nets_op *op, mm_phase phase, const nets_op_args *args, mm_stream *stream);

#endif
