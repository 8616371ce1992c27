/* A network in training: its manager, its graphs (training, the epoch's last smaller batch, evaluation) in one arena,
 * and its data. What `mm train` and `mm bench` have in common. */
#ifndef TOOLS_SESSION_H
#define TOOLS_SESSION_H

#include <signal.h>

#include "nets/exec.h"
#include "nets/io/reader.h"
#include "nets/lr_schedule.h"
#include "tools/args.h"
#include "tools/host_memory.h"
#include "tools/progress.h"
#include "tools/requirement.h"
#include "tools/row.h"
#include "tools/target.h"

typedef struct session_config {
    const nets_net *net;
    const char *data;
    const char *test_data; /* to evaluate on; NULL: the test set of `data` */
    int64_t batch;
    target target;        /* borrowed */
    int64_t budget_bytes; /* 0: what the first policy needs */
    int64_t pinned_bytes; /* 0: what the policies need, at most half of what is free */
    arg_texts policies;   /* the first to begin with; others that will be switched to */
    uint64_t seed;
    bool reset_optimizer; /* of a loaded state, the optimizer's states and count are left out: they begin at zero */
    bool whole_epochs;    /* the last smaller batch is trained on too; else left out */
    bool evaluate;
    bool same_batches; /* the first ones again and again: no reader holds the device up */
    bool keep_going;   /* a loss that is not finite updates the weights as any other does */
    bool no_ladder;    /* less memory than that is an error */
    bool self_check;
    bool equal_streams; /* the computation is no more urgent than codecs and copies */
    bool measure;       /* touched bytes */
    bool measure_times;
    mm_issue issue;
    const facts_source *facts;         /* measured, for_run, of the training graph; borrowed; NULL: none */
    const volatile sig_atomic_t *stop; /* nonzero: no further iteration; NULL: never */
    int64_t alloc_cost_ns;
    texts *texts; /* borrowed: keeps what rows name, and must outlive them; NULL: rows name no policy_now */
} session_config;

typedef struct session {
    session_config config;
    mm_manager *manager;
    bool
        ahead; /* iterations are submitted ahead; the host's own device gains nothing by that, and is measured better */
    nets_exec *train, *train_last; /* train_last NULL: no smaller batch */
    nets_exec *eval, *eval_last;
    nets_reader *train_data, *test_data;
    nets_reader_size train_size, test_size;
    host_memory host_before;           /* of the process, when the session began */
    int64_t minimum_bytes;             /* budget below which the first policy does not run */
    int64_t need_bytes[ARG_TEXTS_MAX]; /* the same for each policy */
    bool refused_switch;               /* it is one that will be switched to that does not fit */
    bool refused_data;                 /* the training data could not be opened */
    requirement *requirements;         /* of each graph and policy, until the manager is made */
    int n_requirements;
    int64_t pinned_most_bytes, pinned_needed_bytes;
    int64_t staged_bytes;  /* of the budget, for batches that come in beside the computation; 0: they never do */
    requirement_free free; /* of the first policy, if it takes less on the device with more pinned memory */
    char holder[256];      /* layer and phase that hold it */
    int64_t data_shift;    /* how far the data is ahead of the iterations, in batches: other batches came before */
    int64_t iteration;     /* how many were run, those of a loaded state included */
    /* The first iteration, from 1, whose loss or gradient was not finite; 0: none. It ends the training, and its update is
     * not taken, unless config.keep_going. */
    int64_t diverged_iteration;
} session;

enum { SESSION_ITERATIONS_MAX = 1000000000 };

/* Fills minimum_bytes and holder, then everything else. If the budget is below the minimum: MM_ERR_INFEASIBLE, with
 * these two set, and nothing to be ended. MM_ERR_ORDER: it was stopped meanwhile (session_stopped_early), and nothing is
 * to be ended either. */
MM_CHECKED mm_status session_init(session *s, const session_config *config);
void session_fini(session *s);

static inline bool session_is_stopped(const session *s) { return s->config.stop && *s->config.stop; }

/* Whether that is why session_init failed. */
static inline bool session_stopped_early(const session *s, mm_status begun) {
    return begun == MM_ERR_ORDER && session_is_stopped(s);
}

/* What a row says of the session before anything has run. */
void session_name_row(const session *s, row *row_out);

/* Called before each iteration of a training run, when session.iteration were submitted: may switch the policy. */
typedef mm_status (*session_hook)(void *ctx, session *s);

/* How often: after each `every` iterations, counted from -`shift`. */
typedef struct session_period {
    int64_t every, shift; /* every 0: never */
} session_period;

typedef struct session_run {
    int64_t iterations; /* until session.iteration is this */
    nets_schedule schedule;
    session_hook hook; /* may be NULL */
    void *hook_ctx;
    session_period save_period;
    session_hook save; /* called then, between iterations; may be NULL where that is never */
    FILE *log;         /* a line for each iteration: iteration,loss,accuracy,seconds; NULL: none */
    bool quiet;
} session_run;

/* Whether the training has ended by a loss that is not finite. */
bool session_diverged(const session *s);

/* Trains, or finds that nothing is left to do. Fills the row's figures; its times are of the last iterations. */
MM_CHECKED mm_status session_train(session *s, const session_run *run, row *row_out);

/* Share of the test images whose label scored highest, and mean loss. Stopped half-way: both negative. */
MM_CHECKED mm_status session_evaluate(session *s, bool quiet, double *accuracy_out, double *loss_out);

/* A state to go on from; it is opened before the session is made, since it says how the run was: metadata of options, by
 * their names without "--". */
typedef struct nets_safetensors_file nets_safetensors_file;

/* Opens the file, and sets each of the options (ending with ARG_END) that the state says and the arguments do not. A
 * state that says nothing of its version (an older one, or
 * weights alone) sets none. The options' texts live in the file. MM_ERR_FORMAT: no state, one of another version, or of
 * an option's value that cannot be. */
MM_CHECKED mm_status session_state_open(const char *path, const arg *options, int argc, char **argv,
                                        nets_safetensors_file **file_out);
/* A line on stderr for each that the arguments have otherwise than the state. MM_ERR_NOMEM. */
MM_CHECKED mm_status session_state_tell(const nets_safetensors_file *file, const char *path, const arg *options,
                                        int argc, char **argv);
/* What the state says; NULL: nothing. */
const char *session_state_says(const nets_safetensors_file *file, const char *key);
void session_state_close(nets_safetensors_file *file); /* NULL is legal */

/* Weights, running statistics, optimizer state, and how far the training is: to a file and back, with the options (ending with
 * ARG_END; NULL: none) as metadata. Saving replaces the
 * file when the new one is complete; a state with elements that are not finite is refused (MM_ERR_UNSUPPORTED), unless
 * config.keep_going. Loading checks the whole file before it changes anything. Both have NETS_TRANSFER_BYTES of a tensor
 * in memory at a time. */
MM_CHECKED mm_status session_save(session *s, const char *path, const arg *options);
MM_CHECKED mm_status session_load(session *s, const nets_safetensors_file *file, const char *path);

#endif
