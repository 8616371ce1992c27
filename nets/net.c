/* SPDX-License-Identifier: MIT */
#include "nets/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net_ops.h"

struct nets_net {
    char name[NETS_NAME_CAPACITY];
    int64_t classes;
    nets_layer *layers;
    int n_layers, layers_capacity;
    nets_param *params;
    int n_params, params_capacity;
    mm_status status; /* the first failure of an add */
};

mm_status nets_net_create(const char *name, nets_net **net_out) {
    if (!name || !*name || strlen(name) >= NETS_NAME_CAPACITY)
        return mm_fail(MM_ERR_INVALID, "a net's name must have 1 to %d bytes", NETS_NAME_CAPACITY - 1);
    nets_net *net = calloc(1, sizeof *net);
    if (!net) return mm_fail(MM_ERR_NOMEM, "net %s: no memory", name);
    strcpy(net->name, name);
    *net_out = net;
    return MM_OK;
}

void nets_net_destroy(nets_net *net) {
    if (!net) return;
    for (int i = 0; i < net->n_params; i++) free((void *)net->params[i].given);
    free(net->layers);
    free(net->params);
    free(net);
}

/* Makes room for one more element of an array. */
static mm_status reserve_one(void **array, int count, int *capacity, size_t size) {
    if (count < *capacity) return MM_OK;
    int grown = *capacity ? 2 * *capacity : 32;
    void *moved = realloc(*array, (size_t)grown * size);
    if (!moved) return mm_fail(MM_ERR_NOMEM, "no memory for %d elements of a net", grown);
    *array = moved;
    *capacity = grown;
    return MM_OK;
}

static mm_status check_name(const nets_net *net, const char *name) {
    if (!name || !*name || strlen(name) >= NETS_NAME_CAPACITY)
        return mm_fail(MM_ERR_INVALID, "net %s: layer %d needs a name of 1 to %d bytes", net->name, net->n_layers,
                       NETS_NAME_CAPACITY - 1);
    return MM_OK;
}

static mm_status add_param(nets_net *net, const nets_layer *layer, int place, const nets_shape *in) {
    const nets_param_spec *spec = nets_param_spec_of(layer->op, place);
    MM_TRY(reserve_one((void **)&net->params, net->n_params, &net->params_capacity, sizeof *net->params));
    nets_param *param = &net->params[net->n_params];
    *param = (nets_param){
        .layer = net->n_layers, .place = place, .learned = spec->learned, .decayed = spec->decayed, .elems = 1};
    snprintf(param->name, sizeof param->name, "%s.%s", layer->name, spec->name);
    for (int d = 0; d < MM_RANK_MAX; d++) param->dims[d] = 1;
    param->rank = spec->shape(layer, in, param->dims);
    for (int d = 0; d < param->rank; d++) param->elems = nets_mul(param->elems, param->dims[d]);
    if (param->elems < 0)
        return mm_fail(MM_ERR_INVALID, "layer %s: its %s has more than 2^60 elements", layer->name, spec->name);
    net->n_params++;
    return MM_OK;
}

/* Extents are limited so that shape inference cannot overflow. */
static mm_status check_output(const nets_layer *layer) {
    char text[NETS_SHAPE_TEXT_CAPACITY];
    int64_t elems = 1;
    for (int d = 0; d < layer->shape.rank; d++)
        elems =
            layer->shape.dims[d] < 1 || layer->shape.dims[d] > INT32_MAX ? -1 : nets_mul(elems, layer->shape.dims[d]);
    if (elems > 0) return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "layer %s: its output is %s: each must be from 1 to %d, and all together at most 2^60 elements",
                   layer->name, nets_shape_text(&layer->shape, text), INT32_MAX);
}

