/* SPDX-License-Identifier: MIT */
/* moDNN's placement (Chen et al., "moDNN: memory optimal DNN training on GPUs", DATE 2018): simulates an allocator over
 * time. At each time it frees the boxes that have ended; then each box that begins takes a hole of exactly its size,
 * else the lowest hole that fits. */
#include "buffers/layout/layout_problem.h"
#include "buffers/layout/ranges.h"

#include <stdlib.h>
#include <string.h>

/* Counting sort of the boxes by `last`. count: scratch of times + 1 entries. */
static void sort_by_last(const mm_layout_problem *problem, int32_t *count, int32_t *order_out) {
    memset(count, 0, ((size_t)problem->times + 1) * sizeof *count);
    for (int32_t i = 0; i < problem->n; i++) count[problem->boxes[i].last + 1]++;
    for (int32_t t = 0; t < problem->times; t++) count[t + 1] += count[t];
    for (int32_t i = 0; i < problem->n; i++) order_out[count[problem->boxes[i].last]++] = i;
}

/* `ranges` has no upper end, so every box fits. */
static void simulate(const mm_layout_problem *problem, const int32_t *by_last, mm_ranges *ranges,
                     mm_placement *placement) {
    const mm_box *boxes = problem->boxes;
    placement->height = 0;
    for (int32_t i = 0, ended = 0; i < problem->n; i++) {
        for (; boxes[by_last[ended]].last < boxes[i].first; ended++) {
            mm_ranges_give(ranges, placement->offset[by_last[ended]], boxes[by_last[ended]].size);
        }
        int64_t offset = mm_ranges_take(ranges, boxes[i].size, 1, MM_FIT_EXACT_LOWEST);
        placement->offset[i] = offset;
        if (offset + boxes[i].size > placement->height) placement->height = offset + boxes[i].size;
    }
}

mm_status mm_layout_modnn(const mm_layout_problem *problem, mm_placement *placement_out) {
    size_t n = (size_t)problem->n;
    mm_ranges ranges;
    MM_TRY(mm_ranges_init(&ranges, 0, INT64_MAX));
    mm_status status = mm_ranges_reserve(&ranges, n + 2);
    int32_t *by_last = malloc(n * sizeof *by_last);
    int32_t *count = malloc(((size_t)problem->times + 1) * sizeof *count);
    if (status == MM_OK && (!by_last || !count)) status = mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    if (status == MM_OK) {
        sort_by_last(problem, count, by_last);
        simulate(problem, by_last, &ranges, placement_out);
    }
    free(by_last);
    free(count);
    mm_ranges_fini(&ranges);
    return status;
}
