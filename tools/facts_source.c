#include "tools/facts_source.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"

/* "resnet32 train 128": a training graph's name, as nets/lower.c gives it. */
static void read_subject(const char *name, facts_source *source) {
    static const char mode[] = " train ";
    const char *end = strstr(name, mode);
    long long batch;
    if (!end || (size_t)(end - name) >= sizeof source->net || sscanf(end + strlen(mode), "%lld", &batch) != 1) return;
    snprintf(source->net, sizeof source->net, "%.*s", (int)(end - name), name);
    source->batch = batch;
}

mm_status facts_source_open(const char *path, facts_source *source_out) {
    facts_source source = {.path = path};
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    source.is_machine = root && machine_is(root);
    mm_status status =
        source.is_machine ? machine_read(path, root, &source.machine) : mm_facts_load(path, &source.facts);
    json_decref(root);
    MM_TRY(status);
    if (source.facts) {
        read_subject(source.facts->names->graph, &source);
        source.threads = source.facts->threads;
    }
    *source_out = source;
    return MM_OK;
}

void facts_source_close(facts_source *source) {
    mm_facts_destroy(source->facts);
    source->facts = NULL;
}

mm_status facts_source_fill(const facts_source *source, const mm_graph *graph, mm_facts *facts) {
    if (!source->is_machine)
        return mm_facts_apply(source->facts, graph, source->for_run ? MM_FACTS_TIMES : MM_FACTS_ALL, facts);
    machine_facts(&source->machine, graph, facts);
    return MM_OK;
}
