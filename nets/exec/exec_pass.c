/* SPDX-License-Identifier: MIT */
/* Runs one pass of an iteration, over a batch or a sub-batch: enqueues each step, records and replays, or rehearses. */
#include <string.h>

#include "nets/exec/exec_internal.h"
#include "nets/exec/exec_rehearsal.h"

static mm_status enqueue_batch(nets_exec *exec, const nets_iteration *it, void *images, void *labels) {
    const int64_t n = it->pass->lowered->batch;
    const nets_staged parts[NETS_STAGED] = {
        {it->images, images, n * nets_exec_image_bytes(exec), exec->lowered->pads_images ? exec->backend : NULL},
        {it->labels, labels, n * nets_exec_label_bytes(exec), NULL},
        {it->slot->lr, nets_exec_place(exec, exec->lowered->lr), nets_exec_bytes_of(exec, exec->lowered->lr), NULL},
    };
    if (exec->staging.stream) return nets_staging_pass(&exec->staging, it->stream, parts);
    for (int i = 0; i < NETS_STAGED; i++)
        if (parts[i].to) MM_TRY(nets_staged_copy(&parts[i], parts[i].from, MM_COPY_IN, it->stream));
    return MM_OK;
}

static mm_status enqueue_result(const nets_exec *exec, const nets_iteration *it) {
    nets_result *to = it->slot->result;
    MM_TRY(
        mm_copy_async(it->stream, &to->loss, nets_exec_place(exec, exec->lowered->loss), sizeof to->loss, MM_COPY_OUT));
    MM_TRY(mm_copy_async(it->stream, &to->correct, nets_exec_place(exec, exec->lowered->correct), sizeof to->correct,
                         MM_COPY_OUT));
    MM_TRY(nets_exec_enqueue_result_word(exec, it->slot, it->stream));
    if (!exec->optimizer.only_finite || exec->lowered->rng < 0) return MM_OK;
    const uint32_t *rng = nets_exec_place(exec, exec->lowered->rng);
    return mm_copy_async(it->stream, &to->halted, rng + NETS_RNG_HALTED, sizeof to->halted, MM_COPY_OUT);
}

/* Where the step that is under way finds the tensor; NULL: absent. */
static void *place_of(const nets_exec *exec, mm_tensor tensor) {
    return tensor < 0 ? NULL : mm_tensor_data(exec->manager, tensor);
}

static void set_place(const nets_exec *exec, mm_tensor tensor, void *place_at) {
    nets_exec_set_place(place_at, place_of(exec, tensor));
}

/* Sets the places of n of exec->params from `first` on, as the step that is under way finds them. */
static void bind(nets_exec *exec, int first, int n) {
    for (int i = first; i < first + n; i++) {
        const nets_param_tensors *tensors = &exec->lowered->params[exec->number[i]];
        nets_update_param *param = &exec->params[i];
        set_place(exec, i < exec->n_params ? tensors->gradient : tensors->value, &param->gradient);
        if (i >= exec->n_params) continue; /* running statistics are checked, like a gradient */
        set_place(exec, tensors->value, &param->weight);
        set_place(exec, tensors->copy, &param->copy);
        for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->strips.n == 1; k++) {
            set_place(exec, tensors->absmax[k], &param->absmax[k]);
            set_place(exec, tensors->absmax[k] >= 0 ? tensors->state[k] : -1, &param->codes[k]);
            set_place(exec, tensors->absmax[k] >= 0 ? -1 : tensors->state[k], &param->state[k]);
        }
    }
}

/* Checks the gradients that the step has written, or added up. */
static mm_status check_gradients(const nets_exec *exec, const nets_step *step, float most, mm_stream *stream) {
    for (int i = 0; i < NETS_MAX_PARAMS; i++) {
        const mm_tensor gradient = step->tensors[NETS_DPARAM + i];
        if (gradient < 0) continue;
        nets_update_param *written = &exec->written[exec->param_of[gradient]];
        set_place(exec, gradient, &written->gradient);
        MM_TRY(nets_exec_enqueue_check(exec, written, 1, most, false, NULL, stream));
    }
    return MM_OK;
}

