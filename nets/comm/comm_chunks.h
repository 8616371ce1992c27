/* SPDX-License-Identifier: MIT */
/* Sums under way: what was begun is cut into chunks, which travel, are added up, and travel back, several at a time.
 * Used by comm.c's thread alone.
 *
 *   chunk 0   to whom it belongs | added up | to all
 *   chunk 1              to whom it belongs | added up | to all
 */
#ifndef NETS_COMM_COMM_CHUNKS_H
#define NETS_COMM_COMM_CHUNKS_H

#include "nets/comm/comm_backend.h"

/* Something that was begun. COMM_BYTES: data has room for all ranks' elements, and this one's at its place. */
typedef struct comm_job {
    comm_op kind;
    int32_t *data;
    int64_t elems;
    int64_t done_ns; /* when it was done (clock.h) */
} comm_job;

/* A chunk of a job under way. */
typedef struct comm_chunk {
    comm_op kind;
    int32_t *data;
    int elems;
    bool last;            /* of its job */
    int *counts, *places; /* per rank: its part */
    int *sent_counts, *received_counts, *received_places;
    int32_t *received;
} comm_chunk;

typedef struct comm_chunks {
    const comm_backend *engine;
    comm_link *link;
    bool at_root;
    comm_chunk chunks[COMM_TRANSFERS];
    int64_t at;                   /* in the job that is cut: from that element on */
    int64_t cut, added, finished; /* chunks that were begun; that were added up and go to all; that are done */
} comm_chunks;

/* MM_ERR_NOMEM. Fini also after a failure; legal on a zeroed one. */
MM_CHECKED mm_status comm_chunks_init(comm_chunks *sums, const comm_backend *engine, comm_link *link, bool at_root);
void comm_chunks_fini(comm_chunks *sums);

/* Whether another chunk can begin; whether none is under way. */
bool comm_chunks_have_room(const comm_chunks *sums);
bool comm_chunks_are_done(const comm_chunks *sums);
/* Begins the next chunk of a job. *last_out: it is the job's last; the next call is for the next job. */
MM_CHECKED mm_status comm_chunks_begin(comm_chunks *sums, const comm_job *job, bool *last_out);
/* One step for each of: a chunk that is added up; one that is done. *moved_out: set to true if there was one.
 * *done_out: set to true if a job is done. */
MM_CHECKED mm_status comm_chunks_go_on(comm_chunks *sums, bool *moved_out, bool *done_out);

#endif
