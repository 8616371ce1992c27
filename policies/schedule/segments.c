/* SPDX-License-Identifier: MIT */
/* Groups, segments, and operations that write one segment: what steps and visits are made of. */
#include <stdlib.h>

#include "mm/core/status.h"
#include "policies/schedule/schedule.h"

static int no_memory(void) {
    mm_fail_set("out of memory for a plan");
    return -1;
}

int mm_schedule_group(mm_schedule *s, mm_region region, int64_t bytes) {
    if (s->n_groups == s->group_capacity) {
        int capacity = s->group_capacity ? 2 * s->group_capacity : 64;
        mm_group *groups = realloc(s->groups, (size_t)capacity * sizeof *groups);
        if (!groups) return no_memory();
        s->groups = groups;
        s->group_capacity = capacity;
    }
    s->groups[s->n_groups] = (mm_group){.region = region, .bytes = bytes, .hold = -1};
    return s->n_groups++;
}

int mm_schedule_segment(mm_schedule *s, mm_content content, mm_category category, mm_tensor tensor, int64_t bytes,
                        int group) {
    int index = mm_plan_segment(s->plan, content, category, tensor, bytes);
    if (index < 0) return -1;
    if (index >= s->segment_capacity) {
        int capacity = 2 * index < 64 ? 64 : 2 * index;
        int32_t *array = realloc(s->segment_group, (size_t)capacity * sizeof *array);
        if (!array) return no_memory();
        s->segment_group = array;
        s->segment_capacity = capacity;
    }
    s->segment_group[index] = group;
    s->plan->segments[index].dynamic = s->groups[group].region == MM_REGION_HEAP;
    if (s->groups[group].region == MM_REGION_PINNED) s->plan->segments[index].memory = MM_MEM_PINNED;
    if (s->groups[group].bytes < bytes) s->groups[group].bytes = bytes;
    return index;
}

int mm_schedule_op(mm_schedule *s, mm_node_kind kind, mm_tensor tensor, int src, int codec, mm_region region,
                   int64_t bytes, int *segment_out) {
    int group = mm_schedule_group(s, region, bytes);
    if (group < 0) return -1;
    mm_category category = region == MM_REGION_BUFFERS ? MM_CAT_BUFFER : codec >= 0 ? MM_CAT_CODE : MM_CAT_FEATURE_MAP;
    mm_content content = codec >= 0 ? MM_CONTENT_CODED : MM_CONTENT_RAW;
    int segment = mm_schedule_segment(s, content, category, tensor, bytes, group);
    if (segment < 0) return -1;
    s->plan->segments[segment].codec = codec;
    *segment_out = segment;
    return mm_plan_op(s->plan, kind, tensor, src, segment);
}
