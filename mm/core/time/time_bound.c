/* SPDX-License-Identifier: MIT */
#include "mm/core/time/time_bound.h"

#include <math.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/time/time_bound_prices.h"

/* The multipliers that the search varies: weights (W_) and prices (P_) of the proof. The computation's weight is, in X,
 * 1 less the first four; in Y, 1 less the next four. */
enum {
    W_OUT,
    W_ENCODE,
    W_IN_BEFORE,
    W_LINK_BEFORE,
    W_IN,
    W_DECODE,
    W_OUT_AFTER,
    W_LINK_AFTER,
    P_DEVICE,
    P_PINNED,
    MULTIPLIERS
};
enum { SIDES = 2, SIDE_WEIGHTS = 4 };
static const int sides[SIDES][SIDE_WEIGHTS] = {{W_OUT, W_ENCODE, W_IN_BEFORE, W_LINK_BEFORE},
                                               {W_IN, W_DECODE, W_OUT_AFTER, W_LINK_AFTER}};

typedef struct search {
    mm_bound_model model;
    double room, pinned; /* bytes on the device beside model.fixed_bytes; bytes of pinned memory, HUGE_VAL: no limit */
    double both;         /* ns of copies, as they take alone, that both directions do in a ns */
    double share[MM_BOUND_RESOURCES]; /* share of each ns that the computation loses while a copy or a codec runs */
    double scale[MULTIPLIERS];        /* unit of each multiplier in the search's coordinates */
    int varied[MULTIPLIERS], n;       /* indices of the n multipliers that the search varies; all others are 0 */
    double best, best_at[MULTIPLIERS];
    double enough; /* a bound that need not be improved */
} search;

/* ---------------------------------------------------------------- the bound for given multipliers */

/* The sum of a side's weights. */
static double sum_of(const double *m, int side) {
    double sum = 0;
    for (int i = 0; i < SIDE_WEIGHTS; i++) sum += m[sides[side][i]];
    return sum;
}

/* The prices for given multipliers. The price of a ns on a side stream is the stream's weight, plus the weight of the
 * computation times the share of a ns that it loses meanwhile; for copies, plus the part that they take of the weight
 * of both directions together. */
static mm_bound_amounts prices_of(const search *s, const double *m) {
    const double before = 1 - sum_of(m, 0), after = 1 - sum_of(m, 1);
    const double both_before = m[W_LINK_BEFORE] / s->both, both_after = m[W_LINK_AFTER] / s->both;
    return (mm_bound_amounts){.of = {[MM_BOUND_OUT] = m[W_OUT] + both_before + before * s->share[MM_BOUND_OUT],
                                     [MM_BOUND_ENCODE] = m[W_ENCODE] + before * s->share[MM_BOUND_ENCODE],
                                     [MM_BOUND_AGAIN] = after,
                                     [MM_BOUND_IN] = m[W_IN] + both_after + after * s->share[MM_BOUND_IN],
                                     [MM_BOUND_DECODE] = m[W_DECODE] + after * s->share[MM_BOUND_DECODE],
                                     [MM_BOUND_IN_BEFORE] = m[W_IN_BEFORE] + both_before,
                                     [MM_BOUND_OUT_AFTER] = m[W_OUT_AFTER] + both_after,
                                     [MM_BOUND_DEVICE] = m[P_DEVICE],
                                     [MM_BOUND_PINNED] = m[P_PINNED]}};
}

/* The bound for given multipliers. slope: its derivatives by the multipliers, where the choice of how each tensor is
 * kept stays the same. */
