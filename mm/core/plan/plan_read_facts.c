/* SPDX-License-Identifier: MIT */
/* Lines of a plan that say what it was made from: graph, limits, facts. */
#include "mm/core/plan/plan_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/graph/graph_read.h"
#include "mm/core/text.h"

typedef mm_plan_reader reader;

/* ---------------------------------------------------------------- graph and limits */

mm_status mm_plan_read_graph(reader *r, json_t *line) {
    mm_graph **graphs;
    size_t n;
    char *where = mm_text_format("%s, line %d", r->r.path, r->line); /* of messages */
    if (!where) return mm_plan_no_memory(r);
    mm_status status = mm_graph_parse(where, line, &graphs, &n);
    free(where);
    MM_TRY(status);
    if (n == 1) {
        r->r.graph = r->file.graph = graphs[0];
        free(graphs);
    } else {
        mm_graph_list_destroy(graphs, n);
        return mm_plan_bad_key(r, "graphs", "has more than one entry");
    }
    r->file.places = calloc((size_t)mm_graph_persistents(r->file.graph) + 1, sizeof *r->file.places);
    if (!r->file.places) return mm_plan_no_memory(r);
    r->file.limits.places = r->file.places;
    return mm_graph_facts_create(r->file.graph, 0, &r->file.facts);
}

mm_status mm_plan_read_limits(reader *r, json_t *line) {
    static const char *const keys[] = {"is", NULL};
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_limits_fields, NULL, keys));
    return mm_plan_read_fields(r, line, mm_plan_limits_fields, &r->file.limits);
}

mm_status mm_plan_read_home(reader *r, json_t *line) {
    static const char *const keys[] = {"is", "tensor", "place", NULL};
    const int due = r->lines[MM_LINE_HOME];
    mm_tensor tensor;
    int where;
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_home_fields, NULL, keys));
    MM_TRY(mm_graph_named_tensor(&r->r, line, "tensor", &tensor));
    if (mm_graph_tensor(r->file.graph, tensor)->persistent != due)
        return mm_plan_bad_key(r, "tensor", "is not the next persistent tensor of the graph");
    MM_TRY(mm_graph_word(&r->r, line, "place", &mm_words_where, &where));
    if (where >= (int)MM_MEMORY_COUNT)
        return mm_plan_bad_key(r, "place", "is none of 'device', 'pinned' and 'disk', for a home");
    r->file.places[due].memory = (mm_memory)where;
    return mm_plan_read_fields(r, line, mm_plan_home_fields, &r->file.places[due]);
}

/* ---------------------------------------------------------------- facts */

static mm_status read_contention(const reader *r, const json_t *rows, mm_contention *contention) {
    static const char why[] = "is not an array of 5 arrays of 5 numbers each";
    contention->known = rows != NULL;
    if (!rows) return MM_OK;
    if (json_array_size(rows) != MM_WORK_KINDS) return mm_plan_bad_key(r, "contention", why);
    for (size_t a = 0; a < MM_WORK_KINDS; a++) {
        const json_t *row = json_array_get(rows, a);
        if (json_array_size(row) != MM_WORK_KINDS) return mm_plan_bad_key(r, "contention", why);
        for (size_t b = 0; b < MM_WORK_KINDS; b++) {
            int64_t permille = 0;
            MM_TRY(mm_plan_read_number(r, "contention", json_array_get(row, b), 0, MM_CONTENTION_MOST, &permille));
            contention->permille[a][b] = (int)permille;
        }
    }
    return MM_OK;
}

mm_status mm_plan_read_facts(reader *r, json_t *line) {
    static const char *const keys[] = {"is", "sum_at", "contention", NULL};
    mm_graph_facts *facts = r->file.facts;
    int sum_at = MM_SUM_AT_RANKS;
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_facts_fields, NULL, keys));
    MM_TRY(mm_plan_read_fields(r, line, mm_plan_facts_fields, facts));
    if (json_object_get(line, "sum_at")) MM_TRY(mm_graph_word(&r->r, line, "sum_at", &mm_words_sum_at, &sum_at));
    facts->sum_at = (mm_sum_at)sum_at;
    facts->variant_first[0] = 0;
    free(facts->variants); /* those that the graph allows; the file's follow */
    facts->variants = NULL;
    return read_contention(r, json_object_get(line, "contention"), &facts->contention);
}

