/* SPDX-License-Identifier: MIT */
#include "tests/core/random_graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"

/* ---------------------------------------------------------------- the graph under construction */

enum { MAX_INPUTS = 8, MAX_USES = 24 };

/* A feature map, and the gradient that the backward pass makes for it. */
typedef struct map {
    mm_tensor tensor, gradient; /* gradient -1: none yet */
    int64_t dims[4];
    bool is_input; /* the input of the network: gets no gradient */
    bool used;     /* a layer reads it */
} map;

/* What a forward layer leaves for its backward step. */
typedef struct layer {
    mm_layer id;
    mm_layer_kind kind;
    int inputs[MAX_INPUTS], n_inputs; /* maps */
    int output;                       /* map; -1 for the loss */
    mm_tensor weight, weight_gradient, optimizer, saved;
} layer;

typedef struct builder {
    mm_graph *graph;
    mm_dtype dtype;
    /* codes, hosts: of the codes that steps take, and of updates on the host; apart, so as not to change the graphs */
    uint64_t random, codes, hosts;
    bool uses_host, repeats;
    int max_channels, images;
    map *maps;
    layer *layers;
    int n_maps, n_layers;
    mm_tensor labels, loss;
    mm_use uses[MAX_USES];
    int n_uses;
    mm_status status; /* of the first call that failed: later ones do nothing */
} builder;

static mm_tensor add_tensor(builder *b, mm_tensor_kind kind, mm_ownership ownership, mm_dtype dtype,
                            const int64_t dims[4], const char *format, ...) MM_PRINTF(6, 7);
