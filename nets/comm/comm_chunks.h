/* SPDX-License-Identifier: MIT */
/* All-reduces under way: each is cut into chunks. Each rank adds up one part of a chunk (with at_root, rank 0 adds up
 * all of it): it gets this part from all ranks, and sends the sums to all. Several chunks are under way at a time. Only
 * comm.c's thread uses this.
 *
 *   chunk 0   to the ranks that add it up | added up | to all
 *   chunk 1                         to the ranks that add it up | added up | to all
 */
#ifndef NETS_COMM_COMM_CHUNKS_H
#define NETS_COMM_COMM_CHUNKS_H

#include "nets/comm/comm_backend.h"

/* A tensor to all-reduce, or to exchange in equal parts (COMM_OWN, COMM_BYTES). */
typedef struct comm_job {
    comm_op kind;
    int32_t *data;
    int64_t elems;
    int64_t done_ns; /* the time when the all-reduce was done (mm_now_ns) */
} comm_job;

/* A chunk of a job under way. */
typedef struct comm_chunk {
    comm_op kind;
    int32_t *data;
    int elems;
    bool last;            /* the last of its job */
    int *counts, *places; /* per rank: elements and first index of the part that it adds up */
    int *sent_counts, *received_counts, *received_places;
    int32_t *received;
} comm_chunk;

typedef struct comm_chunks {
    const comm_backend *backend;
    comm_link *link;
    bool at_root;
    comm_chunk chunks[COMM_TRANSFERS];
    int64_t at;                   /* first element, in the job that is being cut, of the next chunk */
    int64_t cut, added, finished; /* numbers of chunks: begun; added up, and sent to all; done */
} comm_chunks;

/* MM_ERR_NOMEM. Fini also after a failure; legal on a zeroed one. */
MM_CHECKED mm_status comm_chunks_init(comm_chunks *sums, const comm_backend *backend, comm_link *link, bool at_root);
void comm_chunks_fini(comm_chunks *sums);

/* Whether another chunk can begin; whether none is under way. */
bool comm_chunks_have_room(const comm_chunks *sums);
bool comm_chunks_are_done(const comm_chunks *sums);
/* Begins the next chunk of a job. *last_out: it is the job's last; the next call is for the next job. */
MM_CHECKED mm_status comm_chunks_begin(comm_chunks *sums, const comm_job *job, bool *last_out);
/* Adds up the next chunk if it has arrived, and finishes the oldest if it has been sent to all. *moved_out: set to true
 * if it did either. *done_out: set to true if a job is done. */
MM_CHECKED mm_status comm_chunks_go_on(comm_chunks *sums, bool *moved_out, bool *done_out);

#endif
