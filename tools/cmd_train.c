#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/safetensors.h"
#include "nets/zoo.h"
#include "policies/policy.h"
#include "tools/commands.h"
#include "tools/session.h"

/* Set by SIGINT: the iteration under way is finished, and the state saved if asked. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

enum { SWITCHES_MAX = 64 };

typedef struct policy_switch {
    int64_t iteration;
    const char *policy;
} policy_switch;

typedef struct train {
    /* as given */
    const char *net, *data, *device, *policy, *save, *load, *json, *log_path, *issue;
    int64_t batch, iterations, epochs, budget_bytes, seed;
    double lr, momentum, weight_decay;
    arg_texts switch_texts, lr_texts;
    bool eval, self_check, deterministic, measure, quiet, help;
    /* made of it */
    policy_switch switches[SWITCHES_MAX];
    int n_switches;
    nets_net *network;
    FILE *log;
} train;

static mm_status read_switch(train *t, const char *text) {
    char *colon;
    errno = 0;
    long long iteration = strtoll(text, &colon, 10);
    if (errno || colon == text || *colon != ':' || iteration < 0)
        return mm_fail(MM_ERR_INVALID, "--switch %s: must be ITERATION:POLICY, for example 100:freelunch:rate=4", text);
    mm_policy policy;
    if (mm_policy_parse(colon + 1, &policy) != MM_OK) return mm_fail_in(MM_ERR_INVALID, "--switch %s", text);
    t->switches[t->n_switches++] = (policy_switch){.iteration = iteration, .policy = colon + 1};
    return MM_OK;
}

/* "--lr-step 0.1@32000,48000": factor, and the iterations where it applies. */
static mm_status read_schedule(const train *t, nets_schedule *schedule) {
    *schedule = (nets_schedule){.rate = (float)t->lr, .factor = 0.1f};
    for (int i = 0; i < t->lr_texts.n; i++) {
        char *end;
        long long at = strtoll(t->lr_texts.text[i], &end, 10);
        if (end == t->lr_texts.text[i] || *end || at < 0 || i == NETS_SCHEDULE_STEPS)
            return mm_fail(MM_ERR_INVALID, "--lr-step %s: must be an iteration, at most %d of them",
                           t->lr_texts.text[i], NETS_SCHEDULE_STEPS);
        schedule->at[schedule->n++] = at;
    }
    return nets_schedule_check(schedule);
}

static mm_status apply_switches(void *ctx, session *s, bool *stop_out) {
    const train *t = ctx;
    for (int i = 0; i < t->n_switches; i++)
        if (t->switches[i].iteration == s->iteration) MM_TRY(mm_policy_set(s->manager, t->switches[i].policy));
    *stop_out = interrupted;
    return MM_OK;
}

static mm_status check_writable(const char *path) { return path ? nets_safetensors_writable(path) : MM_OK; }

static mm_status configure(train *t, session_config *config) {
    if (t->iterations && t->epochs) return mm_fail(MM_ERR_INVALID, "--iterations and --epochs: give one of them");
    if (strcmp(t->issue, "thread") != 0 && strcmp(t->issue, "inline") != 0)
        return mm_fail(MM_ERR_INVALID, "--issue %s: must be thread or inline", t->issue);
    mm_policy policy;
    MM_TRY(mm_policy_parse(t->policy, &policy));
    for (int i = 0; i < t->switch_texts.n; i++) MM_TRY(read_switch(t, t->switch_texts.text[i]));
    MM_TRY(nets_zoo_build(t->net, &t->network));
    MM_TRY(check_writable(t->save));
    MM_TRY(check_writable(t->json));
    MM_TRY(check_writable(t->log_path));
    *config = (session_config){.net = t->network,
                               .data = t->data,
                               .batch = t->batch,
                               .device = t->device,
                               .budget_bytes = t->budget_bytes,
                               .seed = (uint64_t)t->seed,
                               .sgd = {.momentum = (float)t->momentum, .weight_decay = (float)t->weight_decay},
                               .whole_epochs = t->epochs > 0,
                               .evaluate = t->eval,
                               .self_check = t->self_check,
                               .measure = t->measure,
                               .issue = strcmp(t->issue, "inline") == 0 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD};
    snprintf(config->policies.text[config->policies.n++], ARG_TEXT_CAPACITY, "%s", t->policy);
    for (int i = 0; i < t->n_switches; i++)
        snprintf(config->policies.text[config->policies.n++], ARG_TEXT_CAPACITY, "%s", t->switches[i].policy);
    return MM_OK;
}

