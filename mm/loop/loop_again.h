/* SPDX-License-Identifier: MIT */
#ifndef MM_LOOP_LOOP_AGAIN_H
#define MM_LOOP_LOOP_AGAIN_H

#include "mm/mm.h"

/* The mm_recompute_fn of recordings (ctx): fills the pointers that the step filled when it was last entered, calls its
 * function, and sets them back. */
mm_status mm_loop_again(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

#endif
