#include "nets/net_attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net_ops.h"

/* ---------------------------------------------------------------- rules */

/* A window that lies wholly in the padding would have no maximum. */
static bool is_half_kernel(const nets_layer *layer, const int64_t in[3], size_t d) {
    (void)in;
    return 2 * layer->attrs.pad[d] <= layer->attrs.kernel[d];
}

/* The index map names the window's element in one byte. */
static bool is_small_window(const nets_layer *layer, const int64_t in[3], size_t d) {
    (void)in, (void)d;
    return layer->attrs.kernel[0] * layer->attrs.kernel[1] <= UINT8_MAX;
}

/* More would be rows that the convolution whose gradient this is does not look at. */
static bool is_less_than_stride(const nets_layer *layer, const int64_t in[3], size_t d) {
    (void)in;
    return layer->attrs.output_pad[d] < layer->attrs.stride[d];
}

static bool divides_channels(const nets_layer *layer, const int64_t in[3], size_t d) {
    (void)d;
    return in[2] % layer->attrs.groups == 0 && layer->attrs.out_channels % layer->attrs.groups == 0;
}

static bool is_odd(const nets_layer *layer, const int64_t in[3], size_t d) {
    (void)in, (void)d;
    return layer->attrs.size % 2 == 1;
}

static bool is_within(const nets_layer *layer, const int64_t in[3], size_t d) {
    return layer->attrs.out_size[d] <= in[d];
}

static bool ends_within(const nets_layer *layer, const int64_t in[3], size_t d) {
    return layer->attrs.offset[d] + layer->attrs.out_size[d] <= in[d];
}

static const nets_attr_rule HALF_KERNEL = {"at most half the kernel", "kernel", false, is_half_kernel};
static const nets_attr_rule SMALL_WINDOW = {"height times width at most 255", NULL, false, is_small_window};
static const nets_attr_rule LESS_THAN_STRIDE = {"less than the stride", "stride", false, is_less_than_stride};
static const nets_attr_rule DIVISOR = {"dividing input's and output's channels", "out_channels", true,
                                       divides_channels};
static const nets_attr_rule ODD = {"odd", NULL, false, is_odd};
static const nets_attr_rule WITHIN = {"at most the input's", NULL, true, is_within};
static const nets_attr_rule ENDS_WITHIN = {"with out_size at most the input's", "out_size", true, ends_within};

/* ---------------------------------------------------------------- the table */

/* clang-format off */
#define FIELD(field) (((nets_attrs *)0)->field) /* for its type only */
#define TYPE(field) _Generic(FIELD(field), \
    int64_t: NETS_ATTR_WHOLE, int64_t *: NETS_ATTR_WHOLE, bool: NETS_ATTR_FLAG, float: NETS_ATTR_REAL)
