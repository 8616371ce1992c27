/* SPDX-License-Identifier: MIT */
/* mm bench --kernels on the host: the steps of a run beside what the machine can. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/manager/facts_measured.h"
#include "tools/args/table.h"
#include "tools/compare/bench.h"
#include "tools/facts/machine_work.h"

/* The steps of one operation and phase. */
typedef struct operation {
    const char *name;
    mm_phase phase;
    int steps;        /* of an iteration; a step that runs again counts again */
    double ns, least; /* least: if each step's work ran at the rates of the ceiling */
    double flops, bytes;
} operation;

typedef struct steps {
    const nets_lowered *lowered;
    const host_ceiling *ceiling;
    operation *of;
    int n;
    double beside_ns; /* codecs and copies */
    json_t *rows;     /* a row for each step */
} steps;

static const char *name_of(const nets_lowered *lowered, const mm_step_info *step, int i) {
    const mm_layer_kind kind = mm_graph_layer(lowered->graph, step->layer)->kind;
    const int layer = lowered->steps[i].layer;
    if (kind != MM_LAYER_OTHER || layer < 0) return mm_layer_kind_name(kind);
    return nets_op_name(nets_net_layer(lowered->net, layer)->op);
}

static operation *find(steps *s, const char *name, mm_phase phase) {
    for (int i = 0; i < s->n; i++)
        if (s->of[i].phase == phase && strcmp(s->of[i].name, name) == 0) return &s->of[i];
    s->of[s->n] = (operation){.name = name, .phase = phase};
    return &s->of[s->n++];
}

static json_t *rate_or_null(double work, double ns) { return work > 0 && ns > 0 ? json_real(work / ns) : json_null(); }

static void add_work(json_t *row, const operation *o) {
    json_object_set_new(row, "ns", json_integer((json_int_t)o->ns));
    json_object_set_new(row, "least_ns", json_integer((json_int_t)o->least));
    json_object_set_new(row, "flops", json_integer((json_int_t)o->flops));
    json_object_set_new(row, "bytes", json_integer((json_int_t)o->bytes));
    json_object_set_new(row, "gflop_per_s", rate_or_null(o->flops, o->ns));
    json_object_set_new(row, "gb_per_s", rate_or_null(o->bytes, o->ns));
}

static void add_step(steps *s, const mm_node *node, double ns) {
    const mm_graph *graph = s->lowered->graph;
    const mm_step_info *info = mm_graph_step(graph, node->step);
    const machine_product product = machine_product_of(graph, info->layer);
    operation one = {.name = name_of(s->lowered, info, node->step), .phase = info->phase, .steps = 1, .ns = ns};
    one.bytes = machine_traffic_bytes(graph, info);
    if (info->phase != MM_UPDATE) one.flops = 2 * product.multiply_adds * machine_times(graph, info);
    one.least = 1e9 * fmax(one.flops / s->ceiling->flops_per_s, one.bytes / s->ceiling->bytes_per_s);
    operation *sum = find(s, one.name, one.phase);
    sum->steps++;
    sum->ns += one.ns;
    sum->least += one.least;
    sum->flops += one.flops;
    sum->bytes += one.bytes;
    json_t *row = json_pack("{s:s, s:s, s:s, s:b}", "layer", mm_graph_layer(graph, info->layer)->name, "operation",
                            one.name, "phase", mm_phase_name(info->phase), "again", node->kind != MM_NODE_STEP);
    add_work(row, &one);
    json_array_append_new(s->rows, row);
}

static void add_all(steps *s, const mm_measured *m) {
    for (int i = 0; i < m->plan->n_nodes; i++) {
        const mm_node *node = &m->plan->nodes[i];
        const double ns = (double)mm_execution_ns(m->execution, i);
        if (mm_node_table[node->kind].cost == MM_COST_STEP)
            add_step(s, node, ns);
        else
            s->beside_ns += ns;
    }
}

/* Those that lose the most time come first. */
static int by_loss(const void *a, const void *b) {
    const operation *x = a, *y = b;
    const double lost[2] = {x->ns - x->least, y->ns - y->least};
    return (lost[0] < lost[1]) - (lost[0] > lost[1]);
}

