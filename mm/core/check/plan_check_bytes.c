/* SPDX-License-Identifier: MIT */
/* Passes 6 and 7, sharing and limits: segments that share bytes, and whether all of them fit. */
#include <stdlib.h>

#include "mm/core/check/plan_check.h"
#include "mm/core/plan/interval_map.h"
#include "mm/core/plan/plan_codes.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/status.h"

/* ---------------------------------------------------------------- sharing
 *
 * Segments take their bytes in issue order of their first users. The next owner of a byte must come after all users of
 * the segment that owned the byte last, and these users in turn came after the users of earlier owners. So every two
 * segments with a byte in common are compared, directly or along such a chain. */

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for the proof of a plan"); }

/* A user of the segment, on stream `first` or a later one, that may not have ended when `node` starts; -1: there is
 * none. */
static int find_active(const mm_check *c, int segment, int first, int node) {
    const int32_t *users = c->residences[segment].users;
    for (int s = first; s < MM_STREAM_COUNT; s++)
        if (users[s] >= 0 && !mm_check_ended(c, s, users[s], node)) return c->node_at[s][users[s]];
    return -1;
}

static bool has_pair(const mm_step_info *step, mm_tensor input, mm_tensor output) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].input == input && step->pairs[p].output == output) return true;
    return false;
}

/* Whether the step at `node` writes segment `heir` in place over `old`: all that it reads from `old` are inputs that
 * may be overwritten by the output in `heir`, and it writes no code of these inputs, because the code may be written
 * after the output. */
static bool is_inplace(const mm_check *c, int node, int old, int heir) {
    const mm_node *n = &c->plan->nodes[node];
    const mm_segment *a = &c->plan->segments[old], *b = &c->plan->segments[heir];
    if (!mm_node_runs_step(n) || a->content != MM_CONTENT_RAW || a->offset != b->offset) return false;
    const mm_step_info *step = mm_graph_step(c->graph, n->step);
    const int32_t *bindings = &c->plan->bindings[n->first_binding];
    int output = 0;
    while (output < step->n_uses && bindings[output] != heir) output++;
    if (output == step->n_uses) return false;
    for (int u = 0; u < step->n_uses; u++)
        if (bindings[u] == old &&
            (mm_node_code(c->plan, n, u) >= 0 || !has_pair(step, step->uses[u].tensor, step->uses[output].tensor)))
            return false;
    return true;
}

/* Checks that segment `heir` may take bytes of `old`. */
static mm_status check_handover(const mm_check *c, int old, int heir) {
    const mm_segment *s = &c->plan->segments[old];
    int node = c->residences[heir].first, active = find_active(c, old, 0, node);
    /* In place: the step itself is the last user on its stream, and all users on side streams must have ended. */
    if (active == node && is_inplace(c, node, old, heir)) active = find_active(c, old, MM_STREAM_COMPUTE + 1, node);
    if (active < 0) return MM_OK;
    mm_tensor tensor = c->plan->segments[heir].tensor;
    char user[320];
    const mm_status refused =
        mm_check_refuse(c, MM_RULE_HANDOVER, node, tensor >= 0 ? tensor : s->tensor,
                        "segment %d is put over segment %d (%s), which %s may still use", heir, old,
                        s->tensor >= 0                  ? mm_graph_tensor(c->graph, s->tensor)->name
                        : s->content == MM_CONTENT_POOL ? "a pool"
                                                        : "a workspace",
                        mm_check_node_name(c, active, user, sizeof user));
    return mm_check_against(c, active, heir, old, refused);
}

/* Gives a segment its bytes. owners: byte range → the segment that had it last. */
static mm_status take(const mm_check *c, mm_interval_map *owners, int segment) {
    const mm_segment *s = &c->plan->segments[segment];
    const int64_t end = s->offset + s->bytes;
    for (size_t i = mm_interval_map_find(owners, s->offset); i < owners->n && owners->runs[i].begin < end; i++)
        MM_TRY(check_handover(c, (int)owners->runs[i].tag, segment));
    return mm_interval_map_tag(owners, s->offset, end, segment) ? MM_OK : no_memory();
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts; mostly, the values are sorted already. */
static void sort(int64_t *values, int n) {
    int i = 1;
    while (i < n && values[i - 1] <= values[i]) i++;
    if (i < n) qsort(values, (size_t)n, sizeof *values, by_value);
}

/* Checks the segments in one memory that are not dynamic, in the order of their first users.
 * arrivals: room for all segments. */
static mm_status share_memory(const mm_check *c, mm_memory memory, int64_t *arrivals) {
    mm_interval_map owners = {0};
    mm_status status = MM_OK;
    int n = 0;
    for (int i = mm_graph_persistents(c->graph); i < c->plan->n_segments; i++)
        if (!c->plan->segments[i].dynamic && c->plan->segments[i].memory == memory)
            arrivals[n++] = ((int64_t)c->residences[i].first << 32) | i;
    sort(arrivals, n);
    for (int i = 0; status == MM_OK && i < n; i++) status = take(c, &owners, (int)(arrivals[i] & INT32_MAX));
    free(owners.runs);
    return status;
}

/* ---------------------------------------------------------------- persistent tensors */

/* Checks that no two persistent tensors share a byte of a memory. Their places may be in any order. */
static mm_status check_apart(const mm_check *c, mm_memory memory) {
    mm_interval_map taken = {0}; /* tag: the segment */
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < mm_graph_persistents(c->graph); i++) {
        const mm_segment *s = &c->plan->segments[i];
        if (s->memory != memory) continue;
        const size_t at = mm_interval_map_find(&taken, s->offset);
        if (at < taken.n && taken.runs[at].begin < s->offset + s->bytes)
            status = mm_check_refuse(c, MM_RULE_HOMES_APART, -1, s->tensor,
                                     "overlaps segment %d, that of another persistent tensor", (int)taken.runs[at].tag);
        else if (!mm_interval_map_tag(&taken, s->offset, s->offset + s->bytes, i))
            status = no_memory();
    }
    free(taken.runs);
    return status;
}

