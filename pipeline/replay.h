/* SPDX-License-Identifier: MIT */
/* Recordings of iterations. */
#ifndef PIPELINE_REPLAY_H
#define PIPELINE_REPLAY_H

#include "pipeline/dispatch.h"

/* Ends the recording that is under way, if any, and drops it. */
void mm_record_abort(mm_dispatch *dispatch);

#endif
