/* SPDX-License-Identifier: MIT */
/* The contract of an engine: how it gets elements to other ranks. Called by multi.c's thread alone, which also opens
 * it. */
#ifndef NETS_MULTI_MULTI_ENGINE_H
#define NETS_MULTI_MULTI_ENGINE_H

#include <sys/types.h>

#include "nets/multi/multi.h"

typedef struct multi_link multi_link; /* an engine's own: its first member is a multi_link */

enum {
    MULTI_TRANSFERS = 4,           /* under way at a time. Chosen: one is added up while others travel */
    MULTI_VOTES = MULTI_TRANSFERS, /* the slot of votes (multi_agree), whose order is their own */
    MULTI_SLOTS = MULTI_TRANSFERS + 1,
};

typedef struct multi_engine {
    const char *name, *summary;
    /* multi_probe; NULL: nothing can be said before. */
    mm_status (*probe)(const multi_config *config, int ranks);
    mm_status (*open)(const multi_config *config, multi_link **link_out);
    /* well: waits for all ranks to come here. Else this process leaves them, which its starter takes as a failure. */
    void (*close)(multi_link *link, bool well);
    /* Ends all ranks. */
    void (*abort)(multi_link *link, int status);
    /* Each begins a transfer in `slot`; the one that was begun in it before is done. All ranks begin the same
     * transfers. There are three orders, each of them the same on all ranks: of scatters and collects; of votes, which
     * are shares in MULTI_VOTES; of other shares and spreads. An engine without `scatter` may refuse a transfer while
     * another is under way (MM_ERR_ORDER). counts, places: per rank, of elements; to be kept until it is done. scatter:
     * part p of `data` goes to rank p, which gets all of its parts one after the other. collect: all of `data` goes to
     * rank 0. share: part p of `data`, which rank p has, goes to all. spread: all of rank 0's `data` goes to all. */
    mm_status (*scatter)(multi_link *link, int slot, const int32_t *data, const int *counts, const int *places,
                         const int *received_counts, const int *received_places, int32_t *received);
    mm_status (*collect)(multi_link *link, int slot, const int32_t *data, int elems, int32_t *received);
    mm_status (*share)(multi_link *link, int slot, int32_t *data, const int *counts, const int *places);
    mm_status (*spread)(multi_link *link, int slot, int32_t *data, int elems);
    /* Whether the slot's transfer is done. Does not block. */
    mm_status (*test)(multi_link *link, int slot, bool *done_out);
    /* multi_enqueue, by the thread that calls that. Not NULL: scatter, collect and spread are. */
    mm_status (*sum)(multi_link *link, const multi_tensor *tensors, int n, void *stream);
    /* Now and then, while nothing is under way: fails once a rank has ended or a sum cannot end, and then gives up the
     * sums that were enqueued. NULL: whoever started the ranks ends them. */
    mm_status (*look)(multi_link *link);
} multi_engine;

struct multi_link {
    int rank, ranks;
    int gpu;   /* this rank's; -1: sums are not on GPUs */
    bool lost; /* another rank has ended before its time */
};

extern const multi_engine multi_mpi, multi_local, multi_nccl;

/* The engine that knows how this process was started, for one that moves data of devices only: multi_local or
 * multi_mpi. */
const multi_engine *multi_host_engine(void);

/* Set in the environment of ranks that multi_local_start has started. */
#define MULTI_LOCAL_VARIABLE "MM_RANKS"

/* multi_open with an engine that is in no table. config->engine is not read. */
MM_CHECKED mm_status multi_open_on(const multi_engine *engine, const multi_config *config, multi **multi_out);

#endif
