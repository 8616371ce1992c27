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
    mm_status status; /* of the first add that failed */
};

mm_status nets_net_create(const char *name, nets_net **net_out) {
    if (!name || !*name || strlen(name) >= NETS_NAME_CAPACITY)
        return mm_fail(MM_ERR_INVALID, "a net's name has 1 to %d bytes", NETS_NAME_CAPACITY - 1);
    nets_net *net = calloc(1, sizeof *net);
    if (!net) return mm_fail(MM_ERR_NOMEM, "net %s: no memory", name);
    strcpy(net->name, name);
    *net_out = net;
    return MM_OK;
}

void nets_net_destroy(nets_net *net) {
    if (!net) return;
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

static mm_status add_param(nets_net *net, const nets_layer *layer, const nets_param_spec *spec) {
    MM_TRY(reserve_one((void **)&net->params, net->n_params, &net->params_capacity, sizeof *net->params));
    nets_param *param = &net->params[net->n_params];
    *param = (nets_param){.role = spec->role, .learned = spec->learned, .layer = net->n_layers, .rank = spec->rank};
    snprintf(param->name, sizeof param->name, "%s.%s", layer->name, spec->suffix);
    param->elems = 1;
    for (int d = 0; d < 4; d++) {
        param->dims[d] = d < spec->rank ? spec->dims[d] : 1;
        param->elems = nets_mul(param->elems, param->dims[d]);
    }
    if (param->elems < 0)
        return mm_fail(MM_ERR_INVALID, "layer %s: its %s has more than 2^60 elements", layer->name, spec->suffix);
    net->n_params++;
    return MM_OK;
}

static mm_status add_layer(nets_net *net, nets_layer *layer, const int64_t (*in)[3]) {
    const nets_op_info *info = nets_op_info_of(layer->op);
    MM_TRY(nets_op_infer(layer, in));
    /* Extents of 32 bits: what infer computes of them cannot overflow. */
    bool fits = layer->shape[0] <= INT32_MAX && layer->shape[1] <= INT32_MAX && layer->shape[2] <= INT32_MAX;
    if (!fits || nets_mul(nets_mul(layer->shape[0], layer->shape[1]), layer->shape[2]) < 1)
        return mm_fail(
            MM_ERR_INVALID,
            "layer %s: its output is %lldx%lldx%lld: each must be from 1 to %d, and all together at most 2^60 "
            "elements",
            layer->name, (long long)layer->shape[0], (long long)layer->shape[1], (long long)layer->shape[2], INT32_MAX);
    layer->first_param = net->n_params;
    nets_param_spec specs[NETS_MAX_PARAMS];
    layer->n_params = info->params ? info->params(layer, in[0], specs) : 0;
    MM_TRY(reserve_one((void **)&net->layers, net->n_layers, &net->layers_capacity, sizeof *net->layers));
    for (int i = 0; i < layer->n_params; i++) MM_TRY(add_param(net, layer, &specs[i]));
    net->layers[net->n_layers++] = *layer;
    return MM_OK;
}

static mm_status check_arity(const char *name, const nets_op_info *info, int n_inputs) {
    if (n_inputs >= info->min_inputs && n_inputs <= info->max_inputs) return MM_OK;
    if (info->min_inputs == info->max_inputs)
        return mm_fail(MM_ERR_INVALID, "layer %s: %s takes %d inputs, not %d", name, info->name, info->min_inputs,
                       n_inputs);
    return mm_fail(MM_ERR_INVALID, "layer %s: %s takes %d to %d inputs, not %d", name, info->name, info->min_inputs,
                   info->max_inputs, n_inputs);
}

static mm_status try_add(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, const int *inputs,
                         int n_inputs) {
    MM_TRY(check_name(net, name));
    const nets_op_info *info = nets_op_info_of(op);
    if (!info || op == NETS_DATA) return mm_fail(MM_ERR_INVALID, "layer %s: %d is no operation to add", name, (int)op);
    MM_TRY(check_arity(name, info, n_inputs));
    nets_layer layer = {.op = op, .n_inputs = n_inputs};
    strcpy(layer.name, name);
    if (attrs) layer.attrs = *attrs;
    int64_t in[NETS_MAX_INPUTS][3];
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i] < 0 || inputs[i] >= net->n_layers || net->layers[inputs[i]].op == NETS_LOSS)
            return mm_fail(MM_ERR_INVALID, "layer %s: input %d is layer %d, which is none before it", name, i,
                           inputs[i]);
        layer.inputs[i] = inputs[i];
        memcpy(in[i], net->layers[inputs[i]].shape, sizeof in[i]);
    }
    return add_layer(net, &layer, (const int64_t(*)[3])in);
}

