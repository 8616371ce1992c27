/* SPDX-License-Identifier: MIT */
/* The command 'mm train': its options, what is derived from them, and the saved state. */
#ifndef TOOLS_TRAIN_TRAIN_H
#define TOOLS_TRAIN_TRAIN_H

#include "tools/facts/facts_source.h"
#include "tools/need/sub_batch.h"
#include "tools/train/session.h"

enum {
    SWITCHES_MAX = ARG_TEXTS_MAX - 1, /* session_config.policies also has --policy */
    TRAIN_STATE_OPTIONS = 23,         /* most options in a state */
};

/* A switch to `policy` when `iteration` iterations are done. */
typedef struct policy_switch {
    int64_t iteration;
    const char *policy;
} policy_switch;

typedef struct train {
    /* options as given */
    const char *net, *data, *test_data, *policy, *save, *save_every, *load, *json, *log_path, *codec_log_path, *facts,
        *facts_save, *rates_text, *trace, *progress, *issue, *sub_batch_text, *comm, *sum, *sum_at, *divide,
        *on_overflow, *base, *plan, *save_plan;
    int64_t ranks_wanted, batch, iterations, epochs, budget_bytes, pinned_bytes, effort, seed, replan, eval_every;
    const char *lr_schedule;
    double lr, momentum, weight_decay, clip_norm; /* below their minimum: the optimizer's default */
    target target;
    arg_texts switch_texts, lr_texts;
    bool eval, keep_going, no_ladder, self_check, verify_issued, no_measure, quiet, reset_optimizer, load_matching,
        help;
    arg table[ARGS_MAX + 1];
    int argc;
    char **argv;
    /* derived from the options */
    comm *ranks;               /* NULL: one process only */
    nets_divide divides;       /* what the ranks divide */
    char device_text[24];      /* name of this rank's GPU */
    bool agreed;               /* all ranks have started successfully */
    bool trained;              /* the training itself did not fail: the row has its figures, whatever fails later */
    bool stopped;              /* by a signal to this process or to another rank */
    bool told;                 /* another rank reports the failure */
    int64_t done, end;         /* iterations done when training ended, and those that it was to have */
    char *net_path;            /* `net` with an absolute path, for the state; NULL: the network is in no file */
    int64_t part;              /* images of each batch that this process trains */
    int64_t sub_batch;         /* images computed at a time; equals `part` without sub-batches */
    char sub_batch_number[24]; /* sub_batch as text, for the state */
    policy_switch switches[SWITCHES_MAX];
    int n_switches;
    const char *policy_now;
    const volatile sig_atomic_t *interrupted; /* set by SIGINT: finish the iteration, and save the state if asked to */
    char *data_path;                          /* `data` with absolute paths, for the state; NULL: no files */
    char *base_path;                          /* `base`, absolute, for the state; NULL: none */
    nets_net *network;
    facts_source source; /* the file of --facts */
    host_rates rates;    /* without it */
    FILE *log, *codec_log;
    arg options[TRAIN_STATE_OPTIONS + 1]; /* options that the state's metadata holds */
    nets_safetensors_file *state;         /* the loaded state; NULL: none */
    nets_safetensors_file *base_file;     /* of --base; NULL: none */
    session_period save_period;           /* in epochs if save_epochs, else in iterations */
    bool save_epochs;
    int64_t schedule_end;    /* the iteration at which a cosine schedule ends, for the state */
    int64_t saved_iteration; /* iteration of the state in --save's file; 0: not yet written */
    char optimizer_text[NETS_OPTIMIZER_TEXT_CAPACITY]; /* with all options, for the state */
    texts texts;                                       /* texts that the row points to */
} train;

/* ---- train_options.c */

/* The run as a case to plan, with t->sub_batch. Call it once the network is open. */
need_case train_need_case(const train *t);

/* Checks all options, and makes the session's configuration from them. */
MM_CHECKED mm_status train_configure(train *t, session_config *config_out);

/* The learning rate's schedule for a run of `iterations` iterations, including those of a loaded state. */
MM_CHECKED mm_status train_read_schedule(const train *t, int64_t iterations, nets_schedule *schedule_out);

/* ---- train_log.c */