static double evaluate(search *s, const double *m, double *slope) {
    const mm_bound_amounts prices = prices_of(s, m), sum = mm_bound_cheapest(&s->model, &prices);
    const double *of = sum.of;
    const double before = s->model.before_ns + s->share[MM_BOUND_OUT] * of[MM_BOUND_OUT] +
                          s->share[MM_BOUND_ENCODE] * of[MM_BOUND_ENCODE];
    const double after = s->model.after_ns + of[MM_BOUND_AGAIN] + s->share[MM_BOUND_IN] * of[MM_BOUND_IN] +
                         s->share[MM_BOUND_DECODE] * of[MM_BOUND_DECODE];
    slope[W_OUT] = of[MM_BOUND_OUT] - before;
    slope[W_ENCODE] = of[MM_BOUND_ENCODE] - before;
    slope[W_IN] = of[MM_BOUND_IN] - after;
    slope[W_DECODE] = of[MM_BOUND_DECODE] - after;
    slope[W_IN_BEFORE] = of[MM_BOUND_IN_BEFORE] - before;
    slope[W_OUT_AFTER] = of[MM_BOUND_OUT_AFTER] - after;
    slope[W_LINK_BEFORE] = (of[MM_BOUND_OUT] + of[MM_BOUND_IN_BEFORE]) / s->both - before;
    slope[W_LINK_AFTER] = (of[MM_BOUND_IN] + of[MM_BOUND_OUT_AFTER]) / s->both - after;
    slope[P_DEVICE] = of[MM_BOUND_DEVICE] - s->room;
    slope[P_PINNED] = s->pinned < HUGE_VAL ? of[MM_BOUND_PINNED] - s->pinned : 0;
    double bound = before + after;
    for (int i = 0; i < MULTIPLIERS; i++)
        if (m[i] != 0) bound += m[i] * slope[i];
    if (bound > s->best) {
        s->best = bound;
        memcpy(s->best_at, m, MULTIPLIERS * sizeof *m);
    }
    return bound;
}

/* ---------------------------------------------------------------- the search */

static bool is_varied(const search *s, int multiplier) {
    for (int i = 0; i < s->n; i++)
        if (s->varied[i] == multiplier) return true;
    return false;
}

/* Whether a multiplier, or a sum of weights, is out of range; `direction` then points out of the range. */
static bool is_outside(const search *s, const double *m, double *direction) {
    memset(direction, 0, MULTIPLIERS * sizeof *direction);
    for (int i = 0; i < s->n; i++)
        if (m[s->varied[i]] < 0) {
            direction[s->varied[i]] = -1;
            return true;
        }
    for (int i = 0; i < SIDES; i++)
        if (sum_of(m, i) > 1) {
            for (int k = 0; k < SIDE_WEIGHTS; k++)
                if (is_varied(s, sides[i][k])) direction[sides[i][k]] = 1;
            return true;
        }
    return false;
}

/* What is gained beyond this share of the bound is not searched for. Chosen: a tenth of what predicted times are shown
 * to. */
static const double PRECISION = 1e-5;

static double worth_finding(const search *s) { return s->best * (1 + PRECISION); }

/* The first ellipsoid's half axis along a multiplier, squared, in the multiplier's unit. Weights are at most 1, but
 * prices may be far above their units: with a half axis as short as that of the weights, the best prices lay outside
 * where pinned memory was short. FAR is chosen; a larger one costs a few rounds more. */
static double first_reach(const search *s, int i) {
    enum { FAR = 1000 };
    return (double)s->n * (s->varied[i] == P_DEVICE || s->varied[i] == P_PINNED ? FAR : 1);
}

/* The ellipsoid method (Nemirovski and Yudin; Shor), with deep cuts: a cut leaves the part in which the bound can be
 * larger than the best so far, and the smallest ellipsoid around that part is the next. The bound is concave, so within
 * the ellipsoid it exceeds that at the centre by at most `root`. n is at least 2. */
