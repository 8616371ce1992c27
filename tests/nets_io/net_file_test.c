/* SPDX-License-Identifier: MIT */
/* Network files: every network survives printing and reading; bad files are refused in one line that names the file and
 * the layer. */
#include "nets/io/net_file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "nets/io/op_list.h"
#include "nets/net_ops.h"
#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"
#include "tests/nets_io/scratch.h"

/* ---------------------------------------------------------------- helpers */

/* Returns the net's text, which the caller frees. */
static char *print(const nets_net *net) {
    char *text;
    size_t n_bytes;
    FILE *stream = open_memstream(&text, &n_bytes);
    assert_non_null(stream);
    assert_int_equal(nets_net_print(net, stream), MM_OK);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void assert_layers_equal(const nets_layer *a, const nets_layer *b) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->n_inputs, b->n_inputs);
    assert_memory_equal(a->inputs, b->inputs, (size_t)a->n_inputs * sizeof *a->inputs);
    assert_true(nets_shape_equal(&a->shape, &b->shape));
    assert_int_equal(a->first_param, b->first_param);
    assert_int_equal(a->n_params, b->n_params);
    assert_true(nets_attrs_equal(&a->attrs, &b->attrs));
}

static void assert_nets_equal(const nets_net *a, const nets_net *b) {
    assert_string_equal(nets_net_name(a), nets_net_name(b));
    assert_int_equal(nets_net_classes(a), nets_net_classes(b));
    assert_int_equal(nets_net_layers(a), nets_net_layers(b));
    for (int i = 0; i < nets_net_layers(a); i++) assert_layers_equal(nets_net_layer(a, i), nets_net_layer(b, i));
    assert_int_equal(nets_net_params(a), nets_net_params(b));
    for (int i = 0; i < nets_net_params(a); i++) {
        const nets_param *p = nets_net_param(a, i), *q = nets_net_param(b, i);
        assert_string_equal(p->name, q->name);
        assert_int_equal(p->place, q->place);
        assert_int_equal(p->learned, q->learned);
        assert_int_equal(p->layer, q->layer);
        assert_int_equal(p->rank, q->rank);
        assert_memory_equal(p->dims, q->dims, sizeof p->dims);
    }
}

/* Prints, reads and prints again; returns the text, which the caller frees. */
static char *expect_round_trip(const nets_net *net) {
    nets_net *reread;
    char *text = print(net);
    assert_int_equal(nets_net_parse("printed", text, strlen(text), &reread), MM_OK);
    assert_nets_equal(net, reread);
    char *again = print(reread);
    assert_string_equal(text, again);
    free(again);
    nets_net_destroy(reread);
    return text;
}

/* A network with most features; the bad files are edits of this text. */
static const char good[] = "{\n"
                           "  \"format\": \"mm net\",\n"
                           "  \"version\": 1,\n"
                           "  \"name\": \"good\",\n"
                           "  \"input\": {\"height\": 8, \"width\": 6, \"channels\": 3, \"classes\": 10},\n"
                           "  \"layers\": [\n"
                           "    {\"name\": \"conv\", \"op\": \"conv\", \"inputs\": [\"data\"], \"out_channels\": 4, "
                           "\"kernel\": [3, 1], \"pad\": [1, 0]},\n"
                           "    {\"name\": \"bn\", \"op\": \"batch_norm\", \"inputs\": [\"conv\"]},\n"
                           "    {\"name\": \"sum\", \"op\": \"add\", \"inputs\": [\"bn\", \"conv\"]},\n"
                           "    {\"name\": \"pool\", \"op\": \"avg_pool\", \"inputs\": [\"sum\"], \"kernel\": 2, "
                           "\"exclude_pad\": true},\n"
                           "    {\"name\": \"drop\", \"op\": \"dropout\", \"inputs\": [\"pool\"], \"p\": 0.3},\n"
                           "    {\"name\": \"fc\", \"op\": \"linear\", \"inputs\": [\"drop\"], \"out_channels\": 10, "
                           "\"bias\": true},\n"
                           "    {\"name\": \"loss\", \"op\": \"loss\", \"inputs\": [\"fc\"]}\n"
                           "  ]\n"
                           "}\n";

/* `good` with its only `from` replaced. The caller frees it. */
static char *edited(const char *from, const char *to) {
    const char *at = strstr(good, from);
    assert_non_null(at);
    assert_null(strstr(at + 1, from));
    char *text = malloc(sizeof good + strlen(to));
    assert_non_null(text);
    memcpy(text, good, (size_t)(at - good));
    strcpy(text + (at - good), to);
    strcat(text, at + strlen(from));
    return text;
}

static void expect_refused(const char *text, const char *message) {
    nets_net *net = NULL;
    assert_int_equal(nets_net_parse("bad.json", text, strlen(text), &net), MM_ERR_FORMAT);
    assert_null(net);
    const char prefix[] = "bad.json: ";
    assert_int_equal(strncmp(mm_last_error(), prefix, sizeof prefix - 1), 0);
    assert_null(strchr(mm_last_error(), '\n'));
    if (strncmp(mm_last_error() + sizeof prefix - 1, message, strlen(message)) != 0)
        fail_msg("it says '%s', expected '%s'", mm_last_error(), message);
}

typedef struct bad_edit {
    const char *from, *to;
    const char *message; /* its beginning, after the path */
} bad_edit;

