/* SPDX-License-Identifier: MIT */
#ifndef MM_MANAGER_TENSOR_REFUSAL_H
#define MM_MANAGER_TENSOR_REFUSAL_H

#include "mm/manager/manager.h"

/* Says why a tensor has no address now (mm_last_error): the step, the tensor, and what the step uses. A loop that goes
 * on with NULL crashes, so a use that was not declared is logged, too. */
void mm_tensor_refuse(mm_manager *manager, mm_tensor tensor);

#endif
