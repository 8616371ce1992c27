/* SPDX-License-Identifier: MIT */
/* mm nets: lists the networks, or the layers of one. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "mm/core/size.h"
#include "nets/io/net_file.h"
#include "nets/io/op_list.h"
#include "nets/io/safetensors.h"
#include "nets/net_attrs.h"
#include "nets/zoo/zoo.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/files.h"
#include "tools/args/json_file.h"
#include "tools/args/table.h"

enum {
    ATTRS_MAX = 32,
    TEXT_CAPACITY = NETS_MAX_INPUTS * (NETS_NAME_CAPACITY + 2) + ATTRS_MAX * NETS_ATTR_TEXT_CAPACITY
};

static int64_t learned_elems(const nets_net *net, const nets_layer *layer) {
    int64_t sum = 0;
    for (int i = 0; i < layer->n_params; i++) {
        const nets_param *param = nets_net_param(net, layer->first_param + i);
        if (param->learned) sum += param->elems;
    }
    return sum;
}

/* Lists the layers that a layer reads, and its attributes: "conv1, bn1; kernel=3 stride=2". */
static mm_status told_text(const nets_net *net, int index, char text_out[TEXT_CAPACITY]) {
    const nets_layer *layer = nets_net_layer(net, index);
    const nets_attr *attr;
    nets_attrs told;
    char value[NETS_ATTR_TEXT_CAPACITY], *end = text_out;
    MM_TRY(nets_attrs_given(net, index, &told));
    *end = '\0';
    for (int i = 0; i < layer->n_inputs; i++)
        end += sprintf(end, "%s%s", i ? ", " : "", nets_net_layer(net, layer->inputs[i])->name);
    const char *separator = "; ";
    for (size_t i = 0; (attr = nets_attr_of(layer->op, i)); i++) {
        if (!nets_attr_is_given(attr, &told)) continue;
        end += sprintf(end, "%s%s=%s", separator, attr->name, nets_attr_text(attr, &told, value));
        separator = " ";
    }
    return MM_OK;
}

static mm_status add_layer(table *t, const nets_net *net, int index) {
    const nets_layer *layer = nets_net_layer(net, index);
    char told[TEXT_CAPACITY], shape[NETS_SHAPE_TEXT_CAPACITY];
    MM_TRY(told_text(net, index, told));
    table_row(t);
    table_cell(t, "%s", layer->name);
    table_cell(t, "%s", nets_op_name(layer->op));
    table_cell(t, "%s", nets_shape_text(&layer->shape, shape));
    table_cell(t, "%lld", (long long)learned_elems(net, layer));
    table_cell(t, "%s", told);
    return MM_OK;
}

static mm_status print_net(const nets_net *net) {
    static const table_column columns[] = {{"layer", true, 0},
                                           {"operation", true, 0},
                                           {"output", true, 0},
                                           {"parameters", false, 0},
                                           {"inputs; attributes", true, 0}};
    char shape[NETS_SHAPE_TEXT_CAPACITY];
    int64_t elems = nets_net_learned_elems(net);
    char size[32];
    table *t;
    /* Layer 0, the data, is listed, but no layer that a person counts. */
    printf("%s: images of %s, %lld classes; %d layers, %lld learned parameters (%s)\n\n", nets_net_name(net),
           nets_shape_text(&nets_net_layer(net, 0)->shape, shape), (long long)nets_net_classes(net),
           nets_net_layers(net) - 1, (long long)elems,
           mm_size_format(elems * (int64_t)sizeof(float), size, sizeof size));
    MM_TRY(table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t));
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < nets_net_layers(net); i++) status = add_layer(t, net, i);
    if (status == MM_OK) status = table_print(stdout, t);
    table_destroy(t);
    return status;
}

static void print_list(void) {
    const char *name, *summary;
    for (size_t i = 0; (name = nets_zoo_list(i, &summary)); i++) printf("%-29s %s\n", name, summary);
}

static mm_status print_list_json(FILE *stream) {
    const char *name, *summary;
    json_t *all = json_array();
    for (size_t i = 0; (name = nets_zoo_list(i, &summary)); i++)
        json_array_append_new(
            all, json_pack("{ss sb ss}", "net", name, "family", strchr(name, '<') != NULL, "summary", summary));
    const bool failed = json_dumpf(all, stream, JSON_INDENT(2)) != 0 && !ferror(stream); /* the caller checks that */
    json_decref(all);
    fputc('\n', stream);
    return failed ? mm_fail(MM_ERR_NOMEM, "out of memory for the list of networks") : MM_OK;
}

typedef struct nets_command {
    const char *name, *op, *json, *weights; /* NULL: not given; of op and json "": without a value */
} nets_command;

/* ---------------------------------------------------------------- weights */

static mm_status add_weights(nets_safetensors_builder *builder, const nets_net *net) {
    for (int i = 0; i < nets_net_params(net); i++) {
        const nets_param *param = nets_net_param(net, i);
        nets_safetensors_tensor tensor = {
            .name = param->name, .dtype = NETS_SAFETENSORS_F32, .rank = param->rank, .data = param->given};
        memcpy(tensor.dims, param->dims, sizeof param->dims);
        if (param->given) MM_TRY(nets_safetensors_add(builder, &tensor));
    }
    return MM_OK;
}

