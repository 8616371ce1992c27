/* SPDX-License-Identifier: MIT */
/* Creates and destroys executors, and stages their batches. */
#include "nets/exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/exec/exec_internal.h"

/* The places of the homes, for what is made of them before the first update. */
static void find_places(nets_exec *exec) {
    for (int i = 0; i < exec->n_params; i++) {
        const nets_param_tensors *tensors = &exec->lowered->params[exec->number[i]];
        nets_update_param *param = &exec->params[i];
        param->weight = nets_exec_place(exec, tensors->value);
        param->copy = nets_exec_place(exec, tensors->copy);
        param->gradient = nets_exec_place(exec, tensors->gradient);
        for (int k = 0; k < NETS_OPTIMIZER_STATES; k++) {
            const bool coded = tensors->absmax[k] >= 0;
            param->state[k] = coded ? NULL : nets_exec_place(exec, tensors->state[k]);
            param->codes[k] = coded ? nets_exec_place(exec, tensors->state[k]) : NULL;
            param->absmax[k] = nets_exec_place(exec, tensors->absmax[k]);
        }
    }
}

static mm_status collect_params(nets_exec *exec) {
    int n = nets_net_params(exec->net);
    exec->params = calloc((size_t)n + 1, sizeof *exec->params);
    const int n_tensors = mm_graph_tensors(exec->lowered->graph);
    exec->param_of = malloc(((size_t)n_tensors + 1) * sizeof *exec->param_of);
    exec->written = calloc((size_t)n + 1, sizeof *exec->written);
    exec->number = calloc((size_t)n + 1, sizeof *exec->number);
    if (!exec->params || !exec->param_of || !exec->written || !exec->number)
        return mm_fail(MM_ERR_NOMEM, "net %s: no memory to update it", nets_net_name(exec->net));
    for (int t = 0; t < n_tensors; t++) exec->param_of[t] = -1;
    for (int i = 0; i < n; i++) {
        const nets_param *of = nets_net_param(exec->net, i);
        if (!nets_param_trains(of)) continue;
        exec->number[exec->n_params] = i;
        if (exec->lowered->params[i].gradient >= 0) exec->param_of[exec->lowered->params[i].gradient] = exec->n_params;
        exec->written[exec->n_params] = exec->params[exec->n_params] =
            (nets_update_param){.elems = nets_order_elems(&exec->lowered->params[i].order), .decayed = of->decayed};
        exec->n_params++;
    }
    exec->n_checked = exec->n_params;
    for (int i = 0; i < n; i++) {
        if (nets_net_param(exec->net, i)->learned) continue;
        exec->number[exec->n_checked] = i;
        exec->params[exec->n_checked++] = (nets_update_param){.elems = nets_net_param(exec->net, i)->elems};
    }
    find_places(exec);
    return nets_exec_strips_init(exec);
}

/* The backend's handles and workspaces must be those of the manager's device. */
static mm_status check_device(const nets_exec *exec) {
    const nets_backend *backend = exec->backend;
    const mm_device *device = mm_compute_stream(exec->manager)->device;
    if (strcmp(backend->ops->name, device->ops->name) == 0 && backend->ordinal == device->ordinal) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "net %s: its operations are on device %s:%d, but the manager is on device %s:%d",
                   nets_net_name(exec->net), backend->ops->name, backend->ordinal, device->ops->name, device->ordinal);
}

int nets_exec_graphs(int64_t batch, int64_t sub_batch, nets_exec_graph graphs_out[NETS_PASSES]) {
    const int64_t last = batch - (batch - 1) / sub_batch * sub_batch;
    if (last == batch) {
        graphs_out[0] = (nets_exec_graph){batch, {0}, 1};
        return 1;
    }
    const int64_t middle = nets_exec_passes(batch, sub_batch) - 2;
    graphs_out[0] = (nets_exec_graph){sub_batch, {.whole = batch, .goes_on = true}, 1};
    graphs_out[1] = (nets_exec_graph){sub_batch, {.whole = batch, .adds = true, .goes_on = true}, middle};
    graphs_out[middle ? 2 : 1] = (nets_exec_graph){last, {.whole = batch, .adds = true}, 1};
    return middle ? 3 : 2;
}

