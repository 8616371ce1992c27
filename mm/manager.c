/* The manager: the only one that knows all parts. It owns the device, the arena and the dispatcher, has graphs planned
 * and checked, and passes an iteration's calls to the dispatcher after checking their order. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffers/pool.h"
#include "mm/coverage.h"
#include "mm/persistent.h"
#include "mm/planning.h"
#include "pipeline/dispatch.h"

/* A prepared graph. */
typedef struct record {
    const mm_graph *graph;
    mm_planned planned;
    mm_program *program;
    void **fixed; /* per tensor: where a persistent or external one lies; NULL for managed ones */
} record;

struct mm_manager {
    mm_options options;
    mm_device *device;
    mm_pool *pool;
    mm_dispatch *dispatch;
    mm_policy policy;
    mm_directory directory;
    record *records;
    int n_records;
    mm_coverage coverage; /* of every plan that has run: where bytes may be touched */
    record *running;      /* of the iteration under way, or NULL */
    int step;             /* next step, or the one begun */
    bool in_step;
    int64_t began_ns;
    pthread_mutex_t lock; /* of the figures below, which any thread may ask for */
    int64_t iterations, predicted_peak_bytes, stash_bytes;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void notify(mm_manager *m, mm_event_kind kind, const char *name, int64_t bytes, int64_t ns) {
    mm_event_info info = {.kind = kind, .name = name, .bytes = bytes, .ns = ns};
    if (m->options.event_fn) m->options.event_fn(m->options.event_ctx, &info);
}

static mm_status check_idle(const mm_manager *m, const char *what) {
    if (!m) return mm_fail(MM_ERR_INVALID, "%s: no manager given", what);
    if (m->running)
        return mm_fail(MM_ERR_ORDER, "%s: an iteration of %s is under way; end or abort it first", what,
                       mm_graph_name(m->running->graph));
    return MM_OK;
}

/* ---------------------------------------------------------------- graphs */

static void record_fini(record *r) {
    mm_program_destroy(r->program);
    mm_planned_fini(&r->planned);
    free(r->fixed);
}

static void find_fixed(const mm_manager *m, record *r, const record *before) {
    for (int t = 0; t < mm_graph_tensors(r->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->graph, t);
        if (tensor->ownership == MM_PERSISTENT) {
            const mm_persistent *entry = mm_directory_find(&m->directory, tensor->name);
            r->fixed[t] = (uint8_t *)mm_pool_base(m->pool) + entry->offset;
        } else if (tensor->ownership == MM_EXTERNAL && before)
            r->fixed[t] = before->fixed[t];
    }
}

/* Plans a graph under a policy with the directory as it is now. `before`: its record until now, or NULL. */
static mm_status record_init(mm_manager *m, const mm_policy *policy, const mm_graph *graph, const record *before,
                             record *r) {
    mm_limits limits = {.device_bytes = m->options.device_bytes,
                        .pinned_bytes = m->options.pinned_bytes,
                        .base_bytes = m->directory.bytes};
    *r = (record){.graph = graph, .fixed = calloc((size_t)mm_graph_tensors(graph) + 1, sizeof *r->fixed)};
    mm_status status = r->fixed ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the graph %s", mm_graph_name(graph));
    if (status == MM_OK) status = mm_planned_init(&r->planned, policy, graph, m->options.device);
    if (status == MM_OK) status = mm_planned_make(&r->planned, policy, graph, &limits);
    if (status == MM_OK) status = mm_plan_fits(r->planned.plan, &limits);
    if (status == MM_OK)
        status = mm_program_create(m->dispatch, r->planned.plan, r->planned.facts, r->planned.codecs, &r->program);
    if (status == MM_OK)
        find_fixed(m, r, before);
    else
        record_fini(r);
    return status;
}

/* New records of every prepared graph, and of `added` unless NULL, in place of the old ones: all or none. */
static mm_status replan(mm_manager *m, const mm_policy *policy, const mm_graph *added) {
    int n = m->n_records + (added != NULL);
    record *records = malloc(((size_t)n + 1) * sizeof *records);
    if (!records) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", n);
    mm_status status = MM_OK;
    int made = 0;
    for (; status == MM_OK && made < n; made++) {
        const record *before = made < m->n_records ? &m->records[made] : NULL;
        status = record_init(m, policy, before ? before->graph : added, before, &records[made]);
        if (status != MM_OK) break;
    }
    record *dropped = status == MM_OK ? m->records : records;
    int n_dropped = status == MM_OK ? m->n_records : made;
    for (int i = 0; i < n_dropped; i++) record_fini(&dropped[i]);
    free(dropped);
    if (status != MM_OK) return status;
    m->records = records;
    m->n_records = n;
    for (int i = 0; i < n; i++)
        notify(m, MM_EVENT_PLAN, mm_graph_name(records[i].graph), records[i].planned.plan->peak_bytes, 0);
    return MM_OK;
}

static record *find_record(const mm_manager *m, const mm_graph *graph) {
    for (int i = 0; i < m->n_records; i++)
        if (m->records[i].graph == graph) return &m->records[i];
    return NULL;
}

/* Adds one graph; the others keep their plans. */
static mm_status add_record(mm_manager *m, const mm_graph *graph) {
    record added;
    MM_TRY(record_init(m, &m->policy, graph, NULL, &added));
    record *records = realloc(m->records, ((size_t)m->n_records + 1) * sizeof *records);
    if (!records) {
        record_fini(&added);
        return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", m->n_records + 1);
    }
    m->records = records;
    m->records[m->n_records++] = added;
    notify(m, MM_EVENT_PLAN, mm_graph_name(graph), added.planned.plan->peak_bytes, 0);
    return MM_OK;
}

static mm_status zero(mm_manager *m, int64_t begin, int64_t end) {
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    MM_TRY(mm_fill_async(stream, (uint8_t *)mm_pool_base(m->pool) + begin, 0, end - begin));
    return mm_stream_sync(stream);
}

mm_status mm_manager_prepare(mm_manager *m, const mm_graph *graph) {
    MM_TRY(check_idle(m, "mm_manager_prepare"));
    if (!graph || !mm_graph_frozen(graph))
        return mm_fail(MM_ERR_ORDER, "mm_manager_prepare: the graph is not frozen (mm_graph_freeze)");
    if (find_record(m, graph)) return MM_OK;
    int entries = m->directory.n;
    int64_t base = m->directory.bytes;
    mm_status status = mm_directory_add(&m->directory, graph);
    /* Plans lie above the persistent tensors: when those grow, every plan moves up. */
    bool moved = m->directory.bytes != base && m->n_records > 0;
    if (status == MM_OK) status = moved ? replan(m, &m->policy, graph) : add_record(m, graph);
    if (status != MM_OK) {
        mm_directory_cut(&m->directory, entries);
        return status;
    }
    return m->directory.bytes > base ? zero(m, base, m->directory.bytes) : MM_OK;
}

mm_status mm_manager_forget(mm_manager *m, const mm_graph *graph) {
    MM_TRY(check_idle(m, "mm_manager_forget"));
    record *r = find_record(m, graph);
    if (!r) return mm_fail(MM_ERR_NOT_FOUND, "mm_manager_forget: the graph was not prepared");
    record_fini(r);
    *r = m->records[--m->n_records];
    return MM_OK;
}

mm_status mm_policy_set(mm_manager *m, const char *spec) {
    MM_TRY(check_idle(m, "mm_policy_set"));
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    MM_TRY(replan(m, &policy, NULL));
    m->policy = policy;
    notify(m, MM_EVENT_POLICY, m->policy.spec, 0, 0);
    return MM_OK;
}

mm_status mm_external_set(mm_manager *m, const mm_graph *graph, mm_tensor tensor, void *data) {
    MM_TRY(check_idle(m, "mm_external_set"));
    MM_TRY(mm_manager_prepare(m, graph));
    if (tensor < 0 || tensor >= mm_graph_tensors(graph) || mm_graph_tensor(graph, tensor)->ownership != MM_EXTERNAL)
        return mm_fail(MM_ERR_INVALID, "mm_external_set: tensor %d of %s is not external", tensor,
                       mm_graph_name(graph));
    find_record(m, graph)->fixed[tensor] = data;
    return MM_OK;
}

void *mm_persistent_data(mm_manager *m, const char *name, size_t *bytes_out) {
    const mm_persistent *entry = mm_directory_find(&m->directory, name);
    if (!entry) return NULL;
    if (bytes_out) *bytes_out = (size_t)entry->bytes;
    return (uint8_t *)mm_pool_base(m->pool) + entry->offset;
}

/* ---------------------------------------------------------------- iterations */

mm_stream *mm_compute_stream(mm_manager *m) { return mm_dispatch_compute(m->dispatch); }

/* Remembers where the plan may write, for mm_touched_get. */
static mm_status cover(mm_manager *m, const mm_plan *plan) {
    mm_range *ranges = malloc(((size_t)plan->n_segments + 2) * sizeof *ranges);
    if (!ranges) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's ranges");
    size_t n = 0;
    ranges[n++] = (mm_range){0, plan->base_bytes};
    ranges[n++] = (mm_range){plan->heap_offset, plan->heap_offset + plan->heap_bytes};
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (!s->dynamic && !s->pinned) ranges[n++] = (mm_range){s->offset, s->offset + mm_align(s->bytes)};
    }
    mm_status status = mm_coverage_add(&m->coverage, ranges, n);
    free(ranges);
    return status;
}

