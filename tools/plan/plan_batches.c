/* SPDX-License-Identifier: MIT */
#include "tools/plan/plan_batches.h"

#include "mm/core/size.h"
#include "tools/args/speed.h"
#include "tools/args/table.h"
#include "tools/plan/plan_search.h"

static void add_row(table *t, const plan_case *c) {
    char size[32];
    const bool fits = c->found.n > 0 && plan_case_fits(c);
    const bool timed = fits && c->asked.facts && !c->forecast.untimed[0] && c->forecast.iteration_ns > 0;
    table_row(t);
    table_cell(t, "%s%s", plan_case_plan(c)->policy, c->forecast.work.lossy ? " (lossy)" : "");
    if (!fits) {
        table_note(t, "none fits");
        return;
    }
    table_cell(t, "%lld", (long long)(c->search == PLAN_MAX_CONTEXT ? c->sample_tokens : c->asked.batch));
    if (timed)
        table_cell(t, "%.1f",
                   speed_of((double)c->asked.batch * 1e9 / (double)c->forecast.iteration_ns, c->sample_tokens));
    else
        table_cell(t, "-");
    table_cell(t, "%s", mm_size_format(c->forecast.pinned_bytes, size, sizeof size));
}

static mm_status print_table(FILE *file, const plan_case *cases, int n) {
    const table_column columns[] = {{"policy", true, 0},
                                    {plan_search_what(cases[0].search), false, 0},
                                    {speed_unit_brief(cases[0].sample_tokens), false, 0},
                                    {"pinned", false, 0}};
    table *t;
    MM_TRY(table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t));
    for (int i = 0; i < n; i++) add_row(t, &cases[i]);
    fputc('\n', file);
    const mm_status status = table_print(file, t);
    table_destroy(t);
    return status;
}

mm_status plan_batches_print(FILE *file, const plan_case *cases, int n) {
    bool unlimited = false;
    if (n > 1) MM_TRY(print_table(file, cases, n));
    for (int i = 0; i < n; i++)
        unlimited |= cases[i].asked.pinned.from == PINNED_ELSEWHERE && cases[i].forecast.pinned_bytes > 0;
    if (unlimited) fprintf(file, "host memory is not limited here: --pinned SIZE limits it to what that machine has\n");
    return MM_OK;
}
