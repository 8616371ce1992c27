/* SPDX-License-Identifier: MIT */
#include "mm/core/timeline/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mm/core/plan/plan_allreduce.h"
#include "mm/core/status.h"

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for a timeline"); }

/* ---------------------------------------------------------------- life */

/* Maps the buffer. The buffer is not on the C heap, because growth of the heap counts as memory of libraries
 * (mm_stats.outside_bytes). */
static mm_status map_buffer(mm_timeline *t, int64_t bytes) {
    bytes = bytes / (int64_t)sizeof(mm_timeline_iteration) * (int64_t)sizeof(mm_timeline_iteration);
    if (bytes == 0) return MM_OK;
    void *buffer =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (buffer == MAP_FAILED)
        return mm_fail(MM_ERR_NOMEM, "out of memory for a timeline of %lld bytes", (long long)bytes);
    t->spans = buffer;
    t->buffer_bytes = bytes;
    t->iterations = (mm_timeline_iteration *)((char *)buffer + bytes);
    return MM_OK;
}

mm_status mm_timeline_create(const char *name, int64_t buffer_bytes, mm_timeline **timeline_out) {
    if (buffer_bytes < 0)
        return mm_fail(MM_ERR_INVALID, "a timeline's buffer cannot have %lld bytes: must be at least 0",
                       (long long)buffer_bytes);
    mm_timeline *t = calloc(1, sizeof *t);
    if (!t) return no_memory();
    t->name = strdup(name);
    t->machine = strdup("");
    mm_status status =
        t->name && t->machine ? map_buffer(t, buffer_bytes > 0 ? buffer_bytes : MM_TIMELINE_BYTES) : no_memory();
    if (status == MM_OK)
        *timeline_out = t;
    else
        mm_timeline_destroy(t);
    return status;
}

static void plan_fini(mm_timeline_plan *plan) {
    free(plan->graph);
    free(plan->policy);
    free(plan->names);
    free(plan->pieces);
    free(plan->sums);
    free(plan->steps);
    free(plan->flows);
    free(plan->links);
    free(plan->memory);
}

void mm_timeline_destroy(mm_timeline *t) {
    if (!t) return;
    for (int i = 0; i < t->n_plans; i++) plan_fini(&t->plans[i]);
    for (int i = 0; i < t->n_replans; i++) free((char *)t->replans[i].graph);
    free(t->replans);
    if (t->spans) munmap(t->spans, (size_t)t->buffer_bytes);
    free(t->plans);
    free(t->name);
    free(t->machine);
    free(t);
}

mm_status mm_timeline_set_source(mm_timeline *t, const char *machine, bool predicted) {
    char *copy = strdup(machine);
    if (!copy) return no_memory();
    free(t->machine);
    t->machine = copy;
    t->predicted = predicted;
    return MM_OK;
}

/* ---------------------------------------------------------------- names */

/* Copies of the graph's names, which outlive it. */
typedef struct name_table {
    char *block;
    const char **layers, **tensors;
} name_table;

static void name_table_fini(name_table *t) {
    free(t->layers);
    free(t->tensors);
}

static const char *add_name(char **end, const char *name) {
    const char *copy = *end;
    *end = stpcpy(*end, name) + 1;
    return copy;
}

static mm_status name_table_init(const mm_graph *graph, name_table *t) {
    const int layers = mm_graph_layers(graph), tensors = mm_graph_tensors(graph);
    size_t bytes = 1;
    for (int i = 0; i < layers; i++) bytes += strlen(mm_graph_layer(graph, i)->name) + 1;
    for (int i = 0; i < tensors; i++) bytes += strlen(mm_graph_tensor(graph, i)->name) + 1;
    *t = (name_table){.block = malloc(bytes),
                      .layers = malloc(((size_t)layers + 1) * sizeof *t->layers),
                      .tensors = malloc(((size_t)tensors + 1) * sizeof *t->tensors)};
    if (!t->block || !t->layers || !t->tensors) {
        free(t->block);
        name_table_fini(t);
        return no_memory();
    }
    char *end = t->block;
    for (int i = 0; i < layers; i++) t->layers[i] = add_name(&end, mm_graph_layer(graph, i)->name);
    for (int i = 0; i < tensors; i++) t->tensors[i] = add_name(&end, mm_graph_tensor(graph, i)->name);
    return MM_OK;
}

/* ---------------------------------------------------------------- pieces */

static void report_step(const mm_graph *graph, const mm_node *node, const name_table *names, mm_timeline_piece *piece) {
    const mm_step_info *step = mm_graph_step(graph, node->step);
    piece->step = node->step;
    piece->tensor = -1;
    piece->phase = step->phase;
    piece->layer = names->layers[step->layer];
    for (int u = 0; u < step->n_uses; u++)
        if (mm_node_access(node, &step->uses[u], u) != MM_READ)
            piece->bytes += mm_graph_tensor(graph, step->uses[u].tensor)->bytes;
}

