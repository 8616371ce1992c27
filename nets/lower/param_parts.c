/* SPDX-License-Identifier: MIT */
#include "nets/lower/param_parts.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "nets/contract/op_sizes.h"
#include "nets/lower/own_step.h"

/* A gradient of fewer bytes stays whole. A part has PART_BYTES, in whole multiples of ROWS_UNIT rows, of which there
 * are at least so many. Chosen: of a matrix of 50257 x 768, parts of 96 KiB, which are products as fast as larger
 * ones. */
enum { LEAST_BYTES = 1 << 20, PART_BYTES = 128 << 10, ROWS_UNIT = 16 };

/* Whether the layer gives parts of this weight's gradient. */
static bool gives_parts(const nets_backend *backend, const nets_layer *layer) {
    return backend->ops->parts[layer->op] && !layer->attrs.by_output;
}

/* Whether all layers that use the weight give parts. *saves_out: the elements that a loss would save for them. */
static bool all_give_parts(const nets_lowered *out, const nets_backend *backend, int param, int64_t *saves_out) {
    const nets_net *net = out->net;
    int64_t saves = 0;
    for (int i = 0; i < nets_net_layers(net); i++) {
        const nets_layer *layer = nets_net_layer(net, i);
        if (nets_parts_weight(layer) != param) continue;
        if (!gives_parts(backend, layer)) return false;
        if (layer->op == NETS_TOKEN_LOSS) saves += out->batch * nets_net_labels(net) * layer->attrs.out_channels;
    }
    *saves_out = saves;
    return true;
}

/* Whether shares of whole parts are about equal: the last has at most an eighth more than another. */
static bool is_even(const nets_lowered *out, const nets_param *param, const nets_param_tensors *tensors) {
    enum { REST_PART = 8 }; /* chosen */
    const int64_t unit = nets_part_elems(tensors), each = nets_share_each(param->elems, out->allreduce.n, unit);
    return nets_share_room(param->elems, out->allreduce.n, unit) - each <= each / REST_PART;
}

void nets_param_parts_choose(const nets_lowered *out, const nets_backend *backend, int index,
                             nets_param_tensors *tensors) {
    const nets_param *param = nets_net_param(out->net, index);
    const int64_t size = sizeof(float);
    int64_t saves;
    if (out->mode != NETS_TRAIN || out->allreduce.n < 2 || !mm_allreduce_copies(out->allreduce.when)) return;
    if (out->allreduce.whole_gradients) return;
    if (!nets_param_trains(param) || param->rank != 2 || param->elems * size < LEAST_BYTES) return;
    if (backend->maps != MM_F32 || nets_parts_weight(nets_net_layer(out->net, param->layer)) != index ||
        !all_give_parts(out, backend, index, &saves))
        return;
    const int64_t units = PART_BYTES / (param->dims[1] * size * ROWS_UNIT);
    const int64_t rows = (units > 1 ? units : 1) * ROWS_UNIT;
    if (rows * param->dims[1] * out->allreduce.n > NETS_PIECE_MOST) return;
    tensors->row_elems = param->dims[1];
    tensors->part_rows = rows;
    tensors->parts_only =
        nets_lowered_divides(out, NETS_DIVIDE_GRADIENTS) && saves < param->elems && is_even(out, param, tensors);
}

mm_status nets_lower_parts(nets_lowered *out, int param, const nets_part_source *sources, int n, bool last) {
    const nets_param_tensors *tensors = &out->params[param];
    mm_use uses[2 * NETS_PART_SOURCES + 2];
    char name[NETS_PARAM_NAME_CAPACITY + 8];
    size_t n_uses = 0;
    int64_t scratch = 0;
    for (int i = 0; i < n; i++) {
        uses[n_uses++] = (mm_use){sources[i].x, MM_READ, MM_FORM_VALUE};
        uses[n_uses++] = (mm_use){sources[i].dy, MM_READ, MM_FORM_VALUE};
        scratch = nets_larger(scratch, sources[i].op->part_bytes);
    }
    /* Who predicts times finds by it how much is added up. */
    uses[n_uses++] = (mm_use){tensors->value, MM_READ, MM_FORM_VALUE};
    uses[n_uses++] = (mm_use){out->shares, MM_MODIFY, MM_FORM_VALUE};
    const int64_t parts = nets_aligned(out->allreduce.n * nets_part_elems(tensors) * (int64_t)sizeof(float));
    snprintf(name, sizeof name, "sum.%s", nets_net_param(out->net, param)->name);
    MM_TRY(nets_lower_own_step(out, name, MM_BACKWARD, uses, n_uses, parts + scratch));
    nets_step *step = &out->steps[out->n_steps - 1];
    step->exchanges = last ? NETS_SUMS_LAST : NETS_SUMS_OWN;
    step->parts_of = param;
    step->n_sources = n;
    step->op_workspace_at = parts;
    memcpy(step->sources, sources, (size_t)n * sizeof *sources);
    return MM_OK;
}
