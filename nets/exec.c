#include "nets/exec.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/graph.h"
#include "nets/init.h"

struct nets_exec {
    const nets_net *net;
    mm_manager *manager;
    nets_backend *backend;
    nets_lowered *lowered;
    nets_sgd sgd;
    float lr; /* of the iteration that runs */
    bool prepared;
    nets_sgd_param *sgd_params; /* of the update step: the learned parameters */
    int n_sgd_params;
    uint32_t *rng;
    const float *loss;
    const int32_t *correct;
};

/* A persistent tensor's place, the same for the manager's life. NULL for an absent tensor. */
static void *place(const nets_exec *exec, mm_tensor tensor) {
    if (tensor < 0) return NULL;
    return mm_persistent_data(exec->manager, mm_graph_tensor(exec->lowered->graph, tensor)->name, NULL);
}

static mm_status collect_params(nets_exec *exec) {
    int n = nets_net_params(exec->net);
    exec->sgd_params = calloc((size_t)n + 1, sizeof *exec->sgd_params);
    if (!exec->sgd_params) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to update it", nets_net_name(exec->net));
    for (int i = 0; i < n; i++) {
        if (!nets_net_param(exec->net, i)->learned) continue;
        exec->sgd_params[exec->n_sgd_params++] = (nets_sgd_param){.weight = nets_exec_param(exec, i, NETS_VALUE),
                                                                  .momentum = nets_exec_param(exec, i, NETS_MOMENTUM),
                                                                  .gradient = nets_exec_param(exec, i, NETS_GRADIENT),
                                                                  .elems = nets_net_param(exec->net, i)->elems};
    }
    return MM_OK;
}

static mm_status recompute(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

static mm_status create(nets_exec *exec, int64_t batch, nets_mode mode, const char *device) {
    MM_TRY(nets_backend_open(device, NULL, &exec->backend));
    MM_TRY(nets_lower(exec->net, exec->backend, batch, mode, &exec->lowered));
    MM_TRY(mm_manager_prepare(exec->manager, exec->lowered->graph));
    exec->prepared = true;
    MM_TRY(mm_recompute_set(exec->manager, exec->lowered->graph, recompute, exec));
    exec->loss = place(exec, exec->lowered->loss);
    exec->correct = place(exec, exec->lowered->correct);
    exec->rng = place(exec, exec->lowered->rng);
    return mode == NETS_TRAIN ? collect_params(exec) : MM_OK;
}

mm_status nets_exec_create(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager, const char *device,
                           const nets_sgd *sgd, nets_exec **exec_out) {
    nets_exec *exec = calloc(1, sizeof *exec);
    if (!exec) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to execute it", nets_net_name(net));
    exec->net = net;
    exec->manager = manager;
    if (sgd) exec->sgd = *sgd;
    mm_status status = create(exec, batch, mode, device);
    if (status != MM_OK) {
        nets_exec_destroy(exec);
        return status;
    }
    *exec_out = exec;
    return MM_OK;
}

void nets_exec_destroy(nets_exec *exec) {
    if (!exec) return;
    /* Refused only within an iteration, where destroying is not allowed: then the graph must stay. */
    if (exec->prepared && mm_manager_forget(exec->manager, exec->lowered->graph) != MM_OK) return;
    nets_lowered_destroy(exec->lowered);
    nets_backend_close(exec->backend);
    free(exec->sgd_params);
    free(exec);
}

const nets_lowered *nets_exec_lowered(const nets_exec *exec) { return exec->lowered; }

float *nets_exec_param(const nets_exec *exec, int param, nets_part part) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    switch (part) {
    case NETS_VALUE:
        return place(exec, tensors->value);
    case NETS_GRADIENT:
        return place(exec, tensors->gradient);
    case NETS_MOMENTUM:
        return place(exec, tensors->momentum);
    }
    return NULL;
}

void nets_exec_init(nets_exec *exec, uint64_t seed) {
    for (int i = 0; i < nets_net_params(exec->net); i++) {
        nets_init_param(exec->net, i, seed, nets_exec_param(exec, i, NETS_VALUE));
        float *momentum = nets_exec_param(exec, i, NETS_MOMENTUM);
        if (momentum) memset(momentum, 0, (size_t)nets_net_param(exec->net, i)->elems * sizeof *momentum);
    }
    if (!exec->rng) return;
    exec->rng[0] = (uint32_t)seed;
    exec->rng[1] = (uint32_t)(seed >> 32);
    exec->rng[2] = exec->rng[3] = 0;
}

