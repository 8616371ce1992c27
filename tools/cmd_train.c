#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/io/net_file.h"
#include "policies/policy.h"
#include "tools/commands.h"
#include "tools/files.h"
#include "tools/json_file.h"
#include "tools/requirement.h"
#include "tools/session.h"
#include "tools/train_state.h"

/* With the policy to begin with they are one list. */
enum { SWITCHES_MAX = ARG_TEXTS_MAX - 1 };

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

/* ---------------------------------------------------------------- what the run's state says */

static bool uses_lossy(const train *t) {
    bool lossy = train_state_lossy(t->policy);
    for (int i = 0; i < t->n_switches; i++) lossy |= train_state_lossy(t->switches[i].policy);
    return lossy;
}

/* How a state's run was updated; a state that does not say is of the time when there was SGD alone. NULL: of weights
 * alone. */
static const char *state_optimizer(const train *t) {
    const char *optimizer = session_state_says(t->state, "optimizer");
    return optimizer ? optimizer : session_state_says(t->state, "iteration") ? "sgd" : NULL;
}

/* Of a state, what is not given goes on; but another optimizer has its own rate and options, and of steps and a schedule
 * the one that is given counts. */
static mm_status open_optimizer(train *t) {
    const char *then = state_optimizer(t), *now = t->target.optimizer_text ? t->target.optimizer_text : "sgd";
    const size_t length = strcspn(now, ",");
    if (args_given(t->argc, t->argv, "--lr-step") && !args_given(t->argc, t->argv, "--lr-schedule"))
        t->lr_schedule = "";
    if (args_given(t->argc, t->argv, "--lr-schedule") && !args_given(t->argc, t->argv, "--lr-step"))
        args_texts_fini(&t->lr_texts);
    if (args_given(t->argc, t->argv, "--optimizer")) { /* with all options */
        if (!args_given(t->argc, t->argv, "--momentum")) t->momentum = -1;
        if (!args_given(t->argc, t->argv, "--weight-decay")) t->weight_decay = -1;
    }
    if (!then || (strcspn(then, ",") == length && memcmp(then, now, length) == 0)) return MM_OK;
    if (!t->reset_optimizer)
        return mm_fail(MM_ERR_INVALID,
                       "--optimizer %s: %s was trained with %s; --reset-optimizer takes its weights alone", now,
                       t->load, then);
    if (!args_given(t->argc, t->argv, "--lr")) t->lr = 0;
    return MM_OK;
}

/* Before anything else of the run is looked at. */
static mm_status open_state(train *t) {
    arg options[TRAIN_STATE_OPTIONS + 1];
    if (!t->load) return MM_OK;
    train_state_options(t->table, true, options);
    MM_TRY(session_state_open(t->load, options, t->argc, t->argv, &t->state));
    const char *net = session_state_says(t->state, "version") ? session_state_says(t->state, "net") : NULL;
    if (net && !args_given(t->argc, t->argv, "--net")) t->net = net;
    /* Another policy is not switched as the state's was. */
    if (args_given(t->argc, t->argv, "--policy") && !args_given(t->argc, t->argv, "--switch"))
        args_texts_fini(&t->switch_texts);
    MM_TRY(open_optimizer(t));
    /* Another device has none to set. */
    if (!target_is_host(t->target.device) && !args_given(t->argc, t->argv, "--threads")) t->target.threads = 0;
    return MM_OK;
}

static mm_status open_net(train *t) {
    const char *net = session_state_says(t->state, "net");
    mm_status status = nets_open(t->net, &t->network);
    if (status != MM_OK && net && t->net == net)
        return mm_fail_in(status, "%s is a state of net %s; if that is of a file, give it: --net file:PATH", t->load,
                          net);
    MM_TRY(status);
    return MM_OK;
}

/* An epoch's last smaller batch: trained on where epochs are asked for, or were when the state was made. */
static bool trains_last_batch(const train *t) {
    const char *last = session_state_says(t->state, "last_batch");
    return t->epochs > 0 || (last && strcmp(last, "trained") == 0);
}

