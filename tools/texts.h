/* Texts of any length that live as long as what keeps them. */
#ifndef TOOLS_TEXTS_H
#define TOOLS_TEXTS_H

/* Zeroed: none. Of one thread. */
typedef struct texts {
    char **text;
    int n;
} texts;

/* A copy of the text, which lives until texts_fini; equal texts share one. NULL: out of memory. */
const char *texts_keep(texts *t, const char *text);
void texts_fini(texts *t);

#endif
