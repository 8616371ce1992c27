/* SPDX-License-Identifier: MIT */
#include "nets/net_attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/number.h"
#include "nets/net_ops.h"

/* ---------------------------------------------------------------- lists */

size_t nets_attr_elem_bytes(const nets_attr *attr) {
    static const size_t bytes[] = {
        [NETS_ATTR_WHOLE] = sizeof(int64_t), [NETS_ATTR_FLAG] = sizeof(bool), [NETS_ATTR_REAL] = sizeof(float)};
    return bytes[attr->type];
}

size_t nets_attr_elems(const nets_attr *attr) { return attr->bytes / nets_attr_elem_bytes(attr); }

const nets_attr *nets_attr_of(nets_op_kind op, size_t i) {
    const nets_attr *attr = nets_op_info_of(op)->attrs;
    if (!attr) return NULL;
    for (; attr->name && i > 0; attr++) i--;
    return attr->name ? attr : NULL;
}

const nets_attr *nets_attr_find(nets_op_kind op, const char *name) {
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_of(op, i)); i++)
        if (strcmp(attr->name, name) == 0) break;
    return attr;
}

/* ---------------------------------------------------------------- values */

static const char *value_of(const nets_attr *attr, const nets_attrs *attrs) {
    return (const char *)attrs + attr->offset;
}

bool nets_attr_equal(const nets_attr *attr, const nets_attrs *a, const nets_attrs *b) {
    return memcmp(value_of(attr, a), value_of(attr, b), attr->bytes) == 0;
}

bool nets_attrs_equal(const nets_attrs *a, const nets_attrs *b) {
    const nets_attr *attr;
    for (int op = 0; op < NETS_OP_KINDS; op++)
        for (size_t i = 0; (attr = nets_attr_of((nets_op_kind)op, i)); i++)
            if (!nets_attr_equal(attr, a, b)) return false;
    return true;
}

bool nets_attr_is_given(const nets_attr *attr, const nets_attrs *told) {
    return !nets_attr_equal(attr, told, &(nets_attrs){0});
}

/* One element of an attribute, as a whole number (for a flag 0 or 1) or as a real one; the other member is 0. */
typedef struct elem {
    int64_t whole;
    float real;
} elem;

static elem read_elem(const nets_attr *attr, const nets_attrs *attrs, size_t i) {
    const char *value = value_of(attr, attrs) + i * nets_attr_elem_bytes(attr);
    elem e = {0, 0};
    bool flag;
    switch (attr->type) {
    case NETS_ATTR_WHOLE:
        memcpy(&e.whole, value, sizeof e.whole);
        break;
    case NETS_ATTR_REAL:
        memcpy(&e.real, value, sizeof e.real);
        break;
    case NETS_ATTR_FLAG:
        memcpy(&flag, value, sizeof flag);
        e.whole = flag;
        break;
    }
    return e;
}

static int print_elem(const nets_attr *attr, const nets_attrs *attrs, size_t i, char *at, size_t capacity) {
    const elem e = read_elem(attr, attrs, i);
    char real[MM_NUMBER_CAPACITY];
    if (attr->type == NETS_ATTR_REAL)
        return snprintf(at, capacity, "%s", mm_number_format_float(e.real, real)); /* 0.1, not 0.100000001 */
    if (attr->type == NETS_ATTR_FLAG) return snprintf(at, capacity, "%s", e.whole ? "true" : "false");
    return snprintf(at, capacity, "%lld", (long long)e.whole);
}

/* The widest text: 4 elements of at most 20 characters, with 2 characters between them. */
_Static_assert(sizeof(int64_t[4]) / sizeof(int64_t) * 22 + 3 <= NETS_ATTR_TEXT_CAPACITY, "texts of up to 4 elements");

const char *nets_attr_text(const nets_attr *attr, const nets_attrs *attrs, char text_out[NETS_ATTR_TEXT_CAPACITY]) {
    const char *value = value_of(attr, attrs);
    size_t n = nets_attr_elems(attr), elem_bytes = nets_attr_elem_bytes(attr), at = 0;
    bool same = true;
    for (size_t i = 1; i < n; i++) same &= memcmp(value, value + i * elem_bytes, elem_bytes) == 0;
    if (same) n = 1;
    for (size_t i = 0; i < n; i++) {
        if (!same) at += (size_t)snprintf(text_out + at, NETS_ATTR_TEXT_CAPACITY - at, "%s", i ? ", " : "[");
        at += (size_t)print_elem(attr, attrs, i, text_out + at, NETS_ATTR_TEXT_CAPACITY - at);
    }
    if (!same) snprintf(text_out + at, NETS_ATTR_TEXT_CAPACITY - at, "]");
    return text_out;
}

/* ---------------------------------------------------------------- checking */

static double elem_of(const nets_attr *attr, const nets_attrs *attrs, size_t i) {
    const elem e = read_elem(attr, attrs, i);
    return attr->type == NETS_ATTR_REAL ? (double)e.real : (double)e.whole;
}

static void set_elem(const nets_attr *attr, nets_attrs *attrs, size_t i, double number) {
    char *value = (char *)attrs + attr->offset + i * nets_attr_elem_bytes(attr);
    int64_t whole = (int64_t)number;
    float real = (float)number;
    bool flag = number != 0;
    const void *const from[] = {[NETS_ATTR_WHOLE] = &whole, [NETS_ATTR_FLAG] = &flag, [NETS_ATTR_REAL] = &real};
    memcpy(value, from[attr->type], nets_attr_elem_bytes(attr));
}

