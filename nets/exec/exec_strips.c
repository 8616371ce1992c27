/* SPDX-License-Identifier: MIT */
#include "nets/exec/exec_strips.h"

#include <stdio.h>
#include <stdlib.h>

#include "nets/exec/exec_internal.h"

static const nets_param_tensors *tensors_of(const nets_exec *exec, const nets_step *step) {
    return &exec->lowered->params[exec->number[step->first_updated]];
}

static bool is_strip(const nets_exec *exec, const nets_step *step) {
    return step->phase == MM_UPDATE && step->n_updated == 1 && tensors_of(exec, step)->strips.n > 1;
}

/* Refuses a state of which the manager has the other form, whole or cut: the two would go apart. */
static mm_status check_form(const nets_exec *exec, int param) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    const char *state = nets_optimizer_traits_of(exec->lowered->optimizer)->states[0];
    const bool cut = tensors->strips.n > 1;
    char other[NETS_PARAM_NAME_CAPACITY + 32];
    if (tensors->state[0] < 0) return MM_OK;
    snprintf(other, sizeof other, "%s.%s%s", state, nets_net_param(exec->net, param)->name, cut ? "" : "[0]");
    size_t bytes = 0;
    mm_persistent_data(exec->manager, other, &bytes);
    if (bytes == 0) return MM_OK; /* there is none */
    return mm_fail(
        MM_ERR_INVALID,
        "net %s: this manager has the state %s.%s %s of another executor; give both the same update, or each "
        "a manager",
        nets_net_name(exec->net), state, nets_net_param(exec->net, param)->name, cut ? "whole" : "in strips");
}

mm_status nets_exec_strips_init(nets_exec *exec) {
    const nets_lowered *lowered = exec->lowered;
    for (int i = 0; i < nets_net_params(exec->net); i++) MM_TRY(check_form(exec, i));
    exec->strips = calloc((size_t)lowered->n_updates + 1, sizeof *exec->strips);
    if (!exec->strips) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to update it", nets_net_name(exec->net));
    for (int s = 0; s < lowered->n_steps; s++) {
        const nets_step *step = &lowered->steps[s];
        if (!is_strip(exec, step)) continue;
        const nets_update_param *whole = &exec->params[step->first_updated];
        const nets_share strip = nets_strip(&tensors_of(exec, step)->strips, step->strip, whole->elems);
        exec->strips[step->part] = (nets_update_param){.elems = strip.n, .decayed = whole->decayed};
    }
    return MM_OK;
}

const nets_update_param *nets_exec_strip(nets_exec *exec, const nets_step *step) {
    if (!is_strip(exec, step)) return NULL;
    const nets_param_tensors *tensors = tensors_of(exec, step);
    const nets_update_param *whole = &exec->params[step->first_updated];
    nets_update_param *strip = &exec->strips[step->part];
    const int64_t first = nets_strip(&tensors->strips, step->strip, whole->elems).first;
    nets_exec_set_place(&strip->gradient, whole->gradient + first);
    nets_exec_set_place(&strip->weight, whole->weight + first);
    nets_exec_set_place(&strip->copy, whole->copy ? whole->copy + first : NULL);
    for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->state[k] >= 0; k++)
        nets_exec_set_place(&strip->state[k], mm_tensor_data(exec->manager, tensors->state[k] + step->strip));
    return strip;
}

mm_status nets_exec_strips_copy(const nets_exec *exec, int param, int k, int64_t first, int64_t n, float *out,
                                const float *in) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    const int64_t elems = nets_order_elems(&tensors->order), size = sizeof *out;
    for (int64_t at = first; at < first + n;) {
        const int i = (int)(at / tensors->strips.elems);
        const nets_share strip = nets_strip(&tensors->strips, i, elems);
        const int64_t end = strip.first + strip.n < first + n ? strip.first + strip.n : first + n;
        const char *name = nets_exec_name_of(exec, tensors->state[k] + i);
        const int64_t offset = (at - strip.first) * size, bytes = (end - at) * size;
        if (out)
            MM_TRY(mm_persistent_get(exec->manager, name, offset, out + (at - first), bytes));
        else
            MM_TRY(mm_persistent_set(exec->manager, name, offset, in + (at - first), bytes));
        at = end;
    }
    return MM_OK;
}
