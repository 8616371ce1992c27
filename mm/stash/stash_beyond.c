/* SPDX-License-Identifier: MIT */
#include "mm/stash/stash_beyond.h"

#include <stdio.h>

#include "mm/core/size.h"
#include "mm/stash/stash.h"
#include "mm/stash/stash_host.h"
#include "mm/stash/stash_need.h"
#include "mm/stash/stash_sync.h"
#include "mm/stash/stash_unplanned.h"

bool mm_stash_refuses_later(const mm_stash *s) { return s->options.modes & MM_STASH_REFUSE_LATER; }

/* ---------------------------------------------------------------- memory */

void mm_stash_beyond_note(mm_stash *s, int64_t more, int64_t lacking) {
    mm_stash_beyond *b = &s->beyond;
    b->bytes += more;
    const int64_t most = b->bytes > lacking ? b->bytes : lacking;
    if (most > b->most_bytes) b->most_bytes = most;
    if (s->refused.needed_bytes > b->refused.needed_bytes) b->refused = s->refused;
}

mm_status mm_stash_beyond_put(mm_stash *s, mm_stash_slot *e, const void *data) {
    MM_TRY(mm_stash_host_take(s, e, &e->host));
    mm_status status = mm_stash_host_write(s, e, &e->host, data);
    if (status != MM_OK) {
        mm_stash_unplanned_free(s, e);
        return status;
    }
    s->stats.moved_bytes += e->kind.bytes;
    s->stats.out_bytes += e->kind.bytes;
    mm_stash_beyond_note(s, 0, mm_stash_piece(&e->kind));
    return MM_OK;
}

mm_status mm_stash_beyond_bring(mm_stash *s, mm_stash_slot *e) {
    const int64_t bytes = mm_stash_piece(&e->kind);
    mm_failure refusal;
    mm_failure_save(&refusal, MM_ERR_INFEASIBLE);
    if (mm_device_reserve(s->device, MM_MEMORY_DEVICE, bytes, &e->beyond) != MM_OK) {
        e->beyond = NULL;
        return mm_failure_restore(&refusal);
    }
    mm_status status = mm_stash_host_read(s, e, e->beyond);
    mm_stash_beyond_note(s, bytes, 0);
    if (status != MM_OK) {
        mm_stash_beyond_leave(s, e);
        return status;
    }
    s->stats.in_bytes += e->kind.bytes;
    return MM_OK;
}

void mm_stash_beyond_leave(mm_stash *s, mm_stash_slot *e) {
    if (!e->beyond) return;
    mm_status drained = mm_stash_sync_drain(s); /* its readers have run, too: releases are in the stream's order */
    if (drained != MM_OK) mm_failure_save(&s->owed, drained);
    mm_device_release(s->device, MM_MEMORY_DEVICE, e->beyond, mm_stash_piece(&e->kind));
    e->beyond = NULL;
    s->beyond.bytes -= mm_stash_piece(&e->kind);
}

/* ---------------------------------------------------------------- the refusal */

void mm_stash_beyond_end(mm_stash *s) {
    mm_stash_beyond *b = &s->beyond;
    int64_t needed = 0;
    if (b->most_bytes == 0) return;
    mm_status status = MM_ERR_UNSUPPORTED; /* what callers keep, or the order is not known: what was noted is all */
    if (!s->learner.terms.keep_always && !s->recorded.lost)
        status = mm_stash_need(&s->recorded, s->options.device_bytes, &needed);
    /* Otherwise entries of earlier iterations took the room. */
    if (status == MM_OK && needed > s->options.device_bytes) b->refused.needed_bytes = needed;
    b->ended = true;
}

mm_status mm_stash_beyond_refuse(mm_stash *s) {
    mm_stash_beyond *b = &s->beyond;
    if (!b->ended) return MM_OK;
    mm_learner_wait(&s->learner);
    const mm_learned_order *o = b->order;
    const int64_t most = b->most_bytes;
    if (o && mm_learned_fits_not(o)) {
        if (o->refused.needed_bytes > b->refused.needed_bytes) b->refused = o->refused;
        snprintf(b->refused.policy, sizeof b->refused.policy, "%s", o->refused.policy);
    }
    s->refused = b->refused;
    *b = (mm_stash_beyond){.bytes = b->bytes};
    s->learner.last = NULL; /* as in mm_stash_planned_try: it is not refused a second time */
    return mm_fail(MM_ERR_INFEASIBLE,
                   "no room for %s of %s in the budget of %s: up to %s lay outside of it; %s would be enough for this "
                   "iteration",
                   MM_SIZE_TEXT(mm_align(s->refused.tensor_bytes)),
                   s->refused.producer[0] ? s->refused.producer : "an operation", MM_SIZE_TEXT(s->options.device_bytes),
                   MM_SIZE_TEXT(most), MM_SIZE_TEXT(s->refused.needed_bytes));
}