/* Ties the layer to the weight of the net's embedding, which must be [out_channels, channels] as its own would be. */
static mm_status tie(nets_net *net, nets_layer *layer, const nets_shape *in) {
    layer->tied_param = -1;
    if (!layer->attrs.tied) return MM_OK;
    for (int i = 0; i < net->n_params && layer->tied_param < 0; i++)
        if (net->layers[net->params[i].layer].op == NETS_EMBEDDING) layer->tied_param = i;
    if (layer->tied_param < 0)
        return mm_fail(MM_ERR_INVALID, "layer %s: \"tied\", but there is no embedding before it", layer->name);
    nets_param *weight = &net->params[layer->tied_param];
    if (weight->shared)
        return mm_fail(MM_ERR_INVALID, "layer %s: \"tied\", but another layer is tied to %s", layer->name,
                       weight->name);
    if (weight->dims[0] != layer->attrs.out_channels || weight->dims[1] != nets_shape_channels(in))
        return mm_fail(MM_ERR_INVALID, "layer %s: tied to %s, which is %lldx%lld, must be %lldx%lld", layer->name,
                       weight->name, (long long)weight->dims[0], (long long)weight->dims[1],
                       (long long)layer->attrs.out_channels, (long long)nets_shape_channels(in));
    weight->shared = true;
    return MM_OK;
}

/* Chosen: twice as many as the deepest ResNet of the zoo has, of depth 12002. */
enum { LAYERS_MOST = 1 << 16 };

static mm_status add_layer(nets_net *net, nets_layer *layer, const nets_shape *in) {
    const nets_param_spec *spec;
    if (net->n_layers == LAYERS_MOST)
        return mm_fail(MM_ERR_INVALID, "net %s: more than %d layers", net->name, LAYERS_MOST);
    MM_TRY(nets_op_infer(layer, in));
    MM_TRY(check_output(layer));
    MM_TRY(tie(net, layer, in));
    layer->first_param = net->n_params;
    MM_TRY(reserve_one((void **)&net->layers, net->n_layers, &net->layers_capacity, sizeof *net->layers));
    for (int i = 0; (spec = nets_param_spec_of(layer->op, i)); i++)
        if (nets_param_is_had(spec, layer)) MM_TRY(add_param(net, layer, i, in));
    layer->n_params = net->n_params - layer->first_param;
    net->layers[net->n_layers++] = *layer;
    return MM_OK;
}

static mm_status check_arity(const char *name, const nets_op_info *info, int n_inputs) {
    if (n_inputs >= info->min_inputs && n_inputs <= info->max_inputs) return MM_OK;
    if (info->min_inputs == info->max_inputs)
        return mm_fail(MM_ERR_INVALID, "layer %s: %s takes %d input%s, not %d", name, info->name, info->min_inputs,
                       info->min_inputs == 1 ? "" : "s", n_inputs);
    return mm_fail(MM_ERR_INVALID, "layer %s: %s takes %d to %d inputs, not %d", name, info->name, info->min_inputs,
                   info->max_inputs, n_inputs);
}

static mm_status try_add(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, const int *inputs,
                         int n_inputs) {
    MM_TRY(check_name(net, name));
    const nets_op_info *info = nets_op_info_of(op);
    if (!info || op == NETS_DATA)
        return mm_fail(MM_ERR_INVALID, "layer %s: %d is not an operation that can be added", name, (int)op);
    MM_TRY(check_arity(name, info, n_inputs));
    nets_layer layer = {.op = op, .n_inputs = n_inputs};
    strcpy(layer.name, name);
    if (attrs) layer.attrs = *attrs;
    nets_shape in[NETS_MAX_INPUTS];
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i] < 0 || inputs[i] >= net->n_layers || nets_op_info_of(net->layers[inputs[i]].op)->loss)
            return mm_fail(MM_ERR_INVALID,
                           "layer %s: input %d is layer %d, which is not an earlier layer with an output", name, i,
                           inputs[i]);
        layer.inputs[i] = inputs[i];
        in[i] = net->layers[inputs[i]].shape;
    }
    return add_layer(net, &layer, in);
}

int nets_add(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, const int *inputs,
             int n_inputs) {
    if (net->status == MM_OK) net->status = try_add(net, name, op, attrs, inputs, n_inputs);
    return net->status == MM_OK ? net->n_layers - 1 : -1;
}

int nets_add1(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, int input) {
    return nets_add(net, name, op, attrs, &input, 1);
}

