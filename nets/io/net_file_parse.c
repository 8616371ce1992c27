/* SPDX-License-Identifier: MIT */
/* Builds a net from JSON. net.h's functions check what layers mean. This file checks only what a file can get wrong:
 * its form, unknown names, and attributes that would be taken otherwise than they were written. */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/graph/names.h"
#include "mm/core/json_text.h"
#include "mm/core/nearest.h"
#include "nets/io/net_file.h"
#include "nets/net_attrs.h"
#include "nets/net_ops.h"

/* The most elements of all parameters together, so that sums of them cannot overflow. */
static const int64_t MAX_PARAM_ELEMS = INT64_C(1) << 60;

typedef struct parser {
    const json_t *layers;
    nets_net *net;
    mm_names names; /* layers so far, by name; borrowed from the JSON */
    char data_name[NETS_NAME_CAPACITY];
    const char *loss; /* the name of the loss layer, once there is one */
    int64_t param_elems;
} parser;

/* ---------------------------------------------------------------- messages */

/* A text from a file as a message can hold it: one line, not long, whole UTF-8 characters. */
typedef struct shown {
    char text[256];
} shown;

enum { SHOWN_TEXT = 108, SHOWN_PATH = 176 }; /* chosen */

static bool continues_character(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

static shown show(const char *text) {
    shown s;
    size_t n = strlen(text);
    bool cut = n > SHOWN_TEXT;
    if (cut)
        for (n = SHOWN_TEXT; n > 0 && continues_character(text[n]);) n--;
    snprintf(s.text, sizeof s.text, "%.*s%s", (int)n, text, cut ? "..." : "");
    for (char *c = s.text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F) *c = '?';
    return s;
}

/* Cuts a long path's beginning, since its end says more. The path gets the room that the message leaves (status.h). */
static shown show_path(const char *path) {
    shown s;
    const size_t taken = strlen(mm_last_error()) + sizeof "...: ";
    const size_t left = taken < MM_MESSAGE_CAPACITY ? MM_MESSAGE_CAPACITY - taken : 0;
    const size_t n = strlen(path), most = left < SHOWN_PATH ? left : SHOWN_PATH;
    const bool cut = n > most;
    if (cut)
        for (path += n - most; continues_character(*path);) path++;
    snprintf(s.text, sizeof s.text, "%s%s", cut ? "..." : "", path);
    return s;
}

static const char *type_name(const json_t *value) {
    static const char *const names[] = {[JSON_OBJECT] = "an object",
                                        [JSON_ARRAY] = "an array",
                                        [JSON_STRING] = "text",
                                        [JSON_INTEGER] = "a whole number",
                                        [JSON_REAL] = "a number with a fraction",
                                        [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false",
                                        [JSON_NULL] = "null"};
    return names[json_typeof(value)];
}

/* "a, b, c" of a list as it grows; what does not fit is left out. */
typedef struct name_list {
    char text[320];
    size_t length;
} name_list;

static void list_name(name_list *list, const char *name) {
    size_t room = sizeof list->text - list->length;
    int n = snprintf(list->text + list->length, room, "%s%s", list->length ? ", " : "", name);
    if (n > 0 && (size_t)n < room)
        list->length += (size_t)n;
    else
        list->text[list->length] = '\0';
}

/* ---------------------------------------------------------------- values */

/* `where` is "" or "layer conv1: ". */
static mm_status get(const json_t *object, const char *where, const char *key, json_type type, const char *wanted,
                     const json_t **value_out) {
    const json_t *value = json_object_get(object, key);
    if (!value) return mm_fail(MM_ERR_FORMAT, "%s\"%s\" is missing", where, key);
    if (json_typeof(value) != type)
        return mm_fail(MM_ERR_FORMAT, "%s\"%s\" must be %s, not %s", where, key, wanted, type_name(value));
    *value_out = value;
    return MM_OK;
}

static mm_status get_text(const json_t *object, const char *where, const char *key, const char **text_out) {
    const json_t *value;
    MM_TRY(get(object, where, key, JSON_STRING, "text", &value));
    *text_out = json_string_value(value);
    return MM_OK;
}

static mm_status get_whole(const json_t *object, const char *where, const char *key, int64_t *value_out) {
    const json_t *value;
    MM_TRY(get(object, where, key, JSON_INTEGER, "a whole number", &value));
    *value_out = json_integer_value(value);
    return MM_OK;
}

/* Gets a name that messages, tensors and files can hold. */
static mm_status get_name(const json_t *object, const char *where, const char **name_out) {
    const char *name;
    MM_TRY(get_text(object, where, "name", &name));
    size_t n = strlen(name);
    if (n < 1 || n >= NETS_NAME_CAPACITY)
        return mm_fail(MM_ERR_FORMAT, "%s\"name\" must have 1 to %d bytes, not %zu", where, NETS_NAME_CAPACITY - 1, n);
    if (strcmp(show(name).text, name) != 0)
        return mm_fail(MM_ERR_FORMAT, "%s\"name\" has a control character: '%s'", where, show(name).text);
    *name_out = name;
    return MM_OK;
}

/* Checks that a comment, if there is one, is text. */
static mm_status check_comment(const json_t *object, const char *where) {
    const char *text;
    return json_object_get(object, "comment") ? get_text(object, where, "comment", &text) : MM_OK;
}

/* Refuses keys that are not among those listed (up to NULL). */
static mm_status check_keys(const json_t *object, const char *where, const char *const *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        name_list list = {0};
        const char *const *k = known;
        mm_nearest near = {.text = key, .length = strlen(key)};
        for (; *k && strcmp(*k, key) != 0; k++) {
            list_name(&list, *k);
            mm_nearest_try(&near, *k);
        }
        if (!*k)
            return mm_fail(MM_ERR_FORMAT, "%sunknown key \"%s\"%s; there are %s", where, show(key).text,
                           MM_DID_YOU_MEAN(&near), list.text);
    }
    return check_comment(object, where);
}

/* ---------------------------------------------------------------- attributes */

static const char *wanted_of(const nets_attr *attr) {
    static const char *const wanted[] = {
        [NETS_ATTR_WHOLE] = "a whole number", [NETS_ATTR_FLAG] = "true or false", [NETS_ATTR_REAL] = "a number"};
    return wanted[attr->type];
}

/* False if the value is of another type, or no float is so large. */
static bool read_elem(const nets_attr *attr, const json_t *value, void *out) {
    int64_t whole = json_integer_value(value);
    double number = json_number_value(value);
    float real = fabs(number) <= FLT_MAX ? (float)number : 0;
    bool flag = json_is_true(value);
    switch (attr->type) {
    case NETS_ATTR_WHOLE:
        memcpy(out, &whole, sizeof whole);
        return json_is_integer(value);
    case NETS_ATTR_REAL:
        if (real == 0) real = 0; /* no sign on a zero: -0 means "not given", too */
        memcpy(out, &real, sizeof real);
        return json_is_number(value) && fabs(number) <= FLT_MAX;
    case NETS_ATTR_FLAG:
        memcpy(out, &flag, sizeof flag);
        return json_is_boolean(value);
    }
    return false;
}

static bool is_of_type(const nets_attr *attr, const json_t *value) {
    return attr->type == NETS_ATTR_WHOLE  ? json_is_integer(value)
           : attr->type == NETS_ATTR_REAL ? json_is_number(value)
                                          : json_is_boolean(value);
}

/* Reads an attribute; a single value stands for all its elements. */
static mm_status read_attr(const nets_attr *attr, const char *name, const char *where, const json_t *value,
                           nets_attrs *attrs) {
    char *out = (char *)attrs + attr->offset;
    size_t n = nets_attr_elems(attr);
    bool each = n > 1 && json_is_array(value), good = !each || json_array_size(value) == n;
    for (size_t i = 0; good && i < n; i++)
        good = read_elem(attr, each ? json_array_get(value, i) : value, out + i * nets_attr_elem_bytes(attr));
    if (good) return nets_attr_check(attr, name, attrs);
    if (n > 1)
        return mm_fail(MM_ERR_FORMAT, "%s\"%s\" must be %s, or an array of %zu", where, attr->name, wanted_of(attr), n);
    return mm_fail(MM_ERR_FORMAT, "%s\"%s\" must be %s, not %s", where, attr->name, wanted_of(attr),
                   is_of_type(attr, value) ? "one so large" : type_name(value));
}

static bool is_layer_key(const char *key) {
    static const char *const keys[] = {"name", "op", "inputs", "parameters", "comment"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static mm_status unknown_attr(const char *where, nets_op_kind op, const char *key) {
    name_list list = {0};
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_of(op, i)); i++) list_name(&list, attr->name);
    return mm_fail(MM_ERR_FORMAT, "%s\"%s\" is no attribute of %s, which takes %s", where, show(key).text,
                   nets_op_name(op), list.length ? list.text : "none");
}

/* Reads the layer's attributes: all keys but those that every layer has. */
static mm_status read_attrs(const json_t *object, const char *name, const char *where, nets_op_kind op,
                            nets_attrs *attrs) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (is_layer_key(key)) continue;
        const nets_attr *attr = nets_attr_find(op, key);
        if (!attr) return unknown_attr(where, op, key);
        MM_TRY(read_attr(attr, name, where, value, attrs));
    }
    return MM_OK;
}

