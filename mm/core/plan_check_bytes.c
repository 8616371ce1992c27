/* Passes 6 and 7, sharing and limits: segments that share bytes, and whether all of them fit. */
#include <stdlib.h>

#include "mm/core/plan_check.h"
#include "mm/core/runs.h"
#include "mm/core/status.h"

/* ---------------------------------------------------------------- sharing
 *
 * Segments take their bytes in issue order of their first users. A tree over the bytes has the last owner of each
 * byte. The next owner must come after all users of that segment, which in turn came after the users of earlier
 * owners. So every two segments with a byte in common are compared, directly or along such a chain.
 *
 * Leaves of the tree are the runs of bytes between neighbouring ends of segments. */

enum { NOBODY = -1, SEVERAL = -2 };

typedef struct ground {
    const mm_check *check;
    int64_t *ends; /* offsets where runs begin and end, ascending; run i is ends[i] to ends[i + 1] - 1 */
    int n_ends;
    int32_t *owner;    /* per tree node (1 is the root, 2i and 2i + 1 are i's halves): a segment, NOBODY, or SEVERAL */
    int64_t *arrivals; /* segments by first user: the node in the upper 32 bits, the segment in the lower */
    int n_arrivals;
} ground;

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
 * may be overwritten by the output in `heir`. */
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
        if (bindings[u] == old && !has_pair(step, step->uses[u].tensor, step->uses[output].tensor)) return false;
    return true;
}

/* Checks that segment `heir` may take bytes of `old`. */
static mm_status check_handover(const mm_check *c, int old, int heir) {
    const mm_segment *s = &c->plan->segments[old];
    int node = c->residences[heir].first, active = find_active(c, old, 0, node);
    /* In place: the step itself is the last user on its stream, and the side streams have ended. */
    if (active == node && is_inplace(c, node, old, heir)) active = find_active(c, old, MM_STREAM_COMPUTE + 1, node);
    if (active < 0) return MM_OK;
    mm_tensor tensor = c->plan->segments[heir].tensor;
    char user[320];
    return mm_check_refuse(c, node, tensor >= 0 ? tensor : s->tensor,
                           "segment %d is put over segment %d (%s), which %s may still use", heir, old,
                           s->tensor >= 0                  ? mm_graph_tensor(c->graph, s->tensor)->name
                           : s->content == MM_CONTENT_POOL ? "a pool"
                                                           : "a workspace",
                           mm_check_node_name(c, active, user, sizeof user));
}

