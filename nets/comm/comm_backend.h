/* SPDX-License-Identifier: MIT */
/* The contract of an engine: how it gets elements to other ranks. Called by comm.c's thread alone, which also opens
 * it. */
#ifndef NETS_COMM_COMM_BACKEND_H
#define NETS_COMM_COMM_BACKEND_H

#include <sys/types.h>

#include "nets/comm/comm.h"

typedef struct comm_link comm_link; /* an engine's own: its first member is a comm_link */

enum {
    COMM_TRANSFERS = 4,          /* under way at a time. Chosen: one is added up while others travel */
    COMM_VOTES = COMM_TRANSFERS, /* the slot of votes (comm_agree), whose order is their own */
    COMM_SLOTS = COMM_TRANSFERS + 1,
};

typedef struct comm_backend {
    const char *name;
    /* comm_probe; NULL: nothing can be said before. */
    mm_status (*probe)(const comm_config *config, int ranks);
    mm_status (*open)(const comm_config *config, comm_link **link_out);
    /* well: waits for all ranks to come here. Else this process leaves them, which its starter takes as a failure. */
    void (*close)(comm_link *link, bool well);
    /* Ends all ranks. */
    void (*abort)(comm_link *link, int status);
    /* Each begins a transfer in `slot`; the one that was begun in it before is done. All ranks begin the same
     * transfers. There are three orders, each of them the same on all ranks: of scatters and collects; of votes, which
     * are shares in COMM_VOTES; of other shares and spreads. An engine without `scatter` may refuse a transfer while
     * another is under way (MM_ERR_ORDER). counts, places: per rank, of elements; to be kept until it is done. scatter:
     * part p of `data` goes to rank p, which gets all of its parts one after the other. collect: all of `data` goes to
     * rank 0. share: part p of `data`, which rank p has, goes to all. spread: all of rank 0's `data` goes to all. */
    mm_status (*scatter)(comm_link *link, int slot, const int32_t *data, const int *counts, const int *places,
                         const int *received_counts, const int *received_places, int32_t *received);
    mm_status (*collect)(comm_link *link, int slot, const int32_t *data, int elems, int32_t *received);
    mm_status (*share)(comm_link *link, int slot, int32_t *data, const int *counts, const int *places);
    mm_status (*spread)(comm_link *link, int slot, int32_t *data, int elems);
    /* Whether the slot's transfer is done. Does not block. */
    mm_status (*test)(comm_link *link, int slot, bool *done_out);
    /* comm_allreduce_enqueue, by the thread that calls that. Not NULL: scatter, collect and spread are. */
    mm_status (*sum)(comm_link *link, const comm_tensor *tensors, int n, void *stream);
    /* Now and then, while nothing is under way: fails once a rank has ended or a sum cannot end, and then gives up the
     * sums that were enqueued. NULL: whoever started the ranks ends them. */
    mm_status (*look)(comm_link *link);
} comm_backend;

struct comm_link {
    int rank, ranks;
    int gpu;   /* this rank's; -1: sums are not on GPUs */
    bool lost; /* another rank has ended before its time */
};

extern const comm_backend comm_mpi, comm_local, comm_nccl;

/* The engine that knows how this process was started, for one that moves data of devices only: comm_local or
 * comm_mpi. */
const comm_backend *comm_host_backend(void);

/* Set in the environment of ranks that comm_local_start has started. */
#define COMM_LOCAL_VARIABLE "MM_RANKS"

/* comm_open with an engine that is in no table. config->engine is not read. */
MM_CHECKED mm_status comm_open_on(const comm_backend *engine, const comm_config *config, comm **comm_out);

#endif
