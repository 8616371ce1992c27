/* SPDX-License-Identifier: MIT */
/* What 'mm train' says where training ends early, or does not begin. */
#include <stdio.h>
#include <string.h>

#include "tools/train/train.h"

void train_say_nothing_ran(const train *t, const session *s) {
    if (*t->interrupted)
        fprintf(stderr, "mm train: interrupted before the first iteration%s\n",
                t->save && s->iteration == 0 ? "; there is nothing to save" : "");
    else
        fprintf(stderr,
                "mm train: nothing to train: %s has done %lld iterations already; to train on: --iterations N, which "
                "counts those too\n",
                t->load, (long long)s->iteration);
}

/* Options that a run takes from its state. */
static bool is_in_state(const train *t, const arg *a) {
    static const char *const others[] = {"--net",  "--iterations",    "--epochs",
                                         "--load", "--load-matching", "--reset-optimizer"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(a->name, others[i]) == 0) return true;
    return args_find(t->options, a->name) != NULL;
}

/* Prints an argument as a shell reads it. */
static void print_quoted(const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./%@";
    if (*text && strspn(text, plain) == strlen(text)) {
        fprintf(stderr, " %s", text);
        return;
    }
    fputs(" '", stderr);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stderr);
        else
            fputc(*text, stderr);
    fputc('\'', stderr);
}

/* Prints the command that goes on: the state, and the given options that it does not hold. */
static void print_command(const train *t) {
    fputs("; go on with: mm train --load", stderr);
    print_quoted(t->save);
    for (int i = 1; i < t->argc; i++) {
        char name[64];
        const size_t length = strcspn(t->argv[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)length, t->argv[i]);
        const arg *a = args_find(t->table, name);
        const bool keep = a && !is_in_state(t, a), two = a && a->kind != ARG_FLAG && !t->argv[i][length];
        if (keep) print_quoted(t->argv[i]);
        if (two && ++i < t->argc && keep) print_quoted(t->argv[i]);
    }
}

void train_say_interrupted(const train *t) {
    fprintf(stderr, "mm train: interrupted after iteration %lld of %lld; ", (long long)t->done, (long long)t->end);
    if (!t->save)
        fputs("nothing was saved: that takes --save FILE", stderr);
    else
        fprintf(stderr, "saved in %s", t->save);
    if (t->save && t->done < t->end && !t->ranks) print_command(t);
    fputc('\n', stderr);
}
