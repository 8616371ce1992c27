/* SPDX-License-Identifier: MIT */
/* Communicators: they connect the processes that train one network. Each process is a rank, from 0; rank r trains on
 * the r-th part of every batch (nets_allreduce in nets/contract/op.h). A communicator has a backend
 * (comm_config.backend): "mpi" or "nccl".
 *
 * The backend mpi all-reduces tensors in host memory (comm_allreduce_begin). Each rank gets one part of every rank's
 * elements, adds these up in the order of ranks, ((x0 + x1) + x2) + ..., and sends the sum to all. MPI only moves
 * elements, and the way in which it moves them changes no bit. Every run gives the same bits, and so does a single
 * process that adds up as many sub-batches, embeddings excepted (nets/README.md).
 *
 *   rank 0   a0 | a1        a0 -.       a0 + b0      a0 + b0 | a1 + b1
 *                               |  add            all
 *   rank 1   b0 | b1        a1 -'       a1 + b1      a0 + b0 | a1 + b1
 *
 * A thread of the communicator does all of this, and sleeps while it waits, so that it takes no core from the
 * computation. Several threads may call one communicator; the calls of comm_allreduce_begin must have the same order on
 * every rank.
 *
 * The backend nccl all-reduces tensors on GPUs (comm_allreduce_enqueue), in NCCL's own order of addition: sums of more
 * than a few elements as a reduce-scatter, and, unless that is all that was asked for, an all-gather. Every run with as
 * many ranks on the same machines has the same order if NCCL takes the same algorithm; NCCL_ALGO and NCCL_PROTO
 * in the environment set the algorithm. */
#ifndef NETS_COMM_COMM_H
#define NETS_COMM_COMM_H

#include <signal.h>
#include <sys/types.h>

#include "mm/core/status.h"

typedef struct comm comm;

enum { COMM_RANKS_MOST = 1024 }; /* chosen: far above the ranks that one batch can use */

/* What the ranks' elements become. */
typedef enum comm_op {
    COMM_SUM,   /* f32: their sum */
    COMM_MEAN,  /* f32: their sum divided by their number */
    COMM_COUNT, /* i32: their sum; or, if some are negative, the first of those, which stands for a failure */
    /* Tensors in equal parts, one for each rank; rank r's is the r-th. */
    COMM_OWN,   /* f32: this rank's part becomes the ranks' sum, other parts are void; at most COMM_OWN_MOST elements */
    COMM_BYTES, /* words: each rank's part goes to all */
} comm_op;

enum { COMM_OWN_MOST = 1 << 20 };

typedef struct comm_config {
    const char *backend;
    bool at_root; /* rank 0 adds up all elements; else each rank adds up a part of them */
    /* *ended is not 0: whoever started the ranks is ending them, so an all-reduce without progress for three seconds
     * fails. *interrupted is not 0: the user wants the ranks to end, after this iteration; an all-reduce then fails
     * after ten seconds without progress, or three times the longest wait so far, since a rank hangs. NULL: no
     * all-reduce fails for lack of progress. */
    const volatile sig_atomic_t *ended, *interrupted;
    int gpu;        /* nccl: this rank's GPU; -1: the ranks of a machine take its GPUs in order */
    bool *lost_out; /* set to true if comm_open fails because of another rank, which reports the reason; may be NULL */
} comm_config;

/* Whether `ranks` ranks of this machine can use the backend, as far as that is known before they are started. Errors as
 * comm_open's; MM_ERR_INVALID: nccl: there are fewer GPUs than ranks; the message has both numbers. */
MM_CHECKED mm_status comm_probe(const comm_config *config, int ranks);

/* Starts ranks on this machine for the backend nccl. Calls become(ctx, rank) in each new process, which must end the
 * process or execute a program; that program's comm_open finds the other ranks. processes_out: per rank its process id;
 * -1: not started, after a failure. MM_ERR_NOMEM. The caller waits for the processes; if not all have started, it ends
 * the others. */