/* Checks the loss and the running statistics, which have been all-reduced already. If each rank has checked its own
 * gradients, then halts the updates of all ranks if those of any rank are halted. */
static mm_status agree(nets_exec *exec, mm_stream *stream) {
    const float *loss = nets_exec_place(exec, exec->lowered->loss);
    const int statistics = exec->n_checked - exec->n_params;
    bind(exec, exec->n_params, statistics);
    MM_TRY(nets_exec_enqueue_check(exec, exec->params + exec->n_params, statistics, NETS_GRADIENT_MOST, false, loss,
                                   stream));
    if (nets_exec_checks_own(exec)) return nets_exec_enqueue_vote(exec, stream);
    int32_t *rng = nets_exec_place(exec, exec->lowered->rng);
    return nets_divider_agree(&exec->divider, rng + NETS_RNG_HALTED, stream);
}

/* The places of what ranks divide were taken once (exec_divide.c): checks that these are still the step's. */
static mm_status check_places(const nets_exec *exec, int first, int n) {
    for (int i = first; i < first + n; i++) {
        const nets_param_tensors *tensors = &exec->lowered->params[exec->number[i]];
        bool same = mm_tensor_data(exec->manager, tensors->value) == exec->params[i].weight;
        for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->state[k] >= 0; k++)
            same = same && mm_tensor_data(exec->manager, tensors->state[k]) == exec->params[i].state[k];
        if (!same)
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "net %s: what ranks divide stays on the device: policy %s may not have resident=",
                           nets_net_name(exec->net), mm_policy_now(exec->manager));
    }
    return MM_OK;
}

/* In the backward pass: checks the gradients that the step updates by, all of them before a first strip. */
static mm_status check_update(nets_exec *exec, const nets_iteration *it, const nets_step *step) {
    if (exec->optimizer.only_finite && step->strip == 0)
        MM_TRY(nets_exec_enqueue_check(exec, exec->params + step->first_updated, step->n_updated, NETS_GRADIENT_MOST,
                                       step->part > 0, NULL, it->stream));
    return MM_OK;
}

static mm_status enqueue_on_host(nets_exec *exec, const nets_iteration *it, const nets_step *step) {
    bind(exec, step->first_updated, step->n_updated);
    nets_update_args args = {.params = exec->params + step->first_updated,
                             .n_params = step->n_updated,
                             .lr = it->slot->lr,
                             .optimizer = exec->optimizer,
                             .goes_on = step->part < exec->lowered->n_updates - 2,
                             .step = place_of(exec, exec->lowered->step)};
    args.optimizer.only_finite = false; /* gradients are checked on the device, as they are written */
    return nets_on_host_enqueue(&exec->on_host, (int)(it->slot - exec->ring.slot), step->part, &args, &exec->undo,
                                mm_host_stream(exec->manager));
}

/* Behind a backward step: checks on the device the gradients that the host is about to update by. The host does not
 * wait for the result: what is found ends the training, and no state is saved. */
static mm_status check_for_host(const nets_exec *exec, const nets_step *step, mm_stream *stream) {
    const nets_step *end = exec->lowered->steps + exec->lowered->n_steps;
    for (const nets_step *update = step + 1; update < end && update->on_host; update++)
        for (int i = 0; i < NETS_MAX_PARAMS; i++) {
            const mm_tensor gradient = step->tensors[NETS_DPARAM + i];
            const int param = gradient < 0 ? -1 : exec->param_of[gradient] - update->first_updated;
            if (param < 0 || param >= update->n_updated) continue;
            nets_update_param *written = &exec->written[update->first_updated + param];
            set_place(exec, gradient, &written->gradient);
            MM_TRY(nets_exec_enqueue_check(exec, written, 1, NETS_GRADIENT_MOST, true, NULL, stream));
        }
    return MM_OK;
}

