/* SPDX-License-Identifier: MIT */
/* Rehearsals for a policy that samples and guards its error bounds (mm.h: mm_sampling_guards). Before an iteration that
 * samples, its forward and backward pass are rehearsed with the codes' present bounds, and the weights' gradients are
 * copied to CPU memory. After the iteration, which uses no lossy code, the policy gets the deviation of the rehearsed
 * gradients from the exact ones. */
#ifndef NETS_EXEC_EXEC_REHEARSAL_H
#define NETS_EXEC_EXEC_REHEARSAL_H

#include "nets/exec/exec.h"

typedef struct nets_rehearsal {
    float **gradients; /* per parameter: the rehearsed one; NULL: not compared */
    float **before;    /* per parameter: the sum of earlier passes; NULL: not saved */
    int n;
} nets_rehearsal;

/* For the rehearsal of a pass that adds to gradients: save them before it, restore them after it. The caller frees them
 * with nets_rehearsal_fini, also after a failure. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status nets_rehearsal_save(nets_rehearsal *guard, nets_exec *exec);
MM_CHECKED mm_status nets_rehearsal_restore(const nets_rehearsal *guard, nets_exec *exec);

/* Copies the rehearsed gradients to CPU memory. The caller frees them with nets_rehearsal_fini, also after a failure.
 * MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status nets_rehearsal_record(nets_rehearsal *guard, nets_exec *exec);
/* Compares them with the present gradients, and reports the deviations to the policy of the pass's graph. */
MM_CHECKED mm_status nets_rehearsal_report(const nets_rehearsal *guard, nets_exec *exec, const nets_lowered *pass);
/* Legal on a zeroed one. */
void nets_rehearsal_fini(nets_rehearsal *guard);

#endif
