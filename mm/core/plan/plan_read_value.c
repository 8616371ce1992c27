/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan_read.h"

#include <stdlib.h>
#include <string.h>

mm_status mm_plan_no_memory(const mm_plan_reader *r) {
    return mm_fail(MM_ERR_NOMEM, "out of memory for plan file %s", r->r.path);
}

/* Makes room for one more item of an array, whose capacity is the power of two at or above its count. */
bool mm_plan_grow(void **array, int count, size_t item_bytes) {
    if (count & (count - 1)) return true;
    void *larger = realloc(*array, (count ? 2 * (size_t)count : 1) * item_bytes);
    if (larger) *array = larger;
    return larger != NULL;
}

mm_status mm_plan_bad_key(const mm_plan_reader *r, const char *key, const char *what) {
    return mm_graph_bad_key(&r->r, key, what);
}

mm_status mm_plan_read_number(const mm_plan_reader *r, const char *key, const json_t *value, int64_t least,
                              int64_t most, int64_t *number_out) {
    if (!json_is_integer(value)) return mm_plan_bad_key(r, key, value ? "is not an integer" : "is missing");
    const int64_t number = json_integer_value(value);
    if (number < least || number > most)
        return mm_fail(MM_ERR_FORMAT, "plan file %s: %s: \"%s\" is %lld, must be %lld to %lld", r->r.path, r->r.where,
                       key, (long long)number, (long long)least, (long long)most);
    *number_out = number;
    return MM_OK;
}

mm_status mm_plan_read_fields(const mm_plan_reader *r, const json_t *line, const mm_plan_field *fields, void *of) {
    for (const mm_plan_field *f = fields; f->key; f++) {
        const json_t *value = json_object_get(line, f->key);
        int64_t number = f->otherwise;
        if (f->value == MM_VALUE_BOOL && (value || f->needed)) {
            if (!json_is_boolean(value))
                return mm_plan_bad_key(r, f->key, value ? "is not true or false" : "is missing");
            number = json_is_true(value);
        } else if (value || f->needed) {
            MM_TRY(mm_plan_read_number(r, f->key, value, f->least, f->most, &number));
        }
        mm_plan_field_set(f, of, number);
    }
    return MM_OK;
}

/* Refuses keys that are neither fields nor one of `others` (NULL ends them). */
mm_status mm_plan_check_keys(const mm_plan_reader *r, json_t *line, const mm_plan_field *fields,
                             const mm_plan_field *more, const char *const *others) {
    enum { KEYS = 40 };
    const char *keys[KEYS];
    int n = 0;
    for (; fields && fields->key; fields++) keys[n++] = fields->key;
    for (; more && more->key; more++) keys[n++] = more->key;
    for (; *others; others++) keys[n++] = *others;
    keys[n] = NULL;
    return mm_graph_check_keys(&r->r, line, keys);
}

/* Checks that "index" or "step" is the number of the line among those of its kind. */
mm_status mm_plan_check_index(const mm_plan_reader *r, const json_t *line, const char *key, int due) {
    int64_t index = 0;
    MM_TRY(mm_plan_read_number(r, key, json_object_get(line, key), 0, MM_PLAN_MOST_LINES, &index));
    if (index == due) return MM_OK;
    return mm_fail(MM_ERR_FORMAT, "plan file %s: %s: \"%s\" is %lld where %d is due", r->r.path, r->r.where, key,
                   (long long)index, due);
}

/* A segment, or -1. */
mm_status mm_plan_check_segment(const mm_plan_reader *r, const char *key, int32_t segment) {
    if (segment < r->file.plan->n_segments) return MM_OK;
    return mm_fail(MM_ERR_FORMAT, "plan file %s: %s: \"%s\" is %d, but there are %d segments", r->r.path, r->r.where,
                   key, segment, r->file.plan->n_segments);
}

mm_status mm_plan_read_codec_of(const mm_plan_reader *r, const json_t *line, int *codec_out) {
    const char *spec;
    MM_TRY(mm_graph_text(&r->r, line, "codec", &spec));
    *codec_out = mm_facts_codec(r->file.facts, spec);
    return *codec_out >= 0 ? MM_OK : mm_plan_bad_key(r, "codec", "is no codec of the plan");
}

/* wait: MM_STREAM_COUNT entries. */
mm_status mm_plan_read_waits(const mm_plan_reader *r, const json_t *line, int32_t *wait) {
    json_t *waits = json_object_get(line, "waits"), *value;
    const char *stream;
    for (int s = 0; s < MM_STREAM_COUNT; s++) wait[s] = -1;
    if (!json_is_object(waits)) return mm_plan_bad_key(r, "waits", waits ? "is not an object" : "is missing");
    json_object_foreach(waits, stream, value) {
        int s = 0;
        int64_t number = 0;
        while (s < MM_STREAM_COUNT && strcmp(stream, mm_stream_id_name(s)) != 0) s++;
        if (s == MM_STREAM_COUNT) return mm_plan_bad_key(r, "waits", "names an unknown stream");
        MM_TRY(mm_plan_read_number(r, "waits", value, 0, MM_PLAN_MOST_LINES, &number));
        wait[s] = (int32_t)number;
    }
    return MM_OK;
}
