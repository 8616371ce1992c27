/* The executor: its life, and its iterations. */
#include "nets/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/clock.h"
#include "nets/exec_guard.h"
#include "nets/exec_internal.h"

static mm_status collect_params(nets_exec *exec) {
    int n = nets_net_params(exec->net);
    exec->params = calloc((size_t)n + 1, sizeof *exec->params);
    if (!exec->params) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to update it", nets_net_name(exec->net));
    for (int i = 0; i < n; i++) {
        const nets_param *of = nets_net_param(exec->net, i);
        if (!of->learned) continue;
        nets_update_param *param = &exec->params[exec->n_params++];
        *param = (nets_update_param){.weight = nets_exec_param(exec, i, NETS_VALUE),
                                     .gradient = nets_exec_param(exec, i, NETS_GRADIENT),
                                     .elems = nets_order_elems(&exec->lowered->params[i].order),
                                     .decayed = of->decayed,
                                     .copy = nets_exec_place(exec, exec->lowered->params[i].copy)};
        for (int k = 0; k < NETS_OPTIMIZER_STATES; k++) param->state[k] = nets_exec_param(exec, i, NETS_STATE + k);
    }
    exec->n_checked = exec->n_params;
    for (int i = 0; i < n; i++)
        if (!nets_net_param(exec->net, i)->learned)
            exec->params[exec->n_checked++] = (nets_update_param){.gradient = nets_exec_param(exec, i, NETS_VALUE),
                                                                  .elems = nets_net_param(exec->net, i)->elems};
    return MM_OK;
}

/* Whether the manager has gone down its ladder since this was asked last. */
static bool stepped_down(nets_exec *exec) {
    mm_stats stats;
    mm_stats_get(exec->manager, &stats);
    bool down = stats.ladder_steps > exec->ladder_steps;
    exec->ladder_steps = stats.ladder_steps;
    return down;
}

