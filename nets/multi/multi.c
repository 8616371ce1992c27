/* The thread that does what ranks do with each other; the sums. */
#include "nets/multi/multi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mm/device/clock.h"
#include "nets/multi/multi_engine.h"

enum {
    /* Elements are moved in chunks, so that one is added up while others travel, and what is received takes little memory.
     * Chosen: 4 MiB. */
    CHUNK_ELEMS = 1 << 20,
    /* The thread sleeps so long at least, and at most, while nothing comes. */
    NAP_LEAST_NS = 10000,
    NAP_MOST_NS = 200000,
    ENDED_MS = 1000, /* multi_config.ended */
    LOOK_MS = 100,   /* between two looks at whether ranks are there (multi_engine.look) */
};

static const multi_engine *const engines[] = {
#ifdef MULTI_MPI
    &multi_mpi,
#endif
#ifdef MULTI_NCCL
    &multi_nccl,
#endif
};
enum { ENGINES = sizeof engines / sizeof *engines };

/* Something that was begun. MULTI_BYTES: data has room for all ranks' elements, and this one's at its place. */
typedef struct job {
    multi_kind kind;
    int32_t *data;
    int64_t elems;
} job;

/* A chunk of a job under way. */
typedef struct chunk {
    multi_kind kind;
    int32_t *data;
    int elems;
    bool last;            /* of its job */
    int *counts, *places; /* per rank: its part */
    int *sent_counts, *received_counts, *received_places;
    int32_t *received;
} chunk;

struct multi {
    const multi_engine *engine;
    multi_config config;
    multi_link *link;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    job *jobs; /* a ring: job i is at i % room */
    int64_t room, begun, done, awaited;
    bool opened, stops, lost;
    int aborts; /* the exit status; 0: it does not */
    mm_failure failure;
    multi_stats stats;
    /* the thread's own */
    chunk chunks[MULTI_TRANSFERS];
    int64_t job, at;              /* what is cut next: that job, from that element on */
    int64_t cut, added, finished; /* chunks that were begun; that were added up and go to all; that are done */
};

const char *multi_list(int i, const char **summary_out) {
    if (i < 0 || i >= ENGINES) return NULL;
    if (summary_out) *summary_out = engines[i]->summary;
    return engines[i]->name;
}

/* ---------------------------------------------------------------- chunks */

static void split(const multi *m, int elems, int *counts, int *places) {
    const int ranks = m->link->ranks;
    for (int r = 0; r < ranks; r++) {
        places[r] = (int)((int64_t)elems * r / ranks);
        counts[r] = (int)((int64_t)elems * (r + 1) / ranks) - places[r];
    }
}

static int chunk_elems(const multi *m) {
    const int ranks = m->link->ranks;
    return CHUNK_ELEMS / ranks * ranks;
}

/* Of everybody's bytes, only whole chunks: multi_gather sees to that. */
static mm_status begin_chunk(multi *m, const job *j) {
    const int slot = (int)(m->cut % MULTI_TRANSFERS), ranks = m->link->ranks;
    chunk *c = &m->chunks[slot];
    const int64_t rest = j->elems - m->at;
    *c = (chunk){.kind = j->kind,
                 .data = j->data + m->at,
                 .elems = (int)(rest < chunk_elems(m) || j->kind == MULTI_BYTES ? rest : chunk_elems(m)),
                 .counts = c->counts,
                 .places = c->places,
                 .sent_counts = c->sent_counts,
                 .received_counts = c->received_counts,
                 .received_places = c->received_places,
                 .received = c->received};
    c->last = c->elems == rest;
    split(m, c->elems, c->counts, c->places);
    const int rank = m->link->rank, own = c->counts[rank];
    for (int r = 0; r < ranks; r++) {
        c->sent_counts[r] = r == rank ? 0 : c->counts[r];
        c->received_counts[r] = r == rank ? 0 : own;
        c->received_places[r] = (r - (r > rank)) * own;
    }
    m->cut++;
    m->at = c->last ? 0 : m->at + c->elems;
    m->job += c->last;
    if (c->kind == MULTI_BYTES) return m->engine->share(m->link, slot, c->data, c->counts, c->places);
    if (m->config.at_root) return m->engine->collect(m->link, slot, c->data, c->elems, c->received);
    return m->engine->scatter(m->link, slot, c->data, c->sent_counts, c->places, c->received_counts, c->received_places,
                              c->received);
}

/* Where a rank's part lies that this one adds up: its own is where it was. */
static int32_t *part_of(const multi *m, const chunk *c, int r) {
    if (m->config.at_root) return c->received + (int64_t)r * c->elems;
    return r == m->link->rank ? c->data + c->places[r] : c->received + c->received_places[r];
}