/* Writes the values that the network came with. */
static mm_status save_weights(const nets_command *c) {
    nets_net *net;
    nets_safetensors_builder *builder = NULL;
    MM_TRY(nets_open(c->name, &net));
    bool given = false;
    for (int i = 0; i < nets_net_params(net); i++) given = given || nets_net_param(net, i)->given;
    mm_status status = given ? nets_safetensors_builder_create(&builder)
                             : mm_fail(MM_ERR_INVALID,
                                       "--weights: net %s has no weights of its own; 'mm train --save' "
                                       "saves those of a training",
                                       nets_net_name(net));
    if (status == MM_OK) status = add_weights(builder, net);
    if (status == MM_OK) status = nets_safetensors_write(builder, c->weights);
    nets_safetensors_builder_destroy(builder);
    nets_net_destroy(net);
    return status;
}

static mm_status open_and_print(const nets_command *c, FILE *json) {
    nets_net *net;
    MM_TRY(nets_open(c->name, &net));
    mm_status status = json ? nets_net_print(net, json) : print_net(net);
    nets_net_destroy(net);
    return status;
}

/* Rules name some layers by shorter words than network files do. */
static mm_status print_ops(FILE *stream, const nets_command *c, bool json) {
    static const struct {
        const char *rule, *op;
    } words[] = {{"bn", "batch_norm"}, {"bn-relu", "batch_norm"}, {"ln", "layer_norm"}, {"pool", "max_pool"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(c->op, words[i].rule) == 0)
            return mm_fail(MM_ERR_NOT_FOUND, "no operation '%s' (did you mean %s?): that is the word of rules", c->op,
                           words[i].op);
    return nets_op_list_print(stream, *c->op ? c->op : NULL, json);
}

/* A mm_file_writer. */
static mm_status print_json(const void *ctx, FILE *stream) {
    const nets_command *c = ctx;
    if (c->op) return print_ops(stream, c, true);
    return c->name ? open_and_print(c, stream) : print_list_json(stream);
}

static mm_status show(const nets_command *c) {
    if (c->name && c->op)
        return mm_fail(MM_ERR_INVALID, "--net prints a network and --ops the operations: give one of them");
    if (c->weights && !c->name) return mm_fail(MM_ERR_INVALID, "--weights: needs --net onnx:FILE");
    const named_file files[] = {
        {"--net", files_net(c->name), FILE_READ},
        {"--json", c->json && *c->json && !json_file_is_output(c->json) ? c->json : NULL, FILE_WRITTEN},
        {"--weights", c->weights, FILE_WRITTEN}};
    MM_TRY(files_check(files, sizeof files / sizeof *files));
    if (c->weights) MM_TRY(save_weights(c));
    if (c->weights && !c->json) return MM_OK;
    if (c->json && *c->json && !json_file_is_output(c->json)) return mm_atomic_file_print(c->json, print_json, c);
    if (c->json) return print_json(c, stdout);
    if (c->op) return print_ops(stdout, c, false);
    if (c->name) return open_and_print(c, NULL);
    print_list();
    return MM_OK;
}

static const char help_text[] =
    "Lists the networks that --net takes. With --net, lists the layers of one network; shapes are height x width x\n"
    "channels of one image. --json prints it as a network file, which --net file:PATH reads in every command. --ops\n"
    "lists the operations that a network file may have, with their attributes, defaults, ranges and shapes. --ops\n"
    "NAME describes one of them: what each attribute means, and an example.\n"
    "\n"
    "--net onnx:PATH, in every command, takes an ONNX file as torch.onnx.export writes it, with its weights;\n"
    "onnx:PATH,classes=K gives it another last layer, which starts anew. To change other layers, print it with "
    "--json,\n"
    "and load its weights (--weights).\n"
    "\n"
    "  mm nets --net resnet20 --json my.json\n"
    "  mm nets --ops conv\n"
    "  mm train --net file:my.json --iterations 10\n"
    "  mm nets --net onnx:resnet18.onnx --json my.json --weights resnet18.safetensors\n"
    "  mm train --net file:my.json --load resnet18.safetensors --load-matching --iterations 10";

int cmd_nets(int argc, char **argv) {
    nets_command c = {.name = NULL};
    bool help;
    const arg table[] = {
        {"--net", "NET", "print this network: one of the list, file:PATH, or onnx:PATH", ARG_TEXT, &c.name, 0, 0},
        {"--ops", "[NAME]", "print the operations of network files, or one of them in depth", ARG_MAYBE, &c.op, 0, 0},
        {"--json", "[FILE]",
         "... as a network file; operations, or the list of networks, as an array of objects (to standard output)",
         ARG_MAYBE, &c.json, 0, 0},
        {"--weights", "FILE", "save the weights of an ONNX file, as --load takes them (safetensors)", ARG_TEXT,
         &c.weights, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm nets [OPTIONS]", help_text, &help);
    if (status == MM_OK && !help) status = show(&c);
    return status == MM_OK ? EXIT_OK : command_failed("nets", status);
}
