/* The manager: the only one that knows all parts. It owns the device, the arena and the dispatcher, and has graphs
 * planned and checked. */
#include "mm/manager.h"

#include <stdlib.h>
#include <string.h>

#include "mm/advice.h"

void mm_manager_notify(mm_manager *m, mm_event_kind kind, const char *name, int64_t bytes, int64_t ns) {
    mm_event_info info = {.kind = kind, .name = name, .bytes = bytes, .ns = ns};
    if (m->options.event_fn) m->options.event_fn(m->options.event_ctx, &info);
}

mm_status mm_manager_check_idle(const mm_manager *m, const char *what) {
    if (!m) return mm_fail(MM_ERR_INVALID, "%s: no manager given", what);
    if (m->running)
        return mm_fail(MM_ERR_ORDER, "%s: an iteration of %s is under way; end or abort it first", what,
                       mm_graph_name(m->running->graph));
    return MM_OK;
}

/* ---------------------------------------------------------------- graphs */

static void record_fini(mm_record *r) {
    mm_program_destroy(r->program);
    mm_planned_fini(&r->planned);
    free(r->fixed);
}

static void find_fixed(const mm_manager *m, mm_record *r, const mm_record *before) {
    for (int t = 0; t < mm_graph_tensors(r->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->graph, t);
        if (tensor->ownership == MM_PERSISTENT) {
            const mm_persistent *entry = mm_directory_find(&m->directory, tensor->name);
            r->fixed[t] = (uint8_t *)mm_pool_base(m->pool) + entry->offset;
        } else if (tensor->ownership == MM_EXTERNAL && before)
            r->fixed[t] = before->fixed[t];
    }
    if (!before) return;
    r->recompute = before->recompute;
    r->recompute_ctx = before->recompute_ctx;
}

/* Plans a graph under a policy with the directory as it is now. `before`: its record until now, or NULL. */
static mm_status record_init(mm_manager *m, const mm_policy *policy, const mm_graph *graph, const mm_record *before,
                             mm_record *r) {
    mm_limits limits = {
        .device_bytes = m->budget_bytes, .pinned_bytes = m->options.pinned_bytes, .base_bytes = m->directory.bytes};
    *r = (mm_record){.graph = graph, .fixed = calloc((size_t)mm_graph_tensors(graph) + 1, sizeof *r->fixed)};
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
    if (status == MM_ERR_INFEASIBLE) status = mm_advise(graph, m->options.device, &limits);
    return status;
}

/* Clears the places of new persistent tensors. It may fail, so it comes before anything else is changed. */
static mm_status zero_added(mm_manager *m) {
    int64_t base = m->persistent_bytes;
    if (m->directory.bytes == base) return MM_OK;
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    MM_TRY(mm_fill_async(stream, (uint8_t *)mm_pool_base(m->pool) + base, 0, m->directory.bytes - base));
    mm_status status = mm_stream_sync(stream);
    if (status != MM_OK) mm_stream_reset(stream);
    return status;
}

/* New records of every prepared graph, and of `added` unless NULL, in place of the old ones: all or none. */
static mm_status replan(mm_manager *m, const mm_policy *policy, const mm_graph *added) {
    int n = m->n_records + (added != NULL);
    mm_record *records = malloc(((size_t)n + 1) * sizeof *records);
    if (!records) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", n);
    mm_status status = MM_OK;
    int made = 0;
    for (; status == MM_OK && made < n; made++) {
        const mm_record *before = made < m->n_records ? &m->records[made] : NULL;
        status = record_init(m, policy, before ? before->graph : added, before, &records[made]);
        if (status != MM_OK) break;
    }
    if (status == MM_OK) status = zero_added(m);
    mm_record *dropped = status == MM_OK ? m->records : records;
    int n_dropped = status == MM_OK ? m->n_records : made;
    for (int i = 0; i < n_dropped; i++) record_fini(&dropped[i]);
    free(dropped);
    if (status != MM_OK) return status;
    m->records = records;
    m->n_records = n;
    for (int i = 0; i < n; i++)
        mm_manager_notify(m, MM_EVENT_PLAN, mm_graph_name(records[i].graph), records[i].planned.plan->peak_bytes, 0);
    return MM_OK;
}

mm_record *mm_manager_find(const mm_manager *m, const mm_graph *graph) {
    for (int i = 0; i < m->n_records; i++)
        if (m->records[i].graph == graph) return &m->records[i];
    return NULL;
}

/* Adds one graph; the others keep their plans. */
static mm_status add_record(mm_manager *m, const mm_graph *graph) {
    mm_record added;
    mm_record *records = realloc(m->records, ((size_t)m->n_records + 1) * sizeof *records);
    if (!records) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", m->n_records + 1);
    m->records = records;
    MM_TRY(record_init(m, &m->policy, graph, NULL, &added));
    mm_status status = zero_added(m);
    if (status != MM_OK) {
        record_fini(&added);
        return status;
    }
    m->records[m->n_records++] = added;
    mm_manager_notify(m, MM_EVENT_PLAN, mm_graph_name(graph), added.planned.plan->peak_bytes, 0);
    return MM_OK;
}

mm_status mm_manager_prepare(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_prepare"));
    if (!graph || !mm_graph_frozen(graph))
        return mm_fail(MM_ERR_ORDER, "mm_manager_prepare: the graph is not frozen (mm_graph_freeze)");
    if (mm_manager_find(m, graph)) return MM_OK;
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
    pthread_mutex_lock(&m->lock);
    m->persistent_bytes = m->directory.bytes;
    pthread_mutex_unlock(&m->lock);
    return MM_OK;
}