/* The last update when the host updates: checks what it has not, and counts. */
static mm_status end_on_host(nets_exec *exec, mm_stream *stream) {
    const int statistics = exec->n_checked - exec->n_params;
    const float *loss = nets_exec_place(exec, exec->lowered->loss);
    bind(exec, exec->n_params, statistics);
    if (exec->optimizer.only_finite)
        MM_TRY(nets_exec_enqueue_check(exec, exec->params + exec->n_params, statistics, NETS_GRADIENT_MOST, true, loss,
                                       stream));
    const nets_update_args args = {.params = exec->params,
                                   .lr = nets_exec_place(exec, exec->lowered->lr),
                                   .optimizer = {.id = NETS_PLAIN_SGD, .only_finite = exec->optimizer.only_finite},
                                   .rng = nets_exec_place(exec, exec->lowered->rng)};
    return exec->backend->ops->update(exec->backend, &args, stream);
}

static mm_status enqueue_update(nets_exec *exec, const nets_iteration *it, const nets_step *step) {
    if (step->on_host) return enqueue_on_host(exec, it, step);
    if (exec->lowered->on_host) return end_on_host(exec, it->stream);
    const bool parts = nets_exec_updates_in_parts(exec), last = step->part == exec->lowered->n_updates - 1;
    const int first = parts ? step->first_updated : 0, n = parts ? step->n_updated : exec->n_params;
    const bool checked = parts || nets_divider_sums(&exec->divider);
    mm_stream *stream = it->stream;
    if (checked && exec->optimizer.only_finite && step->part == 0) MM_TRY(agree(exec, stream));
    if (!parts && !last) return MM_OK;
    if (exec->divider.own)
        MM_TRY(check_places(exec, first, n));
    else
        bind(exec, first, n);
    if (!parts) bind(exec, exec->n_params, exec->n_checked - exec->n_params);
    if (nets_exec_updates_in_backward(exec)) MM_TRY(check_update(exec, it, step));
    if (parts && step->part == 0) MM_TRY(nets_undo_mark(&exec->undo, stream));
    const nets_update_args args = {.params = exec->params + first,
                                   .moved = exec->divider.own ? exec->divider.own + first : nets_exec_strip(exec, step),
                                   .n_params = n,
                                   .checks = !checked,
                                   .n_checked = exec->n_checked,
                                   .most = NETS_GRADIENT_MOST,
                                   .loss = nets_exec_place(exec, exec->lowered->loss),
                                   .lr = nets_exec_place(exec, exec->lowered->lr),
                                   .optimizer = exec->optimizer,
                                   .goes_on = !last,
                                   .rng = nets_exec_place(exec, exec->lowered->rng),
                                   .step = place_of(exec, exec->lowered->step)};
    return exec->backend->ops->update(exec->backend, &args, stream);
}

/* Adds the gradients that a step left in the workspace to those of earlier passes. */
static mm_status enqueue_sums(const nets_exec *exec, const nets_lowered *lowered, const nets_step *step,
                              mm_stream *stream) {
    char *workspace = mm_workspace_data(exec->manager);
    for (int i = 0; i < NETS_MAX_PARAMS; i++) {
        const mm_tensor sum = step->tensors[NETS_DPARAM + i];
        if (step->addend[i] < 0 || sum < 0) continue;
        MM_TRY(exec->backend->ops->add(exec->backend, mm_tensor_data(exec->manager, sum),
                                       (const float *)(workspace + step->addend[i]),
                                       mm_graph_tensor(lowered->graph, sum)->bytes / (int64_t)sizeof(float), stream));
    }
    return MM_OK;
}

/* If the manager has a code of role r's tensor, passes it to the op, which reads the code instead of the elements, or
 * writes it beside them. */
static void find_code(const nets_exec *exec, const nets_step *step, nets_role r, nets_op_args *args) {
    const mm_access access = step->phase == MM_BACKWARD ? MM_READ : MM_WRITE;
    if (!(step->coded_roles & NETS_ROLE_BIT(r))) return;
    mm_coded *coded = &args->coded[r == NETS_Y ? NETS_CODED_Y : NETS_CODED_X];
    if (mm_tensor_coded(exec->manager, step->tensors[r], access, coded) && access == MM_READ) args->at[r] = NULL;
}

/* `again`: the step runs in a recomputation or a rehearsal, which must not update running statistics. */
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

mm_status nets_exec_recompute(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream) {
    const nets_exec_pass *pass = ctx;
    (void)manager;
    int step = mm_graph_layer(pass->lowered->graph, layer)->step[MM_FORWARD];
    return enqueue_op(pass->exec, pass->lowered, &pass->lowered->steps[step], stream, true);
}

