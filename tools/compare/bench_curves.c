/* SPDX-License-Identifier: MIT */
/* Throughput as curves: a panel for each table, a line for each policy. Policies whose curves coincide share a line and
 * a label. Where lines run over each other, dashes of their colours alternate. Marks that would overlap stand side by
 * side; more than BESIDE of them become one mark with their number. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "mm/core/size.h"
#include "tools/args/picture_page.h"
#include "tools/compare/bench_grid.h"

enum {
    WIDTH = 1000,
    LEFT = 84,
    RIGHT = 972,
    TITLE = 34,
    HEAD = 40,
    PLOT_HEIGHT = 300,
    FOOT = 44,
    LEGEND_ROW = 18,
    LEGEND_TEXT = 128, /* characters in a line of the legend */
    COLOURS = 8,
    SHAPES = 4,
    DASH = 7,  /* length of each line's dash where lines run together */
    MARK = 9,  /* distance between marks that stand side by side */
    BESIDE = 3 /* the most marks that stand side by side */
};

/* Distances in the picture's units. Curves closer than SAME everywhere are one line; points closer than TOUCHING
 * overlap. */
static const double SAME = 1, TOUCHING = 5;

/* Okabe and Ito's colours, which colour-blind readers can tell apart. */
static const char *const colours[COLOURS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                             "#e69f00", "#56b4e9", "#1f2937", "#8a8f98"};
/* Around (0, 0): circle, square, triangle, diamond. */
static const char *const shapes[SHAPES] = {"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "m-3.5 -3.5h7v7h-7z",
                                           "m0 -4.5l4.5 8h-9z", "m0 -5l5 5l-5 5l-5 -5z"};

/* A line: the policies that share it. */
typedef struct curve {
    int policies[GRID_POLICIES];
    int n;
} curve;

typedef struct plot {
    FILE *file;
    const grid *g;
    double upper, lower; /* y of the plot's edges */
    double top;          /* speed at the upper edge */
    curve curves[GRID_POLICIES];
    int n_curves;
} plot;

/* The scale is logarithmic; the value 0 has no place on it. */
static double x_of(const plot *p, int v) {
    const grid *g = p->g;
    double low = log((double)(g->values[0] > 0 ? g->values[0] : g->values[1]));
    double high = log((double)g->values[g->n_values - 1]);
    double share = high > low ? (log((double)g->values[v]) - low) / (high - low) : 0.5;
    return LEFT + share * (RIGHT - LEFT);
}

static double y_of(const plot *p, double speed) { return p->lower - speed / p->top * (p->lower - p->upper); }

/* The smallest tick of 1, 2 or 5 times a power of ten with at most six ticks up to `top`. */
static double tick_for(double top) {
    static const double factors[] = {1, 2, 5};
    double power = pow(10, floor(log10(top / 6)));
    for (int i = 0; i < 3; i++)
        if (factors[i] * power * 6 >= top) return factors[i] * power;
    return 10 * power;
}

