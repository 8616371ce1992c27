/* SPDX-License-Identifier: MIT */
#include "tools/verify/verdict.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_touch.h"
#include "mm/core/size.h"
#include "mm/core/status.h"

enum {
    NAME_CAPACITY = 320,
    BEFORE = 8, /* lines of an execution before the one that goes wrong */
};

mm_status verdict_make(const mm_plan_file *file, verdict *v) {
    *v = (verdict){.example = {.at = -1, .late = -1}};
    const mm_status status = mm_program_prove_or_say(file->program, file->facts, &file->limits, NULL, &v->violation);
    v->proved = status == MM_OK;
    if (v->proved) return MM_OK;
    if (status != MM_ERR_PLAN && status != MM_ERR_INFEASIBLE) return status;
    snprintf(v->message, sizeof v->message, "%s", mm_last_error());
    return mm_counterexample_make(file->program, &v->violation, &v->example);
}

void verdict_fini(verdict *v) { mm_counterexample_fini(&v->example); }

/* ---------------------------------------------------------------- names */

/* What a piece is: "prefetch of h1, part 2 of 4". Returns buffer. */
static const char *piece_name(const mm_program *p, int index, char *buffer) {
    const mm_plan *plan = p->plan;
    const mm_node *n = &plan->nodes[p->pieces[index].node];
    char step[256];
    int used;
    if (mm_node_runs_step(n))
        used = snprintf(buffer, NAME_CAPACITY, "%s%s", n->kind == MM_NODE_RECOMPUTE ? "again " : "",
                        mm_graph_step_name(plan->graph, n->step, step, sizeof step));
    else
        used = snprintf(buffer, NAME_CAPACITY, "%s of %s", mm_node_kind_name(n->kind),
                        mm_graph_tensor(plan->graph, n->tensor)->name);
    const int parts = mm_program_pieces(p, p->pieces[index].node);
    if (parts > 1 && used > 0 && used < NAME_CAPACITY)
        snprintf(buffer + used, (size_t)(NAME_CAPACITY - used), ", part %d of %d",
                 (int)(p->pieces[index].seq - p->first[p->pieces[index].node]) + 1, parts);
    return buffer;
}

/* How a node touches a segment: "reads", "writes", "reads and writes"; NULL: not at all. */
static const char *touches(const mm_plan *plan, int node, int segment) {
    bool reads = false, writes = false;
    mm_touch touch;
    for (int i = 0; mm_node_next_touch(plan, &plan->nodes[node], &i, &touch);) {
        if (touch.segment != segment) continue;
        reads |= touch.access != MM_WRITE;
        writes |= touch.access != MM_READ;
    }
    return reads && writes ? "reads and writes" : reads ? "reads" : writes ? "writes" : NULL;
}

/* ---------------------------------------------------------------- for people */

typedef struct order {
    int32_t piece;
    int64_t start;
} order;

static int by_start(const void *a, const void *b) {
    const order *x = a, *y = b;
    if (x->start != y->start) return (x->start > y->start) - (x->start < y->start);
    return (x->piece > y->piece) - (x->piece < y->piece);
}

static void print_piece(FILE *out, const mm_program *p, const verdict *v, int index) {
    const mm_counterexample *e = &v->example;
    const mm_node *n = &p->plan->nodes[p->pieces[index].node];
    const int segments[2] = {v->violation.segment, v->violation.old};
    char name[NAME_CAPACITY];
    fprintf(out, "  %s %6lld to %-6lld %-8s %s",
            index == e->at     ? ">"
            : index == e->late ? "~"
                               : " ",
            (long long)e->periods[index].start_ns, (long long)e->periods[index].end_ns, mm_stream_id_name(n->stream),
            piece_name(p, index, name));
    for (int i = 0; i < 2; i++) {
        const char *how = segments[i] < 0 ? NULL : touches(p->plan, p->pieces[index].node, segments[i]);
        if (how) fprintf(out, "; %s segment %d", how, segments[i]);
    }
    fputc('\n', out);
}

