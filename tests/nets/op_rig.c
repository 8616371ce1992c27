/* SPDX-License-Identifier: MIT */
#include "tests/nets/op_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/philox.h"
#include "nets/net_ops.h"
#include "tests/nets/algorithms_file.h"

/* The device of later rigs. */
static const char *device_name = "host";

bool op_rig_use_device(size_t i) {
    const mm_device_ops *device = mm_device_table(i);
    if (device) op_rig_use(device->name);
    return device != NULL;
}

void op_rig_use(const char *device) { device_name = device; }
const char *op_rig_device(void) { return device_name; }

bool op_rig_has(nets_op_kind kind) {
    nets_backend *backend;
    if (nets_backend_open(device_name, NULL, &backend) != MM_OK) return true; /* the case says why */
    const bool has = backend->ops->impls[kind] && backend->ops->impls[kind]->create;
    nets_backend_close(backend);
    return has;
}

void op_rig_open(op_rig *rig, const nets_backend_config *config) {
    const nets_backend_config small = {.deterministic = true,
                                       .workspace_limit_bytes = OP_RIG_WORKSPACE_BYTES,
                                       .algorithms_path = algorithms_file(),
                                       .threads = strcmp(device_name, "host") == 0 ? OP_RIG_THREADS : 0};
    *rig = (op_rig){.n_blocks = 0};
    if (mm_device_create(device_name, NULL, &rig->device) != MM_OK) {
        print_message("%s\n", mm_last_error());
        skip();
    }
    assert_int_equal(mm_stream_create(rig->device, "rig", 0, &rig->stream), MM_OK);
    if (nets_backend_open(device_name, config ? config : &small, &rig->backend) != MM_OK)
        fail_msg("%s", mm_last_error());
}

/* Host memory is from the heap, whose ends sanitizers watch. A device's has just the size asked for; the kernel checker
 * watches its ends. */
void *op_rig_alloc(op_rig *rig, int64_t bytes) {
    void *memory = NULL;
    int64_t size = rig->device->ops->cpu_reaches_memory ? (bytes + 255) / 256 * 256 : bytes;
    assert_true(rig->n_blocks < OP_RIG_BLOCKS);
    if (rig->device->ops->cpu_reaches_memory)
        memory = aligned_alloc(256, (size_t)size);
    else if (mm_device_reserve(rig->device, MM_MEMORY_PINNED, size, &memory) != MM_OK)
        fail_msg("%s", mm_last_error());
    assert_non_null(memory);
    rig->blocks[rig->n_blocks].memory = memory;
    rig->blocks[rig->n_blocks++].bytes = size;
    memset(memory, 0, (size_t)bytes);
    return memory;
}

static void free_blocks(op_rig *rig) {
    for (int i = 0; i < rig->n_blocks; i++)
        if (rig->device->ops->cpu_reaches_memory)
            free(rig->blocks[i].memory);
        else
            mm_device_release(rig->device, MM_MEMORY_PINNED, rig->blocks[i].memory, rig->blocks[i].bytes);
}

static void give(op_rig *rig, nets_role role, int64_t bytes) {
    rig->bytes[role] = bytes;
    rig->args.at[role] = rig->storage[role] = op_rig_alloc(rig, bytes);
}

enum { GUARD_BYTES = 4096 };

/* An output starts as NaN. */
static void give_output(op_rig *rig, nets_role role, int64_t bytes) {
    give(rig, role, bytes);
    memset(rig->storage[role], 0xff, (size_t)bytes);
}