/* Refuses a zero that means "not given" to the operation: it would silently become the default. */
static mm_status check_taken_as_written(const json_t *object, const char *where, const nets_layer *layer,
                                        const nets_attrs *written) {
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_of(layer->op, i)); i++) {
        char is[NETS_ATTR_TEXT_CAPACITY], was[NETS_ATTR_TEXT_CAPACITY];
        if (json_object_get(object, attr->name) && !nets_attr_equal(attr, written, &layer->attrs))
            return mm_fail(MM_ERR_FORMAT, "%s\"%s\" cannot be %s; left out, it is %s", where, attr->name,
                           nets_attr_text(attr, written, was), nets_attr_text(attr, &layer->attrs, is));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- layers */

static mm_status read_op(const json_t *object, const char *where, nets_op_kind *op_out) {
    const char *name;
    MM_TRY(get_text(object, where, "op", &name));
    *op_out = nets_op_find(name);
    if (*op_out < NETS_OP_KINDS) return MM_OK;
    char known[NETS_OP_NAMES_CAPACITY], like[MM_NEAREST_CAPACITY];
    if (*nets_op_like(name, like))
        return mm_fail(MM_ERR_FORMAT, "%sunknown op \"%s\"%s; 'mm nets --ops' lists them", where, show(name).text,
                       like);
    return mm_fail(MM_ERR_FORMAT, "%sunknown op \"%s\"; there are %s; see 'mm nets --ops'", where, show(name).text,
                   nets_op_names(known));
}

static mm_status no_such_input(const parser *p, const char *where, const char *name) {
    const json_t *object;
    size_t i;
    json_array_foreach(p->layers, i, object) {
        const char *other = json_string_value(json_object_get(object, "name"));
        if (other && strcmp(other, name) == 0)
            return mm_fail(MM_ERR_FORMAT, "%sits input \"%s\" is not before it: inputs must be earlier layers", where,
                           show(name).text);
    }
    return mm_fail(MM_ERR_FORMAT, "%sits input \"%s\" is no layer", where, show(name).text);
}

static mm_status read_inputs(const parser *p, const json_t *object, const char *where, int inputs_out[NETS_MAX_INPUTS],
                             int *n_out) {
    const json_t *array, *value;
    MM_TRY(get(object, where, "inputs", JSON_ARRAY, "an array of layers' names", &array));
    if (json_array_size(array) > NETS_MAX_INPUTS)
        return mm_fail(MM_ERR_FORMAT, "%s%zu inputs, at most %d", where, json_array_size(array), NETS_MAX_INPUTS);
    size_t i;
    json_array_foreach(array, i, value) {
        const char *name = json_string_value(value);
        if (!name)
            return mm_fail(MM_ERR_FORMAT, "%s\"inputs\" must be an array of layers' names, not of %s", where,
                           type_name(value));
        inputs_out[i] = mm_names_find(&p->names, name);
        if (inputs_out[i] < 0) return no_such_input(p, where, name);
    }
    *n_out = (int)i;
    return MM_OK;
}

static mm_status check_place(parser *p, const char *where, const char *name, nets_op_kind op) {
    if (p->loss && nets_op_info_of(op)->loss)
        return mm_fail(MM_ERR_FORMAT, "%sis a second loss, after %s; a net has one, its last layer", where, p->loss);
    if (p->loss)
        return mm_fail(MM_ERR_FORMAT, "%scomes after the loss, %s, which must be the last layer", where, p->loss);
    if (strcmp(name, p->data_name) == 0) return mm_fail(MM_ERR_FORMAT, "%sthat is the input's name", where);
    if (mm_names_find(&p->names, name) >= 0)
        return mm_fail(MM_ERR_FORMAT, "%sthere is another layer of that name before", where);
    if (nets_op_info_of(op)->loss) p->loss = name;
    return MM_OK;
}

/* Names the parameters of the layer added last, if the file does. */
static mm_status read_params(parser *p, const json_t *object, const char *where) {
    const json_t *array, *value;
    const char *names[NETS_MAX_PARAMS];
    size_t i;
    if (!json_object_get(object, "parameters")) return MM_OK;
    MM_TRY(get(object, where, "parameters", JSON_ARRAY, "an array of names", &array));
    if (json_array_size(array) > NETS_MAX_PARAMS)
        return mm_fail(MM_ERR_FORMAT, "%s%zu names of parameters, at most %d", where, json_array_size(array),
                       NETS_MAX_PARAMS);
    json_array_foreach(array, i, value) {
        names[i] = json_string_value(value);
        if (!names[i])
            return mm_fail(MM_ERR_FORMAT, "%s\"parameters\" must be an array of names, not of %s", where,
                           type_name(value));
        if (strcmp(show(names[i]).text, names[i]) != 0)
            return mm_fail(MM_ERR_FORMAT, "%sa parameter's name is too long, or has a control character: '%s'", where,
                           show(names[i]).text);
    }
    nets_name_params(p->net, names, (int)i);
    return nets_net_status(p->net);
}

static mm_status count_params(parser *p, const nets_layer *layer) {
    for (int i = 0; i < layer->n_params; i++) {
        p->param_elems += nets_net_param(p->net, layer->first_param + i)->elems;
        if (p->param_elems > MAX_PARAM_ELEMS)
            return mm_fail(MM_ERR_FORMAT, "layer %s: up to here the net has more than 2^60 parameters", layer->name);
    }
    return MM_OK;
}

/* Adds a layer of this operation, whose attributes are in `object`. */
static mm_status add_layer(parser *p, const json_t *object, const char *name, const char *where, nets_op_kind op,
                           int *added_out) {
    nets_attrs attrs = {0};
    int inputs[NETS_MAX_INPUTS], n_inputs = 0;
    MM_TRY(read_inputs(p, object, where, inputs, &n_inputs));
    mm_status status = read_attrs(object, name, where, op, &attrs);
    if (status == MM_OK) {
        *added_out = nets_add(p->net, name, op, &attrs, inputs, n_inputs);
        status = *added_out < 0 ? nets_net_finish(p->net) /* returns the failure of nets_add */
                                : check_taken_as_written(object, where, nets_net_layer(p->net, *added_out), &attrs);
    }
    return status == MM_OK ? MM_OK : mm_fail(status, "%s; see 'mm nets --ops %s'", mm_last_error(), nets_op_name(op));
}

static mm_status read_layer(parser *p, const json_t *object, size_t index) {
    char where[NETS_NAME_CAPACITY + 16];
    const char *name;
    nets_op_kind op;
    int added;
    snprintf(where, sizeof where, "layers[%zu]: ", index);
    if (!json_is_object(object)) return mm_fail(MM_ERR_FORMAT, "%smust be an object, not %s", where, type_name(object));
    MM_TRY(get_name(object, where, &name));
    snprintf(where, sizeof where, "layer %s: ", name);
    MM_TRY(read_op(object, where, &op));
    MM_TRY(check_place(p, where, name, op));
    MM_TRY(check_comment(object, where));
    MM_TRY(add_layer(p, object, name, where, op, &added));
    MM_TRY(read_params(p, object, where));
    MM_TRY(count_params(p, nets_net_layer(p->net, added)));
    return mm_names_add(&p->names, name, added);
}

/* ---------------------------------------------------------------- the file */

static mm_status check_header(const json_t *root) {
    static const char *const keys[] = {"format", "version", "name", "input", "layers", "comment", NULL};
    const char *format;
    int64_t version;
    if (!json_is_object(root)) return mm_fail(MM_ERR_FORMAT, "must be an object, not %s", type_name(root));
    MM_TRY(get_text(root, "", "format", &format));
    if (strcmp(format, NETS_NET_FILE_FORMAT) != 0)
        return mm_fail(MM_ERR_FORMAT, "\"format\" must be \"%s\", not \"%s\"", NETS_NET_FILE_FORMAT, show(format).text);
    MM_TRY(get_whole(root, "", "version", &version));
    if (version != NETS_NET_FILE_VERSION)
        return mm_fail(MM_ERR_FORMAT, "\"version\" must be %d, not %lld", NETS_NET_FILE_VERSION, (long long)version);
    return check_keys(root, "", keys);
}

static mm_status read_input(parser *p, const json_t *root) {
    static const char *const keys[] = {"height", "width", "channels", "classes", "comment", NULL};
    static const char where[] = "input: ";
    const json_t *input;
    int64_t height, width, channels, classes;
    MM_TRY(get(root, "", "input", JSON_OBJECT, "an object", &input));
    MM_TRY(check_keys(input, where, keys));
    MM_TRY(get_whole(input, where, "height", &height));
    MM_TRY(get_whole(input, where, "width", &width));
    MM_TRY(get_whole(input, where, "channels", &channels));
    MM_TRY(get_whole(input, where, "classes", &classes));
    int data = nets_add_data(p->net, height, width, channels, classes);
    if (data < 0) return mm_fail_in(nets_net_finish(p->net), "input");
    memcpy(p->data_name, nets_net_layer(p->net, data)->name, sizeof p->data_name);
    return mm_names_add(&p->names, p->data_name, data);
}

static mm_status read_net(parser *p, const json_t *root) {
    const char *name;
    MM_TRY(check_header(root));
    MM_TRY(get_name(root, "", &name));
    MM_TRY(get(root, "", "layers", JSON_ARRAY, "an array of objects", &p->layers));
    MM_TRY(nets_net_create(name, &p->net));
    MM_TRY(read_input(p, root));
    const json_t *layer;
    size_t i;
    json_array_foreach(p->layers, i, layer) MM_TRY(read_layer(p, layer, i));
    if (!p->loss) return mm_fail(MM_ERR_FORMAT, "no layer is a loss; the last one must be");
    return nets_net_finish(p->net);
}

static mm_status parse_json(const char *text, size_t n_bytes, json_t **root_out) {
    json_error_t error;
    const mm_status status = mm_json_parse(text, n_bytes, JSON_REJECT_DUPLICATES, root_out, &error);
    if (status == MM_ERR_NOMEM) return mm_fail(status, "out of memory");
    if (status == MM_OK) return MM_OK;
    return mm_fail(status, "line %d, column %d: %s", error.line, error.column, show(error.text).text);
}

mm_status nets_net_parse(const char *path, const char *text, size_t n_bytes, nets_net **net_out) {
    json_t *root = NULL;
    parser p = {0};
    mm_status status = parse_json(text, n_bytes, &root);
    if (status == MM_OK) status = read_net(&p, root);
    json_decref(root);
    mm_names_fini(&p.names);
    if (status == MM_OK) {
        *net_out = p.net;
        return MM_OK;
    }
    nets_net_destroy(p.net);
    /* MM_ERR_INVALID, a caller's mistake in C, is the file's fault here. */
    return mm_fail_in(status == MM_ERR_INVALID ? MM_ERR_FORMAT : status, "%s", show_path(path).text);
}
