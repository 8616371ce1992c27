/* SPDX-License-Identifier: MIT */
#include "nets/lower/lower.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "nets/contract/op_sizes.h"
#include "nets/lower/fuse.h"
#include "nets/lower/lower_persistent.h"
#include "nets/lower/param_parts.h"
#include "nets/net_ops.h"

/* What is known of a layer's output while lowering. */
typedef struct layer_state {
    mm_layer graph_layer;
    nets_op *op;
    mm_tensor value;                 /* its output; if the layer is the identity, its input */
    mm_tensor saved[NETS_MAX_SAVED]; /* -1 past the last one */
    mm_tensor gradient;              /* the sum of the contributions so far; -1: none yet */
    int consumers, contributions;    /* numbers of gradients that add up to the output's: in all, and so far */
    int last_reader;                 /* the last layer that reads the output; -1: none */
    bool wants_gradient;             /* the layer, or one that it depends on, has parameters that train */
} layer_state;

typedef struct lowering {
    nets_lowered *out;
    nets_backend *backend;
    bool no_fuse;
    nets_op_desc *descs; /* descriptions of out->ops */
    layer_state *layers;
    nets_fused *fused; /* one for each layer */
} lowering;

/* What is computed in a layer's place: the layer; a batch norm with the sum and the ReLU fused to it, then the layer is
 * that ReLU; or a product with the SiLU fused to it. */
typedef struct unit {
    const nets_layer *layer; /* gives operation, parameters and name */
    const nets_layer *bias;  /* gives the bias; NULL: none */
    int inputs[NETS_MAX_INPUTS];
    int n_inputs;
    bool relu; /* a batch norm with a fused ReLU */
    bool silu; /* a product with a fused SiLU */
} unit;

static unit unit_of(const lowering *lo, int index) {
    const nets_net *net = lo->out->net;
    const nets_fused *fused = &lo->fused[index];
    const nets_layer *layer = nets_net_layer(net, fused->norm >= 0 ? fused->norm : index);
    unit u = {.layer = layer, .bias = fused->no_bias ? NULL : layer, .n_inputs = layer->n_inputs};
    memcpy(u.inputs, layer->inputs, sizeof u.inputs);
    u.relu = fused->norm >= 0;
    u.silu = fused->gate >= 0;
    if (u.silu) u.inputs[0] = nets_net_layer(net, fused->gate)->inputs[0];
    if (fused->addend >= 0) u.inputs[u.n_inputs++] = fused->addend;
    if (fused->biased >= 0) u.bias = nets_net_layer(net, fused->biased);
    return u;
}

/* The unit's first input that comes from the same layer as `input`. */
static int first_of(const unit *u, int input) {
    int first = 0;
    while (u->inputs[first] != u->inputs[input]) first++;
    return first;
}

/* ---------------------------------------------------------------- tensors */

/* A managed tensor named after a layer. */
static mm_status add_named(lowering *lo, int layer, mm_tensor_kind kind, mm_dtype dtype, const nets_shape *shape,
                           const char *prefix, const char *suffix, mm_tensor *tensor_out) {
    char name[2 * NETS_NAME_CAPACITY];
    snprintf(name, sizeof name, "%s%s.%s", prefix, nets_net_layer(lo->out->net, layer)->name, suffix);
    return nets_lower_tensor(lo->out->graph, kind, MM_MANAGED, dtype, shape->rank, shape->dims, name, tensor_out);
}

/* A map of a layer's output shape. */
static mm_status add_map(lowering *lo, int layer, mm_tensor_kind kind, const char *prefix, const char *suffix,
                         mm_tensor *tensor_out) {
    nets_shape shape;
    MM_TRY(nets_net_shape(lo->out->net, layer, lo->out->batch, &shape));
    const bool wide = nets_op_info_of(nets_net_layer(lo->out->net, layer)->op)->f32_output;
    return add_named(lo, layer, kind, wide ? MM_F32 : lo->backend->maps, &shape, prefix, suffix, tensor_out);
}

/* Sets a layer's parameters and their gradients by role; the roles in `others` are another layer's. */
static void map_params(const lowering *lo, const nets_layer *layer, uint64_t others, mm_tensor tensors[NETS_ROLES]) {
    for (int i = layer->first_param; i < layer->first_param + layer->n_params; i++) {
        int place = nets_net_param(lo->out->net, i)->place;
        if (others & NETS_ROLE_BIT(NETS_PARAM + place)) continue;
        tensors[NETS_PARAM + place] = lo->out->params[i].value;
        tensors[NETS_DPARAM + place] = lo->out->params[i].gradient;
    }
    const int read = nets_factor_of(layer) >= 0 ? nets_factor_of(layer) : layer->first_param;
    const bool rounds = nets_factor_of(layer) >= 0 || (layer->n_params > 0 && lo->out->params[read].value < 0);
    if (rounds && !(others & NETS_ROLE_BIT(NETS_W))) tensors[NETS_W16] = lo->out->params[read].copy;
    if (layer->tied_param < 0 || others) return;
    tensors[NETS_PARAM] = lo->out->params[layer->tied_param].value;
    tensors[NETS_DPARAM] = lo->out->params[layer->tied_param].gradient;
}