static void draw_axes(const plot *p) {
    double tick = tick_for(p->top);
    for (int i = 0; i * tick <= p->top * (1 + 1e-9); i++) {
        double speed = i * tick, y = y_of(p, speed);
        fprintf(p->file, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", LEFT, RIGHT, y, y);
        fprintf(p->file, "<text x=\"%d\" y=\"%.1f\" class=\"tick end\">%g</text>\n", LEFT - 8, y + 4, speed);
    }
    double free_from = 0;
    for (int v = 0; v < p->g->n_values; v++) {
        char text[32];
        if (p->g->values[v] == 0 || x_of(p, v) < free_from) continue;
        free_from = x_of(p, v) + (p->g->over_batch ? 34 : 52); /* labels do not overlap */
        if (p->g->over_batch)
            snprintf(text, sizeof text, "%lld", (long long)p->g->values[v]);
        else
            mm_size_format(p->g->values[v], text, sizeof text);
        fprintf(p->file, "<text x=\"%.1f\" y=\"%.1f\" class=\"tick middle\">%s</text>\n", x_of(p, v), p->lower + 16,
                text);
    }
    fprintf(p->file, "<text x=\"%d\" y=\"%.1f\" class=\"name end\">%s</text>\n", RIGHT, p->lower + 34,
            p->g->over_batch ? "batch" : "budget");
}

/* ---------------------------------------------------------------- curves */

static bool is_shown(const plot *p, int policy, int v) { return p->g->speed[policy][v] > 0 && p->g->values[v] > 0; }

static double policy_y(const plot *p, int policy, int v) { return y_of(p, p->g->speed[policy][v]); }

/* Whether policies a and b are both shown at value v, closer than `distance`. */
static bool are_near(const plot *p, int a, int b, int v, double distance) {
    return is_shown(p, a, v) && is_shown(p, b, v) && fabs(policy_y(p, a, v) - policy_y(p, b, v)) < distance;
}

static bool coincide(const plot *p, int a, int b) {
    for (int v = 0; v < p->g->n_values; v++)
        if (is_shown(p, a, v) != is_shown(p, b, v) || (is_shown(p, a, v) && !are_near(p, a, b, v, SAME))) return false;
    return true;
}

static bool is_ever_shown(const plot *p, int policy) {
    for (int v = 0; v < p->g->n_values; v++)
        if (is_shown(p, policy, v)) return true;
    return false;
}

static void find_curves(plot *p) {
    p->n_curves = 0;
    for (int i = 0; i < p->g->n_policies; i++) {
        if (!is_ever_shown(p, i)) continue;
        int c = 0;
        while (c < p->n_curves && !coincide(p, p->curves[c].policies[0], i)) c++;
        curve *into = &p->curves[c];
        if (c == p->n_curves) p->n_curves++, into->n = 0;
        into->policies[into->n++] = i;
    }
}

/* A line has the colour and the mark of its first policy, so that a policy looks the same in every panel. */
static int look_of(const plot *p, int c) { return p->curves[c].policies[0]; }
static const char *colour_of(int look) { return colours[look % COLOURS]; }
static const char *shape_of(int look) { return shapes[(look + look / COLOURS) % SHAPES]; }

/* Returns how many lines run together with line c from value v to the next; *place_out: which of them c is. */
static int sharing(const plot *p, int c, int v, int *place_out) {
    int n = 0;
    for (int other = 0; other < p->n_curves; other++) {
        int a = look_of(p, c), b = look_of(p, other);
        if (other == c) *place_out = n;
        n += are_near(p, a, b, v, TOUCHING) && are_near(p, a, b, v + 1, TOUCHING);
    }
    return n;
}

/* Draws line c, with a gap where its policies do not fit. */
static void draw_line(const plot *p, int c) {
    int look = look_of(p, c), place = 0;
    for (int v = 0; v + 1 < p->g->n_values; v++) {
        if (!is_shown(p, look, v) || !is_shown(p, look, v + 1)) continue;
        int n = sharing(p, c, v, &place);
        fprintf(p->file, "<path class=\"curve\" stroke=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"", colour_of(look), x_of(p, v),
                policy_y(p, look, v), x_of(p, v + 1), policy_y(p, look, v + 1));
        if (n > 1)
            fprintf(p->file, " stroke-dasharray=\"%d %d\" stroke-dashoffset=\"%d\"", DASH, DASH * (n - 1),
                    -DASH * place);
        fprintf(p->file, "/>\n");
    }
}

static void draw_mark(const plot *p, double x, double y, int look) {
    fprintf(p->file, "<path class=\"mark\" fill=\"%s\" d=\"M%.1f %.1f%s\"/>\n", colour_of(look), x, y, shape_of(look));
}

static void write_names(const plot *p, const curve *c, bool first) {
    for (int i = 0; i < c->n; i++) {
        fputs(first && i == 0 ? "" : ", ", p->file);
        picture_text(p->file, p->g->policies[c->policies[i]]);
        if (p->g->lossy[c->policies[i]]) fputs(" (lossy)", p->file);
    }
}

/* Draws marks that would overlap: side by side, or more than BESIDE as one mark with their number. */
static void draw_cluster(const plot *p, int v, const int *members, int n) {
    double x = x_of(p, v), y = policy_y(p, look_of(p, members[0]), v);
    fprintf(p->file, "<g><title>");
    for (int i = 0; i < n; i++) write_names(p, &p->curves[members[i]], i == 0);
    fprintf(p->file, "</title>\n");
    for (int i = 0; n <= BESIDE && i < n; i++) {
        int look = look_of(p, members[i]);
        draw_mark(p, x + (i - (n - 1) / 2.0) * MARK, policy_y(p, look, v), look);
    }
    if (n > BESIDE)
        fprintf(p->file,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" class=\"many\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" class=\"count\">%d</text>\n",
                x, y, x, y + 3.5, n);
    fprintf(p->file, "</g>\n");
}

/* Sorts the lines that are shown at value v by their height there. Returns their number. */
static int sort_by_height(const plot *p, int v, int sorted[GRID_POLICIES]) {
    int n = 0;
    for (int c = 0; c < p->n_curves; c++) {
        if (!is_shown(p, look_of(p, c), v)) continue;
        int at = n++;
        for (; at > 0 && policy_y(p, look_of(p, sorted[at - 1]), v) > policy_y(p, look_of(p, c), v); at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = c;
    }
    return n;
}

/* Draws the marks at value v, if p->file is set. Returns the largest number of marks that would overlap. */
static int draw_marks(const plot *p, int v) {
    int sorted[GRID_POLICIES], n = sort_by_height(p, v, sorted), most = 0;
    for (int first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n; end++)
            if (!are_near(p, look_of(p, sorted[end - 1]), look_of(p, sorted[end]), v, TOUCHING)) break;
        if (p->file) draw_cluster(p, v, &sorted[first], end - first);
        if (end - first > most) most = end - first;
    }
    return most;
}

static void draw_curves(const plot *p) {
    for (int c = 0; c < p->n_curves; c++) draw_line(p, c);
    for (int v = 0; v < p->g->n_values; v++) (void)draw_marks(p, v);
}

static bool has_counts(const plot *p) {
    plot measured = *p;
    measured.file = NULL;
    for (int v = 0; v < p->g->n_values; v++)
        if (draw_marks(&measured, v) > BESIDE) return true;
    return false;
}

/* ---------------------------------------------------------------- the legend */

/* Writes words as wrapped lines. */
typedef struct flow {
    const plot *p;
    FILE *file; /* NULL: only counts the lines */
    double y;
    int lines;
    size_t column; /* in the open line; 0: no line is open */
} flow;

static void end_line(flow *f) {
    if (f->file && f->column > 0) fprintf(f->file, "</text>\n");
    f->column = 0;
}

static void add_word(flow *f, const char *word) {
    size_t length = strlen(word);
    if (f->column > 0 && f->column + length > LEGEND_TEXT) end_line(f);
    if (f->column == 0) {
        if (f->file)
            fprintf(f->file, "<text x=\"%d\" y=\"%.1f\" class=\"name\">", LEFT + 32, f->y + f->lines * LEGEND_ROW + 4);
        f->lines++;
    }
    if (f->file) {
        fputs(f->column > 0 ? " " : "", f->file);
        picture_text(f->file, word);
    }
    f->column += length + 1;
}

/* Writes a policy's name. In a chart over budgets, also writes what the policy needs, if some of the budgets are too
 * small for it. */
static void add_policy(flow *f, int policy, bool last) {
    const grid *g = f->p->g;
    char word[256], size[32], need[64] = "";
    if (!g->over_batch && g->needs_bytes[policy] > 0)
        snprintf(need, sizeof need, " (does not fit below %s)",
                 mm_size_format(g->needs_bytes[policy], size, sizeof size));
    snprintf(word, sizeof word, "%.160s%s%s%s", g->policies[policy], g->lossy[policy] ? " (lossy)" : "", need,
             last ? "" : ",");
    add_word(f, word);
}

/* In a chart over batches: writes where the line ends, if it ends before the last batch. */
static void add_end(flow *f, int look) {
    const grid *g = f->p->g;
    int end = g->n_values - 1;
    char word[64];
    while (!is_shown(f->p, look, end)) end--;
    if (!g->over_batch || end == g->n_values - 1) return;
    snprintf(word, sizeof word, "(up to batch %lld)", (long long)g->values[end]);
    add_word(f, word);
}

static void add_curve(flow *f, int c) {
    const curve *all = &f->p->curves[c];
    if (f->file) {
        double y = f->y + f->lines * LEGEND_ROW;
        fprintf(f->file, "<path class=\"curve\" stroke=\"%s\" d=\"M%d %.1fh24\"/>\n", colour_of(look_of(f->p, c)), LEFT,
                y);
        draw_mark(f->p, LEFT + 12, y, look_of(f->p, c));
    }
    for (int i = 0; i < all->n; i++) add_policy(f, all->policies[i], i == all->n - 1);
    add_end(f, look_of(f->p, c));
    if (all->n > 1) add_word(f, "(one line: they coincide)");
    end_line(f);
}

static void add_missing(flow *f, int policy) {
    const grid *g = f->p->g;
    char size[32], need[96] = "did not run";
    if (g->needs_bytes[policy] > 0)
        snprintf(need, sizeof need, "never fits, needs at least %s",
                 mm_size_format(g->needs_bytes[policy], size, sizeof size));
    if (g->needs_bytes[policy] > 0 && g->over_batch)
        snprintf(need + strlen(need), sizeof need - strlen(need), ", at batch %lld", (long long)g->needs_batch[policy]);
    char name[256];
    snprintf(name, sizeof name, "%.200s%s:", g->policies[policy], g->lossy[policy] ? " (lossy)" : "");
    add_word(f, name);
    add_word(f, need);
    end_line(f);
}

/* Returns the number of the legend's lines. file NULL: only counts them. */
static int write_legend(const plot *p, FILE *file, double y) {
    flow f = {.p = p, .file = file, .y = y};
    for (int c = 0; c < p->n_curves; c++) add_curve(&f, c);
    for (int i = 0; i < p->g->n_policies; i++)
        if (!is_ever_shown(p, i)) add_missing(&f, i);
    if (has_counts(p))
        add_word(&f,
                 "A number in a mark: so many lines meet there. Where lines run together, their colours alternate.");
    end_line(&f);
    return f.lines;
}

/* ---------------------------------------------------------------- the page */

static plot make_plot(FILE *file, const grid *g, double y) {
    plot p = {.file = file, .g = g, .upper = y + HEAD, .lower = y + HEAD + PLOT_HEIGHT, .top = 0};
    for (int i = 0; i < g->n_policies; i++)
        for (int v = 0; v < g->n_values; v++)
            if (g->speed[i][v] > p.top) p.top = g->speed[i][v];
    /* The axis ends at a tick, none of the speeds beyond it. */
    p.top = p.top > 0 ? ceil(p.top / tick_for(p.top) - 1e-9) * tick_for(p.top) : 1;
    find_curves(&p);
    return p;
}

static int panel_height(const grid *g) {
    plot p = make_plot(NULL, g, 0);
    return HEAD + PLOT_HEIGHT + FOOT + write_legend(&p, NULL, 0) * LEGEND_ROW + 16;
}

static void draw_panel(FILE *file, const grid *g, int y) {
    plot p = make_plot(file, g, y);
    char source[GRID_TITLE];
    fprintf(file, "<text x=\"%d\" y=\"%.1f\" class=\"head\">", LEFT, p.upper - 12);
    picture_text(file, g->title);
    fprintf(file, ": %s over the %s, ", g->unit, g->over_batch ? "batch" : "budget");
    picture_text(file, grid_source(g, source));
    fputs("</text>\n", file);
    draw_axes(&p);
    draw_curves(&p);
    write_legend(&p, file, p.lower + FOOT + 8);
}

static void draw_page(FILE *file, const grid *grids, int n) {
    static const char style[] = "text{font-family:system-ui,'Helvetica Neue',Arial,sans-serif;fill:#1f2937}"
                                ".title{font-size:19px;font-weight:600}.head{font-size:14px;font-weight:600}"
                                ".name{font-size:12px;fill:#4b5563}.tick{font-size:11px;fill:#6b7280}"
                                ".end{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:#e5e7eb}"
                                ".curve{fill:none;stroke-width:2}.mark{stroke:#fff;stroke-width:1}"
                                ".many{fill:#4b5563;stroke:#fff;stroke-width:1}"
                                ".count{font-size:10px;fill:#fff;text-anchor:middle}";
    int height = TITLE + 12;
    for (int i = 0; i < n; i++) height += panel_height(&grids[i]);
    fprintf(
        file,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" " PICTURE_SHRINKS
        "role=\"img\">\n<title>throughput</title>\n<style>%s</style>\n<rect width=\"%d\" height=\"%d\" "
        "fill=\"#fff\"/>\n<text x=\"%d\" y=\"%d\" class=\"title\">Throughput</text>\n",
        WIDTH, height, WIDTH, height, style, WIDTH, height, LEFT, TITLE);
    for (int i = 0, y = TITLE; i < n; y += panel_height(&grids[i]), i++) draw_panel(file, &grids[i], y);
    fputs("</svg>\n", file);
}

mm_status grids_save_picture(const char *path, const grid *grids, int n) {
    char *bytes = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&bytes, &n_bytes);
    if (!file) return mm_fail(MM_ERR_NOMEM, "out of memory for the picture %s", path);
    draw_page(file, grids, n);
    bool good = !ferror(file);
    good &= fclose(file) == 0;
    mm_status status = good ? mm_atomic_file_save(path, bytes, n_bytes)
                            : mm_fail(MM_ERR_NOMEM, "out of memory for the picture %s", path);
    free(bytes);
    return status;
}