static mm_status evaluate(const train *t, session *s, row *r) {
    double loss;
    MM_TRY(session_evaluate(s, t->quiet, &r->test_accuracy, &loss));
    printf("iteration %lld: test accuracy %.2f%%, test loss %.4f\n", (long long)s->iteration, 100 * r->test_accuracy,
           loss);
    fflush(stdout);
    return MM_OK;
}

/* Trains to the end, with an evaluation after each epoch if asked; one run otherwise. */
static mm_status train_all(const train *t, session *s, session_run *run, row *r) {
    int64_t end = t->epochs ? t->epochs * s->train_size.batches : t->iterations;
    int64_t part = t->epochs && t->eval ? s->train_size.batches : end;
    row all = {0};
    while (s->iteration < end && !interrupted) {
        run->iterations = s->iteration + part - s->iteration % part;
        if (run->iterations > end) run->iterations = end;
        row one = {0};
        MM_TRY(session_train(s, run, &one));
        if (all.iterations > 0) {
            one.loss_first = all.loss_first;
            one.iterations += all.iterations;
        }
        all = one;
        if (t->eval && !interrupted) MM_TRY(evaluate(t, s, &all));
    }
    *r = all;
    return MM_OK;
}

static mm_status run_session(const train *t, session *s, row *r) {
    session_run run = {.hook = apply_switches, .hook_ctx = (void *)t, .log = t->log, .quiet = t->quiet};
    MM_TRY(read_schedule(t, &run.schedule));
    if (t->load) MM_TRY(session_load(s, t->load));
    mm_status status = train_all(t, s, &run, r);
    /* What was trained is not lost to a failure: the state is as the last whole iteration left it. */
    if (t->save && s->iteration > 0) {
        mm_status saved = session_save(s, t->save);
        if (status == MM_OK) status = saved;
    }
    return status;
}

static mm_status run_train(train *t, row *r) {
    session_config config;
    session s;
    MM_TRY(configure(t, &config));
    if (t->log_path) {
        t->log = fopen(t->log_path, "w");
        if (!t->log) return mm_fail(MM_ERR_IO, "cannot write %s: %s", t->log_path, strerror(errno));
        fprintf(t->log, "iteration,loss,accuracy,seconds\n");
    }
    MM_TRY(session_init(&s, &config));
    mm_status status = run_session(t, &s, r);
    session_fini(&s);
    if (status == MM_OK && t->log && (ferror(t->log) || fflush(t->log) != 0))
        status = mm_fail(MM_ERR_IO, "cannot write %s: %s", t->log_path, strerror(errno));
    return status;
}

static const char help_text[] =
    "Trains a network, keeping everything it needs on the device inside --budget. Without --budget it takes what the\n"
    "policy's plan needs ('mm plan' tells how much that is). SIGINT finishes the iteration, saves if --save is given,\n"
    "and exits with 130.\n\n"
    "  mm train --net resnet32 --data cifar10:DIR --epochs 3 --eval --policy freelunch:rate=4\n"
    "  mm train --net resnet20 --data synthetic --iterations 300 --switch 100:freelunch --switch 200:liveness";

