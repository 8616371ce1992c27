/* SPDX-License-Identifier: MIT */
/* Iterations: runs their passes, collects their results, and undoes those that fail. */
#include <string.h>

#include "mm/device/contract/clock.h"
#include "nets/exec/exec_internal.h"

bool nets_exec_stepped_down(nets_exec *exec) {
    mm_stats stats;
    mm_stats_get(exec->manager, &stats);
    bool down = stats.ladder_steps > exec->ladder_steps;
    exec->ladder_steps = stats.ladder_steps;
    return down;
}

static int index_of(const nets_exec *exec, const nets_slot *slot) { return (int)(slot - exec->ring.slot); }

/* Gets the sampling ages of several passes' graphs. An age counts updates: all runs of the middle graph for one update
 * count as one, and only the first of these runs samples. -1: the graph has not sampled. */
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

/* Runs the passes between the first and the last, which share a graph. After its first run, an age of 0 keeps it from
 * sampling. */
static mm_status run_middle(nets_exec *exec, const nets_iteration *it) {
    const mm_graph *graph = exec->pass[1].lowered->graph;
    const int64_t end = (nets_exec_passes(exec->batch, exec->sub_batch) - 1) * exec->sub_batch;
    int64_t age;
    MM_TRY(nets_exec_run_pass(exec, it, exec->sub_batch));
    MM_TRY(mm_sampling_age(exec->manager, graph, &age));
    for (int64_t first = 2 * exec->sub_batch; first < end; first += exec->sub_batch) {
        if (age >= 0) MM_TRY(mm_sampling_age_set(exec->manager, graph, 0));
        MM_TRY(nets_exec_run_pass(exec, it, first));
    }
    return age >= 0 ? mm_sampling_age_set(exec->manager, graph, age) : MM_OK;
}

static mm_status run_iteration(nets_exec *exec, const nets_iteration *it) {
    const int64_t last = (nets_exec_passes(exec->batch, exec->sub_batch) - 1) * exec->sub_batch;
    MM_TRY(nets_undo_save(&exec->undo, index_of(exec, it->slot), it->stream));
    MM_TRY(nets_exec_begin_part(exec, it->stream));
    if (exec->n_passes > 1) MM_TRY(nets_exec_run_pass(exec, it, 0));
    if (exec->n_passes > 2) MM_TRY(run_middle(exec, it));
    MM_TRY(nets_exec_run_pass(exec, it, last));
    return mm_event_record(it->slot->done, it->stream);
}

/* Undoes an iteration that failed, whose enqueued work is done. Returns whether that succeeded. */
static bool take_back(nets_exec *exec, const nets_slot *slot) {
    bool undone;
    mm_stream *stream = mm_compute_stream(exec->manager);
    return nets_staging_wait(&exec->staging, stream) == MM_OK &&
           nets_undo_apply(&exec->undo, index_of(exec, slot), stream, &undone) == MM_OK && undone;
}

/* Aborts an iteration that could not be enqueued, waits for what was enqueued of it, and undoes it. */
static mm_status undo(nets_exec *exec, nets_iteration *it, mm_status status) {
    mm_failure first;
    mm_failure_save(&first, status);
    mm_iteration_abort(exec->manager);
    mm_status synced = mm_stream_sync(it->stream), settled = mm_manager_sync(exec->manager);
    (void)synced, (void)settled; /* the first failure is returned */
    it->undone = take_back(exec, it->slot) && set_ages(exec, it->ages) == MM_OK;
    return mm_failure_restore(&first);
}

static mm_status submit(nets_exec *exec, nets_iteration *it, float lr) {
    it->stream = mm_compute_stream(exec->manager);
    *it->slot->lr = lr;
    *it->slot->word = exec->word;
    if (nets_exec_outstanding(exec) == 0) nets_undo_unmark(&exec->undo);
    MM_TRY(get_ages(exec, it->ages));
    int64_t began = mm_now_ns();
    mm_status status = run_iteration(exec, it);
    exec->enqueue_ns += mm_now_ns() - began;
    if (status != MM_OK) return undo(exec, it, status);
    exec->ring.submitted++;
    return MM_OK;
}

static mm_status check_batch(const nets_exec *exec, int64_t n, int room) {
    if (n != exec->batch)
        return mm_fail(MM_ERR_INVALID, "net %s: got %lld images for a batch of %lld", nets_net_name(exec->net),
                       (long long)n, (long long)exec->batch);
    if (nets_exec_outstanding(exec) + room <= NETS_AHEAD) return MM_OK;
    return mm_fail(MM_ERR_ORDER, "net %s: %d iterations are submitted and not collected", nets_net_name(exec->net),
                   nets_exec_outstanding(exec));
}

