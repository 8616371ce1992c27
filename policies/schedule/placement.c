/* SPDX-License-Identifier: MIT */
/* Places a schedule's groups. The sizes of the regions of codes, of buffers and of the heap follow directly. Regions
 * placed by lifetime need a search, but cannot be smaller than the bytes alive at once. So a lower bound of the plan's
 * peak is known before the search.
 *
 *      base | general | codes | buffers | heap
 *      base | buffers | codes |         | heap     with `lends`: general groups also lie where buffers and codes are
 *           | general ................ |           idle, and above them */
#include <stdlib.h>

#include "buffers/layout/heap_size.h"
#include "buffers/layout/layout.h"
#include "mm/core/status.h"
#include "policies/schedule/schedule.h"

/* Groups of one region as intervals; `which` maps interval to group. */
typedef struct region_items {
    mm_interval *items;
    int32_t *which;
    int32_t *extra; /* CODES: the group's rank; BUFFERS: its buffer */
    size_t n;
    size_t n_free; /* the first ones, which have no place yet; the others' offsets are given */
} region_items;

static void items_fini(region_items *r) {
    free(r->items);
    free(r->which);
    free(r->extra);
}

/* Adds a region's groups. */
static void add_items(const mm_schedule *s, mm_region region, region_items *r) {
    for (int g = 0; g < s->n_groups; g++) {
        if (s->groups[g].region != region || s->lives[g].first < 0) continue;
        r->items[r->n] = s->lives[g];
        r->which[r->n] = g;
        r->extra[r->n++] = s->groups[g].rank;
    }
}

static mm_status items_init(const mm_schedule *s, mm_region region, region_items *r) {
    size_t n = (size_t)s->n_groups + 1;
    *r = (region_items){.items = malloc(n * sizeof *r->items),
                        .which = malloc(n * sizeof *r->which),
                        .extra = malloc(n * sizeof *r->extra)};
    if (!r->items || !r->which || !r->extra) {
        items_fini(r);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a layout");
    }
    add_items(s, region, r);
    r->n_free = r->n;
    return MM_OK;
}

/* Whether a group that is placed by lifetime is alive from the forward to the backward pass. */
static bool waits(const mm_group *g, const mm_interval *life, int last_forward, int first_backward) {
    return g->region == MM_REGION_GENERAL && first_backward >= 0 && life->first <= last_forward &&
           life->last >= first_backward;
}

/* Lifetimes of the groups in issue order. Groups that share bytes with nothing live from the first node to the last.
 * first is -1 if no node uses the group. NULL: out of memory. */
static mm_interval *group_lives(const mm_schedule *s, bool keep_all) {
    mm_interval *lives = malloc(((size_t)s->n_groups + 1) * sizeof *lives);
    if (!lives) return NULL;
    for (int g = 0; g < s->n_groups; g++)
        lives[g] = (mm_interval){.bytes = s->groups[g].bytes, .first = -1, .last = s->groups[g].hold};
    for (int i = mm_graph_persistents(s->graph); i < s->plan->n_segments; i++) {
        const mm_segment *segment = &s->plan->segments[i];
        mm_interval *life = &lives[s->segment_group[i]];
        if (segment->first_node < 0) continue;
        if (life->first < 0 || segment->first_node < life->first) life->first = segment->first_node;
        if (segment->last_node > life->last) life->last = segment->last_node;
    }
    int last_forward, first_backward;
    mm_plan_turning_point(s->plan, &last_forward, &first_backward);
    for (int g = 0; g < s->n_groups; g++)
        if (lives[g].first >= 0 &&
            (keep_all || (s->apart && waits(&s->groups[g], &lives[g], last_forward, first_backward))))
            lives[g].first = 0, lives[g].last = s->plan->n_nodes - 1;
    return lives;
}

/* ---------------------------------------------------------------- regions: offsets from each region's beginning */

/* Stores the groups' offsets and the region's size. */
static void keep_offsets(mm_schedule *s, mm_region region, const region_items *r, int64_t height) {
    for (size_t i = 0; i < r->n_free; i++) s->lives[r->which[i]].offset = r->items[i].offset;
    s->region_bytes[region] = height;
}

/* Bytes of the regions that lend theirs to a region while they are idle. */
static int64_t lent_bytes(const mm_schedule *s, mm_region region) {
    return s->lends && region == MM_REGION_GENERAL
               ? s->region_bytes[MM_REGION_CODES] + s->region_bytes[MM_REGION_BUFFERS]
               : 0;
}

/* The groups of a region that is placed by lifetime, then those of the regions that lend it their bytes. */
static mm_status items_by_life(const mm_schedule *s, mm_region region, region_items *r) {
    MM_TRY(items_init(s, region, r));
    if (lent_bytes(s, region) == 0) return MM_OK;
    add_items(s, MM_REGION_CODES, r);
    add_items(s, MM_REGION_BUFFERS, r);
    for (size_t i = r->n_free; i < r->n; i++) r->items[i].is_given = true;
    return MM_OK;
}

