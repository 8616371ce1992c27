/* The command 'mm train': its options, what is made of them, and the state that a run is saved in. */
#ifndef TOOLS_TRAIN_H
#define TOOLS_TRAIN_H

#include "tools/facts_source.h"
#include "tools/session.h"
#include "tools/sub_batch.h"

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
        *facts_save, *trace, *progress, *issue, *sub_batch_text;
    int64_t batch, iterations, epochs, budget_bytes, pinned_bytes, effort, seed, replan;
    const char *lr_schedule;
    double lr, momentum, weight_decay; /* below their minimum: the optimizer's default */
    target target;
    arg_texts switch_texts, lr_texts;
    bool eval, keep_going, no_ladder, self_check, no_measure, quiet, reset_optimizer, help;
    const arg *table;
    int argc;
    char **argv;
    /* made from the above */
    int64_t sub_batch; /* images that are computed at a time: the batch, unless it is trained on in sub-batches */
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

/* The run, as a sub-batch is chosen for it. Once the network is open. */
void train_sub_batch_case(const train *t, sub_batch_case *c_out);

/* Checks all options, and makes the session's configuration from them. */
MM_CHECKED mm_status train_configure(train *t, session_config *config_out);

/* The learning rate's schedule for a run of `iterations` iterations, those of a loaded state included. */
MM_CHECKED mm_status train_read_schedule(const train *t, int64_t iterations, nets_schedule *schedule_out);

/* ---- train_state.c */

/* Opens the file of --load, if there is one, and sets the options that the command line does not. To be called before
 * the options are used. */
MM_CHECKED mm_status train_open_state(train *t);

/* Sets t->options, the metadata of the run's own state. */
void train_set_options(train *t);

/* Prints on stderr which options differ from the state's. To be called once the state is known to fit the network. */
MM_CHECKED mm_status train_tell_differences(const train *t, const session *s);

/* Returns `status`, that of reading an option's value. A failure names the state's file if the value is from the
 * state. */
MM_CHECKED mm_status train_read_of_state(const train *t, const char *option, mm_status status);

/* Whether an epoch's last smaller batch is trained on: if the run's length is given in epochs, or was for the state. */
bool train_has_last_batch(const train *t);

#endif
