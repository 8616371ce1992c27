/* SPDX-License-Identifier: MIT */
#include <langinfo.h>
#include <locale.h>
#include <string.h>

#include "mm/core/size.h"
#include "tools/plan/picture.h"
#include "tools/plan/picture_columns.h"

enum { COLUMNS = 68, ROWS = 12 };

/* The characters that a chart is drawn with. */
typedef struct glyphs {
    const char *layer[PICTURE_LAYERS];
    const char *budget, *axis, *corner, *line, *mark, *boundary;
} glyphs;

static const glyphs ASCII = {
    .layer = {"W", "S", "C", "B", "m", "g", "w"},
    .budget = "-",
    .axis = "|",
    .corner = "+",
    .line = "-",
    .mark = "^",
    .boundary = "|",
};

static const glyphs BLOCKS = {
    .layer = {"█", "▓", "▚", "▞", "▒", "░", "·"},
    .budget = "╌",
    .axis = "│",
    .corner = "└",
    .line = "─",
    .mark = "▲",
    .boundary = "┴",
};

bool picture_utf8(void) {
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!locale) return false;
    bool utf8 = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return utf8;
}

typedef struct chart {
    FILE *file;
    const picture_memory *memory;
    const glyphs *g;
    int64_t top, budget; /* bytes */
} chart;

/* The glyph of a cell: that of the layer at the middle of its height. Row 0 is the highest. */
static const char *cell(const chart *c, int row, const int64_t tops[PICTURE_LAYERS]) {
    double middle = (double)c->top * (ROWS - row - 0.5) / ROWS;
    for (int l = 0; l < PICTURE_LAYERS; l++)
        if (middle < (double)tops[l]) return c->g->layer[l];
    bool crossed = c->budget > 0 && c->budget <= c->top &&
                   row == (int)((double)ROWS * (double)(c->top - c->budget) / (double)c->top);
    return crossed ? c->g->budget : " ";
}

static void print_rows(const chart *c) {
    int64_t tops[COLUMNS][PICTURE_LAYERS];
    char size[32];
    for (int i = 0; i < COLUMNS; i++)
        picture_tops(&c->memory->steps[picture_column_step(c->memory, i, COLUMNS)], tops[i]);
    for (int row = 0; row < ROWS; row++) {
        bool labelled = row % 4 == 0;
        int64_t bytes = c->top / ROWS * (ROWS - row);
        fprintf(c->file, "%10s %s", labelled ? mm_size_format(bytes, size, sizeof size) : "", c->g->axis);
        for (int i = 0; i < COLUMNS; i++) fputs(cell(c, row, tops[i]), c->file);
        fputc('\n', c->file);
    }
}

static void print_axis(const chart *c) {
    int peak = picture_column_of(c->memory, picture_peak(c->memory), COLUMNS);
    int first_backward = picture_phase_begin(c->memory, MM_BACKWARD);
    int turn = first_backward < c->memory->n_steps ? picture_column_of(c->memory, first_backward, COLUMNS) : -1;
    fprintf(c->file, "%10s %s", "0", c->g->corner);
    for (int i = 0; i < COLUMNS; i++) fputs(i == peak ? c->g->mark : i == turn ? c->g->boundary : c->g->line, c->file);
    fprintf(c->file, "\n%12sforward%*s\n", "", turn > 7 ? turn - 7 + 8 : 0, turn > 7 ? "backward" : "");
}

/* Prints the n-th entry of the legend, four to a line. */
static void print_entry(const chart *c, int n, const char *glyph, const char *name) {
    enum { IN_A_ROW = 4, INDENT = 12 };
    bool first = n % IN_A_ROW == 0;
    fprintf(c->file, "%s%*s%s %s", first && n > 0 ? "\n" : "", first ? INDENT : 2, "", glyph, name);
}

static void print_legend(const chart *c) {
    char size[32];
    uint32_t layers = picture_layers_of(c->memory);
    int n = 0;
    for (int l = 0; l < PICTURE_LAYERS; l++)
        if (layers & 1u << l) print_entry(c, n++, c->g->layer[l], picture_layer_name(l));
    if (c->budget > 0) print_entry(c, n++, c->g->budget, "budget");
    fprintf(c->file, "\n%12s%s peak %s: %s\n", "", c->g->mark, mm_size_format(c->memory->live_bytes, size, sizeof size),
            c->memory->held_by);
}

void picture_print(FILE *file, const picture_panel *panel, int64_t budget_bytes, bool utf8) {
    const picture_memory *memory = &panel->memory;
    if (memory->n_steps == 0) return;
    chart c = {.file = file, .memory = memory, .g = utf8 ? &BLOCKS : &ASCII, .budget = budget_bytes};
    c.top = memory->live_bytes > budget_bytes ? memory->live_bytes : budget_bytes;
    fprintf(file, "%12s%s\n", "", panel->name);
    print_rows(&c);
    print_axis(&c);
    print_legend(&c);
}