mm_status mm_plan_read_codec(reader *r, json_t *line) {
    static const char *const keys[] = {"is", "spec", NULL};
    mm_graph_facts *facts = r->file.facts;
    mm_codec_facts codec = {.lossless = false};
    const char *spec;
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_codec_fields, NULL, keys));
    MM_TRY(mm_graph_text(&r->r, line, "spec", &spec));
    if (!*spec || strlen(spec) >= sizeof codec.spec)
        return mm_plan_bad_key(r, "spec", "is empty, or has more than 63 bytes");
    if (mm_facts_codec(facts, spec) >= 0) return mm_plan_bad_key(r, "spec", "is that of an earlier codec");
    if (facts->n_codecs >= MM_PLAN_MOST_CODECS ||
        (int64_t)(facts->n_codecs + 1) * facts->n_tensors > MM_PLAN_MOST_CODES)
        return mm_graph_bad(&r->r, "there are too many codecs");
    snprintf(codec.spec, sizeof codec.spec, "%s", spec);
    MM_TRY(mm_plan_read_fields(r, line, mm_plan_codec_fields, &codec));
    if (!mm_plan_grow((void **)&facts->codecs, facts->n_codecs, sizeof *facts->codecs)) return mm_plan_no_memory(r);
    facts->codecs[facts->n_codecs++] = codec;
    return MM_OK;
}

/* Makes room for the codes of all codecs, which are known now. */
mm_status mm_plan_make_codes(reader *r) {
    mm_graph_facts *facts = r->file.facts;
    const size_t n = (size_t)facts->n_codecs * (size_t)facts->n_tensors;
    free(facts->codes);
    facts->codes = calloc(n + 1, sizeof *facts->codes);
    if (!facts->codes) return mm_plan_no_memory(r);
    for (size_t i = 0; i < n; i++) facts->codes[i].code_bytes = -1;
    return MM_OK;
}

mm_status mm_plan_read_code(reader *r, json_t *line) {
    static const char *const keys[] = {"is", "codec", "tensor", NULL};
    mm_graph_facts *facts = r->file.facts;
    mm_code_facts code = {0};
    mm_tensor tensor;
    int codec;
    MM_TRY(mm_plan_check_keys(r, line, mm_plan_code_fields, NULL, keys));
    MM_TRY(mm_plan_read_codec_of(r, line, &codec));
    MM_TRY(mm_graph_named_tensor(&r->r, line, "tensor", &tensor));
    MM_TRY(mm_plan_read_fields(r, line, mm_plan_code_fields, &code));
    if (code.strip_elems > MM_PLAN_MOST_STRIP &&
        code.strip_elems > mm_graph_tensor(r->file.graph, tensor)->bytes / (int64_t)sizeof(float))
        return mm_plan_bad_key(r, "strip_elems", "is more than the tensor has");
    if (!mm_facts_body_is_possible(&facts->codecs[codec], &code))
        return mm_plan_bad_key(r, "body_bound_bytes",
                               "does not agree with the codec, or with body_reserve_bytes and body_typical_bytes");
    mm_code_facts *to = &facts->codes[(size_t)codec * (size_t)facts->n_tensors + (size_t)tensor];
    if (to->code_bytes >= 0) return mm_graph_bad(&r->r, "the same codec and tensor have a line before");
    *to = code;
    return MM_OK;
}

mm_status mm_plan_read_variants(reader *r, json_t *line) {
    static const char *const keys[] = {"is", "step", "variants", NULL}, *const no_keys[] = {NULL};
    mm_graph_facts *facts = r->file.facts;
    const int step = r->lines[MM_LINE_VARIANTS];
    json_t *array;
    int n = facts->variant_first[step];
    MM_TRY(mm_plan_check_keys(r, line, NULL, NULL, keys));
    MM_TRY(mm_plan_check_index(r, line, "step", step));
    MM_TRY(mm_graph_array(&r->r, line, "variants", (size_t)(MM_PLAN_MOST_LINES - n), &array));
    if (json_array_size(array) == 0) return mm_plan_bad_key(r, "variants", "is missing or empty");
    for (size_t v = 0; v < json_array_size(array); v++) {
        if (!mm_plan_grow((void **)&facts->variants, n, sizeof *facts->variants)) return mm_plan_no_memory(r);
        MM_TRY(mm_plan_check_keys(r, json_array_get(array, v), mm_plan_variant_fields, NULL, no_keys));
        MM_TRY(mm_plan_read_fields(r, json_array_get(array, v), mm_plan_variant_fields, &facts->variants[n++]));
    }
    facts->variant_first[step + 1] = n;
    return MM_OK;
}
