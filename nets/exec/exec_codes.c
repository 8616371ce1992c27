/* SPDX-License-Identifier: MIT */
/* Optimizer states in codes (state_codes.h): their initial values, and what they stand for. */
#include <stdlib.h>
#include <string.h>

#include "nets/exec/exec_internal.h"
#include "nets/state_codes.h"

int nets_codes_zero(int state) { return state ? NETS_STATE_ZERO_UNSIGNED : NETS_STATE_ZERO_SIGNED; }

static mm_status fill(nets_exec *exec, mm_tensor tensor, int byte, void *piece) {
    const int64_t bytes = nets_exec_bytes_of(exec, tensor);
    memset(piece, byte, NETS_TRANSFER_BYTES);
    for (int64_t at = 0; at < bytes; at += NETS_TRANSFER_BYTES)
        MM_TRY(mm_persistent_set(exec->manager, nets_exec_name_of(exec, tensor), at, piece,
                                 bytes - at < NETS_TRANSFER_BYTES ? bytes - at : NETS_TRANSFER_BYTES));
    return MM_OK;
}

mm_status nets_codes_init(nets_exec *exec, int param, void *piece) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->absmax[k] >= 0; k++) {
        MM_TRY(fill(exec, tensors->state[k], nets_codes_zero(k), piece));
        MM_TRY(fill(exec, tensors->absmax[k], 0, piece));
    }
    return MM_OK;
}

mm_status nets_codes_decode(nets_exec *exec, int param, int k, const uint8_t *codes, float *out) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    const mm_tensor of_blocks = tensors->absmax[k];
    const int64_t bytes = nets_exec_bytes_of(exec, of_blocks);
    nets_state_maps maps;
    float *absmax = malloc((size_t)bytes);
    if (!absmax) return mm_fail(MM_ERR_NOMEM, "no memory to decode %s", nets_exec_name_of(exec, tensors->state[k]));
    const mm_status status = mm_persistent_get(exec->manager, nets_exec_name_of(exec, of_blocks), 0, absmax, bytes);
    nets_state_maps_make(&maps);
    for (int64_t e = 0; status == MM_OK && e < nets_net_param(exec->net, param)->elems; e++)
        out[e] = maps.of[k].value[codes[e]] * absmax[nets_order_place(&tensors->order, e) / NETS_STATE_BLOCK];
    free(absmax);
    return status;
}
