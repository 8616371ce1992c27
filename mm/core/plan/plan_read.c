/* SPDX-License-Identifier: MIT */
/* mm_plan_files_read: the file, line by line. FORMAT.md describes it. */
#include "mm/core/plan/plan_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/json_text.h"
#include "mm/core/nearest.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

/* A file that is being read: its present line, and the plans so far. */
typedef struct file_reader {
    const char *path;
    FILE *file;
    char *text;
    size_t n, capacity;
    int line; /* its number, from 1 */
    mm_plan_file *files;
    size_t n_files, stated; /* how many were read, and how many the file says that there are */
} file_reader;

static mm_status no_memory(const char *path) { return mm_fail(MM_ERR_NOMEM, "out of memory for plan file %s", path); }

/* ---------------------------------------------------------------- lines */

/* The longest line. Chosen: as the longest file of graphs, which a line holds. */
enum { LINE_MOST = 256 << 20 };

/* Reads the next line, without its end. *more: false at the end of the file. */
static mm_status next_line(file_reader *f, bool *more) {
    int c;
    f->n = 0;
    f->line++;
    while ((c = getc_unlocked(f->file)) != EOF && c != '\n') {
        if (f->n == f->capacity) {
            const size_t larger = f->capacity ? 2 * f->capacity : 1 << 12;
            char *grown = f->n < LINE_MOST ? realloc(f->text, larger) : NULL;
            if (!grown && f->n >= LINE_MOST)
                return mm_fail(MM_ERR_FORMAT, "plan file %s: line %d: has more than %d MiB", f->path, f->line,
                               LINE_MOST >> 20);
            if (!grown) return no_memory(f->path);
            f->text = grown;
            f->capacity = larger;
        }
        f->text[f->n++] = (char)c;
    }
    if (ferror(f->file)) return mm_fail(MM_ERR_IO, "plan file %s: cannot be read: %s", f->path, strerror(errno));
    *more = c != EOF || f->n > 0;
    return MM_OK;
}

static mm_status parse_line(const file_reader *f, json_t **line_out) {
    json_error_t error;
    json_t *line;
    const mm_status status = mm_json_parse(f->text ? f->text : "", f->n, JSON_REJECT_DUPLICATES, &line, &error);
    if (status == MM_ERR_NOMEM) return no_memory(f->path);
    if (status != MM_OK) return mm_fail(MM_ERR_FORMAT, "plan file %s: line %d: %s", f->path, f->line, error.text);
    *line_out = line;
    return MM_OK;
}

/* ---------------------------------------------------------------- kinds of lines */

/* How many lines of a kind the plan must have; -1: any number. What it says of the kinds before must have been read. */
static int lines_due(const mm_plan_reader *r, mm_plan_line kind) {
    switch (kind) {
    case MM_LINE_GRAPH:
    case MM_LINE_LIMITS:
    case MM_LINE_FACTS:
    case MM_LINE_PLAN:
        return 1;
    case MM_LINE_HOME:
        return mm_graph_persistents(r->file.graph);
    case MM_LINE_VARIANTS:
        return mm_graph_steps(r->file.graph);
    case MM_LINE_SEGMENT:
        return r->counts.segments;
    case MM_LINE_NODE:
        return r->counts.nodes;
    case MM_LINE_PIECE:
        return r->counts.pieces;
    case MM_LINE_CODEC:
    case MM_LINE_CODE:
    case MM_LINE_ALIAS:
    case MM_PLAN_LINE_KINDS:
        break;
    }
    return -1;
}

static mm_status read_line(mm_plan_reader *r, mm_plan_line kind, json_t *line) {
    static mm_status (*const read[MM_PLAN_LINE_KINDS])(mm_plan_reader *, json_t *) = {
        [MM_LINE_GRAPH] = mm_plan_read_graph,     [MM_LINE_LIMITS] = mm_plan_read_limits,
        [MM_LINE_HOME] = mm_plan_read_home,       [MM_LINE_FACTS] = mm_plan_read_facts,
        [MM_LINE_CODEC] = mm_plan_read_codec,     [MM_LINE_CODE] = mm_plan_read_code,
        [MM_LINE_PLAN] = mm_plan_read_plan,       [MM_LINE_VARIANTS] = mm_plan_read_variants,
        [MM_LINE_ALIAS] = mm_plan_read_alias,     [MM_LINE_NODE] = mm_plan_read_node,
        [MM_LINE_SEGMENT] = mm_plan_read_segment, [MM_LINE_PIECE] = mm_plan_read_piece,
    };
    return read[kind](r, line);
}

