/* SPDX-License-Identifier: MIT */
/* Cuts all-reduces into chunks, divides these among ranks, and adds them up. */
#include "nets/comm/comm_chunks.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Elements are moved in chunks, so that one is added up while others travel, and what is received takes little
     * memory. Chosen: 4 MiB. */
    CHUNK_ELEMS = 1 << 20,
};

static void split(const comm_chunks *s, int elems, int *counts, int *places) {
    const int ranks = s->link->ranks;
    for (int r = 0; r < ranks; r++) {
        places[r] = (int)((int64_t)elems * r / ranks);
        counts[r] = (int)((int64_t)elems * (r + 1) / ranks) - places[r];
    }
}

static int chunk_elems(const comm_chunks *s) {
    const int ranks = s->link->ranks;
    return CHUNK_ELEMS / ranks * ranks;
}

/* Whether the job is one chunk, because it has a part for each rank. */
static bool is_divided(comm_op kind) { return kind == COMM_OWN || kind == COMM_BYTES; }

mm_status comm_chunks_begin(comm_chunks *s, const comm_job *j, bool *last_out) {
    const int slot = (int)(s->cut % COMM_TRANSFERS), ranks = s->link->ranks;
    comm_chunk *c = &s->chunks[slot];
    const int64_t rest = j->elems - s->at;
    *c = (comm_chunk){.kind = j->kind,
                      .data = j->data + s->at,
                      .elems = (int)(rest < chunk_elems(s) || is_divided(j->kind) ? rest : chunk_elems(s)),
                      .counts = c->counts,
                      .places = c->places,
                      .sent_counts = c->sent_counts,
                      .received_counts = c->received_counts,
                      .received_places = c->received_places,
                      .received = c->received};
    c->last = c->elems == rest;
    split(s, c->elems, c->counts, c->places);
    const int rank = s->link->rank, own = c->counts[rank];
    for (int r = 0; r < ranks; r++) {
        c->sent_counts[r] = r == rank ? 0 : c->counts[r];
        c->received_counts[r] = r == rank ? 0 : own;
        c->received_places[r] = (r - (r > rank)) * own;
    }
    s->cut++;
    s->at = c->last ? 0 : s->at + c->elems;
    *last_out = c->last;
    if (c->kind == COMM_BYTES) return MM_OK; /* it is sent to all when the chunks before it have been */
    if (s->at_root) return s->backend->collect(s->link, slot, c->data, c->elems, c->received);
    return s->backend->scatter(s->link, slot, c->data, c->sent_counts, c->places, c->received_counts,
                               c->received_places, c->received);
}

/* Where rank r's addend lies. This rank's own addend is still in c->data, unless rank 0 adds up all elements. */
static int32_t *part_of(const comm_chunks *s, const comm_chunk *c, int r) {
    if (s->at_root) return c->received + (int64_t)r * c->elems;
    return r == s->link->rank ? c->data + c->places[r] : c->received + c->received_places[r];
}

static void add_floats(const comm_chunks *s, const comm_chunk *c, int elems, float *sum) {
    enum { SOME = 1024 }; /* elements: they stay in the fastest cache. Chosen */
    const int ranks = s->link->ranks;
    float some[SOME];
    for (int from = 0; from < elems; from += SOME) {
        const int n = elems - from < SOME ? elems - from : SOME;
        memcpy(some, (const float *)part_of(s, c, 0) + from, (size_t)n * sizeof *some);
        for (int r = 1; r < ranks; r++) {
            const float *addend = (const float *)part_of(s, c, r) + from;
            for (int i = 0; i < n; i++) some[i] += addend[i];
        }
        for (int i = 0; c->kind == COMM_MEAN && i < n; i++) some[i] /= (float)ranks;
        memcpy(sum + from, some, (size_t)n * sizeof *some);
    }
}

static void add_counts(const comm_chunks *s, const comm_chunk *c, int elems, int32_t *sum) {
    for (int i = 0; i < elems; i++) {
        int32_t all = 0;
        for (int r = 0; r < s->link->ranks && all >= 0; r++) {
            const int32_t one = part_of(s, c, r)[i];
            all = one < 0 ? one : all + one;
        }
        sum[i] = all;
    }
}

static mm_status add_up(comm_chunks *s, int slot) {
    const comm_chunk *c = &s->chunks[slot];
    const int rank = s->link->rank;
    const bool root = s->at_root;
    const int elems = root ? c->elems : c->counts[rank];
    int32_t *sum = root ? c->data : c->data + c->places[rank];
    if (root && rank > 0 && c->kind != COMM_BYTES) return s->backend->spread(s->link, slot, c->data, c->elems);
    if (c->kind == COMM_COUNT)
        add_counts(s, c, elems, sum);
    else if (c->kind != COMM_BYTES)
        add_floats(s, c, elems, (float *)sum);
    if (c->kind == COMM_OWN && !root) return MM_OK;
    return root && c->kind != COMM_BYTES ? s->backend->spread(s->link, slot, c->data, c->elems)
                                         : s->backend->share(s->link, slot, c->data, c->counts, c->places);
}

mm_status comm_chunks_init(comm_chunks *s, const comm_backend *backend, comm_link *link, bool at_root) {
    *s = (comm_chunks){.backend = backend, .link = link, .at_root = at_root};
    const size_t ranks = (size_t)s->link->ranks, parts = s->at_root ? (s->link->rank == 0 ? ranks : 0) : 1;
    const size_t received = s->backend->sum ? 1 : (size_t)chunk_elems(s) * parts + ranks;
    for (int i = 0; i < COMM_TRANSFERS; i++) {
        comm_chunk *c = &s->chunks[i];
        c->counts = calloc(ranks * 5, sizeof *c->counts);
        c->received = malloc(received * sizeof *c->received);
        if (!c->counts || !c->received) return mm_fail(MM_ERR_NOMEM, "out of memory to add up gradients");
        c->places = c->counts + ranks;
        c->sent_counts = c->places + ranks;
        c->received_counts = c->sent_counts + ranks;
        c->received_places = c->received_counts + ranks;
    }
    return MM_OK;
}

bool comm_chunks_have_room(const comm_chunks *s) { return s->cut - s->finished < COMM_TRANSFERS; }

bool comm_chunks_are_done(const comm_chunks *s) { return s->finished == s->cut; }

mm_status comm_chunks_go_on(comm_chunks *s, bool *moved_out, bool *done_out) {
    bool done = false;
    if (s->added < s->cut) {
        const int slot = (int)(s->added % COMM_TRANSFERS);
        if (s->chunks[slot].kind == COMM_BYTES)
            done = true;
        else
            MM_TRY(s->backend->test(s->link, slot, &done));
        if (done) {
            MM_TRY(add_up(s, slot));
            s->added++;
            *moved_out = true;
        }
    }
    if (s->finished == s->added) return MM_OK;
    const int slot = (int)(s->finished % COMM_TRANSFERS);
    MM_TRY(s->backend->test(s->link, slot, &done));
    if (!done) return MM_OK;
    *moved_out = true;
    *done_out = s->chunks[slot].last;
    s->finished++;
    return MM_OK;
}

void comm_chunks_fini(comm_chunks *s) {
    for (int i = 0; i < COMM_TRANSFERS; i++) {
        free(s->chunks[i].counts);
        free(s->chunks[i].received);
    }
}
