/* SPDX-License-Identifier: MIT */
/* The lower bound, and the choice among placements. */
#include "buffers/layout/layout_problem.h"

#include <inttypes.h>
#include <stdlib.h>

/* Limits of a search's work, in visited tree nodes (mm_layout_search): for each box, and in total. Chosen for time: a
 * node took some 3 ns (measured, EPYC Zen 5), so BEST searches for at most 45 ms and QUICK for 6 ms. Any value gives a
 * valid placement; more work can only lower it. */
enum { WORK_PER_BOX = 100000, WORK_MAX = 15000000, QUICK_WORK_PER_BOX = 4000, QUICK_WORK_MAX = 2000000 };

/* EXACT's limit of its search: the number of nodes times the number of boxes. Chosen for time, too: a node takes some 4
 * ns for each box (measured), so the search takes at most some 40 ms. */
enum { EXACT_WORK = 10000000 };

int64_t mm_layout_lower_bound(const mm_interval *items, size_t n, int64_t align) {
    mm_layout_problem problem;
    if (mm_layout_problem_init(&problem, items, n, align) != MM_OK) return -1;
    int64_t bound = problem.lower_bound * align;
    mm_layout_problem_fini(&problem);
    return bound;
}

static mm_status place(const mm_layout_problem *problem, mm_layout_algorithm algorithm, mm_placement *best) {
    if (algorithm == MM_LAYOUT_GROUPS) return mm_layout_groups(problem, best);
    bool quick = algorithm == MM_LAYOUT_QUICK;
    int64_t work = (int64_t)problem->n * (quick ? QUICK_WORK_PER_BOX : WORK_PER_BOX);
    int64_t most = quick ? QUICK_WORK_MAX : WORK_MAX;
    MM_TRY(mm_layout_modnn(problem, best));
    if (algorithm == MM_LAYOUT_MODNN) return MM_OK;
    MM_TRY(mm_layout_search(problem, work < most ? work : most, best));
    int64_t nodes = EXACT_WORK / problem->n;
    return algorithm == MM_LAYOUT_EXACT ? mm_layout_exact(problem, problem->lower_bound, &nodes, best) : MM_OK;
}

mm_status mm_layout_place(mm_interval *items, size_t n, mm_layout_algorithm algorithm, int64_t align,
                          int64_t *height_out) {
    mm_layout_problem problem;
    MM_TRY(mm_layout_problem_init(&problem, items, n, align));
    mm_placement best = {.offset = malloc(((size_t)problem.n + 1) * sizeof *best.offset)};
    mm_status status = MM_OK;
    if (!best.offset) {
        status = mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    } else if (problem.n > 0) {
        status = place(&problem, algorithm, &best);
    }
    if (status == MM_OK) {
        for (size_t i = 0; i < n; i++) items[i].offset = 0;
        for (int32_t i = 0; i < problem.n; i++) items[problem.boxes[i].item].offset = best.offset[i] * align;
        *height_out = best.height * align;
    }
    free(best.offset);
    mm_layout_problem_fini(&problem);
    return status;
}

mm_status mm_layout_fit(mm_interval *items, size_t n, int64_t align, int64_t height, int64_t *nodes, bool *fits_out) {
    mm_layout_problem problem;
    for (size_t i = 0; i < n; i++)
        if (items[i].offset < 0 || (align > 0 && items[i].offset % align != 0))
            return mm_fail(MM_ERR_INVALID,
                           "item %zu lies at %" PRId64 ", but needs a multiple of %" PRId64 " from 0 on", i,
                           items[i].offset, align);
    MM_TRY(mm_layout_problem_init(&problem, items, n, align));
    mm_placement best = {.offset = malloc(((size_t)problem.n + 1) * sizeof *best.offset)};
    mm_status status = best.offset ? MM_OK : mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    for (int32_t i = 0; status == MM_OK && i < problem.n; i++) {
        const mm_box *box = &problem.boxes[i];
        best.offset[i] = items[box->item].offset / align;
        if (best.offset[i] + box->size > best.height) best.height = best.offset[i] + box->size;
    }
    if (status == MM_OK) status = mm_layout_exact(&problem, height / align, nodes, &best);
    if (status == MM_OK) {
        for (int32_t i = 0; i < problem.n; i++) items[problem.boxes[i].item].offset = best.offset[i] * align;
        *fits_out = best.height <= height / align;
    }
    free(best.offset);
    mm_layout_problem_fini(&problem);
    return status;
}