/* Once it is known to be a state of the network. */
static mm_status tell_differences(const train *t, const session *s) {
    const char *last = session_state_says(t->state, "last_batch"), *net = session_state_says(t->state, "net");
    arg options[TRAIN_STATE_OPTIONS + 1];
    train_state_options(t->table, true, options);
    if (last && net && strcmp(net, nets_net_name(t->network)) != 0)
        fprintf(stderr, "mm train: --net %s: %s was trained with %s\n", t->net, t->load, net);
    if (s->train_last && last && strcmp(last, "trained") != 0)
        fprintf(stderr,
                "mm train: --epochs %lld: an epoch's last, smaller batch is trained on, in %s it was left out\n",
                (long long)t->epochs, t->load);
    return session_state_tell(t->state, t->load, options, t->argc, t->argv);
}

/* ---------------------------------------------------------------- options */

static mm_status read_save_every(train *t) {
    if (!t->save_every) return MM_OK;
    if (!t->save) return mm_fail(MM_ERR_INVALID, "--save-every %s: needs --save FILE", t->save_every);
    return train_state_period(t->save_every, &t->save_period, &t->save_epochs);
}

static mm_status read_switch(train *t, const char *text) {
    char *colon;
    if (t->n_switches == SWITCHES_MAX)
        return mm_fail(MM_ERR_INVALID, "--switch is given more than %d times: give fewer", SWITCHES_MAX);
    errno = 0;
    long long iteration = strtoll(text, &colon, 10);
    if (errno || colon == text || *colon != ':' || iteration < 0)
        return mm_fail(MM_ERR_INVALID, "--switch %s: must be ITERATION:POLICY, for example 100:freelunch:rate=4", text);
    if (mm_policy_check(colon + 1) != MM_OK) return mm_fail_in(MM_ERR_INVALID, "--switch %s", text);
    t->switches[t->n_switches++] = (policy_switch){.iteration = iteration, .policy = colon + 1};
    return MM_OK;
}

/* Once --optimizer is read: its options may be given one by one. All are then as they are, for the state. */
static mm_status read_optimizer(train *t) {
    nets_optimizer *optimizer = &t->target.optimizer;
    if (t->reset_optimizer && !t->load) return mm_fail(MM_ERR_INVALID, "--reset-optimizer: needs --load FILE");
    if (t->momentum >= 0 && nets_optimizer_set(optimizer, "momentum", t->momentum) != MM_OK)
        return mm_fail_in(MM_ERR_INVALID, "--momentum %g", t->momentum);
    if (t->weight_decay >= 0) MM_TRY(nets_optimizer_set(optimizer, "weight-decay", t->weight_decay));
    if (t->lr <= 0) t->lr = nets_optimizer_traits_of(optimizer->id)->rate;
    if (optimizer->id == NETS_SGD) t->momentum = optimizer->momentum;
    t->weight_decay = optimizer->weight_decay;
    nets_optimizer_text(optimizer, t->optimizer_text);
    t->target.optimizer_text = t->optimizer_text;
    return MM_OK;
}