int nets_add(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, const int *inputs,
             int n_inputs) {
    if (net->status == MM_OK) net->status = try_add(net, name, op, attrs, inputs, n_inputs);
    return net->status == MM_OK ? net->n_layers - 1 : -1;
}

int nets_add1(nets_net *net, const char *name, nets_op_kind op, const nets_attrs *attrs, int input) {
    return nets_add(net, name, op, attrs, &input, 1);
}

static mm_status try_add_data(nets_net *net, const int64_t shape[3], int64_t classes) {
    if (net->n_layers) return mm_fail(MM_ERR_INVALID, "net %s: data is its first layer, once", net->name);
    if (classes < 1 || classes > INT32_MAX)
        return mm_fail(MM_ERR_INVALID, "net %s: %lld classes: must be from 1 to %d", net->name, (long long)classes,
                       INT32_MAX);
    nets_layer layer = {.op = NETS_DATA, .name = "data"};
    for (int d = 0; d < 3; d++) {
        if (shape[d] < 1 || shape[d] > INT32_MAX)
            return mm_fail(MM_ERR_INVALID,
                           "net %s: images of %lldx%lldx%lld: height, width and channels must be from 1 to %d",
                           net->name, (long long)shape[0], (long long)shape[1], (long long)shape[2], INT32_MAX);
        layer.shape[d] = shape[d];
    }
    net->classes = classes;
    return add_layer(net, &layer, NULL);
}

int nets_add_data(nets_net *net, int64_t height, int64_t width, int64_t channels, int64_t classes) {
    if (net->status == MM_OK) net->status = try_add_data(net, (const int64_t[3]){height, width, channels}, classes);
    return net->status == MM_OK ? net->n_layers - 1 : -1;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static mm_status check_names_differ(const nets_net *net) {
    const char **names = malloc((size_t)net->n_layers * sizeof *names);
    if (!names) return mm_fail(MM_ERR_NOMEM, "net %s: no memory for %d names", net->name, net->n_layers);
    for (int i = 0; i < net->n_layers; i++) names[i] = net->layers[i].name;
    qsort(names, (size_t)net->n_layers, sizeof *names, compare_names);
    mm_status status = MM_OK;
    for (int i = 1; i < net->n_layers && status == MM_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = mm_fail(MM_ERR_INVALID, "net %s: two layers are called %s", net->name, names[i]);
    free(names);
    return status;
}

static bool is_used(const nets_net *net, int layer) {
    for (int i = layer + 1; i < net->n_layers; i++)
        for (int k = 0; k < net->layers[i].n_inputs; k++)
            if (net->layers[i].inputs[k] == layer) return true;
    return false;
}

mm_status nets_net_finish(nets_net *net) {
    if (net->status != MM_OK) return net->status;
    if (!net->n_layers || net->layers[net->n_layers - 1].op != NETS_LOSS)
        return mm_fail(MM_ERR_INVALID, "net %s: its last layer is not a loss", net->name);
    for (int i = 0; i < net->n_layers - 1; i++)
        if (!is_used(net, i))
            return mm_fail(MM_ERR_INVALID, "net %s: nothing uses layer %s", net->name, net->layers[i].name);
    MM_TRY(check_names_differ(net));
    const nets_layer *loss = &net->layers[net->n_layers - 1];
    if (loss->shape[2] != net->classes)
        return mm_fail(MM_ERR_INVALID, "layer %s: %lld scores for %lld classes: must be as many", loss->name,
                       (long long)loss->shape[2], (long long)net->classes);
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

int64_t nets_net_labels(const nets_net *net) {
    const int64_t *scores = net->layers[net->n_layers - 1].shape;
    return scores[0] * scores[1];
}

int64_t nets_net_learned_elems(const nets_net *net) {
    int64_t sum = 0;
    for (int i = 0; i < net->n_params; i++)
        if (net->params[i].learned) sum += net->params[i].elems;
    return sum;
}

mm_status nets_net_shape(const nets_net *net, int layer, int64_t batch, int64_t dims_out[4]) {
    const nets_layer *l = &net->layers[layer];
    if (batch < 1)
        return mm_fail(MM_ERR_INVALID, "net %s: a batch of %lld: must be at least 1", net->name, (long long)batch);
    int64_t image = l->shape[0] * l->shape[1] * l->shape[2];
    if (nets_mul(batch, image) < 0)
        return mm_fail(MM_ERR_INVALID, "layer %s: a batch of %lld times %lld elements is too large", l->name,
                       (long long)batch, (long long)image);
    dims_out[0] = batch;
    for (int d = 0; d < 3; d++) dims_out[d + 1] = l->shape[d];
    return MM_OK;
}
