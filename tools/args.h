/* Command-line options from a table, which is also what --help prints. */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include "mm/core/status.h"

typedef enum arg_kind {
    ARG_END,
    ARG_FLAG,   /* bool */
    ARG_TEXT,   /* const char *: points into argv */
    ARG_COUNT,  /* int64_t within [min, max] */
    ARG_NUMBER, /* double within [min, max] */
    ARG_SIZE,   /* int64_t bytes, at least min: 12GiB */
    ARG_TEXTS,  /* arg_texts: may be given again, or separated by commas with `split` */
} arg_kind;

enum { ARG_TEXTS_MAX = 64, ARG_TEXT_CAPACITY = 160 };

typedef struct arg_texts {
    int n;
    char text[ARG_TEXTS_MAX][ARG_TEXT_CAPACITY];
} arg_texts;

typedef struct arg {
    const char *name;  /* "--batch" */
    const char *value; /* what --help calls its value: "N" */
    const char *help;
    arg_kind kind;
    void *target;
    double min, max;
} arg;

/* Fills the targets. --help: prints the command's help to stdout and sets *help_out. MM_ERR_INVALID: says which option
 * is wrong and why. `usage` is the first line, `text` what stands between it and the options. */
MM_CHECKED mm_status args_parse(int argc, char **argv, const arg *table, const char *usage, const char *text,
                                bool *help_out);

/* Splits "a,b,c"; a policy's own commas bind closer: "naive,freelunch:rate=4,depth=2" is two (a piece without a name of
 * its own, key=value, belongs to the piece before). `name` is the option, for messages. */
MM_CHECKED mm_status args_split(const char *name, const char *text, arg_texts *texts_out);

#endif
