#include "nets/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph.h"
#include "nets/exec_slots.h"
#include "nets/init.h"

struct nets_exec {
    const nets_net *net;
    mm_manager *manager;
    nets_backend *backend, *own_backend; /* own_backend NULL: the caller's */
    nets_lowered *lowered;
    nets_sgd sgd;
    bool prepared;
    nets_sgd_param *sgd_params; /* of the update step: the learned parameters */
    int n_sgd_params;
    nets_slots slots;
    void *recorded_images, *recorded_labels; /* where the recorded iteration looks for its batch */
};

static const char *name_of(const nets_exec *exec, mm_tensor tensor) {
    return mm_graph_tensor(exec->lowered->graph, tensor)->name;
}

static int64_t bytes_of(const nets_exec *exec, mm_tensor tensor) {
    return mm_graph_tensor(exec->lowered->graph, tensor)->bytes;
}

/* A persistent tensor's place, the same for the manager's life. NULL for an absent tensor. */
static void *place(const nets_exec *exec, mm_tensor tensor) {
    return tensor < 0 ? NULL : mm_persistent_data(exec->manager, name_of(exec, tensor), NULL);
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

static mm_status create(nets_exec *exec, int64_t batch, nets_mode mode) {
    MM_TRY(nets_lower(exec->net, exec->backend, batch, mode, &exec->lowered));
    MM_TRY(mm_recompute_set(exec->manager, exec->lowered->graph, recompute, exec));
    exec->prepared = true;
    MM_TRY(nets_slots_init(&exec->slots, mm_compute_stream(exec->manager), bytes_of(exec, exec->lowered->images),
                           bytes_of(exec, exec->lowered->labels)));
    return mode == NETS_TRAIN ? collect_params(exec) : MM_OK;
}

mm_status nets_exec_create_on(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                              nets_backend *backend, const nets_sgd *sgd, nets_exec **exec_out) {
    nets_exec *exec = calloc(1, sizeof *exec);
    if (!exec) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to execute it", nets_net_name(net));
    exec->net = net;
    exec->manager = manager;
    exec->backend = backend;
    if (sgd) exec->sgd = *sgd;
    mm_status status = create(exec, batch, mode);
    if (status != MM_OK) {
        nets_exec_destroy(exec);
        return status;
    }
    *exec_out = exec;
    return MM_OK;
}

mm_status nets_exec_create(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager, const char *device,
                           const nets_sgd *sgd, nets_exec **exec_out) {
    nets_backend *backend;
    nets_exec *exec;
    MM_TRY(nets_backend_open(device, NULL, &backend));
    mm_status status = nets_exec_create_on(net, batch, mode, manager, backend, sgd, &exec);
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
    /* Refused only within an iteration, where destroying is not allowed: then the graph must stay. */
    if (exec->prepared && mm_manager_forget(exec->manager, exec->lowered->graph) != MM_OK) return;
    nets_slots_fini(&exec->slots);
    nets_lowered_destroy(exec->lowered);
    nets_backend_close(exec->own_backend);
    free(exec->sgd_params);
    free(exec);
}

const nets_lowered *nets_exec_lowered(const nets_exec *exec) { return exec->lowered; }

/* ---------------------------------------------------------------- parameters */

static mm_tensor part_tensor(const nets_exec *exec, int param, nets_part part) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    switch (part) {
    case NETS_VALUE:
        return tensors->value;
    case NETS_GRADIENT:
        return tensors->gradient;
    case NETS_MOMENTUM:
        return tensors->momentum;
    }
    return -1;
}

float *nets_exec_param(const nets_exec *exec, int param, nets_part part) {
    return place(exec, part_tensor(exec, param, part));
}

static mm_status no_part(const nets_exec *exec, int param) {
    return mm_fail(MM_ERR_NOT_FOUND, "parameter %s of %s has no such part here", nets_net_param(exec->net, param)->name,
                   nets_net_name(exec->net));
}