/* ---------------------------------------------------------------- iteration */

typedef struct iteration {
    const float *images;
    const int32_t *labels;
    mm_stream *stream;
} iteration;

static mm_status enqueue_copy(const nets_exec *exec, const iteration *it, mm_tensor tensor, const void *from) {
    int64_t bytes = mm_graph_tensor(exec->lowered->graph, tensor)->bytes;
    return mm_copy_async(it->stream, mm_tensor_data(exec->manager, tensor), from, bytes, MM_COPY_IN);
}

static mm_status enqueue_data(const nets_exec *exec, const iteration *it) {
    MM_TRY(enqueue_copy(exec, it, exec->lowered->images, it->images));
    return enqueue_copy(exec, it, exec->lowered->labels, it->labels);
}

static mm_status enqueue_update(const nets_exec *exec, const iteration *it) {
    const nets_sgd_args args = {
        .params = exec->sgd_params, .n_params = exec->n_sgd_params, .lr = &exec->lr, .sgd = exec->sgd, .rng = exec->rng};
    return exec->backend->ops->sgd(exec->backend, &args, it->stream);
}

/* `again`: recomputed; running statistics are left alone, they have seen this batch. */
static mm_status enqueue_op(const nets_exec *exec, const nets_step *step, mm_stream *stream, bool again) {
    nets_op_args args = {.layer = (uint32_t)step->layer};
    args.at[NETS_WORKSPACE] = mm_workspace_data(exec->manager);
    for (int r = 0; r < NETS_ROLES; r++) {
        mm_tensor tensor = step->tensors[r];
        if (tensor < 0) continue;
        args.at[r] = mm_tensor_data(exec->manager, tensor);
        if (step->sign_roles & NETS_ROLE_BIT(r) && mm_tensor_form(exec->manager, tensor) == MM_FORM_SIGN)
            args.sign_roles |= NETS_ROLE_BIT(r);
    }
    if (again) args.at[NETS_MEAN] = args.at[NETS_VAR] = NULL;
    return nets_op_enqueue(step->op, step->phase, &args, stream);
}

/* mm_recompute_fn */
static mm_status recompute(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream) {
    const nets_exec *exec = ctx;
    (void)manager;
    int step = mm_graph_layer(exec->lowered->graph, layer)->step[MM_FORWARD];
    return enqueue_op(exec, &exec->lowered->steps[step], stream, true);
}

static mm_status enqueue_step(const nets_exec *exec, const iteration *it, const nets_step *step) {
    if (step->phase == MM_UPDATE) return enqueue_update(exec, it);
    return step->op ? enqueue_op(exec, step, it->stream, false) : enqueue_data(exec, it);
}

static mm_status run_iteration(const nets_exec *exec, const iteration *it) {
    const nets_lowered *lowered = exec->lowered;
    MM_TRY(mm_iteration_begin(exec->manager, lowered->graph));
    for (int i = 0; i < lowered->n_steps; i++) {
        const nets_step *step = &lowered->steps[i];
        MM_TRY(mm_layer_begin(exec->manager, step->graph_layer, step->phase, it->stream));
        MM_TRY(enqueue_step(exec, it, step));
        MM_TRY(mm_layer_end(exec->manager, step->graph_layer, step->phase));
    }
    return mm_iteration_end(exec->manager);
}

mm_status nets_exec_iteration(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr,
                              nets_result *result_out) {
    if (n != exec->lowered->batch)
        return mm_fail(MM_ERR_INVALID, "net %s: %lld images for a batch of %lld", nets_net_name(exec->net),
                       (long long)n, (long long)exec->lowered->batch);
    exec->lr = lr;
    const iteration it = {.images = images, .labels = labels, .stream = mm_compute_stream(exec->manager)};
    mm_status status = run_iteration(exec, &it);
    if (status != MM_OK) {
        mm_iteration_abort(exec->manager);
        return status;
    }
    *result_out = (nets_result){.loss = *exec->loss, .correct = *exec->correct};
    return MM_OK;
}