static void expect_all_refused(const bad_edit *edits, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char *text = edited(edits[i].from, edits[i].to);
        expect_refused(text, edits[i].message);
        free(text);
    }
}

#define EXPECT_ALL_REFUSED(edits) expect_all_refused(edits, sizeof(edits) / sizeof *(edits))

/* ---------------------------------------------------------------- good files */

static void expect_built_in_round_trip(const char *name) {
    nets_net *net;
    assert_int_equal(nets_open(name, &net), MM_OK);
    free(expect_round_trip(net));
    nets_net_destroy(net);
}

TEST_CASE(a_file_names_parameters_as_others_do) {
    nets_net *net;
    char *text = edited("\"bias\": true", "\"bias\": true, \"parameters\": [\"head_weight\", \"fc.bias\"]");
    assert_int_equal(nets_net_parse("named", text, strlen(text), &net), MM_OK);
    assert_true(nets_net_find_param(net, "head_weight") >= 0);
    assert_true(nets_net_find_param(net, "fc.bias") >= 0);
    assert_true(nets_net_find_param(net, "fc.weight") < 0);
    free(expect_round_trip(net));
    nets_net_destroy(net);
    free(text);
}

TEST_CASE(bad_names_of_parameters_are_refused) {
    static const char *const bad[][2] = {
        {"[\"w\"]", "layer fc: 1 names for 2 parameters"},
        {"\"w\"", "layer fc: \"parameters\" must be an array of names, not text"},
        {"[\"w\", 1]", "layer fc: \"parameters\" must be an array of names, not of a whole number"},
        {"[\"w\", \"\"]", "layer fc: a parameter needs a name of 1 to 127 bytes"},
        {"[\"w\", \"\\u0007\"]", "layer fc: a parameter's name is too long, or has a control character: '?'"},
        {"[\"w\", \"w\"]", "net good: two parameters are called w"},
        {"[\"bn.weight\", \"b\"]", "net good: two parameters are called bn.weight"},
        {"[\"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\"]", "layer fc: 7 names of parameters, at most 6"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char to[128];
        snprintf(to, sizeof to, "\"bias\": true, \"parameters\": %s", bad[i][0]);
        char *text = edited("\"bias\": true", to);
        expect_refused(text, bad[i][1]);
        free(text);
    }
}

TEST_CASE(every_net_of_the_zoo_comes_back_equal) {
    const char *name;
    for (size_t i = 0; (name = nets_zoo_list(i, NULL)); i++)
        if (!strchr(name, '<')) expect_built_in_round_trip(name);
    expect_built_in_round_trip("resnet8");
    expect_built_in_round_trip("cifar-resnet50");
}

TEST_CASE(a_printed_file_read_and_printed_has_the_same_bytes) {
    nets_net *net;
    assert_int_equal(nets_net_parse("good", good, strlen(good), &net), MM_OK);
    char *text = expect_round_trip(net);
    assert_string_equal(text, good);
    free(text);
    nets_net_destroy(net);
}

TEST_CASE(attributes_keep_every_bit) {
    static const float rates[] = {0.1f, 1 / 3.0f, 0x1.fffffep-1f, 0x1p-149f, 0x1.234568p-20f, 0.5f};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        nets_net *net;
        assert_int_equal(nets_net_create("bits", &net), MM_OK);
        int x = nets_add_data(net, 4, 4, 3, 10);
        x = nets_add1(net, "bn", NETS_BATCH_NORM, &(nets_attrs){.eps = rates[i], .momentum = rates[i]}, x);
        x = nets_add1(net, "dropout", NETS_DROPOUT, &(nets_attrs){.p = rates[i]}, x);
        x = nets_add1(net, "conv", NETS_CONV,
                      &(nets_attrs){.out_channels = 2, .kernel = {3, 2}, .stride = {1, 2}, .pad = {0, 1}}, x);
        x = nets_add1(net, "pool", NETS_MAX_POOL, &(nets_attrs){.kernel = {2, 2}, .stride = {1, 2}}, x);
        x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 10}, x);
        nets_add1(net, "loss", NETS_LOSS, NULL, x);
        assert_int_equal(nets_net_finish(net), MM_OK);
        free(expect_round_trip(net));
        nets_net_destroy(net);
    }
}

TEST_CASE(values_may_be_written_in_several_ways) {
    static const bad_edit same[] = {
        {"\"kernel\": 2", "\"stride\": [2, 2], \"kernel\": [2, 2]", ""}, /* both are the defaults */
        {"\"op\": \"batch_norm\"", "\"eps\": 1e-5, \"momentum\": 1e-1, \"op\": \"batch_norm\"", ""},
        {"\"p\": 0.3", "\"p\": 3.0e-1, \"comment\": \"a \\u00fc\\n\"", ""},
        {"\"pad\": [1, 0]", "\"stride\": 1, \"bias\": false, \"pad\": [1, 0]", ""},
        {"\"classes\": 10", "\"comment\": \"\", \"classes\": 10", ""},
        {"\"name\": \"good\"", "\"comment\": \"layers\", \"name\": \"good\"", ""},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        nets_net *net;
        char *text = edited(same[i].from, same[i].to);
        assert_int_equal(nets_net_parse("other", text, strlen(text), &net), MM_OK);
        free(text);
        text = print(net);
        assert_string_equal(text, good);
        free(text);
        nets_net_destroy(net);
    }
}

