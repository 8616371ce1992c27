/* SPDX-License-Identifier: MIT */
/* Processes that train one network: who they are, and what they do with each other. Each is a rank, from 0; rank r
 * trains on the r-th part of every batch (nets_ranks in nets/contract/op.h). An engine connects them: "mpi", "nccl".
 *
 * The engine mpi adds up what lies in the host's memory (multi_begin). Each rank gets one part of everybody's elements,
 * adds them up in the order of ranks, ((x0 + x1) + x2) + ..., and gives the sum to all. MPI only moves elements: how it
 * does so changes no bit. Every run has the same bits, and so has one process that adds up as many sub-batches.
 *
 *   rank 0   a0 | a1        a0 -.       a0 + b0      a0 + b0 | a1 + b1
 *                               |  add            all
 *   rank 1   b0 | b1        a1 -'       a1 + b1      a0 + b0 | a1 + b1
 *
 * One thread of the engine does all of it, and sleeps while it waits, so that it takes no core from the computation.
 * Calls of one multi are made by several threads; those of multi_begin must be in one order, which is every rank's.
 *
 * The engine nccl adds up what lies on GPUs (multi_enqueue), in NCCL's own order: the same on every run of as many
 * ranks on the same machines if NCCL takes the same algorithm, which NCCL_ALGO and NCCL_PROTO in the environment
 * pin. */
#ifndef NETS_MULTI_MULTI_H
#define NETS_MULTI_MULTI_H

#include <signal.h>
#include <sys/types.h>

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
    const volatile sig_atomic_t *ended; /* not 0: whoever started the ranks ends them; a sum of which nothing comes for
                                           three seconds fails. NULL: it never is */
    int gpu; /* nccl: the GPU of this rank; -1: the ranks of a machine take its GPUs in order */
    bool
        *lost_out; /* set to true if multi_open fails because another rank cannot begin, which tells why; may be NULL */
} multi_config;

/* The i-th engine's name, and in *summary_out (may be NULL) a line about it; NULL past the last. */
const char *multi_list(int i, const char **summary_out);

/* Whether `ranks` ranks of this machine can use the engine, as far as that is known before they are started. Errors as
 * multi_open's; MM_ERR_INVALID: nccl: there are fewer GPUs than ranks; the message has both numbers. */
MM_CHECKED mm_status multi_probe(const multi_config *config, int ranks);

/* Starts ranks on this machine, whose engine is nccl. In each of the new processes become(ctx, rank) is called, which
 * ends it or executes a program; the program's multi_open finds the others. processes_out: per rank, its id; -1: it was
 * not started, after a failure. MM_ERR_NOMEM. The caller waits for them, and ends those that have started if not all
 * have. */
MM_CHECKED mm_status multi_local_start(int ranks, void (*become)(void *ctx, int rank), void *ctx, pid_t *processes_out);

/* Connects this process with the others that were started with it, which call this too. MM_ERR_NOT_FOUND: no such
 * engine; MM_ERR_UNSUPPORTED: this build or this machine has it not; the message says what is missing. MM_ERR_DEVICE:
 * the engine's failure. The caller closes it. */
MM_CHECKED mm_status multi_open(const multi_config *config, multi **multi_out);
/* Waits for all ranks to come here, and disconnects. NULL is legal. Between iterations. */
void multi_close(multi *m);
/* Ends all ranks at once: this one with the exit status, which is not 0; the others are killed. For failures of which
 * the others may not know. */
_Noreturn void multi_abort(multi *m, int status);

int multi_rank(const multi *m);
int multi_ranks(const multi *m);
/* The GPU on which this rank's sums are made; -1: they are made in the host's memory. */
int multi_gpu(const multi *m);
/* Which of the ranks of its machine a rank is, by whatever has started it; the rank itself, if that does not tell. */
int multi_local_rank(int rank);

/* Begins to make of `data` what the kind says. It is the engine's until multi_await has told of it. Never blocks. */
void multi_begin(multi *m, multi_kind kind, void *data, int64_t elems);
/* Waits for the oldest that was begun and not awaited. *done_ns_out (may be NULL): when it was done, by mm_now_ns.
 * MM_ERR_DEVICE: the engine's failure, which is every later call's, too. */
MM_CHECKED mm_status multi_await(multi *m, int64_t *done_ns_out);

/* A tensor on the GPU. */
typedef struct multi_tensor {
    multi_kind kind; /* not MULTI_BYTES */
    void *data;
    int64_t elems;
} multi_tensor;

/* Of engines with GPUs: enqueues on a stream of the GPU (mm_stream_handle) what makes of n tensors, in place, what
 * their kinds say. All ranks call it with the same kinds and sizes in the same order. It can be captured.
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status multi_enqueue(multi *m, const multi_tensor *tensors, int n, void *stream);

/* Makes *word, which is not negative, the sum of all ranks' words, beside what is begun: it waits for nothing of that.
 * Blocks. One at a time; all ranks call it as often. MM_ERR_DEVICE: the engine's failure. */
MM_CHECKED mm_status multi_agree(multi *m, int32_t *word);

/* MM_OK, or the engine's failure: what was enqueued may have come to nothing, and nothing that follows from it
 * holds. */
MM_CHECKED mm_status multi_check(multi *m);
/* Whether that failure is that another rank has ended, which tells why itself. */
bool multi_lost(multi *m);

/* Collects `bytes` of every rank, in their order, in all_out. Blocks. MM_ERR_ORDER: something that was begun is left to
 * await. Errors of multi_await. */
MM_CHECKED mm_status multi_gather(multi *m, const void *mine, int64_t bytes, void *all_out);

/* What a multi has done so far. */
typedef struct multi_stats {
    int64_t begun;    /* tensors that were given to multi_begin and multi_enqueue */
    int64_t bytes;    /* of these */
    int64_t busy_ns;  /* while something was begun and not done */
    int64_t await_ns; /* that multi_await has blocked */
} multi_stats;
void multi_stats_get(multi *m, multi_stats *stats_out);

#endif
