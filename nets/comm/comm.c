/* SPDX-License-Identifier: MIT */
/* A communicator: its thread, which works through all-reduces and votes, and the calls that hand these to it. */
#include "nets/comm/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mm/device/contract/clock.h"
#include "mm/device/host/thread.h"
#include "nets/comm/comm_chunks.h"

enum {
    /* How long the thread sleeps at a time while nothing arrives: NAP_LEAST_NS at first, then twice as long each time,
     * up to the most. */
    NAP_LEAST_NS = 10000,
    NAP_MOST_NS = 200000,
    /* Once comm_config.ended is set, the communicator fails if nothing arrives for so long. Starters kill ranks sooner
     * (mpirun after a second or two), so ranks that are being ended report no failure. */
    ENDED_MS = 3000,
    /* The same once comm_config.interrupted is set: at least INTERRUPTED_MS, and TIMES the longest wait for another
     * rank so far, since an iteration may take long. Chosen. */
    INTERRUPTED_MS = 10000,
    TIMES = 3,
    LOOK_MS = 100, /* between two calls of comm_backend.look */
};

static const comm_backend *const backends[] = {
#ifdef COMM_MPI
    &comm_mpi,
#endif
#ifdef COMM_NCCL
    &comm_nccl,
#endif
};
enum { BACKENDS = sizeof backends / sizeof *backends };

/* A vote (comm_agree): asked for by the caller, under way on the thread, counted. */
typedef enum vote_state { VOTE_NONE, VOTE_ASKED, VOTE_UNDER_WAY, VOTE_COUNTED } vote_state;

struct comm {
    const comm_backend *backend;
    comm_config config;
    comm_link *link;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* read and written under the lock */
    comm_job *jobs; /* a ring: job i is at i % room */
    int64_t room, begun, done, awaited;
    vote_state vote;
    bool opened, stops, lost;
    int aborts; /* exit status of comm_abort; 0: it was not called */
    mm_failure failure;
    comm_stats stats;
    /* used only by the thread */
    comm_chunks sums;
    int64_t job;        /* the job that is cut into chunks next */
    int64_t longest_ns; /* the longest time in which nothing arrived, while something was waited for */
    /* The votes of all ranks. The caller of comm_agree writes its own before it asks, and reads all once they are
     * counted. */
    int32_t *votes;
    int *vote_counts, *vote_places;
};

/* ---------------------------------------------------------------- the thread */

/* Gets the next job to be cut into chunks. False: there is none, or no room for another chunk. */
static bool take_job(comm *m, comm_job *job_out) {
    if (!comm_chunks_have_room(&m->sums)) return false;
    pthread_mutex_lock(&m->lock);
    const bool is = m->job < m->begun;
    if (is) *job_out = m->jobs[m->job % m->room];
    pthread_mutex_unlock(&m->lock);
    return is;
}