/* To be called when all lines of a kind were read. */
static mm_status end_lines(mm_plan_reader *r, mm_plan_line kind) {
    if (kind == MM_LINE_CODEC) return mm_plan_make_codes(r);
    return kind == MM_LINE_SEGMENT ? mm_plan_check_pools(r) : MM_OK;
}

/* ---------------------------------------------------------------- a plan */

/* Checks the header of a plan, and begins the plan. */
static mm_status read_header(file_reader *f, mm_plan_reader *r, json_t *line) {
    static const char *const keys[] = {"format", "version", "plan", "plans", "policy", NULL};
    const char *format = json_string_value(json_object_get(line, "format")), *policy;
    int64_t version = 0, plan = 0, plans = 0;
    if (!format || strcmp(format, MM_PLAN_FORMAT) != 0)
        return mm_graph_bad_key(&r->r, "format", "is not \"" MM_PLAN_FORMAT "\"");
    MM_TRY(mm_graph_integer(&r->r, line, "version", INT32_MAX, &version));
    if (version == 0 || version > MM_PLAN_FORMAT_VERSION)
        return mm_fail(MM_ERR_FORMAT, "plan file %s: is of version %lld; mm %s reads versions 1 to %d", f->path,
                       (long long)version, MM_VERSION, MM_PLAN_FORMAT_VERSION);
    MM_TRY(mm_graph_check_keys(&r->r, line, keys));
    MM_TRY(mm_graph_text(&r->r, line, "policy", &policy));
    MM_TRY(mm_graph_integer(&r->r, line, "plan", MM_PLANS_MOST, &plan));
    MM_TRY(mm_graph_integer(&r->r, line, "plans", MM_PLANS_MOST, &plans));
    if (plan != (int64_t)f->n_files || plan >= plans || (plan > 0 && plans != (int64_t)f->stated))
        return mm_fail(MM_ERR_FORMAT, "plan file %s: %s: is plan %lld of %lld, where plan %zu is due", f->path,
                       r->r.where, (long long)plan, (long long)plans, f->n_files);
    f->stated = (size_t)plans;
    r->policy = strdup(policy);
    return r->policy ? MM_OK : no_memory(f->path);
}

static mm_status find_kind(const mm_plan_reader *r, const json_t *line, mm_plan_line *kind_out) {
    const mm_graph_words kinds = {mm_plan_line_name, MM_PLAN_LINE_KINDS};
    int kind;
    if (!json_is_object(line)) return mm_graph_bad(&r->r, "is not an object");
    MM_TRY(mm_graph_word(&r->r, line, "is", &kinds, &kind));
    *kind_out = (mm_plan_line)kind;
    return MM_OK;
}

/* Ends the kinds from `from` to the one before `to`: all their lines must have been read. */
static mm_status end_kinds(mm_plan_reader *r, int from, int to) {
    for (int kind = from; kind < to; kind++) {
        const int due = lines_due(r, (mm_plan_line)kind);
        if (due >= 0 && r->lines[kind] != due)
            return mm_fail(MM_ERR_FORMAT, "plan file %s: %s: there are %d lines that are \"%s\" before it, not %d",
                           r->r.path, r->r.where, r->lines[kind], mm_plan_line_name(kind), due);
        MM_TRY(end_lines(r, (mm_plan_line)kind));
    }
    return MM_OK;
}

