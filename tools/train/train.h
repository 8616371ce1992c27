/* SPDX-License-Identifier: MIT */
/* The command 'mm train': its options, what is made of them, and the state that a run is saved in. */
#ifndef TOOLS_TRAIN_TRAIN_H
#define TOOLS_TRAIN_TRAIN_H

#include "tools/facts/facts_source.h"
#include "tools/need/sub_batch.h"
#include "tools/train/session.h"

enum {
    SWITCHES_MAX = ARG_TEXTS_MAX - 1, /* one less than session_config.policies, whose first is --policy */
    TRAIN_STATE_OPTIONS = 16,         /* most options in a state */
};

/* A switch to `policy` when `iteration` iterations are done. */
typedef struct policy_switch {
    int64_t iteration;
    const char *policy;
} policy_switch;

typedef struct train {
    /* as given */
    const char *net, *data, *test_data, *policy, *save, *save_every, *load, *json, *log_path, *codec_log_path, *facts,
        *facts_save, *trace, *progress, *issue, *sub_batch_text, *comm, *sum, *sum_at;
    int64_t ranks_wanted, batch, iterations, epochs, budget_bytes, pinned_bytes, effort, seed, replan, eval_every;
    const char *lr_schedule;
    double lr, momentum, weight_decay, clip_norm; /* below their minimum: the optimizer's default */
    target target;
    arg_texts switch_texts, lr_texts;
    bool eval, keep_going, no_ladder, self_check, no_measure, quiet, reset_optimizer, help;
    arg table[ARGS_MAX + 1];
    int argc;
    char **argv;
    /* made from the above */
    comm *ranks;          /* NULL: this process is alone */
    char device_text[24]; /* this rank's GPU */
    bool agreed;          /* all ranks have begun well */
    bool stopped;         /* by a signal to this process or to another rank */
    bool told;            /* another rank has told of the failure */
    int64_t part;         /* images of a batch that this process trains */
    int64_t sub_batch;    /* images that are computed at a time: the batch, unless it is trained on in sub-batches */
    char sub_batch_number[24]; /* the same, for the state */
    policy_switch switches[SWITCHES_MAX];
    int n_switches;
    const char *policy_now;
    const volatile sig_atomic_t *interrupted; /* set by SIGINT: finish the iteration, and save the state if asked to */
    char *data_path;                          /* `data` with absolute paths, for the state; NULL: it names no files */
    nets_net *network;
    facts_source source; /* the file of --facts */
    FILE *log, *codec_log;
    arg options[TRAIN_STATE_OPTIONS + 1]; /* of the run, for the state's metadata */
    nets_safetensors_file *state;         /* the loaded state; NULL: none */
    session_period save_period;           /* in epochs if save_epochs, else in iterations */
    bool save_epochs;
    int64_t saved_iteration; /* iterations of the state in the file of --save; 0: not written */
    char optimizer_text[NETS_OPTIMIZER_TEXT_CAPACITY]; /* with all options, for the state */
    texts texts;                                       /* texts that the row points to */
} train;

/* ---- train_options.c */

/* What is planned of the run, in the sub-batches that are chosen. Once the network is open. */
need_case train_need_case(const train *t);

/* Checks all options, and makes the session's configuration from them. */
MM_CHECKED mm_status train_configure(train *t, session_config *config_out);

/* The learning rate's schedule for a run of `iterations` iterations, those of a loaded state included. */
MM_CHECKED mm_status train_read_schedule(const train *t, int64_t iterations, nets_schedule *schedule_out);

/* ---- train_ranks.c */

/* What some mpirun tells this process that it has started: how many there are, and which it is. NULL: none has. */
typedef enum train_variable { TRAIN_RANKS, TRAIN_RANK } train_variable;
const char *train_ranks_variable(train_variable which);

/* Starts the ranks that --ranks asks for, or makes this process one of those that --comm says were started.
 * *code_out: the exit status of the ranks that it has started, and waited for; -1: the training is this process's.
 * MM_ERR_INVALID: the options are of no use together, or others were started and would train alone; else errors of
 * comm_open. */
MM_CHECKED mm_status train_ranks_begin(train *t, int *code_out);
/* How many there are, this one included. */
static inline int train_ranks(const train *t) { return t->ranks ? comm_size(t->ranks) : 1; }
/* Sets t->part. MM_ERR_INVALID: the ranks do not divide the batch. */
MM_CHECKED mm_status train_ranks_divide(train *t);
/* Once the target is open: its nets are lowered and run for the ranks. */
void train_ranks_set_target(train *t);
/* Tells the others how this rank has begun, and returns how all have: if one has failed, all do; the first of them
 * keeps its message, named by its rank, and others have t->told. Ranks that were started with other options, or start
 * from another state, fail. s: the session, ready for the first iteration; NULL: it has failed, or was stopped. *ended:
 * this rank was stopped before the first iteration; becomes true if any was. */
MM_CHECKED mm_status train_ranks_agree(train *t, session *s, mm_status begun, bool *ended);
/* Waits for the others, and leaves them. code: this process's exit status; after a failure of which they do not know,
 * ends them. Returns the exit status. */
int train_ranks_end(train *t, mm_status status, int code);

/* ---- train_start.c */

/* Starts --ranks processes with the command line of this one, and waits for them. An interrupt goes to rank 0, by its
 * standard input: TRAIN_STARTED_VARIABLE in the environment tells it to look there. *code_out: their exit status.
 * MM_ERR_NOMEM. */
#define TRAIN_STARTED_VARIABLE "MM_STARTED"
MM_CHECKED mm_status train_start(const train *t, bool by_mpirun, int *code_out);

/* ---- train_state.c */

/* Opens the file of --load, if there is one, and sets the options that the command line does not. To be called before
 * the options are used. */
MM_CHECKED mm_status train_open_state(train *t);

/* Sets t->options, the metadata of the run's own state. */
void train_set_options(train *t);

/* Prints on stderr which options differ from the state's. To be called once the state is known to fit the network. */
MM_CHECKED mm_status train_log_differences(const train *t, const session *s);

/* Returns `status`, that of reading an option's value. A failure names the state's file if the value is from the
 * state. */
MM_CHECKED mm_status train_read_of_state(const train *t, const char *option, mm_status status);

/* Whether an epoch's last smaller batch is trained on: if the run's length is given in epochs, or was for the state. */
bool train_has_last_batch(const train *t);

#endif
