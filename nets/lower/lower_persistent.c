/* SPDX-License-Identifier: MIT */
#include "nets/lower/lower_persistent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "nets/lower/own_step.h"
#include "nets/lower/param_parts.h"
#include "nets/net_ops.h"
#include "nets/state_codes.h"

mm_status nets_lower_tensor(mm_graph *graph, mm_tensor_kind kind, mm_ownership ownership, mm_dtype dtype, int rank,
                            const int64_t *dims, const char *name, mm_tensor *tensor_out) {
    mm_tensor_desc desc = {.name = name, .kind = kind, .ownership = ownership, .dtype = dtype, .rank = rank};
    memcpy(desc.dims, dims, (size_t)rank * sizeof dims[0]);
    return mm_graph_add_tensor(graph, &desc, tensor_out);
}

/* A parameter's order and dims on the device. */
static nets_order order_param(const nets_lowered *out, const nets_param *param, bool channels_last,
                              int64_t dims_out[MM_RANK_MAX]) {
    const bool reads_images = nets_net_layer(out->net, param->layer)->inputs[0] == 0;
    const nets_order order =
        nets_order_of(param->rank, param->dims, channels_last, out->pads_images && reads_images ? 4 : 0);
    memcpy(dims_out, param->dims, sizeof param->dims);
    if (channels_last && param->rank == 4) {
        dims_out[1] = param->dims[2];
        dims_out[2] = param->dims[3];
        dims_out[3] = order.there;
    }
    return order;
}

/* Whether maps are multiplied by the parameter, in its own layer or in one that is tied to it. */
static bool is_factor(const nets_net *net, int param) {
    for (int i = 0; i < nets_net_layers(net); i++)
        if (nets_factor_of(nets_net_layer(net, i)) == param) return true;
    return false;
}

/* The room of a rank's share of a parameter. */
static int64_t room_of(const nets_lowered *out, const nets_param_tensors *tensors) {
    return nets_share_room(nets_order_elems(&tensors->order), out->allreduce.n, nets_param_share_unit(tensors));
}

/* Whether the parameter's states are codes, by the rules of state_codes.h. */
static bool is_coded(const nets_lowered *out, const nets_param *param) {
    const nets_layer *layer = nets_net_layer(out->net, param->layer);
    return nets_optimizer_traits_of(out->optimizer)->coded && param->elems >= NETS_STATE_LEAST &&
           !nets_param_spec_of(layer->op, param->place)->looked_up;
}

/* How the parameter's states are cut: not where one step updates them all, nor where ranks have shares of them, nor
 * codes, which are small, nor where the host updates, which has them all. */
static nets_param_strips strips_of(const nets_lowered *out, const nets_param *param, const nets_order *order) {
    const int64_t elems = nets_order_elems(order);
    const bool whole = out->update == NETS_UPDATE_AT_END || nets_lowered_divides(out, NETS_DIVIDE_STATES) ||
                       !nets_optimizer_traits_of(out->optimizer)->states[0] || is_coded(out, param) || out->on_host;
    return whole ? (nets_param_strips){1, elems} : nets_param_strips_of(elems, out->strip_elems);
}

/* Adds a state in codes. */
static mm_status add_codes(nets_lowered *out, const nets_param *param, const int64_t *dims, const char *name,
                           nets_param_tensors *tensors, int k) {
    const int64_t blocks = nets_state_blocks(nets_order_elems(&tensors->order));
    char of_blocks[NETS_PARAM_NAME_CAPACITY + 24];
    if (nets_lowered_divides(out, NETS_DIVIDE_STATES))
        return mm_fail(MM_ERR_UNSUPPORTED, "net %s: ranks cannot divide 8-bit states: use states=32bit",
                       nets_net_name(out->net));
    MM_TRY(
        nets_lower_tensor(out->graph, MM_OPTIMIZER, MM_PERSISTENT, MM_U8, param->rank, dims, name, &tensors->state[k]));
    MM_TRY(mm_graph_set_weight(out->graph, tensors->state[k], tensors->value));
    snprintf(of_blocks, sizeof of_blocks, "absmax.%s", name);
    MM_TRY(
        nets_lower_tensor(out->graph, MM_OPTIMIZER, MM_PERSISTENT, MM_F32, 1, &blocks, of_blocks, &tensors->absmax[k]));
    return mm_graph_set_weight(out->graph, tensors->absmax[k], tensors->value);
}

