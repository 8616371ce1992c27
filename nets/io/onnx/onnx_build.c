/* SPDX-License-Identifier: MIT */
/* The net of the drafts that the graph's output needs, and its initial values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

static mm_status refuse(const onnx_import *m, const onnx_draft *draft, const char *what) {
    return mm_fail(MM_ERR_UNSUPPORTED, "%s: node %.80s: %s", m->path, draft->node, what);
}

/* ---------------------------------------------------------------- the loss */

/* The scores' draft: the output's, or what its softmax reads. */
static mm_status find_scores(onnx_import *m, int *draft_out) {
    const Onnx__NodeProto nothing = ONNX__NODE_PROTO__INIT;
    const onnx_node none = {.proto = &nothing, .op = "the graph's output", .name = m->values[m->output].name};
    onnx_value *output = &m->values[m->output];
    if (output->kind != ONNX_MAP)
        return mm_fail(MM_ERR_UNSUPPORTED, "%s: its first output, %.64s, is no map of scores", m->path, output->name);
    const onnx_draft *draft = &m->drafts[output->draft];
    if (draft->kind == ONNX_SOFTMAX && onnx_is_identity(output->function))
        *draft_out = draft->layer.inputs[0];
    else
        MM_TRY(onnx_whole(m, &none, output, draft_out));
    if (*draft_out == 0) return mm_fail(MM_ERR_UNSUPPORTED, "%s: its output is its input", m->path);
    return MM_OK;
}

/* Gives the layer of the scores another number of them; it starts anew. */
static mm_status change_classes(const onnx_import *m, onnx_draft *last) {
    const nets_op_kind op = last->layer.op;
    if (m->tokens) return refuse(m, last, "a net of tokens has a class for each token; classes= is not for it");
    if ((op != NETS_LINEAR && op != NETS_PROJECT && op != NETS_CONV) || last->layer.attrs.groups > 1)
        return refuse(m, last, "classes= changes a last layer that is a product or a convolution; this is none");
    last->layer.attrs.out_channels = m->classes;
    last->layer.shape.dims[last->layer.shape.rank - 1] = m->classes;
    last->anew = true;
    return MM_OK;
}

static bool same_weights(const onnx_param *a, const onnx_tensor *b) {
    if (a->tensor == b) return !a->transpose;
    if (a->tensor->rank != 2 || b->rank != 2) return false;
    const int64_t rows = b->dims[0], columns = b->dims[1];
    if (a->tensor->dims[a->transpose] != rows || a->tensor->dims[!a->transpose] != columns) return false;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            if (a->tensor->reals[a->transpose ? c * rows + r : r * columns + c] != b->reals[r * columns + c])
                return false;
    return true;
}

/* In a net of tokens the last product becomes the loss. Exporters copy the weight of an embedding that is the last
 * product's, too: equal bits are taken as one weight. */
static mm_status make_token_loss(onnx_import *m, onnx_draft *last) {
    const bool by_output = last->layer.op == NETS_LINEAR || last->layer.attrs.by_output;
    if (last->layer.op != NETS_PROJECT)
        return refuse(m, last, "the output of a net of tokens is a product of each token with weights");
    if (last->layer.attrs.bias) return refuse(m, last, "its scores have a bias; layers here give tokens' scores none");
    nets_attrs attrs = {.out_channels = last->layer.attrs.out_channels};
    last->params[0].transpose ^= !by_output;
    for (int d = 0; d < m->n_drafts; d++)
        if (m->drafts[d].layer.op == NETS_EMBEDDING && m->drafts[d].built == 0 && !attrs.tied)
            attrs.tied = same_weights(&last->params[0], m->drafts[d].params[0].tensor);
    last->layer.op = NETS_TOKEN_LOSS;
    last->layer.attrs = attrs;
    snprintf(last->layer.name, sizeof last->layer.name, "loss");
    return MM_OK;
}

/* ---------------------------------------------------------------- parameters */

/* Takes the tensor's elements, or copies them if another parameter has taken them, or they are to be transposed. */
static float *values_of(const onnx_param *param) {
    onnx_tensor *tensor = param->tensor;
    if (!param->transpose && tensor->reals && !tensor->shared) {
        float *taken = tensor->reals;
        tensor->reals = NULL;
        return taken;
    }
    float *values = malloc((size_t)tensor->elems * sizeof *values);
    if (!values) return NULL;
    if (!param->transpose) return memcpy(values, tensor->reals, (size_t)tensor->elems * sizeof *values);
    const int64_t rows = tensor->dims[0], columns = tensor->dims[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) values[c * rows + r] = tensor->reals[r * columns + c];
    return values;
}