mm_status mm_iteration_begin(mm_manager *m, const mm_graph *graph) {
    MM_TRY(check_idle(m, "mm_iteration_begin"));
    MM_TRY(mm_manager_prepare(m, graph));
    record *r = find_record(m, graph);
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_EXTERNAL && !r->fixed[t])
            return mm_fail(MM_ERR_ORDER, "mm_iteration_begin: external tensor %s of %s has no memory (mm_external_set)",
                           mm_graph_tensor(graph, t)->name, mm_graph_name(graph));
    const mm_plan *plan = r->planned.plan;
    if (m->options.measure_touched) MM_TRY(cover(m, plan));
    MM_TRY(mm_dispatch_begin(m->dispatch, r->program));
    m->running = r;
    m->step = 0;
    m->in_step = false;
    m->began_ns = now_ns();
    pthread_mutex_lock(&m->lock);
    if (plan->peak_bytes > m->predicted_peak_bytes) m->predicted_peak_bytes = plan->peak_bytes;
    m->stash_bytes = plan->stash_bytes;
    pthread_mutex_unlock(&m->lock);
    notify(m, MM_EVENT_ITERATION_BEGIN, mm_graph_name(graph), plan->peak_bytes, 0);
    return MM_OK;
}

mm_status mm_iteration_end(mm_manager *m) {
    if (!m || !m->running) return mm_fail(MM_ERR_ORDER, "mm_iteration_end: no iteration is under way");
    const mm_graph *graph = m->running->graph;
    if (m->in_step || m->step != mm_graph_steps(graph)) {
        char name[256];
        mm_graph_step_name(graph, m->step, name, sizeof name);
        return mm_fail(MM_ERR_ORDER, "mm_iteration_end: %s of %s has not %s", name, mm_graph_name(graph),
                       m->in_step ? "ended" : "been run");
    }
    m->running = NULL;
    MM_TRY(mm_dispatch_end(m->dispatch));
    pthread_mutex_lock(&m->lock);
    m->iterations++;
    pthread_mutex_unlock(&m->lock);
    notify(m, MM_EVENT_ITERATION_END, mm_graph_name(graph), 0, now_ns() - m->began_ns);
    return MM_OK;
}

