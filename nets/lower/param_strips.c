/* SPDX-License-Identifier: MIT */
#include "nets/lower/param_strips.h"

#include <stdio.h>

#include "nets/net.h"

int64_t nets_strip_most(int64_t trained) {
    return trained / NETS_STRIP_PART > NETS_STRIP_ELEMS ? trained / NETS_STRIP_PART : NETS_STRIP_ELEMS;
}

nets_param_strips nets_param_strips_of(int64_t elems, int64_t most) {
    if (elems <= 2 * most) return (nets_param_strips){1, elems};
    const int64_t least = (elems + most - 1) / most, even = (elems + least - 1) / least;
    const int64_t each = (even + NETS_STRIP_UNIT - 1) / NETS_STRIP_UNIT * NETS_STRIP_UNIT;
    return (nets_param_strips){(int)((elems + each - 1) / each), each};
}

nets_share nets_strip(const nets_param_strips *strips, int i, int64_t elems) {
    const int64_t first = i * strips->elems;
    return (nets_share){first, elems - first < strips->elems ? elems - first : strips->elems};
}

mm_status nets_strips_add(mm_graph *graph, const nets_param_strips *strips, int64_t elems, const char *name,
                          mm_tensor weight, mm_tensor *first_out) {
    for (int i = 0; i < strips->n; i++) {
        char own[NETS_PARAM_NAME_CAPACITY + 32];
        mm_tensor tensor;
        mm_tensor_desc desc = {
            .name = own, .kind = MM_OPTIMIZER, .ownership = MM_PERSISTENT, .dtype = MM_F32, .rank = 1};
        desc.dims[0] = nets_strip(strips, i, elems).n;
        snprintf(own, sizeof own, "%s[%d]", name, i);
        MM_TRY(mm_graph_add_tensor(graph, &desc, &tensor));
        MM_TRY(mm_graph_set_weight(graph, tensor, weight));
        if (i == 0) *first_out = tensor;
    }
    return MM_OK;
}