/* The pieces that have started when `at` does, the last ones of them, and the late one. */
static void print_execution(FILE *out, const mm_program *p, const verdict *v) {
    const mm_counterexample *e = &v->example;
    order *all = malloc(((size_t)p->n + 1) * sizeof *all);
    if (!all) return;
    for (int i = 0; i < p->n; i++) all[i] = (order){i, e->periods[i].start_ns};
    qsort(all, (size_t)p->n, sizeof *all, by_start);
    int at = 0;
    while (all[at].piece != e->at) at++;
    const int from = at > BEFORE ? at - BEFORE : 0;
    bool shown = e->late < 0;
    char name[NAME_CAPACITY];
    if (e->late >= 0)
        fprintf(out, "  An execution that the waits allow: all takes one unit, but %s takes long (~).\n",
                piece_name(p, e->late, name));
    else
        fprintf(out, "  In the order of issue:\n");
    for (int i = 0; i < from; i++)
        if (all[i].piece == e->late) print_piece(out, p, v, e->late), shown = true;
    if (from > 0) fprintf(out, "    (%d earlier)\n", from);
    for (int i = from; i <= at; i++) {
        print_piece(out, p, v, all[i].piece);
        shown |= all[i].piece == e->late;
    }
    if (!shown) print_piece(out, p, v, e->late);
    free(all);
}

void verdict_print(FILE *out, const char *path, const mm_plan_file *file, const verdict *v) {
    const mm_program *p = file->program;
    if (v->proved) {
        int used = 0;
        for (int s = 0; s < MM_STREAM_COUNT; s++) used += p->count[s] > 0;
        fprintf(out, "%s: proved: %s of %s: %d nodes in %d pieces on %d stream%s, %s on the device", path,
                file->plan->policy, mm_graph_name(file->graph), file->plan->n_nodes, p->n, used, used == 1 ? "" : "s",
                MM_SIZE_TEXT(file->plan->peak_bytes));
        if (file->plan->pinned_bytes > 0) fprintf(out, ", %s of pinned memory", MM_SIZE_TEXT(file->plan->pinned_bytes));
        if (file->plan->disk_bytes > 0) fprintf(out, ", %s of a disk", MM_SIZE_TEXT(file->plan->disk_bytes));
        fputc('\n', out);
        return;
    }
    fprintf(out, "%s: refused by rule %s: %s\n  %s\n", path, mm_rule_number(v->violation.rule),
            mm_rule_text(v->violation.rule), v->message);
    if (v->example.at >= 0) print_execution(out, p, v);
}

/* ---------------------------------------------------------------- for machines */

static json_t *index_or_null(int index) { return index < 0 ? json_null() : json_integer(index); }

static json_t *execution_json(const mm_program *p, const mm_counterexample *e) {
    json_t *pieces = json_array();
    for (int i = 0; i < p->n; i++) {
        char name[NAME_CAPACITY];
        json_array_append_new(pieces,
                              json_pack("{s:i, s:s, s:s, s:I, s:I}", "node", (int)p->pieces[i].node, "stream",
                                        mm_stream_id_name(p->pieces[i].stream), "work", piece_name(p, i, name), "start",
                                        (json_int_t)e->periods[i].start_ns, "end", (json_int_t)e->periods[i].end_ns));
    }
    return json_pack("{s:o, s:o, s:o}", "at", index_or_null(e->at), "late", index_or_null(e->late), "pieces", pieces);
}

json_t *verdict_json(const char *path, const mm_plan_file *file, const verdict *v) {
    const mm_violation *w = &v->violation;
    json_t *row = json_pack("{s:s, s:s, s:s, s:b, s:i, s:i, s:I, s:I}", "file", path, "graph",
                            mm_graph_name(file->graph), "policy", file->plan->policy, "proved", (int)v->proved, "nodes",
                            file->plan->n_nodes, "pieces", file->program->n, "device_bytes",
                            (json_int_t)file->plan->peak_bytes, "pinned_bytes", (json_int_t)file->plan->pinned_bytes);
    if (file->plan->disk_bytes > 0)
        json_object_set_new(row, "disk_bytes", json_integer((json_int_t)file->plan->disk_bytes));
    if (v->proved) return row;
    json_object_set_new(row, "rule", json_string(mm_rule_number(w->rule)));
    json_object_set_new(row, "must_hold", json_string(mm_rule_text(w->rule)));
    json_object_set_new(row, "message", json_string(v->message));
    json_object_set_new(row, "node", index_or_null(w->node));
    json_object_set_new(row, "other", index_or_null(w->other));
    json_object_set_new(row, "tensor",
                        w->tensor < 0 ? json_null() : json_string(mm_graph_tensor(file->graph, w->tensor)->name));
    json_object_set_new(row, "segment", index_or_null(w->segment));
    json_object_set_new(row, "put_over", index_or_null(w->old));
    json_object_set_new(row, "execution",
                        v->example.periods ? execution_json(file->program, &v->example) : json_null());
    return row;
}
