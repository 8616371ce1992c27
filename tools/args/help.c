/* SPDX-License-Identifier: MIT */
#include "tools/args/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/args/table.h"

/* ---------------------------------------------------------------- a help's text, piece by piece */

/* A paragraph, an entry of a list, a line to keep, or an empty line. */
typedef enum piece_kind { PARAGRAPH, ENTRY, KEPT, EMPTY } piece_kind;

typedef struct piece {
    piece_kind kind;
    char *text; /* its lines, joined by spaces; an entry's without its name. Owned */
    const char *name;
    int name_length, column; /* an entry's name, and where its text begins */
} piece;

static size_t indent_of(const char *line) { return strspn(line, " "); }

/* The column of an entry's text; 0: the line is no entry. */
static int entry_column(const char *line) {
    const size_t length = strcspn(line, "\n"), indent = indent_of(line);
    for (size_t i = indent; indent >= 2 && i + 2 < length; i++)
        if (line[i] == ' ' && line[i + 1] == ' ') return (int)(i + strspn(line + i, " "));
    return 0;
}

/* Appends a line's text, without its indent, to what *text has. */
static bool append(char **text, const char *line) {
    const size_t had = *text ? strlen(*text) : 0, indent = indent_of(line), n = strcspn(line, "\n") - indent;
    char *more = realloc(*text, had + n + 2);
    if (!more) return false;
    if (had > 0) more[had] = ' ';
    memcpy(more + had + (had > 0), line + indent, n);
    more[had + (had > 0) + n] = '\0';
    *text = more;
    return true;
}

static const char *next_line(const char *line) {
    line += strcspn(line, "\n");
    return *line ? line + 1 : line;
}

/* Whether the line goes on with the piece that the lines before began. */
static bool continues(const piece *p, const char *line) {
    const size_t indent = indent_of(line);
    if (*line == '\n' || !*line) return false;
    return p->kind == PARAGRAPH ? indent < 2 : p->kind == ENTRY && (int)indent == p->column;
}

/* Takes the piece at *at, and moves *at behind it. False: out of memory. */
static bool take(const char **at, piece *p) {
    const char *line = *at;
    *p = (piece){.kind = EMPTY};
    *at = next_line(line);
    if (*line == '\n') return true;
    p->column = entry_column(line);
    p->kind = p->column > 0 ? ENTRY : indent_of(line) >= 2 ? KEPT : PARAGRAPH;
    if (p->kind == ENTRY) {
        p->name = line + indent_of(line);
        p->name_length = (int)(strstr(p->name, "  ") - p->name);
    }
    bool good = append(&p->text, p->kind == ENTRY ? line + p->column : line);
    for (; good && continues(p, *at); *at = next_line(*at)) good = append(&p->text, *at);
    return good;
}

/* ---------------------------------------------------------------- as text */

static void print_piece(const piece *p) {
    if (p->kind == KEPT) printf("  %s", p->text);
    if (p->kind == PARAGRAPH) table_wrap(stdout, 0, 0, p->text);
    if (p->kind == ENTRY) {
        printf("  %-*.*s", p->column - 2, p->name_length, p->name);
        table_wrap(stdout, p->column, p->column, p->text);
    }
    putchar('\n');
}

static const char *repeats(const arg *a) { return a->kind == ARG_TEXTS ? "; may be repeated" : ""; }

static void print_option(const char *name, const char *value, const char *text, const char *rest) {
    enum { LEFT = 29 };
    char all[512];
    const int at = printf("  %s%s%s", name, value ? " " : "", value ? value : "");
    snprintf(all, sizeof all, "%s%s", text, rest);
    printf("%*s", at < LEFT ? LEFT - at : 1, "");
    table_wrap(stdout, at < LEFT ? LEFT : at + 1, LEFT, all);
    putchar('\n');
}

static bool has(const arg *table, const char *name) {
    while (table->kind != ARG_END && strcmp(table->name, name) != 0) table++;
    return table->kind != ARG_END;
}

static bool has_kind(const arg *table, arg_kind kind) {
    while (table->kind != ARG_END && table->kind != kind) table++;
    return table->kind != ARG_END;
}

