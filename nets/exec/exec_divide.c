/* SPDX-License-Identifier: MIT */
#include "nets/exec/exec_divide.h"

#include <stdlib.h>
#include <string.h>

#include "nets/exec/exec_internal.h"

enum { SLOTS = NETS_PIECES_UNDER_WAY };

/* A piece of a tensor. Immutable once made, because iterations that are ahead use it, too; but places are those of the
 * plan. */
struct nets_piece_exchange {
    nets_divider *divider;
    int param;     /* index in exec->params */
    bool gathers;  /* the weight; else the gradient */
    int64_t first; /* of the piece, in each rank's part */
    int64_t n;     /* elements of each rank's part */
    float *slot;
    mm_call begin;
    nets_update_param parts; /* of a piece of parts: what is checked */
    int first_full;          /* the first rank that has a part: all, or the last, which has the rest */
    int step;                /* index in lowered->steps of the step that exchanges it */
};

static const nets_allreduce *ranks_of(const nets_divider *d) { return &d->exec->lowered->allreduce; }

static const nets_param_tensors *tensors_of(const nets_divider *d, int param) {
    return &d->exec->lowered->params[d->exec->number[param]];
}

static nets_share share_of(const nets_divider *d, int param, int rank) {
    return nets_share_of(d->exec->params[param].elems, ranks_of(d)->n, rank,
                         nets_param_share_unit(tensors_of(d, param)));
}

static int64_t room_of(const nets_divider *d, int param) {
    return nets_share_room(d->exec->params[param].elems, ranks_of(d)->n, nets_param_share_unit(tensors_of(d, param)));
}

/* The elements of rank r's part that are in the piece, in the tensor. */
static nets_share part_of(const nets_piece_exchange *p, int r) {
    const nets_share share = share_of(p->divider, p->param, r);
    const int64_t left = share.n - p->first;
    return (nets_share){share.first + p->first, left < 0 ? 0 : left < p->n ? left : p->n};
}

/* ---------------------------------------------------------------- making */

static mm_status begin_piece(void *arg) {
    const nets_piece_exchange *p = arg;
    const nets_allreduce *ranks = ranks_of(p->divider);
    ranks->exchange->begin(ranks->ctx, p->gathers, p->slot, p->n * ranks->n);
    return MM_OK;
}

static mm_status wait_for_oldest(void *arg) {
    const nets_divider *d = arg;
    const nets_allreduce *ranks = ranks_of(d);
    return ranks->exchange->wait(ranks->ctx);
}

/* Adds a tensor's pieces, each of at most `most` elements of each rank's part. pieces NULL: only counts them. */
static void add_pieces(nets_divider *d, int step, int param, bool gathers, int64_t most, nets_piece_exchange *pieces) {
    const nets_allreduce *ranks = ranks_of(d);
    const int64_t room = room_of(d, param);
    const bool parts = !gathers && d->exec->lowered->steps[step].n_sources > 0; /* all pieces have room for parts */
    const int64_t slot = (parts || room > most ? most : room) * ranks->n;
    if (slot > d->slot_elems) d->slot_elems = slot;
    for (int64_t first = 0; first < room; first += most, d->n++) {
        if (!pieces) continue;
        nets_piece_exchange *p = &pieces[d->n];
        *p = (nets_piece_exchange){.divider = d,
                                   .param = param,
                                   .gathers = gathers,
                                   .first = first,
                                   .n = parts || room - first > most ? most : room - first,
                                   .slot = d->memory + d->n % SLOTS * d->slot_elems,
                                   .step = step};
        p->begin = (mm_call){begin_piece, p};
        for (int r = 0; r < ranks->n; r++) p->parts.elems += part_of(p, r).n;
        while (p->first_full < ranks->n - 1 && part_of(p, p->first_full).n == 0) p->first_full++;
    }
}

/* The index in exec->params of the parameter whose gradient the step computes in parts. */
static int param_in_parts(const nets_divider *d, const nets_step *step) {
    int i = 0;
    while (d->exec->number[i] != step->parts_of) i++;
    return i;
}

