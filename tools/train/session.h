/* SPDX-License-Identifier: MIT */
/* A session: a network in training, with its manager, its graphs (training, the epoch's last smaller batch,
 * evaluation) in one arena, and its data. `mm train` and `mm bench` share it. */
#ifndef TOOLS_TRAIN_SESSION_H
#define TOOLS_TRAIN_SESSION_H

#include <signal.h>

#include "nets/comm/comm.h"
#include "nets/exec/exec.h"
#include "nets/io/reader.h"
#include "nets/lr_schedule.h"
#include "tools/args/args.h"
#include "tools/args/progress.h"
#include "tools/args/traces.h"
#include "tools/need/need.h"
#include "tools/need/target.h"
#include "tools/train/host_memory.h"
#include "tools/train/row.h"

typedef struct session_config {
    const nets_net *net;
    const char *data;
    const char *test_data; /* to evaluate on; NULL: the test set of `data` */
    int64_t batch;         /* of all ranks together */
    comm *ranks;           /* this process is one of them, and trains its part of each batch, as the target's backend
                              knows; borrowed; NULL: it is alone */
    int64_t sub_batch;     /* train in sub-batches of so many images (nets_exec_create_sub); 0: in whole batches */
    target target;         /* borrowed */
    int64_t budget_bytes;  /* 0: what the first policy needs */
    int64_t pinned_bytes;  /* PINNED_OPEN: what the policies need, at most half of the free memory */
    arg_texts policies;    /* the first runs first; the session may be switched to the others */
    uint64_t seed;
    bool reset_optimizer; /* do not load the optimizer's states and count: they begin at zero */
    bool whole_epochs;    /* train on an epoch's last smaller batch too, rather than leave it out */
    bool evaluate;
    bool same_batches; /* repeat the first batches, so that the device never waits for a reader */
    bool keep_going;   /* update the weights even if the loss is not finite */
    bool no_ladder;    /* mm_options.no_ladder */
    bool self_check;
    bool equal_streams; /* mm_options.equal_streams */
    bool measure;       /* mm_options.measure_touched */
    bool measure_times;
    int replan_percent; /* of the planned time, by which iterations may differ until the policy plans again; 0: any */
    bool trace;         /* keep when steps and operations run (session_trace) */
    mm_issue issue;
    const facts_source *facts;         /* measured times of the training graph, for_run; borrowed; NULL: none */
    const volatile sig_atomic_t *stop; /* nonzero: begin no further iteration; NULL: never stop */
    int64_t alloc_cost_ns;
    texts *texts; /* owns texts that rows point to, and must outlive them; borrowed; NULL: rows have no policy_now */
} session_config;

typedef struct session {
    session_config config;
    mm_manager *manager;
    /* Iterations are submitted ahead (mm_iteration_end_async). Not on the host device, which gains nothing by that,
     * and is measured better without. */
    bool ahead;
    nets_exec *train, *train_last; /* train_last NULL: no smaller batch */
    nets_exec *eval, *eval_last;
    nets_reader *train_data, *test_data;
    nets_reader_size train_size, test_size;
    host_memory host_before;           /* the process's memory when the session began */
    int64_t minimum_bytes;             /* the smallest budget in which the first policy runs */
    int64_t minimum_pinned_bytes;      /* of the plan that needs minimum_bytes; may be more than pinned_most_bytes */
    int64_t need_bytes[ARG_TEXTS_MAX]; /* the smallest budget of each policy */
    bool refused_switch;               /* session_init failed because a policy other than the first does not fit */
    bool refused_by_manager; /* session_init failed after all was planned: the message has the manager's advice */
    bool refused_data;       /* session_init failed because the training data could not be opened */
    need *needs;             /* of each batch and policy, until the manager is created */
    int n_needs;
    int64_t pinned_most_bytes, pinned_needed_bytes;
    bool budget_given;    /* config.budget_bytes is the user's; else it becomes the first policy's minimum */
    int64_t staged_bytes; /* part of the budget for staging batches; 0: they are not staged */
    need_free free;       /* the first policy's minimum with unlimited pinned memory, if that is less */
    char holder[256];     /* layer and phase that hold minimum_bytes */
    int64_t
        fused_bytes; /* layers are not fused, though they may be: fused ones need at least so much; 0: as --fuse says */
    int64_t data_shift; /* how far the data is ahead of `iteration`, in batches */
    bool together;      /* with other ranks: they begin each iteration together, or none of them does */
    bool stopped;       /* then: one of them was stopped */
    int64_t iteration;  /* number of iterations run, including those of a loaded state */
    /* The first iteration, from 1, whose loss or gradient was not finite; 0: none. It ends the training without an
     * update, unless config.keep_going. */
    int64_t diverged_iteration;
} session;

