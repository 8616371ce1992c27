/* SPDX-License-Identifier: MIT */
#include "mm/core/graph/graph_read_value.h"

#include <string.h>

#include "mm/core/text.h"
#include "mm/mm.h"

mm_status mm_graph_bad(const mm_graph_reader *r, const char *what) {
    return mm_fail(MM_ERR_FORMAT, "%s %s: %s: %s", r->what, r->path, r->where, what);
}

mm_status mm_graph_bad_key(const mm_graph_reader *r, const char *key, const char *what) {
    return mm_fail(MM_ERR_FORMAT, "%s %s: %s: \"%s\" %s", r->what, r->path, r->where, key, what);
}

mm_status mm_graph_declared(const mm_graph_reader *r, mm_status status) {
    if (status == MM_OK || status == MM_ERR_NOMEM) return status;
    return mm_fail(MM_ERR_FORMAT, "%s %s: %s: %s", r->what, r->path, r->where, mm_last_error());
}

static bool has_control_characters(const char *text) {
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) return true;
    return false;
}

mm_status mm_graph_check_keys(const mm_graph_reader *r, json_t *object, const char *const *keys) {
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return mm_graph_bad(r, "is not an object");
    json_object_foreach(object, key, value) {
        int i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0) i++;
        if (keys[i]) continue;
        if (has_control_characters(key)) return mm_graph_bad(r, "has a key with control characters");
        return mm_graph_bad_key(r, MM_BRIEF(key), "is not one of its keys");
    }
    return MM_OK;
}

mm_status mm_graph_text_of(const mm_graph_reader *r, const char *key, const json_t *value, const char **text_out) {
    if (!value) return mm_graph_bad_key(r, key, "is missing");
    if (!json_is_string(value)) return mm_graph_bad_key(r, key, "is not a string");
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value) || has_control_characters(text))
        return mm_graph_bad_key(r, key, "has control characters");
    *text_out = text;
    return MM_OK;
}

mm_status mm_graph_text(const mm_graph_reader *r, const json_t *object, const char *key, const char **text_out) {
    return mm_graph_text_of(r, key, json_object_get(object, key), text_out);
}

mm_status mm_graph_word(const mm_graph_reader *r, const json_t *object, const char *key, const mm_graph_words *words,
                        int *value_out) {
    const char *text;
    MM_TRY(mm_graph_text(r, object, key, &text));
    for (int i = 0; i < words->n; i++)
        if (strcmp(words->name(i), text) == 0) {
            *value_out = i;
            return MM_OK;
        }
    return mm_fail(MM_ERR_FORMAT, "%s %s: %s: \"%s\" cannot be '%s'", r->what, r->path, r->where, key, MM_BRIEF(text));
}

mm_status mm_graph_integer(const mm_graph_reader *r, const json_t *object, const char *key, int64_t most,
                           int64_t *integer_out) {
    const json_t *value = json_object_get(object, key);
    if (!value) return mm_graph_bad_key(r, key, "is missing");
    if (!json_is_integer(value)) return mm_graph_bad_key(r, key, "is not an integer");
    const int64_t integer = json_integer_value(value);
    if (integer < 0 || integer > most)
        return mm_fail(MM_ERR_FORMAT, "%s %s: %s: \"%s\" is %lld, must be 0 to %lld", r->what, r->path, r->where, key,
                       (long long)integer, (long long)most);
    *integer_out = integer;
    return MM_OK;
}

mm_status mm_graph_array(const mm_graph_reader *r, const json_t *object, const char *key, size_t most,
                         json_t **array_out) {
    json_t *array = json_object_get(object, key);
    if (array && !json_is_array(array)) return mm_graph_bad_key(r, key, "is not an array");
    if (json_array_size(array) > most)
        return mm_fail(MM_ERR_FORMAT, "%s %s: %s: \"%s\" has %zu entries, at most %zu", r->what, r->path, r->where, key,
                       json_array_size(array), most);
    *array_out = array;
    return MM_OK;
}

mm_status mm_graph_named_tensor(const mm_graph_reader *r, const json_t *object, const char *key,
                                mm_tensor *tensor_out) {
    const char *name;
    MM_TRY(mm_graph_text(r, object, key, &name));
    return mm_graph_find_tensor(r->graph, name, tensor_out) == MM_OK
               ? MM_OK
               : mm_fail(MM_ERR_FORMAT, "%s %s: %s: \"%s\" names no tensor of the graph: %s", r->what, r->path,
                         r->where, key, MM_BRIEF(name));
}