static void report_operation(const mm_graph *graph, const mm_node *node, const mm_piece *part, const name_table *names,
                             mm_timeline_piece *piece) {
    const mm_tensor_info *tensor = mm_graph_tensor(graph, node->tensor);
    piece->step = -1;
    piece->tensor = node->tensor;
    piece->tensor_name = names->tensors[node->tensor];
    piece->layer = tensor->producer >= 0 ? names->layers[tensor->producer] : NULL;
    piece->bytes = piece->parts > 1 ? tensor->bytes / tensor->dims[0] * part->rows : tensor->bytes;
    piece->stored_bytes = part->stored_bytes;
}

static void report_pieces(const mm_program *program, const name_table *names, mm_timeline_piece *pieces) {
    const mm_plan *plan = program->plan;
    int32_t step = -1;
    for (int i = 0; i < program->n; i++) {
        const mm_piece *p = &program->pieces[i];
        const mm_node *node = &plan->nodes[p->node];
        mm_timeline_piece *piece = &pieces[i];
        const bool runs_step = mm_node_runs_step(node);
        *piece = (mm_timeline_piece){.kind = node->kind,
                                     .stream = p->stream,
                                     .part = p->seq - program->first[p->node],
                                     .parts = mm_program_pieces(program, p->node),
                                     .before = p->seq > 0 ? program->at[p->stream][p->seq - 1] : -1,
                                     .due = runs_step ? -1 : step};
        for (int s = 0; s < MM_STREAM_COUNT; s++) piece->wait[s] = p->wait[s] < 0 ? -1 : program->at[s][p->wait[s]];
        if (runs_step) {
            step = i;
            report_step(plan->graph, node, names, piece);
        } else
            report_operation(plan->graph, node, p, names, piece);
    }
}

static mm_status report_sums(const mm_plan *plan, const name_table *names, mm_timeline_plan *to) {
    mm_allreduce_groups all;
    MM_TRY(mm_plan_allreduce_groups(plan, &all));
    to->sums = malloc(((size_t)all.n + 1) * sizeof *to->sums);
    for (int g = 0; to->sums && g < all.n; g++)
        to->sums[to->n_sums++] = (mm_timeline_sum){.tensor_name = names->tensors[all.tensors[all.groups[g].first]],
                                                   .n = all.groups[g].n,
                                                   .bytes = mm_allreduce_group_bytes(plan, &all, g)};
    mm_allreduce_groups_fini(&all);
    return to->sums ? MM_OK : no_memory();
}

/* ---------------------------------------------------------------- memory */

/* Copies the account's steps: each begins with a step of the plan, the first one with the first node. */
static mm_status report_memory(const mm_program *program, mm_timeline_plan *to) {
    const mm_plan *plan = program->plan;
    mm_account account;
    MM_TRY(mm_account_init(plan, &account));
    to->steps = malloc(((size_t)account.n_steps + 1) * sizeof *to->steps);
    for (int i = 0; to->steps && i < plan->n_nodes; i++) {
        if (i > 0 && plan->nodes[i].kind != MM_NODE_STEP) continue;
        mm_timeline_step *step = &to->steps[to->n_steps];
        step->piece = mm_program_piece(program, i, 0);
        memcpy(step->bytes, account.steps[to->n_steps++].bytes, sizeof step->bytes);
    }
    mm_account_fini(&account);
    return to->steps ? MM_OK : no_memory();
}

/* ---------------------------------------------------------------- flows */

/* The node of the first step after `node` that uses a segment; -1: none does. */
static int reader_of(const mm_plan *plan, int node, int segment) {
    for (int i = node + 1; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (!mm_node_runs_step(n)) continue;
        for (int u = 0; u < mm_graph_step(plan->graph, n->step)->n_uses; u++)
            if (plan->bindings[n->first_binding + u] == segment) return i;
    }
    return -1;
}

/* The operation whose result the operation at `node` works on; -1: there is none, because that operation evicts a
 * map. */
static int operation_before(const mm_plan *plan, int node) {
    const mm_segment *src = &plan->segments[plan->nodes[node].src];
    if (src->memory == MM_MEM_DEVICE && src->content == MM_CONTENT_RAW) return -1;
    for (int i = node - 1; i >= 0; i--)
        if (!mm_node_runs_step(&plan->nodes[i]) && plan->nodes[i].dst == plan->nodes[node].src) return i;
    return -1;
}