static mm_status create_pass(nets_exec *exec, const nets_lowering *how, const nets_exec_graph *graph,
                             nets_exec_pass *pass) {
    nets_lowering of_pass = *how;
    of_pass.pass = graph->pass;
    pass->exec = exec;
    MM_TRY(nets_lower(exec->net, exec->backend, graph->batch, &of_pass, &pass->lowered));
    MM_TRY(mm_recompute_set(exec->manager, pass->lowered->graph, nets_exec_recompute, pass));
    pass->prepared = true;
    const nets_allreduce *allreduce = &pass->lowered->allreduce;
    if (allreduce->n < 2 || graph->pass.goes_on) return MM_OK;
    return mm_allreduce_set(exec->manager, pass->lowered->graph, allreduce->fns, allreduce->ctx);
}

static mm_status check_update(const nets_exec *exec, const nets_lowering *how) {
    nets_lowering whole = *how;
    if (exec->sub_batch != exec->batch) whole.pass.whole = exec->batch;
    const char *refusal = nets_update_refusal(&whole, exec->optimizer.clip_norm > 0);
    if (!refusal) return MM_OK;
    static const char *const words[] = {[NETS_UPDATE_AT_END] = "at the end",
                                        [NETS_UPDATE_BY_LAYER] = "by layer",
                                        [NETS_UPDATE_IN_BACKWARD] = "in the backward pass"};
    return mm_fail(MM_ERR_UNSUPPORTED, "net %s: cannot be updated %s: %s", nets_net_name(exec->net), words[how->update],
                   refusal);
}

static mm_status create(nets_exec *exec, const nets_lowering *how) {
    nets_exec_graph graphs[NETS_PASSES] = {{exec->batch, {0}, 1}};
    exec->n_passes = 1;
    MM_TRY(check_device(exec));
    MM_TRY(check_update(exec, how));
    if (exec->sub_batch != exec->batch) {
        if (exec->sub_batch < 1 || exec->sub_batch > exec->batch)
            return mm_fail(MM_ERR_INVALID, "net %s: a sub-batch of %lld images must be from 1 to the batch of %lld",
                           nets_net_name(exec->net), (long long)exec->sub_batch, (long long)exec->batch);
        exec->n_passes = nets_exec_graphs(exec->batch, exec->sub_batch, graphs);
    }
    /* The last pass's graph has all persistent tensors, so it is prepared first: then there is room for those of the
     * other graphs. */
    for (int i = exec->n_passes - 1; i >= 0; i--) {
        MM_TRY(create_pass(exec, how, &graphs[i], &exec->pass[i]));
        exec->lowered = exec->pass[exec->n_passes - 1].lowered;
    }
    MM_TRY(nets_ring_init(&exec->ring, mm_compute_stream(exec->manager), exec->batch * nets_exec_image_bytes(exec),
                          exec->batch * nets_exec_label_bytes(exec)));
    if (how->mode != NETS_TRAIN) return MM_OK;
    MM_TRY(nets_undo_init(&exec->undo, exec->manager, exec->lowered));
    MM_TRY(collect_params(exec));
    MM_TRY(nets_on_host_init(&exec->on_host, exec->lowered, exec->backend->threads));
    return nets_divider_init(&exec->divider, exec);
}