/* Adds the optimizer's i-th state. A share is linked to no weight: it does not have the weight's elements. */
static mm_status add_state(nets_lowered *out, const nets_param *param, const int64_t *dims, const char *name,
                           const nets_param_tensors *tensors, mm_tensor *state_out) {
    const bool divides = nets_lowered_divides(out, NETS_DIVIDE_STATES);
    if (tensors->strips.n > 1)
        return nets_strips_add(out->graph, &tensors->strips, nets_order_elems(&tensors->order), name, tensors->value,
                               state_out);
    const int64_t room = divides ? room_of(out, tensors) : 0;
    MM_TRY(nets_lower_tensor(out->graph, MM_OPTIMIZER, MM_PERSISTENT, MM_F32, divides ? 1 : param->rank,
                             divides ? &room : dims, name, state_out));
    return divides ? MM_OK : mm_graph_set_weight(out->graph, *state_out, tensors->value);
}

/* Whether the parameter is held as its bf16 copy alone: nothing updates its value, and all that read it round it. */
static bool is_copy_alone(const nets_net *net, const nets_param *param) {
    const nets_layer *layer = nets_net_layer(net, param->layer);
    const nets_param_spec *spec = nets_param_spec_of(layer->op, param->place);
    return param->frozen && (spec->factor || spec->looked_up);
}

static mm_status add_param_tensors(nets_lowered *out, const nets_backend *backend, int index) {
    const nets_param *param = nets_net_param(out->net, index);
    nets_param_tensors *tensors = &out->params[index];
    int64_t dims[MM_RANK_MAX];
    tensors->order = order_param(out, param, backend->channels_last, dims);
    nets_param_parts_choose(out, backend, index, tensors);
    const bool half = backend->maps == MM_BF16, alone = half && is_copy_alone(out->net, param);
    if (!alone)
        MM_TRY(nets_lower_tensor(out->graph, param->learned ? MM_WEIGHT : MM_STATE, MM_PERSISTENT, MM_F32, param->rank,
                                 dims, param->name, &tensors->value));
    char name[NETS_PARAM_NAME_CAPACITY + 16];
    if (alone || (half && is_factor(out->net, index))) {
        snprintf(name, sizeof name, "bf16.%s", param->name);
        MM_TRY(
            nets_lower_tensor(out->graph, MM_WEIGHT, MM_PERSISTENT, MM_BF16, param->rank, dims, name, &tensors->copy));
    }
    if (!nets_param_trains(param) || out->mode != NETS_TRAIN) return MM_OK;
    snprintf(name, sizeof name, "grad.%s", param->name);
    const bool in_backward = out->update == NETS_UPDATE_IN_BACKWARD && !out->on_host;
    const bool managed = in_backward || nets_lowered_divides(out, NETS_DIVIDE_GRADIENTS);
    if (!tensors->parts_only) {
        MM_TRY(nets_lower_tensor(out->graph, MM_WEIGHT_GRADIENT, managed ? MM_MANAGED : MM_PERSISTENT, MM_F32,
                                 param->rank, dims, name, &tensors->gradient));
        MM_TRY(mm_graph_set_weight(out->graph, tensors->gradient, tensors->value));
    }
    if (!nets_lowered_updates(out)) return MM_OK;
    const nets_optimizer_traits *optimizer = nets_optimizer_traits_of(out->optimizer);
    tensors->strips = strips_of(out, param, &tensors->order);
    for (int k = 0; k < NETS_OPTIMIZER_STATES && optimizer->states[k]; k++) {
        snprintf(name, sizeof name, "%s.%s", optimizer->states[k], param->name);
        MM_TRY(is_coded(out, param) ? add_codes(out, param, dims, name, tensors, k)
                                    : add_state(out, param, dims, name, tensors, &tensors->state[k]));
    }
    return MM_OK;
}

/* Learned parameters come first. So what the forward pass changes, running statistics and rng, is contiguous, and the
 * executor copies it as one range (exec_undo.h). */
static mm_status add_params(nets_lowered *out, const nets_backend *backend) {
    const nets_net *net = out->net;
    int trained = 0, frozen = 0;
    for (int i = 0; i < nets_net_params(net); i++) {
        trained += nets_param_trains(nets_net_param(net, i));
        frozen += nets_net_param(net, i)->frozen;
    }
    if (out->mode == NETS_TRAIN && trained == 0 && frozen > 0)
        return mm_fail(MM_ERR_INVALID, "net %s: has no parameters to train: all are frozen", nets_net_name(net));
    const int64_t words = NETS_RNG_WORDS;
    for (int learned = 1; learned >= 0; learned--)
        for (int i = 0; i < nets_net_params(net); i++)
            if (nets_net_param(net, i)->learned == (learned == 1)) MM_TRY(add_param_tensors(out, backend, i));
    if (out->mode != NETS_TRAIN) return MM_OK;
    return nets_lower_tensor(out->graph, MM_STATE, MM_PERSISTENT, MM_I32, 1, &words, "rng", &out->rng);
}