mm_status nets_exec_iteration(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr,
                              nets_result *result_out) {
    MM_TRY(check_batch(exec, n, NETS_AHEAD));
    const int64_t begun = nets_exec_sums_begun(exec);
    mm_status status;
    bool again;
    do {
        nets_iteration it = {.images = images, .labels = labels, .slot = nets_ring_next(&exec->ring)};
        if (exec->lowered->pads_images) /* the kernel that pads them reads pinned memory */
            it.images = memcpy(it.slot->images, images, (size_t)(exec->batch * nets_exec_image_bytes(exec)));
        status = submit(exec, &it, lr);
        if (status == MM_OK) return nets_exec_collect(exec, result_out);
        /* If memory ran out, the manager has a plan that needs less, and the iteration was undone, the iteration runs
         * again; but not if this rank has begun an all-reduce in it, since other ranks take part in that all-reduce. */
        again =
            status == MM_ERR_NOMEM && it.undone && nets_exec_stepped_down(exec) && nets_exec_sums_begun(exec) == begun;
    } while (again);
    return status;
}

mm_status nets_exec_submit(nets_exec *exec, const float *images, const int32_t *labels, int64_t n, float lr) {
    MM_TRY(check_batch(exec, n, 1));
    nets_slot *slot = nets_ring_next(&exec->ring);
    if (images) memcpy(slot->images, images, (size_t)(exec->batch * nets_exec_image_bytes(exec)));
    if (labels) memcpy(slot->labels, labels, (size_t)(exec->batch * nets_exec_label_bytes(exec)));
    nets_iteration it = {.images = slot->images, .labels = slot->labels, .slot = slot, .ahead = true};
    return submit(exec, &it, lr);
}

/* The error for a label that is not a class, on a device that cannot fail its stream itself (NETS_CORRECT). */
static mm_status bad_label(const nets_exec *exec, int32_t at) {
    return mm_fail(MM_ERR_INVALID, "the label of image %lld is not one of %lld classes",
                   (long long)(at / nets_net_labels(exec->net)), (long long)nets_net_classes(exec->net));
}

/* Undoes an iteration that failed, and drops the iterations submitted after it, which did not run either. */
static mm_status give_up(nets_exec *exec, const nets_slot *slot, mm_status status) {
    mm_failure failure;
    mm_failure_save(&failure, status);
    nets_exec_drop(exec);
    mm_status settled = mm_manager_sync(exec->manager); /* returns the same failure, unless it was returned before */
    if (settled != MM_OK) mm_failure_save(&failure, settled);
    take_back(exec, slot);
    return mm_failure_restore(&failure);
}

/* Undoes an iteration that was halted. Updates were halted from it on, so later iterations changed running statistics
 * at most. */
static mm_status undo_diverged(nets_exec *exec, const nets_slot *slot) {
    nets_exec_drop(exec);
    MM_TRY(mm_manager_sync(exec->manager));
    if (take_back(exec, slot) || nets_exec_updates_in_backward(exec)) return MM_OK;
    return mm_fail(MM_ERR_DEVICE, "net %s: an iteration whose loss is not finite could not be undone",
                   nets_net_name(exec->net));
}

mm_status nets_exec_collect(nets_exec *exec, nets_result *result_out) {
    if (nets_exec_outstanding(exec) == 0)
        return mm_fail(MM_ERR_ORDER, "net %s: no iteration is submitted", nets_net_name(exec->net));
    nets_slot *slot = nets_ring_oldest(&exec->ring);
    mm_status status = mm_event_sync(slot->done);
    if (status != MM_OK) return give_up(exec, slot, status);
    if (slot->result->correct < 0) return give_up(exec, slot, bad_label(exec, -1 - slot->result->correct));
    const nets_result result = *slot->result;
    if (result.halted)
        MM_TRY(undo_diverged(exec, slot));
    else
        exec->ring.collected++;
    *result_out = result;
    return MM_OK;
}

void nets_exec_drop(nets_exec *exec) { exec->ring.collected = exec->ring.submitted; }

int nets_exec_outstanding(const nets_exec *exec) { return (int)(exec->ring.submitted - exec->ring.collected); }

int64_t nets_exec_enqueue_ns(const nets_exec *exec) { return exec->enqueue_ns; }
