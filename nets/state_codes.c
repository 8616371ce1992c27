/* SPDX-License-Identifier: MIT */
#include "nets/state_codes.h"

#include <math.h>
#include <string.h>

/* The p-th magnitude of a map, from 0 on: 0; the decades' cells, n in decade i; 1. The middle of cell c is
 * 10^(i-6) (1/10 + 9/10 (2c + 1) / (2n)): one division of whole numbers, rounded as on every machine. */
static float magnitude(int squares, int p) {
    const int last = squares ? NETS_STATE_CODES - 1 : NETS_STATE_CODES / 2;
    if (p == 0 || p == last) return p == 0 ? 0 : 1;
    int n = 1 << squares;
    double below = 20e6;
    for (; p + squares >= 2 * n; n *= 2) below /= 10;
    return (float)((2 * n + 9 * (2 * (p + squares - n) + 1)) / (below * n));
}

/* The largest float that is at most the middle of a and b: what is above the middle is above this float. */
static float middle(float a, float b) {
    const double exact = ((double)a + (double)b) / 2;
    const float rounded = (float)exact;
    return (double)rounded > exact ? nextafterf(rounded, 0) : rounded;
}

static void make(int squares, nets_state_map *map) {
    const int last = squares ? NETS_STATE_CODES - 1 : NETS_STATE_CODES / 2;
    memset(map, 0, sizeof *map);
    for (int p = 0; p <= last; p++) {
        const float value = magnitude(squares, p);
        if (squares) map->value[p] = value;
        if (!squares) map->value[NETS_STATE_ZERO_SIGNED + p] = value;
        if (!squares && 0 < p && p < last) map->value[NETS_STATE_ZERO_SIGNED - p] = -value;
        map->above[p] = p < last ? middle(value, magnitude(squares, p + 1)) : 1;
    }
}

void nets_state_maps_make(nets_state_maps *maps) {
    for (int squares = 0; squares < 2; squares++) make(squares, &maps->of[squares]);
}