MM_CHECKED mm_status comm_local_start(int ranks, void (*become)(void *ctx, int rank), void *ctx, pid_t *processes_out);

/* Connects this process with the others that were started with it, which call this too. MM_ERR_NOT_FOUND: no such
 * backend; MM_ERR_UNSUPPORTED: this build or this machine lacks it; the message says what is missing. MM_ERR_DEVICE:
 * the backend failed. The caller closes the communicator. */
MM_CHECKED mm_status comm_open(const comm_config *config, comm **comm_out);
/* Waits until all ranks call it, and disconnects. Call it between iterations. NULL is legal. */
void comm_close(comm *m);
/* Ends all ranks at once: this one with the exit status, which is not 0; the others are killed. For failures that the
 * others may not notice. */
_Noreturn void comm_abort(comm *m, int status);

int comm_rank(const comm *m);
int comm_size(const comm *m);
/* The GPU on which this rank all-reduces; -1: it does so in host memory. */
int comm_gpu(const comm *m);
/* A rank's number among the ranks of its machine, as Open MPI's environment gives it; without that, `rank` itself. */
int comm_local_rank(int rank);

/* Begins to all-reduce `data` in place. The communicator owns `data` until comm_allreduce_wait has returned for it.
 * Never blocks. */
void comm_allreduce_begin(comm *m, comm_op kind, void *data, int64_t elems);
/* Waits for the oldest all-reduce that was begun and not awaited. *done_ns_out (may be NULL): when it was done, in
 * mm_now_ns time. MM_ERR_DEVICE: the backend failed; every later call fails with the same error. */
MM_CHECKED mm_status comm_allreduce_wait(comm *m, int64_t *done_ns_out);

/* A tensor on the GPU. */
typedef struct comm_tensor {
    comm_op kind;
    void *data;
    int64_t elems;
    /* COMM_OWN, COMM_BYTES: elements of each rank's part; the last rank's has the rest, too. COMM_SUM: the same, for
     * sums with the bits of COMM_OWN's. */
    int64_t part;
} comm_tensor;

/* Only with a backend for GPUs: enqueues the all-reduces of n tensors, in place, on a stream of the GPU
 * (mm_stream_handle). All ranks call it with the same kinds and sizes in the same order. A CUDA graph can capture the
 * call. MM_ERR_DEVICE. */
MM_CHECKED mm_status comm_allreduce_enqueue(comm *m, const comm_tensor *tensors, int n, void *stream);

/* Makes *word, which is not negative, the sum of all ranks' words. Blocks, but does not wait for all-reduces that were
 * begun. One call at a time; all ranks make the same number of calls. MM_ERR_DEVICE: the backend failed. */
MM_CHECKED mm_status comm_agree(comm *m, int32_t *word);

/* MM_OK, or the backend's failure: then all-reduces that were enqueued may not have run, and their results are void. */
MM_CHECKED mm_status comm_check(comm *m);
/* Whether the communicator failed because another rank has ended; that rank reports the reason itself. */
bool comm_lost(comm *m);

/* Collects `bytes` from every rank in all_out, in the order of ranks. Blocks. MM_ERR_ORDER: an all-reduce was begun and
 * not awaited. Errors as comm_allreduce_wait's. */
MM_CHECKED mm_status comm_gather(comm *m, const void *mine, int64_t bytes, void *all_out);

/* What a communicator has done so far. */
typedef struct comm_stats {
    int64_t begun;    /* tensors given to comm_allreduce_begin and comm_allreduce_enqueue */
    int64_t bytes;    /* size of these tensors */
    int64_t busy_ns;  /* time in which an all-reduce was under way */
    int64_t await_ns; /* time that comm_allreduce_wait has blocked */
} comm_stats;
void comm_stats_get(comm *m, comm_stats *stats_out);

#endif
