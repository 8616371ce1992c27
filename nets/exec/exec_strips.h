/* SPDX-License-Identifier: MIT */
/* The strips of an executor's parameters (nets/lower/param_strips.h): updated one by one, got and set as the whole.
 * Internal to the executor. */
#ifndef NETS_EXEC_EXEC_STRIPS_H
#define NETS_EXEC_EXEC_STRIPS_H

#include "nets/exec/exec.h"

/* Makes exec->strips. MM_ERR_INVALID: another executor of the manager has these states cut otherwise. */
MM_CHECKED mm_status nets_exec_strips_init(nets_exec *exec);

/* The strip that the step updates, with its places as the step finds them; NULL: it updates whole parameters. Those of
 * exec->params must be set. Valid as long as the executor. */
const nets_update_param *nets_exec_strip(nets_exec *exec, const nets_step *step);

/* Copies elements first .. first + n - 1 of state k of the net's parameter to `out` or, if `out` is NULL, from `in`. */
MM_CHECKED mm_status nets_exec_strips_copy(const nets_exec *exec, int param, int k, int64_t first, int64_t n,
                                           float *out, const float *in);

#endif