/* Puts the buffers lowest, and the codes above them, the one that waits longest first: the bytes of the codes that have
 * been decoded, or are still to be written, are then one room with those above. */
static void lend(mm_schedule *s) {
    const int64_t end = s->region_bytes[MM_REGION_BUFFERS] + s->region_bytes[MM_REGION_CODES];
    for (int g = 0; g < s->n_groups; g++)
        if (s->groups[g].region == MM_REGION_CODES)
            s->lives[g].offset = end - s->lives[g].offset - mm_align(s->lives[g].bytes);
}

static mm_status bound_by_life(mm_schedule *s, mm_region region) {
    region_items r;
    MM_TRY(items_by_life(s, region, &r));
    const int64_t bytes = mm_layout_lower_bound(r.items, r.n, MM_ALIGN), lent = lent_bytes(s, region);
    items_fini(&r);
    s->region_bytes[region] = bytes > lent ? bytes - lent : 0;
    return bytes < 0 ? mm_fail(MM_ERR_NOMEM, "out of memory for a layout") : MM_OK;
}

/* Where the heap begins: at a page. */
enum { PAGE = 4096 };

/* Bytes of the device beside a region. */
static int64_t bytes_beside(const mm_schedule *s, mm_region beside) {
    int64_t bytes = mm_align(s->plan->base_bytes) + s->plan->external_bytes + (s->plan->heap_bytes > 0 ? PAGE : 0);
    for (int region = 0; region < MM_REGIONS; region++)
        if (region != MM_REGION_PINNED && region != (int)beside) bytes += s->region_bytes[region];
    return bytes;
}

/* The height within which a region meets the limits. */
static int64_t goal_of(const mm_schedule *s, mm_region region) {
    return region == MM_REGION_PINNED ? s->pinned_bytes - s->plan->pinned_base_bytes
                                      : s->device_bytes - bytes_beside(s, region);
}

static mm_status place_by_life(mm_schedule *s, mm_region region) {
    region_items r;
    const int64_t lent = lent_bytes(s, region), room = goal_of(s, region);
    /* What is lent is given, so no goal may be below it; and FIT would search for seconds around it. */
    const mm_layout_algorithm layout = lent > 0 && s->layout == MM_LAYOUT_FIT ? MM_LAYOUT_EXACT : s->layout;
    int64_t height = 0;
    MM_TRY(items_by_life(s, region, &r));
    /* as little pinned memory as can be had, even if there is no limit of it */
    const bool pinned = region == MM_REGION_PINNED && s->layout == MM_LAYOUT_SOON;
    mm_status status = mm_layout_place(r.items, r.n, pinned ? MM_LAYOUT_QUICK : layout, MM_ALIGN,
                                       lent > 0 ? lent + (room > 0 ? room : 0) : room, &height);
    keep_offsets(s, region, &r, height > lent ? height - lent : 0);
    items_fini(&r);
    return status;
}

static mm_status place_codes(mm_schedule *s) {
    region_items r;
    int64_t height = 0;
    MM_TRY(items_init(s, MM_REGION_CODES, &r));
    mm_status status = mm_layout_sliding(r.items, r.extra, r.n, MM_ALIGN, &height);
    keep_offsets(s, MM_REGION_CODES, &r, height);
    s->plan->code_region_bytes = height;
    items_fini(&r);
    return status;
}

static mm_status place_buffers(mm_schedule *s, int wanted) {
    region_items r;
    int64_t height = 0;
    int k = 0;
    MM_TRY(items_init(s, MM_REGION_BUFFERS, &r));
    mm_status status = mm_layout_buffers(r.items, r.n, wanted, MM_ALIGN, r.extra, &k, &height);
    keep_offsets(s, MM_REGION_BUFFERS, &r, height);
    s->plan->buffers = k;
    s->plan->buffer_region_bytes = height;
    items_fini(&r);
    return status;
}

/* Whether a group holds a code. In the heap, codes get a part of their own, because they live long, and all other
 * groups do not. */
static bool holds_code(const mm_schedule *s, int group) {
    for (int i = mm_graph_persistents(s->graph); i < s->plan->n_segments; i++)
        if (s->segment_group[i] == group) return s->plan->segments[i].content == MM_CONTENT_CODED;
    return false;
}

