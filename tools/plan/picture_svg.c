/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "tools/args/picture_page.h"
#include "tools/plan/picture.h"
#include "tools/plan/picture_columns.h"
#include "tools/plan/picture_homes.h"

/* The page, in pixels.
 *
 *   title
 *   legend
 *   | panel: name and figures            HEAD
 *   |   plot                             plot_height
 *   |   steps, phases                    FOOT
 *   |   homes that are not on the device (picture_homes.c)
 *   | next panel ... */
enum {
    WIDTH = 1000,
    LEFT = 84,
    RIGHT = 972,
    PLOT = RIGHT - LEFT,
    TITLE = 34,
    LEGEND = 60,
    LEGEND_ROW = 20,
    HEAD = 46,
    FOOT = 44,
    BOTTOM = 12,
    ONE_PLOT = 380,
    MANY_PLOT = 210,
    CHARACTER = 7,        /* approximate width of a character in the legend */
    TITLE_CHARACTER = 11, /* and, at most, in the title: a longer one is made narrower */
};

/* Okabe and Ito's colours, which most colour-blind people can tell apart. Bytes that stay are grey. */
static const char *const COLOURS[PICTURE_LAYERS] = {
    [PICTURE_LASTING] = "#8a8f98",   [PICTURE_STASH] = "#0072b2", [PICTURE_CODES] = "#009e73",
    [PICTURE_BUFFERS] = "#cc79a7",   [PICTURE_MAPS] = "#56b4e9",  [PICTURE_GRADIENTS] = "#e69f00",
    [PICTURE_WORKSPACE] = "#d55e00",
};

typedef struct page {
    FILE *file;
    const picture *picture;
    int64_t tick, top; /* bytes: between two lines of the grid; at the upper edge of every plot */
    int plot_height;
} page;

typedef struct plot {
    const page *page;
    const picture_memory *memory;
    double upper, lower; /* y */
    int columns;
} plot;

/* ---------------------------------------------------------------- scale */

/* The smallest power of two such that at most `lines` grid lines reach `bytes`. */
static int64_t tick_for(int64_t bytes, int lines) {
    int64_t tick = 1;
    while (tick * lines < bytes) tick *= 2;
    return tick;
}

static void set_scale(page *p) {
    int64_t most = p->picture->budget_bytes > 1 ? p->picture->budget_bytes : 1;
    for (int i = 0; i < p->picture->n_panels; i++)
        if (p->picture->panels[i].memory.needed_bytes > most) most = p->picture->panels[i].memory.needed_bytes;
    most += most / 8; /* room for a label above the peak */
    p->plot_height = p->picture->n_panels == 1 ? ONE_PLOT : MANY_PLOT;
    p->tick = tick_for(most, p->picture->n_panels == 1 ? 10 : 6);
    p->top = most;
}

static double y_of(const plot *p, int64_t bytes) {
    return p->lower - (double)bytes / (double)p->page->top * (p->lower - p->upper);
}

static double x_of(const plot *p, double column) { return LEFT + column / p->columns * PLOT; }

/* ---------------------------------------------------------------- a plot */

static void draw_grid(const plot *p) {
    FILE *f = p->page->file;
    char size[32];
    for (int64_t bytes = 0; bytes <= p->page->top; bytes += p->page->tick) {
        double y = y_of(p, bytes);
        fprintf(f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", LEFT, RIGHT, y, y);
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" class=\"tick end\">%s</text>\n", LEFT - 8, y + 4,
                bytes ? mm_size_format(bytes, size, sizeof size) : "0");
    }
}

/* Draws each layer as the area from the axis to its top, the highest layer first. Lower layers then cover its lower
 * part, and no seam shows between them. */
static void draw_layers(const plot *p) {
    FILE *f = p->page->file;
    uint32_t layers = picture_layers_of(p->memory);
    for (int l = PICTURE_LAYERS - 1; l >= 0; l--) {
        if (!(layers & 1u << l)) continue;
        double y = p->lower;
        fprintf(f, "<path fill=\"%s\" d=\"M%d %.1f", COLOURS[l], LEFT, y);
        for (int c = 0; c < p->columns; c++) {
            int64_t tops[PICTURE_LAYERS];
            picture_tops(&p->memory->steps[picture_column_step(p->memory, c, p->columns)], tops);
            double next = y_of(p, tops[l]);
            if (next - y < 0.05 && y - next < 0.05) continue;
            fprintf(f, "H%.1fV%.1f", x_of(p, c), next);
            y = next;
        }
        fprintf(f, "H%dV%.1fZ\"><title>%s</title></path>\n", RIGHT, p->lower, picture_layer_name(l));
    }
}

