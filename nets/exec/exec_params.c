/* SPDX-License-Identifier: MIT */
/* Gets and sets a net's parameters and its counts of updates in the manager. Only this file knows in which order the
 * device has a parameter's elements. */
#include <stdlib.h>
#include <string.h>

#include "nets/bf16.h"
#include "nets/exec/exec_internal.h"
#include "nets/init.h"

static mm_tensor part_tensor(const nets_exec *exec, int param, nets_part part) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    if (part == NETS_VALUE) return tensors->value;
    if (part == NETS_GRADIENT) /* -1: it is managed, or divided */
        return nets_exec_updates_in_backward(exec) || exec->lowered->shares >= 0 ? -1 : tensors->gradient;
    return tensors->state[part - NETS_STATE];
}

float *nets_exec_param(const nets_exec *exec, int param, nets_part part) {
    return nets_exec_place(exec, part_tensor(exec, param, part));
}

static mm_status no_part(const nets_exec *exec, int param) {
    return mm_fail(MM_ERR_NOT_FOUND, "parameter %s of %s has no such gradient or optimizer state here",
                   nets_net_param(exec->net, param)->name, nets_net_name(exec->net));
}

/* ---------------------------------------------------------------- orders */

static nets_order order_of(const nets_exec *exec, mm_tensor tensor) {
    for (int i = 0; i < nets_net_params(exec->net); i++) {
        const nets_param_tensors *p = &exec->lowered->params[i];
        if (tensor == p->value || tensor == p->gradient || tensor == p->state[0] || tensor == p->state[1])
            return p->order;
    }
    return (nets_order){1, 1, 1, 1};
}
_Static_assert(NETS_OPTIMIZER_STATES == 2, "all states are looked at");

/* The tensor's name; NULL: absent. */
static const char *name_of(const nets_exec *exec, mm_tensor tensor) {
    return tensor >= 0 ? nets_exec_name_of(exec, tensor) : NULL;
}

/* The number of elements of all ranks' shares, if the tensor is a state that they divide; else 0. */
static int64_t divided_elems(const nets_exec *exec, mm_tensor tensor) {
    for (int i = 0; exec->divider.own && i < nets_net_params(exec->net); i++) {
        const nets_param_tensors *p = &exec->lowered->params[i];
        if (tensor == p->state[0] || tensor == p->state[1]) return nets_order_elems(&p->order);
    }
    return 0;
}

/* A copy of elements first .. first + n - 1 of a tensor: from the manager to `out` or, if `out` is NULL, from `in` to
 * the manager. */
typedef struct transfer {
    nets_exec *exec;
    /* copy: that of the bf16 copy, which is set, too; NULL: none. name NULL: the copy is all there is. */
    const char *name, *copy;
    int64_t divided; /* divided_elems */
    nets_order order;
    int64_t first, n;
    void *out;
    const void *in;
    int64_t size; /* of an element, in bytes: of a float, or 1 of a code */
    int padding;  /* the bytes of what the device has between elements */
} transfer;

static void copy_element(void *to, const void *from, int64_t size) {
    if (size == sizeof(float))
        memcpy(to, from, sizeof(float));
    else
        memcpy(to, from, 1);
}

/* Sets n elements of the copy from `in`, rounded, or gets them, widened, to `out`. halves: room for them. */
static mm_status copy_halves(const transfer *t, int64_t at, int64_t n, float *out, const float *in, uint16_t *halves) {
    const int64_t size = sizeof *halves;
    if (out) MM_TRY(mm_persistent_get(t->exec->manager, t->copy, at * size, halves, n * size));
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)halves[i] << 16; /* a bf16 number is a float's upper half */
        if (out) {
            memcpy(&out[i], &bits, sizeof bits);
            continue;
        }
        memcpy(&bits, &in[i], sizeof bits);
        halves[i] = nets_bf16_of(bits);
    }
    return out ? MM_OK : mm_persistent_set(t->exec->manager, t->copy, at * size, halves, n * size);
}

static mm_status copy_copy(const transfer *t, int64_t at, int64_t n, float *out, const float *in) {
    const int64_t most = NETS_TRANSFER_BYTES / (int64_t)sizeof(uint16_t);
    uint16_t *halves = calloc((size_t)(n < most ? n : most), sizeof *halves);
    mm_status status = halves ? MM_OK : mm_fail(MM_ERR_NOMEM, "no memory to round %s", t->copy);
    for (int64_t first = 0; status == MM_OK && first < n; first += most)
        status = copy_halves(t, at + first, n - first < most ? n - first : most, out ? out + first : NULL,
                             in ? in + first : NULL, halves);
    free(halves);
    return status;
}

