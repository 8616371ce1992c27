/* SPDX-License-Identifier: MIT */
#include "mm/planning/homes.h"

#include "mm/core/account/account_bound.h"

/* Parts of the budget that copies may hold ahead of their steps. Larger parts are faster where they fit, but a quarter
 * takes room that maps need. Chosen. */
static const int AHEAD_PARTS[] = {8, 16, 0};
enum { AHEADS = sizeof AHEAD_PARTS / sizeof *AHEAD_PARTS };
/* Hosted states that pinned memory has room for ahead of a step: its two, and those of the next. Chosen. */
enum { HOSTED_AHEAD = 4 };

typedef struct search {
    const mm_home_order *order;
    const mm_limits *limits;
    mm_home_try try;
    void *ctx;
    bool pinned_free;      /* of all trials */
    bool fits_free;        /* something fits without a limit of pinned memory */
    bool copies;           /* tensors that steps on the host use are copied even if no other leaves */
    int hosted_on_disk;    /* of all trials */
    mm_home_result result; /* of the last trial, or of the one before, if that is faster */
    int least;             /* a number that fits, if one does */
    bool is_late;          /* plans fit, but those that were searched for take as long as limits->below_ns */
} search;

static mm_status attempt(search *s, mm_home_trial trial) {
    trial.pinned_free = s->pinned_free;
    trial.hosted_on_disk = s->hosted_on_disk;
    s->result = (mm_home_result){0};
    return s->try(s->ctx, &trial, &s->result);
}

static mm_status attempt_any(search *s, int n) { return attempt(s, (mm_home_trial){.n = n, .first_fit = true}); }

static int64_t bytes_of(const search *s, int i) {
    return mm_graph_tensor(s->order->graph, s->order->tensors[i])->bytes;
}

/* A number with which no plan fits: the persistent bytes that are left exceed the budget. */
static int find_misfit(const search *s) {
    const mm_graph *graph = s->order->graph;
    int64_t over = mm_lower_bound_of(graph, NULL).persistent_bytes - s->limits->device_bytes;
    int n = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        over -= mm_graph_tensor(graph, t)->on_host ? mm_graph_tensor(graph, t)->bytes : 0;
    while (n < s->order->n && over > bytes_of(s, n)) over -= bytes_of(s, n++);
    return n;
}

/* How many have room in pinned memory. */
static int count_pinnable(const search *s) {
    int64_t left = s->pinned_free ? INT64_MAX : s->limits->pinned_bytes;
    int n = 0;
    while (n < s->order->n && left >= mm_align(bytes_of(s, n))) left -= mm_align(bytes_of(s, n++));
    return n;
}

/* Finds the most that fit into pinned memory, roughly; 0: none found. */
static mm_status find_most(search *s, int *most_out) {
    for (*most_out = count_pinnable(s); *most_out > 0; *most_out /= 2) {
        MM_TRY(attempt_any(s, *most_out));
        if (s->result.fits) return MM_OK;
        if (!s->result.lacks_pinned) break;
    }
    *most_out = 0;
    return MM_OK;
}

/* Finds the least number that fits, to within a sixteenth; `most` do. */
static mm_status find_least(search *s, int most, int *least_out) {
    int fits = most, misfit = find_misfit(s);
    while (fits - misfit > 1 + most / 16) {
        const int middle = misfit + (fits - misfit) / 2;
        MM_TRY(attempt_any(s, middle));
        *(s->result.fits ? &fits : &misfit) = middle;
    }
    *least_out = fits;
    return MM_OK;
}

/* ---------------------------------------------------------------- the fastest number, where times are known
 *
 * The fewer are away, the less is copied, until maps have too little room. A search for each number would take long, so
 * numbers are compared by plans that are found at once (first_fit), most of them in the way that made the best so far
 * (mm_limits.way): at first with all away, then with fewer as long as that is faster. */

/* The fastest trial so far. */
typedef struct leader {
    mm_home_trial trial;
    int64_t ns;
} leader;

