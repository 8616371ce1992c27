/* SPDX-License-Identifier: MIT */
/* Recording: a step that is entered becomes a step of the graph. After a failure the recording is of no use. */
#ifndef MM_LOOP_LOOP_RECORD_H
#define MM_LOOP_LOOP_RECORD_H

#include "mm/loop/loop.h"

/* Errors as mm_loop_enter says for recordings. */
MM_CHECKED mm_status mm_loop_record_step(mm_loop_recording *recording, const mm_loop_step *step, const mm_slot *slots,
                                         size_t n_slots);

#endif
