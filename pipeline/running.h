/* SPDX-License-Identifier: MIT */
/* The iteration under way. */
#ifndef PIPELINE_RUNNING_H
#define PIPELINE_RUNNING_H

#include "pipeline/dispatch.h"

/* Returns the iteration's failure, and sets its message for the calling thread; MM_OK if there is none. */
mm_status mm_dispatch_failure(mm_dispatch *dispatch);

#endif
