/* The log of a policy that samples: a JSON object on a line for each iteration that does. */
#ifndef TOOLS_CODEC_LOG_H
#define TOOLS_CODEC_LOG_H

#include <stdio.h>

#include "nets/exec.h"

/* Writes a line for each pass of the run's `iteration`-th iteration, the last of this executor, if it sampled. Between iterations.
 * MM_ERR_NOMEM, or the failure of an iteration. */
MM_CHECKED mm_status codec_log_write(FILE *file, mm_manager *manager, const nets_exec *exec, int64_t iteration);

#endif
