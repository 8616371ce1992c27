/* SPDX-License-Identifier: MIT */
/* NCCL for emulated GPUs, each in a process of its own: a library that the communicator nccl opens at run time.
 * Processes share a file, which rank 0's id names. Each collective is a task of its stream, and waits there for the
 * other ranks', as NCCL's kernels do; it adds in another order than MPI does, and in a reduce-scatter, as NCCL's rings
 * do, in an order of each rank's. Calls that NCCL cannot cope with are
 * refused: on a stream of another device, outside of a group, in another order than the other ranks'.
 *
 * The end of the first group connects the ranks, and waits for the others. MM_EMULATED_NCCL_DIES=RANK in the
 * environment: rank RANK is killed at that point, and each other rank prints a line when its wait there was aborted. */
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda_emulation/enqueue.h"

enum { RANKS_MOST = 4, CHUNK = 4096 };

typedef struct world {
    atomic_int arrived, generation, joined, connected;
    atomic_int broken;          /* the ranks' calls differ */
    int64_t wanted[RANKS_MOST]; /* each rank's collective, as a number */
    int32_t data[RANKS_MOST][CHUNK];
} world;

struct ncclComm {
    world *shared;
    int rank, ranks, device;
    atomic_bool aborted;
    bool connected;
};

typedef struct collective {
    struct ncclComm *comm;
    const int32_t *from;
    int32_t *to;
    int64_t count;
    bool gathers, scatters, mean;
    int root; /* of a broadcast; -1: it is none */
} collective;

static _Thread_local int in_group;
static _Thread_local struct ncclComm *of_group;

static void nap(void) {
    const struct timespec time = {.tv_nsec = 50000};
    nanosleep(&time, NULL);
}

/* Waits for all ranks. False: the communicator was aborted. */
static bool meet(struct ncclComm *c) {
    world *w = c->shared;
    const int generation = atomic_load(&w->generation);
    if (atomic_fetch_add(&w->arrived, 1) + 1 == c->ranks) {
        atomic_store(&w->arrived, 0);
        atomic_fetch_add(&w->generation, 1);
        return true;
    }
    while (atomic_load(&w->generation) == generation) {
        if (atomic_load(&c->aborted)) return false;
        nap();
    }
    return true;
}

/* Adds from rank `first` on, down to the first rank, then from the last one on. */
static void reduce(const collective *r, int first, int64_t at, int n) {
    const world *w = r->comm->shared;
    const int ranks = r->comm->ranks;
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < ranks; k++) {
            float one;
            memcpy(&one, &w->data[(first + ranks - k) % ranks][i], sizeof one);
            sum = k == 0 ? one : sum + one;
        }
        if (r->mean) sum /= (float)ranks;
        memcpy(&r->to[at + i], &sum, sizeof sum);
    }
}

/* owner: of a part that is reduced for one rank alone; -1: of none. False: the communicator was aborted. */
static bool run_part(const collective *r, int owner) {
    struct ncclComm *c = r->comm;
    world *w = c->shared;
    const int32_t *from = r->from + (owner < 0 ? 0 : owner * r->count);
    for (int64_t at = 0; at < r->count; at += CHUNK) {
        const int n = (int)(r->count - at < CHUNK ? r->count - at : CHUNK);
        if (atomic_load(&c->aborted)) return false;
        w->wanted[c->rank] = (r->count * 8 + r->root + 1) * 8 + r->scatters * 4 + r->gathers * 2 + r->mean;
        memcpy(w->data[c->rank], from + at, (size_t)n * sizeof(int32_t));
        if (!meet(c)) return false;
        for (int k = 0; k < c->ranks; k++)
            if (w->wanted[k] != w->wanted[0]) atomic_store(&w->broken, 1);
        if (r->gathers)
            for (int k = 0; k < c->ranks; k++)
                memcpy(r->to + k * r->count + at, w->data[k], (size_t)n * sizeof(int32_t));
        else if (r->root >= 0)
            memcpy(r->to + at, w->data[r->root], (size_t)n * sizeof(int32_t));
        else if (owner < 0 || owner == c->rank)
            reduce(r, owner < 0 ? c->ranks - 1 : owner, at, n);
        if (!meet(c)) return false;
    }
    return true;
}

static void run(void *arg) {
    const collective *r = arg;
    bool going_on = true;
    if (!r->scatters) (void)run_part(r, -1);
    for (int k = 0; r->scatters && going_on && k < r->comm->ranks; k++) going_on = run_part(r, k);
}

static ncclResult_t enqueue(const collective *like, cudaStream_t stream) {
    if (!in_group || cuda_emulation_device() != like->comm->device) return ncclInvalidArgument;
    collective *r = malloc(sizeof *r);
    if (!r) return ncclSystemError;
    *r = *like;
    of_group = r->comm;
    return cuda_emulation_enqueue(stream, run, r) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclFloat32) return ncclInvalidArgument;
    return enqueue(&(collective){comm, from, to, (int64_t)count, .mean = op == ncclAvg, .root = -1}, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclFloat32 || op != ncclSum) return ncclInvalidArgument;
    return enqueue(&(collective){comm, from, to, (int64_t)count, .scatters = true, .root = -1}, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    if (type != ncclInt32) return ncclInvalidArgument;
    return enqueue(&(collective){comm, from, to, (int64_t)count, .gathers = true, .root = -1}, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    if (type != ncclInt32 || root < 0 || root >= comm->ranks) return ncclInvalidArgument;
    return enqueue(&(collective){comm, from, to, (int64_t)count, .root = root}, stream);
}

ncclResult_t ncclGroupStart(void) {
    in_group++;
    return ncclSuccess;
}

static ncclResult_t connect_ranks(struct ncclComm *c) {
    const char *dies = getenv("MM_EMULATED_NCCL_DIES");
    c->connected = true;
    if (dies && atoi(dies) == c->rank) raise(SIGKILL);
    atomic_fetch_add(&c->shared->connected, 1);
    while (atomic_load(&c->shared->connected) < c->ranks) {
        nap();
        if (!atomic_load(&c->aborted)) continue;
        if (dies) fprintf(stderr, "the emulated NCCL: aborted while it connects\n");
        return ncclSystemError;
    }
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    struct ncclComm *c = of_group;
    in_group--;
    of_group = NULL;
    return c && !c->connected ? connect_ranks(c) : ncclSuccess;
}

/* ---------------------------------------------------------------- a communicator's life */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/tmp/nccl.XXXXXX");
    const int file = mkstemp(id->internal);
    if (file < 0) return ncclSystemError;
    const bool sized = ftruncate(file, sizeof(world)) == 0;
    close(file);
    return sized ? ncclSuccess : ncclSystemError;
}

/* Returns when all ranks have come; by then, the file has no name any more. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    const int file = open(id.internal, O_RDWR);
    struct ncclComm *c = calloc(1, sizeof *c);
    if (file < 0 || !c || ranks > RANKS_MOST) {
        free(c);
        if (file >= 0) close(file);
        return ncclSystemError;
    }
    c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    c->rank = rank;
    c->ranks = ranks;
    c->device = cuda_emulation_device();
    atomic_fetch_add(&c->shared->joined, 1);
    while (atomic_load(&c->shared->joined) < ranks) nap();
    if (rank == 0) unlink(id.internal);
    *comm = c;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
    return ncclSuccess;
}

/* The communicator is not freed: enqueued tasks may still read it. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    atomic_store(&comm->aborted, true);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    *error = atomic_load(&comm->shared->broken) ? ncclInvalidArgument : ncclSuccess;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclInvalidArgument ? "the emulation takes this badly" : "the emulation fails";
}
