/* SPDX-License-Identifier: MIT */
/* A set of texts: owns copies of them until texts_fini. */
#ifndef TOOLS_ARGS_TEXTS_H
#define TOOLS_ARGS_TEXTS_H

/* All zero: empty. Not thread-safe. */
typedef struct texts {
    char **text;
    int n;
} texts;

/* A copy of the text, valid until texts_fini. Equal texts share one copy. NULL: out of memory. */
const char *texts_keep(texts *t, const char *text);
void texts_fini(texts *t);

#endif