mm_status nets_exec_param_get(nets_exec *exec, int param, nets_part part, float *values_out) {
    mm_tensor tensor = part_tensor(exec, param, part);
    if (tensor < 0) return no_part(exec, param);
    return mm_persistent_get(exec->manager, name_of(exec, tensor), 0, values_out, bytes_of(exec, tensor));
}

mm_status nets_exec_param_set(nets_exec *exec, int param, nets_part part, const float *values) {
    mm_tensor tensor = part_tensor(exec, param, part);
    if (tensor < 0) return no_part(exec, param);
    return mm_persistent_set(exec->manager, name_of(exec, tensor), 0, values, bytes_of(exec, tensor));
}

/* `values`: room for the largest parameter. */
static mm_status init_params(nets_exec *exec, uint64_t seed, float *values) {
    for (int i = 0; i < nets_net_params(exec->net); i++) {
        nets_init_param(exec->net, i, seed, values);
        MM_TRY(nets_exec_param_set(exec, i, NETS_VALUE, values));
        if (exec->lowered->params[i].momentum < 0) continue;
        memset(values, 0, (size_t)nets_net_param(exec->net, i)->elems * sizeof *values);
        MM_TRY(nets_exec_param_set(exec, i, NETS_MOMENTUM, values));
    }
    return MM_OK;
}

mm_status nets_exec_init(nets_exec *exec, uint64_t seed) {
    int64_t most = 1;
    for (int i = 0; i < nets_net_params(exec->net); i++)
        if (nets_net_param(exec->net, i)->elems > most) most = nets_net_param(exec->net, i)->elems;
    float *values = malloc((size_t)most * sizeof *values);
    if (!values) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to initialise it", nets_net_name(exec->net));
    mm_status status = init_params(exec, seed, values);
    free(values);
    if (status != MM_OK || exec->lowered->rng < 0) return status;
    const uint32_t rng[4] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    return mm_persistent_set(exec->manager, name_of(exec, exec->lowered->rng), 0, rng, sizeof rng);
}

/* ---------------------------------------------------------------- iteration */

/* Where an iteration takes its batch from, and leaves its result. */
typedef struct iteration {
    const float *images;
    const int32_t *labels;
    nets_slot *slot;
    bool ahead;    /* it ends without a drain */
    bool recorded; /* its work is recorded: batch and result are yet to come */
    mm_stream *stream;
} iteration;

static mm_status enqueue_in(const iteration *it, const nets_exec *exec, mm_tensor tensor, void *to, const void *from) {
    return tensor < 0 ? MM_OK : mm_copy_async(it->stream, to, from, bytes_of(exec, tensor), MM_COPY_IN);
}

static mm_status enqueue_data(const nets_exec *exec, const iteration *it, void *images, void *labels) {
    const nets_lowered *lowered = exec->lowered;
    MM_TRY(enqueue_in(it, exec, lowered->images, images, it->images));
    MM_TRY(enqueue_in(it, exec, lowered->labels, labels, it->labels));
    return enqueue_in(it, exec, lowered->lr, place(exec, lowered->lr), it->slot->lr);
}

static mm_status enqueue_result(const nets_exec *exec, const iteration *it) {
    nets_result *to = it->slot->result;
    MM_TRY(mm_copy_async(it->stream, &to->loss, place(exec, exec->lowered->loss), sizeof to->loss, MM_COPY_OUT));
    return mm_copy_async(it->stream, &to->correct, place(exec, exec->lowered->correct), sizeof to->correct,
                         MM_COPY_OUT);
}

