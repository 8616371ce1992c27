/* The command 'mm train': what was given, what is made of it, and the state that a run is saved in. */
#ifndef TOOLS_TRAIN_H
#define TOOLS_TRAIN_H

#include "tools/facts_source.h"
#include "tools/session.h"

enum {
    SWITCHES_MAX = ARG_TEXTS_MAX - 1, /* with the policy to begin with they are one list */
    TRAIN_STATE_OPTIONS = 16,         /* that a state says, at most */
};

typedef struct policy_switch {
    int64_t iteration;
    const char *policy;
} policy_switch; /* to `policy` once `iteration` are done */

typedef struct train {
    /* as given */
    const char *net, *data, *test_data, *policy, *save, *save_every, *load, *json, *log_path, *facts, *issue;
    int64_t batch, iterations, epochs, budget_bytes, pinned_bytes, seed;
    const char *lr_schedule;
    double lr, momentum, weight_decay; /* below their least: as the optimizer has it */
    target target;
    arg_texts switch_texts, lr_texts;
    bool eval, keep_going, no_ladder, self_check, no_measure, quiet, reset_optimizer, help;
    const arg *table;
    int argc;
    char **argv;
    /* made of it */
    policy_switch switches[SWITCHES_MAX];
    int n_switches;
    const char *policy_now;
    const volatile sig_atomic_t *interrupted; /* the iteration under way is finished, and the state saved if asked */
    char *data_path; /* `data` where it names files by absolute paths, for the state; NULL: it names none */
    nets_net *network;
    facts_source source; /* what --facts names */
    FILE *log;
    arg options[TRAIN_STATE_OPTIONS + 1]; /* of the run, which its state says */
    nets_safetensors_file *state;         /* loaded; NULL: none */
    session_period save_period;           /* of epochs: in epochs */
    bool save_epochs;
    int64_t saved_iteration;                           /* that the file of --save holds; 0: it was not written yet */
    char optimizer_text[NETS_OPTIMIZER_TEXT_CAPACITY]; /* with all options, for the state */
    texts texts;                                       /* that the row names */
} train;

/* ---- train_options.c */

/* Checks all that was given, and makes the session's configuration of it. */
MM_CHECKED mm_status train_configure(train *t, session_config *config_out);

/* The learning rate over a run of so many iterations, those of a loaded state included. */
MM_CHECKED mm_status train_read_schedule(const train *t, int64_t iterations, nets_schedule *schedule_out);

/* ---- train_state.c */

/* Opens the file of --load, if there is one, and takes what it says of its run and the command line does not. Before
 * anything else of the run is looked at. */
MM_CHECKED mm_status train_open_state(train *t);

/* Sets t->options, which the run's own state will say. */
void train_set_options(train *t);

/* Says on stderr what was given and is otherwise in the state, once it is known to be a state of the network. */
MM_CHECKED mm_status train_tell_differences(const train *t, const session *s);

/* The status of reading an option's value. A failure names the state's file where the value is the state's. */
MM_CHECKED mm_status train_read_of_state(const train *t, const char *option, mm_status status);

/* Whether an epoch's last, smaller batch is trained on: where epochs are asked for, or were when the state was made. */
bool train_has_last_batch(const train *t);

#endif
