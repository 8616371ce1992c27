/* SPDX-License-Identifier: MIT */
#include "tools/plan/graph_plan.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/json_text.h"
#include "tools/args/files.h"
#include "tools/args/json_file.h"
#include "tools/need/effort.h"
#include "tools/need/target.h"
#include "tools/plan/picture.h"
#include "tools/plan/plan_page.h"

typedef struct run {
    graph_plan *asked;
    arg_texts policies;
    texts texts; /* owns policies' texts with an effort added */
    mm_graph **graphs;
    size_t n_graphs;
    mm_facts *facts;
    mm_requirement **needs; /* one for each policy that was planned */
    int n_needs;
} run;

static mm_status no_memory(const run *r) { return mm_fail(MM_ERR_NOMEM, "out of memory for %s", r->asked->path); }

/* ---------------------------------------------------------------- planning */

static bool is_stopped(const graph_plan *asked) { return asked->limits.stop_search && *asked->limits.stop_search; }

static mm_status plan_one(run *r, int i, bool advice) {
    mm_plan_limits limits = r->asked->limits;
    mm_requirement *need;
    limits.no_advice |= !advice;
    MM_TRY(mm_requirement_get((const mm_graph *const *)r->graphs, r->n_graphs, r->facts, r->policies.text[i], &limits,
                              &need));
    mm_requirement_destroy(r->needs[i]);
    r->needs[i] = need;
    return MM_OK;
}

/* Advice takes longer than all else. So of several policies only the first gets some, and only if none fits. */
static mm_status plan_all(run *r) {
    graph_plan *asked = r->asked;
    bool fits = false;
    MM_TRY(mm_graph_load(asked->path, &r->graphs, &r->n_graphs));
    if (asked->facts) MM_TRY(mm_facts_load(asked->facts, &r->facts));
    r->needs = calloc((size_t)r->policies.n, sizeof *r->needs);
    if (!r->needs) return no_memory(r);
    for (; r->n_needs < r->policies.n && (r->n_needs == 0 || !is_stopped(asked)); r->n_needs++) {
        MM_TRY(plan_one(r, r->n_needs, r->policies.n == 1));
        fits |= r->needs[r->n_needs]->fits;
        asked->misfit |= !r->needs[r->n_needs]->fits;
    }
    for (int i = r->n_needs; i < r->policies.n; i++)
        fprintf(stderr, "mm plan: interrupted: %s was not planned\n", r->policies.text[i]);
    const bool advised = r->policies.n == 1 || asked->limits.no_advice;
    return fits || advised || is_stopped(asked) ? MM_OK : plan_one(r, 0, true);
}

/* ---------------------------------------------------------------- what is shown */

/* The panel of the graph that needs most. */
static picture_panel panel_of(const mm_requirement *need) {
    const mm_graph_requirement *g = &need->graphs[need->most];
    picture_panel panel = {.memory = {.steps = g->timeline,
                                      .n_steps = g->n_timeline,
                                      .needed_bytes = g->planned_bytes,
                                      .live_bytes = g->live_bytes}};
    snprintf(panel.name, sizeof panel.name, "%.90s%s, %.80s", need->policy, need->lossy ? " (lossy)" : "", g->graph);
    snprintf(panel.memory.held_by, sizeof panel.memory.held_by, "%s", g->held_by);
    return panel;
}

