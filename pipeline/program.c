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

static bool is_codec(int stream) { return stream == MM_STREAM_ENCODE || stream == MM_STREAM_DECODE; }

/* What codec_wait asks: when each codec's piece ended, and when the computation came to a wait for one. */
static mm_status need_times(mm_program *p, const mm_piece *piece) {
    if (is_codec(piece->stream)) return need_event(p, piece->stream, piece->seq);
    bool waits = piece->wait[MM_STREAM_ENCODE] >= 0 || piece->wait[MM_STREAM_DECODE] >= 0;
    if (piece->stream != MM_STREAM_COMPUTE || !waits || piece->seq == 0) return MM_OK;
    return need_event(p, piece->stream, piece->seq - 1);
}

/* Whether events know when they completed. */
static bool has_times(const mm_dispatch_config *config) {
    return config->device->ops->always_timed || config->measure_times;
}

/* Events for what is waited for; for the codecs' accounts; for every piece where segments are placed at run time, because
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
        if (has_times(config)) MM_TRY(need_times(p, piece));
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
    mm_program_unrecord(p);
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

static int64_t ended_ns(const mm_program *p, int stream, int32_t seq) {
    return seq < 0 ? 0 : mm_event_ns(p->events[p->pieces.at[stream][seq]]);
}

/* A piece starts when its stream is free and what it waits for has ended. */
static int64_t started_ns(const mm_program *p, const mm_piece *piece) {
    int64_t start = 0;
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int64_t end = ended_ns(p, s, s == (int)piece->stream ? piece->seq - 1 : piece->wait[s]);
        if (end > start) start = end;
    }
    return start == 0 && p->begin ? mm_event_ns(p->begin) : start;
}

/* How long one codec's stream was at work between two times, of which the later is when piece `seq` had ended. */
static int64_t codec_work(const mm_program *p, int stream, int32_t seq, int64_t from_ns) {
    int64_t busy = 0;
    for (; seq >= 0; seq--) {
        int64_t end = ended_ns(p, stream, seq), start = started_ns(p, &p->pieces.pieces[p->pieces.at[stream][seq]]);
        if (end <= from_ns) break;
        if (start < from_ns) start = from_ns;
        if (end > start) busy += end - start;
    }
    return busy;
}

/* How long the computation waited for what a codec was at work on. Waits for a codec that itself waited for the link are
 * none. */
static int64_t codec_wait(const mm_program *p) {
    int64_t sum = 0;
    for (int32_t i = 1; i < p->pieces.count[MM_STREAM_COMPUTE]; i++) {
        const mm_piece *piece = &p->pieces.pieces[p->pieces.at[MM_STREAM_COMPUTE][i]];
        int64_t longest = 0;
        for (int s = MM_STREAM_ENCODE; s <= MM_STREAM_DECODE; s++) {
            if (piece->wait[s] < 0) continue;
            int64_t busy = codec_work(p, s, piece->wait[s], ended_ns(p, MM_STREAM_COMPUTE, i - 1));
            if (busy > longest) longest = busy;
        }
        sum += longest;
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
    return has_times(&p->dispatch->config) ? codec_wait(p) : 0;
}

int64_t mm_program_ns(const mm_program *p, int node) {
    return p->total_ns && p->timed > 1 ? p->total_ns[node] / (p->timed - 1) : 0;
}