void mm_iteration_abort(mm_manager *m) {
    if (!m || !m->running) return;
    const mm_graph *graph = m->running->graph;
    m->running = NULL;
    m->in_step = false;
    mm_dispatch_abort(m->dispatch);
    notify(m, MM_EVENT_ABORT, mm_graph_name(graph), 0, now_ns() - m->began_ns);
}

static mm_status out_of_order(const mm_manager *m, const char *call, mm_layer layer, mm_phase phase) {
    const mm_graph *graph = m->running->graph;
    char expected[256] = "mm_iteration_end";
    if (m->step < mm_graph_steps(graph)) mm_graph_step_name(graph, m->step, expected, sizeof expected);
    const char *name = layer >= 0 && layer < mm_graph_layers(graph) ? mm_graph_layer(graph, layer)->name : "unknown";
    return mm_fail(MM_ERR_ORDER, "%s(%s %s) is out of order: %s of %s is %s", call, name, mm_phase_name(phase),
                   expected, mm_graph_name(graph), m->in_step ? "under way" : "next");
}

static bool is_current(const mm_manager *m, mm_layer layer, mm_phase phase) {
    const mm_graph *graph = m->running->graph;
    if (m->step >= mm_graph_steps(graph)) return false;
    const mm_step_info *step = mm_graph_step(graph, m->step);
    return step->layer == layer && step->phase == phase;
}

