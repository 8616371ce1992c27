/* SPDX-License-Identifier: MIT */
#include "tools/plan/which_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "tools/args/json_file.h"
#include "tools/args/speed.h"
#include "tools/args/table.h"
#include "tools/need/sub_batch.h"

#define NO_BF16 "no units for bf16"

mm_status which_gpu_check_options(int argc, char **argv) {
    static const char *const others[] = {"--gpu",   "--facts", "--budget",   "--max-batch",   "--fastest-batch",
                                         "--svg",   "--html",  "--trace",    "--max-context", "--explain",
                                         "--chart", "--study", "--save-plan"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (args_given(argc, argv, others[i]))
            return mm_fail(MM_ERR_INVALID, "--which-gpu plans for every GPU in its own memory; leave %s out",
                           others[i]);
    return MM_OK;
}

/* The plan for one GPU: of the policies that fit, the fastest; if none fits, the one that needs least. */
typedef struct candidate {
    const gpu *gpu;
    facts_source source;
    plan_case plan;
    bool planned; /* else the GPU cannot compute the network: it has no units for bf16 */
} candidate;

typedef struct run {
    const which_gpu *asked;
    candidate *candidates;   /* their plans point to their sources, so they stay where they are */
    const candidate **order; /* those that fit first */
    int n, n_fit;
} run;

static bool fits(const candidate *c) { return c->planned && plan_case_fits(&c->plan); }

/* The predicted time of an iteration; INT64_MAX: not known. */
static int64_t time_of(const plan_case *one) {
    return one->forecast.untimed[0] ? INT64_MAX : one->forecast.iteration_ns;
}

/* Whether the plan a is the better one for the same GPU. */
static bool is_better(const plan_case *a, const plan_case *b) {
    const bool a_fits = plan_case_fits(a), b_fits = plan_case_fits(b);
    if (a_fits != b_fits) return a_fits;
    return a_fits ? time_of(a) < time_of(b) : a->need.least_bytes < b->need.least_bytes;
}

static mm_status plan_policy(const which_gpu *w, candidate *c, const char *policy) {
    plan_case one = {.net = w->net, .asked = w->asked, .ranks = w->ranks, .texts = w->texts};
    one.asked.policy = policy;
    one.asked.facts = &c->source;
    one.asked.budget_bytes = gpu_budget_bytes(c->gpu);
    const mm_status found = sub_batch_find(w->sub_batch, &one.asked, &one.asked.sub_batch);
    if (found != MM_ERR_INFEASIBLE) MM_TRY(found);
    one.asked.wants_fastest = true;
    MM_TRY(plan_case_init(&one));
    if (c->planned && !is_better(&one, &c->plan)) {
        plan_case_fini(&one);
        return MM_OK;
    }
    if (c->planned) plan_case_fini(&c->plan);
    c->plan = one;
    c->planned = true;
    return MM_OK;
}

/* A GPU that lacks the maps' type is not planned. */
static mm_status plan_gpu(const which_gpu *w, const gpu *g, candidate *c) {
    *c = (candidate){.gpu = g};
    if (strcmp(w->asked.target->precision, "bf16") == 0 && !gpu_has_bf16(g)) return MM_OK;
    MM_TRY(facts_source_open_gpu(g->name, &c->source));
    c->source.ranks = w->ranks;
    c->source.sum_at = w->sum_at;
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < w->policies->n; i++) status = plan_policy(w, c, w->policies->text[i]);
    return status;
}

/* The fastest first, then those that do not fit, in the table's order. */
static int by_speed(const void *a, const void *b) {
    const candidate *x = *(const candidate *const *)a, *y = *(const candidate *const *)b;
    if (fits(x) != fits(y)) return fits(x) ? -1 : 1;
    if (fits(x) && time_of(&x->plan) != time_of(&y->plan)) return time_of(&x->plan) < time_of(&y->plan) ? -1 : 1;
    return x->gpu < y->gpu ? -1 : x->gpu > y->gpu;
}

/* ---------------------------------------------------------------- text */

static double speed(const plan_case *one) {
    return speed_of((double)(one->ranks * one->asked.batch) * 1e9 / (double)time_of(one), one->sample_tokens);
}

static void add_row(table *t, const candidate *c) {
    char budget[32], needs[32], pinned[32];
    const plan_case *one = &c->plan;
    table_row(t);
    table_cell(t, "%s", c->gpu->name);
    table_cell(t, "%s", mm_size_format(one->asked.budget_bytes, budget, sizeof budget));
    table_cell(t, "%s", mm_size_format(one->need.least_bytes, needs, sizeof needs));
    table_cell(t, "%s", mm_size_format(one->forecast.pinned_bytes, pinned, sizeof pinned));
    if (time_of(one) == INT64_MAX) {
        table_cell(t, "-");
        table_cell(t, "-");
    } else {
        table_cell(t, "%.1f", speed(one));
        table_cell(t, "%.3f", (double)time_of(one) * 1e-6);
    }
    table_cell(t, "%s%s", plan_case_plan(one)->policy, one->effect.lossy ? " (lossy)" : "");
}