static mm_status enqueue_update(const nets_exec *exec, mm_stream *stream) {
    const nets_sgd_args args = {.params = exec->sgd_params,
                                .n_params = exec->n_sgd_params,
                                .lr = place(exec, exec->lowered->lr),
                                .sgd = exec->sgd,
                                .rng = place(exec, exec->lowered->rng)};
    return exec->backend->ops->sgd(exec->backend, &args, stream);
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
        if (again && mm_tensor_given(exec->manager, tensor)) args.given_roles |= NETS_ROLE_BIT(r);
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

/* The batch is another one each time: where the data step is recorded, nothing is enqueued. */
static mm_status run_data(nets_exec *exec, const iteration *it) {
    void *images = mm_tensor_data(exec->manager, exec->lowered->images);
    void *labels = mm_tensor_data(exec->manager, exec->lowered->labels);
    if (!it->recorded) return enqueue_data(exec, it, images, labels);
    exec->recorded_images = images;
    exec->recorded_labels = labels;
    return MM_OK;
}

static mm_status enqueue_step(nets_exec *exec, const iteration *it, const nets_step *step) {
    if (step->phase == MM_UPDATE) return enqueue_update(exec, it->stream);
    return step->op ? enqueue_op(exec, step, it->stream, false) : run_data(exec, it);
}

static mm_status run_steps(nets_exec *exec, const iteration *it) {
    const nets_lowered *lowered = exec->lowered;
    for (int i = 0; i < lowered->n_steps; i++) {
        const nets_step *step = &lowered->steps[i];
        MM_TRY(mm_layer_begin(exec->manager, step->graph_layer, step->phase, it->stream));
        MM_TRY(enqueue_step(exec, it, step));
        MM_TRY(mm_layer_end(exec->manager, step->graph_layer, step->phase));
    }
    return MM_OK;
}

static mm_status run_step_by_step(nets_exec *exec, const iteration *it) {
    MM_TRY(mm_iteration_begin(exec->manager, exec->lowered->graph));
    MM_TRY(run_steps(exec, it));
    MM_TRY(enqueue_result(exec, it));
    return it->ahead ? mm_iteration_end_async(exec->manager) : mm_iteration_end(exec->manager);
}

/* False: it runs step by step, for now or under this plan. */
static bool has_recording(nets_exec *exec, mm_stream *stream) {
    iteration recorded = {.stream = stream, .recorded = true};
    mm_replay_state_id state = mm_replay_state(exec->manager, exec->lowered->graph);
    if (state != MM_REPLAY_MAY) return state == MM_REPLAY_READY;
    mm_status status = mm_record_begin(exec->manager, exec->lowered->graph);
    if (status == MM_OK) status = run_steps(exec, &recorded);
    if (status == MM_OK) status = mm_record_end(exec->manager);
    if (status != MM_OK) mm_iteration_abort(exec->manager);
    return status == MM_OK;
}

/* The batch is put where the data step would put it. That place is free: what came before is over on the compute stream,
 * and of this iteration nothing has begun. */
static mm_status run_recorded(nets_exec *exec, const iteration *it) {
    MM_TRY(enqueue_data(exec, it, exec->recorded_images, exec->recorded_labels));
    MM_TRY(mm_iteration_replay(exec->manager, exec->lowered->graph));
    return enqueue_result(exec, it);
}

static mm_status run_iteration(nets_exec *exec, const iteration *it) {
    MM_TRY(has_recording(exec, it->stream) ? run_recorded(exec, it) : run_step_by_step(exec, it));
    return mm_event_record(it->slot->done, it->stream);
}

static int64_t ladder_steps(const nets_exec *exec) {
    mm_stats stats;
    mm_stats_get(exec->manager, &stats);
    return stats.ladder_steps;
}

/* Gives an iteration up that could not be enqueued: what is enqueued of it ends before its slot is used again. */
static mm_status undo(nets_exec *exec, mm_stream *stream, mm_status status) {
    mm_iteration_abort(exec->manager);
    char message[512];
    snprintf(message, sizeof message, "%s", mm_last_error());
    mm_status synced = mm_stream_sync(stream), settled = mm_manager_sync(exec->manager);
    (void)synced, (void)settled; /* what counts is what failed first */
    return mm_fail(status, "%s", message);
}

static mm_status submit(nets_exec *exec, iteration *it, float lr) {
    it->stream = mm_compute_stream(exec->manager);
    *it->slot->lr = lr;
    mm_status status = run_iteration(exec, it);
    if (status != MM_OK) return undo(exec, it->stream, status);
    exec->slots.submitted++;
    return MM_OK;
}

static mm_status check_batch(const nets_exec *exec, int64_t n, int room) {
    if (n != exec->lowered->batch)
        return mm_fail(MM_ERR_INVALID, "net %s: %lld images for a batch of %lld", nets_net_name(exec->net),
                       (long long)n, (long long)exec->lowered->batch);
    if (nets_exec_outstanding(exec) + room <= NETS_AHEAD) return MM_OK;
    return mm_fail(MM_ERR_ORDER, "net %s: %d iterations are submitted and not collected", nets_net_name(exec->net),
                   nets_exec_outstanding(exec));
}

mm_status nets_exec_iteration(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr,
                              nets_result *result_out) {
    MM_TRY(check_batch(exec, n, NETS_AHEAD));
    iteration it = {.images = images, .labels = labels, .slot = nets_slots_next(&exec->slots)};
    int64_t before = 0, now = 0, steps;
    if (exec->lowered->rng >= 0) MM_TRY(nets_exec_updates(exec, &before));
    mm_status status;
    do {
        steps = ladder_steps(exec);
        status = submit(exec, &it, lr);
        if (status == MM_OK) return nets_exec_collect(exec, result_out);
        /* Memory ran out, the manager has a plan that needs less, and nothing that is learned has changed: once more. */
    } while (status == MM_ERR_NOMEM && ladder_steps(exec) > steps &&
             (exec->lowered->rng < 0 || (nets_exec_updates(exec, &now) == MM_OK && now == before)));
    return status;
}

mm_status nets_exec_updates(nets_exec *exec, int64_t *updates_out) {
    if (exec->lowered->rng < 0)
        return mm_fail(MM_ERR_NOT_FOUND, "net %s: nothing is updated in an evaluation", nets_net_name(exec->net));
    uint32_t rng[4];
    MM_TRY(mm_persistent_get(exec->manager, name_of(exec, exec->lowered->rng), 0, rng, sizeof rng));
    *updates_out = (int64_t)((uint64_t)rng[3] << 32 | rng[2]);
    return MM_OK;
}

mm_status nets_exec_submit(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr) {
    MM_TRY(check_batch(exec, n, 1));
    nets_slot *slot = nets_slots_next(&exec->slots);
    if (images) memcpy(slot->images, images, (size_t)bytes_of(exec, exec->lowered->images));
    if (labels) memcpy(slot->labels, labels, (size_t)bytes_of(exec, exec->lowered->labels));
    iteration it = {.images = slot->images, .labels = slot->labels, .slot = slot, .ahead = true};
    return submit(exec, &it, lr);
}

/* On a device that cannot fail its stream itself (NETS_CORRECT). */
static mm_status bad_label(const nets_exec *exec, int32_t at) {
    return mm_fail(MM_ERR_INVALID, "the label of image %lld is not one of %lld classes",
                   (long long)(at / nets_net_labels(exec->net)), (long long)nets_net_classes(exec->net));
}

/* The iterations behind one that failed did not run either. */
static mm_status give_up(nets_exec *exec, mm_status status) {
    exec->slots.collected = exec->slots.submitted;
    char message[512];
    snprintf(message, sizeof message, "%s", mm_last_error());
    mm_status settled = mm_manager_sync(exec->manager); /* tells the same failure, unless it was told already */
    return settled != MM_OK ? settled : mm_fail(status, "%s", message);
}

mm_status nets_exec_collect(nets_exec *exec, nets_result *result_out) {
    if (nets_exec_outstanding(exec) == 0)
        return mm_fail(MM_ERR_ORDER, "net %s: no iteration is submitted", nets_net_name(exec->net));
    nets_slot *slot = nets_slots_oldest(&exec->slots);
    mm_status status = mm_event_sync(slot->done);
    if (status != MM_OK) return give_up(exec, status);
    if (slot->result->correct < 0) return give_up(exec, bad_label(exec, -1 - slot->result->correct));
    *result_out = *slot->result;
    exec->slots.collected++;
    return MM_OK;
}

int nets_exec_outstanding(const nets_exec *exec) { return (int)(exec->slots.submitted - exec->slots.collected); }
