/* SPDX-License-Identifier: MIT */
#include "nets/cuda/choose/pareto.h"

#include <stdbool.h>

/* The next point to choose, among those of less than `below` bytes; -1: there is none. */
static int best_below(const nets_pareto_point *points, int n, double slack, int64_t below) {
    int fastest = -1, best = -1;
    for (int i = 0; i < n; i++)
        if (points[i].bytes < below && (fastest < 0 || points[i].ns < points[fastest].ns)) fastest = i;
    for (int i = 0; i < n; i++) {
        const bool as_fast = points[i].bytes < below && (double)points[i].ns <= slack * (double)points[fastest].ns;
        if (as_fast && (best < 0 || points[i].bytes < points[best].bytes)) best = i;
    }
    return best;
}

/* The time lost if chosen[at] is removed. The next, slower point then runs instead for all sizes of workspace from
 * chosen[at]'s own up to that of the point before it. */
static double loss_without(const nets_pareto_point *points, const int *chosen, int at) {
    const nets_pareto_point *before = &points[chosen[at - 1]], *it = &points[chosen[at]],
                            *next = &points[chosen[at + 1]];
    return (double)(next->ns - it->ns) * (double)(before->bytes - it->bytes);
}

static int thin(const nets_pareto_point *points, int n, int most, int *chosen) {
    for (; n > most; n--) {
        int least = 1;
        for (int i = 2; i < n - 1; i++)
            if (loss_without(points, chosen, i) < loss_without(points, chosen, least)) least = i;
        for (int i = least; i < n - 1; i++) chosen[i] = chosen[i + 1];
    }
    return n;
}

int nets_pareto_of(const nets_pareto_point *points, int n, double slack, int most, int *chosen_out) {
    int chosen[NETS_FRONT_POINTS], n_chosen = 0;
    for (int i = best_below(points, n, slack, INT64_MAX); i >= 0; i = best_below(points, n, slack, points[i].bytes))
        chosen[n_chosen++] = i;
    n_chosen = thin(points, n_chosen, most, chosen);
    for (int i = 0; i < n_chosen; i++) chosen_out[i] = chosen[i];
    return n_chosen;
}
