/* SPDX-License-Identifier: MIT */
#include "nets/io/op_list.h"

#include <jansson.h>
#include <string.h>

#include "mm/core/json_text.h"
#include "nets/net_ops.h"

/* ---------------------------------------------------------------- for people */

static const char *type_text(const nets_attr *attr) {
    static const char *const texts[] = {
        [NETS_ATTR_WHOLE] = "whole", [NETS_ATTR_FLAG] = "flag", [NETS_ATTR_REAL] = "number"};
    return nets_attr_elems(attr) > 1 ? "pair" : texts[attr->type];
}

static void print_attr(FILE *stream, const nets_attr *attr, bool in_depth) {
    char value[NETS_ATTR_TEXT_CAPACITY], range[NETS_ATTR_TEXT_CAPACITY];
    fprintf(stream, "  %-13s %-7s %-13s %s\n", attr->name, type_text(attr), nets_attr_default_text(attr, value),
            nets_attr_range_text(attr, range));
    if (in_depth) fprintf(stream, "  %-13s %s\n", "", attr->what);
}

static const char *training_text(const nets_param_spec *param) {
    if (!param->learned) return "statistics, not learned";
    return param->decayed ? "learned, decayed" : "learned, not decayed";
}

static void print_params(FILE *stream, nets_op_kind op) {
    const nets_param_spec *param;
    char init[NETS_INIT_TEXT_CAPACITY];
    if (nets_param_spec_of(op, 0)) fprintf(stream, "\n  %-13s shape, initial value\n", "parameter");
    for (int i = 0; (param = nets_param_spec_of(op, i)); i++) {
        fprintf(stream, "  %-13s [%s]%s%s\n", param->name, param->dims, param->with ? ", with " : "",
                param->with ? param->with : "");
        fprintf(stream, "  %-13s %s; %s\n", "", nets_init_text(&param->init, init), training_text(param));
    }
}

static void print_op(FILE *stream, nets_op_kind op, bool in_depth) {
    const nets_op_info *info = nets_op_info_of(op);
    fprintf(stream, "%s: %s\n", info->name, info->what);
    if (info->min_inputs < info->max_inputs)
        fprintf(stream, "  inputs: %d to %d\n", info->min_inputs, info->max_inputs);
    else if (info->max_inputs > 1 || in_depth)
        fprintf(stream, "  inputs: %d\n", info->max_inputs);
    fprintf(stream, "  output: %s\n", info->output);
    if (in_depth) print_params(stream, op);
    const nets_attr *attr = nets_attr_of(op, 0);
    if (in_depth && attr) fprintf(stream, "\n  %-13s %-7s %-13s %s\n", "attribute", "type", "default", "allowed");
    for (size_t i = 0; (attr = nets_attr_of(op, i)); i++) print_attr(stream, attr, in_depth);
    if (in_depth) fprintf(stream, "\nin a network file:\n  %s\n", info->example);
}

static const char INTRODUCTION[] =
    "Operations of network files, each with its attributes: type, default, what is allowed. A pair is\n"
    "[height, width], or one number for both. An output is given as height (width is computed alike) and\n"
    "channels, of one image. 'mm nets --ops NAME' says more of one.\n";

/* ---------------------------------------------------------------- for machines */

/* Appends to an array, and returns it; NULL: out of memory, and the array is released. */
static json_t *append(json_t *array, json_t *value) {
    if (json_array_append_new(array, value) == 0) return array;
    json_decref(array);
    return NULL;
}

static json_t *default_json(const nets_attr *attr) {
    if (attr->from != NETS_DEFAULT_VALUE) return json_null();
    if (attr->type == NETS_ATTR_FLAG) return json_boolean(attr->value != 0);
    return attr->type == NETS_ATTR_WHOLE ? json_integer((json_int_t)attr->value) : json_real(attr->value);
}

static json_t *bound_json(const nets_attr *attr, double bound) {
    if (attr->type == NETS_ATTR_FLAG) return json_null();
    return attr->type == NETS_ATTR_WHOLE ? json_integer((json_int_t)bound) : json_real(bound);
}

