/* SPDX-License-Identifier: MIT */
/* The backend local, for ranks that mm itself has started: they talk through inherited sockets between rank 0 and each
 * other rank. Rank 0 collects what all ranks have, and sends all of it to each. MM_RANKS in the environment names rank
 * and sockets: "RANK/RANKS:FD,FD,..." (comm_local_start).
 *
 * Only one transfer may be under way; another is refused. It moves no gradients: through it the backend nccl's ranks
 * find each other, and notice that one has ended. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nets/comm/comm_backend.h"

typedef struct local_link {
    comm_link base;
    int *sockets; /* rank 0 has one socket per rank, -1 for itself; every other rank has one, to rank 0 */
    /* The transfer under way. `received` and `sent` count the bytes that each socket has received and sent so far. */
    char *data; /* NULL: no transfer is under way */
    int slot;
    size_t bytes; /* of all ranks' data */
    const int *counts, *places;
    size_t *received, *sent;
} local_link;

static int n_sockets(const local_link *l) { return l->base.rank == 0 ? l->base.ranks : 1; }

static void destroy(local_link *l) {
    for (int i = 0; l->sockets && i < n_sockets(l); i++)
        if (l->sockets[i] >= 0) close(l->sockets[i]);
    free(l->sockets);
    free(l->received);
    free(l);
}

static mm_status read_sockets(local_link *l, const char *text) {
    const int n = n_sockets(l);
    l->sockets = malloc((size_t)n * sizeof *l->sockets);
    l->received = calloc(2 * (size_t)n, sizeof *l->received);
    if (!l->sockets || !l->received) return mm_fail(MM_ERR_NOMEM, "out of memory for the ranks");
    l->sent = l->received + n;
    for (int i = 0; i < n; i++) l->sockets[i] = -1;
    for (int i = l->base.rank == 0; i < n; i++) {
        char *end;
        l->sockets[i] = (int)strtol(text, &end, 10);
        if (end == text || fcntl(l->sockets[i], F_SETFD, FD_CLOEXEC) != 0) {
            l->sockets[i] = -1;
            return mm_fail(MM_ERR_INVALID, COMM_LOCAL_VARIABLE ": was not set by mm");
        }
        text = end + (*end == ',');
    }
    return MM_OK;
}

static mm_status local_open(const comm_config *config, comm_link **link_out) {
    const char *text = getenv(COMM_LOCAL_VARIABLE);
    int rank, ranks, length = 0;
    (void)config;
    if (!text || sscanf(text, "%d/%d:%n", &rank, &ranks, &length) != 2 || length == 0 || ranks < 1 || rank < 0 ||
        rank >= ranks || ranks > COMM_RANKS_MOST)
        return mm_fail(MM_ERR_INVALID, "this process is not a rank that mm has started");
    local_link *l = calloc(1, sizeof *l);
    if (!l) return mm_fail(MM_ERR_NOMEM, "out of memory for the ranks");
    l->base = (comm_link){.rank = rank, .ranks = ranks};
    mm_status status = read_sockets(l, text + length);
    if (status != MM_OK) {
        destroy(l);
        return status;
    }
    unsetenv(COMM_LOCAL_VARIABLE);
    *link_out = &l->base;
    return MM_OK;
}

static void local_close(comm_link *link, bool well) {
    (void)well;
    destroy((local_link *)link);
}

/* Ends only this process: the other ranks notice that its sockets are closed. */
static void local_abort(comm_link *link, int status) {
    (void)link;
    _exit(status);
}

static mm_status local_share(comm_link *link, int slot, int32_t *data, const int *counts, const int *places) {
    local_link *l = (local_link *)link;
    if (l->data) return mm_fail(MM_ERR_ORDER, "ranks that mm has started make one transfer at a time");
    l->slot = slot;
    l->data = (char *)data;
    l->counts = counts;
    l->places = places;
    l->bytes = 4 * (size_t)(places[link->ranks - 1] + counts[link->ranks - 1]);
    memset(l->received, 0, 2 * (size_t)n_sockets(l) * sizeof *l->received);
    return MM_OK;
}

/* The rank at the socket's other end. */
static int other(const local_link *l, int socket) { return l->base.rank == 0 ? socket : 0; }

static mm_status lost(local_link *l, int socket) {
    l->base.lost = true;
    return mm_fail(MM_ERR_DEVICE, "rank %d has ended", other(l, socket));
}

