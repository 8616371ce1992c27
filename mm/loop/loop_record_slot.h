/* SPDX-License-Identifier: MIT */
#ifndef MM_LOOP_LOOP_RECORD_SLOT_H
#define MM_LOOP_LOOP_RECORD_SLOT_H

#include "mm/loop/loop.h"

/* Makes "NAME.ROW", which the recording owns. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_loop_name(mm_loop_recording *recording, const char *name, int32_t row, char **text_out);

/* Records a step's slot i in made->slots[i]. Adds its tensor to the graph, if it is named first; or its bytes to the
 * step's workspace, if it is scratch. */
MM_CHECKED mm_status mm_loop_record_slot(mm_loop_recording *recording, const mm_loop_step *step, const mm_slot *slot,
                                         int i, mm_loop_made *made, int64_t *workspace_bytes);

#endif