/* Whether a plan that is faster than `below_ns` (0: no limit) is found at once in the leader's way; it then leads. */
static mm_status challenge(search *s, int n, int64_t ahead_bytes, int64_t below_ns, leader *l, bool *won_out) {
    const mm_home_trial trial = {
        .n = n, .first_fit = true, .ahead_bytes = ahead_bytes, .below_ns = below_ns, .way = l->trial.way};
    MM_TRY(attempt(s, trial));
    *won_out = s->result.fits && (below_ns == 0 || s->result.ns < below_ns);
    if (!*won_out) return MM_OK;
    *l = (leader){trial, s->result.ns};
    l->trial.way = s->result.way;
    return MM_OK;
}

/* Goes down to fewer while that is faster: in steps that double, then by halves, to within a sixteenth of the range. It
 * does not look above the best: the differences there are smaller than those that a search makes (measured). */
static mm_status go_down(search *s, int least, int most, leader *l) {
    const int close = 1 + (most - least) / 16;
    int fast = l->trial.n, slow = least, step = 2 * close;
    while (fast - slow > close) {
        const int half = slow + (fast - slow) / 2, n = slow == least && fast - step > half ? fast - step : half;
        bool won;
        MM_TRY(challenge(s, n, l->trial.ahead_bytes, l->ns, l, &won));
        *(won ? &fast : &slow) = n;
        step *= 2;
    }
    return MM_OK;
}

/* Lets copies come so early, with the leader's number: in its way, or else in any; or else with a quarter less of the
 * range. */
static mm_status fetch_earlier(search *s, int least, int64_t ahead_bytes, leader *l, bool *won_out) {
    const int n = l->trial.n, fewer = n - (n - least) / 4, way = l->trial.way;
    MM_TRY(challenge(s, n, ahead_bytes, 0, l, won_out));
    if (*won_out) return MM_OK;
    l->trial.way = 0;
    if (way > 0) MM_TRY(challenge(s, n, ahead_bytes, 0, l, won_out));
    if (*won_out || fewer == n) return MM_OK;
    l->trial.way = way;
    return challenge(s, fewer, ahead_bytes, 0, l, won_out);
}

/* Finds with how many a plan is about the fastest. *l: with `most` away, and no copies ahead. Where less is fetched
 * ahead, fewer may have to be away: that counts if it is faster by more than a share MARGIN. */
static mm_status find_leader(search *s, int least, int most, leader *l) {
    enum { MARGIN = 64 };
    for (int a = 0; s->limits->device_bytes > 0 && AHEAD_PARTS[a] > 0; a++) {
        leader other = *l;
        bool won;
        MM_TRY(fetch_earlier(s, least, s->limits->device_bytes / AHEAD_PARTS[a], &other, &won));
        if (!won) continue;
        MM_TRY(go_down(s, least, most, &other));
        if (other.ns < l->ns - l->ns / MARGIN) *l = other;
    }
    return l->trial.ahead_bytes == 0 ? go_down(s, least, most, l) : MM_OK;
}

/* Plans as the policy does with the number that leads. A search makes a plan up to a share SEARCHED faster (measured):
 * where that is not enough, there is none. */
static mm_status find_fastest(search *s, int least, int most) {
    enum { SEARCHED = 6 };
    const int64_t useful_ns = s->limits->below_ns;
    leader l = {{.n = most, .way = s->result.way}, s->result.ns};
    MM_TRY(find_leader(s, least, most, &l));
    s->is_late = useful_ns > 0 && l.ns - l.ns / SEARCHED >= useful_ns;
    if (s->is_late) return MM_OK;
    l.trial.first_fit = false;
    l.trial.way = 0;
    l.trial.below_ns = useful_ns > 0 && useful_ns <= l.ns ? useful_ns : l.ns + 1;
    MM_TRY(attempt(s, l.trial));
    s->is_late = useful_ns > 0 && !s->result.fits;
    return MM_OK;
}

