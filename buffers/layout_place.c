/* The lower bound, and the choice among placements. */
#include "buffers/layout_problem.h"

#include <stdlib.h>

/* Limits of a search's work, in visited tree nodes (mm_layout_search): by box, and in all. Chosen for time: a node took
 * some 3 ns (measured, EPYC Zen 5), so BEST searches for at most 45 ms and QUICK for 6 ms. Any value gives a valid
 * placement; more work can only lower it. */
enum { WORK_PER_BOX = 100000, WORK_MAX = 15000000, QUICK_WORK_PER_BOX = 4000, QUICK_WORK_MAX = 2000000 };

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
    return algorithm == MM_LAYOUT_MODNN ? MM_OK : mm_layout_search(problem, work < most ? work : most, best);
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
