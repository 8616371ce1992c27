/* SPDX-License-Identifier: MIT */
#include "tools/need/largest.h"

/* Sizes are images of a batch, or steps of a context. */
typedef struct search {
    need_case asked;
    int64_t step;             /* tokens of a step of the context; 0: the batch is searched */
    int64_t most;             /* the largest size that is tried */
    int64_t fits, fits_bytes; /* the largest size known to fit, and its plan's peak; 0: none */
    int64_t over, over_bytes; /* the smallest larger size known not to fit; 0: none */
    int64_t bytes_per_size;   /* estimate */
} search;

/* Lowers and plans the case in this size. *longer_out: the net that the need borrows; NULL: the case's own. */
static mm_status plan_size(const search *s, int64_t size, need *n, nets_net **longer_out) {
    need_case c = s->asked;
    *longer_out = NULL;
    if (s->step > 0) {
        MM_TRY(nets_net_with_tokens(c.net, size * s->step, longer_out));
        c.net = *longer_out;
    } else {
        c.batch = c.sub_batch = size;
    }
    return need_init(n, &c);
}

static mm_status probe(search *s, int64_t size) {
    const int64_t budget_bytes = s->asked.budget_bytes, pinned_bytes = s->asked.pinned.bytes;
    nets_net *longer;
    need n = {0};
    mm_status status = plan_size(s, size, &n, &longer);
    if (status != MM_OK) {
        nets_net_destroy(longer);
        return status;
    }
    status = need_limit_pinned(&n, 0, pinned_bytes);
    /* Pinned memory is too small for the smallest plan. A plan for the whole budget may keep more on the device. */
    if (status == MM_OK && !need_is_within(&s->asked, need_most(&n)->planned.plan))
        status = need_within(&n, 0, budget_bytes, pinned_bytes, 0);
    const int64_t bytes = need_most(&n)->planned.plan->peak_bytes;
    const bool fits = bytes <= budget_bytes && need_is_within(&s->asked, need_most(&n)->planned.plan);
    need_fini(&n);
    nets_net_destroy(longer);
    MM_TRY(status);
    if (s->fits > 0 && size > s->fits && bytes > s->fits_bytes)
        s->bytes_per_size = (bytes - s->fits_bytes) / (size - s->fits);
    *(fits ? &s->fits : &s->over) = size;
    *(fits ? &s->fits_bytes : &s->over_bytes) = bytes;
    return MM_OK;
}

/* The size that would just fill the budget if bytes grew linearly, clamped to [lowest, highest]. */
static int64_t straight(const search *s, int64_t lowest, int64_t highest) {
    int64_t more = s->bytes_per_size > 0 ? (s->asked.budget_bytes - s->fits_bytes) / s->bytes_per_size : 0;
    if (more > highest - s->fits) return highest;
    return s->fits + more < lowest ? lowest : s->fits + more;
}

/* Tries larger sizes, in growing strides, until one does not fit. */
static mm_status climb(search *s) {
    for (int64_t stride = 1; s->over == 0 && s->fits < s->most; stride *= 2) {
        int64_t next = s->fits + stride < s->most ? s->fits + stride : s->most;
        MM_TRY(probe(s, s->fits > 1 ? straight(s, next, s->most) : next));
    }
    return MM_OK;
}

/* Narrows the gap between a size that fits and one that does not, by linear interpolation. Every third time it
 * bisects, in case bytes do not grow linearly. */
static mm_status close_in(search *s) {
    for (int i = 1; s->over - s->fits > 1; i++)
        MM_TRY(probe(s, i % 3 == 0 ? s->fits + (s->over - s->fits) / 2 : straight(s, s->fits + 1, s->over - 1)));
    return MM_OK;
}

/* Finds the largest size from what is known so far. Then tries the size after the first that does not fit, since a
 * larger size may take fewer bytes, and goes on from it if it fits. */
static mm_status find(search *s) {
    int64_t over;
    do {
        MM_TRY(climb(s));
        if (s->over > 0) MM_TRY(close_in(s));
        over = s->over;
        if (s->fits == 0 || over == 0 || over == s->most) return MM_OK;
        int64_t over_bytes = s->over_bytes;
        s->over = 0;
        MM_TRY(probe(s, over + 1));
        if (s->over > 0) s->over = over, s->over_bytes = over_bytes;
    } while (s->over == 0);
    return MM_OK;
}

/* Tries smaller sizes than one that does not fit, by the estimated bytes of each, until one fits. */
static mm_status descend(search *s) {
    for (int64_t stride = 1; s->fits == 0 && s->over > 1; stride *= 2) {
        int64_t less = s->bytes_per_size > 0 ? (s->over_bytes - s->asked.budget_bytes) / s->bytes_per_size : 0;
        int64_t next = s->over - (less > stride ? less : stride);
        MM_TRY(probe(s, next > 1 ? next : 1));
    }
    return s->fits > 0 ? close_in(s) : MM_OK;
}

/* Finds the size with workspaces of timed algorithms. Begins at `bound`, the result with the least workspaces, because
 * hardly any larger size fits with larger workspaces. So algorithms are timed for few sizes. */
static mm_status find_below(search *s, const search *bound) {
    s->over = bound->over;
    s->over_bytes = bound->over_bytes;
    s->bytes_per_size = bound->bytes_per_size;
    if (bound->fits > 0) MM_TRY(probe(s, bound->fits));
    if (s->fits == 0) MM_TRY(descend(s));
    if (s->over > 0 && s->over == bound->over) { /* known only from `bound`: try it with timed workspaces */
        s->over = 0;
        MM_TRY(probe(s, bound->over));
    }
    return find(s);
}

static mm_status find_timed(search s, largest *found_out) {
    struct target untimed = *s.asked.target;
    mm_status status = nets_backend_open_bound(s.asked.target->backend, &untimed.backend);
    if (status == MM_ERR_UNSUPPORTED) {
        status = find(&s);
    } else if (status == MM_OK) {
        search bound = s;
        bound.asked.target = &untimed;
        status = find(&bound);
        target_fini(&untimed);
        if (status == MM_OK) status = find_below(&s, &bound);
    }
    const int64_t step = s.step > 0 ? s.step : 1;
    if (status == MM_OK) *found_out = (largest){s.fits * step, s.over * step, s.over_bytes};
    return status;
}

mm_status largest_batch_find(const need_case *c, largest *found_out) {
    return find_timed((search){.asked = *c, .most = BATCH_MAX}, found_out);
}

mm_status largest_context_find(const need_case *c, largest *found_out) {
    return find_timed((search){.asked = *c, .step = CONTEXT_STEP, .most = CONTEXT_MAX / CONTEXT_STEP}, found_out);
}
