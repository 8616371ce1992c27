/* The contract of an engine: how it gets elements to other ranks. Called by multi.c's thread alone, which also opens it. */
#ifndef NETS_MULTI_MULTI_ENGINE_H
#define NETS_MULTI_MULTI_ENGINE_H

#include "nets/multi/multi.h"

typedef struct multi_link multi_link; /* an engine's own: its first members are rank and ranks */

enum { MULTI_TRANSFERS = 4 }; /* under way at a time. Chosen: one is added up while others travel */

typedef struct multi_engine {
    const char *name, *summary;
    mm_status (*open)(multi_link **link_out);
    /* well: waits for all ranks to come here. Else this process leaves them, which its starter takes as a failure. */
    void (*close)(multi_link *link, bool well);
    /* Ends all ranks. */
    void (*abort)(multi_link *link, int status);
    /* Each begins a transfer in `slot`, the one that was begun in it before being done. All ranks begin the same in the same
     * order, that of scatters and that of others apart. counts, places: per rank, of elements; to be kept until it is done.
     * scatter: part p of `data` goes to rank p, which gets all of its parts one after the other. collect: all of `data` goes
     * to rank 0. share: part p of `data`, which rank p has, goes to all. spread: all of rank 0's `data` goes to all. */
    mm_status (*scatter)(multi_link *link, int slot, const int32_t *data, const int *counts, const int *places,
                         const int *received_counts, const int *received_places, int32_t *received);
    mm_status (*collect)(multi_link *link, int slot, const int32_t *data, int elems, int32_t *received);
    mm_status (*share)(multi_link *link, int slot, int32_t *data, const int *counts, const int *places);
    mm_status (*spread)(multi_link *link, int slot, int32_t *data, int elems);
    /* Whether the slot's transfer is done. Does not block. */
    mm_status (*test)(multi_link *link, int slot, bool *done_out);
} multi_engine;

struct multi_link {
    int rank, ranks;
};

extern const multi_engine multi_mpi;

/* multi_open with an engine that is in no table. config->engine is not read. */
MM_CHECKED mm_status multi_open_on(const multi_engine *engine, const multi_config *config, multi **multi_out);

#endif