/* Adds to the list the GPUs that do not fit, each with what it would need; or those that cannot compute the network. */
static void list_rest(FILE *list, const run *r, bool planned) {
    const char *head = planned ? "do not fit: " : NO_BF16 ": ";
    int n = 0;
    for (int i = r->n_fit; i < r->n; i++) {
        const candidate *c = r->order[i];
        char needs[32], budget[32];
        if (c->planned != planned) continue;
        fprintf(list, "%s%s%s", n++ > 0 ? ", " : head, c->gpu->name, planned ? " (" : "");
        if (planned && c->plan.need.least_bytes <= c->plan.asked.budget_bytes)
            fputs("too little pinned memory)", list);
        else if (planned)
            fprintf(list, "needs %s of %s)", mm_size_format(c->plan.need.least_bytes, needs, sizeof needs),
                    mm_size_format(c->plan.asked.budget_bytes, budget, sizeof budget));
    }
}

/* Names the GPUs that do not fit. */
static mm_status print_rest(FILE *file, const run *r, bool planned) {
    char *text = NULL;
    size_t n = 0;
    FILE *list = open_memstream(&text, &n);
    bool whole = list != NULL;
    if (list) {
        list_rest(list, r, planned);
        whole = !ferror(list);
        whole &= fclose(list) == 0;
    }
    if (whole && n > 0) {
        table_wrap(file, 0, 2, text);
        fputc('\n', file);
    }
    free(text);
    return whole ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the list of GPUs");
}

static mm_status print_all(FILE *file, const run *r) {
    const which_gpu *w = r->asked;
    const table_column columns[] = {{"GPU", true, 0},
                                    {"budget", false, 0},
                                    {"needs", false, 0},
                                    {"pinned", false, 1},
                                    {speed_unit_brief(nets_net_tokens(w->asked.net)), false, 0},
                                    {"ms", false, 2},
                                    {"policy", true, 0}};
    table *t;
    char text[320];
    snprintf(text, sizeof text, "%.200s, batch %lld: fits %d of %d GPUs", w->net,
             (long long)(w->ranks * w->asked.batch), r->n_fit, r->n);
    table_wrap(file, 0, 2, text);
    fputs("\n  speeds are " GPU_ESTIMATED " ('mm gpus')\n", file);
    fputs("  budgets are each GPU's memory, without what the CUDA context and libraries take\n", file);
    if (r->n_fit > 0) {
        MM_TRY(table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t));
        for (int i = 0; i < r->n_fit; i++) add_row(t, r->order[i]);
        const mm_status status = table_print(file, t);
        table_destroy(t);
        MM_TRY(status);
    }
    MM_TRY(print_rest(file, r, true));
    return print_rest(file, r, false);
}

/* ---------------------------------------------------------------- json */

/* A plan's row, as of 'mm plan --json', with the GPU's name; of a GPU that cannot compute the network, name and
 * why. */
static json_t *row_of(const candidate *c) {
    json_t *row = c->planned ? plan_case_row(&c->plan) : json_pack("{ss}", "status", NO_BF16);
    if (row)
        json_object_update_new(
            row, json_pack("{ss sI}", "gpu", c->gpu->name, "memory_bytes", (json_int_t)gpu_memory_bytes(c->gpu)));
    if (row && c->planned)
        json_object_set_new(
            row, "images_per_second",
            fits(c) && time_of(&c->plan) < INT64_MAX
                ? json_real((double)(c->plan.ranks * c->plan.asked.batch) * 1e9 / (double)time_of(&c->plan))
                : json_null());
    return row;
}

static mm_status save(const run *r) {
    json_t *rows = json_array();
    for (int i = 0; i < r->n; i++)
        if (json_array_append_new(rows, row_of(r->order[i])) != 0) {
            json_decref(rows);
            return mm_fail(MM_ERR_NOMEM, "out of memory for the rows");
        }
    return json_file_save(r->asked->json, rows);
}

static mm_status plan_all(run *r) {
    r->candidates = calloc(gpu_table_n, sizeof *r->candidates);
    r->order = calloc(gpu_table_n, sizeof *r->order);
    if (!r->candidates || !r->order) return mm_fail(MM_ERR_NOMEM, "out of memory for %zu GPUs", gpu_table_n);
    while ((size_t)r->n < gpu_table_n && !*r->asked->interrupted) {
        candidate *c = &r->candidates[r->n];
        r->order[r->n++] = c;
        MM_TRY(plan_gpu(r->asked, &gpu_table[c - r->candidates], c));
    }
    if ((size_t)r->n < gpu_table_n)
        fprintf(stderr, "mm plan: interrupted: %zu GPUs were not planned\n", gpu_table_n - (size_t)r->n);
    qsort(r->order, (size_t)r->n, sizeof *r->order, by_speed);
    while (r->n_fit < r->n && fits(r->order[r->n_fit])) r->n_fit++;
    return MM_OK;
}

mm_status which_gpu_run(const which_gpu *w, bool *fits_out) {
    run r = {.asked = w};
    mm_status status = plan_all(&r);
    if (status == MM_OK) status = print_all(json_file_beside(w->json), &r);
    if (status == MM_OK && w->json) status = save(&r);
    if (status == MM_OK) *fits_out = r.n_fit > 0;
    for (int i = 0; i < r.n; i++)
        if (r.candidates[i].planned) plan_case_fini(&r.candidates[i].plan);
    free(r.candidates);
    free(r.order);
    return status;
}