static const char *name_of_place(const onnx_draft *draft, int i) {
    int at = 0;
    for (int place = 0; place < NETS_MAX_PARAMS; place++) {
        const nets_param_spec *spec = nets_param_spec_of(draft->layer.op, place);
        if (spec && nets_param_is_had(spec, &draft->layer) && at++ == i) return spec->name;
    }
    return "?";
}

/* The initializer's name, if it is a module's and not taken yet; else that which the layer gives. */
static mm_status name_params(onnx_import *m, nets_net *net, const onnx_draft *draft, const nets_layer *layer) {
    char texts[NETS_MAX_PARAMS][NETS_PARAM_NAME_CAPACITY];
    const char *names[NETS_MAX_PARAMS];
    for (int i = 0; i < layer->n_params; i++) {
        const nets_param *param = nets_net_param(net, layer->first_param + i);
        const onnx_tensor *tensor = draft->params[param->place].tensor;
        const bool other = layer->op == NETS_EMBEDDING && tensor &&
                           strncmp(tensor->name ? tensor->name : "", layer->name, strlen(layer->name)) != 0;
        const bool named = !other && tensor && onnx_module_name(tensor->name) &&
                           strlen(tensor->name) < NETS_PARAM_NAME_CAPACITY &&
                           mm_names_find(&m->param_names, tensor->name) < 0;
        snprintf(texts[i], sizeof texts[i], "%s", named ? tensor->name : param->name);
        if (!named && mm_names_find(&m->param_names, texts[i]) >= 0)
            snprintf(texts[i], sizeof texts[i], "%.95s.own.%.20s", layer->name, name_of_place(draft, i));
        for (char *c = texts[i]; *c; c++)
            if (*c <= ' ' || *c > '~') *c = '_';
        names[i] = texts[i];
    }
    if (layer->n_params) nets_name_params(net, names, layer->n_params);
    MM_TRY(nets_net_status(net));
    for (int i = 0; i < layer->n_params; i++)
        if (mm_names_find(&m->param_names, texts[i]) < 0) MM_TRY(onnx_remember(m, &m->param_names, texts[i], 0));
    return MM_OK;
}