static mm_status recompute(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

/* The backend's handles and workspaces must be those of the manager's device. */
static mm_status check_device(const nets_exec *exec) {
    const nets_backend *backend = exec->backend;
    const mm_device *device = mm_compute_stream(exec->manager)->device;
    if (strcmp(backend->ops->name, device->ops->name) == 0 && backend->ordinal == device->ordinal) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "net %s: operations of device %s:%d for a manager on device %s:%d",
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

static mm_status create_pass(nets_exec *exec, nets_mode mode, const nets_exec_graph *graph, nets_exec_pass *pass) {
    pass->exec = exec;
    MM_TRY(
        nets_lower_pass(exec->net, exec->backend, graph->batch, mode, graph->pass, exec->optimizer.id, &pass->lowered));
    MM_TRY(mm_recompute_set(exec->manager, pass->lowered->graph, recompute, pass));
    pass->prepared = true;
    const nets_ranks *ranks = &exec->backend->ranks;
    if (ranks->n < 2 || mode != NETS_TRAIN || graph->pass.goes_on) return MM_OK;
    return mm_gradient_set(exec->manager, pass->lowered->graph, ranks->fns, ranks->ctx);
}

/* Of an image as the network has it. */
static int64_t image_bytes(const nets_exec *exec) {
    const int64_t bytes = nets_exec_bytes_of(exec, exec->lowered->images) / exec->lowered->batch;
    return exec->lowered->pads_images ? bytes / 4 * 3 : bytes;
}

static int64_t label_bytes(const nets_exec *exec) {
    return nets_exec_bytes_of(exec, exec->lowered->labels) / exec->lowered->batch;
}

static mm_status create(nets_exec *exec, nets_mode mode) {
    nets_exec_graph graphs[NETS_PASSES] = {{exec->batch, {0}, 1}};
    exec->n_passes = 1;
    MM_TRY(check_device(exec));
    if (exec->sub_batch != exec->batch) {
        if (exec->sub_batch < 1 || exec->sub_batch > exec->batch)
            return mm_fail(MM_ERR_INVALID, "net %s: a sub-batch of %lld images, of a batch of %lld",
                           nets_net_name(exec->net), (long long)exec->sub_batch, (long long)exec->batch);
        exec->n_passes = nets_exec_graphs(exec->batch, exec->sub_batch, graphs);
    }
    /* The last has all persistent tensors: prepared first, it makes room for the others'. */
    for (int i = exec->n_passes - 1; i >= 0; i--) {
        MM_TRY(create_pass(exec, mode, &graphs[i], &exec->pass[i]));
        exec->lowered = exec->pass[exec->n_passes - 1].lowered;
    }
    MM_TRY(nets_slots_init(&exec->slots, mm_compute_stream(exec->manager), exec->batch * image_bytes(exec),
                           exec->batch * label_bytes(exec)));
    if (mode != NETS_TRAIN) return MM_OK;
    MM_TRY(nets_kept_init(&exec->kept, exec->manager, exec->lowered));
    return collect_params(exec);
}

static mm_status create_on(const nets_net *net, int64_t batch, int64_t sub_batch, nets_mode mode, mm_manager *manager,
                           nets_backend *backend, const nets_optimizer *optimizer, nets_exec **exec_out) {
    nets_exec *exec = calloc(1, sizeof *exec);
    if (!exec) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to execute it", nets_net_name(net));
    exec->net = net;
    exec->manager = manager;
    exec->backend = backend;
    exec->batch = batch;
    exec->sub_batch = sub_batch;
    if (optimizer) exec->optimizer = *optimizer;
    mm_status status = create(exec, mode);
    stepped_down(exec);
    if (status != MM_OK) {
        nets_exec_destroy(exec);
        return status;
    }
    *exec_out = exec;
    return MM_OK;
}

mm_status nets_exec_create_on(const nets_net *net, int64_t batch, nets_mode mode, mm_manager *manager,
                              nets_backend *backend, const nets_optimizer *optimizer, nets_exec **exec_out) {
    return create_on(net, batch, batch, mode, manager, backend, optimizer, exec_out);
}

mm_status nets_exec_create_sub(const nets_net *net, int64_t batch, int64_t sub_batch, mm_manager *manager,
                               nets_backend *backend, const nets_optimizer *optimizer, nets_exec **exec_out) {
    return create_on(net, batch, sub_batch, NETS_TRAIN, manager, backend, optimizer, exec_out);
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
    /* Refused only within an iteration, where destroying is not allowed: then the graphs must stay. */
    for (int i = 0; i < exec->n_passes; i++)
        if (exec->pass[i].prepared && mm_manager_forget(exec->manager, exec->pass[i].lowered->graph) != MM_OK) return;
    nets_staging_fini(&exec->staging);
    nets_slots_fini(&exec->slots);
    nets_kept_fini(&exec->kept);
    for (int i = 0; i < exec->n_passes; i++) nets_lowered_destroy(exec->pass[i].lowered);
    nets_backend_close(exec->own_backend);
    free(exec->params);
    free(exec);
}

const nets_lowered *nets_exec_lowered(const nets_exec *exec) { return exec->lowered; }

const nets_lowered *nets_exec_lowered_pass(const nets_exec *exec, int pass) {
    if (pass < 0 || pass >= exec->n_passes) return NULL;
    return pass == 0 ? exec->lowered : exec->pass[pass - 1].lowered;
}

int nets_exec_threads(const nets_exec *exec) { return exec->backend->threads; }

/* ---------------------------------------------------------------- batches beside the computation */

int64_t nets_exec_stage_bytes(const nets_net *net, int64_t batch) {
    nets_shape shape;
    if (nets_net_shape(net, 0, batch, &shape) != MM_OK) return 0;
    return nets_slot_batch_bytes(nets_shape_elems(&shape) * (int64_t)sizeof(float),
                                 batch * nets_net_labels(net) * (int64_t)sizeof(int32_t));
}

mm_status nets_exec_stage(nets_exec *exec) {
    char name[sizeof exec->staging.name];
    if (exec->staging.stream || nets_exec_outstanding(exec) > 0)
        return mm_fail(MM_ERR_ORDER, "%s: its batches are staged, or on their way already",
                       mm_graph_name(exec->lowered->graph));
    snprintf(name, sizeof name, "batch of %.200s", mm_graph_name(exec->lowered->graph));
    return nets_staging_init(&exec->staging, exec->manager, name, nets_exec_stage_bytes(exec->net, exec->sub_batch));
}

/* ---------------------------------------------------------------- iteration */

/* Where an iteration takes its batch from, and leaves its result; or one pass of it, which takes its sub-batch. */
typedef struct iteration {
    nets_exec_pass *pass;
    const float *images;
    const int32_t *labels;
    nets_slot *slot;
    bool ahead;                /* it ends without a drain */
    bool recorded;             /* its work is being recorded: there is no batch or result yet */
    bool rehearsed;            /* nothing that persists may change, gradients and results aside */
    bool undone;               /* it failed, and what it had changed was restored */
    int64_t ages[NETS_PASSES]; /* of sampling, before it; of several passes */
    mm_stream *stream;
} iteration;

/* Behind the count of correct labels is what ranks tell each other, which becomes their sum with it. */
static bool tells(const nets_exec *exec) {
    return exec->lowered->mode == NETS_TRAIN &&
           nets_exec_bytes_of(exec, exec->lowered->correct) > (int64_t)sizeof(int32_t);
}

static int32_t *place_of_word(const nets_exec *exec) {
    return (int32_t *)nets_exec_place(exec, exec->lowered->correct) + 1;
}

static mm_status enqueue_batch(nets_exec *exec, const iteration *it, void *images, void *labels) {
    const int64_t n = it->pass->lowered->batch;
    const nets_staged parts[NETS_STAGED] = {
        {it->images, images, n * image_bytes(exec), exec->lowered->pads_images ? exec->backend : NULL},
        {it->labels, labels, n * label_bytes(exec), NULL},
        {it->slot->lr, nets_exec_place(exec, exec->lowered->lr), nets_exec_bytes_of(exec, exec->lowered->lr), NULL},
    };
    if (tells(exec) && !it->pass->lowered->pass.goes_on)
        MM_TRY(mm_copy_async(it->stream, place_of_word(exec), it->slot->word, sizeof *it->slot->word, MM_COPY_IN));
    if (exec->staging.stream) return nets_staging_pass(&exec->staging, it->stream, parts);
    for (int i = 0; i < NETS_STAGED; i++)
        if (parts[i].to) MM_TRY(nets_staged_copy(&parts[i], parts[i].from, MM_COPY_IN, it->stream));
    return MM_OK;
}

static mm_status enqueue_result(const nets_exec *exec, const iteration *it) {
    nets_result *to = it->slot->result;
    MM_TRY(
        mm_copy_async(it->stream, &to->loss, nets_exec_place(exec, exec->lowered->loss), sizeof to->loss, MM_COPY_OUT));
    MM_TRY(mm_copy_async(it->stream, &to->correct, nets_exec_place(exec, exec->lowered->correct), sizeof to->correct,
                         MM_COPY_OUT));
    if (tells(exec)) MM_TRY(mm_copy_async(it->stream, &to->told, place_of_word(exec), sizeof to->told, MM_COPY_OUT));
    if (!exec->optimizer.only_finite || exec->lowered->rng < 0) return MM_OK;
    const uint32_t *rng = nets_exec_place(exec, exec->lowered->rng);
    return mm_copy_async(it->stream, &to->halted, rng + NETS_RNG_HALTED, sizeof to->halted, MM_COPY_OUT);
}

static mm_status enqueue_update(const nets_exec *exec, mm_stream *stream) {
    const nets_update_args args = {.params = exec->params,
                                   .n_params = exec->n_params,
                                   .n_checked = exec->n_checked,
                                   .lr = nets_exec_place(exec, exec->lowered->lr),
                                   .optimizer = exec->optimizer,
                                   .loss = nets_exec_place(exec, exec->lowered->loss),
                                   .step = nets_exec_place(exec, exec->lowered->step),
                                   .rng = nets_exec_place(exec, exec->lowered->rng)};
    return exec->backend->ops->update(exec->backend, &args, stream);
}

/* Adds what a pass has left in the workspace to the gradients of the passes before it. */
static mm_status enqueue_sums(const nets_exec *exec, const nets_lowered *lowered, const nets_step *step,
                              mm_stream *stream) {
    char *workspace = mm_workspace_data(exec->manager);
    for (int i = 0; i < NETS_MAX_PARAMS; i++) {
        const mm_tensor sum = step->tensors[NETS_DPARAM + i];
        if (step->addend[i] < 0) continue;
        MM_TRY(exec->backend->ops->add(exec->backend, mm_tensor_data(exec->manager, sum),
                                       (const float *)(workspace + step->addend[i]),
                                       mm_graph_tensor(lowered->graph, sum)->bytes / (int64_t)sizeof(float), stream));
    }
    return MM_OK;
}

/* The code of a role that the step reads instead of the elements, or writes beside them; if there is one. */
static void find_code(const nets_exec *exec, const nets_step *step, nets_role r, nets_op_args *args) {
    const mm_access access = step->phase == MM_BACKWARD ? MM_READ : MM_WRITE;
    if (!(step->coded_roles & NETS_ROLE_BIT(r))) return;
    mm_coded *coded = &args->coded[r == NETS_Y ? NETS_CODED_Y : NETS_CODED_X];
    if (mm_tensor_coded(exec->manager, step->tensors[r], access, coded) && access == MM_READ) args->at[r] = NULL;
}

/* `again`: a recomputation or a rehearsal, which must not update running statistics. */
static mm_status enqueue_op(const nets_exec *exec, const nets_lowered *lowered, const nets_step *step,
                            mm_stream *stream, bool again) {
    nets_op_args args = {.layer = (uint32_t)step->layer};
    char *workspace = mm_workspace_data(exec->manager);
    args.workspace_bytes = (int64_t)mm_workspace_bytes(exec->manager) - step->op_workspace_at;
    args.at[NETS_WORKSPACE] = args.workspace_bytes > 0 ? workspace + step->op_workspace_at : NULL;
    for (int r = 0; r < NETS_ROLES; r++) {
        mm_tensor tensor = step->tensors[r];
        if (tensor < 0 || (again && step->modified_roles & NETS_ROLE_BIT(r))) continue;
        args.at[r] = mm_tensor_data(exec->manager, tensor);
        if (step->sign_roles & NETS_ROLE_BIT(r) && mm_tensor_form(exec->manager, tensor) == MM_FORM_SIGN)
            args.sign_roles |= NETS_ROLE_BIT(r);
        if (step->sign_roles && mm_tensor_exact(exec->manager, tensor)) args.exact_roles |= NETS_ROLE_BIT(r);
        if (again && mm_tensor_given(exec->manager, tensor)) args.given_roles |= NETS_ROLE_BIT(r);
        find_code(exec, step, r, &args);
    }
    for (int i = 0; i < NETS_MAX_PARAMS; i++)
        if (step->addend[i] >= 0) args.at[NETS_DPARAM + i] = workspace + step->addend[i];
    MM_TRY(nets_op_enqueue(step->op, step->phase, &args, stream));
    return enqueue_sums(exec, lowered, step, stream);
}

/* mm_recompute_fn */
static mm_status recompute(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream) {
    const nets_exec_pass *pass = ctx;
    (void)manager;
    int step = mm_graph_layer(pass->lowered->graph, layer)->step[MM_FORWARD];
    return enqueue_op(pass->exec, pass->lowered, &pass->lowered->steps[step], stream, true);
}

/* Each iteration has another batch, so a recording of the data step enqueues nothing. */
static mm_status run_data(nets_exec *exec, const iteration *it) {
    void *images = mm_tensor_data(exec->manager, it->pass->lowered->images);
    void *labels = mm_tensor_data(exec->manager, it->pass->lowered->labels);
    if (!it->recorded) return enqueue_batch(exec, it, images, labels);
    it->pass->recorded_images = images;
    it->pass->recorded_labels = labels;
    return MM_OK;
}

/* The last step: the update, or the end of a pass that goes on. */
static mm_status enqueue_last(const nets_exec *exec, const iteration *it) {
    const nets_lowered *lowered = it->pass->lowered;
    if (!lowered->pass.goes_on) return enqueue_update(exec, it->stream);
    return exec->backend->ops->pass_on(exec->backend, nets_exec_place(exec, exec->lowered->rng), lowered->batch,
                                       it->stream);
}

static mm_status enqueue_step(nets_exec *exec, const iteration *it, const nets_step *step) {
    if (step->phase == MM_UPDATE) return it->rehearsed ? MM_OK : enqueue_last(exec, it);
    const bool again = it->rehearsed && step->phase == MM_FORWARD;
    return step->op ? enqueue_op(exec, it->pass->lowered, step, it->stream, again) : run_data(exec, it);
}

void nets_exec_watch(nets_exec *exec, nets_watch_fn fn, void *ctx) {
    exec->watch = fn;
    exec->watch_ctx = ctx;
}

static mm_status show(const nets_exec *exec, const nets_step *step, mm_stream *stream) {
    if (!exec->watch || step->phase != MM_FORWARD) return MM_OK;
    MM_TRY(mm_stream_sync(stream));
    return exec->watch(exec->watch_ctx, exec->manager, step);
}

void nets_exec_mark(nets_exec *exec, nets_mark_fn fn, void *ctx) {
    exec->mark = fn;
    exec->mark_ctx = ctx;
}

static mm_status run_steps(nets_exec *exec, const iteration *it) {
    const nets_lowered *lowered = it->pass->lowered;
    for (int i = 0; i < lowered->n_steps; i++) {
        const nets_step *step = &lowered->steps[i];
        if (exec->mark) exec->mark(exec->mark_ctx, i);
        MM_TRY(mm_layer_begin(exec->manager, step->graph_layer, step->phase, it->stream));
        MM_TRY(enqueue_step(exec, it, step));
        MM_TRY(show(exec, step, it->stream));
        MM_TRY(mm_layer_end(exec->manager, step->graph_layer, step->phase));
    }
    if (exec->mark) exec->mark(exec->mark_ctx, -1);
    return MM_OK;
}

static mm_status run_step_by_step(nets_exec *exec, const iteration *it) {
    MM_TRY(mm_iteration_begin(exec->manager, it->pass->lowered->graph));
    MM_TRY(run_steps(exec, it));
    if (!it->pass->lowered->pass.goes_on) MM_TRY(enqueue_result(exec, it));
    return it->ahead ? mm_iteration_end_async(exec->manager) : mm_iteration_end(exec->manager);
}

/* Whether the iteration can be replayed; it is recorded first if it may be. False: it runs step by step, this time or
 * under this plan. */
static bool has_recording(nets_exec *exec, nets_exec_pass *pass, mm_stream *stream) {
    iteration recorded = {.pass = pass, .stream = stream, .recorded = true};
    if (exec->watch || exec->mark) return false;
    mm_replay_state_id state = mm_replay_state(exec->manager, pass->lowered->graph);
    if (state != MM_REPLAY_MAY) return state == MM_REPLAY_READY;
    mm_status status = mm_record_begin(exec->manager, pass->lowered->graph);
    if (status == MM_OK) status = run_steps(exec, &recorded);
    if (status == MM_OK) status = mm_record_end(exec->manager);
    if (status != MM_OK) mm_iteration_abort(exec->manager);
    return status == MM_OK;
}

/* Copies the batch to where the data step would put it. That memory is free: on the compute stream everything before is
 * done, and nothing of this iteration has begun. */
static mm_status run_recorded(nets_exec *exec, const iteration *it) {
    MM_TRY(enqueue_batch(exec, it, it->pass->recorded_images, it->pass->recorded_labels));
    MM_TRY(mm_iteration_replay(exec->manager, it->pass->lowered->graph));
    return it->pass->lowered->pass.goes_on ? MM_OK : enqueue_result(exec, it);
}

/* Forward and backward pass with the batch of an iteration that comes next, whose codes lose what they lose now. The
 * gradients are kept. */
static mm_status rehearse(nets_exec *exec, const iteration *it, nets_guard *guard) {
    iteration rehearsed = *it;
    rehearsed.rehearsed = true;
    const bool adds = it->pass->lowered->pass.adds;
    MM_TRY(mm_manager_sync(exec->manager));
    if (adds) MM_TRY(nets_guard_save(guard, exec));
    MM_TRY(mm_rehearsal_begin(exec->manager, it->pass->lowered->graph));
    mm_status status = run_steps(exec, &rehearsed);
    if (status == MM_OK) status = mm_stream_sync(it->stream);
    mm_failure failure;
    mm_failure_keep(&failure, status);
    mm_iteration_abort(exec->manager);
    if (failure.status != MM_OK) return mm_failure_tell(&failure);
    MM_TRY(nets_guard_keep(guard, exec));
    return adds ? nets_guard_restore(guard, exec) : MM_OK;
}

/* An iteration that samples, and whose gradients are compared with rehearsed ones. */
static mm_status run_guarded(nets_exec *exec, const iteration *it) {
    nets_guard guard = {0};
    mm_status status = rehearse(exec, it, &guard);
    if (status == MM_OK) status = run_step_by_step(exec, it);
    if (status == MM_OK) status = nets_guard_tell(&guard, exec, it->pass->lowered);
    nets_guard_fini(&guard);
    return status;
}

/* The pass over the sub-batch that begins with image `first`. */
static mm_status run_pass(nets_exec *exec, const iteration *it, int64_t first) {
    const bool last = first + exec->sub_batch >= exec->batch;
    iteration pass = *it;
    pass.pass = &exec->pass[last ? exec->n_passes - 1 : first > 0];
    pass.images = (const float *)((const char *)it->images + first * image_bytes(exec));
    pass.labels = (const int32_t *)((const char *)it->labels + first * label_bytes(exec));
    if (mm_sampling_guards(exec->manager, pass.pass->lowered->graph)) return run_guarded(exec, &pass);
    return has_recording(exec, pass.pass, it->stream) ? run_recorded(exec, &pass) : run_step_by_step(exec, &pass);
}

static int index_of(const nets_exec *exec, const nets_slot *slot) { return (int)(slot - exec->slots.slot); }

/* Where a policy samples, the ages of the passes' graphs count updates: the middle one's runs for an update count once, and
 * the first of them samples. -1: none has sampled. */
static mm_status get_ages(const nets_exec *exec, int64_t ages[NETS_PASSES]) {
    for (int i = 0; exec->n_passes > 1 && i < exec->n_passes; i++)
        MM_TRY(mm_sampling_age(exec->manager, exec->pass[i].lowered->graph, &ages[i]));
    return MM_OK;
}

static mm_status set_ages(const nets_exec *exec, const int64_t ages[NETS_PASSES]) {
    for (int i = 0; exec->n_passes > 1 && i < exec->n_passes; i++)
        MM_TRY(mm_sampling_age_set(exec->manager, exec->pass[i].lowered->graph, ages[i]));
    return MM_OK;
}

/* The passes between the first and the last, with one graph. Behind its first run an age of 0 keeps it from sampling. */
static mm_status run_middle(nets_exec *exec, const iteration *it) {
    const mm_graph *graph = exec->pass[1].lowered->graph;
    const int64_t end = (nets_exec_passes(exec->batch, exec->sub_batch) - 1) * exec->sub_batch;
    int64_t age;
    MM_TRY(run_pass(exec, it, exec->sub_batch));
    MM_TRY(mm_sampling_age(exec->manager, graph, &age));
    for (int64_t first = 2 * exec->sub_batch; first < end; first += exec->sub_batch) {
        if (age >= 0) MM_TRY(mm_sampling_age_set(exec->manager, graph, 0));
        MM_TRY(run_pass(exec, it, first));
    }
    return age >= 0 ? mm_sampling_age_set(exec->manager, graph, age) : MM_OK;
}

/* Its part of the whole batch begins behind those of the ranks before it. */
static mm_status begin_part(const nets_exec *exec, mm_stream *stream) {
    const int rank = exec->lowered->mode == NETS_TRAIN ? exec->backend->ranks.rank : 0;
    if (rank == 0) return MM_OK;
    return exec->backend->ops->pass_on(exec->backend, nets_exec_place(exec, exec->lowered->rng), rank * exec->batch,
                                       stream);
}

static mm_status run_iteration(nets_exec *exec, const iteration *it) {
    const int64_t last = (nets_exec_passes(exec->batch, exec->sub_batch) - 1) * exec->sub_batch;
    MM_TRY(nets_kept_save(&exec->kept, index_of(exec, it->slot), it->stream));
    MM_TRY(begin_part(exec, it->stream));
    if (exec->n_passes > 1) MM_TRY(run_pass(exec, it, 0));
    if (exec->n_passes > 2) MM_TRY(run_middle(exec, it));
    MM_TRY(run_pass(exec, it, last));
    return mm_event_record(it->slot->done, it->stream);
}

/* Undoes an iteration that failed, whose enqueued work is done. Returns whether that succeeded. */
static bool take_back(nets_exec *exec, const nets_slot *slot) {
    bool undone;
    mm_stream *stream = mm_compute_stream(exec->manager);
    return nets_staging_settle(&exec->staging, stream) == MM_OK &&
           nets_kept_undo(&exec->kept, index_of(exec, slot), stream, &undone) == MM_OK && undone;
}

/* Aborts an iteration that could not be enqueued, waits for what was enqueued of it, and undoes it. */
static mm_status undo(nets_exec *exec, iteration *it, mm_status status) {
    mm_failure first;
    mm_failure_keep(&first, status);
    mm_iteration_abort(exec->manager);
    mm_status synced = mm_stream_sync(it->stream), settled = mm_manager_sync(exec->manager);
    (void)synced, (void)settled; /* what counts is what failed first */
    it->undone = take_back(exec, it->slot) && set_ages(exec, it->ages) == MM_OK;
    return mm_failure_tell(&first);
}

static mm_status submit(nets_exec *exec, iteration *it, float lr) {
    it->stream = mm_compute_stream(exec->manager);
    *it->slot->lr = lr;
    *it->slot->word = exec->word;
    MM_TRY(get_ages(exec, it->ages));
    int64_t began = mm_now_ns();
    mm_status status = run_iteration(exec, it);
    exec->enqueue_ns += mm_now_ns() - began;
    if (status != MM_OK) return undo(exec, it, status);
    exec->slots.submitted++;
    return MM_OK;
}

static mm_status check_batch(const nets_exec *exec, int64_t n, int room) {
    if (n != exec->batch)
        return mm_fail(MM_ERR_INVALID, "net %s: %lld images for a batch of %lld", nets_net_name(exec->net),
                       (long long)n, (long long)exec->batch);
    if (nets_exec_outstanding(exec) + room <= NETS_AHEAD) return MM_OK;
    return mm_fail(MM_ERR_ORDER, "net %s: %d iterations are submitted and not collected", nets_net_name(exec->net),
                   nets_exec_outstanding(exec));
}

/* What other ranks have of this one's, in numbers. Without functions, nobody has anything. */
static int64_t sums_begun(const nets_exec *exec) {
    const nets_ranks *ranks = &exec->backend->ranks;
    return ranks->n > 1 && ranks->begun ? ranks->begun(ranks->ctx) : 0;
}

mm_status nets_exec_iteration(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr,
                              nets_result *result_out) {
    MM_TRY(check_batch(exec, n, NETS_AHEAD));
    const int64_t begun = sums_begun(exec);
    mm_status status;
    bool again;
    do {
        iteration it = {.images = images, .labels = labels, .slot = nets_slots_next(&exec->slots)};
        if (exec->lowered->pads_images) /* by a kernel, which reads pinned memory */
            it.images = memcpy(it.slot->images, images, (size_t)(exec->batch * image_bytes(exec)));
        status = submit(exec, &it, lr);
        if (status == MM_OK) return nets_exec_collect(exec, result_out);
        /* Memory ran out, the manager has a plan that needs less, and nothing has changed: once more. But not if other
         * ranks have part of what is lost. */
        again = status == MM_ERR_NOMEM && it.undone && stepped_down(exec) && sums_begun(exec) == begun;
    } while (again);
    return status;
}

mm_status nets_exec_submit(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr) {
    MM_TRY(check_batch(exec, n, 1));
    nets_slot *slot = nets_slots_next(&exec->slots);
    if (images) memcpy(slot->images, images, (size_t)(exec->batch * image_bytes(exec)));
    if (labels) memcpy(slot->labels, labels, (size_t)(exec->batch * label_bytes(exec)));
    iteration it = {.images = slot->images, .labels = slot->labels, .slot = slot, .ahead = true};
    return submit(exec, &it, lr);
}

/* The error for a label that is not a class, on a device that cannot fail its stream itself (NETS_CORRECT). */
static mm_status bad_label(const nets_exec *exec, int32_t at) {
    return mm_fail(MM_ERR_INVALID, "the label of image %lld is not one of %lld classes",
                   (long long)(at / nets_net_labels(exec->net)), (long long)nets_net_classes(exec->net));
}

/* The iterations behind one that failed did not run either. */
static mm_status give_up(nets_exec *exec, const nets_slot *slot, mm_status status) {
    mm_failure failure;
    mm_failure_keep(&failure, status);
    nets_exec_drop(exec);
    mm_status settled = mm_manager_sync(exec->manager); /* tells the same failure, unless it was told already */
    if (settled != MM_OK) mm_failure_keep(&failure, settled);
    take_back(exec, slot);
    return mm_failure_tell(&failure);
}

/* Undoes an iteration that was halted. Updates were halted from it on, so later iterations changed running statistics
 * at most. */
static mm_status undo_diverged(nets_exec *exec, const nets_slot *slot) {
    nets_exec_drop(exec);
    MM_TRY(mm_manager_sync(exec->manager));
    if (take_back(exec, slot)) return MM_OK;
    return mm_fail(MM_ERR_DEVICE, "net %s: an iteration whose loss is not finite could not be undone",
                   nets_net_name(exec->net));
}

mm_status nets_exec_collect(nets_exec *exec, nets_result *result_out) {
    if (nets_exec_outstanding(exec) == 0)
        return mm_fail(MM_ERR_ORDER, "net %s: no iteration is submitted", nets_net_name(exec->net));
    nets_slot *slot = nets_slots_oldest(&exec->slots);
    mm_status status = mm_event_sync(slot->done);
    if (status != MM_OK) return give_up(exec, slot, status);
    if (slot->result->correct < 0) return give_up(exec, slot, bad_label(exec, -1 - slot->result->correct));
    const nets_result result = *slot->result;
    if (result.halted)
        MM_TRY(undo_diverged(exec, slot));
    else
        exec->slots.collected++;
    *result_out = result;
    return MM_OK;
}

void nets_exec_tell(nets_exec *exec, int32_t word) { exec->word = word; }

void nets_exec_drop(nets_exec *exec) { exec->slots.collected = exec->slots.submitted; }

int nets_exec_outstanding(const nets_exec *exec) { return (int)(exec->slots.submitted - exec->slots.collected); }

int64_t nets_exec_enqueue_ns(const nets_exec *exec) { return exec->enqueue_ns; }