/* Adds the tensor with this rank's shares of all gradients, each at a multiple of 64 bytes (nets_share_room). */
static mm_status add_shares(nets_lowered *out) {
    int64_t elems = 0;
    for (int i = 0; i < nets_net_params(out->net); i++) {
        if (!nets_param_trains(nets_net_param(out->net, i))) continue;
        out->params[i].share_at = elems;
        elems += room_of(out, &out->params[i]);
    }
    if (elems == 0) return MM_OK;
    return nets_lower_tensor(out->graph, MM_WEIGHT_GRADIENT, MM_PERSISTENT, MM_F32, 1, &elems, "shares.grad",
                             &out->shares);
}

mm_status nets_lower_persistent(nets_lowered *out, const nets_backend *backend) {
    const int64_t one = 1;
    MM_TRY(add_params(out, backend));
    if (nets_lowered_divides(out, NETS_DIVIDE_GRADIENTS)) MM_TRY(add_shares(out));
    MM_TRY(nets_lower_tensor(out->graph, MM_STATE, MM_PERSISTENT, MM_F32, 1, &one, NETS_LOSS_NAME, &out->loss));
    MM_TRY(nets_lower_tensor(out->graph, MM_STATE, MM_PERSISTENT, MM_I32, 1, &one, "correct", &out->correct));
    if (out->allreduce.n > 1 && nets_lowered_updates(out))
        MM_TRY(nets_lower_tensor(out->graph, MM_STATE, MM_PERSISTENT, MM_I32, 1, &one, "told", &out->word));
    if (nets_lowered_updates(out))
        MM_TRY(nets_lower_tensor(out->graph, MM_STATE, MM_PERSISTENT, MM_F32, 1, &one, "lr", &out->lr));
    if (nets_lowered_updates(out) && nets_optimizer_traits_of(out->optimizer)->counts)
        MM_TRY(nets_lower_tensor(out->graph, MM_OPTIMIZER, MM_PERSISTENT, MM_I32, 1, &one, NETS_STEP_NAME, &out->step));
    nets_shape images, scores;
    MM_TRY(nets_net_shape(out->net, 0, out->batch, &images));
    if (out->pads_images) images.dims[images.rank - 1] = 4;
    MM_TRY(nets_net_shape(out->net, nets_net_layers(out->net) - 1, out->batch, &scores));
    MM_TRY(
        nets_lower_tensor(out->graph, MM_INPUT, MM_MANAGED, MM_F32, images.rank, images.dims, "images", &out->images));
    int rank = nets_net_labels(out->net) == 1 ? 1 : scores.rank - 1;
    return nets_lower_tensor(out->graph, MM_INPUT, MM_MANAGED, MM_I32, rank, scores.dims, "labels", &out->labels);
}

/* ---------------------------------------------------------------- the update step */

static mm_status add_update_step(nets_lowered *out, const char *name, const mm_use *uses, size_t n) {
    MM_TRY(nets_lower_own_step(out, name, MM_UPDATE, uses, n, 0));
    out->steps[out->n_steps - 1].tensors[NETS_RNG] = out->rng;
    return MM_OK;
}

/* Adds what sums of earlier steps may be written to while the new step runs: the shares; or, where these lie in the
 * gradients, those of the last steps. Returns the number of uses. */
static size_t add_arrivals(const nets_lowered *out, mm_use *uses, size_t n) {
    int found = 0;
    if (out->shares >= 0) uses[n++] = (mm_use){out->shares, MM_MODIFY, MM_FORM_VALUE};
    for (int s = out->n_steps - 1; out->shares < 0 && s >= 0; s--)
        for (int i = 0; out->steps[s].exchanges == NETS_SUMS_OWN && i < NETS_MAX_PARAMS; i++) {
            const mm_tensor gradient = out->steps[s].tensors[NETS_DPARAM + i];
            if (gradient < 0 || found == NETS_PIECES_UNDER_WAY) continue;
            uses[n++] = (mm_use){gradient, MM_MODIFY, MM_FORM_VALUE};
            found++;
        }
    return n;
}

