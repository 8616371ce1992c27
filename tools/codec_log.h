/* The log of a policy that samples: a JSON object on a line for each iteration that does. */
#ifndef TOOLS_CODEC_LOG_H
#define TOOLS_CODEC_LOG_H

#include <stdio.h>

#include "nets/exec.h"

/* Writes the line if the graph's last iteration, the run's `iteration`-th, sampled; else nothing. Between iterations.
 * MM_ERR_NOMEM, or the failure of an iteration. */
MM_CHECKED mm_status codec_log_write(FILE *file, mm_manager *manager, const nets_exec *exec, int64_t iteration);

#endif