mm_status nets_exec_create_with(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                                nets_backend *backend, const nets_optimizer *optimizer,
                                const nets_exec_options *options, nets_exec **exec_out) {
    nets_exec *exec = calloc(1, sizeof *exec);
    if (!exec) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to execute it", nets_net_name(net));
    exec->net = net;
    exec->manager = manager;
    exec->backend = backend;
    exec->batch = batch;
    exec->sub_batch = options->sub_batch != 0 ? options->sub_batch : batch;
    if (optimizer) exec->optimizer = *optimizer;
    const nets_lowering how = {.mode = mode,
                               .optimizer = exec->optimizer.id,
                               .update = options->update,
                               .no_fuse = options->no_fuse,
                               .strip_elems = options->strip_elems,
                               .clips = exec->optimizer.clip_norm > 0,
                               .on_host = exec->optimizer.on_host,
                               .allreduce = options->allreduce};
    mm_status status = create(exec, &how);
    nets_exec_stepped_down(exec);
    if (status != MM_OK) {
        nets_exec_destroy(exec);
        return status;
    }
    *exec_out = exec;
    return MM_OK;
}

mm_status nets_exec_create_on(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                              nets_backend *backend, const nets_optimizer *optimizer, nets_exec **exec_out) {
    return nets_exec_create_with(net, batch, mode, manager, backend, optimizer, &(nets_exec_options){0}, exec_out);
}

mm_status nets_exec_create(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager, const char *device,
                           const nets_optimizer *optimizer, nets_exec **exec_out) {
    nets_backend *backend;
    nets_exec *exec;
    MM_TRY(nets_backend_open(device, NULL, &backend));
    mm_status status = nets_exec_create_on(net, batch, mode, manager, backend, optimizer, &exec);
    if (status != MM_OK) {
        nets_backend_close(backend);
        return status;
    }
    exec->own_backend = backend;
    *exec_out = exec;
    return MM_OK;
}

void nets_exec_destroy(nets_exec *exec) {
    if (!exec) return;
    /* The manager refuses to forget a graph only within an iteration, where the caller must not destroy the executor:
     * then the graphs are not freed. */
    for (int i = 0; i < exec->n_passes; i++)
        if (exec->pass[i].prepared && mm_manager_forget(exec->manager, exec->pass[i].lowered->graph) != MM_OK) return;
    nets_staging_fini(&exec->staging);
    nets_divider_fini(&exec->divider);
    nets_on_host_fini(&exec->on_host);
    nets_ring_fini(&exec->ring);
    nets_undo_fini(&exec->undo);
    for (int i = 0; i < exec->n_passes; i++) nets_lowered_destroy(exec->pass[i].lowered);
    nets_backend_close(exec->own_backend);
    free(exec->params);
    free(exec->param_of);
    free(exec->written);
    free(exec->strips);
    free(exec->number);
    free(exec);
}

const nets_lowered *nets_exec_lowered(const nets_exec *exec) { return exec->lowered; }

const nets_lowered *nets_exec_lowered_pass(const nets_exec *exec, int pass) {
    if (pass < 0 || pass >= exec->n_passes) return NULL;
    return pass == 0 ? exec->lowered : exec->pass[pass - 1].lowered;
}

/* ---------------------------------------------------------------- staging: copies a batch while the device computes */

int64_t nets_exec_stage_bytes(const nets_net *net, int64_t batch) {
    nets_shape shape;
    if (nets_net_shape(net, 0, batch, &shape) != MM_OK) return 0;
    return nets_slot_batch_bytes(nets_shape_elems(&shape) * (int64_t)sizeof(float),
                                 batch * nets_net_labels(net) * (int64_t)sizeof(int32_t));
}

mm_status nets_exec_stage(nets_exec *exec) {
    char name[sizeof exec->staging.name];
    if (exec->staging.stream || nets_exec_outstanding(exec) > 0)
        return mm_fail(MM_ERR_ORDER, "%s: its batches are staged already, or an iteration is not collected",
                       mm_graph_name(exec->lowered->graph));
    snprintf(name, sizeof name, "batch of %.200s", mm_graph_name(exec->lowered->graph));
    return nets_staging_init(&exec->staging, exec->manager, name, nets_exec_stage_bytes(exec->net, exec->sub_batch));
}
