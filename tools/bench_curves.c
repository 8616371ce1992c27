/* Throughput as curves: a panel for each table, a line for each policy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench_grid.h"
#include "tools/picture_page.h"

enum {
    WIDTH = 1000,
    LEFT = 84,
    RIGHT = 972,
    TITLE = 34,
    HEAD = 40,
    PLOT_HEIGHT = 300,
    FOOT = 44,
    LEGEND_ROW = 18,
    LEGEND_COLUMN = 440,
    COLOURS = 8,
    DASHES = 4
};

/* Okabe and Ito's colours; then the same again, dashed. */
static const char *const colours[COLOURS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                             "#e69f00", "#56b4e9", "#1f2937", "#8a8f98"};
static const char *const dashes[DASHES] = {"none", "7 4", "2 3", "9 3 2 3"};

typedef struct plot {
    FILE *file;
    const grid *g;
    double upper, lower; /* y */
    double top;          /* images/s at the upper edge */
} plot;

/* Values lie on a logarithmic scale; one of 0 has none. */
static double x_of(const plot *p, int v) {
    const grid *g = p->g;
    double low = log((double)(g->values[0] > 0 ? g->values[0] : g->values[1]));
    double high = log((double)g->values[g->n_values - 1]);
    double share = high > low ? (log((double)g->values[v]) - low) / (high - low) : 0.5;
    return LEFT + share * (RIGHT - LEFT);
}

static double y_of(const plot *p, double speed) { return p->lower - speed / p->top * (p->lower - p->upper); }

/* The least of 1, 2, 5 times a power of ten of which at most six reach `top`. */
static double tick_for(double top) {
    static const double factors[] = {1, 2, 5};
    double power = pow(10, floor(log10(top / 6)));
    for (int i = 0; i < 3; i++)
        if (factors[i] * power * 6 >= top) return factors[i] * power;
    return 10 * power;
}

static void draw_axes(const plot *p) {
    double tick = tick_for(p->top);
    for (int i = 0; i * tick <= p->top; i++) {
        double speed = i * tick, y = y_of(p, speed);
        fprintf(p->file, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", LEFT, RIGHT, y, y);
        fprintf(p->file, "<text x=\"%d\" y=\"%.1f\" class=\"tick end\">%g</text>\n", LEFT - 8, y + 4, speed);
    }
    double free_from = 0;
    for (int v = 0; v < p->g->n_values; v++) {
        char text[32];
        if (p->g->values[v] == 0 || x_of(p, v) < free_from) continue;
        free_from = x_of(p, v) + 52; /* no label over another */
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

/* A line breaks where the policy does not fit. */
static void draw_curve(const plot *p, int policy) {
    const char *colour = colours[policy % COLOURS], *dash = dashes[policy / COLOURS % DASHES];
    bool down = false;
    fprintf(p->file, "<g><title>");
    picture_text(p->file, p->g->policies[policy]);
    fprintf(p->file, "</title><path class=\"curve\" stroke=\"%s\" stroke-dasharray=\"%s\" d=\"", colour, dash);
    for (int v = 0; v < p->g->n_values; v++) {
        double speed = p->g->images_per_second[policy][v];
        bool shown = speed > 0 && p->g->values[v] > 0;
        if (shown) fprintf(p->file, "%c%.1f %.1f", down ? 'L' : 'M', x_of(p, v), y_of(p, speed));
        down = shown;
    }
    fprintf(p->file, "\"/>\n");
    for (int v = 0; v < p->g->n_values; v++)
        if (p->g->images_per_second[policy][v] > 0 && p->g->values[v] > 0)
            fprintf(p->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x_of(p, v),
                    y_of(p, p->g->images_per_second[policy][v]), colour);
    fprintf(p->file, "</g>\n");
}

static void draw_legend(const plot *p, double y) {
    for (int i = 0; i < p->g->n_policies; i++) {
        int row = i / 2;
        double x = LEFT + (i % 2) * LEGEND_COLUMN, line = y + row * LEGEND_ROW;
        fprintf(p->file,
                "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" class=\"curve\" stroke=\"%s\" "
                "stroke-dasharray=\"%s\"/>\n<text x=\"%.0f\" y=\"%.1f\" class=\"name\">",
                x, x + 24, line, line, colours[i % COLOURS], dashes[i / COLOURS % DASHES], x + 32, line + 4);
        picture_text(p->file, p->g->policies[i]);
        fprintf(p->file, "</text>\n");
    }
}

static int legend_height(const grid *g) { return (g->n_policies + 1) / 2 * LEGEND_ROW + 16; }

static int panel_height(const grid *g) { return HEAD + PLOT_HEIGHT + FOOT + legend_height(g); }

static void draw_panel(FILE *file, const grid *g, int y) {
    plot p = {.file = file, .g = g, .upper = y + HEAD, .lower = y + HEAD + PLOT_HEIGHT, .top = 0};
    for (int i = 0; i < g->n_policies; i++)
        for (int v = 0; v < g->n_values; v++)
            if (g->images_per_second[i][v] > p.top) p.top = g->images_per_second[i][v];
    p.top = p.top > 0 ? p.top * 1.08 : 1;
    fprintf(file, "<text x=\"%d\" y=\"%.1f\" class=\"head\">", LEFT, p.upper - 12);
    picture_text(file, g->title);
    fprintf(file, ": images/s over the %s</text>\n", g->over_batch ? "batch" : "budget");
    draw_axes(&p);
    for (int i = 0; i < g->n_policies; i++) draw_curve(&p, i);
    draw_legend(&p, p.lower + FOOT + 8);
}

static void draw_page(FILE *file, const grid *grids, int n) {
    static const char style[] = "text{font-family:system-ui,'Helvetica Neue',Arial,sans-serif;fill:#1f2937}"
                                ".title{font-size:19px;font-weight:600}.head{font-size:14px;font-weight:600}"
                                ".name{font-size:12px;fill:#4b5563}.tick{font-size:11px;fill:#6b7280}"
                                ".end{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:#e5e7eb}"
                                ".curve{fill:none;stroke-width:2}";
    int height = TITLE + 12;
    for (int i = 0; i < n; i++) height += panel_height(&grids[i]);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
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
    mm_status status =
        good ? picture_write(path, bytes, n_bytes) : mm_fail(MM_ERR_NOMEM, "out of memory for the picture %s", path);
    free(bytes);
    return status;
}
