/* SPDX-License-Identifier: MIT */
/* A command's help, made from its table of options: as text, as part of a man page, and for completion by shells. */
#ifndef TOOLS_ARGS_HELP_H
#define TOOLS_ARGS_HELP_H

#include "tools/args/args.h"

/* How a help's text is written. A line that begins with two spaces is kept as it is, or, where a gap of two spaces
 * follows its first words, is an entry of a list: "  batch      images of an update". A line that begins below an
 * entry's text continues the entry. Other lines are paragraphs. */
void help_print(const arg *table, const char *usage, const char *text);

/* Prints the help to standard output in another form. "man": the sections SYNOPSIS, DESCRIPTION and OPTIONS of a man
 * page; "bash": words of completion, "--batch=N --quiet"; "zsh": arguments of _arguments, one a line. MM_ERR_INVALID:
 * another form. */
MM_CHECKED mm_status help_print_as(const char *form, const arg *table, const char *usage, const char *text);

/* Prints text for a man page: escapes what is special to roff. */
void help_put_roff(const char *text);

#endif
