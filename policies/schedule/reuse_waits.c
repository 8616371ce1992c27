/* SPDX-License-Identifier: MIT */
/* Waits for reused bytes: the first user of a segment waits for the last user on each stream of every segment that had
 * its bytes before. */
#include <stdlib.h>

#include "mm/core/plan/interval_map.h"
#include "mm/core/plan/plan_touch.h"
#include "mm/core/status.h"
#include "policies/schedule/schedule.h"

/* Returns [segment][stream]: the segment's last user on that stream, or -1 for none. NULL: out of memory. */
static int32_t *last_users(const mm_plan *plan) {
    size_t n = (size_t)plan->n_segments * MM_STREAM_COUNT;
    int32_t *last = malloc((n + 1) * sizeof *last);
    if (!last) return NULL;
    for (size_t i = 0; i < n; i++) last[i] = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        mm_touch_rows rows;
        mm_node_touch_rows(plan, node, &rows);
        for (int r = 0; r < MM_TOUCH_ROWS; r++)
            for (int k = 0; k < rows.row[r].n; k++)
                if (rows.row[r].segments[k] >= 0)
                    last[rows.row[r].segments[k] * MM_STREAM_COUNT + (int)node->stream] = i;
    }
    return last;
}

static bool take(mm_plan *plan, mm_interval_map *memory, int segment, const int32_t *last) {
    const mm_segment *s = &plan->segments[segment];
    int64_t end = s->offset + s->bytes;
    for (size_t i = mm_interval_map_find(memory, s->offset); i < memory->n && memory->runs[i].begin < end; i++) {
        const int32_t *users = &last[memory->runs[i].tag * MM_STREAM_COUNT];
        for (int stream = 0; stream < MM_STREAM_COUNT; stream++)
            if (users[stream] >= 0 && users[stream] < s->first_node) mm_plan_wait(plan, s->first_node, users[stream]);
    }
    return mm_interval_map_tag(memory, s->offset, end, segment);
}

static int by_first_node(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

mm_status mm_schedule_reuse_waits(mm_plan *plan) {
    size_t n = 0;
    mm_interval_map memory[MM_MEMORY_COUNT] = {{0}}; /* tag: the segment that had the bytes last */
    int32_t *last = last_users(plan);
    int64_t *order = malloc(((size_t)plan->n_segments + 1) * sizeof *order);
    bool enough = last && order;
    /* Persistent tensors share bytes with nothing. */
    for (int i = mm_graph_persistents(plan->graph); enough && i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!s->dynamic && s->bytes > 0 && s->first_node >= 0) order[n++] = ((int64_t)s->first_node << 32) | i;
    }
    bool sorted = true; /* segments mostly are in this order */
    for (size_t i = 1; enough && i < n; i++) sorted &= order[i - 1] <= order[i];
    if (enough && !sorted) qsort(order, n, sizeof *order, by_first_node);
    for (size_t i = 0; enough && i < n; i++) {
        int segment = (int)(order[i] & INT32_MAX);
        enough = take(plan, &memory[plan->segments[segment].memory], segment, last);
    }
    for (int m = 0; m < MM_MEMORY_COUNT; m++) free(memory[m].runs);
    free(last);
    free(order);
    return enough ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a plan's waits");
}
