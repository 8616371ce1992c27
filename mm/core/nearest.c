/* SPDX-License-Identifier: MIT */
#include "mm/core/nearest.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"

/* The limits are chosen: names of six letters with two changes still look alike. */
enum { CHANGES_MOST = 2, LETTERS_A_CHANGE = 3, PREFIX_LEAST = 3, LONG = 64 };

static int lower(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c; }

static int least(int a, int b) { return a < b ? a : b; }

/* The optimal string alignment distance, by rows of the usual table. INT_MAX if a text is longer than LONG. */
static int distance(const char *a, size_t length, const char *b) {
    int rows[3][LONG + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    const size_t n = strlen(b);
    if (length > LONG || n > LONG) return INT_MAX;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 1; i <= length; i++) {
        int *spare = before;
        before = last;
        last = row;
        row = spare;
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            const int x = lower(a[i - 1]), y = lower(b[j - 1]);
            row[j] = least(last[j - 1] + (x != y), least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y)
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return row[n];
}

/* Whether the text begins with the name, or the name with the text. Leading dashes, of options, are no letters. */
static bool begins(const char *text, size_t length, const char *name) {
    const size_t dashes = strspn(name, "-"), n = strlen(name), shorter = length < n ? length : n;
    if (shorter < dashes + PREFIX_LEAST) return false;
    for (size_t i = 0; i < shorter; i++)
        if (lower(text[i]) != lower(name[i])) return false;
    return true;
}

void mm_nearest_try(mm_nearest *n, const char *name) {
    int changes = distance(n->text, n->length, name);
    size_t letters = n->length;
    for (const char *c = n->text; letters > 0 && *c == '-'; c++) letters--;
    if (changes > CHANGES_MOST || LETTERS_A_CHANGE * (size_t)changes > letters) {
        if (!begins(n->text, n->length, name)) return;
        changes = CHANGES_MOST;
    }
    if (n->found && changes >= n->changes) return;
    n->found = name;
    n->changes = changes;
}

const char *mm_nearest_text(const mm_nearest *n, char buffer[MM_NEAREST_CAPACITY]) {
    buffer[0] = '\0';
    if (n->found) snprintf(buffer, MM_NEAREST_CAPACITY, " (did you mean %s?)", MM_BRIEF(n->found));
    return buffer;
}

const char *mm_nearest_file(const char *path, char buffer[MM_NEAREST_CAPACITY]) {
    const int error = errno;
    buffer[0] = '\0';
    if (error != ENOENT) return buffer;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("."), found[NAME_MAX + 1];
    DIR *all = folder ? opendir(folder) : NULL;
    mm_nearest best = {.text = name, .length = strlen(name)};
    for (const struct dirent *entry; all && (entry = readdir(all));) {
        mm_nearest one = {.text = name, .length = best.length};
        if (entry->d_name[0] != '.') mm_nearest_try(&one, entry->d_name);
        if (!one.found || (best.found && one.changes > best.changes)) continue;
        /* Of equally near files the first by name: a folder has no order. */
        if (best.found && one.changes == best.changes && strcmp(one.found, best.found) > 0) continue;
        snprintf(found, sizeof found, "%s", one.found); /* the entry lives until the next readdir */
        best.found = found;
        best.changes = one.changes;
    }
    if (all) closedir(all);
    free(folder);
    errno = error;
    return mm_nearest_text(&best, buffer);
}
