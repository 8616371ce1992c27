/* SPDX-License-Identifier: MIT */
#include "tools/args/args.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "mm/core/number.h"
#include "mm/core/size.h"
#include "tools/args/help.h"

static mm_status set_count(const arg *a, const char *value) {
    char *end;
    errno = 0;
    long long count = strtoll(value, &end, 10);
    if (errno || end == value || *end || (double)count < a->min || (double)count > a->max)
        return mm_fail(MM_ERR_INVALID, "%s %s: must be a whole number from %.0f to %.0f", a->name, value, a->min,
                       a->max);
    *(int64_t *)a->target = count;
    return MM_OK;
}

static mm_status set_number(const arg *a, const char *value) {
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end || !(number >= a->min && number <= a->max))
        return mm_fail(MM_ERR_INVALID, "%s %s: must be a number from %g to %g", a->name, value, a->min, a->max);
    *(double *)a->target = number;
    return MM_OK;
}

static mm_status set_size(const arg *a, const char *value) {
    int64_t bytes;
    if (mm_size_parse(value, &bytes) != MM_OK) return mm_fail_in(MM_ERR_INVALID, "%s", a->name);
    if (bytes < 0 || (bytes == 0 && a->min >= 0))
        return mm_fail(MM_ERR_INVALID, "%s %s: must be more than 0 bytes", a->name, value);
    if ((double)bytes < a->min)
        return mm_fail(MM_ERR_INVALID, "%s %s: must be at least %.0f bytes", a->name, value, a->min);
    *(int64_t *)a->target = bytes;
    return MM_OK;
}

mm_status args_texts_add(const char *name, arg_texts *texts, const char *text) {
    if (texts->n == ARG_TEXTS_MAX) return mm_fail(MM_ERR_INVALID, "%s: more than %d values", name, ARG_TEXTS_MAX);
    texts->text[texts->n++] = text;
    return MM_OK;
}

static mm_status set_value(const arg *a, const char *value) {
    switch (a->kind) {
    case ARG_TEXT:
    case ARG_MAYBE:
        *(const char **)a->target = value;
        return MM_OK;
    case ARG_COUNT:
        return set_count(a, value);
    case ARG_NUMBER:
        return set_number(a, value);
    case ARG_SIZE:
        return set_size(a, value);
    default:
        return args_texts_add(a->name, a->target, value);
    }
}

/* Options that are one and may be given either way: a command that takes one value, or a list, is asked for both. */
static const char *twin_of(const char *name, size_t length) {
    static const char *const twins[][2] = {
        {"--batch", "--batches"}, {"--budget", "--budgets"}, {"--net", "--nets"}, {"--policy", "--policies"}};
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        for (int k = 0; k < 2; k++)
            if (strlen(twins[i][k]) == length && memcmp(twins[i][k], name, length) == 0) return twins[i][!k];
    return NULL;
}

/* Whether the argument is the option, with or without "=VALUE". */
static bool is_option_of(const char *argument, const char *name) {
    const size_t length = name ? strlen(name) : 0;
    return name && strncmp(argument, name, length) == 0 && (!argument[length] || argument[length] == '=');
}

/* Whether argv[i] ends the options. */
static bool ends_options(const char *argument) { return strcmp(argument, "--") == 0; }

bool args_given(int argc, char **argv, const char *name) {
    const char *twin = twin_of(name, strlen(name));
    for (int i = 1; i < argc && !ends_options(argv[i]); i++)
        if (is_option_of(argv[i], name) || is_option_of(argv[i], twin)) return true;
    return false;
}

static const arg *find_exactly(const arg *table, const char *name, size_t length) {
    for (const arg *a = table; a->kind != ARG_END; a++)
        if (strlen(a->name) == length && memcmp(a->name, name, length) == 0) return a;
    return NULL;
}

static const arg *find(const arg *table, const char *name, size_t length) {
    const arg *a = find_exactly(table, name, length);
    const char *twin = a ? NULL : twin_of(name, length);
    return twin ? find_exactly(table, twin, strlen(twin)) : a;
}

static mm_status unknown_option(const arg *table, const char *name, size_t length) {
    mm_nearest near = {.text = name, .length = length};
    for (const arg *a = table; a->kind != ARG_END; a++)
        if (a->kind != ARG_WORDS) mm_nearest_try(&near, a->name);
    return mm_fail(MM_ERR_INVALID, "unknown option '%s'%s; --help lists them", name, MM_DID_YOU_MEAN(&near));
}

