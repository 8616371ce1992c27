/* SPDX-License-Identifier: MIT */
/* The backend mpi. Opening it loads MPI and looks up its functions in one table, so that a process that does not use
 * them runs where there is no MPI.
 *
 * Transfers are MPI's non-blocking collectives, which all ranks must begin in the same order on each MPI communicator.
 * Scatters, shares and votes each have an MPI communicator, so that a chunk can be shared while later ones are
 * scattered. */
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "nets/comm/comm_backend.h"

#define CALLS(f)                                                                                                       \
    f(Init_thread) f(Finalize) f(Comm_rank) f(Comm_size) f(Comm_dup) f(Comm_free) f(Comm_set_errhandler) f(Ialltoallv) \
        f(Iallgatherv) f(Igather) f(Ibcast) f(Test) f(Error_string) f(Abort)

typedef struct mpi_api {
#define POINTER(name) __typeof__(MPI_##name) *name;
    CALLS(POINTER)
#undef POINTER
    MPI_Comm world;
    MPI_Datatype word; /* MPI's type for an element of four bytes */
    MPI_Errhandler returns;
} mpi_api;

enum { SCATTERS, SHARES, VOTES, COMMS };

typedef struct mpi_link {
    comm_link base;
    void *library;
    mpi_api mpi;
    MPI_Comm comm[COMMS];
    MPI_Request request[COMM_SLOTS];
} mpi_link;

static mm_status find(void *library, const char *name, void **symbol_out) {
    *symbol_out = dlsym(library, name);
    return *symbol_out ? MM_OK : mm_fail(MM_ERR_UNSUPPORTED, "the communicator mpi: the MPI here has no %s", name);
}

/* Open MPI's constants are addresses in its library; MPICH's and its kin's are numbers. */
static mm_status find_constants(void *library, mpi_api *mpi) {
#ifdef OPEN_MPI
    MM_TRY(find(library, "ompi_mpi_comm_world", (void **)&mpi->world));
    MM_TRY(find(library, "ompi_mpi_int", (void **)&mpi->word));
    return find(library, "ompi_mpi_errors_return", (void **)&mpi->returns);
#else
    (void)library;
    mpi->world = MPI_COMM_WORLD;
    mpi->word = MPI_INT;
    mpi->returns = MPI_ERRORS_RETURN;
    return MM_OK;
#endif
}

/* MPI is loaded globally, since its plugins look for its symbols. It is never unloaded: it leaves threads and handlers
 * behind. */
static mm_status load(mpi_link *l) {
#ifdef OPEN_MPI
    static const char *const names[] = {"libmpi.so.40"};
#else
    static const char *const names[] = {"libmpi.so.12", "libmpich.so.12"};
#endif
    for (size_t i = 0; !l->library && i < sizeof names / sizeof *names; i++)
        l->library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    if (!l->library)
        return mm_fail(MM_ERR_UNSUPPORTED, "the communicator mpi: %s (Debian's openmpi-bin has it)", dlerror());
#define FIND(name) MM_TRY(find(l->library, "MPI_" #name, (void **)&l->mpi.name));
    CALLS(FIND)
#undef FIND
    return find_constants(l->library, &l->mpi);
}

static mm_status check(const mpi_link *l, int error, const char *call) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (error == MPI_SUCCESS) return MM_OK;
    l->mpi.Error_string(error, text, &length);
    return mm_fail(MM_ERR_DEVICE, "MPI_%s: %s", call, text);
}

static mm_status join(mpi_link *l) {
    const mpi_api *mpi = &l->mpi;
    int level;
    MM_TRY(check(l, mpi->Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "Init_thread"));
    if (level < MPI_THREAD_SERIALIZED)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "the communicator mpi: this MPI has no MPI_THREAD_SERIALIZED, so a thread of mm cannot call it");
    /* MPI's world communicator gets the handler, too, since the errors of requests go there. */
    MM_TRY(check(l, mpi->Comm_set_errhandler(mpi->world, mpi->returns), "Comm_set_errhandler"));
    for (int i = 0; i < COMMS; i++) {
        MM_TRY(check(l, mpi->Comm_dup(mpi->world, &l->comm[i]), "Comm_dup"));
        MM_TRY(check(l, mpi->Comm_set_errhandler(l->comm[i], mpi->returns), "Comm_set_errhandler"));
    }
    MM_TRY(check(l, mpi->Comm_rank(mpi->world, &l->base.rank), "Comm_rank"));
    MM_TRY(check(l, mpi->Comm_size(mpi->world, &l->base.ranks), "Comm_size"));
    if (l->base.ranks <= COMM_RANKS_MOST) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "%d ranks: at most %d are possible", l->base.ranks, COMM_RANKS_MOST);
}

