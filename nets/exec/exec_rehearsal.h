/* SPDX-License-Identifier: MIT */
/* The guard of a policy that samples (mm.h: mm_sampling_guards): before an iteration that samples, its forward and
 * backward pass are rehearsed with the codes' present bounds, and the weights' gradients kept in the CPU's memory.
 * After it, which loses nothing, the policy is told how far the kept ones are from the exact ones. */
#ifndef NETS_EXEC_EXEC_REHEARSAL_H
#define NETS_EXEC_EXEC_REHEARSAL_H

#include "nets/exec/exec.h"

typedef struct nets_rehearsal {
    float **gradients; /* per parameter: as rehearsed; NULL: not compared */
    float **before;    /* per parameter: as passes before this one left them; NULL: not kept */
    int n;
} nets_rehearsal;

/* To be called before the rehearsal of a pass that adds to gradients, and after it: it leaves them as they were. The
 * caller frees them with nets_rehearsal_fini, also after a failure. MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status nets_rehearsal_save(nets_rehearsal *guard, nets_exec *exec);
MM_CHECKED mm_status nets_rehearsal_restore(const nets_rehearsal *guard, nets_exec *exec);

/* Keeps the gradients that the rehearsal left. The caller frees them with nets_rehearsal_fini, also after a failure.
 * MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status nets_rehearsal_record(nets_rehearsal *guard, nets_exec *exec);
/* Compares them with the gradients that are there now, and tells the policy of the pass's graph. */
MM_CHECKED mm_status nets_rehearsal_report(const nets_rehearsal *guard, nets_exec *exec, const nets_lowered *pass);
/* Legal on a zeroed one. */
void nets_rehearsal_fini(nets_rehearsal *guard);

#endif
