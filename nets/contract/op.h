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

#include "nets/contract/backend.h"
#include "nets/contract/op_desc.h"

#define NETS_DTYPE_BIT(dtype) (1u << (dtype))
/* The implementation takes f32 inputs (nets_op_desc.f32_inputs) beside bf16 maps. */
#define NETS_MIXED (1u << 31)

/* An operation's implementation on a device. All zero: the device has none. */
struct nets_op_impl {
    uint32_t maps; /* bit d: takes maps of mm_dtype d; NETS_MIXED */
    mm_status (*create)(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out);
    void (*destroy)(nets_op *op);
    int64_t (*workspace_bytes)(const nets_op *op, mm_phase phase); /* NULL: none, or nets_op.workspaces has them */
    mm_status (*forward)(nets_op *op, const nets_op_args *args, mm_stream *stream);
    mm_status (*backward)(nets_op *op, const nets_op_args *args, mm_stream *stream);
};

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

/* The first member of every op's struct. */
struct nets_op {
    const nets_op_impl *impl;
    /* With pass.adds or shared parameters: the op adds what it computes to DPARAM, in blocks, because the parameters
     * may be large. Other ops write whole gradients to the workspace, from which the executor adds them. */
    bool adds;
    int64_t part_bytes;         /* with part_rows: the workspace in which parts of the weight's gradient are computed */
    nets_code_needs code_needs; /* passes not 0: it reads and writes the codes that its description names (net_ops.h) */
    /* of MM_FORWARD and MM_BACKWARD; n is 0: there is one size, nets_op_impl.workspace_bytes */
    nets_workspaces workspaces[2];
};

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

/* Enqueues parts of the gradient of the op's weight, for an op of this
 * kind with nets_op_desc.part_rows. The op adds to `dw` if it is
 * one that adds (nets_op.adds), else overwrites it. */
MM_CHECKED mm_status nets_op_enqueue_parts(nets_backend *backend, nets_op *op, nets_op_kind kind,
                                           const nets_part_args *args, mm_stream *stream);

/* Enqueues a phase. */
MM_CHECKED mm_status nets_op_enqueue(nets_op *op, mm_phase phase, const nets_op_args *args, mm_stream *stream);

#endif
