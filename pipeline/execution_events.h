/* SPDX-License-Identifier: MIT */
/* Events that an iteration of a program needs. */
#ifndef PIPELINE_EXECUTION_EVENTS_H
#define PIPELINE_EXECUTION_EVENTS_H

#include "pipeline/dispatch.h"

/* Whether events know when they completed. */
bool mm_dispatch_is_timed(const mm_dispatch *dispatch);
/* Creates the missing events of an iteration: of pieces that others wait for, that are timed, or after which memory is
 * freed. */
MM_CHECKED mm_status mm_execution_events(mm_execution *execution, mm_event **events);

#endif