mm_status mm_layer_begin(mm_manager *m, mm_layer layer, mm_phase phase, mm_stream *stream) {
    if (!m || !m->running) return mm_fail(MM_ERR_ORDER, "mm_layer_begin: no iteration is under way");
    if (m->in_step || !is_current(m, layer, phase)) return out_of_order(m, "mm_layer_begin", layer, phase);
    int64_t waited_ns;
    MM_TRY(mm_dispatch_step_begin(m->dispatch, mm_program_node(m->running->program, m->step), stream, &waited_ns));
    if (waited_ns > 0) notify(m, MM_EVENT_WAIT, mm_graph_layer(m->running->graph, layer)->name, 0, waited_ns);
    m->in_step = true;
    return MM_OK;
}

mm_status mm_layer_end(mm_manager *m, mm_layer layer, mm_phase phase) {
    if (!m || !m->running) return mm_fail(MM_ERR_ORDER, "mm_layer_end: no iteration is under way");
    if (!m->in_step || !is_current(m, layer, phase)) return out_of_order(m, "mm_layer_end", layer, phase);
    MM_TRY(mm_dispatch_step_end(m->dispatch, mm_program_node(m->running->program, m->step)));
    m->in_step = false;
    m->step++;
    return MM_OK;
}

/* The segment of the current step's use of a tensor; -1 if it has none. */
static int current_segment(const mm_manager *m, mm_tensor tensor) {
    const mm_plan *plan = m->running->planned.plan;
    const mm_step_info *step = mm_graph_step(m->running->graph, m->step);
    const mm_node *node = &plan->nodes[mm_program_node(m->running->program, m->step)];
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor) return plan->bindings[node->first_binding + u];
    return -1;
}

void *mm_tensor_data(mm_manager *m, mm_tensor tensor) {
    if (!m || !m->running || tensor < 0 || tensor >= mm_graph_tensors(m->running->graph)) return NULL;
    if (mm_graph_tensor(m->running->graph, tensor)->ownership != MM_MANAGED) return m->running->fixed[tensor];
    if (!m->in_step) return NULL;
    int segment = current_segment(m, tensor);
    return segment < 0 ? NULL : mm_dispatch_address(m->dispatch, segment);
}

mm_form mm_tensor_form(mm_manager *m, mm_tensor tensor) {
    if (!m || !m->running || !m->in_step) return MM_FORM_VALUE;
    int segment = current_segment(m, tensor);
    if (segment < 0) return MM_FORM_VALUE;
    return m->running->planned.plan->segments[segment].content == MM_CONTENT_CODED ? MM_FORM_SIGN : MM_FORM_VALUE;
}

void *mm_workspace_data(mm_manager *m) {
    if (!m || !m->running || !m->in_step) return NULL;
    const mm_plan *plan = m->running->planned.plan;
    int segment = plan->nodes[mm_program_node(m->running->program, m->step)].work;
    return segment < 0 ? NULL : mm_dispatch_address(m->dispatch, segment);
}

int mm_current_step(const mm_manager *m) { return m && m->running && m->in_step ? m->step : -1; }

int64_t mm_manager_device_bytes(const mm_manager *m) { return m->options.device_bytes; }

/* ---------------------------------------------------------------- life */

static mm_status check_options(const mm_options *o) {
    if (!o) return mm_fail(MM_ERR_INVALID, "mm_manager_create: no options given");
    if (o->device_bytes <= 0)
        return mm_fail(MM_ERR_INVALID, "mm_manager_create: device_bytes is %lld; give the budget in bytes",
                       (long long)o->device_bytes);
    if (o->pinned_bytes < 0)
        return mm_fail(MM_ERR_INVALID, "mm_manager_create: pinned_bytes is %lld", (long long)o->pinned_bytes);
    return MM_OK;
}

static mm_status open_parts(mm_manager *m) {
    mm_options *o = &m->options;
    MM_TRY(mm_policy_parse(o->policy ? o->policy : "liveness", &m->policy));
    mm_device_config config = {
        .alloc_cost_ns = o->alloc_cost_ns, .delay_seed = o->delay_seed, .delay_max_ns = o->delay_max_ns};
    MM_TRY(mm_device_create(o->device ? o->device : "host", &config, &m->device));
    o->device = m->device->ops->name;
    o->policy = NULL; /* the caller's string; m->policy has it */
    MM_TRY(mm_pool_create(m->device, MM_MEMORY_DEVICE, o->device_bytes, &m->pool));
    if (o->measure_touched) MM_TRY(mm_pool_pattern_fill(m->pool, 0, o->device_bytes));
    mm_dispatch_config dispatch = {
        .device = m->device, .pool = m->pool, .issue = o->issue, .self_check = o->self_check};
    return mm_dispatch_create(&dispatch, &m->dispatch);
}

