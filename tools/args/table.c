/* SPDX-License-Identifier: MIT */
#include "tools/args/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/args/terminal.h"

enum { GAP = 2, NOTE = -1 };

/* A cell, or a row's note (table_note; column NOTE). text: where its text begins in table.text. */
typedef struct cell {
    int row, column;
    size_t text;
} cell;

struct table {
    table_column columns[TABLE_COLUMNS];
    int n_columns, n_rows;
    table_shape shape;
    cell *cells; /* row by row */
    int n_cells, cells_capacity;
    char *text; /* the texts of all cells, each ended by a NUL */
    size_t text_bytes, text_capacity;
    bool failed; /* memory ran out */
};

mm_status table_create(const table_column *columns, int n_columns, table_shape shape, table **table_out) {
    if (n_columns > TABLE_COLUMNS)
        return mm_fail(MM_ERR_INVALID, "the table has %d columns; at most %d are allowed", n_columns, TABLE_COLUMNS);
    table *t = calloc(1, sizeof *t);
    if (!t) return mm_fail(MM_ERR_NOMEM, "out of memory for a table");
    memcpy(t->columns, columns, (size_t)n_columns * sizeof *columns);
    t->n_columns = n_columns;
    t->shape = shape;
    *table_out = t;
    return MM_OK;
}

void table_destroy(table *t) {
    if (!t) return;
    free(t->cells);
    free(t->text);
    free(t);
}

/* ---------------------------------------------------------------- filling */

static bool reserve_text(table *t, size_t bytes) {
    if (t->text_bytes + bytes <= t->text_capacity) return true;
    size_t capacity = 2 * (t->text_bytes + bytes);
    char *text = realloc(t->text, capacity);
    if (!text) return false;
    t->text = text;
    t->text_capacity = capacity;
    return true;
}

static bool reserve_cell(table *t) {
    if (t->n_cells < t->cells_capacity) return true;
    int capacity = t->cells_capacity ? 2 * t->cells_capacity : 64;
    cell *cells = realloc(t->cells, (size_t)capacity * sizeof *cells);
    if (!cells) return false;
    t->cells = cells;
    t->cells_capacity = capacity;
    return true;
}

static void add(table *t, int column, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0 || !reserve_cell(t) || !reserve_text(t, (size_t)length + 1)) {
        t->failed = true;
        return;
    }
    vsnprintf(t->text + t->text_bytes, (size_t)length + 1, format, arguments);
    t->cells[t->n_cells++] = (cell){.row = t->n_rows - 1, .column = column, .text = t->text_bytes};
    t->text_bytes += (size_t)length + 1;
}

void table_row(table *t) { t->n_rows++; }

void table_fail(table *t) { t->failed = true; }

void table_cell(table *t, const char *format, ...) {
    const cell *last = t->n_cells > 0 ? &t->cells[t->n_cells - 1] : NULL;
    int column = last && last->row == t->n_rows - 1 ? last->column + 1 : 0;
    if (column >= t->n_columns) return;
    va_list arguments;
    va_start(arguments, format);
    add(t, column, format, arguments);
    va_end(arguments);
}

void table_note(table *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add(t, NOTE, format, arguments);
    va_end(arguments);
}

/* ---------------------------------------------------------------- which columns, how wide */

typedef struct layout {
    int page;                 /* columns of a line */
    int width[TABLE_COLUMNS]; /* 0: not printed */
    bool dropped[TABLE_COLUMNS];
} layout;

/* Whether a column's texts are wrapped into further lines if they do not fit. */
static bool is_wrapped(const table *t, int column) { return column == t->n_columns - 1 && t->columns[column].left; }

/* The width of a cell that ends its line (put_long): beside two such cells there is room for some figures. */
static int widest_cell(int page) { return 2 * page / 5; }

/* The width that a text needs in its column. 0: it needs none, because it is so long that it ends its line (put_long),
 * or because it can be wrapped. */
static int shown_width(const table *t, const layout *l, int column, const char *text) {
    int width = (int)strlen(text);
    return width > widest_cell(l->page) || (is_wrapped(t, column) && strchr(text, ' ')) ? 0 : width;
}

static void measure(const table *t, layout *l) {
    bool known[TABLE_COLUMNS] = {false};
    for (int i = 0; i < t->n_cells; i++) {
        const cell *c = &t->cells[i];
        const char *text = t->text + c->text;
        if (c->column == NOTE) continue;
        known[c->column] |= *text && strcmp(text, "-") != 0;
        int width = shown_width(t, l, c->column, text);
        if (width > l->width[c->column]) l->width[c->column] = width;
    }
    for (int c = 0; c < t->n_columns; c++) {
        int head = (int)strlen(t->columns[c].head);
        if (!known[c] && t->n_rows > 0 && t->shape == TABLE_DROPPING)
            l->width[c] = 0;
        else if (head > l->width[c])
            l->width[c] = head > 0 ? head : 1;
    }
}

static int width_of(const table *t, const layout *l) {
    int width = -GAP;
    for (int c = 0; c < t->n_columns; c++) width += l->width[c] > 0 ? l->width[c] + GAP : 0;
    return width;
}

static void drop(const table *t, layout *l) {
    while (width_of(t, l) > l->page) {
        int next = -1;
        for (int c = 0; c < t->n_columns; c++)
            if (l->width[c] > 0 && t->columns[c].drop > 0 && (next < 0 || t->columns[c].drop < t->columns[next].drop))
                next = c;
        if (next < 0) return;
        l->dropped[next] = true;
        l->width[next] = 0;
    }
}

/* ---------------------------------------------------------------- printing */