static void list_pieces(nets_divider *d, nets_piece_exchange *pieces) {
    const nets_lowered *lowered = d->exec->lowered;
    const int64_t most = ranks_of(d)->exchange->most_elems / ranks_of(d)->n;
    d->n = 0;
    for (int s = 0; s < lowered->n_steps; s++) {
        const nets_step *step = &lowered->steps[s];
        if (step->exchanges == NETS_EXCHANGES_NOT) continue;
        for (int i = 0; step->exchanges == NETS_GATHERS && i < d->exec->n_params; i++)
            add_pieces(d, s, i, true, most, pieces);
        for (int i = 0; step->exchanges != NETS_GATHERS && i < NETS_MAX_PARAMS; i++)
            if (step->tensors[NETS_DPARAM + i] >= 0)
                add_pieces(d, s, d->exec->param_of[step->tensors[NETS_DPARAM + i]], false, most, pieces);
        if (step->n_sources > 0)
            add_pieces(d, s, param_in_parts(d, step), false, nets_part_elems(&lowered->params[step->parts_of]), pieces);
    }
}

static mm_status make_pieces(nets_divider *d) {
    void *memory;
    list_pieces(d, NULL);
    const int64_t bytes = SLOTS * d->slot_elems * (int64_t)sizeof *d->memory;
    d->pieces = calloc((size_t)d->n + 1, sizeof *d->pieces);
    if (!d->pieces) return mm_fail(MM_ERR_NOMEM, "out of memory for what ranks divide");
    d->device = mm_compute_stream(d->exec->manager)->device;
    if (bytes > 0) MM_TRY(mm_device_reserve(d->device, MM_MEMORY_PINNED, bytes, &memory));
    if (bytes > 0) d->memory = memory;
    d->bytes = bytes;
    list_pieces(d, d->pieces);
    return MM_OK;
}

static void list_own(nets_divider *d) {
    const nets_exec *exec = d->exec;
    float *shares = nets_exec_place(exec, exec->lowered->shares);
    int n = 0;
    for (int i = 0; i < nets_net_params(exec->net); i++) {
        if (!nets_param_trains(nets_net_param(exec->net, i))) continue;
        const nets_param_tensors *tensors = &exec->lowered->params[i];
        const nets_share share = share_of(d, n, ranks_of(d)->rank);
        if (exec->lowered->sums_own)
            d->divided[n] = (nets_divided){tensors->gradient, shares ? shares + tensors->share_at
                                                                     : (float *)exec->params[n].gradient + share.first};
        nets_update_param *own = &d->own[n];
        *own = exec->params[n]; /* its states are the share alone */
        own->weight += share.first;
        own->elems = share.n;
        own->copy = NULL; /* made once the whole weight is there */
        own->gradient = d->divided[n].share ? d->divided[n].share : own->gradient + share.first;
        n++;
    }
}

mm_status nets_divider_init(nets_divider *d, nets_exec *exec) {
    const nets_allreduce *ranks = &exec->lowered->allreduce;
    if (ranks->n < 2 || ranks->divide == NETS_DIVIDE_NONE) return MM_OK;
    d->exec = exec;
    d->wait = (mm_call){wait_for_oldest, d};
    d->own = calloc((size_t)exec->n_params + 1, sizeof *d->own);
    d->divided = calloc((size_t)exec->n_params + 1, sizeof *d->divided);
    d->list = calloc((size_t)exec->n_params + 1, sizeof *d->list);
    if (!d->own || !d->divided || !d->list) return mm_fail(MM_ERR_NOMEM, "out of memory for what ranks divide");
    list_own(d);
    return mm_allreduce_copies(ranks->when) ? make_pieces(d) : MM_OK;
}

void nets_divider_fini(nets_divider *d) {
    if (d->memory) mm_device_release(d->device, MM_MEMORY_PINNED, d->memory, d->bytes);
    free(d->pieces);
    free(d->own);
    free(d->divided);
    free(d->list);
    *d = (nets_divider){0};
}

void nets_divider_begin(nets_divider *d) { d->begun = d->ended = 0; }

/* ---------------------------------------------------------------- through host memory */

/* The tensor that the step exchanges: the gradient where the plan has put it, or the weight. */
static float *whole_of(const nets_divider *d, const nets_piece_exchange *p) {
    return p->gathers ? d->exec->params[p->param].weight
                      : mm_tensor_data(d->exec->manager, d->divided[p->param].gradient);
}

static mm_status copy_part(const nets_piece_exchange *p, int r, float *there, mm_copy_kind kind, mm_stream *stream) {
    const int64_t bytes = part_of(p, r).n * (int64_t)sizeof(float);
    float *slot = p->slot + r * p->n;
    if (bytes == 0) return MM_OK;
    return kind == MM_COPY_OUT ? mm_copy_async(stream, slot, there, bytes, kind)
                               : mm_copy_async(stream, there, slot, bytes, kind);
}

/* Computes the parts of a piece, one for each rank, in the step's workspace, checks them, and copies them to the
 * slot. */