void help_print(const arg *table, const char *usage, const char *text) {
    printf("usage: %s\n\n", usage);
    while (*text) {
        piece p;
        if (take(&text, &p)) print_piece(&p);
        free(p.text);
    }
    printf("\noptions:\n");
    for (const arg *a = table; a->kind != ARG_END; a++) print_option(a->name, a->value, a->help, repeats(a));
    print_option("--version, -V", NULL, "the version", "");
    print_option("--help, -h", NULL, "this text", "");
    if (has_kind(table, ARG_SIZE)) printf("Sizes: 1GB is 10^9 bytes, 1GiB is 2^30.\n");
    if (!has(table, "--batch") && !has(table, "--net")) return;
    table_wrap(stdout, 0, 0,
               "--batch and --batches, --budget and --budgets, --net and --nets, --policy and --policies "
               "are the same.");
    putchar('\n');
}

/* ---------------------------------------------------------------- as a man page */

static void put_roff(const char *text, int length) {
    if (length > 0 && (*text == '.' || *text == '\'')) printf("\\&");
    for (int i = 0; i < length; i++) switch (text[i]) {
        case '\\':
            printf("\\e");
            break;
        case '-':
            printf("\\-");
            break;
        default:
            putchar(text[i]);
        }
}

void help_put_roff(const char *text) { put_roff(text, (int)strlen(text)); }

static void put_roff_piece(const piece *p) {
    if (p->kind == EMPTY) printf(".PP\n");
    if (p->kind == KEPT) printf(".nf\n    ");
    if (p->kind == ENTRY) {
        printf(".TP\n.B ");
        put_roff(p->name, p->name_length);
        putchar('\n');
    }
    if (p->text) {
        help_put_roff(p->text);
        putchar('\n');
    }
    if (p->kind == KEPT) printf(".fi\n");
}

static void put_roff_option(const arg *a) {
    printf(".TP\n.B ");
    help_put_roff(a->name);
    if (a->value) {
        putchar(' ');
        help_put_roff(a->value);
    }
    putchar('\n');
    help_put_roff(a->help);
    printf("%s\n", repeats(a));
}

static void print_man(const arg *table, const char *usage, const char *text) {
    printf(".SH SYNOPSIS\n");
    help_put_roff(usage);
    printf("\n.SH DESCRIPTION\n");
    while (*text) {
        piece p;
        if (take(&text, &p)) put_roff_piece(&p);
        free(p.text);
    }
    if (table->kind != ARG_END) printf(".SH OPTIONS\n");
    for (const arg *a = table; a->kind != ARG_END; a++) put_roff_option(a);
}

/* ---------------------------------------------------------------- for completion */

/* Words for bash: "--quiet", "--batch=N" for an option with a value, and "=FILE..." for words. */
static void print_bash(const arg *table) {
    for (const arg *a = table; a->kind != ARG_END; a++)
        if (a->kind == ARG_WORDS)
            printf("=%s ", a->name);
        else
            printf("%s%s%s ", a->name, a->value ? "=" : "", a->value ? a->value : "");
    printf("--version --help");
}

/* Puts text between single quotes of zsh, inside brackets of _arguments. */
static void put_zsh(const char *text) {
    for (; *text; text++)
        if (*text == '\'')
            printf("'\\''");
        else
            printf("%s%c", strchr("[]:\\", *text) ? "\\" : "", *text);
}

static void print_zsh(const arg *table) {
    for (const arg *a = table; a->kind != ARG_END; a++) {
        const bool word = a->kind == ARG_WORDS;
        printf("            '%s%s", word ? "*" : a->kind == ARG_TEXTS ? "*" : "", word ? "" : a->name);
        if (!word && a->kind != ARG_FLAG) putchar('=');
        if (!word) {
            putchar('[');
            put_zsh(a->help);
            putchar(']');
        }
        if (a->kind != ARG_FLAG) {
            printf(":%s", a->kind == ARG_MAYBE ? ":" : "");
            put_zsh(word ? a->name : a->value);
            printf(":{_mm_value '\\''%s'\\''}", word ? a->name : a->value);
        }
        printf("' \\\n");
    }
    printf("            '--version[the version]' '--help[the options]'\n");
}

mm_status help_print_as(const char *form, const arg *table, const char *usage, const char *text) {
    if (strcmp(form, "man") == 0)
        print_man(table, usage, text);
    else if (strcmp(form, "bash") == 0)
        print_bash(table);
    else if (strcmp(form, "zsh") == 0)
        print_zsh(table);
    else
        return mm_fail(MM_ERR_INVALID, "--help=%s: must be man, bash or zsh", form);
    return MM_OK;
}
