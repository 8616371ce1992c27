/* SPDX-License-Identifier: MIT */
#include "mm/core/check/issued_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/check/plan_check.h"
#include "mm/core/plan/plan_touch.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

enum { CALLERS = MM_STREAM_COUNT + 1 };

/* Number of pieces of each of the plan's streams, earlier iterations included, that are known to have ended. */
struct mm_issued_clock {
    uint64_t of; /* a stream, an event, or a caller (caller_key) */
    int64_t ended[MM_STREAM_COUNT];
};

/* ---------------------------------------------------------------- clocks */

static uint64_t caller_key(int32_t caller) { return UINT64_MAX - (uint64_t)caller; }

/* Index of the first clock whose key is not below `of`. */
static int find(const mm_issued_order *o, uint64_t of) {
    int low = 0, high = o->n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (o->clocks[middle].of < of)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for the order of issued work"); }

/* The clock of a stream, event or caller, valid until the next call; a new one knows nothing. NULL: out of memory. */
static mm_issued_clock *clock_of(mm_issued_order *o, uint64_t of) {
    const int at = find(o, of);
    if (at < o->n && o->clocks[at].of == of) return &o->clocks[at];
    if (o->n == o->capacity) {
        const int capacity = o->capacity > 0 ? 2 * o->capacity : 64;
        mm_issued_clock *clocks = realloc(o->clocks, (size_t)capacity * sizeof *clocks);
        if (!clocks) return NULL;
        o->clocks = clocks;
        o->capacity = capacity;
    }
    if (at < o->n) memmove(&o->clocks[at + 1], &o->clocks[at], (size_t)(o->n - at) * sizeof *o->clocks);
    o->n++;
    o->clocks[at] = (mm_issued_clock){.of = of};
    return &o->clocks[at];
}

/* Makes `of` know what `from` knows. */
static mm_status join(mm_issued_order *o, uint64_t of, uint64_t from) {
    const mm_issued_clock *source = clock_of(o, from);
    if (!source) return no_memory();
    const mm_issued_clock known = *source;
    mm_issued_clock *clock = clock_of(o, of);
    if (!clock) return no_memory();
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (known.ended[s] > clock->ended[s]) clock->ended[s] = known.ended[s];
    return MM_OK;
}

/* What an entry orders, whatever it belongs to. Work starts after what its caller has waited for. */
static mm_status follow(const mm_issued *e, mm_issued_order *o) {
    const uint64_t caller = caller_key(e->caller);
    if (e->kind == MM_ISSUED_BEGIN || e->kind == MM_ISSUED_END) return MM_OK;
    if (e->kind == MM_ISSUED_SYNC) return join(o, caller, e->event ? e->event : e->stream);
    MM_TRY(join(o, e->stream, caller));
    if (e->kind == MM_ISSUED_WAIT) return join(o, e->stream, e->event);
    if (e->kind != MM_ISSUED_RECORD) return MM_OK;
    mm_issued_clock *event = clock_of(o, e->event);
    if (!event) return no_memory();
    memset(event->ended, 0, sizeof event->ended); /* a later recording replaces an earlier one */
    return join(o, e->event, e->stream);
}

mm_status mm_issued_follow(const mm_issued *log, size_t n, mm_issued_order *order) {
    for (size_t i = 0; i < n; i++) MM_TRY(follow(&log[i], order));
    return MM_OK;
}

mm_status mm_issued_order_copy(const mm_issued_order *order, mm_issued_order *copy_out) {
    mm_issued_order copy = *order;
    copy.capacity = order->n;
    copy.clocks = malloc(((size_t)order->n + 1) * sizeof *copy.clocks);
    if (!copy.clocks) return no_memory();
    if (order->n > 0) memcpy(copy.clocks, order->clocks, (size_t)order->n * sizeof *copy.clocks);
    *copy_out = copy;
    return MM_OK;
}

void mm_issued_order_fini(mm_issued_order *order) {
    free(order->clocks);
    *order = (mm_issued_order){0};
}

/* ---------------------------------------------------------------- the check of an iteration */

/* What a piece has issued. */
typedef struct part {
    int64_t works, copies;
    bool staged; /* an encode's copy from its stage to its target */
    bool ended;
} part;

/* What a caller is in. */
typedef struct place {
    int32_t piece; /* -1: none */
    bool computed;
} place;

typedef struct judge {
    const mm_issued_plan *given;
    const mm_program *p;
    const mm_plan *plan;
    mm_issued_order *order;
    part *parts; /* per piece */
    int32_t due[MM_STREAM_COUNT];
    place at[CALLERS];
} judge;

static const char *node_name(const judge *j, int piece, char *buffer, size_t capacity) {
    const mm_check check = {.plan = j->plan, .graph = j->plan->graph};
    return mm_check_node_name(&check, j->p->pieces[piece].node, buffer, capacity);
}

/* "piece 2 of 4 of " where a node has several. */
static const char *part_name(const judge *j, int piece, char *buffer, size_t capacity) {
    const mm_piece *x = &j->p->pieces[piece];
    const int n = mm_program_pieces(j->p, x->node);
    char node[320];
    if (n == 1) return node_name(j, piece, buffer, capacity);
    snprintf(buffer, capacity, "piece %d of %d of %s", x->seq - j->p->first[x->node] + 1, n,
             node_name(j, piece, node, sizeof node));
    return buffer;
}

/* MM_ERR_PLAN: "issued work is not that of plan POLICY of GRAPH: NODE, on the STREAM stream: why". */
static mm_status differ(const judge *j, int piece, const char *why, ...) MM_PRINTF(3, 4);
static mm_status differ(const judge *j, int piece, const char *why, ...) {
    char reason[512], where[384];
    va_list arguments;
    va_start(arguments, why);
    vsnprintf(reason, sizeof reason, why, arguments);
    va_end(arguments);
    if (piece < 0)
        return mm_fail(MM_ERR_PLAN, "issued work is not that of plan %s of %s: %s", MM_BRIEF(j->plan->policy),
                       mm_graph_name(j->plan->graph), reason);
    return mm_fail(MM_ERR_PLAN, "issued work is not that of plan %s of %s: %s, on the %s stream: %s",
                   MM_BRIEF(j->plan->policy), mm_graph_name(j->plan->graph), part_name(j, piece, where, sizeof where),
                   mm_stream_id_name(j->p->pieces[piece].stream), reason);
}

/* The plan's stream that the log's is; -1: none. */
static int stream_id(const judge *j, uint64_t stream) {
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (stream != 0 && j->given->streams[s] == stream) return s;
    return -1;
}

/* Whether all that the piece must come after has ended, as `of` (a stream or a caller) knows. */
static mm_status check_order(const judge *j, int piece, uint64_t of) {
    const mm_piece *x = &j->p->pieces[piece];
    const mm_issued_clock *clock = clock_of(j->order, of);
    if (!clock) return no_memory();
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        const int32_t after = s == (int)x->stream ? x->seq - 1 : x->wait[s];
        char other[384];
        if (clock->ended[s] < j->order->before[s])
            return differ(j, piece, "nothing makes it wait for the %s stream of the iteration before",
                          mm_stream_id_name(s));
        if (clock->ended[s] <= j->order->before[s] + after)
            return differ(j, piece, "nothing makes it wait for %s, on the %s stream",
                          part_name(j, j->p->at[s][after], other, sizeof other), mm_stream_id_name(s));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- bytes */

/* Of a segment that is not on the disk. */
static uint64_t base(const judge *j, const mm_segment *s) {
    return s->memory == MM_MEM_PINNED ? j->given->pinned : j->given->device;
}

static uint64_t address(const judge *j, const mm_segment *s) { return base(j, s) + (uint64_t)s->offset; }

static const char *memory_name(const mm_segment *s) { return s->memory == MM_MEM_PINNED ? "pinned" : "device"; }

/* Whether `bytes` bytes at `at` lie in a segment; none lie on the disk. Of one in the heap only the heap is known. */
static bool is_within(const judge *j, const mm_segment *s, uint64_t at, int64_t bytes) {
    if (s->memory == MM_MEM_DISK) return false;
    const uint64_t begin = s->dynamic ? j->given->device + (uint64_t)j->plan->heap_offset : address(j, s);
    const int64_t room = s->dynamic ? j->plan->heap_bytes : s->bytes;
    return at >= begin && bytes <= s->bytes && at - begin <= (uint64_t)(room - bytes);
}

/* Whether the plan places segments that are no homes at that address. */
static bool is_planned(const judge *j, uint64_t at) {
    const mm_plan *plan = j->plan;
    const uint64_t device = j->given->device, pinned = j->given->pinned;
    return (at >= device + (uint64_t)plan->base_bytes && at < device + (uint64_t)plan->extent_bytes) ||
           (pinned && at >= pinned + (uint64_t)plan->pinned_base_bytes && at < pinned + (uint64_t)plan->pinned_bytes);
}

/* Whether the bytes are in a segment that the node uses, or are none of the plan's. */
static bool is_own(const judge *j, int node, uint64_t at, int64_t bytes, bool written) {
    mm_touch touch;
    if (bytes == 0 || !is_planned(j, at)) return true;
    for (int t = 0; mm_node_next_touch(j->plan, &j->plan->nodes[node], &t, &touch);)
        if ((!written || touch.access != MM_READ) && is_within(j, &j->plan->segments[touch.segment], at, bytes))
            return true;
    return false;
}

/* One end of a copy over the link: `stored_bytes` from `stored_offset` on. */
static bool is_end(const judge *j, const mm_piece *x, int32_t segment, uint64_t at) {
    const mm_segment *s = &j->plan->segments[segment];
    if (s->dynamic) return is_within(j, s, at, x->stored_bytes);
    return at == address(j, s) + (uint64_t)x->stored_offset;
}

static long long from_start(const judge *j, const mm_segment *s, uint64_t at) { return (long long)(at - base(j, s)); }

static mm_status check_link_copy(const judge *j, int piece, const mm_issued *e) {
    const mm_piece *x = &j->p->pieces[piece];
    const mm_node *n = &j->plan->nodes[x->node];
    const mm_segment *src = &j->plan->segments[n->src], *dst = &j->plan->segments[n->dst];
    if (e->kind == MM_ISSUED_FILL || j->parts[piece].copies > 0)
        return differ(j, piece, "more is issued than its one copy");
    if (e->bytes != x->stored_bytes)
        return differ(j, piece, "copies %lld bytes of %lld", (long long)e->bytes, (long long)x->stored_bytes);
    if (!is_end(j, x, n->src, e->src))
        return differ(j, piece, "copies from byte %lld of %s memory, where byte %lld is planned",
                      from_start(j, src, e->src), memory_name(src), (long long)(src->offset + x->stored_offset));
    if (!is_end(j, x, n->dst, e->dst))
        return differ(j, piece, "copies to byte %lld of %s memory, where byte %lld is planned",
                      from_start(j, dst, e->dst), memory_name(dst), (long long)(dst->offset + x->stored_offset));
    return MM_OK;
}

/* A copy or fill of a node that is no copy over the link. */
static mm_status check_own_copy(const judge *j, int piece, const mm_issued *e) {
    const int node = j->p->pieces[piece].node;
    const mm_node *n = &j->plan->nodes[node];
    if (!is_own(j, node, e->dst, e->bytes, true))
        return differ(j, piece,
                      "overwrites %lld bytes at byte %lld of device memory, which are in no segment that it "
                      "writes",
                      (long long)e->bytes, (long long)(e->dst - j->given->device));
    if (e->kind == MM_ISSUED_COPY && !is_own(j, node, e->src, e->bytes, false))
        return differ(j, piece,
                      "copies %lld bytes from byte %lld of device memory, which are in no segment that it "
                      "uses",
                      (long long)e->bytes, (long long)(e->src - j->given->device));
    if (n->stage < 0 || e->kind != MM_ISSUED_COPY) return MM_OK;
    const mm_segment *stage = &j->plan->segments[n->stage], *dst = &j->plan->segments[n->dst];
    j->parts[piece].staged |=
        is_within(j, stage, e->src, e->bytes) && is_within(j, dst, e->dst, e->bytes) && e->bytes == dst->bytes;
    return MM_OK;
}

/* ---------------------------------------------------------------- entries */

/* Work that is no node's: all-reduces in place, and, once the steps are issued, the caller's own on the compute
 * stream, outside of the plan's bytes. */
static mm_status check_outside(const judge *j, const mm_issued *e) {
    const int s = stream_id(j, e->stream);
    if (e->stream == j->given->sums && e->stream != 0) return MM_OK;
    if (s < 0) return differ(j, -1, "work on a stream that the plan does not have, outside of its nodes");
    if (s != MM_STREAM_COMPUTE || j->due[s] < j->p->count[s])
        return differ(j, -1, "work on the %s stream that is no node's", mm_stream_id_name(s));
    if (e->kind != MM_ISSUED_TASK && is_planned(j, e->dst))
        return differ(j, -1, "after the last step, %lld bytes of the plan are overwritten", (long long)e->bytes);
    return MM_OK;
}

static mm_status on_work(judge *j, const mm_issued *e) {
    const place *at = &j->at[e->caller];
    if (at->piece < 0) return check_outside(j, e);
    const mm_piece *x = &j->p->pieces[at->piece];
    const mm_node_kind kind = j->plan->nodes[x->node].kind;
    const int s = stream_id(j, e->stream);
    const bool is_step = mm_node_runs_step(&j->plan->nodes[x->node]);
    if (s != (int)x->stream) {
        if (s < 0 && is_step) return MM_OK; /* the caller's own stream, for the step's own inputs */
        return differ(j, at->piece, "work on %s%s", s < 0 ? "a stream that the plan does not have" : "stream ",
                      s < 0 ? "" : mm_stream_id_name(s));
    }
    if (j->parts[at->piece].works++ == 0) MM_TRY(check_order(j, at->piece, e->stream));
    if (e->kind == MM_ISSUED_TASK) {
        const bool copies = kind == MM_NODE_OUT || kind == MM_NODE_IN;
        return copies && !mm_node_allreduces(j->plan, &j->plan->nodes[x->node])
                   ? differ(j, at->piece, "more is issued than its one copy")
                   : MM_OK;
    }
    MM_TRY(kind == MM_NODE_OUT || kind == MM_NODE_IN ? check_link_copy(j, at->piece, e)
                                                     : check_own_copy(j, at->piece, e));
    j->parts[at->piece].copies += e->kind == MM_ISSUED_COPY;
    return MM_OK;
}

static mm_status on_begin(judge *j, const mm_issued *e) {
    place *at = &j->at[e->caller];
    if (e->piece < 0 || e->piece >= j->p->n) return differ(j, -1, "piece %d is none of its program", e->piece);
    const mm_piece *x = &j->p->pieces[e->piece];
    if (at->piece >= 0) return differ(j, e->piece, "begins before the one before it has been issued");
    if (x->seq != j->due[x->stream]) {
        char due[384];
        if (x->seq < j->due[x->stream]) return differ(j, e->piece, "is issued twice");
        return differ(j, e->piece, "is issued where %s is due",
                      part_name(j, j->p->at[x->stream][j->due[x->stream]], due, sizeof due));
    }
    j->due[x->stream]++;
    *at = (place){e->piece, e->computed};
    return e->computed ? check_order(j, e->piece, caller_key(e->caller)) : MM_OK;
}

static mm_status check_complete(const judge *j, int piece) {
    const mm_piece *x = &j->p->pieces[piece];
    const mm_node *n = &j->plan->nodes[x->node];
    if (mm_node_runs_step(n)) return MM_OK;
    if (j->parts[piece].works == 0) return differ(j, piece, "nothing is issued for it");
    if ((n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN) && j->parts[piece].copies == 0)
        return differ(j, piece, "its copy is not issued");
    if (n->stage >= 0 && !j->parts[piece].staged) return differ(j, piece, "its code is not copied to its target");
    return MM_OK;
}

static mm_status on_end(judge *j, const mm_issued *e) {
    place *at = &j->at[e->caller];
    if (e->piece < 0 || at->piece != e->piece) return differ(j, -1, "a piece ends that had not begun");
    const mm_piece *x = &j->p->pieces[e->piece];
    const uint64_t of = at->computed ? caller_key(e->caller) : j->given->streams[x->stream];
    MM_TRY(check_complete(j, e->piece));
    if (!at->computed && j->parts[e->piece].works == 0) MM_TRY(check_order(j, e->piece, of));
    mm_issued_clock *clock = clock_of(j->order, of);
    if (!clock) return no_memory();
    clock->ended[x->stream] = j->order->before[x->stream] + x->seq + 1;
    j->parts[e->piece].ended = true;
    at->piece = -1;
    return MM_OK;
}

static mm_status check_entries(judge *j, const mm_issued *log, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const mm_issued *e = &log[i];
        if (e->caller < 0 || e->caller >= CALLERS) return differ(j, -1, "a thread that issues none of its streams");
        MM_TRY(follow(e, j->order));
        switch (e->kind) {
        case MM_ISSUED_BEGIN:
            MM_TRY(on_begin(j, e));
            break;
        case MM_ISSUED_END:
            MM_TRY(on_end(j, e));
            break;
        case MM_ISSUED_TASK:
        case MM_ISSUED_COPY:
        case MM_ISSUED_FILL:
            MM_TRY(on_work(j, e));
            break;
        case MM_ISSUED_RECORD:
        case MM_ISSUED_WAIT:
        case MM_ISSUED_SYNC:
            break;
        }
    }
    for (int i = 0; i < j->p->n; i++)
        if (!j->parts[i].ended) return differ(j, i, "it is not issued");
    return MM_OK;
}

static void end_iteration(const mm_program *p, mm_issued_order *order) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) order->before[s] += p->count[s];
}

mm_status mm_issued_check(const mm_issued_plan *plan, const mm_issued *log, size_t n, mm_issued_order *order) {
    judge j = {.given = plan, .p = plan->program, .plan = plan->program->plan, .order = order};
    for (int i = 0; i < CALLERS; i++) j.at[i].piece = -1;
    j.parts = calloc((size_t)j.p->n + 1, sizeof *j.parts);
    if (!j.parts) return no_memory();
    const mm_status status = check_entries(&j, log, n);
    free(j.parts);
    if (status == MM_OK) end_iteration(j.p, order);
    return status;
}

mm_status mm_issued_replay(const mm_issued_plan *plan, mm_issued_order *order) {
    judge j = {.given = plan, .p = plan->program, .plan = plan->program->plan, .order = order};
    mm_issued_clock *clock = clock_of(order, plan->streams[MM_STREAM_COMPUTE]);
    if (!clock) return no_memory();
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (clock->ended[s] < order->before[s])
            return differ(&j, -1, "nothing makes a replay wait for the %s stream of the iteration before",
                          mm_stream_id_name(s));
    end_iteration(j.p, order);
    memcpy(clock->ended, order->before, sizeof clock->ended);
    return MM_OK;
}