mm_status nets_lower_sums(nets_lowered *out, const char *layer, const mm_tensor written[NETS_MAX_PARAMS], bool last) {
    char name[NETS_NAME_CAPACITY + 8];
    mm_use uses[NETS_MAX_PARAMS + NETS_PIECES_UNDER_WAY];
    size_t n = 0;
    for (int i = 0; i < NETS_MAX_PARAMS; i++)
        if (written[i] >= 0) uses[n++] = (mm_use){written[i], out->shares >= 0 ? MM_READ : MM_MODIFY, MM_FORM_VALUE};
    if (n == 0) return MM_OK;
    n = add_arrivals(out, uses, n);
    snprintf(name, sizeof name, "sum.%s", layer);
    MM_TRY(nets_lower_own_step(out, name, MM_BACKWARD, uses, n, 0));
    nets_step *step = &out->steps[out->n_steps - 1];
    memcpy(&step->tensors[NETS_DPARAM], written, NETS_MAX_PARAMS * sizeof *written);
    step->exchanges = last ? NETS_SUMS_LAST : NETS_SUMS_OWN;
    return MM_OK;
}

/* All-reduces all that the update reads or that a saved state has: the sums of gradients, of the loss, of `correct` and
 * of the ranks' words, and the means of running statistics. */
mm_status nets_lower_allreduces(nets_lowered *out) {
    mm_allreduce_when when = out->allreduce.when;
    if (out->allreduce.n < 2 || out->pass.goes_on) return MM_OK;
    /* Steps of the backward pass exchange gradients through the same communicator, in an order of their own. */
    if (out->sums_own) when = mm_allreduce_copies(when) ? MM_ALLREDUCE_AT_END : MM_ALLREDUCE_IN_PLACE_AT_END;
    MM_TRY(mm_graph_allreduce(out->graph, out->loss, when, MM_REDUCE_SUM));
    MM_TRY(mm_graph_allreduce(out->graph, out->correct, when, MM_REDUCE_SUM));
    MM_TRY(mm_graph_allreduce(out->graph, out->word, when, MM_REDUCE_SUM));
    for (int i = 0; i < nets_net_params(out->net); i++) {
        const nets_param_tensors *tensors = &out->params[i];
        const bool learned = nets_net_param(out->net, i)->learned;
        if (nets_net_param(out->net, i)->frozen || (learned && out->sums_own)) continue;
        MM_TRY(mm_graph_allreduce(out->graph, learned ? tensors->gradient : tensors->value, when,
                                  learned ? MM_REDUCE_SUM : MM_REDUCE_MEAN));
    }
    return MM_OK;
}

/* Lists the uses of an update of the parameters from `from` to below `to`, or of a strip of the one. last: no other
 * update follows. Returns their number. */
static size_t list_uses(const nets_lowered *out, int from, int to, int strip, bool last, mm_use *uses) {
    /* In the backward pass, forward steps that read rng may run again before the last update counts. */
    const bool counts = last || out->update != NETS_UPDATE_IN_BACKWARD;
    size_t n = 0;
    for (int i = from; i < to; i++) {
        const nets_param_tensors *tensors = &out->params[i];
        if (!nets_param_trains(nets_net_param(out->net, i))) continue;
        if (out->shares < 0) uses[n++] = (mm_use){tensors->gradient, MM_READ, MM_FORM_VALUE};
        for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->state[k] >= 0; k++) {
            uses[n++] = (mm_use){tensors->state[k] + strip, MM_MODIFY, MM_FORM_VALUE};
            if (tensors->absmax[k] >= 0) uses[n++] = (mm_use){tensors->absmax[k], MM_MODIFY, MM_FORM_VALUE};
        }
        uses[n++] = (mm_use){tensors->value, MM_MODIFY, MM_FORM_VALUE};
        if (tensors->copy >= 0 && !nets_lowered_divides(out, NETS_DIVIDE_STATES))
            uses[n++] = (mm_use){tensors->copy, MM_MODIFY, MM_FORM_VALUE};
    }
    if (out->shares >= 0) uses[n++] = (mm_use){out->shares, MM_READ, MM_FORM_VALUE};
    if (counts) uses[n++] = (mm_use){out->rng, MM_MODIFY, MM_FORM_VALUE};
    uses[n++] = (mm_use){out->lr, MM_READ, MM_FORM_VALUE};
    if (out->n_updates == 0) uses[n++] = (mm_use){out->loss, MM_READ, MM_FORM_VALUE};
    if (out->step >= 0) uses[n++] = (mm_use){out->step, counts ? MM_MODIFY : MM_READ, MM_FORM_VALUE};
    return n;
}

