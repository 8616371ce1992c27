/* SPDX-License-Identifier: MIT */
/* "Did you mean": of the names that are known, the one nearest to a name that is not. For messages. */
#ifndef MM_CORE_NEAREST_H
#define MM_CORE_NEAREST_H

#include <stddef.h>

/* A search. Set `text` and `length`, leave the rest zero, and offer each known name to mm_nearest_try. */
typedef struct mm_nearest {
    const char *text; /* the name that is not known; need not be terminated */
    size_t length;
    const char *found; /* the nearest name that is near enough; NULL: none */
    int changes;       /* its distance */
} mm_nearest;

/* Offers a name, which the search borrows. The distance is the number of letters to insert, delete, replace or swap
 * with their neighbour; upper and lower case are equal. Near enough is a distance of at most 2 and at most a third of
 * the text's letters, without the dashes that begin it; or one is the beginning of the other, and has three letters or
 * more. Of equally near names the first is taken. */
void mm_nearest_try(mm_nearest *n, const char *name);

/* " (did you mean NAME?)", or "" if no name is near enough. Returns buffer. MM_DID_YOU_MEAN(n): the same in a buffer of
 * its own, which lives as long as the enclosing block. */
enum { MM_NEAREST_CAPACITY = 128 };
const char *mm_nearest_text(const mm_nearest *n, char buffer[MM_NEAREST_CAPACITY]);
#define MM_DID_YOU_MEAN(n) mm_nearest_text(n, (char[MM_NEAREST_CAPACITY]){0})

/* The same for a file that could not be opened: if errno is ENOENT, names the nearest file in its folder. Keeps errno.
 * MM_DID_YOU_MEAN_FILE(path): in a buffer of its own. */
const char *mm_nearest_file(const char *path, char buffer[MM_NEAREST_CAPACITY]);
#define MM_DID_YOU_MEAN_FILE(path) mm_nearest_file(path, (char[MM_NEAREST_CAPACITY]){0})

#endif