/* Checks that the home of each persistent tensor is at the place that the limits give, aligned and below the base. */
static mm_status check_places(const mm_check *c) {
    const mm_place *places = c->limits->places;
    int64_t packed = 0, end[MM_MEMORY_COUNT] = {0};
    bool ascending = true; /* mostly they are; then places need no further check */
    for (int i = 0; i < mm_graph_persistents(c->graph); i++) {
        const mm_segment *s = &c->plan->segments[i];
        const mm_place place = places ? places[i] : (mm_place){.offset = packed};
        if ((unsigned)place.memory >= MM_MEMORY_COUNT)
            return mm_check_refuse(c, MM_RULE_HOME_PLACE, -1, s->tensor,
                                   "has its place in a memory that does not exist");
        const int64_t base = mm_limits_base(c->limits, place.memory);
        if (s->offset != place.offset || s->memory != place.memory)
            return mm_check_refuse(c, MM_RULE_HOME_PLACE, -1, s->tensor, "lies at %lld %s, but its place is at %lld %s",
                                   (long long)s->offset, mm_memory_where(s->memory), (long long)place.offset,
                                   mm_memory_where(place.memory));
        if (place.offset < 0 || place.offset % mm_memory_align(place.memory) != 0 || s->bytes > base ||
            place.offset > base - s->bytes)
            return mm_check_refuse(c, MM_RULE_HOME_PLACE, -1, s->tensor,
                                   "has %lld bytes at %lld: not aligned, or not below the base of %lld bytes",
                                   (long long)s->bytes, (long long)place.offset, (long long)base);
        ascending &= place.offset >= end[place.memory];
        end[place.memory] = place.offset + s->bytes;
        packed += mm_align(s->bytes);
    }
    for (mm_memory m = 0; !ascending && m < MM_MEMORY_COUNT; m++) MM_TRY(check_apart(c, m));
    return MM_OK;
}

mm_status mm_check_sharing(const mm_check *c) {
    MM_TRY(check_places(c));
    int64_t *arrivals = malloc(((size_t)c->plan->n_segments + 1) * sizeof *arrivals);
    if (!arrivals) return no_memory();
    mm_status status = MM_OK;
    for (mm_memory m = 0; status == MM_OK && m < MM_MEMORY_COUNT; m++) status = share_memory(c, m, arrivals);
    free(arrivals);
    return status;
}

/* ---------------------------------------------------------------- limits */

/* A dynamic segment is freed when its last user in issue order has ended. Checks that all its users have ended by
 * then. */
static mm_status check_freed(const mm_check *c, int segment) {
    const mm_residence *r = &c->residences[segment];
    const int end = mm_program_piece(c->program, r->last, mm_program_pieces(c->program, r->last) - 1);
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (r->users[s] < 0 || c->program->last[c->node_at[s][r->users[s]]] <= c->clocks[end][s]) continue;
        char name[320];
        const int user = c->node_at[s][r->users[s]];
        const mm_status refused = mm_check_refuse(c, MM_RULE_FREED, r->last, c->plan->segments[segment].tensor,
                                                  "frees segment %d without a wait for %s, which uses it", segment,
                                                  mm_check_node_name(c, user, name, sizeof name));
        return mm_check_against(c, user, segment, -1, refused);
    }
    return MM_OK;
}

/* Checks that segments alive at once fit one part of the heap. They live from their first to their last node in issue
 * order: a node that finds no room waits until segments that ended before are freed. comes, goes: zeros, one per
 * node. */
static mm_status check_heap_part(const mm_check *c, bool codes, int64_t capacity, int64_t *comes, int64_t *goes) {
    const mm_plan *plan = c->plan;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!s->dynamic || (s->content == MM_CONTENT_CODED) != codes) continue;
        MM_TRY(check_freed(c, i));
        int64_t bytes = mm_check_add_saturated(s->bytes, MM_ALIGN - 1) / MM_ALIGN * MM_ALIGN;
        int64_t *first = &comes[c->residences[i].first], *last = &goes[c->residences[i].last];
        *first = mm_check_add_saturated(*first, bytes);
        *last = mm_check_add_saturated(*last, bytes);
    }
    int64_t live = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        live = mm_check_add_saturated(live, comes[i]);
        if (live > capacity)
            return mm_check_refuse(c, MM_RULE_HEAP_ROOM, i, -1, "needs %lld bytes of a heap of %lld%s", (long long)live,
                                   (long long)capacity, codes ? " for codes" : "");
        live -= goes[i];
    }
    return MM_OK;
}

