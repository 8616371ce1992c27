/* Graphs and persistent tensors are prepared, changed and forgotten. */
#include "mm/adopt.h"
#include "mm/states.h"

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

static mm_status prepare(mm_manager *m, const mm_newcomer *added) {
    int entries = m->directory.n;
    int64_t base = m->directory.bytes;
    mm_status status = mm_directory_add(&m->directory, added->graph);
    /* Plans lie above the persistent tensors: when those grow, every plan moves up. */
    bool moved = m->directory.bytes != base && m->n_ready > 0;
    if (status == MM_OK) status = mm_manager_add(m, added, !moved);
    if (status == MM_OK) mm_directory_declare(&m->directory, added->graph);
    return keep_or_cut(m, entries, status);
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
    if (status == MM_OK) status = mm_manager_plan_around(m);
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
    mm_status status = mm_manager_plan_around(m);
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
    return prepare(m, &(mm_newcomer){.graph = graph});
}

mm_status mm_recompute_set(mm_manager *m, const mm_graph *graph, mm_recompute_fn fn, void *ctx) {
    MM_TRY(mm_manager_settle(m, "mm_recompute_set"));
    MM_TRY(check_frozen(graph));
    if (!mm_manager_find(m, graph)) MM_TRY(prepare(m, &(mm_newcomer){.graph = graph, .recomputes = fn != NULL}));
    mm_ready *r = mm_manager_find(m, graph);
    mm_execution_unrecord(r->execution);
    r->prepared->recomputes = fn != NULL;
    r->recompute = fn;
    r->recompute_ctx = ctx;
    return MM_OK;
}

mm_status mm_manager_forget(mm_manager *m, const mm_graph *graph) {
    MM_TRY(mm_manager_check_idle(m, "mm_manager_forget"));
    mm_ready *r = mm_manager_find(m, graph);
    if (!r) return mm_fail(MM_ERR_NOT_FOUND, "mm_manager_forget: the graph was not prepared");
    mm_status settled = mm_manager_settle(m, "mm_manager_forget");
    (void)settled; /* who forgets a graph does not ask what became of its iterations */
    r = mm_manager_find(m, graph);
    mm_ready_fini(r);
    *r = m->ready[--m->n_ready];
    mm_plan_set_forget(&m->plans, graph);
    return MM_OK;
}

mm_status mm_external_set(mm_manager *m, const mm_graph *graph, mm_tensor tensor, void *data) {
    MM_TRY(mm_manager_settle(m, "mm_external_set"));
    MM_TRY(mm_manager_prepare(m, graph));
    if (tensor < 0 || tensor >= mm_graph_tensors(graph) || mm_graph_tensor(graph, tensor)->ownership != MM_EXTERNAL)
        return mm_fail(MM_ERR_INVALID, "mm_external_set: tensor %d of %s is not external", tensor,
                       mm_graph_name(graph));
    mm_ready *r = mm_manager_find(m, graph);
    mm_execution_unrecord(r->execution);
    r->fixed[tensor] = data;
    return MM_OK;
}

void *mm_persistent_data(mm_manager *m, const char *name, size_t *bytes_out) {
    const mm_persistent *entry = m ? mm_directory_find(&m->directory, name) : NULL;
    if (!entry) return NULL;
    if (bytes_out) *bytes_out = (size_t)entry->bytes;
    return (uint8_t *)mm_pool_base(m->pool) + entry->offset;
}
