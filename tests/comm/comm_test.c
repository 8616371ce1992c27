/* SPDX-License-Identifier: MIT */
/* Ranks without MPI: each rank is a thread, and a fake backend copies between their memories. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nets/comm/comm_backend.h"
#include "tests/comm/comm_sums.h"
#include "tests/core/test_case.h"

enum { RANKS_MOST = 4, POSTS = 8, COMMS = 3 };

/* A transfer that a rank has begun on one of the communicators. The i-th transfer is in posts[comm][rank][(i - 1) %
 * POSTS]. */
typedef struct post {
    const int32_t *data;
    int64_t number; /* counted from 1; 0: there is no transfer */
} post;

static struct {
    pthread_mutex_t lock;
    int ranks, opened;
    post posts[COMMS][RANKS_MOST][POSTS];
    int taken[COMMS][POSTS]; /* how many ranks have copied the transfer */
    int fails_at;            /* number of rank 1's transfer that fails; 0: none */
    int late_ms;             /* 0: nothing; else all ranks are being terminated, and rank 1 begins so much later */
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct transfer {
    int comm;
    int64_t number;
    bool whole, taken; /* taken: copied to `to` */
    const int32_t *own;
    int32_t *to;
    int counts[RANKS_MOST], from[RANKS_MOST], places[RANKS_MOST];
} transfer;

typedef struct fake {
    comm_link base;
    int64_t numbers[COMMS];
    transfer slots[COMM_SLOTS];
} fake;

static mm_status fake_open(const comm_config *config, comm_link **link_out) {
    (void)config;
    fake *f = calloc(1, sizeof *f);
    if (!f) return mm_fail(MM_ERR_NOMEM, "no memory");
    pthread_mutex_lock(&world.lock);
    f->base = (comm_link){.rank = world.opened++, .ranks = world.ranks};
    pthread_mutex_unlock(&world.lock);
    *link_out = &f->base;
    return MM_OK;
}

static void fake_close(comm_link *link, bool well) {
    (void)well;
    free(link);
}

static mm_status begin(comm_link *link, int slot, int comm, const int32_t *data, int32_t *to, const int *counts,
                       const int *from, const int *places) {
    fake *f = (fake *)link;
    transfer *t = &f->slots[slot];
    *t = (transfer){.comm = comm, .number = ++f->numbers[comm], .own = data, .to = to};
    for (int r = 0; r < link->ranks; r++) {
        t->counts[r] = counts[r];
        t->from[r] = from[r];
        t->places[r] = places[r];
    }
    pthread_mutex_lock(&world.lock);
    post *p = &world.posts[comm][link->rank][(t->number - 1) % POSTS];
    const bool fails = world.fails_at > 0 && link->rank == 1 && t->number == world.fails_at;
    *p = (post){data, t->number};
    /* Forgets this rank's transfers: after a failure the caller frees their data. */
    for (int c = 0; fails && c < COMMS; c++) memset(world.posts[c][link->rank], 0, sizeof world.posts[c][link->rank]);
    pthread_mutex_unlock(&world.lock);
    return fails ? mm_fail(MM_ERR_DEVICE, "rank 1: the fake fails") : MM_OK;
}

static mm_status fake_scatter(comm_link *link, int slot, const int32_t *data, const int *counts, const int *places,
                              const int *received_counts, const int *received_places, int32_t *received) {
    int from[RANKS_MOST];
    (void)counts;
    for (int r = 0; r < link->ranks; r++) from[r] = places[link->rank];
    return begin(link, slot, 0, data, received, received_counts, from, received_places);
}

static mm_status fake_collect(comm_link *link, int slot, const int32_t *data, int elems, int32_t *received) {
    int counts[RANKS_MOST], from[RANKS_MOST] = {0}, places[RANKS_MOST];
    for (int r = 0; r < link->ranks; r++) {
        counts[r] = link->rank == 0 ? elems : 0;
        places[r] = r * elems;
    }
    return begin(link, slot, 0, data, received, counts, from, places);
}

static mm_status fake_share(comm_link *link, int slot, int32_t *data, const int *counts, const int *places) {
    return begin(link, slot, slot == COMM_VOTES ? 2 : 1, data, data, counts, places, places);
}

static mm_status fake_spread(comm_link *link, int slot, int32_t *data, int elems) {
    const int counts[RANKS_MOST] = {elems}, places[RANKS_MOST] = {0};
    return begin(link, slot, 1, data, data, counts, places, places);
}

static mm_status fake_test(comm_link *link, int slot, bool *done_out) {
    transfer *t = &((fake *)link)->slots[slot];
    const int at = (int)((t->number - 1) % POSTS);
    pthread_mutex_lock(&world.lock);
    bool all = true;
    for (int r = 0; r < link->ranks; r++) all &= world.posts[t->comm][r][at].number == t->number;
    for (int r = 0; all && !t->taken && r < link->ranks; r++)
        if (t->counts[r] > 0 && t->to + t->places[r] != world.posts[t->comm][r][at].data + t->from[r])
            memcpy(t->to + t->places[r], world.posts[t->comm][r][at].data + t->from[r],
                   (size_t)t->counts[r] * sizeof *t->to);
    if (all && !t->taken) {
        t->taken = true;
        world.taken[t->comm][at]++;
    }
    /* This rank's data must stay until all others have copied it. */
    *done_out = t->taken && world.taken[t->comm][at] >= link->ranks * (int)((t->number - 1) / POSTS + 1);
    pthread_mutex_unlock(&world.lock);
    return MM_OK;
}

static void fake_abort(comm_link *link, int status) {
    (void)link, (void)status;
    abort();
}

static const comm_backend backend = {.name = "fake",
                                     .open = fake_open,
                                     .close = fake_close,
                                     .abort = fake_abort,
                                     .scatter = fake_scatter,
                                     .collect = fake_collect,
                                     .share = fake_share,
                                     .spread = fake_spread,
                                     .test = fake_test};

typedef struct rank_run {
    pthread_t thread;
    int rank; /* the backend numbers ranks in the order in which they open it */
    bool at_root;
    uint64_t seed;
    const char *wrong;
    char message[256];
} rank_run;

static void *run_rank(void *arg) {
    rank_run *r = arg;
    comm *m;
    volatile sig_atomic_t ended = 0;
    const comm_config config = {.backend = "fake", .at_root = r->at_root, .ended = &ended};
    if (comm_open_on(&backend, &config, &m) != MM_OK) {
        r->wrong = "not opened";
        return NULL;
    }
    r->rank = comm_rank(m);
    ended = world.late_ms > 0 || (world.fails_at > 0 && r->rank == 0); /* as if the parent process had told it to end */
    const struct timespec late = {world.late_ms / 1000, world.late_ms % 1000 * 1000000L};
    if (r->rank == 1) nanosleep(&late, NULL);
    r->wrong = comm_sums_try(m, r->seed);
    if (r->wrong) strncpy(r->message, r->wrong, sizeof r->message - 1);
    comm_stats stats;
    comm_stats_get(m, &stats);
    if (!r->wrong && stats.bytes < 4 * (1 << 20)) r->wrong = "bytes are not counted";
    comm_close(m);
    return NULL;
}

static void run_ranks(int ranks, bool at_root, uint64_t seed, rank_run *runs) {
    world.ranks = ranks;
    world.opened = 0;
    memset(world.posts, 0, sizeof world.posts);
    memset(world.taken, 0, sizeof world.taken);
    for (int r = 0; r < ranks; r++) {
        runs[r] = (rank_run){.at_root = at_root, .seed = seed};
        assert_int_equal(pthread_create(&runs[r].thread, NULL, run_rank, &runs[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(runs[r].thread, NULL);
}

TEST_CASE(sums_are_those_in_the_order_of_ranks) {
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (int root = 0; root < 2; root++) {
            rank_run runs[RANKS_MOST];
            run_ranks(ranks, root == 1, (uint64_t)(10 * ranks + root), runs);
            for (int r = 0; r < ranks; r++)
                if (runs[r].wrong) fail_msg("%d ranks, root %d, rank %d: %s", ranks, root, r, runs[r].message);
        }
}

TEST_CASE(a_rank_whose_backend_fails_says_so_and_the_others_give_up_when_they_are_ended) {
    rank_run runs[RANKS_MOST];
    world.fails_at = 3;
    run_ranks(2, false, 77, runs);
    world.fails_at = 0;
    const rank_run *failed = &runs[runs[1].rank == 1], *other = &runs[runs[0].rank == 1];
    assert_non_null(failed->wrong);
    assert_string_equal(failed->message, "rank 1: the fake fails");
    assert_non_null(other->wrong);
    assert_string_equal(other->message, "terminated, and for 3 s nothing came from other ranks");
}

/* The linker puts __wrap_malloc in malloc's place in comm.c and others (--wrap). It fails if no_memory is set. */
static bool no_memory;
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return no_memory ? NULL : __real_malloc(bytes); }

TEST_CASE(behind_a_sum_that_was_lost_no_other_is_taken_for_it) {
    enum { ROOM = 64 };
    static float sums[ROOM + 2];
    comm *m;
    world.ranks = 1;
    world.opened = 0;
    memset(world.posts, 0, sizeof world.posts);
    memset(world.taken, 0, sizeof world.taken);
    assert_int_equal(comm_open_on(&backend, &(comm_config){.backend = "fake"}, &m), MM_OK);
    for (int i = 0; i < ROOM; i++) comm_allreduce_begin(m, COMM_SUM, &sums[i], 1);
    no_memory = true;
    comm_allreduce_begin(m, COMM_SUM, &sums[ROOM], 1);
    no_memory = false;
    while (comm_allreduce_wait(m, NULL) != MM_OK) sched_yield(); /* until the first sum is done */
    comm_allreduce_begin(m, COMM_SUM, &sums[ROOM + 1], 1);
    for (int done = 1; done < ROOM; done += comm_allreduce_wait(m, NULL) == MM_OK) sched_yield();
    for (int i = 0; i < 1000; i++) assert_int_equal(comm_allreduce_wait(m, NULL), MM_ERR_NOMEM);
    comm_close(m);
}

/* All ranks are terminated at once, as by a batch system, while one is late: the others wait for it, and all sums are
 * right. */
TEST_CASE(terminated_ranks_wait_for_each_other) {
    rank_run runs[RANKS_MOST];
    world.late_ms = 1200;
    run_ranks(2, false, 5, runs);
    world.late_ms = 0;
    for (int r = 0; r < 2; r++)
        if (runs[r].wrong) fail_msg("rank %d: %s", r, runs[r].message);
}

static int share_bytes(int slot, comm_link *link, int32_t *data) {
    static const int counts[2] = {1, 1}, places[2] = {0, 1};
    return comm_local.share(link, slot, data, counts, places);
}

static void become(void *ctx, int rank) {
    (void)ctx;
    int32_t data[2] = {-1, -1};
    bool done = false;
    comm_link *link;
    if (comm_local.open(NULL, &link) != MM_OK) _exit(1);
    data[rank] = rank + 5;
    if (share_bytes(0, link, data) != MM_OK) _exit(2);
    if (share_bytes(COMM_VOTES, link, data) != MM_ERR_ORDER) _exit(3);
    while (!done)
        if (comm_local.test(link, 0, &done) != MM_OK) _exit(4);
    if (data[0] != 5 || data[1] != 6 || share_bytes(COMM_VOTES, link, data) != MM_OK) _exit(5);
    for (done = false; !done;)
        if (comm_local.test(link, COMM_VOTES, &done) != MM_OK) _exit(6);
    _exit(0);
}

TEST_CASE(ranks_that_mm_starts_refuse_to_mix_transfers) {
    pid_t processes[2];
    assert_int_equal(comm_local_start(2, become, NULL, processes), MM_OK);
    for (int r = 0; r < 2; r++) {
        int status = 1;
        waitpid(processes[r], &status, 0);
        assert_int_equal(status, 0);
    }
}

TEST_CASE(an_unknown_backend_is_refused) {
    comm *m;
    assert_int_equal(comm_open(&(comm_config){.backend = "pigeons"}, &m), MM_ERR_NOT_FOUND);
    assert_non_null(strstr(mm_last_error(), "pigeons"));
}
