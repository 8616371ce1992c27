#include "tools/facts_source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"

/* What is no such number is found when the facts are loaded. */
static int read_threads(const json_t *root) {
    json_int_t threads = json_integer_value(json_object_get(root, "threads"));
    return threads > 0 && threads <= INT32_MAX ? (int)threads : 0;
}

/* "resnet32 train 128": a training graph's name, as nets/lower.c gives it. */
static void read_subject(const json_t *root, facts_source *source) {
    static const char mode[] = " train ";
    const char *name = json_string_value(json_object_get(json_object_get(root, "graph"), "name"));
    const char *end = name ? strstr(name, mode) : NULL;
    long long batch;
    if (!end || (size_t)(end - name) >= sizeof source->net || sscanf(end + strlen(mode), "%lld", &batch) != 1) return;
    snprintf(source->net, sizeof source->net, "%.*s", (int)(end - name), name);
    source->batch = batch;
}

mm_status facts_source_open(const char *path, facts_source *source_out) {
    facts_source source = {.path = path};
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_cannot_open_file)
        return mm_fail(MM_ERR_IO, "facts: cannot open %s: %s", path, strerror(errno));
    if (!root) return mm_fail(MM_ERR_FORMAT, "facts file %s, line %d: %s", path, error.line, error.text);
    source.is_machine = machine_is(root);
    mm_status status = source.is_machine ? machine_read(path, root, &source.machine) : MM_OK;
    if (!source.is_machine) read_subject(root, &source);
    if (!source.is_machine) source.threads = read_threads(root);
    json_decref(root);
    if (status == MM_OK) *source_out = source;
    return status;
}

mm_status facts_source_fill(const facts_source *source, const mm_graph *graph, mm_facts *facts) {
    if (!source->is_machine) return mm_facts_load(source->path, graph, facts);
    machine_facts(&source->machine, graph, facts);
    return MM_OK;
}

mm_status facts_source_load(const char *path, const mm_graph *graph, mm_facts *facts) {
    facts_source source;
    MM_TRY(facts_source_open(path, &source));
    return facts_source_fill(&source, graph, facts);
}
