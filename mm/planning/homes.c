/* SPDX-License-Identifier: MIT */
#include "mm/planning/homes.h"

#include "mm/core/account/account_bound.h"
#include "policies/policy_table.h"

/* Parts of the budget that copies may hold ahead of their steps. Larger parts are faster where they fit, but a quarter
 * takes room that maps need. Chosen. */
static const int AHEAD_PARTS[] = {8, 16, 0};
enum { AHEADS = sizeof AHEAD_PARTS / sizeof *AHEAD_PARTS };
/* Hosted states that pinned memory has room for ahead of a step: its two, and those of the next. Chosen. */
enum { HOSTED_AHEAD = 4 };

/* The fastest trials of any plan that fits, the fastest first. The first FINALISTS are searched for. */
enum { FINALISTS = 2, RANKED = 4 };
typedef struct ranking {
    mm_home_trial trials[RANKED];
    int64_t ns[RANKED]; /* from UNTIMED on: no time is known; it is UNTIMED plus the number of tensors */
    int n;
    bool timed; /* a time is known */
} ranking;

static const int64_t UNTIMED = INT64_MAX / 2;

typedef struct search {
    const mm_home_wish *wish;
    const mm_home_order *order;
    const mm_limits *limits;
    mm_home_try try;
    void *ctx;
    bool pinned_free;      /* of all trials: mm_home_trial.pinned_free, */
    bool rivals;           /* and .rival: the plan that was there before they began stays unless one is faster */
    bool fits_free;        /* something fits without a limit of pinned memory */
    int hosted_on_disk;    /* of all trials */
    mm_home_result result; /* of the last trial, or of the one before, if that is faster */
    ranking in_line;       /* of numbers that were tried with copies in line with the steps, within pinned memory */
    int least;             /* the least number that fits, if one does */
    int searched;          /* the number of finalists, among which a planner divides its work */
    bool is_late;          /* plans fit, but those that were searched for take as long as limits->below_ns */
} search;

static mm_status attempt(search *s, mm_home_trial trial) {
    trial.pinned_free = s->pinned_free;
    trial.rival |= s->rivals;
    trial.hosted_on_disk = s->hosted_on_disk;
    s->result = (mm_home_result){0};
    return s->try(s->ctx, &trial, &s->result);
}

/* Ranks the trial that was just made, if it fits. */
static void rank(const search *s, const mm_home_trial *trial, ranking *r) {
    const int64_t ns = s->result.tried_ns > 0 ? s->result.tried_ns : UNTIMED + trial->n;
    if (!s->result.tried_fits) return;
    r->timed |= ns < UNTIMED;
    int at = r->n < RANKED ? r->n++ : RANKED;
    for (; at > 0 && r->ns[at - 1] > ns; at--) {
        if (at == RANKED) continue;
        r->trials[at] = r->trials[at - 1];
        r->ns[at] = r->ns[at - 1];
    }
    if (at == RANKED) return;
    r->trials[at] = *trial;
    r->ns[at] = ns;
}

/* Whether pinned memory has room for the last trial's plan. Else a search within its limit follows, with fewer away. */
static bool has_room(const search *s) { return s->result.pinned_bytes <= s->limits->pinned_bytes; }

/* Tries with n tensors away, which are copied in line with the steps. other: if that does not fit, another number is
 * tried. */
static mm_status attempt_any(search *s, int n, bool other) {
    const mm_home_trial trial = {.n = n, .first_fit = true, .few = other};
    MM_TRY(attempt(s, trial));
    if (has_room(s)) rank(s, &trial, &s->in_line);
    return MM_OK;
}

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
        MM_TRY(attempt_any(s, *most_out, false));
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
        MM_TRY(attempt_any(s, middle, true));
        *(s->result.fits ? &fits : &misfit) = middle;
    }
    *least_out = fits;
    return MM_OK;
}

/* Ranks a number by any plan that fits, with copies that come as early as fits: from the *ahead-th part on, which it
 * moves to the one that fits. */
static mm_status rank_number(search *s, int n, int *ahead, ranking *r) {
    for (;; ++*ahead) {
        const int part = AHEAD_PARTS[*ahead];
        const int64_t ahead_bytes = part ? s->limits->device_bytes / part : 0;
        const mm_home_trial trial = {
            .n = n, .first_fit = true, .few = part > 0 || s->rivals, .ahead_bytes = ahead_bytes};
        MM_TRY(attempt(s, trial));
        rank(s, &trial, r);
        if (s->result.tried_fits || part == 0) return MM_OK;
    }
}

/* Ranks the least number that fits and some larger ones, up to half of the others. Without times the least number is
 * the best. */
