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

/* Chooses from n points, at most NETS_FRONT_POINTS, at most `most` >= 2: the fastest first; each next one takes more
 * time and less workspace. Points that take up to `slack` (at least 1) times as long as the fastest among those of less
 * workspace than the one chosen before count as equally fast, and the one of them with the least workspace is chosen.
 * Are there more than `most`, the first and the last stay, and of the others those without which most would be lost:
 * time, summed over the sizes of workspace that one serves. Writes their indexes and returns their number. */
int nets_pareto_of(const nets_pareto_point *points, int n, double slack, int most, int *chosen_out);

#endif