static void search_ellipsoid(search *s, int rounds) {
    const int n = s->n;
    double centre[MULTIPLIERS], shape[MULTIPLIERS][MULTIPLIERS] = {{0}};
    for (int i = 0; i < n; i++) {
        centre[i] = s->best_at[s->varied[i]] / s->scale[s->varied[i]];
        shape[i][i] = first_reach(s, i);
    }
    for (int round = 0; round < rounds && s->best < s->enough; round++) {
        double m[MULTIPLIERS] = {0}, uphill[MULTIPLIERS], reach[MULTIPLIERS], length = 0, lacks = 0;
        for (int i = 0; i < n; i++) m[s->varied[i]] = centre[i] * s->scale[s->varied[i]];
        if (is_outside(s, m, uphill)) {
            for (int i = 0; i < MULTIPLIERS; i++) uphill[i] = -uphill[i];
        } else {
            const double bound = evaluate(s, m, uphill);
            lacks = worth_finding(s) - bound;
        }
        for (int i = 0; i < n; i++) {
            reach[i] = 0;
            for (int k = 0; k < n; k++) reach[i] += shape[i][k] * uphill[s->varied[k]] * s->scale[s->varied[k]];
        }
        for (int i = 0; i < n; i++) length += reach[i] * uphill[s->varied[i]] * s->scale[s->varied[i]];
        if (!(length > 0)) return;
        const double root = sqrt(length), depth = lacks / root;
        if (depth >= 1) return;
        const double grow = (1 - depth * depth) * n * n / ((double)n * n - 1), step = (1 + n * depth) / (n + 1);
        for (int i = 0; i < n; i++) centre[i] += step * reach[i] / root;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                shape[i][k] = grow * (shape[i][k] - 2 * step / (1 + depth) * reach[i] * reach[k] / length);
    }
}

/* A point of the bound as a function of the price of the device's bytes. */
typedef struct point {
    double price, bound, slope;
} point;

static point point_at(search *s, double *m, double price) {
    double slope[MULTIPLIERS];
    m[P_DEVICE] = price;
    const double bound = evaluate(s, m, slope);
    return (point){price, bound, slope[P_DEVICE]};
}

/* Finds the best price of the device's bytes for the weights in m. The bound is concave in it: between two points it is
 * below both tangents, so their intersection is the next. */
static void search_price(search *s, double *m) {
    enum { ROUNDS = 24, FAR = 1 << 20 };
    point low = {.slope = 0}, high = {.slope = 0};
    for (double price = s->scale[P_DEVICE]; high.price == 0; price *= 2) {
        const point at = point_at(s, m, price);
        *(at.slope > 0 ? &low : &high) = at;
        if (price >= s->scale[P_DEVICE] * FAR && high.price == 0) return;
    }
    if (low.price == 0) low = point_at(s, m, 0);
    for (int i = 0; i < ROUNDS && low.slope > 0; i++) {
        const double gain = high.bound + high.slope * (low.price - high.price) - low.bound;
        const double price = low.price + gain / (low.slope - high.slope);
        if (low.bound + low.slope * (price - low.price) <= s->best * (1 + PRECISION)) return;
        if (!(price > low.price && price < high.price)) return;
        const point at = point_at(s, m, price);
        *(at.slope > 0 ? &low : &high) = at;
    }
}

/* Tries all pairs of one bound of X and one of Y, each with all of its side's weight. Where much crosses the link, the
 * best multipliers are near such a corner, and so far from where the ellipsoid method would begin that it does not get
 * there. */
static void search_corners(search *s) {
    for (int x = -1; x < SIDE_WEIGHTS; x++)
        for (int y = -1; y < SIDE_WEIGHTS; y++) {
            double m[MULTIPLIERS] = {0};
            if (s->best >= s->enough) return;
            if ((x >= 0 && !is_varied(s, sides[0][x])) || (y >= 0 && !is_varied(s, sides[1][y]))) continue;
            if (x >= 0) m[sides[0][x]] = 1;
            if (y >= 0) m[sides[1][y]] = 1;
            search_price(s, m);
        }
    if (s->best_at[P_DEVICE] > 0) s->scale[P_DEVICE] = s->scale[P_PINNED] = s->best_at[P_DEVICE];
}

/* Finds a price of the device's bytes so high that all that is needed fits if each tensor is handled in the way that is
 * cheapest at it (kept, copied, encoded). The search uses it as the unit of prices. False: there is no such price. */
