/* SPDX-License-Identifier: MIT */
/* Timelines as a file in Chrome's "Trace Event Format" (JSON object form), which Perfetto and chrome://tracing open.
 *
 * A timeline is a process. Its threads are the iterations, one for each stream, and one for sums in place. Its events:
 *   X   a slice: an iteration, a step, a part of an operation, a sum, or a wait (category "wait")
 *   s t f   a flow: a map's way from its eviction over its return to the step that reads it
 *   i   a replan: a policy planned again, because iterations did not take what was planned (mm_observe)
 *   C   the counter "device memory": the live bytes of a step, by kind
 *   M   the names of processes and threads; "process_labels": whether the times were measured or predicted, where, and
 *       whether a code is lossy, as text for viewers and as members; and "memory": where each byte of a plan lies and
 *       why (plan_memory.h), with its graph and policy */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/account/plan_memory.h"
#include "mm/core/atomic_file.h"
#include "mm/core/graph/graph.h"
#include "mm/core/json_text.h"
#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"
#include "mm/core/timeline/timeline.h"

/* Thread numbers differ between processes, too, so that no viewer confuses two threads. A process's first thread is for
 * iterations, its last for sums in place. */
enum { SUMS = 1 + MM_STREAM_COUNT, THREADS };

typedef struct writer {
    FILE *file;
    mm_timeline *const *timelines;
    int n;
    int64_t origin_ns; /* the earliest time in all timelines */
    int64_t flows;     /* number of flows so far */
    bool any;          /* an event was written */
} writer;

/* One iteration. */
typedef struct scene {
    writer *w;
    const mm_timeline_plan *plan;
    const mm_period *spans;
    int64_t number;
    int pid;
    int64_t codec_wait_ns;
} scene;

static int thread_of(int pid, int thread) { return pid * THREADS + thread; }

static int thread_of_stream(int pid, mm_stream_id stream) { return thread_of(pid, 1 + (int)stream); }

static double us_since_origin(const writer *w, int64_t ns) { return (double)(ns - w->origin_ns) * 1e-3; }

/* Writes an event, and releases it. */
static mm_status put(writer *w, json_t *event) {
    if (!event) return mm_fail(MM_ERR_FORMAT, "trace: out of memory, or a name is not UTF-8");
    fputs(w->any ? ",\n" : "\n", w->file);
    w->any = true;
    const bool good = json_dumpf(event, w->file, JSON_COMPACT | JSON_REAL_PRECISION(15)) == 0 || ferror(w->file);
    json_decref(event);
    return good ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a trace");
}

/* Returns the object if `set`, the result of adding something to it, is 0. Otherwise releases it: NULL. */
static json_t *whole(json_t *object, int set) {
    if (set == 0) return object;
    json_decref(object);
    return NULL;
}

/* ---------------------------------------------------------------- names */

static mm_status put_name(writer *w, const char *what, int pid, int tid, const char *name) {
    return put(w,
               json_pack("{ss ss si si s{ss}}", "ph", "M", "name", what, "pid", pid, "tid", tid, "args", "name", name));
}

static mm_status put_place(writer *w, const char *what, int pid, int tid, int place) {
    return put(w, json_pack("{ss ss si si s{si}}", "ph", "M", "name", what, "pid", pid, "tid", tid, "args",
                            "sort_index", place));
}

static bool uses_stream(const mm_timeline *t, mm_stream_id stream) {
    for (int i = 0; i < t->n_plans; i++)
        for (int p = 0; p < t->plans[i].n_pieces; p++)
            if (t->plans[i].pieces[p].stream == stream) return true;
    return false;
}

static bool has_sums(const mm_timeline *t) {
    for (int i = 0; i < t->n_plans; i++)
        if (t->plans[i].n_sums > 0) return true;
    return false;
}

/* "predicted on titanx, lossy". */
static mm_status put_labels(writer *w, const mm_timeline *t, int pid) {
    const char *times = t->predicted ? "predicted" : "measured";
    json_t *text = json_sprintf("%s%s%s%s", times, *t->machine ? " on " : "", t->machine, t->lossy ? ", lossy" : "");
    return put(w, json_pack("{ss ss si si s{so ss ss sb}}", "ph", "M", "name", "process_labels", "pid", pid, "tid",
                            thread_of(pid, 0), "args", "labels", text, "times", times, "machine", t->machine, "lossy",
                            (int)t->lossy));
}

