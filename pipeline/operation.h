/* SPDX-License-Identifier: MIT */
/* Operations: codecs and copies. */
#ifndef PIPELINE_OPERATION_H
#define PIPELINE_OPERATION_H

#include "mm/core/plan/program.h"
#include "pipeline/dispatch.h"

/* Enqueues a piece of an operation. */
MM_CHECKED mm_status mm_operation_enqueue(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);

#endif
