/* SPDX-License-Identifier: MIT */
/* What the terminal can do, and how wide lines may be. Nothing here or elsewhere uses colours, so NO_COLOR needs no
 * case. */
#ifndef TOOLS_ARGS_TERMINAL_H
#define TOOLS_ARGS_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

enum { TERMINAL_COLUMNS = 80 /* where the width is not known */ };

/* Whether lines there can be redrawn: a terminal, and neither TERM=dumb nor no TERM at all. Otherwise only plain lines
 * are written. */
bool terminal_redraws(int descriptor);

/* What a message on standard error begins with: the sequence that clears the line, where a progress bar may be; else
 * "". */
const char *terminal_clear(void);

/* Columns of a line: COLUMNS, if that is a number above 1; else the terminal's width; else TERMINAL_COLUMNS. */
int terminal_columns(int descriptor);

/* The same for a stream, within [60, 200]: wider lines are hard to read, and tables need some room. */
int terminal_width(FILE *file);

#endif
