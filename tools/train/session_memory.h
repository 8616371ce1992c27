/* SPDX-License-Identifier: MIT */
/* What a session's policies need, found by planning, and whether there is that much memory. Parts of session_init,
 * called in this order. */
#ifndef TOOLS_TRAIN_SESSION_MEMORY_H
#define TOOLS_TRAIN_SESSION_MEMORY_H

#include "tools/train/session.h"

/* MM_ERR_ORDER if the session is stopped. To be called between parts that take long. */
MM_CHECKED mm_status session_go_on(const session *s);

/* Finds the limit of pinned memory, and the bytes for staging batches. */
void session_memory_begin(session *s);

/* Raises the minimum of each policy to that of the plans of one more batch; sub_batch: the batch, for a whole one.
 * *base_bytes: bytes of the persistent tensors of all graphs; 0: not known, and set to those of this one's. */
MM_CHECKED mm_status session_memory_raise(session *s, int64_t batch, int64_t sub_batch, nets_mode mode,
                                          int64_t *base_bytes);

/* Finds the pinned memory that all policies need in the budget; the manager gets just that. MM_ERR_INFEASIBLE: there is
 * not so much. */
MM_CHECKED mm_status session_memory_pin(session *s);

/* Offers the plans that were made for the budget to the manager, so that they are not made again. */
MM_CHECKED mm_status session_memory_offer(session *s);

/* Frees the plans. */
void session_memory_end(session *s);

/* Decides whether batches are staged: if the device can, and if all policies that will be switched to still fit. */
MM_CHECKED mm_status session_memory_stage(session *s);

/* If the user set no budget, sets it to the first policy's minimum, plus the bytes for staging if the device has plenty
 * free. */
MM_CHECKED mm_status session_memory_default(session *s);

/* Checks that the first policy fits the budget, and that the budget fits the device. MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status session_memory_check(const session *s);

/* Checks that the policies that will be switched to fit the budget; if there is none, the first policy's minimum. */
MM_CHECKED mm_status session_memory_check_switches(session *s);

#endif