/* Reads the lines after a header. *line: at first the header; then that of the next plan, or NULL at the file's end. */
static mm_status read_plan(file_reader *f, mm_plan_reader *r, json_t **line) {
    int present = 0;
    bool more;
    for (;;) {
        json_decref(*line);
        *line = NULL;
        MM_TRY(next_line(f, &more));
        snprintf(r->r.where, sizeof r->r.where, more ? "line %d" : "line %d, the end", f->line);
        if (!more) break;
        MM_TRY(parse_line(f, line));
        if (json_object_get(*line, "is") == NULL && json_object_get(*line, "format")) break;
        mm_plan_line kind = MM_LINE_GRAPH;
        MM_TRY(find_kind(r, *line, &kind));
        if ((int)kind < present)
            return mm_fail(MM_ERR_FORMAT, "plan file %s: %s: \"%s\" after \"%s\"", f->path, r->r.where,
                           mm_plan_line_name((int)kind), mm_plan_line_name(present));
        MM_TRY(end_kinds(r, present, (int)kind));
        present = (int)kind;
        const int due = lines_due(r, kind);
        if (r->lines[kind] == (due >= 0 ? due : MM_PLAN_MOST_LINES))
            return mm_fail(MM_ERR_FORMAT, "plan file %s: %s: there are more than %d lines that are \"%s\"", f->path,
                           r->r.where, r->lines[kind], mm_plan_line_name((int)kind));
        r->line = f->line;
        MM_TRY(read_line(r, kind, *line));
        r->lines[kind]++;
    }
    MM_TRY(end_kinds(r, present, MM_PLAN_LINE_KINDS));
    return mm_plan_read_finish(r);
}

static void file_fini(mm_plan_file *file) {
    if (file->program) mm_program_fini(file->program);
    free(file->program);
    mm_plan_destroy(file->plan);
    mm_graph_facts_destroy(file->facts);
    free(file->places);
    mm_graph_destroy(file->graph);
}

/* Reads one plan, whose header is *line, and adds it to the list. */
static mm_status add_plan(file_reader *f, json_t **line) {
    mm_plan_reader r = {.r = {.what = "plan file", .path = f->path}};
    mm_plan_file *more = realloc(f->files, (f->n_files + 1) * sizeof *more);
    if (!more) return no_memory(f->path);
    f->files = more;
    snprintf(r.r.where, sizeof r.r.where, "line %d", f->line);
    mm_status status = read_header(f, &r, *line);
    if (status == MM_OK) status = read_plan(f, &r, line);
    if (status == MM_OK) status = mm_plan_name(r.file.plan, r.policy);
    free(r.policy);
    if (status == MM_OK)
        f->files[f->n_files++] = r.file;
    else
        file_fini(&r.file);
    return status;
}

/* ---------------------------------------------------------------- the file */

static mm_status read_all(file_reader *f) {
    json_t *line = NULL;
    bool more;
    MM_TRY(next_line(f, &more));
    if (!more) return mm_fail(MM_ERR_FORMAT, "plan file %s: is empty", f->path);
    mm_status status = parse_line(f, &line);
    while (status == MM_OK && line) status = add_plan(f, &line);
    json_decref(line);
    MM_TRY(status);
    if (f->n_files == f->stated) return MM_OK;
    return mm_fail(MM_ERR_FORMAT, "plan file %s: ends after %zu of %zu plans", f->path, f->n_files, f->stated);
}

mm_status mm_plan_files_read(const char *path, mm_plan_file **files_out, size_t *n_out) {
    file_reader f = {.path = path, .file = fopen(path, "rbe")};
    if (!f.file) {
        const int error = errno;
        const char *hint = MM_DID_YOU_MEAN_FILE(path);
        return mm_fail(error == ENOMEM ? MM_ERR_NOMEM : MM_ERR_IO, "plan file %s: cannot be read: %s%s", path,
                       strerror(error), hint);
    }
    const mm_status status = read_all(&f);
    fclose(f.file);
    free(f.text);
    if (status == MM_OK) {
        *files_out = f.files;
        *n_out = f.n_files;
    } else {
        mm_plan_files_destroy(f.files, f.n_files);
    }
    return status;
}

void mm_plan_files_destroy(mm_plan_file *files, size_t n) {
    for (size_t i = 0; files && i < n; i++) file_fini(&files[i]);
    free(files);
}
