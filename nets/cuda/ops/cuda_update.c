/* SPDX-License-Identifier: MIT */
/* The update step, and what passes between sub-batches: glue to op_update_kernels.cu. */
#include <string.h>

#include "nets/cuda/cuda_ops.h"

/* moves: parameters with codes are updated elsewhere (enqueue_coded), and here have no elements. */
static void list_tensors(const nets_update_param *params, int n, bool moves, nets_cuda_update *update) {
    uint32_t block = 0;
    memset(update->decayed, 0, sizeof update->decayed);
    for (int i = 0; i < n; i++) {
        update->decayed[i / 32] |= (uint32_t)params[i].decayed << i % 32;
        update->tensors[i].weight = params[i].weight;
        memcpy(update->tensors[i].state, params[i].state, sizeof params[i].state);
        update->tensors[i].gradient = params[i].gradient;
        update->tensors[i].copy = params[i].copy;
        update->tensors[i].elems = moves && params[i].codes[0] ? 0 : params[i].elems;
        update->first_block[i] = block;
        block += (uint32_t)((update->tensors[i].elems + NETS_CUDA_UPDATE_CHUNK - 1) / NETS_CUDA_UPDATE_CHUNK);
    }
    update->first_block[n] = block;
    update->n = n;
}

typedef void (*update_fn)(const nets_cuda_update *update, cudaStream_t stream);

static const update_fn UPDATES[] = {[NETS_SGD] = nets_cuda_update_sgd,
                                    [NETS_PLAIN_SGD] = nets_cuda_update_plain_sgd,
                                    [NETS_ADAMW] = nets_cuda_update_adamw,
                                    [NETS_ADAMW_8BIT] = nets_cuda_update_adamw};
_Static_assert(sizeof UPDATES / sizeof *UPDATES == NETS_OPTIMIZERS, "an update for each");

/* Passes over all tensors, in this order: HALT checks the gradients, NORM sums their squares, MOVE updates the
 * weights. */
enum { HALT, NORM, MOVE, PASSES };

/* A launch for every NETS_CUDA_UPDATE_TENSORS tensors, and one if there are none. The last of MOVE counts the
 * iteration, unless it is halted. */
static void enqueue_pass(int pass, const nets_update_args *args, nets_cuda_norm *norm, nets_cuda_update *update,
                         cudaStream_t stream) {
    int parts = 0;
    const int all = pass == HALT ? args->n_checked : args->n_params;
    for (int first = 0; first < all || (first == 0 && pass != NORM); first += NETS_CUDA_UPDATE_TENSORS) {
        int n = all - first;
        if (n > NETS_CUDA_UPDATE_TENSORS) n = NETS_CUDA_UPDATE_TENSORS;
        update->rng = first + n == all && !args->goes_on ? args->rng : NULL;
        list_tensors((pass == MOVE && args->moved ? args->moved : args->params) + first, n, pass == MOVE, update);
        const uint32_t chunks = update->first_block[n];
        if (first == 0) parts = chunks < NETS_CUDA_UPDATE_PARTS ? (int)chunks : NETS_CUDA_UPDATE_PARTS;
        if (pass == HALT)
            nets_cuda_update_halt(update, args->loss, args->most, args->rng + NETS_RNG_HALTED,
                                  args->late ? NETS_TORN : 1u, stream);
        else if (pass == NORM)
            nets_cuda_update_squares(update, norm->parts, parts, first > 0, stream);
        else
            UPDATES[args->optimizer.id](update, stream);
    }
    if (pass == NORM) nets_cuda_update_clip(norm->parts, parts, args->optimizer.clip_norm, &norm->clip, stream);
}