/* Builds a net of this layer alone for its output shape and parameters, and allocates the parameters. */
static void infer(op_rig *rig, const nets_attrs *attrs) {
    nets_net *net;
    const int64_t *x = rig->desc.x[0].dims;
    int n = rig->desc.n_inputs, inputs[NETS_MAX_INPUTS];
    assert_int_equal(nets_net_create("rig", &net), MM_OK);
    inputs[0] = nets_add_data(net, x[1], x[2], x[3], 10);
    for (int i = 1; i < n; i++) {
        char name[32];
        const nets_attrs conv = {.out_channels = rig->desc.x[i].dims[3], .kernel = {1, 1}};
        snprintf(name, sizeof name, "input%d", i);
        const bool is_map = rig->desc.x[i].dims[1] == x[1] && rig->desc.x[i].dims[2] == x[2];
        inputs[i] = nets_add1(net, name, is_map ? NETS_CONV : NETS_GLOBAL_AVG_POOL, is_map ? &conv : NULL, inputs[0]);
    }
    int layer = nets_add(net, "layer", rig->desc.kind, attrs, inputs, n);
    if (layer < 0) fail_msg("%s", mm_last_error());
    rig->desc.attrs = nets_net_layer(net, layer)->attrs;
    assert_int_equal(nets_net_shape(net, layer, x[0], &rig->desc.y), MM_OK);
    for (int i = 0; i < nets_net_params(net); i++) {
        const nets_param *param = nets_net_param(net, i);
        if (param->layer != layer) continue;
        rig->orders[param->place] = nets_order_of(param->rank, param->dims, rig->backend->channels_last, 0);
        give(rig, (nets_role)(NETS_PARAM + param->place), 4 * param->elems);
        if (param->learned) give_output(rig, (nets_role)(NETS_DPARAM + param->place), 4 * param->elems);
    }
    nets_net_destroy(net);
}

static void give_all(op_rig *rig) {
    const nets_op_lowering *steps = nets_op_lowering_of(rig->desc.kind, rig->desc.relu);
    const int64_t y = nets_shape_elems(&rig->desc.y);
    give_output(rig, NETS_Y, 4 * y);
    give(rig, NETS_DY, 4 * y);
    for (int i = 0; i < rig->desc.n_inputs; i++) {
        give(rig, (nets_role)(NETS_X + i), 4 * nets_shape_elems(&rig->desc.x[i]));
        give_output(rig, (nets_role)(NETS_DX + i), 4 * nets_shape_elems(&rig->desc.x[i]));
    }
    for (int i = 0; rig->desc.training && i < NETS_MAX_SAVED && steps->saved[i].name; i++) {
        const nets_shape shape = steps->saved[i].shape(&rig->desc.attrs, rig->desc.x, &rig->desc.y);
        const int64_t bytes = nets_shape_elems(&shape) * (int64_t)mm_dtype_bytes(steps->saved[i].dtype);
        give(rig, (nets_role)(NETS_SAVED + i), bytes);
    }
    give(rig, NETS_LABELS, 4 * nets_shape_rows(&rig->desc.x[0]));
    give(rig, NETS_RNG, NETS_RNG_WORDS * (int64_t)sizeof(uint32_t));
    give(rig, NETS_LOSS_VALUE, 4);
    give(rig, NETS_CORRECT, 4);
}

static void make_op(op_rig *rig) {
    if (nets_op_create(rig->backend, &rig->desc, &rig->op) != MM_OK) fail_msg("%s", mm_last_error());
    int64_t forward = nets_op_workspace_bytes(rig->op, MM_FORWARD);
    int64_t backward = rig->desc.training ? nets_op_workspace_bytes(rig->op, MM_BACKWARD) : 0;
    rig->args.workspace_bytes = forward > backward ? forward : backward;
    give(rig, NETS_WORKSPACE, rig->args.workspace_bytes + GUARD_BYTES);
}

/* Makes storage, op and inputs for rig->desc. */
static void make_ready(op_rig *rig) {
    give_all(rig);
    make_op(rig);
    const nets_role filled[] = {NETS_X, NETS_X2, NETS_W, NETS_B, NETS_DY};
    for (size_t i = 0; i < sizeof filled / sizeof filled[0]; i++) op_rig_fill(rig, filled[i], (uint32_t)i + 1);
    for (int i = 2; i < rig->desc.n_inputs; i++) op_rig_fill(rig, (nets_role)(NETS_X + i), (uint32_t)i + 100);
    for (int i = 2; i < NETS_MAX_PARAMS; i++) /* learned ones have a gradient */
        if (rig->args.at[NETS_DPARAM + i]) op_rig_fill(rig, (nets_role)(NETS_PARAM + i), (uint32_t)i + 200);
    if (!rig->desc.wants_dx) rig->args.at[NETS_DX] = NULL;
}

