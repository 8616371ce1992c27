/* SPDX-License-Identifier: MIT */
#include "nets/exec/exec_undo.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/plan/plan.h"
#include "nets/rng.h"

/* A mark: NETS_RNG's count of updates and halted word as they were before the iteration's first update. */
enum { MARK_HALTED = NETS_RNG_HALTED - NETS_RNG_ITERATION, MARK_WORDS };

/* A copy's count of updates, two words of NETS_RNG; NEVER until the copy is made. */
static const uint32_t NEVER[2] = {UINT32_MAX, UINT32_MAX};

struct nets_undo_run {
    const char *name; /* of its first tensor */
    uint8_t *place;   /* at first; homes of persistent tensors may move, but those of a run stay together */
    int64_t offset, bytes;
};

static int by_place(const void *a, const void *b) {
    const nets_undo_run *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* Where a tensor is. MM_ERR_IO: its value was lost. */
static mm_status find_place(const nets_undo *undo, const char *name, uint8_t **place_out) {
    uint8_t *place = mm_persistent_data(undo->manager, name, NULL);
    if (!place) return mm_fail(MM_ERR_IO, "persistent tensor %s has no value: load the last save", name);
    *place_out = place;
    return MM_OK;
}

static void add(nets_undo *undo, const nets_lowered *lowered, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(lowered->graph, tensor);
    undo->runs[undo->n_runs++] = (nets_undo_run){.name = info->name, .bytes = mm_align(info->bytes)};
}

/* Joins runs that lie next to each other in device memory. Persistent tensors take whole units of alignment, so there
 * is no gap between neighbours. */
static void join_neighbours(nets_undo *undo) {
    int n = 0;
    qsort(undo->runs, (size_t)undo->n_runs, sizeof *undo->runs, by_place);
    for (int i = 0; i < undo->n_runs; i++) {
        nets_undo_run *last = n > 0 ? &undo->runs[n - 1] : NULL;
        if (last && last->place + last->bytes == undo->runs[i].place)
            last->bytes += undo->runs[i].bytes;
        else
            undo->runs[n++] = undo->runs[i];
    }
    undo->n_runs = n;
}

/* Moves the run with the count of updates to the end. Runs are copied in order, so when the copy of the count has
 * arrived, all runs have arrived. */
static void put_last(nets_undo *undo, const uint8_t *place) {
    nets_undo_run *run = undo->runs, *last = &undo->runs[undo->n_runs - 1];
    while (place < run->place || place >= run->place + run->bytes) run++;
    nets_undo_run moved = *run;
    *run = *last;
    *last = moved;
}

static void lay_out(nets_undo *undo) {
    for (int i = 0; i < undo->n_runs; i++) {
        undo->runs[i].offset = undo->bytes;
        undo->bytes += undo->runs[i].bytes;
    }
}

mm_status nets_undo_init(nets_undo *undo, mm_manager *manager, const nets_lowered *lowered) {
    const nets_net *net = lowered->net;
    void *memory;
    undo->manager = manager;
    undo->device = mm_compute_stream(manager)->device;
    undo->runs = calloc((size_t)nets_net_params(net) + 1, sizeof *undo->runs);
    if (!undo->runs) return mm_fail(MM_ERR_NOMEM, "net %s: no memory to save its statistics", nets_net_name(net));
    for (int i = 0; i < nets_net_params(net); i++)
        if (!nets_net_param(net, i)->learned) add(undo, lowered, lowered->params[i].value);
    add(undo, lowered, lowered->rng);
    for (int i = 0; i < undo->n_runs; i++) MM_TRY(find_place(undo, undo->runs[i].name, &undo->runs[i].place));
    join_neighbours(undo);
    undo->rng = mm_graph_tensor(lowered->graph, lowered->rng)->name;
    uint8_t *rng;
    MM_TRY(find_place(undo, undo->rng, &rng));
    put_last(undo, rng);
    lay_out(undo);
    const nets_undo_run *last = &undo->runs[undo->n_runs - 1];
    undo->rng_offset = last->offset + (rng - last->place);
    undo->mark_bytes = MARK_WORDS * (int64_t)sizeof(uint32_t);
    MM_TRY(mm_device_reserve(undo->device, MM_MEMORY_PINNED, NETS_AHEAD * undo->bytes + undo->mark_bytes, &memory));
    undo->memory = memory;
    nets_undo_unmark(undo);
    undo->on_host = lowered->on_host;
    memcpy(undo->host_began, NEVER, sizeof undo->host_began);
    memcpy(undo->host_ended, NEVER, sizeof undo->host_ended);
    return MM_OK;
}

void nets_undo_fini(nets_undo *undo) {
    if (undo->memory)
        mm_device_release(undo->device, MM_MEMORY_PINNED, undo->memory, NETS_AHEAD * undo->bytes + undo->mark_bytes);
    free(undo->runs);
    memset(undo, 0, sizeof *undo);
}

static uint8_t *copy_of(const nets_undo *undo, int slot) { return undo->memory + slot * undo->bytes; }

static uint32_t *mark_of(const nets_undo *undo) { return (uint32_t *)copy_of(undo, NETS_AHEAD); }

void nets_undo_unmark(nets_undo *undo) {
    if (undo->mark_bytes > 0) memcpy(mark_of(undo), NEVER, sizeof NEVER);
}

mm_status nets_undo_mark(nets_undo *undo, mm_stream *stream) {
    uint8_t *rng;
    MM_TRY(find_place(undo, undo->rng, &rng));
    return mm_copy_async(stream, mark_of(undo), (const uint32_t *)rng + NETS_RNG_ITERATION, undo->mark_bytes,
                         MM_COPY_OUT);
}

static uint32_t *count_in(const nets_undo *undo, int slot) {
    return (uint32_t *)(copy_of(undo, slot) + undo->rng_offset) + 2;
}

void nets_undo_host_begins(nets_undo *undo, int slot) {
    memcpy(undo->host_began, count_in(undo, slot), sizeof undo->host_began);
}

void nets_undo_host_ended(nets_undo *undo, int slot) {
    memcpy(undo->host_ended, count_in(undo, slot), sizeof undo->host_ended);
}

mm_status nets_undo_save(nets_undo *undo, int slot, mm_stream *stream) {
    if (undo->n_runs > 0) memcpy(count_in(undo, slot), NEVER, sizeof NEVER);
    for (int i = 0; i < undo->n_runs; i++) {
        const nets_undo_run *run = &undo->runs[i];
        uint8_t *place;
        MM_TRY(find_place(undo, run->name, &place));
        MM_TRY(mm_copy_async(stream, copy_of(undo, slot) + run->offset, place, run->bytes, MM_COPY_OUT));
    }
    return MM_OK;
}

static mm_status put_back(nets_undo *undo, int slot, mm_stream *stream) {
    for (int i = 0; i < undo->n_runs; i++) {
        const nets_undo_run *run = &undo->runs[i];
        uint8_t *place;
        MM_TRY(find_place(undo, run->name, &place));
        MM_TRY(mm_copy_async(stream, place, copy_of(undo, slot) + run->offset, run->bytes, MM_COPY_IN));
    }
    return mm_stream_sync(stream);
}

static mm_status tear(nets_undo *undo) {
    const uint32_t torn = NETS_TORN;
    return mm_persistent_set(undo->manager, undo->rng, NETS_RNG_HALTED * sizeof torn, &torn, sizeof torn);
}

/* Whether the host has updated weights of the slot's iteration, and the iteration is not whole. counted: the device has
 * counted it, which it does without waiting for the host. */
static bool is_torn_on_host(const nets_undo *undo, int slot, bool counted) {
    const bool began = memcmp(undo->host_began, count_in(undo, slot), sizeof undo->host_began) == 0;
    const bool ended = memcmp(undo->host_ended, count_in(undo, slot), sizeof undo->host_ended) == 0;
    return undo->on_host && (began || counted) && !(ended && counted);
}

mm_status nets_undo_apply(nets_undo *undo, int slot, mm_stream *stream, bool *undone_out) {
    uint32_t now[NETS_RNG_WORDS];
    *undone_out = true;
    if (undo->n_runs == 0 || memcmp(count_in(undo, slot), NEVER, sizeof NEVER) == 0)
        return MM_OK; /* the iteration did not begin */
    MM_TRY(mm_persistent_get(undo->manager, undo->rng, 0, now, sizeof now));
    const bool counted = memcmp(now + 2, count_in(undo, slot), sizeof NEVER) != 0;
    const bool begun = undo->mark_bytes > 0 && memcmp(mark_of(undo), count_in(undo, slot), sizeof NEVER) == 0 &&
                       mark_of(undo)[MARK_HALTED] == 0;
    const bool torn = now[NETS_RNG_HALTED] == NETS_TORN;
    const bool torn_on_host = is_torn_on_host(undo, slot, counted);
    *undone_out = !counted && !begun && !torn && !torn_on_host;
    if ((begun && !counted) || torn_on_host) return tear(undo);
    mm_status status = *undone_out ? put_back(undo, slot, stream) : MM_OK;
    if (status != MM_OK) mm_stream_reset(stream);
    return status;
}