/* ---------------------------------------------------------------- the search */

/* Plans with a number, with copies that come as early as fits. */
static mm_status attempt_early(search *s, int n, bool ahead) {
    for (int a = ahead && s->limits->device_bytes > 0 ? 0 : AHEADS - 1; a < AHEADS; a++) {
        const int part = AHEAD_PARTS[a];
        MM_TRY(attempt(s, (mm_home_trial){.n = n, .ahead_bytes = part ? s->limits->device_bytes / part : 0}));
        if (s->result.fits) break;
    }
    return MM_OK;
}

/* Tries with no tensor of the order in pinned memory. What is there anyway comes as early as fits. */
static mm_status attempt_none(search *s) { return attempt_early(s, 0, s->copies); }

/* Searches among plans with at least one tensor in pinned memory. Without times, the fewest are the best. */
static mm_status find(search *s, mm_resident resident) {
    const bool all = resident == MM_RESIDENT_NONE, any = s->limits->first_fit;
    int most = s->order->n;
    MM_TRY(all ? attempt_any(s, most) : find_most(s, &most));
    if (!s->result.fits || most == 0) return MM_OK;
    s->least = most;
    if (!any && s->result.ns > 0) return find_fastest(s, all ? most : find_misfit(s), most);
    if (!all) MM_TRY(find_least(s, most, &s->least));
    return any ? attempt_any(s, s->least) : attempt_early(s, s->least, true);
}

/* Tries with all of those that leave, of which the first n are on the disk. *good_out: whether it fits; or, if it would
 * not with any pinned memory, either, whether pinned memory is not lacking. */
static mm_status attempt_on_disk(search *s, int n, mm_home_trial trial, bool *good_out) {
    trial.n = s->least;
    trial.on_disk = n;
    MM_TRY(attempt(s, trial));
    *good_out = s->fits_free ? s->result.fits : !s->result.lacks_pinned && !s->result.lacks_disk;
    return MM_OK;
}

static int64_t hosted_bytes_of(const search *s, int i) {
    return mm_graph_tensor(s->order->graph, s->order->hosted[i])->bytes;
}

static int64_t hosted_disk_bytes(const search *s, int i) { return mm_memory_round(MM_MEM_DISK, hosted_bytes_of(s, i)); }

/* How many of those that leave have room on the disk, beside the hosted states there. */
static int count_on_disk(const search *s) {
    int64_t left = s->limits->disk_bytes;
    for (int i = 0; i < s->hosted_on_disk; i++) left -= hosted_disk_bytes(s, i);
    int n = 0;
    for (; n < s->least; n++) {
        left -= mm_memory_round(MM_MEM_DISK, bytes_of(s, n));
        if (left < 0) break;
    }
    return n;
}

/* Finds the least number, of those that leave, that go on to the disk, to within a sixteenth; and plans so, with copies
 * that come as early as fits. */
static mm_status find_on_disk(search *s, bool *good_out) {
    static const int eighths[] = {8, 7, 6, 4, 2}; /* fewer leave more of the disk to maps. Chosen */
    const mm_home_trial any = {.first_fit = true};
    const int most = count_on_disk(s);
    int fits = 0, misfit = 0;
    *good_out = false;
    for (size_t i = 0; !*good_out && i < sizeof eighths / sizeof *eighths; i++) {
        const int n = most * eighths[i] / 8;
        if (i > 0 && (n == fits || n == 0)) continue;
        fits = n;
        MM_TRY(attempt_on_disk(s, n, any, good_out));
    }
    if (!*good_out) return MM_OK;
    while (fits - misfit > 1 + s->least / 16) {
        const int middle = misfit + (fits - misfit) / 2;
        MM_TRY(attempt_on_disk(s, middle, any, good_out));
        *(*good_out ? &fits : &misfit) = middle;
    }
    for (int a = s->limits->device_bytes > 0 ? 0 : AHEADS - 1; a < AHEADS; a++) {
        const int64_t ahead = AHEAD_PARTS[a] ? s->limits->device_bytes / AHEAD_PARTS[a] : 0;
        const mm_home_trial trial = {.first_fit = s->limits->first_fit, .ahead_bytes = ahead};
        MM_TRY(attempt_on_disk(s, fits, trial, good_out));
        if (*good_out) break;
    }
    return *good_out ? MM_OK : attempt_on_disk(s, fits, any, good_out); /* a faster plan may pin more */
}

