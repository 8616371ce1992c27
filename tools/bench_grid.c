#include "tools/bench_grid.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- making */

static int64_t value_of(const row *r, bool over_batch) { return over_batch ? r->batch : r->asked_bytes; }

/* Whether two rows belong to one table: what it is not over is equal. */
static bool is_together(const row *a, const row *b, bool over_batch) {
    return strcmp(a->net, b->net) == 0 && value_of(a, !over_batch) == value_of(b, !over_batch);
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

/* What a row is of, but for the policy and for what a table is over. */
static void name_case(const row *r, bool with_batch, bool with_budget, char *text, size_t capacity) {
    char size[32], batch[32] = "", budget[64] = "";
    if (with_batch) snprintf(batch, sizeof batch, ", batch %lld", (long long)r->batch);
    if (with_budget && r->asked_bytes > 0)
        snprintf(budget, sizeof budget, ", budget %s", mm_size_format(r->asked_bytes, size, sizeof size));
    else if (with_budget)
        snprintf(budget, sizeof budget, ", each in its own budget");
    snprintf(text, capacity, "%s%s%s", r->net, batch, budget);
}

static void fill(grid *g, const row *rows, int n, int first, bool over_batch) {
    memset(g, 0, sizeof *g);
    g->over_batch = over_batch;
    name_case(&rows[first], !over_batch, over_batch, g->title, sizeof g->title);
    for (int i = first; i < n; i++)
        if (is_together(&rows[first], &rows[i], over_batch)) find_value(g, value_of(&rows[i], over_batch));
    for (int i = first; i < n; i++) {
        if (!is_together(&rows[first], &rows[i], over_batch)) continue;
        int p = find_policy(g, rows[i].policy), v = find_value(g, value_of(&rows[i], over_batch));
        if (p >= 0 && v >= 0) g->images_per_second[p][v] = rows[i].images_per_second;
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

enum { ACROSS = 8, LINE = 110 }; /* columns of one table, of which more go below; characters of a line */

static void print_value(FILE *file, const grid *g, int v) {
    char text[32] = "own";
    if (g->over_batch)
        snprintf(text, sizeof text, "%lld", (long long)g->values[v]);
    else if (g->values[v] > 0)
        mm_size_format(g->values[v], text, sizeof text);
    fprintf(file, " %9s", text);
}

void grid_print(FILE *file, const grid *g) {
    int width = 8;
    for (int p = 0; p < g->n_policies; p++)
        if ((int)strlen(g->policies[p]) > width) width = (int)strlen(g->policies[p]);
    if (width > 36) width = 36; /* a longer name has a line of its own */
    fprintf(file, "\n%s: images/s by %s\n", g->title, g->over_batch ? "batch" : "budget");
    for (int first = 0; first < g->n_values; first += ACROSS) {
        int end = first + ACROSS < g->n_values ? first + ACROSS : g->n_values;
        fprintf(file, "%-*s", width, "policy");
        for (int v = first; v < end; v++) print_value(file, g, v);
        fputc('\n', file);
        for (int p = 0; p < g->n_policies; p++) {
            bool long_name = (int)strlen(g->policies[p]) > width;
            fprintf(file, "%-*s", width, g->policies[p]);
            if (long_name) fprintf(file, "\n%*s", width, "");
            for (int v = first; v < end; v++)
                if (g->images_per_second[p][v] > 0)
                    fprintf(file, " %9.1f", g->images_per_second[p][v]);
                else
                    fprintf(file, " %9s", "-");
            fputc('\n', file);
        }
    }
}

static bool is_case(const row *a, const row *b) { return is_together(a, b, false) && a->asked_bytes == b->asked_bytes; }

static int by_speed_falling(const void *a, const void *b) {
    const row *const *x = a, *const *y = b;
    double dx = (*x)->images_per_second, dy = (*y)->images_per_second;
    if (dx == dy) return (*x > *y) - (*x < *y); /* as listed */
    return (dx < dy) - (dx > dy);
}

static void print_order(FILE *file, const row *rows, int n, int first) {
    const row *ran[GRID_POLICIES];
    int n_ran = 0;
    for (int i = first; i < n && n_ran < GRID_POLICIES; i++)
        if (is_case(&rows[first], &rows[i]) && rows[i].images_per_second > 0) ran[n_ran++] = &rows[i];
    if (n_ran < 2) return;
    qsort(ran, (size_t)n_ran, sizeof *ran, by_speed_falling);
    char title[160], entry[256];
    name_case(&rows[first], true, true, title, sizeof title);
    fprintf(file, "\n%s: images/s, fastest first\n ", title);
    for (int i = 0, column = 0; i < n_ran; i++) {
        int length =
            snprintf(entry, sizeof entry, " %s%s %.1f", i ? "> " : "", ran[i]->policy, ran[i]->images_per_second);
        if (column > 0 && column + length > LINE) column = 0, fputs("\n ", file);
        column += length;
        fputs(entry, file);
    }
    fputc('\n', file);
}

void grid_print_orders(FILE *file, const row *rows, int n) {
    for (int first = 0; first < n; first++) {
        bool is_new = true;
        for (int i = 0; is_new && i < first; i++) is_new = !is_case(&rows[first], &rows[i]);
        if (is_new) print_order(file, rows, n, first);
    }
}
