/* SPDX-License-Identifier: MIT */
#include "tools/plan/plan_search.h"

#include "mm/core/size.h"
#include "tools/args/speed.h"
#include "tools/args/table.h"

static const struct {
    const char *option, *what, *larger;
} searches[PLAN_SEARCHES] = {
    [PLAN_MAX_BATCH] = {"--max-batch", "largest batch", "larger ones are not tried"},
    [PLAN_FASTEST_BATCH] = {"--fastest-batch", "fastest batch", "larger ones are not tried"},
    [PLAN_MAX_CONTEXT] = {"--max-context", "longest context", "longer ones are not tried"},
};

const char *plan_search_option(plan_search search) { return searches[search].option; }

const char *plan_search_what(plan_search search) { return searches[search].what; }

static mm_status find_context(plan_case *c) {
    const nets_net *net = c->asked.net;
    c->asked.sub_batch = c->asked.batch;
    MM_TRY(largest_context_find(&c->asked, &c->found));
    MM_TRY(nets_net_with_tokens(net, c->found.n > 0 ? c->found.n : CONTEXT_STEP, &c->own_net));
    c->asked.net = c->own_net;
    return MM_OK;
}

mm_status plan_case_search(plan_case *c) {
    if (c->search == PLAN_MAX_CONTEXT) return find_context(c);
    if (c->search == PLAN_FASTEST_BATCH) {
        MM_TRY(fastest_batch_find(&c->asked, &c->fastest));
        c->found = c->fastest.most;
    } else {
        MM_TRY(largest_batch_find(&c->asked, &c->found));
    }
    const int64_t batch = c->search == PLAN_FASTEST_BATCH ? c->fastest.batch : c->found.n;
    c->asked.batch = c->asked.sub_batch = batch > 0 ? batch : 1;
    return MM_OK;
}

static void print_largest(FILE *file, const plan_case *c, const char *what) {
    char next[32], budget[32];
    mm_size_format(c->asked.budget_bytes, budget, sizeof budget);
    if (c->found.n == 0)
        fprintf(file, "  %-22s none in %s\n", what, budget);
    else if (c->found.next == 0)
        fprintf(file, "  %-22s %14lld  in %s; %s\n", what, (long long)c->found.n, budget, searches[c->search].larger);
    else if (c->found.next_bytes <= c->asked.budget_bytes)
        fprintf(file, "  %-22s %14lld  in %s; %lld needs more pinned memory\n", what, (long long)c->found.n, budget,
                (long long)c->found.next);
    else
        fprintf(file, "  %-22s %14lld  in %s; %lld needs %s more\n", what, (long long)c->found.n, budget,
                (long long)c->found.next,
                mm_size_format(c->found.next_bytes - c->asked.budget_bytes, next, sizeof next));
}

/* The learned rows of positions, which grow with the context; 0: the net has none. */
static int64_t position_rows(const nets_net *net) {
    for (int i = 0; i < nets_net_layers(net); i++)
        if (nets_net_layer(net, i)->op == NETS_POSITION) return nets_shape_rows(&nets_net_layer(net, i)->shape);
    return 0;
}

void plan_search_print(FILE *file, const plan_case *c) {
    if (c->search == PLAN_AS_GIVEN) return;
    if (c->search == PLAN_FASTEST_BATCH && c->fastest.batch > 0)
        fprintf(file, "  %-22s %14lld  of %d tried\n", "fastest batch", (long long)c->fastest.batch, c->fastest.n);
    print_largest(file, c, searches[c->search == PLAN_FASTEST_BATCH ? PLAN_MAX_BATCH : c->search].what);
    if (c->search != PLAN_MAX_CONTEXT) return;
    fprintf(file, "  %-22s %14d  tokens\n", "  a step", CONTEXT_STEP);
    const int64_t rows = position_rows(c->asked.net);
    if (rows > 0)
        fprintf(file, "  %-22s %14lld  rows: it grows with the context\n", "  table of positions", (long long)rows);
}

/* ---------------------------------------------------------------- the batches tried */

static void add_row(table *t, const plan_case *c, const batch_tried *tried) {
    const bool bound = tried->bound_ns < INT64_MAX, timed = tried->ns < INT64_MAX;
    const double most = bound ? (double)tried->batch * 1e9 / (double)tried->bound_ns : 0;
    table_row(t);
    table_cell(t, "%lld", (long long)tried->batch);
    if (timed) {
        table_cell(t, "%.1f", speed_of(batch_tried_speed(tried), c->sample_tokens));
        table_cell(t, "%.3f", (double)tried->ns * 1e-6);
    } else {
        table_cell(t, "-");
        table_cell(t, "-");
    }
    if (bound)
        table_cell(t, "%.1f", speed_of(most, c->sample_tokens));
    else
        table_cell(t, "-");
    table_note(t, "%s",
               tried->batch == c->fastest.batch ? "the fastest"
               : timed                          ? ""
               : tried->planned                 ? "does not fit"
                                                : "not planned: cannot be faster by a hundredth");
}

mm_status plan_search_table(FILE *file, const plan_case *c) {
    const table_column columns[] = {
        {"batch", false, 0}, {speed_unit_brief(c->sample_tokens), false, 0}, {"ms", false, 1}, {"at most", false, 2}};
    table *t;
    if (c->search != PLAN_FASTEST_BATCH || c->fastest.n == 0) return MM_OK;
    MM_TRY(table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t));
    for (int i = 0; i < c->fastest.n; i++) add_row(t, c, &c->fastest.tried[i]);
    fprintf(file, "\n%s: batches tried; at most: no plan of that batch is faster\n", plan_case_plan(c)->policy);
    const mm_status status = table_print(file, t);
    table_destroy(t);
    return status;
}

/* ---------------------------------------------------------------- json */

static json_t *tried_json(const fastest_batch *f) {
    json_t *array = json_array();
    for (int i = 0; i < f->n; i++) {
        const batch_tried *t = &f->tried[i];
        json_array_append_new(
            array,
            json_pack("{sI so so sb}", "batch", (json_int_t)t->batch, "images_per_second",
                      t->ns < INT64_MAX ? json_real(batch_tried_speed(t)) : json_null(), "images_per_second_at_most",
                      t->bound_ns < INT64_MAX ? json_real((double)t->batch * 1e9 / (double)t->bound_ns) : json_null(),
                      "planned", (int)t->planned));
    }
    return array;
}

void plan_search_row(json_t *row, const plan_case *c) {
    if (c->search == PLAN_MAX_CONTEXT)
        json_object_update_new(row,
                               json_pack("{sI sI sI}", "max_context", (json_int_t)c->found.n, "next_context",
                                         (json_int_t)c->found.next, "next_bytes", (json_int_t)c->found.next_bytes));
    if (c->search == PLAN_MAX_BATCH || c->search == PLAN_FASTEST_BATCH)
        json_object_set_new(row, "max_batch", json_integer(c->found.n));
    if (c->search == PLAN_FASTEST_BATCH)
        json_object_update_new(
            row, json_pack("{sI so}", "fastest_batch", (json_int_t)c->fastest.batch, "tried", tried_json(&c->fastest)));
}