void op_rig_init_inputs(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4],
                        const int64_t *channels, int n_inputs, bool training, bool wants_dx) {
    op_rig_open(rig, NULL);
    rig->desc = (nets_op_desc){.kind = kind, .n_inputs = n_inputs, .training = training, .wants_dx = wants_dx};
    for (int i = 0; i < n_inputs; i++) rig->desc.x[i] = (nets_shape){4, {x[0], x[1], x[2], channels[i]}};
    infer(rig, attrs);
    make_ready(rig);
}

void op_rig_init_two(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], const int64_t x2[4],
                     bool training, bool wants_dx) {
    op_rig_open(rig, NULL);
    rig->desc = (nets_op_desc){.kind = kind, .n_inputs = 2, .training = training, .wants_dx = wants_dx};
    rig->desc.x[0] = (nets_shape){4, {x[0], x[1], x[2], x[3]}};
    rig->desc.x[1] = (nets_shape){4, {x2[0], x2[1], x2[2], x2[3]}};
    infer(rig, attrs);
    make_ready(rig);
}

void op_rig_init_fused(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], int n_inputs,
                       bool training, bool wants_dx) {
    op_rig_open(rig, NULL);
    const int inferred = kind == NETS_MUL ? 2 : 1;
    rig->desc = (nets_op_desc){.kind = kind, .n_inputs = inferred, .training = training, .wants_dx = wants_dx};
    for (int i = 0; i < n_inputs; i++) rig->desc.x[i] = (nets_shape){4, {x[0], x[1], x[2], x[3]}};
    infer(rig, attrs);
    rig->desc.n_inputs = n_inputs;
    rig->desc.relu = kind == NETS_BATCH_NORM;
    rig->desc.silu = kind == NETS_MUL;
    rig->desc.attrs.bias = kind == NETS_RELU;
    if (kind == NETS_RELU) {
        give(rig, NETS_B, 4 * x[3]);
        give_output(rig, NETS_DB, 4 * x[3]);
    }
    make_ready(rig);
}

void op_rig_init(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], bool training,
                 bool wants_dx) {
    op_rig_init_inputs(rig, kind, attrs, x, (const int64_t[]){x[3], x[3]}, kind == NETS_ADD || kind == NETS_MUL ? 2 : 1,
                       training, wants_dx);
}

void op_rig_reopen(op_rig *rig, const nets_backend_config *config) {
    nets_op_destroy(rig->op);
    nets_backend_close(rig->backend);
    if (nets_backend_open(device_name, config, &rig->backend) != MM_OK) fail_msg("%s", mm_last_error());
    make_op(rig);
}

void op_rig_fini(op_rig *rig) {
    nets_op_destroy(rig->op);
    nets_backend_close(rig->backend);
    mm_stream_destroy(rig->stream);
    free_blocks(rig);
    mm_device_destroy(rig->device);
}

float *op_rig_floats(const op_rig *rig, nets_role role) { return rig->args.at[role]; }

int64_t op_rig_place(const op_rig *rig, nets_role role, int64_t e) {
    const bool gradient = role >= NETS_DPARAM && role <= NETS_DPARAM_LAST;
    if (!gradient && (role < NETS_PARAM || role > NETS_PARAM_LAST)) return e;
    const nets_order *order = &rig->orders[role - (gradient ? NETS_DPARAM : NETS_PARAM)];
    return order->window ? nets_order_place(order, e) : e;
}

int64_t op_rig_elems(const op_rig *rig, nets_role role) { return rig->bytes[role] / 4; }

void *op_rig_mask(op_rig *rig, const float *y, int64_t n) {
    uint32_t *mask = op_rig_alloc(rig, (n / 32 + 1) * (int64_t)sizeof *mask);
    for (int64_t i = 0; i < n; i++)
        if (y[i] > 0) mask[i / 32] |= UINT32_C(1) << (i % 32);
    return mask;
}