static mm_status copy_plain(const transfer *t, int64_t at, int64_t n, void *out, const void *in) {
    const int64_t offset = at * t->size, bytes = n * t->size;
    if (!t->name) return copy_copy(t, at, n, out, in);
    if (t->divided > 0)
        return out ? nets_divided_get(t->exec, t->name, t->divided, at, n, out)
                   : nets_divided_set(t->exec, t->name, t->divided, at, n, in);
    if (out) return mm_persistent_get(t->exec->manager, t->name, offset, out, bytes);
    MM_TRY(mm_persistent_set(t->exec->manager, t->name, offset, in, bytes));
    return t->copy ? copy_copy(t, at, n, NULL, in) : MM_OK;
}

/* Copies those of the transfer's elements that are in the n outer rows from `first` on; `rows` is scratch for these. */
static mm_status copy_rows(const transfer *t, int64_t first, int64_t n, char *rows) {
    const int64_t row = t->order.inner * t->order.window, row_there = t->order.there * t->order.window;
    const int64_t at = first * row, last = t->first + t->n;
    const int64_t from = at > t->first ? at : t->first, to = at + n * row < last ? at + n * row : last;
    if (t->out || to - from < n * row)
        MM_TRY(copy_plain(t, first * row_there, n * row_there, rows, NULL));
    else
        memset(rows, t->padding, (size_t)(n * row_there * t->size));
    for (int64_t e = from; e < to; e++) {
        char *there = rows + (nets_order_place(&t->order, e) - first * row_there) * t->size;
        const int64_t here = (e - t->first) * t->size;
        if (t->out)
            copy_element((char *)t->out + here, there, t->size);
        else
            copy_element(there, (const char *)t->in + here, t->size);
    }
    return t->out ? MM_OK : copy_plain(t, first * row_there, n * row_there, NULL, rows);
}

/* Does the transfer: copies as many outer rows at a time as NETS_TRANSFER_BYTES hold, at least one. */
static mm_status copy_ordered(const transfer *t) {
    const nets_order *o = &t->order;
    const int64_t row = o->inner * o->window, bytes = o->there * o->window * t->size;
    const int64_t fit = NETS_TRANSFER_BYTES / bytes, most = fit > 1 ? fit : 1;
    if (nets_order_is_plain(o)) return copy_plain(t, t->first, t->n, t->out, t->in);
    char *rows = malloc((size_t)((most < o->outer ? most : o->outer) * bytes));
    mm_status status = rows ? MM_OK : mm_fail(MM_ERR_NOMEM, "no memory to reorder %s", t->name ? t->name : t->copy);
    const int64_t end = (t->first + t->n + row - 1) / row;
    for (int64_t first = t->first / row; status == MM_OK && first < end; first += most)
        status = copy_rows(t, first, most < end - first ? most : end - first, rows);
    free(rows);
    return status;
}

/* Gets what the codes of a parameter's k-th state stand for. */
static mm_status get_codes(nets_exec *exec, int param, int k, float *out) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    const int64_t elems = nets_net_param(exec->net, param)->elems;
    const char *name = name_of(exec, tensors->state[k]);
    uint8_t *codes = malloc((size_t)elems);
    if (!codes) return mm_fail(MM_ERR_NOMEM, "no memory to decode %s", name);
    const transfer t = {exec, name, NULL, 0, tensors->order, 0, elems, codes, NULL, sizeof *codes, 0};
    mm_status status = copy_ordered(&t);
    if (status == MM_OK) status = nets_codes_decode(exec, param, k, codes, out);
    free(codes);
    return status;
}

static mm_status copy_part(nets_exec *exec, int param, nets_part part, float *out, const float *in) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    const mm_tensor tensor = part_tensor(exec, param, part);
    const char *name = name_of(exec, tensor);
    const char *copy = part == NETS_VALUE ? name_of(exec, tensors->copy) : NULL;
    if (!name && !copy) return no_part(exec, param);
    if (part >= NETS_STATE && tensors->absmax[part - NETS_STATE] >= 0)
        return out ? get_codes(exec, param, part - NETS_STATE, out)
                   : mm_fail(MM_ERR_UNSUPPORTED, "%s is held in codes, and is set by nets_exec_values_set", name);
    return copy_ordered(&(transfer){exec, name, copy, name ? divided_elems(exec, tensor) : 0, tensors->order, 0,
                                    nets_net_param(exec->net, param)->elems, out, in, sizeof(float), 0});
}

mm_status nets_exec_param_get(nets_exec *exec, int param, nets_part part, float *values_out) {
    return copy_part(exec, param, part, values_out, NULL);
}

mm_status nets_exec_param_set(nets_exec *exec, int param, nets_part part, const float *values) {
    return copy_part(exec, param, part, NULL, values);
}