TEST_CASE(names_with_quotes_and_other_alphabets_come_back) {
    nets_net *net;
    assert_int_equal(nets_net_create("q\"\\/ \xC3\xBC", &net), MM_OK);
    int x = nets_add_data(net, 2, 2, 3, 10);
    x = nets_add1(net, "\"},{\"", NETS_LINEAR, &(nets_attrs){.out_channels = 10}, x);
    nets_add1(net, "\xE2\x82\xAC", NETS_LOSS, NULL, x);
    assert_int_equal(nets_net_finish(net), MM_OK);
    free(expect_round_trip(net));
    nets_net_destroy(net);
}

TEST_CASE(a_name_that_json_cannot_hold_is_not_printed) {
    nets_net *net;
    char text[4096];
    assert_int_equal(nets_net_create("\xFF", &net), MM_OK);
    int x = nets_add_data(net, 1, 1, 10, 10);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    assert_int_equal(nets_net_finish(net), MM_OK);
    FILE *stream = fmemopen(text, sizeof text, "w");
    assert_non_null(stream);
    assert_int_equal(nets_net_print(net, stream), MM_ERR_UNSUPPORTED);
    fclose(stream);
    nets_net_destroy(net);
}

TEST_CASE(printing_to_a_full_device_is_seen_in_the_stream) {
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    FILE *stream = fopen("/dev/full", "w");
    assert_non_null(stream);
    setvbuf(stream, NULL, _IONBF, 0);
    assert_int_equal(nets_net_print(net, stream), MM_OK); /* the caller checks the stream */
    assert_true(ferror(stream));
    assert_int_equal(mm_stream_errno(stream), ENOSPC);
    fclose(stream);
    nets_net_destroy(net);
}

/* A field of nets_attrs that no operation takes would be lost in a file: between the fields that are taken there is
 * only padding. No operation takes a field twice. */
