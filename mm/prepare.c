/* The manager's graphs: planned, proved and made ready to run; down the ladder where memory is short. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/advice.h"
#include "mm/ladder.h"
#include "mm/manager.h"

enum { MESSAGE = 512 };

/* A policy to be tried on the graphs. */
typedef struct attempt {
    mm_policy policy;
    bool least_workspaces;
    bool stands_in; /* for the policy that was set */
    /* filled in */
    int64_t need_bytes;      /* what the largest of its plans takes */
    const mm_graph *refused; /* the graph whose plan does not fit */
} attempt;

static mm_limits limits_of(const mm_manager *m) {
    return (mm_limits){.device_bytes = mm_manager_limit_bytes(m),
                       .pinned_bytes = mm_pool_bytes(m->staging),
                       .base_bytes = m->directory.bytes};
}

/* Whether there is less than was asked for. */
static bool is_short(const mm_manager *m) {
    if (m->options.no_ladder) return false;
    return mm_manager_limit_bytes(m) < m->options.device_bytes || mm_pool_bytes(m->staging) < m->options.pinned_bytes;
}

/* ---------------------------------------------------------------- records */

void mm_record_fini(mm_record *r) {
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
        } else if (tensor->ownership == MM_EXTERNAL && before->fixed)
            r->fixed[t] = before->fixed[t];
    }
}

/* What stands in for a policy must not need somebody to run steps again where there is nobody. */
static mm_status check_recompute(const mm_record *r) {
    const mm_plan *plan = r->planned.plan;
    for (int i = 0; !r->recompute && i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE)
            return mm_fail(MM_ERR_INFEASIBLE, "%s recomputes steps of %s, and nobody said how", plan->policy,
                           mm_graph_name(plan->graph));
    return MM_OK;
}

static mm_status make_plan(const mm_manager *m, attempt *a, mm_record *r) {
    mm_limits limits = limits_of(m);
    MM_TRY(mm_planned_init(&r->planned, &a->policy, r->graph, m->options.device));
    if (a->least_workspaces) mm_facts_put_least_workspace_first(r->planned.facts);
    MM_TRY(mm_planned_make(&r->planned, &a->policy, r->graph, &limits));
    const mm_plan *plan = r->planned.plan;
    if (plan->peak_bytes > a->need_bytes) a->need_bytes = plan->peak_bytes;
    MM_TRY(mm_plan_fits(plan, &limits));
    if (a->stands_in) MM_TRY(check_recompute(r));
    return mm_program_create(m->dispatch, plan, r->planned.facts, r->planned.codecs, &r->program);
}

/* Plans a graph with the directory as it is now. `before`: its record until now, or what is known of a new graph. */
static mm_status record_init(const mm_manager *m, attempt *a, const mm_record *before, mm_record *r) {
    *r = (mm_record){.graph = before->graph, .recompute = before->recompute, .recompute_ctx = before->recompute_ctx};
    r->fixed = calloc((size_t)mm_graph_tensors(r->graph) + 1, sizeof *r->fixed);
    mm_status status = r->fixed ? make_plan(m, a, r)
                                : mm_fail(MM_ERR_NOMEM, "out of memory for the graph %s", mm_graph_name(r->graph));
    if (status == MM_ERR_INFEASIBLE) a->refused = r->graph;
    if (status == MM_OK)
        find_fixed(m, r, before);
    else
        mm_record_fini(r);
    return status;
}