/* Lists the pieces of the flow from an eviction through operation `node` to `reader`. Returns their number. */
static int links_of(const mm_program *program, int node, int reader, int32_t *links) {
    int n = 1, at = node;
    while ((at = operation_before(program->plan, at)) >= 0) n++;
    for (int i = n - 1; i >= 0; i--, node = operation_before(program->plan, node))
        links[i] = mm_program_piece(program, node, 0);
    links[n] = mm_program_piece(program, reader, 0);
    return n + 1;
}

static int count_links(const mm_plan *plan, int node) {
    int n = 2;
    while ((node = operation_before(plan, node)) >= 0) n++;
    return n;
}

/* The node of the step to which an operation brings a map, or its signs; -1: `node` is no such operation. */
static int brings_to(const mm_plan *plan, int node) {
    const mm_node *n = &plan->nodes[node];
    const bool brings = !mm_node_runs_step(n) && n->dst >= 0 && plan->segments[n->dst].memory == MM_MEM_DEVICE;
    return brings ? reader_of(plan, node, n->dst) : -1;
}

static mm_status report_flows(const mm_program *program, mm_timeline_plan *to) {
    const mm_plan *plan = program->plan;
    size_t n_links = 0, n_flows = 0;
    int32_t *reader = malloc(((size_t)plan->n_nodes + 1) * sizeof *reader);
    for (int i = 0; reader && i < plan->n_nodes; i++) {
        reader[i] = brings_to(plan, i);
        n_flows += reader[i] >= 0;
        n_links += reader[i] >= 0 ? (size_t)count_links(plan, i) : 0;
    }
    to->flows = malloc((n_flows + 1) * sizeof *to->flows);
    to->links = malloc((n_links + 1) * sizeof *to->links);
    if (!reader || !to->flows || !to->links) {
        free(reader);
        return no_memory();
    }
    int32_t first = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        if (reader[i] < 0) continue;
        const int n = links_of(program, i, reader[i], &to->links[first]);
        to->flows[to->n_flows++] = (mm_timeline_flow){plan->nodes[i].tensor, first, n};
        first += n;
    }
    free(reader);
    return MM_OK;
}

/* ---------------------------------------------------------------- plans and iterations */

static mm_status report_plan(const mm_program *program, mm_timeline_plan *to) {
    const mm_plan *plan = program->plan;
    name_table names;
    to->graph = strdup(mm_graph_name(plan->graph));
    to->policy = strdup(plan->policy);
    to->n_pieces = program->n;
    to->pieces = malloc(((size_t)program->n + 1) * sizeof *to->pieces);
    if (!to->graph || !to->policy || !to->pieces) return no_memory();
    MM_TRY(name_table_init(plan->graph, &names));
    to->names = names.block;
    report_pieces(program, &names, to->pieces);
    const mm_status status = report_sums(plan, &names, to);
    name_table_fini(&names);
    MM_TRY(status);
    MM_TRY(report_memory(program, to));
    return report_flows(program, to);
}

mm_status mm_timeline_add_plan(mm_timeline *t, const mm_program *program, int *plan_out) {
    mm_timeline_plan plan = {0};
    mm_timeline_plan *plans = realloc(t->plans, ((size_t)t->n_plans + 1) * sizeof *plans);
    if (!plans) return no_memory();
    t->plans = plans;
    mm_status status = report_plan(program, &plan);
    if (status != MM_OK) {
        plan_fini(&plan);
        return status;
    }
    *plan_out = t->n_plans;
    t->plans[t->n_plans++] = plan;
    return MM_OK;
}

mm_period *mm_timeline_add(mm_timeline *t, int plan, int64_t number, int64_t codec_wait_ns) {
    const int64_t n = t->plans[plan].n_pieces + t->plans[plan].n_sums;
    const int64_t used =
        (t->n_spans + n) * (int64_t)sizeof *t->spans + (t->n_iterations + 1) * (int64_t)sizeof *t->iterations;
    if (used > t->buffer_bytes) {
        t->dropped += n;
        return NULL;
    }
    t->n_iterations++;
    t->iterations[-t->n_iterations] = (mm_timeline_iteration){plan, number, t->n_spans, codec_wait_ns};
    mm_period *spans = t->spans + t->n_spans;
    t->n_spans += n;
    return spans;
}

int64_t mm_timeline_dropped(const mm_timeline *t) {
    int64_t unknown = 0;
    for (int64_t i = 0; i < t->n_spans; i++) unknown += !mm_period_is_known(&t->spans[i]);
    return t->dropped + unknown;
}

void mm_timeline_add_replan(mm_timeline *t, const char *graph, const mm_timeline_replan *replan) {
    mm_timeline_replan *more = realloc(t->replans, ((size_t)t->n_replans + 1) * sizeof *more);
    char *name = strdup(graph);
    if (more) t->replans = more;
    if (!more || !name) {
        t->dropped++;
        free(name);
        return;
    }
    more[t->n_replans] = *replan;
    more[t->n_replans++].graph = name;
}