static void cell_rate(table *t, double work, double ns) {
    if (work > 0 && ns > 0)
        table_cell(t, "%.1f", work / ns);
    else
        table_cell(t, "-");
}

static mm_status print(const bench *b, const steps *s, const row *r) {
    static const table_column columns[] = {{"operation", true, 0}, {"phase", true, 0},    {"steps", false, 2},
                                           {"ms", false, 0},       {"GFLOP/s", false, 0}, {"GB/s", false, 0},
                                           {"least ms", false, 1}, {"lost ms", false, 0}};
    table *t;
    double ns = 0, least = 0;
    MM_TRY(table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t));
    for (int i = 0; i < s->n; i++) {
        const operation *o = &s->of[i];
        table_row(t);
        table_cell(t, "%s", o->name);
        table_cell(t, "%s", mm_phase_name(o->phase));
        table_cell(t, "%d", o->steps);
        table_cell(t, "%.3f", o->ns * 1e-6);
        cell_rate(t, o->flops, o->ns);
        cell_rate(t, o->bytes, o->ns);
        table_cell(t, "%.3f", o->least * 1e-6);
        table_cell(t, "%.3f", (o->ns - o->least) * 1e-6);
        ns += o->ns;
        least += o->least;
    }
    fprintf(b->out, "\n%s, batch %lld, %s: steps take %.1f ms of an iteration, codecs and copies %.1f ms\n", r->net,
            (long long)r->batch, r->policy, ns * 1e-6, s->beside_ns * 1e-6);
    fprintf(b->out, "this host: %.0f GFLOP/s (a product of matrices), %.1f GB/s; at these rates %.1f ms\n",
            s->ceiling->flops_per_s * 1e-9, s->ceiling->bytes_per_s * 1e-9, least * 1e-6);
    mm_status status = table_print(b->out, t);
    table_destroy(t);
    return status;
}

static json_t *describe(const steps *s) {
    json_t *rows = json_array();
    for (int i = 0; i < s->n; i++) {
        const operation *o = &s->of[i];
        json_t *row =
            json_pack("{s:s, s:s, s:i}", "operation", o->name, "phase", mm_phase_name(o->phase), "steps", o->steps);
        add_work(row, o);
        json_array_append_new(rows, row);
    }
    return rows;
}

static mm_status keep(bench *b, const steps *s, const row *r) {
    json_t *of = json_pack("{s:s, s:I, s:s, s:I, s:{s:f, s:f}, s:I, s:o, s:O}", "net", r->net, "batch",
                           (json_int_t)r->batch, "policy", r->policy, "budget_bytes", (json_int_t)r->budget_bytes,
                           "host", "flops_per_s", s->ceiling->flops_per_s, "bytes_per_s", s->ceiling->bytes_per_s,
                           "beside_ns", (json_int_t)s->beside_ns, "operations", describe(s), "steps", s->rows);
    if (!b->kernel_rows) b->kernel_rows = json_array();
    if (of && json_array_append_new(b->kernel_rows, of) == 0) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "out of memory for the table of steps");
}

mm_status bench_steps(bench *b, session *s, const row *r) {
    mm_measured m;
    steps of = {.lowered = nets_exec_lowered(s->train), .ceiling = &b->ceiling};
    MM_TRY(mm_measured_get(s->manager, of.lowered->graph, &m));
    if (b->ceiling.flops_per_s == 0) MM_TRY(host_ceiling_measure(&b->target, &b->ceiling));
    of.rows = json_array();
    of.of = calloc((size_t)mm_graph_steps(of.lowered->graph) + 1, sizeof *of.of);
    mm_status status = of.of && of.rows ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the table of steps");
    if (status == MM_OK) {
        add_all(&of, &m);
        qsort(of.of, (size_t)of.n, sizeof *of.of, by_loss);
        status = print(b, &of, r);
    }
    if (status == MM_OK) status = keep(b, &of, r);
    json_decref(of.rows);
    free(of.of);
    return status;
}