static mm_status copy_parts(const nets_divider *d, nets_piece_exchange *p, const nets_step *step, mm_stream *stream) {
    const nets_exec *exec = d->exec;
    const nets_param_tensors *tensors = tensors_of(d, p->param);
    const int64_t ranks = ranks_of(d)->n, elems = nets_part_elems(tensors);
    char *workspace = mm_workspace_data(exec->manager);
    nets_part_args args = {.dw = (float *)(void *)workspace,
                           .workspace = workspace + step->op_workspace_at,
                           .first = p->first / elems,
                           .step = share_of(d, p->param, 0).n / elems,
                           .n = (int)ranks};
    for (int i = 0; i < step->n_sources; i++) {
        const nets_part_source *source = &step->sources[i];
        args.x = mm_tensor_data(exec->manager, source->x);
        args.dy = mm_tensor_data(exec->manager, source->dy);
        MM_TRY(nets_op_enqueue_parts(exec->backend, source->op, source->kind, &args, stream));
    }
    nets_exec_set_place(&p->parts.gradient, args.dw + p->first_full * elems);
    MM_TRY(nets_exec_check_parts(exec, &p->parts, stream));
    return mm_copy_async(stream, p->slot, args.dw, ranks * elems * (int64_t)sizeof *args.dw, MM_COPY_OUT);
}

static mm_status begin(nets_divider *d, nets_piece_exchange *p, mm_stream *stream) {
    const nets_step *step = &d->exec->lowered->steps[p->step];
    if (step->n_sources > 0) {
        MM_TRY(copy_parts(d, p, step, stream));
        d->begun++;
        return mm_call_async(stream, &p->begin);
    }
    float *whole = whole_of(d, p);
    for (int r = 0; r < ranks_of(d)->n; r++)
        if (!p->gathers || r == ranks_of(d)->rank)
            MM_TRY(copy_part(p, r, whole + part_of(p, r).first, MM_COPY_OUT, stream));
    d->begun++;
    return mm_call_async(stream, &p->begin);
}

/* Waits for the oldest piece, and copies its result back: the share of a sum, or the other ranks' weights. */
static mm_status end(nets_divider *d, mm_stream *stream) {
    const nets_piece_exchange *p = &d->pieces[d->ended++];
    const int rank = ranks_of(d)->rank;
    MM_TRY(mm_call_blocking(stream, &d->wait, NULL));
    if (!p->gathers) return copy_part(p, rank, d->divided[p->param].share + p->first, MM_COPY_IN, stream);
    float *weight = d->exec->params[p->param].weight;
    for (int r = 0; r < ranks_of(d)->n; r++)
        if (r != rank) MM_TRY(copy_part(p, r, weight + part_of(p, r).first, MM_COPY_IN, stream));
    return MM_OK;
}

static mm_status run_pieces(nets_divider *d, const nets_step *step, mm_stream *stream) {
    const int index = (int)(step - d->exec->lowered->steps);
    while (d->begun < d->n && d->pieces[d->begun].step == index) {
        if (d->begun - d->ended == SLOTS) MM_TRY(end(d, stream));
        MM_TRY(begin(d, &d->pieces[d->begun], stream));
    }
    while (step->exchanges != NETS_SUMS_OWN && d->ended < d->begun) MM_TRY(end(d, stream));
    return MM_OK;
}

/* ---------------------------------------------------------------- in place */

static mm_status sum_in_place(nets_divider *d, const nets_step *step, mm_stream *stream) {
    const nets_exec *exec = d->exec;
    const nets_allreduce *ranks = ranks_of(d);
    int n = 0;
    for (int i = 0; i < NETS_MAX_PARAMS; i++) {
        const mm_tensor gradient = step->tensors[NETS_DPARAM + i];
        if (gradient < 0) continue;
        d->list[n++] = (nets_exchanged){NETS_SCATTERED, mm_tensor_data(exec->manager, gradient),
                                        exec->params[exec->param_of[gradient]].elems};
    }
    MM_TRY(ranks->exchange->enqueue(ranks->ctx, d->list, n, stream));
    for (int i = 0; i < NETS_MAX_PARAMS; i++) {
        const mm_tensor gradient = step->tensors[NETS_DPARAM + i];
        if (gradient < 0) continue;
        const int param = exec->param_of[gradient];
        const nets_share own = share_of(d, param, ranks->rank);
        const float *sum = (float *)mm_tensor_data(exec->manager, gradient) + own.first;
        if (own.n > 0)
            MM_TRY(mm_copy_async(stream, d->divided[param].share, sum, own.n * (int64_t)sizeof *sum, MM_COPY_DEVICE));
    }
    return MM_OK;
}

