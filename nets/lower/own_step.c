/* SPDX-License-Identifier: MIT */
#include "nets/lower/own_step.h"

mm_status nets_lower_own_step(nets_lowered *out, const char *name, mm_phase phase, const mm_use *uses, size_t n,
                              int64_t workspace_bytes) {
    nets_step *step = &out->steps[out->n_steps];
    *step = (nets_step){.layer = -1, .phase = phase};
    for (int r = 0; r < NETS_ROLES; r++) step->tensors[r] = -1;
    MM_TRY(mm_graph_add_layer(out->graph, name, MM_LAYER_UPDATE, &step->graph_layer));
    MM_TRY(mm_graph_add_step(out->graph, step->graph_layer, phase, uses, n, (size_t)workspace_bytes));
    out->n_steps++;
    return MM_OK;
}