/* Bytes that a heap needs for these items (mm_heap_region_bytes). */
static mm_status heap_part(const mm_interval *items, size_t n, int64_t *bytes_out) {
    int64_t largest = 0;
    for (size_t i = 0; i < n; i++)
        if (items[i].bytes > largest) largest = items[i].bytes;
    int64_t live = mm_layout_lower_bound(items, n, 1);
    if (live < 0) return mm_fail(MM_ERR_NOMEM, "out of memory for a layout");
    *bytes_out = mm_heap_region_bytes(live, largest);
    return MM_OK;
}

static mm_status size_heap(mm_schedule *s) {
    region_items r;
    MM_TRY(items_init(s, MM_REGION_HEAP, &r));
    /* Move the codes to the front. */
    size_t codes = 0;
    for (size_t i = 0; i < r.n; i++) {
        r.items[i].bytes = mm_heap_class_bytes(r.items[i].bytes);
        if (!holds_code(s, r.which[i])) continue;
        mm_interval item = r.items[i];
        r.items[i] = r.items[codes];
        r.items[codes] = item;
        int32_t which = r.which[i];
        r.which[i] = r.which[codes];
        r.which[codes++] = which;
    }
    mm_status status = MM_OK;
    if (r.n > 0) {
        int64_t code_bytes = 0, rest_bytes = 0;
        status = heap_part(r.items, codes, &code_bytes);
        if (status == MM_OK) status = heap_part(r.items + codes, r.n - codes, &rest_bytes);
        s->plan->heap_code_bytes = code_bytes;
        s->plan->heap_bytes = s->region_bytes[MM_REGION_HEAP] = code_bytes + rest_bytes;
    }
    items_fini(&r);
    return status;
}

/* ---------------------------------------------------------------- the whole */

mm_status mm_schedule_close(mm_schedule *s, int wanted_buffers, bool keep_all, mm_bounds *bounds_out) {
    mm_plan *plan = s->plan;
    plan->keeps_all = keep_all;
    MM_TRY(mm_plan_finish(plan));
    s->lives = group_lives(s, keep_all);
    if (!s->lives) return mm_fail(MM_ERR_NOMEM, "out of memory for a layout");
    MM_TRY(place_codes(s));
    MM_TRY(place_buffers(s, wanted_buffers));
    MM_TRY(size_heap(s));
    if (s->lends) lend(s);
    MM_TRY(bound_by_life(s, MM_REGION_GENERAL));
    MM_TRY(bound_by_life(s, MM_REGION_PINNED));
    int64_t bytes = mm_align(plan->base_bytes) + plan->external_bytes;
    for (int region = 0; region < MM_REGIONS; region++)
        if (region != MM_REGION_PINNED) bytes += s->region_bytes[region];
    /* The last segment may end up to MM_ALIGN - 1 bytes before its region does. */
    int64_t pinned = plan->pinned_base_bytes + s->region_bytes[MM_REGION_PINNED] - MM_ALIGN + 1;
    if (pinned < plan->pinned_base_bytes) pinned = plan->pinned_base_bytes;
    *bounds_out = (mm_bounds){.peak_bytes = bytes - MM_ALIGN + 1, .pinned_bytes = pinned};
    return MM_OK;
}

/* Puts the regions one after the other, and sets the segments' offsets. Groups of MM_REGION_GIVEN begin at the end of
 * the base, as the others do: a planner that places one device segment places all. */
static void stack_regions(mm_schedule *s) {
    mm_plan *plan = s->plan;
    for (int g = 0; g < s->n_groups; g++)
        if (s->groups[g].region == MM_REGION_GIVEN) s->lives[g].offset = s->groups[g].offset;
    const mm_region order[] = {MM_REGION_GENERAL, MM_REGION_CODES, MM_REGION_BUFFERS};
    int64_t base[MM_REGIONS] = {
        [MM_REGION_GIVEN] = mm_align(plan->base_bytes), [MM_REGION_PINNED] = plan->pinned_base_bytes};
    int64_t end = mm_align(plan->base_bytes);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        base[order[i]] = s->lends ? mm_align(plan->base_bytes) : end;
        end += s->region_bytes[order[i]];
    }
    if (plan->heap_bytes > 0) plan->heap_offset = (end + PAGE - 1) / PAGE * PAGE;
    for (int i = mm_graph_persistents(s->graph); i < plan->n_segments; i++) {
        int group = s->segment_group[i];
        if (!plan->segments[i].dynamic)
            plan->segments[i].offset = base[s->groups[group].region] + s->lives[group].offset;
    }
}

mm_status mm_schedule_finish(mm_schedule *s, mm_plan **plan_out) {
    MM_TRY(place_by_life(s, MM_REGION_GENERAL));
    MM_TRY(place_by_life(s, MM_REGION_PINNED));
    stack_regions(s);
    MM_TRY(mm_plan_finish(s->plan));
    MM_TRY(mm_schedule_reuse_waits(s->plan));
    *plan_out = s->plan;
    s->plan = NULL;
    return MM_OK;
}
