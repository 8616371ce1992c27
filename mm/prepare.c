/* The manager's graphs: planned, proved and made ready to run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/manager.h"

mm_limits mm_manager_limits(const mm_manager *m) {
    return (mm_limits){.device_bytes = mm_manager_limit_bytes(m),
                       .pinned_bytes = mm_pool_bytes(m->staging),
                       .base_bytes = m->directory.bytes};
}

/* ---------------------------------------------------------------- records */

void mm_record_fini(mm_record *r) {
    mm_execution_destroy(r->execution);
    mm_planned_fini(&r->planned);
    free(r->fixed);
}

static void find_fixed(const mm_manager *m, mm_record *r, const mm_record *before) {
    for (int t = 0; t < mm_graph_tensors(r->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->graph, t);
        if (tensor->ownership == MM_PERSISTENT) {
            const mm_persistent *entry = mm_directory_find(&m->directory, tensor->name);
            r->fixed[t] = (uint8_t *)mm_pool_base(m->pool) + entry->offset;
        } else if (tensor->ownership == MM_EXTERNAL && before->fixed)
            r->fixed[t] = before->fixed[t];
    }
}

int mm_record_unable(const mm_record *r) {
    const mm_plan *plan = r->planned.plan;
    for (int i = 0; !r->recompute && i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) return plan->nodes[i].step;
    return -1;
}

static bool has_backward(const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if (mm_graph_step(graph, s)->phase == MM_BACKWARD) return true;
    return false;
}

/* Measured times, if there are any of this graph. */
static mm_status take_facts(const mm_manager *m, mm_record *r) {
    if (!m->options.facts) return MM_OK;
    mm_status status = mm_facts_apply(m->options.facts, r->graph, MM_FACTS_TIMES, r->planned.facts);
    if (status != MM_ERR_FORMAT) return status;
    if (!r->told_untimed)
        mm_log_send(&m->options.log, has_backward(r->graph) ? MM_LOG_WARNING : MM_LOG_INFO,
                    "%s is planned without measured times: %s", mm_graph_name(r->graph), mm_last_error());
    r->told_untimed = true;
    return MM_OK;
}

static mm_status make_plan(const mm_manager *m, mm_attempt *a, mm_record *r) {
    mm_limits limits = mm_manager_limits(m);
    MM_TRY(mm_planned_init(&r->planned, &a->policy, r->graph, m->options.device));
    MM_TRY(take_facts(m, r));
    mm_planned_tell(&r->planned, &m->rates);
    if (a->least_workspaces) mm_facts_put_least_workspace_first(r->planned.facts);
    MM_TRY(mm_planned_make(&r->planned, &a->policy, r->graph, &limits));
    const mm_plan *plan = r->planned.plan;
    if (plan->peak_bytes > a->need_bytes) a->need_bytes = plan->peak_bytes;
    MM_TRY(mm_plan_fits(plan, &limits));
    if (a->stands_in && mm_record_unable(r) >= 0)
        return mm_fail(MM_ERR_INFEASIBLE, "%s recomputes steps of %s, and nobody said how", MM_BRIEF(plan->policy),
                       mm_graph_name(r->graph));
    return mm_execution_create(m->dispatch, r->planned.program, r->planned.facts, r->planned.codecs, &r->execution);
}

/* Plans a graph with the directory as it is now. `before`: its record until now, or what is known of a new graph. */
static mm_status record_init(const mm_manager *m, mm_attempt *a, const mm_record *before, mm_record *r) {
    *r = (mm_record){.graph = before->graph,
                     .recompute = before->recompute,
                     .recompute_ctx = before->recompute_ctx,
                     .told_untimed = before->told_untimed};
    r->fixed = calloc((size_t)mm_graph_tensors(r->graph) + 1, sizeof *r->fixed);
    mm_status status = r->fixed ? make_plan(m, a, r)
                                : mm_fail(MM_ERR_NOMEM, "out of memory for the graph %s", mm_graph_name(r->graph));
    if (status == MM_ERR_INFEASIBLE) a->refused = before;
    if (status == MM_OK)
        find_fixed(m, r, before);
    else
        mm_record_fini(r);
    return status;
}

/* Clears the places of new persistent tensors. It may fail, so it comes before anything else is changed. */
static mm_status zero_added(mm_manager *m) {
    int64_t base = m->persistent_bytes;
    if (m->directory.bytes <= base) return MM_OK;
    if (m->options.measure_touched) MM_TRY(mm_pool_pattern_extend(m->pool, m->directory.bytes));
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    MM_TRY(mm_fill_async(stream, (uint8_t *)mm_pool_base(m->pool) + base, 0, m->directory.bytes - base));
    mm_status status = mm_stream_sync(stream);
    if (status != MM_OK) mm_stream_reset(stream);
    return status;
}

