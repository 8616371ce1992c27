/* SPDX-License-Identifier: MIT */
/* 'mm train' as one of several processes (ranks): connects them, checks that they agree, and ends them together. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/hash.h"
#include "nets/comm/comm_allreduce.h"
#include "tools/args/commands.h"
#include "tools/train/train.h"

/* ---------------------------------------------------------------- beginning */

const char *train_ranks_variable(train_variable which) {
    static const char *const variables[][3] = {
        [TRAIN_RANKS] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"},
        [TRAIN_RANK] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MPI_LOCALRANKID"},
    };
    for (int i = 0; i < 3; i++)
        if (getenv(variables[which][i])) return getenv(variables[which][i]);
    return NULL;
}

/* How many processes mpirun has started, including this one; 0: it was not started by mpirun. */
static int started(void) {
    const char *ranks = train_ranks_variable(TRAIN_RANKS);
    return ranks ? atoi(ranks) : 0;
}

/* Removes the options that only rank 0 obeys: evaluating, reporting, saving. */
static void be_quiet(train *t) {
    t->save = t->save_every = t->json = t->log_path = t->codec_log_path = t->trace = t->facts_save = NULL;
    t->eval = false;
    t->test_data = NULL;
    t->quiet = true;
}

/* Gives the ranks of a machine its GPUs in order, unless --device names one. */
static void choose_device(train *t) {
    const int gpu = comm_gpu(t->ranks), local = gpu >= 0 ? gpu : comm_local_rank(comm_rank(t->ranks));
    if (train_ranks(t) < 2 || target_is_host(t->target.device) || strchr(t->target.device, ':')) return;
    snprintf(t->device_text, sizeof t->device_text, "%.8s:%d", t->target.device, local);
    t->target.device = t->device_text;
}

/* The GPU that --device names; -1: none. */
static int named_gpu(const train *t) {
    const char *colon = strchr(t->target.device, ':');
    return colon ? atoi(colon + 1) : -1;
}

/* The communicator for ranks that mm starts: --comm, else NCCL on GPUs and MPI on the host. */
static const char *choose_comm(const train *t) {
    return t->comm ? t->comm : target_is_host(t->target.device) ? "mpi" : "nccl";
}

static mm_status check_comm(const train *t, const comm_config *config) {
    const int ranks = (int)t->ranks_wanted;
    if (strcmp(config->backend, "nccl") != 0) return ranks > 0 ? comm_probe(config, ranks) : MM_OK;
    if (target_is_host(t->target.device))
        return mm_fail(MM_ERR_INVALID, "--comm nccl: works on GPUs only, and --device %s is none; give --device cuda",
                       t->target.device);
    if (config->at_root)
        return mm_fail(MM_ERR_INVALID, "--sum-at root: NCCL cannot add up on one rank; give --comm mpi");
    return ranks > 0 ? comm_probe(config, ranks) : MM_OK;
}

static mm_status read_sums(const train *t, mm_allreduce_when *when_out, bool *at_root_out) {
    const bool overlap = strcmp(t->sum, "overlap") == 0, root = strcmp(t->sum_at, "root") == 0;
    if (!overlap && strcmp(t->sum, "end") != 0)
        return mm_fail(MM_ERR_INVALID, "--sum %s: must be overlap or end", t->sum);
    if (!root && strcmp(t->sum_at, "ranks") != 0)
        return mm_fail(MM_ERR_INVALID, "--sum-at %s: must be ranks or root", t->sum_at);
    *when_out = overlap ? MM_ALLREDUCE_AT_ONCE : MM_ALLREDUCE_AT_END;
    *at_root_out = root;
    return MM_OK;
}

mm_status train_ranks_begin(train *t, int *code_out) {
    mm_allreduce_when when;
    comm_config config = {.backend = choose_comm(t),
                          .ended = command_terminated(),
                          .interrupted = t->interrupted,
                          .gpu = named_gpu(t),
                          .lost_out = &t->told};
    *code_out = -1;
    MM_TRY(read_sums(t, &when, &config.at_root));
    if (t->ranks_wanted > 0 && started() > 0)
        return mm_fail(MM_ERR_INVALID, "--ranks %lld: mpirun has started this process as one of %d: give --comm mpi",
                       (long long)t->ranks_wanted, started());
    if (t->ranks_wanted > 1) {
        MM_TRY(check_comm(t, &config));
        return train_start(t, strcmp(config.backend, "mpi") == 0, code_out);
    }
    if (!t->comm && started() > 1)
        return mm_fail(MM_ERR_INVALID, "mpirun has started %d processes, and each would train alone: give --comm mpi",
                       started());
    if (!t->comm || t->ranks_wanted == 1) return MM_OK;
    MM_TRY(check_comm(t, &config));
    MM_TRY(comm_open(&config, &t->ranks));
    if (comm_rank(t->ranks) > 0)
        be_quiet(t);
    else if (getenv(TRAIN_STARTED_VARIABLE))
        command_interruptible_by_input();
    unsetenv(TRAIN_STARTED_VARIABLE);
    choose_device(t);
    return MM_OK;
}