static void draw_phases(const plot *p) {
    static const mm_phase phases[] = {MM_FORWARD, MM_BACKWARD, MM_UPDATE};
    FILE *f = p->page->file;
    int n = p->memory->n_steps;
    for (int i = 0; i < 3; i++) {
        int begin = picture_phase_begin(p->memory, phases[i]);
        int end = n;
        for (int j = i + 1; j < 3; j++) {
            int other = picture_phase_begin(p->memory, phases[j]);
            if (other < end) end = other;
        }
        if (begin >= end) continue;
        double x1 = LEFT + (double)begin / n * PLOT, x2 = LEFT + (double)end / n * PLOT;
        if (begin > 0 && x2 - x1 > 8)
            fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" class=\"phase\"/>\n", x1, x1, p->upper,
                    p->lower + 34);
        if (x2 - x1 > 60)
            fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"name middle\">%s</text>\n", (x1 + x2) / 2, p->lower + 33,
                    mm_phase_name(phases[i]));
    }
}

static void draw_steps(const plot *p) {
    FILE *f = p->page->file;
    int n = p->memory->n_steps, tick = 1;
    static const int factors[] = {2, 5, 10};
    for (int power = 1; n / tick > 10; power *= 10)
        for (int i = 0; i < 3 && n / tick > 10; i++) tick = power * factors[i];
    for (int step = 0; step < n; step += tick)
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"tick middle\">%d</text>\n",
                LEFT + ((double)step + 0.5) / n * PLOT, p->lower + 16, step);
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" class=\"tick end\">step</text>\n", LEFT - 8, p->lower + 16);
}

static void draw_budget(const plot *p, bool left) {
    int64_t budget = p->page->picture->budget_bytes;
    if (budget <= 0) return;
    char size[32];
    double y = y_of(p, budget);
    fprintf(p->page->file, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"budget\"/>\n", LEFT, RIGHT, y, y);
    fprintf(p->page->file, "<text x=\"%d\" y=\"%.1f\" class=\"label budget-label%s\">budget %s</text>\n",
            left ? LEFT + 6 : RIGHT - 6, y - 5, left ? "" : " end", mm_size_format(budget, size, sizeof size));
}

static void draw_peak(const plot *p, double column) {
    FILE *f = p->page->file;
    char size[32];
    double x = x_of(p, column + 0.5), y = y_of(p, p->memory->live_bytes);
    const char *side = x < LEFT + PLOT / 4.0 ? "" : x > RIGHT - PLOT / 4.0 ? " end" : " middle";
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" class=\"peak\"/>\n", x, y);
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"label%s\">peak %s: ", x, y - 8, side,
            mm_size_format(p->memory->live_bytes, size, sizeof size));
    picture_text(f, p->memory->held_by);
    fputs("</text>\n", f);
}

static void draw_head(const plot *p, const picture_panel *panel) {
    FILE *f = p->page->file;
    char size[32];
    const int64_t needed = panel->memory.needed_bytes;
    int64_t budget = p->page->picture->budget_bytes;
    fprintf(f, "<text x=\"%d\" y=\"%.1f\" class=\"head\">", LEFT, p->upper - 14);
    picture_text(f, panel->name);
    const bool misfit = budget > 0 && needed > budget;
    fprintf(f, "</text>\n<text x=\"%d\" y=\"%.1f\" class=\"%s\">%s %s%s</text>\n", RIGHT, p->upper - 14,
            misfit ? "name end misfit" : "name end", budget > 0 && !misfit ? "takes" : "minimum budget",
            mm_size_format(needed, size, sizeof size),
            budget <= 0 ? ""
            : misfit    ? ", does not fit"
                        : ", fits");
}

