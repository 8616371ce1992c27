/* SPDX-License-Identifier: MIT */
#include "tools/compare/bench_grid.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/core/text.h"
#include "tools/args/speed.h"
#include "tools/args/table.h"
#include "tools/args/terminal.h"

/* ---------------------------------------------------------------- making */

static int64_t value_of(const row *r, bool over_batch) { return over_batch ? r->batch : r->asked_bytes; }

/* Whether two rows belong to one table: they have the same network, ranks and machine, and the same budget (over_batch)
 * or the same batch (not over_batch). */
static bool is_together(const row *a, const row *b, bool over_batch) {
    return strcmp(a->net, b->net) == 0 && a->ranks == b->ranks && a->simulated == b->simulated &&
           strcmp(a->device, b->device) == 0 && value_of(a, !over_batch) == value_of(b, !over_batch);
}

static int find_value(grid *g, int64_t value) {
    int i = 0;
    while (i < g->n_values && g->values[i] < value) i++;
    if (i < g->n_values && g->values[i] == value) return i;
    if (g->n_values == GRID_VALUES) return -1;
    memmove(&g->values[i + 1], &g->values[i], (size_t)(g->n_values - i) * sizeof *g->values);
    g->values[i] = value;
    g->n_values++;
    return i;
}

static int find_policy(grid *g, const char *policy) {
    int i = 0;
    while (i < g->n_policies && strcmp(g->policies[i], policy) != 0) i++;
    if (i < g->n_policies || i == GRID_POLICIES) return i < g->n_policies ? i : -1;
    g->policies[g->n_policies] = policy;
    return g->n_policies++;
}

enum { MIXED = -1 };

/* Describes a table's rows: network, ranks and what they have in common. sub_batch: of all rows; 0: whole batches;
 * MIXED: the rows differ. */
static void name_case(const row *r, bool with_batch, int64_t sub_batch, bool with_budget, char *text, size_t capacity) {
    char size[32], batch[32] = "", ranks[32] = "", parts[48] = "", budget[64] = "";
    if (r->ranks > 1) snprintf(ranks, sizeof ranks, ", %d ranks", r->ranks);
    if (sub_batch > 0) snprintf(parts, sizeof parts, ", sub-batch %lld", (long long)sub_batch);
    if (sub_batch == MIXED) snprintf(parts, sizeof parts, ", in sub-batches");
    if (with_batch) snprintf(batch, sizeof batch, ", batch %lld", (long long)r->batch);
    if (with_budget && r->asked_bytes > 0)
        snprintf(budget, sizeof budget, ", budget %s", mm_size_format(r->asked_bytes, size, sizeof size));
    else if (with_budget)
        snprintf(budget, sizeof budget, ", each in its own budget");
    snprintf(text, capacity, "%s%s%s%s%s", r->net, batch, ranks, parts, budget);
}

static void note_need(grid *g, int p, const row *r) {
    if (r->images_per_second > 0 || r->minimum_bytes <= r->asked_bytes) return;
    if (g->needs_bytes[p] > 0 && g->needs_bytes[p] <= r->minimum_bytes) return;
    g->needs_bytes[p] = r->minimum_bytes;
    g->needs_batch[p] = r->batch;
}

static int64_t split_of(const row *r) { return r->sub_batch < row_part(r) ? r->sub_batch : 0; }

/* The sub-batch of all rows of a table, as name_case takes it. */
static int64_t common_split(const row *rows, int n, int first, bool over_batch) {
    int64_t split = split_of(&rows[first]);
    for (int i = first; i < n; i++)
        if (is_together(&rows[first], &rows[i], over_batch) && split_of(&rows[i]) != split) return MIXED;
    return split;
}

