/* SPDX-License-Identifier: MIT */
#include "nets/net_ops.h"

#include <stdio.h>
#include <string.h>

static const nets_op_info *const OPS[NETS_OP_KINDS] = {
#define NETS_OP_INFO(NAME, name) [NETS_##NAME] = &nets_info_##name,
    NETS_OP_INFO(DATA, data) NETS_OPS(NETS_OP_INFO)
#undef NETS_OP_INFO
};

static const int64_t MAX_ELEMS = INT64_C(1) << 60;

int64_t nets_mul(int64_t a, int64_t b) {
    int64_t product;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > MAX_ELEMS) return -1;
    return product;
}

/* ---------------------------------------------------------------- parameters */

const nets_param_spec *nets_param_spec_of(nets_op_kind op, int i) {
    return i < NETS_MAX_PARAMS && OPS[op]->params[i].name ? &OPS[op]->params[i] : NULL;
}

int nets_factor_of(const nets_layer *layer) {
    const nets_param_spec *weight = nets_param_spec_of(layer->op, 0);
    if (!weight || !weight->factor) return -1;
    return layer->tied_param >= 0 ? layer->tied_param : layer->first_param;
}

const char *nets_init_text(const nets_init *init, char text_out[NETS_INIT_TEXT_CAPACITY]) {
    static const char *const formats[] = {[NETS_INIT_CONSTANT] = "%g",
                                          [NETS_INIT_NORMAL_FAN_OUT] = "normal, variance %g / fan out",
                                          [NETS_INIT_UNIFORM_FAN_IN] = "uniform in +-%g / sqrt(fan in)",
                                          [NETS_INIT_NORMAL] = "normal, standard deviation 'deviation'"};
    snprintf(text_out, NETS_INIT_TEXT_CAPACITY, formats[init->kind], init->value);
    return text_out;
}

const char *nets_params_text(nets_op_kind op, char text_out[NETS_PARAMS_TEXT_CAPACITY]) {
    const nets_param_spec *param;
    size_t at = 0;
    text_out[0] = '\0';
    for (int i = 0; (param = nets_param_spec_of(op, i)) && at < NETS_PARAMS_TEXT_CAPACITY; i++) {
        const char *condition = param->with ? param->with : param->without;
        at += (size_t)snprintf(text_out + at, NETS_PARAMS_TEXT_CAPACITY - at, "%s%s%s%s%s [%s]%s", i ? ", " : "",
                               condition ? (param->with ? "with " : "without ") : "", condition ? condition : "",
                               condition ? ": " : "", param->name, param->dims, param->learned ? "" : " (not learned)");
    }
    return text_out;
}

/* ---------------------------------------------------------------- by number and by name */

const nets_op_info *nets_op_info_of(nets_op_kind op) { return (unsigned)op < NETS_OP_KINDS ? OPS[op] : NULL; }

nets_op_kind nets_op_find(const char *name) {
    for (int op = 0; op < NETS_OP_KINDS; op++)
        if (OPS[op]->example && strcmp(OPS[op]->name, name) == 0) return (nets_op_kind)op;
    return NETS_OP_KINDS;
}

const char *nets_op_names(char text_out[NETS_OP_NAMES_CAPACITY]) {
    size_t at = 0;
    for (int op = 0; op < NETS_OP_KINDS; op++)
        if (OPS[op]->example && at < NETS_OP_NAMES_CAPACITY)
            at += (size_t)snprintf(text_out + at, NETS_OP_NAMES_CAPACITY - at, "%s%s", at ? ", " : "", OPS[op]->name);
    return text_out;
}

const char *nets_op_like(const char *name, char text_out[MM_NEAREST_CAPACITY]) {
    mm_nearest near = {.text = name, .length = strlen(name)};
    for (int op = 0; op < NETS_OP_KINDS; op++)
        if (OPS[op]->example) mm_nearest_try(&near, OPS[op]->name);
    return mm_nearest_text(&near, text_out);
}

const char *nets_op_name(nets_op_kind op) {
    const nets_op_info *info = nets_op_info_of(op);
    return info ? info->name : "?";
}

const nets_op_lowering *nets_op_lowering_of(nets_op_kind op, bool relu) {
    return relu ? OPS[op]->with_relu : &OPS[op]->steps;
}
