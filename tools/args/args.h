/* SPDX-License-Identifier: MIT */
/* Command-line options. A table describes a command's options; args_parse parses by it and prints --help from it. Only
 * options of kind ARG_TEXTS may be given more than once; --help says so. */
#ifndef TOOLS_ARGS_ARGS_H
#define TOOLS_ARGS_ARGS_H

#include "mm/core/status.h"

typedef enum arg_kind {
    ARG_END,
    ARG_FLAG,   /* bool */
    ARG_TEXT,   /* const char *: points into argv */
    ARG_MAYBE,  /* as ARG_TEXT; "" if no value follows */
    ARG_COUNT,  /* int64_t within [min, max] */
    ARG_NUMBER, /* double within [min, max] */
    ARG_SIZE,   /* int64_t bytes, at least min: 12GiB. 0 is refused unless min is below 0 */
    ARG_TEXTS,  /* arg_texts: may be repeated; each points into argv */
    ARG_WORDS,  /* arg_texts: all arguments that are no options (or after "--"), "mm report FILE..."; name: for help */
} arg_kind;

enum { ARG_TEXTS_MAX = 64, ARGS_MAX = 72 /* most options of a command */ };

/* A list of texts. A plain copy of the struct shares its block. */
typedef struct arg_texts {
    int n;
    const char *text[ARG_TEXTS_MAX]; /* borrowed: points into argv, into the block, or to a text of the caller */
    char *block;                     /* allocated by args_split; NULL: none */
} arg_texts;

typedef struct arg {
    const char *name;  /* "--batch" */
    const char *value; /* name of its value in --help: "N" */
    const char *help;
    arg_kind kind;
    void *target;
    double min, max;
} arg;

/* One option as an initialiser, for headers that define options of several commands. */
#define ARG(name, value, help, kind, target, min, max)                                                                 \
    { name, value, help, kind, target, min, max }

/* --json of commands that list what there is. "": FILE is left out; that is standard output. */
#define LIST_JSON_ARG(path)                                                                                            \
    ARG("--json", "[FILE]", "the list as an array of objects, to FILE or standard output", ARG_MAYBE, path, 0, 0)

/* Parses the arguments and sets the targets. --help and --version (-h; -V, -v) print the command's help, or the
 * version, to stdout, and set *help_out; so does --help=FORM as the last argument (help_print_as). "--" ends the
 * options. --batch and --batches are the same option, as are --budget and --budgets, --net and --nets, --policy and
 * --policies. usage: the first line of the help; text: what follows it, before the options (help_print).
 * MM_ERR_INVALID: the message says which option is wrong, and why. */
MM_CHECKED mm_status args_parse(int argc, char **argv, const arg *table, const char *usage, const char *text,
                                bool *help_out);

/* Reads a size that a user typed. Refuses a bare number below 4096, which is more likely meant in GiB. name: the
 * option. MM_ERR_INVALID. */
MM_CHECKED mm_status args_size(const char *name, const char *text, int64_t *bytes_out);

/* Whether the option `name` is among the arguments, also as name=VALUE, or its twin (--batch and --batches). */
bool args_given(int argc, char **argv, const char *name);

/* The option with that name; NULL: there is none. */
const arg *args_find(const arg *table, const char *name);

/* Sets an option as the command line would. "" changes nothing. ARG_TEXTS: replaces the texts with those of args_split,
 * which the caller frees with args_texts_fini. ARG_TEXT: the target borrows the text. MM_ERR_INVALID. */
MM_CHECKED mm_status args_set(const arg *a, const char *text);

/* An option's value as text for args_set; "" for a number below its minimum, which stands for "not set". Not for flags.
 * The caller frees it. NULL: out of memory. */
char *args_text(const arg *a);

/* Splits "a,b,c" at its commas. A piece key=value belongs to the piece before it, so "naive,freelunch:rate=4,depth=2"
 * is two policies. name: the option, for messages. The caller frees the texts with args_texts_fini. MM_ERR_INVALID: no
 * text, or more than ARG_TEXTS_MAX; MM_ERR_NOMEM. */
MM_CHECKED mm_status args_split(const char *name, const char *text, arg_texts *texts_out);
void args_texts_fini(arg_texts *texts);

/* Reads rising whole numbers, 1 to 1e9: "1,100,1000". name: for messages. MM_ERR_INVALID, MM_ERR_NOMEM. */
MM_CHECKED mm_status args_rising(const char *name, const char *text, int64_t numbers_out[ARG_TEXTS_MAX], int *n_out);

/* Appends a text, and borrows it. name: for messages. MM_ERR_INVALID: more than ARG_TEXTS_MAX. */
MM_CHECKED mm_status args_texts_add(const char *name, arg_texts *texts, const char *text);

#endif
