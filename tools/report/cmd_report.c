/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "mm/core/atomic_file.h"
#include "mm/core/json_text.h"
#include "mm/core/nearest.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/files.h"
#include "tools/report/page.h"

typedef struct report_command {
    const char *html;
    arg_texts files;
    bool help;
    json_t *data; /* what the page reads: {"mm": version, "files": [{"name", "kind", "data"}]} */
} report_command;

/* ---------------------------------------------------------------- what a file is */

/* Kinds of JSON arrays: every element of the array is an object with these keys. */
typedef struct array_kind {
    const char *name;
    const char *keys[5];
} array_kind;

static const array_kind array_kinds[] = {
    {"rows", {"net", "policy", "batch", "status", "images_per_second"}},
    {"plans", {"net", "policy", "batch", "status", "live_peak_bytes"}},
    {"trace", {"ph", "pid"}},
};

enum { ARRAY_KINDS = sizeof array_kinds / sizeof *array_kinds };

static bool has_keys(const json_t *element, const array_kind *kind) {
    for (int k = 0; k < 5 && kind->keys[k]; k++)
        if (!json_object_get(element, kind->keys[k])) return false;
    return true;
}

static bool is_array_of(const json_t *json, const array_kind *kind) {
    const json_t *element;
    size_t i;
    json_array_foreach(json, i, element) if (!has_keys(element, kind)) return false;
    return json_array_size(json) > 0;
}

/* The kind of a file; NULL: not one that a report can show. */
static const char *kind_of(const json_t *json) {
    if (json_is_array(json_object_get(json, "traceEvents"))) return "trace";
    for (int k = 0; k < ARRAY_KINDS; k++)
        if (is_array_of(json, &array_kinds[k])) return array_kinds[k].name;
    return NULL;
}

static mm_status refuse(const char *what) {
    return mm_fail(MM_ERR_INVALID,
                   "%s: neither rows ('mm train' or 'mm bench' --json), nor plans ('mm plan --json'), nor a trace "
                   "(--trace), nor a log ('mm train --log')",
                   what);
}

/* ---------------------------------------------------------------- reading */

/* Adds what was read from a file. Takes over `data`. */
static mm_status add(report_command *c, const char *path, const char *kind, json_t *data) {
    /* A path need not be UTF-8, but a JSON string must. */
    errno = 0;
    json_t *name = json_string(path);
    if (!name && errno != ENOMEM) name = json_string("?");
    json_t *entry = json_pack("{so ss so}", "name", name, "kind", kind, "data", data);
    if (json_array_append_new(json_object_get(c->data, "files"), entry) == 0) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "out of memory for %s", path);
}

static const char log_head[] = "iteration,loss,accuracy,seconds";

/* The values of a log's line, null where a value is empty or not finite. NULL: the line is no list of numbers, or
 * memory ran out. */
static json_t *log_values(const char *line) {
    json_t *values = json_array();
    for (const char *at = line; values; at++) {
        const bool empty = *at == ',' || *at == '\n' || !*at;
        char *end = (char *)at;
        const double value = empty ? NAN : strtod(at, &end);
        if ((end == at && !empty) || (*end != ',' && *end != '\n' && *end) ||
            json_array_append_new(values, isfinite(value) ? json_real(value) : json_null()) != 0) {
            json_decref(values);
            return NULL;
        }
        at = end;
        if (*end != ',') break;
    }
    return values;
}

/* Reads a log as {"columns": [name, ...], "lines": [[value, ...], ...]}. A last line without its end is left out: the
 * run may still write it. */
static mm_status add_log(report_command *c, const char *path, FILE *file) {
    char *line = NULL;
    size_t room = 0;
    int64_t number = 1;
    json_t *columns = json_array(), *lines = json_array();
    bool whole = true;
    errno = 0;
    ssize_t length = getline(&line, &room, file);
    if (length <= 0 || strncmp(line, log_head, sizeof log_head - 1) != 0) length = 0;
    for (char *save = NULL, *name = strtok_r(length > 0 ? line : NULL, ",\n", &save); name;
         name = strtok_r(NULL, ",\n", &save))
        whole &= json_array_append_new(columns, json_string(name)) == 0;
    mm_status status = !columns || !lines || !whole ? mm_fail(MM_ERR_NOMEM, "out of memory for %s", path)
                       : length == 0                ? refuse(path)
                                                    : MM_OK;
    while (status == MM_OK && (length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n') {
        json_t *values = log_values(line);
        number++;
        if (values && json_array_size(values) == json_array_size(columns))
            whole = json_array_append_new(lines, values) == 0;
        else {
            json_decref(values);
            whole = errno != ENOMEM;
            status = mm_fail(MM_ERR_INVALID, "%s: line %lld: no %zu numbers with commas between them", path,
                             (long long)number, json_array_size(columns));
        }
    }
    if (status == MM_OK && ferror(file)) status = mm_fail(MM_ERR_IO, "%s: cannot be read: %m", path);
    if (!whole) status = mm_fail(MM_ERR_NOMEM, "out of memory for %s", path);
    free(line);
    if (status == MM_OK) return add(c, path, "log", json_pack("{so so}", "columns", columns, "lines", lines));
    json_decref(columns);
    json_decref(lines);
    return status;
}

/* Whether the file may be a log: it begins as log_head does. JSON that a report can show begins otherwise. */
static bool is_log(FILE *file) {
    const int first = getc(file);
    if (first != EOF) ungetc(first, file);
    return first == log_head[0];
}

static mm_status add_file(report_command *c, const char *path) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!file)
        return mm_fail(errno == ENOMEM ? MM_ERR_NOMEM : MM_ERR_IO, "%s: cannot be read: %m%s", path,
                       MM_DID_YOU_MEAN_FILE(path));
    json_t *json;
    const bool log = is_log(file);
    const mm_status status = log ? add_log(c, path, file) : mm_json_read_stream("", path, file, 0, &json);
    fclose(file);
    if (log) return status;
    if (status == MM_ERR_FORMAT) return refuse(mm_last_error());
    MM_TRY(status);
    const char *kind = kind_of(json);
    if (!kind) {
        json_decref(json);
        return refuse(path);
    }
    return add(c, path, kind, json);
}