static mm_status find_finalists(search *s, int least, int most, ranking *r) {
    enum { NUMBERS = 4 };
    const int numbers = most - least >= 2 * NUMBERS ? NUMBERS : 0;
    int ahead = 0; /* what does not fit with more tensors away does not fit with fewer */
    for (int i = numbers; i >= 0; i--) MM_TRY(rank_number(s, least + (most - least) * i / (2 * NUMBERS), &ahead, r));
    return MM_OK;
}

/* Tries with no tensor of the order in pinned memory. What is there anyway comes as early as fits. */
static mm_status attempt_none(search *s) {
    const bool ahead = s->wish->on_host && s->limits->device_bytes > 0;
    for (int a = ahead ? 0 : AHEADS - 1; a < AHEADS; a++) {
        const int part = AHEAD_PARTS[a];
        const mm_home_trial trial = {.few = s->limits->first_fit && part > 0,
                                     .ahead_bytes = part ? s->limits->device_bytes / part : 0};
        MM_TRY(attempt(s, trial));
        if (s->result.fits) break;
    }
    return MM_OK;
}

/* A finalist that takes longer than the fastest plan so far, by more than 1 / RIVAL, is not searched for: none has won
 * then (measured). For the other number (find_other) it is 1 / OTHER. */
enum { RIVAL = 10, OTHER = 6 };

/* Plans a finalist as the policy does, which makes it at least as fast as when it was ranked. share: RIVAL or OTHER,
 * then the faster plan of this and the one before stays; 0: it is the first that is planned so. */
static mm_status search_finalist(search *s, mm_home_trial trial, int64_t ns, int share) {
    const bool timed = ns < UNTIMED;
    const int64_t useful_ns = s->limits->below_ns, near_ns = share > 0 ? s->result.ns + s->result.ns / share : 0;
    trial.first_fit = trial.few = false;
    trial.rival = share > 0 && s->result.ns > 0;
    trial.compared = s->searched;
    trial.below_ns = timed ? ns + 1 : 0;
    if (trial.rival && near_ns < trial.below_ns) trial.below_ns = near_ns;
    if (useful_ns > 0 && useful_ns < trial.below_ns) trial.below_ns = useful_ns;
    MM_TRY(attempt(s, trial));
    s->is_late = useful_ns > 0 && timed && !s->result.fits;
    return MM_OK;
}

/* Whether a finalist has the same number, and is as fast. */
static bool is_finalist(const ranking *r, int n, int64_t ns) {
    for (int i = 0; i < r->n && i < FINALISTS; i++)
        if (r->trials[i].n == n && r->ns[i] <= ns) return true;
    return false;
}

/* Chooses a number that may be faster than the finalists where maps are tight: all away; or the fastest number with
 * copies in line, if its plan is faster than that of all away by more than 1 / OTHER. Returns the plan's time; 0:
 * there is no such number. */
static int64_t find_other(const search *s, const ranking *finalists, const ranking *all, mm_home_trial *trial_out) {
    const ranking *in_line = &s->in_line;
    int i = 0;
    while (i < in_line->n && is_finalist(finalists, in_line->trials[i].n, in_line->ns[i])) i++;
    const bool any = i < in_line->n;
    if (all->n > 0 && (!any || all->ns[0] - all->ns[0] / OTHER <= in_line->ns[i])) {
        *trial_out = all->trials[0];
        return all->ns[0];
    }
    if (any) *trial_out = in_line->trials[i];
    return any ? in_line->ns[i] : 0;
}

/* Whether any plan with all away is so much faster than the fastest finalist that a search for that is in vain. */
static bool is_far_ahead(const ranking *all, const ranking *finalists) {
    enum { FAR = 3 }; /* chosen: searches have made the first finalist 2.8 times faster (measured) */
    return all->n > 0 && finalists->n > 0 && all->ns[0] < finalists->ns[0] / FAR;
}

/* Plans the finalists; the fastest plan stays. The other number comes last, if any plan of it is as fast as the
 * fastest, or nearly. */
static mm_status find_fastest(search *s, int least, int most) {
    ranking r = {.n = 0}, all = {.n = 0};
    mm_home_trial other;
    int ahead = 0;
    MM_TRY(find_finalists(s, least, most, &r));
    if (r.timed && most > least) MM_TRY(rank_number(s, most, &ahead, &all));
    if (!has_room(s)) all.n = 0;
    const bool alone = is_far_ahead(&all, &r);
    s->searched = r.timed && r.n > 1 && !alone ? FINALISTS : 1;
    if (alone) return search_finalist(s, all.trials[0], all.ns[0], 0);
    for (int i = 0; i < r.n && i < (r.timed ? FINALISTS : 1); i++) /* without times the first is the best */
        MM_TRY(search_finalist(s, r.trials[i], r.ns[i], i > 0 ? RIVAL : 0));
    const int64_t other_ns = r.timed ? find_other(s, &r, &all, &other) : 0;
    const int64_t useful_ns = s->limits->below_ns, near_ns = s->result.fits ? s->result.ns : useful_ns;
    const bool near = other_ns > 0 && (near_ns == 0 || other_ns < near_ns + near_ns / OTHER);
    return near ? search_finalist(s, other, other_ns, OTHER) : MM_OK;
}

