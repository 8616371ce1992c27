/* SPDX-License-Identifier: MIT */
#include "tools/need/max_batch.h"

typedef struct search {
    need_case asked;
    int64_t fits, fits_bytes; /* the largest batch known to fit, and its plan's peak; 0: none */
    int64_t over, over_bytes; /* the smallest larger batch known not to fit; 0: none */
    int64_t bytes_per_image;  /* estimate */
} search;

static mm_status probe(search *s, int64_t batch) {
    const int64_t budget_bytes = s->asked.budget_bytes, pinned_bytes = s->asked.pinned.bytes;
    need n;
    s->asked.batch = s->asked.sub_batch = batch;
    MM_TRY(need_init(&n, &s->asked));
    mm_status status = need_limit_pinned(&n, 0, pinned_bytes);
    /* Pinned memory is too small for the smallest plan. A plan for the whole budget may keep more on the device. */
    if (status == MM_OK && need_most(&n)->planned.plan->pinned_bytes > pinned_bytes)
        status = need_within(&n, 0, budget_bytes, pinned_bytes, 0);
    int64_t bytes = need_most(&n)->planned.plan->peak_bytes, pinned = need_most(&n)->planned.plan->pinned_bytes;
    need_fini(&n);
    MM_TRY(status);
    bool fits = bytes <= budget_bytes && pinned <= pinned_bytes;
    if (s->fits > 0 && batch > s->fits && bytes > s->fits_bytes)
        s->bytes_per_image = (bytes - s->fits_bytes) / (batch - s->fits);
    *(fits ? &s->fits : &s->over) = batch;
    *(fits ? &s->fits_bytes : &s->over_bytes) = bytes;
    return MM_OK;
}

/* The batch that would just fill the budget if bytes grew linearly, clamped to [lowest, highest]. */
static int64_t straight(const search *s, int64_t lowest, int64_t highest) {
    int64_t more = s->bytes_per_image > 0 ? (s->asked.budget_bytes - s->fits_bytes) / s->bytes_per_image : 0;
    if (more > highest - s->fits) return highest;
    return s->fits + more < lowest ? lowest : s->fits + more;
}

/* Tries larger batches, in growing strides, until one does not fit. */
static mm_status climb(search *s) {
    for (int64_t stride = 1; s->over == 0 && s->fits < BATCH_MAX; stride *= 2) {
        int64_t next = s->fits + stride < BATCH_MAX ? s->fits + stride : BATCH_MAX;
        MM_TRY(probe(s, s->fits > 1 ? straight(s, next, BATCH_MAX) : next));
    }
    return MM_OK;
}

/* Narrows the gap between a batch that fits and one that does not, by linear interpolation. Every third time it
 * bisects, in case bytes do not grow linearly. */
static mm_status close_in(search *s) {
    for (int i = 1; s->over - s->fits > 1; i++)
        MM_TRY(probe(s, i % 3 == 0 ? s->fits + (s->over - s->fits) / 2 : straight(s, s->fits + 1, s->over - 1)));
    return MM_OK;
}

/* Finds the largest batch from what is known so far. Then tries the batch after the first that does not fit, since a
 * larger batch may take fewer bytes, and goes on from it if it fits. */
static mm_status find(search *s) {
    int64_t over;
    do {
        MM_TRY(climb(s));
        if (s->over > 0) MM_TRY(close_in(s));
        over = s->over;
        if (s->fits == 0 || over == 0 || over == BATCH_MAX) return MM_OK;
        int64_t over_bytes = s->over_bytes;
        s->over = 0;
        MM_TRY(probe(s, over + 1));
        if (s->over > 0) s->over = over, s->over_bytes = over_bytes;
    } while (s->over == 0);
    return MM_OK;
}

/* Tries smaller batches than one that does not fit, by the estimated bytes per image, until one fits. */
static mm_status descend(search *s) {
    for (int64_t stride = 1; s->fits == 0 && s->over > 1; stride *= 2) {
        int64_t less = s->bytes_per_image > 0 ? (s->over_bytes - s->asked.budget_bytes) / s->bytes_per_image : 0;
        int64_t next = s->over - (less > stride ? less : stride);
        MM_TRY(probe(s, next > 1 ? next : 1));
    }
    return s->fits > 0 ? close_in(s) : MM_OK;
}

/* Finds the batch with workspaces of timed algorithms. Begins at `bound`, the result with the least workspaces, because
 * hardly any larger batch fits with larger workspaces. So algorithms are timed for few batches. */
static mm_status find_below(search *s, const search *bound) {
    s->over = bound->over;
    s->over_bytes = bound->over_bytes;
    s->bytes_per_image = bound->bytes_per_image;
    if (bound->fits > 0) MM_TRY(probe(s, bound->fits));
    if (s->fits == 0) MM_TRY(descend(s));
    if (s->over > 0 && s->over == bound->over) { /* known only from `bound`: try it with timed workspaces */
        s->over = 0;
        MM_TRY(probe(s, bound->over));
    }
    return find(s);
}

mm_status max_batch_find(const need_case *c, max_batch *found_out) {
    search s = {.asked = *c};
    struct target untimed = *c->target;
    mm_status status = nets_backend_open_bound(c->target->backend, &untimed.backend);
    if (status == MM_ERR_UNSUPPORTED) {
        status = find(&s);
    } else if (status == MM_OK) {
        search bound = s;
        bound.asked.target = &untimed;
        status = find(&bound);
        target_fini(&untimed);
        if (status == MM_OK) status = find_below(&s, &bound);
    }
    if (status == MM_OK) *found_out = (max_batch){s.fits, s.over, s.over_bytes};
    return status;
}
