/* SPDX-License-Identifier: MIT */
#include "tools/measure/host_ceiling.h"

#include "mm/device/contract/clock.h"
#include "nets/contract/op.h"

enum { SIDE = 2048, ROUNDS = 5, HALF_BYTES = 128 << 20 };

typedef struct rig {
    nets_backend *backend;
    mm_device *device;
    mm_stream *stream;
    uint8_t *memory; /* 2 * HALF_BYTES */
    nets_op *op;
} rig;

typedef mm_status (*work)(rig *r);

static mm_status copy(rig *r) {
    return mm_copy_async(r->stream, r->memory + HALF_BYTES, r->memory, HALF_BYTES, MM_COPY_DEVICE);
}

static mm_status add(rig *r) {
    return r->backend->ops->add(r->backend, (float *)r->memory, (const float *)(r->memory + HALF_BYTES),
                                HALF_BYTES / (int64_t)sizeof(float), r->stream);
}

/* The tensors lie one after the other, each in the room of a float32 matrix. */
static mm_status multiply(rig *r) {
    enum { MATRIX = SIDE * SIDE * 4 };
    nets_op_args args = {.at = {[NETS_X] = r->memory,
                                [NETS_Y] = r->memory + MATRIX,
                                [NETS_W] = r->memory + 2 * MATRIX,
                                [NETS_W16] = r->memory + 3 * MATRIX,
                                [NETS_WORKSPACE] = r->memory + 4 * MATRIX},
                         .workspace_bytes = nets_op_workspace_bytes(r->op, MM_FORWARD)};
    return nets_op_enqueue(r->op, MM_FORWARD, &args, r->stream);
}

/* The shortest time of one run, in seconds, after one that warms up. */
static mm_status shortest(rig *r, work run, double *seconds_out) {
    double best = 0;
    for (int i = 0; i <= ROUNDS; i++) {
        const int64_t began = mm_now_ns();
        MM_TRY(run(r));
        MM_TRY(mm_stream_sync(r->stream));
        const double seconds = (double)(mm_now_ns() - began) * 1e-9;
        if (i == 1 || (i > 1 && seconds < best)) best = seconds;
    }
    *seconds_out = best;
    return MM_OK;
}

static mm_status measure_memory(rig *r, host_ceiling *ceiling) {
    double copied, added;
    MM_TRY(mm_fill_async(r->stream, r->memory, 0, 2 * (int64_t)HALF_BYTES));
    MM_TRY(shortest(r, copy, &copied));
    MM_TRY(shortest(r, add, &added));
    const double by_copy = 2.0 * HALF_BYTES / copied, by_add = 3.0 * HALF_BYTES / added;
    ceiling->bytes_per_s = by_copy > by_add ? by_copy : by_add;
    return MM_OK;
}

static mm_status measure_product(rig *r, host_ceiling *ceiling) {
    const nets_op_desc desc = {.kind = NETS_LINEAR,
                               .attrs = {.out_channels = SIDE},
                               .maps = r->backend->maps,
                               .factor_elems = (int64_t)SIDE * SIDE,
                               .x = {{4, {SIDE, 1, 1, SIDE}}},
                               .y = {4, {SIDE, 1, 1, SIDE}},
                               .n_inputs = 1};
    double seconds;
    MM_TRY(nets_op_create(r->backend, &desc, &r->op));
    mm_status status = shortest(r, multiply, &seconds);
    nets_op_destroy(r->op);
    if (status == MM_OK) ceiling->flops_per_s = 2.0 * SIDE * SIDE * SIDE / seconds;
    return status;
}

static mm_status measure(rig *r, host_ceiling *ceiling) {
    MM_TRY(mm_stream_create(r->device, "measure", 0, &r->stream));
    MM_TRY(mm_device_reserve(r->device, MM_MEMORY_DEVICE, 2 * (int64_t)HALF_BYTES, (void **)&r->memory));
    MM_TRY(measure_memory(r, ceiling));
    return measure_product(r, ceiling);
}

mm_status host_ceiling_measure(const target *target, host_ceiling *ceiling_out) {
    rig r = {.backend = target->backend};
    MM_TRY(mm_device_create(target->device, NULL, &r.device));
    mm_status status = measure(&r, ceiling_out);
    mm_stream_destroy(r.stream);
    if (r.memory) mm_device_release(r.device, MM_MEMORY_DEVICE, r.memory, 2 * (int64_t)HALF_BYTES);
    mm_device_destroy(r.device);
    return status;
}
