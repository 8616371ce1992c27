/* SPDX-License-Identifier: MIT */
/* What became of entries, where the plan has them, and what was refused. */
#ifndef MM_STASH_STASH_REPORT_H
#define MM_STASH_STASH_REPORT_H

#include "mm/stash/stash_order.h"

/* Sets what mm_stash_refusal_get returns: there is no room for a tensor under any policy. number: the tensor's in the
 * order. */
void mm_stash_note_refusal(mm_stash *stash, const mm_stash_desc *kind, int number, int64_t needed_bytes);
/* mm_stash_report and mm_stash_plan_segment, for the call that is inside. */
bool mm_stash_report_entry(mm_stash *stash, int i, mm_stash_line *line_out);
bool mm_stash_report_segment(mm_stash *stash, int i, mm_stash_segment *segment_out);

#endif
