/* SPDX-License-Identifier: MIT */
/* Stores and loads: copies between pinned memory and the disk, as functions of the CPU on the streams of their own. */
#ifndef PIPELINE_DISK_MOVE_H
#define PIPELINE_DISK_MOVE_H

#include "mm/core/plan/program.h"
#include "pipeline/dispatch.h"

/* The access of one piece. */
typedef struct mm_disk_move mm_disk_move;

/* Prepares the accesses of a plan, and takes the bytes from the file system. MM_ERR_UNSUPPORTED: the plan has some, and
 * there is no disk; MM_ERR_IO: the disk is full; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_disk_moves_init(mm_execution *execution);
void mm_disk_moves_fini(mm_execution *execution);

/* Enqueues the access of a piece of a store or load. Where functions of streams may not block (CUDA), waits for the
 * stream's tasks and makes the access on the calling thread, whose failure is then the iteration's. */
MM_CHECKED mm_status mm_disk_move_async(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);

#endif