/* ---------------------------------------------------------------- ops */

static bool descs_equal(const nets_op_desc *a, const nets_op_desc *b) {
    bool equal = a->n_inputs == b->n_inputs && nets_shape_equal(&a->y, &b->y);
    for (int i = 0; equal && i < a->n_inputs; i++) equal = nets_shape_equal(&a->x[i], &b->x[i]);
    return equal && a->kind == b->kind && a->maps == b->maps && a->f32_inputs == b->f32_inputs &&
           nets_attrs_equal(&a->attrs, &b->attrs) && a->training == b->training && a->wants_dx == b->wants_dx &&
           a->adds_earlier == b->adds_earlier && a->shared == b->shared && a->relu == b->relu && a->silu == b->silu &&
           a->frozen == b->frozen && a->part_rows == b->part_rows && a->parts_only == b->parts_only &&
           a->pass.whole == b->pass.whole && a->pass.adds == b->pass.adds;
}

/* Chosen: ten times as many as any network of the zoo has. Each takes a millisecond and 0.3 MiB to prepare. */
enum { OPS_MOST = 2048 };

static mm_status find_op(lowering *lo, const nets_op_desc *desc, nets_op **op_out) {
    nets_lowered *out = lo->out;
    for (int i = 0; i < out->n_ops; i++) {
        if (!descs_equal(&lo->descs[i], desc)) continue;
        *op_out = out->ops[i];
        return MM_OK;
    }
    if (out->n_ops == OPS_MOST)
        return mm_fail(MM_ERR_UNSUPPORTED, "net %s: more than %d layers differ in operation or shape",
                       nets_net_name(out->net), OPS_MOST);
    MM_TRY(nets_op_create(lo->backend, desc, &out->ops[out->n_ops]));
    lo->descs[out->n_ops] = *desc;
    *op_out = out->ops[out->n_ops++];
    return MM_OK;
}

static void find_readers(lowering *lo) {
    const int n = nets_net_layers(lo->out->net);
    for (int i = 0; i < n; i++) lo->layers[i].last_reader = -1;
    for (int reader = 0; reader < n; reader++) {
        const unit u = unit_of(lo, reader);
        for (int i = 0; lo->fused[reader].within == reader && i < u.n_inputs; i++)
            lo->layers[u.inputs[i]].last_reader = reader;
    }
}

/* The shapes of a unit's inputs and of its output, with the batch. */
static mm_status shapes_of(const lowering *lo, const unit *u, int index, nets_shape x_out[NETS_MAX_INPUTS],
                           nets_shape *y_out) {
    for (int i = 0; i < u->n_inputs; i++) {
        MM_TRY(nets_net_shape(lo->out->net, u->inputs[i], lo->out->batch, &x_out[i]));
        if (u->inputs[i] == 0 && lo->out->pads_images) x_out[i].dims[x_out[i].rank - 1] = 4;
    }
    return nets_net_shape(lo->out->net, index, lo->out->batch, y_out);
}

/* Sets the types of the layer's maps and inputs, and the size of its factor. */
static void set_types(const lowering *lo, const unit *u, nets_op_desc *desc) {
    const int factor = nets_factor_of(u->layer);
    desc->maps = lo->backend->maps;
    for (int i = 0; i < u->n_inputs; i++) {
        const mm_tensor input = lo->layers[u->inputs[i]].value;
        if (mm_graph_tensor(lo->out->graph, input)->dtype == MM_F32) desc->f32_inputs |= 1u << i;
    }
    if (factor >= 0) desc->factor_elems = nets_order_elems(&lo->out->params[factor].order);
}

static mm_status make_op(lowering *lo, int index) {
    const unit u = unit_of(lo, index);
    nets_op_desc desc = {
        .kind = u.layer->op, .attrs = u.layer->attrs, .relu = u.relu, .silu = u.silu, .n_inputs = u.n_inputs};
    desc.attrs.bias = u.bias && u.bias->attrs.bias;
    set_types(lo, &u, &desc);
    MM_TRY(shapes_of(lo, &u, index, desc.x, &desc.y));
    desc.training = lo->out->mode == NETS_TRAIN;
    desc.wants_dx = desc.training && lo->layers[u.inputs[0]].wants_gradient;
    desc.pass = lo->out->pass;
    desc.frozen = desc.training && nets_layer_is_frozen(lo->out->net, u.layer);
    for (int i = 0; i < u.layer->n_params && !desc.frozen; i++)
        desc.shared |= desc.training && nets_net_param(lo->out->net, u.layer->first_param + i)->shared;
    const int weight = nets_parts_weight(u.layer);
    if (weight >= 0) {
        desc.part_rows = lo->out->params[weight].part_rows;
        desc.parts_only = lo->out->params[weight].parts_only;
    }
    /* Backward steps run from the last layer on, so a later reader of the input has written its gradient before. */
    desc.adds_earlier = desc.wants_dx && lo->layers[u.inputs[0]].last_reader > index;
    mm_status status = find_op(lo, &desc, &lo->layers[index].op);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "layer %s", u.layer->name);
}