enum { SESSION_ITERATIONS_MAX = 1000000000 }; /* chosen, far above any training */

/* Plans, then creates the manager and the graphs. MM_ERR_INFEASIBLE: the budget is below the minimum; minimum_bytes and
 * holder are set. MM_ERR_ORDER: config.stop was set meanwhile (session_stopped_early). On failure the session needs no
 * session_fini. */
MM_CHECKED mm_status session_init(session *s, const session_config *config);
void session_fini(session *s);

/* Images of n that this process trains. */
static inline int64_t session_part(const session *s, int64_t n) {
    return s->config.ranks ? n / comm_size(s->config.ranks) : n;
}

static inline bool session_is_stopped(const session *s) {
    return s->together ? s->stopped : s->config.stop && *s->config.stop;
}

/* What its plans may take, once session_init has looked. */
static inline need_pinned session_pinned(const session *s) {
    return need_pinned_of(s->config.pinned_bytes, s->pinned_most_bytes);
}

/* Whether session_init, which returned `begun`, failed because it was stopped. */
static inline bool session_stopped_early(const session *s, mm_status begun) {
    return begun == MM_ERR_ORDER && session_is_stopped(s);
}

/* Sets the row's members that are known before the session runs. */
void session_name_row(const session *s, row *row_out);

/* Called before each iteration of a training run, when session.iteration iterations were submitted. It may switch the
 * policy. */
typedef mm_status (*session_hook)(void *ctx, session *s);

/* Every `every` iterations, if (iteration + shift) is a multiple of it; every 0: never. */
typedef struct session_period {
    int64_t every, shift;
} session_period;

typedef struct session_run {
    int64_t iterations; /* trains until session.iteration is this */
    int64_t whole;      /* progress is shown of so many, which further runs go on to; 0: `iterations` */
    nets_schedule schedule;
    session_hook hook; /* may be NULL */
    void *hook_ctx;
    session_period save_period;
    session_hook save; /* called by save_period, between iterations; may be NULL if that is never */
    FILE *log;         /* gets a line for each iteration: iteration,loss,accuracy,seconds; NULL: none */
    FILE *codec_log;   /* gets a line for each iteration that samples (codec_log.h); NULL: none */
    bool quiet;
    bool view; /* on a terminal, lines below the progress say what memory and streams do (session_view.h) */
} session_run;

/* Whether the training has ended because a loss was not finite. */
bool session_diverged(const session *s);

/* Trains, unless nothing is left to do. Sets the row's figures; its times are those of the last iterations. */
MM_CHECKED mm_status session_train(session *s, const session_run *run, row *row_out);

/* Ends the trace, and adds it to the others. Nothing if config.trace is not set. After session_train, even if it
 * failed. */
MM_CHECKED mm_status session_trace(session *s, traces *all);

/* Evaluates on the test data: share of images whose label scored highest, and mean loss. Both are negative if it was
 * stopped before the end. */
MM_CHECKED mm_status session_evaluate(session *s, bool quiet, double *accuracy_out, double *loss_out);

/* A saved state. It is opened before the session begins, because its metadata has the options of the run, by their
 * names without "--". */
typedef struct nets_safetensors_file nets_safetensors_file;

/* Opens the file, and sets each of the options (ended by ARG_END) that the state has and the arguments have not. A
 * state without a version (an older one, or weights alone) sets none. The options' texts live in the file. MM_ERR_IO;
 * MM_ERR_FORMAT: not a state, a state of another version, or an impossible value of an option. */
MM_CHECKED mm_status session_state_open(const char *path, const arg *options, int argc, char **argv,
                                        nets_safetensors_file **file_out);
/* Prints a line on stderr for each option that the arguments give a value other than the state's. MM_ERR_NOMEM. */
MM_CHECKED mm_status session_state_tell(const nets_safetensors_file *file, const char *path, const arg *options,
                                        int argc, char **argv);
/* The state's value of a key; NULL: it has none. */
const char *session_state_says(const nets_safetensors_file *file, const char *key);
void session_state_close(nets_safetensors_file *file); /* NULL is legal */

/* Save and load a state: weights, running statistics, optimizer state, and the number of iterations. The options
 * (ended by ARG_END; NULL: none) become metadata. Saving replaces the file atomically. It refuses elements that are
 * not finite (MM_ERR_UNSUPPORTED), unless config.keep_going. Loading checks the whole file before it changes anything.
 * Both hold NETS_TRANSFER_BYTES of a tensor in memory at a time. */
MM_CHECKED mm_status session_save(session *s, const char *path, const arg *options);
MM_CHECKED mm_status session_load(session *s, const nets_safetensors_file *file, const char *path);
/* A number that tells states apart: of all tensors that session_save would write, error bounds aside. */
MM_CHECKED mm_status session_digest(session *s, uint64_t *digest_out);

#endif