mm_status train_ranks_divide(train *t) {
    const int64_t ranks = train_ranks(t), less = t->batch / ranks * ranks;
    t->part = t->batch / ranks;
    if (less == t->batch) return MM_OK;
    if (less == 0)
        return mm_fail(MM_ERR_INVALID, "--batch %lld: %lld ranks cannot share it; the smallest batch for them is %lld",
                       (long long)t->batch, (long long)ranks, (long long)ranks);
    return mm_fail(MM_ERR_INVALID,
                   "--batch %lld: %lld ranks cannot share it evenly; the nearest batches are %lld and %lld",
                   (long long)t->batch, (long long)ranks, (long long)less, (long long)(less + ranks));
}

void train_ranks_set_target(train *t) {
    mm_allreduce_when when = MM_ALLREDUCE_AT_ONCE;
    bool at_root;
    if (train_ranks(t) < 2 || read_sums(t, &when, &at_root) != MM_OK) return;
    if (comm_gpu(t->ranks) >= 0)
        when = when == MM_ALLREDUCE_AT_END ? MM_ALLREDUCE_IN_PLACE_AT_END : MM_ALLREDUCE_IN_PLACE_AT_ONCE;
    t->target.allreduce = (nets_allreduce){.n = comm_size(t->ranks),
                                           .rank = comm_rank(t->ranks),
                                           .when = when,
                                           .fns = &comm_allreduce_fns,
                                           .ctx = t->ranks,
                                           .begun = comm_allreduce_begun,
                                           .agree = comm_allreduce_agree};
}

/* ---------------------------------------------------------------- agreeing */

/* What a rank sends to the others before the first iteration. */
typedef struct word {
    int32_t status; /* mm_status */
    int32_t ended;  /* the rank was stopped */
    uint64_t build;
    char options[1536]; /* "--net vgg11\n--batch 64\n..." */
    char start[256];    /* write_start()'s lines; "": the rank failed or was stopped */
} word;

/* A digest of the program's bytes, to tell builds apart. 0: they cannot be read. */
static uint64_t build_number(void) {
    unsigned char bytes[65536];
    uint64_t digest = MM_HASH_BEGIN;
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t n;
    if (fd < 0) return 0;
    while ((n = read(fd, bytes, sizeof bytes)) > 0) digest = mm_hash_bytes(digest, bytes, (size_t)n);
    close(fd);
    return digest;
}

/* Writes the options that must be equal on all ranks. */
static mm_status write_options(const train *t, char *text, size_t capacity) {
    static const char *const names[] = {
        "--net",       "--data",    "--batch",       "--seed",       "--iterations", "--epochs",
        "--lr",        "--lr-step", "--lr-schedule", "--optimizer",  "--momentum",   "--weight-decay",
        "--precision", "--sum",     "--sum-at",      "--keep-going", "--update"};
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && n < capacity; i++) {
        const arg *a = args_find(t->table, names[i]);
        const bool open = !a || (a->kind == ARG_TEXT && !*(const char *const *)a->target);
        char *value = open ? NULL : a->kind == ARG_FLAG ? strdup(*(bool *)a->target ? "yes" : "no") : args_text(a);
        if (!open && !value) return mm_fail(MM_ERR_NOMEM, "out of memory to compare %s", names[i]);
        n += (size_t)snprintf(text + n, capacity - n, "%s %s\n", names[i], value && *value ? value : "(not given)");
        free(value);
    }
    return MM_OK;
}

/* Writes what else must be equal on all ranks for their gradients to match: the kind of device, which sets the layout
 * of gradients; whether layers are fused, which each rank's budget may decide; and the state to start from. */