static void add_floats(const multi *m, const chunk *c, int elems, float *sum) {
    enum { SOME = 1024 }; /* stay in the fastest cache. Chosen */
    const int ranks = m->link->ranks;
    float some[SOME];
    for (int from = 0; from < elems; from += SOME) {
        const int n = elems - from < SOME ? elems - from : SOME;
        memcpy(some, (const float *)part_of(m, c, 0) + from, (size_t)n * sizeof *some);
        for (int r = 1; r < ranks; r++) {
            const float *addend = (const float *)part_of(m, c, r) + from;
            for (int i = 0; i < n; i++) some[i] += addend[i];
        }
        for (int i = 0; c->kind == MULTI_MEAN && i < n; i++) some[i] /= (float)ranks;
        memcpy(sum + from, some, (size_t)n * sizeof *some);
    }
}

static void add_counts(const multi *m, const chunk *c, int elems, int32_t *sum) {
    for (int i = 0; i < elems; i++) {
        int32_t all = 0;
        for (int r = 0; r < m->link->ranks && all >= 0; r++) {
            const int32_t one = part_of(m, c, r)[i];
            all = one < 0 ? one : all + one;
        }
        sum[i] = all;
    }
}

static mm_status add_up(multi *m, int slot) {
    const chunk *c = &m->chunks[slot];
    const int rank = m->link->rank;
    const bool root = m->config.at_root;
    const int elems = root ? c->elems : c->counts[rank];
    int32_t *sum = root ? c->data : c->data + c->places[rank];
    if (root && rank > 0) return m->engine->spread(m->link, slot, c->data, c->elems);
    if (c->kind == MULTI_COUNT)
        add_counts(m, c, elems, sum);
    else
        add_floats(m, c, elems, (float *)sum);
    return root ? m->engine->spread(m->link, slot, c->data, c->elems)
                : m->engine->share(m->link, slot, c->data, c->counts, c->places);
}

/* ---------------------------------------------------------------- the thread */

/* The next job to cut, if a slot is free. */
static bool take_job(multi *m, job *job_out) {
    if (m->cut - m->finished == MULTI_TRANSFERS) return false;
    pthread_mutex_lock(&m->lock);
    const bool is = m->job < m->begun;
    if (is) *job_out = m->jobs[m->job % m->room];
    pthread_mutex_unlock(&m->lock);
    return is;
}

