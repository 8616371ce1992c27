/* SPDX-License-Identifier: MIT */
#include "tools/args/texts.h"

#include <stdlib.h>
#include <string.h>

const char *texts_keep(texts *t, const char *text) {
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->text[i], text) == 0) return t->text[i];
    char **more = realloc(t->text, ((size_t)t->n + 1) * sizeof *more);
    if (!more) return NULL;
    t->text = more;
    char *copy = strdup(text);
    if (copy) t->text[t->n++] = copy;
    return copy;
}

void texts_fini(texts *t) {
    for (int i = 0; i < t->n; i++) free(t->text[i]);
    free(t->text);
    *t = (texts){0};
}