/* Whether the option is anywhere on the command line: users append --help to what they have typed. */
static bool asks_for(int argc, char **argv, const char *option) {
    for (int i = 1; i < argc && !ends_options(argv[i]); i++)
        if (strcmp(argv[i], option) == 0) return true;
    return false;
}

/* The argument after argv[*i]. NULL: there is none, or it is an option: "--json --quiet" names no file. */
static const char *value_after(int argc, char **argv, int *i) {
    if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0) return NULL;
    return argv[++*i];
}

static const arg *find_words(const arg *table) {
    for (const arg *a = table; a->kind != ARG_END; a++)
        if (a->kind == ARG_WORDS) return a;
    return NULL;
}

/* Refuses an option that was given before; given[i] says whether option i of the table was. Table entries that set the
 * same target count as one option. */
static mm_status check_once(const arg *table, const arg *a, bool given[ARGS_MAX]) {
    assert(a - table < ARGS_MAX);
    for (const arg *b = table; b->kind != ARG_END && a->kind != ARG_TEXTS; b++)
        if (given[b - table] && b->target == a->target)
            return mm_fail(MM_ERR_INVALID, "%s is given twice%s%s: give it once", a->name, a == b ? "" : ", before as ",
                           a == b ? "" : b->name);
    given[a - table] = true;
    return MM_OK;
}

/* Takes an argument that is no option. */
static mm_status take_word(const arg *table, const char *word) {
    const arg *words = find_words(table);
    if (words) return args_texts_add(words->name, words->target, word);
    if (find_exactly(table, "--net", strlen("--net")))
        return mm_fail(MM_ERR_INVALID, "unexpected argument '%s': options begin with --, as in --net %s", word, word);
    return mm_fail(MM_ERR_INVALID, "unexpected argument '%s'; --help lists the options", word);
}

mm_status args_size(const char *name, const char *text, int64_t *bytes_out) {
    enum { ASKED_BELOW = 4096 }; /* chosen: nothing that mm measures in bytes is so small */
    if (mm_size_parse(text, bytes_out) != MM_OK) return mm_fail_in(MM_ERR_INVALID, "%s", name);
    if (*bytes_out == 0 || *bytes_out >= ASKED_BELOW || text[strspn(text, "0123456789")]) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "%s %s: %s bytes? %s GiB is written %sGiB; %s bytes, %sB", name, text, text, text,
                   text, text, text);
}

/* Parses the option at argv[*i] with its value, or a word; "-" alone is a word. */
static mm_status parse_one(int argc, char **argv, int *i, const arg *table, bool given[ARGS_MAX]) {
    if (argv[*i][0] != '-' || !argv[*i][1]) return take_word(table, argv[*i]);
    const char *equals = strchr(argv[*i], '=');
    size_t length = equals ? (size_t)(equals - argv[*i]) : strlen(argv[*i]);
    const arg *a = find(table, argv[*i], length);
    if (!a) return unknown_option(table, argv[*i], length);
    MM_TRY(check_once(table, a, given));
    if (a->kind == ARG_FLAG) {
        if (equals) return mm_fail(MM_ERR_INVALID, "%s takes no value", a->name);
        *(bool *)a->target = true;
        return MM_OK;
    }
    const char *value = equals ? equals + 1 : value_after(argc, argv, i);
    if (!value && a->kind == ARG_MAYBE)
        value = "";
    else if (!value || !*value)
        return mm_fail(MM_ERR_INVALID, "%s needs a value: %s %s", a->name, a->name, a->value);
    int64_t bytes;
    if (a->kind == ARG_SIZE) MM_TRY(args_size(a->name, value, &bytes));
    return set_value(a, value);
}