mm_status mm_manager_forget(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_forget"));
    mm_record *r = mm_manager_find(m, graph);
    if (!r) return mm_fail(MM_ERR_NOT_FOUND, "mm_manager_forget: the graph was not prepared");
    record_fini(r);
    *r = m->records[--m->n_records];
    return MM_OK;
}

mm_status mm_policy_set(mm_manager *m, const char *spec) {
    MM_TRY(mm_manager_check_idle(m, "mm_policy_set"));
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    MM_TRY(mm_planned_try_codecs(&policy, m->options.device));
    MM_TRY(replan(m, &policy, NULL));
    m->policy = policy;
    mm_manager_notify(m, MM_EVENT_POLICY, m->policy.spec, 0, 0);
    return MM_OK;
}

static void put_budget(mm_manager *m, int64_t bytes) {
    pthread_mutex_lock(&m->lock);
    m->budget_bytes = bytes;
    pthread_mutex_unlock(&m->lock);
}

mm_status mm_budget_set(mm_manager *m, int64_t device_bytes) {
    MM_TRY(mm_manager_check_idle(m, "mm_budget_set"));
    if (device_bytes <= 0 || device_bytes > m->options.device_bytes)
        return mm_fail(MM_ERR_INVALID, "mm_budget_set: %lld bytes are not between 1 and the %lld that were reserved",
                       (long long)device_bytes, (long long)m->options.device_bytes);
    int64_t before = m->budget_bytes;
    put_budget(m, device_bytes);
    mm_status status = replan(m, &m->policy, NULL);
    if (status != MM_OK) {
        put_budget(m, before);
        return status;
    }
    /* The pattern that tells touched bytes would go with the memory. */
    if (device_bytes < before && !m->options.measure_touched) mm_pool_trim(m->pool, device_bytes);
    return MM_OK;
}

int64_t mm_manager_device_bytes(mm_manager *m) {
    pthread_mutex_lock(&m->lock);
    int64_t bytes = m->budget_bytes;
    pthread_mutex_unlock(&m->lock);
    return bytes;
}

mm_status mm_external_set(mm_manager *m, const mm_graph *graph, mm_tensor tensor, void *data) {
    MM_TRY(mm_manager_check_idle(m, "mm_external_set"));
    MM_TRY(mm_manager_prepare(m, graph));
    if (tensor < 0 || tensor >= mm_graph_tensors(graph) || mm_graph_tensor(graph, tensor)->ownership != MM_EXTERNAL)
        return mm_fail(MM_ERR_INVALID, "mm_external_set: tensor %d of %s is not external", tensor,
                       mm_graph_name(graph));
    mm_manager_find(m, graph)->fixed[tensor] = data;
    return MM_OK;
}

mm_status mm_recompute_set(mm_manager *m, const mm_graph *graph, mm_recompute_fn fn, void *ctx) {
    MM_TRY(mm_manager_check_idle(m, "mm_recompute_set"));
    MM_TRY(mm_manager_prepare(m, graph));
    mm_record *r = mm_manager_find(m, graph);
    r->recompute = fn;
    r->recompute_ctx = ctx;
    return MM_OK;
}

void *mm_persistent_data(mm_manager *m, const char *name, size_t *bytes_out) {
    const mm_persistent *entry = mm_directory_find(&m->directory, name);
    if (!entry) return NULL;
    if (bytes_out) *bytes_out = (size_t)entry->bytes;
    return (uint8_t *)mm_pool_base(m->pool) + entry->offset;
}

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
    mm_device_config config = {.link_out_bytes_per_s = o->link_bytes_per_s,
                               .link_in_bytes_per_s = o->link_bytes_per_s,
                               .alloc_cost_ns = o->alloc_cost_ns,
                               .delay_seed = o->delay_seed,
                               .delay_max_ns = o->delay_max_ns};
    MM_TRY(mm_device_create(o->device ? o->device : "host", &config, &m->device));
    o->device = m->device->ops->name;
    o->policy = NULL; /* the caller's string; m->policy has it */
    MM_TRY(mm_planned_try_codecs(&m->policy, o->device));
    MM_TRY(mm_pool_create(m->device, MM_MEMORY_DEVICE, o->device_bytes, &m->pool));
    MM_TRY(mm_pool_create(m->device, MM_MEMORY_PINNED, o->pinned_bytes, &m->staging));
    if (o->measure_touched) MM_TRY(mm_pool_pattern_fill(m->pool, 0, o->device_bytes));
    mm_dispatch_config dispatch = {.device = m->device,
                                   .pool = m->pool,
                                   .staging = m->staging,
                                   .issue = o->issue,
                                   .self_check = o->self_check,
                                   .measure_times = o->measure_times};
    return mm_dispatch_create(&dispatch, &m->dispatch);
}

mm_status mm_manager_create(const mm_options *options, mm_manager **manager_out) {
    MM_TRY(check_options(options));
    mm_manager *m = calloc(1, sizeof *m);
    if (!m) return mm_fail(MM_ERR_NOMEM, "out of memory for a manager");
    m->options = *options;
    m->budget_bytes = options->device_bytes;
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
    mm_pool_destroy(m->staging);
    mm_pool_destroy(m->pool);
    mm_device_destroy(m->device);
    mm_directory_fini(&m->directory);
    mm_coverage_fini(&m->coverage);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