/* Searches among plans with at least one tensor in pinned memory. */
static mm_status find(search *s) {
    int least = s->order->n, most = s->order->n;
    s->in_line = (ranking){.n = 0};
    if (s->wish->resident == MM_RESIDENT_NONE) {
        MM_TRY(attempt_any(s, most, false));
        if (!s->result.fits) return MM_OK;
    } else {
        MM_TRY(find_most(s, &most));
        if (most == 0) return MM_OK;
        MM_TRY(find_least(s, most, &least));
    }
    s->least = least;
    return s->limits->first_fit ? attempt_any(s, least, false) : find_fastest(s, least, most);
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
        const bool first_fit = s->limits->first_fit;
        const mm_home_trial trial = {.first_fit = first_fit, .few = first_fit && ahead > 0, .ahead_bytes = ahead};
        MM_TRY(attempt_on_disk(s, fits, trial, good_out));
        if (*good_out) break;
    }
    return *good_out ? MM_OK : attempt_on_disk(s, fits, any, good_out); /* a faster plan may pin more */
}

/* Where pinned memory has no room for all that leave: as many of them as it has room for leave; or some go on to the
 * disk. */
static mm_status find_within_pinned(search *s) {
    const int away = s->fits_free ? s->least : s->order->n;
    bool good = false;
    s->result = (mm_home_result){.lacks_pinned = true}; /* if none of them has room, nothing is tried */
    MM_TRY(find(s));
    if (s->result.fits || s->is_late || s->limits->disk_bytes == 0) return MM_OK;
    const int least = s->least;
    s->least = away;
    MM_TRY(find_on_disk(s, &good));
    if (!good && away < s->order->n) { /* then maps need less of both */
        s->least = s->order->n;
        MM_TRY(find_on_disk(s, &good));
    }
    if (good) return MM_OK;
    s->least = least;
    s->result = (mm_home_result){.lacks_pinned = true};
    return find(s);
}

/* Whether plans with tensors away may be faster than the last one, which fits with all at home: it takes longer than
 * its steps alone by a quarter or more, as it does where the budget is small; and the tensors are so large that their
 * room matters. */
static bool may_be_faster(const search *s) {
    enum { SLOW = 4, PART = 16 }; /* both are chosen; PART: of the budget */
    const mm_home_result *r = &s->result;
    const mm_limits *limits = s->limits;
    const bool asked = s->wish->compares && !limits->first_fit && !limits->few && limits->below_ns == 0;
    if (!asked || !r->fits || r->steps_ns == 0 || r->ns < r->steps_ns + r->steps_ns / SLOW) return false;
    int64_t bytes = 0;
    for (int i = 0; i < s->order->n; i++) bytes += bytes_of(s, i);
    return bytes >= limits->device_bytes / PART;
}

/* Ranks numbers below `most`, which was ranked, with copies from the ahead-th part on. With fewer away there are fewer
 * copies, until maps have too little room: finds that number by halves, to within a sixteenth. */
static mm_status rank_by_halves(search *s, int most, int ahead, ranking *r) {
    int good = most, poor = 0;
    while (good - poor > 1 + most / 16) {
        const int middle = poor + (good - poor) / 2;
        int tried = ahead; /* what does not fit with more tensors away does not fit with fewer */
        MM_TRY(rank_number(s, middle, &tried, r));
        const bool better = r->trials[0].n == middle;
        *(better ? &good : &poor) = middle;
        if (better) ahead = tried;
    }
    return MM_OK;
}

/* Looks for a plan with some tensors away that is faster than the last one, which else stays. */
static mm_status find_faster(search *s) {
    enum { FLAT = 8 }; /* chosen: where numbers differ so little, a search gains most with the most room for maps */
    ranking all = {.n = 0}, r; /* all: of as many as can leave */
    int most = count_pinnable(s), ahead = 0;
    if (most > 0) MM_TRY(rank_number(s, most, &ahead, &all));
    /* where pinned memory is limited, maps may need a part of it */
    for (; most > 1 && !all.timed && !s->pinned_free; ahead = 0) MM_TRY(rank_number(s, most /= 2, &ahead, &all));
    if (!all.timed) return MM_OK;
    r = all;
    MM_TRY(rank_by_halves(s, most, ahead, &r));
    const ranking *best = all.ns[0] < r.ns[0] + r.ns[0] / FLAT ? &all : &r;
    return search_finalist(s, best->trials[0], best->ns[0], OTHER);
}

