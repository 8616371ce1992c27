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
#include "tools/host_rates/host_rates.h"
#include "tools/need/need.h"
#include "tools/need/policy_effect.h"
#include "tools/need/target.h"
#include "tools/train/host_memory.h"
#include "tools/train/row.h"

typedef struct session_config {
    const nets_net *net;
    const char *data;
    const char *test_data; /* to evaluate on; NULL: the test set of `data` */
    int64_t batch;         /* of all ranks together */
    comm *ranks;           /* connects this process, which trains its part of each batch, to the others; set in
                              target.allreduce too; borrowed; NULL: one process */
    int64_t sub_batch;     /* images computed at a time (nets_exec_create_sub); 0: the whole batch */
    target target;         /* borrowed */
    int64_t budget_bytes;  /* 0: what the first policy needs */
    int64_t pinned_bytes;  /* PINNED_OPEN: what the policies need, at most half of the free memory */
    arg_texts policies;    /* the first runs first; the session may be switched to the others */
    uint64_t seed;
    bool only_matching;   /* load only parameters whose names and shapes match, and begin with iteration 0 */
    bool reset_optimizer; /* do not load the optimizer's states and count; they start at zero */
    bool whole_epochs;    /* train on an epoch's last smaller batch too, rather than leave it out */
    bool evaluate;
    bool same_batches; /* repeat the first batches, so that the device never waits for a reader */
    bool keep_going;   /* update the weights even if the loss is not finite */
    bool no_ladder;    /* mm_options.no_ladder */
    bool self_check;
    bool verify_issued; /* mm_options.verify_issued */
    bool equal_streams; /* mm_options.equal_streams */
    bool measure;       /* mm_options.measure_touched */
    bool measure_times;
    int replan_percent;      /* plan again if iterations differ from the planned time by this; 0: never */
    const host_rates *rates; /* HOST_RATES_RUN: plan again once, by the first iterations' times; borrowed; NULL: no */
    bool trace;              /* record when steps and operations run (session_trace) */
    mm_issue issue;
    const facts_source *facts;         /* times of the training graph (facts_source.for_run); borrowed; NULL: none */
    const volatile sig_atomic_t *stop; /* nonzero: begin no further iteration; NULL: never stop */
    int64_t alloc_cost_ns;
    texts *texts; /* owns texts that rows point to, and must outlive them; borrowed; NULL: rows say nothing of what
                     policies do in the network, nor which ran */
} session_config;

/* The most policies that a session lists as having run (session.ran): chosen, above what --switch can do. */
enum { SESSION_RAN_MAX = 2 * ARG_TEXTS_MAX };

typedef struct session {
    session_config config;
    mm_facts *facts; /* config.facts for the manager; NULL: none */
    mm_manager *manager;
    /* Submit iterations ahead (mm_iteration_end_async). False on the host device: it would not be faster, and each
     * iteration's time is measured better. */
    bool ahead;
    nets_exec *train, *train_last; /* train_last NULL: no smaller batch */
    nets_exec *eval, *eval_last;
    nets_reader *train_data, *test_data;
    nets_reader_size train_size, test_size;
    host_memory host_before;              /* the process's memory when the session began */
    int64_t minimum_bytes;                /* the first policy's smallest budget */
    int64_t minimum_pinned_bytes;         /* pinned memory of that plan; may exceed pinned.bytes */
    int64_t need_bytes[ARG_TEXTS_MAX];    /* the smallest budget of each policy */
    policy_effect effects[ARG_TEXTS_MAX]; /* of each policy, on the training graph; unset without config.texts */
    const char *ran[SESSION_RAN_MAX];     /* the policies that ran, substitutes too, one after the other; of more than
                                             SESSION_RAN_MAX, the first ones and the last. In config.texts */
    int n_ran;
    bool ran_lossy[SESSION_RAN_MAX]; /* of each in `ran`: a plan that ran had a code of a lossy codec */
    unsigned lossy_codecs;           /* of the last in `ran`, as plan_work_add takes them */
    bool refused_switch;             /* session_init failed because a policy other than the first does not fit */
    bool refused_by_manager;         /* the manager failed after planning: its message has advice already */
    bool refused_data;               /* session_init could not open the training data */
    need *needs;                     /* one for each batch and policy; freed once the manager exists */
    int n_needs;
    pinned_limit pinned; /* what the session's plans may take; valid after session_init */
    int64_t pinned_needed_bytes;
    bool budget_given;        /* the user set config.budget_bytes; else it becomes the first policy's minimum */
    int64_t staged_bytes;     /* part of the budget for staging batches; 0: they are not staged */
    need_free free;           /* the first policy's minimum with unlimited pinned memory, if that is less */
    char holder[256];         /* layer and phase that need minimum_bytes */
    int64_t fused_bytes;      /* if planning chose not to fuse layers: what fused ones need at least; else 0 */
    int64_t data_shift;       /* how far the data is ahead of `iteration`, in batches */
    bool together;            /* there are other ranks: all begin the same iterations */
    bool stopped;             /* with `together`: a rank was stopped */
    int64_t measured;         /* iterations that were measured to plan again (session_again.c); -1: that is done */
    char adapters_prefix[80]; /* before the names of adapters in a saved state; "": they are not LoRA's */
    int64_t iteration;        /* number of iterations run, including those of a loaded state */
    /* The first iteration, from 1, whose loss or gradient was not finite; 0: none. It ends the training without an
     * update, unless config.keep_going. */
    int64_t diverged_iteration;
} session;

enum { SESSION_ITERATIONS_MAX = 1000000000 }; /* chosen, far above any training */

/* Plans, then creates the manager and the graphs. MM_ERR_INFEASIBLE: the budget is below the minimum; minimum_bytes and
 * holder are set. MM_ERR_ORDER: config.stop was set during the call (session_stopped_early). On failure the session
 * needs no session_fini. */
