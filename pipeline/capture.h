/* SPDX-License-Identifier: MIT */
/* The recording that is under way (replay.c). */
#ifndef PIPELINE_CAPTURE_H
#define PIPELINE_CAPTURE_H

#include "pipeline/dispatch.h"

/* Returns what the recording has added to the statistics, and restores them. */
mm_dispatch_stats mm_record_take_stats(mm_dispatch *dispatch);

/* Drops the recording that is under way, if any. The stream does not stay captured. */
void mm_record_abort(mm_dispatch *dispatch);

#endif