TEST_CASE(every_attribute_is_taken_by_an_operation) {
    bool taken[sizeof(nets_attrs)] = {false};
    const nets_attr *attr;
    for (nets_op_kind op = 0; op < NETS_OP_KINDS; op++)
        for (size_t i = 0; (attr = nets_attr_of(op, i)); i++) {
            assert_true(nets_attr_elems(attr) >= 1);
            assert_int_equal(nets_attr_elems(attr) * nets_attr_elem_bytes(attr), attr->bytes);
            assert_ptr_equal(nets_attr_find(op, attr->name), attr);
            memset(&taken[attr->offset], true, attr->bytes);
        }
    for (size_t b = 0; b < sizeof(nets_attrs); b++) {
        size_t begin = b;
        while (b < sizeof(nets_attrs) && !taken[b]) b++;
        size_t next_boundary = (begin + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
        assert_true(b <= next_boundary);
    }
}

/* ---------------------------------------------------------------- what mm nets --ops prints */

static json_t *printed_ops(void) {
    char *text;
    size_t n_bytes;
    FILE *stream = open_memstream(&text, &n_bytes);
    assert_non_null(stream);
    assert_int_equal(nets_op_list_print(stream, NULL, true), MM_OK);
    assert_int_equal(fclose(stream), 0);
    json_t *ops = json_loadb(text, n_bytes, 0, NULL);
    assert_non_null(ops);
    free(text);
    return ops;
}

/* Parses a network whose first layer is `layer`, which reads the data. The caller keeps `layer`. */
static mm_status parse_around(const json_t *layer, nets_net **net_out) {
    json_t *first = json_deep_copy(layer), *inputs = json_object_get(first, "inputs");
    for (size_t i = 0; i < json_array_size(inputs); i++) json_array_set_new(inputs, i, json_string("data"));
    const char *op = json_string_value(json_object_get(first, "op"));
    const bool is_loss = strcmp(op, "loss") == 0, is_of_tokens = strcmp(op, "token_loss") == 0;
    const bool has_heads = strcmp(op, "attention") == 0 || strcmp(op, "rotary") == 0;
    const int channels = strcmp(op, "embedding") == 0 ? 1 : has_heads ? 48 : 4;
    if (is_of_tokens) json_object_del(first, "tied"); /* the net has no embedding to tie to */
    const json_int_t told = is_of_tokens ? json_integer_value(json_object_get(first, "out_channels")) : 0;
    const int classes = told > 0 && told <= NETS_MAX_EXTENT ? (int)told : 4;
    const char *name = json_string_value(json_object_get(first, "name"));
    json_t *net = json_pack("{s:s, s:i, s:s, s:{s:i, s:i, s:i, s:i}, s:[O]}", "format", NETS_NET_FILE_FORMAT, "version",
                            NETS_NET_FILE_VERSION, "name", "around", "input", "height", 8, "width", 8, "channels",
                            channels, "classes", classes, "layers", first);
    if (!is_loss && !is_of_tokens) {
        json_t *layers = json_object_get(net, "layers");
        json_array_append_new(layers, json_pack("{s:s, s:s, s:[s], s:i}", "name", "scores", "op", "linear", "inputs",
                                                name, "out_channels", 4));
        json_array_append_new(layers, json_pack("{s:s, s:s, s:[s]}", "name", "end", "op", "loss", "inputs", "scores"));
    }
    char *text = json_dumps(net, 0);
    mm_status status = nets_net_parse("around", text, strlen(text), net_out);
    free(text);
    json_decref(net);
    json_decref(first);
    return status;
}

static void expect_layer_refused(const json_t *layer, const char *key, json_t *value, const char *allowed) {
    json_t *bad = json_deep_copy(layer);
    nets_net *net;
    char expected[256];
    assert_int_equal(value ? json_object_set_new(bad, key, value) : json_object_del(bad, key), 0);
    assert_int_equal(parse_around(bad, &net), MM_ERR_FORMAT);
    snprintf(expected, sizeof expected, "\"%s\" %s %s", key, value ? "must be" : "is missing; it must be", allowed);
    if (!strstr(mm_last_error(), expected)) fail_msg("it says '%s', expected '%s'", mm_last_error(), expected);
    snprintf(expected, sizeof expected, "; see 'mm nets --ops %s'", json_string_value(json_object_get(layer, "op")));
    if (!strstr(mm_last_error(), expected)) fail_msg("it says '%s', expected '%s'", mm_last_error(), expected);
    json_decref(bad);
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* The first number outside a bound; the bound itself if it is excluded. */
static json_t *beyond(const json_t *attr, const char *bound_key, bool excluded, int direction) {
    const json_t *bound = json_object_get(attr, bound_key);
    if (strcmp(text_of(attr, "type"), "whole") == 0) return json_integer(json_integer_value(bound) + direction);
    float real = (float)json_real_value(bound);
    return json_real(excluded ? (double)real : (double)nextafterf(real, direction * INFINITY));
}

/* Values just beyond the printed least and greatest are refused. */
static void expect_range_enforced(const json_t *layer, const json_t *attr) {
    const char *key = text_of(attr, "name"), *allowed = text_of(attr, "allowed");
    if (strcmp(text_of(attr, "type"), "flag") == 0) return;
    bool above = json_is_true(json_object_get(attr, "least_excluded"));
    bool below = json_is_true(json_object_get(attr, "most_excluded"));
    expect_layer_refused(layer, key, beyond(attr, "least", above, -1), allowed);
    expect_layer_refused(layer, key, beyond(attr, "most", below, 1), allowed);
}

static void expect_taken(const json_t *layer, const char *key, json_t *value) {
    json_t *taken = json_deep_copy(layer);
    nets_net *net;
    assert_int_equal(json_object_set_new(taken, key, value), 0);
    if (parse_around(taken, &net) != MM_OK) fail_msg("%s: %s", key, mm_last_error());
    nets_net_destroy(net);
    json_decref(taken);
}

/* The printed bounds, or the numbers next to excluded ones, are accepted. Of whole numbers only the least is tried,
 * since no memory holds the greatest. Attributes that depend on others are left out. */
static void expect_bounds_taken(const json_t *layer, const json_t *attr) {
    const char *key = text_of(attr, "name"), *type = text_of(attr, "type");
    const json_t *least = json_object_get(attr, "least"), *most = json_object_get(attr, "most");
    if (!json_is_null(json_object_get(attr, "rule")) || strcmp(type, "flag") == 0) return;
    if (strcmp(type, "whole") == 0) {
        expect_taken(layer, key, json_integer(json_integer_value(least)));
        return;
    }
    float low = (float)json_real_value(least), high = (float)json_real_value(most);
    if (json_is_true(json_object_get(attr, "least_excluded"))) low = nextafterf(low, INFINITY);
    if (json_is_true(json_object_get(attr, "most_excluded"))) high = nextafterf(high, -INFINITY);
    expect_taken(layer, key, json_real((double)low));
    expect_taken(layer, key, json_real((double)high));
}

/* An absent attribute gets the printed default, and giving the default makes no difference. */
static void expect_default_given(const json_t *layer, const json_t *attr) {
    const char *key = text_of(attr, "name");
    json_t *absent = json_deep_copy(layer), *value = json_object_get(attr, "default");
    char text[NETS_ATTR_TEXT_CAPACITY], kernel[NETS_ATTR_TEXT_CAPACITY];
    nets_net *net;
    json_object_del(absent, key);
    json_object_del(absent, "center"); /* it would set the offset */
    for (int told = 0; told < 2; told++) {
        if (told && json_is_null(value)) break;
        if (told) json_object_set(absent, key, value);
        if (parse_around(absent, &net) != MM_OK)
            fail_msg("%s without %s: %s", text_of(layer, "op"), key, mm_last_error());
        const nets_layer *l = nets_net_layer(net, 1);
        nets_attr_text(nets_attr_find(l->op, key), &l->attrs, text);
        if (strcmp(text_of(attr, "default_text"), "the kernel's") == 0)
            assert_string_equal(text, nets_attr_text(nets_attr_find(l->op, "kernel"), &l->attrs, kernel));
        else
            assert_string_equal(text, text_of(attr, "default_text"));
        nets_net_destroy(net);
    }
    json_decref(absent);
}

/* Every operation is printed. Its example is a layer that the parser accepts. Every attribute is printed, with the
 * range and default that the parser enforces. */
TEST_CASE(what_is_printed_of_operations_is_what_the_parser_enforces) {
    json_t *ops = printed_ops(), *op, *attr;
    size_t o, a, n_attrs = 0;
    assert_int_equal(json_array_size(ops), NETS_OP_KINDS - 1); /* all but data */
    json_array_foreach(ops, o, op) {
        const json_t *layer = json_object_get(op, "example"), *attrs = json_object_get(op, "attributes");
        nets_op_kind kind = nets_op_find(text_of(op, "op"));
        nets_net *net;
        assert_int_equal(kind, o + 1);
        if (parse_around(layer, &net) != MM_OK) fail_msg("%s's example: %s", text_of(op, "op"), mm_last_error());
        assert_int_equal(nets_net_layer(net, 1)->op, kind);
        const nets_layer *made = nets_net_layer(net, 1);
        const json_t *params = json_object_get(op, "parameter_list");
        assert_int_equal(made->n_params > 0, json_is_string(json_object_get(op, "parameters")));
        for (int p = made->first_param; p < made->first_param + made->n_params; p++) {
            const nets_param *param = nets_net_param(net, p);
            const json_t *told = json_array_get(params, (size_t)param->place);
            assert_string_equal(strrchr(param->name, '.') + 1, text_of(told, "name"));
            assert_int_equal(param->learned, json_is_true(json_object_get(told, "learned")));
            assert_int_equal(param->decayed, json_is_true(json_object_get(told, "decayed")));
        }
        nets_net_destroy(net);
        json_array_foreach(attrs, a, attr) {
            assert_ptr_equal(nets_attr_find(kind, text_of(attr, "name")), nets_attr_of(kind, a));
            expect_range_enforced(layer, attr);
            expect_bounds_taken(layer, attr);
            if (json_is_true(json_object_get(attr, "required")))
                expect_layer_refused(layer, text_of(attr, "name"), NULL, text_of(attr, "allowed"));
            else
                expect_default_given(layer, attr);
            n_attrs++;
        }
        assert_null(nets_attr_of(kind, a));
    }
    assert_true(n_attrs > 30);
    json_decref(ops);
}

TEST_CASE(an_operation_is_printed_in_depth) {
    char text[8192], line[256], value[NETS_ATTR_TEXT_CAPACITY], range[NETS_ATTR_TEXT_CAPACITY];
    for (nets_op_kind op = NETS_CONV; op < NETS_OP_KINDS; op++) {
        const nets_op_info *info = nets_op_info_of(op);
        FILE *stream = fmemopen(text, sizeof text, "w");
        assert_int_equal(nets_op_list_print(stream, info->name, false), MM_OK);
        fclose(stream);
        const nets_attr *attr;
        for (size_t i = 0; (attr = nets_attr_of(op, i)); i++) {
            nets_attr_default_text(attr, value);
            snprintf(line, sizeof line, "%-13s %s\n", value, nets_attr_range_text(attr, range));
            assert_non_null(strstr(text, line));
            assert_non_null(strstr(text, attr->what));
        }
        assert_non_null(strstr(text, info->output));
        const nets_param_spec *param;
        for (int i = 0; (param = nets_param_spec_of(op, i)); i++) {
            snprintf(line, sizeof line, "  %-13s [%s]", param->name, param->dims);
            assert_non_null(strstr(text, line));
            assert_non_null(strstr(text, nets_init_text(&param->init, value)));
        }
        assert_non_null(strstr(text, info->example));
    }
    char params[NETS_PARAMS_TEXT_CAPACITY];
    assert_string_equal(nets_params_text(NETS_LINEAR, params),
                        "weight [out_channels, channels * height * width], with bias: bias [out_channels]");
    assert_string_equal(nets_params_text(NETS_BATCH_NORM, params),
                        "weight [channels], bias [channels], running_mean [channels] (not learned), running_var "
                        "[channels] (not learned)");
    assert_string_equal(nets_params_text(NETS_RELU, params), "");
    assert_int_equal(nets_op_list_print(stdout, "data", false), MM_ERR_NOT_FOUND);
    assert_non_null(strstr(mm_last_error(), "no operation 'data'; there are conv, "));
}

/* ---------------------------------------------------------------- bad files */

TEST_CASE(what_is_no_json_is_refused_with_line_and_column) {
    static const bad_edit edits[] = {
        {"\"version\": 1,", "\"version\": 1", "line 4, column 8: '}' expected near '\"name\"'"},
        {"\"kernel\": 2, ", "\"kernel\": two, ", "line 10, column 71: invalid token near 'two'"},
        {"\"version\": 1", "\"version\": 1, \"version\": 1", "line 3, column 25: duplicate object key"},
        {"\"p\": 0.3", "\"p\": 1e999", "line 11, column 68: real number overflow"},
        {"\"version\": 1", "\"version\": 99999999999999999999", "line 3, column 33: too big integer"},
        {"\"good\"", "\"go\\u0000od\"", "line 4, column 22: \\u0000 is not allowed"},
        {"\"good\"", "\"go\nod\"", "line 4, column 13: unexpected newline"},
        {"\"good\"", "\"\xFF\"", "line 4, column 11: unable to decode byte 0xff"},
    };
    EXPECT_ALL_REFUSED(edits);
    expect_refused("", "line 1, column 0: '[' or '{' expected near end of file");
    expect_refused("{} {}", "line 1, column 4: end of file expected near '{'");
    expect_refused("12", "line 1, column 2: '[' or '{' expected near '12'");
    nets_net *net;
    assert_int_equal(nets_net_parse("nul", "{}\0", 3, &net), MM_ERR_FORMAT);
}

TEST_CASE(deep_nesting_is_refused) {
    enum { DEPTH = 1000000 };
    char *text = malloc(DEPTH + 1);
    assert_non_null(text);
    memset(text, '[', DEPTH);
    text[DEPTH] = '\0';
    expect_refused(text, "line 1, column 2049: maximum parsing depth reached near '['");
    free(text);
}

TEST_CASE(a_header_that_is_wrong_is_refused) {
    static const bad_edit edits[] = {
        {"  \"format\": \"mm net\",\n", "", "\"format\" is missing"},
        {"\"mm net\"", "\"mm facts\"", "\"format\" must be \"mm net\", not \"mm facts\""},
        {"\"version\": 1", "\"version\": 2", "\"version\" must be 1, not 2"},
        {"\"version\": 1", "\"version\": \"1\"", "\"version\" must be a whole number, not text"},
        {"  \"name\": \"good\",\n", "", "\"name\" is missing"},
        {"\"name\": \"good\"", "\"name\": null", "\"name\" must be text, not null"},
        {"\"name\": \"good\"", "\"name\": \"\"", "\"name\" must have 1 to 95 bytes, not 0"},
        {"\"name\": \"good\"", "\"name\": \"good\", \"nmae\": 1",
         "unknown key \"nmae\" (did you mean name?); there are format, version, name, input, layers, comment"},
        {"\"name\": \"good\"", "\"name\": \"good\", \"comment\": 1", "\"comment\" must be text, not a whole number"},
        {"\"classes\": 10}", "\"clases\": 10}",
         "input: unknown key \"clases\" (did you mean classes?); there are height, width, channels, classes, comment"},
        {", \"classes\": 10}", "}", "input: \"classes\" is missing"},
        {"\"height\": 8", "\"height\": 8.5", "input: \"height\" must be a whole number, not a number with a fraction"},
        {"\"height\": 8", "\"height\": -8",
         "input: net good: samples of -8x6x3: each dimension must be from 1 to 2147483647"},
        {"\"classes\": 10", "\"classes\": 0", "input: net good: 0 classes: must be from 1 to 2147483647"},
        {"\"input\": {\"height\": 8, \"width\": 6, \"channels\": 3, \"classes\": 10}", "\"input\": [8, 6, 3, 10]",
         "\"input\" must be an object, not an array"},
    };
    EXPECT_ALL_REFUSED(edits);
    expect_refused("[1]", "must be an object, not an array");
    expect_refused("{\"format\": \"mm net\", \"version\": 1, \"name\": \"x\", \"layers\": {}}",
                   "\"layers\" must be an array of objects, not an object");
    expect_refused("{\"format\": \"mm net\", \"version\": 1, \"name\": \"x\", \"layers\": []}", "\"input\" is missing");
}

TEST_CASE(a_layer_of_the_wrong_form_is_refused) {
    static const bad_edit edits[] = {
        {"{\"name\": \"bn\", \"op\": \"batch_norm\", \"inputs\": [\"conv\"]}", "\"bn\"",
         "layers[1]: must be an object, not text"},
        {"\"name\": \"bn\", ", "", "layers[1]: \"name\" is missing"},
        {"\"name\": \"bn\", ", "\"name\": 3, ", "layers[1]: \"name\" must be text, not a whole number"},
        {"\"name\": \"bn\", ", "\"name\": \"b\\nn\", ", "layers[1]: \"name\" has a control character: 'b?n'"},
        {"\"name\": \"bn\", ",
         "\"name\": \"12345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345"
         "6\", ",
         "layers[1]: \"name\" must have 1 to 95 bytes, not 96"},
        {"\"op\": \"batch_norm\", ", "", "layer bn: \"op\" is missing"},
        {"\"op\": \"batch_norm\"", "\"op\": \"batchnorm\"",
         "layer bn: unknown op \"batchnorm\" (did you mean batch_norm?); 'mm nets --ops' lists them"},
        {"\"op\": \"batch_norm\"", "\"op\": \"data\"", "layer bn: unknown op \"data\"; there are conv, "},
        {"\"op\": \"add\", \"inputs\": [\"bn\", \"conv\"]", "\"op\": \"add\"", "layer sum: \"inputs\" is missing"},
        {"[\"bn\", \"conv\"]", "\"bn\"", "layer sum: \"inputs\" must be an array of layers' names, not text"},
        {"[\"bn\", \"conv\"]", "[\"bn\", 0]",
         "layer sum: \"inputs\" must be an array of layers' names, not of a whole number"},
        {"\"inputs\": [\"fc\"]", "\"inputs\": [\"fc\"], \"comment\": []",
         "layer loss: \"comment\" must be text, not an array"},
    };
    EXPECT_ALL_REFUSED(edits);
}

TEST_CASE(attributes_that_an_operation_does_not_take_are_refused) {
    static const bad_edit edits[] = {
        {"\"out_channels\": 4", "\"outchannels\": 4",
         "layer conv: \"outchannels\" is no attribute of conv, which takes out_channels, kernel, stride, pad"},
        {"\"p\": 0.3", "\"kernel\": 3", "layer drop: \"kernel\" is no attribute of dropout, which takes p"},
        {"[\"bn\", \"conv\"]", "[\"bn\", \"conv\"], \"p\": 0",
         "layer sum: \"p\" is no attribute of add, which takes none; see 'mm nets --ops add'"},
        {"\"p\": 0.3", "\"\\n\\u007f\": 3", "layer drop: \"??\" is no attribute of dropout"},
    };
    EXPECT_ALL_REFUSED(edits);
}

TEST_CASE(attributes_of_the_wrong_type_or_range_are_refused) {
    static const bad_edit edits[] = {
        {"\"out_channels\": 4", "\"out_channels\": 4.0",
         "layer conv: \"out_channels\" must be a whole number, not a number with a fraction"},
        {"\"out_channels\": 4", "\"out_channels\": [4]",
         "layer conv: \"out_channels\" must be a whole number, not an array"},
        {"\"out_channels\": 4", "\"out_channels\": -4",
         "layer conv: \"out_channels\" must be from 1 to 16777216, not -4; see 'mm nets --ops conv'"},
        {"\"out_channels\": 4, ", "",
         "layer conv: \"out_channels\" is missing; it must be from 1 to 16777216; see 'mm nets --ops conv'"},
        {"[3, 1]", "[3, 1, 1]", "layer conv: \"kernel\" must be a whole number, or an array of 2"},
        {"[3, 1]", "[3, true]", "layer conv: \"kernel\" must be a whole number, or an array of 2"},
        {"[3, 1]", "[3, 0]", "layer conv: \"kernel\" must be from 1 to 16777216, not [3, 0]; see 'mm nets --ops conv'"},
        {"[3, 1]", "[3, 2147483647]", "layer conv: \"kernel\" must be from 1 to 16777216, not [3, 2147483647]; see"},
        {"\"out_channels\": 10", "\"out_channels\": -9223372036854775808",
         "layer fc: \"out_channels\" must be from 1 to 16777216, not -9223372036854775808; see"},
        {"\"bias\": true", "\"bias\": 1", "layer fc: \"bias\" must be true or false, not a whole number"},
        {"\"p\": 0.3", "\"p\": \"0.3\"", "layer drop: \"p\" must be a number, not text"},
        {"\"p\": 0.3", "\"p\": 1e39", "layer drop: \"p\" must be a number, not one so large"},
        {"\"p\": 0.3", "\"p\": 1", "layer drop: \"p\" must be from 0, below 1, not 1; see 'mm nets --ops dropout'"},
        {"\"op\": \"batch_norm\"", "\"op\": \"batch_norm\", \"eps\": 0",
         "layer bn: \"eps\" must be above 0, below 1, not 0; see"},
        {"\"op\": \"batch_norm\"", "\"op\": \"batch_norm\", \"momentum\": 1e-50",
         "layer bn: \"momentum\" must be above 0, at most 1, not 0; see"},
        {"\"exclude_pad\"", "\"stride\": [0, 1], \"exclude_pad\"",
         "layer pool: \"stride\" must be from 1 to 16777216, not [0, 1]; see 'mm nets --ops avg_pool'"},
    };
    EXPECT_ALL_REFUSED(edits);
}

TEST_CASE(inputs_that_are_not_earlier_layers_are_refused) {
    static const bad_edit edits[] = {
        {"[\"bn\", \"conv\"]", "[\"bn\", \"cnov\"]", "layer sum: its input \"cnov\" is no layer"},
        {"\"inputs\": [\"conv\"]", "\"inputs\": [\"bn\"]",
         "layer bn: its input \"bn\" is not before it: inputs must be earlier layers"},
        {"\"inputs\": [\"conv\"]", "\"inputs\": [\"sum\"]",
         "layer bn: its input \"sum\" is not before it: inputs must be earlier layers"},
        {"[\"bn\", \"conv\"]", "[\"bn\"]", "layer sum: add takes 2 inputs, not 1"},
        {"[\"bn\", \"conv\"]", "[]", "layer sum: add takes 2 inputs, not 0"},
    };
    EXPECT_ALL_REFUSED(edits);
    char *many = malloc(10 * (NETS_MAX_INPUTS + 1) + 3), message[64];
    assert_non_null(many);
    strcpy(many, "[\"conv\"");
    for (int i = 0; i < NETS_MAX_INPUTS; i++) strcat(many, ", \"conv\"");
    char *text = edited("[\"bn\", \"conv\"]", strcat(many, "]"));
    snprintf(message, sizeof message, "layer sum: %d inputs, at most %d", NETS_MAX_INPUTS + 1, NETS_MAX_INPUTS);
    expect_refused(text, message);
    free(text);
    free(many);
}

TEST_CASE(networks_that_make_no_sense_are_refused) {
    static const bad_edit edits[] = {
        {"\"name\": \"bn\"", "\"name\": \"conv\"", "layer conv: there is another layer of that name before"},
        {"\"name\": \"bn\"", "\"name\": \"data\"", "layer data: that is the input's name"},
        {"[\"bn\", \"conv\"]", "[\"bn\", \"data\"]", "layer sum: cannot add 8x6x3 to 8x6x4"},
        {"\"kernel\": 2", "\"kernel\": 9", "layer pool: kernel 9 does not fit into height 8 padded by 0"},
        {"\"inputs\": [\"fc\"]}", "\"inputs\": [\"drop\"]}", "net good: nothing uses layer fc"},
        {"\"op\": \"loss\"", "\"op\": \"relu\"", "no layer is a loss; the last one must be"},
        {"\"inputs\": [\"fc\"]}", "\"inputs\": [\"fc\"]}, {\"name\": \"l2\", \"op\": \"loss\", \"inputs\": [\"fc\"]}",
         "layer l2: is a second loss, after loss; a net has one, its last layer"},
        {"\"inputs\": [\"fc\"]}", "\"inputs\": [\"fc\"]}, {\"name\": \"r\", \"op\": \"relu\", \"inputs\": [\"loss\"]}",
         "layer r: comes after the loss, loss, which must be the last layer"},
        {"\"out_channels\": 10", "\"out_channels\": 9", "layer loss: 9 scores for 10 classes"},
    };
    EXPECT_ALL_REFUSED(edits);
}

TEST_CASE(sizes_that_overflow_are_refused_by_layer) {
    static const bad_edit edits[] = {
        {"\"height\": 8, \"width\": 6", "\"height\": 2147483647, \"width\": 2147483647",
         "input: layer data: its output is 2147483647x2147483647x3: each must be from 1 to"},
        {"\"height\": 8, \"width\": 6", "\"height\": 2147483648, \"width\": 6", "input: net good: samples of"},
        {"\"out_channels\": 4", "\"out_channels\": 16777217",
         "layer conv: \"out_channels\" must be from 1 to 16777216, not 16777217"},
    };
    EXPECT_ALL_REFUSED(edits);
    expect_refused("{\"format\": \"mm net\", \"version\": 1, \"name\": \"wide\", \"input\": {\"height\": 1048576, "
                   "\"width\": 1048576, \"channels\": 3, \"classes\": 10}, \"layers\": [{\"name\": \"fc\", \"op\": "
                   "\"linear\", \"inputs\": [\"data\"], \"out_channels\": 16777216}]}",
                   "layer fc: its weight has more than 2^60 elements");
}

/* Each layer's parameters are below the limit for one; their sum is above it. */
TEST_CASE(parameters_that_overflow_together_are_refused) {
    static const char begin[] =
        "{\"format\": \"mm net\", \"version\": 1, \"name\": \"sum\", \"input\": {\"height\": 1, "
        "\"width\": 1, \"channels\": 16777216, \"classes\": 10}, \"layers\": [";
    static const char layer[] =
        "{\"name\": \"fc%d\", \"op\": \"conv\", \"inputs\": [\"%s\"], \"kernel\": 32, \"pad\": 32, "
        "\"stride\": 64, \"out_channels\": 16777216}, ";
    char text[4096], input[16] = "data";
    strcpy(text, begin);
    for (int i = 0; i < 20; i++) {
        sprintf(text + strlen(text), layer, i, input);
        sprintf(input, "fc%d", i);
    }
    strcat(text, "{}]}");
    expect_refused(text, "layer fc4: up to here the net has more than 2^60 parameters");
}

/* ---------------------------------------------------------------- files */

static void expect_not_loaded(const char *path, mm_status expected, const char *message) {
    nets_net *net = NULL;
    assert_int_equal(nets_net_load(path, &net), expected);
    assert_null(net);
    assert_non_null(strstr(mm_last_error(), path));
    assert_non_null(strstr(mm_last_error(), message));
}

TEST_CASE(files_that_cannot_be_read_are_named) {
    char dir[PATH_MAX], path[PATH_MAX];
    scratch_create(dir);
    expect_not_loaded(scratch_join(dir, "none", path), MM_ERR_IO, "No such file");
    expect_not_loaded(dir, MM_ERR_IO, "Is a directory");
    expect_not_loaded("/proc/self/mem", MM_ERR_IO, "Input/output error");
    scratch_write(scratch_join(dir, "empty", path), "", 0);
    expect_not_loaded(path, MM_ERR_FORMAT, "line 1, column 0");
    scratch_write_sparse(scratch_join(dir, "large", path), INT64_C(1) << 40);
    expect_not_loaded(path, MM_ERR_FORMAT, "larger than the 16 MiB");
    expect_not_loaded("/dev/zero", MM_ERR_FORMAT, "larger than the 16 MiB");
    scratch_remove(dir);
}

TEST_CASE(a_long_path_does_not_hide_the_message) {
    char path[1024];
    nets_net *net;
    memset(path, 'p', sizeof path);
    strcpy(path + sizeof path - sizeof "/my.json", "/my.json");
    char *text = edited("\"op\": \"batch_norm\"", "\"op\": \"batchnorm\"");
    assert_int_equal(nets_net_parse(path, text, strlen(text), &net), MM_ERR_FORMAT);
    assert_non_null(
        strstr(mm_last_error(), "/my.json: layer bn: unknown op \"batchnorm\" (did you mean batch_norm?); 'mm nets"));
    free(text);
}

TEST_CASE(a_name_that_begins_with_file_is_opened_as_one) {
    char dir[PATH_MAX], path[PATH_MAX], name[PATH_MAX + 8];
    nets_net *net;
    scratch_create(dir);
    scratch_write(scratch_join(dir, "my.json", path), good, strlen(good));
    snprintf(name, sizeof name, "file:%s", path);
    assert_int_equal(nets_open(name, &net), MM_OK);
    assert_string_equal(nets_net_name(net), "good");
    nets_net_destroy(net);
    assert_int_equal(nets_open(path, &net), MM_ERR_NOT_FOUND);
    assert_non_null(strstr(mm_last_error(), name)); /* the message suggests file:PATH */
    assert_int_equal(nets_open("nonesuch", &net), MM_ERR_NOT_FOUND);
    assert_non_null(strstr(mm_last_error(), "resnet32"));
    assert_int_equal(nets_open("file:", &net), MM_ERR_IO);
    scratch_remove(dir);
}