static mm_status read_all(report_command *c) {
    c->data = json_pack("{ss s[]}", "mm", MM_VERSION, "files");
    if (!c->data) return mm_fail(MM_ERR_NOMEM, "out of memory for a report");
    for (int i = 0; i < c->files.n; i++) MM_TRY(add_file(c, c->files.text[i]));
    return MM_OK;
}

/* ---------------------------------------------------------------- the page */

/* Writes the JSON with every "<" escaped, so that no text ends the script element or begins a comment. JSON has "<"
 * only inside strings, where \u003c means the same. */
static void put_data(FILE *page, const char *json) {
    for (const char *c = json; *c; c++)
        if (*c == '<')
            fputs("\\u003c", page);
        else
            fputc(*c, page);
}

static mm_status save(const report_command *c) {
    char *json = mm_json_print(c->data, JSON_COMPACT | JSON_REAL_PRECISION(15)), *bytes = NULL;
    size_t n_bytes = 0;
    FILE *page = json ? open_memstream(&bytes, &n_bytes) : NULL;
    bool good = page;
    if (page) {
        fputs(report_page_before, page);
        put_data(page, json);
        fputc('\n', page);
        fputs(report_page_after, page);
        good &= !ferror(page);
        good &= fclose(page) == 0;
    }
    free(json);
    mm_status status = good ? mm_atomic_file_save(c->html, bytes, n_bytes)
                            : mm_fail(MM_ERR_NOMEM, "out of memory for the page %s", c->html);
    free(bytes);
    return status;
}

/* ---------------------------------------------------------------- the command */

static mm_status check(const report_command *c) {
    named_file files[ARG_TEXTS_MAX + 1];
    if (c->files.n == 0) return mm_fail(MM_ERR_INVALID, "no FILE given: give rows, plans, traces or logs; see --help");
    if (!c->html) return mm_fail(MM_ERR_INVALID, "--html OUT is missing: it names the page to write");
    for (int i = 0; i < c->files.n; i++) files[i] = (named_file){"FILE", c->files.text[i], FILE_READ};
    files[c->files.n] = (named_file){"--html", c->html, FILE_WRITTEN};
    return files_check(files, c->files.n + 1);
}

static mm_status run_report(report_command *c) {
    MM_TRY(check(c));
    MM_TRY(read_all(c));
    return save(c);
}

static const char help_text[] =
    "Writes one HTML page that shows what mm measured and planned. The page needs no other file and no network.\n"
    "FILE, or - for standard input, is any of these, recognised by its content:\n"
    "\n"
    "  rows    mm bench --json, mm train --json: images/s over the budget and over the batch, and a table\n"
    "  plans   mm plan --explain --json: memory over the iteration, segment by segment, and what the plan does with\n"
    "          each map; without --explain only a table of what each policy needs\n"
    "  traces  --trace of mm bench, train or plan: the same memory, and a timeline of the streams\n"
    "  logs    mm train --log: loss, accuracy, evaluations, learning rate and images/s over the iterations; with the\n"
    "          same run's --json also its network and policy, tokens/s where it has tokens, the memory it touched\n"
    "\n"
    "What is predicted (plans, simulated rows) has hollow marks, dashed lines, hatched areas and slanted figures; "
    "what\n"
    "was measured has filled marks, solid lines, plain areas and upright figures. Whiskers mark a lossy policy.\n"
    "\n"
    "Point at a picture, or go to it with Tab and use the arrow keys, to read the tensor, layer and action there.\n"
    "+ and - zoom, 0 shows all. A click on a column sorts a table. The page is light or dark as the system is.\n"
    "\n"
    "  mm bench --net resnet32 --policies liveness,freelunch,swap-async --budgets sweep --json r.json --trace t.json\n"
    "  mm plan --net resnet32 --policy liveness,freelunch,swap-async --explain --json p.json\n"
    "  mm report r.json p.json t.json --html page.html";

int cmd_report(int argc, char **argv) {
    report_command c = {.html = NULL};
    const arg table[] = {
        {"FILE...", NULL, "rows, plans, traces and logs", ARG_WORDS, &c.files, 0, 0},
        {"--html", "OUT", "the page; replaced as a whole if it is there", ARG_TEXT, &c.html, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm report FILE... --html OUT", help_text, &c.help);
    if (status == MM_OK && !c.help) status = run_report(&c);
    json_decref(c.data);
    return status == MM_OK ? EXIT_OK : command_failed("report", status);
}
