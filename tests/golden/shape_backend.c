/* SPDX-License-Identifier: MIT */
#include "tests/golden/shape_backend.h"

#include <stdlib.h>

#include "mm/core/status.h"
#include "nets/contract/op_sizes.h"
#include "nets/net_ops.h"

/* Three ways to compute an operation: the fastest takes `bytes` of workspace, the next a quarter of that, the last
 * none. */
static nets_workspaces ways_of(int64_t bytes) {
    const int64_t whole = nets_aligned(bytes), quarter = nets_aligned(bytes / 4);
    if (whole == quarter) return (nets_workspaces){2, {whole, 0}};
    return (nets_workspaces){3, {whole, quarter, 0}};
}

/* What multiplies by a parameter has scratch, of the bytes of an image: of the output going forward, of input and
 * output going back. So has attention. */
static void set_workspaces(const nets_op_desc *desc, nets_op *op) {
    const nets_param_spec *param = nets_param_spec_of(desc->kind, 0);
    const int64_t in = 4 * nets_shape_elems(&desc->x[0]) / desc->x[0].dims[0],
                  out = 4 * nets_shape_elems(&desc->y) / desc->x[0].dims[0];
    if (!(param && param->factor) && desc->kind != NETS_ATTENTION) return;
    op->workspaces[MM_FORWARD] = ways_of(out);
    op->workspaces[MM_BACKWARD] = ways_of(in + out);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    nets_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for an operation");
    op->impl = backend->ops->impls[desc->kind];
    op->adds = desc->training && desc->shared;
    set_workspaces(desc, op);
    if (desc->kind == NETS_BATCH_NORM && desc->x[0].rank == 4 && desc->maps == MM_F32)
        op->code_needs = (nets_code_needs){.workspace_bytes = 16 * nets_shape_channels(&desc->x[0]),
                                           .workspace_strips = 2,
                                           .passes = desc->wants_dx ? 2 : 1};
    *op_out = op;
    return MM_OK;
}

static void destroy(nets_op *op) { free(op); }

static const nets_op_impl OP = {
    .maps = NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16) | NETS_MIXED, .create = create, .destroy = destroy};

static const nets_backend_ops OPS = {
    .name = "shapes",
    .impls =
        {
#define IMPL(NAME, name) [NETS_##NAME] = &OP,
            NETS_OPS(IMPL)
#undef IMPL
        },
};

nets_backend shape_backend(mm_dtype maps) { return (nets_backend){.ops = &OPS, .maps = maps, .threads = 1}; }
