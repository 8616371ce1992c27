/* Processes that train one network: who they are, and what they do with each other. Each is a rank, from 0; rank r trains on
 * the r-th part of every batch (nets_ranks in nets/op.h). An engine connects them: "mpi".
 *
 * Sums are taken in the order of ranks, ((x0 + x1) + x2) + ..., whatever the engine's own algorithms: each rank gets one
 * part of everybody's elements, adds them up, and gives the sum to all. So the same bits come of every run, and of one
 * process that adds up as many sub-batches.
 *
 *   rank 0   a0 | a1        a0 -.       a0 + b0      a0 + b0 | a1 + b1
 *                               |  add            all
 *   rank 1   b0 | b1        a1 -'       a1 + b1      a0 + b0 | a1 + b1
 *
 * One thread of the engine does all of it, and sleeps while it waits, so that it takes no core from the computation. Calls
 * of one multi are made by several threads; those of multi_begin must be in one order, which is every rank's. */
#ifndef NETS_MULTI_MULTI_H
#define NETS_MULTI_MULTI_H

#include <signal.h>

#include "mm/core/status.h"

typedef struct multi multi;

enum { MULTI_RANKS_MOST = 1024 }; /* chosen: far above what one batch is shared by */

/* What becomes of the ranks' elements. */
typedef enum multi_kind {
    MULTI_SUM,   /* f32: their sum */
    MULTI_MEAN,  /* f32: their sum divided by their number */
    MULTI_COUNT, /* i32: their sum; or, where some are negative, the first of these, which tells of a failure */
    MULTI_BYTES, /* of multi_gather */
} multi_kind;

typedef struct multi_config {
    const char *engine;
    bool at_root;                       /* rank 0 adds up all elements, not each rank a part */
    const volatile sig_atomic_t *ended; /* not 0: whoever started the ranks ends them; nothing more is waited for than a
                                           second. NULL: it never is */
} multi_config;

/* The i-th engine's name, and in *summary_out (may be NULL) a line about it; NULL past the last. */
const char *multi_list(int i, const char **summary_out);

/* Connects this process with the others that were started with it, which call this too. MM_ERR_NOT_FOUND: no such engine;
 * MM_ERR_UNSUPPORTED: this build or this machine has it not; the message says what is missing. MM_ERR_DEVICE: the engine's
 * failure. The caller closes it. */
MM_CHECKED mm_status multi_open(const multi_config *config, multi **multi_out);
/* Waits for all ranks to come here, and disconnects. NULL is legal. Between iterations. */
void multi_close(multi *m);
/* Ends all ranks at once: this one with the exit status, which is not 0; the others are killed. For failures of which the
 * others may not know. */
_Noreturn void multi_abort(multi *m, int status);

int multi_rank(const multi *m);
int multi_ranks(const multi *m);

/* Begins to make of `data` what the kind says. It is the engine's until multi_await has told of it. Never blocks. */
void multi_begin(multi *m, multi_kind kind, void *data, int64_t elems);
/* Waits for the oldest that was begun and not awaited. MM_ERR_DEVICE: the engine's failure, which is every later call's,
 * too. */
MM_CHECKED mm_status multi_await(multi *m);

/* Collects `bytes` of every rank, in their order, in all_out. Blocks. MM_ERR_ORDER: something that was begun is left to
 * await. Errors of multi_await. */
MM_CHECKED mm_status multi_gather(multi *m, const void *mine, int64_t bytes, void *all_out);

/* What a multi has done so far. */
typedef struct multi_stats {
    int64_t bytes;    /* that were begun */
    int64_t busy_ns;  /* while something was begun and not done */
    int64_t await_ns; /* that multi_await has blocked */
} multi_stats;
void multi_stats_get(multi *m, multi_stats *stats_out);

#endif