/* Searches with all at home; where that is slow, also with some away. */
static mm_status find_staying(search *s) {
    MM_TRY(attempt_none(s));
    if (!may_be_faster(s)) return MM_OK;
    s->rivals = true;
    s->searched = FINALISTS;
    mm_status status = find_faster(s);
    s->rivals = s->is_late = false;
    return status;
}

/* Searches with as many hosted states on the disk as s->hosted_on_disk says. */
static mm_status search_once(search *s) {
    const mm_resident resident = s->wish->resident;
    const bool may_stay = resident != MM_RESIDENT_NONE || s->order->n == 0;
    s->pinned_free = s->wish->compares && s->limits->pinned_bytes > 0;
    if (may_stay) MM_TRY(find_staying(s));
    s->pinned_free = false;
    if (may_stay && !has_room(s)) MM_TRY(find_staying(s));
    if (s->result.fits || resident == MM_RESIDENT_ALL || s->order->n == 0) return MM_OK;
    if (may_stay && s->limits->pinned_bytes == 0) return MM_OK; /* nothing can leave */
    const mm_home_result staying = s->result;
    s->pinned_free = true;
    MM_TRY(find(s));
    s->fits_free = s->result.fits;
    s->pinned_free = false;
    if (s->is_late) return MM_OK;
    if (s->result.pinned_bytes > s->limits->pinned_bytes) MM_TRY(find_within_pinned(s));
    if (s->result.fits || s->is_late) return MM_OK;
    if (s->fits_free) return attempt_any(s, s->least, false); /* pinned memory alone is lacking */
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
static mm_status search_with(search *s, int hosted, bool *good_out) {
    *s = (search){.wish = s->wish,
                  .order = s->order,
                  .limits = s->limits,
                  .try = s->try,
                  .ctx = s->ctx,
                  .hosted_on_disk = hosted};
    MM_TRY(search_once(s));
    *good_out = s->result.fits || (s->limits->device_bytes == 0 && is_within(&s->result));
    return MM_OK;
}

/* Finds with how many hosted states on the disk, from `least` to `most`, the result is good: with `few`, which leave
 * pinned memory for copies, or else by halves; of more than `few`, the least number to within a sixteenth. *good_out
 * false: with none; *found_out is then the number with which it lacks least on the device, if it is within both limits,
 * and less than `peak_bytes`; 0: there is none. */
static mm_status find_hosted(search *s, int least, int most, int64_t peak_bytes, int *found_out, bool *good_out) {
    const int few = count_forced(s, HOSTED_AHEAD);
    int low = least, high = most, n = few < least ? least : few < most ? few : most;
    *found_out = 0;
    for (*good_out = false; low <= high; n = is_within(&s->result) ? high : low + (high - low) / 2) {
        MM_TRY(search_with(s, n, good_out));
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
        MM_TRY(search_with(s, middle, &good));
        *(good ? &n : &misfit) = middle;
    }
    *found_out = n;
    return MM_OK;
}

/* Nothing fits with all hosted states in pinned memory: searches with some on the disk. */
static mm_status search_hosted(search *s) {
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
    mm_status status = find_hosted(s, least, most, peak_bytes, &n, &found);
    s->limits = limits;
    if (status == MM_OK) status = search_with(s, n, &good);
    if (status != MM_OK || !found || good) return status;
    s->limits = &quick; /* a faster plan may need more of the disk */
    status = search_with(s, n, &good);
    s->limits = limits;
    return status;
}

bool mm_home_trains(const mm_graph *graph) {
    bool trains = false;
    for (int s = 0; s < mm_graph_steps(graph); s++) trains |= mm_graph_step(graph, s)->phase == MM_BACKWARD;
    return trains;
}

mm_home_wish mm_home_wish_of(const mm_policy *policy, bool on_host, bool one_of_several) {
    const bool searches = policy->ops == &mm_policy_auto && policy->config.own[MM_AUTO_EFFORT] > 0;
    const bool compares = searches && policy->config.resident == MM_RESIDENT_NEEDED && !one_of_several;
    return (mm_home_wish){policy->config.resident, compares, on_host};
}

mm_status mm_homes_search(const mm_home_wish *wish, const mm_home_order *order, const mm_limits *limits,
                          mm_home_try try, void *ctx) {
    search s = {.wish = wish, .order = order, .limits = limits, .try = try, .ctx = ctx};
    bool good;
    MM_TRY(search_with(&s, 0, &good));
    const bool is_all = good || s.is_late || limits->disk_bytes == 0 || order->n_hosted == 0;
    return is_all ? MM_OK : search_hosted(&s);
}