/* Each --lr-step is an iteration, at which the rate falls to a tenth. `iterations`: of the whole run. */
static mm_status read_schedule(const train *t, int64_t iterations, nets_schedule *schedule) {
    *schedule = (nets_schedule){.rate = (float)t->lr, .factor = 0.1f, .iterations = iterations};
    if (*t->lr_schedule && t->lr_texts.n > 0)
        return mm_fail(MM_ERR_INVALID, "--lr-schedule %s and --lr-step: give one of them", t->lr_schedule);
    if (*t->lr_schedule && nets_schedule_parse(t->lr_schedule, schedule) != MM_OK)
        return mm_fail_in(MM_ERR_INVALID, "--lr-schedule %s", t->lr_schedule);
    for (int i = 0; i < t->lr_texts.n; i++) {
        char *end;
        errno = 0;
        long long at = strtoll(t->lr_texts.text[i], &end, 10);
        if (errno || end == t->lr_texts.text[i] || *end || at < 0)
            return mm_fail(MM_ERR_INVALID, "--lr-step %s: must be an iteration, a whole number from 0 to %lld",
                           t->lr_texts.text[i], LLONG_MAX);
        if (i == NETS_SCHEDULE_STEPS)
            return mm_fail(MM_ERR_INVALID, "--lr-step is given %d times: at most %d", t->lr_texts.n,
                           NETS_SCHEDULE_STEPS);
        schedule->at[schedule->n++] = at;
    }
    return nets_schedule_check(schedule);
}

/* A loaded state may lie beyond several switches: the latest of them counts. */
static mm_status apply_switches(void *ctx, session *s) {
    train *t = ctx;
    const policy_switch *latest = NULL;
    for (int i = 0; i < t->n_switches; i++) {
        const policy_switch *candidate = &t->switches[i];
        if (candidate->iteration <= s->iteration && (!latest || candidate->iteration >= latest->iteration))
            latest = candidate;
    }
    if (!latest || latest->policy == t->policy_now) return MM_OK;
    MM_TRY(mm_policy_set(s->manager, latest->policy));
    t->policy_now = latest->policy;
    return MM_OK;
}

/* A state that is gone on from may be saved over. */
static mm_status check_files(const train *t) {
    bool over = t->load && t->save && files_are_same(t->load, t->save);
    data_files data, test_data;
    files_data(t->data, &data);
    files_data(t->test_data, &test_data);
    const named_file files[] = {{"--save", t->save, FILE_WRITTEN},
                                {"--json", t->json, FILE_WRITTEN},
                                {"--log", t->log_path, FILE_WRITTEN},
                                {"--facts", t->facts, FILE_READ},
                                {"--load", over ? NULL : t->load, FILE_READ},
                                {"--net", files_net(t->net), FILE_READ},
                                {"--algorithms", t->target.algorithms, FILE_KEPT},
                                {"--data", data.images, FILE_READ},
                                {"--data", data.labels, FILE_READ},
                                {"--test-data", test_data.images, FILE_READ},
                                {"--test-data", test_data.labels, FILE_READ}};
    return files_check(files, sizeof files / sizeof *files);
}

static mm_status check_data(const train *t) {
    if (t->test_data && !t->eval)
        return mm_fail(MM_ERR_INVALID, "--test-data %s: is what --eval evaluates on; add --eval", t->test_data);
    if (t->eval && !t->test_data && !nets_reader_has_test(t->data))
        return mm_fail(MM_ERR_INVALID, "--eval: --data %s has no test set; give one with --test-data", t->data);
    return MM_OK;
}

static mm_status open_facts(train *t) {
    if (!t->facts) return MM_OK;
    MM_TRY(facts_source_open(t->facts, &t->source));
    if (t->source.is_machine)
        return mm_fail(MM_ERR_INVALID,
                       "--facts %s: a machine's rates; this takes measured times, which 'mm bench --facts' writes",
                       t->facts);
    t->source.for_run = true;
    target_tell_threads(&t->target, t->facts, t->source.threads);
    return MM_OK;
}

