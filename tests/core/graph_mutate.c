/* SPDX-License-Identifier: MIT */
#include "tests/core/graph_mutate.h"

#include <string.h>

#include "tests/core/random.h"

/* Replaces the `n` bytes at `at` by `with`. Returns the new length; does nothing if the text would be too long. */
static size_t replace(char *text, size_t n_bytes, size_t at, size_t n, const char *with) {
    const size_t length = strlen(with);
    if (n_bytes - n + length > GRAPH_MUTANT) return n_bytes;
    memmove(text + at + length, text + at + n, n_bytes - at - n);
    memcpy(text + at, with, length);
    return n_bytes - n + length;
}

static size_t place(uint64_t *random, size_t n) { return (size_t)random_below(random, (int)n); }

/* Changes one byte; JSON's own characters come more often than by chance. */
static size_t change_byte(uint64_t *random, char *text, size_t n_bytes) {
    static const char meaning[] = "{}[]\",:0123456789-.eE\\u \n\0tfn";
    const size_t at = place(random, n_bytes);
    text[at] = random_below(random, 3) ? meaning[place(random, sizeof meaning - 1)] : (char)random_below(random, 256);
    return n_bytes;
}

/* Changes a value after a colon. The file stays JSON, so it gets past the JSON parser. */
static size_t change_value(uint64_t *random, char *text, size_t n_bytes) {
    static const char *const values[] = {"0",
                                         "-1",
                                         "1",
                                         "2",
                                         "7",
                                         "64",
                                         "2147483647",
                                         "2147483648",
                                         "4611686018427387904",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "1.5",
                                         "true",
                                         "false",
                                         "null",
                                         "\"\"",
                                         "\"conv0\"",
                                         "\"relu1\"",
                                         "\"read\"",
                                         "\"write\"",
                                         "\"modify\"",
                                         "\"sign\"",
                                         "\"value\"",
                                         "\"managed\"",
                                         "\"persistent\"",
                                         "\"external\"",
                                         "\"weight\"",
                                         "\"state\"",
                                         "\"input\"",
                                         "\"forward\"",
                                         "\"backward\"",
                                         "\"update\"",
                                         "\"bf16\"",
                                         "\"i32\"",
                                         "\"alias\"",
                                         "\"inplace\"",
                                         "\"at once\"",
                                         "\"mean\"",
                                         "\"zfp\"",
                                         "\"mm.values\"",
                                         "[]",
                                         "{}",
                                         "[1, 2]",
                                         "[9223372036854775807, 9223372036854775807]",
                                         "[\"h\"]"};
    size_t at = place(random, n_bytes), n = 0;
    while (at < n_bytes && text[at] != ':') at++;
    if (n_bytes - at < 3) return n_bytes;
    at += 2;
    const bool list = text[at] == '[';
    while (at + n < n_bytes && !strchr(list ? "]\n" : ",]}\n", text[at + n])) n++;
    n += list && at + n < n_bytes;
    return replace(text, n_bytes, at, n, values[place(random, sizeof values / sizeof *values)]);
}

/* Gives a name the text of another place. */
static size_t change_name(uint64_t *random, char *text, size_t n_bytes) {
    char name[64];
    size_t from = place(random, n_bytes), at = place(random, n_bytes), n = 0, old = 0;
    while (from < n_bytes && text[from] != '"') from++;
    for (from++; from + n < n_bytes && n + 1 < sizeof name && text[from + n] != '"' && text[from + n]; n++)
        name[n] = text[from + n];
    name[n] = '\0';
    while (at < n_bytes && text[at] != '"') at++;
    at++;
    while (at + old < n_bytes && text[at + old] != '"') old++;
    return at + old < n_bytes ? replace(text, n_bytes, at, old, name) : n_bytes;
}

/* Removes a line (a tensor, a layer, a step), or swaps it with the next. */
static size_t change_line(uint64_t *random, char *text, size_t n_bytes) {
    static char line[GRAPH_MUTANT + 1];
    size_t begin = place(random, n_bytes), end, n = 0;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    for (end = begin; end < n_bytes && text[end] != '\n';) end++;
    if (end == n_bytes) return n_bytes;
    for (end++; begin + n < end && text[begin + n]; n++) line[n] = text[begin + n];
    line[n] = '\0';
    n_bytes = replace(text, n_bytes, begin, end - begin, "");
    if (random_below(random, 3) == 0) return n_bytes;
    size_t next = begin;
    while (next < n_bytes && text[next] != '\n') next++;
    return replace(text, n_bytes, next < n_bytes ? next + 1 : next, 0, line);
}

size_t graph_mutate(uint64_t *random, char *text, size_t n_bytes) {
    if (n_bytes == 0) return 0;
    switch (random_below(random, 8)) {
    case 0:
        return change_byte(random, text, n_bytes);
    case 1:
        return change_line(random, text, n_bytes);
    case 2:
        return random_below(random, 8) ? n_bytes : place(random, n_bytes); /* cut, but seldom */
    case 3:
    case 4:
        return change_name(random, text, n_bytes);
    default:
        return change_value(random, text, n_bytes);
    }
}
