/* SPDX-License-Identifier: MIT */
/* The Pareto front of time and workspace: of several ways to compute one thing, those to which no other is superior. */
#ifndef NETS_CUDA_CHOOSE_PARETO_H
#define NETS_CUDA_CHOOSE_PARETO_H

#include <stdint.h>

enum { NETS_FRONT_POINTS = 32 };

typedef struct nets_pareto_point {
    int64_t bytes; /* of workspace */
    int64_t ns;
} nets_pareto_point;

/* Chooses at most `most` (>= 2) of n points (n <= NETS_FRONT_POINTS). The fastest comes first; each next one takes more
 * time and less workspace. Each is chosen among the points that take less workspace than the one chosen before: of the
 * points that take at most `slack` (>= 1) times the time of the fastest of these, the one with the least workspace. If
 * there are more than `most`, the first and the last stay, and of the others those whose removal would cost the most
 * time, summed over the sizes of workspace in which a point is used. Writes the chosen indexes and returns their
 * number. */
int nets_pareto_of(const nets_pareto_point *points, int n, double slack, int most, int *chosen_out);

#endif