/* Sends or receives as much as it can without blocking. */
static mm_status go_on(local_link *l, int socket, bool sends, char *data, size_t bytes, size_t *at) {
    while (*at < bytes) {
        const ssize_t n = sends ? send(l->sockets[socket], data + *at, bytes - *at, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : recv(l->sockets[socket], data + *at, bytes - *at, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return MM_OK;
        if (n <= 0) return lost(l, socket);
        *at += (size_t)n;
    }
    return MM_OK;
}

/* Rank 0 receives each rank's part, then sends all parts to each. */
static mm_status test_root(local_link *l, bool *done_out) {
    bool all = true;
    for (int r = 1; r < l->base.ranks; r++) {
        const size_t bytes = 4 * (size_t)l->counts[r];
        MM_TRY(go_on(l, r, false, l->data + 4 * (size_t)l->places[r], bytes, &l->received[r]));
        all &= l->received[r] == bytes;
    }
    *done_out = all;
    for (int r = 1; all && r < l->base.ranks; r++) {
        MM_TRY(go_on(l, r, true, l->data, l->bytes, &l->sent[r]));
        *done_out &= l->sent[r] == l->bytes;
    }
    return MM_OK;
}

/* Another rank sends its part, then receives all parts. */
static mm_status test_other(local_link *l, bool *done_out) {
    const size_t own = 4 * (size_t)l->counts[l->base.rank];
    MM_TRY(go_on(l, 0, true, l->data + 4 * (size_t)l->places[l->base.rank], own, &l->sent[0]));
    if (l->sent[0] == own) MM_TRY(go_on(l, 0, false, l->data, l->bytes, &l->received[0]));
    *done_out = l->sent[0] == own && l->received[0] == l->bytes;
    return MM_OK;
}

static mm_status local_test(comm_link *link, int slot, bool *done_out) {
    local_link *l = (local_link *)link;
    *done_out = !l->data || slot != l->slot;
    if (*done_out) return MM_OK;
    MM_TRY(link->rank == 0 ? test_root(l, done_out) : test_other(l, done_out));
    if (*done_out) l->data = NULL;
    return MM_OK;
}

static mm_status local_look(comm_link *link) {
    local_link *l = (local_link *)link;
    char byte;
    for (int i = link->rank == 0; i < n_sockets(l); i++)
        if (recv(l->sockets[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return lost(l, i);
    return MM_OK;
}

const comm_backend comm_local = {
    .name = "local",
    .open = local_open,
    .close = local_close,
    .abort = local_abort,
    .share = local_share,
    .test = local_test,
    .look = local_look,
};

const comm_backend *comm_host_backend(void) {
#ifdef COMM_MPI
    if (!getenv(COMM_LOCAL_VARIABLE)) return &comm_mpi;
#endif
    return &comm_local;
}

/* ---------------------------------------------------------------- starting */

static void close_all(const int *ends, int n) {
    for (int i = 0; i < n; i++)
        if (ends[i] >= 0) close(ends[i]);
}

mm_status comm_local_start(int ranks, void (*become)(void *ctx, int rank), void *ctx, pid_t *processes_out) {
    /* Sockets: ends[2 r] is rank 0's end of the pair to rank r, ends[2 r + 1] rank r's. */
    int *ends = malloc(2 * (size_t)ranks * sizeof *ends), started = 0;
    char *text = malloc(32 + 12 * (size_t)ranks);
    mm_status status = ends && text ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory to start ranks");
    for (int i = 0; ends && i < 2 * ranks; i++) ends[i] = -1;
    for (int r = 1; status == MM_OK && r < ranks; r++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, &ends[2 * r]) != 0)
            status = mm_fail(MM_ERR_NOMEM, "no socket can be made for rank %d: %s", r, strerror(errno));
    for (; status == MM_OK && started < ranks; started++) {
        int length = sprintf(text, "%d/%d:", started, ranks);
        for (int r = 1; r < ranks; r++)
            if (started == 0 || started == r) length += sprintf(text + length, "%d,", ends[2 * r + (started > 0)]);
        const pid_t child = processes_out[started] = fork();
        if (child < 0) status = mm_fail(MM_ERR_NOMEM, "rank %d cannot be started: %s", started, strerror(errno));
        if (child < 0) break;
        if (child > 0) continue;
        for (int i = 2; i < 2 * ranks; i++)
            if (started == 0 ? i % 2 == 1 : i != 2 * started + 1) close(ends[i]);
        setenv(COMM_LOCAL_VARIABLE, text, 1);
        become(ctx, started);
        _exit(127);
    }
    for (int r = started; r < ranks; r++) processes_out[r] = -1;
    if (ends) close_all(ends, 2 * ranks);
    free(ends);
    free(text);
    return status;
}

int comm_local_rank(int rank) {
    /* Open MPI sets it; without it all ranks are taken to be on one machine */
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    return text ? atoi(text) : rank;
}