static mm_status put_names(writer *w, const mm_timeline *t, int pid) {
    const int first = thread_of(pid, 0), sums = thread_of(pid, SUMS);
    MM_TRY(put_name(w, "process_name", pid, first, t->name));
    MM_TRY(put_labels(w, t, pid));
    MM_TRY(put_place(w, "process_sort_index", pid, first, pid));
    MM_TRY(put_name(w, "thread_name", pid, first, "iterations"));
    MM_TRY(put_place(w, "thread_sort_index", pid, first, 0));
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        const int tid = thread_of_stream(pid, (mm_stream_id)s);
        if (!uses_stream(t, (mm_stream_id)s)) continue;
        MM_TRY(put_name(w, "thread_name", pid, tid, mm_stream_id_name((mm_stream_id)s)));
        MM_TRY(put_place(w, "thread_sort_index", pid, tid, 1 + s));
    }
    if (!has_sums(t)) return MM_OK;
    MM_TRY(put_name(w, "thread_name", pid, sums, "sums"));
    return put_place(w, "thread_sort_index", pid, sums, SUMS);
}

/* ---------------------------------------------------------------- memory of plans */

mm_status mm_timeline_add_memory(mm_timeline *timeline, int plan, const mm_program *program,
                                 const mm_graph_facts *facts) {
    json_t *memory;
    MM_TRY(mm_plan_memory(program->plan, facts, &memory));
    char *text = mm_json_print(memory, JSON_COMPACT);
    json_decref(memory);
    if (!text) return mm_fail(MM_ERR_NOMEM, "out of memory for the memory of a plan in a trace");
    free(timeline->plans[plan].memory);
    timeline->plans[plan].memory = text;
    timeline->lossy |= mm_plan_is_lossy(program->plan, facts);
    return MM_OK;
}

static mm_status put_plan(writer *w, const mm_timeline_plan *plan, int pid) {
    if (!plan->memory) return MM_OK;
    json_error_t error;
    json_t *memory;
    if (mm_json_parse(plan->memory, strlen(plan->memory), 0, &memory, &error) != MM_OK)
        return mm_fail(MM_ERR_NOMEM, "out of memory for a trace");
    memory = whole(memory,
                   json_object_update_new(memory, json_pack("{ss ss}", "graph", plan->graph, "policy", plan->policy)));
    return put(w, json_pack("{ss ss si si so}", "ph", "M", "name", "memory", "pid", pid, "tid", thread_of(pid, 0),
                            "args", memory));
}

/* ---------------------------------------------------------------- slices */

/* "conv1 forward", "recompute conv1 forward", "encode conv1.out". */
static json_t *name_of(const mm_timeline_piece *p) {
    if (p->kind == MM_NODE_STEP) return json_sprintf("%s %s", p->layer, mm_phase_name(p->phase));
    if (p->step >= 0) return json_sprintf("%s %s %s", mm_node_kind_name(p->kind), p->layer, mm_phase_name(p->phase));
    return json_sprintf("%s %s", mm_node_kind_name(p->kind), p->tensor_name);
}

static mm_status put_slice(scene *s, int tid, json_t *name, const char *category, mm_period span, json_t *args) {
    return put(s->w, json_pack("{ss so ss si si sf sf so}", "ph", "X", "name", name, "cat", category, "pid", s->pid,
                               "tid", tid, "ts", us_since_origin(s->w, span.start_ns), "dur",
                               (double)(span.end_ns - span.start_ns) * 1e-3, "args", args));
}

static json_t *args_of(const scene *s, const mm_timeline_piece *p) {
    const char *action = mm_node_kind_name(p->kind);
    if (p->step >= 0)
        return json_pack("{sI si ss ss ss sI}", "iteration", (json_int_t)s->number, "step", (int)p->step, "layer",
                         p->layer, "phase", mm_phase_name(p->phase), "action", action, "bytes", (json_int_t)p->bytes);
    json_t *args = json_pack("{sI ss? si ss ss sI sI}", "iteration", (json_int_t)s->number, "layer", p->layer,
                             "tensor_id", (int)p->tensor, "tensor", p->tensor_name, "action", action, "bytes",
                             (json_int_t)p->bytes, "stored_bytes", (json_int_t)p->stored_bytes);
    if (p->parts == 1) return args;
    return whole(args, json_object_update_new(args, json_pack("{si si}", "part", p->part + 1, "parts", p->parts)));
}

static bool is_known(const scene *s, int32_t piece) { return piece >= 0 && mm_period_is_known(&s->spans[piece]); }

static int64_t later(int64_t ns, const scene *s, int32_t piece) {
    return is_known(s, piece) && s->spans[piece].end_ns > ns ? s->spans[piece].end_ns : ns;
}

/* Writes the wait of a piece: from when its stream was free and it was queued, until it started. The wait is named
 * after the awaited piece that ended last. If that piece had ended before, there was no wait. */