static void fill(grid *g, const row *rows, int n, int first, bool over_batch) {
    memset(g, 0, sizeof *g);
    g->over_batch = over_batch;
    g->unit = speed_unit(rows[first].sample_tokens);
    g->machine = rows[first].device;
    g->simulated = rows[first].simulated;
    name_case(&rows[first], !over_batch, common_split(rows, n, first, over_batch), over_batch, g->title,
              sizeof g->title);
    for (int i = first; i < n; i++)
        if (is_together(&rows[first], &rows[i], over_batch)) find_value(g, value_of(&rows[i], over_batch));
    for (int i = first; i < n; i++) {
        if (!is_together(&rows[first], &rows[i], over_batch)) continue;
        int p = find_policy(g, rows[i].policy), v = find_value(g, value_of(&rows[i], over_batch));
        if (p < 0 || v < 0) continue;
        g->speed[p][v] = speed_of(rows[i].images_per_second, rows[i].sample_tokens);
        g->stood_in[p][v] = row_stand_in(&rows[i]) != NULL;
        g->same[p][v] = rows[i].same_plan_as != NULL;
        g->lossy[p] |= rows[i].lossy;
        note_need(g, p, &rows[i]);
    }
}

mm_status grids_make(const row *rows, int n, grid **grids_out, int *n_out) {
    grid *grids = NULL;
    int made = 0;
    for (int over_batch = 0; over_batch < 2; over_batch++)
        for (int first = 0; first < n; first++) {
            bool is_new = true;
            for (int i = 0; is_new && i < first; i++) is_new = !is_together(&rows[first], &rows[i], over_batch);
            if (!is_new) continue;
            grid *more = realloc(grids, (size_t)(made + 1) * sizeof *grids);
            if (!more) {
                free(grids);
                return mm_fail(MM_ERR_NOMEM, "out of memory for %d tables", made + 1);
            }
            grids = more;
            fill(&grids[made], rows, n, first, over_batch);
            made += grids[made].n_values > 1;
        }
    *grids_out = grids;
    *n_out = made;
    return MM_OK;
}

/* ---------------------------------------------------------------- printing */

const char *grid_source(const grid *g, char buffer[GRID_TITLE]) {
    snprintf(buffer, GRID_TITLE, "%s %s", g->simulated ? "simulated for" : "measured on", g->machine);
    return buffer;
}

/* Formats a budget or a batch. Returns `text`. */
static const char *value_text(const grid *g, int v, char text[32]) {
    snprintf(text, 32, "%lld", (long long)g->values[v]);
    if (!g->over_batch && g->values[v] > 0) mm_size_format(g->values[v], text, 32);
    if (!g->over_batch && g->values[v] == 0) snprintf(text, 32, "own");
    return text;
}

/* A star marks the speed of a substitute policy that ran instead; an equals sign that of a plan that is in the table
 * already. */
static void add_policy(table *t, const grid *g, int p) {
    table_row(t);
    table_cell(t, "%s%s", g->policies[p], g->lossy[p] ? " (lossy)" : "");
    for (int v = 0; v < g->n_values; v++)
        if (g->speed[p][v] > 0)
            table_cell(t, "%.1f%s%s", g->speed[p][v], g->stood_in[p][v] ? "*" : "", g->same[p][v] ? "=" : "");
        else
            table_cell(t, "-");
}

mm_status grid_print(FILE *file, const grid *g) {
    table_column columns[GRID_VALUES + 1] = {{.head = "policy", .left = true}};
    char heads[GRID_VALUES][32], source[GRID_TITLE];
    table *t;
    for (int v = 0; v < g->n_values; v++) columns[v + 1].head = value_text(g, v, heads[v]);
    MM_TRY(table_create(columns, g->n_values + 1, TABLE_FOLDED, &t));
    bool starred = false, same = false;
    for (int p = 0; p < g->n_policies; p++) {
        add_policy(t, g, p);
        for (int v = 0; v < g->n_values; v++) starred |= g->stood_in[p][v], same |= g->same[p][v];
    }
    fprintf(file, "\n%s: %s by %s, %s\n", g->title, g->unit, g->over_batch ? "batch" : "budget",
            grid_source(g, source));
    mm_status status = table_print(file, t);
    if (starred) fputs("* speed of the substitute policy that ran instead: the table above names it\n", file);
    if (same)
        fprintf(file, "= the same plan as a policy further up%s\n", g->simulated ? "" : ": differences are noise");
    table_destroy(t);
    return status;
}

static bool is_case(const row *a, const row *b) { return is_together(a, b, false) && a->asked_bytes == b->asked_bytes; }

