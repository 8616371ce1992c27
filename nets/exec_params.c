/* A net's parameters and its count of updates, in the manager. */
#include <stdlib.h>
#include <string.h>

#include "nets/exec_internal.h"
#include "nets/init.h"

static mm_tensor part_tensor(const nets_exec *exec, int param, nets_part part) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    switch (part) {
    case NETS_VALUE:
        return tensors->value;
    case NETS_GRADIENT:
        return tensors->gradient;
    case NETS_MOMENTUM:
        return tensors->momentum;
    }
    return -1;
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

/* `values`: room for the largest parameter. */
static mm_status init_params(nets_exec *exec, uint64_t seed, float *values) {
    for (int i = 0; i < nets_net_params(exec->net); i++) {
        nets_init_param(exec->net, i, seed, values);
        MM_TRY(nets_exec_param_set(exec, i, NETS_VALUE, values));
        if (exec->lowered->params[i].momentum < 0) continue;
        memset(values, 0, (size_t)nets_net_param(exec->net, i)->elems * sizeof *values);
        MM_TRY(nets_exec_param_set(exec, i, NETS_MOMENTUM, values));
    }
    return MM_OK;
}

mm_status nets_exec_init(nets_exec *exec, uint64_t seed) {
    int64_t most = 1;
    for (int i = 0; i < nets_net_params(exec->net); i++)
        if (nets_net_param(exec->net, i)->elems > most) most = nets_net_param(exec->net, i)->elems;
    float *values = malloc((size_t)most * sizeof *values);
    if (!values) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to initialise it", nets_net_name(exec->net));
    mm_status status = init_params(exec, seed, values);
    free(values);
    if (status != MM_OK || exec->lowered->rng < 0) return status;
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
