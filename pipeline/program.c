/* A plan made ready to run: events for the nodes that somebody waits for, and where to find nodes by step and seq. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/internal.h"

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for a program"); }

static mm_status index_steps(mm_program *p) {
    const mm_plan *plan = p->plan;
    p->node_of_step = malloc((size_t)mm_graph_steps(plan->graph) * sizeof *p->node_of_step);
    if (!p->node_of_step) return no_memory();
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_STEP) p->node_of_step[plan->nodes[i].step] = i;
    return MM_OK;
}

static void note_dynamic(void *ctx, int segment) {
    mm_program *p = ctx;
    p->has_unplanned |= p->plan->segments[segment].dynamic;
}

static mm_status need_event(mm_program *p, mm_stream_id stream, int32_t seq) {
    mm_event **event = &p->events[p->pieces.at[stream][seq]];
    return *event ? MM_OK : mm_event_create(p->dispatch->config.device, event);
}

static bool waits_for_side(const mm_piece *step) {
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++)
        if (step->wait[s] >= 0) return true;
    return false;
}

/* What codec_wait asks: when each operation ended, and when the computation came to a wait for one. */
static mm_status need_times(mm_program *p, const mm_piece *piece) {
    if (piece->stream != MM_STREAM_COMPUTE) return need_event(p, piece->stream, piece->seq);
    return waits_for_side(piece) && piece->seq > 0 ? need_event(p, piece->stream, piece->seq - 1) : MM_OK;
}

/* Events for what is waited for; for the account of waits; for every piece where segments are placed at run time, because
 * frees wait too, or where times are measured. */
static mm_status create_events(mm_program *p) {
    const mm_plan *plan = p->plan;
    const mm_dispatch_config *config = &p->dispatch->config;
    p->events = calloc((size_t)p->pieces.n + 1, sizeof(mm_event *));
    if (!p->events) return no_memory();
    for (int i = 0; i < plan->n_nodes; i++) mm_node_segments(plan, i, note_dynamic, p);
    for (int i = 0; i < p->pieces.n; i++) {
        const mm_piece *piece = &p->pieces.pieces[i];
        if (p->has_unplanned || config->measure_times) MM_TRY(need_event(p, piece->stream, piece->seq));
        if (config->device->ops->timed_events) MM_TRY(need_times(p, piece));
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            if (piece->wait[s] >= 0) MM_TRY(need_event(p, (mm_stream_id)s, piece->wait[s]));
    }
    return config->measure_times ? mm_event_create(config->device, &p->begin) : MM_OK;
}

mm_status mm_program_create(mm_dispatch *dispatch, const mm_plan *plan, const mm_facts *facts, mm_codec *const *codecs,
                            mm_program **program_out) {
    mm_program *p = calloc(1, sizeof *p);
    if (!p) return no_memory();
    p->dispatch = dispatch;
    p->plan = plan;
    p->facts = facts;
    p->codecs = codecs;
    mm_status status = index_steps(p);
    if (status == MM_OK) status = mm_pieces_init(plan, facts, &p->pieces);
    if (status == MM_OK) status = create_events(p);
    if (status == MM_OK && dispatch->config.measure_times) {
        p->total_ns = calloc((size_t)plan->n_nodes + 1, sizeof *p->total_ns);
        if (!p->total_ns) status = no_memory();
    }
    if (status == MM_OK) status = mm_unplanned_init(p);
    if (status == MM_OK) status = mm_self_check_init(p);
    if (status != MM_OK) {
        mm_program_destroy(p);
        return status;
    }
    *program_out = p;
    return MM_OK;
}

void mm_program_destroy(mm_program *p) {
    if (!p) return;
    mm_self_check_fini(p);
    mm_unplanned_fini(p);
    for (int i = 0; p->events && i < p->pieces.n; i++) mm_event_destroy(p->events[i]);
    mm_event_destroy(p->begin);
    free(p->events);
    free(p->total_ns);
    mm_pieces_fini(&p->pieces);
    free(p->node_of_step);
    free(p);
}

int mm_program_node(const mm_program *p, int step) { return p->node_of_step[step]; }

/* ---------------------------------------------------------------- times, once an iteration has ended */

/* What a piece had to wait for longest: that which its stream did before, or another stream's piece. NULL: nothing. */
static const mm_piece *last_awaited(const mm_program *p, const mm_piece *piece, int64_t *ended_ns_out) {
    const mm_piece *last = NULL;
    *ended_ns_out = 0;
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int32_t seq = s == (int)piece->stream ? piece->seq - 1 : piece->wait[s];
        if (seq < 0) continue;
        int32_t awaited = p->pieces.at[s][seq];
        int64_t end = mm_event_ns(p->events[awaited]);
        if (end <= *ended_ns_out) continue;
        *ended_ns_out = end;
        last = &p->pieces.pieces[awaited];
    }
    return last;
}

/* A piece starts when its stream is free and what it waits for has ended. */
static int64_t started_ns(const mm_program *p, const mm_piece *piece) {
    int64_t start;
    return last_awaited(p, piece, &start) || !p->begin ? start : mm_event_ns(p->begin);
}

/* How much of the time that the computation stood before a step a codec was at work on what it waited for. Back along
 * what each had to wait for: a decode, which waited for a prefetch, which ... */
static int64_t codec_wait_before(const mm_program *p, const mm_piece *step) {
    const mm_piece *before = &p->pieces.pieces[p->pieces.at[MM_STREAM_COMPUTE][step->seq - 1]];
    int64_t from = mm_event_ns(p->events[before - p->pieces.pieces]), sum = 0, end, start;
    const mm_piece *awaited = last_awaited(p, step, &end);
    for (; awaited && awaited->stream != MM_STREAM_COMPUTE && end > from; end = start) {
        bool codec = awaited->stream == MM_STREAM_ENCODE || awaited->stream == MM_STREAM_DECODE;
        awaited = last_awaited(p, awaited, &start);
        if (start < from) start = from;
        if (codec) sum += end - start;
    }
    return sum;
}

static int64_t codec_wait(const mm_program *p) {
    int64_t sum = 0;
    for (int32_t i = 1; i < p->pieces.count[MM_STREAM_COMPUTE]; i++) {
        const mm_piece *step = &p->pieces.pieces[p->pieces.at[MM_STREAM_COMPUTE][i]];
        if (waits_for_side(step)) sum += codec_wait_before(p, step);
    }
    return sum;
}

/* The first iteration warms caches up. */
static void add_times(mm_program *p) {
    if (!p->total_ns || p->timed++ == 0) return;
    for (int i = 0; i < p->pieces.n; i++) {
        const mm_piece *piece = &p->pieces.pieces[i];
        int64_t start = started_ns(p, piece), end = mm_event_ns(p->events[i]);
        if (start > 0 && end > start) p->total_ns[piece->node] += end - start;
    }
}

int64_t mm_program_measure(mm_program *p) {
    add_times(p);
    return p->dispatch->config.device->ops->timed_events ? codec_wait(p) : 0;
}

int64_t mm_program_ns(const mm_program *p, int node) {
    return p->total_ns && p->timed > 1 ? p->total_ns[node] / (p->timed - 1) : 0;
}
