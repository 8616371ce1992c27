/* SPDX-License-Identifier: MIT */
#include "tools/bench/trainer.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "tools/need/need.h"

static mm_status least_budget(const nets_net *net, int64_t batch, mm_options *options) {
    target host = TARGET_DEFAULTS;
    need n;
    MM_TRY(target_init(&host));
    const need_case c = {.net = net,
                         .batch = batch,
                         .mode = NETS_TRAIN,
                         .target = &host,
                         .policy = options->policy,
                         .pinned = {.bytes = INT64_MAX}};
    mm_status status = need_init(&n, &c);
    if (status == MM_OK) {
        options->device_bytes = need_most(&n)->planned.plan->peak_bytes;
        options->pinned_bytes = need_most(&n)->planned.plan->pinned_bytes;
        need_fini(&n);
    }
    target_fini(&host);
    return status;
}

mm_status trainer_init(trainer *t, const nets_net *net, int64_t batch, const nets_optimizer *sgd,
                       const mm_options *options) {
    memset(t, 0, sizeof *t);
    mm_options own = *options;
    own.device = "host";
    MM_TRY(least_budget(net, batch, &own));
    MM_TRY(mm_manager_create(&own, &t->manager));
    t->budget_bytes = own.device_bytes;
    mm_status status = nets_exec_create(net, batch, NETS_TRAIN, t->manager, own.device, sgd, &t->exec);
    if (status != MM_OK) trainer_fini(t);
    return status;
}

void trainer_fini(trainer *t) {
    nets_exec_destroy(t->exec);
    mm_manager_destroy(t->manager);
    memset(t, 0, sizeof *t);
}

mm_status trainer_copy(const trainer *from, trainer *to) {
    const mm_graph *graph = nets_exec_lowered(from->exec)->graph;
    int64_t most = 1;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_PERSISTENT && mm_graph_tensor(graph, t)->bytes > most)
            most = mm_graph_tensor(graph, t)->bytes;
    void *data = malloc((size_t)most);
    if (!data) return mm_fail(MM_ERR_NOMEM, "out of memory for a tensor of %lld bytes", (long long)most);
    mm_status status = MM_OK;
    for (int t = 0; status == MM_OK && t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(graph, t);
        if (info->ownership != MM_PERSISTENT) continue;
        status = mm_persistent_get(from->manager, info->name, 0, data, info->bytes);
        if (status == MM_OK) status = mm_persistent_set(to->manager, info->name, 0, data, info->bytes);
    }
    free(data);
    return status;
}