static mm_tensor add_tensor(builder *b, mm_tensor_kind kind, mm_ownership ownership, mm_dtype dtype,
                            const int64_t dims[4], const char *format, ...) {
    char name[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    mm_tensor_desc desc = {.name = name, .kind = kind, .ownership = ownership, .dtype = dtype, .rank = 4};
    memcpy(desc.dims, dims, 4 * sizeof *dims);
    mm_tensor tensor = 0;
    if (b->status == MM_OK) b->status = mm_graph_add_tensor(b->graph, &desc, &tensor);
    return tensor;
}

static mm_tensor add_vector(builder *b, mm_tensor_kind kind, mm_ownership ownership, const char *what) {
    int64_t dims[4] = {1, 1, 1, 1 + random_below(&b->random, 8 * b->max_channels)};
    return add_tensor(b, kind, ownership, MM_F32, dims, "%s%d", what, b->n_layers);
}

static int add_map(builder *b, mm_tensor tensor, const int64_t dims[4]) {
    b->maps[b->n_maps] = (map){.tensor = tensor, .gradient = -1};
    memcpy(b->maps[b->n_maps].dims, dims, sizeof b->maps[0].dims);
    return b->n_maps++;
}

static void use(builder *b, mm_tensor tensor, mm_access access, mm_form form) {
    b->uses[b->n_uses++] = (mm_use){tensor, access, form};
}

static void reads(builder *b, mm_tensor tensor) { use(b, tensor, MM_READ, MM_FORM_VALUE); }
static void writes(builder *b, mm_tensor tensor) { use(b, tensor, MM_WRITE, MM_FORM_VALUE); }
static void modifies(builder *b, mm_tensor tensor) { use(b, tensor, MM_MODIFY, MM_FORM_VALUE); }

/* Declares for the step added last which codes it can read and write by itself. */
static void allow_codes(builder *b, const mm_use *use) {
    static const char *const codecs[] = {"test-lossless", "test-lossy", "raw", "dpr", "zfp", "test-mask", "mask"};
    enum { CODECS = sizeof codecs / sizeof *codecs, MASKS = 2 };
    const mm_tensor_info *tensor = mm_graph_tensor(b->graph, use->tensor);
    if (tensor->ownership != MM_MANAGED || tensor->dtype != MM_F32 || use->form != MM_FORM_VALUE) return;
    if (use->access == MM_MODIFY || random_chance(&b->codes, 40)) return;
    for (int i = 0; i < 2 * CODECS; i++) {
        mm_code_use code = {.tensor = use->tensor, .access = i % 2 ? MM_READ : MM_WRITE, .codec = codecs[i / 2]};
        const bool reads = code.access == MM_READ;
        if ((reads && (use->access != MM_READ || i / 2 >= CODECS - MASKS)) || random_chance(&b->codes, 20)) continue;
        code.workspace_bytes = (size_t)random_below(&b->codes, 300);
        if (reads) {
            code.workspace_strips = random_below(&b->codes, 3);
            code.passes = 1 + random_below(&b->codes, 2);
        }
        if (b->status == MM_OK) b->status = mm_graph_allow_code(b->graph, &code);
    }
}

/* Appends the step whose uses were collected. */
static void add_step(builder *b, mm_layer id, mm_phase phase) {
    size_t workspace = random_chance(&b->random, 40) ? (size_t)random_below(&b->random, 3000) : 0;
    if (b->status == MM_OK) b->status = mm_graph_add_step(b->graph, id, phase, b->uses, (size_t)b->n_uses, workspace);
    for (int u = 0; b->status == MM_OK && u < b->n_uses; u++) allow_codes(b, &b->uses[u]);
    b->n_uses = 0;
}

static void allow_inplace(builder *b, mm_tensor input, mm_tensor output) {
    if (b->status == MM_OK) b->status = mm_graph_allow_inplace(b->graph, input, output);
}

static void allow_alias(builder *b, mm_tensor input, mm_tensor output) {
    if (b->status == MM_OK) b->status = mm_graph_allow_alias(b->graph, input, output);
}

static layer *add_layer(builder *b, mm_layer_kind kind) {
    char name[64];
    layer *l = &b->layers[b->n_layers++];
    *l = (layer){.kind = kind, .output = -1, .weight = -1, .weight_gradient = -1, .optimizer = -1, .saved = -1};
    snprintf(name, sizeof name, "%s%d", mm_layer_kind_name(kind), b->n_layers);
    if (b->status == MM_OK) b->status = mm_graph_add_layer(b->graph, name, kind, &l->id);
    /* Mock steps repeat. With `repeats`, one layer in five of those that need not say so says that it does not. */
    const bool more = b->repeats && (kind == MM_LAYER_DATA || (kind == MM_LAYER_OTHER && b->n_layers % 5 != 0));
    if (b->status == MM_OK && (kind == MM_LAYER_DROPOUT || more))
        b->status = mm_graph_set_properties(b->graph, l->id, &(mm_layer_properties){MM_LAYER_CHEAP, true});
    return l;
}

/* ---------------------------------------------------------------- forward */

static mm_tensor take_input(builder *b, layer *l, int index) {
    l->inputs[l->n_inputs++] = index;
    b->maps[index].used = true;
    return b->maps[index].tensor;
}

static mm_tensor make_output(builder *b, layer *l, const int64_t dims[4]) {
    mm_tensor t = add_tensor(b, MM_FEATURE_MAP, MM_MANAGED, b->dtype, dims, "map%d", b->n_layers);
    l->output = add_map(b, t, dims);
    return t;
}

/* A recent map more often than an old one: chains with branches. */
static int pick_map(builder *b) {
    if (random_chance(&b->random, 70)) return b->n_maps - 1;
    return random_below(&b->random, b->n_maps);
}

static void add_weights(builder *b, layer *l) {
    l->weight = add_vector(b, MM_WEIGHT, MM_PERSISTENT, "weight");
    const mm_tensor_info *w = b->status == MM_OK ? mm_graph_tensor(b->graph, l->weight) : NULL;
    int64_t dims[4] = {1, 1, 1, w ? w->dims[3] : 1};
    mm_ownership ownership = random_chance(&b->random, 50) ? MM_PERSISTENT : MM_MANAGED;
    l->weight_gradient = add_tensor(b, MM_WEIGHT_GRADIENT, ownership, MM_F32, dims, "weight_gradient%d", b->n_layers);
    if (random_chance(&b->random, 50))
        l->optimizer = add_tensor(b, MM_OPTIMIZER, MM_PERSISTENT, MM_F32, dims, "momentum%d", b->n_layers);
}

static void forward_conv(builder *b, mm_layer_kind kind) {
    int x = pick_map(b);
    layer *l = add_layer(b, kind);
    int64_t dims[4];
    memcpy(dims, b->maps[x].dims, sizeof dims);
    dims[3] = 1 + random_below(&b->random, b->max_channels);
    add_weights(b, l);
    reads(b, take_input(b, l, x));
    reads(b, l->weight);
    writes(b, make_output(b, l, dims));
    add_step(b, l->id, MM_FORWARD);
}

static void forward_batch_norm(builder *b) {
    int x = pick_map(b);
    layer *l = add_layer(b, MM_LAYER_BATCH_NORM);
    add_weights(b, l);
    l->saved = add_vector(b, MM_SAVED, MM_MANAGED, "saved");
    reads(b, take_input(b, l, x));
    reads(b, l->weight);
    modifies(b, add_vector(b, MM_STATE, MM_PERSISTENT, "running"));
    writes(b, l->saved);
    writes(b, make_output(b, l, b->maps[x].dims));
    add_step(b, l->id, MM_FORWARD);
}

/* ReLU, dropout, pooling. */
static void forward_unary(builder *b, mm_layer_kind kind) {
    int x = pick_map(b);
    layer *l = add_layer(b, kind);
    int64_t dims[4];
    memcpy(dims, b->maps[x].dims, sizeof dims);
    bool pool = kind == MM_LAYER_POOL;
    if (pool) {
        dims[1] = (dims[1] + 1) / 2;
        dims[2] = (dims[2] + 1) / 2;
    }
    mm_tensor input = take_input(b, l, x);
    reads(b, input);
    if (kind != MM_LAYER_RELU) {
        l->saved = add_tensor(b, MM_SAVED, MM_MANAGED, MM_U8, dims, "saved%d", b->n_layers);
        writes(b, l->saved);
    }
    mm_tensor output = make_output(b, l, dims);
    writes(b, output);
    add_step(b, l->id, MM_FORWARD);
    if (!pool && !b->maps[x].is_input) allow_inplace(b, input, output);
}

/* A sum of the last map and an earlier one of the same shape; nothing if there is none. */
static void forward_add(builder *b) {
    int a = b->n_maps - 1, other = -1;
    for (int i = 0; i < a; i++)
        if (memcmp(b->maps[i].dims, b->maps[a].dims, sizeof b->maps[i].dims) == 0 && !b->maps[i].is_input &&
            (other < 0 || random_chance(&b->random, 40)))
            other = i;
    if (other < 0 || b->maps[a].is_input) return;
    layer *l = add_layer(b, MM_LAYER_ADD);
    mm_tensor x = take_input(b, l, a), y = take_input(b, l, other);
    reads(b, x);
    reads(b, y);
    mm_tensor output = make_output(b, l, b->maps[a].dims);
    writes(b, output);
    add_step(b, l->id, MM_FORWARD);
    allow_inplace(b, x, output);
    allow_inplace(b, y, output);
}

/* Reads many earlier maps, as a dense block does. */
static void forward_concat(builder *b) {
    layer *l = add_layer(b, MM_LAYER_OTHER);
    int64_t dims[4] = {1, 4, 4, 0};
    for (int i = b->n_maps - 1; i >= 0 && l->n_inputs < MAX_INPUTS; i--) {
        if (i < b->n_maps - 1 && !random_chance(&b->random, 50)) continue;
        dims[3]++;
        reads(b, take_input(b, l, i));
    }
    writes(b, make_output(b, l, dims));
    add_step(b, l->id, MM_FORWARD);
}

/* One tensor that is written, read, written again and read again; other layers in between. */
static void forward_rewritten(builder *b) {
    int64_t dims[4] = {1, 1, 1, 1 + random_below(&b->random, 500)};
    mm_tensor t = add_tensor(b, MM_FEATURE_MAP, MM_MANAGED, b->dtype, dims, "rewritten%d", b->n_layers);
    for (int round = 0; round < 2; round++) {
        layer *writer = add_layer(b, MM_LAYER_OTHER);
        reads(b, b->maps[pick_map(b)].tensor);
        use(b, t, round > 0 && random_chance(&b->random, 50) ? MM_MODIFY : MM_WRITE, MM_FORM_VALUE);
        add_step(b, writer->id, MM_FORWARD);
        for (int i = random_below(&b->random, 3); i > 0; i--) forward_conv(b, MM_LAYER_CONV);
        layer *reader = add_layer(b, MM_LAYER_OTHER);
        use(b, t, MM_READ, random_chance(&b->random, 50) ? MM_FORM_SIGN : MM_FORM_VALUE);
        modifies(b, b->loss);
        add_step(b, reader->id, MM_FORWARD);
    }
}

static void forward_any(builder *b) {
    switch (random_below(&b->random, 10)) {
    case 0:
    case 1:
        forward_conv(b, MM_LAYER_CONV);
        break;
    case 2:
        forward_conv(b, MM_LAYER_LINEAR);
        break;
    case 3:
        forward_batch_norm(b);
        break;
    case 4:
    case 5:
        forward_unary(b, MM_LAYER_RELU);
        break;
    case 6:
        forward_unary(b, random_chance(&b->random, 50) ? MM_LAYER_POOL : MM_LAYER_DROPOUT);
        break;
    case 7:
    case 8:
        forward_add(b);
        break;
    default:
        if (random_chance(&b->random, 40))
            forward_rewritten(b);
        else
            forward_concat(b);
    }
}

/* Reads every map that nobody has read yet. */
static void forward_loss(builder *b) {
    while (true) {
        int unused = 0;
        for (int i = 0; i < b->n_maps; i++) unused += !b->maps[i].used;
        if (unused <= MAX_INPUTS) break;
        layer *l = add_layer(b, MM_LAYER_OTHER);
        int64_t dims[4] = {1, 2, 2, 3};
        for (int i = 0; i < b->n_maps && l->n_inputs < MAX_INPUTS; i++)
            if (!b->maps[i].used) reads(b, take_input(b, l, i));
        writes(b, make_output(b, l, dims));
        add_step(b, l->id, MM_FORWARD);
    }
    layer *l = add_layer(b, MM_LAYER_LOSS);
    for (int i = 0; i < b->n_maps; i++)
        if (!b->maps[i].used) reads(b, take_input(b, l, i));
    reads(b, b->labels);
    modifies(b, b->loss);
    add_step(b, l->id, MM_FORWARD);
}

/* ---------------------------------------------------------------- backward and update */

/* Adds the use by which a step gives a map its part of the gradient: the first step writes the gradient, others modify
 * it. Returns the gradient if it is written, else -1. */
static mm_tensor give_gradient(builder *b, int index) {
    map *m = &b->maps[index];
    if (m->is_input) return -1;
    if (m->gradient >= 0) {
        modifies(b, m->gradient);
        return -1;
    }
    m->gradient = add_tensor(b, MM_GRADIENT_MAP, MM_MANAGED, b->dtype, m->dims, "d_map%d", index);
    writes(b, m->gradient);
    return m->gradient;
}

static void backward_reads(builder *b, const layer *l) {
    const map *x = &b->maps[l->inputs[0]];
    if (l->saved >= 0) reads(b, l->saved);
    if (l->weight >= 0) reads(b, l->weight);
    switch (l->kind) {
    case MM_LAYER_RELU:
        use(b, b->maps[l->output].tensor, MM_READ, MM_FORM_SIGN);
        break;
    case MM_LAYER_CONV:
    case MM_LAYER_LINEAR:
    case MM_LAYER_BATCH_NORM:
        reads(b, x->tensor);
        break;
    case MM_LAYER_OTHER:
        for (int i = 0; i < l->n_inputs; i++)
            if (random_chance(&b->random, 40))
                use(b, b->maps[l->inputs[i]].tensor, MM_READ,
                    random_chance(&b->random, 40) ? MM_FORM_SIGN : MM_FORM_VALUE);
        break;
    case MM_LAYER_LOSS:
        reads(b, b->labels);
        for (int i = 0; i < l->n_inputs; i++) reads(b, b->maps[l->inputs[i]].tensor);
        break;
    default:
        break;
    }
}

static void backward(builder *b, const layer *l) {
    if (l->n_inputs == 0) return;
    bool same_shape = l->kind == MM_LAYER_RELU || l->kind == MM_LAYER_BATCH_NORM || l->kind == MM_LAYER_DROPOUT;
    mm_tensor written[MAX_INPUTS], dy = l->output >= 0 ? b->maps[l->output].gradient : -1;
    backward_reads(b, l);
    if (dy >= 0) reads(b, dy);
    for (int i = 0; i < l->n_inputs; i++) written[i] = give_gradient(b, l->inputs[i]);
    if (l->weight_gradient >= 0) writes(b, l->weight_gradient);
    add_step(b, l->id, MM_BACKWARD);
    for (int i = 0; i < l->n_inputs; i++) {
        if (written[i] < 0 || dy < 0) continue;
        if (l->kind == MM_LAYER_ADD) allow_alias(b, dy, written[i]);
        if (same_shape) allow_inplace(b, dy, written[i]);
    }
}

/* Whether a layer's update can run on the host: its tensors are persistent, and the first step does not use them. */
static bool may_host(const builder *b, const layer *l) {
    return b->uses_host && b->status == MM_OK && mm_graph_layer(b->graph, l->id)->step[MM_FORWARD] > 0 &&
           mm_graph_tensor(b->graph, l->weight_gradient)->ownership == MM_PERSISTENT;
}

static void update(builder *b, const layer *l) {
    reads(b, l->weight_gradient);
    modifies(b, l->weight);
    if (l->optimizer >= 0) modifies(b, l->optimizer);
    if (may_host(b, l) && random_chance(&b->hosts, 60)) {
        b->status = mm_graph_add_step(b->graph, l->id, MM_UPDATE, b->uses, (size_t)b->n_uses, 0);
        if (b->status == MM_OK) b->status = mm_graph_run_on_host(b->graph);
        b->n_uses = 0;
        return;
    }
    add_step(b, l->id, MM_UPDATE);
}

static void add_backward(builder *b) {
    bool at_once = random_chance(&b->random, 30);
    for (int i = b->n_layers - 1; i >= 0; i--) {
        backward(b, &b->layers[i]);
        if (at_once && b->layers[i].weight >= 0) update(b, &b->layers[i]);
    }
    for (int i = 0; !at_once && i < b->n_layers; i++)
        if (b->layers[i].weight >= 0) update(b, &b->layers[i]);
}

static void add_data(builder *b) {
    int64_t side = 2 + random_below(&b->random, 7), labels[4] = {1, 1, 1, 16};
    int64_t dims[4] = {1 + random_below(&b->random, 2), side, side, 1 + random_below(&b->random, b->max_channels)};
    if (b->images > 0) dims[0] = b->images;
    bool external = random_chance(&b->random, 50);
    b->labels = add_tensor(b, MM_INPUT, MM_EXTERNAL, MM_I32, labels, "labels");
    b->loss = add_tensor(b, MM_STATE, MM_PERSISTENT, MM_F32, labels, "loss");
    mm_tensor images = add_tensor(b, MM_INPUT, external ? MM_EXTERNAL : MM_MANAGED, MM_F32, dims, "images");
    b->maps[add_map(b, images, dims)].is_input = true;
    if (external) return;
    layer *l = add_layer(b, MM_LAYER_DATA);
    reads(b, b->labels);
    writes(b, images);
    add_step(b, l->id, MM_FORWARD);
}

static mm_status share(builder *b, mm_allreduce_when shares) {
    bool updates = false;
    for (int i = 0; i < b->n_layers; i++) {
        const layer *l = &b->layers[i];
        updates |= l->weight >= 0;
        if (l->weight >= 0 && mm_graph_tensor(b->graph, l->weight_gradient)->ownership == MM_PERSISTENT)
            MM_TRY(mm_graph_allreduce(b->graph, l->weight_gradient, shares, MM_REDUCE_SUM));
    }
    return updates ? mm_graph_allreduce(b->graph, b->loss, shares, MM_REDUCE_SUM) : MM_OK;
}

mm_status random_graph_create(const random_graph_options *options, mm_graph **graph_out) {
    char name[64];
    /* A layer of the options becomes up to eight, and the loss joins maps by eights; a layer makes one map at most. */
    size_t capacity = 10 * (size_t)options->layers + 16;
    builder b = {.random = options->seed,
                 .codes = options->seed + 1,
                 .hosts = options->seed + 2,
                 .uses_host = options->hosts && options->shares == MM_ALLREDUCE_NOT,
                 .repeats = options->repeats,
                 .dtype = options->dtype,
                 .max_channels = options->max_channels,
                 .images = options->images,
                 .maps = calloc(capacity, sizeof *b.maps),
                 .layers = calloc(capacity, sizeof *b.layers)};
    snprintf(name, sizeof name, "random%llu", (unsigned long long)options->seed);
    b.status = b.maps && b.layers ? mm_graph_create(name, &b.graph) : mm_fail(MM_ERR_NOMEM, "out of memory");
    if (b.status == MM_OK) {
        add_data(&b);
        for (int i = 0; i < options->layers; i++) forward_any(&b);
        forward_loss(&b);
        add_backward(&b);
    }
    if (b.status == MM_OK) b.status = share(&b, options->shares);
    if (b.status == MM_OK) b.status = mm_graph_freeze(b.graph);
    free(b.maps);
    free(b.layers);
    if (b.status == MM_OK)
        *graph_out = b.graph;
    else
        mm_graph_destroy(b.graph);
    return b.status;
}