static mm_status try_name_params(nets_net *net, const char *const *names, int n_names) {
    const nets_layer *layer = &net->layers[net->n_layers - 1];
    if (n_names != layer->n_params)
        return mm_fail(MM_ERR_INVALID, "layer %s: %d names for %d parameters", layer->name, n_names, layer->n_params);
    for (int i = 0; i < n_names; i++) {
        if (!*names[i] || strlen(names[i]) >= NETS_PARAM_NAME_CAPACITY)
            return mm_fail(MM_ERR_INVALID, "layer %s: a parameter needs a name of 1 to %d bytes", layer->name,
                           NETS_PARAM_NAME_CAPACITY - 1);
        strcpy(net->params[layer->first_param + i].name, names[i]);
    }
    return MM_OK;
}

void nets_name_params(nets_net *net, const char *const *names, int n_names) {
    if (net->status == MM_OK) net->status = try_name_params(net, names, n_names);
}

void nets_give_values(nets_net *net, int param, float *values) {
    free((void *)net->params[param].given);
    net->params[param].given = values;
}

float *nets_take_values(nets_net *net, int param) {
    float *values = (float *)net->params[param].given;
    net->params[param].given = NULL;
    return values;
}

void nets_freeze(nets_net *net, int layer) {
    const nets_layer *l = &net->layers[layer];
    for (int i = l->first_param; i < l->first_param + l->n_params; i++) net->params[i].frozen = net->params[i].learned;
    if (l->tied_param >= 0) net->params[l->tied_param].frozen = true;
}

bool nets_layer_is_frozen(const nets_net *net, const nets_layer *layer) {
    const int param = layer->n_params > 0 ? layer->first_param : layer->tied_param;
    return param >= 0 && net->params[param].frozen;
}

mm_status nets_net_status(const nets_net *net) { return net->status; }

static mm_status try_add_data(nets_net *net, const nets_shape *shape, int64_t classes) {
    char text[NETS_SHAPE_TEXT_CAPACITY];
    if (net->n_layers)
        return mm_fail(MM_ERR_INVALID, "net %s: has layers already; data must be its first, added once", net->name);
    if (classes < 1 || classes > INT32_MAX)
        return mm_fail(MM_ERR_INVALID, "net %s: %lld classes: must be from 1 to %d", net->name, (long long)classes,
                       INT32_MAX);
    if (shape->rank < 1 || shape->rank >= MM_RANK_MAX)
        return mm_fail(MM_ERR_INVALID, "net %s: samples of %d dimensions: must be from 1 to %d", net->name, shape->rank,
                       MM_RANK_MAX - 1);
    for (int d = 0; d < shape->rank; d++)
        if (shape->dims[d] < 1 || shape->dims[d] > INT32_MAX)
            return mm_fail(MM_ERR_INVALID, "net %s: samples of %s: each dimension must be from 1 to %d", net->name,
                           nets_shape_text(shape, text), INT32_MAX);
    net->classes = classes;
    return add_layer(net, &(nets_layer){.op = NETS_DATA, .name = "data", .shape = *shape}, NULL);
}

int nets_add_samples(nets_net *net, const nets_shape *shape, int64_t classes) {
    if (net->status == MM_OK) net->status = try_add_data(net, shape, classes);
    return net->status == MM_OK ? net->n_layers - 1 : -1;
}