static mm_status write_start(const train *t, session *s, char *text, size_t capacity) {
    uint64_t digest;
    MM_TRY(session_digest(s, &digest));
    snprintf(text, capacity,
             "--device %.*s\n--fuse %s\n%lld iterations done\nbatch %lld of the data next\n"
             "weights and optimizer states of digest %016llx\n",
             (int)strcspn(t->target.device, ":"), t->target.device, target_fuse_text(&s->config.target),
             (long long)s->iteration, (long long)(s->iteration + s->data_shift), (unsigned long long)digest);
    return MM_OK;
}

/* The length of the line that begins at `at`. */
static int line_length(const char *at) { return (int)strcspn(at, "\n"); }

/* Whether rank r starts differently from rank 0. False if one of them does not start, since it failed or was
 * stopped. */
static bool starts_otherwise(const word *words, int r) {
    return words[0].start[0] && words[r].start[0] && strcmp(words[r].start, words[0].start) != 0;
}

/* Reports the first line in which rank r differs from rank 0. */
static mm_status report_difference(const word *words, int r) {
    const bool options = strcmp(words[r].options, words[0].options) != 0;
    const char *one = options ? words[0].options : words[0].start, *other = options ? words[r].options : words[r].start;
    if (words[r].build != words[0].build)
        return mm_fail(MM_ERR_INVALID, "rank %d runs another build of mm than rank 0", r);
    while (*one && line_length(one) == line_length(other) && memcmp(one, other, (size_t)line_length(one)) == 0) {
        one += line_length(one) + (one[line_length(one)] == '\n');
        other += line_length(other) + (other[line_length(other)] == '\n');
    }
    return mm_fail(MM_ERR_INVALID, "rank %d has %.*s, rank 0 has %.*s", r, line_length(other), other, line_length(one),
                   one);
}

/* The first rank that failed, or else the first that differs from rank 0; -1: none. */
static int find_wrong(const word *words, int ranks) {
    for (int r = 0; r < ranks; r++)
        if (words[r].status != MM_OK) return r;
    for (int r = 1; r < ranks; r++)
        if (words[r].build != words[0].build || strcmp(words[r].options, words[0].options) != 0 ||
            starts_otherwise(words, r))
            return r;
    return -1;
}

static mm_status judge(train *t, mm_status begun, const word *words, bool *ended) {
    const int rank = comm_rank(t->ranks), wrong = find_wrong(words, comm_size(t->ranks));
    for (int r = 0; r < comm_size(t->ranks); r++) *ended |= words[r].ended != 0;
    t->agreed = wrong < 0;
    if (wrong < 0) return MM_OK;
    t->told = wrong != rank;
    if (words[wrong].status == MM_OK) return report_difference(words, wrong);
    return t->told ? mm_fail(words[wrong].status, "rank %d has failed", wrong) : mm_fail_in(begun, "rank %d", rank);
}

mm_status train_ranks_agree(train *t, session *s, mm_status begun, bool *ended) {
    if (!t->ranks) return begun;
    word own = {.ended = *ended, .build = build_number()};
    if (begun == MM_OK) begun = write_options(t, own.options, sizeof own.options);
    if (begun == MM_OK && s) begun = write_start(t, s, own.start, sizeof own.start);
    mm_failure failure;
    mm_failure_save(&failure, begun);
    own.status = begun;
    word *words = calloc((size_t)comm_size(t->ranks), sizeof *words);
    if (!words) return mm_fail(MM_ERR_NOMEM, "out of memory for the messages of ranks");
    mm_status status = comm_gather(t->ranks, &own, sizeof own, words);
    if (status == MM_OK) {
        mm_failure_restore(&failure);
        status = judge(t, begun, words, ended);
    } else
        mm_fail_prefix("rank %d", comm_rank(t->ranks));
    free(words);
    return status;
}

/* ---------------------------------------------------------------- the end */

int train_ranks_end(train *t, mm_status status, int code) {
    int32_t own = 0, all[COMM_RANKS_MOST];
    if (!t->ranks) return code;
    fflush(NULL);
    /* Waits in comm_gather, not in the backend's own call, which would keep a core busy. */
    const bool failed = (status != MM_OK && t->agreed) || comm_gather(t->ranks, &own, sizeof own, all) != MM_OK;
    if (failed) comm_abort(t->ranks, code ? code : EXIT_FAILED);
    comm_close(t->ranks);
    return code;
}