mm_status mm_manager_create(const mm_options *options, mm_manager **manager_out) {
    MM_TRY(check_options(options));
    mm_manager *m = calloc(1, sizeof *m);
    if (!m) return mm_fail(MM_ERR_NOMEM, "out of memory for a manager");
    m->options = *options;
    pthread_mutex_init(&m->lock, NULL);
    mm_status status = open_parts(m);
    if (status != MM_OK) {
        mm_manager_destroy(m);
        return status;
    }
    char size[32];
    mm_log_send(&m->options.log, MM_LOG_INFO, "arena of %s on %s, policy %s",
                mm_size_format(options->device_bytes, size, sizeof size), m->options.device, m->policy.spec);
    *manager_out = m;
    return MM_OK;
}

void mm_manager_destroy(mm_manager *m) {
    if (!m) return;
    mm_iteration_abort(m);
    for (int i = 0; i < m->n_records; i++) record_fini(&m->records[i]);
    free(m->records);
    mm_dispatch_destroy(m->dispatch);
    mm_pool_destroy(m->pool);
    mm_device_destroy(m->device);
    mm_directory_fini(&m->directory);
    mm_coverage_fini(&m->coverage);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---------------------------------------------------------------- figures */

void mm_stats_get(mm_manager *m, mm_stats *stats_out) {
    mm_dispatch_stats d;
    mm_memory_info memory;
    mm_dispatch_stats_get(m->dispatch, &d);
    mm_device_memory_info(m->device, &memory);
    const mm_stream_stats *s = d.stream;
    pthread_mutex_lock(&m->lock);
    *stats_out = (mm_stats){
        .iterations = m->iterations,
        .predicted_peak_bytes = m->predicted_peak_bytes,
        .persistent_bytes = m->directory.bytes,
        .stash_bytes = m->stash_bytes,
        .outside_bytes = memory.outside_bytes,
        .compute_busy_ns = s[MM_STREAM_COMPUTE].busy_ns,
        .compute_wait_ns = s[MM_STREAM_COMPUTE].wait_ns + d.host_wait_ns,
        .codec_busy_ns = s[MM_STREAM_ENCODE].busy_ns + s[MM_STREAM_DECODE].busy_ns,
        .encodes = d.encodes,
        .decodes = d.decodes,
        .encoded_bytes = d.encoded_bytes,
        .coded_bytes = d.coded_bytes,
        .nonfinite_blocks = d.nonfinite_blocks,
        .unplanned_allocs = d.unplanned_allocs,
        .host_waits = d.host_waits,
    };
    pthread_mutex_unlock(&m->lock);
}

mm_status mm_touched_get(mm_manager *m, mm_touched *touched_out) {
    MM_TRY(check_idle(m, "mm_touched_get"));
    if (!m->options.measure_touched)
        return mm_fail(MM_ERR_ORDER, "mm_touched_get: the manager was created without measure_touched");
    mm_touched touched = {0};
    int64_t covered = 0;
    MM_TRY(mm_pool_pattern_count(m->pool, 0, m->options.device_bytes, &touched.total_bytes));
    MM_TRY(mm_pool_pattern_count(m->pool, 0, m->directory.bytes, &touched.persistent_bytes));
    for (size_t i = 0; i < m->coverage.n; i++) {
        const mm_range *r = &m->coverage.ranges[i];
        int64_t bytes;
        MM_TRY(mm_pool_pattern_count(m->pool, r->begin, r->end - r->begin, &bytes));
        covered += bytes;
    }
    touched.stray_bytes = touched.total_bytes - covered;
    *touched_out = touched;
    return MM_OK;
}

const char *mm_policy_list(size_t i, const char **summary_out) {
    const mm_policy_ops *ops = mm_policy_table(i);
    if (ops && summary_out) *summary_out = ops->summary;
    return ops ? ops->name : NULL;
}

const char *mm_codec_list(size_t i, const char **summary_out) {
    const mm_codec_ops *ops = mm_codec_table(i);
    if (ops && summary_out) *summary_out = ops->summary;
    return ops ? ops->name : NULL;
}

const char *mm_device_list(size_t i, const char **summary_out) {
    const mm_device_ops *ops = mm_device_table(i);
    if (ops && summary_out) *summary_out = ops->summary;
    return ops ? ops->name : NULL;
}
