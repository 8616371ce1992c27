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

bool nets_exec_has_part(const nets_exec *exec, int param, nets_part part) {
    return part_tensor(exec, param, part) >= 0;
}

static mm_status no_part(const nets_exec *exec, int param) {
    return mm_fail(MM_ERR_NOT_FOUND, "parameter %s of %s has no such gradient or optimizer state here",
                   nets_net_param(exec->net, param)->name, nets_net_name(exec->net));
}

/* ---------------------------------------------------------------- transfers */

/* A copy of elements first .. first + n - 1 of a tensor: from the manager to `out` or, if `out` is NULL, from `in` to
 * the manager. */
typedef struct transfer {
    nets_exec *exec;
    const char *name; /* NULL: the copy is all there is */
    const char *copy; /* that of the bf16 copy, which is set, too; NULL: none */
    int param, state; /* the net's parameter whose state it is, and which; state below 0: it is none */
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

/* The tensor's name; NULL: absent. */
static const char *name_of(const nets_exec *exec, mm_tensor tensor) {
    return tensor >= 0 ? nets_exec_name_of(exec, tensor) : NULL;
}

static bool is_coded(const nets_exec *exec, int param, nets_part part) {
    return part >= NETS_STATE && exec->lowered->params[param].absmax[part - NETS_STATE] >= 0;
}

/* Of a parameter's part; which elements, from where and to where is yet to be said. */
static transfer transfer_of(nets_exec *exec, int param, nets_part part) {
    const nets_param_tensors *tensors = &exec->lowered->params[param];
    return (transfer){.exec = exec,
                      .name = name_of(exec, part_tensor(exec, param, part)),
                      .copy = part == NETS_VALUE ? name_of(exec, tensors->copy) : NULL,
                      .param = param,
                      .state = part - NETS_STATE,
                      .order = tensors->order,
                      .size = is_coded(exec, param, part) ? 1 : sizeof(float),
                      .padding = is_coded(exec, param, part) ? nets_codes_zero(part - NETS_STATE) : 0};
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

static mm_status copy_divided(const transfer *t, int64_t at, int64_t n, float *out, const float *in) {
    const nets_some some = {.elems = nets_order_elems(&t->order),
                            .unit = nets_param_share_unit(&t->exec->lowered->params[t->param]),
                            .first = at,
                            .n = n};
    return out ? nets_divided_get(t->exec, t->name, &some, out) : nets_divided_set(t->exec, t->name, &some, in);
}

static mm_status copy_plain(const transfer *t, int64_t at, int64_t n, void *out, const void *in) {
    const int64_t offset = at * t->size, bytes = n * t->size;
    if (!t->name) return copy_copy(t, at, n, out, in);
    if (t->state >= 0 && t->exec->divider.own) return copy_divided(t, at, n, out, in);
    if (t->state >= 0 && t->exec->lowered->params[t->param].strips.n > 1)
        return nets_exec_strips_copy(t->exec, t->param, t->state, at, n, out, in);
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

/* Gets what the codes of a state stand for. */
static mm_status get_codes(nets_exec *exec, int param, nets_part part, float *out) {
    transfer t = transfer_of(exec, param, part);
    t.n = nets_net_param(exec->net, param)->elems;
    uint8_t *codes = malloc((size_t)t.n);
    if (!codes) return mm_fail(MM_ERR_NOMEM, "no memory to decode %s", t.name);
    t.out = codes;
    mm_status status = copy_ordered(&t);
    if (status == MM_OK) status = nets_codes_decode(exec, param, part - NETS_STATE, codes, out);
    free(codes);
    return status;
}

static mm_status copy_part(nets_exec *exec, int param, nets_part part, float *out, const float *in) {
    transfer t = transfer_of(exec, param, part);
    if (!t.name && !t.copy) return no_part(exec, param);
    if (is_coded(exec, param, part))
        return out ? get_codes(exec, param, part, out)
                   : mm_fail(MM_ERR_UNSUPPORTED, "%s is held in codes, and is set by nets_exec_values_set", t.name);
    t.n = nets_net_param(exec->net, param)->elems;
    t.out = out;
    t.in = in;
    return copy_ordered(&t);
}

mm_status nets_exec_param_get(nets_exec *exec, int param, nets_part part, float *values_out) {
    return copy_part(exec, param, part, values_out, NULL);
}

mm_status nets_exec_param_set(nets_exec *exec, int param, nets_part part, const float *values) {
    return copy_part(exec, param, part, NULL, values);
}

/* The number of the parameter whose part is called so, in graphs and in files; -1: none is. */
static int find_part(const nets_exec *exec, const char *name, nets_part *part_out) {
    const nets_optimizer_traits *optimizer = nets_optimizer_traits_of(exec->lowered->optimizer);
    const char *prefixes[NETS_PARTS] = {[NETS_GRADIENT] = "grad"};
    *part_out = NETS_VALUE;
    int param = nets_net_find_param(exec->net, name);
    memcpy(&prefixes[NETS_STATE], optimizer->states, sizeof optimizer->states);
    for (int part = NETS_GRADIENT; param < 0 && part < NETS_PARTS; part++) {
        const size_t length = prefixes[part] ? strlen(prefixes[part]) : 0;
        if (length == 0 || strncmp(name, prefixes[part], length) != 0 || name[length] != '.') continue;
        param = nets_net_find_param(exec->net, name + length + 1);
        *part_out = (nets_part)part;
    }
    return param;
}

static mm_status copy_values(nets_exec *exec, const char *name, int64_t offset, void *out, const void *in,
                             int64_t bytes) {
    nets_part part;
    const int param = find_part(exec, name, &part);
    transfer t = {.exec = exec, .name = name, .state = -1, .order = {1, 1, 1, 1}, .size = sizeof(float)};
    if (param >= 0) t = transfer_of(exec, param, part);
    if (!t.name && !t.copy) return no_part(exec, param);
    t.first = offset / t.size;
    t.n = bytes / t.size;
    t.out = out;
    t.in = in;
    return copy_ordered(&t);
}

mm_status nets_exec_values_get(nets_exec *exec, const char *name, int64_t offset, void *values_out, int64_t bytes) {
    return copy_values(exec, name, offset, values_out, NULL, bytes);
}

mm_status nets_exec_values_set(nets_exec *exec, const char *name, int64_t offset, const void *values, int64_t bytes) {
    return copy_values(exec, name, offset, NULL, values, bytes);
}

/* ---------------------------------------------------------------- initial values */

/* Sets n elements of a part, if the parameter has it. */
static mm_status init_part(nets_exec *exec, int param, nets_part part, int64_t first, int64_t n, const float *in) {
    transfer t = transfer_of(exec, param, part);
    t.first = first;
    t.n = n;
    t.in = in;
    return t.name || t.copy ? copy_ordered(&t) : MM_OK;
}

static mm_status init_param(nets_exec *exec, int param, uint64_t seed, float *values, const float *zeros) {
    const int64_t elems = nets_net_param(exec->net, param)->elems, most = NETS_TRANSFER_BYTES / (int64_t)sizeof *values;
    for (int64_t first = 0; first < elems; first += most) {
        const int64_t n = elems - first < most ? elems - first : most;
        nets_init_param(exec->net, param, seed, first, n, values);
        MM_TRY(init_part(exec, param, NETS_VALUE, first, n, values));
        for (int part = NETS_STATE; part < NETS_PARTS; part++)
            if (!is_coded(exec, param, part)) MM_TRY(init_part(exec, param, part, first, n, zeros));
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