/* Rows with the same plan. Their speeds differ by noise, so they have one: the mean. */
typedef struct alike {
    const row *rows[GRID_POLICIES]; /* in the order of the table */
    int n;
    double speed;
} alike;

static int by_speed_falling(const void *a, const void *b) {
    const alike *x = a, *y = b;
    if (x->speed == y->speed) return (x->rows[0] > y->rows[0]) - (x->rows[0] < y->rows[0]);
    return (x->speed < y->speed) - (x->speed > y->speed);
}

/* Finds the rows of a case that ran, sorted by speed. Returns the number of groups. */
static int group(const row *rows, int n, int first, alike *groups) {
    int n_groups = 0, total = 0;
    for (int i = first; i < n && total < GRID_POLICIES; i++) {
        const row *r = &rows[i];
        if (!is_case(&rows[first], r) || r->images_per_second <= 0) continue;
        int g = 0;
        while (g < n_groups && !(r->same_plan_as && groups[g].rows[0]->work.digest == r->work.digest)) g++;
        if (g == n_groups) groups[n_groups++] = (alike){0};
        groups[g].rows[groups[g].n++] = r;
        groups[g].speed += speed_of(r->images_per_second, r->sample_tokens);
        total++;
    }
    for (int g = 0; g < n_groups; g++) groups[g].speed /= groups[g].n;
    qsort(groups, (size_t)n_groups, sizeof *groups, by_speed_falling);
    return n_groups;
}

/* Appends " = " and the row's policy. Names the substitute policy, too, where one ran: the speed is the substitute's.
 * Frees the list. NULL: out of memory. */
static char *append(char *list, const row *r) {
    char *name = row_policy(r), *longer = NULL;
    if (list && name) longer = mm_text_format("%s%s%s", list, *list ? " = " : "", name);
    free(list);
    free(name);
    return longer;
}

static mm_status print_ran(FILE *file, const alike *groups, int n_groups) {
    int at = 1;
    fputc(' ', file);
    for (int g = 0; g < n_groups; g++) {
        char *names = strdup("");
        for (int i = 0; i < groups[g].n; i++) names = append(names, groups[g].rows[i]);
        if (!names) return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
        int length = (int)strlen(names) + 16;
        if (g > 0 && at + length > terminal_width(file)) at = fprintf(file, "\n ") - 1;
        at += fprintf(file, " %s%s %.1f", g ? "> " : "", names, groups[g].speed);
        free(names);
    }
    fputc('\n', file);
    return MM_OK;
}

static mm_status print_groups(FILE *file, const alike *groups, int n_groups) {
    const row *fastest = groups[0].rows[0];
    char title[GRID_TITLE];
    int64_t split = split_of(fastest);
    bool joined = false;
    for (int g = 0; g < n_groups; g++) {
        joined |= groups[g].n > 1;
        for (int i = 0; i < groups[g].n; i++)
            if (split_of(groups[g].rows[i]) != split) split = MIXED;
    }
    name_case(fastest, true, split, true, title, sizeof title);
    fprintf(file, "\n%s: %s, fastest first%s\n", title, speed_unit(fastest->sample_tokens),
            joined ? " (=: the same plan; the mean)" : "");
    return print_ran(file, groups, n_groups);
}

static mm_status print_order(FILE *file, const row *rows, int n, int first) {
    alike *groups = calloc(GRID_POLICIES, sizeof *groups);
    if (!groups) return mm_fail(MM_ERR_NOMEM, "out of memory for the order of policies");
    const int n_groups = group(rows, n, first, groups);
    const mm_status status =
        n_groups > 1 || (n_groups == 1 && groups[0].n > 1) ? print_groups(file, groups, n_groups) : MM_OK;
    free(groups);
    return status;
}

mm_status grid_print_orders(FILE *file, const row *rows, int n) {
    mm_status status = MM_OK;
    for (int first = 0; status == MM_OK && first < n; first++) {
        bool is_new = true;
        for (int i = 0; is_new && i < first; i++) is_new = !is_case(&rows[first], &rows[i]);
        if (is_new) status = print_order(file, rows, n, first);
    }
    return status;
}
