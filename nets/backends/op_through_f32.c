/* SPDX-License-Identifier: MIT */
/* Runs an op with bf16 maps through its f32 form. Before a phase, the maps that it reads and the weight's bf16 copy are
 * widened to f32 in scratch. After it, the maps that it writes are rounded from scratch to bf16, to nearest, ties to
 * even. All other tensors are f32 already. A batch that a weight multiplies is rounded to bf16 and widened. The scratch
 * is part of the workspace:
 *
 *      | map | map | ... | weight | workspace of the f32 op |
 *
 *      | f32 | bf16 |    the scratch of a batch: its elements rounded to bf16, and widened from there to f32
 */
#include "nets/backends/op_through_f32.h"

#include <stdlib.h>

#include "nets/contract/op_sizes.h"
#include "nets/net_ops.h"

typedef struct widened_map {
    nets_role role;            /* the role of a bf16 map, or NETS_W16 */
    bool reads, writes, taken; /* taken: an output shares the scratch of this input */
    bool f32;                  /* the batch: f32 elements, which are rounded and widened */
    int64_t elems, at;         /* at: byte offset of its scratch in the workspace */
} widened_map;

typedef struct widened_phase {
    widened_map maps[NETS_STEP_USES];
    int n;
    int64_t bytes; /* of the scratch of all `maps` */
} widened_phase;

typedef struct widened_op {
    nets_op base, *of;
    nets_backend *backend;
    widened_phase phases[2];
} widened_op;

/* ---------------------------------------------------------------- a phase */

static bool is_there(const nets_op_args *args, nets_role role) {
    return args->at[role] && !(args->sign_roles & NETS_ROLE_BIT(role));
}

/* A map's scratch. If an output and another role's tensor have one address, they share scratch, so that the op sees
 * that it works in place. Two inputs at one address do not: the op may write an output over one of them. */
static void *scratch_of(const widened_phase *phase, const nets_op_args *args, int map) {
    const widened_map *m = &phase->maps[map];
    for (int i = 0; i < map; i++) {
        const widened_map *other = &phase->maps[i];
        if (!other->writes && !m->writes) continue;
        if (is_there(args, other->role) && args->at[other->role] == args->at[m->role] && other->elems == m->elems)
            return scratch_of(phase, args, i);
    }
    return (char *)args->at[NETS_WORKSPACE] + m->at;
}

/* Whether the step itself writes the tensor before it reads it. Where a layer reads one map twice, EARLIER of an input
 * is the gradient with respect to an input before it. There is nothing to widen yet; and the scratch that both share
 * may hold another map, in whose place the gradient is written. */
static bool is_written_first(const nets_op_args *args, nets_role role) {
    const int input = (int)role - (int)NETS_EARLIER;
    if (input < 0 || input >= NETS_MAX_INPUTS) return false;
    for (int i = 0; i < input; i++)
        if (args->at[NETS_DX + i] == args->at[role]) return true;
    return false;
}

static int64_t floats_bytes(int64_t elems) { return nets_aligned(elems * (int64_t)sizeof(float)); }

static mm_status widen(const widened_op *op, mm_phase p, const nets_op_args *args, mm_stream *stream) {
    const widened_phase *phase = &op->phases[p];
    nets_backend *backend = op->backend;
    for (int i = 0; i < phase->n; i++) {
        const widened_map *m = &phase->maps[i];
        if (!m->reads || !is_there(args, m->role) || is_written_first(args, m->role)) continue;
        void *from = args->at[m->role], *to = scratch_of(phase, args, i);
        if (m->f32) {
            void *rounded = (char *)to + floats_bytes(m->elems);
            MM_TRY(backend->ops->convert(backend, MM_F32, from, MM_BF16, rounded, m->elems, stream));
            from = rounded;
        }
        MM_TRY(backend->ops->convert(backend, MM_BF16, from, MM_F32, to, m->elems, stream));
    }
    return MM_OK;
}

static mm_status narrow(const widened_op *op, mm_phase p, const nets_op_args *args, mm_stream *stream) {
    const widened_phase *phase = &op->phases[p];
    for (int i = 0; i < phase->n; i++) {
        const widened_map *m = &phase->maps[i];
        if (m->writes && is_there(args, m->role))
            MM_TRY(op->backend->ops->convert(op->backend, MM_F32, scratch_of(phase, args, i), MM_BF16,
                                             args->at[m->role], m->elems, stream));
    }
    return MM_OK;
}

/* The f32 op reads the widened copy as its weight. */
static nets_role inner_role(nets_role role) { return role == NETS_W16 ? NETS_W : role; }

/* The f32 op's arguments: they have the scratch of each map in place of the map. */
static nets_op_args inner_args(const widened_op *op, mm_phase p, const nets_op_args *args) {
    const widened_phase *phase = &op->phases[p];
    nets_op_args inner = *args;
    char *workspace = args->at[NETS_WORKSPACE];
    for (int i = 0; i < phase->n; i++)
        if (is_there(args, phase->maps[i].role)) inner.at[inner_role(phase->maps[i].role)] = scratch_of(phase, args, i);
    inner.workspace_bytes = args->workspace_bytes - phase->bytes;
    inner.at[NETS_WORKSPACE] = inner.workspace_bytes > 0 ? workspace + phase->bytes : NULL;
    inner.exact_roles = 0; /* a role that the f32 op computed again would not be rounded to bf16 */
    return inner;
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const widened_op *op = (const widened_op *)base;
    const nets_op_args inner = inner_args(op, MM_FORWARD, args);
    MM_TRY(widen(op, MM_FORWARD, args, stream));
    MM_TRY(op->of->impl->forward(op->of, &inner, stream));
    return narrow(op, MM_FORWARD, args, stream);
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const widened_op *op = (const widened_op *)base;
    const nets_op_args inner = inner_args(op, MM_BACKWARD, args);
    MM_TRY(widen(op, MM_BACKWARD, args, stream));
    MM_TRY(op->of->impl->backward(op->of, &inner, stream));
    return narrow(op, MM_BACKWARD, args, stream);
}

