/* Tables of text that fit 100 columns, on a terminal or off it. Where the columns are too wide, they are dropped in the
 * order of their `drop`, and a line below says which; or the table is parted, one part under the other. A cell wider
 * than TABLE_CELL ends its line, and the row goes on in the next; the last column, if it is aligned to the left, is
 * wrapped instead. */
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "mm/core/status.h"

enum { TABLE_WIDTH = 100, TABLE_CELL = 40, TABLE_COLUMNS = 257 };

typedef struct table_column {
    const char *head; /* borrowed */
    bool left;        /* aligned; numbers are to the right */
    int drop;         /* 1: dropped first, then 2, ...; 0: never */
} table_column;

typedef enum table_shape {
    TABLE_DROPPING, /* columns of "-" alone are left out, too */
    TABLE_FOLDED,   /* parted; the first column is repeated in each part */
} table_shape;

typedef struct table table;

/* An empty table. MM_ERR_INVALID: more than TABLE_COLUMNS; MM_ERR_NOMEM. The columns are copied. */
MM_CHECKED mm_status table_create(const table_column *columns, int n_columns, table_shape shape, table **table_out);
void table_destroy(table *t);

/* Begins a row, and adds its next cell. If memory runs out, table_print says so. */
void table_row(table *t);
void table_cell(table *t, const char *format, ...) MM_PRINTF(2, 3);
/* Ends the row: text of any length in place of the cells that are left, which goes on below. */
void table_note(table *t, const char *format, ...) MM_PRINTF(2, 3);

/* MM_ERR_NOMEM. What cannot be written is the stream's error. */
MM_CHECKED mm_status table_print(FILE *file, const table *t);

/* Text of any length, from column `at` (where the line has got to) on, in lines of at most TABLE_WIDTH columns, cut
 * where a space is; lines after the first are indented by `indent`. A word that is wider than a line is cut behind a
 * comma or semicolon. */
void table_wrap(FILE *file, int at, int indent, const char *text);

#endif