mm_status mm_manager_try(mm_manager *m, mm_attempt *a, const mm_record *added) {
    int n = m->n_records + (added != NULL);
    mm_record *records = malloc(((size_t)n + 1) * sizeof *records);
    if (!records) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", n);
    mm_status status = MM_OK;
    int made = 0;
    for (; status == MM_OK && made < n; made++) {
        status = record_init(m, a, made < m->n_records ? &m->records[made] : added, &records[made]);
        if (status != MM_OK) break;
    }
    if (status == MM_OK) status = zero_added(m);
    mm_record *dropped = status == MM_OK ? m->records : records;
    int n_dropped = status == MM_OK ? m->n_records : made;
    for (int i = 0; i < n_dropped; i++) mm_record_fini(&dropped[i]);
    free(dropped);
    if (status != MM_OK) return status;
    m->records = records;
    m->n_records = n;
    for (int i = 0; i < n; i++)
        mm_manager_notify(m, MM_EVENT_PLAN, mm_graph_name(records[i].graph), records[i].planned.plan->peak_bytes, 0);
    return MM_OK;
}

/* ---------------------------------------------------------------- graphs */

mm_record *mm_manager_find(const mm_manager *m, const mm_graph *graph) {
    for (int i = 0; i < m->n_records; i++)
        if (m->records[i].graph == graph) return &m->records[i];
    return NULL;
}

/* What is run now, to be tried again. The caller ends its policy. */
static mm_status attempt_now(const mm_manager *m, mm_attempt *a) {
    *a = (mm_attempt){.least_workspaces = m->least_workspaces,
                      .stands_in = !mm_policy_equal(&m->policy_now, &m->policy)};
    return mm_policy_copy(&m->policy_now, &a->policy);
}

/* Adds one graph; the others keep their plans. */
static mm_status add_record(mm_manager *m, mm_attempt *a, const mm_record *known) {
    mm_record added;
    mm_record *records = realloc(m->records, ((size_t)m->n_records + 1) * sizeof *records);
    if (!records) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", m->n_records + 1);
    m->records = records;
    mm_status status = record_init(m, a, known, &added);
    if (status == MM_ERR_INFEASIBLE && !mm_manager_is_short(m)) return mm_manager_advise(m, a, false);
    MM_TRY(status);
    status = zero_added(m);
    if (status != MM_OK) {
        mm_record_fini(&added);
        return status;
    }
    m->records[m->n_records++] = added;
    mm_manager_notify(m, MM_EVENT_PLAN, mm_graph_name(known->graph), added.planned.plan->peak_bytes, 0);
    return MM_OK;
}

static mm_status add_graph(mm_manager *m, const mm_record *added, bool moved) {
    mm_status status = MM_OK;
    if (!moved) {
        mm_attempt a;
        MM_TRY(attempt_now(m, &a));
        status = add_record(m, &a, added);
        mm_policy_fini(&a.policy);
    }
    if (!moved && (status != MM_ERR_INFEASIBLE || !mm_manager_is_short(m))) return status;
    char why[MM_MESSAGE_CAPACITY];
    snprintf(why, sizeof why, "%s is added", mm_graph_name(added->graph));
    return mm_manager_replan(m, &m->policy, added, why);
}

static void count_persistents(mm_manager *m) {
    pthread_mutex_lock(&m->lock);
    m->persistent_bytes = m->directory.bytes;
    pthread_mutex_unlock(&m->lock);
}

/* What was added to the directory since stays if it could be made room for. */
static mm_status keep_or_cut(mm_manager *m, int entries, mm_status status) {
    if (status == MM_OK)
        count_persistents(m);
    else
        mm_directory_cut(&m->directory, entries);
    return status;
}

static mm_status prepare(mm_manager *m, const mm_record *added) {
    int entries = m->directory.n;
    int64_t base = m->directory.bytes;
    mm_status status = mm_directory_add(&m->directory, added->graph);
    /* Plans lie above the persistent tensors: when those grow, every plan moves up. */
    bool moved = m->directory.bytes != base && m->n_records > 0;
    if (status == MM_OK) status = add_graph(m, added, moved);
    if (status == MM_OK) mm_directory_declare(&m->directory, added->graph);
    return keep_or_cut(m, entries, status);
}