static void finish_chunk(multi *m) {
    const bool last = m->chunks[m->finished++ % MULTI_TRANSFERS].last;
    if (!last) return;
    pthread_mutex_lock(&m->lock);
    m->done++;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* One step for each of: a chunk that is begun, added up, done. */
static mm_status go_on(multi *m, bool *moved_out) {
    job next;
    bool done = false;
    *moved_out = false;
    if (take_job(m, &next)) {
        MM_TRY(begin_chunk(m, &next));
        if (next.kind == MULTI_BYTES) m->added++; /* nothing else is under way */
        *moved_out = true;
    }
    if (m->added < m->cut) {
        const int slot = (int)(m->added % MULTI_TRANSFERS);
        MM_TRY(m->engine->test(m->link, slot, &done));
        if (done) {
            MM_TRY(add_up(m, slot));
            m->added++;
            *moved_out = true;
        }
    }
    if (m->finished < m->added) {
        MM_TRY(m->engine->test(m->link, (int)(m->finished % MULTI_TRANSFERS), &done));
        if (done) finish_chunk(m);
        *moved_out |= done;
    }
    return MM_OK;
}

static void nap(int64_t ns) {
    const struct timespec time = {.tv_nsec = ns};
    nanosleep(&time, NULL);
}

/* Until all that was begun is done. */
static mm_status drain(multi *m, int64_t begun) {
    int64_t ns = NAP_LEAST_NS, since = 0;
    while (m->job < begun || m->finished < m->cut) {
        bool moved;
        MM_TRY(go_on(m, &moved));
        pthread_mutex_lock(&m->lock);
        const bool aborts = m->aborts != 0;
        begun = m->begun;
        pthread_mutex_unlock(&m->lock);
        if (aborts) return mm_fail(MM_ERR_DEVICE, "the ranks are ended");
        if (m->config.ended && *m->config.ended && since == 0) since = mm_now_ns();
        if (since > 0 && mm_now_ns() - since > ENDED_MS * INT64_C(1000000))
            return mm_fail(MM_ERR_DEVICE, "other ranks have ended");
        if (!moved) nap(ns);
        ns = moved ? NAP_LEAST_NS : ns * 2 > NAP_MOST_NS ? NAP_MOST_NS : ns * 2;
    }
    return MM_OK;
}

static void keep_failure(multi *m, mm_status status) {
    pthread_mutex_lock(&m->lock);
    if (status != MM_OK && m->failure.status == MM_OK) mm_failure_keep(&m->failure, status);
    m->lost = m->link && m->link->lost;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static mm_status make_chunks(multi *m) {
    const size_t ranks = (size_t)m->link->ranks, parts = m->config.at_root ? (m->link->rank == 0 ? ranks : 0) : 1;
    const size_t received = m->engine->sum ? 1 : (size_t)chunk_elems(m) * parts + ranks;
    for (int i = 0; i < MULTI_TRANSFERS; i++) {
        chunk *c = &m->chunks[i];
        c->counts = calloc(ranks * 5, sizeof *c->counts);
        c->received = malloc(received * sizeof *c->received);
        if (!c->counts || !c->received) return mm_fail(MM_ERR_NOMEM, "out of memory to add up gradients");
        c->places = c->counts + ranks;
        c->sent_counts = c->places + ranks;
        c->received_counts = c->sent_counts + ranks;
        c->received_places = c->received_counts + ranks;
    }
    return MM_OK;
}

/* Sleeps until something changes, or looks whether the ranks are still there. Under the lock. */
static void rest(multi *m) {
    struct timespec until;
    if (!m->engine->look || m->failure.status != MM_OK) {
        pthread_cond_wait(&m->changed, &m->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&m->changed, &m->lock, &until) == 0) return;
    pthread_mutex_unlock(&m->lock);
    const mm_status status = m->engine->look(m->link);
    pthread_mutex_lock(&m->lock);
    if (status == MM_OK) return;
    mm_failure_keep(&m->failure, status);
    m->lost = m->link->lost;
    pthread_cond_broadcast(&m->changed);
}

static void work(multi *m) {
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (m->job == m->begun && !m->stops && m->aborts == 0) rest(m);
        const int64_t begun = m->begun, since = mm_now_ns();
        if (m->aborts != 0 || m->job == begun) break;
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

static void *run(void *arg) {
    multi *m = arg;
    mm_status status = m->engine->open(&m->config, &m->link);
    if (status == MM_OK) status = make_chunks(m);
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
    if (aborts != 0) m->engine->abort(m->link, aborts);
    m->engine->close(m->link, well);
    return NULL;
}

/* ---------------------------------------------------------------- a multi's life */

static mm_status find_engine(const char *name, const multi_engine **engine_out) {
    for (int i = 0; i < ENGINES; i++)
        if (strcmp(engines[i]->name, name) == 0) {
            *engine_out = engines[i];
            return MM_OK;
        }
    if (strcmp(name, "mpi") == 0)
        return mm_fail(MM_ERR_UNSUPPORTED, "this build has no engine mpi: it was built where there is no MPI (Debian's "
                                           "openmpi-bin and libopenmpi-dev; then build again)");
    if (strcmp(name, "nccl") == 0)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "this build has no engine nccl: it was built without CUDA, or where there is no "
                       "nccl.h (NVIDIA's libnccl-dev; then build again)");
    return mm_fail(MM_ERR_NOT_FOUND, "unknown engine '%s': must be mpi or nccl", name);
}

static void destroy(multi *m) {
    for (int i = 0; i < MULTI_TRANSFERS; i++) {
        free(m->chunks[i].counts);
        free(m->chunks[i].received);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free(m->jobs);
    free(m);
}

/* Signals are for the caller's threads. */
static int start_thread(multi *m) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&m->thread, NULL, run, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

mm_status multi_open(const multi_config *config, multi **multi_out) {
    const multi_engine *engine = NULL; /* where there is none, the compiler does not see that it is refused */
    MM_TRY(find_engine(config->engine, &engine));
    return multi_open_on(engine, config, multi_out);
}

mm_status multi_probe(const multi_config *config, int ranks) {
    const multi_engine *engine = NULL; /* where there is none, the compiler does not see that it is refused */
    MM_TRY(find_engine(config->engine, &engine));
    return engine->probe ? engine->probe(config, ranks) : MM_OK;
}

mm_status multi_open_on(const multi_engine *engine, const multi_config *config, multi **multi_out) {
    enum { ROOM = 64 };
    multi *m = calloc(1, sizeof *m);
    if (m) m->jobs = malloc(ROOM * sizeof *m->jobs);
    if (!m || !m->jobs) {
        free(m);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the ranks");
    }
    m->engine = engine;
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
        multi_close(m);
        return mm_failure_tell(&failure);
    }
    *multi_out = m;
    return MM_OK;
}

void multi_close(multi *m) {
    if (!m) return;
    pthread_mutex_lock(&m->lock);
    m->stops = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    destroy(m);
}

void multi_abort(multi *m, int status) {
    enum { SECONDS = 5 };
    pthread_mutex_lock(&m->lock);
    m->aborts = status;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    sleep(SECONDS); /* the engine ends this process, too */
    _exit(status);
}

int multi_rank(const multi *m) { return m->link->rank; }
int multi_ranks(const multi *m) { return m->link->ranks; }
int multi_gpu(const multi *m) { return m->engine->sum ? m->link->gpu : -1; }

int multi_local_rank(int rank) {
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_RANK"); /* Open MPI's; elsewhere all are on one machine */
    return text ? atoi(text) : rank;
}

/* ---------------------------------------------------------------- what is begun */

/* Under the lock. */
static bool make_room(multi *m) {
    if (m->begun - m->awaited < m->room) return true;
    job *more = malloc(2 * (size_t)m->room * sizeof *more);
    if (!more) return false;
    for (int64_t i = m->awaited; i < m->begun; i++) more[i % (2 * m->room)] = m->jobs[i % m->room];
    free(m->jobs);
    m->jobs = more;
    m->room *= 2;
    return true;
}

void multi_begin(multi *m, multi_kind kind, void *data, int64_t elems) {
    pthread_mutex_lock(&m->lock);
    if (make_room(m)) {
        m->jobs[m->begun++ % m->room] = (job){kind, data, elems};
        m->stats.begun++;
        m->stats.bytes += elems * (int64_t)sizeof(int32_t);
    } else if (m->failure.status == MM_OK)
        mm_failure_keep(&m->failure, mm_fail(MM_ERR_NOMEM, "out of memory to add up gradients"));
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

mm_status multi_await(multi *m) {
    pthread_mutex_lock(&m->lock);
    const int64_t began = mm_now_ns();
    while (m->done <= m->awaited && m->failure.status == MM_OK) pthread_cond_wait(&m->changed, &m->lock);
    m->stats.await_ns += mm_now_ns() - began;
    mm_status status = MM_OK;
    if (m->done > m->awaited)
        m->awaited++;
    else
        status = mm_failure_tell(&m->failure);
    pthread_mutex_unlock(&m->lock);
    return status;
}

mm_status multi_check(multi *m) {
    pthread_mutex_lock(&m->lock);
    const mm_status status = mm_failure_tell(&m->failure);
    pthread_mutex_unlock(&m->lock);
    return status;
}

bool multi_lost(multi *m) {
    pthread_mutex_lock(&m->lock);
    const bool is = m->lost;
    pthread_mutex_unlock(&m->lock);
    return is;
}

mm_status multi_enqueue(multi *m, const multi_tensor *tensors, int n, void *stream) {
    if (!m->engine->sum) return mm_fail(MM_ERR_UNSUPPORTED, "the engine %s adds up nothing on a GPU", m->engine->name);
    MM_TRY(multi_check(m));
    pthread_mutex_lock(&m->lock);
    m->stats.begun += n;
    for (int i = 0; i < n; i++) m->stats.bytes += tensors[i].elems * (int64_t)sizeof(int32_t);
    pthread_mutex_unlock(&m->lock);
    return m->engine->sum(m->link, tensors, n, stream);
}

/* A failure is multi_await's to tell. */
static bool all_is_awaited(multi *m) {
    pthread_mutex_lock(&m->lock);
    const bool is = m->awaited == m->begun || m->failure.status != MM_OK;
    pthread_mutex_unlock(&m->lock);
    return is;
}

mm_status multi_gather(multi *m, const void *mine, int64_t bytes, void *all_out) {
    if (!all_is_awaited(m)) return mm_fail(MM_ERR_ORDER, "ranks tell each other nothing while sums are under way");
    const int64_t elems = (bytes + 3) / 4, ranks = m->link->ranks;
    int32_t *all = calloc((size_t)(elems * ranks), sizeof *all);
    if (!all) return mm_fail(MM_ERR_NOMEM, "out of memory for what ranks tell each other");
    memcpy(all + elems * m->link->rank, mine, (size_t)bytes);
    multi_begin(m, MULTI_BYTES, all, elems * ranks);
    mm_status status = multi_await(m);
    if (status != MM_OK) return status; /* the engine may still be at it */
    for (int64_t r = 0; r < ranks; r++) memcpy((char *)all_out + r * bytes, all + r * elems, (size_t)bytes);
    free(all);
    return MM_OK;
}

void multi_stats_get(multi *m, multi_stats *stats_out) {
    pthread_mutex_lock(&m->lock);
    *stats_out = m->stats;
    pthread_mutex_unlock(&m->lock);
}