/* The same for an update on the host. */
static size_t list_host_uses(const nets_lowered *out, int from, int to, bool last, mm_use *uses) {
    size_t n = 0;
    for (int i = from; i < to; i++) {
        const nets_param_tensors *tensors = &out->params[i];
        if (!nets_param_trains(nets_net_param(out->net, i))) continue;
        uses[n++] = (mm_use){tensors->gradient, MM_READ, MM_FORM_VALUE};
        for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->state[k] >= 0; k++) {
            uses[n++] = (mm_use){tensors->state[k], MM_MODIFY, MM_FORM_VALUE};
            if (tensors->absmax[k] >= 0) uses[n++] = (mm_use){tensors->absmax[k], MM_MODIFY, MM_FORM_VALUE};
        }
        uses[n++] = (mm_use){tensors->value, MM_MODIFY, MM_FORM_VALUE};
        if (tensors->copy >= 0) uses[n++] = (mm_use){tensors->copy, MM_WRITE, MM_FORM_VALUE};
    }
    if (out->step >= 0) uses[n++] = (mm_use){out->step, last ? MM_MODIFY : MM_READ, MM_FORM_VALUE};
    return n;
}

mm_status nets_lower_host_end(nets_lowered *out) {
    const mm_use uses[] = {
        {out->rng, MM_MODIFY, MM_FORM_VALUE}, {out->lr, MM_READ, MM_FORM_VALUE}, {out->loss, MM_READ, MM_FORM_VALUE}};
    MM_TRY(add_update_step(out, nets_optimizer_traits_of(out->optimizer)->layer, uses, sizeof uses / sizeof *uses));
    out->steps[out->n_steps - 1].part = out->n_updates++;
    return MM_OK;
}

static int64_t gradient_bytes(const nets_lowered *out, int param) {
    const mm_tensor gradient = out->params[param].gradient;
    return gradient >= 0 ? mm_graph_tensor(out->graph, gradient)->bytes : 0;
}

static int count_trained(const nets_lowered *out, int from, int to) {
    int n = 0;
    for (int i = from; i < to; i++) n += nets_param_trains(nets_net_param(out->net, i));
    return n;
}

/* Adds an update of the parameters from `from` to below `to`, or of a strip of the one, if it is cut. last: no other
 * update follows. */
static mm_status add_update(nets_lowered *out, const char *name, int from, int to, int strip, bool last) {
    nets_step *step = &out->steps[out->n_steps];
    mm_use *uses = malloc(((3 + 2 * NETS_OPTIMIZER_STATES) * (size_t)(to - from) + 5) * sizeof *uses);
    if (!uses) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to lower its update", nets_net_name(out->net));
    const size_t n =
        out->on_host ? list_host_uses(out, from, to, last, uses) : list_uses(out, from, to, strip, last, uses);
    mm_status status = add_update_step(out, name, uses, n);
    free(uses);
    if (status == MM_OK && out->on_host) status = mm_graph_run_on_host(out->graph);
    if (status == MM_OK && out->on_host) step->tensors[NETS_RNG] = -1;
    step->on_host = out->on_host;
    step->first_updated = count_trained(out, 0, from);
    step->n_updated = count_trained(out, from, to);
    step->part = out->n_updates++;
    step->strip = strip;
    return status;
}

/* Adds the update's parts, the last parameters first, each with at least `least` of the `all` bytes of gradients. */
static mm_status add_updates(nets_lowered *out, int64_t least, int64_t all) {
    const char *optimizer = nets_optimizer_traits_of(out->optimizer)->layer;
    for (int to = nets_net_params(out->net), from = to; to > 0 || out->n_updates == 0; to = from) {
        int64_t part = 0;
        while (from > 0 && (from == to || part < least || all == 0)) {
            from--;
            part += gradient_bytes(out, from);
            all -= gradient_bytes(out, from);
        }
        char name[32];
        const bool whole = from == 0 && to == nets_net_params(out->net);
        snprintf(name, sizeof name, "%s%s%.0d", optimizer, whole ? "" : ".", whole ? 0 : out->n_updates + 1);
        MM_TRY(add_update(out, name, from, to, 0, from == 0));
    }
    return MM_OK;
}