/* ---------------------------------------------------------------- steps */

static void map_roles(lowering *lo, int index, mm_tensor tensors[NETS_ROLES]) {
    const unit u = unit_of(lo, index);
    const layer_state *state = &lo->layers[index];
    for (int r = 0; r < NETS_ROLES; r++) tensors[r] = -1;
    for (int i = 0; i < NETS_MAX_SAVED; i++) tensors[NETS_SAVED + i] = state->saved[i];
    for (int i = 0; i < u.n_inputs; i++) tensors[NETS_X + i] = lo->layers[u.inputs[i]].value;
    tensors[NETS_Y] = state->value;
    tensors[NETS_DY] = state->gradient;
    map_params(lo, u.layer, u.bias == u.layer ? 0 : NETS_ROLE_BIT(NETS_B), tensors);
    if (u.bias && u.bias != u.layer) map_params(lo, u.bias, ~NETS_ROLE_BIT(NETS_B), tensors);
    tensors[NETS_LABELS] = lo->out->labels;
    /* The loss reads rng only for the index of a pass's images in the whole batch. */
    if (!nets_op_info_of(u.layer->op)->loss || lo->out->pass.whole > 0) tensors[NETS_RNG] = lo->out->rng;
    tensors[NETS_LOSS_VALUE] = lo->out->loss;
    tensors[NETS_CORRECT] = lo->out->correct;
}

/* Whether the list of uses has the tensor already. Two roles of a step may be one tensor (op.h), which is one use: two
 * inputs, or a gradient that the step writes and then adds to. */
static bool is_used(const mm_use *uses, size_t n, mm_tensor tensor) {
    for (size_t i = 0; i < n; i++)
        if (uses[i].tensor == tensor) return true;
    return false;
}

/* Whether the step writes the tensor as one input's gradient, then adds another input's to it. */
static bool is_written_twice(const nets_step *step, mm_tensor tensor) {
    int times = 0;
    for (int r = NETS_DX; r <= NETS_DX_LAST; r++) times += step->tensors[r] == tensor;
    return times > 1;
}

static mm_status add_pair(mm_graph *graph, const nets_step *step, const nets_role_pair *pair) {
    mm_tensor input = step->tensors[pair->input], output = step->tensors[pair->output];
    if (input < 0 || output < 0 || is_written_twice(step, output)) return MM_OK;
    if (mm_graph_tensor(graph, input)->dtype != mm_graph_tensor(graph, output)->dtype) return MM_OK;
    mm_tensor earlier = pair->pairing == NETS_OVER ? -1 : step->tensors[NETS_EARLIER + (pair->output - NETS_DX)];
    if (earlier >= 0) return mm_graph_allow_inplace(graph, earlier, output);
    return pair->pairing == NETS_EQUAL_OR_EARLIER ? mm_graph_allow_alias(graph, input, output)
                                                  : mm_graph_allow_inplace(graph, input, output);
}

/* Whether the step adds to what the role's tensor has from earlier passes, or from another layer with the same
 * parameter. */
static bool adds_to(const nets_step *step, const nets_lowered *out, nets_role role) {
    const bool gradient = role >= NETS_DPARAM && role <= NETS_DPARAM_LAST;
    if (gradient && step->op && step->op->adds) return true;
    return out->pass.adds && (gradient || role == NETS_LOSS_VALUE || role == NETS_CORRECT);
}

/* Whether the gradient of the layer's weight is computed in parts alone, by a step of its own. */
static bool is_in_parts(const lowering *lo, const nets_layer *layer) {
    const int weight = nets_parts_weight(layer);
    return weight >= 0 && lo->out->params[weight].parts_only;
}

/* Whether the step computes the gradient of this role though the parameter is frozen. */
static bool gives_frozen(const lowering *lo, int index, nets_role role, const mm_tensor tensors[NETS_ROLES]) {
    if (role < NETS_DPARAM || role > NETS_DPARAM_LAST || lo->out->mode != NETS_TRAIN) return false;
    if (tensors[NETS_PARAM + (role - NETS_DPARAM)] < 0) return false;
    if (role == NETS_DW && is_in_parts(lo, unit_of(lo, index).layer)) return false;
    return !nets_op_info_of(unit_of(lo, index).layer->op)->skips_frozen;
}

/* Places gradients, of which `bytes` has the sizes, in the step's workspace (nets_step.addend): those that the executor
 * adds up, and those of frozen parameters. The op's own workspace is behind them. */
