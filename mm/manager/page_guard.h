/* SPDX-License-Identifier: MIT */
/* Under self_check, memory of the arena that nobody may use now faults, if the device can protect it (the host):
 *
 *              persistent tensors                managed tensors, workspaces, codes
 *   step       of those that it does not write,  whole pages that neither it nor an operation in flight uses
 *              whole pages are read-only         cannot be read or written
 *   between    all open                          all closed
 *   iterations
 *
 * A step is guarded if its caller computes on its own thread, and no tensor is placed at run time. Other devices get
 * NaNs between iterations. */
#ifndef MM_MANAGER_PAGE_GUARD_H
#define MM_MANAGER_PAGE_GUARD_H

#include "mm/core/plan/program.h"
#include "mm/core/status.h"
#include "mm/manager/coverage.h"
#include "mm/manager/fault_watch.h"

typedef struct mm_page_guard {
    const mm_program *program;          /* of the iteration under way, or of the last one */
    int32_t (*clocks)[MM_STREAM_COUNT]; /* mm_program_clocks */
    bool guards_steps;
    mm_range *used;        /* room for the bytes that may be used during a step */
    mm_fault_watch *watch; /* of mm_options.fault_fn; NULL: none */
    int64_t begin, end;    /* bytes of the arena that are not open, in part; equal: all are open */
    int node;              /* the step that is guarded; -1: none */
} mm_page_guard;

/* Called when an iteration begins: opens all. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_page_guard_begin(mm_manager *manager);
/* Called when the caller is about to compute a step on its own thread, and when it has computed it. */
MM_CHECKED mm_status mm_page_guard_step_begin(mm_manager *manager, int node);
void mm_page_guard_step_end(mm_manager *manager);
/* Called when an iteration is over, and no task is left. intact: no task has failed. MM_ERR_DEVICE, MM_ERR_NOMEM: what
 * is managed could not be closed or poisoned. */
MM_CHECKED mm_status mm_page_guard_end(mm_manager *manager, bool intact);
/* Opens all, for others than steps. */
void mm_page_guard_open(mm_manager *manager);
void mm_page_guard_fini(mm_manager *manager);

/* Writes why the address is closed. Returns false if it is not one that is guarded. Safe in a signal handler. */
bool mm_page_guard_explain(const mm_manager *manager, const void *address, char *text, size_t capacity);

#endif