static mm_status copy_values(nets_exec *exec, const char *name, int64_t offset, void *out, const void *in,
                             int64_t bytes) {
    const int param = nets_net_find_param(exec->net, name);
    mm_tensor tensor;
    transfer t = {exec, name, NULL, 0, {1, 1, 1, 1}, 0, 0, out, in, sizeof(float), 0};
    if (param >= 0) {
        const nets_param_tensors *tensors = &exec->lowered->params[param];
        t.name = name_of(exec, tensors->value);
        t.copy = name_of(exec, tensors->copy);
        t.order = tensors->order;
    } else {
        MM_TRY(mm_graph_find_tensor(exec->lowered->graph, name, &tensor));
        t.divided = divided_elems(exec, tensor);
        t.order = order_of(exec, tensor);
        t.size = (int64_t)mm_dtype_bytes(mm_graph_tensor(exec->lowered->graph, tensor)->dtype);
        t.padding = nets_codes_zero(exec, tensor);
    }
    t.first = offset / t.size;
    t.n = bytes / t.size;
    return copy_ordered(&t);
}

mm_status nets_exec_values_get(nets_exec *exec, const char *name, int64_t offset, void *values_out, int64_t bytes) {
    return copy_values(exec, name, offset, values_out, NULL, bytes);
}

mm_status nets_exec_values_set(nets_exec *exec, const char *name, int64_t offset, const void *values, int64_t bytes) {
    return copy_values(exec, name, offset, NULL, values, bytes);
}

/* ---------------------------------------------------------------- initial values */

static mm_status init_param(nets_exec *exec, int param, uint64_t seed, float *values, const float *zeros) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    const int64_t elems = nets_net_param(exec->net, param)->elems, most = NETS_TRANSFER_BYTES / (int64_t)sizeof *values;
    for (int64_t first = 0; first < elems; first += most) {
        const int64_t n = elems - first < most ? elems - first : most;
        transfer t = {exec,
                      name_of(exec, tensors->value),
                      name_of(exec, tensors->copy),
                      0,
                      tensors->order,
                      first,
                      n,
                      NULL,
                      values,
                      sizeof *values,
                      0};
        nets_init_param(exec->net, param, seed, first, n, values);
        MM_TRY(copy_ordered(&t));
        t.in = zeros;
        t.copy = NULL;
        for (int k = 0; k < NETS_OPTIMIZER_STATES && tensors->state[k] >= 0 && tensors->absmax[k] < 0; k++) {
            t.name = nets_exec_name_of(exec, tensors->state[k]);
            t.divided = divided_elems(exec, tensors->state[k]);
            MM_TRY(copy_ordered(&t));
        }
    }
    return MM_OK;
}

mm_status nets_exec_init(nets_exec *exec, uint64_t seed) {
    float *values = malloc(NETS_TRANSFER_BYTES), *zeros = calloc(1, NETS_TRANSFER_BYTES);
    mm_status status = MM_OK;
    if (!values || !zeros)
        status = mm_fail(MM_ERR_NOMEM, "net %s: no memory to initialise it", nets_net_name(exec->net));
    for (int i = 0; status == MM_OK && i < nets_net_params(exec->net); i++)
        status = init_param(exec, i, seed, values, zeros);
    for (int i = 0; status == MM_OK && i < nets_net_params(exec->net); i++) status = nets_codes_init(exec, i, values);
    free(values);
    free(zeros);
    if (status != MM_OK || exec->lowered->rng < 0) return status;
    const uint32_t none = 0;
    if (exec->lowered->step >= 0) MM_TRY(mm_persistent_set(exec->manager, NETS_STEP_NAME, 0, &none, sizeof none));
    const uint32_t rng[NETS_RNG_WORDS] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    return mm_persistent_set(exec->manager, nets_exec_name_of(exec, exec->lowered->rng), 0, rng, sizeof rng);
}

mm_status nets_exec_updates(nets_exec *exec, int64_t *updates_out) {
    if (exec->lowered->rng < 0)
        return mm_fail(MM_ERR_NOT_FOUND, "net %s: nothing is updated in an evaluation", nets_net_name(exec->net));
    uint32_t rng[NETS_RNG_WORDS];
    MM_TRY(mm_persistent_get(exec->manager, nets_exec_name_of(exec, exec->lowered->rng), 0, rng, sizeof rng));
    if (rng[NETS_RNG_HALTED] == NETS_TORN)
        return mm_fail(MM_ERR_DEVICE,
                       "net %s: iteration %lld ended after it had updated some of the weights: they are of no use",
                       nets_net_name(exec->net), (long long)((uint64_t)rng[3] << 32 | rng[2]) + 1);
    *updates_out = (int64_t)((uint64_t)rng[3] << 32 | rng[2]);
    return MM_OK;
}