static void place_addends(const lowering *lo, nets_step *step, int64_t bytes[NETS_MAX_PARAMS]) {
    for (int i = 0; i < NETS_MAX_PARAMS; i++) {
        const mm_tensor gradient = step->tensors[NETS_DPARAM + i];
        if (gradient >= 0 && lo->out->pass.adds && !step->op->adds)
            bytes[i] = mm_graph_tensor(lo->out->graph, gradient)->bytes;
        step->addend[i] = bytes[i] > 0 ? step->op_workspace_at : -1;
        step->op_workspace_at += nets_aligned(bytes[i]);
    }
}

/* Adds the step to the graph, with each size of workspace that the op runs with. */
static mm_status add_to_graph(const lowering *lo, const nets_step *step, const mm_use *uses, size_t n_uses) {
    const nets_workspaces own = step->op ? nets_op_workspaces(step->op, step->phase) : (nets_workspaces){1, {0}};
    MM_TRY(mm_graph_add_step(lo->out->graph, step->graph_layer, step->phase, uses, n_uses,
                             (size_t)(step->op_workspace_at + own.bytes[0])));
    for (int i = 1; i < own.n; i++)
        MM_TRY(mm_graph_allow_workspace(lo->out->graph, (size_t)(step->op_workspace_at + own.bytes[i])));
    return MM_OK;
}

/* Declares the codes that the op can read or write by itself. */
static mm_status add_codes(const lowering *lo, nets_step *step, const nets_step_spec *spec) {
    for (int c = 0; step->op && step->op->code_needs.passes > 0 && spec->codes[c].role != NETS_WORKSPACE; c++) {
        const nets_role_code *code = &spec->codes[c];
        const mm_tensor tensor = step->tensors[code->role];
        const mm_tensor_info *info = tensor < 0 ? NULL : mm_graph_tensor(lo->out->graph, tensor);
        if (!info || info->ownership != MM_MANAGED || info->dtype != MM_F32) continue;
        mm_code_use use = {.tensor = tensor, .access = code->access, .codec = code->codec};
        if (code->access == MM_READ) {
            const nets_code_needs *needs = &step->op->code_needs;
            use.workspace_bytes = (size_t)needs->workspace_bytes;
            use.workspace_strips = needs->workspace_strips;
            use.passes = needs->passes;
        }
        MM_TRY(mm_graph_allow_code(lo->out->graph, &use));
        step->coded_roles |= NETS_ROLE_BIT(code->role);
    }
    return MM_OK;
}

/* Adds the step that `spec` describes. Of `tensors`, by role, it takes those that it uses. */
static mm_status add_step(lowering *lo, int index, mm_phase phase, const nets_step_spec *spec,
                          const mm_tensor tensors[NETS_ROLES]) {
    nets_lowered *out = lo->out;
    const layer_state *state = &lo->layers[index];
    nets_step *step = &out->steps[out->n_steps];
    *step = (nets_step){.layer = index, .graph_layer = state->graph_layer, .phase = phase, .op = state->op};
    for (int r = 0; r < NETS_ROLES; r++) step->tensors[r] = -1;

    mm_use uses[NETS_STEP_USES + 2];
    size_t n_uses = 0;
    int64_t scratch[NETS_MAX_PARAMS] = {0}; /* bytes of frozen parameters' gradients */
    for (int u = 0; u < NETS_STEP_USES && spec->uses[u].role != NETS_WORKSPACE; u++) {
        const nets_role_use *use = &spec->uses[u];
        const nets_role role = use->role == NETS_W && tensors[NETS_W16] >= 0 ? NETS_W16 : use->role;
        if (tensors[role] < 0 && gives_frozen(lo, index, role, tensors))
            scratch[role - NETS_DPARAM] =
                mm_graph_tensor(out->graph, tensors[NETS_PARAM + (role - NETS_DPARAM)])->bytes;
        if (tensors[role] < 0 || (use->only_for != NETS_WORKSPACE && tensors[use->only_for] < 0)) continue;
        step->tensors[role] = tensors[role];
        const mm_access access = adds_to(step, out, role) ? MM_MODIFY : use->access;
        if (access == MM_MODIFY) step->modified_roles |= NETS_ROLE_BIT(role);
        if (is_used(uses, n_uses, tensors[role])) continue;
        if (use->form == MM_FORM_SIGN) step->sign_roles |= NETS_ROLE_BIT(role);
        uses[n_uses++] = (mm_use){tensors[role], access, use->form};
        /* Each tensor of a graph must be used by a step. In a graph without an update, no other step uses the f32
         * weight. */
        if (role == NETS_W16 && tensors[NETS_W] >= 0 && !nets_lowered_updates(out))
            uses[n_uses++] = (mm_use){tensors[NETS_W], MM_READ, MM_FORM_VALUE};
    }
    /* In the step the executor writes this rank's word to out->word; the word is all-reduced with the loss. */
    if (phase == MM_FORWARD && out->word >= 0 && step->tensors[NETS_CORRECT] >= 0)
        uses[n_uses++] = (mm_use){out->word, MM_WRITE, MM_FORM_VALUE};
    place_addends(lo, step, scratch);
    MM_TRY(add_to_graph(lo, step, uses, n_uses));
    for (int p = 0; p < NETS_STEP_PAIRS && spec->pairs[p].input != NETS_WORKSPACE; p++)
        MM_TRY(add_pair(out->graph, step, &spec->pairs[p]));
    MM_TRY(add_codes(lo, step, spec));
    out->n_steps++;
    return MM_OK;
}