/* Says what would fit in place of an attempt that does not. */
static mm_status advise(const mm_manager *m, const attempt *a) {
    mm_limits limits = limits_of(m);
    return mm_advise(a->refused, m->options.device, &limits);
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
static mm_status plan_all(mm_manager *m, attempt *a, const mm_record *added) {
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

/* ---------------------------------------------------------------- down the ladder, and up again */

/* What is run from now on is what was tried, for the policy that is wanted. */
static void take_up(mm_manager *m, const attempt *a, const mm_policy *wanted, const char *step, const char *why) {
    bool new_policy = strcmp(m->policy.spec, wanted->spec) != 0;
    bool other = strcmp(m->policy_now, a->policy.spec) != 0 || m->least_workspaces != a->least_workspaces;
    strcpy(m->policy_now, a->policy.spec);
    m->least_workspaces = a->least_workspaces;
    if (!new_policy && !other) return;
    char need[32], have[32], message[MESSAGE];
    if (!a->stands_in) {
        if (!new_policy) mm_log_send(&m->options.log, MM_LOG_WARNING, "%s fits again", wanted->spec);
        return;
    }
    snprintf(message, sizeof message, "%s; %s: %s instead of %s needs %s of %s", why, step, a->policy.spec,
             wanted->spec, mm_size_format(a->need_bytes, need, sizeof need),
             mm_size_format(mm_manager_limit_bytes(m), have, sizeof have));
    mm_manager_step_down(m, a->policy.spec, mm_manager_limit_bytes(m), message);
}

static bool allows_less_workspace(const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++)
        if (mm_graph_step(graph, s)->n_less > 0) return true;
    return false;
}

/* Whether the ladder's step of smaller workspaces changes anything. */
static bool has_smaller_workspaces(const mm_manager *m, const mm_record *added) {
    bool any = added && allows_less_workspace(added->graph);
    for (int i = 0; i < m->n_records && !any; i++) any = allows_less_workspace(m->records[i].graph);
    return any;
}

/* The first of a policy's ladder that fits, for all graphs. `own`: the policy itself, which does not. */
static mm_status descend(mm_manager *m, const attempt *own, const mm_record *added, const char *why) {
    mm_rung rungs[MM_LADDER_MAX];
    char refusal[MESSAGE], least[MM_POLICY_SPEC];
    int64_t least_bytes = own->need_bytes;
    snprintf(refusal, sizeof refusal, "%s", mm_last_error());
    strcpy(least, own->policy.spec);
    int n = mm_ladder_list(&own->policy, rungs);
    for (int i = has_smaller_workspaces(m, added) ? 0 : 1; i < n; i++) {
        attempt a = {.least_workspaces = rungs[i].least_workspaces, .stands_in = true};
        MM_TRY(mm_policy_parse(rungs[i].spec, &a.policy));
        mm_status status = plan_all(m, &a, added);
        if (status == MM_OK) {
            take_up(m, &a, &own->policy, rungs[i].step, why);
            return MM_OK;
        }
        if (status != MM_ERR_INFEASIBLE) return status;
        if (a.need_bytes >= least_bytes) continue;
        least_bytes = a.need_bytes;
        strcpy(least, rungs[i].spec);
    }
    mm_fail_set("%s; of all that could stand in for it, %s needs least: %lld bytes", refusal, least,
                (long long)least_bytes);
    return advise(m, own);
}

/* The policy for all graphs, or what may stand in for it. */
static mm_status replan(mm_manager *m, const mm_policy *wanted, const mm_record *added, const char *why) {
    attempt a = {.policy = *wanted};
    mm_status status = plan_all(m, &a, added);
    if (status == MM_OK) take_up(m, &a, wanted, NULL, NULL);
    if (status != MM_ERR_INFEASIBLE) return status;
    return is_short(m) ? descend(m, &a, added, why) : advise(m, &a);
}

mm_status mm_manager_replan(mm_manager *m, const mm_policy *policy, const char *why) {
    return replan(m, policy, NULL, why);
}

void mm_manager_run_out(mm_manager *m) {
    const mm_graph *graph = m->largest;
    const mm_record *r = graph ? mm_manager_find(m, graph) : NULL;
    if (m->options.no_ladder || !r) return;
    char reason[MESSAGE], why[2 * MESSAGE];
    snprintf(reason, sizeof reason, "%s", mm_last_error());
    snprintf(why, sizeof why, "in an iteration of %s, %s", mm_graph_name(graph), reason);
    /* By a part that is worth it for whoever else needs the memory. */
    enum { PART = 32 };
    int64_t peak = r->planned.plan->peak_bytes;
    int64_t ceiling = m->ceiling_bytes, steps = m->ladder_steps;
    m->ceiling_bytes = peak - peak / PART - 1;
    if (replan(m, &m->policy, NULL, why) != MM_OK) {
        m->ceiling_bytes = ceiling;
        mm_log_send(&m->options.log, MM_LOG_ERROR, "memory ran out, and nothing does with less: %s", mm_last_error());
    } else {
        if (m->ladder_steps == steps) mm_manager_step_down(m, m->policy_now, mm_manager_limit_bytes(m), why);
        mm_manager_trim(m);
    }
    mm_fail_set("%s", reason);
}

/* ---------------------------------------------------------------- graphs */

mm_record *mm_manager_find(const mm_manager *m, const mm_graph *graph) {
    for (int i = 0; i < m->n_records; i++)
        if (m->records[i].graph == graph) return &m->records[i];
    return NULL;
}

/* Adds one graph; the others keep their plans. */
static mm_status add_record(mm_manager *m, const mm_record *known) {
    mm_record added;
    attempt a = {.least_workspaces = m->least_workspaces, .stands_in = strcmp(m->policy_now, m->policy.spec) != 0};
    mm_record *records = realloc(m->records, ((size_t)m->n_records + 1) * sizeof *records);
    if (!records) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", m->n_records + 1);
    m->records = records;
    MM_TRY(mm_policy_parse(m->policy_now, &a.policy));
    mm_status status = record_init(m, &a, known, &added);
    if (status == MM_ERR_INFEASIBLE && !is_short(m)) return advise(m, &a);
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
    mm_status status = moved ? MM_OK : add_record(m, added);
    if (!moved && (status != MM_ERR_INFEASIBLE || !is_short(m))) return status;
    char why[MESSAGE];
    snprintf(why, sizeof why, "%s is added", mm_graph_name(added->graph));
    return replan(m, &m->policy, added, why);
}

static mm_status prepare(mm_manager *m, const mm_record *added) {
    int entries = m->directory.n;
    int64_t base = m->directory.bytes;
    mm_status status = mm_directory_add(&m->directory, added->graph);
    /* Plans lie above the persistent tensors: when those grow, every plan moves up. */
    bool moved = m->directory.bytes != base && m->n_records > 0;
    if (status == MM_OK) status = add_graph(m, added, moved);
    if (status != MM_OK) {
        mm_directory_cut(&m->directory, entries);
        return status;
    }
    pthread_mutex_lock(&m->lock);
    m->persistent_bytes = m->directory.bytes;
    pthread_mutex_unlock(&m->lock);
    return MM_OK;
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
    mm_program_unrecord(r->program);
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
