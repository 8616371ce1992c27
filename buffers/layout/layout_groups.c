/* SPDX-License-Identifier: MIT */
/* The placement of CNTK's static allocator (Seide and Agarwal, KDD 2016, as Gist describes it: Jain et al., ISCA 2018,
 * IV-C). Boxes are placed by size, the largest first. Each joins the first group of which no member is alive together
 * with it, or else begins a new group. A group is as large as its first member; groups lie one after the other. So
 * large boxes share their bytes with large ones, but a large place is never split among several small boxes. */
#include "buffers/layout/layout_problem.h"

#include <stdlib.h>

/* A group's members are a list: `newest`, then `before` of each. */
typedef struct group {
    int64_t offset;
    int32_t newest;
} group;

static bool is_alive_with_any(const mm_layout_problem *problem, const int32_t *before, const group *g, int32_t box) {
    const mm_box *b = &problem->boxes[box];
    for (int32_t i = g->newest; i >= 0; i = before[i])
        if (problem->boxes[i].first <= b->last && b->first <= problem->boxes[i].last) return true;
    return false;
}

/* The lowest offset from `offset` on at which `size` bytes are not those of a given box. */
static int64_t beside_given(const mm_layout_problem *problem, int64_t offset, int64_t size) {
    for (int32_t i = 0; problem->any_given && i < problem->n; i++) {
        const mm_box *b = &problem->boxes[i];
        if (b->given < 0 || b->given >= offset + size || b->given + b->size <= offset) continue;
        offset = b->given + b->size;
        i = -1; /* it may lie in the bytes of another given box now */
    }
    return offset;
}

static void form_groups(const mm_layout_problem *problem, const int32_t *by_size, int32_t *before, group *groups,
                        mm_placement *placement) {
    int32_t n = 0;
    int64_t end = 0; /* of the last group */
    placement->height = 0;
    for (int32_t i = 0; i < problem->n; i++) {
        const int32_t box = by_size[i];
        const int64_t size = problem->boxes[box].size, given = problem->boxes[box].given;
        if (given >= 0) {
            placement->offset[box] = given;
            if (given + size > placement->height) placement->height = given + size;
            continue;
        }
        int32_t g = 0;
        while (g < n && is_alive_with_any(problem, before, &groups[g], box)) g++;
        if (g == n) {
            groups[n++] = (group){beside_given(problem, end, size), -1};
            end = groups[g].offset + size;
            if (end > placement->height) placement->height = end;
        }
        before[box] = groups[g].newest;
        groups[g].newest = box;
        placement->offset[box] = groups[g].offset;
    }
}

mm_status mm_layout_groups(const mm_layout_problem *problem, mm_placement *placement_out) {
    size_t n = (size_t)problem->n;
    int32_t *by_size = malloc(n * sizeof *by_size), *before = malloc(n * sizeof *before);
    group *groups = malloc(n * sizeof *groups);
    mm_status status = by_size && before && groups ? mm_layout_order_boxes(problem, MM_ORDER_SIZE, by_size)
                                                   : mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    if (status == MM_OK) form_groups(problem, by_size, before, groups, placement_out);
    free(by_size);
    free(before);
    free(groups);
    return status;
}