void op_rig_fill(op_rig *rig, nets_role role, uint32_t seed) {
    float *out = rig->args.at[role];
    const uint32_t key[2] = {seed, 7};
    if (!out) return;
    for (int64_t i = 0; i < op_rig_elems(rig, role); i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
        uint32_t words[4];
        mm_philox(key, counter, words);
        out[op_rig_place(rig, role, i)] = (float)((double)words[0] / 2147483648.0 - 1.0);
    }
}

void op_rig_run(op_rig *rig, mm_phase phase) {
    memset(rig->args.at[NETS_WORKSPACE], 0xff, (size_t)rig->bytes[NETS_WORKSPACE]);
    assert_int_equal(nets_op_enqueue(rig->op, phase, &rig->args, rig->stream), MM_OK);
    mm_status status = mm_stream_sync(rig->stream);
    if (status != MM_OK) fail_msg("%s", mm_last_error());
    const unsigned char *workspace = rig->args.at[NETS_WORKSPACE];
    const int64_t own = nets_op_workspace_within(rig->op, phase, rig->args.workspace_bytes);
    for (int64_t i = own; i < rig->bytes[NETS_WORKSPACE]; i++)
        if (workspace[i] != 0xff) fail_msg("%s: wrote behind its workspace", nets_op_name(rig->desc.kind));
}

static double objective(op_rig *rig) {
    const float *y = op_rig_floats(rig, NETS_Y), *dy = op_rig_floats(rig, NETS_DY);
    double sum = 0;
    op_rig_run(rig, MM_FORWARD);
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_Y); i++) sum += (double)y[i] * dy[i];
    return sum;
}

void op_rig_check_gradient(op_rig *rig, nets_role of, nets_role by, float h, double tolerance) {
    /* Fewer samples on devices whose forward is slow because of launches or emulated threads. Ops of such devices are
     * also compared with the host's. */
    int64_t n = op_rig_elems(rig, of), samples = rig->device->ops->cpu_reaches_memory ? 397 : 41;
    int64_t stride = n > samples + 3 ? n / samples : 1;
    float *variable = op_rig_floats(rig, of);
    const float *gradient = op_rig_floats(rig, by);
    double largest = 0, deviation = 0;
    for (int64_t i = 0; i < n; i++) {
        assert_true(isfinite(gradient[i]));
        largest = fmax(largest, fabs((double)gradient[i]));
    }
    assert_true(largest > 0);
    for (int64_t i = 0; i < n; i += stride) {
        float value = variable[i], above = value + h, below = value - h;
        variable[i] = above;
        double up = objective(rig);
        variable[i] = below;
        double down = objective(rig);
        variable[i] = value;
        deviation = fmax(deviation, fabs((up - down) / ((double)above - below) - gradient[i]));
    }
    if (!(deviation <= tolerance * largest))
        fail_msg("%s: gradient %d deviates by %g of %g", nets_op_name(rig->desc.kind), (int)by, deviation, largest);
}

void op_rig_give_earlier(op_rig *rig, void *earlier) {
    nets_op_destroy(rig->op);
    rig->op = NULL;
    rig->desc.adds_earlier = earlier != NULL;
    rig->args.at[NETS_EARLIER] = earlier;
    rig->bytes[NETS_EARLIER] = earlier ? rig->bytes[NETS_DX] : 0;
    make_op(rig);
}

void op_rig_freeze(op_rig *rig) {
    nets_op_destroy(rig->op);
    rig->op = NULL;
    rig->desc.frozen = true;
    for (int i = 0; i < NETS_MAX_PARAMS; i++) rig->args.at[NETS_DPARAM + i] = NULL;
    make_op(rig);
}

void op_rig_give_passes(op_rig *rig) {
    nets_op_destroy(rig->op);
    rig->op = NULL;
    rig->desc.pass.adds = true;
    make_op(rig);
}

static double earlier_tolerance(const op_rig *rig) {
    bool conv = rig->desc.kind == NETS_CONV || rig->desc.kind == NETS_CONV_TRANSPOSE;
    return conv && !rig->device->ops->cpu_reaches_memory ? 1e-4 : 0;
}

