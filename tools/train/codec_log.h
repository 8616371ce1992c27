/* SPDX-License-Identifier: MIT */
/* The log of a policy that samples: a JSON object on a line for each iteration that does; with sub-batches for each of
 * their graphs, which sample on their own. */
#ifndef TOOLS_TRAIN_CODEC_LOG_H
#define TOOLS_TRAIN_CODEC_LOG_H

#include <stdio.h>

#include "nets/exec/exec.h"

/* Writes the lines of graphs that sampled in the last iteration, the run's `iteration`-th. Between iterations.
 * MM_ERR_NOMEM, or the failure of an iteration. */
MM_CHECKED mm_status codec_log_write(FILE *file, mm_manager *manager, const nets_exec *exec, int64_t iteration);

#endif