/* Opens --log and --codec-log, once nothing can be refused any more, so that a refused run does not overwrite existing
 * files. Appends to a log that has the session's iteration, and cuts its lines of later ones; else begins it anew. A
 * line on stderr says what becomes of an existing log. MM_ERR_IO, MM_ERR_NOMEM. */
MM_CHECKED mm_status train_open_logs(train *t, const session *s);
/* Checks that all lines were written. MM_ERR_IO. */
MM_CHECKED mm_status train_check_logs(const train *t);

/* ---- train_end.c */

/* Says on stderr why no iteration ran. */
void train_say_nothing_ran(const train *t, const session *s);
/* Says on stderr after which iteration an interrupt ended the training, where it was saved, and how to go on. */
void train_say_interrupted(const train *t);

/* ---- train_ranks.c */

/* The environment variables by which an mpirun (Open MPI, MPICH, Intel MPI) passes each process the number of processes
 * and its rank. NULL: not started by mpirun. */
typedef enum train_variable { TRAIN_RANKS, TRAIN_RANK } train_variable;
const char *train_ranks_variable(train_variable which);

/* With --ranks, starts the ranks and waits for them; *code_out is then their exit status. With --comm alone, connects
 * this process to the ranks that mpirun started. *code_out -1: this process is to train. MM_ERR_INVALID: the options
 * contradict each other, or mpirun started several processes and --comm is missing. Else errors of comm_open. */
MM_CHECKED mm_status train_ranks_begin(train *t, int *code_out);
/* The number of ranks, this one included. */
static inline int train_ranks(const train *t) { return t->ranks ? comm_size(t->ranks) : 1; }
/* Sets t->part. MM_ERR_INVALID: the ranks do not divide the batch. */
MM_CHECKED mm_status train_ranks_divide(train *t);
/* Makes the target lower networks for this rank of several. Call it once the target is open. */
void train_ranks_set_target(train *t);
/* Exchanges with the other ranks whether each has started (begun), and returns one status for all: if a rank failed,
 * all fail. The first rank that failed keeps its message, prefixed by its rank; the others get t->told. Ranks with
 * other options, or with another state to start from, fail. s: the session, ready for the first iteration; NULL: it
 * failed or was stopped. *ended: this rank was stopped before the first iteration; set to true if any rank was. */
MM_CHECKED mm_status train_ranks_agree(train *t, session *s, mm_status begun, bool *ended);
/* Waits for the other ranks and disconnects. After a failure that they do not know of, aborts them. code: this
 * process's exit status, which is returned. */
int train_ranks_end(train *t, mm_status status, int code);

/* ---- train_start.c */

/* Starts --ranks processes with this process's command line, and waits for them. An interrupt is passed on to rank 0 as
 * a byte on its standard input; TRAIN_STARTED_VARIABLE in the environment makes rank 0 watch that. *code_out: their
 * exit status. MM_ERR_NOMEM. */
#define TRAIN_STARTED_VARIABLE "MM_STARTED"
MM_CHECKED mm_status train_start(const train *t, bool by_mpirun, int *code_out);

/* ---- train_state.c */

/* With --load, opens the state, and sets the options that the command line does not, the run's length included. Call it
 * before the options are used. */
MM_CHECKED mm_status train_open_state(train *t);

/* --net as the state has it, if its network was in a file: "file:PATH" or "onnx:PATH". NULL: it was not, or --net is
 * given. */
const char *train_state_net(const train *t);

/* Sets t->options, which the run's saved state will hold. MM_ERR_NOMEM. */
MM_CHECKED mm_status train_set_options(train *t);

/* Prints on stderr which options differ from the state's. Call it once the state is known to fit the network. */
MM_CHECKED mm_status train_log_differences(const train *t, const session *s);

/* Notes where a cosine schedule ends, for the state; prints on stderr if the loaded state's run had another end. */
void train_report_schedule(train *t, const session *s, const nets_schedule *schedule);

/* Returns `status`, the result of reading an option's value. If the value came from the state, a failure's message
 * names the state's file. */
MM_CHECKED mm_status train_read_of_state(const train *t, const char *option, mm_status status);

/* Whether to train on an epoch's last smaller batch: if --epochs is given, or the loaded state did. */
bool train_has_last_batch(const train *t);

#endif