/* Plans what is prepared around a directory of another size, by what is run now. */
static mm_status plan_around(mm_manager *m) {
    mm_attempt a;
    if (m->directory.bytes > mm_manager_limit_bytes(m))
        return mm_fail(MM_ERR_INFEASIBLE, "persistent tensors need %s, the budget is %s",
                       MM_SIZE_TOLD(m->directory.bytes), MM_SIZE_TOLD(mm_manager_limit_bytes(m)));
    MM_TRY(attempt_now(m, &a));
    mm_status status = mm_manager_try(m, &a, NULL);
    mm_policy_fini(&a.policy);
    return status;
}

mm_status mm_persistent_add(mm_manager *m, const char *name, int64_t bytes) {
    MM_TRY(mm_manager_settle(m, "mm_persistent_add"));
    if (!name) return mm_fail(MM_ERR_INVALID, "mm_persistent_add: a persistent tensor needs a name");
    if (bytes <= 0)
        return mm_fail(MM_ERR_INVALID, "mm_persistent_add: %s has %lld bytes: must be at least 1", name,
                       (long long)bytes);
    if (mm_directory_find(&m->directory, name))
        return mm_fail(MM_ERR_INVALID, "mm_persistent_add: %s is there already: choose another name", name);
    int entries = m->directory.n;
    mm_status status = mm_directory_append(&m->directory, name, bytes);
    if (status == MM_OK) status = plan_around(m);
    return keep_or_cut(m, entries, status);
}

static mm_status check_removable(const mm_manager *m, const char *name) {
    const mm_directory *d = &m->directory;
    const mm_persistent *entry = name ? mm_directory_find(d, name) : NULL;
    if (!entry)
        return mm_fail(MM_ERR_NOT_FOUND, "mm_persistent_remove: there is no persistent tensor %s", name ? name : "");
    if (entry->declared)
        return mm_fail(MM_ERR_INVALID, "mm_persistent_remove: %s is a graph's, and stays for the manager's life", name);
    if (entry != &d->entries[d->n - 1])
        return mm_fail(MM_ERR_ORDER, "mm_persistent_remove: %s lies behind %s and never moves",
                       d->entries[d->n - 1].name, name);
    return MM_OK;
}

mm_status mm_persistent_remove(mm_manager *m, const char *name) {
    MM_TRY(mm_manager_settle(m, "mm_persistent_remove"));
    MM_TRY(check_removable(m, name));
    int64_t before = m->directory.bytes;
    /* What was touched of it was no stray. */
    if (m->options.measure_touched) MM_TRY(mm_coverage_add(&m->coverage, &(mm_range){0, before}, 1));
    m->directory.bytes = m->directory.entries[m->directory.n - 1].offset;
    mm_status status = plan_around(m);
    if (status == MM_OK) {
        mm_directory_cut(&m->directory, m->directory.n - 1);
        count_persistents(m);
    } else
        m->directory.bytes = before;
    return status;
}

static mm_status check_frozen(const mm_graph *graph) {
    if (graph && mm_graph_frozen(graph)) return MM_OK;
    return mm_fail(MM_ERR_ORDER, "mm_manager_prepare: the graph is not frozen (mm_graph_freeze)");
}

mm_status mm_manager_prepare(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_prepare"));
    MM_TRY(check_frozen(graph));
    if (mm_manager_find(m, graph)) return MM_OK;
    MM_TRY(mm_manager_settle(m, "mm_manager_prepare"));
    return prepare(m, &(mm_record){.graph = graph});
}

mm_status mm_recompute_set(mm_manager *m, const mm_graph *graph, mm_recompute_fn fn, void *ctx) {
    MM_TRY(mm_manager_settle(m, "mm_recompute_set"));
    MM_TRY(check_frozen(graph));
    mm_record *r = mm_manager_find(m, graph);
    if (!r) return prepare(m, &(mm_record){.graph = graph, .recompute = fn, .recompute_ctx = ctx});
    mm_execution_unrecord(r->execution);
    r->recompute = fn;
    r->recompute_ctx = ctx;
    return MM_OK;
}

mm_status mm_manager_forget(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_forget"));
    mm_record *r = mm_manager_find(m, graph);
    if (!r) return mm_fail(MM_ERR_NOT_FOUND, "mm_manager_forget: the graph was not prepared");
    mm_status settled = mm_manager_settle(m, "mm_manager_forget");
    (void)settled; /* who forgets a graph does not ask what became of its iterations */
    r = mm_manager_find(m, graph);
    mm_record_fini(r);
    *r = m->records[--m->n_records];
    return MM_OK;
}
