/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_file.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "mm/planning/requirement.h"
#include "tools/args/json_file.h"
#include "tools/plan/explain.h"
#include "tools/plan/picture.h"
#include "tools/plan/plan_batches.h"
#include "tools/plan/plan_command.h"
#include "tools/plan/plan_page.h"
#include "tools/plan/plan_search.h"

/* ---------------------------------------------------------------- text */

static const plan_case *find_case(const plan_command *c, const char *policy) {
    for (int i = 0; i < c->n_cases; i++)
        if (strcmp(plan_case_plan(&c->cases[i])->policy, policy) == 0) return &c->cases[i];
    return NULL;
}

static void print_comparison(FILE *file, const plan_command *c) {
    const plan_case *naive = find_case(c, "naive"), *liveness = find_case(c, "liveness");
    if (!naive || !liveness) return;
    if (c->search == PLAN_MAX_BATCH && naive->found.n > 0)
        fprintf(file, "liveness fits %.1fx the batch of naive\n",
                (double)liveness->asked.batch / (double)naive->asked.batch);
    if (!c->search)
        fprintf(file, "liveness needs %.1fx less than naive\n",
                (double)plan_case_plan(naive)->peak_bytes / (double)plan_case_plan(liveness)->peak_bytes);
}

static picture_panel panel_of(const plan_case *one) {
    const mm_plan *plan = plan_case_plan(one);
    picture_panel panel = {.memory = {.steps = one->timeline,
                                      .n_steps = one->account.n_steps,
                                      .needed_bytes = plan->peak_bytes,
                                      .live_bytes = plan->live_peak_bytes}};
    mm_graph_step_name(plan->graph, plan->peak_step, panel.memory.held_by, sizeof panel.memory.held_by);
    snprintf(panel.name, sizeof panel.name, "%.140s%s, batch %lld", plan->policy,
             one->forecast.work.lossy ? " (lossy)" : "", (long long)one->asked.batch);
    return panel;
}

/* Says where a GPU's rates are from, and the budget if none was given. */
static void print_gpu(FILE *file, const plan_command *c) {
    const gpu *g = c->source.gpu;
    char memory[32], context[32];
    if (!g) return;
    fprintf(file, "%s: times are " GPU_ESTIMATED " ('mm gpus')\n", g->name);
    if (c->gpu_budget)
        fprintf(file, "  budget: its memory, %s, less %s for the CUDA context and libraries\n",
                mm_size_format(gpu_memory_bytes(g), memory, sizeof memory),
                mm_size_format(gpu_context_bytes(g), context, sizeof context));
}

mm_status plan_output_print(FILE *file, const plan_command *c, bool chart) {
    const bool utf8 = picture_utf8();
    print_gpu(file, c);
    for (int i = 0; i < c->n_cases; i++) {
        plan_case_print(file, &c->cases[i], c->explain);
        picture_panel panel = panel_of(&c->cases[i]);
        if (chart) picture_print(file, &panel, c->budget_bytes, utf8);
        MM_TRY(plan_search_table(file, &c->cases[i]));
        if (c->explain && c->search) MM_TRY(explain_print(file, &c->cases[i], 1, &c->image));
    }
    if (c->explain && !c->search) MM_TRY(explain_print(file, c->cases, c->n_cases, &c->image));
    print_comparison(file, c);
    return c->search ? plan_batches_print(file, c->cases, c->n_cases) : MM_OK;
}

/* ---------------------------------------------------------------- files */

static mm_status save_rows(const plan_command *c) {
    json_t *rows = json_array();
    mm_status status = rows ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the rows");
    for (int i = 0; status == MM_OK && i < c->n_cases; i++) {
        json_t *row = plan_case_row(&c->cases[i]);
        if (json_array_append_new(rows, row) != 0)
            status = mm_fail(MM_ERR_NOMEM, "out of memory for the rows");
        else if (c->explain)
            status = explain_row(row, &c->cases[i], &c->image);
    }
    if (status == MM_OK) return json_file_save(c->json, rows);
    json_decref(rows);
    return status;
}