/* How many have to leave if there were no limit of pinned memory: all, if nothing fits even so. */
static mm_status count_away(search *s, mm_resident resident, int *away_out) {
    const mm_home_result before = s->result;
    *away_out = s->order->n;
    if (!s->fits_free || resident == MM_RESIDENT_NONE) return MM_OK;
    s->pinned_free = true;
    MM_TRY(find_least(s, s->order->n, away_out));
    s->pinned_free = false;
    s->result = before;
    return MM_OK;
}

/* Where pinned memory has no room for all that leave: as many of them as it has room for leave; or some go on to the
 * disk. */
static mm_status find_within_pinned(search *s, mm_resident resident) {
    int away;
    bool good = false;
    s->result = (mm_home_result){.lacks_pinned = true}; /* if none of them has room, nothing is tried */
    MM_TRY(find(s, resident));
    if (s->result.fits || s->is_late) return MM_OK;
    MM_TRY(count_away(s, resident, &away));
    s->least = away;
    if (s->limits->disk_bytes == 0) return MM_OK;
    MM_TRY(find_on_disk(s, &good));
    if (!good && away < s->order->n) { /* then maps need less of both */
        s->least = s->order->n;
        MM_TRY(find_on_disk(s, &good));
    }
    if (good) return MM_OK;
    s->least = away;
    s->result = (mm_home_result){.lacks_pinned = true};
    return find(s, resident);
}

/* Searches with as many hosted states on the disk as s->hosted_on_disk says. */
static mm_status search_once(search *s, mm_resident resident) {
    const bool may_stay = resident != MM_RESIDENT_NONE || s->order->n == 0;
    if (may_stay) MM_TRY(attempt_none(s));
    if (s->result.fits || resident == MM_RESIDENT_ALL || s->order->n == 0) return MM_OK;
    if (may_stay && s->limits->pinned_bytes == 0) return MM_OK; /* nothing can leave */
    const mm_home_result staying = s->result;
    s->pinned_free = true;
    MM_TRY(find(s, resident));
    s->fits_free = s->result.fits;
    s->pinned_free = false;
    if (s->is_late) return MM_OK;
    if (s->result.pinned_bytes > s->limits->pinned_bytes) MM_TRY(find_within_pinned(s, resident));
    if (s->result.fits || s->is_late) return MM_OK;
    if (s->fits_free) return attempt_any(s, s->least); /* pinned memory alone is lacking */
    if (!may_stay || (!s->result.lacks_pinned && s->result.peak_bytes < staying.peak_bytes)) return MM_OK;
    return attempt_none(s);
}

/* ---------------------------------------------------------------- hosted states on the disk */

/* The fewest hosted states that have to go to the disk, so that the other tensors which the host uses, and `ahead` of
 * the largest state, have room in pinned memory; all, if that is not enough. */
static int count_forced(const search *s, int ahead) {
    const mm_graph *graph = s->order->graph;
    int64_t over = s->limits->pinned_bytes == INT64_MAX ? -(INT64_MAX / 2) : -s->limits->pinned_bytes, largest = 0;
    int n = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->on_host) over += mm_align(mm_graph_tensor(graph, t)->bytes);
    for (int i = 0; i < s->order->n_hosted; i++)
        if (hosted_bytes_of(s, i) > largest) largest = hosted_bytes_of(s, i);
    for (over += ahead * largest; n < s->order->n_hosted && over > 0; n++) over -= mm_align(hosted_bytes_of(s, n));
    return n;
}