static json_t *attr_json(const nets_attr *attr) {
    char value[NETS_ATTR_TEXT_CAPACITY], range[NETS_ATTR_TEXT_CAPACITY];
    static const char *const types[] = {
        [NETS_ATTR_WHOLE] = "whole", [NETS_ATTR_FLAG] = "flag", [NETS_ATTR_REAL] = "number"};
    return json_pack("{s:s, s:s, s:i, s:s, s:b, s:o, s:s, s:o, s:b, s:o, s:b, s:s?, s:s}", "name", attr->name, "type",
                     types[attr->type], "elements", (int)nets_attr_elems(attr), "what", attr->what, "required",
                     attr->from == NETS_DEFAULT_NONE, "default", default_json(attr), "default_text",
                     nets_attr_default_text(attr, value), "least", bound_json(attr, attr->least), "least_excluded",
                     attr->least_excluded, "most", bound_json(attr, attr->most), "most_excluded", attr->most_excluded,
                     "rule", attr->rule ? attr->rule->text : NULL, "allowed", nets_attr_range_text(attr, range));
}

static json_t *params_json(nets_op_kind op) {
    const nets_param_spec *param;
    char init[NETS_INIT_TEXT_CAPACITY];
    json_t *all = json_array();
    for (int i = 0; (param = nets_param_spec_of(op, i)); i++)
        all = append(all, json_pack("{s:s, s:s, s:s?, s:s, s:b, s:b}", "name", param->name, "shape", param->dims,
                                    "with", param->with, "initial", nets_init_text(&param->init, init), "learned",
                                    param->learned, "decayed", param->decayed));
    return all;
}

static json_t *op_json(nets_op_kind op) {
    const nets_op_info *info = nets_op_info_of(op);
    const nets_attr *attr;
    json_error_t error;
    json_t *example;
    if (mm_json_parse(info->example, strlen(info->example), 0, &example, &error) != MM_OK) return NULL;
    char params[NETS_PARAMS_TEXT_CAPACITY];
    json_t *attrs = json_array();
    for (size_t i = 0; (attr = nets_attr_of(op, i)); i++) attrs = append(attrs, attr_json(attr));
    return json_pack("{s:s, s:s, s:i, s:i, s:s, s:s?, s:o, s:o, s:o}", "op", info->name, "what", info->what,
                     "inputs_least", info->min_inputs, "inputs_most", info->max_inputs, "output", info->output,
                     "parameters", *nets_params_text(op, params) ? params : NULL, "parameter_list", params_json(op),
                     "attributes", attrs, "example", example);
}

static mm_status print_json(FILE *stream, nets_op_kind first, nets_op_kind end) {
    json_t *ops = json_array();
    for (nets_op_kind op = first; op < end; op++)
        if (nets_op_info_of(op)->example) ops = append(ops, op_json(op));
    const bool good =
        ops &&
        (json_dumpf(ops, stream, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9)) == 0 || ferror(stream));
    json_decref(ops);
    fputc('\n', stream);
    return good ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the list of operations");
}

/* ---------------------------------------------------------------- text or JSON */

mm_status nets_op_list_print(FILE *stream, const char *name, bool json) {
    char known[NETS_OP_NAMES_CAPACITY], like[MM_NEAREST_CAPACITY];
    nets_op_kind first = 0, end = NETS_OP_KINDS;
    if (name) {
        first = nets_op_find(name);
        if (first == NETS_OP_KINDS)
            return mm_fail(MM_ERR_NOT_FOUND, "no operation '%s'%s; there are %s", name, nets_op_like(name, like),
                           nets_op_names(known));
        end = first + 1;
    }
    if (json) return print_json(stream, first, end);
    if (!name) fputs(INTRODUCTION, stream);
    for (nets_op_kind op = first; op < end; op++) {
        if (!nets_op_info_of(op)->example) continue;
        if (!name) fputc('\n', stream);
        print_op(stream, op, name != NULL);
    }
    return MM_OK;
}