static mm_status configure(train *t, session_config *config) {
    if (t->iterations && t->epochs) return mm_fail(MM_ERR_INVALID, "--iterations and --epochs: give one of them");
    MM_TRY(check_data(t));
    mm_issue issue;
    MM_TRY(target_init(&t->target));
    MM_TRY(read_optimizer(t));
    MM_TRY(target_probe(&t->target));
    MM_TRY(target_issue(&t->target, t->issue, &issue));
    MM_TRY(mm_policy_check(t->policy));
    for (int i = 0; i < t->switch_texts.n; i++) MM_TRY(read_switch(t, t->switch_texts.text[i]));
    MM_TRY(read_save_every(t));
    MM_TRY(open_net(t));
    MM_TRY(check_files(t));
    MM_TRY(open_facts(t));
    *config = (session_config){.net = t->network,
                               .data = t->data,
                               .test_data = t->test_data,
                               .batch = t->batch,
                               .target = t->target,
                               .budget_bytes = t->budget_bytes,
                               .pinned_bytes = t->pinned_bytes,
                               .seed = (uint64_t)t->seed,
                               .reset_optimizer = t->reset_optimizer,
                               .whole_epochs = trains_last_batch(t),
                               .evaluate = t->eval,
                               .keep_going = t->keep_going,
                               .no_ladder = t->no_ladder,
                               .self_check = t->self_check,
                               .measure = !t->no_measure,
                               .facts = t->facts ? &t->source : NULL,
                               .stop = t->interrupted,
                               .issue = issue,
                               .texts = &t->texts};
    config->policies.text[config->policies.n++] = t->policy;
    for (int i = 0; i < t->n_switches; i++) {
        if (t->iterations > 0 && t->switches[i].iteration >= t->iterations) continue; /* it never comes */
        config->policies.text[config->policies.n++] = t->switches[i].policy;
    }
    return MM_OK;
}

static mm_status evaluate(const train *t, session *s, row *r) {
    double loss;
    MM_TRY(session_evaluate(s, t->quiet, &r->test_accuracy, &loss));
    if (r->test_accuracy < 0) return MM_OK;
    FILE *out = json_file_beside(t->json);
    fprintf(out, "iteration %lld: test accuracy %.2f%%, test loss %.4f\n", (long long)s->iteration,
            100 * r->test_accuracy, loss);
    fflush(out);
    return MM_OK;
}

static void say_why_nothing_ran(const train *t, const session *s) {
    if (*t->interrupted)
        fprintf(stderr, "mm train: interrupted before the first iteration%s\n",
                t->save && s->iteration == 0 ? "; there is nothing to save" : "");
    else
        fprintf(stderr,
                "mm train: nothing to train: %s has %lld iterations behind it; --iterations is how many in all\n",
                t->load, (long long)s->iteration);
}

/* How many iterations the run has, those behind a loaded state included. */
static int64_t last_iteration(const train *t, const session *s) {
    return t->epochs ? t->epochs * s->train_size.batches - s->data_shift : t->iterations;
}

/* Trains to the end, with an evaluation after each epoch if asked; one run otherwise. A loaded state that is at the end
 * is only evaluated. */
static mm_status train_all(train *t, session *s, session_run *run, row *r) {
    int64_t epoch = s->train_size.batches, end = last_iteration(t, s);
    row all = {0};
    do {
        int64_t epoch_end = s->iteration + epoch - (s->iteration + s->data_shift) % epoch;
        run->iterations = t->epochs && t->eval && epoch_end < end ? epoch_end : end;
        row one = {0};
        MM_TRY(session_train(s, run, &one));
        if (all.iterations > 0) {
            one.loss_first = all.loss_first;
            one.iterations += all.iterations;
        }
        all = one;
        if (t->eval && !*t->interrupted && !session_diverged(s)) MM_TRY(evaluate(t, s, &all));
    } while (s->iteration < end && !*t->interrupted && !session_diverged(s));
    *r = all;
    return MM_OK;
}

static mm_status save(void *ctx, session *s) {
    train *t = ctx;
    if (s->iteration == 0 || s->iteration == t->saved_iteration) return MM_OK;
    MM_TRY(session_save(s, t->save, t->options));
    t->saved_iteration = s->iteration;
    return MM_OK;
}

/* What was trained is not lost to a failure: the state is as the last whole iteration left it. What --save-every wrote
 * before a run diverged is better: its loss was finite, and not about to overflow. */