const char *nets_attr_range_text(const nets_attr *attr, char text_out[NETS_ATTR_TEXT_CAPACITY]) {
    const char *before_most = attr->most_excluded ? ", below" : attr->least_excluded ? ", at most" : " to";
    if (attr->type == NETS_ATTR_FLAG)
        snprintf(text_out, NETS_ATTR_TEXT_CAPACITY, "true or false");
    else
        snprintf(text_out, NETS_ATTR_TEXT_CAPACITY, "%s %.10g%s %.10g%s%s", attr->least_excluded ? "above" : "from",
                 attr->least, before_most, attr->most, attr->rule ? ", " : "", attr->rule ? attr->rule->text : "");
    return text_out;
}

const char *nets_attr_default_text(const nets_attr *attr, char text_out[NETS_ATTR_TEXT_CAPACITY]) {
    static const char *const texts[] = {[NETS_DEFAULT_NONE] = "required", [NETS_DEFAULT_KERNEL] = "the kernel's"};
    nets_attrs attrs = {0};
    if (attr->from != NETS_DEFAULT_VALUE) return strcpy(text_out, texts[attr->from]);
    for (size_t i = 0; i < nets_attr_elems(attr); i++) set_elem(attr, &attrs, i, attr->value);
    return nets_attr_text(attr, &attrs, text_out);
}

static bool is_in_range(const nets_attr *attr, double number) {
    return (attr->least_excluded ? number > attr->least : number >= attr->least) &&
           (attr->most_excluded ? number < attr->most : number <= attr->most);
}

static mm_status out_of_range(const nets_attr *attr, const char *layer, const nets_attrs *attrs) {
    char range[NETS_ATTR_TEXT_CAPACITY], value[NETS_ATTR_TEXT_CAPACITY];
    return mm_fail(MM_ERR_INVALID, "layer %s: \"%s\" must be %s, not %s", layer, attr->name,
                   nets_attr_range_text(attr, range), nets_attr_text(attr, attrs, value));
}

mm_status nets_attr_check(const nets_attr *attr, const char *layer, const nets_attrs *attrs) {
    for (size_t i = 0; i < nets_attr_elems(attr); i++)
        if (!is_in_range(attr, elem_of(attr, attrs, i))) return out_of_range(attr, layer, attrs);
    return MM_OK;
}

/* Fails as out_of_range does, and adds what the rule depends on. */
static mm_status breaks_rule(const nets_attr *attr, const nets_layer *layer, const nets_shape *in) {
    char input[NETS_SHAPE_TEXT_CAPACITY + 32] = "", shape[NETS_SHAPE_TEXT_CAPACITY],
                                          other[NETS_ATTR_TEXT_CAPACITY + 32] = "", value[NETS_ATTR_TEXT_CAPACITY];
    const nets_attr_rule *rule = attr->rule;
    (void)out_of_range(attr, layer->name, &layer->attrs);
    if (rule->of_input) snprintf(input, sizeof input, "; the input is %s", nets_shape_text(in, shape));
    if (rule->other)
        snprintf(other, sizeof other, "; \"%s\" is %s", rule->other,
                 nets_attr_text(nets_attr_find(layer->op, rule->other), &layer->attrs, value));
    return mm_fail(MM_ERR_INVALID, "%s%s%s", mm_last_error(), input, other);
}

static mm_status fill_in(const nets_attr *attr, nets_layer *layer) {
    bool told = nets_attr_is_given(attr, &layer->attrs);
    char range[NETS_ATTR_TEXT_CAPACITY];
    if (attr->from == NETS_DEFAULT_NONE && !told)
        return mm_fail(MM_ERR_INVALID, "layer %s: \"%s\" is missing; it must be %s", layer->name, attr->name,
                       nets_attr_range_text(attr, range));
    for (size_t i = 0; i < nets_attr_elems(attr); i++) {
        if (elem_of(attr, &layer->attrs, i) != 0) continue;
        if (attr->from == NETS_DEFAULT_VALUE) set_elem(attr, &layer->attrs, i, attr->value);
        if (attr->from == NETS_DEFAULT_KERNEL) set_elem(attr, &layer->attrs, i, (double)layer->attrs.kernel[i]);
    }
    return MM_OK;
}

/* Fills in the defaults of a layer's attributes that are zero, and checks all ranges and rules. `in`: the first input's
 * shape. */
static mm_status complete(nets_layer *layer, const nets_shape *in) {
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_of(layer->op, i)); i++) {
        MM_TRY(fill_in(attr, layer));
        MM_TRY(nets_attr_check(attr, layer->name, &layer->attrs));
        for (size_t d = 0; attr->rule && d < nets_attr_elems(attr); d++)
            if (!attr->rule->holds(layer, in, d)) return breaks_rule(attr, layer, in);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- inference */

static mm_status check_ranks(const nets_layer *layer, const nets_op_info *info, const nets_shape *in) {
    char text[NETS_SHAPE_TEXT_CAPACITY];
    for (int i = 0; info->input_rank && i < layer->n_inputs; i++)
        if (in[i].rank != info->input_rank)
            return mm_fail(MM_ERR_INVALID, "layer %s: %s takes inputs of %d dimensions, not %s", layer->name,
                           info->name, info->input_rank, nets_shape_text(&in[i], text));
    return MM_OK;
}

mm_status nets_op_infer(nets_layer *layer, const nets_shape *in) {
    const nets_op_info *info = nets_op_info_of(layer->op);
    if (!info->infer) return MM_OK;
    MM_TRY(check_ranks(layer, info, in));
    MM_TRY(complete(layer, in));
    return info->infer(layer, in);
}

bool nets_param_is_had(const nets_param_spec *param, const nets_layer *layer) {
    if (param->without) return !nets_attr_is_given(nets_attr_find(layer->op, param->without), &layer->attrs);
    return !param->with || nets_attr_is_given(nets_attr_find(layer->op, param->with), &layer->attrs);
}