static mm_status save_page(const plan_command *c, const picture *drawn) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    if (!file) return mm_fail(MM_ERR_NOMEM, "out of memory for the page %s", c->html);
    mm_status status = plan_output_print(file, c, false);
    const bool whole = !ferror(file);
    if ((fclose(file) != 0 || !whole) && status == MM_OK)
        status = mm_fail(MM_ERR_NOMEM, "out of memory for the page %s", c->html);
    if (status == MM_OK) status = plan_page_save(c->html, drawn, text);
    free(text);
    return status;
}

static mm_status add_homes(const mm_plan *plan, picture_panel *panel) {
    mm_housed *housed;
    int n;
    MM_TRY(mm_requirement_housed(plan, &housed, &n));
    mm_status status = picture_homes_init(housed, n, &panel->homes);
    free(housed);
    return status;
}

static mm_status save_pictures(const plan_command *c) {
    picture_panel *panels = malloc((size_t)c->n_cases * sizeof *panels);
    if (!panels) return mm_fail(MM_ERR_NOMEM, "out of memory for the picture %s", c->svg ? c->svg : c->html);
    mm_status status = MM_OK;
    int n = 0;
    for (; status == MM_OK && n < c->n_cases; n++) {
        panels[n] = panel_of(&c->cases[n]);
        status = add_homes(plan_case_plan(&c->cases[n]), &panels[n]);
    }
    char title[320];
    snprintf(title, sizeof title, "%.200s: device memory over one iteration, predicted for %s%s%s", c->net,
             plan_case_machine(&c->cases[0]), c->source.gpu ? ", " : "", c->source.gpu ? GPU_ESTIMATED : "");
    const picture drawn = {.title = title, .panels = panels, .n_panels = c->n_cases, .budget_bytes = c->budget_bytes};
    if (status == MM_OK && c->svg) status = picture_save(c->svg, &drawn);
    if (status == MM_OK && c->html) status = save_page(c, &drawn);
    while (n-- > 0) picture_homes_fini(&panels[n].homes);
    free(panels);
    return status;
}

static mm_status save_trace(const plan_command *c) {
    traces all = {0};
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < c->n_cases; i++) status = plan_case_trace(&c->cases[i], &all);
    if (status == MM_OK) status = traces_save(&all, "plan", c->trace);
    traces_fini(&all);
    return status;
}

/* The graph of the first policy's plan, and its facts. A batch in parts has several graphs, and facts are of one. */
static mm_status save_graph(const plan_command *c) {
    const need *n = &c->cases[0].need;
    const char *option = c->save_graph ? "--save-graph" : "--save-facts";
    if (n->n > 1)
        return mm_fail(MM_ERR_INVALID, "%s: is for whole batches; this one has %d graphs, one a pass", option, n->n);
    const mm_graph *graph = need_most(n)->lowered->graph;
    if (c->save_graph) MM_TRY(mm_graph_save(&graph, 1, c->save_graph));
    return c->save_facts ? mm_facts_write(need_most(n)->planned.facts, graph, c->save_facts) : MM_OK;
}

/* The first policy's plans: one for each pass. */
static mm_status save_plan(const plan_command *c) {
    const need *n = &c->cases[0].need;
    mm_plan_view views[NETS_PASSES];
    for (int i = 0; i < n->n; i++)
        views[i] = (mm_plan_view){.program = n->pass[i].planned.program, .facts = n->pass[i].planned.facts};
    return mm_plan_file_write(views, (size_t)n->n, c->save_plan);
}

mm_status plan_output_save(const plan_command *c) {
    mm_failure failure;
    mm_failure_save(&failure, c->json ? save_rows(c) : MM_OK);
    mm_status status = c->svg || c->html ? save_pictures(c) : MM_OK;
    if (failure.status == MM_OK) mm_failure_save(&failure, status);
    status = c->trace ? save_trace(c) : MM_OK;
    if (failure.status == MM_OK) mm_failure_save(&failure, status);
    status = c->save_graph || c->save_facts ? save_graph(c) : MM_OK;
    if (failure.status == MM_OK) mm_failure_save(&failure, status);
    status = c->save_plan ? save_plan(c) : MM_OK;
    if (failure.status == MM_OK) mm_failure_save(&failure, status);
    return mm_failure_restore(&failure);
}