/* Gives runs from to to - 1 to a segment, in the subtree of node `at`, which spans runs low to high - 1. */
static mm_status give(ground *g, int at, int low, int high, int from, int to, int segment) {
    if (to <= low || high <= from) return MM_OK;
    bool whole = from <= low && high <= to;
    if (whole && g->owner[at] != SEVERAL) {
        if (g->owner[at] != NOBODY) MM_TRY(check_handover(g->check, g->owner[at], segment));
        g->owner[at] = segment;
        return MM_OK;
    }
    if (g->owner[at] != SEVERAL) {
        g->owner[2 * at] = g->owner[2 * at + 1] = g->owner[at];
        g->owner[at] = SEVERAL;
    }
    int middle = low + (high - low) / 2;
    MM_TRY(give(g, 2 * at, low, middle, from, to, segment));
    MM_TRY(give(g, 2 * at + 1, middle, high, from, to, segment));
    if (whole) g->owner[at] = segment;
    return MM_OK;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts, but first looks whether the values are sorted, as they mostly are. */
static void sort(int64_t *values, int n) {
    int i = 1;
    while (i < n && values[i - 1] <= values[i]) i++;
    if (i < n) qsort(values, (size_t)n, sizeof *values, by_value);
}

static int end_index(const ground *g, int64_t position) {
    int low = 0, high = g->n_ends - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (g->ends[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Lists the planned segments of one memory in order of first use, and their ends. */
static void survey(ground *g, bool pinned) {
    const mm_check *c = g->check;
    int n = 0;
    g->n_arrivals = 0;
    for (int i = mm_graph_persistents(c->graph); i < c->plan->n_segments; i++) {
        const mm_segment *s = &c->plan->segments[i];
        if (s->dynamic || s->pinned != pinned) continue;
        g->arrivals[g->n_arrivals++] = ((int64_t)c->residences[i].first << 32) | i;
        g->ends[n++] = s->offset;
        g->ends[n++] = s->offset + s->bytes;
    }
    sort(g->arrivals, g->n_arrivals);
    sort(g->ends, n);
    g->n_ends = 0;
    for (int i = 0; i < n; i++)
        if (g->n_ends == 0 || g->ends[g->n_ends - 1] != g->ends[i]) g->ends[g->n_ends++] = g->ends[i];
}

static mm_status share_memory(ground *g, bool pinned) {
    survey(g, pinned);
    if (g->n_arrivals == 0) return MM_OK;
    g->owner[1] = NOBODY; /* other nodes are set when their parent becomes SEVERAL */
    for (int i = 0; i < g->n_arrivals; i++) {
        int segment = (int)(g->arrivals[i] & INT32_MAX);
        const mm_segment *s = &g->check->plan->segments[segment];
        MM_TRY(give(g, 1, 0, g->n_ends - 1, end_index(g, s->offset), end_index(g, s->offset + s->bytes), segment));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- persistent tensors */

/* Checks that no two persistent tensors share a byte. Their places may be in any order. */
static mm_status check_apart(const mm_check *c) {
    mm_runs taken = {0}; /* tag: the segment */
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < mm_graph_persistents(c->graph); i++) {
        const mm_segment *s = &c->plan->segments[i];
        const size_t at = mm_runs_find(&taken, s->offset);
        if (at < taken.n && taken.runs[at].begin < s->offset + s->bytes)
            status = mm_check_refuse(c, -1, s->tensor, "is given bytes of segment %d, another persistent tensor's",
                                     (int)taken.runs[at].tag);
        else if (!mm_runs_tag(&taken, s->offset, s->offset + s->bytes, i))
            status = mm_fail(MM_ERR_NOMEM, "out of memory for the proof of a plan");
    }
    free(taken.runs);
    return status;
}

/* Checks that each persistent tensor lies at the place that the limits give, aligned and below the base. */
static mm_status check_places(const mm_check *c) {
    const int64_t *places = c->limits->places;
    int64_t packed = 0, end = 0;
    bool ascending = true; /* places mostly are; then they lie apart without a further check */
    for (int i = 0; i < mm_graph_persistents(c->graph); i++) {
        const mm_segment *s = &c->plan->segments[i];
        const int64_t place = places ? places[i] : packed;
        if (s->offset != place)
            return mm_check_refuse(c, -1, s->tensor, "lies at %lld, but has its place at %lld", (long long)s->offset,
                                   (long long)place);
        if (place < 0 || place % MM_ALIGN != 0 || s->bytes > c->limits->base_bytes ||
            place > c->limits->base_bytes - s->bytes)
            return mm_check_refuse(c, -1, s->tensor,
                                   "has %lld bytes at %lld: not aligned, or not below the base of %lld bytes",
                                   (long long)s->bytes, (long long)place, (long long)c->limits->base_bytes);
        ascending &= place >= end;
        end = place + s->bytes;
        packed += mm_align(s->bytes);
    }
    return ascending ? MM_OK : check_apart(c);
}

mm_status mm_check_sharing(const mm_check *c) {
    MM_TRY(check_places(c));
    size_t n = (size_t)(c->plan->n_segments - mm_graph_persistents(c->graph));
    size_t leaves = 1;
    while (leaves < 2 * n) leaves *= 2;
    ground g = {.check = c,
                .ends = malloc((2 * n + 1) * sizeof *g.ends),
                .owner = malloc(2 * leaves * sizeof *g.owner),
                .arrivals = malloc((n + 1) * sizeof *g.arrivals)};
    mm_status status = MM_OK;
    if (!g.ends || !g.owner || !g.arrivals) status = mm_fail(MM_ERR_NOMEM, "out of memory for the proof of a plan");
    if (status == MM_OK) status = share_memory(&g, false);
    if (status == MM_OK) status = share_memory(&g, true);
    free(g.ends);
    free(g.owner);
    free(g.arrivals);
    return status;
}

/* ---------------------------------------------------------------- limits */

/* A dynamic segment is freed when its last user in issue order has ended. Checks that all users have ended then. */
static mm_status check_freed(const mm_check *c, int segment) {
    const mm_residence *r = &c->residences[segment];
    const int end = mm_program_piece(c->program, r->last, mm_program_pieces(c->program, r->last) - 1);
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        if (r->users[s] < 0 || c->program->last[c->node_at[s][r->users[s]]] <= c->clocks[end][s]) continue;
        char name[320];
        return mm_check_refuse(c, r->last, c->plan->segments[segment].tensor,
                               "frees segment %d without a wait for %s, which uses it", segment,
                               mm_check_node_name(c, c->node_at[s][r->users[s]], name, sizeof name));
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
            return mm_check_refuse(c, i, -1, "needs %lld bytes of a heap of %lld%s", (long long)live,
                                   (long long)capacity, codes ? " for codes" : "");
        live -= goes[i];
    }
    return MM_OK;
}

static mm_status check_heap(const mm_check *c) {
    const mm_plan *plan = c->plan;
    if (plan->heap_bytes < 0 || plan->heap_offset < 0 || plan->heap_offset > INT64_MAX - plan->heap_bytes ||
        plan->heap_offset % MM_ALIGN != 0 || (plan->heap_bytes > 0 && plan->heap_offset < c->limits->base_bytes))
        return mm_check_refuse(c, -1, -1, "its heap (%lld bytes at %lld) is out of place", (long long)plan->heap_bytes,
                               (long long)plan->heap_offset);
    if (plan->heap_code_bytes < 0 || plan->heap_code_bytes > plan->heap_bytes || plan->heap_code_bytes % MM_ALIGN != 0)
        return mm_check_refuse(c, -1, -1, "its heap of %lld bytes has a part of %lld for codes",
                               (long long)plan->heap_bytes, (long long)plan->heap_code_bytes);
    for (int i = mm_graph_persistents(c->graph); plan->heap_bytes > 0 && i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!s->dynamic && !s->pinned && s->offset < plan->heap_offset + plan->heap_bytes &&
            plan->heap_offset < s->offset + s->bytes)
            return mm_check_refuse_segment(c, i, "lies in the heap");
    }
    size_t n = (size_t)plan->n_nodes;
    int64_t *changes = calloc(4 * n, sizeof *changes);
    if (!changes) return mm_fail(MM_ERR_NOMEM, "out of memory for the proof of a plan");
    int64_t rest = plan->heap_bytes - plan->heap_code_bytes;
    mm_status status = check_heap_part(c, true, plan->heap_code_bytes, changes, changes + n);
    if (status == MM_OK) status = check_heap_part(c, false, rest, changes + 2 * n, changes + 3 * n);
    free(changes);
    return status;
}

/* Checks the plan's sums. */
static mm_status check_sums(const mm_check *c) {
    const mm_plan *plan = c->plan;
    int64_t extent = plan->heap_bytes > 0 ? plan->heap_offset + plan->heap_bytes : 0, pinned = 0, external = 0;
    if (plan->base_bytes < c->limits->base_bytes)
        return mm_check_refuse(c, -1, -1, "was made for a base of %lld bytes, now it is %lld",
                               (long long)plan->base_bytes, (long long)c->limits->base_bytes);
    if (extent < plan->base_bytes) extent = plan->base_bytes;
    for (int i = mm_graph_persistents(c->graph); i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        int64_t *end = s->pinned ? &pinned : &extent;
        if (!s->dynamic && s->offset + s->bytes > *end) *end = s->offset + s->bytes;
    }
    for (int t = 0; t < mm_graph_tensors(c->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(c->graph, t);
        if (tensor->ownership == MM_EXTERNAL) external = mm_check_add_saturated(external, tensor->bytes);
    }
    if (plan->extent_bytes != extent || plan->pinned_bytes != pinned || plan->external_bytes != external ||
        plan->peak_bytes != mm_check_add_saturated(extent, external))
        return mm_check_refuse(c, -1, -1, "says a peak of %lld bytes and %lld pinned, it is %lld and %lld",
                               (long long)plan->peak_bytes, (long long)plan->pinned_bytes,
                               (long long)mm_check_add_saturated(extent, external), (long long)pinned);
    return MM_OK;
}

mm_status mm_check_limits(const mm_check *c) {
    MM_TRY(check_heap(c));
    MM_TRY(check_sums(c));
    return mm_plan_fits(c->plan, c->limits);
}