static mm_status save_at_end(train *t, session *s, mm_status status) {
    if (!t->save) return status;
    bool diverged = session_diverged(s);
    mm_status saved = diverged && t->saved_iteration > 0 ? MM_OK : save(t, s);
    if (diverged && saved != MM_OK) fprintf(stderr, "mm train: %s\n", mm_last_error());
    if (diverged && t->saved_iteration > 0)
        fprintf(json_file_beside(t->json), "%s: the state after iteration %lld\n", t->save,
                (long long)t->saved_iteration);
    return status != MM_OK || diverged ? status : saved;
}

static mm_status run_session(train *t, session *s, row *r) {
    session_run run = {.hook = apply_switches, .hook_ctx = t, .log = t->log, .quiet = t->quiet, .save = save};
    if (t->state) MM_TRY(session_load(s, t->state, t->load));
    MM_TRY(read_schedule(t, last_iteration(t, s), &run.schedule));
    if (t->state) MM_TRY(tell_differences(t, s));
    run.save_period = t->save_period;
    if (t->save_epochs) {
        run.save_period.every *= s->train_size.batches;
        run.save_period.shift = s->data_shift;
    }
    t->target.threads = t->target.backend->threads; /* as they are, for the state */
    mm_status status = train_all(t, s, &run, r);
    if (status == MM_OK && r->iterations == 0) say_why_nothing_ran(t, s);
    return save_at_end(t, s, status);
}

/* After all that may be refused, so that what is there stays. */
static mm_status open_log(train *t) {
    if (!t->log_path) return MM_OK;
    t->log = fopen(t->log_path, "w");
    if (!t->log) return mm_fail(MM_ERR_IO, "cannot write %s: %s", t->log_path, strerror(errno));
    setvbuf(t->log, NULL, _IOLBF, BUFSIZ); /* for whoever follows it */
    fprintf(t->log, "iteration,loss,accuracy,seconds\n");
    return MM_OK;
}

/* A budget, if one is given, that is too small for the policy may do for another. */
static mm_status advise(const train *t, const session *s, mm_status status) {
    if (status != MM_ERR_INFEASIBLE || s->refused_switch || t->budget_bytes == 0) return status;
    return requirement_advise(t->network, t->batch, &t->target, s->config.budget_bytes, s->pinned_most_bytes);
}

static mm_status run_train(train *t, row *r) {
    session_config config;
    session s;
    MM_TRY(configure(t, &config));
    train_state_options(t->table, uses_lossy(t), t->options);
    mm_status begun = session_init(&s, &config);
    if (session_stopped_early(&s, begun)) {
        session_name_row(&s, r);
        say_why_nothing_ran(t, &s);
        return MM_OK;
    }
    if (begun != MM_OK) return advise(t, &s, begun);
    mm_status status = open_log(t);
    if (status == MM_OK) status = run_session(t, &s, r);
    session_fini(&s);
    if (status == MM_OK && t->log && (ferror(t->log) || fflush(t->log) != 0))
        status = mm_fail(MM_ERR_IO, "cannot write %s: %s", t->log_path, strerror(errno));
    return status;
}