void op_rig_check_earlier(op_rig *rig) {
    int64_t n = op_rig_elems(rig, NETS_DX);
    float *alone = malloc((size_t)n * sizeof *alone), *earlier = op_rig_alloc(rig, n * (int64_t)sizeof *earlier);
    assert_non_null(alone);
    for (int64_t i = 0; i < n; i++) earlier[i] = (float)(i % 17 - 8);
    op_rig_run(rig, MM_FORWARD);
    op_rig_run(rig, MM_BACKWARD);
    memcpy(alone, rig->args.at[NETS_DX], (size_t)n * sizeof *alone);
    op_rig_give_earlier(rig, earlier);
    op_rig_run(rig, MM_BACKWARD);
    op_rig_give_earlier(rig, NULL);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(op_rig_floats(rig, NETS_DX)[i] - (double)(alone[i] + earlier[i])) <= earlier_tolerance(rig));
    free(alone);
}

void op_rig_check_inplace(op_rig *rig, mm_phase phase, nets_role input, nets_role output) {
    size_t n = (size_t)rig->bytes[output];
    void *apart = malloc(n), *at = rig->args.at[output];
    assert_non_null(apart);
    assert_int_equal(rig->bytes[input], rig->bytes[output]);
    op_rig_run(rig, phase);
    memcpy(apart, at, n);
    rig->args.at[output] = rig->args.at[input];
    op_rig_run(rig, phase);
    assert_memory_equal(rig->args.at[output], apart, n);
    rig->args.at[output] = at;
    free(apart);
}

void op_rig_check_earlier_inplace(op_rig *rig) {
    float *earlier = op_rig_alloc(rig, rig->bytes[NETS_DX]);
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_DX); i++) earlier[i] = 0.3f * (float)(i % 17 - 8);
    op_rig_give_earlier(rig, earlier);
    op_rig_run(rig, MM_FORWARD);
    op_rig_check_inplace(rig, MM_BACKWARD, NETS_EARLIER, NETS_DX);
}

void op_rig_check_made_for_earlier(op_rig *rig) {
    rig->args.at[NETS_EARLIER] = rig->args.at[NETS_X];
    assert_int_equal(nets_op_enqueue(rig->op, MM_BACKWARD, &rig->args, rig->stream), MM_ERR_INVALID);
    op_rig_give_earlier(rig, rig->args.at[NETS_X]);
    rig->args.at[NETS_EARLIER] = NULL;
    assert_int_equal(nets_op_enqueue(rig->op, MM_BACKWARD, &rig->args, rig->stream), MM_ERR_INVALID);
}

/* Moves a role's storage, with its contents, by `shift` bytes in a larger block. */
static void move_role(op_rig *rig, nets_role role, int64_t shift) {
    char *block = op_rig_alloc(rig, shift + rig->bytes[role]);
    memcpy(block + shift, rig->storage[role], (size_t)rig->bytes[role]);
    rig->args.at[role] = block + shift;
}

static bool is_output(int role) {
    return role == NETS_Y || (role >= NETS_DX && role <= NETS_DX_LAST) ||
           (role >= NETS_DPARAM && role <= NETS_DPARAM_LAST);
}

void op_rig_check_places(op_rig *rig) {
    op_rig_run(rig, MM_FORWARD);
    op_rig_run(rig, MM_BACKWARD);
    for (int r = 0; r < NETS_ROLES; r++)
        if (rig->args.at[r]) move_role(rig, (nets_role)r, 256 * (1 + r * 7 % 15));
    for (int r = 0; r < NETS_ROLES; r++)
        if (rig->args.at[r] && is_output(r)) memset(rig->args.at[r], 0xff, (size_t)rig->bytes[r]);
    op_rig_run(rig, MM_FORWARD);
    op_rig_run(rig, MM_BACKWARD);
    for (int r = 0; r < NETS_ROLES; r++)
        if (rig->args.at[r] && is_output(r))
            assert_memory_equal(rig->storage[r], rig->args.at[r], (size_t)rig->bytes[r]);
    for (int r = 0; r < NETS_ROLES; r++)
        if (rig->args.at[r]) rig->args.at[r] = rig->storage[r];
}