/* Each iteration has another batch, so while the data step is recorded it only notes where the batch goes. */
static mm_status run_data(nets_exec *exec, const nets_iteration *it) {
    void *images = mm_tensor_data(exec->manager, it->pass->lowered->images);
    void *labels = mm_tensor_data(exec->manager, it->pass->lowered->labels);
    if (!it->recorded) return enqueue_batch(exec, it, images, labels);
    it->pass->recorded_images = images;
    it->pass->recorded_labels = labels;
    return MM_OK;
}

/* An update, or the end of a pass that goes on. */
static mm_status enqueue_last(nets_exec *exec, const nets_iteration *it, const nets_step *step) {
    const nets_lowered *lowered = it->pass->lowered;
    if (!lowered->pass.goes_on) return enqueue_update(exec, it, step);
    return exec->backend->ops->pass_on(exec->backend, nets_exec_place(exec, exec->lowered->rng), lowered->batch,
                                       it->stream);
}
/* Checks this rank's shares of the sums of the step's gradients. */
static mm_status check_shares(const nets_exec *exec, const nets_step *step, mm_stream *stream) {
    for (int i = 0; i < NETS_MAX_PARAMS; i++) {
        const mm_tensor gradient = step->tensors[NETS_DPARAM + i];
        if (gradient >= 0)
            MM_TRY(nets_exec_enqueue_check(exec, &exec->divider.own[exec->param_of[gradient]], 1, NETS_GRADIENT_MOST,
                                           false, NULL, stream));
    }
    return MM_OK;
}

/* Sums in place are known to this rank alone: they are checked before the ranks agree. */
static mm_status enqueue_exchange(nets_exec *exec, const nets_step *step, mm_stream *stream) {
    const bool checks = exec->optimizer.only_finite && step->exchanges != NETS_GATHERS && !exec->divider.memory;
    MM_TRY(nets_divider_run(&exec->divider, step, stream));
    return checks ? check_shares(exec, step, stream) : MM_OK;
}