static const char help_text[] =
    "Trains a network with all that it needs on the device inside --budget: weights, gradients, optimizer state,\n"
    "feature maps, workspaces. The policy decides what happens to the feature maps between the forward and the\n"
    "backward pass. Its plan is proved to fit before the first step; a budget too small is refused, naming the\n"
    "least that would do and the layer that holds it ('mm plan' tells beforehand). Without --budget it takes what\n"
    "the plan needs. If the device has less to give, or memory runs out later, a plan that needs less stands in (with\n"
    "more swapping, recomputation, and so on; never a lossy one for a lossless one), and a line says so.\n"
    "\n"
    "files: are images as uint8 [images, height, width, channels], which the network gets as -1 to 1, not augmented,\n"
    "and int32 labels [images], or [images, height, width] for a network with a label for each pixel, as numpy.save\n"
    "writes them. They are read while training goes on, not held in memory.\n"
    "\n"
    "A saved state goes on where it stopped, bit for bit: it says its network, data and the place in it, batch, seed,\n"
    "learning rate and its steps or schedule, optimizer and threads, and policies and budget where a code is lossy.\n"
    "What of it is given with --load and differs is told; --iterations and --epochs count what it has behind it.\n"
    "--save-every saves on the way; a run that is killed while it saves leaves the state before.\n"
    "A loss or gradient that is NaN or infinite ends the training with status diverged and exit 1: that iteration's\n"
    "update is not taken, and --save has the state before it, or what --save-every wrote. --keep-going trains on.\n"
    "Ctrl-C (or SIGTERM) finishes the iteration, saves if --save is given, and exits with 130; a second one ends it\n"
    "at once.\n"
    "Otherwise: 0 done, 1 failed or does not fit, 2 the command line cannot be meant so.\n"
    "\n"
    "  mm train --net resnet32 --data cifar10:DIR --epochs 3 --eval --policy freelunch:rate=4 --budget 200MiB\n"
    "  mm train --net resnet20 --data files:x.npy,y.npy --test-data files:tx.npy,ty.npy --epochs 9 --eval\n"
    "  mm train --net resnet20 --iterations 300 --switch 100:freelunch --switch 200:liveness --save state\n"
    "  mm train --net resnet20 --iterations 400 --load state --save state";