static void draw_panel(const page *page, const picture_panel *panel, double y) {
    plot p = {.page = page, .memory = &panel->memory, .upper = y + HEAD, .lower = y + HEAD + page->plot_height};
    p.columns = panel->memory.n_steps < PLOT ? panel->memory.n_steps : PLOT;
    draw_head(&p, panel);
    draw_grid(&p);
    if (p.columns == 0) return;
    draw_layers(&p);
    draw_phases(&p);
    draw_steps(&p);
    int peak = picture_column_of(p.memory, picture_peak(p.memory), p.columns);
    draw_budget(&p, peak > p.columns / 2);
    draw_peak(&p, peak);
    picture_homes_draw(page->file, &panel->homes, LEFT, RIGHT, p.lower + FOOT, panel->memory.n_steps,
                       COLOURS[PICTURE_LASTING]);
}

/* ---------------------------------------------------------------- the page */

/* Draws the legend; file NULL: only measures it. Returns its number of rows. */
static int legend(FILE *file, uint32_t layers) {
    int x = LEFT, row = 0;
    for (int l = 0; l < PICTURE_LAYERS; l++) {
        if (!(layers & 1u << l)) continue;
        int width = 30 + CHARACTER * (int)strlen(picture_layer_name(l));
        if (x + width > RIGHT && x > LEFT) {
            x = LEFT;
            row++;
        }
        int y = LEGEND + row * LEGEND_ROW;
        if (file)
            fprintf(file,
                    "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>\n"
                    "<text x=\"%d\" y=\"%d\" class=\"name\">%s</text>\n",
                    x, y - 10, COLOURS[l], x + 17, y, picture_layer_name(l));
        x += width;
    }
    return row + 1;
}

static int panel_height(const page *p, const picture_panel *panel) {
    return HEAD + p->plot_height + FOOT + picture_homes_height(&panel->homes);
}

static void draw_page(page *p) {
    static const char style[] = "text{font-family:system-ui,'Helvetica Neue',Arial,sans-serif;fill:#1f2937}"
                                ".title{font-size:19px;font-weight:600}.head{font-size:14px;font-weight:600}"
                                ".name{font-size:12px;fill:#4b5563}.tick{font-size:11px;fill:#6b7280}"
                                ".label{font-size:12px;font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:3px}"
                                ".end{text-anchor:end}.middle{text-anchor:middle}.misfit,.budget-label{fill:#b91c1c}"
                                ".grid{stroke:#e5e7eb}.phase{stroke:#6b7280;stroke-dasharray:2 3}"
                                ".budget{stroke:#b91c1c;stroke-width:1.5;stroke-dasharray:7 4}"
                                ".peak{fill:#1f2937;stroke:#fff;stroke-width:1.5}";
    FILE *f = p->file;
    uint32_t layers = 0;
    for (int i = 0; i < p->picture->n_panels; i++) layers |= picture_layers_of(&p->picture->panels[i].memory);
    set_scale(p);
    int y = LEGEND + (legend(NULL, layers) - 1) * LEGEND_ROW + 6, height = y + BOTTOM;
    for (int i = 0; i < p->picture->n_panels; i++) height += panel_height(p, &p->picture->panels[i]);
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" " PICTURE_SHRINKS
        "role=\"img\">\n<title>",
        WIDTH, height, WIDTH, height);
    picture_text(f, p->picture->title);
    fprintf(f, "</title>\n<style>%s</style>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", style, WIDTH, height);
    fprintf(f, "<text x=\"%d\" y=\"%d\" class=\"title\"", LEFT, TITLE);
    if ((int)strlen(p->picture->title) * TITLE_CHARACTER > PLOT)
        fprintf(f, " textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\"", PLOT);
    fputs(">", f);
    picture_text(f, p->picture->title);
    fputs("</text>\n", f);
    legend(f, layers);
    for (int i = 0; i < p->picture->n_panels; i++) {
        draw_panel(p, &p->picture->panels[i], y);
        y += panel_height(p, &p->picture->panels[i]);
    }
    fputs("</svg>\n", f);
}

void picture_write(FILE *file, const picture *picture) {
    page p = {.file = file, .picture = picture};
    draw_page(&p);
}

mm_status picture_save(const char *path, const picture *picture) {
    char *bytes = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&bytes, &n_bytes);
    if (!file) return mm_fail(MM_ERR_NOMEM, "out of memory for the picture %s", path);
    picture_write(file, picture);
    bool good = !ferror(file);
    good &= fclose(file) == 0;
    mm_status status = good ? mm_atomic_file_save(path, bytes, n_bytes)
                            : mm_fail(MM_ERR_NOMEM, "out of memory for the picture %s", path);
    free(bytes);
    return status;
}