static mm_status add_saved(lowering *lo, int index, const unit *u, const nets_saved_spec saved[NETS_MAX_SAVED]) {
    int named = lo->fused[index].norm >= 0 ? lo->fused[index].norm : index;
    nets_shape x[NETS_MAX_INPUTS], y;
    MM_TRY(shapes_of(lo, u, index, x, &y));
    for (int i = 0; i < NETS_MAX_SAVED && saved[i].name; i++) {
        const nets_shape shape = saved[i].shape(&u->layer->attrs, x, &y);
        MM_TRY(add_named(lo, named, MM_SAVED, saved[i].dtype, &shape, "", saved[i].name, &lo->layers[index].saved[i]));
    }
    return MM_OK;
}

/* The gradients of a loss's scores, for the parts of its weight's gradient. */
static mm_status add_scores(lowering *lo, int index, const unit *u) {
    nets_shape x[NETS_MAX_INPUTS], y;
    MM_TRY(shapes_of(lo, u, index, x, &y));
    const nets_shape scores = {2, {nets_shape_rows(&x[0]), u->layer->attrs.out_channels}};
    return add_named(lo, index, MM_SAVED, MM_F32, &scores, "", "scores", &lo->layers[index].saved[0]);
}

/* Makes a policy's rules find a fused layer by its own name, too. */
static mm_status add_part(lowering *lo, mm_layer computed_by, int layer) {
    return mm_graph_add_part(lo->out->graph, computed_by, nets_net_layer(lo->out->net, layer)->name);
}

static mm_status add_parts(lowering *lo, int index) {
    int norm = lo->fused[index].norm;
    for (int i = norm + 1; norm >= 0 && i <= index; i++)
        if (lo->fused[i].within == index) MM_TRY(add_part(lo, lo->layers[index].graph_layer, i));
    if (lo->fused[index].gate >= 0) MM_TRY(add_part(lo, lo->layers[index].graph_layer, lo->fused[index].gate));
    return MM_OK;
}

static bool trains(const lowering *lo, const nets_layer *layer) {
    for (int i = layer->first_param; i < layer->first_param + layer->n_params; i++)
        if (nets_param_trains(nets_net_param(lo->out->net, i))) return true;
    return false;
}

static mm_status lower_forward(lowering *lo, int index) {
    const unit u = unit_of(lo, index);
    const nets_op_lowering *how = nets_op_lowering_of(u.layer->op, u.relu);
    layer_state *state = &lo->layers[index];
    bool train = lo->out->mode == NETS_TRAIN;
    if (lo->fused[index].within != index) return MM_OK;
    state->wants_gradient = train && (trains(lo, u.layer) || (u.bias && trains(lo, u.bias)));
    for (int i = 0; i < u.n_inputs; i++) state->wants_gradient |= lo->layers[u.inputs[i]].wants_gradient;
    for (int i = 0; i < u.n_inputs; i++)
        if (first_of(&u, i) == i) lo->layers[u.inputs[i]].consumers += state->wants_gradient;
    if (!train && how->identity_in_eval) {
        state->value = lo->layers[u.inputs[0]].value;
        state->graph_layer = lo->layers[u.inputs[0]].graph_layer;
        return add_part(lo, state->graph_layer, index);
    }
    MM_TRY(mm_graph_add_layer(lo->out->graph, u.layer->name, how->kind, &state->graph_layer));
    if (how->repeats)
        MM_TRY(mm_graph_set_properties(lo->out->graph, state->graph_layer,
                                       &(mm_layer_properties){mm_layer_kind_properties(how->kind).cost, true}));
    MM_TRY(add_parts(lo, index));
    if (u.layer->op == NETS_DATA)
        state->value = lo->out->images;
    else
        MM_TRY(make_op(lo, index));
    bool has_output = u.layer->op != NETS_DATA && (train || !nets_op_info_of(u.layer->op)->loss);
    if (has_output) MM_TRY(add_map(lo, index, MM_FEATURE_MAP, "", "out", &state->value));
    if (train) MM_TRY(add_saved(lo, index, &u, how->saved));
    if (train && u.layer->op == NETS_TOKEN_LOSS && is_in_parts(lo, u.layer)) MM_TRY(add_scores(lo, index, &u));
    mm_tensor tensors[NETS_ROLES];
    map_roles(lo, index, tensors);
    MM_TRY(add_step(lo, index, MM_FORWARD, train ? &how->forward : &how->eval, tensors));
    for (int i = 0; train && i < NETS_MAX_SAVED && how->saved[i].name; i++)
        if (how->saved[i].given) MM_TRY(mm_graph_allow_given(lo->out->graph, state->saved[i]));
    return MM_OK;
}

