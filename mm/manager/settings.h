/* SPDX-License-Identifier: MIT */
/* A policy that was set at run time, and is planned on a thread (policy_thread.h): taken up between iterations. */
#ifndef MM_MANAGER_SETTINGS_H
#define MM_MANAGER_SETTINGS_H

#include "mm/manager/manager.h"

/* Before an iteration: if the policy that is wanted has its plans, switches to it; if it is not being planned, begins
 * that. A failure of earlier iterations, which the switch waits for, is returned; a failure to plan is logged. */
MM_CHECKED mm_status mm_policy_look(mm_manager *manager);

#endif
