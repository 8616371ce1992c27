/* SPDX-License-Identifier: MIT */
/* The interface of a communicator's backend, which moves elements between ranks. Only comm.c's thread opens and calls
 * it, `sum` excepted. */
#ifndef NETS_COMM_COMM_BACKEND_H
#define NETS_COMM_COMM_BACKEND_H

#include <sys/types.h>

#include "nets/comm/comm.h"

typedef struct comm_link comm_link; /* an open backend, whose struct has comm_link as its first member */

enum {
    COMM_TRANSFERS = 4,          /* the most transfers at a time. Chosen: one is added up while others travel */
    COMM_VOTES = COMM_TRANSFERS, /* the slot of votes (comm_agree), which have an order of their own */
    COMM_SLOTS = COMM_TRANSFERS + 1,
};

typedef struct comm_backend {
    const char *name;
    /* For comm_probe; NULL: nothing is known before the ranks are started. */
    mm_status (*probe)(const comm_config *config, int ranks);
    mm_status (*open)(const comm_config *config, comm_link **link_out);
    /* Disconnects. With `well` it waits until all ranks close. Otherwise this process leaves the other ranks at once,
     * which whoever started the ranks takes as a failure. */
    void (*close)(comm_link *link, bool well);
    /* Ends all ranks. */
    void (*abort)(comm_link *link, int status);
    /* Each begins a transfer in `slot`, whose earlier transfer is done. All ranks begin the same transfers. Three
     * sequences each have the same order on all ranks: scatters and collects; votes, which are shares in COMM_VOTES;
     * other shares and spreads. A backend without `scatter` may refuse a transfer while another is under way
     * (MM_ERR_ORDER). counts, places: for each rank, the number of elements of its part, and the index of the part's
     * first element; valid until the transfer is done. scatter: part p of `data` goes to rank p, which receives its
     * parts from all ranks one after the other. collect: all of `data` goes to rank 0. share: part p of `data`, which
     * rank p has, goes to all. spread: all of rank 0's `data` goes to all. */
    mm_status (*scatter)(comm_link *link, int slot, const int32_t *data, const int *counts, const int *places,
                         const int *received_counts, const int *received_places, int32_t *received);
    mm_status (*collect)(comm_link *link, int slot, const int32_t *data, int elems, int32_t *received);
    mm_status (*share)(comm_link *link, int slot, int32_t *data, const int *counts, const int *places);
    mm_status (*spread)(comm_link *link, int slot, int32_t *data, int elems);
    /* Whether the slot's transfer is done. Does not block. */
    mm_status (*test)(comm_link *link, int slot, bool *done_out);
    /* Does comm_allreduce_enqueue, on that function's calling thread. A backend that has `sum` has NULL for scatter,
     * collect and spread. */
    mm_status (*sum)(comm_link *link, const comm_tensor *tensors, int n, void *stream);
    /* Called now and then while no transfer is under way. Fails once a rank has ended or a sum cannot end, and then
     * gives up the sums that were enqueued. NULL: not needed, because whoever started the ranks ends them all. */
    mm_status (*look)(comm_link *link);
} comm_backend;

struct comm_link {
    int rank, ranks;
    int gpu;   /* this rank's; -1: the backend uses none */
    bool lost; /* another rank has ended too early */
};

extern const comm_backend comm_mpi, comm_local, comm_nccl;

/* The backend of the program that started this process, comm_local or comm_mpi, for a backend that moves only device
 * memory. */
const comm_backend *comm_host_backend(void);

/* Environment variable of ranks that comm_local_start has started. */
#define COMM_LOCAL_VARIABLE "MM_RANKS"

/* comm_open with a backend that is in no table; config->backend is not read. */
MM_CHECKED mm_status comm_open_on(const comm_backend *backend, const comm_config *config, comm **comm_out);

#endif