mm_status args_parse(int argc, char **argv, const arg *table, const char *usage, const char *text, bool *help_out) {
    static const char form[] = "--help=";
    bool given[ARGS_MAX] = {false}, ended = false;
    *help_out = true;
    if (argc > 1 && strncmp(argv[argc - 1], form, strlen(form)) == 0)
        return help_print_as(argv[argc - 1] + strlen(form), table, usage, text);
    if (asks_for(argc, argv, "--help") || asks_for(argc, argv, "-h")) {
        help_print(table, usage, text);
        return MM_OK;
    }
    if (asks_for(argc, argv, "--version") || asks_for(argc, argv, "-V") || asks_for(argc, argv, "-v")) {
        printf("mm %s\n", MM_VERSION);
        return MM_OK;
    }
    *help_out = false;
    for (int i = 1; i < argc; i++) {
        if (!ended && ends_options(argv[i]))
            ended = true;
        else
            MM_TRY(ended ? take_word(table, argv[i]) : parse_one(argc, argv, &i, table, given));
    }
    return MM_OK;
}

/* Whether a piece is an option key=value of the policy that an earlier piece names, and not itself a name. */
static bool is_option(const char *piece, size_t length) {
    size_t name = strcspn(piece, "=:,");
    return name < length && piece[name] == '=';
}

/* Copies the pieces one after the other into texts->block, whose size, that of `text`, suffices for all of them. */
static mm_status split(const char *name, const char *text, arg_texts *texts) {
    char *end = texts->block;
    for (const char *p = text; *p; p += strcspn(p, ","), p += *p == ',') {
        size_t length = strcspn(p, ",");
        if (length == 0) continue;
        if (texts->n > 0 && is_option(p, length))
            end[-1] = ',';
        else
            MM_TRY(args_texts_add(name, texts, end));
        memcpy(end, p, length);
        end[length] = '\0';
        end += length + 1;
    }
    return texts->n > 0 ? MM_OK : mm_fail(MM_ERR_INVALID, "%s %s: the list is empty", name, text);
}

mm_status args_split(const char *name, const char *text, arg_texts *texts_out) {
    arg_texts texts = {.block = malloc(strlen(text) + 1)};
    if (!texts.block) return mm_fail(MM_ERR_NOMEM, "out of memory for %s", name);
    mm_status status = split(name, text, &texts);
    if (status == MM_OK)
        *texts_out = texts;
    else
        args_texts_fini(&texts);
    return status;
}

void args_texts_fini(arg_texts *texts) {
    free(texts->block);
    *texts = (arg_texts){0};
}

mm_status args_rising(const char *name, const char *text, int64_t numbers_out[ARG_TEXTS_MAX], int *n_out) {
    arg_texts texts;
    mm_status status = MM_OK;
    MM_TRY(args_split(name, text, &texts));
    for (int i = 0; status == MM_OK && i < texts.n; i++) {
        char *end;
        numbers_out[i] = strtoll(texts.text[i], &end, 10);
        if (end == texts.text[i] || *end || numbers_out[i] <= (i ? numbers_out[i - 1] : 0) ||
            numbers_out[i] > 1000000000)
            status = mm_fail(MM_ERR_INVALID, "%s %s: must be rising whole numbers, from 1 to 1e9", name, text);
    }
    *n_out = texts.n;
    args_texts_fini(&texts);
    return status;
}

/* ---------------------------------------------------------------- converting options from and to text */

const arg *args_find(const arg *table, const char *name) { return find(table, name, strlen(name)); }

mm_status args_set(const arg *a, const char *text) {
    if (!*text) return MM_OK;
    if (a->kind != ARG_TEXTS) return set_value(a, text);
    args_texts_fini(a->target);
    return args_split(a->name, text, a->target);
}

static char *join(const arg_texts *texts) {
    size_t length = 1;
    for (int i = 0; i < texts->n; i++) length += strlen(texts->text[i]) + 1;
    char *all = calloc(1, length);
    for (int i = 0; all && i < texts->n; i++) {
        if (i > 0) strcat(all, ",");
        strcat(all, texts->text[i]);
    }
    return all;
}

char *args_text(const arg *a) {
    char *text = NULL, number[MM_NUMBER_CAPACITY];
    switch (a->kind) {
    case ARG_TEXTS:
        return join(a->target);
    case ARG_NUMBER:
        return strdup(*(const double *)a->target < a->min ? "" : mm_number_format(*(const double *)a->target, number));
    case ARG_COUNT:
    case ARG_SIZE: {
        long long count = *(const int64_t *)a->target, least = (long long)a->min;
        if (a->kind == ARG_SIZE && least < 1) least = least < 0 ? 0 : 1;
        return count < least ? strdup("") : asprintf(&text, "%lld", count) < 0 ? NULL : text;
    }
    default:
        return strdup(*(const char *const *)a->target);
    }
}