static void finish_job(comm *m) {
    pthread_mutex_lock(&m->lock);
    m->jobs[m->done++ % m->room].done_ns = mm_now_ns();
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* Begins the next chunk, and takes the chunks that are under way to their next stage. */
static mm_status go_on(comm *m, bool *moved_out) {
    comm_job next;
    bool last = false, done = false;
    *moved_out = take_job(m, &next);
    if (*moved_out) MM_TRY(comm_chunks_begin(&m->sums, &next, &last));
    m->job += last;
    MM_TRY(comm_chunks_go_on(&m->sums, moved_out, &done));
    if (done) finish_job(m);
    return MM_OK;
}

static vote_state vote_of(comm *m) {
    pthread_mutex_lock(&m->lock);
    const vote_state state = m->vote;
    pthread_mutex_unlock(&m->lock);
    return state;
}

static void set_vote(comm *m, vote_state state) {
    pthread_mutex_lock(&m->lock);
    m->vote = state;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static bool is_open(vote_state state) { return state == VOTE_ASKED || state == VOTE_UNDER_WAY; }

static mm_status go_on_voting(comm *m, bool *moved_out) {
    const vote_state state = vote_of(m);
    bool done = false;
    if (state == VOTE_ASKED) {
        MM_TRY(m->backend->share(m->link, COMM_VOTES, m->votes, m->vote_counts, m->vote_places));
        set_vote(m, VOTE_UNDER_WAY);
        *moved_out = true;
    } else if (state == VOTE_UNDER_WAY) {
        MM_TRY(m->backend->test(m->link, COMM_VOTES, &done));
        if (done) set_vote(m, VOTE_COUNTED);
        *moved_out |= done;
    }
    return MM_OK;
}

static void nap(int64_t ns) {
    const struct timespec time = {.tv_nsec = ns};
    nanosleep(&time, NULL);
}

static bool is_set(const volatile sig_atomic_t *flag) { return flag && *flag; }

/* Checks that something still arrives if the ranks shall end. quiet_ns: for how long nothing has arrived since that
 * was asked for. */
static mm_status check_progress(const comm *m, int64_t quiet_ns) {
    const bool ended = is_set(m->config.ended);
    int64_t most_ns = (ended ? ENDED_MS : INTERRUPTED_MS) * INT64_C(1000000);
    if (!ended && TIMES * m->longest_ns > most_ns) most_ns = TIMES * m->longest_ns;
    if (quiet_ns <= most_ns) return MM_OK;
    return mm_fail(MM_ERR_DEVICE, "%s, and for %d s nothing came from other ranks%s",
                   ended ? "terminated" : "interrupted", (int)(most_ns / 1000000000),
                   ended ? "" : ": one of them hangs");
}

/* Works until all jobs and votes are done. */
static mm_status drain(comm *m, int64_t begun) {
    int64_t ns = NAP_LEAST_NS, moved_ns = mm_now_ns(), asked_ns = moved_ns;
    while (m->job < begun || !comm_chunks_are_done(&m->sums) || is_open(vote_of(m))) {
        bool moved;
        MM_TRY(go_on(m, &moved));
        MM_TRY(go_on_voting(m, &moved));
        pthread_mutex_lock(&m->lock);
        const bool aborts = m->aborts != 0;
        begun = m->begun;
        pthread_mutex_unlock(&m->lock);
        if (aborts) return mm_fail(MM_ERR_DEVICE, "the ranks are being ended");
        const int64_t now = mm_now_ns();
        if (moved && now - moved_ns > m->longest_ns) m->longest_ns = now - moved_ns;
        if (moved) moved_ns = now;
        if (moved || (!is_set(m->config.ended) && !is_set(m->config.interrupted))) asked_ns = now;
        MM_TRY(check_progress(m, now - asked_ns));
        if (!moved) nap(ns);
        ns = moved ? NAP_LEAST_NS : ns * 2 > NAP_MOST_NS ? NAP_MOST_NS : ns * 2;
    }
    return MM_OK;
}

static void keep_failure(comm *m, mm_status status) {
    pthread_mutex_lock(&m->lock);
    if (status != MM_OK && m->failure.status == MM_OK) mm_failure_save(&m->failure, status);
    m->lost = m->link && m->link->lost;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* Sleeps until something changes; now and then calls the backend's `look`. Called under the lock. */
static void rest(comm *m) {
    struct timespec until;
    if (!m->backend->look || m->failure.status != MM_OK) {
        pthread_cond_wait(&m->changed, &m->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&m->changed, &m->lock, &until) == 0) return;
    pthread_mutex_unlock(&m->lock);
    const mm_status status = m->backend->look(m->link);
    pthread_mutex_lock(&m->lock);
    if (status == MM_OK) return;
    mm_failure_save(&m->failure, status);
    m->lost = m->link->lost;
    pthread_cond_broadcast(&m->changed);
}

static void work(comm *m) {
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (m->job == m->begun && !is_open(m->vote) && !m->stops && m->aborts == 0) rest(m);
        const int64_t begun = m->begun, since = mm_now_ns();
        if (m->aborts != 0 || (m->job == begun && !is_open(m->vote))) break;
        pthread_mutex_unlock(&m->lock);
        const mm_status status = drain(m, begun);
        if (status != MM_OK) keep_failure(m, status);
        pthread_mutex_lock(&m->lock);
        m->stats.busy_ns += mm_now_ns() - since;
        while (status != MM_OK && !m->stops && m->aborts == 0) pthread_cond_wait(&m->changed, &m->lock);
        if (status != MM_OK) break;
    }
    pthread_mutex_unlock(&m->lock);
}

static mm_status make_votes(comm *m) {
    const size_t ranks = (size_t)m->link->ranks;
    m->votes = calloc(3 * ranks, sizeof *m->votes);
    if (!m->votes) return mm_fail(MM_ERR_NOMEM, "out of memory for the ranks");
    m->vote_counts = m->votes + ranks;
    m->vote_places = m->vote_counts + ranks;
    for (int r = 0; r < m->link->ranks; r++) {
        m->vote_counts[r] = 1;
        m->vote_places[r] = r;
    }
    return MM_OK;
}

static void *run(void *arg) {
    comm *m = arg;
    mm_thread_run_soon();
    mm_status status = m->backend->open(&m->config, &m->link);
    if (status == MM_OK) status = comm_chunks_init(&m->sums, m->backend, m->link, m->config.at_root);
    if (status == MM_OK) status = make_votes(m);
    keep_failure(m, status);
    pthread_mutex_lock(&m->lock);
    m->opened = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (status == MM_OK) work(m);
    if (!m->link) return NULL;
    pthread_mutex_lock(&m->lock);
    const int aborts = m->aborts;
    const bool well = m->failure.status == MM_OK;
    pthread_mutex_unlock(&m->lock);
    if (aborts != 0) m->backend->abort(m->link, aborts);
    m->backend->close(m->link, well);
    return NULL;
}

/* ---------------------------------------------------------------- a communicator's life */

static mm_status find_backend(const char *name, const comm_backend **backend_out) {
    for (int i = 0; i < BACKENDS; i++)
        if (strcmp(backends[i]->name, name) == 0) {
            *backend_out = backends[i];
            return MM_OK;
        }
    if (strcmp(name, "mpi") == 0)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "this build has no communicator mpi: it was built where there is no MPI (Debian's "
                       "openmpi-bin and libopenmpi-dev; then build again)");
    if (strcmp(name, "nccl") == 0)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "this build has no communicator nccl: it was built without CUDA, or where there is no "
                       "nccl.h (NVIDIA's libnccl-dev; then build again)");
    return mm_fail(MM_ERR_NOT_FOUND, "unknown communicator '%s': must be mpi or nccl", name);
}

