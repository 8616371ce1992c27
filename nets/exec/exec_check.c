/* SPDX-License-Identifier: MIT */
/* Checks that gradients are finite, with optimizer.only_finite. */
#include "nets/exec/exec_internal.h"

mm_status nets_exec_enqueue_check(const nets_exec *exec, const nets_update_param *params, int n, float most, bool late,
                                  const float *loss, mm_stream *stream) {
    const nets_update_args args = {.params = params,
                                   .n_checked = n,
                                   .most = most,
                                   .late = late,
                                   .loss = loss,
                                   .rng = nets_exec_place(exec, exec->lowered->rng)};
    return exec->backend->ops->check(exec->backend, &args, stream);
}

mm_status nets_exec_check_parts(const nets_exec *exec, const nets_update_param *parts, mm_stream *stream) {
    const float most = NETS_GRADIENT_MOST / (float)exec->lowered->allreduce.n;
    return nets_exec_checks_own(exec) ? nets_exec_enqueue_check(exec, parts, 1, most, false, NULL, stream) : MM_OK;
}