/* How many of them have room on the disk. */
static int count_hosted_on_disk(const search *s) {
    int n = 0;
    for (int64_t left = s->limits->disk_bytes; n < s->order->n_hosted; n++)
        if ((left -= hosted_disk_bytes(s, n)) < 0) break;
    return n;
}

static bool is_within(const mm_home_result *result) { return !result->lacks_pinned && !result->lacks_disk; }

/* Searches with so many hosted states on the disk. *good_out: the result fits; or, without a budget, nothing else is
 * lacking. */
static mm_status search_with(search *s, mm_resident resident, int hosted, bool *good_out) {
    *s = (search){.order = s->order,
                  .limits = s->limits,
                  .try = s->try,
                  .ctx = s->ctx,
                  .copies = s->copies,
                  .hosted_on_disk = hosted};
    MM_TRY(search_once(s, resident));
    *good_out = s->result.fits || (s->limits->device_bytes == 0 && is_within(&s->result));
    return MM_OK;
}

/* Finds with how many hosted states on the disk, from `least` to `most`, the result is good: with `few`, which leave
 * pinned memory for copies, or else by halves; of more than `few`, the least number to within a sixteenth. *good_out
 * false: with none; *found_out is then the number with which it lacks least on the device, if it is within both limits,
 * and less than `peak_bytes`; 0: there is none. */
static mm_status find_hosted(search *s, mm_resident resident, int least, int most, int64_t peak_bytes, int *found_out,
                             bool *good_out) {
    const int few = count_forced(s, HOSTED_AHEAD);
    int low = least, high = most, n = few < least ? least : few < most ? few : most;
    *found_out = 0;
    for (*good_out = false; low <= high; n = is_within(&s->result) ? high : low + (high - low) / 2) {
        MM_TRY(search_with(s, resident, n, good_out));
        if (*good_out) break;
        if (is_within(&s->result) && s->result.peak_bytes < peak_bytes) {
            peak_bytes = s->result.peak_bytes;
            *found_out = n;
        }
        *(s->result.lacks_disk ? &high : &low) = s->result.lacks_disk ? n - 1 : n + 1;
    }
    if (!*good_out) return MM_OK;
    for (int misfit = low - 1; n > few && n - misfit > 1 + s->order->n_hosted / 16;) {
        const int middle = misfit + (n - misfit) / 2;
        bool good;
        MM_TRY(search_with(s, resident, middle, &good));
        *(good ? &n : &misfit) = middle;
    }
    *found_out = n;
    return MM_OK;
}

/* Nothing fits with all hosted states in pinned memory: searches with some on the disk. */
static mm_status search_hosted(search *s, mm_resident resident) {
    const mm_limits *limits = s->limits;
    const bool within = is_within(&s->result);
    const int64_t peak_bytes = within ? s->result.peak_bytes : INT64_MAX;
    const int forced = count_forced(s, 0), most = count_hosted_on_disk(s), least = forced > 1 ? forced : 1;
    mm_limits quick = *limits;
    int n;
    bool found, good;
    quick.first_fit = true;
    if (least > most) return MM_OK;
    s->limits = &quick;
    mm_status status = find_hosted(s, resident, least, most, peak_bytes, &n, &found);
    s->limits = limits;
    if (status == MM_OK) status = search_with(s, resident, n, &good);
    if (status != MM_OK || !found || good) return status;
    s->limits = &quick; /* a faster plan may need more of the disk */
    status = search_with(s, resident, n, &good);
    s->limits = limits;
    return status;
}

mm_status mm_homes_search(mm_resident resident, const mm_home_order *order, bool on_host, const mm_limits *limits,
                          mm_home_try try, void *ctx) {
    search s = {.order = order, .limits = limits, .try = try, .ctx = ctx, .copies = on_host};
    bool good;
    MM_TRY(search_with(&s, resident, 0, &good));
    const bool is_all = good || s.is_late || limits->disk_bytes == 0 || order->n_hosted == 0;
    return is_all ? MM_OK : search_hosted(&s, resident);
}
