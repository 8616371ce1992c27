/* SPDX-License-Identifier: MIT */
/* Processes that train one network: who they are, and what they do with each other. Each is a rank, from 0; rank r
 * trains on the r-th part of every batch (nets_allreduce in nets/contract/op.h). An engine connects them: "mpi", "nccl".
 *
 * The engine mpi adds up what lies in the host's memory (comm_allreduce_begin). Each rank gets one part of everybody's elements,
 * adds them up in the order of ranks, ((x0 + x1) + x2) + ..., and gives the sum to all. MPI only moves elements: how it
 * does so changes no bit. Every run has the same bits, and so has one process that adds up as many sub-batches.
 *
 *   rank 0   a0 | a1        a0 -.       a0 + b0      a0 + b0 | a1 + b1
 *                               |  add            all
 *   rank 1   b0 | b1        a1 -'       a1 + b1      a0 + b0 | a1 + b1
 *
 * One thread of the engine does all of it, and sleeps while it waits, so that it takes no core from the computation.
 * Calls of one communicator are made by several threads; those of comm_allreduce_begin must be in one order, which is every rank's.
 *
 * The engine nccl adds up what lies on GPUs (comm_allreduce_enqueue), in NCCL's own order: the same on every run of as many
 * ranks on the same machines if NCCL takes the same algorithm, which NCCL_ALGO and NCCL_PROTO in the environment
 * pin. */
#ifndef NETS_COMM_COMM_H
#define NETS_COMM_COMM_H

#include <signal.h>
#include <sys/types.h>

#include "mm/core/status.h"

typedef struct comm comm;

enum { COMM_RANKS_MOST = 1024 }; /* chosen: far above what one batch is shared by */

/* What becomes of the ranks' elements. */
typedef enum comm_op {
    COMM_SUM,   /* f32: their sum */
    COMM_MEAN,  /* f32: their sum divided by their number */
    COMM_COUNT, /* i32: their sum; or, where some are negative, the first of these, which tells of a failure */
    COMM_BYTES, /* of comm_gather */
} comm_op;

typedef struct comm_config {
    const char *engine;
    bool at_root;                       /* rank 0 adds up all elements, not each rank a part */
    const volatile sig_atomic_t *ended; /* not 0: whoever started the ranks ends them; a sum of which nothing comes for
                                           three seconds fails. NULL: it never is */
    int gpu;        /* nccl: the GPU of this rank; -1: the ranks of a machine take its GPUs in order */
    bool *lost_out; /* set to true if comm_open fails because another rank cannot begin, which tells why; may be NULL */
} comm_config;

/* Whether `ranks` ranks of this machine can use the engine, as far as that is known before they are started. Errors as
 * comm_open's; MM_ERR_INVALID: nccl: there are fewer GPUs than ranks; the message has both numbers. */
MM_CHECKED mm_status comm_probe(const comm_config *config, int ranks);

/* Starts ranks on this machine, whose engine is nccl. In each of the new processes become(ctx, rank) is called, which
 * ends it or executes a program; the program's comm_open finds the others. processes_out: per rank, its id; -1: it was
 * not started, after a failure. MM_ERR_NOMEM. The caller waits for them, and ends those that have started if not all
 * have. */
MM_CHECKED mm_status comm_local_start(int ranks, void (*become)(void *ctx, int rank), void *ctx, pid_t *processes_out);

/* Connects this process with the others that were started with it, which call this too. MM_ERR_NOT_FOUND: no such
 * engine; MM_ERR_UNSUPPORTED: this build or this machine has it not; the message says what is missing. MM_ERR_DEVICE:
 * the engine's failure. The caller closes it. */
MM_CHECKED mm_status comm_open(const comm_config *config, comm **comm_out);
/* Waits for all ranks to come here, and disconnects. NULL is legal. Between iterations. */
void comm_close(comm *m);
/* Ends all ranks at once: this one with the exit status, which is not 0; the others are killed. For failures of which
 * the others may not know. */
_Noreturn void comm_abort(comm *m, int status);

int comm_rank(const comm *m);
int comm_size(const comm *m);
/* The GPU on which this rank's sums are made; -1: they are made in the host's memory. */
int comm_gpu(const comm *m);
/* Which of the ranks of its machine a rank is, by whatever has started it; the rank itself, if that does not tell. */
int comm_local_rank(int rank);

/* Begins to make of `data` what the kind says. It is the engine's until comm_allreduce_wait has told of it. Never blocks. */
void comm_allreduce_begin(comm *m, comm_op kind, void *data, int64_t elems);
/* Waits for the oldest that was begun and not awaited. *done_ns_out (may be NULL): when it was done, by mm_now_ns.
 * MM_ERR_DEVICE: the engine's failure, which is every later call's, too. */
MM_CHECKED mm_status comm_allreduce_wait(comm *m, int64_t *done_ns_out);

/* A tensor on the GPU. */
typedef struct comm_tensor {
    comm_op kind; /* not COMM_BYTES */
    void *data;
    int64_t elems;
} comm_tensor;

/* Of engines with GPUs: enqueues on a stream of the GPU (mm_stream_handle) what makes of n tensors, in place, what
 * their kinds say. All ranks call it with the same kinds and sizes in the same order. It can be captured.
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status comm_allreduce_enqueue(comm *m, const comm_tensor *tensors, int n, void *stream);

/* Makes *word, which is not negative, the sum of all ranks' words, beside what is begun: it waits for nothing of that.
 * Blocks. One at a time; all ranks call it as often. MM_ERR_DEVICE: the engine's failure. */
MM_CHECKED mm_status comm_agree(comm *m, int32_t *word);

/* MM_OK, or the engine's failure: what was enqueued may have come to nothing, and nothing that follows from it
 * holds. */
MM_CHECKED mm_status comm_check(comm *m);
/* Whether that failure is that another rank has ended, which tells why itself. */
bool comm_lost(comm *m);

/* Collects `bytes` of every rank, in their order, in all_out. Blocks. MM_ERR_ORDER: something that was begun is left to
 * await. Errors of comm_allreduce_wait. */
MM_CHECKED mm_status comm_gather(comm *m, const void *mine, int64_t bytes, void *all_out);

/* What a communicator has done so far. */
typedef struct comm_stats {
    int64_t begun;    /* tensors that were given to comm_allreduce_begin and comm_allreduce_enqueue */
    int64_t bytes;    /* of these */
    int64_t busy_ns;  /* while something was begun and not done */
    int64_t await_ns; /* that comm_allreduce_wait has blocked */
} comm_stats;
void comm_stats_get(comm *m, comm_stats *stats_out);

#endif