static void destroy(comm *m) {
    comm_chunks_fini(&m->sums);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free(m->jobs);
    free(m->votes);
    free(m);
}

/* Blocks all signals on the thread: they are for the caller's threads. */
static int start_thread(comm *m) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&m->thread, NULL, run, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

mm_status comm_open(const comm_config *config, comm **comm_out) {
    const comm_backend *backend = NULL; /* the compiler does not see that find_backend sets it or fails */
    MM_TRY(find_backend(config->backend, &backend));
    return comm_open_on(backend, config, comm_out);
}

mm_status comm_probe(const comm_config *config, int ranks) {
    const comm_backend *backend = NULL; /* the compiler does not see that find_backend sets it or fails */
    MM_TRY(find_backend(config->backend, &backend));
    return backend->probe ? backend->probe(config, ranks) : MM_OK;
}

mm_status comm_open_on(const comm_backend *backend, const comm_config *config, comm **comm_out) {
    enum { ROOM = 64 };
    comm *m = calloc(1, sizeof *m);
    if (m) m->jobs = malloc(ROOM * sizeof *m->jobs);
    if (!m || !m->jobs) {
        free(m);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the ranks");
    }
    m->backend = backend;
    m->config = *config;
    m->room = ROOM;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    if (start_thread(m) != 0) {
        destroy(m);
        return mm_fail(MM_ERR_NOMEM, "no thread can be started for the ranks");
    }
    pthread_mutex_lock(&m->lock);
    while (!m->opened) pthread_cond_wait(&m->changed, &m->lock);
    const mm_failure failure = m->failure;
    pthread_mutex_unlock(&m->lock);
    if (failure.status != MM_OK) {
        comm_close(m);
        return mm_failure_restore(&failure);
    }
    *comm_out = m;
    return MM_OK;
}

void comm_close(comm *m) {
    if (!m) return;
    pthread_mutex_lock(&m->lock);
    m->stops = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    destroy(m);
}

void comm_abort(comm *m, int status) {
    enum { SECONDS = 5 };
    pthread_mutex_lock(&m->lock);
    m->aborts = status;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    sleep(SECONDS); /* until the backend ends this process, too */
    _exit(status);
}

int comm_rank(const comm *m) { return m->link->rank; }
int comm_size(const comm *m) { return m->link->ranks; }
int comm_gpu(const comm *m) { return m->backend->sum ? m->link->gpu : -1; }

/* ---------------------------------------------------------------- what is begun */

/* Makes room for one more job in the ring. False: memory ran out. Called under the lock. */
static bool make_room(comm *m) {
    if (m->begun - m->awaited < m->room) return true;
    comm_job *more = malloc(2 * (size_t)m->room * sizeof *more);
    if (!more) return false;
    for (int64_t i = m->awaited; i < m->begun; i++) more[i % (2 * m->room)] = m->jobs[i % m->room];
    free(m->jobs);
    m->jobs = more;
    m->room *= 2;
    return true;
}