static bool find_scale(search *s) {
    const double all = s->model.before_ns + s->model.after_ns + 1;
    const double share = 1.0 / (2 + is_varied(s, W_ENCODE) + 2 * is_varied(s, W_IN_BEFORE));
    double m[MULTIPLIERS] = {0}, slope[MULTIPLIERS];
    for (int i = 0; i < s->n; i++)
        if (s->varied[i] < P_DEVICE) m[s->varied[i]] = share;
    for (m[P_DEVICE] = all * 1e-15; m[P_DEVICE] < all * 1e15; m[P_DEVICE] *= 2) {
        evaluate(s, m, slope);
        if (slope[P_DEVICE] > 0) continue;
        s->scale[P_DEVICE] = s->scale[P_PINNED] = m[P_DEVICE];
        return true;
    }
    return false;
}

static double room_beside(const mm_graph *graph, const mm_limits *limits) {
    double room = (double)limits->device_bytes - (double)limits->base_bytes;
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_EXTERNAL) room -= (double)mm_graph_tensor(graph, t)->bytes;
    return room;
}

/* The bound for c = step; HUGE_VAL: no plan fits. start NULL: searches for the best multipliers; else evaluates the
 * bound for the multipliers in `start` alone. */
static double bound_at(search *s, double room, int step, const double *start) {
    double slope[MULTIPLIERS];
    mm_bound_cut(&s->model, step);
    s->room = room - s->model.fixed_bytes;
    s->best = s->model.before_ns + s->model.after_ns;
    memset(s->best_at, 0, sizeof s->best_at);
    if (s->room < 0) return HUGE_VAL;
    if (start) return evaluate(s, start, slope);
    if (!find_scale(s)) return HUGE_VAL;
    if (s->model.n_visitors > 0) search_corners(s);
    search_ellipsoid(s, 16 * s->n * s->n);
    return s->best;
}

/* The first step of the backward pass; the first step of all if there is no backward pass. */
static int turn_of(const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if (mm_graph_step(graph, s)->phase == MM_BACKWARD) return s;
    return 0;
}

/* Besides the turn, the bound is evaluated at SAMPLE steps, at equal distances, for the best multipliers so far. Where
 * it comes within a hundredth of the largest bound, better multipliers are searched for, SEARCHES times at most. */
enum { SAMPLE = 96, SEARCHES = 6, ANEW = 4 };

static double best_bound(search *s, double room, int *step_out) {
    const int n = mm_graph_steps(s->model.graph), sample = n < SAMPLE ? n : SAMPLE;
    double at[MULTIPLIERS], most = bound_at(s, room, *step_out = turn_of(s->model.graph), NULL);
    /* copies of persistent tensors bear on steps of their own: there, the search begins anew */
    const int anew = s->model.n_visitors > 0 ? sample / ANEW + 1 : sample + 1;
    int searches = 0;
    memcpy(at, s->best_at, sizeof at);
    for (int i = 0; i < sample && most < s->enough; i++) {
        const int step = (int)((int64_t)n * i / sample);
        double bound = bound_at(s, room, step, i % anew == anew / 2 ? NULL : at);
        if (bound < HUGE_VAL && bound > most * 0.99 && searches++ < SEARCHES) bound = bound_at(s, room, step, NULL);
        if (bound <= most) continue;
        most = bound;
        *step_out = step;
        memcpy(at, s->best_at, sizeof at);
    }
    return most;
}

/* The least share of each ns that a step loses while work `other` runs at the same time: the least over all kinds of
 * steps, whatever else runs. */
static double lost_share(const mm_graph_facts *facts, mm_work other) {
    double least = 1;
    for (mm_work step = MM_WORK_EXPENSIVE; step <= MM_WORK_CHEAP; step++) {
        double all = 1000;
        for (mm_work w = MM_WORK_ENCODE; w < MM_WORK_KINDS; w++) all += mm_facts_contention(facts, step, w);
        const double share = mm_facts_contention(facts, step, other) / all;
        if (share < least) least = share;
    }
    return least;
}