#define ATTR(field, ops, what, ...) \
    {#field, TYPE(field), offsetof(nets_attrs, field), sizeof FIELD(field), ops, what, __VA_ARGS__}
#define REQUIRED    NETS_DEFAULT_NONE, 0
#define KERNEL      NETS_DEFAULT_KERNEL, 0
#define VALUE(v)    NETS_DEFAULT_VALUE, v
#define FROM(l, m)  l, m, false, false
#define ABOVE(l, m) l, m, true, false /* the least excluded */
#define FLAG        VALUE(0), FROM(0, 1), NULL
#define EXTENT      FROM(1, NETS_MAX_EXTENT)
#define EXTENT_OR_0 FROM(0, NETS_MAX_EXTENT)
#define OP(kind)    (UINT64_C(1) << NETS_##kind)
#define POOLS       (OP(MAX_POOL) | OP(AVG_POOL))
#define CONVS       (OP(CONV) | OP(CONV_TRANSPOSE))

/* In the order in which they are printed. */
static const nets_attr ATTRS[] = {
    ATTR(out_channels, CONVS | OP(LINEAR), "channels of the output", REQUIRED, EXTENT, NULL),
    ATTR(kernel, CONVS | OP(AVG_POOL), "height and width of the window", REQUIRED, EXTENT, NULL),
    ATTR(kernel, OP(MAX_POOL), "height and width of the window", REQUIRED, FROM(1, UINT8_MAX), &SMALL_WINDOW),
    ATTR(stride, CONVS, "from one window to the next", VALUE(1), EXTENT, NULL),
    ATTR(stride, POOLS, "from one window to the next", KERNEL, EXTENT, NULL),
    ATTR(pad, OP(CONV), "zeros around the input, on both sides", VALUE(0), EXTENT_OR_0, NULL),
    ATTR(pad, OP(CONV_TRANSPOSE), "what is cut off the output, on both sides", VALUE(0), EXTENT_OR_0, NULL),
    ATTR(pad, OP(MAX_POOL), "nothing around the input, on both sides", VALUE(0), EXTENT_OR_0, &HALF_KERNEL),
    ATTR(pad, OP(AVG_POOL), "zeros around the input, on both sides", VALUE(0), EXTENT_OR_0, &HALF_KERNEL),
    ATTR(output_pad, OP(CONV_TRANSPOSE), "rows and columns more, below and on the right", VALUE(0), EXTENT_OR_0,
         &LESS_THAN_STRIDE),
    ATTR(dilation, CONVS, "from one element of the kernel to the next", VALUE(1), EXTENT, NULL),
    ATTR(groups, CONVS, "of channels, each convolved for itself", VALUE(1), EXTENT, &DIVISOR),
    ATTR(bias, CONVS | OP(LINEAR), "a learned number is added to each channel", FLAG),
    ATTR(ceil_mode, POOLS, "a last window may end beyond the padded image, if it begins in it", FLAG),
    ATTR(exclude_pad, OP(AVG_POOL), "divide by the elements inside the image, not by the kernel's", FLAG),
    ATTR(size, OP(LRN), "channels of a window", REQUIRED, EXTENT, &ODD),
    ATTR(alpha, OP(LRN), "factor of the mean square", VALUE(1e-4), ABOVE(0, NETS_MAX_EXTENT), NULL),
    ATTR(beta, OP(LRN), "exponent", VALUE(0.75), ABOVE(0, 16), NULL),
    ATTR(k, OP(LRN), "what the mean square is added to", VALUE(1), ABOVE(0, NETS_MAX_EXTENT), NULL),
    ATTR(scale, OP(UPSAMPLE), "the factor", REQUIRED, EXTENT, NULL),
    ATTR(bilinear, OP(UPSAMPLE), "interpolates (align_corners=False); else nearest", FLAG),
    ATTR(out_size, OP(CROP), "height and width of what is kept", REQUIRED, FROM(1, INT32_MAX), &WITHIN),
    ATTR(offset, OP(CROP), "what is cut off at the top and left", VALUE(0), FROM(0, INT32_MAX), &ENDS_WITHIN),
    ATTR(center, OP(CROP), "the offset is half of what is cut off, rounded down", FLAG),
    ATTR(eps, OP(BATCH_NORM), "added to the variance", VALUE(1e-5), 0, 1, true, true, NULL),
    ATTR(momentum, OP(BATCH_NORM), "running = (1 - momentum) running + momentum new", VALUE(0.1), ABOVE(0, 1), NULL),
    ATTR(p, OP(DROPOUT), "the rate of zeros", VALUE(0), 0, 1, false, true, NULL),
};
/* clang-format on */

_Static_assert(NETS_OP_KINDS <= 64, "an attribute's operations are bits of 64");

const nets_attr *nets_attr_table(size_t i) { return i < sizeof ATTRS / sizeof *ATTRS ? &ATTRS[i] : NULL; }

size_t nets_attr_elem_bytes(const nets_attr *attr) {
    static const size_t bytes[] = {
        [NETS_ATTR_WHOLE] = sizeof(int64_t), [NETS_ATTR_FLAG] = sizeof(bool), [NETS_ATTR_REAL] = sizeof(float)};
    return bytes[attr->type];
}

size_t nets_attr_elems(const nets_attr *attr) { return attr->bytes / nets_attr_elem_bytes(attr); }

bool nets_attr_is_taken(const nets_attr *attr, nets_op_kind op) { return attr->ops >> op & 1; }

const nets_attr *nets_attr_of(nets_op_kind op, size_t i) {
    const nets_attr *attr;
    for (size_t line = 0; (attr = nets_attr_table(line)); line++)
        if (nets_attr_is_taken(attr, op) && i-- == 0) return attr;
    return NULL;
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

static void copy_value(const nets_attr *attr, const nets_attrs *from, nets_attrs *to) {
    memcpy((char *)to + attr->offset, value_of(attr, from), attr->bytes);
}

bool nets_attr_equal(const nets_attr *attr, const nets_attrs *a, const nets_attrs *b) {
    return memcmp(value_of(attr, a), value_of(attr, b), attr->bytes) == 0;
}

bool nets_attr_is_told(const nets_attr *attr, const nets_attrs *told) {
    return !nets_attr_equal(attr, told, &(nets_attrs){0});
}

/* The fewest digits that read back as the same float: 0.1, not 0.100000001. */
static int print_real(float value, char *at, size_t capacity) {
    int digits = 1, n = snprintf(at, capacity, "%.*g", digits, (double)value);
    while (digits < 9 && strtof(at, NULL) != value) n = snprintf(at, capacity, "%.*g", ++digits, (double)value);
    return n;
}

static int print_elem(const nets_attr *attr, const char *value, char *at, size_t capacity) {
    int64_t whole;
    float real;
    bool flag;
    switch (attr->type) {
    case NETS_ATTR_WHOLE:
        memcpy(&whole, value, sizeof whole);
        return snprintf(at, capacity, "%lld", (long long)whole);
    case NETS_ATTR_REAL:
        memcpy(&real, value, sizeof real);
        return print_real(real, at, capacity);
    case NETS_ATTR_FLAG:
        memcpy(&flag, value, sizeof flag);
        return snprintf(at, capacity, "%s", flag ? "true" : "false");
    }
    return 0;
}

/* Room for the widest: an element is at most 20 characters and 2 between. */
_Static_assert(sizeof(int64_t[4]) / sizeof(int64_t) * 22 + 3 <= NETS_ATTR_TEXT_CAPACITY, "texts of up to 4 elements");

const char *nets_attr_text(const nets_attr *attr, const nets_attrs *attrs, char text_out[NETS_ATTR_TEXT_CAPACITY]) {
    const char *value = value_of(attr, attrs);
    size_t n = nets_attr_elems(attr), elem_bytes = nets_attr_elem_bytes(attr), at = 0;
    bool same = true;
    for (size_t i = 1; i < n; i++) same &= memcmp(value, value + i * elem_bytes, elem_bytes) == 0;
    if (same) n = 1;
    for (size_t i = 0; i < n; i++) {
        if (!same) at += (size_t)snprintf(text_out + at, NETS_ATTR_TEXT_CAPACITY - at, "%s", i ? ", " : "[");
        at += (size_t)print_elem(attr, value + i * elem_bytes, text_out + at, NETS_ATTR_TEXT_CAPACITY - at);
    }
    if (!same) snprintf(text_out + at, NETS_ATTR_TEXT_CAPACITY - at, "]");
    return text_out;
}

/* ---------------------------------------------------------------- checking */

static double elem_of(const nets_attr *attr, const nets_attrs *attrs, size_t i) {
    const char *value = value_of(attr, attrs) + i * nets_attr_elem_bytes(attr);
    int64_t whole;
    float real;
    bool flag;
    switch (attr->type) {
    case NETS_ATTR_WHOLE:
        memcpy(&whole, value, sizeof whole);
        return (double)whole;
    case NETS_ATTR_REAL:
        memcpy(&real, value, sizeof real);
        return (double)real;
    case NETS_ATTR_FLAG:
        memcpy(&flag, value, sizeof flag);
        return flag;
    }
    return 0;
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

/* With what the rule depends on. */
static mm_status breaks_rule(const nets_attr *attr, const nets_layer *layer, const int64_t in[3]) {
    char input[96] = "", other[NETS_ATTR_TEXT_CAPACITY + 32] = "", value[NETS_ATTR_TEXT_CAPACITY];
    const nets_attr_rule *rule = attr->rule;
    (void)out_of_range(attr, layer->name, &layer->attrs);
    if (rule->of_input)
        snprintf(input, sizeof input, "; the input is %lldx%lldx%lld", (long long)in[0], (long long)in[1],
                 (long long)in[2]);
    if (rule->other)
        snprintf(other, sizeof other, "; \"%s\" is %s", rule->other,
                 nets_attr_text(nets_attr_find(layer->op, rule->other), &layer->attrs, value));
    return mm_fail(MM_ERR_INVALID, "%s%s%s", mm_last_error(), input, other);
}

static mm_status fill_in(const nets_attr *attr, nets_layer *layer) {
    bool told = nets_attr_is_told(attr, &layer->attrs);
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

mm_status nets_attrs_complete(nets_layer *layer, const int64_t in[3]) {
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_of(layer->op, i)); i++) {
        MM_TRY(fill_in(attr, layer));
        MM_TRY(nets_attr_check(attr, layer->name, &layer->attrs));
        for (size_t d = 0; attr->rule && d < nets_attr_elems(attr); d++)
            if (!attr->rule->holds(layer, in, d)) return breaks_rule(attr, layer, in);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- what was told */

/* Whether a layer told these attributes becomes one with `layer`'s. */
static bool becomes(const nets_net *net, const nets_layer *layer, const nets_attrs *told) {
    int64_t in[NETS_MAX_INPUTS][3];
    for (int i = 0; i < layer->n_inputs; i++) memcpy(in[i], nets_net_layer(net, layer->inputs[i])->shape, sizeof in[i]);
    nets_layer trial = *layer;
    trial.attrs = *told;
    if (nets_op_infer(&trial, (const int64_t(*)[3])in) != MM_OK) return false;
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_table(i)); i++)
        if (!nets_attr_equal(attr, &trial.attrs, &layer->attrs)) return false;
    return memcmp(trial.shape, layer->shape, sizeof trial.shape) == 0;
}

mm_status nets_attrs_told(const nets_net *net, int layer, nets_attrs *told_out) {
    const nets_layer *l = nets_net_layer(net, layer);
    nets_attrs told = {0};
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_of(l->op, i)); i++) copy_value(attr, &l->attrs, &told);
    if (!becomes(net, l, &told))
        return mm_fail(MM_ERR_UNSUPPORTED, "layer %s: has an attribute that %s is not known to take", l->name,
                       nets_op_name(l->op));
    for (size_t i = 0; (attr = nets_attr_of(l->op, i)); i++) {
        nets_attrs less = told;
        copy_value(attr, &(nets_attrs){0}, &less);
        if (becomes(net, l, &less)) told = less;
    }
    *told_out = told;
    return MM_OK;
}
