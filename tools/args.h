/* Command-line options from a table, which is also what --help prints. An option given twice is refused, but for those
 * of kind ARG_TEXTS, of which --help says that they may be repeated. */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include "mm/core/status.h"

typedef enum arg_kind {
    ARG_END,
    ARG_FLAG,   /* bool */
    ARG_TEXT,   /* const char *: points into argv */
    ARG_MAYBE,  /* the same; "" where no value follows */
    ARG_COUNT,  /* int64_t within [min, max] */
    ARG_NUMBER, /* double within [min, max] */
    ARG_SIZE,   /* int64_t bytes, at least min: 12GiB */
    ARG_TEXTS,  /* arg_texts: may be repeated; each points into argv */
} arg_kind;

enum { ARG_TEXTS_MAX = 64, ARGS_MAX = 64 /* options of a command */ };

/* Some texts of any length. A copy of the struct borrows its block. */
typedef struct arg_texts {
    int n;
    const char *text[ARG_TEXTS_MAX]; /* in argv, in the block, or whoever put it there keeps it */
    char *block;                     /* of args_split; NULL: none */
} arg_texts;

typedef struct arg {
    const char *name;  /* "--batch" */
    const char *value; /* what --help calls its value: "N" */
    const char *help;
    arg_kind kind;
    void *target;
    double min, max;
} arg;

/* Fills the targets. --help and --version: print the command's help, or the version, to stdout, and set *help_out.
 * MM_ERR_INVALID: says which option is wrong and why. `usage` is the first line, `text` what stands between it and the options. */
MM_CHECKED mm_status args_parse(int argc, char **argv, const arg *table, const char *usage, const char *text,
                                bool *help_out);

/* Whether the option is among the arguments. */
bool args_given(int argc, char **argv, const char *name);

/* The option of that name; NULL: there is none. */
const arg *args_find(const arg *table, const char *name);

/* Sets an option as the command line would; texts are split (args_split), to be ended by args_texts_fini. "" leaves it
 * as it is. Else the text must live as long as what it is set for. */
MM_CHECKED mm_status args_set(const arg *a, const char *text);

/* An option's value as args_set takes it, to be freed; "" for one below its least, which is none. NULL: out of memory. No flags. */
char *args_text(const arg *a);

/* Splits "a,b,c"; a policy's own commas bind closer: "naive,freelunch:rate=4,depth=2" is two (a piece without a name of
 * its own, key=value, belongs to the piece before). `name` is the option, for messages. The caller ends the texts with
 * args_texts_fini. */
MM_CHECKED mm_status args_split(const char *name, const char *text, arg_texts *texts_out);
void args_texts_fini(arg_texts *texts);

/* Adds one of yours, which must live as long as the texts. MM_ERR_INVALID: more than ARG_TEXTS_MAX. */
MM_CHECKED mm_status args_texts_add(const char *name, arg_texts *texts, const char *text);

#endif
