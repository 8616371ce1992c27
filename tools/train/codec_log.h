/* SPDX-License-Identifier: MIT */
/* The log of a policy that samples: one line with a JSON object for each iteration that samples. With sub-batches, each
 * graph samples on its own and has lines of its own. */
#ifndef TOOLS_TRAIN_CODEC_LOG_H
#define TOOLS_TRAIN_CODEC_LOG_H

#include <stdio.h>

#include "nets/exec/exec.h"

/* Writes a line for each graph that sampled in the last iteration, number `iteration` of the run. Call it between
 * iterations. MM_ERR_NOMEM, or the failure of an iteration. */
MM_CHECKED mm_status codec_log_write(FILE *file, mm_manager *manager, const nets_exec *exec, int64_t iteration);

#endif