static mm_status mpi_open(const comm_config *config, comm_link **link_out) {
    (void)config;
    mpi_link *l = calloc(1, sizeof *l);
    if (!l) return mm_fail(MM_ERR_NOMEM, "out of memory for the communicator mpi");
    mm_status status = load(l);
    if (status == MM_OK) status = join(l);
    if (status != MM_OK) {
        free(l);
        return status;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* if mpirun itself is killed, it ends no rank */
    *link_out = &l->base;
    return MM_OK;
}

/* Open MPI's mpirun refuses to run as root, and says so in sixteen lines. */
static mm_status mpi_probe(const comm_config *config, int ranks) {
    (void)config;
#ifdef OPEN_MPI
    const bool allowed = getenv("OMPI_ALLOW_RUN_AS_ROOT") && getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    if (ranks > 1 && geteuid() == 0 && !allowed)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "the communicator mpi: mpirun does not run as root, which you are, unless the environment has "
                       "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
#else
    (void)ranks;
#endif
    return MM_OK;
}

static void mpi_close(comm_link *link, bool well) {
    mpi_link *l = (mpi_link *)link;
    for (int i = 0; well && i < COMMS; i++) l->mpi.Comm_free(&l->comm[i]);
    if (well) l->mpi.Finalize();
    free(l);
}

static void mpi_abort(comm_link *link, int status) {
    mpi_link *l = (mpi_link *)link;
    l->mpi.Abort(l->mpi.world, status);
}

static mm_status mpi_scatter(comm_link *link, int slot, const int32_t *data, const int *counts, const int *places,
                             const int *received_counts, const int *received_places, int32_t *received) {
    mpi_link *l = (mpi_link *)link;
    return check(l,
                 l->mpi.Ialltoallv(data, counts, places, l->mpi.word, received, received_counts, received_places,
                                   l->mpi.word, l->comm[SCATTERS], &l->request[slot]),
                 "Ialltoallv");
}

static mm_status mpi_collect(comm_link *link, int slot, const int32_t *data, int elems, int32_t *received) {
    mpi_link *l = (mpi_link *)link;
    return check(
        l,
        l->mpi.Igather(data, elems, l->mpi.word, received, elems, l->mpi.word, 0, l->comm[SCATTERS], &l->request[slot]),
        "Igather");
}

static mm_status mpi_share(comm_link *link, int slot, int32_t *data, const int *counts, const int *places) {
    mpi_link *l = (mpi_link *)link;
    return check(l,
                 l->mpi.Iallgatherv(MPI_IN_PLACE, 0, l->mpi.word, data, counts, places, l->mpi.word,
                                    l->comm[slot == COMM_VOTES ? VOTES : SHARES], &l->request[slot]),
                 "Iallgatherv");
}

static mm_status mpi_spread(comm_link *link, int slot, int32_t *data, int elems) {
    mpi_link *l = (mpi_link *)link;
    return check(l, l->mpi.Ibcast(data, elems, l->mpi.word, 0, l->comm[SHARES], &l->request[slot]), "Ibcast");
}

static mm_status mpi_test(comm_link *link, int slot, bool *done_out) {
    mpi_link *l = (mpi_link *)link;
    int done = 0;
    MM_TRY(check(l, l->mpi.Test(&l->request[slot], &done, MPI_STATUS_IGNORE), "Test"));
    *done_out = done != 0;
    return MM_OK;
}

const comm_backend comm_mpi = {
    .name = "mpi",
    .probe = mpi_probe,
    .open = mpi_open,
    .close = mpi_close,
    .abort = mpi_abort,
    .scatter = mpi_scatter,
    .collect = mpi_collect,
    .share = mpi_share,
    .spread = mpi_spread,
    .test = mpi_test,
};