/* How much of what it does alone a direction of the link does beside the other. */
static double kept_beside(int64_t alone, int64_t both) {
    return both > 0 && both < alone ? (double)both / (double)alone : 1;
}

/* Chooses the multipliers to vary: weights of codecs if there are any, the price of pinned memory if it is limited. */
static void set_up(search *s, const mm_limits *limits) {
    const mm_graph_facts *facts = s->model.facts;
    bool codecs = false;
    for (int c = 0; c < facts->n_codecs; c++) codecs |= facts->codecs[c].gives_value;
    s->share[MM_BOUND_OUT] = s->share[MM_BOUND_IN] = lost_share(facts, MM_WORK_LINK);
    s->share[MM_BOUND_ENCODE] = lost_share(facts, MM_WORK_ENCODE);
    s->share[MM_BOUND_DECODE] = lost_share(facts, MM_WORK_DECODE);
    s->both = kept_beside(facts->out_bytes_per_s, facts->out_both_bytes_per_s) +
              kept_beside(facts->in_bytes_per_s, facts->in_both_bytes_per_s);
    if (s->both < 1) s->both = 1;
    for (int i = 0; i < MULTIPLIERS; i++) s->scale[i] = 1;
    static const int always[] = {W_OUT, W_IN, P_DEVICE};
    for (int i = 0; i < 3; i++) s->varied[s->n++] = always[i];
    s->pinned = limits->pinned_bytes < INT64_MAX ? (double)limits->pinned_bytes : HUGE_VAL;
    if (s->pinned < HUGE_VAL) s->varied[s->n++] = P_PINNED;
    if (s->model.n_visitors > 0) {
        s->varied[s->n++] = W_IN_BEFORE;
        s->varied[s->n++] = W_OUT_AFTER;
        s->varied[s->n++] = W_LINK_BEFORE;
        s->varied[s->n++] = W_LINK_AFTER;
    }
    if (!codecs) return;
    s->varied[s->n++] = W_ENCODE;
    s->varied[s->n++] = W_DECODE;
}

static mm_status find_bound(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                            bool homes_move, mm_time_bound *bound_out) {
    /* above it by what is subtracted below */
    search s = {.enough = limits->below_ns > 0 ? (double)limits->below_ns * (1 + 5e-6) + 3 : HUGE_VAL};
    double bound = 0;
    int step = 0;
    MM_TRY(mm_bound_model_init(graph, facts, limits, homes_move, &s.model));
    set_up(&s, limits);
    const double room = room_beside(graph, limits) + (homes_move ? (double)limits->base_bytes : 0);
    if (limits->device_bytes > 0 && limits->device_bytes < INT64_MAX)
        bound = best_bound(&s, room, &step);
    else
        for (int i = 0; i < mm_graph_steps(graph); i++) bound += s.model.step_ns[i];
    mm_bound_model_fini(&s.model);
    const double exact = bound * (1 - 4e-6) - 1; /* the simulator rounds speeds to 1e-6 */
    bound_out->ns = bound >= (double)INT64_MAX ? INT64_MAX : exact > 0 ? (int64_t)exact : 0;
    bound_out->step = step;
    return MM_OK;
}

mm_status mm_time_bound_of(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                           mm_time_bound *bound_out) {
    return find_bound(graph, facts, limits, false, bound_out);
}

mm_status mm_time_bound_any_home(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                 mm_time_bound *bound_out) {
    return find_bound(graph, facts, limits, true, bound_out);
}

mm_status mm_time_bound_beside(const mm_plan *plan, const mm_graph_facts *facts, int64_t device_bytes,
                               int64_t pinned_bytes, mm_time_bound *bound_out) {
    const mm_limits limits = {
        .device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .base_bytes = plan->base_bytes};
    return find_bound(plan->graph, facts, &limits, plan->pinned_base_bytes > 0 || plan->disk_base_bytes > 0, bound_out);
}