static mm_status put_wait(scene *s, const mm_timeline_piece *p, int64_t start_ns) {
    const int64_t ready_ns = later(later(s->w->origin_ns, s, p->before), s, p->due);
    const mm_timeline_piece *last = NULL;
    int64_t last_ns = ready_ns;
    for (int t = 0; t < MM_STREAM_COUNT; t++)
        if (later(last_ns, s, p->wait[t]) > last_ns) {
            last = &s->plan->pieces[p->wait[t]];
            last_ns = s->spans[p->wait[t]].end_ns;
        }
    if (!last || (p->before < 0 && p->due < 0) || start_ns <= ready_ns) return MM_OK;
    json_t *name = last->step >= 0
                       ? json_sprintf("wait for %s %s", last->layer, mm_phase_name(last->phase))
                       : json_sprintf("wait for %s of %s", mm_node_kind_name(last->kind), last->tensor_name);
    return put_slice(s, thread_of_stream(s->pid, p->stream), name, "wait", (mm_period){ready_ns, start_ns},
                     json_pack("{sI ss}", "iteration", (json_int_t)s->number, "action", "wait"));
}

static mm_status put_pieces(scene *s) {
    for (int i = 0; i < s->plan->n_pieces; i++) {
        const mm_timeline_piece *p = &s->plan->pieces[i];
        if (!is_known(s, i)) continue;
        MM_TRY(put_wait(s, p, s->spans[i].start_ns));
        MM_TRY(put_slice(s, thread_of_stream(s->pid, p->stream), name_of(p), mm_node_kind_name(p->kind), s->spans[i],
                         args_of(s, p)));
    }
    return MM_OK;
}

/* "sum conv2.w.grad and 3 more". */
static mm_status put_sums(scene *s) {
    for (int i = 0; i < s->plan->n_sums; i++) {
        const mm_timeline_sum *sum = &s->plan->sums[i];
        const int span = s->plan->n_pieces + i;
        if (!is_known(s, span) || s->spans[span].end_ns == s->spans[span].start_ns) continue;
        json_t *name = sum->n > 1 ? json_sprintf("sum %s and %d more", sum->tensor_name, sum->n - 1)
                                  : json_sprintf("sum %s", sum->tensor_name);
        MM_TRY(put_slice(s, thread_of(s->pid, SUMS), name, "sum", s->spans[span],
                         json_pack("{sI ss si sI}", "iteration", (json_int_t)s->number, "action", "sum", "tensors",
                                   sum->n, "bytes", (json_int_t)sum->bytes)));
    }
    return MM_OK;
}

/* `hidden` of tables is 1 - codec_wait_us / codec_busy_us. */
static mm_status put_iteration(scene *s) {
    mm_period all = {INT64_MAX, INT64_MIN};
    int64_t busy_ns = 0;
    for (int i = 0; i < s->plan->n_pieces + s->plan->n_sums; i++) {
        if (!is_known(s, i)) continue;
        if (s->spans[i].start_ns < all.start_ns) all.start_ns = s->spans[i].start_ns;
        if (s->spans[i].end_ns > all.end_ns) all.end_ns = s->spans[i].end_ns;
        const mm_stream_id stream = i < s->plan->n_pieces ? s->plan->pieces[i].stream : MM_STREAM_COMPUTE;
        if (stream == MM_STREAM_ENCODE || stream == MM_STREAM_DECODE)
            busy_ns += s->spans[i].end_ns - s->spans[i].start_ns;
    }
    if (!mm_period_is_known(&all)) return MM_OK;
    return put_slice(s, thread_of(s->pid, 0), json_sprintf("iteration %lld", (long long)s->number), "iteration", all,
                     json_pack("{sI ss ss sf sf}", "iteration", (json_int_t)s->number, "graph", s->plan->graph,
                               "policy", s->plan->policy, "codec_busy_us", (double)busy_ns * 1e-3, "codec_wait_us",
                               (double)s->codec_wait_ns * 1e-3));
}

/* ---------------------------------------------------------------- flows and counters */

static mm_status put_link(scene *s, const mm_timeline_flow *flow, int i) {
    const int32_t piece = s->plan->links[flow->first + i];
    const char *phase = i == 0 ? "s" : i < flow->n - 1 ? "t" : "f";
    json_t *event = json_pack("{ss ss ss sI si si sf s{sI si}}", "ph", phase, "cat", "map", "name", "map", "id",
                              (json_int_t)s->w->flows, "pid", s->pid, "tid",
                              thread_of_stream(s->pid, s->plan->pieces[piece].stream), "ts",
                              us_since_origin(s->w, s->spans[piece].start_ns), "args", "iteration",
                              (json_int_t)s->number, "tensor_id", (int)flow->tensor);
    /* "bp": "e": binds to the slice around it */
    return put(s->w, whole(event, json_object_set_new(event, "bp", json_string("e"))));
}