int cmd_train(int argc, char **argv) {
    train t = {.net = "resnet32",
               .data = "synthetic",
               .target = TARGET_DEFAULTS,
               .policy = "liveness",
               .issue = "auto",
               .batch = 128,
               .seed = 1,
               .lr_schedule = "",
               .momentum = -1,
               .weight_decay = -1};
    const arg table[] = {
        {"--net", "NAME", "network: 'mm nets' lists them (resnet32)", ARG_TEXT, &t.net, 0, 0},
        {"--data", "SPEC", "cifar10:DIR, synthetic[:samples=N], files:IMAGES.npy,LABELS.npy (synthetic)", ARG_TEXT,
         &t.data, 0, 0},
        {"--test-data", "SPEC", "what --eval evaluates on (the test set of --data)", ARG_TEXT, &t.test_data, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &t.batch, 1, 1 << 20},
        {"--iterations", "N", "train until this many iterations are done (100)", ARG_COUNT, &t.iterations, 1, 1e9},
        {"--epochs", "N", "... or this many passes over the data", ARG_COUNT, &t.epochs, 1, 1e6},
        TARGET_ARGS(&t.target),
        TARGET_CODEC_THREADS_ARG(&t.target),
        {"--budget", "SIZE", "bytes on the device, never exceeded: 300MiB (what --policy's plan needs)", ARG_SIZE,
         &t.budget_bytes, 0, 0},
        {"--pinned", "SIZE", "host memory for offloaded maps (what the plan needs, at most half of what is free)",
         ARG_SIZE, &t.pinned_bytes, 0, 0},
        TARGET_LINK_ARG(&t.target),
        {"--policy", "NAME[:k=v,..]", "policy: 'mm policies' lists them (liveness)", ARG_TEXT, &t.policy, 0, 0},
        {"--switch", "ITER:POLICY", "go over to POLICY once ITER iterations are done", ARG_TEXTS, &t.switch_texts, 0,
         0},
        {"--seed", "N", "of weights, shuffling, augmentation and dropout (1)", ARG_COUNT, &t.seed, 0, 9e15},
        TARGET_OPTIMIZER_ARG(&t.target),
        {"--reset-optimizer", NULL, "of --load's state take the weights, but not what its optimizer kept", ARG_FLAG,
         &t.reset_optimizer, 0, 0},
        {"--lr", "X", "learning rate (sgd 0.1, adamw 0.001)", ARG_NUMBER, &t.lr, 1e-9, 1e3},
        {"--lr-step", "ITER", "divide the learning rate by ten at ITER", ARG_TEXTS, &t.lr_texts, 0, 0},
        {"--lr-schedule", "HOW",
         "constant, or cosine[,warmup=N]: up in N iterations, down to 0 over the run (constant)", ARG_TEXT,
         &t.lr_schedule, 0, 0},
        {"--momentum", "X", "of sgd (0.9)", ARG_NUMBER, &t.momentum, 0, 1},
        {"--weight-decay", "X", "of weights, biases and batch norms (sgd 0.0001, adamw 0.01)", ARG_NUMBER,
         &t.weight_decay, 0, 1},
        {"--eval", NULL, "test accuracy at the end, with --epochs after each", ARG_FLAG, &t.eval, 0, 0},
        {"--load", "FILE", "go on from a saved state (safetensors)", ARG_TEXT, &t.load, 0, 0},
        {"--save", "FILE", "save weights and optimizer state at the end (safetensors)", ARG_TEXT, &t.save, 0, 0},
        {"--save-every", "N", "... and after each N iterations, or epochs: 1epoch", ARG_TEXT, &t.save_every, 0, 0},
        {"--log", "FILE", "a line of CSV for each iteration", ARG_TEXT, &t.log_path, 0, 0},
        {"--json", "FILE", "the figures, as an array of one row; -: to standard output", ARG_TEXT, &t.json, 0, 0},
        {"--facts", "FILE", "plan by the times that 'mm bench --facts' measured of this network and batch", ARG_TEXT,
         &t.facts, 0, 0},
        {"--no-measure", NULL, "do not measure the peak (which touches all bytes that plans take)", ARG_FLAG,
         &t.no_measure, 0, 0},
        {"--keep-going", NULL, "train on with a loss or gradient that is NaN or infinite, updates included", ARG_FLAG,
         &t.keep_going, 0, 0},
        {"--no-ladder", NULL, "if memory is short, fail: no plan that does with less stands in", ARG_FLAG, &t.no_ladder,
         0, 0},
        {"--self-check", NULL, "poison freed bytes and compare lossless copies (slow)", ARG_FLAG, &t.self_check, 0, 0},
        {"--issue", "HOW", "of side streams: thread: workers; inline: the training thread, can be recorded (auto)",
         ARG_TEXT, &t.issue, 0, 0},
        {"--quiet", NULL, "no progress", ARG_FLAG, &t.quiet, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm train [OPTIONS]", help_text, &t.help);
    if (status != MM_OK) return command_failed("train", status);
    if (t.help) return EXIT_OK;
    if (!t.iterations && !t.epochs) t.iterations = 100;
    t.interrupted = command_interruptible();
    row r = {0};
    t.table = table;
    t.argc = argc;
    t.argv = argv;
    status = open_state(&t);
    if (status == MM_OK) status = run_train(&t, &r);
    args_texts_fini(&t.lr_texts);
    args_texts_fini(&t.switch_texts);
    if (t.log) fclose(t.log);
    target_fini(&t.target);
    facts_source_close(&t.source);
    nets_net_destroy(t.network);
    if (status != MM_OK) {
        texts_fini(&t.texts);
        int code = command_failed("train", status);
        if (status == MM_ERR_INFEASIBLE && t.budget_bytes > 0)
            fprintf(stderr, "'mm plan --net %s --batch %lld' tells what each policy needs\n", t.net,
                    (long long)t.batch);
        session_state_close(t.state);
        return code;
    }
    row_end(&r, *t.interrupted);
    status = rows_print(json_file_beside(t.json), &r, 1);
    if (status == MM_OK && t.json) status = rows_save(t.json, &r, 1);
    texts_fini(&t.texts);
    session_state_close(t.state);
    if (status != MM_OK) return command_failed("train", status);
    if (r.diverged_iteration > 0 && !t.keep_going) return EXIT_FAILED;
    return *t.interrupted ? EXIT_INTERRUPTED : EXIT_OK;
}