/* How much of a word that is wider than a line to print in `room` columns: up to the last comma or semicolon within. */
static int part_of(const char *word, int length, int room) {
    int part = room < length ? room : length;
    for (int i = part; i > 0 && part < length; i--)
        if (word[i - 1] == ',' || word[i - 1] == ';') return i;
    return part;
}

static void wrap(FILE *file, int page, int at, int indent, const char *text) {
    bool fresh = true; /* no space is needed before the next word */
    while (*text == ' ') text++;
    while (*text) {
        int length = (int)strcspn(text, " "), gap = fresh ? 0 : 1;
        bool wide = indent + length > page;
        if (at + gap + (wide ? 1 : length) > page && at > indent) {
            fprintf(file, "\n%*s", indent, "");
            at = indent, gap = 0;
        }
        if (wide) length = part_of(text, length, page - at - gap);
        at += fprintf(file, "%*s%.*s", gap, "", length, text);
        text += length;
        fresh = *text != ' ' && *text != '\0'; /* the rest of a cut word: on the next line, no space */
        if (fresh) at = page;
        while (*text == ' ') text++;
    }
}

void table_wrap(FILE *file, int at, int indent, const char *text) {
    enum { PROSE_MOST = 100 }; /* chosen: longer lines of prose are hard to read */
    const int page = terminal_width(file);
    wrap(file, page < PROSE_MOST ? page : PROSE_MOST, at, indent, text);
}

/* A line that is being printed. Padding is held back until the next text, so that no line ends with spaces. */
typedef struct line {
    FILE *file;
    int page;
    int at, fill; /* columns written, and spaces held back */
    bool begun;
} line;

static void put(line *l, const char *text, int width, bool left) {
    int length = (int)strlen(text), room = width > length ? width - length : 0;
    if (l->begun) l->fill += GAP;
    l->begun = true;
    if (!left) l->fill += room;
    if (length > 0) {
        fprintf(l->file, "%*s%s", l->fill, "", text);
        l->at += l->fill + length;
        l->fill = 0;
    }
    if (left) l->fill += room;
}

static void end(line *l) {
    fputc('\n', l->file);
    *l = (line){.file = l->file, .page = l->page};
}

/* Prints a text from column `at` on, wrapped. Begins a line first if its first word has no room there. */
static void put_wrapped(line *l, int at, int indent, const char *text) {
    const int word = (int)strcspn(text, " "), least = indent + word > l->page ? 1 : word;
    if (at + least > l->page && at > indent) {
        fprintf(l->file, "\n%*s", indent, "");
        at = indent;
    } else
        fprintf(l->file, "%*s", at - l->at, "");
    wrap(l->file, l->page, at, indent, text);
}

/* Prints a cell too wide for its column, and ends the line. The next cells follow on the next line, in their
 * columns. */
static void put_long(line *l, const char *text, int width) {
    int at = l->at + l->fill + (l->begun ? GAP : 0);
    put_wrapped(l, at, 4, text);
    end(l);
    l->fill = at + width;
    l->begun = true;
}

static void put_note(line *l, const char *text) {
    int at = l->at + l->fill + (l->begun ? GAP : 0);
    if (!*text) return;
    put_wrapped(l, at, 5 * at <= 3 * l->page ? at : 4, text);
}

static void print_rows(FILE *file, const table *t, const layout *l) {
    line out = {.file = file, .page = l->page};
    for (int c = 0; c < t->n_columns; c++)
        if (l->width[c] > 0) put(&out, t->columns[c].head, l->width[c], t->columns[c].left);
    end(&out);
    for (int i = 0, r = 0; r < t->n_rows; r++) {
        for (; i < t->n_cells && t->cells[i].row == r; i++) {
            const cell *c = &t->cells[i];
            const char *text = t->text + c->text;
            if (c->column == NOTE)
                put_note(&out, text);
            else if (l->width[c->column] == 0)
                continue;
            else if (is_wrapped(t, c->column))
                put_note(&out, text);
            else if ((int)strlen(text) > widest_cell(l->page))
                put_long(&out, text, l->width[c->column]);
            else
                put(&out, text, l->width[c->column], t->columns[c->column].left);
        }
        end(&out);
    }
}

static void print_dropped(FILE *file, const table *t, const layout *l) {
    char text[1024] = "(columns left out: ";
    size_t n = strlen(text), before = n;
    for (int c = 0; c < t->n_columns && n < sizeof text; c++)
        if (l->dropped[c])
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n > before ? ", " : "", t->columns[c].head);
    if (n == before) return;
    if (n < sizeof text) snprintf(text + n, sizeof text - n, "; --json has all)");
    table_wrap(file, 0, 1, text);
    fputc('\n', file);
}

/* Prints the table in parts. Each part has the first column, and as many of the others as fit beside it. */
static void print_folded(FILE *file, const table *t, const layout *all) {
    for (int c = 1; c < t->n_columns;) {
        layout part = {.page = all->page, .width = {all->width[0]}};
        int first = c;
        for (; c < t->n_columns; c++) {
            part.width[c] = all->width[c];
            if (c > first && width_of(t, &part) > all->page) break;
        }
        if (c < t->n_columns) part.width[c] = 0;
        print_rows(file, t, &part);
    }
}

mm_status table_print(FILE *file, const table *t) {
    layout l = {.page = terminal_width(file)};
    if (t->failed) return mm_fail(MM_ERR_NOMEM, "out of memory for a table of %d rows", t->n_rows);
    measure(t, &l);
    if (t->shape == TABLE_FOLDED) {
        print_folded(file, t, &l);
        return MM_OK;
    }
    drop(t, &l);
    print_rows(file, t, &l);
    print_dropped(file, t, &l);
    return MM_OK;
}