MM_CHECKED mm_status session_init(session *s, const session_config *config);
void session_fini(session *s);

/* How many of n images this process trains. */
static inline int64_t session_part(const session *s, int64_t n) {
    return s->config.ranks ? n / comm_size(s->config.ranks) : n;
}

static inline bool session_is_stopped(const session *s) {
    return s->together ? s->stopped : s->config.stop && *s->config.stop;
}

/* Whether session_init failed because it was stopped. begun: what it returned. */
static inline bool session_stopped_early(const session *s, mm_status begun) {
    return begun == MM_ERR_ORDER && session_is_stopped(s);
}

/* Sets the row's members that are known before the session runs. MM_ERR_NOMEM. */
MM_CHECKED mm_status session_name_row(const session *s, row *row_out);

/* Called before each iteration of a training run, when session.iteration iterations have been submitted. May switch the
 * policy. */
typedef mm_status (*session_hook)(void *ctx, session *s);

/* Due when (iteration + shift) is a multiple of `every`; every 0: never. */
typedef struct session_period {
    int64_t every, shift;
} session_period;

/* lr: the learning rate; images: of the iteration's batch; planned_bytes: device memory by plan. */
#define SESSION_LOG_HEAD "iteration,loss,accuracy,seconds,lr,images,planned_bytes"

/* Further columns of a log of a session that evaluates. They are empty in an iteration's line. An evaluation has a line
 * with its iteration and these values; its other columns are empty. */
#define SESSION_LOG_HEAD_TESTS ",test_loss,test_accuracy"

typedef struct session_run {
    int64_t iterations; /* trains until session.iteration is this */
    int64_t whole;      /* total for the progress bar, if further runs follow; 0: `iterations` */
    nets_schedule schedule;
    session_hook hook; /* may be NULL */
    void *hook_ctx;
    session_period save_period;
    session_hook save; /* called between iterations when save_period is due; NULL if never due */
    FILE *log;         /* gets a line for each iteration, as SESSION_LOG_HEAD names its values; NULL: none */
    FILE *codec_log;   /* gets a line for each iteration that samples (codec_log.h); NULL: none */
    const char *told;  /* stands beside the policy in progress: "budget 300MiB"; NULL: nothing */
    bool quiet;
    bool view; /* on a terminal, show memory and streams below the progress bar (session_view.h) */
} session_run;

/* Whether the training has ended because a loss or gradient was not finite. */
bool session_diverged(const session *s);

/* Trains until run->iterations are done. Sets the row's figures; its times are of the last iterations. */
MM_CHECKED mm_status session_train(session *s, const session_run *run, row *row_out);

/* Ends the trace, and adds it to the others. Does nothing unless config.trace. Call it after session_train, even if
 * that failed. */
MM_CHECKED mm_status session_trace(session *s, traces *all);

/* Evaluates on the test data: the share of images whose label scored highest, and the mean loss. Both are negative if
 * the evaluation was stopped. */
MM_CHECKED mm_status session_evaluate(session *s, bool quiet, double *accuracy_out, double *loss_out);

/* A saved state. It is opened before the session begins, because its metadata has the options of the run (names without
 * "--"). */
typedef struct nets_safetensors_file nets_safetensors_file;

/* Opens the file, and sets each of the options (ended by ARG_END) that the state has and the arguments do not. A state
 * without a version (an older one, or weights alone) sets none. The options' texts point into the file. MM_ERR_IO;
 * MM_ERR_FORMAT: not a state, a newer version, or an impossible value of an option. */
MM_CHECKED mm_status session_state_open(const char *path, const arg *options, int argc, char **argv,
                                        nets_safetensors_file **file_out);
/* Checks that the file has the network's parameters that are not frozen, before anything is planned; session_load
 * checks the rest. MM_ERR_FORMAT: it is of another network. */
MM_CHECKED mm_status session_state_check(const nets_safetensors_file *file, const nets_net *net);
/* The same of a file of frozen weights (--base), by its path. */
MM_CHECKED mm_status session_base_check(const nets_safetensors_file *file, const char *path, const nets_net *net);
/* Prints a line on stderr for each option whose value in the arguments differs from the state's. MM_ERR_NOMEM. */
MM_CHECKED mm_status session_state_report(const nets_safetensors_file *file, const char *path, const arg *options,
                                          int argc, char **argv);
/* The value of a key in the state's metadata. NULL: no such key, or file is NULL. */
const char *session_state_says(const nets_safetensors_file *file, const char *key);
void session_state_close(nets_safetensors_file *file); /* NULL is legal */

/* Takes all parameters that the file has, the frozen ones among them. With LoRA, adapters are saved as peft names those
 * of the file's model: base_model.model.<the file's prefix><name>. MM_ERR_IO, MM_ERR_NOMEM. */
MM_CHECKED mm_status session_load_base(session *s, const nets_safetensors_file *file);

/* Save and load a state: weights but frozen ones, running statistics, optimizer state, and the number of iterations.
 * The options (ended by ARG_END; NULL: none) become metadata. Saving replaces the file atomically. It refuses elements
 * that are not finite (MM_ERR_UNSUPPORTED), unless config.keep_going. Loading checks the whole file before it changes
 * anything. Both hold NETS_TRANSFER_BYTES of a tensor in memory at a time. */
MM_CHECKED mm_status session_save(session *s, const char *path, const arg *options);
MM_CHECKED mm_status session_load(session *s, const nets_safetensors_file *file, const char *path);
/* A digest of frozen weights, and of all tensors that session_save would write, except error bounds. */
MM_CHECKED mm_status session_digest(session *s, uint64_t *digest_out);

#endif
