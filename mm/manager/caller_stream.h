/* SPDX-License-Identifier: MIT */
/* Steps that compute on a stream of the caller's (mm_layer_begin_on). The dispatcher knows the compute stream only: a
 * step's waits are put there, and its end is recorded there. Here the caller's stream is ordered behind the one and
 * before the other:
 *
 *   compute stream  ... waits ... ●                     ● ... end of the step ...
 *                                  ╲ hand over         ╱ take back
 *   caller's stream                 ● the step's tasks ●
 *
 * All functions but mm_caller_stream_use do nothing if the step under way has no stream of the caller's. */
#ifndef MM_MANAGER_CALLER_STREAM_H
#define MM_MANAGER_CALLER_STREAM_H

#include "mm/device/contract/device.h"

typedef struct mm_caller_stream {
    void *handle;
    void *mine;       /* handle of the compute stream, which needs no hand-over; NULL: not asked for yet */
    bool in_use;      /* the step under way, or else the last one, computes on it */
    mm_event *passed; /* of the last hand-over, in either direction; NULL: there was none */
} mm_caller_stream;

/* Chooses the stream of the step that begins. *stream_out: the stream for the dispatcher, NULL if callers compute on
 * their own threads. MM_ERR_INVALID: a handle on such a device; MM_ERR_ORDER: the stream is being captured;
 * MM_ERR_UNSUPPORTED: the iteration is recorded for replay. */
MM_CHECKED mm_status mm_caller_stream_use(mm_manager *manager, void *handle, mm_stream **stream_out);
/* The caller's stream waits for all that is enqueued on the compute stream. */
MM_CHECKED mm_status mm_caller_stream_hand_over(mm_manager *manager);
/* The compute stream waits for all that is enqueued on the caller's. */
MM_CHECKED mm_status mm_caller_stream_take_back(mm_manager *manager);
/* Blocks until the caller's stream has run all that is enqueued, before the iteration's memory is used for others. */
void mm_caller_stream_drain(mm_manager *manager);
void mm_caller_stream_fini(mm_manager *manager);

#endif