static mm_status give_values(onnx_import *m, nets_net *net, const onnx_draft *draft, const nets_layer *layer) {
    for (int i = layer->first_param; !draft->anew && i < layer->first_param + layer->n_params; i++) {
        const nets_param *param = nets_net_param(net, i);
        const onnx_param *own = &draft->params[param->place];
        if (!own->tensor) {
            /* A norm without weight or bias has ones and zeros, which are its initial values. */
            const bool norm = layer->op == NETS_GROUP_NORM || layer->op == NETS_LAYER_NORM;
            if (norm) continue;
            return refuse(m, draft,
                          layer->op == NETS_CLASS_TOKEN ? "a class token without positions; a layer here adds both"
                                                        : "a weight is missing");
        }
        bool fits = own->tensor->real && own->tensor->elems == param->elems;
        if (own->tensor->rank >= 2 && param->rank == 2) /* a matrix: dims, too, but for leading ones */
            fits = fits && own->tensor->dims[own->tensor->rank - 1 - own->transpose] == param->dims[1];
        if (!fits) {
            char text[NETS_PARAM_NAME_CAPACITY + 96];
            snprintf(text, sizeof text, "%s has %lld elements, must have %lld", param->name,
                     (long long)own->tensor->elems, (long long)param->elems);
            return refuse(m, draft, text);
        }
        float *values = values_of(own);
        if (!values) return mm_fail(MM_ERR_NOMEM, "%s: no memory for %s", m->path, param->name);
        nets_give_values(net, i, values);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- layers */

/* Marks the drafts that the scores need: those have `built` 0, others -1. */
static void mark(onnx_import *m, int scores) {
    for (int d = 0; d < m->n_drafts; d++) m->drafts[d].built = d == scores || d == 0 ? 0 : -1;
    for (int d = scores; d > 0; d--)
        for (int i = 0; m->drafts[d].built == 0 && i < m->drafts[d].layer.n_inputs; i++)
            m->drafts[m->drafts[d].layer.inputs[i]].built = 0;
}

/* A weight matrix that two layers have would be two, and each would learn by itself. Vectors that exporters made one,
 * since they are equal, may be two: each layer gets a copy. */
static mm_status count_uses(onnx_import *m) {
    for (int d = 0; d < m->n_drafts; d++)
        for (int i = 0; m->drafts[d].built == 0 && i < NETS_MAX_PARAMS; i++) {
            onnx_tensor *tensor = m->drafts[d].params[i].tensor;
            if (!tensor || (m->drafts[d].layer.op == NETS_TOKEN_LOSS && m->drafts[d].layer.attrs.tied)) continue;
            tensor->shared = tensor->used;
            tensor->used = true;
            if (tensor->shared && tensor->rank >= 2 && tensor->name)
                return mm_fail(MM_ERR_UNSUPPORTED,
                               "%s: two layers have the weight %.64s; layers here share an embedding's only", m->path,
                               tensor->name);
        }
    return MM_OK;
}

static mm_status build_layer(onnx_import *m, nets_net *net, onnx_draft *draft) {
    int inputs[NETS_MAX_INPUTS];
    const nets_layer *planned = &draft->layer;
    for (int i = 0; i < planned->n_inputs; i++) inputs[i] = m->drafts[planned->inputs[i]].built;
    draft->built = nets_add(net, planned->name, planned->op, &planned->attrs, inputs, planned->n_inputs);
    const mm_status status = nets_net_status(net);
    if (status != MM_OK) return mm_fail_in(status, "%s: node %.80s", m->path, draft->node);
    const nets_layer *layer = nets_net_layer(net, draft->built);
    MM_TRY(name_params(m, net, draft, layer));
    return give_values(m, net, draft, layer);
}

static void name_net(const char *path, char text_out[NETS_NAME_CAPACITY]) {
    const char *slash = strrchr(path, '/');
    snprintf(text_out, NETS_NAME_CAPACITY, "%.90s", slash ? slash + 1 : path);
    char *dot = strrchr(text_out, '.');
    if (dot && dot != text_out) *dot = '\0';
    for (char *c = text_out; *c; c++)
        if (*c <= ' ' || *c > '~') *c = '_';
    if (!*text_out) strcpy(text_out, "onnx");
}

static mm_status build_layers(onnx_import *m, nets_net *net, int scores) {
    const nets_shape *data = onnx_shape(m, 0);
    onnx_draft *last = &m->drafts[scores];
    const bool token_loss = last->layer.op == NETS_TOKEN_LOSS;
    const int64_t classes = token_loss ? last->layer.attrs.out_channels : nets_shape_channels(&last->layer.shape);
    nets_add_data(net, data->dims[0], data->dims[1], data->dims[2], classes);
    for (int d = 1; d <= scores; d++) {
        if (m->drafts[d].built < 0) continue;
        if (m->drafts[d].kind != ONNX_LAYER) {
            /* The layer that took its padding reads what it reads. */
            m->drafts[d].built = m->drafts[m->drafts[d].layer.inputs[0]].built;
            continue;
        }
        MM_TRY(build_layer(m, net, &m->drafts[d]));
    }
    const char *name = mm_names_find(&m->layer_names, "loss") < 0 ? "loss" : "net.loss";
    if (!token_loss) nets_add1(net, name, NETS_LOSS, NULL, last->built);
    const mm_status status = nets_net_finish(net);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "%s", m->path);
}

mm_status onnx_build(onnx_import *m, nets_net **net_out) {
    char name[NETS_NAME_CAPACITY];
    nets_net *net;
    int scores;
    MM_TRY(find_scores(m, &scores));
    mark(m, scores);
    if (m->classes) MM_TRY(change_classes(m, &m->drafts[scores]));
    if (m->tokens) MM_TRY(make_token_loss(m, &m->drafts[scores]));
    MM_TRY(count_uses(m));
    name_net(m->path, name);
    MM_TRY(nets_net_create(name, &net));
    const mm_status status = build_layers(m, net, scores);
    if (status != MM_OK) {
        nets_net_destroy(net);
        return status;
    }
    *net_out = net;
    return MM_OK;
}