static mm_status print_texts(const run *r, FILE *file, bool chart) {
    for (int i = 0; i < r->n_needs; i++) {
        char *text;
        MM_TRY(mm_requirement_text(r->needs[i], &text));
        fputs(text, file);
        free(text);
        const picture_panel panel = panel_of(r->needs[i]);
        if (chart) picture_print(file, &panel, r->needs[i]->device_bytes, picture_utf8());
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- files */

static mm_status save_rows(const run *r) {
    json_t *rows = json_array();
    mm_status status = rows ? MM_OK : no_memory(r);
    for (int i = 0; status == MM_OK && i < r->n_needs; i++) {
        char *text = NULL;
        json_t *row = NULL;
        json_error_t error;
        status = mm_requirement_json(r->needs[i], &text);
        if (status == MM_OK &&
            (mm_json_parse(text, strlen(text), 0, &row, &error) != MM_OK || json_array_append_new(rows, row) != 0))
            status = no_memory(r);
        free(text);
    }
    if (status == MM_OK) return json_file_save(r->asked->json, rows);
    json_decref(rows);
    return status;
}

static mm_status save_page(const run *r, const picture *drawn) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    if (!file) return no_memory(r);
    mm_status status = print_texts(r, file, false);
    const bool whole = !ferror(file);
    if ((fclose(file) != 0 || !whole) && status == MM_OK) status = no_memory(r);
    if (status == MM_OK) status = plan_page_save(r->asked->html, drawn, text);
    free(text);
    return status;
}

static mm_status save_pictures(const run *r) {
    const graph_plan *asked = r->asked;
    picture_panel *panels = malloc((size_t)r->n_needs * sizeof *panels);
    if (!panels) return no_memory(r);
    char title[320];
    mm_status status = MM_OK;
    int n = 0;
    for (; status == MM_OK && n < r->n_needs; n++) {
        const mm_graph_requirement *g = &r->needs[n]->graphs[r->needs[n]->most];
        panels[n] = panel_of(r->needs[n]);
        status = picture_homes_init(g->housed, g->n_housed, &panels[n].homes);
    }
    snprintf(title, sizeof title, "%.200s: device memory over one iteration, predicted for %.60s", asked->path,
             asked->limits.device);
    const picture drawn = {
        .title = title, .panels = panels, .n_panels = r->n_needs, .budget_bytes = asked->limits.device_bytes};
    if (status == MM_OK && asked->svg) status = picture_save(asked->svg, &drawn);
    if (status == MM_OK && asked->html) status = save_page(r, &drawn);
    while (n-- > 0) picture_homes_fini(&panels[n].homes);
    free(panels);
    return status;
}

/* ---------------------------------------------------------------- the command */

mm_status graph_plan_check_options(int argc, char **argv, const arg *table) {
    static const char *const own[] = {"--graph", "--policy",    "--budget", "--pinned", "--plan-effort",
                                      "--chart", "--no-advice", "--svg",    "--html",   "--device",
                                      "--link",  "--disk",      "--facts",  "--json"};
    for (const arg *a = table; a->name; a++) {
        bool is_own = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) is_own |= strcmp(own[i], a->name) == 0;
        if (!is_own && args_given(argc, argv, a->name))
            return mm_fail(MM_ERR_INVALID, "%s: is not for --graph, whose graphs are planned as they are", a->name);
    }
    return MM_OK;
}

static mm_status check(run *r) {
    graph_plan *asked = r->asked;
    const named_file files[] = {{"--json", asked->json, FILE_WRITTEN},
                                {"--svg", asked->svg, FILE_WRITTEN},
                                {"--html", asked->html, FILE_WRITTEN},
                                {"--facts", asked->facts, FILE_READ},
                                {"--graph", asked->path, FILE_READ}};
    mm_host_memory memory;
    mm_host_memory_get(&memory);
    asked->limits.pinned_bytes = asked->pinned_bytes >= 0
                                     ? asked->pinned_bytes
                                     : target_free_part(memory.free_bytes, asked->limits.disk_bytes > 0);
    MM_TRY(files_check(files, sizeof files / sizeof *files));
    MM_TRY(args_split("--policy", asked->policy_list, &r->policies));
    return effort_apply(asked->effort, r->policies.text, r->policies.n, &r->texts);
}

static mm_status run_all(run *r) {
    const graph_plan *asked = r->asked;
    MM_TRY(check(r));
    MM_TRY(plan_all(r));
    MM_TRY(print_texts(r, json_file_beside(asked->json), asked->chart));
    if (asked->json) MM_TRY(save_rows(r));
    return asked->svg || asked->html ? save_pictures(r) : MM_OK;
}

mm_status graph_plan_run(graph_plan *plan) {
    run r = {.asked = plan};
    const mm_status status = run_all(&r);
    for (int i = 0; i < r.n_needs; i++) mm_requirement_destroy(r.needs[i]);
    free(r.needs);
    args_texts_fini(&r.policies);
    texts_fini(&r.texts);
    mm_facts_destroy(r.facts);
    mm_graph_list_destroy(r.graphs, r.n_graphs);
    return status;
}