int cmd_train(int argc, char **argv) {
    train t = {.net = "resnet32",
               .data = "synthetic",
               .device = "host",
               .policy = "liveness",
               .issue = "thread",
               .batch = 128,
               .seed = 1,
               .lr = 0.1,
               .momentum = 0.9,
               .weight_decay = 1e-4};
    const arg table[] = {
        {"--net", "NAME", "network, as in 'mm nets' (resnet32)", ARG_TEXT, &t.net, 0, 0},
        {"--data", "SPEC", "cifar10:DIR, synthetic, synthetic:samples=N (synthetic)", ARG_TEXT, &t.data, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &t.batch, 1, 1 << 20},
        {"--iterations", "N", "train until this many iterations are done (100)", ARG_COUNT, &t.iterations, 1, 1e9},
        {"--epochs", "N", "... or this many passes over the data", ARG_COUNT, &t.epochs, 1, 1e6},
        {"--device", "NAME", "host (host)", ARG_TEXT, &t.device, 0, 0},
        {"--budget", "SIZE", "device bytes, never exceeded: 300MiB (what the plan needs)", ARG_SIZE, &t.budget_bytes, 0,
         0},
        {"--policy", "NAME[:k=v,..]", "policy, as in 'mm policies' (liveness)", ARG_TEXT, &t.policy, 0, 0},
        {"--switch", "ITER:POLICY", "use POLICY once ITER iterations are done; may be repeated", ARG_TEXTS,
         &t.switch_texts, 0, 0},
        {"--seed", "N", "of weights, shuffling, augmentation and dropout (1)", ARG_COUNT, &t.seed, 0, 9e15},
        {"--lr", "X", "learning rate (0.1)", ARG_NUMBER, &t.lr, 1e-9, 1e3},
        {"--lr-step", "ITER", "divide the learning rate by ten at ITER; may be repeated", ARG_TEXTS, &t.lr_texts, 0, 0},
        {"--momentum", "X", "of SGD (0.9)", ARG_NUMBER, &t.momentum, 0, 1},
        {"--weight-decay", "X", "of SGD (0.0001)", ARG_NUMBER, &t.weight_decay, 0, 1},
        {"--eval", NULL, "test accuracy at the end, with --epochs after each", ARG_FLAG, &t.eval, 0, 0},
        {"--load", "FILE", "begin with a saved state (safetensors)", ARG_TEXT, &t.load, 0, 0},
        {"--save", "FILE", "save weights and optimizer state at the end", ARG_TEXT, &t.save, 0, 0},
        {"--log", "FILE", "a line of CSV for each iteration", ARG_TEXT, &t.log_path, 0, 0},
        {"--json", "FILE", "the figures, as an array of one row", ARG_TEXT, &t.json, 0, 0},
        {"--measure", NULL, "measure the peak by touched bytes", ARG_FLAG, &t.measure, 0, 0},
        {"--self-check", NULL, "poison freed bytes and compare lossless copies (slow)", ARG_FLAG, &t.self_check, 0, 0},
        {"--deterministic", NULL, "same bits on every run; the host device always is", ARG_FLAG, &t.deterministic, 0,
         0},
        {"--issue", "HOW", "thread: workers issue side streams; inline: the training thread (thread)", ARG_TEXT,
         &t.issue, 0, 0},
        {"--quiet", NULL, "no progress", ARG_FLAG, &t.quiet, 0, 0},
        {0},
    };
    if (args_parse(argc, argv, table, "mm train [OPTIONS]", help_text, &t.help) != MM_OK) return command_usage("train");
    if (t.help) return EXIT_OK;
    if (!t.iterations && !t.epochs) t.iterations = 100;
    signal(SIGINT, on_interrupt);
    row r = {0};
    mm_status status = run_train(&t, &r);
    if (t.log) fclose(t.log);
    nets_net_destroy(t.network);
    if (status != MM_OK) return command_failed("train", status);
    snprintf(r.status, sizeof r.status, "%s", interrupted ? "interrupted" : "ok");
    rows_print(stdout, &r, 1);
    if (t.json && (status = rows_save(t.json, &r, 1)) != MM_OK) return command_failed("train", status);
    return interrupted ? EXIT_INTERRUPTED : EXIT_OK;
}
