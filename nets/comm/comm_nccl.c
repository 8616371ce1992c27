/* SPDX-License-Identifier: MIT */
/* The backend nccl: each rank all-reduces on its own GPU. Opening it loads NCCL and looks up its functions in one
 * table, as comm_mpi.c does MPI's.
 *
 * NCCL moves only device memory, on streams. All else goes through a second backend, `host`: comm_local if mm has
 * started the ranks, mpi if mpirun has. Through it rank 0 sends its address (ncclUniqueId) to the others, and every
 * rank learns if one of them cannot begin, instead of waiting for it. */
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mm/device/cuda/device_cuda.h"
#include "nets/comm/comm_backend.h"
#include "nets/comm/comm_nccl.h"

#define CALLS(f)                                                                                                       \
    f(GetUniqueId) f(CommInitRank) f(CommDestroy) f(CommAbort) f(CommGetAsyncError) f(AllReduce) f(ReduceScatter)      \
        f(AllGather) f(Broadcast) f(GroupStart) f(GroupEnd) f(GetErrorString)

typedef struct nccl_api {
#define POINTER(name) __typeof__(nccl##name) *name;
    CALLS(POINTER)
#undef POINTER
} nccl_api;

enum {
    SCATTERED_LEAST = 1024, /* elements of a part. Chosen: 4 KiB */
    COUNTS_MOST = 256,      /* most COMM_COUNT elements of one call. Chosen: nets have two */
    /* How long a call of NCCL may go on before CommAbort is called. A call that lasts longer is waiting for another
     * rank, as the first calls do, which connect the ranks; only CommAbort ends it. If it were called sooner, CommAbort
     * could free what the call is about to use. Chosen. */
    BLOCKED_MS = 1000,
};

typedef struct nccl_link {
    comm_link base;
    const comm_backend *host;
    comm_link *host_link;
    nccl_api nccl;
    mm_cuda_gpu *gpu;
    int32_t *counts; /* all ranks' counts, in device memory */
    pthread_mutex_t lock;
    /* under the lock: the training thread enqueues, the communicator's thread aborts */
    ncclComm_t comm;
    bool used; /* the training thread is using `comm` */
} nccl_link;

/* What a rank sends to the others before it joins them. */
typedef struct hello {
    int32_t status; /* mm_status */
    char message[252];
    ncclUniqueId id; /* rank 0's */
} hello;

/* ---------------------------------------------------------------- NCCL itself */