void comm_allreduce_begin(comm *m, comm_op kind, void *data, int64_t elems) {
    pthread_mutex_lock(&m->lock);
    /* After a failure no all-reduce is begun: comm_allreduce_wait could take it for an earlier one that was lost. */
    if (m->failure.status == MM_OK && !make_room(m))
        mm_failure_save(&m->failure, mm_fail(MM_ERR_NOMEM, "out of memory to add up gradients"));
    if (m->failure.status == MM_OK) {
        m->jobs[m->begun++ % m->room] = (comm_job){.kind = kind, .data = data, .elems = elems};
        m->stats.begun++;
        m->stats.bytes += elems * (int64_t)sizeof(int32_t);
    }
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

mm_status comm_allreduce_wait(comm *m, int64_t *done_ns_out) {
    pthread_mutex_lock(&m->lock);
    const int64_t began = mm_now_ns();
    while (m->done <= m->awaited && m->failure.status == MM_OK) pthread_cond_wait(&m->changed, &m->lock);
    m->stats.await_ns += mm_now_ns() - began;
    mm_status status = MM_OK;
    if (m->done > m->awaited) {
        if (done_ns_out) *done_ns_out = m->jobs[m->awaited % m->room].done_ns;
        m->awaited++;
    } else
        status = mm_failure_restore(&m->failure);
    pthread_mutex_unlock(&m->lock);
    return status;
}

mm_status comm_agree(comm *m, int32_t *word) {
    pthread_mutex_lock(&m->lock);
    m->votes[m->link->rank] = *word;
    m->vote = VOTE_ASKED;
    pthread_cond_broadcast(&m->changed);
    while (m->vote != VOTE_COUNTED && m->failure.status == MM_OK) pthread_cond_wait(&m->changed, &m->lock);
    mm_status status = MM_OK;
    if (m->vote == VOTE_COUNTED) {
        *word = 0;
        for (int r = 0; r < m->link->ranks; r++) *word += m->votes[r];
    } else
        status = mm_failure_restore(&m->failure);
    m->vote = VOTE_NONE;
    pthread_mutex_unlock(&m->lock);
    return status;
}

mm_status comm_check(comm *m) {
    pthread_mutex_lock(&m->lock);
    const mm_status status = mm_failure_restore(&m->failure);
    pthread_mutex_unlock(&m->lock);
    return status;
}

bool comm_lost(comm *m) {
    pthread_mutex_lock(&m->lock);
    const bool is = m->lost;
    pthread_mutex_unlock(&m->lock);
    return is;
}

mm_status comm_allreduce_enqueue(comm *m, const comm_tensor *tensors, int n, void *stream) {
    if (!m->backend->sum)
        return mm_fail(MM_ERR_UNSUPPORTED, "the communicator %s cannot all-reduce on a GPU", m->backend->name);
    MM_TRY(comm_check(m));
    pthread_mutex_lock(&m->lock);
    m->stats.begun += n;
    for (int i = 0; i < n; i++) m->stats.bytes += tensors[i].elems * (int64_t)sizeof(int32_t);
    pthread_mutex_unlock(&m->lock);
    return m->backend->sum(m->link, tensors, n, stream);
}

/* Whether every all-reduce that was begun has been awaited. Also true after a failure: the caller's comm_allreduce_wait
 * then returns the failure. */
static bool all_is_awaited(comm *m) {
    pthread_mutex_lock(&m->lock);
    const bool is = m->awaited == m->begun || m->failure.status != MM_OK;
    pthread_mutex_unlock(&m->lock);
    return is;
}

mm_status comm_gather(comm *m, const void *mine, int64_t bytes, void *all_out) {
    if (!all_is_awaited(m)) return mm_fail(MM_ERR_ORDER, "ranks cannot gather while an all-reduce is under way");
    const int64_t elems = (bytes + 3) / 4, ranks = m->link->ranks;
    int32_t *all = calloc((size_t)(elems * ranks), sizeof *all);
    if (!all) return mm_fail(MM_ERR_NOMEM, "out of memory to gather from the ranks");
    memcpy(all + elems * m->link->rank, mine, (size_t)bytes);
    comm_allreduce_begin(m, COMM_BYTES, all, elems * ranks);
    mm_status status = comm_allreduce_wait(m, NULL);
    if (status != MM_OK) return status; /* does not free `all`, which the backend may still use */
    for (int64_t r = 0; r < ranks; r++) memcpy((char *)all_out + r * bytes, all + r * elems, (size_t)bytes);
    free(all);
    return MM_OK;
}

void comm_stats_get(comm *m, comm_stats *stats_out) {
    pthread_mutex_lock(&m->lock);
    *stats_out = m->stats;
    pthread_mutex_unlock(&m->lock);
}