/* ---------------------------------------------------------------- creation */

/* The number of elements of a role that is a bf16 map of the op; 0 for other roles. */
static int64_t map_elems(const nets_op_desc *desc, nets_role role) {
    static const nets_role firsts[] = {NETS_X, NETS_DX, NETS_EARLIER};
    if (role == NETS_Y || role == NETS_DY)
        return nets_op_info_of(desc->kind)->f32_output ? 0 : nets_shape_elems(&desc->y);
    if (role == NETS_W16) return desc->factor_elems;
    if ((role == NETS_DX && !desc->wants_dx) || (role == NETS_EARLIER && !desc->adds_earlier)) return 0;
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) {
        const int i = (int)role - (int)firsts[f];
        if (i >= 0 && i < desc->n_inputs) return desc->f32_inputs >> i & 1 ? 0 : nets_shape_elems(&desc->x[i]);
    }
    return 0;
}

/* The number of elements of a role that is the batch, if the weight multiplies the batch; else 0. */
static int64_t batch_elems(const nets_op_desc *desc, nets_role role) {
    const int i = (int)role - (int)NETS_X;
    const bool is_batch = i >= 0 && i < desc->n_inputs && desc->f32_inputs >> i & 1;
    return is_batch && desc->factor_elems > 0 ? nets_shape_elems(&desc->x[i]) : 0;
}

static int64_t take(widened_phase *phase, int64_t bytes) {
    const int64_t at = phase->bytes;
    phase->bytes += bytes;
    return at;
}

/* The offset of an output's scratch: the offset of an input's scratch, if the op may write the output in that input's
 * place; else new bytes are added. */
static int64_t place_of(widened_phase *phase, const nets_op_desc *desc, const nets_step_spec *spec, nets_role output,
                        int64_t elems) {
    for (int p = 0; p < NETS_STEP_PAIRS && spec->pairs[p].input != NETS_WORKSPACE; p++) {
        const nets_role_pair *pair = &spec->pairs[p];
        if (pair->output != output) continue;
        const nets_role earlier = (nets_role)(NETS_EARLIER + (output - NETS_DX));
        const bool adds = pair->pairing != NETS_OVER && map_elems(desc, earlier) > 0;
        for (widened_map *m = phase->maps; m < phase->maps + phase->n; m++) {
            if (m->role != (adds ? earlier : pair->input) || m->elems != elems || m->taken) continue;
            m->taken = true;
            return m->at;
        }
    }
    return take(phase, floats_bytes(elems));
}

static widened_phase phase_of(const nets_op_desc *desc, const nets_step_spec *spec) {
    widened_phase phase = {.n = 0};
    for (int u = 0; u < NETS_STEP_USES && spec->uses[u].role != NETS_WORKSPACE; u++) {
        const nets_role_use *use = &spec->uses[u];
        const nets_role role = use->role == NETS_W ? NETS_W16 : use->role;
        if (desc->frozen && use->only_for == NETS_DW) continue;
        const int64_t batch = batch_elems(desc, role), elems = batch > 0 ? batch : map_elems(desc, role);
        if (elems == 0) continue;
        widened_map m = {.role = role, .elems = elems, .f32 = batch > 0};
        m.reads = use->access != MM_WRITE;
        m.writes = use->access != MM_READ;
        m.at = m.reads ? take(&phase, floats_bytes(elems) + nets_aligned(batch * (int64_t)sizeof(uint16_t)))
                       : place_of(&phase, desc, spec, role, elems);
        phase.maps[phase.n++] = m;
    }
    return phase;
}

static void destroy(nets_op *base) {
    nets_op_destroy(((widened_op *)base)->of);
    free(base);
}

static void take_phase(widened_op *op, mm_phase p, const nets_op_desc *desc, const nets_step_spec *spec) {
    op->phases[p] = phase_of(desc, spec);
    op->base.workspaces[p] = nets_op_workspaces(op->of, p);
    for (int i = 0; i < op->base.workspaces[p].n; i++) op->base.workspaces[p].bytes[i] += op->phases[p].bytes;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const nets_op_lowering *steps = nets_op_lowering_of(desc->kind, desc->relu);
    nets_op_desc wide = *desc;
    wide.maps = MM_F32;
    widened_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s of bf16 maps", nets_op_name(desc->kind));
    const mm_status status = nets_op_create(backend, &wide, &op->of);
    if (status != MM_OK) {
        free(op);
        return status;
    }
    op->base.impl = &nets_op_through_f32;
    op->base.adds = op->of->adds;
    op->backend = backend;
    take_phase(op, MM_FORWARD, desc, desc->training ? &steps->forward : &steps->eval);
    if (desc->training) take_phase(op, MM_BACKWARD, desc, &steps->backward);
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_op_through_f32 = {NETS_DTYPE_BIT(MM_BF16), create, destroy, NULL, forward, backward};