/* Adds the map to which one more consumer of `input` writes its gradient; *earlier_out is the map that the consumer
 * before has written. */
static mm_status add_contribution(lowering *lo, int input, mm_tensor *earlier_out, mm_tensor *dx_out) {
    layer_state *state = &lo->layers[input];
    if (!state->wants_gradient) return MM_OK;
    char suffix[32] = "out";
    if (++state->contributions < state->consumers) snprintf(suffix, sizeof suffix, "out.%d", state->contributions);
    *earlier_out = state->gradient;
    MM_TRY(add_map(lo, input, MM_GRADIENT_MAP, "grad.", suffix, dx_out));
    state->gradient = *dx_out;
    return MM_OK;
}

static mm_status lower_backward(lowering *lo, int index) {
    const unit u = unit_of(lo, index);
    if (!lo->layers[index].wants_gradient) return MM_OK;
    if (u.layer->op == NETS_EMBEDDING && is_in_parts(lo, u.layer)) return MM_OK; /* its parts are all that it has */
    mm_tensor tensors[NETS_ROLES];
    map_roles(lo, index, tensors);
    for (int i = 0; i < u.n_inputs; i++) {
        int first = first_of(&u, i);
        if (first == i)
            MM_TRY(add_contribution(lo, u.inputs[i], &tensors[NETS_EARLIER + i], &tensors[NETS_DX + i]));
        else
            tensors[NETS_DX + i] = tensors[NETS_EARLIER + i] = tensors[NETS_DX + first];
    }
    return add_step(lo, index, MM_BACKWARD, &nets_op_lowering_of(u.layer->op, u.relu)->backward, tensors);
}

/* ---------------------------------------------------------------- updates */

/* Sets for each parameter the layer behind whose backward step its gradient is complete: of the layers that use the
 * parameter, the first. No step behind it reads the weight, nor can its layer be computed again behind it. */
static void find_complete(const lowering *lo, int *complete) {
    const nets_net *net = lo->out->net;
    for (int p = 0; p < nets_net_params(net); p++) complete[p] = lo->fused[nets_net_param(net, p)->layer].within;
    for (int i = 0; i < nets_net_layers(net); i++) {
        const int tied = nets_net_layer(net, i)->tied_param, within = lo->fused[i].within;
        if (tied >= 0 && within < complete[tied]) complete[tied] = within;
    }
}

/* Whether no step behind this one writes the gradient of the parameter in this place: one that layers share is written
 * last by the layer that has it, since that is the first of them. */
static bool is_whole(const lowering *lo, const unit *u, mm_tensor gradient) {
    const int tied = u->layer->tied_param;
    return gradient >= 0 && (tied < 0 || lo->out->params[tied].gradient != gradient);
}

/* What a layer contributes to the gradient of its weight in parts. */
static nets_part_source source_of(const lowering *lo, int index) {
    const unit u = unit_of(lo, index);
    const layer_state *state = &lo->layers[index];
    return (nets_part_source){.op = state->op,
                              .kind = u.layer->op,
                              .x = lo->layers[u.inputs[0]].value,
                              .dy = u.layer->op == NETS_TOKEN_LOSS ? state->saved[0] : state->gradient};
}

/* Adds the step for the gradient in parts which layer `index` was the last to contribute to; the first contribution
 * comes from the layer that is tied to it. */
static mm_status lower_parts(lowering *lo, int index, bool last) {
    const int weight = nets_parts_weight(nets_net_layer(lo->out->net, index));
    nets_part_source sources[NETS_PART_SOURCES];
    int n = 0;
    for (int i = nets_net_layers(lo->out->net) - 1; i >= index; i--)
        if (nets_parts_weight(nets_net_layer(lo->out->net, i)) == weight) sources[n++] = source_of(lo, i);
    return nets_lower_parts(lo->out, weight, sources, n, last);
}

/* Adds the steps that add up the gradients which the backward step of layer `index` has completed. */
static mm_status lower_sums(lowering *lo, int index, bool last) {
    nets_lowered *out = lo->out;
    const unit u = unit_of(lo, index);
    const nets_step *step = &out->steps[out->n_steps - 1];
    mm_tensor written[NETS_MAX_PARAMS];
    if (!out->sums_own || !lo->layers[index].wants_gradient || lo->fused[index].within != index) return MM_OK;
    const bool parts = u.layer->tied_param < 0 && is_in_parts(lo, u.layer);
    for (int i = 0; i < NETS_MAX_PARAMS; i++)
        written[i] = step->layer == index && is_whole(lo, &u, step->tensors[NETS_DPARAM + i])
                         ? step->tensors[NETS_DPARAM + i]
                         : -1;
    MM_TRY(nets_lower_sums(out, nets_net_layer(out->net, index)->name, written, last && !parts));
    return parts ? lower_parts(lo, index, last) : MM_OK;
}

