/* SPDX-License-Identifier: MIT */
/* Tables of text that fit the terminal's width (terminal_width). If a table is too wide, columns are dropped in the
 * order of their `drop`, and a line below says which; or the table is split into parts, one under the other. After a
 * cell wider than two fifths of the line the row continues on the next line. The last column, if aligned to the left,
 * is wrapped instead. */
#ifndef TOOLS_ARGS_TABLE_H
#define TOOLS_ARGS_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "mm/core/status.h"

enum { TABLE_COLUMNS = 257 };

typedef struct table_column {
    const char *head; /* borrowed */
    bool left;        /* aligned to the left; else to the right, as numbers */
    int drop;         /* 1: dropped first, then 2, ...; 0: never */
} table_column;

typedef enum table_shape {
    TABLE_DROPPING, /* drops columns; columns with nothing but "-" are dropped too */
    TABLE_FOLDED,   /* splits into parts; the first column is repeated in each */
} table_shape;

typedef struct table table;

/* An empty table with copies of the columns. The caller destroys it. MM_ERR_INVALID: more than TABLE_COLUMNS;
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status table_create(const table_column *columns, int n_columns, table_shape shape, table **table_out);
void table_destroy(table *t);

/* table_row begins a row, table_cell adds its next cell. If memory runs out, table_print returns MM_ERR_NOMEM. */
void table_row(table *t);
void table_cell(table *t, const char *format, ...) MM_PRINTF(2, 3);
/* Makes table_print return MM_ERR_NOMEM: there was no memory for a cell's text. */
void table_fail(table *t);
/* Ends the row with a note in place of its remaining cells: a text of any length, which is wrapped. */
void table_note(table *t, const char *format, ...) MM_PRINTF(2, 3);

/* Prints the table. MM_ERR_NOMEM. Does not check for write errors; ferror() has them. */
MM_CHECKED mm_status table_print(FILE *file, const table *t);

/* Prints text wrapped at spaces to the terminal's width, at most 100 columns. at: the column where the first line
 * begins; indent: that of later lines. A word that is wider than a line is cut after a comma or semicolon. */
void table_wrap(FILE *file, int at, int indent, const char *text);

#endif