/* Adds a parameter with codes. */
static void add_coded(const nets_update_param *param, nets_cuda_coded_update *update) {
    const int i = update->n++;
    update->tensors[i].weight = param->weight;
    update->tensors[i].gradient = param->gradient;
    update->tensors[i].copy = param->copy;
    memcpy(update->tensors[i].codes, param->codes, sizeof param->codes);
    memcpy(update->tensors[i].absmax, param->absmax, sizeof param->absmax);
    update->tensors[i].elems = param->elems;
    update->decayed[i / 32] |= (uint32_t)param->decayed << i % 32;
    update->first_block[i + 1] =
        update->first_block[i] + (uint32_t)((param->elems + NETS_CUDA_CODED_CHUNK - 1) / NETS_CUDA_CODED_CHUNK);
}

/* Updates the parameters with codes: a launch for every NETS_CUDA_CODED_TENSORS. */
static void enqueue_coded(const nets_update_args *args, const nets_cuda_update *with, cudaStream_t stream) {
    nets_cuda_coded_update update = {
        .optimizer = with->optimizer, .lr = with->lr, .step = with->step, .halted = with->halted, .clip = with->clip};
    nets_state_maps_make(&update.maps);
    for (int i = 0; i < args->n_params; i++) {
        if (args->params[i].codes[0]) add_coded(&args->params[i], &update);
        if (update.n == 0 || (update.n < NETS_CUDA_CODED_TENSORS && i < args->n_params - 1)) continue;
        nets_cuda_update_coded(&update, stream);
        update.n = 0;
        memset(update.decayed, 0, sizeof update.decayed);
    }
}

static mm_status enqueue_updates(const nets_update_args *args, nets_cuda_norm *norm, mm_stream *stream) {
    const uint32_t *halted = args->optimizer.only_finite ? args->rng + NETS_RNG_HALTED : NULL;
    const bool clips = args->optimizer.clip_norm > 0, runs[PASSES] = {halted && args->checks, clips, true};
    nets_cuda_update update = {.optimizer = args->optimizer,
                               .lr = args->lr,
                               .step = args->step,
                               .halted = halted,
                               .clip = clips ? &norm->clip : NULL};
    for (int pass = 0; pass < PASSES; pass++) {
        if (pass == MOVE && nets_optimizer_traits_of(args->optimizer.id)->coded)
            enqueue_coded(args, &update, mm_cuda_stream(stream));
        if (runs[pass]) enqueue_pass(pass, args, norm, &update, mm_cuda_stream(stream));
    }
    if (args->step && !args->goes_on) nets_cuda_update_count(args->step, halted, mm_cuda_stream(stream));
    return nets_cuda_launched("the update");
}

mm_status nets_cuda_update_step(nets_backend *backend, const nets_update_args *args, mm_stream *stream) {
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    mm_status status = enqueue_updates(args, ((nets_cuda_backend *)backend)->norm, stream);
    mm_device_leave(stream->device, entered);
    return status;
}

mm_status nets_cuda_check_step(nets_backend *backend, const nets_update_args *args, mm_stream *stream) {
    bool entered;
    (void)backend;
    MM_TRY(mm_device_enter(stream->device, &entered));
    nets_cuda_update update = {0};
    enqueue_pass(HALT, args, NULL, &update, mm_cuda_stream(stream));
    mm_status status = nets_cuda_launched("the check of gradients");
    mm_device_leave(stream->device, entered);
    return status;
}

/* ---------------------------------------------------------------- sub-batches */

mm_status nets_cuda_pass_on_step(nets_backend *backend, uint32_t *rng, int64_t images, mm_stream *stream) {
    bool entered;
    (void)backend;
    MM_TRY(mm_device_enter(stream->device, &entered));
    nets_cuda_pass_on(rng, images, mm_cuda_stream(stream));
    mm_status status = nets_cuda_launched("the end of a sub-batch");
    mm_device_leave(stream->device, entered);
    return status;
}

mm_status nets_cuda_add_step(nets_backend *backend, float *sum, const float *addend, int64_t elems, mm_stream *stream) {
    bool entered;
    (void)backend;
    MM_TRY(mm_device_enter(stream->device, &entered));
    nets_cuda_sum(MM_F32, sum, addend, sum, elems, mm_cuda_stream(stream));
    mm_status status = nets_cuda_launched("a sum of gradients");
    mm_device_leave(stream->device, entered);
    return status;
}
