/* SPDX-License-Identifier: MIT */
#include "tests/core/trace_check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct slice {
    int64_t start, end, order;
    int pid, tid, iteration;
    const char *category;
    const json_t *event;
} slice;

typedef struct link {
    int64_t id, ts;
    char phase;
    int pid, tid;
} link;

typedef struct thread {
    int pid, tid, stream; /* stream: -1: of the iterations; MM_STREAM_COUNT: of sums in place */
} thread;

typedef struct checker {
    trace_checked *out;
    const json_t *rows;
    thread threads[TRACE_PROCESSES * (2 + MM_STREAM_COUNT)];
    int n_threads;
    slice *slices;
    link *links;
    size_t n_slices, n_links;
} checker;

static bool bad(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("trace: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

static const char *text(const json_t *event, const char *key) {
    const char *value = json_string_value(json_object_get(event, key));
    return value ? value : "";
}

static int number(const json_t *event, const char *key) { return (int)json_integer_value(json_object_get(event, key)); }

static int64_t ns(const json_t *event, const char *key) {
    const json_t *value = json_object_get(event, key);
    return json_is_number(value) ? llround(json_number_value(value) * 1000) : -1;
}

/* ---------------------------------------------------------------- names */

static trace_process *process_of(checker *c, int pid) {
    return pid >= 1 && pid <= c->out->n ? &c->out->process[pid - 1] : NULL;
}

static const thread *thread_of(const checker *c, int pid, int tid) {
    for (int i = 0; i < c->n_threads; i++)
        if (c->threads[i].pid == pid && c->threads[i].tid == tid) return &c->threads[i];
    return NULL;
}

static bool add_thread(checker *c, const json_t *event, const char *name) {
    thread t = {number(event, "pid"), number(event, "tid"), -2};
    if (strcmp(name, "iterations") == 0) t.stream = -1;
    if (strcmp(name, "sums") == 0) t.stream = MM_STREAM_COUNT;
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (strcmp(name, mm_stream_id_name((mm_stream_id)s)) == 0) t.stream = s;
    for (int i = 0; i < c->n_threads; i++)
        if (c->threads[i].tid == t.tid) return bad("thread %d is named twice", t.tid);
    if (t.stream == -2) return bad("a thread is called %s", name);
    c->threads[c->n_threads++] = t;
    return true;
}

/* The memory of a plan. */
static bool read_memory(checker *c, const json_t *event) {
    static const char *const arrays[] = {"nodes", "segments", "maps"};
    const json_t *args = json_object_get(event, "args");
    trace_process *process = process_of(c, number(event, "pid"));
    if (!process || !thread_of(c, number(event, "pid"), number(event, "tid"))) return bad("a memory of no process");
    if (!*text(args, "policy") || !*text(args, "graph")) return bad("a memory of no plan");
    for (int i = 0; i < 3; i++)
        if (!json_is_array(json_object_get(args, arrays[i]))) return bad("a memory without %s", arrays[i]);
    process->memories++;
    return true;
}

/* Where the times of a process are from, and whether a code is lossy. */
static bool read_labels(checker *c, const json_t *event) {
    const json_t *args = json_object_get(event, "args");
    const char *times = text(args, "times"), *machine = text(args, "machine"), *labels = text(args, "labels");
    trace_process *process = process_of(c, number(event, "pid"));
    if (!process || (strcmp(times, "measured") != 0 && strcmp(times, "predicted") != 0) || !*machine)
        return bad("labels that do not say whether and where times were measured");
    if (!json_is_boolean(json_object_get(args, "lossy"))) return bad("labels that do not say what is lossy");
    const bool lossy = json_is_true(json_object_get(args, "lossy"));
    if (!strstr(labels, times) || !strstr(labels, machine) || (strstr(labels, "lossy") != NULL) != lossy)
        return bad("labels for people, '%s', that do not say the same", labels);
    process->labels++;
    return true;
}

static bool read_name(checker *c, const json_t *event) {
    const char *name = text(json_object_get(event, "args"), "name"), *what = text(event, "name");
    if (strcmp(what, "memory") == 0) return read_memory(c, event);
    if (strcmp(what, "process_labels") == 0) return read_labels(c, event);
    if (strcmp(what, "process_sort_index") == 0 || strcmp(what, "thread_sort_index") == 0)
        return json_is_integer(json_object_get(json_object_get(event, "args"), "sort_index")) || bad("no %s", what);
    if (!*name) return bad("%s without a name", what);
    if (strcmp(what, "thread_name") == 0) return add_thread(c, event, name);
    if (strcmp(what, "process_name") != 0) return bad("metadata %s", what);
    if (c->out->n == TRACE_PROCESSES || number(event, "pid") != c->out->n + 1) return bad("process %s", name);
    snprintf(c->out->process[c->out->n++].name, sizeof c->out->process[0].name, "%s", name);
    return true;
}

/* ---------------------------------------------------------------- events */

static bool read_slice(checker *c, const json_t *event) {
    const json_t *args = json_object_get(event, "args");
    slice s = {.start = ns(event, "ts"),
               .pid = number(event, "pid"),
               .tid = number(event, "tid"),
               .order = (int64_t)c->n_slices,
               .iteration = number(args, "iteration"),
               .category = text(event, "cat"),
               .event = event};
    s.end = s.start + ns(event, "dur");
    if (s.start < 0 || s.end < s.start || !*text(event, "name")) return bad("a slice at %lld", (long long)s.start);
    if (!thread_of(c, s.pid, s.tid)) return bad("%s is of thread %d, which has no name", text(event, "name"), s.tid);
    if (s.iteration < 1) return bad("%s is of no iteration", text(event, "name"));
    if (strcmp(s.category, "iteration") == 0 && (ns(args, "codec_wait_us") < 0 || ns(args, "codec_busy_us") < 0))
        return bad("an iteration without times of codecs");
    c->slices[c->n_slices++] = s;
    return true;
}

static bool read_link(checker *c, const json_t *event) {
    const json_t *id = json_object_get(event, "id");
    if (!json_is_integer(id) || ns(event, "ts") < 0) return bad("a flow without id or time");
    c->links[c->n_links++] =
        (link){json_integer_value(id), ns(event, "ts"), *text(event, "ph"), number(event, "pid"), number(event, "tid")};
    return true;
}

/* Reads a counter event: the k-th one of a process is that of step k % (number of steps). */
static bool read_counter(checker *c, const json_t *event) {
    trace_process *process = process_of(c, number(event, "pid"));
    const char *kind;
    json_t *bytes;
    if (!process || ns(event, "ts") < 0 || strcmp(text(event, "name"), "device memory") != 0)
        return bad("a counter %s", text(event, "name"));
    const json_t *timeline = json_object_get(json_array_get(c->rows, (size_t)(process - c->out->process)), "timeline");
    if (c->rows && json_object_size(timeline) != json_object_size(json_object_get(event, "args")))
        return bad("%s: counters of %zu kinds", process->name, json_object_size(json_object_get(event, "args")));
    json_object_foreach(json_object_get(event, "args"), kind, bytes) {
        const json_t *wanted = json_object_get(timeline, kind);
        if (!json_is_integer(bytes) || json_integer_value(bytes) < 0) return bad("%s is no number of bytes", kind);
        if (!c->rows) continue;
        const size_t step = (size_t)process->counters % (json_array_size(wanted) ? json_array_size(wanted) : 1);
        if (json_integer_value(json_array_get(wanted, step)) != json_integer_value(bytes))
            return bad("%s: %s at step %zu are %lld bytes, but %lld by the plan", process->name, kind, step,
                       (long long)json_integer_value(bytes),
                       (long long)json_integer_value(json_array_get(wanted, step)));
    }
    process->counters++;
    return true;
}

/* Reads the event of a policy that planned again: it has a time, the graph, and the times that the policy compared. */
static bool read_replan(checker *c, const json_t *event) {
    static const char *const times[] = {"measured_us", "planned_us", "left_us", "new_us"};
    const json_t *args = json_object_get(event, "args");
    if (ns(event, "ts") < 0 || strcmp(text(event, "name"), "replan") != 0 || strcmp(text(event, "s"), "p") != 0)
        return bad("an instant event %s", text(event, "name"));
    if (!thread_of(c, number(event, "pid"), number(event, "tid"))) return bad("a replan of a thread without a name");
    for (int i = 0; i < 4; i++)
        if (ns(args, times[i]) <= 0) return bad("a replan without %s", times[i]);
    if (!*text(args, "graph")) return bad("a replan of no graph");
    process_of(c, number(event, "pid"))->replans++;
    return true;
}

static bool read_event(checker *c, const json_t *event) {
    const char *phase = text(event, "ph");
    if (!process_of(c, number(event, "pid")) && *phase != 'M') return bad("an event of no process");
    switch (*phase) {
    case 'M':
        return read_name(c, event);
    case 'X':
        return read_slice(c, event);
    case 'C':
        return read_counter(c, event);
    case 'i':
        return read_replan(c, event);
    case 's':
    case 't':
    case 'f':
        return read_link(c, event);
    default:
        return bad("an event of phase %s", phase);
    }
}

/* ---------------------------------------------------------------- slices */

/* Order of slices: by thread, then by start, then the longer first. */
static int by_thread(const void *left, const void *right) {
    const slice *a = left, *b = right;
    if (a->tid != b->tid) return a->tid < b->tid ? -1 : 1;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

static void add_slice(checker *c, const slice *s, int stream) {
    trace_process *process = process_of(c, s->pid);
    const bool waits = strcmp(s->category, "wait") == 0;
    process->slices++;
    process->waits += waits;
    if (stream < 0) {
        process->iterations++;
        process->iterations_ns += s->end - s->start;
    } else if (stream == MM_STREAM_COUNT) {
        process->sums++;
        process->sums_ns += s->end - s->start;
    } else
        (waits ? process->wait_ns : process->busy_ns)[stream] += s->end - s->start;
}

static bool check_slices(checker *c) {
    qsort(c->slices, c->n_slices, sizeof *c->slices, by_thread);
    for (size_t i = 0; i < c->n_slices; i++) {
        const slice *s = &c->slices[i], *before = i > 0 ? s - 1 : s;
        if (i > 0 && before->tid == s->tid && before->end > s->start)
            return bad("%s begins at %lld, before %s ends at %lld", text(s->event, "name"), (long long)s->start,
                       text(before->event, "name"), (long long)before->end);
        add_slice(c, s, thread_of(c, s->pid, s->tid)->stream);
    }
    return true;
}

/* Each iteration has the steps 0 to the last, in order; and as many counters. */
static bool check_steps(const checker *c) {
    int counters[TRACE_PROCESSES] = {0};
    for (size_t i = 0; i < c->n_slices; i++) {
        const slice *s = &c->slices[i];
        if (strcmp(s->category, "step") != 0) continue;
        counters[s->pid - 1]++;
        const int step = number(json_object_get(s->event, "args"), "step");
        int before = -1;
        for (size_t k = i;
             before < 0 && k-- > 0 && c->slices[k].tid == s->tid && c->slices[k].iteration == s->iteration;)
            if (strcmp(c->slices[k].category, "step") == 0)
                before = number(json_object_get(c->slices[k].event, "args"), "step");
        if (step != before + 1) return bad("step %d comes after %d in iteration %d", step, before, s->iteration);
    }
    for (int p = 0; p < c->out->n; p++)
        if (counters[p] != c->out->process[p].counters)
            return bad("%s: %d steps, %d counters", c->out->process[p].name, counters[p], c->out->process[p].counters);
    return true;
}

/* ---------------------------------------------------------------- flows */

static int by_flow(const void *left, const void *right) {
    const link *a = left, *b = right;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    if (a->ts != b->ts) return a->ts < b->ts ? -1 : 1;
    return (strchr("stf", a->phase) > strchr("stf", b->phase)) - (strchr("stf", a->phase) < strchr("stf", b->phase));
}

/* The slice that begins there and is no wait; NULL: none does. */
static const slice *slice_at(const checker *c, const link *l) {
    size_t low = 0, high = c->n_slices;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const slice *s = &c->slices[middle];
        if (s->tid < l->tid || (s->tid == l->tid && s->start < l->ts))
            low = middle + 1;
        else
            high = middle;
    }
    for (const slice *s = c->slices + low; s < c->slices + c->n_slices && s->tid == l->tid && s->start == l->ts; s++)
        if (strcmp(s->category, "wait") != 0) return s;
    return NULL;
}

static bool is_step(const slice *s) {
    return strcmp(s->category, "step") == 0 || strcmp(s->category, "recompute") == 0;
}

static bool check_flows(checker *c) {
    qsort(c->links, c->n_links, sizeof *c->links, by_flow);
    for (size_t i = 0; i < c->n_links; i++) {
        const link *l = &c->links[i];
        const bool first = i == 0 || l[-1].id != l->id, last = i + 1 == c->n_links || l[1].id != l->id;
        const slice *s = slice_at(c, l);
        if (!s) return bad("flow %lld: at %lld there is no slice", (long long)l->id, (long long)l->ts);
        if (first != (l->phase == 's') || last != (l->phase == 'f'))
            return bad("flow %lld: phase %c at %s", (long long)l->id, l->phase, text(s->event, "name"));
        if (last != is_step(s)) return bad("flow %lld: %c at %s", (long long)l->id, l->phase, text(s->event, "name"));
        process_of(c, l->pid)->flows += last;
    }
    return true;
}

/* ---------------------------------------------------------------- all */

static bool check_all(checker *c, const json_t *root) {
    const json_t *events = json_object_get(root, "traceEvents"), *other = json_object_get(root, "otherData");
    const json_t *event;
    size_t i;
    if (!json_is_array(events)) return bad("no traceEvents");
    if (strcmp(text(other, "mm"), MM_VERSION) != 0 || !json_is_integer(json_object_get(other, "dropped")))
        return bad("otherData without mm and dropped");
    c->out->dropped = json_integer_value(json_object_get(other, "dropped"));
    c->slices = calloc(json_array_size(events) + 1, sizeof *c->slices);
    c->links = calloc(json_array_size(events) + 1, sizeof *c->links);
    if (!c->slices || !c->links) return bad("out of memory");
    json_array_foreach(events, i, event) {
        if (!read_event(c, event)) return false;
    }
    if (c->rows && json_array_size(c->rows) != (size_t)c->out->n) return bad("%d processes", c->out->n);
    for (int p = 0; p < c->out->n; p++)
        if (c->out->process[p].labels != 1) return bad("process %d has %d labels", p + 1, c->out->process[p].labels);
    return check_slices(c) && check_steps(c) && check_flows(c);
}

bool trace_check(const char *path, const json_t *rows, trace_checked *checked_out) {
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) return bad("%s, line %d: %s", path, error.line, error.text);
    memset(checked_out, 0, sizeof *checked_out);
    checker *c = calloc(1, sizeof *c);
    bool good = c != NULL;
    if (good) {
        c->out = checked_out;
        c->rows = rows;
        good = check_all(c, root);
        free(c->slices);
        free(c->links);
    }
    free(c);
    json_decref(root);
    return good;
}