mm_status nets_divider_agree(const nets_divider *d, int32_t *halted, mm_stream *stream) {
    const nets_allreduce *ranks = ranks_of(d);
    if (!nets_divider_sums(d) || d->memory) return MM_OK;
    const nets_exchanged word = {NETS_COUNTED, halted, 1};
    return ranks->exchange->enqueue(ranks->ctx, &word, 1, stream);
}

static mm_status gather_in_place(nets_divider *d, mm_stream *stream) {
    const nets_exec *exec = d->exec;
    const nets_allreduce *ranks = ranks_of(d);
    for (int i = 0; i < exec->n_params; i++)
        d->list[i] = (nets_exchanged){NETS_GATHERED, exec->params[i].weight, exec->params[i].elems};
    return ranks->exchange->enqueue(ranks->ctx, d->list, exec->n_params, stream);
}

/* ---------------------------------------------------------------- steps */

static mm_status convert_weights(const nets_exec *exec, mm_stream *stream) {
    for (int i = 0; i < exec->n_params; i++) {
        const nets_update_param *p = &exec->params[i];
        if (!p->copy) continue;
        MM_TRY(exec->backend->ops->convert(exec->backend, MM_F32, p->weight, MM_BF16, p->copy, p->elems, stream));
    }
    return MM_OK;
}

/* Makes the bf16 copies of the weights. */
static mm_status copy_weights(const nets_exec *exec, mm_stream *stream) {
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    const mm_status status = convert_weights(exec, stream);
    mm_device_leave(stream->device, entered);
    return status;
}

mm_status nets_divider_run(nets_divider *d, const nets_step *step, mm_stream *stream) {
    const bool gathers = step->exchanges == NETS_GATHERS;
    if (d->memory)
        MM_TRY(run_pieces(d, step, stream));
    else
        MM_TRY(gathers ? gather_in_place(d, stream) : sum_in_place(d, step, stream));
    return gathers ? copy_weights(d->exec, stream) : MM_OK;
}

/* ---------------------------------------------------------------- getting and setting */

/* The part of the elements that rank r has. */
static nets_share overlap(const nets_exec *exec, const nets_some *some, int rank) {
    const nets_share share = nets_share_of(some->elems, exec->lowered->allreduce.n, rank, some->unit);
    const int64_t first = some->first, n = some->n;
    const int64_t from = first > share.first ? first : share.first;
    const int64_t to = first + n < share.first + share.n ? first + n : share.first + share.n;
    return (nets_share){from, to > from ? to - from : 0};
}

static mm_status get(nets_exec *exec, const char *name, const nets_some *some, int64_t room, float *mine, float *all,
                     float *out) {
    const nets_allreduce *ranks = &exec->lowered->allreduce;
    const int64_t size = sizeof *out, at = nets_share_of(some->elems, ranks->n, ranks->rank, some->unit).first;
    const nets_share own = overlap(exec, some, ranks->rank);
    if (own.n > 0) MM_TRY(mm_persistent_get(exec->manager, name, (own.first - at) * size, mine, own.n * size));
    MM_TRY(ranks->exchange->collect(ranks->ctx, mine, room * size, all));
    for (int r = 0; r < ranks->n; r++) {
        const nets_share part = overlap(exec, some, r);
        memcpy(out + (part.n > 0 ? part.first - some->first : 0), all + r * room, (size_t)(part.n * size));
    }
    return MM_OK;
}

mm_status nets_divided_get(nets_exec *exec, const char *name, const nets_some *some, float *out) {
    const int ranks = exec->lowered->allreduce.n;
    int64_t room = nets_share_room(some->elems, ranks, some->unit);
    if (room > some->n) room = some->n;
    float *mine = calloc((size_t)(room * (ranks + 1)), sizeof *mine);
    if (!mine) return mm_fail(MM_ERR_NOMEM, "no memory to collect %s from the ranks", name);
    const mm_status status = get(exec, name, some, room, mine, mine + room, out);
    free(mine);
    return status;
}

mm_status nets_divided_set(nets_exec *exec, const char *name, const nets_some *some, const float *in) {
    const nets_allreduce *ranks = &exec->lowered->allreduce;
    const int64_t size = sizeof *in, at = nets_share_of(some->elems, ranks->n, ranks->rank, some->unit).first;
    const nets_share own = overlap(exec, some, ranks->rank);
    if (own.n == 0) return MM_OK;
    return mm_persistent_set(exec->manager, name, (own.first - at) * size, in + (own.first - some->first),
                             own.n * size);
}