static mm_status check_heap(const mm_check *c) {
    const mm_plan *plan = c->plan;
    if (plan->heap_bytes < 0 || plan->heap_offset < 0 || plan->heap_offset > INT64_MAX - plan->heap_bytes ||
        plan->heap_offset % MM_ALIGN != 0 || (plan->heap_bytes > 0 && plan->heap_offset < c->limits->base_bytes))
        return mm_check_refuse(c, MM_RULE_HEAP_PLACE, -1, -1, "its heap (%lld bytes at %lld) is out of place",
                               (long long)plan->heap_bytes, (long long)plan->heap_offset);
    if (plan->heap_code_bytes < 0 || plan->heap_code_bytes > plan->heap_bytes || plan->heap_code_bytes % MM_ALIGN != 0)
        return mm_check_refuse(c, MM_RULE_HEAP_PLACE, -1, -1,
                               "its heap of %lld bytes cannot have a part of %lld for codes",
                               (long long)plan->heap_bytes, (long long)plan->heap_code_bytes);
    for (int i = mm_graph_persistents(c->graph); plan->heap_bytes > 0 && i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!s->dynamic && s->memory == MM_MEM_DEVICE && s->offset < plan->heap_offset + plan->heap_bytes &&
            plan->heap_offset < s->offset + s->bytes)
            return mm_check_refuse_segment(c, MM_RULE_HEAP_PLACE, i, "lies in the heap");
    }
    size_t n = (size_t)plan->n_nodes;
    int64_t *changes = calloc(4 * n, sizeof *changes);
    if (!changes) return no_memory();
    int64_t rest = plan->heap_bytes - plan->heap_code_bytes;
    mm_status status = check_heap_part(c, true, plan->heap_code_bytes, changes, changes + n);
    if (status == MM_OK) status = check_heap_part(c, false, rest, changes + 2 * n, changes + 3 * n);
    free(changes);
    return status;
}

/* Checks the plan's totals. */
static mm_status check_sums(const mm_check *c) {
    const mm_plan *plan = c->plan;
    int64_t external = 0;
    int64_t ends[MM_MEMORY_COUNT] = {[MM_MEM_DEVICE] = plan->heap_bytes > 0 ? plan->heap_offset + plan->heap_bytes : 0};
    for (mm_memory m = 0; m < MM_MEMORY_COUNT; m++) {
        const int64_t base = mm_plan_memory_base(plan, m), now = mm_limits_base(c->limits, m);
        if (base < now)
            return mm_check_refuse(c, MM_RULE_BASE, -1, -1, "was made for a base of %lld bytes %s, now it is %lld",
                                   (long long)base, mm_memory_where(m), (long long)now);
        if (ends[m] < base) ends[m] = base;
    }
    for (int i = mm_graph_persistents(c->graph); i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!s->dynamic && s->offset + s->bytes > ends[s->memory]) ends[s->memory] = s->offset + s->bytes;
    }
    for (int t = 0; t < mm_graph_tensors(c->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(c->graph, t);
        if (tensor->ownership == MM_EXTERNAL) external = mm_check_add_saturated(external, tensor->bytes);
    }
    const int64_t peak = mm_check_add_saturated(ends[MM_MEM_DEVICE], external);
    if (plan->extent_bytes != ends[MM_MEM_DEVICE] || plan->pinned_bytes != ends[MM_MEM_PINNED] ||
        plan->disk_bytes != ends[MM_MEM_DISK] || plan->external_bytes != external || plan->peak_bytes != peak)
        return mm_check_refuse(c, MM_RULE_STATED, -1, -1,
                               "states a peak of %lld bytes, %lld pinned and %lld on the disk, but they are %lld, %lld "
                               "and %lld",
                               (long long)plan->peak_bytes, (long long)plan->pinned_bytes, (long long)plan->disk_bytes,
                               (long long)peak, (long long)ends[MM_MEM_PINNED], (long long)ends[MM_MEM_DISK]);
    return MM_OK;
}

mm_status mm_check_limits(const mm_check *c) {
    MM_TRY(check_heap(c));
    MM_TRY(check_sums(c));
    const bool device = c->plan->peak_bytes > c->limits->device_bytes;
    const bool pinned = c->plan->pinned_bytes > c->limits->pinned_bytes;
    *c->violation = (mm_violation){.rule = device   ? MM_RULE_DEVICE_BYTES
                                           : pinned ? MM_RULE_PINNED_BYTES
                                                    : MM_RULE_DISK_BYTES,
                                   .node = -1,
                                   .other = -1,
                                   .tensor = -1,
                                   .segment = -1,
                                   .old = -1};
    return mm_plan_fits(c->plan, c->limits);
}
