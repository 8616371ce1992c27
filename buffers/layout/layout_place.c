/* SPDX-License-Identifier: MIT */
/* The choice among placements. */
#include "buffers/layout/layout_problem.h"

#include <inttypes.h>
#include <stdlib.h>

/* Limits of a search's work (mm_layout_search): for each box, and in total. Chosen for time: a unit took some 40 to
 * 120 ns for 200 to 1000 boxes, and with random lives 1.3 us for 10,000 and 8 us for 50,000 (measured, EPYC Zen 5). So,
 * of up to 1000 boxes, BEST searches for some 50 ms, QUICK for 8 ms, and SOON, of which planners ask many times, for a
 * fourth of that. Any value gives a valid placement; more work can only lower it. */
enum { WORK_PER_BOX = 3000, WORK_MAX = 450000, QUICK_WORK_PER_BOX = 140, QUICK_WORK_MAX = 70000, SOON_SHARE = 4 };

/* Limits of the exact search: the number of nodes times the number of boxes. Chosen for time: a node takes some 2.5 ns
 * for each box (measured, EPYC Zen 5), so EXACT searches for at most 25 ms. Where only the lower bound would do, FIT
 * takes at most some 7 s, twice what the hardest of MiniMalloc's instances takes (tools/bench/README.md). */
#define EXACT_WORK INT64_C(10000000)
#define FIT_WORK   INT64_C(3000000000)

/* Searches for a placement within the goal, at heights that are eighths of the way from the lower bound to the present
 * height: first at the highest one within the goal, since it is the easiest; then at those below. The heights and the
 * work at each depend on the problem alone, and a larger goal has all heights of a smaller one. So it is met whenever
 * that one is. The nearer to the bound, the more work. */
static mm_status fit(const mm_layout_problem *problem, int64_t goal, mm_placement *best) {
    enum { STEPS = 8, FAR = 4 };
    const int64_t bound = problem->lower_bound, way = best->height - bound;
    if (goal < bound || best->height - goal > goal / FAR) return MM_OK;
    for (int step = STEPS - 1; step >= 0 && best->height > goal; step--) {
        const int64_t height = bound + way / STEPS * step + way % STEPS * step / STEPS;
        int64_t nodes = (FIT_WORK >> step) / problem->n;
        if (height <= goal) MM_TRY(mm_layout_exact(problem, height, &nodes, best));
    }
    return MM_OK;
}

/* Whether the algorithm ends as soon as it meets the goal. */
static bool ends_at_goal(mm_layout_algorithm algorithm) {
    return algorithm == MM_LAYOUT_SOON || algorithm == MM_LAYOUT_LATE;
}

static mm_status search(const mm_layout_problem *problem, mm_layout_algorithm algorithm, int64_t goal,
                        mm_placement *best) {
    const bool quick = ends_at_goal(algorithm) || algorithm == MM_LAYOUT_QUICK;
    const bool above = ends_at_goal(algorithm) && goal > problem->lower_bound;
    const int64_t most = quick ? QUICK_WORK_MAX : WORK_MAX, enough = above ? goal : problem->lower_bound;
    int64_t work = (int64_t)problem->n * (quick ? QUICK_WORK_PER_BOX : WORK_PER_BOX);
    if (work > most) work = most;
    if (above && algorithm == MM_LAYOUT_SOON) work /= SOON_SHARE;
    return problem->any_given ? mm_layout_search_around(problem, work, best)
                              : mm_layout_search(problem, work, enough, best);
}

static mm_status place(const mm_layout_problem *problem, mm_layout_algorithm algorithm, int64_t goal,
                       mm_placement *best) {
    if (algorithm == MM_LAYOUT_GROUPS) return mm_layout_groups(problem, best);
    MM_TRY(problem->any_given ? mm_layout_modnn_around(problem, best) : mm_layout_modnn(problem, best));
    if (algorithm == MM_LAYOUT_MODNN || (algorithm == MM_LAYOUT_SOON && best->height <= goal)) return MM_OK;
    MM_TRY(search(problem, algorithm, goal, best));
    if (algorithm != MM_LAYOUT_EXACT && (algorithm != MM_LAYOUT_FIT || best->height <= goal)) return MM_OK;
    int64_t nodes = EXACT_WORK / problem->n;
    MM_TRY(mm_layout_exact(problem, problem->lower_bound, &nodes, best));
    return algorithm == MM_LAYOUT_FIT && best->height > goal ? fit(problem, goal, best) : MM_OK;
}

static mm_status check_goal(const mm_layout_problem *problem, int64_t align, int64_t goal) {
    for (int32_t i = 0; i < problem->n; i++) {
        const mm_box *box = &problem->boxes[i];
        if (box->given >= 0 && box->given + box->size > goal / align)
            return mm_fail(MM_ERR_INFEASIBLE,
                           "item %d ends at %" PRId64 " by its given offset, but all have to end within %" PRId64
                           " bytes",
                           box->item, (box->given + box->size) * align, goal);
    }
    return MM_OK;
}

mm_status mm_layout_place(mm_interval *items, size_t n, mm_layout_algorithm algorithm, int64_t align, int64_t goal,
                          int64_t *height_out) {
    mm_layout_problem problem;
    MM_TRY(mm_layout_problem_init(&problem, items, n, align));
    mm_placement best = {.offset = malloc(((size_t)problem.n + 1) * sizeof *best.offset)};
    mm_status status =
        best.offset ? check_goal(&problem, align, goal) : mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    if (status == MM_OK && problem.n > 0) status = place(&problem, algorithm, goal / align, &best);
    if (status == MM_OK) {
        for (size_t i = 0; i < n; i++)
            if (!items[i].is_given) items[i].offset = 0;
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