/* The first layer whose backward step has gradients of parameters: the last of the backward pass. */
static int first_wanting(const lowering *lo) {
    int i = 0;
    while (i < nets_net_layers(lo->out->net) - 1 && !lo->layers[i].wants_gradient) i++;
    return i;
}

/* Decides who adds up gradients. Refuses to divide those that must be whole: from one pass to the next, or for a
 * norm. */
static mm_status choose_sums(nets_lowered *out, bool clips) {
    const bool passes = out->pass.adds || out->pass.goes_on, divides = nets_lowered_divides(out, NETS_DIVIDE_GRADIENTS);
    const bool at_once = out->allreduce.when == MM_ALLREDUCE_AT_ONCE;
    out->sums_own =
        divides || (nets_lowered_divides(out, NETS_DIVIDE_STATES) && at_once && !clips && !out->pass.goes_on);
    if (!divides || (!passes && !clips)) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "net %s: %s, so ranks cannot divide them; divide states", nets_net_name(out->net),
                   passes ? "gradients of sub-batches are added up whole"
                          : "clipping needs the norm of whole gradients");
}

/* Adds all backward steps, with what ranks exchange behind them, and the updates. */
static mm_status lower_backward_pass(lowering *lo, const int *complete) {
    nets_lowered *out = lo->out;
    const int n = nets_net_layers(out->net), last = first_wanting(lo);
    for (int i = n - 1; i >= 0; i--) {
        MM_TRY(lower_backward(lo, i));
        MM_TRY(lower_sums(lo, i, i == last));
        if (out->update == NETS_UPDATE_IN_BACKWARD) MM_TRY(nets_lower_layer_update(out, complete, i));
    }
    MM_TRY(nets_lower_allreduces(out));
    for (int i = n - 1; i >= 0 && out->update == NETS_UPDATE_BY_LAYER && !out->pass.goes_on; i--)
        MM_TRY(nets_lower_layer_update(out, complete, i));
    if (out->on_host) return nets_lower_host_end(out);
    if (out->n_updates == 0) MM_TRY(nets_lower_update(out));
    return nets_lowered_divides(out, NETS_DIVIDE_STATES) && !out->pass.goes_on ? nets_lower_gather(out) : MM_OK;
}

const char *nets_update_refusal(const nets_lowering *how, bool clips) {
    if (how->mode != NETS_TRAIN) return NULL;
    if (how->on_host && how->update != NETS_UPDATE_IN_BACKWARD)
        return "the host (on=host) updates each layer behind its backward step: in-backward";
    if (how->update == NETS_UPDATE_AT_END) return NULL;
    if (clips) return "clipping needs all gradients before the first update";
    if (how->update == NETS_UPDATE_BY_LAYER) return NULL;
    if (how->pass.whole > 0) return "gradients of sub-batches add up, and so must be kept";
    return how->allreduce.n > 1 ? "gradients of several ranks are summed whole, and so must be kept" : NULL;
}

/* ---------------------------------------------------------------- whole */

static mm_status allocate(lowering *lo) {
    nets_lowered *out = lo->out;
    size_t n = (size_t)nets_net_layers(out->net), n_params = (size_t)nets_net_params(out->net);
    out->params = calloc(n_params + 1, sizeof *out->params);
    out->ops = calloc(n, sizeof *out->ops);
    lo->descs = calloc(n, sizeof *lo->descs);
    lo->layers = calloc(n, sizeof *lo->layers);
    lo->fused = calloc(n, sizeof *lo->fused);
    if (!out->params || !out->ops || !lo->descs || !lo->layers || !lo->fused)
        return mm_fail(MM_ERR_NOMEM, "net %s: no memory to lower %zu layers", nets_net_name(out->net), n);
    for (size_t i = 0; i < n; i++) {
        lo->layers[i].value = lo->layers[i].gradient = -1;
        for (int k = 0; k < NETS_MAX_SAVED; k++) lo->layers[i].saved[k] = -1;
    }
    for (size_t i = 0; i < n_params; i++)
        out->params[i] = (nets_param_tensors){
            .value = -1, .copy = -1, .gradient = -1, .state = {-1, -1}, .absmax = {-1, -1}, .strips = {1, 0}};
    return MM_OK;
}

/* An update's part has a parameter at least, or a strip of one. */
static mm_status allocate_steps(nets_lowered *out) {
    size_t n = 4 * (size_t)nets_net_layers(out->net) + 3;
    for (int i = 0; i < nets_net_params(out->net); i++) n += (size_t)out->params[i].strips.n;
    out->steps = calloc(n, sizeof *out->steps);
    return out->steps ? MM_OK : mm_fail(MM_ERR_NOMEM, "net %s: no memory to lower it", nets_net_name(out->net));
}

static mm_status fuse(lowering *lo) {
    if (lo->no_fuse) {
        nets_fuse_none(lo->out->net, lo->fused);
        return MM_OK;
    }
    int *consumers = malloc((size_t)nets_net_layers(lo->out->net) * sizeof *consumers);
    if (!consumers) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to fuse layers", nets_net_name(lo->out->net));
    nets_fuse(lo->out->net, consumers, lo->fused);
    free(consumers);
    return MM_OK;
}