static mm_status put_flows(scene *s) {
    for (int f = 0; f < s->plan->n_flows; f++) {
        const mm_timeline_flow *flow = &s->plan->flows[f];
        bool whole = true;
        for (int i = 0; i < flow->n; i++) whole &= is_known(s, s->plan->links[flow->first + i]);
        if (!whole) continue;
        s->w->flows++;
        for (int i = 0; i < flow->n; i++) MM_TRY(put_link(s, flow, i));
    }
    return MM_OK;
}

static mm_status put_memory(scene *s) {
    for (int i = 0; i < s->plan->n_steps; i++) {
        const mm_timeline_step *step = &s->plan->steps[i];
        if (!is_known(s, step->piece)) continue;
        json_t *bytes = json_object();
        int set = 0;
        for (int k = 0; k < MM_ACCOUNT_KINDS; k++)
            set |= json_object_set_new(bytes, mm_account_kind_name((mm_account_kind)k), json_integer(step->bytes[k]));
        MM_TRY(put(s->w, json_pack("{ss ss si sf so}", "ph", "C", "name", "device memory", "pid", s->pid, "ts",
                                   us_since_origin(s->w, s->spans[step->piece].start_ns), "args", whole(bytes, set))));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- replans */

static mm_status put_replan(writer *w, const mm_timeline_replan *r, int pid) {
    return put(w, json_pack("{ss ss ss ss si si sf s{ss sf sf sf sf}}", "ph", "i", "s", "p", "name", "replan", "cat",
                            "replan", "pid", pid, "tid", thread_of(pid, 0), "ts", us_since_origin(w, r->at_ns), "args",
                            "graph", r->graph, "measured_us", (double)r->measured_ns * 1e-3, "planned_us",
                            (double)r->planned_ns * 1e-3, "left_us", (double)r->left_ns * 1e-3, "new_us",
                            (double)r->new_ns * 1e-3));
}

/* ---------------------------------------------------------------- all */

static mm_status put_timeline(writer *w, const mm_timeline *t, int pid) {
    MM_TRY(put_names(w, t, pid));
    for (int i = 0; i < t->n_plans; i++) MM_TRY(put_plan(w, &t->plans[i], pid));
    for (int64_t i = 0; i < t->n_iterations; i++) {
        const mm_timeline_iteration *it = mm_timeline_iteration_at(t, i);
        scene s = {w, &t->plans[it->plan], t->spans + it->first, it->number, pid, it->codec_wait_ns};
        MM_TRY(put_iteration(&s));
        MM_TRY(put_memory(&s));
        MM_TRY(put_pieces(&s));
        MM_TRY(put_sums(&s));
        MM_TRY(put_flows(&s));
    }
    for (int i = 0; i < t->n_replans; i++) MM_TRY(put_replan(w, &t->replans[i], pid));
    return MM_OK;
}

static int64_t earliest(const writer *w) {
    int64_t ns = INT64_MAX;
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->timelines[i]->n_replans; k++)
            if (w->timelines[i]->replans[k].at_ns < ns) ns = w->timelines[i]->replans[k].at_ns;
    for (int i = 0; i < w->n; i++)
        for (int64_t k = 0; k < w->timelines[i]->n_spans; k++) {
            const mm_period *span = &w->timelines[i]->spans[k];
            if (mm_period_is_known(span) && span->start_ns < ns) ns = span->start_ns;
        }
    return ns == INT64_MAX ? 0 : ns;
}

/* An mm_file_writer. */
static mm_status put_all(const void *ctx, FILE *file) {
    writer w = *(const writer *)ctx;
    int64_t dropped = 0;
    w.file = file;
    fputs("{\"traceEvents\":[", file);
    for (int i = 0; i < w.n; i++) {
        MM_TRY(put_timeline(&w, w.timelines[i], 1 + i));
        dropped += mm_timeline_dropped(w.timelines[i]);
    }
    fprintf(file, "\n],\n\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"mm\":\"%s\",\"dropped\":%lld}}\n", MM_VERSION,
            (long long)dropped);
    return MM_OK;
}

mm_status mm_timelines_write(mm_timeline *const *timelines, int n, const char *path) {
    writer w = {.timelines = timelines, .n = n};
    w.origin_ns = earliest(&w);
    return mm_atomic_file_print(path, put_all, &w);
}