/* NCCL is never unloaded: it leaves threads behind. */
static mm_status load(nccl_api *nccl) {
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return mm_fail(MM_ERR_UNSUPPORTED, "the communicator nccl: %s (NVIDIA's package libnccl2 has it)", dlerror());
#define FIND(name)                                                                                                     \
    if (!(nccl->name = (__typeof__(nccl->name))dlsym(library, "nccl" #name)))                                          \
        return mm_fail(MM_ERR_UNSUPPORTED, "the communicator nccl: the NCCL here has no nccl" #name);
    CALLS(FIND)
#undef FIND
    return MM_OK;
}

static mm_status check(const nccl_link *l, ncclResult_t result, const char *call) {
    if (result == ncclSuccess || result == ncclInProgress) return MM_OK;
    return mm_fail(MM_ERR_DEVICE, "nccl%s: %s", call, l->nccl.GetErrorString(result));
}

static mm_status nccl_probe(const comm_config *config, int ranks) {
    nccl_api nccl;
    const int gpus = mm_cuda_count();
    if (ranks > gpus)
        return mm_fail(MM_ERR_INVALID,
                       "the communicator nccl: %d ranks, %d GPUs answer; each rank needs one of its own", ranks, gpus);
    if (ranks > 1 && config->gpu >= 0)
        return mm_fail(MM_ERR_INVALID,
                       "the communicator nccl: %d ranks, and one GPU is named, cuda:%d; give --device cuda", ranks,
                       config->gpu);
    return load(&nccl);
}

/* ---------------------------------------------------------------- joining */

static mm_status open_gpu(nccl_link *l) {
    const int gpus = mm_cuda_count();
    if (l->base.gpu < gpus) return mm_cuda_gpu_open(l->base.gpu, &l->gpu);
    return mm_fail_in(mm_device_fail_ordinal("cuda", l->base.gpu, gpus),
                      "the communicator nccl: each of %d ranks needs a GPU of its own", l->base.ranks);
}

/* Does everything that may fail on this rank, before the ranks wait for each other. */
static mm_status get_ready(nccl_link *l, hello *own) {
    MM_TRY(load(&l->nccl));
    MM_TRY(open_gpu(l));
    return l->base.rank == 0 ? check(l, l->nccl.GetUniqueId(&own->id), "GetUniqueId") : MM_OK;
}

/* Sends each rank's hello to all ranks. */
static mm_status report_all(const nccl_link *l, hello *all) {
    const struct timespec nap = {.tv_nsec = 1000000};
    int counts[COMM_RANKS_MOST], places[COMM_RANKS_MOST];
    for (int r = 0; r < l->base.ranks; r++) {
        counts[r] = (int)(sizeof *all / sizeof(int32_t));
        places[r] = r * counts[r];
    }
    MM_TRY(l->host->share(l->host_link, 0, (int32_t *)(void *)all, counts, places));
    for (bool done = false; !done;) {
        MM_TRY(l->host->test(l->host_link, 0, &done));
        if (!done) nanosleep(&nap, NULL);
    }
    return MM_OK;
}

static mm_status join_others(nccl_link *l, const ncclUniqueId *id) {
    bool entered;
    MM_TRY(mm_cuda_gpu_enter(l->gpu, false, &entered));
    mm_status status = check(l, l->nccl.CommInitRank(&l->comm, l->base.ranks, *id, l->base.rank), "CommInitRank");
    void *counts = NULL;
    if (status == MM_OK)
        status = mm_cuda_check(cudaMalloc(&counts, (size_t)l->base.ranks * COUNTS_MOST * sizeof *l->counts),
                               "cudaMalloc of the ranks' counts");
    l->counts = counts;
    if (entered) mm_cuda_gpu_leave(l->gpu);
    return status;
}

static mm_status join(nccl_link *l) {
    hello *all = calloc((size_t)l->base.ranks, sizeof *all);
    if (!all) return mm_fail(MM_ERR_NOMEM, "out of memory for the communicator nccl");
    hello *own = &all[l->base.rank];
    own->status = get_ready(l, own);
    if (own->status != MM_OK) snprintf(own->message, sizeof own->message, "%s", mm_last_error());
    mm_status status = report_all(l, all);
    for (int r = 0; status == MM_OK && r < l->base.ranks; r++) {
        if (all[r].status == MM_OK) continue;
        l->base.lost = r != l->base.rank;
        status = mm_fail((mm_status)all[r].status, "%.*s", (int)sizeof all[r].message, all[r].message);
    }
    if (status == MM_OK) status = join_others(l, &all[0].id);
    free(all);
    return status;
}

static void destroy(nccl_link *l, bool well) {
    if (l->host_link) l->host->close(l->host_link, well);
    mm_cuda_gpu_close(l->gpu);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static mm_status nccl_open(const comm_config *config, comm_link **link_out) {
    nccl_link *l = calloc(1, sizeof *l);
    if (!l) return mm_fail(MM_ERR_NOMEM, "out of memory for the communicator nccl");
    pthread_mutex_init(&l->lock, NULL);
    l->host = comm_host_backend();
    mm_status status = l->host->open(config, &l->host_link);
    if (status == MM_OK) {
        l->base = *l->host_link;
        l->base.gpu = config->gpu >= 0 ? config->gpu : comm_local_rank(l->base.rank);
        status = join(l);
    }
    if (status != MM_OK) {
        if (config->lost_out) *config->lost_out = l->base.lost;
        if (!l->base.lost && l->base.ranks > 0) mm_fail_prefix("rank %d", l->base.rank);
        destroy(l, false);
        return status;
    }
    *link_out = &l->base;
    return MM_OK;
}

/* well: the ranks have agreed to end, so NCCL can disconnect; else it is aborted. */
static void nccl_close(comm_link *link, bool well) {
    nccl_link *l = (nccl_link *)link;
    bool entered;
    if (mm_cuda_gpu_enter(l->gpu, true, &entered) == MM_OK) {
        if (l->comm) (void)(well ? l->nccl.CommDestroy(l->comm) : l->nccl.CommAbort(l->comm));
        cudaFree(l->counts);
        if (entered) mm_cuda_gpu_leave(l->gpu);
    }
    destroy(l, well);
}

static void nccl_abort(comm_link *link, int status) {
    nccl_link *l = (nccl_link *)link;
    l->host->abort(l->host_link, status);
}

/* ---------------------------------------------------------------- sums */

/* Whether the tensor is summed by a reduce-scatter. What smaller tensors cost is their launch. Whether it is asked for
 * all sums or for this rank's does not count, so that both have the same bits. */
static bool is_scattered(const comm_tensor *t) {
    return (t->kind == COMM_SUM || t->kind == COMM_OWN) && t->part >= SCATTERED_LEAST;
}

/* Sends each rank's part of the tensor to all; the rest, which the last rank has, too, unless all have it. */
static mm_status enqueue_parts(const nccl_link *l, const comm_tensor *t, bool rest, ncclComm_t comm,
                               cudaStream_t stream) {
    int32_t *data = t->data, *end = data + l->base.ranks * t->part;
    const int64_t left = t->elems - l->base.ranks * t->part;
    if (t->part > 0)
        MM_TRY(check(l,
                     l->nccl.AllGather(data + l->base.rank * t->part, data, (size_t)t->part, ncclInt32, comm, stream),
                     "AllGather"));
    if (!rest || left == 0) return MM_OK;
    return check(l, l->nccl.Broadcast(end, end, (size_t)left, ncclInt32, l->base.ranks - 1, comm, stream), "Broadcast");
}

static mm_status enqueue_sums(const nccl_link *l, const comm_tensor *t, ncclComm_t comm, cudaStream_t stream) {
    const int64_t scattered = is_scattered(t) ? l->base.ranks * t->part : 0;
    float *data = t->data, *rest = data + scattered;
    if (scattered > 0)
        MM_TRY(check(l,
                     l->nccl.ReduceScatter(data, data + l->base.rank * t->part, (size_t)t->part, ncclFloat32, ncclSum,
                                           comm, stream),
                     "ReduceScatter"));
    if (t->elems == scattered) return MM_OK;
    return check(l,
                 l->nccl.AllReduce(rest, rest, (size_t)(t->elems - scattered), ncclFloat32,
                                   t->kind == COMM_MEAN ? ncclAvg : ncclSum, comm, stream),
                 "AllReduce");
}

static mm_status enqueue_one(const nccl_link *l, const comm_tensor *t, int32_t *counts, ncclComm_t comm,
                             cudaStream_t stream) {
    if (t->kind == COMM_BYTES) return enqueue_parts(l, t, true, comm, stream);
    if (t->kind != COMM_COUNT) return enqueue_sums(l, t, comm, stream);
    return check(l, l->nccl.AllGather(t->data, counts, (size_t)t->elems, ncclInt32, comm, stream), "AllGather");
}

/* Enqueues all tensors as one group, for which NCCL needs few launches. */
static mm_status enqueue_group(const nccl_link *l, const comm_tensor *tensors, int n, ncclComm_t comm,
                               cudaStream_t stream) {
    int64_t at = 0;
    MM_TRY(check(l, l->nccl.GroupStart(), "GroupStart"));
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < n; i++) {
        const comm_tensor *t = &tensors[i];
        if (t->elems == 0) continue;
        if (t->kind == COMM_COUNT && at + t->elems > COUNTS_MOST)
            status = mm_fail(MM_ERR_UNSUPPORTED, "the communicator nccl: more than %d counts at a time", COUNTS_MOST);
        else
            status = enqueue_one(l, t, l->counts + at * l->base.ranks, comm, stream);
        at += t->kind == COMM_COUNT ? t->elems : 0;
    }
    const mm_status ended = check(l, l->nccl.GroupEnd(), "GroupEnd");
    return status == MM_OK ? ended : status;
}

/* Sends the sums that the group before has scattered to all, as another group. */
static mm_status enqueue_gathers(const nccl_link *l, const comm_tensor *tensors, int n, ncclComm_t comm,
                                 cudaStream_t stream) {
    mm_status status = MM_OK;
    int first = 0;
    while (first < n && !(is_scattered(&tensors[first]) && tensors[first].kind == COMM_SUM)) first++;
    if (first == n) return MM_OK;
    MM_TRY(check(l, l->nccl.GroupStart(), "GroupStart"));
    for (int i = first; status == MM_OK && i < n; i++)
        if (is_scattered(&tensors[i]) && tensors[i].kind == COMM_SUM)
            status = enqueue_parts(l, &tensors[i], false, comm, stream);
    const mm_status ended = check(l, l->nccl.GroupEnd(), "GroupEnd");
    return status == MM_OK ? ended : status;
}

static mm_status enqueue_counts(const nccl_link *l, const comm_tensor *tensors, int n, cudaStream_t stream) {
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        const comm_tensor *t = &tensors[i];
        if (t->kind != COMM_COUNT || t->elems == 0) continue;
        MM_TRY(mm_cuda_check(
            comm_nccl_add_counts(stream, l->counts + at * l->base.ranks, l->base.ranks, (int)t->elems, t->data),
            "counts of ranks"));
        at += t->elems;
    }
    return MM_OK;
}

/* Gives the training thread NCCL's communicator, and notes whether the thread uses the communicator from now on. NULL:
 * the communicator was aborted. */
static ncclComm_t use(nccl_link *l, bool used) {
    pthread_mutex_lock(&l->lock);
    ncclComm_t comm = l->comm;
    l->used = used;
    pthread_mutex_unlock(&l->lock);
    return comm;
}

static mm_status nccl_sum(comm_link *link, const comm_tensor *tensors, int n, void *stream) {
    nccl_link *l = (nccl_link *)link;
    bool entered;
    MM_TRY(mm_cuda_gpu_enter(l->gpu, false, &entered));
    ncclComm_t comm = use(l, true);
    mm_status status =
        comm ? enqueue_group(l, tensors, n, comm, stream) : mm_fail(MM_ERR_DEVICE, "the ranks are being ended");
    if (status == MM_OK) status = enqueue_gathers(l, tensors, n, comm, stream);
    use(l, false);
    if (status == MM_OK) status = enqueue_counts(l, tensors, n, stream);
    if (entered) mm_cuda_gpu_leave(l->gpu);
    return status;
}

/* Takes NCCL's communicator from the training thread. If that thread is using the communicator, waits until the thread
 * is done, but at most BLOCKED_MS: then the thread is blocked in NCCL. */
static void give_up(nccl_link *l) {
    const struct timespec nap = {.tv_nsec = 1000000};
    bool used = true;
    for (int ms = 0; used && ms < BLOCKED_MS; ms++) {
        if (ms > 0) nanosleep(&nap, NULL);
        pthread_mutex_lock(&l->lock);
        l->comm = NULL;
        used = l->used;
        pthread_mutex_unlock(&l->lock);
    }
}

/* Fails if a rank has ended or a link is down, and aborts the sums, which would never end. */
static mm_status nccl_look(comm_link *link) {
    nccl_link *l = (nccl_link *)link;
    ncclResult_t result = ncclSuccess;
    mm_status status = l->host->look ? l->host->look(l->host_link) : MM_OK;
    link->lost = l->host_link->lost;
    ncclComm_t comm = l->comm; /* only this thread writes it */
    if (status == MM_OK && comm) {
        status = check(l, l->nccl.CommGetAsyncError(comm, &result), "CommGetAsyncError");
        if (status == MM_OK) status = check(l, result, "AllReduce");
    }
    bool entered;
    if (status == MM_OK || !comm) return status;
    mm_failure failure;
    mm_failure_save(&failure, status);
    give_up(l);
    if (mm_cuda_gpu_enter(l->gpu, true, &entered) == MM_OK) {
        (void)l->nccl.CommAbort(comm);
        if (entered) mm_cuda_gpu_leave(l->gpu);
    }
    return mm_failure_restore(&failure);
}

static mm_status nccl_share(comm_link *link, int slot, int32_t *data, const int *counts, const int *places) {
    const nccl_link *l = (const nccl_link *)link;
    return l->host->share(l->host_link, slot, data, counts, places);
}

static mm_status nccl_test(comm_link *link, int slot, bool *done_out) {
    const nccl_link *l = (const nccl_link *)link;
    const mm_status status = l->host->test(l->host_link, slot, done_out);
    link->lost = l->host_link->lost;
    return status;
}

const comm_backend comm_nccl = {
    .name = "nccl",
    .probe = nccl_probe,
    .open = nccl_open,
    .close = nccl_close,
    .abort = nccl_abort,
    .share = nccl_share,
    .test = nccl_test,
    .sum = nccl_sum,
    .look = nccl_look,
};