/* The names of passes' graphs of one batch differ by the pass. */
static mm_status create_graph(nets_lowered *out) {
    char name[NETS_NAME_CAPACITY + 96];
    int n = snprintf(name, sizeof name, "%s %s %lld", nets_net_name(out->net),
                     out->mode == NETS_TRAIN ? "train" : "eval", (long long)out->batch);
    if (out->pass.whole > 0)
        snprintf(name + n, sizeof name - (size_t)n, " of %lld, %s", (long long)out->pass.whole,
                 out->pass.adds      ? (out->pass.goes_on ? "next" : "last")
                 : out->pass.goes_on ? "first"
                                     : "part");
    return mm_graph_create(name, &out->graph);
}

/* Decides whether images of three channels get a fourth channel, since cuDNN's fast kernels need a multiple of four.
 * Only convolutions of one group may then read the images: other layers must not see the fourth channel. */
static mm_status choose_images(lowering *lo) {
    const nets_net *net = lo->out->net;
    nets_shape images;
    MM_TRY(nets_net_shape(net, 0, 1, &images));
    bool pads = lo->backend->ops->pad && nets_shape_channels(&images) == 3;
    for (int i = 1; i < nets_net_layers(net); i++) {
        const nets_layer *layer = nets_net_layer(net, i);
        for (int k = 0; k < layer->n_inputs; k++)
            if (layer->inputs[k] == 0) pads &= layer->op == NETS_CONV && layer->attrs.groups == 1;
    }
    lo->out->pads_images = pads;
    return MM_OK;
}

static mm_status lower_all(lowering *lo) {
    nets_lowered *out = lo->out;
    MM_TRY(choose_images(lo));
    MM_TRY(allocate(lo));
    MM_TRY(fuse(lo));
    find_readers(lo);
    MM_TRY(create_graph(out));
    MM_TRY(nets_lower_persistent(out, lo->backend));
    MM_TRY(allocate_steps(out));
    int n = nets_net_layers(out->net);
    for (int i = 0; i < n; i++) MM_TRY(lower_forward(lo, i));
    if (out->mode == NETS_TRAIN) {
        int *complete = malloc(((size_t)nets_net_params(out->net) + 1) * sizeof *complete);
        if (!complete) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to lower its update", nets_net_name(out->net));
        find_complete(lo, complete);
        const mm_status status = lower_backward_pass(lo, complete);
        free(complete);
        MM_TRY(status);
    }
    return mm_graph_freeze(out->graph);
}

static int64_t trained_elems(const nets_net *net) {
    int64_t elems = 0;
    for (int i = 0; i < nets_net_params(net); i++)
        if (nets_param_trains(nets_net_param(net, i))) elems += nets_net_param(net, i)->elems;
    return elems;
}

mm_status nets_lower(const nets_net *net, nets_backend *backend, int64_t batch, const nets_lowering *how,
                     nets_lowered **lowered_out) {
    const char *refusal = nets_update_refusal(how, false);
    if (refusal)
        return mm_fail(MM_ERR_UNSUPPORTED, "net %s: cannot be updated like this: %s", nets_net_name(net), refusal);
    nets_lowered *out = calloc(1, sizeof *out);
    if (!out) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to lower it", nets_net_name(net));
    out->net = net;
    out->batch = batch;
    out->mode = how->mode;
    out->pass = how->pass;
    out->optimizer = how->optimizer;
    out->strip_elems = how->strip_elems > 0 ? how->strip_elems : nets_strip_most(trained_elems(net));
    if (how->mode == NETS_TRAIN) out->update = how->update;
    out->on_host = how->mode == NETS_TRAIN && how->on_host;
    if (how->mode == NETS_TRAIN) out->allreduce = how->allreduce;
    if (out->allreduce.n > 1) out->pass.whole = (how->pass.whole > 0 ? how->pass.whole : batch) * out->allreduce.n;
    out->images = out->labels = out->loss = out->correct = out->rng = out->lr = out->step = out->word = out->shares =
        -1;
    lowering lo = {.out = out, .backend = backend, .no_fuse = how->no_fuse};
    mm_status status = choose_sums(out, how->clips);
    if (status == MM_OK) status = lower_all(&lo);
    free(lo.descs);
    free(lo.layers);
    free(lo.fused);
    if (status != MM_OK) {
        nets_lowered_destroy(out);
        return status;
    }
    *lowered_out = out;
    return MM_OK;
}

void nets_lowered_destroy(nets_lowered *lowered) {
    if (!lowered) return;
    for (int i = 0; i < lowered->n_ops; i++) nets_op_destroy(lowered->ops[i]);
    mm_graph_destroy(lowered->graph);
    free(lowered->ops);
    free(lowered->steps);
    free(lowered->params);
    free(lowered);
}
