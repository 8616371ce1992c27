/* A net's parameters and its counts of updates, in the manager. */
#include <stdlib.h>
#include <string.h>

#include "nets/exec_internal.h"
#include "nets/init.h"

static mm_tensor part_tensor(const nets_exec *exec, int param, nets_part part) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    if (part == NETS_VALUE) return tensors->value;
    return part == NETS_GRADIENT ? tensors->gradient : tensors->state[part - NETS_STATE];
}

float *nets_exec_param(const nets_exec *exec, int param, nets_part part) {
    return nets_exec_place(exec, part_tensor(exec, param, part));
}

static mm_status no_part(const nets_exec *exec, int param) {
    return mm_fail(MM_ERR_NOT_FOUND, "parameter %s of %s has no such part here", nets_net_param(exec->net, param)->name,
                   nets_net_name(exec->net));
}

mm_status nets_exec_param_get(nets_exec *exec, int param, nets_part part, float *values_out) {
    mm_tensor tensor = part_tensor(exec, param, part);
    if (tensor < 0) return no_part(exec, param);
    return mm_persistent_get(exec->manager, nets_exec_name_of(exec, tensor), 0, values_out,
                             nets_exec_bytes_of(exec, tensor));
}

mm_status nets_exec_param_set(nets_exec *exec, int param, nets_part part, const float *values) {
    mm_tensor tensor = part_tensor(exec, param, part);
    if (tensor < 0) return no_part(exec, param);
    return mm_persistent_set(exec->manager, nets_exec_name_of(exec, tensor), 0, values,
                             nets_exec_bytes_of(exec, tensor));
}

static mm_status init_param(nets_exec *exec, int param, uint64_t seed, float *values, const float *zeros) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    const int64_t elems = nets_net_param(exec->net, param)->elems, most = NETS_TRANSFER_BYTES / (int64_t)sizeof *values;
    for (int64_t first = 0; first < elems; first += most) {
        int64_t n = elems - first < most ? elems - first : most;
        int64_t at = first * (int64_t)sizeof *values, bytes = n * (int64_t)sizeof *values;
        nets_init_param(exec->net, param, seed, first, n, values);
        MM_TRY(mm_persistent_set(exec->manager, nets_exec_name_of(exec, tensors->value), at, values, bytes));
        for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->state[k] >= 0; k++)
            MM_TRY(mm_persistent_set(exec->manager, nets_exec_name_of(exec, tensors->state[k]), at, zeros, bytes));
    }
    return MM_OK;
}

mm_status nets_exec_init(nets_exec *exec, uint64_t seed) {
    float *values = malloc(NETS_TRANSFER_BYTES), *zeros = calloc(1, NETS_TRANSFER_BYTES);
    mm_status status = MM_OK;
    if (!values || !zeros)
        status = mm_fail(MM_ERR_NOMEM, "net %s: no memory to initialise it", nets_net_name(exec->net));
    for (int i = 0; status == MM_OK && i < nets_net_params(exec->net); i++)
        status = init_param(exec, i, seed, values, zeros);
    free(values);
    free(zeros);
    if (status != MM_OK || exec->lowered->rng < 0) return status;
    const uint32_t none = 0;
    if (exec->lowered->step >= 0) MM_TRY(mm_persistent_set(exec->manager, NETS_STEP_NAME, 0, &none, sizeof none));
    const uint32_t rng[NETS_RNG_WORDS] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    return mm_persistent_set(exec->manager, nets_exec_name_of(exec, exec->lowered->rng), 0, rng, sizeof rng);
}

mm_status nets_exec_updates(nets_exec *exec, int64_t *updates_out) {
    if (exec->lowered->rng < 0)
        return mm_fail(MM_ERR_NOT_FOUND, "net %s: nothing is updated in an evaluation", nets_net_name(exec->net));
    uint32_t rng[4];
    MM_TRY(mm_persistent_get(exec->manager, nets_exec_name_of(exec, exec->lowered->rng), 0, rng, sizeof rng));
    *updates_out = (int64_t)((uint64_t)rng[3] << 32 | rng[2]);
    return MM_OK;
}