int nets_add_data(nets_net *net, int64_t height, int64_t width, int64_t channels, int64_t classes) {
    return nets_add_samples(net, &(nets_shape){3, {height, width, channels}}, classes);
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Sorts the names, and fails if two are equal; `what`: whose names they are. */
static mm_status check_differ(const nets_net *net, const char **names, int n, const char *what) {
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return mm_fail(MM_ERR_INVALID, "net %s: two %s are called %s", net->name, what, names[i]);
    return MM_OK;
}

static mm_status check_names_differ(const nets_net *net) {
    const int most = net->n_layers > net->n_params ? net->n_layers : net->n_params;
    const char **names = malloc((size_t)most * sizeof *names);
    if (!names) return mm_fail(MM_ERR_NOMEM, "net %s: no memory for %d names", net->name, most);
    for (int i = 0; i < net->n_layers; i++) names[i] = net->layers[i].name;
    mm_status status = check_differ(net, names, net->n_layers, "layers");
    for (int i = 0; i < net->n_params; i++) names[i] = net->params[i].name;
    if (status == MM_OK) status = check_differ(net, names, net->n_params, "parameters");
    free(names);
    return status;
}

static mm_status check_used(const nets_net *net) {
    bool *used = calloc((size_t)net->n_layers, sizeof *used);
    mm_status status =
        used ? MM_OK : mm_fail(MM_ERR_NOMEM, "net %s: no memory for %d layers", net->name, net->n_layers);
    for (int i = 0; used && i < net->n_layers; i++)
        for (int k = 0; k < net->layers[i].n_inputs; k++) used[net->layers[i].inputs[k]] = true;
    for (int i = 0; status == MM_OK && i < net->n_layers - 1; i++)
        if (!used[i]) status = mm_fail(MM_ERR_INVALID, "net %s: nothing uses layer %s", net->name, net->layers[i].name);
    free(used);
    return status;
}

mm_status nets_net_finish(nets_net *net) {
    if (net->status != MM_OK) return net->status;
    if (!net->n_layers || !nets_op_info_of(net->layers[net->n_layers - 1].op)->loss)
        return mm_fail(MM_ERR_INVALID, "net %s: its last layer is not a loss", net->name);
    MM_TRY(check_used(net));
    MM_TRY(check_names_differ(net));
    const nets_layer *loss = &net->layers[net->n_layers - 1];
    int64_t scores = loss->attrs.out_channels ? loss->attrs.out_channels : nets_shape_channels(&loss->shape);
    if (scores != net->classes)
        return mm_fail(MM_ERR_INVALID, "layer %s: %lld scores for %lld classes: must be as many", loss->name,
                       (long long)scores, (long long)net->classes);
    return MM_OK;
}

const char *nets_net_name(const nets_net *net) { return net->name; }
int64_t nets_net_classes(const nets_net *net) { return net->classes; }
int nets_net_layers(const nets_net *net) { return net->n_layers; }
const nets_layer *nets_net_layer(const nets_net *net, int layer) { return &net->layers[layer]; }
int nets_net_params(const nets_net *net) { return net->n_params; }
const nets_param *nets_net_param(const nets_net *net, int param) { return &net->params[param]; }

int nets_net_find_param(const nets_net *net, const char *name) {
    for (int i = 0; i < net->n_params; i++)
        if (strcmp(net->params[i].name, name) == 0) return i;
    return -1;
}

int64_t nets_net_labels(const nets_net *net) { return nets_shape_rows(&net->layers[net->n_layers - 1].shape); }

int64_t nets_net_tokens(const nets_net *net) {
    for (int i = 1; i < net->n_layers; i++)
        if (net->layers[i].op == NETS_EMBEDDING && net->layers[i].inputs[0] == 0)
            return nets_shape_rows(&net->layers[0].shape);
    return 0;
}

int64_t nets_net_learned_elems(const nets_net *net) {
    int64_t sum = 0;
    for (int i = 0; i < net->n_params; i++)
        if (net->params[i].learned) sum += net->params[i].elems;
    return sum;
}

mm_status nets_net_shape(const nets_net *net, int layer, int64_t batch, nets_shape *shape_out) {
    const nets_layer *l = &net->layers[layer];
    if (batch < 1)
        return mm_fail(MM_ERR_INVALID, "net %s: a batch of %lld: must be at least 1", net->name, (long long)batch);
    int64_t sample = nets_shape_elems(&l->shape);
    if (nets_mul(batch, sample) < 0)
        return mm_fail(MM_ERR_INVALID, "layer %s: a batch of %lld times %lld elements is too large", l->name,
                       (long long)batch, (long long)sample);
    *shape_out = (nets_shape){.rank = l->shape.rank + 1, .dims = {batch}};
    memcpy(&shape_out->dims[1], l->shape.dims, (size_t)l->shape.rank * sizeof batch);
    return MM_OK;
}
