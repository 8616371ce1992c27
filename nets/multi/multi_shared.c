#include "nets/multi/multi_shared.h"

#include <string.h>

#include "mm/core/graph.h"
#include "nets/optimizer.h"

static multi_kind kind_of(const mm_tensor_info *tensor) {
    if (tensor->dtype == MM_I32) return MULTI_COUNT;
    return tensor->kind == MM_WEIGHT_GRADIENT || strcmp(tensor->name, NETS_LOSS_NAME) == 0 ? MULTI_SUM : MULTI_MEAN;
}

static void sent(void *ctx, const mm_shared *shared) {
    const mm_tensor_info *tensor = mm_graph_tensor(shared->graph, shared->tensor);
    multi_begin(ctx, kind_of(tensor), shared->data, shared->bytes / (int64_t)sizeof(float));
}

static mm_status await(void *ctx, const mm_shared *shared) {
    (void)shared;
    return multi_await(ctx);
}

const mm_gradient_fns multi_gradient_fns = {sent, await};
