/* SPDX-License-Identifier: MIT */
/* Rewrites a network so that it has adapters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/adapt.h"
#include "nets/layer_names.h"

/* ---------------------------------------------------------------- which layers */

/* Whether the operation only passes on channels, between a projection and attention. */
static bool passes_on(nets_op_kind op) {
    return op == NETS_CONCAT || op == NETS_ROTARY || op == NETS_CROP || op == NETS_DROPOUT;
}

typedef struct place {
    bool attention, scores; /* scores: its output is the loss's input */
    bool before, behind;    /* attention, with only operations that pass on between */
    bool chosen;
} place;

static void find_places(const nets_net *net, place *places, bool *linear) {
    const int n = nets_net_layers(net);
    for (int i = n - 1; i >= 0; i--) {
        const nets_layer *layer = nets_net_layer(net, i);
        const bool before = layer->op == NETS_ATTENTION || (passes_on(layer->op) && places[i].before);
        for (int k = 0; k < layer->n_inputs; k++) {
            places[layer->inputs[k]].before |= before;
            places[layer->inputs[k]].scores |= i == n - 1;
        }
    }
    for (int i = 0; i < n; i++) {
        const nets_layer *layer = nets_net_layer(net, i);
        bool behind = false;
        for (int k = 0; k < layer->n_inputs; k++) behind |= places[layer->inputs[k]].behind;
        linear[i] = layer->op == NETS_LINEAR || layer->op == NETS_PROJECT;
        places[i].attention = linear[i] && (places[i].before || behind);
        places[i].behind = layer->op == NETS_ATTENTION || (passes_on(layer->op) && behind);
    }
}

static bool is_chosen(const nets_name *n, const place *p, const char *layer) {
    if (nets_name_is(n, "attention")) return p->attention;
    if (nets_name_is(n, "mlp")) return !p->attention && !p->scores;
    if (nets_name_is(n, "all")) return p->attention || !p->scores;
    return nets_name_ends(n, layer);
}

static mm_status choose(const nets_net *net, const nets_lora *lora, const bool *linear, place *places) {
    const char *at = lora->layers;
    const int layers = nets_net_layers(net);
    nets_name n;
    while (nets_name_next(&at, &n)) {
        int found = 0;
        for (int i = 0; i < layers; i++) {
            const bool chosen = linear[i] && is_chosen(&n, &places[i], nets_net_layer(net, i)->name);
            places[i].chosen |= chosen;
            found += chosen;
        }
        if (!found) return nets_name_refuse(net, "--lora", &n, linear, "linear layer");
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- adapters */

/* The adapters' name: that of the layer's weight without ".weight"; else the layer's. */
static void name_adapter(const nets_net *net, const nets_layer *layer, char text_out[NETS_PARAM_NAME_CAPACITY]) {
    static const char end[] = ".weight";
    const char *weight = nets_net_param(net, layer->first_param)->name;
    const size_t length = strlen(weight), cut = sizeof end - 1;
    const bool ends = length > cut && strcmp(weight + length - cut, end) == 0;
    snprintf(text_out, NETS_PARAM_NAME_CAPACITY, "%.*s", (int)(ends ? length - cut : strlen(layer->name)),
             ends ? weight : layer->name);
}

/* Adds the adapter of a layer of x with output y. Returns the sum. */
static int add_adapter(const nets_net *net, const nets_layer *layer, const nets_lora *lora, int x, int y,
                       nets_net *copy) {
    const nets_param *weight = nets_net_param(net, layer->first_param);
    const int64_t out = layer->attrs.out_channels, in = weight->elems / out;
    const bool tokens = layer->op == NETS_PROJECT;
    const double scale = lora->alpha / (double)lora->rank;
    char base[NETS_PARAM_NAME_CAPACITY], part[NETS_PARAM_NAME_CAPACITY + 16];
    name_adapter(net, layer, base);
    const nets_attrs a = {
        .out_channels = lora->rank, .by_output = tokens, .deviation = tokens ? (float)sqrt(1 / (3.0 * (double)in)) : 0};
    const nets_attrs b = {.out_channels = out, .by_output = true, .zero = true};
    snprintf(part, sizeof part, "%s.lora_A", base);
    int z = nets_add1(copy, part, layer->op, &a, x);
    snprintf(part, sizeof part, "%s.lora_scale", base);
    if (scale != 1) z = nets_add1(copy, part, NETS_SCALE, &(nets_attrs){.slope = (float)scale}, z);
    snprintf(part, sizeof part, "%s.lora_B", base);
    z = nets_add1(copy, part, NETS_PROJECT, &b, z);
    snprintf(part, sizeof part, "%s.lora_add", base);
    return nets_add(copy, part, NETS_ADD, NULL, (const int[]){y, z}, 2);
}

static mm_status check_rank(const nets_net *net, const nets_layer *layer, const nets_lora *lora) {
    const int64_t out = layer->attrs.out_channels, in = nets_net_param(net, layer->first_param)->elems / out;
    if (lora->rank <= in && lora->rank <= out) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--lora: rank=%lld is larger than layer %s, which has %lld inputs and %lld outputs",
                   (long long)lora->rank, layer->name, (long long)in, (long long)out);
}

/* of[i]: the layer of `copy` whose output is that of layer i. */
static mm_status copy_all(const nets_net *net, const nets_lora *lora, const place *places, int *of, nets_net *copy) {
    nets_add_samples(copy, &nets_net_layer(net, 0)->shape, nets_net_classes(net));
    MM_TRY(nets_net_status(copy));
    of[0] = 0;
    for (int i = 1; i < nets_net_layers(net); i++) {
        const nets_layer *layer = nets_net_layer(net, i);
        int inputs[NETS_MAX_INPUTS];
        for (int k = 0; k < layer->n_inputs; k++) inputs[k] = of[layer->inputs[k]];
        MM_TRY(nets_copy_layer(net, i, inputs, copy));
        of[i] = nets_net_layers(copy) - 1;
        nets_freeze(copy, of[i]);
        if (!places[i].chosen) continue;
        MM_TRY(check_rank(net, layer, lora));
        of[i] = add_adapter(net, layer, lora, inputs[0], of[i], copy);
        MM_TRY(nets_net_status(copy));
    }
    return nets_net_finish(copy);
}

static void move_values(nets_net *from, nets_net *to) {
    for (int i = 0; i < nets_net_params(from); i++) {
        float *values = nets_take_values(from, i);
        if (values) nets_give_values(to, nets_net_find_param(to, nets_net_param(from, i)->name), values);
    }
}

mm_status nets_lora_add(const nets_lora *lora, nets_net **net) {
    const size_t n = (size_t)nets_net_layers(*net);
    nets_net *copy = NULL;
    place *places = calloc(n, sizeof *places);
    bool *linear = calloc(n, sizeof *linear);
    int *of = malloc(n * sizeof *of);
    mm_status status =
        places && linear && of ? MM_OK : mm_fail(MM_ERR_NOMEM, "net %s: no memory for adapters", nets_net_name(*net));
    if (status == MM_OK) {
        find_places(*net, places, linear);
        status = choose(*net, lora, linear, places);
    }
    if (status == MM_OK) status = nets_net_create(nets_net_name(*net), &copy);
    if (status == MM_OK) status = copy_all(*net, lora, places, of, copy);
    free(places);
    free(linear);
    free(of);
    if (status != MM_OK) {
        nets_net_destroy(copy);
        return status;
    }
    move_values(*net, copy);
    nets_net_destroy(*net);
    *net = copy;
    return MM_OK;
}
