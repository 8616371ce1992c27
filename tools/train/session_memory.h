/* SPDX-License-Identifier: MIT */
/* Finds by planning what a session's policies need, and checks that there is so much memory. session_init and its parts
 * call these functions. */
#ifndef TOOLS_TRAIN_SESSION_MEMORY_H
#define TOOLS_TRAIN_SESSION_MEMORY_H

#include "tools/train/session.h"

/* MM_ERR_ORDER if the session is stopped. Called between parts that take long. */
MM_CHECKED mm_status session_go_on(const session *s);

/* Finds the limit of pinned memory, and the bytes for staging batches. */
void session_memory_begin(session *s);

/* Plans one more batch, and raises each policy's minimum to what it needs. sub_batch: images computed at a time; equals
 * batch without sub-batches. *base_bytes: bytes of all graphs' persistent tensors; 0: unknown, set to this batch's. */
MM_CHECKED mm_status session_memory_raise(session *s, int64_t batch, int64_t sub_batch, nets_mode mode,
                                          int64_t *base_bytes);

/* Finds the pinned memory that all policies need within the budget. The manager will reserve exactly that.
 * MM_ERR_INFEASIBLE: it exceeds the limit. */
MM_CHECKED mm_status session_memory_pin(session *s);

/* Gives the plans that were made for the budget to the manager, so that it need not make them again. */
MM_CHECKED mm_status session_memory_offer(session *s);

/* Frees the plans. */
void session_memory_end(session *s);

/* Stages batches if the device needs it and all policies that the run switches to still fit. */
MM_CHECKED mm_status session_memory_stage(session *s);

/* If the user set no budget, sets it to the first policy's minimum, plus the bytes for staging if the device has enough
 * free memory. */
MM_CHECKED mm_status session_memory_default(session *s);

/* Checks that the first policy fits the budget, and that the budget fits the device. MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status session_memory_check(const session *s);

/* Checks that the policies that the run switches to fit the budget, or without one, the first policy's minimum. */
MM_CHECKED mm_status session_memory_check_switches(session *s);

#endif