static mm_status enqueue_step(nets_exec *exec, const nets_iteration *it, const nets_step *step) {
    const nets_lowered *lowered = it->pass->lowered;
    if (step->exchanges != NETS_EXCHANGES_NOT) return it->rehearsed ? MM_OK : enqueue_exchange(exec, step, it->stream);
    if (step->phase == MM_UPDATE) return it->rehearsed ? MM_OK : enqueue_last(exec, it, step);
    if (!step->op) return run_data(exec, it);
    const bool again = it->rehearsed && step->phase == MM_FORWARD;
    const bool checks =
        nets_exec_checks_own(exec) && !it->rehearsed && !lowered->pass.goes_on && !nets_exec_updates_in_backward(exec);
    MM_TRY(enqueue_op(exec, lowered, step, it->stream, again));
    /* The loss's step writes this rank's word (lower.c). */
    if (step->phase == MM_FORWARD && step->tensors[NETS_CORRECT] >= 0 && !it->recorded && !lowered->pass.goes_on)
        MM_TRY(nets_exec_enqueue_word(exec, it->slot, it->stream));
    /* A sum of the ranks' gradients is then at most NETS_GRADIENT_MOST. */
    const float most = NETS_GRADIENT_MOST / (float)lowered->allreduce.n;
    if (lowered->on_host && exec->optimizer.only_finite && !it->rehearsed)
        MM_TRY(check_for_host(exec, step, it->stream));
    return checks ? check_gradients(exec, step, most, it->stream) : MM_OK;
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

static mm_status run_steps(nets_exec *exec, const nets_iteration *it) {
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

static mm_status run_step_by_step(nets_exec *exec, const nets_iteration *it) {
    MM_TRY(mm_iteration_begin(exec->manager, it->pass->lowered->graph));
    MM_TRY(run_steps(exec, it));
    if (!it->pass->lowered->pass.goes_on) MM_TRY(enqueue_result(exec, it));
    return it->ahead ? mm_iteration_end_async(exec->manager) : mm_iteration_end(exec->manager);
}

/* Whether the pass can be replayed; records it now if it has not been recorded and the manager allows it. False: the
 * pass runs step by step, this time or as long as the plan is used. */
static bool has_recording(nets_exec *exec, nets_exec_pass *pass, mm_stream *stream) {
    nets_iteration recorded = {.pass = pass, .stream = stream, .recorded = true};
    if (exec->watch || exec->mark || exec->divider.memory) return false;
    mm_replay_state_id state = mm_replay_state(exec->manager, pass->lowered->graph);
    if (state != MM_REPLAY_MAY) return state == MM_REPLAY_READY;
    mm_status status = mm_record_begin(exec->manager, pass->lowered->graph);
    if (status == MM_OK) status = run_steps(exec, &recorded);
    if (status == MM_OK) status = mm_record_end(exec->manager);
    if (status != MM_OK) mm_iteration_abort(exec->manager);
    return status == MM_OK;
}

/* Copies the batch to where the data step would put it, then replays. That memory is free: on the compute stream
 * everything before is done, and nothing of this iteration has begun. */
static mm_status run_recorded(nets_exec *exec, const nets_iteration *it) {
    if (!it->pass->lowered->pass.goes_on) MM_TRY(nets_exec_enqueue_word(exec, it->slot, it->stream));
    MM_TRY(enqueue_batch(exec, it, it->pass->recorded_images, it->pass->recorded_labels));
    MM_TRY(mm_iteration_replay(exec->manager, it->pass->lowered->graph));
    return it->pass->lowered->pass.goes_on ? MM_OK : enqueue_result(exec, it);
}

/* Runs the forward and backward pass of the next iteration with the codes' present error bounds, and records its
 * gradients. */
static mm_status rehearse(nets_exec *exec, const nets_iteration *it, nets_rehearsal *guard) {
    nets_iteration rehearsed = *it;
    rehearsed.rehearsed = true;
    const bool adds = it->pass->lowered->pass.adds;
    MM_TRY(mm_manager_sync(exec->manager));
    if (adds) MM_TRY(nets_rehearsal_save(guard, exec));
    MM_TRY(mm_rehearsal_begin(exec->manager, it->pass->lowered->graph));
    mm_status status = run_steps(exec, &rehearsed);
    if (status == MM_OK) status = mm_stream_sync(it->stream);
    mm_failure failure;
    mm_failure_save(&failure, status);
    mm_iteration_abort(exec->manager);
    if (failure.status != MM_OK) return mm_failure_restore(&failure);
    MM_TRY(nets_rehearsal_record(guard, exec));
    return adds ? nets_rehearsal_restore(guard, exec) : MM_OK;
}

/* Runs a pass that samples, and compares its gradients with rehearsed ones. */
static mm_status run_guarded(nets_exec *exec, const nets_iteration *it) {
    nets_rehearsal guard = {0};
    mm_status status = rehearse(exec, it, &guard);
    if (status == MM_OK) status = run_step_by_step(exec, it);
    if (status == MM_OK) status = nets_rehearsal_report(&guard, exec, it->pass->lowered);
    nets_rehearsal_fini(&guard);
    return status;
}

mm_status nets_exec_run_pass(nets_exec *exec, const nets_iteration *it, int64_t first) {
    const bool last = first + exec->sub_batch >= exec->batch;
    nets_iteration pass = *it;
    pass.pass = &exec->pass[last ? exec->n_passes - 1 : first > 0];
    pass.images = (const float *)((const char *)it->images + first * nets_exec_image_bytes(exec));
    pass.labels = (const int32_t *)((const char *)it->labels + first * nets_exec_label_bytes(exec));
    if (mm_sampling_guards(exec->manager, pass.pass->lowered->graph)) {
        if (!nets_exec_updates_in_backward(exec) && !exec->divider.own) return run_guarded(exec, &pass);
        return mm_fail(MM_ERR_UNSUPPORTED, "net %s: policy %s compares gradients of whole iterations, but %s",
                       nets_net_name(exec->net), mm_policy_now(exec->manager),
                       exec->divider.own ? "ranks divide them" : "weights are updated in the backward pass");
    }
    return has_recording(exec, pass.pass, it->stream) ? run_recorded(exec, &pass) : run_step_by_step(exec, &pass);
}