/* Whether the parameter is updated behind one of the layers up to `behind`, which the backward pass has not passed. */
static bool is_left(const nets_lowered *out, const int *complete, int param, int behind) {
    return nets_param_trains(nets_net_param(out->net, param)) && complete[param] <= behind;
}

static bool is_cut(const nets_lowered *out, int param) { return out->params[param].strips.n > 1; }

/* What the update of the parameters from `from` on is called after: their layer; behind a parameter of that layer which
 * is cut, the first of them. */
static const char *updated_name(const nets_lowered *out, int from) {
    const nets_param *param = nets_net_param(out->net, from);
    const bool behind = from > 0 && is_cut(out, from - 1) && nets_net_param(out->net, from - 1)->layer == param->layer;
    return behind ? param->name : nets_net_layer(out->net, param->layer)->name;
}

/* Adds a step for each strip of the parameter. last: no other parameter's update follows. */
static mm_status add_strips(nets_lowered *out, int param, bool last) {
    for (int i = 0; i < out->params[param].strips.n; i++) {
        char name[NETS_PARAM_NAME_CAPACITY + 32];
        snprintf(name, sizeof name, "%s.%s[%d]", nets_optimizer_traits_of(out->optimizer)->layer,
                 nets_net_param(out->net, param)->name, i);
        MM_TRY(add_update(out, name, param, param + 1, i, last && i == out->params[param].strips.n - 1));
    }
    return MM_OK;
}

mm_status nets_lower_layer_update(nets_lowered *out, const int *complete, int behind) {
    const int n = nets_net_params(out->net);
    int left = 0;
    for (int i = 0; i < n; i++) left += is_left(out, complete, i, behind);
    for (int from = 0, to; from < n; from = to) {
        to = from + 1;
        if (!is_left(out, complete, from, behind) || complete[from] < behind) continue;
        const bool cut = is_cut(out, from);
        while (!cut && to < n && !is_cut(out, to) &&
               (!nets_param_trains(nets_net_param(out->net, to)) || complete[to] == behind))
            to++;
        char name[NETS_PARAM_NAME_CAPACITY + 32];
        snprintf(name, sizeof name, "%s.%s", nets_optimizer_traits_of(out->optimizer)->layer, updated_name(out, from));
        left -= count_trained(out, from, to);
        MM_TRY(cut ? add_strips(out, from, left == 0) : add_update(out, name, from, to, 0, left == 0));
    }
    return MM_OK;
}

static mm_status add_gather(nets_lowered *out, mm_use *uses) {
    size_t n = 0;
    for (int i = 0; i < nets_net_params(out->net); i++) {
        if (!nets_param_trains(nets_net_param(out->net, i))) continue;
        uses[n++] = (mm_use){out->params[i].value, MM_MODIFY, MM_FORM_VALUE};
        if (out->params[i].copy >= 0) uses[n++] = (mm_use){out->params[i].copy, MM_WRITE, MM_FORM_VALUE};
    }
    if (n == 0) return MM_OK;
    MM_TRY(nets_lower_own_step(out, "gather", MM_UPDATE, uses, n, 0));
    out->steps[out->n_steps - 1].exchanges = NETS_GATHERS;
    return MM_OK;
}

mm_status nets_lower_update(nets_lowered *out) {
    const nets_allreduce *allreduce = &out->allreduce;
    /* If the update has several parts, each has at least an eighth of all gradients' bytes, and at least LEAST_BYTES,
     * so that the part is worth its launches. Chosen. */
    enum { LEAST_BYTES = 64 << 10, PARTS = 8 };
    const mm_use image = {out->rng, MM_MODIFY, MM_FORM_VALUE};
    const int n_params = nets_net_params(out->net);
    if (out->pass.goes_on) return add_update_step(out, "sub-batch", &image, 1);
    int64_t all = 0;
    for (int i = 0; i < n_params; i++) all += gradient_bytes(out, i);
    int64_t least = all;
    if (allreduce->n > 1 && allreduce->when == MM_ALLREDUCE_AT_ONCE)
        least = least / PARTS > LEAST_BYTES ? (least + PARTS - 1) / PARTS : LEAST_BYTES;
    return add_updates(out, least, all);
}

mm_status nets_lower_gather(nets_lowered *out) {
    mm_use *uses = malloc((2 * (size_t)nets_net_params(out->net) + 1) * sizeof *uses);
    if (!uses) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to lower its update", nets_net_name(out->net));
    const mm_status status = add_gather(out, uses);
    free(uses);
    return status;
}
