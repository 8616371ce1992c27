/* SPDX-License-Identifier: MIT */
/* The sizes of workspace with which an operation runs. */
#include "nets/contract/op.h"

nets_workspaces nets_op_workspaces(const nets_op *op, mm_phase phase) {
    if (op->workspaces[phase].n) return op->workspaces[phase];
    return (nets_workspaces){1, {op->impl->workspace_bytes ? op->impl->workspace_bytes(op, phase) : 0}};
}

int64_t nets_op_workspace_bytes(const nets_op *op, mm_phase phase) { return nets_op_workspaces(op, phase).bytes[0]; }

int64_t nets_op_workspace_within(const nets_op *op, mm_phase phase, int64_t bytes) {
    const nets_workspaces w = nets_op_workspaces(op, phase);
    for (int i = 0; i < w.n; i++)
        if (w.bytes[i] <= bytes) return w.bytes[i];
    return -1;
}
